"""The benchmarks that `tidelog bench` finds: the modules of `benchmarks/`, which the wheel has as `tidelog.benchmarks`.

A benchmark is a module whose docstring begins with what it measures, with a function `run(**sizes)` that returns its
figures. Its name is the module's, with dashes. One that begins with an underscore is a helper; `_workloads` holds the workloads of
the benchmark `scheduling`, each of which is a benchmark by its own name as well.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tidelog.api.errors import TidelogError
from tidelog.cli.shipped import folder


def benchmarks() -> dict[str, str]:
    """Name → what it measures. The modules are read without importing them, so that listing costs little."""
    found = sorted(path for path in folder("benchmarks").glob("*.py") if not path.name.startswith("_"))
    modules = {path.stem.replace("_", "-"): _first_line(path) for path in found}
    return modules | {name: f"Scheduling: {workload.summary}" for name, workload in _workloads().items()}


def _workloads() -> Mapping[str, Any]:
    if not (folder("benchmarks") / "_workloads.py").exists():
        return {}
    workloads: Mapping[str, Any] = import_module("tidelog.benchmarks._workloads").WORKLOADS
    return workloads


def _first_line(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    return (docstring or "").split("\n", 1)[0].rstrip(".")


def module_of(name: str) -> str:
    """The name of the module that runs this benchmark."""
    return "tidelog.benchmarks." + ("scheduling" if name in _workloads() else name.replace("-", "_"))


def run_benchmark(name: str, sizes: Mapping[str, int], log: str = "") -> dict[str, Any]:
    """Its figures. `log` is for those that ask where to keep theirs."""
    given: dict[str, Any] = {"workload": name} if name in _workloads() else {}
    try:
        run = import_module(module_of(name)).run
        if "log" in inspect.signature(run).parameters:
            given["log"] = log
        figures: dict[str, Any] = run(**given, **sizes)
    except ModuleNotFoundError as error:
        raise TidelogError(
            f"tidelog bench {name} needs {error.name}: pip install 'tidelog[kube,postgres]'"
        ) from error
    return figures

"""The benchmarks that `tidelog bench` finds: the modules of `benchmarks/`, which the wheel has as `tidelog.benchmarks`.

A benchmark is a module whose docstring begins with what it measures, with a function `run(**sizes)` that returns its
figures. Its name is the module's, with dashes. One that begins with an underscore is a helper.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tidelog.daemon.shipped import folder


def benchmarks() -> dict[str, str]:
    """Name → what it measures; read without importing them, so that listing costs nothing."""
    found = sorted(path for path in folder("benchmarks").glob("*.py") if not path.name.startswith("_"))
    return {path.stem.replace("_", "-"): _first_line(path) for path in found}


def _first_line(module: Path) -> str:
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    return (docstring or "").split("\n", 1)[0].rstrip(".")


def run_benchmark(name: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Its figures."""
    module = import_module(f"tidelog.benchmarks.{name.replace('-', '_')}")
    figures: dict[str, Any] = module.run(**sizes)
    return figures

"""Examples in docstrings run: each block of a docstring that is Python is executed with the names that its reader would have."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tidelog
from tidelog.api.admission import admit, admit_delete, set_condition
from tidelog.api.cluster import Stamp
from tidelog.api.features import FeatureGates
from tidelog.api.object_table import ObjectTable
from tidelog.api.overrides import fold
from tidelog.api.projection import Projection
from tidelog.api.wire import read_line, read_meta, read_object
from tidelog.plugins.registry import Registry
from tidelog.testing.recordings import play, read_recording

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("api", "cli", "configuration", "daemon", "eventlog", "framework", "page", "plugins", "queue", "replay", "scheduler", "testing")  # fmt: skip
POD = tidelog.pod("web").build()
ADMITTED, _ = admit(POD, None, ObjectTable(), FeatureGates(), Stamp(seq=1, at=1))
LINE = b'{"type": "ADDED", "object": {"metadata": {"name": "web", "uid": "u", "resourceVersion": "7"}}}'

GIVEN: dict[str, dict[str, Any]] = {
    "api/admission.py": {
        "admit": admit, "admit_delete": admit_delete, "set_condition": set_condition, "new": POD, "old": None, "stored": ADMITTED,
        "cluster": ObjectTable(), "gates": FeatureGates(), "stamp": Stamp(seq=2, at=1), "grace": 0, "pod": POD,
        "type": "PodScheduled", "status": "True", "reason": "", "message": "", "at": 1,
    },
    "api/overrides.py": {"fold": fold, "obj": ADMITTED, "known": None, "cluster": ObjectTable(), "gates": FeatureGates()},
    "api/projection.py": {"Projection": Projection, "key": b"k", "obj": POD},
    "testing/recordings.py": {
        "play": play, "read_recording": read_recording, "registry": Registry(),
        "path": ROOT / "tests" / "conformance" / "recordings" / "gang-topology-101.jsonl.gz",
    },
    "api/wire.py": {"read_line": read_line, "read_object": read_object, "read_meta": read_meta, "bytes": LINE},
}  # fmt: skip
"""What the examples of a module take for granted, besides what `tidelog` exports."""

NOT_RUN = {
    "framework/behaviours.py": "a line of a plugin's own",
    "testing/hint_soundness.py": "needs a queue of the reader's",
    "testing/plugin_kit.py": "runs in examples/plugin",
}


class Example(NamedTuple):
    path: str
    code: str


def examples() -> Iterator[Example]:
    for path in [ROOT / "__init__.py", *(p for f in FOLDERS for p in sorted((ROOT / f).rglob("*.py")))]:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            blocks = re.findall(
                r"(?:^    .*\n?(?:\n(?=    ))?)+", ast.get_docstring(node) or "", re.MULTILINE
            )
            for block in map(textwrap.dedent, blocks):
                if is_python(block):
                    yield Example(path.relative_to(ROOT).as_posix(), block)


def is_python(text: str) -> bool:
    try:
        return bool(ast.parse(text).body)
    except SyntaxError:
        return False


@pytest.mark.parametrize("example", list(examples()), ids=lambda example: example.path)
def test_example_runs(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if example.path in NOT_RUN:
        pytest.skip(NOT_RUN[example.path])
    monkeypatch.chdir(tmp_path)
    Path("scheduler.yaml").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    given = {name: getattr(tidelog, name) for name in tidelog.__all__} | GIVEN.get(example.path, {})
    if example.path == "replay/history.py":
        asyncio.run(write_a_log(Path("cluster.db")))
        given["path"] = "cluster.db"
    if example.path == "testing/store_contract.py":
        from tidelog.testing import store_contract

        given |= vars(store_contract)

    code = compile(example.code, example.path, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, given)
    if inspect.iscoroutine(result):
        asyncio.run(result)


async def write_a_log(path: Path) -> None:
    async with tidelog.Scheduler.open(path) as scheduler:
        await scheduler.apply([tidelog.pod(f"web-{i}").build() for i in range(1500)])
        await scheduler.settled()


def test_modules_that_are_named_here_have_examples() -> None:
    assert {*GIVEN, *NOT_RUN} <= {example.path for example in examples()}
    assert os.path.isfile(ROOT / "__init__.py")

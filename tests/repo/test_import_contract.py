"""The import contract holds, and the checker that says so can fail."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_imports", ROOT / "tools" / "check_imports.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_contract_holds() -> None:
    done = subprocess.run(
        [sys.executable, "tools/check_imports.py"], cwd=ROOT, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("folder", "source", "breach"),
    [
        (
            "api",
            "from tidelog.eventlog.records import Record",
            "api/ must not import tidelog.eventlog.records.Record",
        ),
        ("plugins", "import tidelog.queue.heap", "plugins/ must not import tidelog.queue.heap"),
        (
            "scheduler",
            "from tidelog.eventlog.log import Log",
            "scheduler/ must not import tidelog.eventlog.log.Log",
        ),
        ("queue", "import time", "queue/ is pure and must not import time"),
        ("plugins", "def f():\n    from random import choice", "plugins/ is pure and must not import random"),
        ("scheduler", "import asyncio", "scheduler/ is pure and must not import asyncio"),
    ],
)
def test_breach_is_found(
    checker: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
    source: str,
    breach: str,
) -> None:
    monkeypatch.setattr(checker, "ROOT", tmp_path)
    path = tmp_path / folder / "module.py"
    path.parent.mkdir()
    path.write_text(source)

    found = list(checker.breaches(path, folder))

    assert len(found) == 1
    assert found[0].endswith(breach)


def test_allowed_import_passes(checker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "ROOT", tmp_path)
    path = tmp_path / "scheduler" / "module.py"
    path.parent.mkdir()
    path.write_text("from tidelog.eventlog.records import Record\nfrom tidelog.queue.heap import Heap\n")

    assert list(checker.breaches(path, "scheduler")) == []

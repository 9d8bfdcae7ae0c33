"""The import contract holds, and the checker that says so can fail."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The checker, looking at a small tree in which every product folder may import `api` and `eventlog/records`."""
    spec = importlib.util.spec_from_file_location("check_imports", ROOT / "tools" / "check_imports.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    for top in module.PRODUCT:
        (tmp_path / top).mkdir()
        (tmp_path / top / "README.md").write_text("# It\n\nMay import: `api`, `eventlog/records`\n")
    for name in ("api/objects", "eventlog/records", "eventlog/log", "queue/heap", "scheduler/groups/group"):
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
    (tmp_path / "scheduler" / "groups" / "README.md").write_text("# It\n\nMay import: `scheduler`\n")
    return module


def test_contract_holds() -> None:
    done = subprocess.run(
        [sys.executable, "tools/check_imports.py"], cwd=ROOT, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("folder", "source", "breach"),
    [
        ("plugins", "import tidelog.queue.heap", "plugins/ must not import queue/heap"),
        (
            "scheduler",
            "from tidelog.eventlog.log import Log",
            "scheduler/ must not import eventlog/log",
        ),
        ("scheduler", "from tidelog.eventlog import log", "scheduler/ must not import eventlog/log"),
        (
            "scheduler",
            "from tidelog.scheduler.groups.group import Group",
            "scheduler/ must not import scheduler/groups/group",
        ),
        (
            "scheduler/groups",
            "from tidelog.api.objects import Pod",
            "scheduler/groups/ must not import api/objects",
        ),
        ("queue", "import time", "queue/ is pure and must not import time"),
        ("plugins", "def f():\n    from random import choice", "plugins/ is pure and must not import random"),
        ("scheduler/groups", "import asyncio", "scheduler/groups/ is pure and must not import asyncio"),
    ],
)
def test_breach_is_found(checker: ModuleType, tmp_path: Path, folder: str, source: str, breach: str) -> None:
    (tmp_path / folder / "module.py").write_text(source)

    assert list(checker.check()) == [f"{folder}/module.py:{source.count(chr(10)) + 1}: {breach}"]


def test_allowed_imports_pass(checker: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "scheduler" / "module.py").write_text(
        "from tidelog.eventlog.records import Record\nfrom tidelog.scheduler import other\nimport tidelog.api.objects\n"
    )
    (tmp_path / "scheduler" / "other.py").write_text("")

    assert list(checker.check()) == []


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        (None, "queue/README.md: a line `May import: ...` is missing"),
        ("# Queue\n", "queue/README.md: a line `May import: ...` is missing"),
        ("May import: `api`, `apo`\n", "queue/README.md: there is no apo"),
    ],
)
def test_missing_or_stale_contract_is_found(
    checker: ModuleType, tmp_path: Path, page: str | None, complaint: str
) -> None:
    readme = tmp_path / "queue" / "README.md"
    readme.unlink() if page is None else readme.write_text(page)

    assert list(checker.check()) == [complaint]

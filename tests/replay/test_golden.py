"""The golden logs still verify, and nobody has exchanged one without a reason."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.conftest import AssertReplays
from tests.golden.make import STORIES
from tidelog.eventlog.transfer import import_log
from tidelog.plugins.registry import Registry
from tidelog.replay.history import open_history

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
LOGS = sorted(GOLDEN.glob("*.jsonl"))


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
async def test_golden_log_verifies(path: Path, tmp_path: Path, assert_replays: AssertReplays) -> None:
    await import_log(tmp_path / "log.db", lines_of(path))
    async with await open_history(tmp_path / "log.db", Registry()) as history:
        records = await history.records()

    assert assert_replays(records)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_golden_log_was_made_for_a_stated_reason(path: Path) -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (GOLDEN / "README.md").read_text().splitlines()
        if line.startswith(f"| {path.stem} |")
    ]

    digest, reason = rows[-1][2], rows[-1][3]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert len(reason) > 10


def test_every_story_has_its_log() -> None:
    assert [path.stem for path in LOGS] == sorted(STORIES)

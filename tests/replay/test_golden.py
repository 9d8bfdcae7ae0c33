"""The golden logs still verify, and nobody has exchanged one without a reason."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.conftest import AssertReplays
from tests.golden.make import STORIES
from tidelog.eventlog.records import ConfigurationLoaded, Record, decode_body, encode_body
from tidelog.eventlog.transfer import import_log
from tidelog.framework.behaviours import BEHAVIOURS
from tidelog.plugins.registry import Registry
from tidelog.replay.history import open_history
from tidelog.replay.verify import verify

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
LOGS = sorted(GOLDEN.glob("*.jsonl"))


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
async def test_golden_log_verifies(path: Path, tmp_path: Path, assert_replays: AssertReplays) -> None:
    await import_log(tmp_path / "log.db", lines_of(path))
    async with open_history(tmp_path / "log.db", Registry()) as history:
        records = [record async for record in history.records()]

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


@pytest.mark.parametrize("number", BEHAVIOURS)
async def test_every_behaviour_has_a_golden_log_that_tells_its_two_ways_apart(
    number: int, tmp_path: Path
) -> None:
    await import_log(tmp_path / "log.db", lines_of(GOLDEN / f"{BEHAVIOURS[number].name}.jsonl"))
    async with open_history(tmp_path / "log.db", Registry()) as history:
        records = [record async for record in history.records()]

    in_the_new_way, in_the_old_way, as_recorded = (
        verify([with_behaviours(record, behaviours) for record in records], Registry())
        for behaviours in ((number,), (), None)
    )
    assert as_recorded.first_difference is None
    # Where only the old way has something to decide, the log need not tell that it was not decided; but the state does.
    assert in_the_old_way.first_difference is not None or in_the_old_way.digest != as_recorded.digest
    assert in_the_new_way.first_difference is not None


def with_behaviours(record: Record, behaviours: tuple[int, ...] | None) -> Record:
    """The record, which puts a configuration with these behaviours in force if it does one; None for its own."""
    body = decode_body(record)
    if behaviours is None or not isinstance(body, ConfigurationLoaded):
        return record
    configuration = {**body.configuration, "behaviours": behaviours}
    return replace(record, body=encode_body(ConfigurationLoaded(configuration=configuration)))


def test_every_story_has_its_log() -> None:
    assert [path.stem for path in LOGS] == sorted(STORIES)

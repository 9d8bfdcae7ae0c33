"""Every log file that a test of this folder leaves is replayed at its end, whoever wrote it.

From the start, from a snapshot of the state in the middle, believed and recomputed, and in a process with another hash seed (`tests/conftest.py`);
and by `tidelog replay verify`, the way that a user has, called here: the process with another hash seed is that one. A test whose logs hold no scheduler's work, or are broken on purpose, says so with the fixture
`nothing_to_replay`.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import DISK, AssertReplays
from tidelog.cli.main import main
from tidelog.eventlog.database import APPLICATION_ID
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Record


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder on the disk, which is where daemons keep their logs; left there when a test fails."""
    before = request.session.testsfailed
    folder = Path(tempfile.mkdtemp(prefix="tidelog-", dir=DISK))
    yield folder
    if request.session.testsfailed == before:
        shutil.rmtree(folder)


@pytest.fixture
def nothing_to_replay() -> None:
    """The test says in its docstring why."""


@pytest.fixture(autouse=True)
def _every_log_file_is_replayed(
    request: pytest.FixtureRequest, tmp_path: Path, assert_replays: AssertReplays
) -> Iterator[None]:
    before = request.session.testsfailed
    yield
    if "nothing_to_replay" in request.fixturenames or request.session.testsfailed > before:
        return
    for path in sorted(tmp_path.rglob("*")):
        if _is_log(path):
            records = asyncio.run(_records(path))
            if records:
                assert_replays(records)
                assert main(["replay", "verify", str(path)]) == 0


def _is_log(path: Path) -> bool:
    """Whether SQLite's header says that the database is ours."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(72)[68:] == APPLICATION_ID.to_bytes(4, "big")


async def _records(path: Path) -> list[Record]:
    async with open_reader(path) as reader:
        assert reader.anchor.seq == 0, "no test here compacts a daemon's log"
        return [record async for record in reader.read()]

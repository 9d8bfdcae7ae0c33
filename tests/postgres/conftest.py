"""A PostgreSQL server for the tests in this folder, one for each worker, and logs in it. Where none is installed, they are skipped.

Each log that a test makes is read at its end, and replayed, as every log is (`tests/conftest.py`), unless the test is marked `unreplayed`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.conftest import _FAILED, Replays
from tests.every_log import WrittenLog, beginning
from tests.postgres.server import PostgresServer, missing
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.postgres.schema import initialize
from tidelog.eventlog.reader import open_reader
from tidelog.plugins.registry import Registry, installed_plugins
from tidelog.scheduler.state import SNAPSHOT

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One line says why they are skipped."""
    reason = missing()
    if reason:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A server that nobody ends."""
    made = PostgresServer()
    made.start()
    yield made
    made.destroy()


@pytest.fixture(autouse=True)
def _witnesses(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a machine that knows of no log."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


class Logs:
    """Makes logs in a database, and reads them at the end."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.made: list[str] = []

    def name(self) -> str:
        """The address of a log that is not there yet."""
        url = f"{self._server.url()}?schema=t{next(_numbers)}"
        self.made.append(url)
        return url

    async def new(self) -> str:
        """The address of a new, empty log."""
        url = self.name()
        await initialize(url)
        return url


async def written(url: str, registry: Registry | None = None) -> WrittenLog:
    """Read what is in it."""
    async with open_reader(url) as log:
        registry = registry or installed_plugins()
        records = [record async for record in log.read()]
        if not log.anchor.seq:
            return WrittenLog(records, registry)
        infos = [info for info in await log.snapshots() if info.name in (SNAPSHOT, OBJECTS)]
        kept = [await log.stored_snapshot(info) for info in infos]
        begin = beginning(records, [snapshot for snapshot in kept if snapshot is not None], registry)
        assert begin is not None
        seq, state = begin
        return WrittenLog([record for record in records if record.seq > seq], registry, state)


@pytest.fixture
def logs(
    server: PostgresServer, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Logs]:
    """Logs of this test."""
    made = Logs(server)
    yield made
    # As a machine that knows nothing of them reads them: some went back on purpose.
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("reader"))
    if request.node.get_closest_marker("unreplayed") is None and _FAILED not in request.node.stash:
        replays: Replays = request.getfixturevalue("replays")
        found = [asyncio.run(written(url)) for url in made.made if asyncio.run(is_there(url))]
        replays.check([log for log in found if log.records])
    asyncio.run(_drop(server, made.made))


async def is_there(url: str) -> bool:
    """Whether the schema of this log is there."""
    address, _, schema = url.partition("?schema=")
    connection = await asyncpg.connect(address)
    try:
        return bool(await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema))
    finally:
        await connection.close()


async def _drop(server: PostgresServer, urls: list[str]) -> None:
    connection = await asyncpg.connect(server.url())
    for url in urls:
        await connection.execute(f"DROP SCHEMA IF EXISTS {url.partition('?schema=')[2]} CASCADE")
    await connection.close()

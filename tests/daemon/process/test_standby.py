"""Taking over a log on real files; most of it is told by the daemon's own tests, and under every fault by the simulation."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tidelog.api.errors import LogError
from tidelog.daemon.process.clock import SystemClock
from tidelog.daemon.process.compaction import compact
from tidelog.daemon.process.place import LogFiles
from tidelog.daemon.process.standby import Standby
from tidelog.eventlog.log import open_log
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.records import Draft, ObjectPut
from tidelog.plugins.registry import Registry
from tidelog.scheduler.core import Core
from tidelog.testing import builders as b


def node(name: str) -> Draft:
    return Draft(body=ObjectPut(object=b.node(name).build()), author="cluster", key=f"Node//{name}")


async def test_standby_that_has_read_only_a_snapshot_takes_over_a_log_that_was_compacted_beyond_it(
    tmp_path: Path,
) -> None:
    """It knows no record by which it could tell that the log goes on from where it stands."""
    path, registry = tmp_path / "c.db", Registry()
    async with open_log(path) as log:
        await log.append([node("n1")])
        await compact(log, registry)
    log = await open_log(path)
    follows: asyncio.Future[Core] = asyncio.get_running_loop().create_future()
    standby = Standby(
        LogFiles(path),
        registry,
        SystemClock(),
        what="test",
        followed=lambda core: None if follows.done() else follows.set_result(core),
        poll_seconds=3600,
    )
    taking = asyncio.create_task(standby.take_over())
    assert (await follows).seq == 1

    await log.append([node("n2"), node("n3")])
    await compact(log, registry)
    await log.close()
    taking.cancel()  # From its sleep: it looks again when it is next asked.
    await asyncio.gather(taking, return_exceptions=True)
    taken = await standby.take_over()

    assert sorted(taken.state.core.objects) == ["Node//n1", "Node//n2", "Node//n3"]
    await taken.log.close()


async def test_standby_begins_anew_where_the_log_is_another_of_the_same_length(tmp_path: Path) -> None:
    """As a repair or an import leaves one: what it has read is not what stands there."""
    path, other, registry = tmp_path / "c.db", tmp_path / "other.db", Registry()
    for place, names in ((path, ("n1", "n2")), (other, ("m1", "m2"))):
        async with open_log(place) as log:
            for name in names:
                await log.append([node(name)])
    follows: asyncio.Future[Core] = asyncio.get_running_loop().create_future()
    read = asyncio.Event()

    class Watched(Standby):
        async def _read(self, log: LogReader, *, look_for_snapshots: bool = False) -> None:
            await super()._read(log, look_for_snapshots=look_for_snapshots)
            read.set()

    log = await open_log(path)
    standby = Watched(
        LogFiles(path),
        registry,
        SystemClock(),
        what="test",
        followed=lambda core: None if follows.done() else follows.set_result(core),
        poll_seconds=3600,
    )
    taking = asyncio.create_task(standby.take_over())
    await follows
    await read.wait()
    await log.close()
    for suffix in ("", ".head"):
        other.with_name(other.name + suffix).rename(path.with_name(path.name + suffix))
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)

    taken = await standby.take_over()

    assert sorted(taken.state.core.objects) == ["Node//m1", "Node//m2"]
    await taken.log.close()


async def test_standby_lets_go_of_every_log_that_it_cannot_follow(tmp_path: Path) -> None:
    """A writer compacts under it, time and again: whatever it opened to look, it closes."""
    path, registry = tmp_path / "c.db", Registry()
    opened: list[LogReader] = []
    tried = asyncio.Event()

    class Watched(LogFiles):
        async def open_reader(self) -> LogReader:
            opened.append(await super().open_reader())
            return opened[-1]

        async def wait(self, seconds: float) -> None:
            if len(opened) == 3:
                tried.set()
            await asyncio.sleep(0)

    async with open_log(path) as log:
        await log.append([node("n1"), node("n2")])
        await log.put_snapshot("objects", 2, b"of another version")
        await log.compact()
        standby = Standby(Watched(path), registry, SystemClock(), what="test")
        taking = asyncio.create_task(standby.take_over())
        await tried.wait()
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)

    for reader in opened:
        with pytest.raises(LogError, match="is closed"):
            reader.refresh()


async def test_standby_that_is_cancelled_when_the_log_is_just_its_own_lets_go_of_it(tmp_path: Path) -> None:
    path, registry = tmp_path / "c.db", Registry()
    closing, follows = asyncio.Event(), asyncio.Event()

    class Watched(LogFiles):
        async def open_reader(self) -> LogReader:
            reader = await super().open_reader()
            close = reader.close

            async def wait_to_close() -> None:
                reader.close = close  # type: ignore[method-assign]
                closing.set()
                await asyncio.sleep(PATIENCE)

            reader.close = wait_to_close  # type: ignore[method-assign]
            return reader

        async def wait(self, seconds: float) -> None:
            follows.set()
            await asyncio.sleep(0)

    log = await open_log(path)
    await log.append([node("n1")])
    standby = Standby(Watched(path), registry, SystemClock(), what="test")
    taking = asyncio.create_task(standby.take_over())
    await follows.wait()
    await log.close()
    await closing.wait()
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)

    async with open_log(path) as log:
        assert log.head.seq == 1

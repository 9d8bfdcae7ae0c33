"""Deliberate bugs of what lies between the scheduler and the disk, which only a machine that breaks can show. As in `mutations.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from tests.simulation import sim_store
from tests.simulation.disk import SimDisk
from tests.simulation.sim_store import SimStore
from tidelog.daemon.standby import Standby
from tidelog.eventlog.log import Log
from tidelog.eventlog.reader import LogReader
from tidelog.scheduler.recovery import Recovery

Bug = Callable[[], AbstractContextManager[Any]]


def _never_sync() -> AbstractContextManager[Any]:
    """What is acknowledged is in the machine's memory only."""
    return patch.object(SimDisk, "syncs", False)


def _head_first() -> AbstractContextManager[Any]:
    """The head file names records before they are there."""
    commit = SimStore._commit

    async def broken(self: SimStore, frame: Any, head: Any) -> None:
        if head is not None:
            self._head_file.write(head)
        await commit(self, frame, None)

    return patch.object(SimStore, "_commit", broken)


def _blind_writer() -> AbstractContextManager[Any]:
    """A writer does not look whether somebody else has written since."""
    begin = SimStore._begin

    async def broken(self: SimStore, shared: Any) -> None:
        await begin(self, shared)
        shared.published = self._file.place

    return patch.object(SimStore, "_begin", broken)


def _believe_the_cache() -> AbstractContextManager[Any]:
    """Who opens the log takes what it reads for durable."""
    return patch.object(sim_store._File, "make_durable", lambda self, known: None)


def _go_on_after_errors() -> AbstractContextManager[Any]:
    """A failed write is no reason to stop."""

    async def guarded(self: SimStore, job: Any) -> None:
        async with self._writer:
            try:
                await job()
            except OSError:
                self._file.shared.published = self._file.place

    return patch.object(SimStore, "_guarded", guarded)


def _hasty_standby() -> AbstractContextManager[Any]:
    """A standby consumes records before it is certain that no attempt was popped before them."""

    def advance(self: Recovery) -> Iterator[Any]:
        self._observed = self.read
        return iter(list(_ADVANCE(self)))

    return patch.object(Recovery, "advance", advance)


_ADVANCE = Recovery.advance


def _trusting_standby() -> AbstractContextManager[Any]:
    """A standby takes over with what it has read so far."""

    async def read(self: Standby, log: LogReader, *, look_for_snapshots: bool = False) -> None:
        if not isinstance(log, Log):
            await _READ(self, log, look_for_snapshots=look_for_snapshots)

    return patch.object(Standby, "_read", read)


_READ = Standby._read


def _blind_to_the_newest() -> AbstractContextManager[Any]:
    """Who looks back while it is sequenced does not see the newest record."""
    since = Log._since

    def broken(self: Log, seq: int, older: Any) -> Any:
        return since(self, seq, older)[:-1]

    return patch.object(Log, "_since", broken)


def _lose_a_record() -> AbstractContextManager[Any]:
    """A tail passes over a record now and then."""

    async def tail(self: Log, first: int = 0) -> AsyncIterator[Any]:
        async for batch in _TAIL(self, first):
            yield [record for record in batch if record.seq % 50]

    return patch.object(Log, "tail_batches", tail)


_TAIL = Log.tail_batches


BUGS: dict[str, Bug] = {
    "skip the fsync": _never_sync,
    "write the head before the records": _head_first,
    "write without looking for another writer": _blind_writer,
    "take for durable what is only in the cache": _believe_the_cache,
    "go on after a failed write": _go_on_after_errors,
    "consume before it is certain": _hasty_standby,
    "take over without reading the end": _trusting_standby,
    "overlook the newest record when sequencing": _blind_to_the_newest,
    "lose a record on the way to the core": _lose_a_record,
}

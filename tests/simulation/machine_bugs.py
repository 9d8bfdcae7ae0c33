"""Deliberate bugs of what lies between the scheduler and the disk, which only a machine that breaks can show. As in `mutations.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from tests.simulation import machine, sim_store
from tests.simulation.disk import SimDisk
from tests.simulation.sim_store import Frame, SimStore
from tidelog.daemon.process.recovery import recovered_core
from tidelog.daemon.process.standby import Standby
from tidelog.eventlog import log as eventlog
from tidelog.eventlog.log import Log
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.objects import load_objects
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.store import Head, Snapshot
from tidelog.scheduler.recovery import Recovery
from tidelog.scheduler.state import SNAPSHOT as SCHEDULER
from tidelog.scheduler.state import encode_state

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
    begin = sim_store._begin

    async def broken(file: sim_store._File) -> None:
        await begin(file)
        file.shared.published = file.place

    return patch.object(sim_store, "_begin", broken)


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


# --- compaction -----------------------------------------------------------------------------------------------------------


def _drop_before_keeping() -> AbstractContextManager[Any]:
    """The records go before the states are there that stand for them."""

    async def broken(log: Log, registry: Any, to: int | None = None) -> int:
        if to is not None:
            return await _COMPACT(log, registry, to)
        core, table = await recovered_core(log, registry), await load_objects(log)
        await log._store.compact(log.head)
        await log.put_snapshot(SCHEDULER, core.seq, encode_state(core))
        await log.put_snapshot(OBJECTS, table.seq, table.encode())
        return log.head.seq

    return patch.object(machine, "compact", broken)


_COMPACT = machine.compact


def _compact_in_memory() -> AbstractContextManager[Any]:
    """That records were dropped is not written down."""

    async def broken(self: SimStore, anchor: Any) -> None:
        self._file.take(Frame(anchor=(anchor.seq, anchor.at, anchor.epoch, anchor.digest)), self._file.place)
        self.anchor = anchor

    return patch.object(SimStore, "compact", broken)


def _keep_in_memory() -> AbstractContextManager[Any]:
    """A snapshot is there for who has made it, and nobody has synced it."""

    async def broken(self: SimStore, snapshot: Snapshot, *, urgent: bool = False) -> None:
        self._file.snapshots[snapshot.name, snapshot.seq] = snapshot

    return patch.object(SimStore, "put_snapshot", broken)


def _forget_the_epoch() -> AbstractContextManager[Any]:
    """The anchor does not say whose the last record that was dropped is."""
    return patch.object(
        eventlog, "advance", lambda head, record: Head(record.seq, record.at, head.epoch, record.digest)
    )


def _blind_to_compaction() -> AbstractContextManager[Any]:
    """Who compacts does not look whether somebody else has compacted since."""
    return patch.object(SimStore, "_check_anchor", lambda self: None)


def _blind_after_compaction() -> AbstractContextManager[Any]:
    """A writer looks for the records of others, which may have been compacted away."""

    def broken(self: SimStore, frame: Frame) -> None:
        if self._file.rows:
            _CHECK(self, frame)

    return patch.object(SimStore, "_check_alone", broken)


_CHECK = SimStore._check_alone


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
    "drop records before the snapshots are kept": _drop_before_keeping,
    "do not write down what was dropped": _compact_in_memory,
    "keep the snapshots of a compaction in memory": _keep_in_memory,
    "forget the epoch of what was dropped": _forget_the_epoch,
    "compact without looking for another who has": _blind_to_compaction,
    "write after a compaction without looking for its records": _blind_after_compaction,
}

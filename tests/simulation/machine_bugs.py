"""Deliberate bugs of what lies between the scheduler and the disk, which only a machine that breaks can show. As in `mutations.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from typing import Any

from tests.simulation import programs, sim_store
from tests.simulation.bug import Bug, Ran, broken
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
from tidelog.scheduler.state import capture_state


def _never_sync() -> AbstractContextManager[Ran]:
    """What is acknowledged is in the machine's memory only."""
    return broken((SimDisk, "syncs", lambda _: False))


def _head_first() -> AbstractContextManager[Ran]:
    """The head file names records before they are there."""
    commit = SimStore._commit

    async def wrong(self: SimStore, frame: Any, head: Any) -> None:
        if head is not None:
            self._head_file.write(head)
        await commit(self, frame, None)

    return broken((SimStore, "_commit", lambda _: wrong))


def _blind_writer() -> AbstractContextManager[Ran]:
    """A writer does not look whether somebody else has written since."""
    begin = sim_store._begin

    async def wrong(file: sim_store._File) -> None:
        await begin(file)
        file.shared.published = file.place

    return broken((sim_store, "_begin", lambda _: wrong))


def _believe_the_cache() -> AbstractContextManager[Ran]:
    """Who opens the log takes what it reads for durable."""
    return broken((sim_store._File, "make_durable", lambda _: lambda self, known: None))


def _go_on_after_errors() -> AbstractContextManager[Ran]:
    """A failed write is no reason to stop."""

    async def guarded(self: SimStore, job: Any) -> None:
        async with self._writer:
            try:
                await job()
            except OSError:
                self._file.shared.published = self._file.place

    return broken((SimStore, "_guarded", lambda _: guarded))


def _hasty_standby() -> AbstractContextManager[Ran]:
    """A standby consumes records before it is certain that no attempt was popped before them."""

    def advance(self: Recovery) -> Iterator[Any]:
        self._observed = self.read
        return iter(list(_ADVANCE(self)))

    return broken((Recovery, "advance", lambda _: advance))


_ADVANCE = Recovery.advance


def _trusting_standby() -> AbstractContextManager[Ran]:
    """A standby takes over with what it has read so far."""

    async def read(self: Standby, log: LogReader, *, look_for_snapshots: bool = False) -> None:
        if not isinstance(log, Log):
            await _READ(self, log, look_for_snapshots=look_for_snapshots)

    return broken((Standby, "_read", lambda _: read))


_READ = Standby._read


def _blind_to_the_newest() -> AbstractContextManager[Ran]:
    """Who looks back while it is sequenced does not see the newest record."""
    since = Log._since

    def wrong(self: Log, seq: int, older: Any) -> Any:
        return since(self, seq, older)[:-1]

    return broken((Log, "_since", lambda _: wrong))


def _lose_a_record() -> AbstractContextManager[Ran]:
    """A tail passes over a record now and then."""

    async def tail(self: Log, first: int = 0) -> AsyncIterator[Any]:
        async for batch in _TAIL(self, first):
            yield [record for record in batch if record.seq % 50]

    return broken((Log, "tail_batches", lambda _: tail))


_TAIL = Log.tail_batches


# --- compaction -----------------------------------------------------------------------------------------------------------


def _drop_before_keeping() -> AbstractContextManager[Ran]:
    """The records go before the states are there that stand for them."""

    async def wrong(log: Log, registry: Any, to: int | None = None) -> int:
        if to is not None:
            return await _COMPACT(log, registry, to)
        core, table = await recovered_core(log, registry), await load_objects(log)
        await log._store.compact(log.head)
        await log.put_snapshot(SCHEDULER, core.seq, capture_state(core).blob())
        await log.put_snapshot(OBJECTS, table.seq, table.encode())
        return log.head.seq

    return broken((programs, "compact", lambda _: wrong))


_COMPACT = programs.compact


def _compact_in_memory() -> AbstractContextManager[Ran]:
    """That records were dropped is not written down."""

    async def wrong(self: SimStore, anchor: Any) -> None:
        self._file.take(Frame(anchor=(anchor.seq, anchor.at, anchor.epoch, anchor.digest)), self._file.place)
        self.anchor = anchor

    return broken((SimStore, "compact", lambda _: wrong))


def _keep_in_memory() -> AbstractContextManager[Ran]:
    """A snapshot is there for who has made it, and nobody has synced it."""

    async def wrong(self: SimStore, snapshot: Snapshot, *, urgent: bool = False) -> None:
        self._file.snapshots[snapshot.name, snapshot.seq] = snapshot

    return broken((SimStore, "put_snapshot", lambda _: wrong))


def _forget_the_epoch() -> AbstractContextManager[Ran]:
    """The anchor does not say whose the last record that was dropped is."""
    return broken(
        (
            eventlog,
            "advance",
            lambda _: lambda head, record: Head(record.seq, record.at, head.epoch, record.digest),
        )
    )


def _blind_to_compaction() -> AbstractContextManager[Ran]:
    """Who compacts does not look whether somebody else has compacted since."""
    return broken((SimStore, "_check_anchor", lambda _: lambda self: None))


def _blind_after_compaction() -> AbstractContextManager[Ran]:
    """A writer looks for the records of others, which may have been compacted away."""

    def wrong(self: SimStore, frame: Frame) -> None:
        if self._file.rows:
            _CHECK(self, frame)

    return broken((SimStore, "_check_alone", lambda _: wrong))


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

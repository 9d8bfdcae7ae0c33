"""The states of the scheduler that a log has snapshots of, each put together with its objects.

    a state's snapshot    what the objects do not say; costs what was pending
    its objects           those of the table after the same record: from the newest snapshot of the table before it, and the records since,
                          each of which costs a third of what the core needs for it

Where a whole state was kept, the log has both of the same record, and can begin there. The snapshots of a state that stand between these are of the
same form. Those of older versions have their objects in them.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.api.errors import LogDamaged, LogError
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.objects import ObjectTable, another_version, load_objects
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.store import BETWEEN, Snapshot, SnapshotInfo, SnapshotsUnreadable
from tidelog.plugins.registry import Registry
from tidelog.scheduler.core import Core
from tidelog.scheduler.state import SNAPSHOT, has_objects, load_state, needs_objects

NAMES = (SNAPSHOT, SNAPSHOT + BETWEEN)
"""Of the snapshots at whose records nothing was in flight."""


class State(NamedTuple):
    """A state that was loaded."""

    core: Core
    table: ObjectTable | None = None
    """As it is after the same record; it shares the core's objects. None if the state had its objects in it."""
    whole: int | None = None
    """The newest record at which the log has a state with objects that later states can be put together with; None if it has to be kept anew."""


class ObjectsGone(LogError):
    """No table is left to put a state of a compacted log together with: its snapshots are damaged, or do not know the order of the objects."""

    def __init__(self, why: LogError) -> None:
        super().__init__(str(why))
        self.why = why


async def newest_state(log: LogReader, registry: Registry, at_most: int | None = None) -> State | None:
    """The newest state that a snapshot holds, at or before a record; None if there is none.

    One whose objects are gone, because a snapshot of the table is damaged, is passed over as long as an older state is whole.

    Raises LogError if the log begins with a state that another version of tidelog wrote.
    """
    limit, other = at_most, False
    gone: LogError | None = None
    while (found := await log.snapshot(SNAPSHOT, limit, between=SNAPSHOT + BETWEEN)) is not None:
        limit = found.seq - 1
        try:
            state = await loaded(log, registry, found)
        except ObjectsGone as error:
            gone = gone or error.why
            continue
        if state is not None:
            if state.table is None:
                return state
            return state._replace(whole=await _last_whole(log))
        other = True
    if gone is not None:
        raise gone
    if log.anchor.seq and other:
        raise another_version(log.name, log.anchor.seq)
    return None


async def _last_whole(log: LogReader) -> int:
    """Where the newest state is whose objects are those of the table; where the log begins if there is none. No snapshot is read for it."""
    stored = await log.snapshots()
    states, tables = ({i.seq for i in stored if i.name == name} for name in (SNAPSHOT, OBJECTS))
    return max((seq for seq in states & tables if seq <= log.head.seq), default=log.anchor.seq)


async def loaded(log: LogReader, registry: Registry, snapshot: Snapshot) -> State | None:
    """The state of this snapshot; None if another version of tidelog wrote it. Raises ObjectsGone."""
    blob = snapshot.blob
    table = await _objects_of(log, snapshot) if needs_objects(blob) else None
    core = load_state(blob, registry, None if table is None else table.objects())
    return None if core is None else State(core, table)


async def _objects_of(log: LogReader, snapshot: Snapshot) -> ObjectTable:
    try:
        return await load_objects(log, snapshot.seq, in_order=True)
    except LogError as error:
        if not log.anchor.seq or (isinstance(error, LogDamaged) and error.first > log.anchor.seq):
            raise  # It is records that are damaged: older states need them, too.
        raise ObjectsGone(error) from error


async def last_kept(log: LogReader) -> int:
    """The newest record after which a state was kept, whether or not it can be loaded; where the log begins if none was."""
    try:
        stored = await log.snapshots()
    except SnapshotsUnreadable:
        return log.head.seq
    kept = (info.seq for info in stored if info.name in NAMES and info.seq <= log.head.seq)
    return max(kept, default=log.anchor.seq)


async def whole_states(log: LogReader) -> list[int]:
    """The records after which a whole state was kept, in order, as far as there still is what it takes to load it."""
    stored, anchor = await log.snapshots(), log.anchor.seq
    first = min((info.seq for info in stored if info.name == OBJECTS and info.seq >= anchor), default=None)
    return [
        info.seq
        for info in stored
        if info.name == SNAPSHOT
        and info.seq >= anchor
        and (not anchor or (first is not None and first <= info.seq) or await _has_objects(log, info))
    ]


async def beginnings(log: LogReader, last: int) -> list[int]:
    """The records up to `last` behind which the log can begin, in order: a whole state is there with its objects."""
    stored = await log.snapshots()
    tables = {info.seq for info in stored if info.name == OBJECTS}
    newest = max(tables, default=0)
    return [
        info.seq
        for info in stored
        if info.name == SNAPSHOT
        and log.anchor.seq < info.seq <= min(last, newest)
        and (info.seq in tables or await _has_objects(log, info))
    ]


async def _has_objects(log: LogReader, info: SnapshotInfo) -> bool:
    found = await log.stored_snapshot(info)
    return found is not None and has_objects(found.blob)

"""Making a log smaller: the states in snapshots at its end, then the records go. What `tidelog log compact` does.

After that states come from these snapshots and from nowhere else. So both are made anew, also where the log has some of this record: those may be
damaged, or of another version, and whoever computes a state passes them over as long as there are records.
"""

from __future__ import annotations

import msgspec

from tidelog.api.errors import LogError, LogFull
from tidelog.daemon.process.recovery import CannotRecover, recovered_core
from tidelog.daemon.process.retention import Retention, beginning, last_not_kept
from tidelog.eventlog.address import is_database
from tidelog.eventlog.log import Log
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.objects import ObjectTable, load_objects
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.records import decode_outcome
from tidelog.eventlog.store import CHANGES
from tidelog.plugins.registry import Registry
from tidelog.replay.history import History
from tidelog.scheduler.core import Core
from tidelog.scheduler.state import SNAPSHOT as SCHEDULER
from tidelog.scheduler.state import encode_state

STEP_BYTES = 2**20
"""Of the write-ahead log, while records are dropped and room is given back step by step."""


class CompactionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that has not been carried out."""

    first: int
    """The first record that would go …"""
    last: int
    """… and the last one; below `first` where none would."""
    size: int
    """Bytes of the database now."""
    room: int
    """Bytes that must be free on the disk for the file to become smaller. Less drops the records all the same, and later ones take their place."""
    wanted: int = 0
    """The last record that need not be kept. More than `last` where no snapshot lets the log begin behind it."""
    unexplained: int = 0
    """The records that are left up to this one could be neither explained nor replayed, since the state before it is lost; 0: all of them can be."""

    in_database: bool = False

    def __str__(self) -> str:
        what = f"records {self.first} to {self.last} go"
        if self.in_database:
            return f"{what}; the tables have {self.size:,} bytes now, and the server gives their room to what comes"
        return (
            f"{what}; the file has {self.size:,} bytes now, and becoming smaller it needs "
            f"up to {self.room:,} bytes of room on this disk"
        )


async def planned(log: LogReader, to: int | None, keep: Retention | None, now: int) -> CompactionPlan:
    """Return the compaction up to a record. Raises LogError if there is no such record."""
    await log.reload()
    end = log.head.seq
    if to is not None and to > end:
        raise LogError(f"{log.name}: there is no record {to}: the log ends at {end}")
    last = wanted = to or end
    if keep is not None:
        wanted = await last_not_kept(log, keep, now)
        last = await _between_attempts(log, wanted) or await beginning(log, wanted)
    explained = to is None or last in (end, log.anchor.seq) or await beginning(log, last) == last
    size, copied = await log.footprint()
    states = sum(info.size for info in await log.snapshots() if info.seq >= last)
    return CompactionPlan(
        first=log.anchor.seq + 1,
        last=last,
        size=size,
        room=copied + 2 * states + STEP_BYTES,
        wanted=wanted,
        unexplained=0 if explained else end,
        in_database=is_database(log.name),
    )


async def compact(log: Log, registry: Registry, to: int | None = None, *, whole: bool = True) -> int:
    """Drop the records up to `to`, by default all; returns the last one that is gone. Nobody schedules on the log.

    With `whole` states at its end are made anew, because those that are there may be damaged, or of another version; otherwise the log begins
    with the snapshot that is there, or with one that is made there. Costs what a recovery costs, two snapshots, and reading what is dropped.
    """
    end = log.head.seq
    if to is not None and to > end:
        raise LogError(f"{log.name}: there is no record {to}: the log ends at {end}")
    if end == log.anchor.seq:
        return end
    if whole:
        await _put_states(log, registry, needed=to is not None)
    elif to is not None and (before := await beginning(log, to)) != to:
        try:
            await _put(log, await History(log, registry).core_at(to), await load_objects(log, to))
        except LogFull:
            to = before
    dropped = await log.compact(to)
    await log.reclaim(whole=True)
    return dropped.seq


async def _put_states(log: Log, registry: Registry, *, needed: bool) -> None:
    # The scheduler's state is there even if none has run yet: the first one begins with it.
    core = await recovered_core(log, registry)
    if core.in_flight:
        raise CannotRecover(log.name, "an attempt at its end has only some of its outcomes")
    table = await load_objects(log)
    try:
        await _put(log, core, table)
    except LogFull:
        # What there are snapshots for already can be dropped all the same, and makes room.
        if needed or not any(not info.name.endswith(CHANGES) for info in await log.snapshots()):
            raise


async def _put(log: Log, core: Core, table: ObjectTable) -> None:
    await log.put_snapshot(SCHEDULER, core.seq, encode_state(core), urgent=True)
    await log.put_snapshot(OBJECTS, table.seq, table.encode(), urgent=True)


async def _between_attempts(log: LogReader, seq: int) -> int:
    """The newest record up to `seq` at which states can be made for the log to begin with, 0 if there is none.

    No attempt is under way there, whose outcome would follow without it; and no snapshot of changes lies behind it, which would be read as changes since then.
    """
    history = History(log, Registry())
    while seq > log.anchor.seq and (cut := await history.later(seq)):
        seq = min(body.observed for body in map(decode_outcome, cut) if body is not None)
    if seq <= log.anchor.seq or any(
        info.seq > seq for info in await log.snapshots() if info.name.endswith(CHANGES)
    ):
        return 0
    return seq

"""Making a log smaller: the states where it is to begin go into snapshots, then the records before go. What `tidelog log compact` does.

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
from tidelog.eventlog.objects import load_objects
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.records import decode_outcome
from tidelog.eventlog.store import SNAPSHOTS_KEPT
from tidelog.plugins.registry import Registry
from tidelog.replay.history import cut_off
from tidelog.scheduler.state import SNAPSHOT as SCHEDULER
from tidelog.scheduler.state import capture_state

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
    """Return the compaction up to a record, or to one before it. Raises LogError if there is no such record."""
    await log.reload()
    end = log.head.seq
    if to is not None and to > end:
        raise LogError(f"{log.name}: there is no record {to}: the log ends at {end}")
    last = await _place(log, (to or end) if keep is None else await last_not_kept(log, keep, now))
    size, copied = await log.footprint()
    infos = await log.snapshots()
    states = sum(info.size for info in infos if info.seq >= last)
    made = sum(max((i.size for i in infos if i.name == name), default=0) for name in (SCHEDULER, OBJECTS))
    return CompactionPlan(
        first=log.anchor.seq + 1,
        last=last,
        size=size,
        room=copied + states + made + STEP_BYTES,
        in_database=is_database(log.name),
    )


async def _place(log: LogReader, wanted: int) -> int:
    """The last record up to this one behind which the log can begin: no attempt is under way there, and its state is known, or can be made and kept."""
    if wanted >= log.head.seq:
        return log.head.seq
    place = max(wanted, log.anchor.seq)
    while outcomes := [decode_outcome(record) for record in await cut_off(log, place)]:
        place = min(outcome.observed for outcome in outcomes if outcome is not None)
    infos = await log.snapshots()
    states = [info.seq for info in infos if info.name == SCHEDULER]
    many = max(sum(info.name == name for info in infos) for name in (SCHEDULER, OBJECTS))
    if many >= SNAPSHOTS_KEPT or (log.anchor.seq and not any(seq <= place for seq in states)):
        return await beginning(log, wanted)
    return place


async def compact(log: Log, registry: Registry, to: int | None = None) -> int:
    """Drop the records up to `to`, by default all; returns the last one that is gone. Nobody schedules on the log.

    Costs what a recovery costs, two snapshots, and reading what is dropped. On a full disk it begins behind a snapshot that is there.
    """
    end = log.head.seq
    if to is not None and to > end:
        raise LogError(f"{log.name}: there is no record {to}: the log ends at {end}")
    last = await _place(log, end if to is None else to)
    if last <= log.anchor.seq:
        return log.anchor.seq
    try:
        await _put_states(log, registry, last)
    except LogFull as error:
        # What there are snapshots for already can be dropped all the same, and makes room.
        last = await beginning(log, last)
        if last <= log.anchor.seq:
            raise LogError(
                f"{log.name}: only {error.room} are free on this disk, and there is no snapshot yet behind which records could be dropped: "
                "make room and try again"
            ) from error
    dropped = await log.compact(last)
    await log.reclaim(whole=True)
    return dropped.seq


async def _put_states(log: Log, registry: Registry, seq: int) -> None:
    # The scheduler's state is there even if none has run yet: the first one begins with it.
    core = await recovered_core(log, registry, seq)
    if core.in_flight:
        raise CannotRecover(log.name, "an attempt at its end has only some of its outcomes")
    table = await load_objects(log, seq)
    table.bring_into_order(core.objects)
    await log.put_snapshot(OBJECTS, table.seq, table.encode(), urgent=True)
    await log.put_snapshot(SCHEDULER, core.seq, capture_state(core).blob(), urgent=True)

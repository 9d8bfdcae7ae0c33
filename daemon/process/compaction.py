"""Making a log smaller: the states in snapshots at its end, then the records go. What `tidelog log compact` does.

After that states come from these snapshots and from nowhere else. So both are made anew, also where the log has some of this record: those may be
damaged, or of another version, and whoever computes a state passes them over as long as there are records.
"""

from __future__ import annotations

from tidelog.api.errors import LogError, LogFull
from tidelog.daemon.process.recovery import CannotRecover, recovered_core
from tidelog.eventlog.log import Log
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.objects import load_objects
from tidelog.eventlog.store import CHANGES
from tidelog.plugins.registry import Registry
from tidelog.scheduler.state import SNAPSHOT as SCHEDULER
from tidelog.scheduler.state import encode_state


async def compact(log: Log, registry: Registry, to: int | None = None) -> int:
    """Drop the records up to `to`, by default all; returns the last one that is gone. Nobody schedules on the log.

    Costs what a recovery costs, two snapshots, and reading what is dropped.
    """
    end = log.head.seq
    if to is not None and to > end:
        raise LogError(f"{log.name}: there is no record {to}: the log ends at {end}")
    if end == log.anchor.seq:
        return end
    # The scheduler's state is there even if none has run yet: the first one begins with it.
    core = await recovered_core(log, registry)
    if core.in_flight:
        raise CannotRecover(log.name, "an attempt at its end has only some of its outcomes")
    table = await load_objects(log)
    try:
        await log.put_snapshot(SCHEDULER, core.seq, encode_state(core), urgent=True)
        await log.put_snapshot(OBJECTS, table.seq, table.encode(), urgent=True)
    except LogFull:
        # What there are snapshots for already can be dropped all the same, and makes room.
        if to is not None or not any(not info.name.endswith(CHANGES) for info in await log.snapshots()):
            raise
    dropped = await log.compact(to)
    await log.reclaim(whole=True)
    return dropped.seq

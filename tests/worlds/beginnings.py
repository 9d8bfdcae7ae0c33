"""Where logs can begin that were compacted."""

from __future__ import annotations

from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import decode_outcome
from tidelog.replay.driver import Driver
from tidelog.replay.playback import Beginning, recover


def behind(driver: Driver, seq: int) -> Beginning:
    """What a compaction to this record leaves."""
    core = recover(driver.records[:seq], driver.registry)
    table = ObjectTable()
    for record in driver.records[:seq]:
        table.apply(record)
    return Beginning(core, table.encode(), driver.records[seq - 1].digest)


def quiet_places(driver: Driver, first: int = 1) -> list[int]:
    """Records, from this one on, behind which no attempt is in flight."""
    observed = [
        (record.seq, body.observed)
        for record in driver.records
        if (body := decode_outcome(record)) is not None
    ]
    return [
        seq for seq in range(first, len(driver.records)) if not any(seen < seq < at for at, seen in observed)
    ]

"""`tidelog queue` for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tidelog.api.text import age, safe, table
from tidelog.cli.text.why import until
from tidelog.replay.waits import QueueRow
from tidelog.scheduler.core import Core

COLUMNS = ("POD", "WHERE", "PRIORITY", "ATTEMPTS", "WAITS SINCE", "UNTIL", "REJECTED BY")


def queue_lines(rows: Sequence[QueueRow], core: Core, now: int) -> Iterator[str]:
    """How many are where, then one line each, in the order of their turns."""
    if core.configuration is None:
        yield f"no scheduler has taken this log up to record {core.seq}, so there is no queue"
        return
    counts = Counter(row.waits.place for row in rows)
    told = ", ".join(f"{count} {place}" for place, count in counts.items())
    yield f"after record {core.seq}: {told or 'nothing is pending'}"
    if rows:
        yield table(COLUMNS, [_row(row, now) for row in rows])


def _row(row: QueueRow, now: int) -> tuple[object, ...]:
    waits = row.waits
    where = waits.place + (f", of group {waits.group}" if waits.group else "")
    since = age(now - waits.since) if waits.since else ""
    by = waits.gate or ", ".join(waits.plugins)
    if waits.reserved_on:
        what = "; ".join(waits.awaited) if waits.place == "answers" else f"permit of {by}"
        by = safe(f"reserved on {waits.reserved_on}, {what}")
    return (
        safe(row.key),
        where,
        row.priority,
        waits.attempts,
        since,
        until(waits.until, now) if waits.until else "",
        by,
    )

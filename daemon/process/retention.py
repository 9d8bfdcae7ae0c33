"""How much of a log is kept: so many of its newest records, or those of so long, and a little more.

A log may begin where a snapshot of the scheduler's state is, and nowhere else, if what is kept is still to be explained and replayed: the state
before a record is computed from there. So what is dropped ends at the newest such snapshot that lies before everything that is to be kept.
"""

from __future__ import annotations

import re

import msgspec

from tidelog.api.errors import UsageError
from tidelog.api.times import NANOS
from tidelog.eventlog.log import Log
from tidelog.eventlog.reader import LogReader
from tidelog.replay.states import beginnings

_AMOUNT = re.compile(r"([1-9][0-9]{0,14})([smhdw]?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
RULE = "a number of records (100000), or how long (45m, 12h, 30d, 8w)"


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two is not 0."""

    records: int = 0
    nanos: int = 0


def read_retention(text: str, option: str = "--keep") -> Retention:
    """Return the retention that `30d` or `100000` means. Raises UsageError."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise UsageError(f"{option} {text}: must be {RULE}")
    amount, unit = int(found[1]), found[2]
    if not unit:
        return Retention(records=amount)
    return Retention(nanos=amount * _SECONDS[unit] * NANOS)


async def end_of_dropped(log: LogReader, keep: Retention, now: int) -> int:
    """The last record that may go, and behind which the log can begin; the anchor's seq if none may. Costs a look at some twenty records."""
    return await beginning(log, await last_not_kept(log, keep, now))


async def last_not_kept(log: LogReader, keep: Retention, now: int) -> int:
    """The last record that need not be kept, whether or not the log can begin behind it; 0 or less if all are to be kept."""
    return log.head.seq - keep.records if keep.records else await log.seq_at(now - keep.nanos)


async def beginning(log: LogReader, last: int) -> int:
    """The newest record up to `last` behind which the log can begin; the anchor's seq if there is none."""
    return max(await beginnings(log, last), default=log.anchor.seq)


async def retain(log: Log, keep: Retention, now: int) -> int:
    """Drop what need not be kept, beside everything else that goes on; returns how many records went. In steps of some milliseconds."""
    before = log.anchor.seq
    last = await end_of_dropped(log, keep, now)
    if last > before:
        await log.compact(last)
        await log.reclaim()
    return log.anchor.seq - before

"""`--at`: the moments of a log that people name, and the objects as they were then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.api.errors import LogError
from tidelog.api.times import NANOS, format_time
from tidelog.cli.clock import is_time_of_day, moment_named, zone_notice
from tidelog.cli.progress import Progress
from tidelog.cli.terminal import notice
from tidelog.eventlog.address import LogAddress, is_database
from tidelog.eventlog.lock import is_held
from tidelog.eventlog.objects import ObjectTable, load_objects
from tidelog.eventlog.opening import log_path
from tidelog.eventlog.reader import LogReader, open_reader

LIVE_NANOS = 12 * 3600 * NANOS
"""A log that was written so recently is of today. Arbitrary: more than a quiet night, less than a day."""


class At(NamedTuple):
    """After a record, at a time, or, with neither, now."""

    seq: int | None = None
    time: int | None = None
    time_of_day: str = ""
    """The text, where it leaves the day open: `dated` settles it, when the log is open."""


NOW = At()


def parse_at(text: str | None, now: int | None = None) -> At:
    """Parse the value of `--at`: a record's number, or a time as people say it (`tidelog.cli.clock`). Raises UsageError."""
    if text is None:
        return NOW
    if text.isascii() and text.isdigit() and len(text) < 19:
        return At(seq=int(text))
    at = moment_named(text, time.time_ns() if now is None else now)
    if is_time_of_day(text):
        return At(time=at, time_of_day=text)
    if said := zone_notice(text, at):
        notice(said)
    return At(time=at)


async def dated(log: LogReader, at: At, now: int | None = None) -> At:
    """Settle the day of a time of day: the last such time, for a log that ended long ago the last one before its end."""
    if not at.time_of_day:
        return at
    await log.reload()
    now = time.time_ns() if now is None else now
    end = (await log.record(log.head.seq)).at if log.head.seq > log.anchor.seq else now
    meant = moment_named(at.time_of_day, now if now - end < LIVE_NANOS else end)
    notice(zone_notice(at.time_of_day, meant))
    return At(time=meant)


async def settled(path: LogAddress, at: At) -> At:
    """As `dated`, for who goes on to open the log once for each object."""
    if not at.time_of_day:
        return at
    async with open_reader(path) as log:
        return await dated(log, at)


def present(path: LogAddress, end: int) -> int:
    """The moment that ages count to: now, but of a log that ended long ago, and that no process goes on writing, its end."""
    now = time.time_ns()
    is_live = now - end < LIVE_NANOS or is_database(path) or is_held(log_path(path))
    return now if is_live else end


def tell_end(at: At, counted_to: int) -> None:
    """Say to whom sees ages that they do not count to now, where nobody asked for another moment."""
    if at == NOW and time.time_ns() - counted_to > LIVE_NANOS:
        notice(f"the log ended at {_to_the_millisecond(counted_to)}: ages count to then")


def _to_the_millisecond(at: int) -> str:
    return format_time(at - at % 1_000_000)


async def seq_of(log: LogReader, at: At) -> int:
    """The newest record of that moment; raises LogError where the log does not reach that far."""
    if at.time is not None:
        await log.reload()
        seq = await log.seq_at(at.time)
        if seq == log.head.seq and at.time - log.head.at > LIVE_NANOS:
            notice(
                f"the log ends at record {seq}, {_to_the_millisecond(log.head.at)}: so it was from then on"
            )
        if not seq and log.head.seq:
            first = _to_the_millisecond((await log.record(1)).at)
            notice(f"the log begins at {first}: there was nothing before")
        if seq and at.time < log.anchor.at:
            raise LogError(
                f"{log.name}: what was at {format_time(at.time)} was dropped by compaction; "
                f"the log begins at record {seq + 1}"
            )
        return seq
    if at.seq is None:
        return log.head.seq
    if at.seq > log.head.seq:
        raise LogError(f"{log.name}: there is no record {at.seq}: the log ends at {log.head.seq}")
    if at.seq < log.anchor.seq:
        raise LogError(
            f"{log.name}: record {at.seq} was dropped by compaction; the log begins at {log.anchor.seq + 1}"
        )
    return at.seq


async def objects_at(path: LogAddress, at: At) -> tuple[ObjectTable, int]:
    """The objects at that moment, and the time that ages count from."""
    async with open_reader(path) as log:
        with Progress("reading the log", "records") as progress, progress.reading(log):
            at = await dated(log, at)
            table = await load_objects(log, await seq_of(log, at))
    if at == NOW:
        return table, present(path, table.at) if table.seq else time.time_ns()
    return table, at.time if at.time is not None else table.at


async def mentioned(path: LogAddress, keys: Sequence[str], seq: int) -> list[str]:
    """Those of the keys that the log has records of, up to this one."""
    async with open_reader(path) as log:
        return [key for key in keys if await log.span(key, seq) is not None]

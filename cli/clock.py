"""Times as people say them: `22:50`, `5m` ago, `yesterday 14:03`, `2026-11-18 22:54:26`.

A time without a zone is meant in the zone of the machine (`TZ`); whoever reads the answer is told which that was. A time of day is the last one
that has passed, so `22:50` asked for at 09:00 is yesterday's; of a log that ended long ago the last one before its end (`tidelog.cli.moments`).
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from tidelog.api.errors import UsageError
from tidelog.api.times import NANOS, format_time, parse_duration, parse_time

_CLOCK = re.compile(r"(?:(today|yesterday)[ T])?(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", re.ASCII)
_LOCAL = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?", re.ASCII)
_AGO = re.compile(r"(?:(\d+)d)?((?:[\d.]+(?:h|m|s|ms))*)(?: ago)?", re.ASCII)


def moment_named(text: str, now: int) -> int:
    """Return the moment, in nanoseconds since 1970, that the text names at `now`; raises UsageError."""
    found = _moment(text.strip(), now)
    if found is None:
        raise UsageError(
            f"--at {text}: must be the number of a record (`tidelog log tail` shows them), a time such as 14:03, "
            "yesterday 14:03, 2026-03-01 14:03:00 or 2026-03-01T14:03:00Z, or how long ago, such as 5m or 1h30m"
        )
    return found


def is_time_of_day(text: str) -> bool:
    """Whether the text names a time and leaves the day open."""
    found = _CLOCK.fullmatch(text.strip())
    return found is not None and not found[1]


def _moment(text: str, now: int) -> int | None:
    try:
        return parse_time(text)
    except ValueError:
        pass
    if clock := _CLOCK.fullmatch(text):
        return _on_day(clock, now)
    if local := _LOCAL.fullmatch(text):
        day, *of_day = local.groups()
        return _local(day, *of_day)
    if (ago := _AGO.fullmatch(text)) and (ago.group(1) or ago.group(2)):
        return _ago(int(ago.group(1) or 0), ago.group(2), now)
    return None


def _on_day(clock: re.Match[str], now: int) -> int | None:
    """A time of day: on the day that is named, else the last one that has passed."""
    today = datetime.fromtimestamp(now // NANOS).astimezone()
    word, *of_day = clock.groups()
    day = today - timedelta(days=1) if word == "yesterday" else today
    found = _local(day.date().isoformat(), *of_day)
    if found is not None and not word and found > now:
        return _local((today - timedelta(days=1)).date().isoformat(), *of_day)
    return found


def _local(
    day: str, hour: str | None, minute: str | None, second: str | None, fraction: str | None
) -> int | None:
    """A date and time in the zone of the machine."""
    try:
        whole = datetime.fromisoformat(
            f"{day}T{int(hour or 0):02}:{minute or '00'}:{second or '00'}"
        ).astimezone()
    except (ValueError, OverflowError):
        return None
    return round(whole.timestamp()) * NANOS + int((fraction or "0").ljust(9, "0"))


def _ago(days: int, rest: str, now: int) -> int | None:
    try:
        nanos = parse_duration(rest) if rest else 0
    except ValueError:
        return None
    found = now - days * 24 * 3600 * NANOS - nanos
    return found if found > 0 else None


def zone_notice(text: str | None, at: int | None) -> str:
    """Say which moment was understood, where the text left something open; empty where it did not."""
    if text is None or at is None:
        return ""
    try:
        parse_time(text)
    except ValueError:
        zone = datetime.fromtimestamp(at // NANOS).astimezone().tzname()
        return f"--at {text} is {format_time(at)} (your time zone is {zone})"
    return ""

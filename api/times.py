"""Times and durations as Kubernetes writes them, as integers of nanoseconds.

A moment is nanoseconds since 1970 in UTC; on the wire it is RFC 3339 text. A duration is nanoseconds; on the wire it is
what Go prints (`1h0m0s`, `300ms`). Everything here is arithmetic on text: nothing reads the clock.
"""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

NANOS = 1_000_000_000
"""Nanoseconds in a second."""
TIME_RULE = "must be an RFC 3339 time, for example 2006-01-02T15:04:05Z"
DURATION_RULE = "must be a duration, for example 300ms, 30s, 5m or 1h30m"

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": NANOS,
    "m": 60 * NANOS,
    "h": 3600 * NANOS,
}
_DURATION_PART = re.compile("(\\d+\\.?\\d*|\\.\\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)
_DURATION_MAX = (1 << 63) - 1


@lru_cache(maxsize=8192)
def parse_time(text: str) -> int:
    """Nanoseconds since 1970; digits beyond the ninth are dropped. Raises ValueError with the rule."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(TIME_RULE)
    year, month, day, hour, minute, second = (int(group) for group in found.groups()[:6])
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError:
        raise ValueError(TIME_RULE) from None
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(TIME_RULE)
    fraction = int((found.group(7) or "0")[:9].ljust(9, "0"))
    seconds = days * 86400 + hour * 3600 + minute * 60 + second - _offset(*found.groups()[7:])
    return seconds * NANOS + fraction


def _offset(sign: str | None, hours: str | None, minutes: str | None) -> int:
    if sign is None or hours is None or minutes is None:
        return 0
    if int(hours) > 23 or int(minutes) > 59:
        raise ValueError(TIME_RULE)
    seconds = int(hours) * 3600 + int(minutes) * 60
    return -seconds if sign == "-" else seconds


@lru_cache(maxsize=256)
def format_time(at: int) -> str:
    """RFC 3339 in UTC, with only as many digits of the second as the moment needs.

    The records of one commit have the same moment, and each writes it down in two or three places.
    """
    seconds, nanos = divmod(at, NANOS)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return f"{_whole_seconds(seconds)}{fraction}Z"


@lru_cache(maxsize=256)
def _whole_seconds(seconds: int) -> str:
    """Without fraction and zone. Moments that are written down come many to a second."""
    days, rest = divmod(seconds, 86400)
    day = date.fromordinal(_EPOCH_DAY + days)
    return f"{day.isoformat()}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def parse_duration(value: str | float) -> int:
    """Nanoseconds of a Go duration (`1h30m`, `-1.5s`, `0`); a bare number counts seconds. Raises ValueError with the rule."""
    if isinstance(value, bool):
        raise ValueError(DURATION_RULE)
    if not isinstance(value, str):
        # Written out in decimals first, so that 0.1 is exactly 100 ms.
        value = f"{value!r}s" if isinstance(value, int) else f"{value:f}s"
    sign, text = (-1, value[1:]) if value[:1] == "-" else (1, value.removeprefix("+"))
    if text == "0":
        return 0
    total = end = 0
    while end < len(text):
        part = _DURATION_PART.match(text, end)
        if part is None:
            raise ValueError(DURATION_RULE)
        total += _scaled(part.group(1), _UNITS[part.group(2)])
        end = part.end()
    if not text or total > _DURATION_MAX:
        raise ValueError(DURATION_RULE)
    return sign * total


def _scaled(number: str, unit: int) -> int:
    """A decimal number of units in whole nanoseconds, the rest dropped as Go does."""
    whole, _, fraction = number.partition(".")
    if len(whole) > 20:
        raise ValueError(DURATION_RULE)
    fraction = fraction[:20]
    below: int = int(fraction or "0") * unit // 10 ** len(fraction)
    return int(whole or "0") * unit + below


def format_duration(nanos: int) -> str:
    """As Go's Duration.String: `0s`, `1.5ms`, `5m0s`, `1h0m0s`."""
    sign, rest = ("-", -nanos) if nanos < 0 else ("", nanos)
    if rest == 0:
        return "0s"
    for name, unit in (("ns", 1), ("\u00b5s", 1_000), ("ms", 1_000_000)):
        if rest < unit * 1000:
            return f"{sign}{_decimal(rest, unit)}{name}"
    minutes, rest = divmod(rest, 60 * NANOS)
    hours, minutes = divmod(minutes, 60)
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{head}{_decimal(rest, NANOS)}s"


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}}".rstrip("0") if rest else str(whole)

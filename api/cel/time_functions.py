"""Parts of timestamps and durations. A timestamp is read in UTC or at a fixed offset; names of time zones would need a database."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tidelog.api.cel.declarations import Function, member
from tidelog.api.cel.errors import EvaluationError
from tidelog.api.cel.types import DURATION, INT, STRING, TIMESTAMP
from tidelog.api.cel.values import Duration, Timestamp
from tidelog.api.times import format_time, parse_time

_NANOS = 1_000_000_000
_OFFSET = re.compile(r"([+-]?)([0-9]{1,2}):([0-9]{2})", re.ASCII)


def _local(at: Timestamp, zone: str) -> int:
    if zone in ("", "UTC"):
        return int(at.value)
    found = _OFFSET.fullmatch(zone)
    if found is None:
        raise EvaluationError(f"time zone {zone!r} is not supported: UTC and offsets like +02:00 are")
    minutes = int(found[2]) * 60 + int(found[3])
    return int(at.value) + (-minutes if found[1] == "-" else minutes) * 60 * _NANOS


def _date(nanos: int) -> tuple[int, int, int, int]:
    """Year, month, day, and the day of the year from 0."""
    text = format_time(nanos)
    start = parse_time(f"{text[:4]}-01-01T00:00:00Z")
    return int(text[:4]), int(text[5:7]), int(text[8:10]), (nanos - start) // (86_400 * _NANOS)


_FIELDS: dict[str, Callable[[int], int]] = {
    "getFullYear": lambda t: _date(t)[0],
    "getMonth": lambda t: _date(t)[1] - 1,
    "getDayOfYear": lambda t: _date(t)[3],
    "getDayOfMonth": lambda t: _date(t)[2] - 1,
    "getDate": lambda t: _date(t)[2],
    "getDayOfWeek": lambda t: (t // (86_400 * _NANOS) + 4) % 7,
    "getHours": lambda t: t // (3600 * _NANOS) % 24,
    "getMinutes": lambda t: t // (60 * _NANOS) % 60,
    "getSeconds": lambda t: t // _NANOS % 60,
    "getMilliseconds": lambda t: t // 1_000_000 % 1000,
}
_SPANS = {
    "getHours": 3600 * _NANOS,
    "getMinutes": 60 * _NANOS,
    "getSeconds": _NANOS,
    "getMilliseconds": 1_000_000,
}


def _field(name: str) -> Function:
    part = _FIELDS[name]

    def of_time(at: Timestamp, zone: str = "UTC") -> int:
        return part(_local(at, zone))

    def of_span(span: Duration) -> int:
        whole: Any = abs(span.value) // _SPANS[name]
        whole = whole % 1000 if name == "getMilliseconds" else whole
        return int(-whole if span.value < 0 else whole)

    overloads = [member((TIMESTAMP,), INT, of_time), member((TIMESTAMP, STRING), INT, of_time)]
    if name in _SPANS:
        overloads.append(member((DURATION,), INT, of_span))
    return Function(name, tuple(overloads))


FUNCTIONS: tuple[Function, ...] = tuple(_field(name) for name in _FIELDS)

"""Values as text: tables like kubectl's, JSON, YAML, ages.

Text that came out of a log or a manifest is made safe first: a name or a message can hold escape sequences that would steer
the reader's terminal, so whatever is not printable is shown escaped. In JSON and YAML the escapes are those of the format, so
a program reads the original back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tidelog.api.errors import printable_json
from tidelog.api.times import NANOS, format_duration, format_time

Row = Sequence[object]


# --- text -----------------------------------------------------------------------------------------------------------


def safe(value: object) -> str:
    """One line of text without anything that a terminal would act on."""
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(char: str) -> str:
    code = ord(char)
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    return short or (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )


def table(columns: Sequence[str], rows: Iterable[Row], *, headings: bool = True) -> str:
    """Columns padded as kubectl pads them; a cell of None or "" is shown as <none>."""
    lines = [tuple(_cell(cell) for cell in row) for row in rows]
    if headings:
        lines.insert(0, tuple(columns))
    widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(columns))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(value: object) -> str:
    return "<none>" if value is None or value == "" else safe(value)


def age(nanos: int) -> str:
    """How long ago, as kubectl writes it: two units while the first is small, then one."""
    seconds = nanos // NANOS
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"
    minutes, hours, days, years = seconds // 60, seconds // 3600, seconds // 86400, seconds // (86400 * 365)
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if years < 2:
        return f"{days}d"
    if years < 8:
        return _two(years, "y", days % 365, "d")
    return f"{years}y"


def _two(first: int, first_unit: str, second: int, second_unit: str) -> str:
    return f"{first}{first_unit}{second}{second_unit}" if second else f"{first}{first_unit}"


# --- formats --------------------------------------------------------------------------------------------------------


def as_json(value: object) -> str:
    """Indented JSON; characters that are not printable as \\u escapes."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return printable_json(text)


def as_json_line(value: object) -> str:
    """JSON in one line."""
    return printable_json(msgspec.json.encode(value).decode())


def as_yaml(value: object) -> str:
    """One YAML document, keys in the order of the struct."""
    import yaml

    builtin = msgspec.to_builtins(value, str_keys=True)
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(builtin, Dumper=dumper, sort_keys=False, allow_unicode=True)
    if not all(line.isprintable() for line in text.split("\n")):
        # With allow_unicode off everything beyond ASCII is escaped, the harmless letters too.
        text = yaml.dump(builtin, Dumper=dumper, sort_keys=False, allow_unicode=False)
    return text.rstrip("\n")


def formatted(value: object, output: str) -> str:
    """The value in the format that `-o json|yaml` names, with moments as RFC 3339."""
    assert output in ("json", "yaml"), output
    data = with_times(msgspec.to_builtins(value, str_keys=True))
    return as_json(data) if output == "json" else as_yaml(data)


MOMENTS = frozenset(("at", "deadline", "first_rejected_at", "last_at", "since", "until"))
"""Fields of answers and records that are moments: nanoseconds since 1970, which tools that count in doubles would cut."""


DURATIONS = frozenset(("timeEventPeriod", "podMaxInUnschedulablePodsDuration", "desiredCountWait"))
"""Settings in a recorded configuration that are nanoseconds."""


def with_times(data: Any, *, is_moment: bool = False) -> Any:
    """Plain data with its moments as RFC 3339, one that is 0, which means never, as null; and with durations as a configuration file has them."""
    if isinstance(data, dict):
        return {
            name: format_duration(part)
            if name in DURATIONS and type(part) is int
            else with_times(part, is_moment=is_moment or name in MOMENTS)
            for name, part in data.items()
        }
    if isinstance(data, list | tuple):
        return [with_times(part, is_moment=is_moment) for part in data]
    if is_moment and type(data) is int:
        return format_time(data) if data else None
    return data

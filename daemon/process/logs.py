"""Log lines of the daemon: the standard library's logging, one line an event, as text for people or JSON for machines.

    2026-11-18T10:29:14.123456Z INFO    tidelog.http: serving HTTP address=127.0.0.1:10259
    {"time":"2026-11-18T10:29:14.123456Z","level":"info","logger":"tidelog.http","message":"serving HTTP","address":"127.0.0.1:10259"}

Whoever has something to say uses `logging.getLogger("tidelog.<part>")` with a constant message and `extra=fields(…)`. Names and
messages of objects come from outside: what is not printable in them is written escaped, a line is a line, and very long
texts are cut. These lines tell what the process does; what the scheduler decides, and why, is in the log of records.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Literal, TextIO

import msgspec

from tidelog.api.text import as_json_line, safe
from tidelog.api.times import NANOS, format_time

Format = Literal["text", "json"]
FORMATS: tuple[Format, ...] = ("text", "json")
LEVELS = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}
HINTS = "tidelog.hints"
"""Each answer of a QueueingHint is a line of this logger."""
VALUE_MAX = 4096
"""Characters of one value. Arbitrary; the longest FailedScheduling messages have some hundred."""

_BARE = re.compile(r"[A-Za-z0-9_./:@%+,\[\]-]+")
_RESERVED = ("time", "level", "logger", "message")


def fields(**values: object) -> dict[str, object]:
    """The fields of an event, for `extra=`: `log.info("took over", extra=fields(epoch=3))`."""
    return {"fields": values}


def add_options(parser: argparse.ArgumentParser) -> None:
    """`--log-format`, `--log-level` and `-v`, as `configure` takes them."""
    parser.add_argument(
        "--log-format", choices=FORMATS, default="text", help="how log lines look (default: text)"
    )
    parser.add_argument(
        "--log-level",
        choices=tuple(LEVELS),
        default="info",
        help="the least important log lines to show (default: %(default)s; debug is -v)",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        dest="verbosity",
        action="count",
        default=0,
        help="more log lines: -v each decision and request, -vv also each answer of a QueueingHint, -vvv also those of libraries",
    )


def configure(
    format: Format = "text",
    verbosity: int = 0,
    stream: TextIO | None = None,
    clock: Callable[[], int] | None = None,
    level: str = "info",
) -> None:
    """Send all log lines of the process to `stream` (stderr). A second call replaces the first.

    `level` is one of LEVELS; -v shows more, whatever it is.

    `clock` gives the time of a line in nanoseconds, where that is not the time of the record.
    """
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter((JsonFormatter if format == "json" else TextFormatter)(clock))
    root = logging.getLogger()
    root.handlers = [other for other in root.handlers if not isinstance(other, _Handler)]
    root.addHandler(handler)
    least = LEVELS[level]
    root.setLevel(logging.DEBUG if verbosity > 2 else max(least, logging.WARNING))
    logging.getLogger("tidelog").setLevel(logging.DEBUG if verbosity else least)
    # There are many of these: a level of their own.
    logging.getLogger(HINTS).setLevel(logging.DEBUG if verbosity > 1 else max(least, logging.INFO))
    logging.captureWarnings(True)


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, so that it can be told from those of others."""


class _Formatter(logging.Formatter):
    def __init__(self, clock: Callable[[], int] | None = None) -> None:
        super().__init__()
        self._clock = clock

    def _time(self, record: logging.LogRecord) -> str:
        """Always six digits of the second, so that lines align and sort."""
        at = self._clock() if self._clock else int(record.created * 1_000_000) * 1000
        second, rest = divmod(at, NANOS)
        return f"{format_time(second * NANOS)[:-1]}.{rest // 1000:06}Z"

    def _pairs(self, record: logging.LogRecord) -> Iterator[tuple[str, object]]:
        """The fields of an event, and the exception if there is one."""
        given: dict[str, object] = getattr(record, "fields", {})
        for name, value in given.items():
            yield f"{name}_" if name in _RESERVED else name, value
        if record.exc_info and (error := record.exc_info[1]) is not None:
            yield "error", f"{type(error).__name__}: {error}"
            yield "traceback", "".join(traceback.format_exception(error))[-VALUE_MAX:]


class TextFormatter(_Formatter):
    """`time LEVEL logger: message key=value …`; values with blanks or quotes are JSON strings."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        message = safe(_cut(record.getMessage()))
        head = f"{self._time(record)} {record.levelname:<7} {safe(record.name)}: {message}"
        return " ".join([head, *(f"{safe(name)}={_plain(value)}" for name, value in self._pairs(record))])


class JsonFormatter(_Formatter):
    """One JSON object a line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        pairs: list[tuple[str, object]] = [
            ("time", self._time(record)),
            ("level", record.levelname.lower()),
            ("logger", record.name),
            ("message", record.getMessage()),
            *self._pairs(record),
        ]
        return "{" + ",".join(f"{_json(name)}:{_json(value)}" for name, value in pairs) + "}"


def _plain(value: object) -> str:
    return value if isinstance(value, str) and _BARE.fullmatch(_cut(value)) else _json(value)


def _json(value: object) -> str:
    """The value as JSON; as the JSON string of what `str` makes of it, where JSON has no form for it."""
    try:
        return as_json_line(_cut(value))
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return as_json_line(safe(_cut(str(value))))


def _cut(value: Any) -> Any:
    return f"{value[:VALUE_MAX]}…" if isinstance(value, str) and len(value) > VALUE_MAX else value

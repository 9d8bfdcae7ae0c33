"""One line an event, whatever is in it."""

from __future__ import annotations

import argparse
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.daemon.process.logs import (
    HINTS,
    VALUE_MAX,
    Format,
    JsonFormatter,
    TextFormatter,
    add_options,
    configure,
    fields,
)

AT = 1_700_000_000_123_456_789
HOSTILE = 'a b"=\\\n\r\x1b[2J\u202e\x7f\x9b\ud800'


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where log lines go; the process's logging is as before afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("tidelog")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield io.StringIO()
    root.handlers = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    logging.captureWarnings(False)


def log(
    stream: io.StringIO, format: Format, message: str = "took over", verbosity: int = 0, **values: object
) -> str:
    """The line of one event of the logger tidelog.daemon."""
    configure(format, verbosity, stream, clock=lambda: AT)
    logging.getLogger("tidelog.daemon").info(message, extra=fields(**values))
    return stream.getvalue()


def record(message: object = "took over", /, *args: object, **values: object) -> logging.LogRecord:
    made = logging.LogRecord("tidelog.daemon", logging.INFO, "file.py", 1, str(message), args, None)
    made.fields = values  # type: ignore[attr-defined]
    return made


def test_text_line_has_time_level_logger_message_and_fields(stream: io.StringIO) -> None:
    line = log(stream, "text", epoch=3, pod="default/web-1", message_="two words", ready=True, node=None)

    assert line == (
        "2023-11-14T22:13:20.123456Z INFO    tidelog.daemon: took over"
        ' epoch=3 pod=default/web-1 message_="two words" ready=true node=null\n'
    )


def test_json_line_has_the_same_as_keys(stream: io.StringIO) -> None:
    line = log(stream, "json", epoch=3, pod="default/web-1", ready=True, nodes=["a", "b"])

    assert line.endswith("}\n")
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.123456Z",
        "level": "info",
        "logger": "tidelog.daemon",
        "message": "took over",
        "epoch": 3,
        "pod": "default/web-1",
        "ready": True,
        "nodes": ["a", "b"],
    }


def test_time_is_the_records_unless_a_clock_is_given() -> None:
    made = record()
    made.created = 1_700_000_000.5

    assert TextFormatter().format(made).startswith("2023-11-14T22:13:20.500000Z ")
    assert TextFormatter(lambda: 0).format(made).startswith("1970-01-01T00:00:00.000000Z ")


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_hostile_text_stays_in_its_line_and_harmless(formatter: logging.Formatter) -> None:
    made = record(HOSTILE, pod=HOSTILE, nested={"a": HOSTILE})
    made.name = f"tidelog.{HOSTILE}"

    line = formatter.format(made)

    assert line.isprintable()


def test_json_reads_back_what_was_written() -> None:
    text = HOSTILE.replace("\ud800", "\U0001f30a\U000e0001")

    found = json.loads(JsonFormatter().format(record("x", pod=text, nested={"a": [text]})))

    assert (found["pod"], found["nested"]) == (text, {"a": [text]})


def test_field_cannot_take_the_place_of_the_records_own() -> None:
    found = json.loads(JsonFormatter().format(record("m", time="t", level="l", logger="x", message="y")))

    assert (found["level"], found["logger"], found["message"]) == ("info", "tidelog.daemon", "m")
    assert (found["time_"], found["level_"], found["logger_"], found["message_"]) == ("t", "l", "x", "y")


class Unprintable:
    def __str__(self) -> str:
        return "an\nobject"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Path("some/where"), '"some/where"'),
        (Unprintable(), r'"an\\nobject"'),
        (1.5, "1.5"),
        ("", '""'),
        ("a=b", '"a=b"'),
        ("plain", "plain"),
        ((1, 2), "[1,2]"),
    ],
)
def test_values_of_any_type_are_written(value: object, text: str) -> None:
    assert TextFormatter(lambda: AT).format(record("m", x=value)).endswith(f": m x={text}")


def test_very_long_texts_are_cut() -> None:
    made = record("m" * 10 * VALUE_MAX, x="x" * 10 * VALUE_MAX)

    assert len(TextFormatter().format(made)) < 2 * VALUE_MAX + 200
    assert len(JsonFormatter().format(made)) < 2 * VALUE_MAX + 200


@pytest.mark.parametrize("format", ["text", "json"])
def test_exception_is_in_the_same_line(stream: io.StringIO, format: Format) -> None:
    configure(format, 0, stream)
    try:
        raise ValueError("broken\nthing")
    except ValueError:
        logging.getLogger("tidelog.daemon").exception("cannot commit", extra=fields(seq=7))

    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    assert "ValueError: broken" in line
    assert "test_logs.py" in line
    if format == "json":
        found = json.loads(line)
        assert (found["message"], found["seq"], found["level"]) == ("cannot commit", 7, "error")
        assert found["error"] == "ValueError: broken\nthing"


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [
        (0, ["tidelog info", "library warning"]),
        (1, ["tidelog debug", "tidelog info", "library warning"]),
        (2, ["tidelog debug", "tidelog info", "hint", "library warning"]),
        (3, ["tidelog debug", "tidelog info", "hint", "library debug", "library warning"]),
    ],
)
def test_verbosity_opens_our_own_lines_first_then_hints_and_then_those_of_libraries(
    stream: io.StringIO, verbosity: int, shown: list[str]
) -> None:
    configure("json", verbosity, stream)

    logging.getLogger("tidelog.http").debug("tidelog debug")
    logging.getLogger("tidelog.http").info("tidelog info")
    logging.getLogger(HINTS).debug("hint")
    logging.getLogger("aiosqlite").debug("library debug")
    logging.getLogger("asyncio").warning("library %s", "warning")

    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == shown


def test_second_call_replaces_the_first(stream: io.StringIO) -> None:
    first = io.StringIO()
    log(first, "text")

    line = log(stream, "json")

    assert json.loads(line)["message"] == "took over"
    assert len(first.getvalue().splitlines()) == 1


def test_warnings_of_python_are_log_lines_too(stream: io.StringIO) -> None:
    configure("json", 0, stream)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old\nthing", DeprecationWarning, stacklevel=1)

    found = json.loads(stream.getvalue())
    assert (found["level"], found["logger"]) == ("warning", "py.warnings")
    assert "old\nthing" in found["message"]


def test_options_of_the_command_line_are_what_configure_takes() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)

    assert vars(parser.parse_args([])) == {
        "log_format": "text",
        "log_level": "info",
        "verbosity": 0,
    }
    assert vars(parser.parse_args(["-vv", "--log-format", "json", "--log-level", "error"])) == {
        "log_format": "json",
        "log_level": "error",
        "verbosity": 2,
    }
    with pytest.raises(SystemExit):
        parser.parse_args(["--log-format", "xml"])


@pytest.mark.parametrize(("level", "shown"), [("error", 1), ("warning", 2), ("info", 3), ("debug", 4)])
def test_level_says_what_is_least_important_enough(level: str, shown: int) -> None:
    stream = io.StringIO()
    before = logging.getLogger().handlers[:]
    try:
        configure("text", stream=stream, level=level)
        log = logging.getLogger("tidelog.test")
        for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            log.log(number, "said")
    finally:
        configure("text")
        logging.getLogger().handlers[:] = before

    assert len(stream.getvalue().splitlines()) == shown


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=5,
)


@given(st.text(), anything)
def test_every_event_is_one_printable_line(message: str, value: object) -> None:
    made = record("%s", message, x=value)

    text, line = TextFormatter().format(made), JsonFormatter().format(made)

    assert text.isprintable()
    assert line.isprintable()
    assert set(json.loads(line)) == {"time", "level", "logger", "message", "x"}

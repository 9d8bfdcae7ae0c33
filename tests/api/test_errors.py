"""Errors say what, where, and what to do, in one safe line."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tidelog.api import errors
from tidelog.api.errors import (
    ErrorKind,
    FieldError,
    InternalError,
    InvalidObjects,
    LogDamaged,
    LogError,
    LogFenced,
    LogFull,
    LogLocked,
    LogOvertaken,
    PluginError,
    TidelogError,
    UsageError,
    printable,
    quoted,
)

ROOT = Path(__file__).resolve().parent.parent.parent
PRODUCT = ("api", "configuration", "daemon", "eventlog", "framework", "kube", "page", "plugins", "queue", "replay", "scheduler", "testing")  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "rule", "expected"),
    [
        ("Required", None, "", "a.b: Required value"),
        ("Required", None, "why", "a.b: Required value: why"),
        ("Invalid", "x", "rule", 'a.b: Invalid value: "x": rule'),
        ("Invalid", None, "rule", "a.b: Invalid value: rule"),
        ("NotSupported", 5, "rule", "a.b: Unsupported value: 5: rule"),
        ("Duplicate", "x", "", 'a.b: Duplicate value: "x"'),
        ("Forbidden", "x", "rule", "a.b: Forbidden: rule"),
        ("TooMany", 9, "must have at most 8 items", "a.b: Too many: 9: must have at most 8 items"),
        ("TooLong", "x" * 100, "may not be more than 9 bytes", "a.b: Too long: may not be more than 9 bytes"),
        ("NotFound", "x", "", 'a.b: Not found: "x"'),
    ],
)
def test_field_error_is_worded_as_the_api_server_words_it(
    kind: ErrorKind, value: object, rule: str, expected: str
) -> None:
    assert str(FieldError(path="a.b", kind=kind, value=value, rule=rule)) == expected


def test_several_errors_make_one_line() -> None:
    errors = [FieldError(path="a", kind="Required"), FieldError(path="b", kind="Duplicate", value=1)]

    assert (
        str(InvalidObjects('Pod "x"', errors))
        == 'Pod "x" is invalid: a: Required value; b: Duplicate value: 1'
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\x1b[31m", '"a\\u001b[31m"'),
        ("é\u202e", '"é\\u202e"'),
        ("x" * 300, '"' + "x" * 116 + "..."),
        ({"a": [1]}, '{"a":[1]}'),
        (float("inf"), "inf"),
        (object, "\"<class 'object'>\""),
        ("\ud800", "\"'\\\\ud800'\""),
    ],
)
def test_value_is_shown_safely(value: object, expected: str) -> None:
    assert quoted(value) == expected


def test_printable_text_is_left_alone_and_long_text_is_cut() -> None:
    assert printable("as it is") == "as it is"
    assert printable("a\nb") == "a\\u000ab"
    assert printable("x" * 20, 10) == "xxxxxxx..."


@pytest.mark.parametrize(
    ("error", "exit_code", "says"),
    [
        (UsageError("no such flag"), 2, "no such flag"),
        (PluginError("Mine", "no such module"), 1, "plugin Mine: no such module"),
        (LogLocked("a.db", "process 7"), 1, "a.db: the log is being written by process 7; stop it"),
        (LogFenced(3, 4), 1, "epoch 3 is over: a newer scheduler took the log at epoch 4"),
        (LogFull("a.db", 5 << 20), 1, "a.db: only 5 MiB are free on this disk, so nothing was written"),
        (LogDamaged("a.db", 4, 4, "why"), 4, "a.db: record 4 is missing or damaged (why): restore a backup"),
        (LogDamaged("a.db", 4, 9, "why"), 4, "a.db: records 4 to 9 are missing or damaged (why)"),
        (
            LogOvertaken("a.db", 9),
            5,
            "a.db: records up to 9 were dropped by compaction while they were being read: try again",
        ),
        (LogDamaged("a.db", 4, None, "why"), 4, "a.db: records from 4 on may be missing (why)"),
        (
            InternalError("queue lost a pod"),
            1,
            "internal error: queue lost a pod; please report this together with",
        ),
    ],
)
def test_every_error_has_its_sentence_and_exit_code(error: TidelogError, exit_code: int, says: str) -> None:
    assert error.exit_code == exit_code
    assert str(error).startswith(says)


def test_damage_is_an_error_of_the_log() -> None:
    assert issubclass(LogDamaged, LogError)
    assert issubclass(LogError, TidelogError)


def test_value_nested_too_deeply_to_be_shown_is_told_as_such() -> None:
    value: object = None
    for _ in range(100_000):
        value = [value]

    assert quoted(value) == "something that is nested too deeply to be shown"


def test_every_error_is_in_the_tree() -> None:
    """Each class below TidelogError, in whatever module, stands in the docstring of the module of errors, below its base."""
    for path in ROOT.glob("*/**/*.py"):
        where = path.relative_to(ROOT).with_suffix("").parts
        if where[0] in PRODUCT:
            importlib.import_module(".".join(("tidelog", *where)))
    depth = {
        name: len(indent)
        for indent, name in re.findall(r"^([ │├└─]+)(\w+) {2,}", errors.__doc__, re.MULTILINE)
    }
    waiting: list[type] = [TidelogError]
    for kind in waiting:
        for child in kind.__subclasses__():
            if child.__module__.startswith("tidelog."):
                assert depth.get(child.__name__, 0) > depth[kind.__name__], child
                waiting.append(child)
    assert len(depth) == len(waiting)

"""What reaches the terminal is aligned, dated, and harmless."""

from __future__ import annotations

import json

import pytest
import yaml

from tidelog.api.errors import FieldError, InvalidObjects, LogDamaged, UsageError
from tidelog.daemon import output

HOSTILE = "a\x1b[2Jb\u202ec\x9bd\ne\x7f"


def test_table_pads_columns_and_shows_nothing_as_none() -> None:
    text = output.table(("NAME", "NODE"), [("web-1", "a-1"), ("a-longer-name", "")])

    assert text.splitlines() == [
        "NAME            NODE",
        "web-1           a-1",
        "a-longer-name   <none>",
    ]


def test_safe_text_has_only_printable_characters() -> None:
    assert output.safe(HOSTILE) == r"a\x1b[2Jb\u202ec\x9bd\ne\x7f"


@pytest.mark.parametrize("text", ["plain", "grüße", "日本", ""])
def test_safe_text_leaves_letters_alone(text: str) -> None:
    assert output.safe(text) == text


def test_table_cells_are_safe() -> None:
    assert "\x1b" not in output.table(("NAME",), [(HOSTILE,)])


@pytest.mark.parametrize("render", [output.as_json, output.as_json_line])
def test_json_is_printable_and_reads_back_the_same(render: object) -> None:
    assert callable(render)
    text = render({"name": HOSTILE, "emoji": "😀", "private": "\U000f0000"})

    assert all(line.isprintable() for line in text.split("\n"))
    assert json.loads(text) == {"name": HOSTILE, "emoji": "😀", "private": "\U000f0000"}


@pytest.mark.parametrize("name", [HOSTILE, "grüße", "yes", "1"])
def test_yaml_is_printable_and_reads_back_the_same(name: str) -> None:
    text = output.as_yaml({"name": name})

    assert all(line.isprintable() for line in text.split("\n"))
    assert yaml.safe_load(text) == {"name": name}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 120, "5h2m"),
        (9 * 3600, "9h"),
        (47 * 3600, "47h"),
        (3 * 86400 + 3600, "3d1h"),
        (30 * 86400, "30d"),
        (3 * 365 * 86400, "3y"),
        (4 * 365 * 86400 + 86400, "4y1d"),
        (10 * 365 * 86400, "10y"),
    ],
)
def test_age_is_written_as_kubectl_writes_it(seconds: int, expected: str) -> None:
    assert output.age(seconds * 1_000_000_000) == expected


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with output.Progress("verifying", "records") as progress:
        progress.update(5, 10)

    assert capsys.readouterr().err == ""


def test_progress_is_drawn_and_cleaned_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with output.Progress("verifying", "records") as progress:
        progress.update(1000, 2000)
        progress.update(1001, 2000)

    assert capsys.readouterr().err == "\r\x1b[Kverifying: 1,000 of 2,000 (50 %) records\r\x1b[K"


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.colourful()

    monkeypatch.setenv("NO_COLOR", "1")
    assert not output.colourful()


# --- errors ---------------------------------------------------------------------------------------------------------


def test_one_broken_rule_is_one_line() -> None:
    error = InvalidObjects("pod/web-1", [FieldError(path="spec.x", kind="Required")])

    assert output.complaint(error) == (1, ["tidelog: error: pod/web-1 is invalid: spec.x: Required value"])


def test_several_broken_rules_are_a_line_each() -> None:
    error = InvalidObjects(
        "pod/web-1",
        [FieldError(path="spec.x", kind="Required"), FieldError(path="spec.y", kind="Forbidden", rule="no")],
    )

    assert output.complaint(error) == (
        1,
        ["tidelog: error: pod/web-1 is invalid:", "  spec.x: Required value", "  spec.y: Forbidden: no"],
    )


@pytest.mark.parametrize(
    ("error", "code", "part"),
    [
        (UsageError("no such verb"), 2, "tidelog: error: no such verb"),
        (LogDamaged("x.db", 3, 5, "cut"), 4, "records 3 to 5 are missing or damaged"),
        (FileNotFoundError(2, "No such file or directory", "x.yaml"), 1, "x.yaml: No such file or directory"),
        (
            ExceptionGroup("tasks", [ValueError("odd")]),
            1,
            "internal error: ValueError: odd; please report this together with the log; --debug shows the traceback",
        ),
    ],
)
def test_error_has_its_exit_code_and_sentence(error: Exception, code: int, part: str) -> None:
    found, lines = output.complaint(error)

    assert found == code
    assert len(lines) == 1
    assert part in lines[0]


def test_errors_are_safe_to_print() -> None:
    _, lines = output.complaint(UsageError(HOSTILE))

    assert lines == [r"tidelog: error: a\x1b[2Jb\u202ec\x9bd\ne\x7f"]

"""Progress is drawn on terminals only, and each error is one sentence with its exit code."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path

import pytest

from tidelog.api.errors import FieldError, InvalidObjects, LogDamaged, UsageError
from tidelog.cli import progress as progress_module
from tidelog.cli import terminal
from tidelog.cli.progress import Progress
from tidelog.eventlog.log import open_log
from tidelog.eventlog.records import Draft, Tick

HOSTILE = "a\x1b[2Jb\u202ec\x9bd\ne\x7f"


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("verifying", "records") as progress:
        progress.update(5, 10)

    assert capsys.readouterr().err == ""


def test_progress_is_drawn_and_cleaned_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress_module, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(progress_module, "REDRAW_SECONDS", 0.01)
    with Progress("verifying", "records") as progress:
        progress.update(1000, 2000)
        while not progress._shown:
            time.sleep(0.01)

    drawn = capsys.readouterr().err
    assert re.match(r"\r\x1b\[Kverifying: 1,000 of 2,000 records \(50 %\), [\d,]+/s, \d+ s left", drawn)
    assert drawn.endswith("\r\x1b[K")


def test_short_work_shows_no_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Progress("verifying", "records") as progress:
        progress.update(1, 2)

    assert capsys.readouterr().err == ""


def test_work_that_counts_nothing_shows_its_time() -> None:
    assert Progress("compacting").line() == "compacting: 0 s"


def test_what_is_read_from_a_log_is_counted(tmp_path: Path) -> None:
    async def read() -> list[int]:
        async with open_log(tmp_path / "c.db") as log:
            await log.append([Draft(body=Tick(), author="ticker") for _ in range(20_000)])
            progress = Progress("reading the log", "records")
            seen: list[int] = []
            with progress.reading(log):
                seen += [progress._done async for _ in log.read_batches()]
            assert log.on_read is None
            return seen

    seen = asyncio.run(read())
    assert seen[0] == 0
    assert len(seen) > 1
    assert 0 < seen[-1] < 20_000


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert terminal.colourful()

    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.colourful()


# --- errors ---------------------------------------------------------------------------------------------------------


def test_one_broken_rule_is_one_line() -> None:
    error = InvalidObjects("pod/web-1", [FieldError(path="spec.x", kind="Required")])

    assert terminal.complaint(error) == (1, ["tidelog: error: pod/web-1 is invalid: spec.x: Required value"])


def test_several_broken_rules_are_a_line_each() -> None:
    error = InvalidObjects(
        "pod/web-1",
        [FieldError(path="spec.x", kind="Required"), FieldError(path="spec.y", kind="Forbidden", rule="no")],
    )

    assert terminal.complaint(error) == (
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
    found, lines = terminal.complaint(error)

    assert found == code
    assert len(lines) == 1
    assert part in lines[0]


def test_errors_are_safe_to_print() -> None:
    _, lines = terminal.complaint(UsageError(HOSTILE))

    assert lines == [r"tidelog: error: a\x1b[2Jb\u202ec\x9bd\ne\x7f"]

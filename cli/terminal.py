"""Output beside the results: notices, progress, errors. All of it goes to stderr."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Self

from tidelog.api.errors import InternalError, InvalidObjects, TidelogError
from tidelog.api.text import safe
from tidelog.daemon.intake.messages import Refused


def notice(text: str) -> None:
    """Something that the user should know but that is not the result: one line on stderr."""
    print(f"tidelog: {safe(text)}", file=sys.stderr)


def colourful() -> bool:
    """Whether stdout is a terminal that wants colour (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Progress:
    """A line on a terminal's stderr that long work keeps up to date and leaves clean; nothing in a pipe."""

    def __init__(self, doing: str, unit: str) -> None:
        self._doing = doing
        self._unit = unit
        self._shown = -1
        self._visible = sys.stderr.isatty()

    def update(self, done: int, total: int = 0) -> None:
        """Show the progress. Redraws a hundred times in all where the total is known, else each 10,000."""
        if not self._visible:
            return
        step = done * 100 // total if total else done // 10_000
        if step != self._shown:
            self._shown = step
            of = f" of {total:,} ({step} %)" if total else ""
            print(f"\r\x1b[K{self._doing}: {done:,}{of} {self._unit}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown >= 0:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# --- errors ---------------------------------------------------------------------------------------------------------


def complaint(error: BaseException) -> tuple[int, list[str]]:
    """The exit code of an error and its lines on stderr; more than one only for more than one broken rule."""
    code = error.exit_code if isinstance(error, TidelogError) else 1
    sentence, *more = _lines(error)
    return code, [f"tidelog: error: {sentence}", *more]


def _lines(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return _lines(error.exceptions[0])
    if isinstance(error, InvalidObjects) and len(error.errors) > 1:
        return [f"{safe(error.subject)} is invalid:", *(f"  {safe(each)}" for each in error.errors)]
    if isinstance(error, Refused):
        headline, (first, *more) = safe(error.headline), error.details
        if more:
            return [f"{headline}:", *(f"  {safe(each)}" for each in error.details)]
        return [f"{headline}: {safe(first)}"]
    if isinstance(error, TidelogError):
        return [safe(error)]
    if isinstance(error, OSError) and error.strerror:
        where = f"{safe(error.filename)}: " if error.filename else ""
        return [f"{where}{error.strerror}"]
    return [safe(InternalError(f"{type(error).__name__}: {error}")) + "; --debug shows the traceback"]

"""Output beside the results: notices and errors. All of it goes to stderr; progress is in `tidelog.cli.progress`."""

from __future__ import annotations

import os
import sys

from tidelog.api.errors import InternalError, InvalidObjects, TidelogError
from tidelog.api.text import safe
from tidelog.daemon.intake.messages import Refused


def notice(text: str) -> None:
    """Something that the user should know but that is not the result: one line on stderr."""
    # A line of progress may stand there.
    start = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{start}tidelog: {safe(text)}", file=sys.stderr)


def colourful() -> bool:
    """Whether stdout is a terminal that wants colour (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


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

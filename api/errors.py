"""The errors that a user can meet.

    TidelogError                  anything wrong with the world or with what the user gave us
    ├── UsageError                the command line itself is wrong (exit 2)
    ├── InvalidObjects            a manifest, object or setting breaks a rule; holds every FieldError found
    ├── LogError                  the log cannot be opened, read or written
    │   ├── LogLocked             another process writes this log
    │   └── LogDamaged            the log has lost or changed records (exit 4)
    └── InternalError             we are wrong; asks for a report

Each keeps its data in fields and makes its sentence in `__str__`: what, where, what to do. The shell prints that one
line and exits with `exit_code`; a traceback is shown only with `--debug`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

ErrorKind = Literal[
    "Required", "Invalid", "NotSupported", "Duplicate", "Forbidden", "TooMany", "TooLong", "NotFound"
]


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """One broken rule: where, what kind of breach, the value found, and the rule in Kubernetes' wording."""

    path: str
    kind: ErrorKind
    value: object = None
    rule: str = ""

    def __str__(self) -> str:
        """As the Kubernetes API server words it: `spec.x: Invalid value: "v": rule`."""
        words = {
            "Required": "Required value",
            "Invalid": "Invalid value",
            "NotSupported": "Unsupported value",
            "Duplicate": "Duplicate value",
            "Forbidden": "Forbidden",
            "TooMany": "Too many",
            "TooLong": "Too long",
            "NotFound": "Not found",
        }[self.kind]
        shown = "" if self.kind in ("Required", "Forbidden") else f": {quoted(self.value)}"
        return f"{self.path}: {words}{shown}" + (f": {self.rule}" if self.rule else "")


def quoted(value: object, limit: int = 120) -> str:
    """The value as JSON, shortened, with control characters escaped, so that it is safe to print."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):
        text = msgspec.json.encode(repr(value)).decode()
    text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


class TidelogError(Exception):
    """Anything wrong with the world or with what the user gave us."""

    exit_code = 1


class UsageError(TidelogError):
    """The command line itself is wrong."""

    exit_code = 2


class InvalidObjects(TidelogError):
    """An object, manifest or setting breaks rules. Nothing was changed."""

    def __init__(self, subject: str, errors: Sequence[FieldError]) -> None:
        super().__init__(subject, tuple(errors))
        self.subject = subject
        self.errors = tuple(errors)

    def __str__(self) -> str:
        found = "; ".join(map(str, self.errors))
        return f"{self.subject} is invalid: {found}"


class LogError(TidelogError):
    """The log cannot be opened, read or written."""


class LogLocked(LogError):
    """Another process writes this log."""


class LogDamaged(LogError):
    """The log has lost or changed records; only `tidelog log repair` goes on from here."""

    exit_code = 4


class InternalError(TidelogError):
    """We are wrong. The message asks for a report."""

    def __str__(self) -> str:
        return f"internal error: {super().__str__()}; please report this together with the log"

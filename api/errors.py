"""The errors that a user can meet.

    TidelogError                  anything wrong with the world or with what the user gave us
    ├── UsageError                the command line itself is wrong (exit 2)
    ├── InvalidObjects            a manifest, object or setting breaks a rule; holds every FieldError found
    ├── Refused                   facts that were handed over break rules (daemon/intake/messages.py)
    ├── PluginError               an out-of-tree plugin or kind cannot be loaded or registered
    ├── Unreadable                an API server sent something of an unknown shape (api/wire.py)
    ├── FieldSelectorError        a field selector that the kind does not have (kube/selectors.py)
    ├── PatchError                a patch that cannot be applied (kube/patches.py)
    ├── ClusterError              the API server of a live cluster cannot be used (kube/cluster/port.py)
    │   ├── NotSent               nothing of the request has reached it
    │   ├── NoAnswer              the request may have been carried out
    │   │   └── _LostOnKept       a question, lost on a connection that was kept: asked again (kube/cluster/session.py)
    │   └── _Starting             it does not let us in yet (kube/cluster/live.py)
    ├── CannotFollow              a record contradicts those before it (exit 3; scheduler/recorded.py)
    ├── CannotRecover             the log was decided by other rules (exit 3; daemon/process/recovery.py)
    ├── LogError                  the log cannot be opened, read or written
    │   ├── LogLocked             another process writes this log
    │   ├── LogFenced             a newer scheduler took the log over; this one's decisions no longer count
    │   ├── LogFull               no room on the disk; nothing of this was written
    │   ├── LogClockWrong         the machine's clock cannot be right; nothing of this was written
    │   ├── LogBusy               another program is in a transaction on the database; nothing of this was written
    │   │   └── LogUnreachable    the database server that keeps the log cannot be reached, or takes no writes
    │   ├── LogForbidden          the database server does not let this user do that with the log
    │   ├── LogOvertaken          a compaction dropped what was still to be read, time and again (exit 5)
    │   ├── LogDamaged            the log has lost or changed records (exit 4)
    │   ├── NoWriter              no process takes requests for this log (eventlog/socket.py)
    │   ├── ObjectsGone           the objects of a state are gone, perhaps not those of an older one (replay/states.py)
    │   └── SnapshotsUnreadable   the list of snapshots is damaged, no record is (eventlog/store.py)
    └── InternalError             we are wrong; asks for a report

Each keeps its data in fields and makes its sentence in `__str__`: what, where, what to do. The shell prints that one
line and exits with `exit_code`; a traceback is shown only with `--debug`.
"""

from __future__ import annotations

import math
import re
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
        bare = self.value is None or self.kind in ("Required", "Forbidden", "TooLong")
        shown = "" if bare else f": {quoted(self.value)}"
        return f"{printable(self.path)}: {words}{shown}" + (f": {printable(self.rule)}" if self.rule else "")


def quoted(value: object, limit: int = 120) -> str:
    """The value as JSON, shortened, with control characters escaped, so that it is safe to print."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number, and null would name another value.
    try:
        text = msgspec.json.encode(value).decode()
    except RecursionError:
        return "something that is nested too deeply to be shown"
    except (TypeError, ValueError, msgspec.MsgspecError):
        text = msgspec.json.encode(repr(value)).decode()
    return printable(text, limit)


def printable(text: str, limit: int = 1000) -> str:
    """The text, shortened, with control characters escaped, so that it cannot play with a terminal."""
    text = text if len(text) <= limit else text[: limit - 3] + "..."
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


_ASCII_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


def printable_json(text: str) -> str:
    """JSON text in which everything but its line ends is printable: what is not stands escaped in its strings, so that programs read
    the original back."""
    if text.isascii() and not _ASCII_CONTROL.search(text):
        return text
    return "".join(c if c == "\n" or c.isprintable() else _json_escape(c) for c in text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[i : i + 2], 'big'):04x}" for i in range(0, len(units), 2))


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
        return f"{printable(self.subject)} is invalid: {found}"


class PluginError(TidelogError):
    """An out-of-tree plugin cannot be loaded or registered."""

    def __init__(self, plugin: str, why: str) -> None:
        super().__init__(plugin, why)
        self.plugin = plugin
        self.why = why

    def __str__(self) -> str:
        return f"plugin {self.plugin}: {self.why}"


class WithReason(Exception):
    """The part of an error about a log that says why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason


class LogError(TidelogError):
    """The log cannot be opened, read or written."""


class LogLocked(LogError):
    """Another process writes this log."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(path, holder)
        self.path = path
        self.holder = holder

    def __str__(self) -> str:
        return f"{self.path}: the log is being written by {self.holder}; stop it, or open the log read-only"


class LogFenced(LogError):
    """A newer scheduler took the log over; decisions of an older epoch are refused."""

    def __init__(self, epoch: int, current: int) -> None:
        super().__init__(epoch, current)
        self.epoch = epoch
        self.current = current

    def __str__(self) -> str:
        return (
            f"epoch {self.epoch} is over: a newer scheduler took the log at epoch {self.current}; "
            "stop this one, or start it again"
        )


class LogFull(LogError):
    """There is no room on the disk. Nothing of what was to be appended was written; it may be tried again."""

    def __init__(self, path: str, free: int) -> None:
        super().__init__(path, free)
        self.path = path
        self.free = free

    def __str__(self) -> str:
        return (
            f"{self.path}: only {self.room} are free on this disk, so nothing was written; "
            "make room (`tidelog log compact` may help) and try again"
        )

    @property
    def room(self) -> str:
        """Return what is free, as people write it."""
        return f"{self.free >> 20} MiB" if self.free >= 2**20 else f"{self.free >> 10} KiB"


class LogBusy(WithReason, LogError):
    """Another program has the database in a transaction of its own. Nothing was written; it may be tried again."""

    def __str__(self) -> str:
        return (
            f"{self.path}: another program holds a transaction on it ({self.reason}), so nothing was written: "
            "look for a database tool, or a process that was stopped, and try again"
        )


class LogUnreachable(LogBusy):
    """The database server that keeps the log cannot be reached, or takes no writes. It may be tried again."""

    def __str__(self) -> str:
        return f"{self.path}: the database server cannot be used ({self.reason}): see that it runs and lets this machine in; it may be tried again"


class LogForbidden(WithReason, LogError):
    """The database server that keeps the log does not let this user do what was asked. Nothing was written."""

    def __str__(self) -> str:
        return (
            f"{self.path}: this user lacks a right ({self.reason}): the log's owner gives it with `tidelog log init --grant USER`, "
            "or --grant-reading USER"
        )


class LogClockWrong(WithReason, LogError):
    """The machine's clock cannot be right. Nothing was written."""

    def __str__(self) -> str:
        return f"{self.path}: by the machine's clock {self.reason}, so nothing was written: set the clock, and try again"


class LogOvertaken(LogError):
    """Records that a reader had still to read were dropped meanwhile, time and again."""

    exit_code = 5

    def __init__(self, path: str, begin: int) -> None:
        super().__init__(path, begin)
        self.path = path
        self.begin = begin

    def __str__(self) -> str:
        return (
            f"{self.path}: records up to {self.begin} were dropped by compaction while they were being read: try again, "
            "or let the log keep more of them"
        )


class LogDamaged(LogError):
    """Acknowledged records are missing or changed; only `tidelog log repair` goes on from here."""

    exit_code = 4
    went_back = False
    """A database has less than this machine was told of: an older copy of it has taken its place."""

    def __init__(self, path: str, first: int, last: int | None, reason: str) -> None:
        """Records `first` to `last` are affected; `last` is None where nobody knows how many there were."""
        super().__init__(path, first, last, reason)
        self.path = path
        self.first = first
        self.last = last
        self.reason = reason

    def __str__(self) -> str:
        if self.last is None:
            which = f"records from {self.first} on may be missing"
        elif self.last == self.first:
            which = f"record {self.first} is missing or damaged"
        else:
            which = f"records {self.first} to {self.last} are missing or damaged"
        return (
            f"{self.path}: {which} ({self.reason}): restore a backup, "
            f"or go on without them: tidelog log repair --accept-loss {self.path}"
        )


class InternalError(TidelogError):
    """We are wrong. The message asks for a report."""

    def __str__(self) -> str:
        return f"internal error: {super().__str__()}; please report this together with the log"

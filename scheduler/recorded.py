"""The attempts that a log records, each in the place where it was made: what recovery, playback, verification, what-if and redaction all follow.

An attempt was made when the core had consumed the log up to some record (`observed`); its outcomes stand further down. So to go through a
log again is always the same loop:

    for each record:  take every attempt that was made before it (`RecordedAttempts.due`): believe it, or decide anew
                      consume the record
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

from tidelog.api.errors import InternalError, TidelogError
from tidelog.eventlog.records import Body, Outcome, Record, decode_outcome


class RecordedAttempt(NamedTuple):
    """Where and when an attempt was made, and its outcomes in the log."""

    attempt: int
    observed: int
    at: int
    outcomes: list[tuple[Record, Outcome]]

    @property
    def key(self) -> str:
        """Key of the pod or group that was tried."""
        return self.outcomes[0][0].key

    def bodies(self) -> list[tuple[str, Body]]:
        """Return the outcomes as the core takes them."""
        return [(record.key, cast("Body", body)) for record, body in self.outcomes]


class RecordedAttempts:
    """The attempts whose outcomes have been read and whose place has not been reached, oldest first."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        """Take every attempt of these records; iterated over, they come in the order in which they were made."""
        self._ahead: deque[RecordedAttempt] = deque()
        for record in records:
            body = decode_outcome(record)
            if body is not None:
                self._take(record, body)

    def __len__(self) -> int:
        return len(self._ahead)

    def __iter__(self) -> Iterator[RecordedAttempt]:
        return iter(self._ahead)

    def add(self, record: Record, body: Outcome, *, consumed: int) -> None:
        """Take the next outcome of a log that is read while it grows; the core has consumed it up to record `consumed`."""
        if body.observed < consumed and not self._goes_on(body):
            raise NotTheRecorded(
                f"attempt {body.attempt} was popped after record {body.observed}, which is behind {consumed}"
            )
        self._take(record, body)

    def _goes_on(self, body: Outcome) -> bool:
        """Whether it is one more outcome of the attempt before."""
        return bool(self._ahead) and self._ahead[-1].attempt == body.attempt

    def _take(self, record: Record, body: Outcome) -> None:
        if not self._goes_on(body):
            self._ahead.append(RecordedAttempt(body.attempt, body.observed, body.at, []))
        self._ahead[-1].outcomes.append((record, body))

    def due(self, seq: int) -> Iterator[RecordedAttempt]:
        """Take the attempts that were made when the log had been consumed up to record `seq`. May be given up in between."""
        ahead = self._ahead
        while ahead and ahead[0].observed == seq:
            yield ahead.popleft()


# --- logs that contradict themselves ----------------------------------------------------------------------------------


class NotTheRecorded(Exception):
    """A log is followed, and the queue gives another pod than the one that the log says was tried."""


class CannotFollow(TidelogError):
    """A record contradicts those before it. No log that we wrote has one, but others may write logs."""

    exit_code = 3

    def __init__(self, record: Record, error: Exception) -> None:
        super().__init__(record.seq, error)
        self.record = record
        self.error = error

    def __str__(self) -> str:
        why = contradiction(self.error)
        return (
            f"record {self.record.seq} ({self.record.kind} {self.record.key}) cannot follow those before it: {why}; "
            "use the tidelog and the plugins that wrote this log, and if they did, please report this together with it"
        )


@contextlib.contextmanager
def following(record: Record) -> Iterator[None]:
    """Raise CannotFollow, over this record, for a failure in here that is not told in one line by itself."""
    try:
        yield
    except Exception as error:
        if contradiction(error):
            raise CannotFollow(record, error) from error
        raise


def contradiction(error: Exception) -> str:
    """Return how a log contradicts itself, for an error met while following it; empty for an error that says all by itself.

    A log that we did not write can make the core fail in any way.
    """
    if isinstance(error, NotTheRecorded | InternalError):
        return str(error.args[0]) if error.args else repr(error)
    return "" if isinstance(error, TidelogError) else repr(error)

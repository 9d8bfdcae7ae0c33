"""How a scheduler gets into the state that a log implies: the log is folded, and the attempts in it are believed.

A pop happened when the core had consumed the log up to some record (`observed`), but its outcome stands further down. So a record may
be consumed only when it is sure that no attempt was popped before it that is still to be read:

    observed of the newest outcome read ──► every record up to it is certain: later attempts were popped no earlier
    a snapshot of the scheduler's at K  ──► nothing was in flight at K: every record up to it is certain
    another scheduler took the log at K ──► what was in flight is lost: every record up to it is certain
    the log has no writer any more      ──► likewise, up to its end (`finish`)

A standby follows a running scheduler so, as far behind it as that one's decisions are, and is complete in a moment when the lock is
free. Who comes back after a restart has the whole log at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from tidelog.eventlog.records import Body, Outcome, Record, SchedulerStarted, decode_body
from tidelog.scheduler.core import Core
from tidelog.scheduler.recorded import RecordedAttempt, RecordedAttempts


class Recovery:
    """A core that catches up with a log it does not write. `core` may come from a snapshot."""

    def __init__(self, core: Core, heard: Callable[[RecordedAttempt], None] | None = None) -> None:
        """`heard` is told of each attempt, in the state in which it was made."""
        self.core = core
        self._heard = heard
        self.read = core.seq
        """The last record that was given to it."""
        self._records: deque[tuple[Record, Body]] = deque()
        """Read and not consumed."""
        self._attempts = RecordedAttempts()
        """Of which outcomes were read, and which have not been popped; the last may be incomplete."""
        self._observed = core.seq
        """Of the newest outcome."""
        self._settled = core.seq
        """Nothing was in flight here."""
        self._promised: list[int] = []
        """Where nothing was in flight, as far as it is beyond what was read when that was said."""

    @property
    def waiting(self) -> int:
        """How many records were read and are not certain yet."""
        return len(self._records)

    def add(self, records: Iterable[Record]) -> None:
        """Take the next records of the log. Costs their decoding."""
        for record in records:
            body = decode_body(record)
            if isinstance(body, Outcome):
                self._attempts.add(record, body, consumed=self.core.seq)
                self._observed = body.observed
            elif isinstance(body, SchedulerStarted):
                self.nothing_in_flight_at(record.seq)
            self._records.append((record, body))
            self.read = record.seq

    def nothing_in_flight_at(self, seq: int) -> None:
        """Somebody knows that no attempt was in flight when the log had been consumed up to this record."""
        self._promised.append(seq)

    def advance(self) -> Iterator[tuple[Record, Body]]:
        """Consume what is certain; yields each record and its body, and may be given up in between."""
        # Of one that is beyond what was read, the outcomes before it may still be to come.
        self._settled = max([self._settled, *(seq for seq in self._promised if seq <= self.read)])
        self._promised = [seq for seq in self._promised if seq > self.read]
        while self._records:
            self._pop_attempts(self._settled)
            record, body = self._records[0]
            if record.seq > max(self._observed, self._settled):
                return
            self._records.popleft()
            self.core.apply(record, body)
            yield record, body

    def finish(self) -> Iterator[tuple[Record, Body]]:
        """Consume all that was read: nobody will add outcomes of the attempts that were under way at its end."""
        while True:
            self._pop_attempts(self.read + 1)
            if not self._records:
                return
            record, body = self._records.popleft()
            self.core.apply(record, body)
            yield record, body

    def _pop_attempts(self, settled: int) -> None:
        """Make the attempts that were made here, if all their outcomes were read: one follows, or nothing was in flight later."""
        core, attempts = self.core, self._attempts
        if len(attempts) == 1 and core.seq >= settled:
            return
        for made in attempts.due(core.seq):
            if self._heard is not None:
                self._heard(made)
            core.readopt(made.attempt, made.at, made.bodies())
            if len(attempts) == 1 and core.seq >= settled:
                return

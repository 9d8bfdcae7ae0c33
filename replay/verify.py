"""Recompute every decision of a log from its facts alone, and compare with what was recorded, byte for byte.

    for each record:  first every attempt that the log says was popped before it (`observed`), decided anew
                      then, if the record is an outcome, compared with what came out
                      then the record is consumed

Where a record says that an attempt was aborted, the commit check must say so as well, and where it does not, neither may the check. A log that
verifies was made by this very function of its facts, and by nothing else: no clock, no chance, no lost or doubled decision.

`recover` is the same fold with the outcomes believed instead of recomputed: that is how a scheduler comes back after a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from tidelog.eventlog.records import Body, Outcome, Record, decode_body, encode_body
from tidelog.plugins.registry import Registry
from tidelog.scheduler.core import Core
from tidelog.scheduler.decision import Decision

Progress = Callable[[int], None]


class Difference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The first place where the recomputation came to something else."""

    seq: int
    attempt: int
    key: str
    what: str
    recorded: Any = None
    computed: Any = None
    fields: tuple[str, ...] = ()
    """Where the two differ."""


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a verification found."""

    outcomes: int
    identical: int
    first_difference: Difference | None = None
    digest: str = ""
    """Of the state at the end; empty if the log ends with attempts in flight or differs."""

    @property
    def is_identical(self) -> bool:
        """Nothing differed."""
        return self.first_difference is None


class Pop(NamedTuple):
    """Where and when an attempt was made, and what the log says came of it."""

    attempt: int
    observed: int
    at: int
    outcomes: list[tuple[Record, Outcome]]


def pops(records: Iterable[Record]) -> Iterator[Pop]:
    """Every attempt of the log, in the order in which they were made."""
    current: Pop | None = None
    for record in records:
        body = decode_outcome(record)
        if body is None:
            continue
        if current is None or body.attempt != current.attempt:
            if current is not None:
                yield current
            current = Pop(body.attempt, body.observed, body.at, [])
        current.outcomes.append((record, body))
    if current is not None:
        yield current


_OUTCOME_KINDS = frozenset(kind.__name__ for kind in Outcome.__subclasses__())


def decode_outcome(record: Record) -> Outcome | None:
    """The outcome that the record holds, if it holds one."""
    if record.kind not in _OUTCOME_KINDS:
        return None
    body = decode_body(record)
    assert isinstance(body, Outcome)
    return body


def verify(
    records: Sequence[Record],
    registry: Registry,
    *,
    core: Core | None = None,
    progress: Progress | None = None,
) -> Report:
    """Recompute the outcomes among these records. `core` has consumed everything before them; None: they are all."""
    core = Core(registry) if core is None else core
    return _Verification(core, records).run(progress)


class _Verification:
    def __init__(self, core: Core, records: Sequence[Record]) -> None:
        self.core = core
        self.records = records
        self.ahead = deque(pops(records))
        self.made: dict[int, Decision] = {}
        """Decisions computed, no record of which has been reached."""
        self.expected: dict[int, deque[tuple[str, Body]]] = {}
        """What is still to come of those of which some record has been reached."""
        self.outcomes = 0
        self.difference: Difference | None = None

    def run(self, progress: Progress | None) -> Report:
        for record in self.records:
            self._make_attempts()
            if self.difference is None:
                outcome = decode_outcome(record)
                if outcome is not None:
                    self._compare(record, outcome)
            if self.difference is not None:
                return Report(
                    outcomes=self.outcomes,
                    identical=self.outcomes - 1,
                    first_difference=self.difference,
                )
            self.core.apply(record)
            if progress is not None and record.seq % 1000 == 0:
                progress(record.seq)
        settled = not self.core.in_flight
        return Report(
            outcomes=self.outcomes, identical=self.outcomes, digest=self.core.digest() if settled else ""
        )

    def _make_attempts(self) -> None:
        """Everything that was popped when the log was as long as what has been consumed."""
        while self.ahead and self.ahead[0].observed == self.core.seq:
            pop = self.ahead.popleft()
            decision = self.core.attempt(pop.at)
            record, _ = pop.outcomes[0]
            if decision is None or decision.attempt != pop.attempt:
                found = (
                    "there was nothing to decide"
                    if decision is None
                    else f"it was attempt {decision.attempt}"
                )
                self._differs(
                    record,
                    pop.attempt,
                    f"attempt {pop.attempt} was made after record {pop.observed}, but {found}",
                )
                return
            self.made[pop.attempt] = decision

    def _compare(self, record: Record, outcome: Outcome) -> None:
        self.outcomes += 1
        attempt = outcome.attempt
        decision = self.made.pop(attempt, None)
        if decision is not None:
            found = self.core.conflict(decision)
            outcomes = decision.outcomes if found is None else self.core.aborted(decision, found).outcomes
            self.expected[attempt] = deque(outcomes)
        expected = self.expected.get(attempt)
        if not expected:
            self._differs(record, attempt, "nothing like it was decided", outcome)
            return
        key, computed = expected.popleft()
        if key != record.key or encode_body(computed) != record.body:
            self._differs(record, attempt, f"the decision is another one, about {key}", outcome, computed)
        elif not expected:
            del self.expected[attempt]

    def _differs(
        self,
        record: Record,
        attempt: int,
        what: str,
        recorded: Outcome | None = None,
        computed: Body | None = None,
    ) -> None:
        old = None if recorded is None else {"kind": type(recorded).__name__, **msgspec.to_builtins(recorded)}
        new = None if computed is None else {"kind": type(computed).__name__, **msgspec.to_builtins(computed)}
        fields = sorted(k for k in {**(old or {}), **(new or {})} if (old or {}).get(k) != (new or {}).get(k))
        self.difference = Difference(
            seq=record.seq,
            attempt=attempt,
            key=record.key,
            what=what,
            recorded=old,
            computed=new,
            fields=tuple(fields) if old and new else (),
        )


def recover(records: Sequence[Record], registry: Registry, *, core: Core | None = None) -> Core:
    """The state that the log implies, its decisions believed. `core` has consumed everything before these records."""
    core = Core(registry) if core is None else core
    ahead = deque(pops(records))
    for record in records:
        while ahead and ahead[0].observed == core.seq:
            pop = ahead.popleft()
            core.readopt(pop.attempt, pop.at, [(r.key, cast("Body", body)) for r, body in pop.outcomes])
        core.apply(record)
    return core

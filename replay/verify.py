"""Recompute every decision of a log from its facts alone, and compare with what was recorded, byte for byte.

    for each record:  first every attempt that the log says was popped before it (`observed`), decided anew
                      then, if the record is an outcome, compared with what came out
                      then the record is consumed

Where a record says that an attempt was aborted, the commit check must say so as well, and where it does not, neither may the check. A log that
verifies was made by this very function of its facts, and by nothing else: no clock, no chance, no lost or doubled decision.

A sample believes most attempts and recomputes every n-th: a quick look at a long log. The places of all pops are checked all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from tidelog.eventlog.records import (
    AttemptAborted,
    Body,
    LossAccepted,
    Outcome,
    Record,
    Reserved,
    Scheduled,
    Waiting,
    decode_outcome,
    encode_body,
)
from tidelog.plugins.registry import Registry
from tidelog.replay.divergence import evidence
from tidelog.replay.playback import recover
from tidelog.scheduler.core import Core
from tidelog.scheduler.decision import Decision
from tidelog.scheduler.recorded import RecordedAttempt, RecordedAttempts, contradiction

__all__ = ["Difference", "Report", "recover", "verify"]

Progress = Callable[[int, int], None]
"""Told now and then how many records are done, and of how many."""

PROGRESS_EVERY = 1_000


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first place where the recomputation came to something else."""

    seq: int
    attempt: int
    key: str
    what: str
    recorded: Any = None
    computed: Any = None
    fields: tuple[str, ...] = ()
    """Where the two differ."""
    plugins: dict[str, str] = {}
    """Plugins that answer differently, as far as that can be told → what tells it."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a verification."""

    outcomes: int
    """Outcomes recomputed."""
    identical: int
    first_difference: Difference | None = None
    digest: str = ""
    """Digest of the state at the end; empty if it was not asked for, if the log ends with attempts in flight, or if it differs."""

    @property
    def is_identical(self) -> bool:
        """Nothing differed."""
        return self.first_difference is None


def verify(
    records: Sequence[Record],
    registry: Registry,
    *,
    core: Core | None = None,
    progress: Progress | None = None,
    sample: int = 1,
    digest: bool = True,
) -> Report:
    """Recompute the outcomes among these records. `core` has consumed everything before them; None: they are all.

    `sample`: recompute only every so many-th attempt, and believe the others. `digest`: compute that of the state at the end, too, which
    costs some 15 microseconds an object.
    """
    core = Core(registry) if core is None else core
    return _Verification(core, records, sample).run(progress, digest=digest)


class _Verification:
    def __init__(self, core: Core, records: Sequence[Record], sample: int) -> None:
        self.core = core
        self.records = records
        self.sample = sample
        self.ahead = RecordedAttempts(records)
        self.cut = {record.seq - 1 for record in records if record.kind == LossAccepted.__name__}
        """The records behind which others were lost, outcomes of the same attempt perhaps: what it came to cannot be compared."""
        self.made: dict[int, Decision] = {}
        """Decisions computed, no record of which has been reached."""
        self.expected: dict[int, deque[tuple[str, Body]]] = {}
        """Records still to come of the decisions of which some record has been reached."""
        self.bodies: dict[int, Outcome] = {}
        """Outcomes that are decoded and not yet consumed, by the number of their record."""
        self.same: set[int] = set()
        """Attempts whose own outcome, as it was decided, is the recorded one."""
        self.believed: set[int] = set()
        """Attempts that are not recomputed, beside those that the sample passes over."""
        self.evidence: dict[int, dict[str, str]] = {}
        """Evidence, taken at the decision, on attempts with another result."""
        self.outcomes = 0
        self.difference: Difference | None = None

    def run(self, progress: Progress | None, *, digest: bool) -> Report:
        for number, record in enumerate(self.records):
            self._make_attempts()
            if self.difference is None:
                outcome = self.bodies.pop(record.seq, None) or decode_outcome(record)
                if outcome is not None and not self._is_believed(outcome.attempt):
                    self._compare(record, outcome)
            if self.difference is None:
                self._consume(record, outcome)
            if self.difference is not None:
                identical = max(self.outcomes - 1, 0)
                return Report(outcomes=self.outcomes, identical=identical, first_difference=self.difference)
            if progress is not None and number % PROGRESS_EVERY == 0:
                progress(number, len(self.records))
        found = self.core.digest() if digest and not self.core.in_flight else ""
        return Report(outcomes=self.outcomes, identical=self.outcomes, digest=found)

    def _consume(self, record: Record, outcome: Outcome | None) -> None:
        try:
            self.core.apply(record, cast("Body | None", outcome))
        except Exception as error:
            # Somebody else wrote it, or we did and were wrong: here, too, it is the first difference.
            self.difference = Difference(
                seq=record.seq,
                attempt=0,
                key=record.key,
                what=f"the record cannot follow those before it: {_said(error)}",
            )

    def _make_attempts(self) -> None:
        """Everything that was popped when the log was as long as what has been consumed."""
        for pop in self.ahead.due(self.core.seq):
            self.bodies.update((record.seq, body) for record, body in pop.outcomes)
            if pop.outcomes[-1][0].seq in self.cut:
                self.believed.add(pop.attempt)
            if self._is_believed(pop.attempt):
                self._believe(pop)
            else:
                self._decide(pop)
            if self.difference is not None:
                return

    def _is_believed(self, attempt: int) -> bool:
        return attempt % self.sample != 0 or attempt in self.believed

    def _believe(self, pop: RecordedAttempt) -> None:
        for record, body in pop.outcomes:
            if (
                isinstance(body, Scheduled | Waiting | Reserved)
                and self.core.cluster.cache.get(body.node) is None
            ):
                what = f"the decision names node {body.node}, which there was not"
                self._differs(record, pop.attempt, what, body)
                return
        try:
            self.core.readopt(pop.attempt, pop.at, pop.bodies())
        except Exception as error:
            self._differs(pop.outcomes[0][0], pop.attempt, _said(error))

    def _decide(self, pop: RecordedAttempt) -> None:
        try:
            decision = self.core.attempt(pop.at)
        except Exception as error:
            self._differs(pop.outcomes[0][0], pop.attempt, f"the attempt cannot be made: {_said(error)}")
            return
        if decision is not None and decision.attempt == pop.attempt:
            self.made[pop.attempt] = decision
            self._look_closer(pop, decision)
            return
        found = "there was nothing to decide" if decision is None else f"it was attempt {decision.attempt}"
        what = f"attempt {pop.attempt} was made after record {pop.observed}, but {found}"
        self._differs(pop.outcomes[0][0], pop.attempt, what)

    def _look_closer(self, pop: RecordedAttempt, decision: Decision) -> None:
        """If the decision is another one than was recorded, find out who caused it as long as the state is at hand."""
        (record, recorded), (key, computed) = pop.outcomes[0], decision.outcomes[0]
        if key == record.key and encode_body(computed) == record.body:
            self.same.add(pop.attempt)
            return
        if isinstance(recorded, AttemptAborted) or key != record.key:
            return
        pod = self.core.cluster.pod(key)
        if pod is not None and pod.spec.scheduler_name in self.core.frameworks:
            found = evidence(self.core, pod, pop.at, cast("Body", recorded), computed)
            told: dict[str, str] = {}
            for plugin, what in found:
                told.setdefault(plugin, what)
            self.evidence[pop.attempt] = told

    def _compare(self, record: Record, outcome: Outcome) -> None:
        self.outcomes += 1
        attempt = outcome.attempt
        decision = self.made.pop(attempt, None)
        if decision is not None:
            found = self.core.conflict(decision)
            outcomes = decision.outcomes if found is None else self.core.aborted(decision, found).outcomes
            if found is None and attempt in self.same and len(outcomes) == 1:
                self.same.discard(attempt)
                return
            self.expected[attempt] = deque(outcomes)
        expected = self.expected.get(attempt)
        if not expected:
            what = (
                f"no attempt {attempt} was made after record {outcome.observed} whose outcome this could be"
            )
            self._differs(record, attempt, what, outcome)
            return
        key, computed = expected.popleft()
        if key != record.key or encode_body(computed) != record.body:
            about = "" if key == record.key else f", about {key}"
            self._differs(record, attempt, f"the decision is another one{about}", outcome, computed)
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
            plugins=self.evidence.get(attempt, {}),
        )


def _said(error: Exception) -> str:
    return contradiction(error) or str(error)

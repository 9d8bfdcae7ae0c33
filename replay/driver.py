"""A scheduler without a disk, a loop or a clock: the core, a list of records, and somebody who says what time it is.

It does the shell's tasks and transactions step by step, synchronously, and in the same order. Tests use it to put any two
things in any order; the sandbox and what-if replays run whole stories on it. What it writes is a log like any other: its records chain,
and `tidelog.replay.verify` accepts it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object, Pod
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import SchedulerConfiguration, default_configuration
from tidelog.eventlog.records import (
    GENESIS,
    KIND_OF_BODY,
    ConfigurationLoaded,
    Draft,
    ObjectDeleted,
    ObjectPut,
    PodConditionSet,
    Record,
    SchedulerStarted,
    Tick,
    chain_digest,
    encode_body,
)
from tidelog.plugins.registry import Registry
from tidelog.scheduler.core import Core
from tidelog.scheduler.decision import Decision

START = 1_700_000_000 * NANOS
"""The virtual clock's first moment: a whole second, so that windows of seconds are easy to read."""


class Driver:
    """A core and its log. `now` is the virtual clock; nothing moves it but the caller."""

    def __init__(
        self,
        registry: Registry | None = None,
        *,
        now: int = START,
        core: Core | None = None,
        digest: bytes = GENESIS,
    ) -> None:
        """Begin with an empty log, or behind `core`, whose own records are not known here; `digest` is that of the last one."""
        self.core = Core(registry or Registry()) if core is None else core
        self.registry = self.core.registry
        self.base = self.core.seq
        """The record before the first of `records`."""
        self._digest = digest
        self.records: list[Record] = []
        self.now = now
        self.submitted: list[Decision] = []
        """Decisions that are made and not committed, oldest first."""

    # --- facts --------------------------------------------------------------------------------------------------------

    def start(self, configuration: SchedulerConfiguration | None = None) -> None:
        """Take the log, as a scheduler with this configuration does."""
        found = configuration or default_configuration(self.registry)
        self.append(
            Draft(body=SchedulerStarted(epoch=self.core.epoch + 1, holder="driver"), author="scheduler")
        )
        self.configure(found)

    def configure(self, configuration: SchedulerConfiguration) -> None:
        """Put another configuration in force."""
        body = ConfigurationLoaded(configuration=msgspec.to_builtins(configuration))
        self.append(Draft(body=body, author="scheduler"))

    def put(self, *objects: Object) -> None:
        """New objects, or new versions of known ones; taken as they are, without admission."""
        for obj in objects:
            self.append(Draft(body=ObjectPut(object=obj), author="cluster", key=object_key(obj)))

    def delete(self, obj: Object) -> None:
        """The object is gone."""
        self.append(Draft(body=ObjectDeleted(), author="cluster", key=object_key(obj)))

    def set_condition(self, pod: Pod, body: PodConditionSet) -> None:
        """A condition of a pod, as an autoscaler sends it."""
        self.append(Draft(body=body, author="autoscaler", key=object_key(pod)))

    def append(self, *drafts: Draft) -> None:
        """Append as one transaction, and let the core consume it."""
        for draft in drafts:
            self.core.apply(self._record(draft), draft.body)

    def _record(self, draft: Draft) -> Record:
        seq, at = self.core.seq + 1, max(self.core.at, self.now)
        kind, body = KIND_OF_BODY[type(draft.body)], encode_body(draft.body)
        previous = self.records[-1].digest if self.records else self._digest
        digest = chain_digest(previous, seq, at, draft.author, kind, draft.key, draft.cause, body)
        record = Record(seq, at, draft.author, kind, draft.key, draft.cause, body, digest)
        self.records.append(record)
        return record

    # --- attempts -----------------------------------------------------------------------------------------------------

    def attempt(self) -> Decision | None:
        """Make one decision and leave it uncommitted."""
        decision = self.core.attempt(self.now)
        if decision is not None:
            self.submitted.append(decision)
        return decision

    def commit(self, most: int | None = None, outcomes: int | None = None) -> list[Decision]:
        """Append the oldest decisions, or aborts in their place if something came in between; returns what was appended.

        `outcomes`: only so many of each, as a repair may have left of it.
        """
        committed = []
        count = len(self.submitted) if most is None else min(most, len(self.submitted))
        for _ in range(count):
            decision = self.submitted.pop(0)
            found = self.core.conflict(decision)
            if found is not None:
                decision = self.core.aborted(decision, found)
            self.append(*decision.drafts()[:outcomes])
            committed.append(decision)
        return committed

    def settle(self, limit: int = 100_000) -> int:
        """Decide and commit until there is nothing to decide now; the number of attempts."""
        for count in range(limit):
            if self.attempt() is None:
                return count
            self.commit()
        raise AssertionError(f"still busy after {limit} attempts")

    def advance(self, seconds: float) -> None:
        """Let time go by: everything that becomes due on the way is done when it is due."""
        self.advance_to(self.now + round(seconds * NANOS))

    def advance_to(self, end: int) -> None:
        """As `advance`, up to a moment; one that is over already lets nothing but the present be settled."""
        self.settle()
        while (due := self.next_due()) is not None and due <= end:
            self.now = max(self.now, due)
            tick_at = self.core.next_tick_at()
            if tick_at is not None and tick_at <= self.now:
                self.append(Draft(body=Tick(), author="ticker"))
            self.settle()
        self.now = max(self.now, end)

    def next_due(self) -> int | None:
        """When there is something to do next though nothing happens."""
        due = (self.core.next_attempt_at(self.now), self.core.next_tick_at())
        return min((at for at in due if at is not None), default=None)

    # --- looking --------------------------------------------------------------------------------------------------------

    def pod(self, name: str, namespace: str = "default") -> Pod:
        """The pod as the log has it now."""
        found = self.core.objects[f"Pod/{namespace}/{name}"]
        assert isinstance(found, Pod)
        return found

    def placements(self) -> dict[str, str]:
        """`namespace/name` → node of every pod that has one."""
        return {
            key.removeprefix("Pod/"): obj.spec.node_name
            for key, obj in self.core.objects.items()
            if isinstance(obj, Pod) and obj.spec.node_name
        }

    def kinds(self, since: int = 0) -> Sequence[str]:
        """The kinds of the records after `since`, in order."""
        return [record.kind for record in self.records[since:]]

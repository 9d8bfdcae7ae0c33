"""The same facts under other rules: what would have been different?

    in step        as long as every decision is the recorded one, attempts are made where and when the log says they were, several in flight
                   and all; so the same rules give the same log, outcome for outcome
    on its own     from the first difference on (or the first fact that is left out or put in), attempts are made on a virtual clock, each as
                   soon as it is due; facts come at their recorded times

A fact that answers an outcome (`cause`) is somebody's reaction to it: a node agent's, an autoscaler's. On its own, the what-if leaves such
facts out where they stand, and lets them follow the outcomes that it comes to itself: the recorded reaction to the same kind of outcome
about the same object, as long after it as it was recorded, and none if there is no such outcome. Who is evicted and for whom no reaction was
recorded is gone when its grace period is over. Ticks are made anew.

In a log that only records a cluster whose own scheduler decides, that scheduler's decisions are what is made anew: the what-if is on its own as soon
as the whole cluster is there, and takes each version of a pod without them.

A pod that is put whole after it was placed says where it was placed; what the scheduler wrote into it is replaced by what the what-if wrote.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from tidelog.api.admission import admit
from tidelog.api.cluster import Stamp
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Condition, Object, Pod
from tidelog.api.pod_status import is_preempted
from tidelog.api.times import parse_time
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import (
    OUTCOME_KINDS,
    AttemptAborted,
    Body,
    ConfigurationLoaded,
    Draft,
    ObjectDeleted,
    ObjectPut,
    Outcome,
    Record,
    Scheduled,
    WriteFailed,
    decode_body,
    decode_outcome,
    encode_body,
)
from tidelog.framework.results import NodeScores
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.examine import examine
from tidelog.replay.foreign import is_complete, only_records, undecided
from tidelog.replay.playback import Beginning
from tidelog.scheduler.decision import Decision
from tidelog.scheduler.recorded import RecordedAttempt, RecordedAttempts, following

Configure = Callable[[SchedulerConfiguration], SchedulerConfiguration]
Progress = Callable[[int, int], None]

PROGRESS_EVERY = 1_000
STAND_IN = "what-if"
"""The author of what the what-if itself adds."""

_OF_THE_RECORDED = frozenset(("Tick", "LossAccepted", "LeadershipChanged", "WriteFailed", "ShadowVerdict"))
"""Facts about the recorded log itself, or about its outcomes."""

T = TypeVar("T")
_NO_GATES = FeatureGates()


class Injection(NamedTuple):
    """An object that was never there, put before the record `seq`; it is admitted like any other."""

    seq: int
    object: Object


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Where the what-if left the recorded history."""

    seq: int
    """The recorded record before which it left it."""
    reason: str
    attempt: int = 0
    number: int = 0
    """Which attempt of this pod or group it was, as its story counts them."""
    key: str = ""
    recorded: Any = None
    computed: Any = None


class WhatIfOutcomes(NamedTuple):
    """A what-if log, and where it left the recorded one; None: nowhere."""

    driver: Driver
    divergence: Divergence | None
    as_good: frozenset[tuple[str, int]] = frozenset()
    """Key of a pod, and which of its placements: on another node than recorded, though the recorded one was as good at that moment."""


def run_what_if(
    records: Sequence[Record],
    registry: Registry,
    configure: Configure = lambda recorded: recorded,
    *,
    drop: Collection[str | int] = (),
    inject: Sequence[Injection] = (),
    progress: Progress | None = None,
    beginning: Beginning | None = None,
) -> WhatIfOutcomes:
    """Make the log again, whose records these are from its first, under another configuration.

    `beginning` is where they begin if those before them are gone: what was decided there stays.

    `drop`: record numbers and object keys whose facts are left out; without its creation an object's later facts are left out too. An object that
    is there at the beginning is taken away there.
    """
    run = _WhatIf(records, registry, configure, drop, inject, beginning)
    run.run(progress)
    return WhatIfOutcomes(run.driver, run.divergence, frozenset(run.driver.as_good))


class _Reaction(NamedTuple):
    """A recorded fact that answers an outcome."""

    delay: int
    record: Record


Occasion = tuple[str, str]
"""Kind and key of an outcome."""


EXAMINED_MAX = 5_000_000
"""So many times a node is asked at most whether it would have been as good; some minutes."""


def _placements_of(records: Sequence[Record]) -> dict[str, list[Scheduled]]:
    """By pod key, where it was placed, one time after the other."""
    found: dict[str, list[Scheduled]] = {}
    for record in records:
        if record.kind == "Scheduled":
            body = decode_outcome(record)
            assert isinstance(body, Scheduled)
            found.setdefault(record.key, []).append(body)
    return found


class _Comparing(Driver):
    """A driver that asks of each placement on another node than recorded whether it is equally good.

    It is if it has as many points as the recorded one had, under the same configuration, or as the recorded node has now.
    """

    def __init__(
        self,
        registry: Registry,
        recorded: Mapping[str, Sequence[Scheduled]],
        beginning: Beginning | None,
        *,
        now: int,
    ) -> None:
        if beginning is None:
            super().__init__(registry, now=now)
        else:
            super().__init__(now=now, core=beginning.core, digest=beginning.digest)
        self.recorded = recorded
        self.is_as_configured = True
        """The configuration in force is the recorded one."""
        self.placed: Counter[str] = Counter()
        self.as_good: set[tuple[str, int]] = set()
        self.examined = 0

    def append(self, *drafts: Draft) -> None:
        """Append as one transaction, and let the core consume it."""
        self.placed.update(draft.key for draft in drafts if isinstance(draft.body, Scheduled))
        super().append(*drafts)

    def attempt(self) -> Decision | None:
        """Make one decision and leave it uncommitted."""
        decision = super().attempt()
        if decision is not None:
            for key, body in decision.outcomes:
                if isinstance(body, Scheduled):
                    self._compare(key, body, decision)
        return decision

    def _compare(self, key: str, body: Scheduled, decision: Decision) -> None:
        number, recorded = self.placed[key], self.recorded.get(key, ())
        if (
            number >= len(recorded)
            or recorded[number].node == body.node
            or body.feasible < 2
            or decision.key != key
        ):
            return
        if self._has_as_many_points(key, body, recorded[number]):
            self.as_good.add((key, number))

    def _has_as_many_points(self, key: str, body: Scheduled, recorded: Scheduled) -> bool:
        if self.is_as_configured and body.score == recorded.score:
            return True
        pod = self.core.cluster.pod(key)
        if pod is None or self.examined > EXAMINED_MAX:
            return False
        seen = examine(self.core, pod, self.now, refresh=False)
        self.examined += len(seen.nodes)
        scores = seen.scores()
        if not isinstance(scores, NodeScores):
            return False
        points = {info.name: total for info, total in zip(scores.nodes, scores.totals, strict=True)}
        return recorded.node in points and points[recorded.node] == points.get(body.node)


class _WhatIf:
    def __init__(
        self,
        records: Sequence[Record],
        registry: Registry,
        configure: Configure,
        drop: Collection[str | int],
        inject: Sequence[Injection],
        beginning: Beginning | None,
    ) -> None:
        self.records = records
        self.configure = configure
        self.drop = frozenset(drop)
        self.injections = sorted(inject, key=lambda i: i.seq)
        self.driver = _Comparing(
            registry, _placements_of(records), beginning, now=records[0].at if records else 0
        )
        self.base = self.driver.base
        self.recorded = ObjectTable() if beginning is None else ObjectTable.decode(beginning.objects)
        """The objects as the recorded log had them."""
        self.divergence: Divergence | None = None
        self.ahead = RecordedAttempts(records)
        self.pops = {pop.attempt: pop for pop in self.ahead}
        self.roots = _roots(records)
        self.reactions = self._reactions()
        self.absent: set[str] = set()
        """Objects whose creation was left out."""
        self.due: list[tuple[int, int, Record]] = []
        """Reactions to come: when, in which order, what."""
        self.occasions: dict[Occasion, int] = {}
        """How often each outcome has come up so far."""
        self.heard = self.base
        """Up to which of the driver's records reactions were looked for."""
        self.evicted: dict[str, int] = {}
        """Pods that go without a recorded reaction → when."""

    def _reactions(self) -> dict[Occasion, list[list[_Reaction]]]:
        """For each outcome's kind and key, the reactions to its first occurrence, to its second, …"""
        found: dict[Occasion, list[list[_Reaction]]] = {}
        place: dict[int, list[_Reaction]] = {}
        for record in self.records:
            if record.kind in OUTCOME_KINDS:
                place[record.seq] = []
                found.setdefault((record.kind, record.key), []).append(place[record.seq])
            elif (root := self.roots.get(record.seq)) is not None:
                place[root].append(_Reaction(record.at - self.records[root - self.base - 1].at, record))
        return found

    # --- in step ----------------------------------------------------------------------------------------------------------

    def run(self, progress: Progress | None) -> None:
        self._take_away()
        for number, record in enumerate(self.records):
            with following(record):
                if self.divergence is None:
                    self._in_step(record)
                if self.divergence is not None:
                    self._on_its_own(record)
                self.recorded.apply(record)
            if progress is not None and number % PROGRESS_EVERY == 0:
                progress(number, len(self.records))
        if self.divergence is not None and self.records:
            with following(self.records[-1]):
                self._go_to(self.records[-1].at)
                self.driver.settle()

    def _take_away(self) -> None:
        """Objects that are left out, and were there before the first record. What they led to before it stays."""
        there = sorted(
            key for key in self.drop if isinstance(key, str) and self.recorded.get(key) is not None
        )
        if there and self.records:
            self._leave(self.records[0], "it was there already, and is taken away here", key=there[0])
        for key in there if self.records else ():
            self.driver.append(Draft(body=ObjectDeleted(), author=STAND_IN, key=key))

    def _in_step(self, record: Record) -> None:
        driver = self.driver
        self._attempts(record)
        if self.divergence is not None:
            return
        if self._decides_anew():
            self._leave(record, "from here on the decisions of the cluster's own scheduler are made anew")
        elif any(i.seq == record.seq for i in self.injections):
            self._leave(record, "an object is put in here")
        elif record.seq in self.drop or record.key in self.drop:
            self._leave(record, "a fact is left out here")
        elif record.kind not in OUTCOME_KINDS:
            driver.now = record.at
            self._append(record, decode_body(record))
        elif driver.core.seq < record.seq:
            self._commit(record)

    def _decides_anew(self) -> bool:
        """The log only records what another scheduler decides, and the whole cluster is there."""
        attachment = self.recorded.attachment
        return only_records(attachment) and is_complete(attachment) and bool(self.driver.core.frameworks)

    def _attempts(self, record: Record) -> None:
        """Every attempt that was made before this record, in the same place."""
        driver = self.driver
        for pop in self.ahead.due(driver.core.seq):
            driver.now = pop.at
            decision = driver.attempt()
            _, body = pop.outcomes[0]
            if decision is None or decision.attempt != pop.attempt:
                self._leave(record, "there was nothing to decide", pop)
            elif not isinstance(body, AttemptAborted) and not _same(decision.outcomes, pop):
                self._leave(record, "the decision is another one", pop, decision.outcomes[0][1])
            if self.divergence is not None:
                return

    def _commit(self, record: Record) -> None:
        """The recorded outcomes are next: the oldest decision must come to them."""
        driver, outcome = self.driver, decode_outcome(record)
        assert outcome is not None
        pop = self.pops[outcome.attempt]
        if not driver.submitted or driver.submitted[0].attempt != outcome.attempt:
            self._leave(record, "nothing like it was decided", pop)
            return
        decision = driver.submitted[0]
        found = driver.core.conflict(decision)
        final = decision if found is None else driver.core.aborted(decision, found)
        if not _same(final.outcomes, pop):
            self._leave(record, "the decision is another one", pop, final.outcomes[0][1])
            return
        driver.now = record.at
        driver.commit(1)

    def _leave(
        self,
        record: Record,
        reason: str,
        pop: RecordedAttempt | None = None,
        computed: Body | None = None,
        key: str = "",
    ) -> None:
        recorded = None if pop is None else pop.outcomes[0][1]
        self.divergence = Divergence(
            seq=record.seq,
            reason=reason,
            attempt=0 if pop is None else pop.attempt,
            number=0 if pop is None else self._number(pop),
            key=key or (record.key if pop is None else pop.key),
            recorded=None if recorded is None else _plain(recorded),
            computed=None if computed is None else _plain(computed),
        )
        driver = self.driver
        driver.commit()
        # What was decided in step has had its recorded reactions, or will have them at their recorded times.
        for made in driver.records:
            if made.kind in OUTCOME_KINDS and made.seq < record.seq:
                self._count((made.kind, made.key))
                self.heard = made.seq
        self.heard = max(self.heard, record.seq - 1)

    def _number(self, pop: RecordedAttempt) -> int:
        """Which attempt of its pod or group it was, since there was one of this name."""
        created = max(
            (
                r.seq
                for r in self.records
                if r.kind == "ObjectDeleted" and r.key == pop.key and r.seq <= pop.observed
            ),
            default=0,
        )
        return sum(
            other.key == pop.key and created <= other.observed and other.attempt <= pop.attempt
            for other in self.pops.values()
        )

    def _count(self, occasion: Occasion) -> int:
        number = self.occasions.get(occasion, 0)
        self.occasions[occasion] = number + 1
        return number

    def _append(self, record: Record, body: Body) -> None:
        if isinstance(body, ConfigurationLoaded):
            body = self._configured(body)
        self.driver.append(Draft(body=body, author=record.author, key=record.key, cause=record.cause))

    def _configured(self, body: ConfigurationLoaded) -> ConfigurationLoaded:
        recorded = msgspec.convert(body.configuration, SchedulerConfiguration)
        changed = self.configure(recorded)
        self.driver.is_as_configured = changed == recorded
        if changed == recorded:
            return body
        return replace(body, configuration=msgspec.to_builtins(changed))

    # --- on its own -------------------------------------------------------------------------------------------------------

    def _on_its_own(self, record: Record) -> None:
        for injection in self.injections:
            if injection.seq == record.seq:
                self._go_to(record.at)
                self._inject(injection.object)
        if record.kind in OUTCOME_KINDS or record.kind in _OF_THE_RECORDED:
            return
        if self._is_left_out(record):
            return
        root = self.roots.get(record.seq)
        if root is not None and self.divergence is not None and root >= self.divergence.seq:
            return  # It follows the what-if's own outcomes.
        self._go_to(record.at)
        self._take(record, self.recorded.get(record.key), cause=0)

    def _is_left_out(self, record: Record) -> bool:
        key = record.key
        if key and self.recorded.get(key) is None:
            self.absent.discard(key)
        if record.seq in self.drop or key in self.drop:
            if key and self.recorded.get(key) is None:
                self.absent.add(key)
            return True
        return key in self.absent

    def _take(self, record: Record, before: Object | None, *, cause: int) -> None:
        """Append the fact as it is in this history."""
        body, current = decode_body(record), self.driver.core.objects.get(record.key)
        if isinstance(body, ObjectPut):
            if before is not None and current is None:
                return  # It is gone here.
            body = ObjectPut(object=_rebased(before, self._undecided(before, body.object, current), current))
        elif isinstance(body, ConfigurationLoaded):
            body = self._configured(body)
        elif (record.key and current is None) or (
            isinstance(body, ObjectDeleted) and self._is_anothers_victim(before)
        ):
            return
        self.driver.append(Draft(body=body, author=record.author, key=record.key, cause=cause))

    def _undecided(self, before: Object | None, new: Object, current: Object | None) -> Object:
        """The fact without the decisions of the recorded cluster's own scheduler."""
        if not isinstance(new, Pod) or not only_records(self.recorded.attachment):
            return new
        known, here = (obj if isinstance(obj, Pod) else None for obj in (before, current))
        return undecided(known, new, here, self.driver.core.frameworks)

    def _is_anothers_victim(self, before: Object | None) -> bool:
        """It went because that scheduler preempted it; whom we preempt goes when its grace period is over."""
        if not only_records(self.recorded.attachment) or not isinstance(before, Pod):
            return False
        return is_preempted(before) and before.spec.scheduler_name in self.driver.core.frameworks

    def _inject(self, obj: Object) -> None:
        """Admitted on the objects as the recorded log has them, which is where priority classes and namespaces are."""
        driver = self.driver
        configuration = driver.core.configuration
        gates = configuration.feature_gates if configuration is not None else None
        stamp = Stamp(seq=driver.core.seq + 1, at=driver.now)
        admitted, _ = admit(obj, None, self.recorded.cluster, gates or _NO_GATES, stamp)
        driver.append(Draft(body=ObjectPut(object=admitted), author=STAND_IN, key=object_key(admitted)))

    def _go_to(self, at: int) -> None:
        """Let time go by up to a moment, reactions included; at the moment itself nothing is tried yet."""
        driver = self.driver
        if at > driver.now:
            driver.settle()
            self._listen()
            while (due := self._next_due()) is not None and due < at:
                driver.advance_to(due)
                self._react()
                driver.settle()
                self._listen()
            driver.advance_to(at - 1)
            self._listen()
            driver.now = at
        self._react()

    def _next_due(self) -> int | None:
        """The next reaction; the driver's own deadlines are its affair, but may bring new ones about."""
        driver = self.driver
        found = [entry[0] for entry in self.due[:1]]
        found += list(self.evicted.values())
        own = driver.next_due()
        if own is not None:
            found.append(max(own, driver.now + 1))
        return min(found, default=None)

    def _listen(self) -> None:
        """Line up the reactions to outcomes that are new."""
        driver = self.driver
        for made in driver.records[self.heard - self.base :]:
            if made.kind not in OUTCOME_KINDS:
                continue
            occasion = (made.kind, made.key)
            number = self._count(occasion)
            recorded = self.reactions.get(occasion, [])
            reactions = recorded[number] if number < len(recorded) else []
            for reaction in reactions:
                if reaction.record.kind != "ObjectPut" or reaction.record.key in driver.core.objects:
                    heapq.heappush(self.due, (made.at + reaction.delay, reaction.record.seq, reaction.record))
            if made.kind == "Evicted" and not any(r.record.kind == "ObjectDeleted" for r in reactions):
                self._end_evicted(made)
        self.heard = self.base + len(driver.records)

    def _end_evicted(self, made: Record) -> None:
        pod = self.driver.core.cluster.pod(made.key)
        if pod is not None and is_preempted(pod):
            self.evicted[made.key] = parse_time(pod.metadata.deletion_timestamp)

    def _react(self) -> None:
        driver = self.driver
        while self.due and self.due[0][0] <= driver.now:
            _, _, record = heapq.heappop(self.due)
            if not self._is_left_out_reaction(record):
                self._take(record, self._before(record), cause=0)
        for key in [key for key, at in self.evicted.items() if at <= driver.now]:
            del self.evicted[key]
            if driver.core.cluster.pod(key) is not None:
                driver.append(Draft(body=ObjectDeleted(), author=STAND_IN, key=key))

    def _is_left_out_reaction(self, record: Record) -> bool:
        return record.seq in self.drop or record.key in self.drop

    def _before(self, record: Record) -> Object | None:
        """The fact's changes in the recorded log: enough to tell what it meant to change."""
        return self.recorded.get(record.key) or self.driver.core.objects.get(record.key)


def _roots(records: Sequence[Record]) -> dict[int, int]:
    """Fact → the outcome to which it answers, directly or through other facts.

    The end of a pod that was evicted answers its eviction, also where whoever tells of it does not say so, as an API server does not.
    """
    found: dict[int, int] = {}
    outcomes: set[int] = set()
    evicted: dict[str, int] = {}
    for record in records:
        if record.kind in OUTCOME_KINDS:
            outcomes.add(record.seq)
            if record.kind == "Evicted":
                evicted[record.key] = record.seq
        elif record.cause in outcomes:
            found[record.seq] = record.cause
        elif record.cause in found:
            found[record.seq] = found[record.cause]
        elif record.kind == "ObjectDeleted" and record.key in evicted:
            found[record.seq] = evicted[record.key]
        if record.kind == "ObjectDeleted" or (record.kind == "WriteFailed" and _is_no_eviction(record)):
            evicted.pop(record.key, None)
    return found


def _is_no_eviction(record: Record) -> bool:
    """Whether the API server was asked in vain for the pod's end."""
    body = decode_body(record)
    return isinstance(body, WriteFailed) and body.effect in ("evict", "delete")


def _same(outcomes: Sequence[tuple[str, Body]], pop: RecordedAttempt) -> bool:
    """Whether the decision is the recorded one. Points that come to the same choice do not make it another."""
    recorded = [(record.key, _essence(cast("Body", body))) for record, body in pop.outcomes]
    return [(key, _essence(body)) for key, body in outcomes] == recorded


def _essence(body: Body) -> bytes:
    return encode_body(replace(body, score=0) if isinstance(body, Scheduled) else body)


def _plain(body: Body | Outcome) -> dict[str, Any]:
    return {"kind": type(body).__name__, **msgspec.to_builtins(body)}


# --- facts in another history -----------------------------------------------------------------------------------------


def _rebased(before: Object | None, new: Object, current: Object | None) -> Object:
    """Apply the put's changes to the object as it is in this history: only pods have parts that the scheduler writes."""
    if not isinstance(new, Pod) or not isinstance(before, Pod) or not isinstance(current, Pod):
        return new

    def merged(then: T, wanted: T, now: T) -> T:
        return now if then == wanted else wanted

    deletion = merged(
        (before.metadata.deletion_timestamp, before.metadata.deletion_grace_period_seconds),
        (new.metadata.deletion_timestamp, new.metadata.deletion_grace_period_seconds),
        (current.metadata.deletion_timestamp, current.metadata.deletion_grace_period_seconds),
    )
    metadata = replace(
        new.metadata, deletion_timestamp=deletion[0], deletion_grace_period_seconds=deletion[1]
    )
    node = merged(before.spec.node_name, new.spec.node_name, current.spec.node_name)
    nominated = merged(
        before.status.nominated_node_name, new.status.nominated_node_name, current.status.nominated_node_name
    )
    conditions = tuple(_conditions(before, new, current))
    return replace(
        new,
        metadata=metadata,
        spec=replace(new.spec, node_name=node),
        status=replace(new.status, nominated_node_name=nominated, conditions=conditions),
    )


def _conditions(before: Pod, new: Pod, current: Pod) -> Iterator[Condition]:
    """Take the conditions that the put changed from it, the others from here."""
    old = {c.type: c for c in before.status.conditions}
    wanted = {c.type: c for c in new.status.conditions}
    here = {c.type: c for c in current.status.conditions}
    for type_ in {**here, **wanted}:
        if old.get(type_) == wanted.get(type_):
            if type_ in here:
                yield here[type_]
        elif type_ in wanted:
            yield wanted[type_]

"""The judge of simulated stories: reads every record as it becomes durable, and raises `Violation` at the first that breaks a promise.

    judge = Judge(configuration)
    judge.consume(record)            each record, in the order of the log, once the disk has it
    judge.opened(anchor)             somebody opened the log to write, and this is where it begins
    judge.acknowledged(answer, keys) a client that asked for something about these objects got this answer
    judge.unanswered(keys)           a client asked for something about these objects, and does not know what came of it
    judge.consumed(core)             the scheduler has consumed one more record, durable or not
    judge.at_rest(core)              nothing is left to do until time goes by
    judge.finished(records)          the whole log, as it was read back from the disk

It knows the records and the rules of Kubernetes (`cluster.py`, `rules.py`) and nothing of how the scheduler comes to its decisions. A
record costs some ten microseconds, a binding some ten more for each pod there is.

The promises, by the names that a violation has:

    dropped     of what was durable only that is gone which somebody had compacted; the anchor in its place is the record before the first that stays
    order       the log is one chain: no gaps, time never goes back
    lost        what was durable or acknowledged is there in the end, as it was; no pod loses its node
    doubled     nothing enters twice: no fact that changes nothing, no outcome of an attempt that is over
    unasked     of facts only what clients asked for enters, and of what was refused nothing
    torn        what belongs together is there together: an attempt's outcomes, a group's bindings, a nomination and its evictions
    stale       no outcome of an older epoch after a newer one, none that knew the future
    gone        no outcome for a pod, no binding to a node, that is not there
    twice       no pod is bound twice, none is asked to go twice
    constraint  the hard constraints hold where a pod is bound (resources and ports among them), except what is recorded as fallen back
    fallback    nothing falls back before its criteria hold
    promise     room that was promised to a pod is not given to a less important one
    gang        a group is bound by one record, to its quorum, within its level
    budget      evictions are charged to all budgets that are due; protected ones are never broken
    preemption  who goes is less important than whom it is for, and makes enough room
    claims      no volume and no device is of two claims, or taken from one; who is bound has what he asks for, ready; each promise of them is kept or given back, and plugins see
                the claims as the log has them
    liveness    nobody waits for an event who could be placed as things are (groups and preemptions: `liveness.py`)
    overlooked  nobody is rejected, and nobody has to go for him, while some node would do; nobody goes in vain
    queue       every pod that wants a node is in the queue exactly once; at rest nothing is in flight
    state       the core knows the same placements as the log, and plugins see the same labels there
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from msgspec.structs import replace

from tests.simulation.cluster import SeenBudget, SeenCluster, SeenNode, SeenPod
from tests.simulation.promises import CLAIMED_KINDS, has_claims, robbed, twice, unanswered
from tests.simulation.rules import fits, is_attracted, misfit, selects
from tidelog.api.objects import Object, Pod
from tidelog.api.times import NANOS, parse_time
from tidelog.daemon.intake.facts import CLUSTER
from tidelog.daemon.intake.messages import Answer
from tidelog.eventlog.records import (
    GENESIS,
    AttemptAborted,
    AttemptError,
    Body,
    Evicted,
    Fallback,
    LossAccepted,
    Nominated,
    ObjectDeleted,
    ObjectPut,
    Outcome,
    PlacementChosen,
    Record,
    Reserved,
    Scheduled,
    SchedulerStarted,
    Unschedulable,
    Waiting,
    chain_digest,
    decode_body,
)
from tidelog.eventlog.store import EMPTY, Head
from tidelog.queue.entity import QueuedGroup
from tidelog.scheduler.core import Core

PROVISIONING = "NodeProvisioningFailed"
PROGRESS = "NodeProvisioningInProgress"
WAITING_MAX = 4
"""Of so many all combinations are looked at."""
ENDS_PODS_ATTEMPT = Scheduled | Unschedulable | Waiting | Reserved | AttemptAborted | AttemptError


class Violation(AssertionError):
    """A promise was broken."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text


class Judge:
    """Sees one log from its first record to its last, through all crashes."""

    def __init__(self, configuration: Mapping[str, Any] | None = None) -> None:
        """`configuration`, in the shape of its file, is what the story starts with; what counts is what the log says."""
        self.cluster = SeenCluster()
        self.digests: list[bytes] = []
        """Of every record that was durable, in order."""
        self._keys: list[str] = []
        """Of the same."""
        self._facts: set[int] = set()
        """Records of clients that nobody was told of yet."""
        self._unanswered: set[str] = set()
        self.epoch = 0
        self._places: list[Head] = [EMPTY]
        """Where the log ended after each record."""
        self._dropped = self._droppable = 0
        self._placed_by_chain = -1
        """Up to here records are gone for certain, and at most."""
        self._must_start = False
        """Nobody may write who had opened the log before it was compacted to its end: whoever comes next says that he has."""
        self.attempt = 0
        self._observed = 0
        self._is_exact = False
        """Nothing has happened between the attempt's decision and its records: what it saw is what is seen here."""
        self._knew_others = False
        """Nor has anything but pods, nodes, groups and budgets been changed by somebody else since."""
        self._outcomes: list[tuple[Record, Outcome]] = []
        """Of the attempt whose records are being read."""
        self._kept: list[Reserved] = []
        """The promises that the attempt keeps."""
        self._untouched: dict[str, Object] = {}
        """Objects as they were put, as long as nothing else has changed them."""
        self._may_fall: dict[str, frozenset[int]] = {}
        """Of the pods that the attempt binds as a group: which of their constraints could fall back when they had no node yet."""
        self.counts: dict[str, int] = {}
        """How often each kind of thing was judged: a judge who sees nothing proves nothing."""

    @property
    def dropped(self) -> int:
        """So many records are gone for certain, because somebody had compacted the log."""
        return self._dropped

    # --- while the log grows ------------------------------------------------------------------------------------------

    def consume(self, record: Record) -> None:
        """The next record is durable. Raises Violation."""
        self._judge_chain(record)
        self._keys.append(record.key)
        if record.author == CLUSTER:
            self._facts.add(record.seq)
        body = decode_body(record)
        started = isinstance(body, SchedulerStarted | LossAccepted) or not self._must_start
        _hold(started, "stale", "of somebody who had the log before it was compacted", record)
        self._must_start = False
        if isinstance(body, LossAccepted):
            self._outcomes.clear()  # The others may be lost.
            self._kept.clear()
            self.epoch = max(self.epoch, body.epoch)
        if not isinstance(body, Outcome) or body.attempt != self.attempt:
            self._end_attempt()
        match body:
            case ObjectPut():
                self._judge_put(record, body.object)
            case ObjectDeleted():
                self._judge_deletion(record)
            case SchedulerStarted():
                _hold(body.epoch > self.epoch, "stale", f"epoch {body.epoch} after {self.epoch}", record)
                self.epoch = body.epoch
            case Outcome():
                self._judge_outcome(record, body)
            case _:
                self._untouched.pop(record.key, None)
        self.cluster.consume(record, body)
        self._judge_claims(record, body)
        self._places.append(Head(record.seq, record.at, self.epoch, record.digest))
        self._count(record.kind)

    def acknowledged(self, answer: Answer, keys: Iterable[str]) -> None:
        """A client was told what became of its request. Raises Violation if that is not on the disk, or not all that it asked for."""
        told = {result.key for result in answer.results}
        _hold(
            told.issuperset(keys), "unasked", f"{keys} were asked for together, and {sorted(told)} was done"
        )
        for result in answer.results:
            what = f"record {result.seq} ({result.action} {result.key}) was acknowledged"
            _hold(result.seq <= len(self.digests), "lost", f"{what} and is not durable")
            if not result.seq:
                _hold(result.key in self._keys, "lost", f"{result.key} is {result.action}, and was never put")
                continue
            found = self._keys[result.seq - 1]
            _hold(found == result.key, "lost", f"{what} and is about {found}")
            _hold(result.seq in self._facts, "doubled", f"{what} twice")
            self._facts.remove(result.seq)

    def unanswered(self, keys: Iterable[str]) -> None:
        """A client has asked for something about these objects: it may have been done, or not, or both if it asked again."""
        self._unanswered.update(keys)

    def consumed(self, core: Core) -> None:
        """The scheduler has consumed one more record; it may be ahead of the disk. Raises Violation if a pod is not in its queue."""
        queue = core.queue
        if core.configuration is None:
            return
        pending = [
            key
            for key, obj in core.objects.items()
            if type(obj) is Pod and not obj.spec.node_name and _wants_node(obj)
        ]
        missing = [key for key in pending if queue.get(key.removeprefix("Pod/")) is None]
        _hold(not missing, "queue", f"at {core.seq} it does not know {missing}")
        _hold(len(queue) == len(pending), "queue", f"at {core.seq} it knows {len(queue)}, not {len(pending)}")

    def compacting(self, seq: int) -> None:
        """Somebody has the log to himself, and will drop the records up to this one, or some of them, or none."""
        self._droppable = max(self._droppable, seq)

    def compacted(self, seq: int) -> None:
        """He was told that they are dropped."""
        self.opened(self._places[seq])
        self._must_start = seq == len(self.digests)
        self._count("compaction")

    def accept_loss(self, records: Sequence[Record]) -> None:
        """Of a damaged log only these are left, and everybody was told: what was acknowledged of the others does not count."""
        again = Judge()
        for record in records:
            again.consume(record)
        left = len(records)
        again._facts = {seq for seq in self._facts if seq <= left}
        again._unanswered = self._unanswered
        again._dropped, again._droppable = self._dropped, min(self._droppable, left)
        again._placed_by_chain = self._placed_by_chain
        again.counts = self.counts
        vars(self).update(vars(again))
        self._count("loss")

    def begins(self, seq: int) -> None:
        """A repaired log begins behind this record, of which nobody need know more than the chain."""
        self._dropped = self._droppable = seq
        self._placed_by_chain = seq

    def opened(self, anchor: Head) -> None:
        """Somebody who may write found the log to begin behind this record. Raises Violation."""
        _hold(
            self._dropped <= anchor.seq <= self._droppable,
            "dropped",
            f"the log begins behind record {anchor.seq}, between {self._dropped} and {self._droppable} it should",
        )
        place = self._places[anchor.seq]
        is_same = anchor.digest == place.digest if anchor.seq == self._placed_by_chain else anchor == place
        _hold(is_same, "dropped", f"{anchor} is not {place}")
        self._dropped = anchor.seq

    def at_rest(self, core: Core) -> None:
        """Nothing is left to do for the scheduler until time goes by. Raises Violation."""
        self._end_attempt()
        _hold(
            core.seq == len(self.digests),
            "state",
            f"at rest at {core.seq}, the disk is at {len(self.digests)}",
        )
        _hold(core.in_flight == 0, "queue", f"{core.in_flight} attempts are in flight at rest")
        self._judge_queue(core)
        self._judge_placements(core)
        self._judge_promises(core)
        self._judge_sleepers(core)
        self._count("rest")

    def finished(self, records: Sequence[Record]) -> None:
        """These are all records, read back after everything. Raises Violation."""
        self._end_attempt()
        for number, digest in enumerate(self.digests, start=1):
            _hold(
                number <= len(records),
                "lost",
                f"records {number} to {len(self.digests)} were durable and are gone",
            )
            record = records[number - 1]
            _hold(record.digest == digest, "lost", f"record {number} is another one than was durable", record)
        for record in records[len(self.digests) :]:
            self.consume(record)
        self._end_attempt()
        unasked = [(seq, self._keys[seq - 1]) for seq in sorted(self._facts)]
        unasked = [(seq, key) for seq, key in unasked if key not in self._unanswered]
        _hold(not unasked, "unasked", f"nobody was told of {unasked}, and everybody was told something")

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # --- order ----------------------------------------------------------------------------------------------------------

    def _judge_chain(self, record: Record) -> None:
        previous = self.digests[-1] if self.digests else GENESIS
        _hold(record.seq == len(self.digests) + 1, "order", f"after record {len(self.digests)}", record)
        _hold(
            record.at >= self.cluster.at,
            "order",
            f"time went back from {self.cluster.at} to {record.at}",
            record,
        )
        digest = chain_digest(
            previous, record.seq, record.at, record.author, record.kind, record.key, record.cause, record.body
        )
        _hold(record.digest == digest, "order", "its digest does not follow from the record before", record)
        self.digests.append(digest)

    # --- facts ----------------------------------------------------------------------------------------------------------

    def _judge_put(self, record: Record, obj: Object) -> None:
        bare = replace(obj, metadata=replace(obj.metadata, resource_version=""))
        _hold(self._untouched.get(record.key) != bare, "doubled", "it changes nothing", record)
        self._untouched[record.key] = bare
        if isinstance(obj, Pod):
            old = self.cluster.pods.get(record.key)
            if old is not None:
                _hold(
                    obj.metadata.uid == old.uid,
                    "lost",
                    "a pod became another one without being deleted",
                    record,
                )
                kept = old.node in ("", obj.spec.node_name)
                _hold(kept, "lost", f"it was on {old.node}, and is put on {obj.spec.node_name!r}", record)

    def _judge_deletion(self, record: Record) -> None:
        cluster = self.cluster
        self._untouched.pop(record.key, None)
        known = (
            record.key in cluster.pods
            or record.key.rpartition("/")[2] in cluster.nodes
            or record.key in cluster.budgets
            or record.key in cluster.groups
            or record.key in cluster.others
        )
        _hold(known, "doubled", "it is not there any more", record)

    # --- attempts -------------------------------------------------------------------------------------------------------

    def _judge_outcome(self, record: Record, body: Outcome) -> None:
        _hold(body.epoch == self.epoch, "stale", f"of epoch {body.epoch}, in epoch {self.epoch}", record)
        if body.attempt != self.attempt:
            _hold(
                body.attempt == self.attempt + 1,
                "doubled",
                f"attempt {body.attempt} after {self.attempt}",
                record,
            )
            _hold(body.observed < record.seq, "stale", f"it knew record {body.observed}", record)
            _hold(
                body.observed >= self._observed,
                "stale",
                f"it knew less ({body.observed}) than the one before",
                record,
            )
            self.attempt, self._observed = body.attempt, body.observed
            self._is_exact = record.seq == body.observed + 1
        self._knew_others = self.cluster.others_changed <= body.observed
        self._judge_key(record, body)
        self._outcomes.append((record, body))
        pod = self.cluster.pods.get(record.key)
        for touched in (record.key, *(body.budgets if isinstance(body, Evicted) else ())):
            self._untouched.pop(touched, None)
        for write in body.writes if isinstance(body, Reserved | Unschedulable) else ():
            self._untouched.pop(write.key, None)
            victim = robbed(self.cluster.others, write, "" if pod is None else pod.uid)
            _hold(not victim, "claims", f"{write.key} is taken from {victim}", record)
        match body:
            case Scheduled():
                self._judge_binding(record, body, self._pod(record))
            case Waiting() | Reserved():
                # A wait for a permit ends in no binding: of the pod's claims it is judged by what it saw.
                claims = isinstance(body, Reserved) or self._knew_others
                self._judge_place(
                    record, self._pod(record), body.node, body.fallback, self._is_chosen(record.key), claims
                )
                self._judge_fallback(record, self._pod(record), body.fallback, body.at)
            case Unschedulable() if pod is not None and pod.changed <= body.observed and not pod.reserved:
                # Else it may tell of what was so then, or when its wait began. It is only told, nobody is placed by it.
                self._judge_fallback(record, pod, self.cluster.in_full(body).fallback, body.at)
                if self._is_exact:
                    self._judge_rejection(record, pod, body.at)
            case PlacementChosen():
                self._judge_group(record, body)
            case Nominated() if body.node:
                self._judge_nomination(record, body)
            case Evicted():
                self._judge_eviction(record, body)
            case _:
                pass

    def _judge_key(self, record: Record, body: Outcome) -> None:
        """An attempt tells each pod once what became of it."""
        if isinstance(body, ENDS_PODS_ATTEMPT):
            again = [r for r, b in self._outcomes if r.key == record.key and isinstance(b, ENDS_PODS_ATTEMPT)]
            _hold(not again, "doubled", "the attempt told it before", record)

    def _pod(self, record: Record) -> SeenPod:
        pod = self.cluster.pods.get(record.key)
        _hold(pod is not None, "gone", "there is no such pod", record)
        assert pod is not None
        return pod

    def _is_chosen(self, key: str) -> bool:
        """The pod has its place by its group's record in this attempt."""
        return any(isinstance(b, PlacementChosen) and key in b.assignment for _, b in self._outcomes)

    def _end_attempt(self) -> None:
        """All outcomes of the attempt have been read."""
        outcomes, self._outcomes = self._outcomes, []
        self._may_fall.clear()
        if not outcomes:
            return
        first, _ = outcomes[0]
        told = {record.key: body for record, body in outcomes if isinstance(body, ENDS_PODS_ATTEMPT)}
        for record, body in outcomes:
            if isinstance(body, PlacementChosen):
                for key, node in body.assignment.items():
                    found = told.get(key)
                    fits = isinstance(found, Scheduled | Waiting | Reserved) and found.node == node
                    _hold(fits, "torn", f"{key} was to be on {node}, and is told {found}", record)
            if isinstance(body, Nominated):
                for key in body.victims:
                    victim = self.cluster.pods.get(key)
                    asked = victim is None or victim.terminating or not victim.node
                    _hold(asked, "torn", f"{key} was to go for it, and was not told", record)
        kept, self._kept = {promise.attempt for promise in self._kept if promise.group}, []
        for pod in self.cluster.pods.values():
            left = pod.promise is not None and pod.promise.attempt in kept
            _hold(not left, "torn", f"others of its group are bound, and {pod.key} still waits", first)
        is_whole = bool(told) or any(isinstance(b, PlacementChosen) for _, b in outcomes)
        _hold(is_whole, "torn", "the attempt has no outcome of its own", first)

    # --- claims ---------------------------------------------------------------------------------------------------------

    def _judge_claims(self, record: Record, body: Body) -> None:
        """Nothing is promised twice, and nothing is done to what was promised by who may not."""
        if record.key.startswith(CLAIMED_KINDS) or isinstance(body, Reserved | Scheduled):
            found = twice(self.cluster.others)
            _hold(not found, "claims", found, record)

    def _judge_promises(self, core: Core) -> None:
        """At rest: nobody waits longer than was said, and plugins see what the log has."""
        for pod in self.cluster.pods.values():
            late = pod.promise is not None and pod.promise.deadline < self.cluster.at
            _hold(not late, "claims", f"{pod.key} was to have its answers, or to be given up")
        for key, obj in self.cluster.others.items():
            if key.startswith(CLAIMED_KINDS):
                _hold(core.objects.get(key) == obj, "claims", f"{key} is another one for the core")
                _hold(core.cluster.listers.get(key) == obj, "claims", f"{key} is another one for the plugins")

    # --- bindings -------------------------------------------------------------------------------------------------------

    def _judge_binding(self, record: Record, body: Scheduled, pod: SeenPod) -> None:
        chosen = self._is_chosen(record.key)
        if has_claims(pod):
            why = unanswered(self.cluster, pod)
            _hold(not why, "claims", f"it is bound, and {why}", record)
        if pod.promise is not None:
            _hold(body.node == pod.promise.node, "claims", f"it was promised {pod.promise.node}", record)
            _hold(body.node in self.cluster.nodes, "gone", f"there is no node {body.node}", record)
            self._kept.append(pod.promise)
            self._count("kept")
            return  # Its place was judged when it was given, with its group if it has one.
        if self.cluster.rule(pod.group) is not None:
            _hold(chosen, "gang", "a member of a group was bound by itself", record)
        if chosen:
            _hold(
                pod.node == body.node,
                "twice",
                f"its group bound it to {pod.node}, and it to {body.node}",
                record,
            )
        else:
            _hold(not pod.node, "twice", f"it is on {pod.node} already", record)
            self._judge_place(record, pod, body.node, body.fallback, chosen)
        self._judge_fallback(record, pod, body.fallback, body.at)

    def _judge_place(
        self,
        record: Record,
        pod: SeenPod,
        node: str,
        fallback: Iterable[Fallback],
        chosen: bool,
        claims: bool = True,
    ) -> None:
        if chosen:
            return  # Judged with its group.
        _hold(pod.is_pending, "gone", "it wants no node any more", record)
        _hold(not pod.obj.spec.scheduling_gates, "constraint", "it is gated", record)
        found = self.cluster.nodes.get(node)
        _hold(found is not None, "gone", f"there is no node {node}", record)
        assert found is not None
        fallen = {f.constraint for f in fallback}
        limits = self._knew_others
        why = misfit(self.cluster, pod, found, fallen=fallen, claims=claims, limits=limits)
        _hold(not why, "constraint", f"on {node}: {why}", record)
        why = misfit(self.cluster, pod, found, fallen=fallen, promised=True, claims=claims, limits=limits)
        _hold(not why, "promise", f"on {node}: {why}", record)

    def _judge_group(self, record: Record, body: PlacementChosen) -> None:
        """The record says which of its pods are bound; the fallbacks are in the pods' own records, which come later."""
        cluster, rule = self.cluster, self.cluster.rule(record.key)
        _hold(rule is not None, "gang", "the group has no object", record)
        assert rule is not None
        nodes = [cluster.nodes.get(name) for name in body.assignment.values()]
        _hold(None not in nodes, "gone", f"one of {list(body.assignment.values())} is no node", record)
        placed = sum(bool(pod.place) for pod in cluster.members(record.key))
        enough = placed + len(body.assignment) >= max(rule.min_count, 1)
        _hold(enough, "gang", f"{placed} and {list(body.assignment)} of {rule.min_count}", record)
        if rule.level:
            domains = {node.labels.get(rule.level) for node in nodes if node is not None}
            _hold(len(domains) == 1 and None not in domains, "gang", f"in {domains} of {rule.level}", record)
            if (
                self._is_exact
                and not rule.min_count
                and self.cluster.configuration["partialPlacement"] != "always"
            ):
                left = [p.key for p in cluster.members(record.key) if p.is_pending and not p.reserved]
                whole = set(left) <= body.assignment.keys()
                _hold(
                    whole,
                    "gang",
                    f"{list(body.assignment)} of {left}: it is no gang, and asks for a level",
                    record,
                )
        self._judge_members(record, body)

    def _judge_members(self, record: Record, body: PlacementChosen) -> None:
        """One after the other, as if each had come alone; afterwards they have no place yet."""
        cluster, placed = self.cluster, []
        for key, node in body.assignment.items():
            pod = cluster.pods.get(key)
            _hold(pod is not None and pod.group == record.key, "gang", f"{key} is no member", record)
            assert pod is not None
            _hold(not pod.node, "twice", f"{key} is on {pod.node} already", record)
            _hold(
                pod.is_pending and not pod.obj.spec.scheduling_gates, "gone", f"{key} wants no node", record
            )
            soft = [i for i, c in enumerate(pod.obj.spec.topology_spread_constraints) if c.fallback_criteria]
            # Which of them fell back is in the pod's own record. With those that did not, fewer nodes count than without.
            choices = (some for count in range(len(soft), -1, -1) for some in combinations(soft, count))
            knew, found = self._knew_others, cluster.nodes[node]
            reasons = [misfit(cluster, pod, found, fallen=some, limits=knew) for some in choices]
            _hold("" in reasons, "constraint", f"{key} on {node}: {reasons[0]}", record)
            self._may_fall[key] = frozenset(i for i in soft if self._may_fall_back(pod, i, body.at))
            pod.reserved = node
            placed.append(pod)
        for pod in placed:
            pod.reserved = ""

    # --- rejections -----------------------------------------------------------------------------------------------------

    def _judge_rejection(self, record: Record, pod: SeenPod, at: int) -> None:
        """It fits nowhere, not even with the constraints fallen back that may. For groups only a search can tell (`liveness.py`)."""
        if pod.is_left_alone:
            fallen = self.may_fall_back(pod, at)
            free = next(
                (n.name for n in self.cluster.nodes.values() if fits(self.cluster, pod, n, fallen)), ""
            )
            _hold(not free, "overlooked", f"it was rejected, and {free} would do", record)
            self._count("rejection")

    def may_fall_back(self, pod: SeenPod, at: int) -> frozenset[int]:
        """The spread constraints of the pod that only score at this moment."""
        constraints = pod.obj.spec.topology_spread_constraints
        return frozenset(i for i in range(len(constraints)) if self._may_fall_back(pod, i, at))

    # --- fallback -------------------------------------------------------------------------------------------------------

    def _judge_fallback(self, record: Record, pod: SeenPod, fallback: Iterable[Fallback], at: int) -> None:
        for fallen in fallback:
            constraint = pod.obj.spec.topology_spread_constraints[fallen.constraint]
            _hold(
                fallen.criteria == constraint.fallback_criteria,
                "fallback",
                f"{constraint} has others",
                record,
            )
            known = self._may_fall.get(pod.key)
            holds = (
                self._may_fall_back(pod, fallen.constraint, at)
                if known is None
                else fallen.constraint in known
            )
            _hold(holds, "fallback", f"the criteria do not hold for constraint {fallen.constraint}", record)
            self._count("fallback")

    def _may_fall_back(self, pod: SeenPod, index: int, at: int) -> bool:
        criteria = pod.obj.spec.topology_spread_constraints[index].fallback_criteria
        return bool(criteria) and all(
            self._criterion_holds(criterion, pod, index, at) for criterion in criteria
        )

    def _criterion_holds(self, criterion: str, pod: SeenPod, index: int, at: int) -> bool:
        if criterion == PROVISIONING:
            if pod.is_said(PROGRESS, "True") or pod.is_said(PROGRESS, "False"):
                return pod.is_said(PROGRESS, "False")
            timeout, since = self._timeout(), pod.rejected_since
            return timeout is not None and since is not None and at - since >= timeout
        if pod.nominated:
            return pod.nominated == pod.fallback_node and index in pod.fell_back
        scheduled = pod.conditions.get("PodScheduled")
        return (
            scheduled is not None
            and (scheduled.status, scheduled.reason) == ("False", "Unschedulable")
            and parse_time(scheduled.last_transition_time) <= at
        )

    def _timeout(self) -> int | None:
        """nodeProvisioningTimeout, in nanoseconds."""
        profiles: Any = self.cluster.configuration["profiles"]
        text = profiles[0]["args"]["PodTopologySpread"].get("nodeProvisioningTimeout")
        return None if not text else round(float(text.removesuffix("s")) * NANOS)

    # --- preemption -----------------------------------------------------------------------------------------------------

    def _judge_nomination(self, record: Record, body: Nominated) -> None:
        """Without the victims there would be room."""
        cluster, pod = self.cluster, self._pod(record)
        node = cluster.nodes.get(body.node)
        _hold(node is not None, "gone", f"there is no node {body.node}", record)
        assert node is not None
        fallen = {f.constraint for f in body.fallback}
        if self._is_exact and body.victims:
            self._judge_need(record, pod, fallen)
        victims = [found for key in body.victims if (found := cluster.pods.get(key)) is not None]
        # kube-scheduler takes a pod that goes already from a count in which it never was (docs/differences.md).
        lowers = self.is_upstream and any(victim.terminating for victim in victims)
        ignored = range(len(pod.obj.spec.topology_spread_constraints)) if lowers else fallen
        why = misfit(
            cluster,
            pod,
            node,
            fallen=ignored,
            without=body.victims,
            promised=True,
            limits=self._knew_others,
        )
        # As in kube-scheduler DynamicResources may give up the claim's devices, and DefaultPreemption go by them, in one attempt.
        gives_up = any(
            isinstance(own, Unschedulable) and own.writes and each.key == record.key
            for each, own in self._outcomes
        )
        _hold(
            not why or gives_up,
            "preemption",
            f"not even without {body.victims} it could go to {body.node}: {why}",
            record,
        )
        for key in body.victims:
            victim = cluster.pods.get(key)
            _hold(
                victim is not None and victim.place == body.node,
                "preemption",
                f"{key} is not on {body.node}",
                record,
            )
            assert victim is not None
            lower = victim.priority < pod.priority
            _hold(lower, "preemption", f"{key} is as important ({victim.priority}) as {pod.priority}", record)
        _hold(
            pod.obj.spec.preemption_policy != "Never" or not body.victims,
            "preemption",
            "it never preempts",
            record,
        )
        if self._is_exact and not is_attracted(pod):  # Affinity may be to one of those who go.
            for key in body.victims:
                others = [other for other in body.victims if other != key]
                in_vain = fits(cluster, pod, node, fallen, without=others)
                _hold(not in_vain, "overlooked", f"{key} need not go from {body.node}", record)
        self._judge_fallback(record, pod, body.fallback, body.at)

    def _judge_need(self, record: Record, pod: SeenPod, fallen: Collection[int]) -> None:
        """Nobody has to go while those go already for whom it waits."""
        promised = self.cluster.nodes.get(pod.nominated)
        if promised is None:
            return
        going = [
            p.key
            for p in self.cluster.on(promised.name)
            if p.evicted and p.terminating and p.priority < pod.priority
        ]
        in_vain = bool(going) and fits(self.cluster, pod, promised, fallen, without=going)
        _hold(not in_vain, "overlooked", f"{going} are on their way from {pod.nominated} for it", record)

    def _judge_eviction(self, record: Record, body: Evicted) -> None:
        victim, preemptor = self._pod(record), self.cluster.pods.get(body.preemptor)
        _hold(preemptor is not None, "gone", f"{body.preemptor} is not there", record)
        assert preemptor is not None
        named = any(
            r.key == body.preemptor and isinstance(b, Nominated) and record.key in b.victims
            for r, b in self._outcomes
        )
        _hold(named, "torn", f"no nomination of {body.preemptor} names it", record)
        if not victim.node:
            return
        _hold(not victim.evicted and not victim.terminating, "twice", "it was asked to go before", record)
        threshold = victim.obj.spec.allow_disruption_by_priority_greater_than_or_equal
        protected = (
            threshold is not None
            and preemptor.priority < threshold
            and self._gate("DisruptionPolicyInPriorityClass")
        )
        _hold(body.protected == protected, "budget", f"protected is {body.protected}", record)
        due = [b for b in self.cluster.budgets.values() if self._is_due(b, victim, protected)]
        keys = sorted(b.key for b in due)
        if body.protected:
            _hold(
                set(keys) <= set(body.budgets), "budget", f"charged to {body.budgets}, due are {keys}", record
            )
        if max(victim.changed, self.cluster.budgets_changed) <= body.observed:
            # Else the attempt may have charged what was there then; where nothing is promised, that is good enough.
            _hold(
                sorted(body.budgets) == keys, "budget", f"charged to {body.budgets}, due are {keys}", record
            )
        if body.protected:
            for budget in due:
                left = self.cluster.left(budget, body.at)
                _hold(left > 0, "budget", f"{budget.key} allows {left} more", record)
        self._count("protected" if body.protected else body.method)

    def _is_due(self, budget: SeenBudget, victim: SeenPod, protected: bool) -> bool:
        """The victim's eviction costs the budget one disruption; that of a protected pod also before it is Ready."""
        if budget.namespace != victim.namespace or not selects(budget.selector, victim.labels):
            return False
        if victim.phase in ("Succeeded", "Failed") or (victim.phase == "Pending" and not protected):
            return False
        since = budget.disrupted.get(victim.name)
        if since is not None and parse_time(victim.obj.metadata.creation_timestamp) <= parse_time(since):
            return False
        always = budget.obj.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"
        lets_go = always or (budget.has_enough and not protected)
        return victim.is_ready or not lets_go

    def _gate(self, name: str) -> bool:
        gates: Any = self.cluster.configuration["featureGates"]
        return bool(gates[name])

    @property
    def is_upstream(self) -> bool:
        """It is decided as kube-scheduler would: some who wait are woken by the flush only, as there."""
        return bool(self.cluster.configuration["compat"] == "upstream")

    # --- at rest --------------------------------------------------------------------------------------------------------

    def _judge_queue(self, core: Core) -> None:
        queue = core.queue
        assert queue is not None
        contents, found = queue.contents(), []
        for entity in (
            *contents.active,
            *contents.backoff_rejected,
            *contents.backoff_errors,
            *contents.unschedulable,
        ):
            found += (
                [m.key for m in entity.members.values()] if isinstance(entity, QueuedGroup) else [entity.key]
            )
        found += [member.key for member in (*contents.pending_members, *contents.incomplete_members)]
        flying = [attempt.pod.key for attempt in contents.in_flight]
        waiting = [key.removeprefix("Pod/") for key in self.cluster.reserved()]
        _hold(
            sorted(flying) == sorted(waiting),
            "queue",
            f"in flight are {flying}, and waiting for permits {waiting}",
        )
        wanted = sorted(p.key.removeprefix("Pod/") for p in self.cluster.pods.values() if p.is_pending)
        _hold(
            sorted([*found, *flying]) == wanted,
            "queue",
            f"in the queue are {found} and {flying}, not {wanted}",
        )
        kept = {label: n for label, n in queue.statistics().inflight_events.items() if n}
        _hold(bool(flying) or not kept, "queue", f"nothing is in flight, and these events are kept: {kept}")

    def _judge_sleepers(self, core: Core) -> None:
        """Who waits for an event could not go anywhere now, or the event that he waits for has been missed."""
        assert core.queue is not None
        if self.is_upstream:
            return
        waiting = self.cluster.reserved()
        for entity in core.queue.contents().unschedulable:
            pod = self.cluster.pods.get(f"Pod/{entity.key}")
            if pod is None or entity.is_gated or not pod.is_left_alone:
                continue  # A group; or its turn will come.
            free = next((n.name for n in self.cluster.nodes.values() if self._would_do(pod, n, waiting)), "")
            _hold(not free, "liveness", f"{pod.key} waits for an event, and {free} would do")

    def _would_do(self, pod: SeenPod, node: SeenNode, waiting: Collection[str]) -> bool:
        """As its constraints are written, and with those fallen back that may: then nodes count that lack the key of one that fell back.

        Whoever goes by those who still wait for a permit is woken when they are bound: some of them may have got their place only since he was tried. Where
        many wait, it is left to the end of the story.
        """
        if len(waiting) > WAITING_MAX or not fits(self.cluster, pod, node):
            return False
        fallen = self.may_fall_back(pod, self.cluster.at)
        return (not fallen or fits(self.cluster, pod, node, fallen)) and all(
            fits(self.cluster, pod, node, without=some)
            for count in range(1, len(waiting) + 1)
            for some in combinations(waiting, count)
        )

    def _judge_placements(self, core: Core) -> None:
        """What every later decision builds on."""
        for key, pod in self.cluster.pods.items():
            known = core.objects.get(key)
            _hold(isinstance(known, Pod), "state", f"the core does not know {key}")
            assert isinstance(known, Pod)
            theirs = (known.spec.node_name, known.status.nominated_node_name)
            ours = (pod.node, pod.nominated)
            _hold(
                theirs == ours, "state", f"{key}: (node, nominated node) is {theirs} for the core, not {ours}"
            )
        mine: dict[str, dict[str, Mapping[str, str]]] = {name: {} for name in self.cluster.nodes}
        for pod in self.cluster.pods.values():
            if pod.place in mine:
                mine[pod.place][pod.uid] = pod.labels
        cache = core.cluster.cache
        _hold(
            sorted(cache.node_names()) == sorted(mine), "state", f"the core's nodes are {cache.node_names()}"
        )
        for info in cache.nodes():
            known_there = {uid: pod.labels for uid, pod in info.pods.items()}
            _hold(
                known_there == mine[info.name],
                "state",
                f"on {info.name} are {known_there} for the core, not {mine[info.name]}",
            )


def _wants_node(pod: Pod) -> bool:
    """Of one that has none."""
    return not (pod.status.phase in ("Succeeded", "Failed") or pod.metadata.deletion_timestamp)


def _hold(holds: bool, invariant: str, text: str, record: Record | None = None) -> None:
    if not holds:
        where = "" if record is None else f"record {record.seq} ({record.kind} {record.key}): "
        raise Violation(invariant, f"{where}{text}")

"""The scheduler as a pure state machine: `apply(record)` consumes the log, `attempt(now)` decides about one pod.

    records ──► apply ─┬─ facts ─────► `cluster`: cache, queue         (the only way in which facts get in)
                  ▲    └─ outcomes ──► `outcomes`
                  │  the attempt's outcomes, when they are in the log
                  │
    attempt(now) ─┴─► pop ─► decide ─► adopt ─► Decision              (for the shell to append)
                      └ `attempts` ┘  `adoption`

What an attempt decides is *adopted* at once (the pod is assumed on its node, a nomination counts) so that the next attempt, which
need not wait for the disk, builds on it. The pod stays in flight until its own outcome comes back through `apply`. Adopting needs
nothing but the outcome itself; therefore a log is recovered by the same fold with the outcomes taken from it (`readopt`), and
verified by computing them anew.

Just before a decision is committed the writer asks `conflict` whether something that came meanwhile took away what it relies on; if
so, `aborted` is appended in its place (DESIGN rule 4).

What is known beside the cluster is in `flights` (attempts that are under way), `permits` (pods that wait; `answers` to what was written for them), `rejections`, `preemption` (victims)
and `groups/flights`; what a configuration makes of the plugins, in `assembly`. All modules of this folder.

Time is an argument. Ends of backoffs are noticed at attempts and at records, everything else that time brings about at records only: a
call of `attempt` that decides nothing changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import msgspec
from msgspec.structs import replace

from tidelog.api.errors import InternalError
from tidelog.api.objects import Object, Pod
from tidelog.api.pod_status import is_terminal, nominated_to, with_pod_condition
from tidelog.api.steps import Steps, whole_result
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.eventlog.promises import Broken, Promises
from tidelog.eventlog.records import (
    AttemptAborted,
    AttemptError,
    Body,
    ClusterAttached,
    ConfigurationLoaded,
    Cursor,
    Evicted,
    EvictionRefused,
    KindGap,
    KindSynced,
    LeadershipChanged,
    LossAccepted,
    Nominated,
    ObjectDeleted,
    ObjectPut,
    ObjectUnread,
    PlacementChosen,
    PodConditionSet,
    Record,
    Reserved,
    Scheduled,
    SchedulerStarted,
    ShadowVerdict,
    Tick,
    Unschedulable,
    Waiting,
    WriteFailed,
    decode_body,
)
from tidelog.framework.behaviours import LOSS_ENDS_ATTEMPTS, LOSS_ENDS_WAITS, STAYING_TAKES_NOTHING
from tidelog.framework.effort import Paused
from tidelog.framework.framework import Framework
from tidelog.plugins.registry import Registry
from tidelog.queue.entity import pod_uid
from tidelog.queue.scheduling_queue import SchedulingQueue
from tidelog.scheduler.aborts import Conflict
from tidelog.scheduler.adoption import Adoption
from tidelog.scheduler.answers import Answers
from tidelog.scheduler.assembly import Assembly
from tidelog.scheduler.attempts import Attempts, record_key_of
from tidelog.scheduler.cache import CacheLayout
from tidelog.scheduler.cluster import Cluster, is_confirmed, wants_node
from tidelog.scheduler.commit_check import conflict
from tidelog.scheduler.decision import Decision, Relies
from tidelog.scheduler.groups.flights import GroupFlights
from tidelog.scheduler.groups.group import is_group_key
from tidelog.scheduler.outcomes import Outcomes
from tidelog.scheduler.permits import Permit, Permits
from tidelog.scheduler.pod_cycle import Stamp
from tidelog.scheduler.preemption import Evictions
from tidelog.scheduler.recorded import NotTheRecorded
from tidelog.scheduler.rejections import Rejections


class Core:
    """The state of the scheduler after some record of the log, and the next decision."""

    def __init__(self, registry: Registry, *, fast: bool = True) -> None:
        """`fast=False`: evaluate plainly, every plugin on every node. The decisions are the same."""
        self.registry = registry
        self.epoch = 0
        self.attempts = 0
        """Number of the last attempt."""
        self.last_tick_at = 0
        self.cluster = Cluster()
        self.evictions = Evictions()
        """Victims that have not gone yet; what their budgets are charged."""
        self.promises = Promises()
        """Decisions that a live cluster does not show yet."""
        self.group_flights = GroupFlights(self.cluster)
        """The part of attempts in flight that only groups have."""
        self._flights = self.cluster.flights
        self._permits = Permits(self.evictions)
        self._rejections = Rejections()
        self._assembly = Assembly(registry, self.cluster, self.evictions, fast=fast)
        self._attempts = Attempts(
            self.cluster, self._assembly, self._permits, self._rejections, self.group_flights
        )
        self._adoption = Adoption(self.cluster, self.evictions, self.group_flights)
        self._answers = Answers(self.cluster, self._assembly, self._permits)
        self._outcomes = Outcomes(
            self.cluster,
            self._permits,
            self._rejections,
            self.evictions,
            self.group_flights,
            self._answers,
        )

    @property
    def seq(self) -> int:
        """The last record consumed."""
        return self.cluster.seq

    @property
    def at(self) -> int:
        """The time of the last record consumed."""
        return self.cluster.at

    @property
    def configuration(self) -> SchedulerConfiguration | None:
        """The one in force; None until one has been loaded."""
        return self._assembly.configuration

    @property
    def frameworks(self) -> Mapping[str, Framework]:
        """By profile; none until a configuration has been loaded."""
        return self._assembly.frameworks

    @property
    def queue(self) -> SchedulingQueue:
        """The queue of the configuration in force; empty until one has been loaded."""
        return self.cluster.queue

    @property
    def objects(self) -> Mapping[str, Object]:
        """Every object by its record key, in the order of creation."""
        return self.cluster.objects

    @property
    def in_flight(self) -> int:
        """How many attempts wait for their outcomes to come back."""
        return len(self._flights)

    def permit_of(self, uid: str) -> Permit | None:
        """Return what the pod of this uid waits for, its resources reserved."""
        return self._permits.get(uid)

    def in_full(self, key: str, body: Unschedulable) -> Unschedulable:
        """Return a rejection that is not in the log yet in full, where it only refers to the last one of the pod or group of this key."""
        pod = self.cluster.pod(key)
        return self._rejections.in_full(key if pod is None else pod_uid(pod), body)

    def last_rejection(self, key: str) -> Unschedulable | None:
        """Return what was said last of the pod or group of this key, if it was rejected."""
        pod = self.cluster.pod(key)
        return self._rejections.last.get(key if pod is None else pod_uid(pod), (0, None))[1]

    def last_rejections(self) -> dict[int, Unschedulable]:
        """Return the last rejections of all pods and groups that wait, by the number of their record."""
        return dict(self._rejections.last.values())

    def check(self, configuration: SchedulerConfiguration) -> None:
        """Raise what putting this configuration to work would raise: once it is a record, it is too late. Nothing here changes."""
        self._assembly.check(configuration)

    def _behaves(self, number: int) -> bool:
        return self.configuration is not None and self.configuration.behaves(number)

    # --- consuming the log --------------------------------------------------------------------------------------------

    def apply(self, record: Record, body: Body | None = None) -> None:
        """Consume the next record. `body` is its decoded body, where the caller has it."""
        cluster = self.cluster
        if record.seq != cluster.seq + 1:
            raise InternalError(f"record {record.seq} was applied after record {cluster.seq}")
        cluster.seq, cluster.at = record.seq, record.at
        self._consume(record, decode_body(record) if body is None else body)
        cluster.queue.advance(record.seq, record.at)
        self._flights.drop_notes()

    def _consume(self, record: Record, body: Body) -> None:
        key, outcomes = record.key, self._outcomes
        if self.promises.keeping:
            self.promises.note(record, body, self.objects.get)
        match body:
            case ObjectPut():
                self._put(key, self.promises.seen(key, body.object))
                if self.evictions.live:
                    self.evictions.heard_of(key)
            case Scheduled():
                outcomes.scheduled(key, body)
            case ObjectDeleted():
                self._deleted(key)
                if self.evictions.live:
                    self.evictions.heard_of(key)
            case PodConditionSet():
                pod = self.cluster.pod(key)
                if pod is not None:
                    self.cluster.change(key, with_pod_condition(pod, body.condition, record.at))
            case Tick():
                self.last_tick_at = record.at
                self.queue.tick(record.seq, record.at)
            case ConfigurationLoaded():
                self._assembly.configure(msgspec.convert(body.configuration, SchedulerConfiguration))
                self._answers.ask_all()
            case SchedulerStarted():
                self.epoch = body.epoch
                self._permits.drop_states()
            case LossAccepted() if self._behaves(LOSS_ENDS_ATTEMPTS):
                outcomes.lost(waits=self._behaves(LOSS_ENDS_WAITS))
            case Unschedulable() if is_group_key(key):
                outcomes.group_rejected(key, body)
            case Unschedulable():
                outcomes.unschedulable(key, body)
            case AttemptError() if is_group_key(key):
                outcomes.group_errored(key, body)
            case AttemptError():
                outcomes.errored(key, body)
            case Waiting():
                outcomes.waiting(key, body)
            case Reserved():
                outcomes.reserved(key, body)
            case AttemptAborted() if is_group_key(key):
                outcomes.group_aborted(key, body)
            case AttemptAborted():
                outcomes.aborted(key, body)
            case PlacementChosen():
                outcomes.group_chosen(key, body)
            case Nominated():
                outcomes.nominated(key, body)
            case Evicted():
                outcomes.evicted(key, body)
            case ClusterAttached():
                self._attached(body)
            case WriteFailed():
                self._write_failed(record, body)
            case ObjectUnread():
                self.cluster.mark_unread(key)
            case (
                LossAccepted()
                | EvictionRefused()
                | KindSynced()
                | KindGap()
                | Cursor()
                | LeadershipChanged()
                | ShadowVerdict()
            ):
                pass
            case _:
                assert_never(body)

    def _put(self, key: str, new: Object) -> None:
        cluster = self.cluster
        old = cluster.pod(key)
        cluster.change(key, new, expected=old is not None and isinstance(new, Pod) and is_confirmed(old, new))
        cluster.apart.pop(key, None)
        if cluster.unread:
            cluster.mark_read(key)
        if old is None:
            if self._permits.watched:
                self._answers.look(key)
            return
        uid = pod_uid(old)
        if uid in self._permits:
            self._look_at_waiting(old, cluster.pod(key))
        if self.evictions.get(uid) is not None:
            self._look_at_victim(old, cluster.pod(key))

    def _look_at_waiting(self, old: Pod, new: Pod | None) -> None:
        """A pod that waits for a permit has a new version: perhaps one that wants no node, or not from us, any more."""
        if new is None or pod_uid(new) != pod_uid(old) or not wants_node(new):
            self._outcomes.stop_attempts(pod_uid(old))

    def _look_at_victim(self, old: Pod, new: Pod | None) -> None:
        """A pod that was asked to go has a new version: it has finished, is another one, or somebody took the request back."""
        assert new is not None
        took_back = self.evictions.is_told(pod_uid(old)) and not new.metadata.deletion_timestamp
        if is_terminal(new) or pod_uid(new) != pod_uid(old) or took_back:
            self._outcomes.end_eviction(pod_uid(old))

    def _deleted(self, key: str) -> None:
        pod = self.cluster.pod(key)
        self.cluster.change(key, None)
        self.cluster.mark_read(key)
        if is_group_key(key):
            self._rejections.forget_group(key)
        if pod is not None:
            self._outcomes.stop_attempts(pod_uid(pod))
            self._outcomes.end_eviction(pod_uid(pod))
        elif self._permits.watched:
            self._answers.look(key)

    # --- a live cluster ---------------------------------------------------------------------------------------------------

    def _attached(self, body: ClusterAttached) -> None:
        for key, obj in self.promises.attach(body):
            self._put(key, obj)
        self.evictions.attached(live=self.promises.keeping)

    def _write_failed(self, record: Record, body: WriteFailed) -> None:
        """The API server did not take what an outcome wants, or it was not even sent: it is off."""
        broken = self.promises.broken(record, body, self.objects.get)
        if broken is None:
            return
        if broken.effect.name == "bind":
            self._unbound(record.key, broken, sent=body.sent)
            return
        if broken.is_gone:
            self._deleted(record.key)
        else:
            self._put(record.key, broken.object)
        if broken.effect.name == "evict":
            self._eviction_failed(broken, body)

    def _unbound(self, key: str, broken: Broken, *, sent: bool) -> None:
        """The pod is pending again: at once if nothing was sent, else after a backoff that grows with each refusal."""
        cluster = self.cluster
        cluster.change(key, broken.object)
        pod = cluster.pod(key)
        if sent and pod is not None and wants_node(pod):
            cluster.queue.refuse(pod, broken.refusals, cluster.at)

    def _eviction_failed(self, broken: Broken, body: WriteFailed) -> None:
        """The room for a preemptor is not coming as planned: it looks for another. The budget that refused allows nothing until it changes."""
        cluster = self.cluster
        self._outcomes.end_eviction(body.uid)
        if body.budget:
            self.evictions.refused_by(body.budget)
        preemptor = cluster.pod(broken.effect.preemptor)
        if broken.cleared and preemptor is not None:
            preemptor = nominated_to(preemptor, "")
            cluster.change(broken.cleared, preemptor)
        if preemptor is not None and wants_node(preemptor):
            cluster.queue.activate([preemptor], cluster.seq, cluster.at)

    # --- attempts -----------------------------------------------------------------------------------------------------

    def attempt(self, now: int, most: int | None = None) -> Decision | None:
        """Decide about one pod; None if there is none to decide about now. The decision counts from here on.

        Raises Paused if finding a node takes more than `most` steps (`tidelog.framework.effort`): then nothing has happened, and the next call goes on
        with what was found.
        """
        popped = self._attempts.pop(now)
        if popped is None:
            return None
        self._attempts.limit(popped, most)
        try:
            stamp = Stamp(self.attempts + 1, self.cluster.seq, now, self.epoch)
            decision = self._attempts.decide(popped, stamp)
        except Paused:
            self._attempts.take_back(popped)
            raise
        self.attempts += 1
        self._adoption.adopt(decision.attempt, decision.outcomes)
        return decision

    def readopt(self, attempt: int, at: int, outcomes: Sequence[tuple[str, Body]]) -> None:
        """As `attempt`, but what it came to is known: it was recorded. Called where the log says the pop was."""
        popped = self._attempts.pop(at)
        if popped is not None:
            self.attempts += 1
        key = outcomes[0][0]
        found = None if popped is None else record_key_of(popped)
        if found != key or attempt != self.attempts:
            raise NotTheRecorded(
                f"attempt {attempt} after record {self.seq} was about {key}, and now attempt {self.attempts} is about {found}"
            )
        self._adoption.adopt(attempt, outcomes)

    def next_attempt_at(self, now: int) -> int | None:
        """When an attempt may have something to decide if nothing else happens; None: never, as things are."""
        return self._attempts.next_at(now)

    def next_tick_at(self) -> int | None:
        """When a tick is worth a record; None while nobody waits for time."""
        if self.configuration is None:
            return None
        due = [deadline for deadline in (self.queue.next_deadline(),) if deadline is not None]
        waited_for = self.queue.next_time_due()
        if waited_for is not None:
            due.append(max(waited_for, self.last_tick_at + self.configuration.time_event_period))
        return min(due) if due else None

    # --- the commit check -------------------------------------------------------------------------------------------

    def conflict(self, decision: Decision) -> Conflict | None:
        """Return the change after `decision.observed` that took away what the decision relies on.

        To be asked when everything that will be in the log before the decision has been consumed.
        """
        notes = self.cluster.notes
        if notes.latest <= decision.observed:
            return None
        staying_hurts = not self._behaves(STAYING_TAKES_NOTHING)
        for relies in decision.relies:
            found = notes.concerning(relies, decision.observed, decision.attempt, staying_hurts=staying_hurts)
            if conflicting := conflict(relies, found, staying_hurts=staying_hurts):
                return conflicting
        return None

    def hold_notes(self, attempt: int) -> None:
        """Keep what could hurt the decision of an attempt that is in flight, beyond its commit, for `disturbed`; until `release_notes`."""
        self._flights.hold(attempt)

    def release_notes(self, attempt: int) -> None:
        """Forget the attempt: its effects are on their way, or off."""
        self._flights.let_go(attempt)

    def disturbed(self, relies: Relies, observed: int) -> Conflict | None:
        """As `conflict`, for one pod of a decision that is in the log. Pods that only stay where they were call it off under no behaviour."""
        notes = self.cluster.notes
        return None if notes.latest <= observed else conflict(relies, notes.concerning(relies, observed))

    def aborted(self, decision: Decision, found: Conflict) -> Decision:
        """Return the abort to append in place of a decision that cannot be committed."""
        outcomes, relies = decision.outcomes, decision.relies
        body = outcomes[0][1]
        node, claims = "", body.claims if isinstance(body, PlacementChosen) else {}
        plan = next((b for _, b in outcomes if isinstance(b, Nominated) and b.victims), None)
        if is_group_key(decision.key):
            assignment = {k: b.node for k, b in outcomes if isinstance(b, Scheduled | Waiting | Reserved)}
        else:
            # Of pods that wait together: where they are is known.
            assignment = {other.pod_key: "" for other in relies[1:]}
            node = relies[0].node if plan is None else ""
        abort = AttemptAborted(
            attempt=decision.attempt,
            observed=decision.observed,
            at=decision.at,
            epoch=decision.epoch,
            reason=str(found.reason),
            conflict=found.seq,
            node=node,
            nominated="" if plan is None else plan.node,
            victims=() if plan is None else plan.victims,
            cleared=() if plan is None else plan.cleared,
            assignment=assignment,
            claims=claims,
            writes=tuple(w for _, b in outcomes if isinstance(b, Reserved) for w in b.writes),
        )
        return replace(decision, outcomes=((decision.key, abort),), conflict=found)

    # --- the state as a value -----------------------------------------------------------------------------------------

    def digest(self) -> str:
        """SHA-256 of `dump`: equal for states that are equal."""
        return hashlib.sha256(msgspec.msgpack.encode(self.dump(), order="deterministic")).hexdigest()

    def dump(self) -> dict[str, Any]:
        """All of the state. Only between attempts: what is in flight is not part of it."""
        # Kind by kind: which of two kinds came first means nothing, and a state that was loaded does not know it.
        objects = sorted(self.objects.items(), key=lambda item: item[0].partition("/")[0])
        found: dict[str, Any] = msgspec.to_builtins({**self.dump_without_objects(), "objects": objects})
        return found

    def dump_without_objects(self) -> dict[str, Any]:
        """The state beside the objects, which are immutable: a snapshot encodes them later, bit by bit.

        Other immutable values in it are as they are, too, for whoever encodes it or makes builtins of it. It costs a microsecond a pending pod.
        """
        return whole_result(self.dumping())

    def dumping(self) -> Steps[dict[str, Any]]:
        """The same in steps, between which nothing may happen to the core."""
        assert not self._flights, "a state is dumped when no attempt is in flight"
        # Left out in a log that no cluster is attached to, whose states stay as they were.
        live = (
            {"promises": self.promises.dump() | {"budgets": self.evictions.dump_refusals()}}
            if self.promises.log_id
            else {}
        )
        unread = {"unread": dict(sorted(self.cluster.unread.items()))} if self.cluster.unread else {}
        apart = (
            {"apart": [[key, self.objects[key]] for key in self.cluster.apart]} if self.cluster.apart else {}
        )
        queue = None if self.configuration is None else (yield from self.queue.dumping_state())
        rejected = yield from self._rejections.dumping()
        return {
            **live,
            **unread,
            **apart,
            "seq": self.seq,
            "at": self.at,
            "epoch": self.epoch,
            "attempts": self.attempts,
            "last_tick_at": self.last_tick_at,
            "configuration": msgspec.to_builtins(self.configuration),
            "cache": msgspec.to_builtins(self.cluster.cache.layout(self.objects)),
            "queue": queue,
            "permits": self._permits.dump(),
            "evictions": self.evictions.dump(),
            "rejected": rejected,
        }

    @classmethod
    def load(cls, registry: Registry, state: Mapping[str, Any], objects: dict[str, Object]) -> Core:
        """The core that has consumed the log up to where `dump` was taken. `objects` are its objects, in their order."""
        core = cls(registry)
        cluster = core.cluster
        cluster.seq, cluster.at, core.epoch = state["seq"], state["at"], state["epoch"]
        core.attempts, core.last_tick_at = state["attempts"], state["last_tick_at"]
        apart = [key for key, _ in state.get("apart", ())]
        cluster.restore(objects, msgspec.convert(state["cache"], CacheLayout), state.get("unread"), apart)
        if state["configuration"] is not None:
            configuration = msgspec.convert(state["configuration"], SchedulerConfiguration)
            core._assembly.restore(configuration, state["queue"])
        core._permits.load(state["permits"])
        core.evictions.load(state["evictions"])
        if "promises" in state:
            core.promises.load(state["promises"])
            core.evictions.attached(live=core.promises.keeping)
            core.evictions.load_refusals(state["promises"]["budgets"])
        core._rejections.load(state["rejected"])
        return core

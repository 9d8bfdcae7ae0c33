"""The scheduling queue: every pending pod, where it waits, and what may wake it (KEP-4247).

    active          ready to be tried; popped in the order of the QueueSort plugin
    backoff         rejected, and worth another attempt, but not before its backoff is over
    unschedulable   rejected, and not worth another attempt until something happens that may help it
      gated         in that pool too, but not tried at all until a PreEnqueue plugin lets it go
    in flight       popped; its attempt's outcome is not known yet

    add ──► gates ──open──► ACTIVE ──pop──► IN FLIGHT ──done──► gone
              │                                 │
              │ closed                          │ fail
              ▼                                 ▼
            POOL ──each event──► verdict ◄── what happened since the pop
              ▲                     │
              ├── Skip ─────────────┤
              │                     ├── AfterBackoff ──► gates ──open──► BACKOFF ──over──► ACTIVE
              │                     └── Immediately, or backoff over ──► gates ──open──► ACTIVE
              └── a gate is closed, wherever one is tried

The verdict is the plugins' hints'. With nothing active, `pop` takes the first of BACKOFF that a plugin rejected.
A pod group is one entity and goes the same way with all its members (`groups.py`).

The queue is a pure state machine. Time is an argument (`now`, nanoseconds), and so is the place in the log (`seq`, the
last record consumed). What it does depends on the calls made and on nothing else: the same calls give the same state
(`dump_state`), bit for bit. Equal priorities and timestamps are tried in the order of arrival, and an event goes
through the pool in the order in which its entities entered it.

Costs: add, pop, done and fail are O(log n) in the queue they touch; an event costs what it concerns, not the size of the
pool (`unschedulable.py`); a failed attempt costs the events that concern it (`in_flight.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from tidelog.api.errors import InternalError
from tidelog.api.objects import Pod
from tidelog.api.pod_status import is_terminal
from tidelog.api.steps import Steps, whole_result
from tidelog.api.times import NANOS
from tidelog.framework.events import (
    FORCE_ACTIVATE,
    TIME,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    Resource,
    Tick,
)
from tidelog.framework.interface import Plugin, PreEnqueuePlugin, QueueSortPlugin
from tidelog.queue import state
from tidelog.queue.backoff import BackoffPolicy
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod, Strategy, Where, pod_key, pod_uid
from tidelog.queue.group_rules import DESIRED_COUNT_GATE, GroupRules, QueuedGroupInfo
from tidelog.queue.groups import Groups, GroupStatus
from tidelog.queue.hints import HintMap, QueueObserver
from tidelog.queue.in_flight import Attempt, InFlight, InFlightEvent
from tidelog.queue.nominator import Nominator
from tidelog.queue.order import Order
from tidelog.queue.places import Places
from tidelog.queue.statistics import QueueStatistics, statistics
from tidelog.queue.unschedulable import FLUSH_AFTER

POD_ADDED = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD)
ATTEMPT_FAILED = ClusterEvent(Resource.WILDCARD, Action.ALL, "ScheduleAttemptFailure")
ATTEMPT_ABORTED = ClusterEvent(Resource.WILDCARD, Action.ALL, "AttemptAborted")
BACKOFF_COMPLETE = ClusterEvent(Resource.WILDCARD, Action.ALL, "BackoffComplete")


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings; durations are nanoseconds."""

    initial_backoff: int = 1 * NANOS
    max_backoff: int = 10 * NANOS
    """0 turns backoff off."""
    max_in_unschedulable: int = FLUSH_AFTER
    """Entities that stay longer in the pool are retried without an event: the net under missing hints."""
    pop_from_backoff: bool = True
    """kube-scheduler's SchedulerPopFromBackoffQ: with nothing active, pop who backs off; windows of whole seconds."""
    queueing_hints: bool = True
    """The gate SchedulerQueueingHints; off, every event that a rejector registered for is as good as its hint's Queue."""
    upstream: bool = False
    """Reproduce kube-scheduler where the default repairs it (docs/queue.md, "Where we differ")."""
    group_errors_wait: bool = True
    """Behaviour 12: a group backs off for the errors of its members. Never with `upstream`."""


DEFAULT_CONFIG = QueueConfig()


class ByArrival:
    """The order of a queue of no profile, which no pod enters."""

    name: ClassVar[str] = "ByArrival"

    def sort_key(self, pod: Pod, timestamp: int) -> tuple[int, ...]:  # noqa: ARG002
        """Nothing comes before the order of arrival."""
        return ()


class QueueRejection(msgspec.Struct, frozen=True):
    """The plugins that rejected a member of a group. None of them: its attempt failed with an error."""

    unschedulable: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()


class QueueContents(msgspec.Struct, frozen=True, kw_only=True):
    """The entities of each pool, in the order of their turns."""

    active: list[AnyEntity]
    backoff_rejected: list[AnyEntity]
    backoff_errors: list[AnyEntity]
    unschedulable: list[AnyEntity]
    """The pool in its order, gated entities included."""
    in_flight: list[Attempt]
    pending_members: list[QueuedPod]
    incomplete_members: list[QueuedPod]


class Popped(NamedTuple):
    """The latest pop, as far as it takes more to undo it."""

    where: Where
    """The place it was in."""
    tried: Mapping[QueuedPod, int]
    """The pod, or the members in the group's order, and when they had been tried before."""
    disturbed: bool = False


class SchedulingQueue:
    """Every pending pod of the schedulers whose profiles it is given."""

    __slots__ = (
        "_group_of",
        "_groups",
        "_hints",
        "_newcomers",
        "_order",
        "_places",
        "_pods",
        "_popped",
        "_upstream",
        "in_flight",
        "nominator",
        "pops_early",
        "scheduling_cycle",
    )

    def __init__(
        self,
        profiles: Mapping[str, Sequence[Plugin]],
        queue_sort: QueueSortPlugin,
        config: QueueConfig = DEFAULT_CONFIG,
        *,
        group_of: Callable[[Pod], str] | None = None,
        observer: QueueObserver | None = None,
    ) -> None:
        """`profiles`: scheduler name → its plugins in configured order. `group_of`: a pod's group key, "" for none."""
        self._upstream = config.upstream
        self._group_of = group_of
        self._order = Order(queue_sort)
        self._hints = HintMap(profiles, ask_hints=config.queueing_hints, upstream=config.upstream)
        rules = GroupRules(upstream=config.upstream)
        errors_wait = config.group_errors_wait and not config.upstream
        self._places = Places(
            {
                name: tuple(p for p in plugins if isinstance(p, PreEnqueuePlugin))
                for name, plugins in profiles.items()
            },
            rules.gate,
            BackoffPolicy(config.initial_backoff, config.max_backoff, windows=config.pop_from_backoff),
            max_stay=config.max_in_unschedulable,
            pop_from_backoff=config.pop_from_backoff,
            group_errors_wait=errors_wait,
            time_due=self._hints.time_due,
        )
        self._groups = Groups(
            self._places,
            rules,
            self._order,
            self._hints,
            upstream=config.upstream,
            errors_wait=errors_wait,
        )
        self.in_flight = InFlight(upstream=config.upstream)
        self._pods: dict[str, QueuedPod] = {}
        """Every pending pod by key, wherever it is. A pod in flight that was deleted is not here any more."""
        self.nominator = Nominator()
        self.scheduling_cycle = 0
        """Number of pops."""
        self._popped = Popped(Where.GONE, {})
        self._newcomers: list[QueuedPod] = []
        """Members of the groups of the last flush that had never been active."""
        self.pops_early = config.pop_from_backoff
        """Nobody tries gates on the way from the backoff queue to the active one."""
        self.observe(observer)

    # --- what happens to pods ---------------------------------------------------------------------------------------

    def add(self, pod: Pod, now: int) -> None:
        """A pod is pending. One of the same name but another uid is thereby gone."""
        meta = pod.metadata
        key = f"{meta.namespace}/{meta.name}"
        uid = meta.uid or key
        known = self._pods.get(key)
        if known is not None:
            if known.uid == uid:
                raise InternalError(f"pod {key} ({uid}) was added to the queue twice")
            self.delete(known.pod, now)
        if pod.status.nominated_node_name:
            self.nominator.nominate(pod)
        entity = QueuedPod(key=key, timestamp=now, uid=uid, pod=pod, profile=pod.spec.scheduler_name)
        self._order.stamp(entity, pod, now)
        attempt = self.in_flight.get(uid)
        if attempt is not None:
            self._reincarnate(attempt, entity)
        self._pods[key] = entity
        if self._group_of is not None and (group := self._group_of(pod)):
            entity.group = group
            self._groups.rules.member_seen(group, now)
            if attempt is None:
                self._groups.place(entity, now, POD_ADDED)
        elif attempt is None:
            self._places.to_active(entity, now, POD_ADDED)

    def update(self, pod: Pod, changes: Iterable[ClusterEvent], seq: int, now: int) -> None:
        """A new version of a pending pod; `changes` are the TargetPod events that tell the two apart.

        One that is not known here is added, unless it is not pending any more.
        """
        uid = pod_uid(pod)
        entity = self._pods.get(pod_key(pod))
        if entity is None or entity.uid != uid:
            if not (pod.spec.node_name or is_terminal(pod)):
                self.add(pod, now)
            return
        old = _renew(entity, pod)
        self.nominator.update(old, pod)
        if entity.where is Where.IN_FLIGHT:
            # The attempt is made with the old version, so the change is judged when it ends.
            for event in changes:
                self.in_flight.record(seq, event, old, pod)
            return
        if entity.group:
            group = self._groups.queued.get(entity.group)
            if group is not None and entity.where is Where.MEMBER:
                self._wake_updated(group, changes, old, pod, now)
                self._file_by_time(entity)
            return
        order = self._order.of(entity, pod)
        if order != entity.order:
            self._places.reorder(entity, order)
        self._wake_updated(entity, changes, old, pod, now)
        self._file_by_time(entity)

    def hear(self, pod: Pod, changes: Iterable[ClusterEvent], seq: int) -> None:
        """As `update`, for a pod in flight that is assumed on a node, so that its nomination does not count.

        It may wait there for a quarter of an hour, so that only what may matter is kept.
        """
        entity = self._pods.get(pod_key(pod))
        if entity is not None and entity.uid == pod_uid(pod) and entity.where is Where.IN_FLIGHT:
            old = _renew(entity, pod)
            for event in filter(self._hints.interested, changes):
                self.in_flight.record(seq, event, old, pod)

    def delete(self, pod: Pod, now: int) -> None:
        """The pod is gone, or has a node: it is not pending any more. An attempt under way has to be ended all the same.

        For groups also bound members have to be told, because their group is looked at again.
        """
        self.nominator.forget(pod)
        key = pod_key(pod)
        entity = self._pods.get(key)
        if entity is not None and entity.uid == pod_uid(pod):
            self._forget(entity)
            if entity.where is not Where.IN_FLIGHT:
                self._places.take_out(entity)
        if self._group_of is not None and (group := self._group_of(pod)):
            self._groups.member_deleted(key, group, now)

    # --- attempts ---------------------------------------------------------------------------------------------------

    def pop(self, seq: int, now: int) -> AnyEntity | None:
        """Take the pod or group that is to be tried next; None if nothing may be tried now.

        With nothing active, one that is backing off is taken early, unless its last attempt failed with an error. A
        popped group's members are its `popped`. Every pod popped has to come back by `done`, `fail`, `abort` or, as a
        member, by `finish_group`.
        """
        was = Where.ACTIVE if len(self._places.active) else Where.BACKOFF
        entity = self._places.pop()
        if entity is None:
            return None
        self.scheduling_cycle += 1
        entity.attempts += 1
        if isinstance(entity, QueuedPod):
            self._popped = Popped(was, {entity: entity.attempted_at})
            self._take_off(entity, seq, now)
        else:
            tried = {member: member.attempted_at for member in entity.members.values()}
            self._popped = Popped(was, tried, entity.disturbed)
            for member in self._groups.take_off(entity):
                member.attempts += 1
                self._take_off(member, seq, now)
        return entity

    def take_back(self, popped: AnyEntity, flushed: Sequence[AnyEntity]) -> None:
        """Undo the latest pop, this one's, and before it the flush of these: as if nobody had asked for them. Nothing may have happened since.

        Gates must not have been tried on their way into the active queue (`pops_early`).
        """
        before = self._popped
        self.scheduling_cycle -= 1
        popped.attempts -= 1
        popped.where = before.where
        for pod, attempted_at in before.tried.items():
            self.in_flight.end(pod.uid)
            pod.attempted_at = attempted_at
        if isinstance(popped, QueuedGroup):
            self._groups.take_back(popped, list(before.tried), disturbed=before.disturbed)
        self._places.restore(popped)
        for member in self._newcomers:
            member.entered_active_at = 0
        for entity in flushed:
            self._places.take_out(entity)
            entity.where = Where.BACKOFF
            self._places.restore(entity)

    def forgo_events(self, uid: str) -> None:
        """The pod stays in flight, and can only be bound or fail: events are not kept for it. (kube-scheduler takes it for done.)"""
        self.in_flight.forgo(uid)

    def done(self, uid: str) -> None:
        """The attempt of this pod ended well, or does not matter any more. Doing so twice is harmless."""
        attempt = self.in_flight.end(uid)
        if attempt is not None:
            pod = attempt.pod
            pod.where = Where.GONE
            if self._pods.get(pod.key) is pod:
                self._forget(pod)

    def fail(
        self,
        uid: str,
        unschedulable: Iterable[str] = (),
        pending: Iterable[str] = (),
        *,
        now: int,
        blocked_by: tuple[str, ...] = (),
    ) -> None:
        """The attempt of this pod failed: rejected by these plugins, or with an error if there are none.

        Events since its pop decide where it goes. If the pod is gone meanwhile, only the attempt ends.
        `blocked_by`: what hints find as `WaitingPod.blocked_by`.
        """
        pod = self._flying(uid)
        if self._pods.get(pod.key) is not pod:
            self.done(uid)
            return
        self._reject(pod, unschedulable, pending, now)
        pod.blocked_by = blocked_by
        if pod.group:
            self.in_flight.end(uid)
            self._groups.place(pod, now, ATTEMPT_FAILED, failed=True)
            return
        strategy = Strategy.AFTER_BACKOFF
        if pod.has_rejectors:
            missed = self.in_flight.missed_by(uid, lambda event: self._hints.concerns(pod, event))
            strategy = self._hints.best_strategy(pod, missed)
        self._places.requeue(pod, strategy, now, ATTEMPT_FAILED)
        self.in_flight.end(uid)

    def abort(self, uid: str, now: int) -> None:
        """The attempt is void through no fault of the pod: it is tried again at once, with its old place and counters."""
        pod = self._flying(uid)
        if self._pods.get(pod.key) is not pod:
            self.done(uid)
            return
        self.in_flight.end(uid)
        if pod.group:
            self._groups.place(pod, now, ATTEMPT_ABORTED)
        else:
            pod.order = self._order.of(pod, pod.pod)
            self._places.to_active(pod, now, ATTEMPT_ABORTED)

    def refuse(self, pod: Pod, refusals: int, now: int) -> None:
        """A pod that was just added had been placed, and a live cluster refused to bind it: it backs off as after so many errors.

        A member of a group does with its group, and a gated one waits for its gate.
        """
        entity = self._pods.get(pod_key(pod))
        if entity is None or entity.uid != pod_uid(pod) or entity.where is not Where.ACTIVE:
            return
        self._places.take_out(entity)
        entity.attempts = entity.consecutive_errors = refusals
        self._places.requeue(entity, Strategy.AFTER_BACKOFF, now, ATTEMPT_FAILED)

    # --- groups -----------------------------------------------------------------------------------------------------

    def add_group(self, info: QueuedGroupInfo, now: int) -> None:
        """The object of a group has appeared or changed, or one of its members got or lost a node."""
        self._groups.add(info, now)

    def delete_group(self, key: str) -> None:
        """The object of a group is gone; its queued members wait outside until there is one again."""
        self._groups.remove(key)

    def finish_group(
        self,
        key: str,
        status: GroupStatus,
        failed: Mapping[str, QueueRejection],
        *,
        now: int,
    ) -> None:
        """The attempt of a popped group has ended.

        `failed`: the members, by uid, that got no node; the others stay in flight until their own `done` or `fail`.
        """
        group = self._groups.in_flight.get(key)
        if group is None:
            raise InternalError(f"group {key} is not in flight")
        missed = self._missed_by(group)
        for member in group.popped:
            if member.uid in failed:
                why = failed[member.uid]
                self.fail(member.uid, why.unschedulable, why.pending, now=now)
        self._groups.land(group, status, missed, now, ATTEMPT_FAILED)

    def abort_group(self, key: str, now: int) -> None:
        """The attempt of a popped group is void: its members still in flight are tried again at once, as in `abort`."""
        group = self._groups.in_flight.get(key)
        if group is None:
            raise InternalError(f"group {key} is not in flight")
        for member in group.popped:
            if self.in_flight.get(member.uid) is not None:
                self.abort(member.uid, now)
        self._groups.put_back(group, now, ATTEMPT_ABORTED)

    # --- what happens in the cluster ----------------------------------------------------------------------------------

    def on_event(
        self,
        event: ClusterEvent,
        old: Any,
        new: Any,
        seq: int,
        now: int,
        *,
        precheck: Callable[[Pod], bool] | None = None,
    ) -> None:
        """Something happened: wake whom it may help, and keep it for the pods in flight.

        An event that no plugin registered for does nothing. `precheck` limits who in the pool is looked at; it does not
        limit what pods in flight will see.
        """
        if event.resource is Resource.WILDCARD and event.is_wildcard:
            concerned: Iterable[AnyEntity] = self._places.pool.all()
        else:
            interested = self._hints.interested(event)
            if not interested:
                return
            pool = self._places.pool
            concerned = pool.concerned(interested) if pool.entities else ()
        for entity in concerned:
            if precheck is None or _passes(entity, precheck):
                self._wake(entity, event, old, new, now)
        if self.in_flight:
            self.in_flight.record(seq, event, old, new)

    def activate(self, pods: Iterable[Pod], seq: int, now: int) -> None:
        """A plugin asks that these pods be tried, whatever they wait for; only a closed gate holds them back.

        A member activates its group. A pod in flight is tried again after its backoff if its attempt fails.
        """
        for pod in pods:
            entity: AnyEntity | None = self._pods.get(pod_key(pod))
            if self._group_of is not None and (group := self._group_of(pod)):
                if group not in self._groups.rules.infos:
                    continue
                entity = self._groups.queued.get(group)
            if entity is not None and entity.where in (Where.UNSCHEDULABLE, Where.BACKOFF):
                from_backoff = self._places.take_out(entity) is Where.BACKOFF
                if self._places.to_active(entity, now, FORCE_ACTIVATE, from_backoff=from_backoff):
                    continue
            attempt = self.in_flight.get(pod_uid(pod))
            if attempt is not None:
                self.in_flight.record(seq, FORCE_ACTIVATE, None, attempt.pod.pod)

    def tick(self, seq: int, now: int) -> None:
        """The log's clock has ticked: ask the hints for time, and do what the passing of time does by itself."""
        self.on_event(TIME, None, Tick(now), seq, now)
        self.advance(seq, now)

    def advance(self, seq: int, now: int) -> None:
        """Do what is due: ended backoffs, groups that waited long enough, stays in the pool that took too long."""
        self.flush_backoff(now)
        rules = self._groups.rules
        for group in rules.done_waiting(now) if rules.waits.live else ():
            if group.where is Where.UNSCHEDULABLE and group.gating_plugin == DESIRED_COUNT_GATE:
                self._places.take_out(group)
                self._places.to_active(group, now, TIME)
        if self._places.pool.entities:
            self.flush_unschedulable(seq, now)

    def flush_backoff(self, now: int) -> Sequence[AnyEntity]:
        """Move entities whose backoff is over to the active queue; returns them."""
        flushed = self._places.backoff.pop_expired(now)
        if flushed or self._newcomers:
            groups = (entity for entity in flushed if isinstance(entity, QueuedGroup))
            members = (member for group in groups for member in group.members.values())
            self._newcomers = [member for member in members if not member.entered_active_at]
        for entity in flushed:
            self._places.to_active(entity, now, BACKOFF_COMPLETE, from_backoff=True)
        return flushed

    def flush_unschedulable(self, seq: int, now: int) -> None:
        """Retry entities that have been in the pool for too long: a hint may be missing."""
        leftovers = self._places.pool.leftovers(now)
        for entity in leftovers:
            entity.flushed_at = now
            entity.was_flushed = True
            self._wake(entity, UNSCHEDULABLE_TIMEOUT, None, None, now)
        if leftovers and self.in_flight:
            self.in_flight.record(seq, UNSCHEDULABLE_TIMEOUT, None, None)

    def next_backoff_end(self) -> int | None:
        """When the next backoff ends: `flush_backoff` lets the pod be tried from then on. No record is needed for that."""
        return self._places.backoff.next_free_at()

    def next_deadline(self) -> int | None:
        """When `advance` will next have something to do besides ended backoffs, if nothing else happens.

        Such a thing is done at a record: it is worth a tick.
        """
        deadlines = (self._groups.rules.next_wait_until(), self._places.pool.next_leftover_at())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def waits_until(self, entity: AnyEntity) -> int | None:
        """When the entity will go on though nothing happens; None where time alone does nothing.

        That is the end of its backoff, of a group's wait for its `desired_count`, or of the longest stay in the pool.
        """
        if isinstance(entity, QueuedGroup) and (until := self._groups.rules.waits_until(entity)) is not None:
            return until
        return self._places.waits_until(entity)

    def next_time_due(self) -> int | None:
        """From when on a tick may wake somebody in the pool; None while nobody there waits for time."""
        return self._places.pool.next_time_due()

    def mark_fallback(self, pod: Pod, node: str, constraints: tuple[int, ...]) -> None:
        """The pod is being nominated to the node, in an attempt in which these spread constraints had fallen back (KEP-3990).

        Hints and attempts find that as `WaitingPod.fallback_node`, until the nomination changes.
        """
        entity = self._pods.get(pod_key(pod))
        if entity is not None and entity.uid == pod_uid(pod):
            entity.mark_fallback(node, constraints)
            self._file_by_time(entity)

    # --- looking at it ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Pending pods, wherever they are."""
        return len(self._pods)

    def observe(self, observer: QueueObserver | None) -> None:
        """Let the observer hear what the queue does from now on."""
        self._hints.observer = self._places.observer = observer

    def get(self, key: str) -> QueuedPod | None:
        """The pending pod `namespace/name`."""
        return self._pods.get(key)

    def get_group(self, key: str) -> QueuedGroup | None:
        """The group's entity, queued or in flight."""
        return self._groups.queued.get(key) or self._groups.in_flight.get(key)

    def whereabouts(self, pod: QueuedPod) -> Where:
        """Where the pod is; for a member of a queued group, where the group is."""
        entity = self._entity_of(pod)
        return pod.where if entity is None else entity.where

    def contents(self) -> QueueContents:
        """Everything, in order. Costs a sort of it."""
        places, groups = self._places, self._groups
        return QueueContents(
            active=places.active.ordered(),
            backoff_rejected=places.backoff.rejected(),
            backoff_errors=places.backoff.errors(),
            unschedulable=places.pool.all(),
            in_flight=self.in_flight.attempts(),
            pending_members=[pod for pods in groups.pending.values() for pod in pods.values()],
            incomplete_members=[pod for pods in groups.incomplete.values() for pod in pods.values()],
        )

    def statistics(self) -> QueueStatistics:
        """The gauges. Costs a walk over the waiting pods."""
        return statistics(self._places, self._groups, self.in_flight)

    def dump_state(self) -> dict[str, Any]:
        """All of its state, equal for equal states: builtins, and immutable values that encoders write as builtins.

        Pending pods are named, not copied: others have them.
        """
        return whole_result(self.dumping_state())

    def dumping_state(self) -> Steps[dict[str, Any]]:
        """The same in steps, between which nothing may happen to the queue."""
        return state.dumping(
            self._pods,
            self._groups,
            self.in_flight,
            self._places,
            self._order,
            self.nominator,
            self.scheduling_cycle,
        )

    def load_state(self, dumped: Mapping[str, Any], pod_of: Callable[[str], Pod]) -> None:
        """Take over a dumped state; the queue must be new, and made with the same plugins and settings.

        `pod_of`: the newest version of the pod `namespace/name`.
        """
        assert not self._order.issued, "a state is loaded into a new queue"
        self._pods, self.scheduling_cycle = state.load(
            dumped, pod_of, self._groups, self.in_flight, self._places, self._order, self.nominator
        )

    # --- within -------------------------------------------------------------------------------------------------------

    def _take_off(self, pod: QueuedPod, seq: int, now: int) -> None:
        pod.where = Where.IN_FLIGHT
        pod.attempted_at = now
        self.in_flight.begin(pod, self.scheduling_cycle, seq, now)

    def _flying(self, uid: str) -> QueuedPod:
        attempt = self.in_flight.get(uid)
        if attempt is None:
            raise InternalError(f"pod {uid} is not in flight")
        return attempt.pod

    def _reject(self, pod: QueuedPod, unschedulable: Iterable[str], pending: Iterable[str], now: int) -> None:
        pod.fail(_sorted(unschedulable), _sorted(pending), now)
        self._order.stamp(pod, pod.pod, now)

    def _forget(self, pod: QueuedPod) -> None:
        """The pod is not pending any more."""
        del self._pods[pod.key]
        if pod.group:
            self._groups.rules.member_gone(pod.group)

    def _reincarnate(self, attempt: Attempt, entity: QueuedPod) -> None:
        """A pod in flight was deleted and has come again under the same uid: the attempt under way is now the new one's.

        That attempt is made with the old one's spec, so if it fails it tells nothing: the new one is to be tried again.
        """
        entity.where = Where.IN_FLIGHT
        entity.attempts = 1
        entity.attempted_at = attempt.at
        attempt.pod.where = Where.GONE
        self._groups.exchange(attempt.pod, entity)
        attempt.pod = entity
        self.in_flight.record(attempt.seq, FORCE_ACTIVATE, None, entity.pod)

    def _wake_updated(
        self, entity: AnyEntity, changes: Iterable[ClusterEvent], old: Pod, new: Pod, now: int
    ) -> None:
        """A pod in the pool has changed: the first change that gets it out of there is enough."""
        for event in changes:
            if entity.where is not Where.UNSCHEDULABLE:
                break
            self._wake(entity, event, old, new, now)

    def _wake(self, entity: AnyEntity, event: ClusterEvent, old: Any, new: Any, now: int) -> None:
        """Judge an entity of the pool by the event, and move it if that may help."""
        strategy = self._hints.strategy(entity, event, old, new)
        if strategy is not Strategy.SKIP:
            self._places.take_out(entity)
            self._places.requeue(entity, strategy, now, event)

    def _file_by_time(self, pod: QueuedPod) -> None:
        """For how long the pod, or its group, waits for time may have changed."""
        entity = self._entity_of(pod)
        if entity is not None and entity.where is Where.UNSCHEDULABLE:
            self._places.pool.file_by_time(entity)

    def _entity_of(self, pod: QueuedPod) -> AnyEntity | None:
        """Return the entity that the pod waits in: its own, or its queued group."""
        if not pod.group:
            return pod
        return self._groups.queued.get(pod.group) if pod.where is Where.MEMBER else None

    def _missed_by(self, group: QueuedGroup) -> list[InFlightEvent]:
        """Return the events since the group was popped. All its members were popped at once, so any of them has them."""
        if self._upstream:
            return []
        for member in group.popped:
            if self.in_flight.get(member.uid) is not None:
                return self.in_flight.events_since_pop(member.uid)
        return []


def _renew(entity: QueuedPod, pod: Pod) -> Pod:
    """The entity is this version of its pod from now on; returns the one before."""
    old, entity.pod = entity.pod, pod
    if entity.fallback_node != pod.status.nominated_node_name:
        entity.mark_fallback("", ())
    return old


def _sorted(plugins: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(plugins)))


def _passes(entity: AnyEntity, precheck: Callable[[Pod], bool]) -> bool:
    """Whether the pod, or any member of the group, passes."""
    if isinstance(entity, QueuedPod):
        return precheck(entity.pod)
    return any(precheck(member.pod) for member in entity.members.values())


def empty_queue() -> SchedulingQueue:
    """Return the queue of a scheduler that has no configuration yet."""
    return SchedulingQueue({}, ByArrival())

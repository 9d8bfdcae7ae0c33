"""The scheduler as a pure state machine: `apply(record)` consumes the log, `attempt(now)` decides about one pod.

    records ──► apply ──► cache, queue, nominations               (the only way in which facts get in)
                  ▲
                  │  the attempt's outcomes, when they are in the log
                  │
    attempt(now) ─┴─► pop ─► decide ─► adopt ─► Decision           (for the shell to append)

What an attempt decides is *adopted* at once (the pod is assumed on its node, a nomination counts) so that the next attempt, which
need not wait for the disk, builds on it. The pod stays in flight until its own outcome comes back through `apply`. Adopting needs
nothing but the outcome itself; therefore a log is recovered by the same fold with the outcomes taken from it (`readopt`), and
verified by computing them anew.

Just before a decision is committed the writer asks `conflict` whether something that came meanwhile took away what it relies on; if
so, `aborted` is appended in its place (DESIGN rule 4).

Time is an argument. Ends of backoffs are noticed at attempts and at records, everything else that time brings about at records only: a
call of `attempt` that decides nothing changes nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

import msgspec
from msgspec.structs import replace

from tidelog.api.errors import InternalError, PluginError
from tidelog.api.objects import Object, Pod, PodDisruptionBudget
from tidelog.api.pod_status import (
    SCHEDULER_ERROR,
    bound_to,
    charged,
    is_rejected_with,
    is_terminal,
    nominated_to,
    preempted,
    rejected,
    with_pod_condition,
)
from tidelog.eventlog.records import (
    AttemptAborted,
    AttemptError,
    Body,
    ConfigurationLoaded,
    Evicted,
    EvictionRefused,
    Fallback,
    LossAccepted,
    Nominated,
    ObjectDeleted,
    ObjectPut,
    PlacementChosen,
    PodConditionSet,
    Record,
    Scheduled,
    SchedulerStarted,
    Tick,
    Unschedulable,
    Waiting,
    decode_body,
)
from tidelog.plugins.behaviours import check_behaviours
from tidelog.plugins.configuration import SchedulerConfiguration
from tidelog.plugins.derive import Rules
from tidelog.plugins.events import WILDCARD
from tidelog.plugins.interface import CycleState, QueueSortPlugin, unschedulable
from tidelog.plugins.node_info import PodInfo
from tidelog.plugins.profiles import Profile, build_profiles
from tidelog.plugins.registry import Registry
from tidelog.queue.entity import AnyEntity, QueuedGroup, pod_key, pod_uid
from tidelog.queue.scheduling_queue import QueueConfig, SchedulingQueue
from tidelog.scheduler.cache import CacheLayout
from tidelog.scheduler.cluster import Cluster, wants_node
from tidelog.scheduler.decision import Decision, Relies, relies_on_plan
from tidelog.scheduler.disturbance import Conflict, called_off, conflict, promised_again, released
from tidelog.scheduler.fallback import preemption_marks, with_fallback
from tidelog.scheduler.framework import Framework, FrameworkHandle
from tidelog.scheduler.group import GroupSettings, group_name, is_group_key, record_key
from tidelog.scheduler.group_cycle import GroupOptions
from tidelog.scheduler.group_flights import GroupFlights, aborted_group
from tidelog.scheduler.notes import Notes
from tidelog.scheduler.pod_cycle import CycleResult, Stamp, reject_waiting, run_pod_cycle
from tidelog.scheduler.preemption import Evictions, PendingEviction, Preemption
from tidelog.scheduler.unsupported import UnsupportedNeeds

SECOND = 1_000_000_000


class Permit(msgspec.Struct, gc=False):
    """A pod that has its resources reserved and waits until every plugin has permitted its binding."""

    key: str
    uid: str
    node: str
    deadline: int
    plugins: tuple[str, ...]
    fallback: tuple[Fallback, ...] = ()
    """Kept because the plugins' state of the attempt is lost at a restart, and the binding has to tell the same."""
    group: str = ""
    """Record key of the group with which it was placed: if it is not bound, no member that waits is."""
    is_ending: bool = False
    """The attempt that ends the wait is in flight: there must not be another."""


class NotTheRecorded(Exception):
    """A log is being recovered, and who came out of the queue is not whom the log says was tried."""


class Core:
    """The state of the scheduler after some record of the log, and the next decision."""

    def __init__(self, registry: Registry, *, fast: bool = True) -> None:
        """`fast=False`: evaluate plainly, every plugin on every node. The decisions are the same."""
        self.registry = registry
        self._fast = fast
        self._info: PodInfo | None = None
        """Of the last pod that was asked for."""
        self.epoch = 0
        self.attempts = 0
        """Number of the last attempt."""
        self.last_tick_at = 0
        self.configuration: SchedulerConfiguration | None = None
        self.cluster = Cluster()
        self.frameworks: dict[str, Framework] = {}
        self._flights: dict[int, dict[str, None]] = {}
        """Attempts whose outcomes are not in the log yet → the uids of their pods."""
        self._observed: dict[int, int] = {}
        """The same attempts, and perhaps older ones → the last record that was consumed when they were made."""
        self._permits: dict[str, Permit] = {}
        """Waiting pods by uid, in the order in which they began to wait."""
        self._permit_states: dict[str, CycleState] = {}
        """The cycle states of waiting pods. Dropped when a scheduler takes the log: plugins must do without."""
        self.evictions = Evictions()
        """Victims that have not gone yet; what their budgets are charged."""
        self.group_flights = GroupFlights(self.cluster)
        """Those of `_flights` that are about groups."""
        self._rejected: dict[str, tuple[int, Unschedulable]] = {}
        """Pod uid, or record key of a group → the seq of its last rejection with content, and that: a repetition refers to it."""

    @property
    def seq(self) -> int:
        """The last record consumed."""
        return self.cluster.seq

    @property
    def at(self) -> int:
        """The time of the last record consumed."""
        return self.cluster.at

    @property
    def queue(self) -> SchedulingQueue | None:
        """None until a configuration has been loaded."""
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
        """What the pod of this uid waits for with its resources reserved."""
        return self._permits.get(uid)

    def in_full(self, key: str, body: Unschedulable) -> Unschedulable:
        """What a rejection that is not in the log yet says, where it only refers to the last one of the pod or group of this key."""
        if not body.same_as:
            return body
        pod = self.cluster.pod(key)
        return self._rejected[key if pod is None else pod_uid(pod)][1]

    # --- consuming the log ------------------------------------------------------------------------------------------

    def apply(self, record: Record, body: Body | None = None) -> None:
        """Consume the next record. `body` is its decoded body, where the caller has it."""
        cluster = self.cluster
        if record.seq != cluster.seq + 1:
            raise InternalError(f"record {record.seq} was applied after record {cluster.seq}")
        cluster.seq, cluster.at = record.seq, record.at
        self._consume(record, decode_body(record) if body is None else body)
        if cluster.queue is not None:
            cluster.queue.advance(record.seq, record.at)
        self._drop_notes()

    def _drop_notes(self) -> None:
        """Forget what happened before the oldest attempt in flight."""
        if not self._flights:
            if self._observed:
                self.cluster.notes = None
                self._observed.clear()
            return
        oldest, first = next(iter(self._flights)), next(iter(self._observed))
        if first == oldest:
            return  # It was the oldest before, and what had happened before it is forgotten.
        while first != oldest:
            del self._observed[first]
            first = next(iter(self._observed))
        if self.cluster.notes is not None:
            self.cluster.notes.drop_until(self._observed[oldest])

    def _consume(self, record: Record, body: Body) -> None:
        cluster, key = self.cluster, record.key
        match body:
            case ObjectPut():
                old = cluster.pod(key)
                cluster.change(key, body.object)
                if old is not None and pod_uid(old) in self._permits:
                    self._look_at_waiting(old, cluster.pod(key))
                if old is not None and self.evictions.get(pod_uid(old)) is not None:
                    self._look_at_victim(old, cluster.pod(key))
            case ObjectDeleted():
                self._deleted(key)
            case PodConditionSet():
                pod = cluster.pod(key)
                if pod is not None:
                    cluster.change(key, with_pod_condition(pod, body.condition, record.at))
            case Tick():
                self.last_tick_at = record.at
                if cluster.queue is not None:
                    cluster.queue.tick(record.seq, record.at)
            case ConfigurationLoaded():
                self._configure(msgspec.convert(body.configuration, SchedulerConfiguration))
            case SchedulerStarted():
                self.epoch = body.epoch
                # A scheduler that was restarted has none; one that was not must decide like it.
                self._permit_states.clear()
            case Scheduled():
                self._scheduled(self._tried(key), key, body)
            case Unschedulable() if is_group_key(key):
                self._group_rejected(record, body)
            case Unschedulable():
                self._unschedulable(self._tried(key), record, body)
            case AttemptError() if is_group_key(key):
                self._rejected.pop(key, None)
                self._land_all(body.attempt, self.group_flights.errored(key, body))
            case AttemptError():
                self._errored(self._tried(key), key, body)
            case Waiting():
                self._waiting(self._tried(key), key, body)
            case AttemptAborted() if is_group_key(key):
                self._group_aborted(key, body)
            case AttemptAborted():
                self._aborted(key, body)
            case PlacementChosen():
                self._rejected.pop(key, None)
                self.group_flights.chosen(key, body)
            case Nominated():
                self._nominated(key, body)
            case Evicted():
                self._evicted(key, body)
            case LossAccepted() | EvictionRefused():
                pass
            case _:
                assert_never(body)

    def _deleted(self, key: str) -> None:
        pod = self.cluster.pod(key)
        self.cluster.change(key, None)
        if is_group_key(key):
            for other in [k for k in self._rejected if k == key or k.startswith(f"{key}/")]:
                del self._rejected[other]
        if pod is not None:
            self._stop_attempts(pod_uid(pod))
            self._end_eviction(pod_uid(pod))

    def _look_at_waiting(self, old: Pod, new: Pod | None) -> None:
        """A pod that waits for a permit has a new version: perhaps one that wants no node, or not from us, any more."""
        if new is None or pod_uid(new) != pod_uid(old) or not wants_node(new):
            self._stop_attempts(pod_uid(old))

    def _look_at_victim(self, old: Pod, new: Pod | None) -> None:
        """A pod that was asked to go has a new version: it has finished, is another one, or somebody took the request back."""
        assert new is not None
        took_back = self.evictions.is_told(pod_uid(old)) and not new.metadata.deletion_timestamp
        if is_terminal(new) or pod_uid(new) != pod_uid(old) or took_back:
            self._end_eviction(pod_uid(old))

    def _stop_attempts(self, uid: str) -> None:
        """The pod wants no node any more. If it just waited for a permit, no outcome will come to end that attempt."""
        waits = uid in self._permits and not any(uid in pods for pods in self._flights.values())
        if waits and self.queue is not None:
            self.queue.done(uid)
        self._forget_pod(uid)

    def _forget_pod(self, uid: str) -> None:
        self._permits.pop(uid, None)
        self._permit_states.pop(uid, None)
        self._rejected.pop(uid, None)

    def _tried(self, key: str) -> Pod:
        """The pod of an outcome. It is there: an outcome for a pod that was gone would have been aborted."""
        pod = self.cluster.pod(key)
        if pod is None:
            raise InternalError(f"record {self.seq} is an outcome for {key}, which does not exist")
        return pod

    # --- consuming outcomes -----------------------------------------------------------------------------------------

    def _scheduled(self, pod: Pod, key: str, body: Scheduled) -> None:
        uid, cluster = pod_uid(pod), self.cluster
        if pod.spec.node_name != body.node:  # Else its group was bound as one.
            cluster.bind(key, pod, bound_to(pod, body.node, cluster.at))
        self._forget_pod(uid)
        self._land(body.attempt, uid)

    def _unschedulable(self, pod: Pod, record: Record, body: Unschedulable) -> None:
        uid, attempt = pod_uid(pod), body.attempt
        if body.same_as:
            _, body = self._rejected[uid]
        else:
            self._rejected[uid] = (record.seq, body)
        self._stop_waiting(uid, record.key)
        # While it is still in flight: what the rejection itself changes about the pod may be just what a plugin waits for. A
        # nomination that the attempt made has counted since the decision; its record comes next, but without it the pod
        # would look as if preemption had failed.
        changed = rejected(pod, body.message, self.at)
        if self.queue is not None and (node := self.queue.nominator.node_of(pod)):
            changed = nominated_to(changed, node)
        self.cluster.change(record.key, changed)
        if self.group_flights.is_about(attempt):
            self.group_flights.left_over(uid, body)
            self._land_all(attempt, [uid])
            return
        if self.queue is not None:
            self.queue.fail(uid, body.plugins, body.pending, now=self.at, blocked_by=body.blocked_by)
        self._land(attempt, uid)

    def _errored(self, pod: Pod, key: str, body: AttemptError) -> None:
        uid = pod_uid(pod)
        self._rejected.pop(uid, None)
        self._stop_waiting(uid, key)
        self.cluster.change(key, rejected(pod, body.message, self.at, reason=SCHEDULER_ERROR))
        if self.queue is not None:
            self.queue.fail(uid, now=self.at)
        self._land(body.attempt, uid)

    def _waiting(self, pod: Pod, key: str, body: Waiting) -> None:
        """The pod stays in flight for the queue, and assumed; only the attempt is over."""
        uid = pod_uid(pod)
        self._permits[uid] = Permit(
            key, uid, body.node, body.deadline, body.plugins, body.fallback, body.group
        )
        self._land_all(body.attempt, [uid])

    def _nominated(self, key: str, body: Nominated) -> None:
        """Who loses a nomination to this pod's node is woken by the change of its status."""
        preemptor = self.cluster.pod(key)
        if preemptor is not None and self.queue is not None:
            self.queue.mark_fallback(preemptor, body.node, preemption_marks(body.fallback))
        for other in (*body.cleared, key):
            pod = self.cluster.pod(other)
            if pod is not None:
                self.cluster.change(other, nominated_to(pod, body.node if other == key else ""))

    def _evicted(self, key: str, body: Evicted) -> None:
        """The victim is told to go. One that waits for its permit, and so has no node, only loses its placement."""
        cluster, pod = self.cluster, self.cluster.pod(key)
        if pod is None:
            return
        uid = pod_uid(pod)
        if not pod.spec.node_name:
            self._stop_waiting(uid, key)
            cluster.change(key, rejected(pod, body.message, self.at, reason=SCHEDULER_ERROR))
            if self.queue is not None:
                self.queue.fail(uid, now=self.at)
            self._end_eviction(uid)
            return
        cached = cluster.cache.pod(uid)
        known = cached is not None and cached.terminating
        cluster.change(key, preempted(pod, body.message, self.at), expected=known)
        for budget_key in body.budgets:
            budget = cluster.objects.get(budget_key)
            if isinstance(budget, PodDisruptionBudget):
                cluster.change(budget_key, charged(budget, pod.metadata.name, self.at), expected=True)
        self._release_preemptor(self.evictions.told(uid))

    def _end_eviction(self, uid: str) -> None:
        """A victim is gone."""
        self._release_preemptor(self.evictions.end(uid))

    def _release_preemptor(self, key: str) -> None:
        """All victims of this pod have been told, or are gone: if its gate was closed meanwhile, it is looked at again."""
        entity = None if self.queue is None else self.queue.get(key.removeprefix("Pod/"))
        if entity is not None and entity.is_gated:
            assert self.queue is not None
            self.queue.activate([entity.pod], self.seq, self.at)

    def _aborted(self, key: str, body: AttemptAborted) -> None:
        if body.nominated:
            self._call_off(body)
        pods = {pod_uid(pod): other for other in (key, *body.assignment) if (pod := self.cluster.pod(other))}
        for uid in self._flights.pop(body.attempt, {}):
            found = pods.get(uid, key)
            self._stop_waiting(uid, found)
            if self.queue is not None:
                pod = self.cluster.pod(found)
                if pod is not None and pod_uid(pod) == uid and wants_node(pod):
                    # What came while it was assumed has not reached the queue, and may be what the attempt was aborted for.
                    self.queue.update(pod, (), self.seq, self.at)
                    # A nomination that the attempt made does not count any more; one from before it does.
                    self._renominate(pod)
                self.queue.abort(uid, self.at)

    def _renominate(self, pod: Pod) -> None:
        """The nomination in the pod's status counts again."""
        assert self.queue is not None
        self.queue.nominator.nominate(pod)
        promised = pod.status.nominated_node_name
        if promised and self.cluster.notes is not None:
            self.cluster.notes.append(promised_again(self.seq, promised))

    def _call_off(self, body: AttemptAborted) -> None:
        """A preemption is not coming: its victims stay, and who was to lose a nomination keeps it."""
        cluster = self.cluster
        for key in body.victims:
            pod = cluster.pod(key)
            eviction = None if pod is None else self.evictions.get(pod_uid(pod))
            if pod is None or eviction is None or eviction.attempt != body.attempt:
                continue
            self.evictions.end(eviction.uid)
            if pod.spec.node_name and not is_terminal(pod):
                cluster.cache.put_pod(PodInfo(pod))
            if cluster.notes is not None:
                cluster.notes.append(released(self.seq, key, body.nominated))
        if cluster.notes is not None:
            cluster.notes.append(called_off(self.seq, body.nominated))
            if body.cleared:
                cluster.notes.append(promised_again(self.seq, body.nominated))
        for key in body.cleared:
            pod = cluster.pod(key)
            if pod is not None and self.queue is not None:
                self.queue.nominator.nominate(pod)

    def _stop_waiting(self, uid: str, key: str) -> None:
        """The pod's placement, if it had one, is off."""
        self._permits.pop(uid, None)
        self._permit_states.pop(uid, None)
        self.cluster.release(uid, key)

    def _land(self, attempt: int, uid: str) -> None:
        """The pod's part of the attempt is over, and with it the pod's time in flight."""
        queue = self.cluster.queue
        if queue is not None:
            queue.done(uid)
        self._land_all(attempt, [uid])

    def _land_all(self, attempt: int, uids: Iterable[str]) -> None:
        """These pods' parts of the attempt are over. With the last of a group's the group goes on."""
        flight = self._flights.get(attempt)
        if flight is None:
            return
        for uid in uids:
            flight.pop(uid, None)
        if not flight:
            del self._flights[attempt]
            self.group_flights.finish(attempt)

    # --- consuming outcomes of groups -------------------------------------------------------------------------------

    def _group_rejected(self, record: Record, body: Unschedulable) -> None:
        attempt, key = body.attempt, record.key
        if body.same_as:
            _, last = self._rejected[key]
            body = replace(last, attempt=attempt)
        else:
            self._rejected[key] = (record.seq, body)
        self._land_all(attempt, self.group_flights.rejected(key, body))

    def _group_aborted(self, key: str, body: AttemptAborted) -> None:
        for uid, member in self.group_flights.aborted(key, body):
            self._stop_waiting(uid, member)
            pod = self.cluster.pod(member)
            if pod is not None and pod_uid(pod) == uid and self.queue is not None:
                self.queue.update(pod, (), self.seq, self.at)
                self._renominate(pod)
        self._flights.pop(body.attempt, None)
        self.group_flights.put_back(body.attempt)

    # --- configuration --------------------------------------------------------------------------------------------------

    def check(self, configuration: SchedulerConfiguration) -> None:
        """Raise what putting this configuration to work would raise: once it is a record, it is too late.

        The plugins are made for a core of their own, and nothing here changes.
        """
        Core(self.registry)._install(configuration)

    def _configure(self, configuration: SchedulerConfiguration) -> None:
        """Another configuration is in force from this record on. The pods keep their places and counters."""
        cluster, queue = self.cluster, self._install(configuration)
        schedulers = cluster.rules.schedulers
        if cluster.queue is not None:
            for pod in list(cluster.pending_pods()):
                if pod.spec.scheduler_name not in schedulers:
                    cluster.queue.delete(pod, self.at)
            queue.load_state(cluster.queue.dump_state(), self._pod_named)
        cluster.queue = queue
        cluster.update_groups(cluster.groups.names())
        for pod in cluster.pending_pods():
            if pod.spec.scheduler_name in schedulers and queue.get(pod_key(pod)) is None:
                queue.add(pod, self.at)
        # What rejected a pod under the old rules says nothing about the new ones.
        queue.on_event(WILDCARD, None, None, self.seq, self.at)

    def _install(self, configuration: SchedulerConfiguration) -> SchedulingQueue:
        """Build what the configuration asks for; the new queue is still empty."""
        for name in (name for profile in configuration.profiles for name in profile.plugin_names()):
            if self.registry.get(name) is None:
                raise PluginError(
                    name, f"record {self.seq} puts it to work, and there is no such plugin; install it"
                )
        cluster, schedulers = self.cluster, tuple(p.scheduler_name for p in configuration.profiles)
        check_behaviours(configuration.behaviours)
        self.configuration = configuration
        upstream = configuration.upstream
        cluster.rules = Rules(schedulers=schedulers, gangs=upstream, upstream=upstream)
        cluster.groups.settings = GroupSettings(
            gates=configuration.feature_gates, desired_count_wait=configuration.desired_count_wait
        )
        handles = {spec.scheduler_name: self._handle() for spec in configuration.profiles}
        profiles = build_profiles(configuration.profiles, self.registry, lambda p: handles[p.scheduler_name])
        queue = _make_queue(configuration, profiles)
        self.frameworks = {
            name: Framework(
                name,
                profile.points,
                handles[name],
                weights=profile.weights("score"),
                placement_weights=profile.weights("placementScore"),
                nominated=queue.nominator,
                fast=self._fast,
            )
            for name, profile in profiles.items()
        }
        for name, framework in self.frameworks.items():
            handles[name].preemption = Preemption(framework, self.evictions)
        return queue

    def _handle(self) -> FrameworkHandle:
        """Plugins of all profiles see the same cluster."""
        assert self.configuration is not None
        return FrameworkHandle(
            self.cluster.snapshot,
            self.cluster.listers,
            self.configuration.feature_gates,
            upstream=self.configuration.upstream,
            fallback_only_if_rejected_by_spread=self.configuration.fallback_only_if_rejected_by_spread,
            behaviours=self.configuration.behaviours,
        )

    def _pod_named(self, name: str) -> Pod:
        pod = self.cluster.pod(f"Pod/{name}")
        assert pod is not None, f"pod {name} is in the queue, but is not known"
        return pod

    # --- attempts ---------------------------------------------------------------------------------------------------

    def attempt(self, now: int) -> Decision | None:
        """Decide about one pod; None if there is none to decide about now. The decision counts from here on."""
        popped = self._pop(now)
        if popped is None:
            return None
        decision = self._decide(popped, now)
        self._adopt(decision.attempt, decision.outcomes)
        return decision

    def readopt(self, attempt: int, at: int, outcomes: Sequence[tuple[str, Body]]) -> None:
        """As `attempt`, but what it came to is known: it was recorded. Called where the log says the pop was."""
        popped = self._pop(at)
        key = outcomes[0][0]
        found = None if popped is None else _record_key_of(popped)
        if found != key or attempt != self.attempts:
            raise NotTheRecorded(
                f"attempt {attempt} after record {self.seq} was about {key}, and now attempt {self.attempts} is about {found}"
            )
        self._adopt(attempt, outcomes)

    def next_attempt_at(self, now: int) -> int | None:
        """When an attempt may have something to decide if nothing else happens; None: never, as things are."""
        if self.queue is None:
            return None
        deadlines = [permit.deadline for permit in self._permits.values() if self._can_end(permit)]
        backoff = self.queue.next_backoff_end()
        if backoff is not None:
            deadlines.append(backoff)
        return max(now, min(deadlines)) if deadlines else None

    def next_tick_at(self) -> int | None:
        """When a tick is worth a record; None while nobody waits for time."""
        if self.queue is None or self.configuration is None:
            return None
        due = [deadline for deadline in (self.queue.next_deadline(),) if deadline is not None]
        waited_for = self.queue.next_time_due()
        if waited_for is not None:
            due.append(max(waited_for, self.last_tick_at + self.configuration.time_event_period))
        return min(due) if due else None

    def _pop(self, now: int) -> AnyEntity | Permit | None:
        """Who is next: a waiting pod whose time is over, or the first of the queue."""
        queue = self.cluster.queue
        if queue is None:
            return None
        for permit in self._permits.values():
            if permit.deadline <= now and self._can_end(permit):
                self.attempts += 1
                for each in self._ending_with(permit):
                    each.is_ending = True
                return permit
        queue.flush_backoff(now)
        popped = queue.pop(self.seq, now)
        if popped is None:
            return None
        self.attempts += 1
        return popped

    def _ending_with(self, permit: Permit) -> list[Permit]:
        """The permit, and those of the members that wait with it: if one of them has waited too long, none is bound."""
        if not (permit.group and permit.plugins):
            return [permit]
        return [permit, *(p for p in self._permits.values() if p.group == permit.group and p is not permit)]

    def _can_end(self, permit: Permit) -> bool:
        return not permit.is_ending and not self.evictions.is_evicted(permit.uid)

    def _decide(self, popped: AnyEntity | Permit, now: int) -> Decision:
        cluster = self.cluster
        stamp = Stamp(self.attempts, self.seq, now, self.epoch)
        cluster.snapshot.refresh(cluster.cache)
        assert cluster.queue is not None
        if isinstance(popped, QueuedGroup):
            return self._decide_group(popped, stamp)
        if isinstance(popped, Permit):
            if popped.group and popped.plugins:
                return self._reject_barrier(popped, stamp)
            pod, key = self._tried(popped.key), popped.key
            result = self._finish(popped, PodInfo(pod), stamp)
        else:
            pod, key = popped.pod, f"Pod/{popped.key}"
            framework = self.frameworks[popped.profile]
            nominated = cluster.queue.nominator.node_of(pod)
            result = run_pod_cycle(
                framework, self._info_of(pod), key, stamp, waiting=popped, nominated_node=nominated
            )
        uid = pod_uid(pod)
        if result.state is not None:
            self._permit_states[uid] = result.state
        return Decision(
            stamp.attempt,
            stamp.observed,
            now,
            self.epoch,
            self._abbreviated(uid, pod, result),
            (
                Relies(key, uid, result.node, result.on, found_none=_found_none(popped, result))
                if result.plan is None
                else relies_on_plan(key, uid, result.plan, result.on),
            ),
        )

    def _reject_barrier(self, permit: Permit, stamp: Stamp) -> Decision:
        """One member of a group has waited too long: none of those that wait with it is bound."""
        outcomes: list[tuple[str, Body]] = []
        relies: list[Relies] = []
        for one in self._ending_with(permit):
            pod = self._tried(one.key)
            outcomes.extend(self._finish(one, PodInfo(pod), stamp).outcomes)
            relies.append(Relies(one.key, one.uid))
        return Decision(*stamp, tuple(outcomes), tuple(relies))

    def _decide_group(self, popped: QueuedGroup, stamp: Stamp) -> Decision:
        assert self.configuration is not None
        options = GroupOptions.of(self.configuration)
        result = self.group_flights.decide(popped.key, popped.popped, self.frameworks, stamp, options)
        self._permit_states.update(result.states)
        (key, body), *others = result.outcomes
        if isinstance(body, Unschedulable) and self._is_repeated(key, body):
            body = self._reference(key, body)
        return Decision(*stamp, ((key, body), *others), result.relies)

    def _is_repeated(self, key: str, body: Unschedulable) -> bool:
        """Whether the group was rejected so the last time, and its pods say so."""
        _, last = self._rejected.get(key, (0, None))
        pods = [self.cluster.pod(member) for member in body.members]
        return (
            last is not None
            and _same_rejection(body, last)
            and all(pod is not None and is_rejected_with(pod, body.message) for pod in pods)
        )

    def _reference(self, key: str, body: Unschedulable) -> Unschedulable:
        """To the last rejection, under which `_rejected` has it."""
        seq, _ = self._rejected[key]
        return Unschedulable(
            attempt=body.attempt, observed=body.observed, at=body.at, epoch=body.epoch, same_as=seq
        )

    def _finish(self, permit: Permit, info: PodInfo, stamp: Stamp) -> CycleResult:
        """A pod has waited too long."""
        framework = self.frameworks[info.pod.spec.scheduler_name]
        state = self._permit_states.get(permit.uid) or CycleState()
        plugin = permit.plugins[0]
        status = unschedulable(f"rejected due to timeout after waiting at plugin {plugin}").by(plugin)
        result = reject_waiting(framework, state, info, permit.key, stamp, permit.node, status)
        return replace(result, outcomes=with_fallback(result.outcomes, permit.key, permit.fallback))

    def _abbreviated(self, uid: str, pod: Pod, result: CycleResult) -> tuple[tuple[str, Body], ...]:
        """The outcomes without what the log says already: a rejection like the last one, a nomination that was not there."""
        if result.node:
            return result.outcomes  # It has its place.
        outcomes = []
        assert self.queue is not None
        for key, body in result.outcomes:
            if isinstance(body, Unschedulable):
                seq, last = self._rejected.get(uid, (0, None))
                if last is not None and _same_rejection(body, last) and is_rejected_with(pod, body.message):
                    body = Unschedulable(
                        attempt=body.attempt,
                        observed=body.observed,
                        at=body.at,
                        epoch=body.epoch,
                        same_as=seq,
                    )
            elif (
                isinstance(body, Nominated)
                and body.node == self.queue.nominator.node_of(pod)
                and not body.victims
                # While a pod waits for its permit the nominator does not know it; its status still tells of the nomination.
                and (body.node or not pod.status.nominated_node_name)
                and self._marks_of(pod) == preemption_marks(body.fallback)
            ):
                continue
            outcomes.append((key, body))
        return tuple(outcomes)

    def _marks_of(self, pod: Pod) -> tuple[int, ...]:
        """The spread constraints that stay fallen back as long as the pod's nomination stands."""
        entity = None if self.queue is None else self.queue.get(pod_key(pod))
        return () if entity is None else entity.fallback_constraints

    def _adopt(self, attempt: int, outcomes: Sequence[tuple[str, Body]]) -> None:
        """Let the attempt's outcomes count for those that come after it, before they are in the log."""
        cluster = self.cluster
        if cluster.notes is None:
            cluster.notes = Notes()
        flight = self._flights.setdefault(attempt, {})
        self._observed[attempt] = self.seq
        if is_group_key(outcomes[0][0]):
            for key, node in self.group_flights.adopt(attempt, outcomes):
                pod = cluster.pod(key)
                if pod is not None:
                    self._assume(pod, node)
            flight.update(dict.fromkeys(self.group_flights.members(attempt)))
        for key, body in outcomes:
            pod = cluster.pod(key)
            if pod is None:
                continue
            if isinstance(body, Scheduled | Waiting) or (isinstance(body, AttemptAborted) and body.node):
                self._assume(pod, body.node)
            elif isinstance(body, Nominated):
                self._nominate(pod, body.node, body.cleared)
            elif isinstance(body, AttemptAborted) and body.nominated:
                self._nominate(pod, body.nominated, body.cleared)
            elif isinstance(body, Evicted):
                self._evict(pod, key, body)
            if not isinstance(body, Evicted | EvictionRefused | Nominated):
                flight[pod_uid(pod)] = None
            if isinstance(body, AttemptAborted):
                others = map(cluster.pod, body.assignment)
                flight.update(dict.fromkeys(pod_uid(other) for other in others if other is not None))

    def _nominate(self, pod: Pod, node: str, cleared: Sequence[str]) -> None:
        """Filters count the pod on the node from now on, and those of lower priority not any more."""
        assert self.queue is not None
        for key in cleared:
            other = self.cluster.pod(key)
            if other is not None:
                self.queue.nominator.forget(other)
        self.queue.nominator.nominate(pod, node)

    def _evict(self, pod: Pod, key: str, body: Evicted) -> None:
        """The pod is going from now on, for every later attempt; its object says so when the record is in the log."""
        uid, at = pod_uid(pod), body.at
        self.evictions.decide(
            PendingEviction(uid, key, body.preemptor, body.attempt, at, tuple(body.budgets))
        )
        if pod.spec.node_name:
            self.cluster.cache.put_pod(PodInfo(preempted(pod, body.message, at)))

    def _info_of(self, pod: Pod) -> PodInfo:
        """What plugins read of the pod; deciding about it and placing it need the same."""
        info = self._info
        if info is None or info.pod is not pod:
            info = self._info = PodInfo(pod)
        return info

    def _assume(self, pod: Pod, node: str) -> None:
        cluster = self.cluster
        if not cluster.cache.is_assumed(pod_uid(pod)):
            cluster.cache.assume(self._info_of(pod), node)
        assert cluster.queue is not None
        cluster.queue.nominator.forget(pod)

    # --- the commit check -------------------------------------------------------------------------------------------

    def conflict(self, decision: Decision) -> Conflict | None:
        """What came after `decision.observed` and took away what the decision relies on.

        To be asked when everything that will be in the log before the decision has been consumed.
        """
        notes = self.cluster.notes
        if notes is None or notes.latest <= decision.observed:
            return None
        for relies in decision.relies:
            found = conflict(relies, notes.concerning(relies, decision.observed))
            if found is not None:
                return found
        return None

    def aborted(self, decision: Decision, found: Conflict) -> Decision:
        """What is appended in place of a decision that cannot be committed."""
        if is_group_key(decision.key):
            return aborted_group(decision, found)
        plan = next((b for _, b in decision.outcomes if isinstance(b, Nominated) and b.victims), None)
        body = AttemptAborted(
            attempt=decision.attempt,
            observed=decision.observed,
            at=decision.at,
            epoch=decision.epoch,
            reason=found.reason,
            conflict=found.seq,
            node=decision.relies[0].node if plan is None else "",
            nominated="" if plan is None else plan.node,
            victims=() if plan is None else plan.victims,
            cleared=() if plan is None else plan.cleared,
            # Of pods that wait together: where they are is known.
            assignment={relies.pod_key: "" for relies in decision.relies[1:]},
        )
        return replace(decision, outcomes=((decision.key, body),))

    # --- the state as a value -----------------------------------------------------------------------------------------

    def digest(self) -> str:
        """SHA-256 of `dump`: equal for states that are equal."""
        return hashlib.sha256(msgspec.msgpack.encode(self.dump(), order="deterministic")).hexdigest()

    def dump(self) -> dict[str, Any]:
        """All of the state. Only between attempts: what is in flight is not part of it."""
        objects = list(self.objects.items())
        found: dict[str, Any] = msgspec.to_builtins({**self.dump_without_objects(), "objects": objects})
        return found

    def dump_without_objects(self) -> dict[str, Any]:
        """The state beside the objects, which are immutable: a snapshot encodes them later, bit by bit.

        Other immutable values in it are as they are, too, for whoever encodes it or makes builtins of it. It costs a microsecond a pending pod.
        """
        assert not self._flights, "a state is dumped when no attempt is in flight"
        cluster = self.cluster
        return {
            "seq": self.seq,
            "at": self.at,
            "epoch": self.epoch,
            "attempts": self.attempts,
            "last_tick_at": self.last_tick_at,
            "configuration": msgspec.to_builtins(self.configuration),
            "cache": msgspec.to_builtins(cluster.cache.layout()),
            "queue": None if cluster.queue is None else cluster.queue.dump_state(),
            "permits": [msgspec.to_builtins(permit) for permit in self._permits.values()],
            "evictions": self.evictions.dump(),
            "rejected": [[uid, seq, body] for uid, (seq, body) in self._rejected.items()],
        }

    @classmethod
    def load(cls, registry: Registry, state: Mapping[str, Any], objects: dict[str, Object]) -> Core:
        """The core that has consumed the log up to where `dump` was taken. `objects` are its objects, in their order."""
        core = cls(registry)
        cluster = core.cluster
        cluster.seq, cluster.at = state["seq"], state["at"]
        core.epoch, core.attempts, core.last_tick_at = (
            state["epoch"],
            state["attempts"],
            state["last_tick_at"],
        )
        cluster.restore(objects, msgspec.convert(state["cache"], CacheLayout))
        if state["configuration"] is not None:
            queue = core._install(msgspec.convert(state["configuration"], SchedulerConfiguration))
            queue.load_state(state["queue"], core._pod_named)
            cluster.queue = queue
        permits = msgspec.convert(state["permits"], list[Permit])
        core._permits = {permit.uid: permit for permit in permits}
        core.evictions.load(state["evictions"])
        core._rejected = {
            uid: (seq, msgspec.convert(body, Unschedulable)) for uid, seq, body in state["rejected"]
        }
        return core


def _make_queue(configuration: SchedulerConfiguration, profiles: Mapping[str, Profile]) -> SchedulingQueue:
    (sort,) = next(iter(profiles.values())).points["queueSort"]
    assert isinstance(sort, QueueSortPlugin)
    return SchedulingQueue(
        {
            name: [*profile.plugins.values(), UnsupportedNeeds(profile.plugins.values())]
            for name, profile in profiles.items()
        },
        sort,
        QueueConfig(
            initial_backoff=configuration.pod_initial_backoff_seconds * SECOND,
            max_backoff=configuration.pod_max_backoff_seconds * SECOND,
            max_in_unschedulable=configuration.pod_max_in_unschedulable_pods_duration,
            queueing_hints=configuration.feature_gates.scheduler_queueing_hints,
            upstream=configuration.upstream,
        ),
        group_of=group_name,
    )


def _record_key_of(popped: AnyEntity | Permit) -> str:
    if isinstance(popped, Permit):
        return popped.key
    return record_key(popped.key) if isinstance(popped, QueuedGroup) else f"Pod/{popped.key}"


def _found_none(popped: AnyEntity | Permit, result: CycleResult) -> bool:
    """Whether nodes were looked at, and none would do."""
    return not isinstance(popped, Permit) and not result.node


def _same_rejection(a: Unschedulable, b: Unschedulable) -> bool:
    """Whether two rejections differ in nothing but their attempt."""
    return (
        a.message == b.message
        and a.plugins == b.plugins
        and a.pending == b.pending
        and a.rejections == b.rejections
        and a.nodes == b.nodes
        and a.blocked_by == b.blocked_by
        and a.fallback == b.fallback
        and a.explanation == b.explanation
        and a.members == b.members
    )

"""An attempt: who is next, and what becomes of it.

    pop ──► a waiting pod whose time is over ──► rejected, with those that wait together with it
        ├─► a pod that has its answers       ──► bound, with those that wait together with it
        ├─► a pod of the queue   ──► `tidelog.scheduler.pod_cycle`
        └─► a group of the queue ──► `tidelog.scheduler.groups.cycle`

A pop takes its pod out of the queue, and so changes the core's state; deciding only reads it. What a decision is to count for is done
afterwards (`tidelog.scheduler.adoption`).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidelog.eventlog.records import AttemptError, Body, Unschedulable
from tidelog.framework.behaviours import BINDINGS_NEED_NODES, FAILURES_STAND, GROUPS_SAY_AGAIN
from tidelog.framework.framework import Framework
from tidelog.framework.interface import Code, CycleState, Status, unschedulable
from tidelog.framework.node_info import PodInfo
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod
from tidelog.scheduler.assembly import Assembly
from tidelog.scheduler.cluster import Cluster
from tidelog.scheduler.decision import Decision, Relies, relies_on_plan
from tidelog.scheduler.fallback import with_fallback
from tidelog.scheduler.groups.cycle import GroupOptions
from tidelog.scheduler.groups.flights import GroupFlights
from tidelog.scheduler.groups.group import record_key
from tidelog.scheduler.permits import Permit, Permits, is_ready
from tidelog.scheduler.pod_cycle import CycleResult, PodCycle, Stamp
from tidelog.scheduler.rejections import Rejections

Popped = AnyEntity | Permit


class Attempts:
    """Pops and decides."""

    def __init__(
        self,
        cluster: Cluster,
        assembly: Assembly,
        permits: Permits,
        rejections: Rejections,
        group_flights: GroupFlights,
    ) -> None:
        self._cluster = cluster
        self._assembly = assembly
        self._permits = permits
        self._rejections = rejections
        self._group_flights = group_flights
        self._flushed: Sequence[AnyEntity] = ()
        """The entities that came out of backoff for the latest pop."""

    def next_at(self, now: int) -> int | None:
        """When there may be somebody to pop if nothing else happens; None: never, as things are."""
        due = (self._permits.next_deadline(), self._cluster.queue.next_backoff_end())
        first = min((at for at in due if at is not None), default=None)
        return None if first is None else max(now, first)

    def pop(self, now: int) -> Popped | None:
        """Take the next entity: a waiting pod whose time is over, or the first of the queue."""
        queue = self._cluster.queue
        permit = self._permits.take_due(now)
        if permit is not None:
            return permit
        self._flushed = queue.flush_backoff(now)
        return queue.pop(self._cluster.seq, now)

    def limit(self, popped: Popped, most: int | None) -> None:
        """Let its decision raise Paused after so many steps, if it is one that can be taken back; None: it takes as long as it takes."""
        can = self._cluster.queue.pops_early and not isinstance(popped, Permit)
        self._cluster.snapshot.effort.begin(record_key_of(popped), most if can else None)

    def take_back(self, popped: Popped) -> None:
        """Undo the latest pop: its decision was paused."""
        assert not isinstance(popped, Permit), "the end of a wait is not limited"
        self._cluster.snapshot.effort.pause()
        self._cluster.queue.take_back(popped, self._flushed)

    def decide(self, popped: Popped, stamp: Stamp) -> Decision:
        """Decide the popped entity. Nothing changes but the plugins' states that are kept for the end of waits."""
        self._cluster.snapshot.refresh(self._cluster.cache)
        if isinstance(popped, QueuedGroup):
            return self._decide_group(popped, stamp)
        if not isinstance(popped, Permit):
            return self._decide_pod(popped, stamp)
        if popped.is_reserved:
            return self._end_reserved(popped, stamp)
        return self._reject_late(popped, stamp)

    def _decide_pod(self, popped: QueuedPod, stamp: Stamp) -> Decision:
        pod, key = popped.pod, f"Pod/{popped.key}"
        queue = self._cluster.queue
        framework, info = self._assembly.frameworks[popped.profile], self._cluster.info_of(pod)
        cycle = PodCycle(framework, info, key, stamp, CycleState(stamp.at, popped, stamp.attempt))
        result = cycle.run(queue.nominator.node_of(pod))
        self._cluster.snapshot.effort.end()
        uid, outcomes = popped.uid, result.outcomes
        if result.state is not None:
            self._permits.keep_states({uid: result.state})
        if not result.node:
            outcomes = self._rejections.abbreviated(uid, pod, outcomes, queue)
        if result.plan is None:
            relies = Relies(key, uid, result.node, result.on, reads=result.reads, found_none=not result.node)
        else:
            relies = relies_on_plan(key, uid, result.plan, result.on, result.reads)
        return Decision(*stamp, outcomes, (relies,), result.preemption)

    def _decide_group(self, popped: QueuedGroup, stamp: Stamp) -> Decision:
        assembly = self._assembly
        assert assembly.configuration is not None
        options = GroupOptions.of(assembly.configuration)
        result = self._group_flights.decide(popped.key, popped.popped, assembly.frameworks, stamp, options)
        self._cluster.snapshot.effort.end()
        self._permits.keep_states(result.states)
        (key, body), *others = result.outcomes
        if isinstance(body, Unschedulable):
            group = self._cluster.objects.get(key) if self._behaves(GROUPS_SAY_AGAIN) else None
            body = self._rejections.abbreviated_group(key, body, group, self._cluster.pod)
        return Decision(*stamp, ((key, body), *others), result.relies)

    # --- the end of waits ---------------------------------------------------------------------------------------------

    def _end_reserved(self, popped: Permit, stamp: Stamp) -> Decision:
        """Everything that was written is answered; or something failed, or has taken too long, and then nobody is bound that waits with it."""
        together = self._permits.ending_with(popped)
        failure: Status | None
        if not all(map(is_ready, together)):
            failure = popped.failure or self._framework_of(popped).too_late(popped.plugins)
        elif gone := self._first_gone(together):
            failure = Status(Code.ERROR, (f'node "{gone}" not found',))
        else:
            results = [self._bind_reserved(permit, stamp) for permit in together]
            failure = next(
                (failed for result in results if (failed := _failure_of(result)) is not None), None
            )
        if failure is not None:
            results = [self._cycle_of(one, stamp).give_up(one.node, failure) for one in together]
        outcomes = tuple(outcome for result in results for outcome in result.outcomes)
        relies = tuple(Relies(p.key, p.uid, reads=self._reads_at_end(p, failure)) for p in together)
        return Decision(*stamp, outcomes, relies)

    def _reads_at_end(self, permit: Permit, failure: Status | None) -> frozenset[str]:
        """By what a pod's wait ends so."""
        found = {write.key for write in permit.writes}
        if failure is None:
            return frozenset(
                {*found, f"Node//{permit.node}"} if self._behaves(BINDINGS_NEED_NODES) else found
            )
        # Called off because an object has changed, a failure would count for nothing, and be met again at once, as often as the objects go on changing.
        return frozenset() if self._behaves(FAILURES_STAND) else frozenset(found)

    def _behaves(self, number: int) -> bool:
        configuration = self._assembly.configuration
        assert configuration is not None
        return configuration.behaves(number)

    def _first_gone(self, permits: Sequence[Permit]) -> str:
        """The first node that is not there any more of those on which these wait; empty if all are."""
        if not self._behaves(BINDINGS_NEED_NODES):
            return ""
        return next((permit.node for permit in permits if self._cluster.cache.get(permit.node) is None), "")

    def _bind_reserved(self, permit: Permit, stamp: Stamp) -> CycleResult:
        found = self._cycle_of(permit, stamp).bind_reserved(permit)
        return replace(found, outcomes=with_fallback(found.outcomes, permit.key, permit.fallback))

    def _cycle_of(self, permit: Permit, stamp: Stamp) -> PodCycle:
        """The rest of the cycle of a pod that waits."""
        pod, state = PodInfo(self._cluster.tried_pod(permit.key)), self._permits.state_of(permit)
        return PodCycle(self._framework_of(permit), pod, permit.key, stamp, state)

    def _framework_of(self, permit: Permit) -> Framework:
        return self._assembly.frameworks[self._cluster.tried_pod(permit.key).spec.scheduler_name]

    def _reject_late(self, permit: Permit, stamp: Stamp) -> Decision:
        """A pod has waited too long: of a group none of those that wait with it is bound."""
        together = self._permits.ending_with(permit)
        outcomes = tuple(outcome for one in together for outcome in self._timed_out(one, stamp))
        if not permit.group:
            pod, queue = self._cluster.tried_pod(permit.key), self._cluster.queue
            outcomes = self._rejections.abbreviated(permit.uid, pod, outcomes, queue)
        return Decision(*stamp, outcomes, tuple(Relies(one.key, one.uid) for one in together))

    def _timed_out(self, permit: Permit, stamp: Stamp) -> tuple[tuple[str, Body], ...]:
        """End the wait in a rejection: the plugins give back what they reserved, and the first one that waited is to blame."""
        plugin = permit.plugins[0]
        status = unschedulable(f"rejected due to timeout after waiting at plugin {plugin}").by(plugin)
        result = self._cycle_of(permit, stamp).reject_waiting(permit.node, status)
        return with_fallback(result.outcomes, permit.key, permit.fallback)


def _failure_of(result: CycleResult) -> Status | None:
    body = result.outcomes[0][1]
    return Status(Code.ERROR, (body.message,), body.plugin) if isinstance(body, AttemptError) else None


def record_key_of(popped: Popped) -> str:
    """The key of the records that this attempt is about."""
    if isinstance(popped, Permit):
        return popped.key
    return record_key(popped.key) if isinstance(popped, QueuedGroup) else f"Pod/{popped.key}"

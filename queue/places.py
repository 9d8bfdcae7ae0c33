"""The three places where an entity waits to be tried, and the moves between them.

    active          may be tried at once, in the order of the sort plugin
    backoff         may be tried when its backoff is over
    unschedulable   may be tried when an event helps it, or its gate opens

An entity is put in through one of two doors. `to_active` is for who should be tried now, `requeue` for who was judged.
Both lead past the gates: the PreEnqueue plugins, and for a group the rules for groups. Who is gated lands in the pool.
Gates are tried on the way into the active queue and, with `pop_from_backoff`, on the way into backoff; then they are not
tried again when the backoff ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.framework.events import Action, ClusterEvent, Resource
from tidelog.framework.interface import PreEnqueuePlugin
from tidelog.queue.backoff import BackoffPolicy, BackoffQueue
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod, Strategy, Where
from tidelog.queue.heap import Heap
from tidelog.queue.hints import QueueObserver
from tidelog.queue.unschedulable import UnschedulablePool

POPPED_FROM_BACKOFF = ClusterEvent(Resource.WILDCARD, Action.ALL, "PopFromBackoffQ")

ClosedGate = tuple[str, tuple[str, ...]]
"""The plugin that keeps the entity out, and why."""

GroupGate = Callable[[QueuedGroup, int], ClosedGate | None]
"""The rules that keep a whole group out of the queues, asked with the time; None lets it through."""


class Places:
    """Active queue, backoff queue and unschedulable pool."""

    __slots__ = (
        "_gates",
        "_group_gate",
        "_policy",
        "_pop_from_backoff",
        "active",
        "backoff",
        "observer",
        "pool",
    )

    def __init__(
        self,
        gates: Mapping[str, tuple[PreEnqueuePlugin, ...]],
        group_gate: GroupGate,
        policy: BackoffPolicy,
        *,
        max_stay: int,
        pop_from_backoff: bool,
        group_errors_wait: bool,
        time_due: Callable[[AnyEntity], int | None],
    ) -> None:
        self._gates = gates
        self._group_gate = group_gate
        self._policy = policy
        self._pop_from_backoff = pop_from_backoff
        self.active: Heap[AnyEntity] = Heap()
        self.backoff = BackoffQueue(policy, group_errors_wait=group_errors_wait)
        self.pool = UnschedulablePool(max_stay, time_due)
        self.observer: QueueObserver | None = None

    def to_active(
        self, entity: AnyEntity, now: int, cause: ClusterEvent, *, from_backoff: bool = False
    ) -> bool:
        """Let the entity, which is in no place, be tried; False if a gate is closed."""
        if not (from_backoff and self._pop_from_backoff) and self._is_gated(entity, now):
            self._park(entity, cause)
            return False
        entity.where = Where.ACTIVE
        if not entity.entered_active_at:
            entity.entered_active_at = now
        if isinstance(entity, QueuedGroup):
            for member in entity.members.values():
                member.entered_active_at = member.entered_active_at or now
        self.active.push(entity, entity.order)
        if self.observer is not None:
            self.observer.entered(entity, cause)
        return True

    def lets_in(self, group: QueuedGroup, newcomer: QueuedPod, now: int, cause: ClusterEvent) -> bool:
        """Whether a member may join a group in the active or backoff queue where it is: no gate is closed for the two."""
        if self._group_gate(group, now) is not None or self._is_pod_gated(newcomer):
            return False
        self.choose_side(group)
        if group.where is Where.ACTIVE:
            newcomer.entered_active_at = newcomer.entered_active_at or now
        if self.observer is not None:
            self.observer.entered(group, cause)
        return True

    def keeps_out(self, group: QueuedGroup, now: int, cause: ClusterEvent) -> bool:
        """Move a group behind all others in the pool if the rule that holds it there holds it still; False if it must be taken out and tried again."""
        if group.where is not Where.UNSCHEDULABLE or not group.gating_plugin:
            return False
        # Asked first: the end of a backoff is fixed now, and follows from how many members are known now.
        if self._policy.is_backing_off(group, now) and not self._pop_from_backoff:
            return False
        closed = self._group_gate(group, now)
        if closed is None or closed[0] != group.gating_plugin:
            return False
        group.close_gate(*closed)
        self.pool.park_again(group)
        if self.observer is not None:
            self.observer.entered(group, cause)
        return True

    def requeue(self, entity: AnyEntity, strategy: Strategy, now: int, cause: ClusterEvent) -> None:
        """Put the entity, which is in no place, where the verdict sends it."""
        if strategy is Strategy.SKIP:
            self._park(entity, cause)
        elif strategy is Strategy.AFTER_BACKOFF and self._policy.is_backing_off(entity, now):
            if self._pop_from_backoff and self._is_gated(entity, now):
                self._park(entity, cause)
            else:
                self._back_off(entity, cause)
        else:
            self.to_active(entity, now, cause)

    def pop(self) -> AnyEntity | None:
        """Take out who is to be tried next: the first of the active queue or, if it is empty, of the backoff queue."""
        entity = self.active.pop()
        if entity is None and self._pop_from_backoff:
            entity = self.backoff.pop_early()
            if entity is not None and self.observer is not None:
                entity.where = Where.ACTIVE
                self.observer.entered(entity, POPPED_FROM_BACKOFF)
        return entity

    def take_out(self, entity: AnyEntity) -> Where:
        """Remove the entity from where it is, and tell where that was."""
        was = entity.where
        if was is Where.ACTIVE:
            self.active.discard(entity)
        elif was is Where.BACKOFF:
            self.backoff.discard(entity)
        elif was is Where.UNSCHEDULABLE:
            self.pool.remove(entity)
        entity.where = Where.GONE
        return was

    def reorder(self, entity: AnyEntity, order: tuple[int, ...]) -> None:
        """The entity's order has changed; it stays in its place."""
        entity.order = order
        if entity.where is Where.ACTIVE:
            self.active.push(entity, order)
        self.choose_side(entity)

    def choose_side(self, entity: AnyEntity) -> None:
        """A group that is backing off may have rejectors now and have had none before, or the reverse."""
        if entity.where is Where.BACKOFF:
            self.backoff.discard(entity)
            self.backoff.put(entity)

    def waits_until(self, entity: AnyEntity) -> int | None:
        """When the entity will be tried or flushed though nothing happens; None where time alone does nothing."""
        if entity.where is Where.BACKOFF:
            return self._policy.free_at(self._policy.expiry(entity))
        if entity.where is Where.UNSCHEDULABLE:
            return self.pool.due_at(entity)
        return None

    def restore(self, entity: AnyEntity) -> None:
        """Put the entity where it says it is; the pool's must come in their order."""
        if entity.where is Where.ACTIVE:
            self.active.push(entity, entity.order)
        elif entity.where is Where.BACKOFF:
            self.backoff.put(entity)
        elif entity.where is Where.UNSCHEDULABLE:
            self.pool.file(entity)

    def _back_off(self, entity: AnyEntity, cause: ClusterEvent) -> None:
        entity.where = Where.BACKOFF
        self.backoff.put(entity)
        if self.observer is not None:
            self.observer.entered(entity, cause)

    def _park(self, entity: AnyEntity, cause: ClusterEvent) -> None:
        entity.where = Where.UNSCHEDULABLE
        self.pool.park(entity)
        if self.observer is not None:
            self.observer.entered(entity, cause)

    def _is_gated(self, entity: AnyEntity, now: int) -> bool:
        """Try the gates, and remember which one is closed."""
        if isinstance(entity, QueuedPod):
            return self._is_pod_gated(entity)
        closed = self._group_gate(entity, now)
        if closed is not None:
            entity.close_gate(*closed)
            return True
        entity.open_gate()
        # Every member's gates are tried, so that each knows its own; the first member that is gated speaks for the group.
        gated = [member for member in entity.members.values() if self._is_pod_gated(member)]
        if gated:
            first = min(gated, key=QueuedPod.member_order)
            entity.gating_plugin, entity.gating_reasons = first.gating_plugin, first.gating_reasons
            entity.was_flushed = False
        return entity.is_gated

    def _is_pod_gated(self, pod: QueuedPod) -> bool:
        """Try the pod's gates until one is closed: first the one that was closed last time, then in configured order."""
        gates = self._gates.get(pod.profile, ())
        if pod.gating_plugin:
            gates = tuple(sorted(gates, key=lambda gate: gate.name != pod.gating_plugin))
        for gate in gates:
            try:
                status = gate.pre_enqueue(pod.pod)
            except Exception as error:
                # A plugin's bug must not stop the queue; it closes the gate, and is shown as the reason.
                pod.close_gate(gate.name, (f"{type(error).__name__}: {error}",))
                return True
            if status is not None:
                pod.close_gate(gate.name, status.reasons)
                return True
        if pod.gating_plugin:
            if any(_gates_newcomers(gate) for gate in gates if gate.name == pod.gating_plugin):
                # Ungated, it is as good as new: how long it was gated is not how long it could not be placed.
                pod.first_rejected_at = {}
            pod.open_gate()
        return False


def _gates_newcomers(gate: PreEnqueuePlugin) -> bool:
    return bool(getattr(gate, "gates_newcomers", True))

"""Apply the scheduler's decisions to objects: a pod's node, conditions, nomination and end, a budget's charge.

Pure functions from one version of an object to the next. The log's outcomes say *that* something was decided; whoever folds the
log (the core, the table of objects) uses these to say what the object looks like afterwards, so that all agree to the byte.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVarTuple

from msgspec.structs import replace

from tidelog.api.conditions import merged
from tidelog.api.dicts import drop_oldest
from tidelog.api.objects import (
    AllocationResult,
    ClaimConsumer,
    Condition,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    ResourceClaim,
    pod_condition,
)
from tidelog.api.times import NANOS, format_time

POD_SCHEDULED = "PodScheduled"
DISRUPTION_TARGET = "DisruptionTarget"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"
GROUP_SCHEDULED = "PodGroupInitiallyScheduled"

GRACE_SECONDS = 30
"""Kubernetes' default grace period."""

SHARED = 8_192
"""Number of changed pods that are kept in case they are asked for again. When there are more an eighth goes. What is left are many times the decisions
that may wait to be durable, by which the table of objects may be behind the core. Three MiB."""

Ts = TypeVarTuple("Ts")


def _shared(change: Callable[[Pod, *Ts], Pod]) -> Callable[[Pod, *Ts], Pod]:
    """The second one who asks for the same change of the same pod gets what the first one got.

    The core and the table of objects fold the same log. So they have one copy of each pod between them, and it is made once.
    """
    known: dict[int, tuple[Pod, tuple[*Ts], Pod]] = {}
    """By the pod's identity, which nobody else can have as long as it is kept here."""

    @wraps(change)
    def changed(pod: Pod, *args: *Ts) -> Pod:
        found = known.pop(id(pod), None)
        if found is not None and found[1] == args:
            return found[2]
        new = change(pod, *args)
        known[id(pod)] = (pod, args, new)
        if len(known) > SHARED:
            drop_oldest(known, 1 + SHARED // 8)
        return new

    return changed


def with_pod_condition(pod: Pod, condition: Condition, at: int) -> Pod:
    """The pod with this condition in place of the one of its type; the same pod if it says so already."""
    conditions = merged(pod.status.conditions, condition, at)
    if conditions is pod.status.conditions:
        return pod
    return replace(pod, status=replace(pod.status, conditions=conditions))


def bound_to(pod: Pod, node: str, at: int) -> Pod:
    """Bound: it has its node, and no nomination any more."""
    return _bound(pod, node, at)


@_shared
def _bound(pod: Pod, node: str, at: int) -> Pod:
    conditions = pod.status.conditions
    conditions = merged(conditions, _PLACED, at) if conditions else _placed_since(at)
    return replace(
        pod,
        spec=replace(pod.spec, node_name=node),
        status=replace(pod.status, nominated_node_name="", conditions=conditions),
    )


_PLACED = Condition(type=POD_SCHEDULED, status="True")


@lru_cache(maxsize=256)
def _placed_since(at: int) -> tuple[Condition, ...]:
    """The conditions of pods that had none: one and the same tuple for those that were placed together."""
    return merged((), _PLACED, at)


def rejected(pod: Pod, message: str, at: int, *, reason: str = UNSCHEDULABLE) -> Pod:
    """An attempt to place it has failed."""
    return _rejected(pod, message, at, reason)


@_shared
def _rejected(pod: Pod, message: str, at: int, reason: str) -> Pod:
    condition = Condition(type=POD_SCHEDULED, status="False", reason=reason, message=message)
    return with_pod_condition(pod, condition, at)


def is_rejected_with(pod: Pod, message: str) -> bool:
    """Whether the pod says already that it was rejected for this reason."""
    condition = pod_condition(pod, POD_SCHEDULED)
    return (
        condition is not None
        and condition.status == "False"
        and condition.reason == UNSCHEDULABLE
        and condition.message == message
    )


def is_terminal(pod: Pod) -> bool:
    """The pod has run; for scheduling it is gone, its place free."""
    return pod.status.phase in ("Succeeded", "Failed")


def has_place(pod: Pod) -> bool:
    """Return whether the pod runs on a node or is nominated to one; other pods take up no room anywhere."""
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def nominated_to(pod: Pod, node: str) -> Pod:
    """Room is being made for it on this node; an empty name takes the nomination back."""
    if pod.status.nominated_node_name == node:
        return pod
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


def preempted(pod: Pod, message: str, at: int) -> Pod:
    """It has to go, to make room for a pod of higher priority, when its grace period is over at the latest."""
    condition = Condition(
        type=DISRUPTION_TARGET, status="True", reason=PREEMPTION_BY_SCHEDULER, message=message
    )
    pod = with_pod_condition(pod, condition, at)
    if pod.metadata.deletion_timestamp:
        return pod
    grace = pod.spec.termination_grace_period_seconds
    grace = GRACE_SECONDS if grace is None else grace
    due = format_time(at + grace * NANOS)
    return replace(
        pod, metadata=replace(pod.metadata, deletion_timestamp=due, deletion_grace_period_seconds=grace)
    )


def with_group_condition(group: PodGroup, status: str, reason: str, message: str, at: int) -> PodGroup:
    """The group with this PodGroupInitiallyScheduled. True is final: a group that was placed once does not become unplaced."""
    if any(c.type == GROUP_SCHEDULED and c.status == "True" for c in group.status.conditions):
        return group
    condition = Condition(type=GROUP_SCHEDULED, status=status, reason=reason, message=message)
    conditions = merged(group.status.conditions, condition, at)
    if conditions is group.status.conditions:
        return group
    return replace(group, status=replace(group.status, conditions=conditions))


def allocated(claim: ResourceClaim, result: AllocationResult, group: str) -> ResourceClaim:
    """The claim with these devices, for the whole group of this record key: one entry however many pods share it."""
    kind, _, name = group.partition("/")
    resource = "podgroups" if kind == "PodGroup" else "workloads"
    consumer = ClaimConsumer(
        api_group="scheduling.k8s.io", resource=resource, name=name.partition("/")[2], uid=""
    )
    users = claim.status.reserved_for
    users = users if consumer in users else (*users, consumer)
    return replace(claim, status=replace(claim.status, allocation=result, reserved_for=users))


def is_preempted(pod: Pod) -> bool:
    """Terminating because the scheduler preempted it."""
    condition = pod_condition(pod, DISRUPTION_TARGET)
    return (
        bool(pod.metadata.deletion_timestamp)
        and condition is not None
        and condition.status == "True"
        and condition.reason == PREEMPTION_BY_SCHEDULER
    )


def charged(budget: PodDisruptionBudget, pod: str, at: int) -> PodDisruptionBudget:
    """As the eviction endpoint does it: one disruption less is allowed, and the pod's name says who took it."""
    status = budget.status
    if pod in status.disrupted_pods:
        return budget
    status = replace(
        status,
        disruptions_allowed=max(status.disruptions_allowed - 1, 0),
        disrupted_pods={**status.disrupted_pods, pod: format_time(at)},
    )
    return replace(budget, status=status)

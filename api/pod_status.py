"""What the scheduler's decisions do to a pod's object: its node, its conditions, its nomination, its end.

Pure functions from one version of a pod to the next. The log's outcomes say *that* something was decided; whoever folds the log
(the core, the table of objects) uses these to say what the pod looks like afterwards, so that all agree to the byte.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from tidelog.api.objects import Condition, Node, Pod, pod_condition
from tidelog.api.times import format_time

POD_SCHEDULED = "PodScheduled"
DISRUPTION_TARGET = "DisruptionTarget"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
SCHEDULING_GATED = "SchedulingGated"
PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"

WithConditions = TypeVar("WithConditions", Pod, Node)


def with_condition(obj: WithConditions, condition: Condition, at: int) -> WithConditions:
    """The object with this condition in place of the one of its type; the same object if that says the same already.

    The transition time moves only with the status, as everywhere in Kubernetes.
    """
    old = next((c for c in obj.status.conditions if c.type == condition.type), None)
    if old is not None and old.status == condition.status:
        condition = replace(condition, last_transition_time=old.last_transition_time)
    elif not condition.last_transition_time:
        condition = replace(condition, last_transition_time=format_time(at))
    if condition == old:
        return obj
    if old is None:
        conditions = (*obj.status.conditions, condition)
    else:
        conditions = tuple(condition if c is old else c for c in obj.status.conditions)
    return replace(obj, status=replace(obj.status, conditions=conditions))


def bound_to(pod: Pod, node: str, at: int) -> Pod:
    """Bound: it has its node, and no nomination any more."""
    pod = replace(
        pod, spec=replace(pod.spec, node_name=node), status=replace(pod.status, nominated_node_name="")
    )
    return with_condition(pod, Condition(type=POD_SCHEDULED, status="True"), at)


def rejected(pod: Pod, message: str, at: int, *, reason: str = UNSCHEDULABLE) -> Pod:
    """An attempt to place it has failed."""
    return with_condition(
        pod, Condition(type=POD_SCHEDULED, status="False", reason=reason, message=message), at
    )


def nominated_to(pod: Pod, node: str) -> Pod:
    """Room is being made for it on this node; an empty name takes the nomination back."""
    if pod.status.nominated_node_name == node:
        return pod
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


def preempted(pod: Pod, message: str, at: int) -> Pod:
    """It has to go, to make room for a pod of higher priority. Marking a pod that is going already changes only its condition."""
    pod = with_condition(
        pod,
        Condition(type=DISRUPTION_TARGET, status="True", reason=PREEMPTION_BY_SCHEDULER, message=message),
        at,
    )
    if pod.metadata.deletion_timestamp:
        return pod
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp=format_time(at)))


def is_preempted(pod: Pod) -> bool:
    """Terminating because the scheduler preempted it."""
    condition = pod_condition(pod, DISRUPTION_TARGET)
    return (
        bool(pod.metadata.deletion_timestamp)
        and condition is not None
        and condition.status == "True"
        and condition.reason == PREEMPTION_BY_SCHEDULER
    )

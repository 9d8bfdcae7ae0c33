"""Hints for a pod whose preemption a disruption budget has forbidden (KEP-4664).

kube-scheduler has no event for budgets, and PostFilter plugins are never among those that rejected a pod. Here the budgets that stood in
the way are remembered with the rejection (`WaitingPod.blocked_by`), and DefaultPreemption counts as a rejector then. A pod that was not
kept back by a budget is none of its business: the plugin that found no room knows what gives it some.
"""

from __future__ import annotations

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Pod, PodDisruptionBudget
from tidelog.api.pod_status import is_preempted
from tidelog.framework.disruption_budgets import is_observed, is_ready
from tidelog.framework.events import Hint, WaitingPod


def skip(waiting: WaitingPod, old: Pod, new: Pod | None) -> Hint:
    """The end of a pod makes room, but whoever missed the room knows better how much."""
    return Hint.SKIP


def pod_deleted(waiting: WaitingPod, old: Pod, new: Pod | None) -> Hint:
    """The end of a pod that was evicted takes back its charge, if its budget's status does not say so anyway."""
    return _queue_if(is_preempted(old) and _is_near_blocking_budget(waiting, old))


def budget_changed(waiting: WaitingPod, old: PodDisruptionBudget, new: PodDisruptionBudget | None) -> Hint:
    """A budget that stood in the way is gone, allows more, or is about other pods."""
    if object_key(old) not in waiting.blocked_by:
        return Hint.SKIP
    return _queue_if(new is None or _forbids_less(old, new))


def pod_changed(waiting: WaitingPod, old: Pod, new: Pod) -> Hint:
    """A pod that may have stood in the way is no longer selected by its budget, or counts as unavailable anyway."""
    if not _is_near_blocking_budget(waiting, new):
        return Hint.SKIP
    if old.metadata.labels != new.metadata.labels or is_ready(old) != is_ready(new):
        return Hint.QUEUE
    return _queue_if(bool(new.metadata.deletion_timestamp) and not old.metadata.deletion_timestamp)


def _forbids_less(old: PodDisruptionBudget, new: PodDisruptionBudget) -> bool:
    before, after = old.status, new.status
    if after.disruptions_allowed > before.disruptions_allowed or (is_observed(new) and not is_observed(old)):
        return True
    if (old.spec.selector, old.spec.unhealthy_pod_eviction_policy) != (
        new.spec.selector,
        new.spec.unhealthy_pod_eviction_policy,
    ):
        return True
    if after.current_healthy >= after.desired_healthy > 0 > before.current_healthy - before.desired_healthy:
        return True  # Pods that are not Ready may go now.
    # With a charge, a name comes: that pod is going, and nothing is allowed that was not.
    paid = after.disrupted_pods.keys() - before.disrupted_pods.keys()
    return bool(paid) and after.disruptions_allowed == before.disruptions_allowed


def _is_near_blocking_budget(waiting: WaitingPod, pod: Pod) -> bool:
    """The pod is in the namespace of a budget that stood in the way."""
    place = f"PodDisruptionBudget/{pod.metadata.namespace}/"
    return any(key.startswith(place) for key in waiting.blocked_by)


def _queue_if(helps: bool) -> Hint:
    return Hint.QUEUE if helps else Hint.SKIP

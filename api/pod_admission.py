"""Admission of pods: defaults, priority, group, first status, and their deletion, which a node has to finish."""

from __future__ import annotations

from msgspec.structs import replace

from tidelog.api.cluster import Admission, Stamp
from tidelog.api.conditions import with_condition
from tidelog.api.defaulting import default_pod, without_min_domains
from tidelog.api.features import FeatureGates
from tidelog.api.objects import ObjectMeta, Pod, PodDisruptionBudget, PodSpec, pod_condition
from tidelog.api.priorities import check_group, with_priority
from tidelog.api.selectors import SelectorError, label_matcher
from tidelog.api.times import NANOS, format_time

DEFAULT_GRACE_SECONDS = 30
GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"


def prepare_pod(pod: Pod, old: Pod | None, admission: Admission) -> Pod:
    """Fill in what the API server would, and what the stored pod has and its manifest leaves out."""
    gates, said = admission.gates, admission.warnings
    if old is not None:
        pod = replace(pod, spec=_carried(pod.spec, old.spec))
    pod = _without_gated_fields(pod, old, gates, said)
    pod = default_pod(pod, old)
    if old is None:
        if not pod.metadata.uid or pod.spec.priority is None:
            pod = replace(pod, spec=with_priority(pod.spec, admission.cluster, gates, admission.errors))
        check_group(pod, admission)
        pod = _with_first_status(pod, admission.stamp)
    if old is None or old.metadata.labels != pod.metadata.labels:
        _warn_of_budgets(pod, admission)
    return pod


def _carried(spec: PodSpec, old: PodSpec) -> PodSpec:
    """Carry over fields that a manifest leaves out because the scheduler or admission wrote them."""
    given = spec.allow_disruption_by_priority_greater_than_or_equal
    threshold = old.allow_disruption_by_priority_greater_than_or_equal if given is None else given
    return replace(
        spec,
        node_name=spec.node_name or old.node_name,
        scheduler_name=spec.scheduler_name or old.scheduler_name,
        priority_class_name=spec.priority_class_name or old.priority_class_name,
        priority=old.priority if spec.priority is None else spec.priority,
        preemption_policy=spec.preemption_policy or old.preemption_policy,
        allow_disruption_by_priority_greater_than_or_equal=threshold,
    )


def _without_gated_fields(pod: Pod, old: Pod | None, gates: FeatureGates, said: list[str]) -> Pod:
    """Drop what disabled gates drop, unless the stored pod has it."""
    spec = pod.spec
    if not gates.min_domains_in_pod_topology_spread and _has_min_domains(spec):
        if old is None or not _has_min_domains(old.spec):
            spec = without_min_domains(spec)
            said.append(
                "spec.topologySpreadConstraints: minDomains dropped: feature gate MinDomainsInPodTopologySpread is off"
            )
    if not gates.disruption_policy_in_priority_class and old is None:
        spec = replace(spec, allow_disruption_by_priority_greater_than_or_equal=None)
    return pod if spec is pod.spec else replace(pod, spec=spec)


def _has_min_domains(spec: PodSpec) -> bool:
    return any(constraint.min_domains is not None for constraint in spec.topology_spread_constraints)


def _with_first_status(pod: Pod, stamp: Stamp) -> Pod:
    status = pod.status
    conditions = status.conditions
    if pod.spec.scheduling_gates and pod_condition(pod, "PodScheduled") is None:
        conditions = with_condition(
            conditions, "PodScheduled", "False", "SchedulingGated", GATED_MESSAGE, stamp.at
        )
    return replace(pod, status=replace(status, phase=status.phase or "Pending", conditions=conditions))


def _warn_of_budgets(pod: Pod, admission: Admission) -> None:
    """The eviction API of Kubernetes fails for a pod under two budgets."""
    matching = []
    for budget in admission.cluster.of_kind("PodDisruptionBudget", pod.metadata.namespace):
        assert isinstance(budget, PodDisruptionBudget)
        try:
            if label_matcher(budget.spec.selector)(pod.metadata.labels):
                matching.append(budget.metadata.name)
        except SelectorError:
            continue
    if len(matching) > 1:
        admission.warnings.append(
            f"pod {pod.metadata.name} is under {len(matching)} disruption budgets ({', '.join(sorted(matching))}); "
            "an eviction is charged to all of them"
        )


# --- deletion -----------------------------------------------------------------------------------------------------------


def terminating_pod(pod: Pod, grace: int | None, stamp: Stamp) -> Pod | None:
    """Return what remains of a pod that is deleted: itself with a deletionTimestamp while a node runs it, else nothing.

    The time is `grace` seconds from now (None: what its spec says); deleting it again can only shorten that.
    """
    if not _runs_somewhere(pod):
        return None
    seconds = _grace_of(pod, grace)
    if seconds == 0:
        return None
    meta = pod.metadata
    if meta.deletion_timestamp and seconds >= (meta.deletion_grace_period_seconds or 0):
        return pod
    return replace(pod, metadata=_terminating(meta, seconds, stamp))


def _runs_somewhere(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase not in ("Succeeded", "Failed")


def _grace_of(pod: Pod, grace: int | None) -> int:
    seconds = pod.spec.termination_grace_period_seconds if grace is None else grace
    if seconds is None:
        return DEFAULT_GRACE_SECONDS
    return seconds if seconds >= 0 else 1


def _terminating(meta: ObjectMeta, seconds: int, stamp: Stamp) -> ObjectMeta:
    return replace(
        meta,
        deletion_timestamp=format_time(stamp.at + seconds * NANOS),
        deletion_grace_period_seconds=seconds,
        resource_version=str(stamp.seq),
    )

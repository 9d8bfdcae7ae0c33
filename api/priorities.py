"""Priorities and groups at admission: what a pod gets from its priority class, and what it must have in common with its group."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from tidelog.api.cluster import Admission, Cluster, group_of
from tidelog.api.features import FeatureGates
from tidelog.api.objects import Pod, PodGroup, PodSpec, PriorityClass, Workload, WorkloadPodGroup
from tidelog.api.validation.field_errors import ErrorList

DEFAULT_POLICY = "PreemptLowerPriority"
_COMPUTED = "must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name"


def with_priority(spec: PodSpec, cluster: Cluster, gates: FeatureGates, errors: ErrorList) -> PodSpec:
    """Priority, preemption policy and KEP-4664's threshold, from the class; what the pod brings itself must agree."""
    name = spec.priority_class_name
    found = _class(cluster, name) if name else _default_class(cluster)
    if name and found is None:
        errors.forbidden("spec.priorityClassName", f"no PriorityClass with name {name} was found")
        return spec
    priority = found.value if found else 0
    policy = (found.preemption_policy if found else None) or DEFAULT_POLICY
    threshold = None
    if found is not None and gates.disruption_policy_in_priority_class:
        threshold = found.allow_disruption_by_priority_greater_than_or_equal
    given = spec.allow_disruption_by_priority_greater_than_or_equal
    if spec.priority not in (None, priority):
        rule = f"the integer value of priority ({spec.priority}) {_COMPUTED.format(priority)}"
        errors.forbidden("spec.priority", rule)
    if spec.preemption_policy not in (None, policy):
        rule = f"the string value of PreemptionPolicy ({spec.preemption_policy}) {_COMPUTED.format(policy)}"
        errors.forbidden("spec.preemptionPolicy", rule)
    if given not in (None, threshold):
        field = "allowDisruptionByPriorityGreaterThanOrEqual"
        computed = _COMPUTED.format("none" if threshold is None else threshold)
        errors.forbidden(f"spec.{field}", f"the integer value of {field} ({given}) {computed}")
    return replace(
        spec,
        priority_class_name=found.metadata.name if found else "",
        priority=priority,
        preemption_policy=policy,
        allow_disruption_by_priority_greater_than_or_equal=threshold,
    )


def _class(cluster: Cluster, name: str) -> PriorityClass | None:
    found = cluster.get("PriorityClass", "", name)
    return found if isinstance(found, PriorityClass) else None


def _default_class(cluster: Cluster) -> PriorityClass | None:
    """The global default; of several, which only a recording can bring, the one of the lowest value."""
    defaults = [
        found
        for found in cluster.of_kind("PriorityClass")
        if isinstance(found, PriorityClass) and found.global_default
    ]
    return min(defaults, key=lambda found: (found.value, found.metadata.name), default=None)


class _Group(NamedTuple):
    """A pod's group, as far as it is known."""

    title: str
    priority: int | None
    policy: str | None


def check_group(pod: Pod, admission: Admission) -> None:
    """A member must be like its group, where that is known; kube-scheduler finds out at every attempt."""
    cluster, errors = admission.cluster, admission.errors
    group = _known_group(pod, cluster, admission.warnings)
    if group is None:
        return
    spec, (title, priority, policy) = pod.spec, group
    other = cluster.member(pod.metadata.namespace, group_of(pod))
    if other is not None:
        priority = other.spec.priority if priority is None else priority
        policy = policy or other.spec.preemption_policy
        _same(errors, "schedulerName", spec.scheduler_name, other.spec.scheduler_name, title)
    if priority is not None:
        _same(errors, "priority", spec.priority, priority, title)
    if policy is not None:
        _same(errors, "preemptionPolicy", spec.preemption_policy or DEFAULT_POLICY, policy, title)


def _known_group(pod: Pod, cluster: Cluster, said: list[str]) -> _Group | None:
    namespace, spec = pod.metadata.namespace, pod.spec
    if spec.scheduling_group is not None:
        name = spec.scheduling_group.pod_group_name
        group = cluster.get("PodGroup", namespace, name)
        if not isinstance(group, PodGroup):
            return None
        return _Group(f"pod group {name}", group.spec.priority, group.spec.preemption_policy)
    if spec.workload_ref is None:
        return None
    name, part = spec.workload_ref.name, spec.workload_ref.pod_group
    workload = cluster.get("Workload", namespace, name)
    if not isinstance(workload, Workload):
        return None
    found = _workload_group(workload, part)
    if found is None:
        said.append(f"spec.workloadRef.podGroup: workload {name} has no group {part}")
        return None
    return _Group(f"group {part} of workload {name}", found.priority, None)


def _workload_group(workload: Workload, name: str) -> WorkloadPodGroup | None:
    return next((group for group in workload.spec.pod_groups if group.name == name), None)


def _same(errors: ErrorList, field: str, value: object, expected: object, title: str) -> None:
    if value != expected:
        errors.invalid(f"spec.{field}", value, f"must be {expected}, like all of {title}")


# --- classes and groups -------------------------------------------------------------------------------------------------


def prepare_class(found: PriorityClass, old: PriorityClass | None, admission: Admission) -> PriorityClass:
    """Drop a threshold that its gate drops, fill in the policy, and refuse a second default."""
    threshold = found.allow_disruption_by_priority_greater_than_or_equal
    stored = old.allow_disruption_by_priority_greater_than_or_equal if old else None
    if threshold is not None and stored is None and not admission.gates.disruption_policy_in_priority_class:
        found = replace(found, allow_disruption_by_priority_greater_than_or_equal=None)
        admission.warnings.append(
            "allowDisruptionByPriorityGreaterThanOrEqual dropped: feature gate DisruptionPolicyInPriorityClass is off"
        )
    if found.global_default:
        for other in admission.cluster.of_kind("PriorityClass"):
            assert isinstance(other, PriorityClass)
            if other.global_default and other.metadata.name != found.metadata.name:
                rule = f"PriorityClass {other.metadata.name} is already marked as default. Only one default can exist"
                admission.errors.forbidden("globalDefault", rule)
    policy = found.preemption_policy or (old.preemption_policy if old else None) or DEFAULT_POLICY
    return replace(found, preemption_policy=policy)


def prepare_group(group: PodGroup, old: PodGroup | None, admission: Admission) -> PodGroup:
    """Groups get their priority as pods do."""
    cluster, errors = admission.cluster, admission.errors
    spec = group.spec
    if old is not None:
        spec = replace(
            spec,
            priority_class_name=spec.priority_class_name or old.spec.priority_class_name,
            priority=old.spec.priority if spec.priority is None else spec.priority,
        )
    elif not group.metadata.uid or spec.priority is None:
        name = spec.priority_class_name
        found = _class(cluster, name) if name else _default_class(cluster)
        if name and found is None:
            errors.forbidden("spec.priorityClassName", f"no PriorityClass with name {name} was found")
            return group
        computed = found.value if found else 0
        if name and spec.priority not in (None, computed):
            rule = f"the integer value of priority ({spec.priority}) {_COMPUTED.format(computed)}"
            errors.forbidden("spec.priority", rule.replace("pod spec", "pod group spec"))
        given = spec.priority is not None and not name
        spec = replace(
            spec,
            priority_class_name="" if given else (found.metadata.name if found else ""),
            priority=spec.priority if given else computed,
        )
    return group if spec == group.spec else replace(group, spec=spec)


def prepare_workload(workload: Workload, _old: Workload | None, admission: Admission) -> Workload:
    """Groups of a workload that name a class have its priority."""
    groups = []
    for index, group in enumerate(workload.spec.pod_groups):
        if group.priority_class_name and group.priority is None:
            found = _class(admission.cluster, group.priority_class_name)
            if found is None:
                rule = f"no PriorityClass with name {group.priority_class_name} was found"
                admission.errors.forbidden(f"spec.podGroups[{index}].priorityClassName", rule)
            else:
                group = replace(group, priority=found.value)
        groups.append(group)
    if tuple(groups) == workload.spec.pod_groups:
        return workload
    return replace(workload, spec=replace(workload.spec, pod_groups=tuple(groups)))

"""The rules of pod groups and workloads."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tidelog.api.features import FeatureGates
from tidelog.api.objects import (
    GroupPolicy,
    GroupSchedulingConstraints,
    PodGroup,
    PodGroupSpec,
    PodResourceClaim,
    Workload,
    WorkloadPodGroup,
)
from tidelog.api.validation import common as validate_common
from tidelog.api.validation import names
from tidelog.api.validation.check import Check
from tidelog.api.validation.cluster import USER_PRIORITY_MAX
from tidelog.api.validation.field_errors import IMMUTABLE, POSITIVE, ErrorList
from tidelog.api.validation.pod import preemption_policy, resource_claims

GROUPS_MAX = 8
CLAIMS_MAX = 4
COMPOSITE = "composite pod groups are not supported"


def _gate_off(gate: str) -> str:
    return f"may not be set while the feature gate {gate} is off"


def validate_pod_group(group: PodGroup, errors: Check) -> None:
    """Everything that can be said of a group alone; what the stored one has already, gates do not refuse."""
    spec, gates, old = group.spec, errors.gates, errors.old
    before = old.spec if old else PodGroupSpec()
    _policy(errors, spec.scheduling_policy, spec.policy, "spec", gates, _desired(before))
    _constraints(
        errors,
        spec.scheduling_constraints,
        before.scheduling_constraints,
        "spec.schedulingConstraints",
        gates,
        errors.constraints_max,
    )
    _claims(errors, spec.resource_claims, "spec.resourceClaims")
    mode = spec.disruption_mode
    if mode is not None and (mode.single is None) == (mode.all is None):
        rule = "exactly one of `single`, `all` is required"
        errors.invalid("spec.disruptionMode", None, rule)
    if mode is not None:
        validate_common.raw(errors, [mode.single, mode.all], "spec.disruptionMode")
    _priority(errors, spec.priority, spec.priority_class_name, "spec")
    if spec.preemption_policy is not None:
        preemption_policy(errors, spec.preemption_policy, "spec.preemptionPolicy")
    if spec.parent_composite_pod_group_name:
        errors.forbidden("spec.parentCompositePodGroupName", COMPOSITE)
    validate_common.conditions(errors, group.status.conditions, "status.conditions")


def validate_workload(workload: Workload, errors: Check) -> None:
    """Groups and, as far as they are read at all, templates."""
    spec, old = workload.spec, errors.old
    if not spec.pod_groups and not spec.pod_group_templates:
        errors.required("spec.podGroups", "must have at least one item")
    before = {group.name: group for group in old.spec.pod_groups} if old else {}
    for field, groups in (
        ("podGroups", spec.pod_groups),
        ("podGroupTemplates", spec.pod_group_templates),
    ):
        path = f"spec.{field}"
        if len(groups) > GROUPS_MAX:
            errors.too_many(path, len(groups), GROUPS_MAX)
        seen: set[str] = set()
        for index, group in enumerate(groups):
            _workload_group(
                errors,
                group,
                f"{path}[{index}]",
                errors.gates,
                before.get(group.name, WorkloadPodGroup()),
                errors.constraints_max,
            )
            errors.unique(f"{path}[{index}].name", group.name, seen)


def _workload_group(
    errors: ErrorList,
    group: WorkloadPodGroup,
    path: str,
    gates: FeatureGates,
    before: WorkloadPodGroup,
    constraints_max: int,
) -> None:
    if group.name:
        errors.invalid_each(f"{path}.name", group.name, names.dns_label(group.name))
    else:
        errors.required(f"{path}.name")
    _policy(errors, group.scheduling_policy, group.policy, path, gates, _desired(before))
    _constraints(
        errors,
        group.scheduling_constraints,
        before.scheduling_constraints,
        f"{path}.schedulingConstraints",
        gates,
        constraints_max,
    )
    _claims(errors, group.resource_claims, f"{path}.resourceClaims")
    _priority(errors, group.priority, group.priority_class_name, path)


def _desired(group: PodGroupSpec | WorkloadPodGroup) -> int | None:
    policy = group.scheduling_policy or group.policy
    return policy.basic.desired_count if policy and policy.basic else None


def _policy(
    errors: ErrorList,
    upstream: GroupPolicy | None,
    kep: GroupPolicy | None,
    path: str,
    gates: FeatureGates,
    stored_desired: int | None,
) -> None:
    """The policy under either of its two names."""
    field = "schedulingPolicy" if upstream is not None or kep is None else "policy"
    where, policy = f"{path}.{field}", upstream or kep
    if upstream is not None and kep is not None:
        errors.invalid(f"{path}.policy", None, "may not be set together with schedulingPolicy")
    if policy is None or (policy.basic is None and policy.gang is None):
        errors.invalid(where, "", "must specify one of: `basic`, `gang`")
        return
    if policy.basic is not None and policy.gang is not None:
        rule = "exactly one of `basic`, `gang` is required, but multiple fields are set"
        errors.invalid(where, "{`basic`, `gang`}", rule)
    if policy.gang is not None and policy.gang.min_count < 1:
        if policy.gang.min_count == 0:
            errors.required(f"{where}.gang.minCount")
        else:
            errors.invalid(f"{where}.gang.minCount", policy.gang.min_count, POSITIVE)
    if policy.gang is not None:
        _desired_count(
            errors,
            policy.gang.desired_count,
            f"{where}.gang.desiredCount",
            gates,
            stored_desired,
            policy.gang.min_count,
        )
    if policy.basic is not None:
        _desired_count(
            errors, policy.basic.desired_count, f"{where}.basic.desiredCount", gates, stored_desired
        )


def _desired_count(
    errors: ErrorList,
    count: int | None,
    path: str,
    gates: FeatureGates,
    stored: int | None,
    at_least: int = 1,
) -> None:
    if count is None:
        return
    if stored is None and not gates.workload_basic_policy_desired_count:
        errors.forbidden(path, _gate_off("WorkloadBasicPolicyDesiredCount"))
    if count < 1:
        errors.invalid(path, count, POSITIVE)
    elif count < at_least:
        errors.invalid(path, count, "must be greater than or equal to minCount")


def _constraints(
    errors: ErrorList,
    found: GroupSchedulingConstraints | None,
    before: GroupSchedulingConstraints | None,
    path: str,
    gates: FeatureGates,
    constraints_max: int,
) -> None:
    """At most so many levels, under either of its two names."""
    if found is None:
        return
    levels = [
        (f"{path}.topologyConstraints[{i}].level", constraint.level)
        for i, constraint in enumerate(found.topology_constraints)
    ] + [(f"{path}.topology[{i}].key", constraint.key) for i, constraint in enumerate(found.topology)]
    if not levels:
        return
    field = "topologyConstraints" if found.topology_constraints else "topology"
    if found != before and not gates.topology_aware_workload_scheduling:
        errors.forbidden(f"{path}.{field}", _gate_off("TopologyAwareWorkloadScheduling"))
    if len(levels) > constraints_max:
        errors.too_many(f"{path}.{field}", len(levels), constraints_max)
    for where, level in levels:
        if level:
            errors.invalid_each(where, level, names.label_key(level))
        else:
            errors.required(where)


def _claims(errors: ErrorList, claims: Iterable[PodResourceClaim], path: str) -> None:
    claims = tuple(claims)
    if len(claims) > CLAIMS_MAX:
        errors.too_many(path, len(claims), CLAIMS_MAX)
    resource_claims(errors, claims, path)


def _priority(errors: ErrorList, priority: int | None, class_name: str, path: str) -> None:
    if class_name:
        errors.invalid_each(f"{path}.priorityClassName", class_name, names.dns_subdomain(class_name))
    # A system class brings a higher priority than a user may write.
    if priority is not None and priority > USER_PRIORITY_MAX and not class_name.startswith("system-"):
        errors.invalid(f"{path}.priority", priority, f"must be less than or equal to {USER_PRIORITY_MAX}")


# --- updates ------------------------------------------------------------------------------------------------------------


def _masked(policy: GroupPolicy | None, like: GroupPolicy | None) -> GroupPolicy | None:
    """The policy with the counts of the other, where both are of one kind."""
    if policy is None or like is None:
        return policy
    if policy.gang and like.gang:
        return replace(policy, gang=like.gang)
    if policy.basic and like.basic:
        return replace(policy, basic=like.basic)
    return policy


def validate_pod_group_update(old: PodGroup, new: PodGroup, errors: ErrorList) -> None:
    """Only the counts of the policy may change."""
    masked = replace(
        new.spec,
        scheduling_policy=_masked(new.spec.scheduling_policy, old.spec.scheduling_policy),
        policy=_masked(new.spec.policy, old.spec.policy),
    )
    for field, name in zip(masked.__struct_fields__, masked.__struct_encode_fields__, strict=True):
        if getattr(masked, field) != getattr(old.spec, field):
            errors.invalid(f"spec.{name}", getattr(new.spec, field), IMMUTABLE)


def validate_workload_update(old: Workload, new: Workload, errors: ErrorList) -> None:
    """Only the counts of the policies may change."""
    for field, name in (("pod_groups", "podGroups"), ("pod_group_templates", "podGroupTemplates")):
        was: tuple[WorkloadPodGroup, ...] = getattr(old.spec, field)
        now: tuple[WorkloadPodGroup, ...] = getattr(new.spec, field)
        if len(was) != len(now) or any(
            replace(
                after,
                policy=_masked(after.policy, before.policy),
                scheduling_policy=_masked(after.scheduling_policy, before.scheduling_policy),
            )
            != before
            for before, after in zip(was, now, strict=False)
        ):
            errors.invalid(f"spec.{name}", [group.name for group in now], IMMUTABLE)

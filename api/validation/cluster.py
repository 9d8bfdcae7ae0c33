"""The rules of the objects around pods: nodes, priority classes, disruption budgets, owners of pods."""

from __future__ import annotations

from tidelog.api.objects import (
    IntOrString,
    LabelSelector,
    Node,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from tidelog.api.validation import common as validate_common
from tidelog.api.validation import names
from tidelog.api.validation import placement as validate_placement
from tidelog.api.validation import resources as validate_resources
from tidelog.api.validation.field_errors import IMMUTABLE, NOT_NEGATIVE, ErrorList
from tidelog.api.validation.pod import preemption_policy

USER_PRIORITY_MAX = 1_000_000_000
SYSTEM_PREFIX = "system-"
SYSTEM_CLASSES: dict[str, int] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
THRESHOLD_MAX = min(SYSTEM_CLASSES.values())
EVICTION_POLICIES = ("IfHealthyBudget", "AlwaysAllow")


def validate_node(node: Node, errors: ErrorList) -> None:
    """Names, labels, taints, resources, conditions."""
    _taints(errors, node)
    validate_resources.quantities(errors, node.status.capacity, "status.capacity")
    validate_resources.quantities(errors, node.status.allocatable, "status.allocatable")
    validate_common.conditions(errors, node.status.conditions, "status.conditions")
    for index, image in enumerate(node.status.images):
        if image.size_bytes < 0:
            errors.invalid(f"status.images[{index}].sizeBytes", image.size_bytes, NOT_NEGATIVE)


def _taints(errors: ErrorList, node: Node) -> None:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(node.spec.taints):
        path = f"spec.taints[{index}]"
        errors.invalid_each(f"{path}.key", taint.key, names.label_key(taint.key))
        rules = names.label_value(taint.value)
        if rules:
            errors.invalid(f"{path}.value", taint.value, ";".join(rules))
        if not taint.effect:
            errors.required(f"{path}.effect")
        elif taint.effect not in validate_placement.EFFECTS:
            errors.not_supported(f"{path}.effect", taint.effect, validate_placement.EFFECTS)
        if (taint.key, taint.effect) in seen:
            errors.duplicate(
                path, f"{taint.key}:{taint.effect}", "taints must be unique by key and effect pair"
            )
        seen.add((taint.key, taint.effect))
        validate_common.time(errors, taint.time_added, f"{path}.timeAdded")


def validate_priority_class(found: PriorityClass, errors: ErrorList) -> None:
    """Value, name, policy, and KEP-4664's threshold."""
    name = found.metadata.name
    if name.startswith(SYSTEM_PREFIX):
        complaint = _not_a_system_class(found)
        if complaint:
            rule = f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: "
            errors.forbidden("metadata.name", rule + complaint)
    elif found.value > USER_PRIORITY_MAX:
        errors.forbidden("value", f"maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}")
    if found.preemption_policy is not None:
        preemption_policy(errors, found.preemption_policy, "preemptionPolicy")
    threshold = found.allow_disruption_by_priority_greater_than_or_equal
    if threshold is not None and threshold > THRESHOLD_MAX:
        rule = f"must not be greater than {THRESHOLD_MAX}, the priority of system-cluster-critical"
        errors.invalid("allowDisruptionByPriorityGreaterThanOrEqual", threshold, rule)


def _not_a_system_class(found: PriorityClass) -> str:
    name = found.metadata.name
    value = SYSTEM_CLASSES.get(name)
    if value is None:
        return f"{name} is not a known system priority class"
    if found.value != value:
        return f"value of {name} PriorityClass must be {value}"
    return f"globalDefault of {name} PriorityClass must be false" if found.global_default else ""


def validate_priority_class_update(old: PriorityClass, new: PriorityClass, errors: ErrorList) -> None:
    """The threshold may change, and counts for new pods; value and policy may not."""
    if new.value != old.value:
        errors.forbidden("value", "may not be changed in an update.")
    if new.preemption_policy != old.preemption_policy:
        errors.invalid("preemptionPolicy", new.preemption_policy, IMMUTABLE)


def validate_budget(budget: PodDisruptionBudget, errors: ErrorList) -> None:
    """Selector, one of the two counts, and a status that can be meant."""
    spec, status = budget.spec, budget.status
    if spec.min_available is not None and spec.max_unavailable is not None:
        errors.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    _count_or_percent(errors, spec.min_available, "spec.minAvailable")
    _count_or_percent(errors, spec.max_unavailable, "spec.maxUnavailable")
    validate_common.label_selector(errors, spec.selector, "spec.selector")
    policy = spec.unhealthy_pod_eviction_policy
    if policy is not None and policy not in EVICTION_POLICIES:
        errors.not_supported("spec.unhealthyPodEvictionPolicy", policy, EVICTION_POLICIES)
    for field, value in (
        ("observedGeneration", status.observed_generation),
        ("disruptionsAllowed", status.disruptions_allowed),
        ("currentHealthy", status.current_healthy),
        ("desiredHealthy", status.desired_healthy),
        ("expectedPods", status.expected_pods),
    ):
        if value < 0:
            errors.invalid(f"status.{field}", value, NOT_NEGATIVE)
    for name, at in status.disrupted_pods.items():
        validate_common.time(errors, at, f"status.disruptedPods[{name}]")
    validate_common.conditions(errors, status.conditions, "status.conditions")


def _count_or_percent(errors: ErrorList, value: IntOrString | None, path: str) -> None:
    if isinstance(value, int):
        if value < 0:
            errors.invalid(path, value, NOT_NEGATIVE)
        elif value >= 1 << 31:
            errors.invalid(path, value, "must fit in 32 bits")
    elif value is not None:
        rules = names.percent(value)
        if rules:
            errors.invalid(path, value, "must be an integer or percentage (e.g '5%')")
        elif len(value) > 4 or int(value[:-1]) > 100:
            errors.invalid(path, value, "must not be greater than 100%")


Owner = Service | ReplicationController | ReplicaSet | StatefulSet


def validate_owner(owner: Owner, errors: ErrorList) -> None:
    """Validate the selector, which default spread constraints read."""
    selector = owner.spec.selector
    if isinstance(selector, dict):
        if len(selector) > validate_common.REQUIREMENTS_MAX:
            errors.too_many("spec.selector", len(selector), validate_common.REQUIREMENTS_MAX)
        validate_common.labels(errors, selector, "spec.selector")
        return
    if selector is None:
        errors.required("spec.selector")
    elif selector == LabelSelector():
        errors.invalid("spec.selector", selector, "empty selector is invalid")
    validate_common.label_selector(errors, selector, "spec.selector")


def validate_owner_update(old: Owner, new: Owner, errors: ErrorList) -> None:
    """Selectors of replica sets and stateful sets stay."""
    if isinstance(new, ReplicaSet | StatefulSet) and new.spec.selector != old.spec.selector:
        errors.invalid("spec.selector", new.spec.selector, IMMUTABLE)

"""Whether an object obeys the rules of its kind: all breaches at once, each with path, value and rule.

`validate` judges an object by itself, `validate_update` a change, `warnings` finds what is allowed and probably not meant.
Nothing is changed and nothing else is looked at; what needs other objects (priority classes, groups) is admission's.
Costs some ten microseconds for an ordinary pod.
"""

from __future__ import annotations

from typing import Any, cast

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.objects import (
    DeviceClass,
    Namespace,
    Node,
    Object,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    Service,
    StatefulSet,
    TopologySpreadConstraint,
    Volume,
    Workload,
)
from tidelog.api.quantity import compare
from tidelog.api.validation import cluster as validate_cluster
from tidelog.api.validation import devices as validate_devices
from tidelog.api.validation import groups as validate_groups
from tidelog.api.validation import names
from tidelog.api.validation import pod as validate_pod
from tidelog.api.validation.field_errors import IMMUTABLE, ErrorList


def validate(obj: Object, gates: FeatureGates, *, constraints_max: int = 1) -> list[FieldError]:
    """The errors of an object that is new. `constraints_max`: how many topology constraints a group may have."""
    errors = ErrorList()
    _validate(obj, gates, errors, None, constraints_max)
    return errors


def validate_update(
    old: Object, new: Object, gates: FeatureGates, *, resize: bool = False, constraints_max: int = 1
) -> list[FieldError]:
    """The errors of putting `new` in the place of `old`: its own, and those of the change.

    `resize` lets cpu and memory of a pod's containers change.
    """
    errors = ErrorList()
    _validate(new, gates, errors, old, constraints_max)
    if new.metadata.uid and old.metadata.uid and new.metadata.uid != old.metadata.uid:
        errors.invalid("metadata.uid", new.metadata.uid, IMMUTABLE)
    match new:
        case Pod():
            validate_pod.validate_pod_update(cast(Pod, old), new, errors, resize)
        case PriorityClass():
            validate_cluster.validate_priority_class_update(cast(PriorityClass, old), new, errors)
        case Service() | ReplicationController() | ReplicaSet() | StatefulSet():
            validate_cluster.validate_owner_update(cast(validate_cluster.Owner, old), new, errors)
        case PodGroup():
            validate_groups.validate_pod_group_update(cast(PodGroup, old), new, errors)
        case Workload():
            validate_groups.validate_workload_update(cast(Workload, old), new, errors)
        case ResourceSlice():
            validate_devices.validate_slice_update(cast(ResourceSlice, old), new, errors)
        case ResourceClaim():
            validate_devices.validate_claim_update(cast(ResourceClaim, old), new, errors)
        case ResourceClaimTemplate():
            validate_devices.validate_template_update(cast(ResourceClaimTemplate, old), new, errors)
        case _:
            pass
    return errors


def _validate(obj: Object, gates: FeatureGates, errors: ErrorList, old: Any, constraints_max: int) -> None:
    match obj:
        case Pod():
            keep = old is not None and _has_fallback(old.spec.topology_spread_constraints)
            validate_pod.validate_pod(obj, gates, errors, keep)
        case Node():
            validate_cluster.validate_node(obj, errors)
        case Namespace():
            validate_cluster.validate_namespace(obj, errors)
        case PriorityClass():
            validate_cluster.validate_priority_class(obj, errors)
        case PodDisruptionBudget():
            validate_cluster.validate_budget(obj, errors)
        case Service() | ReplicationController() | ReplicaSet() | StatefulSet():
            validate_cluster.validate_owner(obj, errors)
        case PodGroup():
            validate_groups.validate_pod_group(obj, gates, errors, old, constraints_max)
        case Workload():
            validate_groups.validate_workload(obj, gates, errors, old, constraints_max)
        case ResourceSlice():
            validate_devices.validate_slice(obj, errors)
        case DeviceClass():
            validate_devices.validate_device_class(obj, errors)
        case ResourceClaim():
            validate_devices.validate_claim(obj, errors)
        case ResourceClaimTemplate():
            validate_devices.validate_template(obj, errors)


def _has_fallback(constraints: tuple[TopologySpreadConstraint, ...]) -> bool:
    return any(constraint.fallback_criteria for constraint in constraints)


def validate_condition(type: str, status: str) -> list[FieldError]:
    """A condition that somebody sets by itself."""
    errors = ErrorList()
    errors.invalid_each("type", type, names.label_key(type))
    if status not in ("True", "False", "Unknown"):
        errors.not_supported("status", status, ("True", "False", "Unknown"))
    return errors


# --- what is allowed and probably not meant ------------------------------------------------------------------------------


def warnings(obj: Object) -> tuple[str, ...]:
    """One sentence each; the object is valid all the same."""
    match obj:
        case Pod():
            return () if obj.spec.node_name else tuple(_volume_warnings(obj.spec.volumes))
        case Node():
            return (*_capacity_warnings(obj), *_topology_warnings(obj))
        case PriorityClass():
            return _threshold_warnings(obj)
        case PodDisruptionBudget():
            return _budget_warnings(obj)
        case _:
            return ()


def _volume_warnings(volumes: tuple[Volume, ...]) -> list[str]:
    return [
        f"spec.volumes[{index}]: {what} {volume.name!r} is not supported: the pod will not be scheduled"
        for index, volume in enumerate(volumes)
        for what, source in (
            ("persistent volume claim", volume.persistent_volume_claim),
            ("ephemeral volume", volume.ephemeral),
        )
        if source is not None
    ]


def _capacity_warnings(node: Node) -> list[str]:
    capacity = node.status.capacity
    return [
        f"status.allocatable[{name}]: {value} is more than the capacity of {capacity[name]}"
        for name, value in node.status.allocatable.items()
        if name in capacity and value != capacity[name] and compare(value, capacity[name]) > 0
    ]


def _topology_warnings(node: Node) -> list[str]:
    return [
        f"metadata.labels[{key}]: the empty value is a topology domain like any other"
        for key, value in node.metadata.labels.items()
        if not value and key.startswith("topology.kubernetes.io/")
    ]


def _threshold_warnings(found: PriorityClass) -> tuple[str, ...]:
    threshold = found.allow_disruption_by_priority_greater_than_or_equal
    if threshold is None or threshold > found.value + 1:
        return ()
    text = (
        f"allowDisruptionByPriorityGreaterThanOrEqual: {threshold} protects from nobody: "
        f"preemptors of pods with priority {found.value} have at least {found.value + 1}"
    )
    return (text,)


def _budget_warnings(budget: PodDisruptionBudget) -> tuple[str, ...]:
    status = budget.status
    if status.disruptions_allowed or status.expected_pods or status.observed_generation:
        return ()
    return (
        "status.disruptionsAllowed: stays 0, which allows no disruption, until a disruption controller sets it",
    )

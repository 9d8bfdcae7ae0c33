"""What becomes of an object on its way into the log: defaults, priorities, identity, and whether it may enter at all.

    admitted, warnings = admit(new, old, cluster, gates, stamp)      # put
    remaining = admit_delete(old, grace, stamp)                      # delete: None, or the pod that is now terminating
    changed = set_condition(pod, type, status, reason, message, at)  # one condition

All of them are pure functions of their arguments. They raise InvalidObjects with every broken rule and change nothing.
`stamp` is where in the log the fact will stand: it gives an object its uid, its creation time and its resourceVersion,
so that the same log always has the same objects and an object that is created again gets another uid.

An object that brings a uid has been admitted by a cluster before: it is a recording. It keeps its uid, its creation time
and its priority, and its priority class need not be known. Everything else is held to the rules like any other.

Putting replaces the whole object; only what a manifest leaves out because others write it is kept from the stored
object: the status, where the pod is, what admission computed at its creation.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from tidelog.api.conditions import set_condition, with_condition
from tidelog.api.defaulting import default_node, default_pod, without_min_domains
from tidelog.api.errors import FieldError, InvalidObjects, printable
from tidelog.api.features import FeatureGates
from tidelog.api.object_table import NAMESPACE_LABEL, SYSTEM_NAMESPACES, Cluster
from tidelog.api.objects import (
    KIND_OF_TYPE,
    Namespace,
    Node,
    Object,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PodSpec,
    PriorityClass,
    Workload,
    object_key,
    pod_condition,
)
from tidelog.api.priorities import (
    check_group,
    prepared_class,
    prepared_group,
    prepared_workload,
    with_priority,
)
from tidelog.api.selectors import SelectorError, label_matcher
from tidelog.api.times import NANOS, format_time
from tidelog.api.validation.cluster import SYSTEM_CLASSES
from tidelog.api.validation.field_errors import ErrorList
from tidelog.api.validation.rules import validate, validate_update, warnings

__all__ = ["Stamp", "admit", "admit_delete", "set_condition", "uid_of"]

_O = TypeVar("_O", bound=Object)

DEFAULT_GRACE_SECONDS = 30
GATED_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a fact in the log."""

    seq: int
    at: int
    """Nanoseconds since 1970."""


def uid_of(key: str, stamp: Stamp) -> str:
    """A UUID (version 8, which leaves its content to us) for what is created under this key at this place."""
    text = hashlib.sha256(f"{key}\n{stamp.seq}\n{stamp.at}".encode()).hexdigest()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"


def admit(
    new: _O,
    old: _O | None,
    cluster: Cluster,
    gates: FeatureGates,
    stamp: Stamp,
    *,
    resize: bool = False,
) -> tuple[_O, tuple[str, ...]]:
    """The object to store, and what to tell the user about it. `old` is what is stored under its name now.

    Returns `old` itself if nothing changes, so that nothing need be appended. Without a name but with a generateName the
    object is new and gets one. `resize` lets cpu and memory of a pod's containers change, which nothing else does.
    """
    errors = ErrorList()
    said: list[str] = []
    prepared = cast(_O, _named(new, stamp)) if old is None else new
    prepared = cast(_O, _prepared(prepared, old, cluster, gates, stamp, errors, said))
    if old is None:
        prepared = _created(prepared, stamp)
        errors.extend(validate(prepared, gates, constraints_max=cluster.constraints_max))
    else:
        prepared = _updated(prepared, old)
        more = cluster.constraints_max
        errors.extend(validate_update(old, prepared, gates, resize=resize, constraints_max=more))
    if errors:
        raise InvalidObjects(_subject(new), errors)
    if old is not None:
        if prepared == old:
            return old, ()
        meta = replace(prepared.metadata, resource_version=str(stamp.seq))
        prepared = replace(prepared, metadata=meta)
    return prepared, (*said, *warnings(prepared))


def _subject(obj: Object) -> str:
    meta = obj.metadata
    return f'{KIND_OF_TYPE[type(obj)].name} "{printable(meta.name or meta.generate_name, 253)}"'


def _prepared(
    obj: Object,
    old: Any,
    cluster: Cluster,
    gates: FeatureGates,
    stamp: Stamp,
    errors: ErrorList,
    said: list[str],
) -> Object:
    match obj:
        case Pod():
            return _pod(obj, old, cluster, gates, stamp, errors, said)
        case Node():
            return default_node(obj)
        case Namespace():
            return _namespace(obj)
        case PriorityClass():
            return prepared_class(obj, old, cluster, gates, errors, said)
        case PodDisruptionBudget():
            return _budget(obj)
        case PodGroup():
            return prepared_group(obj, old, cluster, errors)
        case Workload():
            return prepared_workload(obj, cluster, errors)
        case _:
            return obj


# --- identity -----------------------------------------------------------------------------------------------------------


def _named(obj: Object, stamp: Stamp) -> Object:
    meta = obj.metadata
    if meta.name or not meta.generate_name:
        return obj
    number = int(hashlib.sha256(uid_of(object_key(obj), stamp).encode()).hexdigest(), 16)
    suffix = ""
    for _ in range(5):
        number, letter = divmod(number, len(_SUFFIX_LETTERS))
        suffix += _SUFFIX_LETTERS[letter]
    return replace(obj, metadata=replace(meta, name=meta.generate_name + suffix))


def _created(obj: _O, stamp: Stamp) -> _O:
    meta = obj.metadata
    changed = replace(
        meta,
        uid=meta.uid or uid_of(object_key(obj), stamp),
        creation_timestamp=meta.creation_timestamp or format_time(stamp.at),
        generation=meta.generation or 1,
        resource_version=str(stamp.seq),
    )
    return replace(obj, metadata=changed)


def _updated(obj: _O, old: _O) -> _O:
    """The metadata of an object go on; its generation counts the changes of what is wanted of it."""
    before, meta = old.metadata, obj.metadata
    generation = before.generation + (_wanted(obj) != _wanted(old))
    changed = replace(
        meta,
        uid=meta.uid or before.uid,
        generate_name=meta.generate_name or before.generate_name,
        creation_timestamp=before.creation_timestamp or meta.creation_timestamp,
        deletion_timestamp=before.deletion_timestamp or meta.deletion_timestamp,
        deletion_grace_period_seconds=(
            before if before.deletion_timestamp else meta
        ).deletion_grace_period_seconds,
        # A negative one is for validation to refuse.
        generation=max(meta.generation, generation) if meta.generation >= 0 else meta.generation,
        resource_version=before.resource_version,
    )
    changes: dict[str, Any] = {"metadata": changed}
    status = getattr(obj, "status", None)
    if status is not None and status == type(status)():
        # A manifest without a status has nothing to say about it.
        changes["status"] = getattr(old, "status", None)
    return replace(obj, **changes)


def _wanted(obj: Object) -> tuple[Any, ...]:
    return tuple(
        getattr(obj, field) for field in obj.__struct_fields__ if field not in ("metadata", "status")
    )


# --- pods ---------------------------------------------------------------------------------------------------------------


def _pod(
    pod: Pod,
    old: Pod | None,
    cluster: Cluster,
    gates: FeatureGates,
    stamp: Stamp,
    errors: ErrorList,
    said: list[str],
) -> Pod:
    if old is not None:
        pod = replace(pod, spec=_carried(pod.spec, old.spec))
    pod = _without_gated_fields(pod, old, gates, said)
    pod = default_pod(pod, old)
    if old is None:
        if not pod.metadata.uid or pod.spec.priority is None:
            pod = replace(pod, spec=with_priority(pod.spec, cluster, gates, errors))
        check_group(pod, cluster, errors, said)
        pod = _with_first_status(pod, stamp)
    if old is None or old.metadata.labels != pod.metadata.labels:
        _tell_of_budgets(pod, cluster, said)
    return pod


def _carried(spec: PodSpec, old: PodSpec) -> PodSpec:
    """What a manifest leaves out because the scheduler or admission wrote it."""
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


def _tell_of_budgets(pod: Pod, cluster: Cluster, said: list[str]) -> None:
    """The eviction API of Kubernetes fails for a pod under two budgets."""
    matching = []
    for budget in cluster.of_kind("PodDisruptionBudget", pod.metadata.namespace):
        assert isinstance(budget, PodDisruptionBudget)
        try:
            if label_matcher(budget.spec.selector)(pod.metadata.labels):
                matching.append(budget.metadata.name)
        except SelectorError:
            continue
    if len(matching) > 1:
        said.append(
            f"pod {pod.metadata.name} is under {len(matching)} disruption budgets ({', '.join(sorted(matching))}); "
            "an eviction is charged to all of them"
        )


# --- other kinds --------------------------------------------------------------------------------------------------------


def _namespace(namespace: Namespace) -> Namespace:
    meta = namespace.metadata
    if meta.labels.get(NAMESPACE_LABEL) == meta.name:
        return namespace
    return replace(namespace, metadata=replace(meta, labels={**meta.labels, NAMESPACE_LABEL: meta.name}))


def _budget(budget: PodDisruptionBudget) -> PodDisruptionBudget:
    """A status that somebody wrote by hand is about the object as it is."""
    status = budget.status
    if status.observed_generation or not (status.disruptions_allowed or status.expected_pods):
        return budget
    generation = budget.metadata.generation or 1
    return replace(budget, status=replace(status, observed_generation=generation))


# --- deletion -----------------------------------------------------------------------------------------------------------


def admit_delete(old: _O, grace: int | None, stamp: Stamp) -> _O | None:
    """What remains of an object that somebody deletes: nothing, or a pod that its node has to finish first.

    A pod that no node runs goes at once; any other gets a deletionTimestamp `grace` seconds (None: what its spec says)
    from now, or goes at once if that is 0. Deleting it again can only shorten that. Raises InvalidObjects for what
    cannot be deleted.
    """
    meta = old.metadata
    if isinstance(old, PriorityClass) and meta.name in SYSTEM_CLASSES:
        raise _undeletable(old, "this is a system priority class and cannot be deleted")
    if isinstance(old, Namespace) and meta.name in SYSTEM_NAMESPACES:
        raise _undeletable(old, "this namespace may not be deleted")
    if not isinstance(old, Pod) or not _runs_somewhere(old):
        return None
    seconds = _grace_of(old, grace)
    if seconds == 0:
        return None
    if meta.deletion_timestamp and seconds >= (meta.deletion_grace_period_seconds or 0):
        return old
    return replace(old, metadata=_terminating(meta, seconds, stamp))


def _undeletable(obj: Object, rule: str) -> InvalidObjects:
    return InvalidObjects(
        _subject(obj),
        [FieldError(path="metadata.name", kind="Forbidden", value=obj.metadata.name, rule=rule)],
    )


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

"""Annotations that say what an API server would drop: fields of the enhancement proposals that it does not know.

    folded, said = fold(obj, known, cluster, gates)

They are folded into the typed fields when an object is first seen, by the rules that the fields have anyway, and count for as long as the
object lives: `known` is the stored object of the same uid, whose fields are kept. So a later change of an annotation is ignored, as a change
of the field would be refused; only a PriorityClass's threshold may change, and counts for pods that are first seen afterwards.

A wrong value never refuses an object, because a cluster's objects are not ours to refuse: it is left out, and `said` says so in one line each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import msgspec
from msgspec.structs import replace

from tidelog.api.cluster import Cluster
from tidelog.api.features import FeatureGates
from tidelog.api.objects import (
    GroupPolicy,
    Object,
    Pod,
    PodGroup,
    PodSpec,
    PriorityClass,
    TopologyConstraint,
    TopologySpreadConstraint,
)
from tidelog.api.validation.rules import validate

DOMAIN = "scheduling.tidelog.dev/"
SPREAD_FALLBACK = DOMAIN + "topology-spread-fallback"
THRESHOLD = DOMAIN + "allow-disruption-by-priority-greater-than-or-equal"
DESIRED_COUNT = DOMAIN + "desired-count"
PREFERRED_TOPOLOGY = DOMAIN + "preferred-topology"
TOPOLOGY_LEVELS = DOMAIN + "topology-levels"
DECISION = DOMAIN + "decision"
"""Written by a scheduler, never read from an object; the next one as well."""
EXPLAIN = DOMAIN + "explain"

KEYS: dict[type, tuple[str, ...]] = {
    Pod: (SPREAD_FALLBACK, THRESHOLD),
    PriorityClass: (THRESHOLD,),
    PodGroup: (DESIRED_COUNT, PREFERRED_TOPOLOGY, TOPOLOGY_LEVELS),
}
"""The fields that are read of each kind."""
VALUE_BYTES_MAX = 4096
LEVELS_MAX = 3
_INT32_MAX = (1 << 31) - 1

O = TypeVar("O", bound=Object)  # noqa: E741 # As elsewhere.


class _Wrong(Exception):
    """The value of an annotation is left out, because of this."""


def fold(obj: O, known: O | None, cluster: Cluster, gates: FeatureGates) -> tuple[O, tuple[str, ...]]:
    """The object with its overrides in the typed fields, and what is wrong with them."""
    folded: tuple[Object, tuple[str, ...]] = (obj, ())
    if isinstance(obj, Pod):
        folded = _pod(obj, cast("Pod | None", known), cluster, gates)
    elif isinstance(obj, PriorityClass):
        folded = _class(obj, cluster, gates)
    elif isinstance(obj, PodGroup):
        folded = _group(obj, cast("PodGroup | None", known), cluster, gates)
    return cast("tuple[O, tuple[str, ...]]", folded)


def _later(obj: Object, known: Object) -> tuple[str, ...]:
    """Annotations that are not what they were when the object was first seen."""
    old, new = known.metadata.annotations, obj.metadata.annotations
    if not old and not new:
        return ()
    changed = [key for key in KEYS[type(obj)] if old.get(key) != new.get(key)]
    return tuple(f"{key}: changed after the object was first seen; the first value counts" for key in changed)


def _taken(
    obj: O, steps: Mapping[str, Callable[[O, str], O]], cluster: Cluster, gates: FeatureGates
) -> tuple[O, tuple[str, ...]]:
    """The object with each annotation folded in that obeys the rules of its field."""
    said = []
    for key, step in steps.items():
        text = obj.metadata.annotations.get(key)
        if text is None:
            continue
        try:
            if len(text.encode()) > VALUE_BYTES_MAX:
                raise _Wrong(f"must be at most {VALUE_BYTES_MAX} bytes long")
            obj = _judged(obj, step(obj, text), cluster, gates)
        except _Wrong as wrong:
            said.append(f"{key}: {wrong}; it is ignored")
    return obj, tuple(said)


def _judged(before: O, after: O, cluster: Cluster, gates: FeatureGates) -> O:
    """The changed object, if no rule is broken that was kept before."""
    more = cluster.constraints_max
    old = [(error.path, error.rule) for error in validate(before, gates, constraints_max=more)]
    for error in validate(after, gates, constraints_max=more):
        if (error.path, error.rule) not in old:
            raise _Wrong(str(error))
    return after


# --- pods -------------------------------------------------------------------------------------------------------------


def _pod(pod: Pod, known: Pod | None, cluster: Cluster, gates: FeatureGates) -> tuple[Pod, tuple[str, ...]]:
    if known is not None:
        spec = replace(
            pod.spec,
            topology_spread_constraints=tuple(_kept(pod.spec, known.spec)),
            allow_disruption_by_priority_greater_than_or_equal=_threshold(known),
        )
        return (pod if spec == pod.spec else replace(pod, spec=spec)), _later(pod, known)
    given = pod.metadata.annotations.get(THRESHOLD) if pod.metadata.annotations else None
    pod, said = _taken(pod, {SPREAD_FALLBACK: _with_fallback}, cluster, gates)
    threshold = _threshold_of_class(pod, cluster, gates)
    if threshold is not None and _threshold(pod) is None:
        spec = replace(pod.spec, allow_disruption_by_priority_greater_than_or_equal=threshold)
        pod = replace(pod, spec=spec)
    if given is not None and given != str(threshold):
        said += (f"{THRESHOLD}: a pod has what its PriorityClass gives it ({threshold}); {given} is ignored",)
    return pod, said


def _kept(spec: PodSpec, known: PodSpec) -> Iterator[TopologySpreadConstraint]:
    old = {
        (c.topology_key, c.when_unsatisfiable): c.fallback_criteria for c in known.topology_spread_constraints
    }
    for one in spec.topology_spread_constraints:
        criteria = one.fallback_criteria or old.get((one.topology_key, one.when_unsatisfiable), ())
        yield replace(one, fallback_criteria=criteria) if criteria else one


def _threshold(pod: Pod) -> int | None:
    return pod.spec.allow_disruption_by_priority_greater_than_or_equal


def _threshold_of_class(pod: Pod, cluster: Cluster, gates: FeatureGates) -> int | None:
    name = pod.spec.priority_class_name
    if not name or not gates.disruption_policy_in_priority_class:
        return None
    found = cluster.get("PriorityClass", "", name)
    if not isinstance(found, PriorityClass):
        return None
    return found.allow_disruption_by_priority_greater_than_or_equal


def _with_fallback(pod: Pod, text: str) -> Pod:
    wanted = _json(text, dict[str, tuple[str, ...]], "a JSON object of lists of criteria by topology key")
    constraints = pod.spec.topology_spread_constraints
    hard = {one.topology_key for one in constraints if one.when_unsatisfiable == "DoNotSchedule"}
    for key, criteria in wanted.items():
        if key not in hard:
            raise _Wrong(
                f"no constraint of the pod with whenUnsatisfiable: DoNotSchedule has the topologyKey {key}"
            )
        if not criteria:
            raise _Wrong(f"{key} must have at least one criterion")
    changed = tuple(
        replace(one, fallback_criteria=wanted[one.topology_key])
        if one.when_unsatisfiable == "DoNotSchedule" and one.topology_key in wanted
        else one
        for one in constraints
    )
    return replace(pod, spec=replace(pod.spec, topology_spread_constraints=changed))


# --- priority classes -------------------------------------------------------------------------------------------------


def _class(
    found: PriorityClass, cluster: Cluster, gates: FeatureGates
) -> tuple[PriorityClass, tuple[str, ...]]:
    if THRESHOLD not in found.metadata.annotations:
        return found, ()
    if not gates.disruption_policy_in_priority_class:
        return found, (_gate_off(THRESHOLD, "DisruptionPolicyInPriorityClass"),)

    def with_threshold(before: PriorityClass, text: str) -> PriorityClass:
        return replace(before, allow_disruption_by_priority_greater_than_or_equal=_integer(text))

    return _taken(found, {THRESHOLD: with_threshold}, cluster, gates)


def _gate_off(key: str, gate: str) -> str:
    return f"{key}: the feature gate {gate} is off; it is ignored"


# --- groups -----------------------------------------------------------------------------------------------------------


def _group(
    group: PodGroup, known: PodGroup | None, cluster: Cluster, gates: FeatureGates
) -> tuple[PodGroup, tuple[str, ...]]:
    if known is not None:
        return _as_known(group, known), _later(group, known)
    steps = {DESIRED_COUNT: _with_count, PREFERRED_TOPOLOGY: _preferring, TOPOLOGY_LEVELS: _with_levels}
    return _taken(group, steps, cluster, gates)


def _as_known(group: PodGroup, known: PodGroup) -> PodGroup:
    """The first reading of its annotations counts on; everything else is as the group says now."""
    count = _count_of(known)
    if count is not None and _count_of(group) is None:
        group = _counted(group, count)
    before, now = known.spec.scheduling_constraints, group.spec.scheduling_constraints
    if before is not None and now is not None and before != now:
        group = replace(group, spec=replace(group.spec, scheduling_constraints=before))
    return group


def _count_of(group: PodGroup) -> int | None:
    policy = group.spec.scheduling_policy or group.spec.policy
    found = None if policy is None else (policy.basic or policy.gang)
    return None if found is None else found.desired_count


def _with_count(group: PodGroup, text: str) -> PodGroup:
    return _counted(group, _integer(text))


def _counted(group: PodGroup, count: int) -> PodGroup:
    def counted(policy: GroupPolicy | None) -> GroupPolicy | None:
        if policy is None:
            return None
        return replace(
            policy,
            basic=None if policy.basic is None else replace(policy.basic, desired_count=count),
            gang=None if policy.gang is None else replace(policy.gang, desired_count=count),
        )

    spec = group.spec
    return replace(
        group,
        spec=replace(spec, scheduling_policy=counted(spec.scheduling_policy), policy=counted(spec.policy)),
    )


def _preferring(group: PodGroup, text: str) -> PodGroup:
    if text != "true":
        raise _Wrong('must be "true"')
    (own,) = _own_constraint(group)
    return _constrained(group, (replace(own, preferred=True),))


def _with_levels(group: PodGroup, text: str) -> PodGroup:
    keys = _json(text, tuple[str, ...], "a JSON list of label keys, the widest first")
    (own,) = _own_constraint(group)
    if not 1 <= len(keys) <= LEVELS_MAX:
        raise _Wrong(f"must have 1 to {LEVELS_MAX} levels")
    if keys[-1] != (own.key or own.level):
        raise _Wrong(f"the last level must be the group's own, {own.key or own.level}")
    wider = tuple(TopologyConstraint(key=key) for key in keys[:-1])
    return _constrained(group, (*wider, own))


def _own_constraint(group: PodGroup) -> tuple[TopologyConstraint]:
    found = group.spec.scheduling_constraints
    levels = () if found is None else (found.topology or found.topology_constraints)
    if len(levels) != 1:
        raise _Wrong("the group must have one topology constraint")
    return (levels[0],)


def _constrained(group: PodGroup, levels: tuple[TopologyConstraint, ...]) -> PodGroup:
    found = group.spec.scheduling_constraints
    assert found is not None
    field = "topology" if found.topology else "topology_constraints"
    changed = replace(found, **{field: levels})
    return replace(group, spec=replace(group.spec, scheduling_constraints=changed))


# --- values -----------------------------------------------------------------------------------------------------------


def _integer(text: str) -> int:
    digits = text.removeprefix("-")
    if (
        not digits.isascii()
        or not digits.isdigit()
        or len(digits) > 10
        or not -_INT32_MAX <= int(text) <= _INT32_MAX
    ):
        raise _Wrong("must be a decimal number of 32 bits")
    return int(text)


def _json(text: str, type_: Any, what: str) -> Any:
    try:
        return msgspec.json.decode(text, type=type_)
    except (msgspec.MsgspecError, RecursionError):
        raise _Wrong(f"must be {what}") from None

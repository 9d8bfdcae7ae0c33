"""The rules of the fields that say where a pod may go: affinity, tolerations, topology spread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tidelog.api.features import FeatureGates
from tidelog.api.objects import (
    Affinity,
    LabelSelector,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
)
from tidelog.api.selectors import parse_int64
from tidelog.api.validation import names
from tidelog.api.validation.common import (
    EXISTS_FORBIDS_VALUES,
    IN_NEEDS_VALUES,
    NOT_AN_OPERATOR,
    REQUIREMENTS_MAX,
    label_selector,
    label_values,
)
from tidelog.api.validation.field_errors import POSITIVE, ErrorList

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
FALLBACK_CRITERIA = ("NodeProvisioningFailed", "PreemptionFailed")
WEIGHT_RULE = "must be in the range 1-100"
SELECTOR_NOT_SET = "must not be specified when labelSelector is not set"
IN_BOTH = "exists in both matchLabelKeys and labelSelector"
DEMANDS_MAX = 64
"""Limit on a pod's demands on its place, all together: requirements on nodes, pod affinity terms, spread constraints. Kubernetes has
no such limit, nor the two below. Each costs the first pod of its kind something, and nothing else is decided meanwhile."""
DEMANDS_ON_PODS_MAX = 32
"""Limit on the demands that are about other pods: terms and constraints. One costs up to 3 ms at 5,000 nodes."""
TOPOLOGY_KEYS_MAX = 8
"""Limit on their different topology keys."""


def demands(
    errors: ErrorList, found: Affinity | None, constraints: Sequence[TopologySpreadConstraint], path: str
) -> None:
    """Not more than can be looked at in one attempt."""
    terms = [term for part in _on_pods(found) for term in _terms_of(part)]
    on_pods = len(constraints) + len(terms)
    count = on_pods + _requirements_on_nodes(found)
    if count > DEMANDS_MAX:
        what = "requirements on nodes, pod affinity terms and spread constraints"
        errors.add(path, "TooMany", count, f"must have at most {DEMANDS_MAX} {what} in all")
    if on_pods > DEMANDS_ON_PODS_MAX:
        what = "pod affinity terms and spread constraints"
        errors.add(path, "TooMany", on_pods, f"must have at most {DEMANDS_ON_PODS_MAX} {what} in all")
    keys = {constraint.topology_key for constraint in constraints} | {term.topology_key for term in terms}
    if len(keys) > TOPOLOGY_KEYS_MAX:
        what = "topology keys among pod affinity terms and spread constraints"
        errors.add(path, "TooMany", len(keys), f"must have at most {TOPOLOGY_KEYS_MAX} different {what}")


def _requirements_on_nodes(found: Affinity | None) -> int:
    if found is None or found.node_affinity is None:
        return 0
    terms = [term.preference for term in found.node_affinity.preferred]
    if found.node_affinity.required is not None:
        terms += found.node_affinity.required.node_selector_terms
    return sum(max(1, len(term.match_expressions) + len(term.match_fields)) for term in terms)


def _on_pods(found: Affinity | None) -> list[PodAffinity]:
    parts = (found.pod_affinity, found.pod_anti_affinity) if found is not None else ()
    return [part for part in parts if part is not None]


def _terms_of(part: PodAffinity) -> Iterator[PodAffinityTerm]:
    yield from part.required
    yield from (weighted.pod_affinity_term for weighted in part.preferred)


def affinity(errors: ErrorList, found: Affinity | None, path: str) -> None:
    """Node affinity, pod affinity, pod anti-affinity."""
    if found is None:
        return
    if found.node_affinity is not None:
        _node_affinity(errors, found.node_affinity, f"{path}.nodeAffinity")
    if found.pod_affinity is not None:
        _pod_affinity(errors, found.pod_affinity, f"{path}.podAffinity")
    if found.pod_anti_affinity is not None:
        _pod_affinity(errors, found.pod_anti_affinity, f"{path}.podAntiAffinity")


# --- nodes --------------------------------------------------------------------------------------------------------------


def _node_affinity(errors: ErrorList, found: NodeAffinity, path: str) -> None:
    if found.required is not None:
        node_selector(errors, found.required, f"{path}.{REQUIRED}")
    for index, term in enumerate(found.preferred):
        where = f"{path}.{PREFERRED}[{index}]"
        _weight(errors, term.weight, where)
        # Kubernetes lets any value pass in preferences.
        _node_term(errors, term.preference, f"{where}.preference", any_value=True)


def node_selector(errors: ErrorList, found: NodeSelector, path: str) -> None:
    """At least one term, each of valid requirements."""
    if not found.node_selector_terms:
        errors.required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(found.node_selector_terms):
        _node_term(errors, term, f"{path}.nodeSelectorTerms[{index}]")


def _node_term(errors: ErrorList, term: NodeSelectorTerm, path: str, any_value: bool = False) -> None:
    for index, requirement in enumerate(term.match_expressions):
        where = f"{path}.matchExpressions[{index}]"
        _node_requirement(errors, requirement, where)
        if not any_value:
            label_values(errors, requirement.values, where)
    for index, requirement in enumerate(term.match_fields):
        _node_field(errors, requirement, f"{path}.matchFields[{index}]")


def _node_requirement(errors: ErrorList, requirement: NodeSelectorRequirement, path: str) -> None:
    operator, values = requirement.operator, requirement.values
    if operator in ("In", "NotIn"):
        if not values:
            errors.required(f"{path}.values", IN_NEEDS_VALUES)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            errors.forbidden(f"{path}.values", EXISTS_FORBIDS_VALUES)
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            rule = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.required(f"{path}.values", rule)
        elif parse_int64(values[0]) is None:
            # kube-scheduler lets it in and then never matches; here it is told.
            rule = "must be an integer when `operator` is 'Lt' or 'Gt'"
            errors.invalid(f"{path}.values[0]", values[0], rule)
    else:
        errors.invalid(f"{path}.operator", operator, NOT_AN_OPERATOR)
    errors.invalid_each(f"{path}.key", requirement.key, names.label_key(requirement.key))


def _node_field(errors: ErrorList, requirement: NodeSelectorRequirement, path: str) -> None:
    if requirement.operator not in ("In", "NotIn"):
        errors.invalid(f"{path}.operator", requirement.operator, NOT_AN_OPERATOR)
    elif len(requirement.values) != 1:
        rule = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.required(f"{path}.values", rule)
    if requirement.key != "metadata.name":
        errors.invalid(f"{path}.key", requirement.key, "not a valid field selector key")
        return
    for index, value in enumerate(requirement.values):
        errors.invalid_each(f"{path}.values[{index}]", value, names.dns_subdomain(value))


def _weight(errors: ErrorList, weight: int, path: str) -> None:
    if not 1 <= weight <= 100:
        errors.invalid(f"{path}.weight", weight, WEIGHT_RULE)


# --- pods ---------------------------------------------------------------------------------------------------------------


def _pod_affinity(errors: ErrorList, found: PodAffinity, path: str) -> None:
    for index, term in enumerate(found.required):
        pod_affinity_term(errors, term, f"{path}.{REQUIRED}[{index}]")
    for index, weighted in enumerate(found.preferred):
        where = f"{path}.{PREFERRED}[{index}]"
        _weight(errors, weighted.weight, where)
        pod_affinity_term(errors, weighted.pod_affinity_term, f"{where}.podAffinityTerm")


def pod_affinity_term(errors: ErrorList, term: PodAffinityTerm, path: str) -> None:
    """One term of pod affinity or anti-affinity."""
    label_selector(errors, term.label_selector, f"{path}.labelSelector")
    label_selector(errors, term.namespace_selector, f"{path}.namespaceSelector")
    for index, namespace in enumerate(term.namespaces):
        errors.invalid_each(f"{path}.namespaces[{index}]", namespace, names.dns_label(namespace))
    for field, keys in (
        ("matchLabelKeys", term.match_label_keys),
        ("mismatchLabelKeys", term.mismatch_label_keys),
    ):
        _label_keys(errors, keys, term.label_selector, f"{path}.{field}")
    for index, key in enumerate(term.match_label_keys):
        if key in term.mismatch_label_keys:
            rule = "exists in both matchLabelKeys and mismatchLabelKeys"
            errors.invalid(f"{path}.matchLabelKeys[{index}]", key, rule)
    _keys_not_selected(errors, term.match_label_keys, term.label_selector, f"{path}.matchLabelKeys")
    if not term.topology_key:
        errors.required(f"{path}.topologyKey", "can not be empty")
    else:
        errors.invalid_each(f"{path}.topologyKey", term.topology_key, names.label_key(term.topology_key))


def _label_keys(errors: ErrorList, keys: Sequence[str], selector: LabelSelector | None, path: str) -> None:
    if keys and selector is None:
        errors.forbidden(path, SELECTOR_NOT_SET)
    if len(keys) > REQUIREMENTS_MAX:
        errors.too_many(path, len(keys), REQUIREMENTS_MAX)
    for index, key in enumerate(keys):
        errors.invalid_each(f"{path}[{index}]", key, names.label_key(key))


def _keys_not_selected(
    errors: ErrorList, keys: Iterable[str], selector: LabelSelector | None, path: str
) -> None:
    """A key may be selected by matchLabelKeys or by hand, not by both.

    Admission appends one requirement for each key of matchLabelKeys; objects that come back with it are in order.
    """
    if selector is None:
        return
    for index, key in enumerate(keys):
        found = [r for r in selector.match_expressions if r.key == key]
        by_hand = any(r.operator != "In" or len(r.values) != 1 for r in found)
        if key in selector.match_labels or len(found) > 1 or by_hand:
            errors.invalid(f"{path}[{index}]", key, IN_BOTH)


# --- tolerations --------------------------------------------------------------------------------------------------------


def tolerations(errors: ErrorList, found: Iterable[Toleration], path: str) -> None:
    """Each with a consistent key, operator, value and effect."""
    for index, toleration in enumerate(found):
        _toleration(errors, toleration, f"{path}[{index}]")


def _toleration(errors: ErrorList, toleration: Toleration, path: str) -> None:
    if toleration.key:
        errors.invalid_each(f"{path}.key", toleration.key, names.label_key(toleration.key))
    elif toleration.operator != "Exists":
        rule = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.invalid(f"{path}.operator", toleration.operator, rule)
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        rule = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.invalid(f"{path}.effect", toleration.effect, rule)
    if toleration.operator in ("", "Equal"):
        rules = names.label_value(toleration.value)
        if rules:
            errors.invalid(f"{path}.operator", toleration.value, ";".join(rules))
    elif toleration.operator == "Exists":
        if toleration.value:
            rule = "value must be empty when `operator` is 'Exists'"
            errors.invalid(f"{path}.operator", toleration.value, rule)
    else:
        # Lt and Gt belong to a gate that is off by default upstream and not one of ours.
        errors.not_supported(f"{path}.operator", toleration.operator, ("Equal", "Exists"))
    if toleration.effect and toleration.effect not in EFFECTS:
        errors.not_supported(f"{path}.effect", toleration.effect, EFFECTS)


# --- topology spread ----------------------------------------------------------------------------------------------------


def topology_spread(
    errors: ErrorList,
    found: Sequence[TopologySpreadConstraint],
    path: str,
    gates: FeatureGates,
    keep_fallback: bool = False,
) -> None:
    """The constraints of a pod. `keep_fallback`: their criteria are stored already."""
    last = {(c.topology_key, c.when_unsatisfiable): index for index, c in enumerate(found)}
    for index, constraint in enumerate(found):
        where = f"{path}[{index}]"
        _spread(errors, constraint, where)
        _fallback(errors, constraint, f"{where}.fallbackCriteria", gates, keep_fallback)
        if last[constraint.topology_key, constraint.when_unsatisfiable] > index:
            pair = f"{{{constraint.topology_key}, {constraint.when_unsatisfiable}}}"
            errors.duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", pair)


def _spread(errors: ErrorList, constraint: TopologySpreadConstraint, path: str) -> None:
    if constraint.max_skew < 1:
        errors.invalid(f"{path}.maxSkew", constraint.max_skew, POSITIVE)
    if not constraint.topology_key:
        errors.required(f"{path}.topologyKey", "can not be empty")
    if constraint.when_unsatisfiable not in UNSATISFIABLE:
        errors.not_supported(f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, UNSATISFIABLE)
    if constraint.min_domains is not None:
        if constraint.min_domains < 1:
            errors.invalid(f"{path}.minDomains", constraint.min_domains, POSITIVE)
        if constraint.when_unsatisfiable != "DoNotSchedule":
            rule = _only_when_hard("minDomains", constraint)
            errors.invalid(f"{path}.minDomains", constraint.min_domains, rule)
    for field, policy in (
        ("nodeAffinityPolicy", constraint.node_affinity_policy),
        ("nodeTaintsPolicy", constraint.node_taints_policy),
    ):
        if policy not in (None, "Honor", "Ignore"):
            errors.not_supported(f"{path}.{field}", policy, ("Honor", "Ignore"))
    _label_keys(errors, constraint.match_label_keys, constraint.label_selector, f"{path}.matchLabelKeys")
    _keys_not_selected(
        errors, constraint.match_label_keys, constraint.label_selector, f"{path}.matchLabelKeys"
    )
    label_selector(errors, constraint.label_selector, f"{path}.labelSelector")


def _only_when_hard(field: str, constraint: TopologySpreadConstraint) -> str:
    return f"can only use {field} if whenUnsatisfiable=DoNotSchedule, not {constraint.when_unsatisfiable}"


def _fallback(
    errors: ErrorList,
    constraint: TopologySpreadConstraint,
    path: str,
    gates: FeatureGates,
    keep: bool,
) -> None:
    """KEP-3990: known criteria, each once, only on a hard constraint, only with the gate on."""
    criteria = constraint.fallback_criteria
    if not criteria:
        return
    if not gates.pod_topology_spread_fallback_mode and not keep:
        errors.forbidden(path, "may not be set while the feature gate PodTopologySpreadFallbackMode is off")
    if constraint.when_unsatisfiable != "DoNotSchedule":
        errors.invalid(path, list(criteria), _only_when_hard("fallbackCriteria", constraint))
    seen: set[str] = set()
    for index, criterion in enumerate(criteria):
        if criterion not in FALLBACK_CRITERIA:
            errors.not_supported(f"{path}[{index}]", criterion, FALLBACK_CRITERIA)
        elif criterion in seen:
            errors.duplicate(f"{path}[{index}]", criterion)
        seen.add(criterion)

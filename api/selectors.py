"""Label selectors and node selectors, as kube-scheduler matches them.

Selectors are compiled once to closures over plain dicts and cached by value, because the same few selectors are matched
against very many objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from tidelog.api.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
)

Labels = Mapping[str, str]
Matcher = Callable[[Labels], bool]

_INT64 = re.compile(r"[+-]?\d+", re.ASCII)


class SelectorError(ValueError):
    """The selector does not parse. Who matches decides what that means (mostly: it matches nothing)."""


def parse_int64(text: str) -> int | None:
    """As Go's ParseInt(text, 10, 64); None if it is none."""
    if not _INT64.fullmatch(text):
        return None
    value = int(text)
    return value if -(1 << 63) <= value < 1 << 63 else None


def _requirement(key: str, operator: str, values: tuple[str, ...]) -> Matcher:
    """One requirement with Kubernetes' semantics: NotIn and DoesNotExist also match when the key is absent."""
    if operator in ("In", "NotIn"):
        if not values:
            raise SelectorError(f"for 'in', 'notin' operators, values set can't be empty: {key}")
        wanted = frozenset(values)
        if operator == "In":
            return lambda labels: labels.get(key) in wanted
        return lambda labels: key not in labels or labels[key] not in wanted
    if operator in ("Exists", "DoesNotExist"):
        if values:
            raise SelectorError(f"values set must be empty for exists and does not exist: {key}")
        if operator == "Exists":
            return lambda labels: key in labels
        return lambda labels: key not in labels
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            raise SelectorError(f"for 'Gt', 'Lt' operators, exactly one value is required: {key}")
        bound = parse_int64(values[0])
        if bound is None:
            raise SelectorError(f"for 'Gt', 'Lt' operators, the value must be an integer: {key}")
        return _comparison(key, operator == "Gt", bound)
    raise SelectorError(f"{operator!r} is not a valid selector operator")


def _comparison(key: str, greater: bool, bound: int) -> Matcher:
    def match(labels: Labels) -> bool:
        text = labels.get(key)
        value = None if text is None else parse_int64(text)
        return value is not None and (value > bound if greater else value < bound)

    return match


def _all_of(matchers: list[Matcher]) -> Matcher:
    if not matchers:
        return lambda _labels: True
    if len(matchers) == 1:
        return matchers[0]
    return lambda labels: all(match(labels) for match in matchers)


def nothing(_labels: Labels) -> bool:
    """The matcher of an absent selector."""
    return False


_label_cache: dict[tuple[object, ...], Matcher] = {}


def selector_key(selector: LabelSelector) -> tuple[object, ...]:
    """A hashable value, equal for equal selectors (label order aside)."""
    labels = selector.match_labels
    pairs = labels.items() if len(labels) < 2 else sorted(labels.items())
    return (tuple(pairs), selector.match_expressions)


def is_empty(selector: LabelSelector) -> bool:
    """It asks for nothing, and so it matches everything."""
    return not selector.match_labels and not selector.match_expressions


def label_matcher(selector: LabelSelector | None) -> Matcher:
    """None matches nothing, the empty selector everything. Raises SelectorError if it does not parse."""
    if selector is None:
        return nothing
    key = selector_key(selector)
    found = _label_cache.get(key)
    if found is None:
        if len(_label_cache) >= 8192:
            _label_cache.clear()
        found = _label_cache[key] = _compile(selector)
    return found


def _compile(selector: LabelSelector) -> Matcher:
    matchers: list[Matcher] = []
    pairs = tuple(selector.match_labels.items())
    if len(pairs) == 1:
        ((name, value),) = pairs
        matchers.append(lambda labels: labels.get(name) == value)
    elif pairs:
        matchers.append(lambda labels: all(labels.get(k) == v for k, v in pairs))
    matchers.extend(_label_requirement(r) for r in selector.match_expressions)
    return _all_of(matchers)


def _label_requirement(requirement: LabelSelectorRequirement) -> Matcher:
    if requirement.operator in ("Gt", "Lt"):
        raise SelectorError(f"{requirement.operator!r} is not a valid label selector operator")
    return _requirement(requirement.key, requirement.operator, requirement.values)


def map_matcher(selector: Mapping[str, str]) -> Matcher:
    """A Service's or ReplicationController's plain map; an empty one matches nothing."""
    if not selector:
        return nothing
    pairs = tuple(selector.items())
    return lambda labels: all(labels.get(k) == v for k, v in pairs)


# --- node selectors -----------------------------------------------------------------------------------------------------

NodeMatcher = Callable[[Node], bool]


@lru_cache(maxsize=8192)
def node_term_matcher(term: NodeSelectorTerm) -> NodeMatcher:
    """One term: expressions and fields ANDed; a term with neither matches nothing. Raises SelectorError."""
    if not term.match_expressions and not term.match_fields:
        return lambda _node: False
    on_labels = _all_of([_requirement(r.key, r.operator, r.values) for r in term.match_expressions])
    on_fields = _all_of([_field_requirement(r) for r in term.match_fields])
    return lambda node: on_labels(node.metadata.labels) and on_fields({"metadata.name": node.metadata.name})


def _field_requirement(requirement: NodeSelectorRequirement) -> Matcher:
    """Fields know only metadata.name with In or NotIn and one value."""
    if requirement.operator not in ("In", "NotIn"):
        raise SelectorError(f"{requirement.operator!r} is not a valid node field selector operator")
    if len(requirement.values) != 1:
        raise SelectorError("node field selector values must have exactly one element")
    key, value = requirement.key, requirement.values[0]
    if requirement.operator == "In":
        return lambda fields: fields.get(key) == value
    return lambda fields: fields.get(key) != value


@lru_cache(maxsize=8192)
def node_selector_matcher(selector: NodeSelector) -> NodeMatcher:
    """Terms ORed; no terms match nothing; a term that does not parse never matches, the others still may.

    If no term matches and some did not parse, kube-scheduler reports an error, which every caller of ours treats as "no
    match"; hints that must report it use `node_selector_error`.
    """
    matchers = []
    for term in selector.node_selector_terms:
        try:
            matchers.append(node_term_matcher(term))
        except SelectorError:
            continue
    return lambda node: any(match(node) for match in matchers)


@lru_cache(maxsize=8192)
def volume_affinity_matcher(selector: NodeSelector) -> Matcher:
    """As `node_selector_matcher`, for the node affinity of a volume: only labels are given to it, so the node's name is empty."""
    matchers: list[Matcher] = []
    for term in selector.node_selector_terms:
        if not term.match_expressions and not term.match_fields:
            continue
        try:
            on_labels = _all_of([_requirement(r.key, r.operator, r.values) for r in term.match_expressions])
            on_fields = _all_of([_field_requirement(r) for r in term.match_fields])
        except SelectorError:
            continue
        if on_fields({"metadata.name": ""}):
            matchers.append(on_labels)
    if len(matchers) == 1:
        return matchers[0]
    return lambda labels: any(match(labels) for match in matchers)


def node_selector_error(selector: NodeSelector) -> SelectorError | None:
    """The first parse error among the terms."""
    for term in selector.node_selector_terms:
        try:
            node_term_matcher(term)
        except SelectorError as error:
            return error
    return None


def pod_matches_node(spec: PodSpec, node: Node) -> bool:
    """nodeSelector and required node affinity (not the scheduler's added affinity)."""
    labels = node.metadata.labels
    for key, value in spec.node_selector.items():
        if labels.get(key) != value:
            return False
    affinity = spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return True
    return node_selector_matcher(affinity.node_affinity.required)(node)

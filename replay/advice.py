"""Advice for a pod that fits nowhere: for each plugin that rejects it, the smallest change that would make the plugin agree.

Advice is computed from the examination, the matrix of every plugin and node. It looks first at the nodes that only this plugin rejects,
because there its agreement is all that is missing; where there are none it says which other plugins stand in the way as well.

A plugin of somebody else gets its reasons and the events that it waits for: those it has declared itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tidelog.api.kinds.columns import taint_words
from tidelog.api.objects import LabelSelector, Node, NodeSelectorRequirement, NodeSelectorTerm
from tidelog.api.quantity import format_binary
from tidelog.api.resources import CPU, EPHEMERAL_STORAGE, MEMORY
from tidelog.api.selectors import node_term_matcher
from tidelog.api.taints import is_tolerated
from tidelog.framework.interface import Code
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.inter_pod_affinity.counts import Incoming
from tidelog.plugins.node_resources.fit import REASON_TOO_MANY_PODS
from tidelog.plugins.pod_topology_spread.constraints import Constraint
from tidelog.plugins.pod_topology_spread.filter import SpreadCounts
from tidelog.replay.device_advice import devices_advice, failure_advice
from tidelog.replay.examine import Examination
from tidelog.replay.volume_advice import (
    binding_advice,
    limits_advice,
    restrictions_advice,
    zone_advice,
)

NAMED_MAX = 5
"""At most this many nodes or pods are named; of more, the number is given."""

PREFERENCE = "PreferNoSchedule"


class Help(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Advice on one plugin."""

    plugin: str
    nodes: int
    """How many nodes it rejects."""
    only: int = 0
    """How many of them nobody else rejects."""
    reasons: dict[str, int] = {}
    """Its reasons → on how many nodes."""
    advice: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Where none is rejected by this plugin alone: the plugins that reject its nodes as well."""
    gate: str = ""
    """Set where the plugin keeps the pod out of the queue, whatever the nodes: its reason. Then `nodes` is 0."""


def advise(seen: Examination, node: NodeInfo | None = None) -> list[Help]:
    """For every plugin that rejects the pod somewhere, or on this node; who rejects most nodes comes first."""
    found = [_help(seen, plugin, node) for plugin in seen.blamed()]
    return [each for each in found if each.nodes]


def gate_advice(plugin: str, seen: Examination) -> tuple[str, ...]:
    """Advice on the gate of this plugin."""
    advisor = _ADVISORS.get(plugin)
    return () if advisor is None else tuple(advisor(seen, seen.nodes))


def _help(seen: Examination, plugin: str, about: NodeInfo | None) -> Help:
    rejected, only = seen.nodes_of(plugin), seen.nodes_of_only(plugin)
    if about is not None:
        rejected, only = ([n for n in nodes if n.name == about.name] for nodes in (rejected, only))
    own = [s for node in rejected for s in seen.by_node[node.name] if s.plugin == plugin]
    others = Counter(s.plugin for node in rejected for s in seen.by_node[node.name] if s.plugin != plugin)
    advisor = _ADVISORS.get(plugin)
    failed = [s for s in own if s.code is Code.ERROR]
    if failed:
        advice: list[str] = [f"it fails: {failed[0].message}", *failure_advice(failed[0].message)]
    elif advisor is None:
        advice = []
    else:
        advice = list(advisor(seen, only or rejected))
    return Help(
        plugin=plugin,
        nodes=len(rejected),
        only=len(only),
        reasons=dict(sorted(Counter(r for s in own for r in s.reasons).items())),
        advice=tuple(advice),
        also=() if only else tuple(sorted(others)),
    )


def named(names: Iterable[str]) -> str:
    """`n1, n2 and 7 more`."""
    known = list(names)
    shown = ", ".join(known[:NAMED_MAX])
    return f"{shown} and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else shown


def _names(nodes: Iterable[NodeInfo]) -> str:
    return named(sorted(node.name for node in nodes))


def _none_has(nodes: Sequence[NodeInfo], what: str, one: str) -> str:
    """`what` no node has; `one` says it of a single node."""
    names = sorted(node.name for node in nodes)
    if len(names) == 1:
        return f"{names[0]} has {one}"
    return f"none of {f'these {len(names)}' if len(names) > NAMED_MAX else ', '.join(names)} has {what}"


# --- one node at a time ---------------------------------------------------------------------------------------------


def amount(resource: str, value: int) -> str:
    """An amount of a resource as people write it."""
    if resource == CPU:
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    return format_binary(value) if resource in (MEMORY, EPHEMERAL_STORAGE) else str(value)


def _resources(seen: Examination, nodes: Sequence[NodeInfo]) -> Iterator[str]:
    """For each resource that is short: the node with the most of it free, and how much is missing there."""
    reasons = Counter(r for n in nodes for s in seen.by_node[n.name] for r in s.reasons)
    if reasons[REASON_TOO_MANY_PODS]:
        most = max(nodes, key=lambda n: n.allowed_pods - len(n.pods))
        yield (
            f"a node with room for one more pod: {most.name} holds {len(most.pods)} and may hold {most.allowed_pods}"
        )
    short = [name for name in seen.pod.requests if reasons[f"Insufficient {name}"]]
    for name in short:
        yield from _short_of(seen, name, nodes)
    if len(short) > 1 and nodes:
        yield f"all of them on one node: {_closest(seen.pod, short, nodes)}"


def _short_of(seen: Examination, name: str, nodes: Sequence[NodeInfo]) -> Iterator[str]:
    wanted = seen.pod.requests[name]
    holding = [node for node in nodes if node.allocatable.get(name)]
    large = [node for node in holding if node.allocatable[name] >= wanted]
    if not holding:
        yield _without(seen, name, wanted, nodes)
    elif not large:
        largest = amount(name, max(node.allocatable[name] for node in holding))
        none = _none_has(holding, f"more than {largest}", f"no more than {largest}")
        yield f"a larger node: the pod asks for {amount(name, wanted)} {name}, and {none} even when empty"
    else:
        best = max(large, key=lambda n: _free(n, name))
        free = _free(best, name)
        if free < wanted:
            yield (
                f"{amount(name, wanted - free)} more {name} on {best.name}, the node with the most room: it has {amount(name, max(free, 0))} "
                f"of {amount(name, best.allocatable[name])} free, and the pod asks for {amount(name, wanted)}"
            )


def _without(seen: Examination, name: str, wanted: int, nodes: Sequence[NodeInfo]) -> str:
    """None of these nodes has any of a resource: others have, or nobody."""
    asks = f"a node with {amount(name, wanted)} {name}"
    having = [node for node in seen.nodes if node.allocatable.get(name, 0) >= wanted]
    if not having:
        some = sum(1 for node in seen.nodes if node.allocatable.get(name))
        return f"{asks}: " + (f"{some} have less even when empty" if some else "no node has any")
    others = sorted({s.plugin for node in having for s in seen.by_node[node.name]})
    return f"{asks}: {_none_has(nodes, 'any', 'none')}; {_names(having)} would, and what is in the way there is {', '.join(others)}"


def _free(node: NodeInfo, name: str) -> int:
    return node.allocatable.get(name, 0) - node.requested.get(name, 0)


def _closest(pod: PodInfo, short: Sequence[str], nodes: Sequence[NodeInfo]) -> str:
    """The node that lacks the smallest part of what the pod asks for."""

    def lacking(node: NodeInfo) -> tuple[int, int]:
        shares = [max(pod.requests[n] - _free(node, n), 0) * 1000 // pod.requests[n] for n in short]
        return max(shares), sum(shares)

    node = min(nodes, key=lacking)
    missing = [(n, pod.requests[n] - _free(node, n)) for n in short]
    lacks = ", ".join(f"{amount(n, lack)} {n}" for n, lack in missing if lack > 0)
    return f"{node.name} comes closest and lacks {lacks}"


def _taints(seen: Examination, nodes: Sequence[NodeInfo]) -> Iterator[str]:
    by_taints: dict[tuple[str, ...], list[str]] = {}
    tolerations = seen.pod.pod.spec.tolerations
    for node in nodes:
        found = sorted(
            taint_words(taint)
            for taint in node.node.spec.taints
            if taint.effect != PREFERENCE and not is_tolerated(taint, tolerations)
        )
        if found:
            by_taints.setdefault(tuple(found), []).append(node.name)
    for taints, names in sorted(by_taints.items(), key=lambda item: (-len(item[1]), item[0])):
        removal = "its removal" if len(taints) == 1 else "removal of all of them"
        yield f"a toleration of {' and '.join(taints)}, or {removal} from {named(sorted(names))}"


def _cordons(_seen: Examination, nodes: Sequence[NodeInfo]) -> Iterator[str]:
    yield f"uncordoning {_names(nodes)}"


def _node_name(seen: Examination, _nodes: Sequence[NodeInfo]) -> Iterator[str]:
    yield f"a node of the name {seen.pod.pod.spec.node_name}, which the pod asks for"


def _ports(seen: Examination, nodes: Sequence[NodeInfo]) -> Iterator[str]:
    for node in nodes[:NAMED_MAX]:
        holders = [
            other.key
            for other in node.pods.values()
            if NodeInfo(node.node, [other]).conflicts_with(seen.pod.host_ports)
        ]
        ports = ", ".join(f"{port}/{protocol}" for _, protocol, port in seen.pod.host_ports)
        yield f"host port {ports} is held on {node.name} by {named(holders)}"
    if len(nodes) > NAMED_MAX:
        yield f"and likewise on {len(nodes) - NAMED_MAX} more nodes"


def _gates(seen: Examination, _nodes: Sequence[NodeInfo]) -> Iterator[str]:
    gates = [gate.name for gate in seen.pod.pod.spec.scheduling_gates]
    if gates:
        yield f"removing the scheduling gates {named(gates)}"


# --- labels ---------------------------------------------------------------------------------------------------------


def _node_affinity(seen: Examination, nodes: Sequence[NodeInfo]) -> Iterator[str]:
    spec = seen.pod.pod.spec
    for key, value in spec.node_selector.items():
        lacking = [n.name for n in nodes if n.labels.get(key) != value]
        if lacking:
            has = Counter(n.labels[key] for n in nodes if key in n.labels)
            known = ", ".join(f"{v} ({count})" for v, count in sorted(has.items())[:NAMED_MAX])
            yield (
                f"the label {key}={value} on a node: {len(lacking)} of these {len(nodes)} lack it"
                + (f"; values there are: {known}" if known else "; none has the label at all")
            )
    affinity = spec.affinity.node_affinity if spec.affinity else None
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required else ()
    wanted = [
        [*map(_one, term.match_expressions), *(_one(r, field=True) for r in term.match_fields)]
        for term in terms
    ]
    for number, term in enumerate(wanted):
        for requirement in term:
            met = sum(requirement.matches(node.node) for node in nodes)
            if met < len(nodes):
                either = "or " if number else ""
                yield f"{either}a node with {requirement.text}: {met} of these {len(nodes)} have that"
    if len(spec.node_selector) + max(map(len, wanted), default=0) > 1:
        yield from _closest_labels(spec.node_selector, wanted, nodes)


class _Requirement(NamedTuple):
    """One of the things that a term of a node affinity asks for."""

    text: str
    matches: Callable[[Node], bool]


def _one(requirement: NodeSelectorRequirement, *, field: bool = False) -> _Requirement:
    alone = (
        NodeSelectorTerm(match_fields=(requirement,))
        if field
        else NodeSelectorTerm(match_expressions=(requirement,))
    )
    return _Requirement(_requirement(requirement), node_term_matcher(alone))


def _closest_labels(
    selector: Mapping[str, str], terms: Sequence[Sequence[_Requirement]], nodes: Sequence[NodeInfo]
) -> Iterator[str]:
    """Where several things are asked for, the node that lacks the fewest, by the term that asks least more of it."""
    best: tuple[int, str, list[str]] | None = None
    for node in nodes:
        labels = [f"{key}={value}" for key, value in selector.items() if node.labels.get(key) != value]
        for term in terms or [()]:
            lacks = labels + [r.text for r in term if not r.matches(node.node)]
            if best is None or len(lacks) < best[0]:
                best = (len(lacks), node.name, lacks)
    if best is not None and best[0] > 1:
        yield f"all of it on one node: {best[1]} comes closest and lacks {', '.join(best[2])}"


def _requirement(requirement: NodeSelectorRequirement) -> str:
    values = ", ".join(requirement.values)
    words = {
        "In": f"{requirement.key} in ({values})",
        "NotIn": f"{requirement.key} not in ({values})",
        "Exists": f"the label {requirement.key}",
        "DoesNotExist": f"no label {requirement.key}",
        "Gt": f"{requirement.key} > {values}",
        "Lt": f"{requirement.key} < {values}",
    }
    return words.get(requirement.operator, f"{requirement.key} {requirement.operator} {values}")


# --- domains --------------------------------------------------------------------------------------------------------


def _spread(seen: Examination, nodes: Sequence[NodeInfo]) -> Iterator[str]:
    counts = seen.state.read("PodTopologySpread.filter")
    if not isinstance(counts, SpreadCounts):
        return
    for constraint, domains in zip(counts.constraints, counts.counts, strict=True):
        key = constraint.topology_key
        unlabelled = [n.name for n in nodes if key not in n.labels]
        if unlabelled:
            yield f"the label {key} on {named(unlabelled)}"
        yield from _skewed(seen, constraint, domains.as_dict())


def _skewed(seen: Examination, constraint: Constraint, domains: dict[str, int]) -> Iterator[str]:
    key = constraint.topology_key
    told = ", ".join(f"{domain}: {count}" for domain, count in sorted(domains.items())[: 2 * NAMED_MAX])
    if len(domains) < constraint.min_domains:
        yield (
            f"{constraint.min_domains - len(domains)} more domains of {key}: minDomains asks for {constraint.min_domains}, and there are "
            f"{len(domains)} ({told or 'none'}); until then each may hold {constraint.max_skew} pods"
        )
        return
    minimum = min(domains.values(), default=0)
    itself = int(constraint.matches(seen.pod.labels))
    crowded = [d for d, count in domains.items() if count + itself - minimum > constraint.max_skew]
    if not crowded:
        return
    smallest = sorted(domain for domain, count in domains.items() if count == minimum)
    yield (
        f"a place in {key} {named(smallest)}, which holds the minimum of {minimum} matching pods ({told}; maxSkew "
        f"{constraint.max_skew})"
    )
    for domain in smallest[:NAMED_MAX]:
        yield from _why_not_there(seen, key, domain)


def _why_not_there(seen: Examination, key: str, domain: str) -> Iterator[str]:
    """Why the domain that should take the pod does not."""
    inside = [node for node in seen.nodes if node.labels.get(key) == domain]
    reasons = Counter(
        f"{s.plugin}: {r}"
        for n in inside
        for s in seen.by_node[n.name]
        if s.plugin != "PodTopologySpread"
        for r in s.reasons
    )
    if inside and reasons:
        told = "; ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        yield f"the {len(inside)} nodes of {domain} cannot take it: {told}"


def _affinity(seen: Examination, _nodes: Sequence[NodeInfo]) -> Iterator[str]:
    incoming = Incoming(seen.pod, seen.framework.handle.listers)
    terms, pod = seen.pod.terms, seen.pod
    for term, source in zip(terms.affinity, pod.affinity_required, strict=False):
        selector = _selector(source.label_selector)
        near = Counter(
            node.labels[term.topology_key]
            for node in seen.nodes
            if term.topology_key in node.labels
            for other in node.pods.values()
            if incoming.selects(term, other)
        )
        if near:
            yield f"room in {term.topology_key} {named(sorted(near))}, where pods with {selector} are"
        else:
            yield f"a pod with {selector} on a node that has the label {term.topology_key}: there is none"
    for term, source in zip(terms.anti_affinity, pod.anti_affinity_required, strict=False):
        holders = [
            f"{other.key} on {node.name}"
            for node in seen.nodes
            for other in node.pods.values()
            if incoming.selects(term, other)
        ]
        if holders:
            yield (
                f"a {term.topology_key} without pods with {_selector(source.label_selector)}: now there are {named(holders)}"
            )
    repelling = [
        f"{other.key} on {node.name}"
        for node in seen.nodes
        for other in node.required_anti_affinity_pods.values()
        if any(incoming.is_selected_by(term) for term in other.terms.anti_affinity)
    ]
    if repelling:
        yield f"these pods do not want it near them (their anti-affinity): {named(repelling)}"


def _selector(selector: LabelSelector | None) -> str:
    if selector is None:
        return "no labels that could match (there is no selector)"
    words = [f"{key}={value}" for key, value in selector.match_labels.items()]
    words += [
        f"{r.key} {r.operator}" + (f" ({', '.join(r.values)})" if r.values else "")
        for r in selector.match_expressions
    ]
    return ",".join(words) or "any labels"


_ADVISORS: dict[str, Callable[[Examination, Sequence[NodeInfo]], Iterator[str]]] = {
    "NodeResourcesFit": _resources,
    "TaintToleration": _taints,
    "NodeUnschedulable": _cordons,
    "NodeName": _node_name,
    "NodePorts": _ports,
    "NodeAffinity": _node_affinity,
    "PodTopologySpread": _spread,
    "InterPodAffinity": _affinity,
    "SchedulingGates": _gates,
    "DynamicResources": devices_advice,
    "VolumeBinding": binding_advice,
    "VolumeZone": zone_advice,
    "NodeVolumeLimits": limits_advice,
    "VolumeRestrictions": restrictions_advice,
}
"""By plugin: what to say of the nodes that it rejects, those first that nobody else does."""

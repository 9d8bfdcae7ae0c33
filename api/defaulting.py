"""Fill in defaults as the API server does, as far as scheduling reads them, and write each quantity in its one canonical way.

All functions return what they were given if there is nothing to fill in. Quantities that do not parse are left for
validation to complain about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from tidelog.api.objects import (
    Affinity,
    Container,
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    Quantity,
    ResourceRequirements,
    TopologySpreadConstraint,
)
from tidelog.api.quantity import canonical, format_binary
from tidelog.api.resources import container_sum, is_pod_level, spec_requests

DEFAULT_SCHEDULER = "default-scheduler"

_T = TypeVar("_T")
Labels = Mapping[str, str]


def canonical_quantities(found: dict[str, Quantity]) -> dict[str, Quantity]:
    """Each quantity in its canonical text."""
    texts: dict[str, Quantity] = {}
    for name, quantity in found.items():
        try:
            texts[name] = canonical(quantity)
        except ValueError:
            texts[name] = quantity
    return found if texts == found else texts


def default_node(node: Node) -> Node:
    """Make the capacity allocatable where the node does not say less."""
    status = node.status
    capacity = canonical_quantities(status.capacity)
    allocatable = canonical_quantities(status.allocatable) or capacity
    if capacity is status.capacity and allocatable is status.allocatable:
        return node
    return replace(node, status=replace(status, capacity=capacity, allocatable=allocatable))


def default_pod(pod: Pod, old: Pod | None) -> Pod:
    """Requests, host ports, protocols, the scheduler's name, matchLabelKeys folded into their selectors."""
    spec = pod.spec
    containers = tuple(_container(c, spec.host_network) for c in spec.containers)
    init_containers = spec.init_containers
    if init_containers:
        init_containers = tuple(_container(c, spec.host_network) for c in init_containers)
    constraints = _fold_constraints(pod, old)
    affinity = _fold_affinity(pod, old)
    spec = replace(
        spec,
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        containers=containers,
        init_containers=init_containers,
        overhead=canonical_quantities(spec.overhead) if spec.overhead else spec.overhead,
        topology_spread_constraints=constraints,
        affinity=affinity,
    )
    if spec.resources is not None:
        spec = replace(spec, resources=_pod_level(spec.resources, replace(pod, spec=spec)))
    return replace(pod, spec=spec)


def _container(container: Container, host_network: bool) -> Container:
    resources = _requests_from_limits(container.resources)
    ports = container.ports
    if ports:
        ports = tuple(
            replace(
                port,
                protocol=port.protocol or "TCP",
                host_port=port.host_port or (port.container_port if host_network else 0),
            )
            for port in ports
        )
    if resources is container.resources and ports == container.ports:
        return container
    return replace(container, resources=resources, ports=ports)


def _requests_from_limits(resources: ResourceRequirements) -> ResourceRequirements:
    if not resources.limits and not resources.requests:
        return resources
    limits = canonical_quantities(resources.limits)
    requests = canonical_quantities(resources.requests)
    missing = {name: limit for name, limit in limits.items() if name not in requests}
    if missing:
        requests = {**requests, **missing}
    if limits is resources.limits and requests is resources.requests:
        return resources
    return replace(resources, limits=limits, requests=requests)


def _pod_level(resources: ResourceRequirements, pod: Pod) -> ResourceRequirements:
    """With pod-level limits, a missing pod-level request is what the containers request together, else the limit."""
    limits = canonical_quantities(resources.limits)
    requests = dict(canonical_quantities(resources.requests))
    if limits:
        try:
            sums = container_sum(pod, spec_requests)
        except ValueError:
            sums = {}
        for name, value in sums.items():
            if is_pod_level(name) and name not in requests:
                requests[name] = canonical(f"{value}m") if name == "cpu" else format_binary(value)
        requests = {**{n: v for n, v in limits.items() if is_pod_level(n)}, **requests}
    return replace(resources, limits=limits, requests=requests)


# --- matchLabelKeys -----------------------------------------------------------------------------------------------------


def fold_keys(
    selector: LabelSelector | None,
    keys: Sequence[str],
    operator: str,
    labels: Labels,
    recorded: LabelSelector | None,
) -> LabelSelector | None:
    """The selector with `key operator [value]` for each key that the pod has.

    The values are those of the pod's creation: `recorded` is the selector that was made then, if this is an update. What
    is there already is not added again, so that objects which come back from a cluster stay as they are.
    """
    if selector is None or not keys:
        return selector
    more = []
    for key in keys:
        value = _recorded_value(recorded, key, operator) or labels.get(key)
        if value is None:
            continue
        requirement = LabelSelectorRequirement(key=key, operator=operator, values=(value,))
        if requirement not in selector.match_expressions:
            more.append(requirement)
    if not more:
        return selector
    return replace(selector, match_expressions=(*selector.match_expressions, *more))


def _recorded_value(recorded: LabelSelector | None, key: str, operator: str) -> str | None:
    if recorded is not None:
        for requirement in reversed(recorded.match_expressions):
            if (requirement.key, requirement.operator) == (key, operator) and len(requirement.values) == 1:
                return requirement.values[0]
    return None


def _at(found: Sequence[_T], index: int) -> _T | None:
    return found[index] if index < len(found) else None


def _fold_constraints(pod: Pod, old: Pod | None) -> tuple[TopologySpreadConstraint, ...]:
    constraints = pod.spec.topology_spread_constraints
    if not constraints or not any(constraint.match_label_keys for constraint in constraints):
        return constraints
    before = old.spec.topology_spread_constraints if old else ()
    return tuple(
        replace(
            constraint,
            label_selector=fold_keys(
                constraint.label_selector,
                constraint.match_label_keys,
                "In",
                pod.metadata.labels,
                was.label_selector if (was := _at(before, index)) else None,
            ),
        )
        for index, constraint in enumerate(constraints)
    )


def _fold_affinity(pod: Pod, old: Pod | None) -> Affinity | None:
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return affinity
    before = (old.spec.affinity if old else None) or Affinity()
    labels = pod.metadata.labels
    return replace(
        affinity,
        pod_affinity=_fold_terms(affinity.pod_affinity, before.pod_affinity, labels),
        pod_anti_affinity=_fold_terms(affinity.pod_anti_affinity, before.pod_anti_affinity, labels),
    )


def _fold_terms(found: PodAffinity | None, old: PodAffinity | None, labels: Labels) -> PodAffinity | None:
    if found is None:
        return None
    before = old or PodAffinity()
    return replace(
        found,
        required=tuple(
            _fold_term(term, _at(before.required, index), labels) for index, term in enumerate(found.required)
        ),
        preferred=tuple(
            replace(
                weighted,
                pod_affinity_term=_fold_term(
                    weighted.pod_affinity_term,
                    was.pod_affinity_term if (was := _at(before.preferred, index)) else None,
                    labels,
                ),
            )
            for index, weighted in enumerate(found.preferred)
        ),
    )


def _fold_term(term: PodAffinityTerm, old: PodAffinityTerm | None, labels: Labels) -> PodAffinityTerm:
    if not term.match_label_keys and not term.mismatch_label_keys:
        return term
    recorded = old.label_selector if old else None
    selector = fold_keys(term.label_selector, term.match_label_keys, "In", labels, recorded)
    selector = fold_keys(selector, term.mismatch_label_keys, "NotIn", labels, recorded)
    return replace(term, label_selector=selector)


def without_min_domains(spec: PodSpec) -> PodSpec:
    """KEP-3022: what a disabled gate drops."""
    return replace(
        spec,
        topology_spread_constraints=tuple(
            replace(constraint, min_domains=None) for constraint in spec.topology_spread_constraints
        ),
    )

"""Devices and who has them, as far as claims that a whole group shares need it (DRA, reduced).

    slices ─► usable pools ─► devices ─► those that fit the claim's class and selectors ─► sets that belong together ─► a choice

A pool is usable when every slice of its newest generation is there. Devices belong together if they have the same value of the claim's
`matchAttribute`, or without one are in the same pool, and can be reached from the same nodes. The choice among them is always the same:
in the order of (driver, pool, device), the first that are free. Tainted devices, and devices whose nodes are told device by device, are
never chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tidelog.api.device_selectors import DeviceSelectorError, Matcher, attribute, device_matcher
from tidelog.api.objects import (
    AllocationResult,
    Device,
    DeviceAllocation,
    DeviceClass,
    DeviceConstraint,
    DeviceResult,
    DeviceSelector,
    ExactDeviceRequest,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceClaim,
    ResourceSlice,
)

DeviceId = tuple[str, str, str]
"""Driver, pool, device."""


class Found(NamedTuple):
    """A device of a usable pool."""

    id: DeviceId
    device: Device
    nodes: NodeSelector | None
    """From where it can be reached; None: from everywhere."""


class DeviceSet(NamedTuple):
    """Devices that belong together, and fulfil a claim."""

    name: str
    allocation: AllocationResult


class NoSuchClass(Exception):
    """A claim asks for a class that does not exist, or that cannot be understood."""


def devices_of(slices: Iterable[ResourceSlice]) -> list[Found]:
    """Every device of the usable pools, in the order of their ids."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for one in slices:
        pools.setdefault((one.spec.driver, one.spec.pool.name), []).append(one)
    found = [device for pool in pools.values() for device in _devices_of_pool(pool)]
    return sorted(found, key=lambda one: one.id)


def _devices_of_pool(slices: Sequence[ResourceSlice]) -> Iterator[Found]:
    newest = max(one.spec.pool.generation for one in slices)
    current = [one for one in slices if one.spec.pool.generation == newest]
    if len(current) < max(one.spec.pool.resource_slice_count for one in current):
        return
    for one in current:
        spec = one.spec
        if spec.per_device_node_selection:
            continue
        nodes = _named(spec.node_name) if spec.node_name else spec.node_selector
        for device in spec.devices:
            if not device.taints:
                yield Found((spec.driver, spec.pool.name, device.name), device, nodes)


def _named(node: str) -> NodeSelector:
    field = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(field,)),))


def allocated_devices(claims: Iterable[ResourceClaim]) -> Iterator[DeviceId]:
    """The devices that some claim has."""
    for claim in claims:
        if claim.status.allocation is not None:
            yield from device_ids(claim.status.allocation)


def device_ids(allocation: AllocationResult) -> Iterator[DeviceId]:
    """The devices of an allocation."""
    for result in allocation.devices.results:
        yield result.driver, result.pool, result.device


def device_sets(
    claim: ResourceClaim,
    devices: Sequence[Found],
    taken: frozenset[DeviceId],
    device_class: Callable[[str], DeviceClass | None],
) -> list[DeviceSet]:
    """Every set of free devices that fulfils the claim, by name. Raises NoSuchClass."""
    spec = claim.spec.devices
    requests = [(r.name, r.exactly, _fitting(r.exactly, device_class)) for r in spec.requests if r.exactly]
    together: dict[str, list[Found]] = {}
    for found in devices:
        name = _together(found, spec.constraints)
        if name:
            together.setdefault(name, []).append(found)
    sets: list[DeviceSet] = []
    for name in sorted(together):
        chosen = _choose(requests, together[name], taken, spec.constraints)
        if chosen:
            nodes = together[name][0].nodes
            allocation = AllocationResult(
                devices=DeviceAllocation(results=tuple(chosen)), node_selector=nodes
            )
            sets.append(DeviceSet(name, allocation))
    return sets


def _fitting(request: ExactDeviceRequest, device_class: Callable[[str], DeviceClass | None]) -> list[Matcher]:
    """The conditions of the request that a device has to fulfil."""
    named = device_class(request.device_class_name)
    if named is None:
        raise NoSuchClass(f"device class {request.device_class_name} not found")
    return [_matcher(selector) for selector in (*named.spec.selectors, *request.selectors)]


def _matcher(selector: DeviceSelector) -> Matcher:
    expression = selector.cel.expression if selector.cel is not None else ""
    try:
        return device_matcher(expression)
    except DeviceSelectorError as error:
        raise NoSuchClass(f"selector {expression!r} cannot be understood: {error}") from error


def _together(found: Found, constraints: Sequence[DeviceConstraint]) -> str:
    """The name of the set that the device belongs to; empty if it lacks an attribute that has to match."""
    matched = [constraint.match_attribute for constraint in constraints if constraint.match_attribute]
    values = [_value(found, name) for name in matched]
    if any(value is None for value in values):
        return ""
    driver, pool, _ = found.id
    name = ",".join(str(value) for value in values) if matched else f"{driver}/{pool}"
    reached = "" if found.nodes is None else _described(found.nodes)
    return f"{name}@{reached}" if reached else name


def _described(nodes: NodeSelector) -> str:
    return "|".join(
        ",".join(
            f"{r.key} {r.operator} {'/'.join(r.values)}"
            for r in (*term.match_fields, *term.match_expressions)
        )
        for term in nodes.node_selector_terms
    )


def _value(found: Found, attribute_name: str) -> object | None:
    driver = found.id[0]
    domain, _, name = attribute_name.rpartition("/")
    return attribute(driver, found.device, domain or driver, name)


def _choose(
    requests: Sequence[tuple[str, ExactDeviceRequest, list[Matcher]]],
    devices: Sequence[Found],
    taken: frozenset[DeviceId],
    constraints: Sequence[DeviceConstraint],
) -> list[DeviceResult]:
    """The devices for all requests, one after the other; nothing if one of them cannot be fulfilled."""
    distinct = [c.distinct_attribute for c in constraints if c.distinct_attribute]
    used: dict[DeviceId, None] = {}
    seen: set[tuple[str, object]] = set()
    results: list[DeviceResult] = []
    for name, request, matchers in requests:
        fitting = [d for d in devices if all(match(d.id[0], d.device) for match in matchers)]
        wants_all = request.allocation_mode == "All"
        count = len(fitting) if wants_all else 1 if request.count is None else request.count
        chosen: list[Found] = []
        for found in fitting:
            values = [(attribute_name, _value(found, attribute_name)) for attribute_name in distinct]
            if len(chosen) == count:
                break
            if found.id in taken or found.id in used or any(v[1] is None or v in seen for v in values):
                continue
            chosen.append(found)
            used[found.id] = None
            seen.update(values)
        if not count or len(chosen) < count:
            return []
        results += [DeviceResult(request=name, driver=d.id[0], pool=d.id[1], device=d.id[2]) for d in chosen]
    return results

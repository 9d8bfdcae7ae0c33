"""Placements from devices that a whole group shares (KEP-5732): for each set of devices that belong together, the nodes that reach them.

    parent, claim `nvlink` ──► fabric=f1, fabric=f2 ──► …nvlink=f1 (nodes of f1), …nvlink=f2 (nodes of f2)

Devices belong together that have the same value of the claim's first `matchAttribute`, or without one are in the same pool. For each such set, by
name, the allocator looks for what the claim asks for among these devices alone, on the first node that sees them; its answer says which other nodes
reach the same devices, and those that do not are asked next. A claim that asks for all devices is one set.

Costs a look at each device of each node, and a search for each placement; nodes that see the same devices of a set fail together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tidelog.api.objects import AllocationResult, ResourceClaim
from tidelog.api.selectors import SelectorError, node_selector_matcher
from tidelog.framework.interface import GroupInfo, Placement
from tidelog.framework.node_info import NodeInfo
from tidelog.plugins.dynamic_resources.allocator import (
    AllocationError,
    Allocator,
    NodeLocalFailure,
    SearchGivenUp,
)
from tidelog.plugins.dynamic_resources.constraints import attribute_of
from tidelog.plugins.dynamic_resources.inventory import DeviceKey, DevicePool, Inventory, PoolDevice
from tidelog.plugins.dynamic_resources.requests import ALL

PLACEMENTS_MAX = 256
"""So many placements are made of one parent. Arbitrary: each of them is tried."""

_SetOf = Callable[[PoolDevice], str | None]
"""The name of the set that a device belongs to; None if it is in none."""


class Proposed(NamedTuple):
    """Devices for a claim, and the nodes that reach them."""

    name: str
    allocation: AllocationResult
    nodes: tuple[str, ...]


def shared_claims(group: GroupInfo) -> list[str]:
    """Names of the claims that the group names, or all its members, in order; claims made from templates are each pod's own."""
    if not group.members:
        return []
    shared = {c.resource_claim_name for c in group.members[0].pod.spec.resource_claims}
    for pod in group.members[1:]:
        shared &= {c.resource_claim_name for c in pod.pod.spec.resource_claims}
    return sorted({name for name in (*shared, *group.claims) if name})


def placement_of(parent: Placement, key: str, found: Proposed) -> Placement:
    """The part of the parent from which these devices can be reached."""
    step = f"{key.rpartition('/')[2]}={found.name}"
    return Placement(
        name=f"{parent.name},{step}" if parent.name else step,
        nodes=found.nodes,
        rank=parent.rank,
        parent=parent.name,
        allocations=(*parent.allocations, (key, found.allocation)),
    )


def proposals(
    claim: ResourceClaim, allocator: Allocator, inventory: Inventory, nodes: Sequence[NodeInfo]
) -> Iterator[Proposed]:
    """By the sets' names; `allocator` is one for this claim alone. Where it fails, the members' own search will say why."""
    set_of = _set_of(claim)
    seen: dict[str, dict[str, tuple[DeviceKey, ...]]] = {}
    for node in nodes:
        for name, devices in _sets_of(inventory, node, set_of).items():
            seen.setdefault(name, {})[node.name] = tuple(devices)
    by_name = {node.name: node for node in nodes}
    count = 0
    for name in sorted(seen):
        for found in _in_set(name, allocator, set_of, seen[name], by_name):
            yield found
            count += 1
            if count == PLACEMENTS_MAX:
                return


def _in_set(
    name: str,
    allocator: Allocator,
    set_of: _SetOf,
    seen: dict[str, tuple[DeviceKey, ...]],
    nodes: dict[str, NodeInfo],
) -> Iterator[Proposed]:
    left = dict(seen)
    hopeless: set[tuple[DeviceKey, ...]] = set()
    number = 0
    while left:
        first = next(iter(left))
        devices = left.pop(first)
        if devices in hopeless:
            continue
        allocation = _allocated(allocator, nodes[first], name, lambda device: set_of(device) == name)
        if allocation is None:
            hopeless.add(devices)
            continue
        reached = [first, *(other for other in left if _reaches(allocation, nodes[other]))]
        for other in reached[1:]:
            del left[other]
        number += 1
        yield Proposed(name if number == 1 else f"{name}#{number}", allocation, tuple(reached))


def _allocated(
    allocator: Allocator, node: NodeInfo, among: str, keep: Callable[[PoolDevice], bool]
) -> AllocationResult | None:
    try:
        found = allocator.allocate_among(node.node, among, keep)
    except (AllocationError, NodeLocalFailure, SearchGivenUp):
        return None
    return None if found is None else found[0]


def _reaches(allocation: AllocationResult, node: NodeInfo) -> bool:
    if allocation.node_selector is None:
        return True
    try:
        return node_selector_matcher(allocation.node_selector)(node.node)
    except SelectorError:
        return False


def _sets_of(inventory: Inventory, node: NodeInfo, set_of: _SetOf) -> dict[str, list[DeviceKey]]:
    found: dict[str, list[DeviceKey]] = {}
    try:
        pools: Sequence[DevicePool] = inventory.pools(node.node)
    except AllocationError:
        return found
    for pool in pools:
        for device in pool.devices:
            name = set_of(device)
            if name is not None:
                found.setdefault(name, []).append(device.key)
    return found


def _set_of(claim: ResourceClaim) -> _SetOf:
    devices = claim.spec.devices
    asks_for_all = any(
        one.allocation_mode == ALL
        for request in devices.requests
        for one in (request.exactly, *request.first_available)
        if one is not None
    )
    if asks_for_all:
        return lambda _: "all"
    matched = next((c.match_attribute for c in devices.constraints if c.match_attribute), None)
    if matched is None:
        return lambda device: "/".join(device.key[:2])

    def value(device: PoolDevice) -> str | None:
        found = attribute_of(device, matched)
        return None if found is None else str(found[1])

    return value

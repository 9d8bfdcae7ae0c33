"""Advice for a pod that its claims of devices keep away: which claim, which class, which driver, how many devices too few, and who has them.

Part of `tidelog.replay.advice`: the advisor for DynamicResources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tidelog.api.kinds.columns import taint_words
from tidelog.api.objects import ResourceClaim
from tidelog.framework.node_info import NodeInfo
from tidelog.plugins.dynamic_resources.allocated import Allocated, results_of
from tidelog.plugins.dynamic_resources.allocator import AllocationError, Allocator
from tidelog.plugins.dynamic_resources.claims import NoClaim, claims_of
from tidelog.plugins.dynamic_resources.conditions import Failed, unready
from tidelog.plugins.dynamic_resources.extended_resources import (
    backed_requests,
    requests_and_mappings,
    special_claim,
    with_requests,
)
from tidelog.plugins.dynamic_resources.inventory import DevicePool, Inventory, PoolDevice, reaches_device
from tidelog.plugins.dynamic_resources.requests import PreparedClaim, Wanted
from tidelog.replay.examine import Examination

NAMED_MAX = 5


class _Counted(NamedTuple):
    """The devices of a node that a request could have, each of these a part of the one before; compared from the last."""

    free: int
    tolerated: int
    matching: int
    of_class: int


def devices_advice(seen: Examination, nodes: Sequence[NodeInfo]) -> Iterator[str]:
    """For each claim: what it lacks, or where its devices can be reached."""
    devices, pod = seen.framework.handle.listers.devices, seen.pod.pod
    try:
        claims = claims_of(pod, devices.claim)
    except NoClaim as problem:
        who = (
            "the claim controller, who makes it from its template"
            if "not created yet" in str(problem)
            else "such a claim"
        )
        yield f"{who}: {problem}"
        return
    for claim in claims:
        if claim.status.allocation is not None:
            yield from _allocated(claim)
    wanted = [claim for claim in claims if claim.status.allocation is None]
    extended = backed_requests(seen.pod.requests, devices.class_backing)
    if extended:
        requests, _ = requests_and_mappings(pod, sorted(extended), devices.class_backing)
        own = special_claim(pod, devices.claims_controlled_by(pod.metadata.uid))
        wanted.append(with_requests(own, requests))
    if wanted:
        yield from _Search(seen, nodes).told(wanted)


def failure_advice(message: str) -> Iterator[str]:
    """Help for a selector that fails about a device, which ends the attempt on every node."""
    _, found, name = message.partition("CEL runtime error: no such key: ")
    if found:
        yield f"a selector that asks for {name} only where there is one: has(….{name}) && …, or ….?{name}.orValue(…)"


def _allocated(claim: ResourceClaim) -> Iterator[str]:
    """The claim has its devices: where, and whether they are ready."""
    name, allocation = claim.metadata.name, claim.status.allocation
    assert allocation is not None
    held = ", ".join(sorted({f"{r.driver}/{r.pool}" for r in allocation.devices.results})) or "no device"
    if allocation.node_selector is not None:
        places = " or ".join(
            " and ".join(f"{r.key} {r.operator} ({', '.join(r.values)})" for r in asked)
            for term in allocation.node_selector.node_selector_terms
            if (asked := (*term.match_expressions, *term.match_fields))
        )
        users = ", ".join(sorted(f"{c.resource} {c.name}" for c in claim.status.reserved_for))
        yield (
            f"claim {name} has its devices of {held} already, which nodes with {places} reach: room there"
            + (f", or the end of who uses it ({users})" if users else "")
        )
    try:
        missing = unready(claim)
    except Failed as failure:
        yield f"claim {name}: {failure}; another device, once this one is given back"
        return
    if missing is not None:
        what = ", ".join(missing.conditions)
        yield f"claim {name}: driver {missing.driver} to say {what} of device {missing.device}"


class _Search:
    """The devices there are for what the claims ask."""

    def __init__(self, seen: Examination, nodes: Sequence[NodeInfo]) -> None:
        self._devices = devices = seen.framework.handle.listers.devices
        self._nodes = nodes
        self._inventory = Inventory(devices.slices(), devices.rules())
        self._taken = Allocated(devices.claims())

    def told(self, claims: Sequence[ResourceClaim]) -> Iterator[str]:
        """Tell what each request lacks; if none lacks anything by itself, what they lack together."""
        allocator = Allocator(self._inventory, self._taken, self._devices.device_class, claims)
        said = False
        for prepared in map(allocator.prepare, claims):
            for request in prepared.requests:
                told = [self._lacks(prepared, wanted) for wanted in request.alternatives]
                if all(told):
                    said = True
                    yield from filter(None, told)
        yield from self._pools_in_trouble()
        if not said:
            yield _together(claims)

    def _lacks(self, claim: PreparedClaim, wanted: Wanted) -> str:
        """Say what keeps the request from having its devices, on the node that comes closest; nothing if there are enough."""
        asks = f"claim {claim.claim.metadata.name}, request {wanted.name}"
        if wanted.device_class is None:
            return f"{asks}: a device class {wanted.class_name}, which does not exist"
        counts = [(self._counted(node, wanted), node) for node in self._nodes]
        best, node = max(counts, key=lambda found: found[0])
        count = None if wanted.is_all else wanted.count
        number = "all devices" if count is None else "a device" if count == 1 else f"{count} devices"
        asks = f"{asks}: {number} of class {wanted.class_name}"
        if best.free >= (1 if count is None else count):
            return ""
        largest = max(found.matching for found, _ in counts)
        if not max(found.of_class for found, _ in counts):
            return f"{asks}: none of these nodes has a device of the class ({self._drivers()})"
        if not largest:
            has = max(counts, key=lambda found: found[0].of_class)
            return f"{asks} that the request's selectors match: {has[1].name} has {has[0].of_class} of the class, and none matches"
        if count is not None and largest < count:
            return f"{asks} on one node: none has more than {largest}, free or not"
        told = f"{asks}: {node.name} comes closest, with {best.free} free of {best.matching}"
        taints = self._taints(node, wanted) if best.tolerated < best.matching else ""
        if taints:
            told += f"; a toleration of {taints} by the request, or no such taint"
        holders = self._holders(node)
        return told + (f"; the end of who has the others: {holders}" if holders else "")

    def _reached(self, node: NodeInfo) -> Iterator[tuple[PoolDevice, DevicePool]]:
        try:
            pools = self._inventory.pools(node.node)
        except AllocationError:
            return
        for pool in pools:
            for device in () if pool.is_incomplete or pool.is_invalid else pool.devices:
                spec = device.of.spec
                if not spec.per_device_node_selection or reaches_device(
                    node.node, device.device, device.of.metadata.name
                ):
                    yield device, pool

    def _counted(self, node: NodeInfo, wanted: Wanted) -> _Counted:
        there = [device for device, _ in self._reached(node)]
        of_class = [device for device in there if wanted.is_of_class(device)]
        matching = [device for device in of_class if wanted.may_match(device)]
        tolerated = [device for device in matching if wanted.tolerates_all(device)]
        free = [one for one in tolerated if wanted.has_admin_access or one.key not in self._taken.taken]
        return _Counted(len(free), len(tolerated), len(matching), len(of_class))

    def _drivers(self) -> str:
        drivers = sorted({device.key[0] for node in self._nodes for device, _ in self._reached(node)})
        return f"devices there are of {', '.join(drivers[:NAMED_MAX])}" if drivers else "they have no devices"

    def _taints(self, node: NodeInfo, wanted: Wanted) -> str:
        found = (d for d, _ in self._reached(node) if wanted.may_match(d) and not wanted.tolerates_all(d))
        return " and ".join(sorted({taint_words(taint) for device in found for taint in device.taints}))

    def _holders(self, node: NodeInfo) -> str:
        keys = {device.key for device, _ in self._reached(node)}
        found = (
            f"claim {claim.metadata.namespace}/{claim.metadata.name}" + _consumers(claim)
            for claim in self._devices.claims()
            if any((r.driver, r.pool, r.device) in keys for r in results_of(claim))
        )
        return _some(sorted(found))

    def _pools_in_trouble(self) -> Iterator[str]:
        """Pools whose devices nobody gets as they are."""
        found: dict[str, str] = {}
        for node in self._nodes:
            try:
                pools = self._inventory.pools(node.node)
            except AllocationError as problem:
                found[str(problem)] = f"{problem}"
                continue
            for pool in pools:
                if pool.is_incomplete:
                    found[str(pool)] = (
                        f"the rest of pool {pool.name} of driver {pool.driver}: slices of it are missing"
                    )
                elif pool.is_invalid:
                    found[str(pool)] = (
                        f"slices of pool {pool.name} of driver {pool.driver} that agree with each other"
                    )
        yield from (found[name] for name in sorted(found)[:NAMED_MAX])


def _together(claims: Sequence[ResourceClaim]) -> str:
    """Each request could have its devices, and all of them cannot."""
    attributes = sorted(
        {
            f"{'agree' if one.match_attribute else 'differ'} in {one.match_attribute or one.distinct_attribute}"
            for claim in claims
            for one in claim.spec.devices.constraints
        }
    )
    also = f", which have to {' and '.join(attributes)}" if attributes else ""
    return f"devices for all requests on one node{also}: for each of them alone there are enough, but not together, or the counters and capacities that they share are used up"


def _consumers(claim: ResourceClaim) -> str:
    users = _some(sorted(consumer.name for consumer in claim.status.reserved_for))
    return f" (of {users})" if users else ""


def _some(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else ""
    return ", ".join(known[:NAMED_MAX]) + more

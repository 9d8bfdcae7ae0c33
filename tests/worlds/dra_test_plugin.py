"""DRATestPlugin, as KEP-5732 has it: a generator of placements that is not ours, for trying the interfaces. DynamicResources does the real thing.

Every claim that all members of the group name is given a set of devices, and the placement the nodes from which these can be reached:

    parent, claim `nvlink` ──► free sets fabric=f1, fabric=f2 ──► …nvlink=f1 (nodes of f1), …nvlink=f2 (nodes of f2)

A claim that is allocated already leaves one placement. While a placement is simulated its devices count as taken in the cycle; nothing
else changes. What is chosen is written to the claims by the core, in the transaction that places the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.worlds.device_sets import (
    DeviceId,
    DeviceSet,
    NoSuchClass,
    allocated_devices,
    device_ids,
    device_sets,
    devices_of,
)
from tidelog.api.objects import AllocationResult, ResourceClaim
from tidelog.api.selectors import node_selector_matcher
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import (
    CycleState,
    GroupInfo,
    Placement,
    PlacementGeneratePlugin,
    PlacementStatePlugin,
    Plugin,
    Status,
    unschedulable,
)
from tidelog.plugins.dynamic_resources.placement import shared_claims

TAKEN = "DRATestPlugin.taken"
"""In the group's cycle state: the devices that the placement being tried has taken, by claim."""


class DRATestPlugin(Plugin):
    """Generates a placement for each set of devices, and takes its devices while it is tried."""

    name = "DRATestPlugin"

    def generate(
        self, state: CycleState, group: GroupInfo, parents: Sequence[Placement]
    ) -> tuple[Sequence[Placement], Status | None]:
        """Without shared claims the parents are left as they are."""
        placements = list(parents)
        for name in shared_claims(group):
            namespace = group.members[0].namespace
            claim = self.handle.listers.resource_claim(namespace, name)
            if claim is None:
                return (), unschedulable(f'resourceclaim "{name}" not found')
            try:
                placements = [p for parent in placements for p in self._split(parent, claim)]
            except NoSuchClass as problem:
                return (), unschedulable(f'resourceclaim "{name}": {problem}')
            if not placements:
                return (), unschedulable(f'cannot allocate all devices of resourceclaim "{name}"')
        return sorted(placements, key=lambda placement: (placement.rank, placement.name)), None

    def _split(self, parent: Placement, claim: ResourceClaim) -> Iterator[Placement]:
        meta = claim.metadata
        key = f"ResourceClaim/{meta.namespace}/{meta.name}"
        if claim.status.allocation is not None:
            # Chosen again, so that the claim is reserved for this group too, and its devices stay what was relied on.
            yield from self._narrowed(parent, meta.name, "allocated", claim.status.allocation, key)
            return
        for found in self._sets(parent, claim):
            yield from self._narrowed(parent, meta.name, found.name, found.allocation, key)

    def _sets(self, parent: Placement, claim: ResourceClaim) -> list[DeviceSet]:
        listers = self.handle.listers
        earlier = (one for _, allocation in parent.allocations for one in device_ids(allocation))
        taken = frozenset((*allocated_devices(listers.resource_claims()), *earlier))
        return device_sets(claim, devices_of(listers.resource_slices()), taken, listers.device_class)

    def _narrowed(
        self, parent: Placement, claim: str, what: str, allocation: AllocationResult, key: str
    ) -> Iterator[Placement]:
        """The part of the parent from which the devices can be reached, if there is one."""
        nodes = parent.nodes
        if allocation.node_selector is not None:
            reaches = node_selector_matcher(allocation.node_selector)
            there = ((name, self.handle.snapshot.get(name)) for name in nodes)
            nodes = tuple(name for name, node in there if node is not None and reaches(node.node))
        if nodes:
            yield Placement(
                name=f"{parent.name},{claim}={what}" if parent.name else f"{claim}={what}",
                nodes=nodes,
                rank=parent.rank,
                parent=parent.name,
                allocations=(*parent.allocations, (key, allocation)),
            )

    def assume(self, state: CycleState, group: GroupInfo, placement: Placement) -> Status | None:
        """Take the devices. Somebody else in the cycle may have them."""
        taken: dict[str, tuple[DeviceId, ...]] = dict(state.read(TAKEN) or {})
        busy = {device for devices in taken.values() for device in devices}
        for key, allocation in placement.allocations:
            wanted = tuple(device_ids(allocation))
            if busy.intersection(wanted):
                return unschedulable(f"devices of {key} are taken")
            taken[key] = wanted
        state.write(TAKEN, taken)
        return None

    def revert(self, state: CycleState, group: GroupInfo, placement: Placement) -> Status | None:
        """Give them back."""
        ours = {key for key, _ in placement.allocations}
        taken: dict[str, tuple[DeviceId, ...]] = state.read(TAKEN) or {}
        state.write(TAKEN, {key: devices for key, devices in taken.items() if key not in ours})
        return None

    def events_to_register(self) -> list[EventRegistration]:
        """More devices, other rules, or a claim that gives devices back."""
        changed = Action.ADD | Action.UPDATE
        return [
            EventRegistration(ClusterEvent(Resource.RESOURCE_SLICE, changed)),
            EventRegistration(ClusterEvent(Resource.DEVICE_CLASS, changed)),
            EventRegistration(ClusterEvent(Resource.RESOURCE_CLAIM, Action.ALL), _claim_changed),
            EventRegistration(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)),
        ]


def _claim_changed(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    """The pod's own claim is new or another one, or devices became free."""
    if new is None or (old is not None and old.status.allocation != new.status.allocation):
        freed = old.status.allocation is not None
        return Hint.QUEUE if freed or _is_own(waiting, old) else Hint.SKIP
    return Hint.QUEUE if _is_own(waiting, new) and (old is None or old.spec != new.spec) else Hint.SKIP


def _is_own(waiting: WaitingPod, claim: ResourceClaim) -> bool:
    meta = claim.metadata
    names = [one.resource_claim_name for one in waiting.pod.spec.resource_claims]
    return waiting.pod.metadata.namespace == meta.namespace and meta.name in names


_generate: type[PlacementGeneratePlugin] = DRATestPlugin
_state: type[PlacementStatePlugin] = DRATestPlugin

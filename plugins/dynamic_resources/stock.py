"""The stock: all devices, and who has them now, the placement that a group is being tried in included.

Two caches, brought up to date from what changed since the last look: nothing is kept here that a replay would not know.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import AllocationResult, ResourceClaim
from tidelog.framework.contents import MASK, number_of
from tidelog.framework.devices import Devices
from tidelog.framework.effort import Effort
from tidelog.framework.interface import Handle, Placement
from tidelog.framework.node_info import NodeInfo
from tidelog.plugins.dynamic_resources.allocated import Allocated, number_of_result, results_of
from tidelog.plugins.dynamic_resources.allocator import Allocator, Memory
from tidelog.plugins.dynamic_resources.inventory import Inventory
from tidelog.plugins.dynamic_resources.placement import placement_of, proposals
from tidelog.plugins.dynamic_resources.result import share_name


class Stock:
    """Of one profile."""

    def __init__(self, handle: Handle, selector_cost_max: int, steps_of_own: int) -> None:
        self._handle = handle
        self.selector_cost_max = selector_cost_max
        """The limit of a selector, about one device."""
        self.steps_of_own = steps_of_own
        """Steps of a search that are not those of its attempt."""
        self.memory = Memory()
        self._shared = 0
        self._counted_anew = 0
        self._inventory: tuple[int, Inventory] = (-1, Inventory())
        self._allocated: tuple[int, Allocated] = (-1, Allocated())
        self._given: dict[str, AllocationResult] = {}
        """Key of a claim → what the placement that is being tried gives it."""

    @property
    def _devices(self) -> Devices:
        return self._handle.listers.devices

    def inventory(self) -> Inventory:
        """All devices, as the slices say now."""
        devices = self._devices
        generation, found = self._inventory
        if generation != devices.slices_generation:
            found = Inventory(devices.slices(), devices.rules(), found)
            self._inventory = (devices.slices_generation, found)
        return found

    def allocated(self) -> Allocated:
        """The devices of all claims together now."""
        devices = self._devices
        generation, found = self._allocated
        if generation == devices.claims_generation:
            return found
        changes = devices.claim_changes(generation) if generation >= 0 else None
        if changes is None:
            found = Allocated(devices.claims())
            self._counted_anew += 1
        else:
            for old, new in changes:
                if old is not None:
                    found.remove(old)
                    self._shared -= self._shared_of(old)
                if new is not None:
                    found.add(new)
                    self._shared += self._shared_of(new)
        self._allocated = (devices.claims_generation, found)
        return found

    def shared(self) -> tuple[int, int]:
        """Another whenever a device changes hands that more than one node may reach, and the same again when that is undone; as long as the slices
        stay what they are."""
        self.allocated()
        return self._counted_anew, self._shared & MASK

    def _shared_of(self, claim: ResourceClaim) -> int:
        of_pool = self._devices.nodes_of_pool
        shared = (r for r in results_of(claim) if "" in of_pool(r.driver, r.pool))
        return sum(map(number_of_result, shared))

    # --- groups -----------------------------------------------------------------------------------------------------------

    def given_to(self, claim: ResourceClaim) -> AllocationResult | None:
        """The devices that the placement being tried gives a claim that has none."""
        if not self._given or claim.status.allocation is not None:
            return None
        return self._given.get(object_key(claim))

    def give(self, placement: Placement) -> None:
        """Let claims without devices have those of the placement, and nobody else."""
        for key, allocation in placement.allocations:
            claim = self._claim_at(key)
            if claim is not None and claim.status.allocation is None:
                self._given[key] = allocation
                self.allocated().add(_with(claim, allocation))
                self._shared += number_of((key, allocation))

    def take_back(self, placement: Placement) -> None:
        """Undo that."""
        for key, _ in placement.allocations:
            claim, allocation = self._claim_at(key), self._given.pop(key, None)
            if claim is not None and allocation is not None:
                self.allocated().remove(_with(claim, allocation))
                self._shared -= number_of((key, allocation))

    def _claim_at(self, key: str) -> ResourceClaim | None:
        _, namespace, name = key.split("/")
        return self._devices.claim(namespace, name)

    def split(
        self,
        parent: Placement,
        claim: ResourceClaim,
        turn: int,
        nodes: Sequence[NodeInfo],
        effort: Effort,
    ) -> Sequence[Placement]:
        """A placement for each set of devices that the claim may get on these nodes of the parent; the parent itself where there is none: the
        members' own search says why."""
        earlier = [_with(claim, allocation) for _, allocation in parent.allocations]
        own, taken, inventory = object_key(claim), self.allocated(), self.inventory()
        for one in earlier:
            taken.add(one)
        try:
            allocator = Allocator(
                inventory,
                taken,
                self._devices.device_class,
                [claim],
                lambda claim, result: share_name(own, turn, claim, result),
                cost_max=self.selector_cost_max,
                memory=self.memory.of(self._devices.classes_generation, taken),
                effort=effort,
                of_own=self.steps_of_own,
            )
            found = list(proposals(claim, allocator, inventory, nodes))
        finally:
            for one in earlier:
                taken.remove(one)
        return [placement_of(parent, own, one) for one in found] or [parent]


def _with(claim: ResourceClaim, allocation: AllocationResult) -> ResourceClaim:
    return replace(claim, status=replace(claim.status, allocation=allocation))

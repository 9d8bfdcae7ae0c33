"""The allocator: which devices would fulfil these claims on a node.

One is made for each attempt. `allocate` costs what the search costs: usually a look at the node's devices for each device that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from tidelog.api.cel.program import COST_MAX
from tidelog.api.objects import AllocationResult, DeviceClass, Node, ResourceClaim
from tidelog.plugins.dynamic_resources.allocated import Allocated
from tidelog.plugins.dynamic_resources.errors import AllocationError, NodeLocalFailure, SearchGivenUp
from tidelog.plugins.dynamic_resources.inventory import DevicePool, Inventory, PoolDevice
from tidelog.plugins.dynamic_resources.requests import PreparedClaim, prepare
from tidelog.plugins.dynamic_resources.result import ShareName, results, share_name
from tidelog.plugins.dynamic_resources.search import Budget, Search, given_up

STEPS_OF_NODE = 50_000
"""Steps that a search on one node may take; arbitrary: some 50 ms. Upstream stops after ten seconds."""
STEPS_OF_ATTEMPT = 400_000
"""Steps of all nodes of an attempt together."""
_KINDS_MAX = 16
"""So many kinds of claims are remembered. Arbitrary: pods of a few templates come at a time."""

Allocations = tuple[AllocationResult, ...]
_encode = msgspec.msgpack.Encoder().encode


class Remembered(NamedTuple):
    """The result of a search on a node, and the versions for which it holds."""

    pools: Sequence[DevicePool]
    versions: tuple[int | None, ...]
    """Of what is allocated of each pool."""
    found: Allocations | None
    steps: int
    """Of that search; they are paid again, so that what is known changes no answer."""


class Memory:
    """Results of searches, for claims that ask for the same as those before: pods of a template differ in nothing but their names.

    A cache: an answer does not depend on what is in it. Errors and shares, which name a claim or a pod, are not kept.
    """

    def __init__(self) -> None:
        self._kinds: dict[bytes, dict[str, Remembered]] = {}
        self._of: tuple[int, Allocated | None] = (-1, None)

    def of(
        self, claims: Sequence[ResourceClaim], classes_generation: int, allocated: Allocated
    ) -> dict[str, Remembered]:
        """Return the results known of the nodes for claims like these; to be filled."""
        if self._of[0] != classes_generation or self._of[1] is not allocated:
            self._kinds.clear()
            self._of = (classes_generation, allocated)
        key = _encode([claim.spec for claim in claims])
        found = self._kinds.pop(key, None)
        if found is None:
            found = {}
            if len(self._kinds) >= _KINDS_MAX:
                del self._kinds[next(iter(self._kinds))]
        self._kinds[key] = found
        return found


__all__ = ["AllocationError", "Allocator", "NodeLocalFailure", "SearchGivenUp"]


class Allocator:
    """For the claims of one pod."""

    def __init__(
        self,
        inventory: Inventory,
        allocated: Allocated,
        class_of: Callable[[str], DeviceClass | None],
        claims: Sequence[ResourceClaim],
        name_share: ShareName = lambda claim, result: share_name("share", claim, result),
        remembered: dict[str, Remembered] | None = None,
        *,
        cost_max: int = COST_MAX,
        asks_again: bool = False,
    ) -> None:
        """`cost_max`: what a selector may cost about one device. `asks_again`: what a node is asked anew takes the place of what it was asked before, also in the steps of all together."""
        self._spent: dict[str, int] | None = {} if asks_again else None
        self._remembered = {} if remembered is None else remembered
        self._inventory = inventory
        self._allocated = allocated
        self._class_of = class_of
        self._cost_max = cost_max
        self._claims = [self.prepare(claim) for claim in claims]
        self._name_share = name_share
        self._budget = Budget(STEPS_OF_ATTEMPT)

    def prepare(self, claim: ResourceClaim) -> PreparedClaim:
        """Read the claim, once for all nodes."""
        return prepare(claim, self._class_of, self._cost_max)

    def look_again(self, inventory: Inventory, allocated: Allocated) -> None:
        """Search with these slices and allocations from now on."""
        self._inventory = inventory
        self._allocated = allocated

    def allocate(
        self, node: Node, special: PreparedClaim | None = None
    ) -> tuple[AllocationResult, ...] | None:
        """An allocation for each claim, and for the special one of this node; None if there is none. Raises as `Search.run`."""
        if self._spent is None:
            return self._allocate(node, special)
        name = node.metadata.name
        self._budget.left += self._spent.pop(name, 0)
        before = self._budget.left
        found = self._allocate(node, special)
        self._spent[name] = before - self._budget.left
        return found

    def allocate_among(
        self, node: Node, keep: Callable[[PoolDevice], bool]
    ) -> tuple[AllocationResult, ...] | None:
        """As `allocate`, with these devices only; the others still use what they have of the pools' counters."""
        pools = [pool.restricted(keep) for pool in self._inventory.pools(node)]
        return self._search(node, pools, self._claims)

    def _allocate(self, node: Node, special: PreparedClaim | None) -> tuple[AllocationResult, ...] | None:
        pools = self._inventory.pools(node)
        if special is not None:
            return self._search(node, pools, [*self._claims, special])
        name = node.metadata.name
        versions = tuple(self._allocated.versions.get((pool.driver, pool.name)) for pool in pools)
        known = self._remembered.get(name)
        if known is not None and known.pools is pools and known.versions == versions:
            limit = self._budget.limit(STEPS_OF_NODE)
            self._budget.left -= min(known.steps, limit)
            if known.steps > limit:
                raise given_up(limit)
            return known.found
        before = self._budget.left
        found = self._search(node, pools, self._claims)
        if not _has_shares(found):
            self._remembered[name] = Remembered(pools, versions, found, before - self._budget.left)
        return found

    def _search(
        self, node: Node, pools: Sequence[DevicePool], claims: Sequence[PreparedClaim]
    ) -> Allocations | None:
        search = Search(node, pools, claims, self._allocated, self._budget, STEPS_OF_NODE)
        if not search.run():
            return None
        return results(search, claims, node.metadata.name, self._name_share)


def _has_shares(found: Allocations | None) -> bool:
    return any(r.share_id is not None for one in found or () for r in one.devices.results)

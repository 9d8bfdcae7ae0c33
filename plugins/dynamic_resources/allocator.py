"""The allocator: which devices would fulfil these claims on a node.

One is made for each attempt. `allocate` costs what the search costs: usually a look at the node's devices for each device that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.api.objects import AllocationResult, DeviceClass, Node, ResourceClaim
from tidelog.plugins.dynamic_resources.allocated import Allocated
from tidelog.plugins.dynamic_resources.errors import AllocationError, NodeLocalFailure, SearchGivenUp
from tidelog.plugins.dynamic_resources.inventory import Inventory
from tidelog.plugins.dynamic_resources.requests import PreparedClaim, prepare
from tidelog.plugins.dynamic_resources.result import ShareName, results, share_name
from tidelog.plugins.dynamic_resources.search import Budget, Search

STEPS_OF_NODE = 50_000
"""Steps that a search on one node may take; arbitrary: some 50 ms. Upstream stops after ten seconds."""
STEPS_OF_ATTEMPT = 400_000
"""Steps of all nodes of an attempt together."""

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
    ) -> None:
        self._inventory = inventory
        self._allocated = allocated
        self._class_of = class_of
        self._claims = [prepare(claim, class_of) for claim in claims]
        self._name_share = name_share
        self._budget = Budget(STEPS_OF_ATTEMPT)

    def allocate(
        self, node: Node, special: ResourceClaim | None = None
    ) -> tuple[AllocationResult, ...] | None:
        """An allocation for each claim, and for the special one of this node; None if there is none. Raises as `Search.run`."""
        claims: list[PreparedClaim] = list(self._claims)
        if special is not None:
            claims.append(prepare(special, self._class_of))
        pools = self._inventory.pools(node)
        search = Search(node, pools, claims, self._allocated, self._budget, STEPS_OF_NODE)
        if not search.run():
            return None
        return results(search, claims, node.metadata.name, self._name_share)

"""The allocator: which devices would fulfil these claims on a node.

One is made for each attempt. `allocate` costs what the search costs: usually a look at the node's devices for each device that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from tidelog.api.cel.program import COST_MAX
from tidelog.api.objects import AllocationResult, DeviceClass, Node, ResourceClaim
from tidelog.framework.effort import Effort, Paused
from tidelog.plugins.dynamic_resources.allocated import Allocated
from tidelog.plugins.dynamic_resources.errors import AllocationError, NodeLocalFailure, SearchGivenUp
from tidelog.plugins.dynamic_resources.inventory import DevicePool, Inventory, PoolDevice
from tidelog.plugins.dynamic_resources.requests import PreparedClaim, prepare
from tidelog.plugins.dynamic_resources.result import ShareName, results, share_name
from tidelog.plugins.dynamic_resources.search import STEPS_OF_OWN, Search, given_up

STEPS_OF_NODE = 50_000
"""Steps that a search on one node may take; arbitrary: some 50 ms. Upstream stops after ten seconds."""
STEPS_OF_ATTEMPT = 400_000
"""Steps of all nodes of an attempt together."""
_KINDS_MAX = 16
"""So many kinds of claims are remembered. Arbitrary: pods of a few templates come at a time."""

_STEPS_OF_ANSWER = 10
_STEPS_OF_QUESTION = 50
"""So many steps is a known answer worth in the attempt's turn, and a search before its first step."""
Allocations = tuple[AllocationResult, ...]
Versions = tuple[int | None, ...]
_encode = msgspec.msgpack.Encoder().encode


class Remembered(NamedTuple):
    """The result of a search on a node, and the versions for which it holds."""

    pools: Sequence[DevicePool]
    versions: Versions
    """Of what is allocated of each pool."""
    found: Allocations | None
    steps: int
    """Of that search; they are paid again, so that what is known changes no answer."""
    gave_up: bool = False
    """With fewer than these steps it finds nothing; with more nobody knows."""


class Unfinished(NamedTuple):
    """A search that was interrupted when its attempt had had its turn, and for whom it can be taken up again."""

    search: Search
    node: str
    pools: Sequence[DevicePool]
    versions: Versions
    claims: bytes


class Known(NamedTuple):
    """Results known for claims that ask for the same."""

    nodes: dict[str, Remembered]
    unfinished: list[Unfinished]
    """One, or none."""


class Memory:
    """Results of searches, for claims that ask for the same as those before: pods of a template differ in nothing but their names.

    A cache: an answer does not depend on what is in it. Errors and shares, which name a claim or a pod, are not kept.
    """

    def __init__(self) -> None:
        self._kinds: dict[bytes, Known] = {}
        self._of: tuple[int, Allocated | None] = (-1, None)

    def of(self, claims: Sequence[ResourceClaim], classes_generation: int, allocated: Allocated) -> Known:
        """Return the results known of the nodes for claims like these; to be filled."""
        if self._of[0] != classes_generation or self._of[1] is not allocated:
            self._kinds.clear()
            self._of = (classes_generation, allocated)
        key = _encode([claim.spec for claim in claims])
        found = self._kinds.pop(key, None)
        if found is None:
            found = Known({}, [])
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
        known: Known | None = None,
        *,
        cost_max: int = COST_MAX,
        asks_again: bool = False,
        effort: Effort | None = None,
        of_own: int = STEPS_OF_OWN,
    ) -> None:
        """`cost_max`: what a selector may cost about one device. `asks_again`: what a node is asked anew takes the place of what it was asked before,
        also in the steps of all together. `effort`: of the attempt. `of_own`: steps of each search that are not
        the attempt's; 0 for those of older logs, which did not count devices first either.
        """
        self._spent: dict[str, int] | None = {} if asks_again else None
        self._known = known or Known({}, [])
        self._effort = effort or Effort()
        self._inventory = inventory
        self._allocated = allocated
        self._class_of = class_of
        self._cost_max = cost_max
        self._claims = [self.prepare(claim) for claim in claims]
        self._name_share = name_share
        self._of_own = of_own
        self.steps_left = STEPS_OF_ATTEMPT
        self._in_vain: dict[int, tuple[Sequence[DevicePool], Versions]] = {}
        """By the identity of a list of pools: the versions of them with which nothing was found there."""
        self._latest: tuple[Sequence[DevicePool], int, Versions] = ((), -1, ())
        """The pools that were asked about last, after how many changes, and their versions then."""

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
        self.steps_left += self._spent.pop(name, 0)
        before = self.steps_left
        found = self._allocate(node, special)
        self._spent[name] = before - self.steps_left
        return found

    def allocate_among(self, node: Node, keep: Callable[[PoolDevice], bool]) -> Allocations | None:
        """As `allocate`, with these devices only; the others still use what they have of the pools' counters."""
        pools = [pool.restricted(keep) for pool in self._inventory.pools(node)]
        return self._run(self._search(node, pools, self._claims), self._claims, node)

    def _allocate(self, node: Node, special: PreparedClaim | None) -> Allocations | None:
        pools = self._inventory.pools(node)
        name = node.metadata.name
        versions = self._versions(pools)
        if special is not None:
            claims = [*self._claims, special]
            return self._run(self._taken_up(node, pools, versions, claims), claims, node)
        vain = self._in_vain.get(id(pools))
        if vain is not None and vain[0] is pools and vain[1] == versions:
            self._effort.spend(_STEPS_OF_ANSWER)
            return None
        known, limit = self._known.nodes.get(name), self._limit()
        if known is not None and known.pools is pools and known.versions == versions:
            if known.steps > limit:
                self._pay(limit)
                raise given_up(limit)
            if not known.gave_up:
                self._pay(known.steps)
                self._note(pools, versions, known.found)
                return known.found
        search = self._taken_up(node, pools, versions, self._claims)
        try:
            found = self._run(search, self._claims, node)
        except SearchGivenUp:
            self._known.nodes[name] = Remembered(pools, versions, None, limit + 1, gave_up=True)
            raise
        self._note(pools, versions, found)
        if not _has_shares(found):
            self._known.nodes[name] = Remembered(pools, versions, found, search.steps)
        return found

    def _note(self, pools: Sequence[DevicePool], versions: Versions, found: Allocations | None) -> None:
        """Remember what was searched in vain: another node that reaches the same need not be searched."""
        if found is None and self._of_own and not any(pool.tells_nodes_apart for pool in pools):
            self._in_vain[id(pools)] = (pools, versions)

    def _taken_up(
        self, node: Node, pools: Sequence[DevicePool], versions: Versions, claims: Sequence[PreparedClaim]
    ) -> Search:
        """The search that an earlier turn has begun, or a new one."""
        unfinished, limit = self._known.unfinished, self._limit()
        own = (node.metadata.name, pools, versions, _identity(claims)) if unfinished else ()
        if unfinished and unfinished[0].search.limit == limit and unfinished[0][1:] == own:
            search = unfinished.pop().search
            search.effort = self._effort
            return search
        unfinished.clear()
        if limit:
            self._effort.spend(_STEPS_OF_QUESTION)
        return self._search(node, pools, claims)

    def _limit(self) -> int:
        """Steps that a search may take now."""
        return min(STEPS_OF_NODE, self._of_own + max(0, self.steps_left))

    def _pay(self, steps: int) -> None:
        self.steps_left -= max(0, steps - self._of_own)

    def _search(self, node: Node, pools: Sequence[DevicePool], claims: Sequence[PreparedClaim]) -> Search:
        counts_first = bool(self._of_own)
        return Search(
            node, pools, claims, self._allocated, self._limit(), self._effort, counts_first=counts_first
        )

    def _run(self, search: Search, claims: Sequence[PreparedClaim], node: Node) -> Allocations | None:
        try:
            found = search.run()
        except Paused:
            pools = self._inventory.pools(node)
            kept = Unfinished(search, node.metadata.name, pools, self._versions(pools), _identity(claims))
            self._known.unfinished[:] = [kept]
            raise
        except BaseException:
            self._pay(search.steps)
            raise
        self._pay(search.steps)
        return results(search, claims, node.metadata.name, self._name_share) if found else None

    def _versions(self, pools: Sequence[DevicePool]) -> Versions:
        changes = self._allocated.changes
        if self._latest[0] is not pools or self._latest[1] != changes:
            versions = tuple([self._allocated.versions.get((pool.driver, pool.name)) for pool in pools])
            self._latest = (pools, changes, versions)
        return self._latest[2]


def _identity(claims: Sequence[PreparedClaim]) -> bytes:
    return _encode([(one.name, one.claim.spec) for one in claims])


def _has_shares(found: Allocations | None) -> bool:
    return any(r.share_id is not None for one in found or () for r in one.devices.results)

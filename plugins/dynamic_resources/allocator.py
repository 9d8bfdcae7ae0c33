"""The allocator: which devices would fulfil these claims on a node.

One is made for each attempt. `allocate` costs what the search costs: usually a look at the node's devices for each device that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from tidelog.api.cel.program import COST_MAX
from tidelog.api.dicts import drop_oldest
from tidelog.api.objects import AllocationResult, DeviceClass, Node, ResourceClaim
from tidelog.framework.effort import Effort, Paused
from tidelog.plugins.dynamic_resources.allocated import Allocated
from tidelog.plugins.dynamic_resources.errors import AllocationError, NodeLocalFailure, SearchGivenUp
from tidelog.plugins.dynamic_resources.inventory import DevicePool, Inventory, PoolDevice
from tidelog.plugins.dynamic_resources.requests import PreparedClaim, prepare
from tidelog.plugins.dynamic_resources.result import ShareName, results, share_name, shares_named
from tidelog.plugins.dynamic_resources.search import STEPS_OF_OWN, Search, given_up

STEPS_OF_NODE = 50_000
"""Steps that a search on one node may take; arbitrary: some 50 ms. Upstream stops after ten seconds."""
STEPS_OF_ATTEMPT = 400_000
"""Steps of all nodes of an attempt together."""
_ANSWERS_MAX = 100_000
"""So many results are remembered. Arbitrary: those of all nodes for pods of a few templates, and of a node after each of a group's members."""

_STEPS_OF_ANSWER = 10
_STEPS_OF_QUESTION = 50
"""So many steps is a known answer worth in the attempt's turn, and a search before its first step."""
Allocations = tuple[AllocationResult, ...]
Versions = tuple[int | None, ...]
_encode = msgspec.msgpack.Encoder().encode


class Question(NamedTuple):
    """The subject of a search."""

    claims: bytes
    """Their requests, those of a special claim included."""
    node: str
    part: str
    """The set of devices among which it looks; empty: among all."""
    versions: Versions
    """Of what is allocated of each pool."""


class Remembered(NamedTuple):
    """The result of a search, and the pools for which it holds."""

    pools: Sequence[DevicePool]
    found: Allocations | None
    """The names of shares aside."""
    steps: int
    """Of that search; they are paid again, so that what is known changes no answer."""
    gave_up: bool = False
    """With fewer than these steps it finds nothing; with more nobody knows."""
    failure: AllocationError | NodeLocalFailure | None = None


class Unfinished(NamedTuple):
    """A search that was interrupted when its attempt had had its turn, and for whom it can be taken up again."""

    search: Search
    about: Question
    pools: Sequence[DevicePool]
    claims: bytes


class Memory:
    """Results of searches, for claims that ask for the same as those before: pods of a template differ in nothing but their names.

    A cache: an answer does not depend on what is in it. Errors that name a claim are not kept.
    """

    def __init__(self) -> None:
        self.answers: dict[Question, Remembered] = {}
        self.unfinished: list[Unfinished] = []
        """One, or none."""
        self._of: tuple[int, Allocated | None] = (-1, None)

    def of(self, classes_generation: int, allocated: Allocated) -> Memory:
        """Forget what was found with other classes, or about other allocations."""
        if self._of[0] != classes_generation or self._of[1] is not allocated:
            self.answers.clear()
            self.unfinished.clear()
            self._of = (classes_generation, allocated)
        return self

    def keep(self, about: Question, found: Remembered) -> None:
        """Remember this; the oldest are forgotten."""
        self.answers.pop(about, None)
        if len(self.answers) >= _ANSWERS_MAX:
            drop_oldest(self.answers, 1 + _ANSWERS_MAX // 8)
        self.answers[about] = found


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
        memory: Memory | None = None,
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
        self._memory = memory or Memory()
        self._effort = effort or Effort()
        self._inventory = inventory
        self._allocated = allocated
        self._class_of = class_of
        self._cost_max = cost_max
        self._claims = [self.prepare(claim) for claim in claims]
        self._asked_for = _encode([claim.spec for claim in claims])
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

    def allocate_among(
        self, node: Node, among: str, keep: Callable[[PoolDevice], bool]
    ) -> Allocations | None:
        """As `allocate`, with the devices of this set only; the others still use what they have of the pools' counters."""
        return self._answer(node, self._inventory.pools(node), among, keep, None)

    def _allocate(self, node: Node, special: PreparedClaim | None) -> Allocations | None:
        pools = self._inventory.pools(node)
        if special is not None:
            return self._answer(node, pools, "", None, special)
        versions = self._versions(pools)
        vain = self._in_vain.get(id(pools))
        if vain is not None and vain[0] is pools and vain[1] == versions:
            self._effort.charge(_STEPS_OF_ANSWER)
            return None
        found = self._answer(node, pools, "", None, None)
        if found is None and self._of_own and not any(pool.tells_nodes_apart for pool in pools):
            # Another node that reaches the same need not be searched.
            self._in_vain[id(pools)] = (pools, versions)
        return found

    def _answer(
        self,
        node: Node,
        pools: Sequence[DevicePool],
        among: str,
        keep: Callable[[PoolDevice], bool] | None,
        special: PreparedClaim | None,
    ) -> Allocations | None:
        """The answer that is known, or else that of a search, to be known from now on."""
        asked_for = self._asked_for if special is None else self._asked_for + _encode(special.claim.spec)
        about = Question(asked_for, node.metadata.name, among, self._versions(pools))
        known, limit = self._memory.answers.get(about), self._limit()
        if known is not None and known.pools is pools:
            self._effort.charge(_STEPS_OF_ANSWER)
            if known.steps > limit:
                self._pay(limit)
                raise given_up(limit)
            if not known.gave_up:
                self._pay(known.steps)
                if known.failure is not None:
                    raise type(known.failure)(str(known.failure))
                return known.found and shares_named(known.found, self._name_share)
        kept = pools if keep is None else [pool.restricted(keep) for pool in pools]
        claims = self._claims if special is None else [*self._claims, special]
        search = self._taken_up(node, about, pools, kept, claims)
        try:
            found = self._run(search, about, pools, claims)
        except SearchGivenUp:
            self._memory.keep(about, Remembered(pools, None, limit + 1, gave_up=True))
            raise
        except (AllocationError, NodeLocalFailure) as failure:
            if among or isinstance(failure, NodeLocalFailure):
                self._memory.keep(about, Remembered(pools, None, search.steps, failure=failure))
            raise
        self._memory.keep(about, Remembered(pools, found, search.steps))
        return found

    def _taken_up(
        self,
        node: Node,
        about: Question,
        pools: Sequence[DevicePool],
        kept: Sequence[DevicePool],
        claims: Sequence[PreparedClaim],
    ) -> Search:
        """The search that an earlier turn has begun, or a new one among the devices that are `kept` of these pools."""
        unfinished, limit = self._memory.unfinished, self._limit()
        own = (about, pools, _identity(claims)) if unfinished else ()
        if unfinished and unfinished[0].search.limit == limit and unfinished[0][1:] == own:
            search = unfinished.pop().search
            search.effort = self._effort
            return search
        unfinished.clear()
        if limit:
            self._effort.spend(_STEPS_OF_QUESTION)
        counts_first = bool(self._of_own)
        return Search(node, kept, claims, self._allocated, limit, self._effort, counts_first=counts_first)

    def _limit(self) -> int:
        """Steps that a search may take now."""
        return min(STEPS_OF_NODE, self._of_own + max(0, self.steps_left))

    def _pay(self, steps: int) -> None:
        self.steps_left -= max(0, steps - self._of_own)

    def _run(
        self, search: Search, about: Question, pools: Sequence[DevicePool], claims: Sequence[PreparedClaim]
    ) -> Allocations | None:
        try:
            found = search.run()
        except Paused:
            self._memory.unfinished[:] = [Unfinished(search, about, pools, _identity(claims))]
            raise
        except BaseException:
            self._pay(search.steps)
            raise
        self._pay(search.steps)
        return results(search, claims, about.node, self._name_share) if found else None

    def _versions(self, pools: Sequence[DevicePool]) -> Versions:
        changes = self._allocated.changes
        if self._latest[0] is not pools or self._latest[1] != changes:
            versions = tuple([self._allocated.versions.get((pool.driver, pool.name)) for pool in pools])
            self._latest = (pools, changes, versions)
        return self._latest[2]


def _identity(claims: Sequence[PreparedClaim]) -> bytes:
    return _encode([(one.name, one.claim.spec) for one in claims])

"""The findings of DynamicResources in one attempt: of PreFilter about the pod's claims, of Filter about the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.api.objects import AllocationResult, ResourceClaim
from tidelog.api.selectors import NodeMatcher
from tidelog.framework.interface import CycleState
from tidelog.plugins.dynamic_resources.allocator import Allocator
from tidelog.plugins.dynamic_resources.extended_resources import Mapped
from tidelog.plugins.dynamic_resources.requests import PreparedClaim

STATE = "DynamicResources"
ALTERNATIVES_MAX = 8
"""Of a request; the first of them scores as many points."""


class SeenClaim(NamedTuple):
    """A claim of the pod's, as this attempt sees it."""

    claim: ResourceClaim
    allocation: AllocationResult | None
    """Its devices, or those that the placement being tried gives it; None: they have to be found."""
    is_given: bool
    """By the placement."""
    reach: NodeMatcher | None
    """The nodes from which these devices can be used; None: all."""
    is_usable: bool
    """They are ready, or there was time left for them when the attempt began. Told here, since the pod may share this with others that are signed alike, whose claims have waited for another time."""


class NodePlan(NamedTuple):
    """The allocation that would be made on a node."""

    allocations: tuple[AllocationResult, ...]
    """For each claim that is not allocated, in the pod's order; the special one's last."""
    special: ResourceClaim | None
    """The claim of extended resources, as this node wants it."""
    mappings: Sequence[Mapped]


class Cycle:
    """All of them."""

    def __init__(
        self,
        claims: Sequence[SeenClaim],
        special: ResourceClaim | None,
        extended: Mapping[str, int],
        *,
        is_shared: bool,
    ) -> None:
        self.is_shared = is_shared
        """It serves pods whose claims ask for the same as these."""
        self.claims = claims
        self.special = special
        """The claim of extended resources; what it asks for is each node's own."""
        self.extended = extended
        self.to_allocate = [seen.claim for seen in claims if seen.allocation is None]
        """The user's claims for which devices have to be found."""
        self.allocator: Allocator | None = None
        self.plans: dict[str, NodePlan] = {}
        self.specials: dict[tuple[str, ...], tuple[PreparedClaim, Sequence[Mapped]]] = {}
        """Extended resources that a node has to give as devices → the special claim that asks for them."""

    def points_on(self, plan: NodePlan) -> int:
        """Eight points for a request's first alternative, seven for the second …"""
        fresh = iter(plan.allocations)
        return sum(points(seen.claim, seen.allocation or next(fresh)) for seen in self.claims)


def cycle_of(state: CycleState) -> Cycle | None:
    """Return the findings of this attempt, if there are any."""
    found: Cycle | None = state.read(STATE)
    return found


def points(claim: ResourceClaim, allocation: AllocationResult) -> int:
    """The points of an allocation."""
    chosen = {result.request for result in allocation.devices.results}
    return sum(
        ALTERNATIVES_MAX - index
        for request in claim.spec.devices.requests
        if request.exactly is None
        for index, sub in enumerate(request.first_available)
        if f"{request.name}/{sub.name}" in chosen
    )

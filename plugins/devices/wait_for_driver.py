"""WaitForDriver: a pod with claims is placed only when their driver has allocated them. Off by default.

Where drivers allocate devices themselves, the scheduler's part is to wait: Reserve answers `Pending`, so the rejected pod goes on at once,
without backoff, when its claim says that it is allocated (KEP-4247: the attempt was not wasted, it told the driver what is wanted). An
allocated claim restricts the pod to the nodes from which the devices can be reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidelog.api.objects import Pod, ResourceClaim
from tidelog.api.selectors import NodeMatcher, node_selector_matcher
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import (
    SKIP,
    Code,
    CycleState,
    Depends,
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    ReservePlugin,
    Status,
    unresolvable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo

WAITING = "waiting for resource driver to allocate resource"
UNREACHABLE = "resourceclaim not available on the node"
_STATE = "WaitForDriver.claims"


class WaitForDriver(Plugin):
    """Waits for claims to be allocated, and keeps their pods where the devices are."""

    name = "WaitForDriver"
    filter_depends = Depends.NODE

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        names = claim_names(pod.pod)
        if not names:
            return PreFilterResult(status=SKIP)
        claims: list[ResourceClaim] = []
        for name in names:
            claim = self.handle.listers.resource_claim(pod.namespace, name)
            if claim is None:
                return PreFilterResult(status=unresolvable(f'resourceclaim "{name}" not found'))
            claims.append(claim)
        state.write(_STATE, claims)
        return PreFilterResult()

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        reached = all(matches(node.node) for matches in _reach(state.read(_STATE) or ()))
        return None if reached else unresolvable(UNREACHABLE)

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        claims: Sequence[ResourceClaim] = state.read(_STATE) or ()
        if all(claim.status.allocation is not None for claim in claims):
            return None
        return Status(Code.PENDING, (WAITING,))

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Nothing was set aside."""

    def events_to_register(self) -> list[EventRegistration]:
        """A claim of the pod that is there, or allocated, or allocated anew; a node from which it can be reached."""
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        claim = ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD | Action.UPDATE)
        return [EventRegistration(claim, _own_claim_changed), EventRegistration(node)]


def claim_names(pod: Pod) -> list[str]:
    """The claims that the pod names; those that a template makes are known by the pod's status."""
    made = {s.name: s.resource_claim_name for s in pod.status.resource_claim_statuses}
    names = (claim.resource_claim_name or made.get(claim.name) for claim in pod.spec.resource_claims)
    return [name for name in names if name]


def _reach(claims: Sequence[ResourceClaim]) -> Iterator[NodeMatcher]:
    for claim in claims:
        allocation = claim.status.allocation
        if allocation is not None and allocation.node_selector is not None:
            yield node_selector_matcher(allocation.node_selector)


def _own_claim_changed(waiting: WaitingPod, old: Any, new: ResourceClaim) -> Hint:
    mine = new.metadata.namespace == waiting.pod.metadata.namespace
    if not mine or new.metadata.name not in claim_names(waiting.pod):
        return Hint.SKIP
    return Hint.QUEUE if old is None or old.status.allocation != new.status.allocation else Hint.SKIP


_pre_filter: type[PreFilterPlugin] = WaitForDriver
_filter: type[FilterPlugin] = WaitForDriver
_reserve: type[ReservePlugin] = WaitForDriver

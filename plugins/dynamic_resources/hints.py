"""Hints for a pod that DynamicResources rejected."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.api.objects import Pod, ResourceClaim
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.plugins.dynamic_resources.claims import Lookup, NoClaim, claims_of


def registrations(lookup: Callable[[], Lookup]) -> list[EventRegistration]:
    """Of more devices, other rules, claims of the pod, and claims that give devices back."""
    hints = _Hints(lookup)
    changed = Action.ADD | Action.UPDATE
    node = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
    return [
        EventRegistration(ClusterEvent(Resource.NODE, node)),
        EventRegistration(
            ClusterEvent(Resource.RESOURCE_CLAIM, changed | Action.DELETE), hints.claim_changed
        ),
        EventRegistration(
            ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM), hints.pod_changed
        ),
        EventRegistration(ClusterEvent(Resource.DEVICE_CLASS, changed)),
        EventRegistration(ClusterEvent(Resource.RESOURCE_SLICE, changed)),
    ]


class _Hints:
    def __init__(self, lookup: Callable[[], Lookup]) -> None:
        self._lookup = lookup

    def _claims(self, pod: Pod) -> list[ResourceClaim] | None:
        try:
            return claims_of(pod, self._lookup())
        except NoClaim:
            return None

    def claim_changed(
        self, waiting: WaitingPod, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> Hint:
        """Devices were given back by whoever had them, or the pod's own claim is new or another one."""
        if new is None:
            freed = old is not None and old.status.allocation is not None
            return Hint.QUEUE if freed else Hint.SKIP
        own = self._claims(waiting.pod)
        if own is None:
            return Hint.SKIP
        if old is not None and old.status.allocation is not None and new.status.allocation is None:
            return Hint.QUEUE
        if not any(_identity(claim) == _identity(new) for claim in own):
            return Hint.SKIP
        return Hint.QUEUE if old is None or old.status != new.status else Hint.SKIP

    def pod_changed(self, waiting: WaitingPod, old: Pod | None, new: Pod) -> Hint:
        """All claims of the pod are there now."""
        return Hint.SKIP if self._claims(new) is None else Hint.QUEUE


def _identity(claim: ResourceClaim) -> str:
    return claim.metadata.uid or f"{claim.metadata.namespace}/{claim.metadata.name}"

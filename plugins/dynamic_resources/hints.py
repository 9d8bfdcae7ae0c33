"""Hints for a pod that DynamicResources rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tidelog.api.objects import DeviceClass, Pod, ResourceClaim, ResourceSlice
from tidelog.api.resources import CLASS_PREFIX, pod_requests
from tidelog.framework.devices import Devices
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.plugins.dynamic_resources.allocated import number_of_result, results_of
from tidelog.plugins.dynamic_resources.claims import NoClaim, claims_of, is_controlled_by
from tidelog.plugins.dynamic_resources.extended_resources import is_special
from tidelog.plugins.dynamic_resources.requests import ALL


def registrations(devices: Callable[[], Devices], *, wider: bool) -> list[EventRegistration]:
    """Of more devices, other rules, claims of the pod, and claims that give devices back. `wider`: more than kube-scheduler wakes it for."""
    hints = _Hints(devices, wider=wider)
    changed = Action.ADD | Action.UPDATE
    node = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
    found = [
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
    if wider:
        found += [
            EventRegistration(ClusterEvent(Resource.DEVICE_CLASS, Action.DELETE), _when_class_gone),
            EventRegistration(ClusterEvent(Resource.RESOURCE_SLICE, Action.DELETE), hints.slice_gone),
        ]
    return found


class _Hints:
    def __init__(self, devices: Callable[[], Devices], *, wider: bool) -> None:
        self._devices = devices
        self._wider = wider

    def _claims(self, pod: Pod) -> list[ResourceClaim] | None:
        try:
            return claims_of(pod, self._devices().claim)
        except NoClaim:
            return None

    def claim_changed(
        self, waiting: WaitingPod, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> Hint:
        """Devices were given back by whoever had them, or the pod's own claim is new or another one."""
        if new is None:
            return Hint.QUEUE if old is not None and self._makes_way(waiting.pod, old) else Hint.SKIP
        own = self._claims(waiting.pod)
        if own is None:
            return Hint.SKIP
        if old is not None and self._frees(old, new):
            return Hint.QUEUE
        if not any(_identity(claim) == _identity(new) for claim in own):
            return Hint.SKIP
        return Hint.QUEUE if old is None or old.status != new.status else Hint.SKIP

    def _makes_way(self, pod: Pod, gone: ResourceClaim) -> bool:
        """It had devices, or is what an earlier attempt left for the pod's extended resources."""
        left = self._wider and is_special(gone) and is_controlled_by(gone.metadata, pod)
        return left or gone.status.allocation is not None

    def _frees(self, old: ResourceClaim, new: ResourceClaim) -> bool:
        """It has no devices any more, or not all of those that it had. (kube-scheduler does not look at those it has instead.)"""
        before, after = old.status.allocation, new.status.allocation
        if before is None or after is None or not self._wider:
            return before is not None and after is None
        if before == after:
            return False
        had, has = (Counter(map(number_of_result, results_of(claim))) for claim in (old, new))
        return bool(had - has)

    def pod_changed(self, waiting: WaitingPod, old: Pod | None, new: Pod) -> Hint:
        """All claims of the pod are there now."""
        return Hint.SKIP if self._claims(new) is None else Hint.QUEUE

    def slice_gone(self, waiting: WaitingPod, old: ResourceSlice, _new: None) -> Hint:
        """All devices are fewer now, or a pool is whole that had a slice too many."""
        pools = [one.spec.pool for one in self._devices().slices_of_pool(old.spec.driver, old.spec.pool.name)]
        of = Counter(pool.generation for pool in pools)
        if any(of[pool.generation] >= pool.resource_slice_count for pool in pools):
            return Hint.QUEUE
        return Hint.QUEUE if any(map(_wants_all, self._claims(waiting.pod) or ())) else Hint.SKIP


def _wants_all(claim: ResourceClaim) -> bool:
    """It waits for all devices of a kind, or may be given those."""
    return claim.status.allocation is None and any(
        wanted is not None and wanted.allocation_mode == ALL
        for request in claim.spec.devices.requests
        for wanted in (request.exactly, *request.first_available)
    )


def _when_class_gone(waiting: WaitingPod, old: DeviceClass, _new: None) -> Hint:
    """An extended resource that the class backed comes from another class, or from nodes that offer it."""
    backed = {old.spec.extended_resource_name, f"{CLASS_PREFIX}{old.metadata.name}"}
    return Hint.SKIP if backed.isdisjoint(pod_requests(waiting.pod)) else Hint.QUEUE


def _identity(claim: ResourceClaim) -> str:
    return claim.metadata.uid or f"{claim.metadata.namespace}/{claim.metadata.name}"

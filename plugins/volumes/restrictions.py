"""VolumeRestrictions: disks that only one pod of a node may use, and claims that only one pod at all may use (ReadWriteOncePod)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from tidelog.api.objects import Node, Pod, Volume
from tidelog.api.storage import PersistentVolumeClaim
from tidelog.api.volumes import READ_WRITE_ONCE_POD
from tidelog.framework.behaviours import NODES_WAKE_FOR_VOLUMES, OBSTACLES_GONE_WAKE
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import (
    SKIP,
    CycleState,
    Depends,
    FilterPlugin,
    Handle,
    Plugin,
    PodHooks,
    PreFilterPlugin,
    PreFilterResult,
    Status,
    unresolvable,
    unschedulable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import ConcernsPods, PodParts, SignsAttempts, SignsPods
from tidelog.plugins.volumes.claims import concerns_mounted_claim, mounted_names, not_found, queue_if
from tidelog.plugins.volumes.signing import signed

REASON_DISK = "node(s) had no available disk"
REASON_ONE_POD = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
_STATE = "VolumeRestrictions"


class Exclusive(msgspec.Struct):
    """The findings of PreFilter."""

    has_disks: bool
    names: frozenset[str]
    """Of the pod's claims that only one pod may use."""
    conflicts: int
    """How often others use them. In `compat: upstream` each counts once however many do, and less than 0 is as good as 0."""

    namespace: str = ""
    """Theirs; empty where claims are told apart by their names alone, as kube-scheduler does."""

    def uses(self, other: PodInfo) -> int:
        """How many volumes of another pod are such claims."""
        if self.namespace not in ("", other.namespace):
            return 0
        return sum(name in self.names for name in mounted_names(other.pod))

    def clone(self) -> Exclusive:
        """A copy for trying without some pods."""
        return msgspec.structs.replace(self)


class VolumeRestrictions(Plugin):
    """Keeps pods apart that must not share a disk or a claim."""

    name = "VolumeRestrictions"
    filter_depends = Depends.OCCUPANTS | Depends.STORAGE | Depends.CLUSTER
    signed_depends: ClassVar[Depends] = Depends.STORAGE | Depends.CLUSTER
    signed_parts = PodParts.SPEC

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._counts_pods = not handle.upstream and handle.behaves(NODES_WAKE_FOR_VOLUMES)
        self._wakes_for_all = not handle.upstream and handle.behaves(OBSTACLES_GONE_WAKE)

    def sign_pod(self, pod: PodInfo) -> object:
        """The disks, and whether there may be claims."""
        found = signed(pod)
        return bool(found), [volume for volume in found if _is_disk(volume)]

    def concerns(self, pod: PodInfo) -> bool:
        return bool(signed(pod))

    def sign_attempt(self, state: CycleState, pod: PodInfo) -> object | None:
        """The claims that only one pod may use and somebody does."""
        found = self._exclusive(pod)
        if isinstance(found, Status):
            return found.reasons
        matters = found.conflicts or (found.has_disks and found.names)
        return (pod.namespace, sorted(found.names), found.conflicts) if matters else None

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        """Rejects a pod whose claim is missing; skips one that has neither such disks nor a claim in use."""
        if not pod.pod.spec.volumes:
            return PreFilterResult(status=SKIP)
        found = self._exclusive(pod)
        if isinstance(found, Status):
            return PreFilterResult(status=found)
        if not found.has_disks and not found.conflicts:
            return PreFilterResult(status=SKIP)
        state.write(_STATE, found)
        return PreFilterResult()

    def _exclusive(self, pod: PodInfo) -> Exclusive | Status:
        names: set[str] = set()
        for name in mounted_names(pod.pod):
            claim = self.handle.listers.storage.claim(pod.namespace, name)
            if claim is None:
                return unresolvable(not_found(name))
            if _is_for_one_pod(claim):
                names.add(name)
        has_disks = any(_is_disk(volume) for volume in pod.pod.spec.volumes)
        in_use = self.handle.snapshot.nodes_with_claim
        if not self._counts_pods:
            conflicts = sum(bool(in_use(pod.namespace, name)) for name in names)
            return Exclusive(has_disks, frozenset(names), conflicts)
        nodes = dict.fromkeys(node for name in sorted(names) for node in in_use(pod.namespace, name))
        found = Exclusive(has_disks, frozenset(names), 0, pod.namespace)
        for node in filter(None, map(self.handle.snapshot.get, nodes)):
            found.conflicts += sum(map(found.uses, node.pods.values()))
        return found

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Disks first; a claim that is in use is in use on every node."""
        found: Exclusive = state.read(_STATE)
        if found.has_disks and any(conflict(pod.pod, other.pod) for other in node.pods.values()):
            return unschedulable(REASON_DISK)
        return unschedulable(REASON_ONE_POD) if found.conflicts > 0 else None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        _change(state, added, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        _change(state, removed, -1)
        return None

    def events_to_register(self) -> Sequence[EventRegistration]:
        """The end of a pod that is in the way, a node, the claim."""
        found = [
            EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), self._when_pod_gone),
            EventRegistration(ClusterEvent(Resource.NODE, Action.ADD)),
            EventRegistration(
                ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), concerns_mounted_claim
            ),
        ]
        if self._wakes_for_all:
            found.append(EventRegistration(ClusterEvent(Resource.NODE, Action.DELETE), self._when_node_gone))
        return found

    def _when_pod_gone(self, waiting: WaitingPod, old: Pod, _new: None) -> Hint:
        """Claims are a namespace's own, disks are not. (kube-scheduler looks at pods of the namespace only.)"""
        pod = waiting.pod
        if pod.metadata.namespace != old.metadata.namespace:
            return queue_if(self._wakes_for_all and conflict(pod, old))
        return queue_if(conflict(pod, old) or not set(mounted_names(pod)).isdisjoint(mounted_names(old)))

    def _when_node_gone(self, waiting: WaitingPod, _old: Node, _new: None) -> Hint:
        """Its pods count no more as users of claims that only one pod may use. (kube-scheduler has the pod wait for a flush.)"""
        pod = waiting.pod
        claims = (self.handle.listers.storage.claim(pod.metadata.namespace, n) for n in mounted_names(pod))
        return queue_if(any(claim is not None and _is_for_one_pod(claim) for claim in claims))


def _change(state: CycleState, other: PodInfo, by: int) -> None:
    found: Exclusive | None = state.read(_STATE)
    if found is not None and found.names:
        found.conflicts += by * found.uses(other)


def _is_for_one_pod(claim: PersistentVolumeClaim) -> bool:
    return READ_WRITE_ONCE_POD in claim.spec.access_modes


# --- disks --------------------------------------------------------------------------------------------------------------


def _is_disk(volume: Volume) -> bool:
    return (
        volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.rbd is not None
        or volume.iscsi is not None
    )


def conflict(pod: Pod, other: Pod) -> bool:
    """Whether the two must not be on one node because of a disk."""
    disks = [volume for volume in pod.spec.volumes if _is_disk(volume)]
    return bool(disks) and any(
        _conflict(mine, theirs) for mine in disks for theirs in other.spec.volumes if _is_disk(theirs)
    )


def _conflict(a: Volume, b: Volume) -> bool:
    gce, other_gce = a.gce_persistent_disk, b.gce_persistent_disk
    if gce is not None and other_gce is not None:
        if gce.pd_name == other_gce.pd_name and not (gce.read_only and other_gce.read_only):
            return True
    ebs, other_ebs = a.aws_elastic_block_store, b.aws_elastic_block_store
    if ebs is not None and other_ebs is not None and ebs.volume_id == other_ebs.volume_id:
        return True
    iscsi, other_iscsi = a.iscsi, b.iscsi
    if iscsi is not None and other_iscsi is not None:
        # Portal and unit are not looked at: one name is one target.
        if iscsi.iqn == other_iscsi.iqn and not (iscsi.read_only and other_iscsi.read_only):
            return True
    rbd, other_rbd = a.rbd, b.rbd
    return (
        rbd is not None
        and other_rbd is not None
        and not set(rbd.monitors).isdisjoint(other_rbd.monitors)
        and (rbd.pool, rbd.image) == (other_rbd.pool, other_rbd.image)
        and not (rbd.read_only and other_rbd.read_only)
    )


_pre_filter: type[PreFilterPlugin] = VolumeRestrictions
_filter: type[FilterPlugin] = VolumeRestrictions
_hooks: type[PodHooks] = VolumeRestrictions
_signs: type[SignsPods] = VolumeRestrictions
_concerns: type[ConcernsPods] = VolumeRestrictions
_signs_attempts: type[SignsAttempts] = VolumeRestrictions

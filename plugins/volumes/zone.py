"""VolumeZone: a pod goes where the zones and regions are that the labels of its volumes name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple

from tidelog.api.storage import PersistentVolume, StorageClass
from tidelog.api.volumes import WAIT_FOR_FIRST_CONSUMER, class_of
from tidelog.api.well_known import BETA_REGION, BETA_ZONE, REGION, ZONE
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import (
    SKIP,
    CycleState,
    Depends,
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    Status,
    unresolvable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import ConcernsPods, PodParts, SignsAttempts, SignsPods
from tidelog.plugins.volumes.binding import mode_not_set
from tidelog.plugins.volumes.claims import NO_NAME, concerns_mounted_claim, mounted_names, not_found, queue_if
from tidelog.plugins.volumes.in_tree import ZONES_DELIMITER
from tidelog.plugins.volumes.signing import signed

REASON_ZONE = "node(s) had no available volume zone"
TOPOLOGY_LABELS = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_GA_NAME = {BETA_ZONE: ZONE, BETA_REGION: REGION}
_STATE = "VolumeZone"


class VolumeTopology(NamedTuple):
    """A demand on nodes by a label of a volume."""

    volume: str
    key: str
    values: frozenset[str]


class VolumeZone(Plugin):
    """Rejects nodes outside the volumes' zones. A node without any such label is in no zone, and passes."""

    name = "VolumeZone"
    filter_depends = Depends.NODE | Depends.STORAGE
    signed_depends: ClassVar[Depends] = Depends.STORAGE
    signed_parts = PodParts.SPEC

    def sign_pod(self, pod: PodInfo) -> object:
        return bool(signed(pod))

    def concerns(self, pod: PodInfo) -> bool:
        return bool(signed(pod))

    def sign_attempt(self, state: CycleState, pod: PodInfo) -> object | None:
        """Return the demands of the volumes' labels, whichever volumes they are."""
        found = self._asked(pod)
        if isinstance(found, Status):
            return found.reasons
        return [(one.key, sorted(one.values)) for one in found] or None

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        """Collects the labels of the volumes; skips if there are none."""
        found = self._asked(pod)
        if isinstance(found, Status):
            return PreFilterResult(status=found)
        if not found:
            return PreFilterResult(status=SKIP)
        state.write(_STATE, found)
        return PreFilterResult()

    def _asked(self, pod: PodInfo) -> list[VolumeTopology] | Status:
        found: list[VolumeTopology] = []
        for name in mounted_names(pod.pod):
            volume = self._volume_of(pod.namespace, name)
            if isinstance(volume, Status):
                return volume
            if volume is not None and volume.metadata.labels:
                found += topologies_of(volume)
        return found

    def _volume_of(self, namespace: str, name: str) -> PersistentVolume | Status | None:
        """The volume that the claim has; None if it gets one when its pod has a node."""
        storage = self.handle.listers.storage
        if not name:
            return unresolvable(NO_NAME)
        claim = storage.claim(namespace, name)
        if claim is None:
            return unresolvable(not_found(name))
        if claim.spec.volume_name:
            volume = storage.volume(claim.spec.volume_name)
            return volume or unresolvable(f'persistentvolume "{claim.spec.volume_name}" not found')
        class_name = class_of(claim)
        if not class_name:
            return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
        found = storage.storage_class(class_name)
        if found is None:
            return unresolvable(f'storageclass.storage.k8s.io "{class_name}" not found')
        if not found.volume_binding_mode:
            return unresolvable(mode_not_set(class_name))
        if found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
            return None
        return unresolvable("PersistentVolume had no name")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Every label of every volume must be met by the node's, a beta label also by the one that took its place."""
        labels = node.labels
        if not any(key in labels for key in TOPOLOGY_LABELS):
            return None
        wanted: list[VolumeTopology] = state.read(_STATE)
        for _, key, values in wanted:
            at = labels.get(key)
            if at is None and key in _GA_NAME:
                at = labels.get(_GA_NAME[key])
            if at is None or at not in values:
                return unresolvable(REASON_ZONE)
        return None

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Classes, nodes, claims, volumes."""
        claims = ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD | Action.UPDATE)
        return [
            EventRegistration(ClusterEvent(Resource.STORAGE_CLASS, Action.ADD), _when_class_comes),
            EventRegistration(ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)),
            EventRegistration(claims, concerns_mounted_claim),
            EventRegistration(
                ClusterEvent(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE), _when_volume_changes
            ),
        ]


def topologies_of(volume: PersistentVolume) -> list[VolumeTopology]:
    """Return the demands of the volume's labels; a label with an empty part asks nothing."""
    return [
        VolumeTopology(volume.metadata.name, key, frozenset(values))
        for key in TOPOLOGY_LABELS
        if (label := volume.metadata.labels.get(key)) is not None
        and _are_all_there(values := [part.strip() for part in label.split(ZONES_DELIMITER)])
    ]


def _are_all_there(parts: Iterable[str]) -> bool:
    return all(parts)


def _when_class_comes(_waiting: WaitingPod, _old: None, new: StorageClass) -> Hint:
    return queue_if(new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER)


def _when_volume_changes(_waiting: WaitingPod, old: PersistentVolume | None, new: PersistentVolume) -> Hint:
    return queue_if(old is None or topologies_of(old) != topologies_of(new))


_pre_filter: type[PreFilterPlugin] = VolumeZone
_filter: type[FilterPlugin] = VolumeZone
_signs: type[SignsPods] = VolumeZone
_concerns: type[ConcernsPods] = VolumeZone
_signs_attempts: type[SignsAttempts] = VolumeZone

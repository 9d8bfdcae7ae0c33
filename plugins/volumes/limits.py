"""NodeVolumeLimits: a node attaches only so many volumes of a CSI driver.

Volumes are told apart by driver and handle, so that one that is shared counts once. What is attached are the volumes of the pods on the node,
and those of VolumeAttachments that no pod there accounts for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.api.objects import Pod, Volume
from tidelog.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, VolumeAttachment
from tidelog.api.volumes import claim_uses, class_of
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import (
    SKIP,
    CycleState,
    Depends,
    FilterPlugin,
    Handle,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    Status,
    unresolvable,
    unschedulable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.storage import Storage
from tidelog.plugins.volumes.claims import (
    NO_NAME,
    LookupFailed,
    concerns_claim,
    error,
    made_for,
    not_found,
    queue_if,
)
from tidelog.plugins.volumes.in_tree import (
    TranslationError,
    handle_of_inline,
    handle_of_volume,
    kind_named,
    kind_of,
)

REASON_TOO_MANY = "node(s) exceed max volume count"

Volumes = dict[str, str]
"""`driver/handle` → driver."""


class Attached(NamedTuple):
    """What is attached to a node."""

    by_pods: Volumes
    """What its pods have: if the pod to be placed has it too, it counts once."""
    all: Volumes
    """And what else is, which counts beside the pod's own even if it is the same: as in kube-scheduler."""


def reason_not_installed(driver: str) -> str:
    """Why a node without the driver is rejected."""
    return f"{driver} CSI driver is not installed on the node"


class NodeVolumeLimits(Plugin):
    """Rejects nodes that cannot attach the pod's volumes any more."""

    name = "NodeVolumeLimits"
    filter_depends = Depends.OCCUPANTS | Depends.STORAGE

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._attached: dict[str, tuple[int, int, Attached]] = {}
        """Node → generations of node and storage, and what was attached then."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        """Skips a pod without a volume that a driver could have to attach."""
        volumes = pod.pod.spec.volumes
        return PreFilterResult() if any(map(_may_count, volumes)) else PreFilterResult(status=SKIP)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Counts what is attached and what would have to be, by driver."""
        storage = self.handle.listers.storage
        csi_node = storage.csi_node(node.name)
        try:
            wanted = volumes_of(pod.pod, storage, csi_node, is_new=True)
            if not wanted:
                return None
            missing = _missing_driver(wanted, storage, csi_node)
            if missing:
                return unschedulable(reason_not_installed(missing))
            limits = limits_of(csi_node)
            if not limits:
                return None
            attached = self._attached_to(node, storage, csi_node)
        except LookupFailed as failure:
            return failure.status
        taken = Counter(attached.all.values())
        more = Counter(driver for key, driver in wanted.items() if key not in attached.by_pods)
        for driver, count in more.items():
            if driver in limits and taken[driver] + count > limits[driver]:
                return unschedulable(REASON_TOO_MANY)
        return None

    def _attached_to(self, node: NodeInfo, storage: Storage, csi_node: CSINode | None) -> Attached:
        known = self._attached.get(node.name)
        if known is not None and known[:2] == (node.generation, storage.generation) and node.generation:
            return known[2]
        found = attached_to(node, storage, csi_node)
        self._attached[node.name] = (node.generation, storage.generation, found)
        return found

    def events_to_register(self) -> Sequence[EventRegistration]:
        """More room on a node, the end of a pod with volumes, the claim, a volume that is detached."""
        return [
            EventRegistration(ClusterEvent(Resource.CSI_NODE, Action.ADD)),
            EventRegistration(ClusterEvent(Resource.CSI_NODE, Action.UPDATE), _when_limits_change),
            EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), _when_pod_gone),
            EventRegistration(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), concerns_claim),
            EventRegistration(ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE), _when_detached),
        ]


def limits_of(csi_node: CSINode | None) -> dict[str, int]:
    """Driver → how many volumes it attaches to the node; drivers without a limit are left out."""
    drivers = () if csi_node is None else csi_node.spec.drivers
    return {
        driver.name: driver.allocatable.count
        for driver in drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def attached_to(node: NodeInfo, storage: Storage, csi_node: CSINode | None) -> Attached:
    """What the pods on the node have attached, and what is attached to it besides. Raises LookupFailed."""
    by_pods: Volumes = {}
    for other in node.pods.values():
        if other.pod.spec.volumes:
            by_pods |= volumes_of(other.pod, storage, csi_node, is_new=False)
    found = dict(by_pods)
    for attachment in storage.attachments_to(node.name):
        key = _attachment_key(attachment, storage)
        if key:
            found.setdefault(key, attachment.spec.attacher)
    return Attached(by_pods, found)


def _attachment_key(attachment: VolumeAttachment, storage: Storage) -> str:
    name = attachment.spec.source.persistent_volume_name
    if not attachment.spec.attacher or name is None:
        return ""
    volume = storage.volume(name)
    if volume is None or volume.spec.csi is None:
        return ""
    return f"{attachment.spec.attacher}/{volume.spec.csi.volume_handle}"


def volumes_of(pod: Pod, storage: Storage, csi_node: CSINode | None, *, is_new: bool) -> Volumes:
    """The pod's volumes that a driver attaches. Raises LookupFailed; a claim that is missing only matters if the pod `is_new`."""
    found: Volumes = {}
    for use in claim_uses(pod):
        if not use.claim:
            raise LookupFailed(error(NO_NAME))
        claim = made_for(pod, use.claim, use.is_ephemeral, storage)
        if claim is None:
            if is_new:
                where = f"{pod.metadata.namespace}/{use.claim}"
                raise LookupFailed(unresolvable(f"looking up PVC {where}: {not_found(use.claim)}"))
            continue
        driver, handle = _driver_of_claim(claim, storage, csi_node)
        if driver and handle:
            found[f"{driver}/{handle}"] = driver
    if csi_node is not None:
        found.update(_inline(pod))
    return found


def _inline(pod: Pod) -> Iterator[tuple[str, str]]:
    for volume in pod.spec.volumes:
        kind = kind_of(volume)
        if kind is None or not kind.is_migrated:
            continue
        try:
            handle = handle_of_inline(volume, kind)
        except TranslationError as problem:
            raise LookupFailed(
                error(f"converting volume({volume.name}) from inline to csi: {problem}")
            ) from problem
        yield f"{kind.driver}/{handle}", kind.driver


def _driver_of_claim(
    claim: PersistentVolumeClaim, storage: Storage, csi_node: CSINode | None
) -> tuple[str, str]:
    """Who attaches the claim's volume, and by which handle; empty if it is not counted."""
    volume = storage.volume(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        return _driver_of_class(claim, storage, csi_node)
    return _driver_of_volume(volume, csi_node)


def _driver_of_volume(volume: PersistentVolume, csi_node: CSINode | None) -> tuple[str, str]:
    if volume.spec.csi is not None:
        return volume.spec.csi.driver, volume.spec.csi.volume_handle
    kind = kind_of(volume.spec)
    if kind is None or not kind.is_migrated or csi_node is None:
        return "", ""
    try:
        return kind.driver, handle_of_volume(volume, kind)
    except TranslationError:
        return "", ""


def _driver_of_class(
    claim: PersistentVolumeClaim, storage: Storage, csi_node: CSINode | None
) -> tuple[str, str]:
    """Of a volume that is still to be made: the class says by whom. A provisioner counts as a driver even if it is none."""
    found = storage.storage_class(class_of(claim))
    if found is None:
        return "", ""
    # No volume has such a handle: it cannot be taken for one that is there.
    handle = f"\0{claim.metadata.namespace}/{claim.metadata.name}"
    kind = kind_named(found.provisioner)
    if kind is None:
        return found.provisioner, handle
    return (kind.driver, handle) if kind.is_migrated and csi_node is not None else ("", "")


def _missing_driver(wanted: Volumes, storage: Storage, csi_node: CSINode | None) -> str:
    """The first driver, by name, that must be on a node and is not on this one."""
    installed = set() if csi_node is None else {driver.name for driver in csi_node.spec.drivers}
    for driver in sorted(set(wanted.values()) - installed):
        found = storage.csi_driver(driver)
        if found is not None and found.spec.prevent_pod_scheduling_if_missing:
            return driver
    return ""


# --- hints --------------------------------------------------------------------------------------------------------------


def _may_count(volume: Volume) -> bool:
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or kind_of(volume) is not None
    )


def _when_limits_change(_waiting: WaitingPod, old: CSINode, new: CSINode) -> Hint:
    before = limits_of(old)
    return queue_if(any(count > before.get(driver, 0) for driver, count in limits_of(new).items()))


def _when_pod_gone(_waiting: WaitingPod, old: Pod, _new: None) -> Hint:
    had_place = bool(old.spec.node_name or old.status.nominated_node_name)
    return queue_if(had_place and any(map(_may_count, old.spec.volumes)))


def _when_detached(waiting: WaitingPod, old: VolumeAttachment, _new: None) -> Hint:
    def concerns(volume: Volume) -> bool:
        kind = kind_of(volume)
        return volume.persistent_volume_claim is not None or (
            kind is not None and kind.driver == old.spec.attacher
        )

    return queue_if(any(map(concerns, waiting.pod.spec.volumes)))


_pre_filter: type[PreFilterPlugin] = NodeVolumeLimits
_filter: type[FilterPlugin] = NodeVolumeLimits

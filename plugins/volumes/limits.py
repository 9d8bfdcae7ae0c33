"""NodeVolumeLimits: a node attaches only so many volumes of a CSI driver.

Volumes are told apart by driver and handle, so that one that is shared counts once. What is attached are the volumes of the pods on the node,
and those of VolumeAttachments that no pod there accounts for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from tidelog.api.objects import Pod, Volume
from tidelog.api.storage import (
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeAttachment,
)
from tidelog.api.volumes import PROVISIONED_BY, STORAGE_PROVISIONER, claim_uses, class_of
from tidelog.framework.behaviours import LESS_ATTACHED_WAKES, NODES_WAKE_FOR_VOLUMES, PROMISED_VOLUMES_COUNT
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
from tidelog.framework.interface import Snapshot as SnapshotPort
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import ConcernsPods, NotCountable, PodParts, SignsAttempts, SignsPods
from tidelog.framework.snapshot import Snapshot
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
from tidelog.plugins.volumes.signing import signed

REASON_TOO_MANY = "node(s) exceed max volume count"

Volumes = dict[str, str]
"""`driver/handle` → driver."""


class Attached(NamedTuple):
    """The volumes attached to a node."""

    by_pods: Volumes
    """Volumes of its pods: if the pod to be placed has it too, it counts once."""
    all: Volumes
    """And what else is, which counts beside the pod's own even if it is the same: as in kube-scheduler."""


def reason_not_installed(driver: str) -> str:
    """Why a node without the driver is rejected."""
    return f"{driver} CSI driver is not installed on the node"


class NodeVolumeLimits(Plugin):
    """Rejects nodes that cannot attach the pod's volumes any more."""

    name = "NodeVolumeLimits"
    filter_depends = Depends.OCCUPANTS | Depends.STORAGE
    signed_depends: ClassVar[Depends] = Depends.STORAGE
    signed_parts = PodParts.SPEC

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._attached: dict[str, tuple[tuple[str, ...], Attached]] = {}
        """Node → uids of its pods, and what was attached then; all of one generation of the storage."""
        self._attached_at = -1
        self._counts_promised = handle.behaves(PROMISED_VOLUMES_COUNT)
        self._room = Room(handle)

    def sign_pod(self, pod: PodInfo) -> object:
        return bool(signed(pod))

    def concerns(self, pod: PodInfo) -> bool:
        return bool(signed(pod))

    def sign_attempt(self, state: CycleState, pod: PodInfo) -> object | None:
        """How many volumes of each driver; which ones only where a node may have them already."""
        if self._is_skipped(pod):
            return None
        try:
            found = [self._told_apart(pod, has_csi_node) for has_csi_node in (False, True)]
        except LookupFailed as failure:
            return failure.status.reasons
        return found, self.handle.listers.storage.class_generation

    def _told_apart(self, pod: PodInfo, has_csi_node: bool) -> Volumes:
        """The pod's volumes; those that no node can have yet stand there without a name of their own. Raises LookupFailed."""
        storage, snapshot = self.handle.listers.storage, self.handle.snapshot
        found: Volumes = {}
        promised = {claim for others in self._promised(pod) for other in others for claim in other.claims}
        new = new_volumes(pod.pod, storage, snapshot, promised)
        for key, driver in volumes_of(pod.pod, storage, has_csi_node, is_new=True).items():
            found[f"\0{len(found)}" if key in new else key] = driver
        return found

    def _promised(self, pod: PodInfo) -> Iterator[list[PodInfo]]:
        """The other pods that are nominated to a node, node by node. Costs a look at each."""
        nominated = self.handle.nominated
        for name in nominated.nodes() if self._counts_promised else ():
            yield [other for other in nominated.pods_on(name) if other.uid != pod.uid]

    def _is_skipped(self, pod: PodInfo) -> bool:
        if not any(map(_may_count, pod.pod.spec.volumes)):
            return True
        return not self.handle.upstream and self._room.is_everywhere(pod.pod, self._promised(pod))

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        """Skips a pod without a volume that a driver could have to attach, and one whose volumes every node can take."""
        if self._is_skipped(pod):
            return PreFilterResult(status=SKIP)
        if state.is_shared:
            # Other pods than this one are asked about, and it may be on a node itself by then.
            for has_csi_node in (False, True):
                try:
                    state.write(_wanted_key(has_csi_node), self._told_apart(pod, has_csi_node))
                except LookupFailed as failure:
                    raise NotCountable(failure.status.message) from failure
        return PreFilterResult()

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Counts what is attached and what would have to be, by driver."""
        storage = self.handle.listers.storage
        csi_node = storage.csi_node(node.name)
        try:
            wanted = _wanted(state, pod.pod, storage, csi_node is not None)
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
        if self._attached_at != storage.generation:
            self._attached_at, self._attached = storage.generation, {}
        known, pods = self._attached.get(node.name), tuple(node.pods)
        if known is not None and known[0] == pods:
            return known[1]
        found = attached_to(node, storage, csi_node, strict=self.handle.upstream)
        self._attached[node.name] = (pods, found)
        return found

    def events_to_register(self) -> Sequence[EventRegistration]:
        """More room on a node, the end of a pod with volumes, the claim, a volume that is detached."""
        return [
            *self._wider(),
            EventRegistration(ClusterEvent(Resource.CSI_NODE, Action.ADD)),
            EventRegistration(ClusterEvent(Resource.CSI_NODE, Action.UPDATE), _when_limits_change),
            EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE), _when_pod_gone),
            EventRegistration(ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD), concerns_claim),
            EventRegistration(ClusterEvent(Resource.VOLUME_ATTACHMENT, Action.DELETE), _when_detached),
        ]

    def _wider(self) -> Iterator[EventRegistration]:
        """All else that `filter` goes by. kube-scheduler has the pod wait for a flush."""
        if self.handle.upstream:
            return
        if self.handle.behaves(NODES_WAKE_FOR_VOLUMES):
            # A node attaches any number of volumes as long as no CSINode limits that.
            yield EventRegistration(ClusterEvent(Resource.NODE, Action.ADD))
            yield EventRegistration(ClusterEvent(Resource.CSI_NODE, Action.DELETE))
        if self.handle.behaves(LESS_ATTACHED_WAKES):
            yield from _of_what_counts()


def limits_of(csi_node: CSINode | None) -> dict[str, int]:
    """Driver → how many volumes it attaches to the node; drivers without a limit are left out."""
    drivers = () if csi_node is None else csi_node.spec.drivers
    return {
        driver.name: driver.allocatable.count
        for driver in drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def attached_to(
    node: NodeInfo, storage: Storage, csi_node: CSINode | None, *, strict: bool = False
) -> Attached:
    """Return the volumes that the pods on the node have attached, and those attached to it besides. Raises LookupFailed if it is `strict`:
    then a pod there whose ephemeral claim is another's fails whoever is to be placed, as in kube-scheduler."""
    by_pods: Volumes = {}
    for other in node.pods.values():
        if not other.pod.spec.volumes:
            continue
        try:
            by_pods |= volumes_of(other.pod, storage, csi_node is not None, is_new=False)
        except LookupFailed:
            if strict:
                raise
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


def _wanted(state: CycleState, pod: Pod, storage: Storage, has_csi_node: bool) -> Volumes:
    """Of the pod to be placed, once for all nodes. Raises LookupFailed."""
    key = _wanted_key(has_csi_node)
    found: Volumes | None = state.read(key)
    if found is None:
        found = volumes_of(pod, storage, has_csi_node, is_new=True)
        state.write(key, found)
    return found


def _wanted_key(has_csi_node: bool) -> str:
    return "NodeVolumeLimits.wanted.with" if has_csi_node else "NodeVolumeLimits.wanted.without"


def new_volumes(
    pod: Pod, storage: Storage, snapshot: SnapshotPort, promised: Collection[tuple[str, str]]
) -> frozenset[str]:
    """Keys of those of the pod's volumes that no pod on a node can have: nobody there mounts the claim, and no other claim stands for the volume.

    Nor can any that is nominated to one, with `promised` claims.
    """
    found: list[str] = []
    namespace = pod.metadata.namespace
    for use in claim_uses(pod):
        claim = storage.claim(namespace, use.claim)
        if claim is None or snapshot.nodes_with_claim(namespace, use.claim):
            continue
        if (namespace, use.claim) in promised:
            continue
        name = claim.spec.volume_name
        volume = storage.volume(name) if name else None
        if volume is None:
            driver, handle = _driver_of_class(claim, storage, True)
        elif volume.spec.csi is not None and len(storage.claims_with_volume(name)) == 1:
            driver, handle = volume.spec.csi.driver, volume.spec.csi.volume_handle
            if len(storage.volumes_with_handle(driver, handle)) > 1:
                continue
        else:
            continue
        found.append(f"{driver}/{handle}")
    return frozenset(found)


def volumes_of(pod: Pod, storage: Storage, has_csi_node: bool, *, is_new: bool) -> Volumes:
    """The pod's volumes that a driver attaches; those of the old kinds only where the node `has_csi_node`. Raises LookupFailed; a claim that is missing only matters if the pod `is_new`."""
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
        driver, handle = _driver_of_claim(claim, storage, has_csi_node)
        if driver and handle:
            found[f"{driver}/{handle}"] = driver
    if has_csi_node:
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


def _driver_of_claim(claim: PersistentVolumeClaim, storage: Storage, has_csi_node: bool) -> tuple[str, str]:
    """Return the driver that attaches the claim's volume, and the handle; empty if it is not counted."""
    volume = storage.volume(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        return _driver_of_class(claim, storage, has_csi_node)
    return _driver_of_volume(volume, has_csi_node)


def _driver_of_volume(volume: PersistentVolume, has_csi_node: bool) -> tuple[str, str]:
    if volume.spec.csi is not None:
        return volume.spec.csi.driver, volume.spec.csi.volume_handle
    kind = kind_of(volume.spec)
    if kind is None or not kind.is_migrated or not has_csi_node:
        return "", ""
    try:
        return kind.driver, handle_of_volume(volume, kind)
    except TranslationError:
        return "", ""


def _driver_of_class(claim: PersistentVolumeClaim, storage: Storage, has_csi_node: bool) -> tuple[str, str]:
    """Of a volume that is still to be made: the class says by whom. A provisioner counts as a driver even if it is none."""
    found = storage.storage_class(class_of(claim))
    if found is None:
        return "", ""
    # No volume has such a handle: it cannot be taken for one that is there.
    handle = _handle_to_come(claim)
    kind = kind_named(found.provisioner)
    if kind is None:
        return found.provisioner, handle
    return (kind.driver, handle) if kind.is_migrated and has_csi_node else ("", "")


def _handle_to_come(claim: PersistentVolumeClaim) -> str:
    return f"\0{claim.metadata.namespace}/{claim.metadata.name}"


def _missing_driver(wanted: Volumes, storage: Storage, csi_node: CSINode | None) -> str:
    """The first driver, by name, that must be on a node and is not on this one."""
    installed = set() if csi_node is None else {driver.name for driver in csi_node.spec.drivers}
    for driver in sorted(set(wanted.values()) - installed):
        found = storage.csi_driver(driver)
        if found is not None and found.spec.prevent_pod_scheduling_if_missing:
            return driver
    return ""


# --- whether it need be asked -------------------------------------------------------------------------------------------


class Room:
    """Whether every node can take some more volumes, by bounds that are kept: the fullest node, and the lowest limit.

    A look costs the nodes that changed since the last one.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._loads: dict[str, int] = {}
        """Node → how many volumes its pods have."""
        self._counts: Counter[int] = Counter()
        """So many volumes → on how many nodes."""
        self._seen = -1
        self._limits: dict[str, int] = {}
        """Driver → the lowest limit of any node."""
        self._csi_seen = -1
        self._attached = (-1, 0)

    def is_everywhere(self, pod: Pod, promised: Iterable[Iterable[PodInfo]]) -> bool:
        """No node can have too many with the pod's volumes and those of the pods `promised` to it, and no driver of the pod's has to be looked for."""
        storage = self._handle.listers.storage
        try:
            wanted = volumes_of(pod, storage, True, is_new=True)
        except LookupFailed:
            return False
        self._follow_drivers(storage)
        if self._limits.keys().isdisjoint(wanted.values()):
            most = 0
        else:
            coming = (sum(other.volumes for other in others) for others in promised)
            most = self._most(storage) + max(coming, default=0)
        for driver, count in Counter(wanted.values()).items():
            found = storage.csi_driver(driver)
            if found is not None and found.spec.prevent_pod_scheduling_if_missing:
                return False
            if driver in self._limits and most + count > self._limits[driver]:
                return False
        return True

    def _follow_drivers(self, storage: Storage) -> None:
        if self._csi_seen == storage.csi_generation:
            return
        self._csi_seen = storage.csi_generation
        self._limits = {}
        for csi_node in storage.csi_nodes():
            for driver, limit in limits_of(csi_node).items():
                self._limits[driver] = min(limit, self._limits.get(driver, limit))

    def _most(self, storage: Storage) -> int:
        """So many volumes no node has more of."""
        if self._attached[0] != storage.attachment_generation:
            self._attached = (storage.attachment_generation, storage.most_attachments())
        self._follow_nodes()
        return max(self._counts, default=0) + self._attached[1]

    def _follow_nodes(self) -> None:
        snapshot = self._handle.snapshot
        if not isinstance(snapshot, Snapshot):
            self._counts = Counter(node.volumes for node in snapshot.nodes)
            return
        changed = snapshot.changed_since(self._seen) if self._seen >= 0 else None
        if changed is None:
            self._loads = {node.name: node.volumes for node in snapshot.nodes}
            self._counts = Counter(self._loads.values())
        else:
            for name in changed:
                self._change(name, snapshot.get(name))
        self._seen = snapshot.generation

    def _change(self, name: str, node: NodeInfo | None) -> None:
        old = self._loads.pop(name, None)
        if old is not None:
            self._counts[old] -= 1
            if not self._counts[old]:
                del self._counts[old]
        if node is not None:
            self._loads[name] = node.volumes
            self._counts[node.volumes] += 1


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


def _of_what_counts() -> Iterator[EventRegistration]:
    """The claim, the volume and the class say for which driver a volume counts: without them it does not, with others for another one."""

    def on(resource: Resource, action: Action) -> ClusterEvent:
        return ClusterEvent(resource, action)

    add, update, delete = Action.ADD, Action.UPDATE, Action.DELETE
    yield EventRegistration(on(Resource.PERSISTENT_VOLUME_CLAIM, delete))
    yield EventRegistration(on(Resource.PERSISTENT_VOLUME_CLAIM, update), _when_volume_is_found)
    yield EventRegistration(on(Resource.PERSISTENT_VOLUME, add), _when_volume_comes)
    yield EventRegistration(on(Resource.PERSISTENT_VOLUME, delete))
    yield EventRegistration(on(Resource.STORAGE_CLASS, delete))
    yield EventRegistration(on(Resource.CSI_NODE, update), _when_a_limit_ends)
    yield EventRegistration(on(Resource.CSI_DRIVER, update | delete), _when_driver_may_be_missing)
    yield EventRegistration(on(Resource.ASSIGNED_POD, add), _when_claim_is_attached)


def _when_volume_is_found(
    _waiting: WaitingPod, old: PersistentVolumeClaim, new: PersistentVolumeClaim
) -> Hint:
    """The volume that a class's provisioner made is one of the driver for which the claim has counted."""
    is_found = old.spec.volume_name != new.spec.volume_name
    return queue_if(is_found and STORAGE_PROVISIONER not in new.metadata.annotations)


def _when_volume_comes(_waiting: WaitingPod, _old: None, new: PersistentVolume) -> Hint:
    """A claim may have named it already; not one that is made for a claim."""
    return queue_if(PROVISIONED_BY not in new.metadata.annotations)


def _when_a_limit_ends(_waiting: WaitingPod, old: CSINode, new: CSINode) -> Hint:
    """Or a driver is installed."""
    before, after = ({driver.name for driver in node.spec.drivers} for node in (old, new))
    return queue_if(bool(limits_of(old).keys() - limits_of(new).keys() or after - before))


def _when_driver_may_be_missing(_waiting: WaitingPod, old: CSIDriver, new: CSIDriver | None) -> Hint:
    must_be_there = new is not None and new.spec.prevent_pod_scheduling_if_missing
    return queue_if(bool(old.spec.prevent_pod_scheduling_if_missing) and not must_be_there)


def _when_claim_is_attached(waiting: WaitingPod, _old: None, new: Pod) -> Hint:
    """A claim of the waiting pod's that another has on the node needs no attachment of its own."""
    pod = waiting.pod
    if pod.metadata.namespace != new.metadata.namespace:
        return Hint.SKIP
    mine = {use.claim for use in claim_uses(pod)}
    return queue_if(any(use.claim in mine for use in claim_uses(new)))


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
_signs: type[SignsPods] = NodeVolumeLimits
_concerns: type[ConcernsPods] = NodeVolumeLimits
_signs_attempts: type[SignsAttempts] = NodeVolumeLimits

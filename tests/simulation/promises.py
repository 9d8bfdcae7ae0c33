"""What is promised to pods beside their room: the volumes and devices of their claims, by the judge's own reading of the objects.

`unmet(cluster, pod, node)` is to pods with claims what the rest of `rules` is to all. `twice(objects)` finds what two claims have. Nothing is shared
with the plugins for volumes and devices, nor with whoever folds the log; a story's claims ask for devices of one class, and for whole ones; its volumes are
attached by drivers of CSI, or by nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.objects import DeviceResult, NodeSelector, Object, ResourceClaim, ResourceSlice
from tidelog.api.quantity import compare
from tidelog.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from tidelog.api.writes import Write

if TYPE_CHECKING:
    from tests.simulation.cluster import SeenCluster, SeenNode, SeenPod

SELECTED_NODE = "volume.kubernetes.io/selected-node"
COMPLETED = "pv.kubernetes.io/bind-completed"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
CLAIMED_KINDS = ("PersistentVolumeClaim/", "PersistentVolume/", "ResourceClaim/")
Objects = Mapping[str, Object]


def has_claims(pod: SeenPod) -> bool:
    """Whether the pod asks for volumes or devices."""
    spec = pod.obj.spec
    return bool(spec.volumes or spec.resource_claims)


def unmet(cluster: SeenCluster, pod: SeenPod, node: SeenNode) -> str:
    """Why the pod's claims keep it from this node as things are; empty if they do not."""
    if not has_claims(pod):
        return ""
    taken: set[str] = set()
    for volume in pod.obj.spec.volumes:
        assert volume.persistent_volume_claim is not None, "no story has other volumes"
        name = volume.persistent_volume_claim.claim_name
        found = cluster.others.get(f"PersistentVolumeClaim/{pod.namespace}/{name}")
        if not isinstance(found, PersistentVolumeClaim):
            return f"there is no claim {name}"
        if why := _volume_lacks(cluster.others, found, node, taken):
            return f"claim {name}: {why}"
    wanted = 0
    for key in device_claims(pod):
        claim = cluster.others.get(key)
        if not isinstance(claim, ResourceClaim):
            return f"there is no claim {key}"
        allocation = claim.status.allocation
        if allocation is None:
            if any(
                f"DeviceClass//{r.exactly.device_class_name}" not in cluster.others
                for r in claim.spec.devices.requests
                if r.exactly
            ):
                return "there is no such class of devices"
            wanted += _count(claim)
        elif not _selects(allocation.node_selector, node):
            return f"the devices of {key} are elsewhere"
    free = _devices_on(cluster.others, node.name) - {device for device, _ in _taken(cluster.others)}
    return f"{wanted} devices are wanted, and {sorted(free)} are free" if wanted > len(free) else ""


def device_claims(pod: SeenPod) -> list[str]:
    """Keys of the pod's claims of devices; one that is not made yet has no name."""
    made = {status.name: status.resource_claim_name for status in pod.obj.status.resource_claim_statuses}
    names = [entry.resource_claim_name or made.get(entry.name) for entry in pod.obj.spec.resource_claims]
    return [f"ResourceClaim/{pod.namespace}/{name or ''}" for name in names]


def unanswered(cluster: SeenCluster, pod: SeenPod) -> str:
    """Whether something that was written for a pod that is bound now has not been done."""
    for volume in pod.obj.spec.volumes:
        assert volume.persistent_volume_claim is not None
        name = volume.persistent_volume_claim.claim_name
        found = cluster.others.get(f"PersistentVolumeClaim/{pod.namespace}/{name}")
        if not isinstance(found, PersistentVolumeClaim) or not _is_bound(found):
            return f"claim {name} has no volume"
    for key in device_claims(pod):
        claim = cluster.others.get(key)
        if not isinstance(claim, ResourceClaim) or claim.status.allocation is None:
            return f"{key} has no devices"
        if all(consumer.uid != pod.uid for consumer in claim.status.reserved_for):
            return f"{key} is not reserved for it"
        for result in claim.status.allocation.devices.results:
            if why := _unready(cluster.others, claim, result):
                return f"{key}: {why}"
    return ""


def awaits_device(cluster: SeenCluster, pod: SeenPod) -> bool:
    """Whether the pod's claims have devices that are not ready, and may never be."""
    claims = (cluster.others.get(key) for key in device_claims(pod))
    return any(
        _unready(cluster.others, claim, result)
        for claim in claims
        if isinstance(claim, ResourceClaim) and claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    )


def awaits_somebody(cluster: SeenCluster, pod: SeenPod) -> bool:
    """Whether the pod can be placed only as far as somebody makes a volume for it, or gets its devices ready, who may refuse each time."""
    if pod.obj.spec.resource_claims and any(
        device.binding_conditions
        for obj in cluster.others.values()
        if isinstance(obj, ResourceSlice)
        for device in obj.spec.devices
    ):
        return True
    for volume in pod.obj.spec.volumes:
        assert volume.persistent_volume_claim is not None
        name = volume.persistent_volume_claim.claim_name
        found = cluster.others.get(f"PersistentVolumeClaim/{pod.namespace}/{name}")
        if isinstance(found, PersistentVolumeClaim) and not found.spec.volume_name:
            return True
    return False


def twice(objects: Objects) -> str:
    """What two have: a device, or a volume; empty if nothing."""
    owners: dict[object, str] = {}
    for device, key in _taken(objects):
        if owners.setdefault(device, key) != key:
            return f"{device} is of {owners[device]} and {key}"
    for key, obj in objects.items():
        if isinstance(obj, PersistentVolumeClaim) and obj.spec.volume_name:
            if owners.setdefault(obj.spec.volume_name, key) != key:
                return f"volume {obj.spec.volume_name} is of {owners[obj.spec.volume_name]} and {key}"
    return ""


def robbed(objects: Objects, write: Write, uid: str) -> str:
    """Whose volume or devices the write takes from him; empty if nobody's but that of the pod of this uid, for which it is made."""
    obj = objects.get(write.key)
    if isinstance(obj, PersistentVolume) and obj.spec.claim_ref is not None:
        mine, new = obj.spec.claim_ref, write.patch.get("spec", {}).get("claimRef", {})
        if (mine.namespace, mine.name) != (new.get("namespace"), new.get("name")):
            return f"{mine.namespace}/{mine.name}"
    if isinstance(obj, ResourceClaim) and obj.status.reserved_for and "status" in write.patch:
        users = write.patch["status"].get("reservedFor") or ()
        left = {uid, *(user.get("uid") or user["name"] for user in users)}  # A group has no uid here.
        gone = [user.name for user in obj.status.reserved_for if (user.uid or user.name) not in left]
        return ", ".join(gone)
    return ""


def after(objects: Objects, write: Write) -> Object | None:
    """The object as the write leaves it (RFC 7386)."""
    obj = objects.get(write.key)
    if obj is not None and write.uid and obj.metadata.uid and write.uid != obj.metadata.uid:
        return obj
    if write.verb == "delete":
        return None
    kind: Any = KIND_BY_NAME[write.key.partition("/")[0]].type
    if write.verb == "create":
        return obj or msgspec.convert(write.patch, kind)
    return None if obj is None else msgspec.convert(_patched(msgspec.to_builtins(obj), write.patch), kind)


def _patched(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    new.update({key: _patched(new.get(key), value) for key, value in patch.items()})
    return {key: value for key, value in new.items() if key not in patch or patch[key] is not None}


# --- volumes --------------------------------------------------------------------------------------------------------------


def _is_bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and COMPLETED in claim.metadata.annotations


def _volume_lacks(objects: Objects, claim: PersistentVolumeClaim, node: SeenNode, taken: set[str]) -> str:
    """Why the claim has no volume that the node reaches, and gets none there."""
    if claim.status.phase == "Lost":
        return "it has lost its volume"
    if _is_bound(claim):
        volume = objects.get(f"PersistentVolume//{claim.spec.volume_name}")
        return "" if isinstance(volume, PersistentVolume) and _reaches(volume, node) else "its volume is away"
    found = objects.get(f"StorageClass//{claim.spec.storage_class_name}")
    if not isinstance(found, StorageClass) or found.volume_binding_mode == "Immediate" or claim.spec.volume_name:  # fmt: skip
        return "others must bind it first"
    chosen = claim.metadata.annotations.get(SELECTED_NODE)
    if chosen is None:
        volumes = [v for v in objects.values() if isinstance(v, PersistentVolume) and _may_get(claim, v)]
        mine = [volume for volume in volumes if volume.spec.claim_ref is not None] or volumes
        near = [v.metadata.name for v in mine if _reaches(v, node) and v.metadata.name not in taken]
        if near:
            taken.add(near[0])
            return ""
    elif chosen != node.name:
        return f"it is to be made for {chosen}"
    if found.provisioner == NO_PROVISIONER:
        return "nobody makes volumes"
    terms = found.allowed_topologies
    allowed = not terms or any(
        all(node.labels.get(e.key) in e.values for e in term.match_label_expressions) for term in terms
    )
    return "" if allowed else "nobody makes volumes there"


def _may_get(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    ref, meta = volume.spec.claim_ref, claim.metadata
    if volume.spec.storage_class_name != claim.spec.storage_class_name:
        return False
    if compare(volume.spec.capacity["storage"], claim.spec.resources.requests["storage"]) < 0:
        return False
    if ref is None:
        return volume.status.phase == "Available"
    return (ref.namespace, ref.name) == (meta.namespace, meta.name) and ref.uid in ("", meta.uid)


def _reaches(volume: PersistentVolume, node: SeenNode) -> bool:
    affinity = volume.spec.node_affinity
    return affinity is None or _selects(affinity.required, node)


def too_many_volumes(objects: Objects, pod: SeenPod, node: SeenNode, others: Iterable[SeenPod]) -> str:
    """Why the node cannot attach the pod's volumes beside those of the others on it; empty if it can."""
    limits = _limits(objects, node)
    if not limits or not pod.obj.spec.volumes:
        return ""
    attached = {volume for other in others for volume in _volumes_of(objects, other)}
    wanted = _volumes_of(objects, pod) - attached
    for driver in {driver for driver, _ in wanted} & limits.keys():
        count = sum(each == driver for each, _ in attached | wanted)
        if count > limits[driver]:
            return f"{count} volumes of {driver}, and it attaches {limits[driver]}"
    return ""


def has_lost_claims(cluster: SeenCluster, pod: SeenPod, node: SeenNode) -> bool:
    """Whether the node limits the pod's volumes, and has a pod whose claim was deleted: its volume is still attached, and counted by nobody."""
    if not pod.obj.spec.volumes or not _limits(cluster.others, node):
        return False
    return any(not _claim(cluster.others, other, name) for other in cluster.on(node.name) for name in _claim_names(other))  # fmt: skip


def _limits(objects: Objects, node: SeenNode) -> dict[str, int]:
    found = objects.get(f"CSINode//{node.name}")
    drivers = found.spec.drivers if isinstance(found, CSINode) else ()
    return {each.name: each.allocatable.count or 0 for each in drivers if each.allocatable is not None}


def _claim_names(pod: SeenPod) -> list[str]:
    claims = [volume.persistent_volume_claim for volume in pod.obj.spec.volumes]
    return [claim.claim_name for claim in claims if claim is not None]


def _claim(objects: Objects, pod: SeenPod, name: str) -> PersistentVolumeClaim | None:
    found = objects.get(f"PersistentVolumeClaim/{pod.namespace}/{name}")
    return found if isinstance(found, PersistentVolumeClaim) else None


def _volumes_of(objects: Objects, pod: SeenPod) -> set[tuple[str, str]]:
    """Driver and handle of each that there is, or is to be: then by whom its class has it made."""
    found: set[tuple[str, str]] = set()
    for name in _claim_names(pod):
        claim = _claim(objects, pod, name)
        if claim is None:
            continue
        volume = objects.get(f"PersistentVolume//{claim.spec.volume_name}")
        of_class = objects.get(f"StorageClass//{claim.spec.storage_class_name}")
        if isinstance(volume, PersistentVolume) and volume.spec.csi is not None:
            found.add((volume.spec.csi.driver, volume.spec.csi.volume_handle))
        elif isinstance(of_class, StorageClass):
            found.add((of_class.provisioner, f"of {claim.metadata.namespace}/{claim.metadata.name}"))
    return found


# --- devices --------------------------------------------------------------------------------------------------------------


def _unready(objects: Objects, claim: ResourceClaim, result: DeviceResult) -> str:
    """Which condition the device lacks that its driver asks for, or which one says that it failed; empty if it is ready."""
    place = (result.driver, result.pool, result.device)
    conditions, failures = set(result.binding_conditions), set(result.binding_failure_conditions)
    for obj in objects.values():
        if isinstance(obj, ResourceSlice) and (obj.spec.driver, obj.spec.pool.name) == place[:2]:
            for device in obj.spec.devices:
                if device.name == result.device:
                    conditions |= set(device.binding_conditions)
                    failures |= set(device.binding_failure_conditions)
    said = (each for each in claim.status.devices if (each.driver, each.pool, each.device) == place)
    true = {c.type for status in said for c in status.conditions if c.status == "True"}
    if failures & true:
        return f"{result.device} has {sorted(failures & true)}"
    return f"{result.device} lacks {sorted(conditions - true)}" if conditions - true else ""


def _count(claim: ResourceClaim) -> int:
    return sum(request.exactly.count for request in claim.spec.devices.requests if request.exactly)


def _devices_on(objects: Objects, node: str) -> set[object]:
    return {
        (obj.spec.driver, obj.spec.pool.name, device.name)
        for obj in objects.values()
        if isinstance(obj, ResourceSlice) and obj.spec.node_name == node
        for device in obj.spec.devices
    }


def _taken(objects: Objects) -> Iterator[tuple[object, str]]:
    """The devices that claims have, and whose they are."""
    for key, obj in objects.items():
        if isinstance(obj, ResourceClaim) and obj.status.allocation is not None:
            for result in obj.status.allocation.devices.results:
                yield (result.driver, result.pool, result.device), key


def _selects(selector: NodeSelector | None, node: SeenNode) -> bool:
    if selector is None:
        return True
    return any(
        all(node.labels.get(e.key) in e.values for e in term.match_expressions)
        and all(node.name in f.values for f in term.match_fields)
        for term in selector.node_selector_terms
    )

"""The volumes and claims of devices in `describe`: how far each of them is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.api.objects import Object, Pod, PodResourceClaim, ResourceClaim, Volume
from tidelog.api.storage import PersistentVolumeClaim
from tidelog.api.volumes import STORAGE, claim_uses, class_of, is_fully_bound

_KINDS = {
    "gce_persistent_disk": "GCEPersistentDisk",
    "aws_elastic_block_store": "AWSElasticBlockStore",
    "rbd": "RBD",
    "iscsi": "ISCSI",
    "azure_disk": "AzureDisk",
    "azure_file": "AzureFile",
    "cinder": "Cinder",
    "vsphere_volume": "vSphereVolume",
    "portworx_volume": "PortworxVolume",
    "csi": "CSI",
    "image": "Image",
}


def volume_words(pod: Pod, objects: Mapping[str, Object]) -> Iterator[str]:
    """Each volume by its name, and what it stands for."""
    uses = {use.volume.name: use for use in claim_uses(pod)}
    for volume in pod.spec.volumes:
        use = uses.get(volume.name)
        if use is None:
            yield f"{volume.name}: {_kind(volume)}"
            continue
        claim = objects.get(f"PersistentVolumeClaim/{pod.metadata.namespace}/{use.claim}")
        how = "PersistentVolumeClaim" if not use.is_ephemeral else "EphemeralVolume, PersistentVolumeClaim"
        read_only = volume.persistent_volume_claim is not None and volume.persistent_volume_claim.read_only
        yield f"{volume.name}: {how} {use.claim}{' (read-only)' if read_only else ''}, {_claim(claim)}"


def _kind(volume: Volume) -> str:
    found = (name for field, name in _KINDS.items() if getattr(volume, field) is not None)
    return next(found, "of a kind that scheduling does not look at")


def _claim(claim: Object | None) -> str:
    if not isinstance(claim, PersistentVolumeClaim):
        return "which does not exist"
    phase = claim.status.phase or ("Bound" if is_fully_bound(claim) else "Pending")
    to = f" to {claim.spec.volume_name}" if claim.spec.volume_name else ""
    asked = claim.spec.resources.requests.get(STORAGE)
    parts = [phase + to, *([str(asked)] if asked is not None else []), f"class {class_of(claim) or '<none>'}"]
    return ", ".join(parts)


def device_words(pod: Pod, objects: Mapping[str, Object]) -> Iterator[str]:
    """Each claim of devices by the pod's name for it, and which devices it has; then the one that was made for its extended resources."""
    for entry in pod.spec.resource_claims:
        source = (
            f"from template {entry.resource_claim_template_name}, "
            if entry.resource_claim_name is None
            else ""
        )
        name = entry.resource_claim_name or _made_for(pod, entry)
        if name == "":
            yield f"{entry.name}: {source}not created yet"
            continue
        if name is None:
            yield f"{entry.name}: {source}none is needed"
            continue
        yield f"{entry.name}: ResourceClaim {name}, {source}{_devices(pod, name, objects)}"
    extended = pod.status.extended_resource_claim_status
    if extended is not None:
        name = extended.resource_claim_name
        yield f"ResourceClaim {name}, for extended resources, {_devices(pod, name, objects)}"


def _made_for(pod: Pod, entry: PodResourceClaim) -> str | None:
    """The claim that was made from the entry's template; empty before that, None if none is needed."""
    statuses = pod.status.resource_claim_statuses
    return next((one.resource_claim_name for one in statuses if one.name == entry.name), "")


def _devices(pod: Pod, name: str, objects: Mapping[str, Object]) -> str:
    claim = objects.get(f"ResourceClaim/{pod.metadata.namespace}/{name}")
    if not isinstance(claim, ResourceClaim):
        return "which does not exist"
    if claim.status.allocation is None:
        return "not allocated"
    found = ", ".join(f"{r.driver}/{r.pool}/{r.device}" for r in claim.status.allocation.devices.results)
    return f"allocated: {found or 'no devices'}{_for_others(pod, claim)}"


def _for_others(pod: Pod, claim: ResourceClaim) -> str:
    consumers = claim.status.reserved_for
    if any(one.uid == pod.metadata.uid and one.name == pod.metadata.name for one in consumers):
        return f", shared by {len(consumers)}" if len(consumers) > 1 else ""
    return ", not reserved for this pod"

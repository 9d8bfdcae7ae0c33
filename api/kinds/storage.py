"""The kinds of storage: claims and volumes of the core group, and of storage.k8s.io what says where volumes can be had."""

from __future__ import annotations

from msgspec.structs import replace

from tidelog.api.cluster import Admission
from tidelog.api.defaulting import canonical_quantities
from tidelog.api.kinds.columns import column
from tidelog.api.kinds.kind import Kind, Redaction
from tidelog.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from tidelog.api.validation.storage import (
    validate_attachment,
    validate_attachment_update,
    validate_csi_node,
    validate_storage_capacity,
    validate_storage_capacity_update,
    validate_storage_class,
    validate_storage_class_update,
    validate_volume,
    validate_volume_claim,
    validate_volume_claim_update,
    validate_volume_update,
)
from tidelog.api.volumes import CLASS, DEFAULT_CLASS, FILESYSTEM, IMMEDIATE, STORAGE, class_of

GROUP = "storage.k8s.io"
_AMOUNTS = ("accessModes", "capacity", "phase", "requests", "limits", "volumeMode")


def _prepare_claim(
    claim: PersistentVolumeClaim, old: PersistentVolumeClaim | None, admission: Admission
) -> PersistentVolumeClaim:
    """The default class, the filesystem mode, the phase; what somebody bound to it stays where a manifest leaves it out."""
    spec = claim.spec
    if old is not None:
        spec = replace(
            spec,
            volume_name=spec.volume_name or old.spec.volume_name,
            storage_class_name=old.spec.storage_class_name
            if spec.storage_class_name is None
            else spec.storage_class_name,
        )
    elif spec.storage_class_name is None and CLASS not in claim.metadata.annotations:
        spec = replace(spec, storage_class_name=_default_class(admission))
    requests = canonical_quantities(spec.resources.requests)
    spec = replace(
        spec, volume_mode=spec.volume_mode or FILESYSTEM, resources=replace(spec.resources, requests=requests)
    )
    status = claim.status
    if old is None and not status.phase:
        status = replace(status, phase="Pending")
    return replace(claim, spec=spec, status=status)


def _default_class(admission: Admission) -> str | None:
    """The newest class that is marked so, and of several the first by name, as Kubernetes' admission has it."""
    marked = [
        found.metadata
        for found in admission.cluster.of_kind("StorageClass")
        if found.metadata.annotations.get(DEFAULT_CLASS) == "true"
    ]
    newest = max((meta.creation_timestamp for meta in marked), default="")
    return min((meta.name for meta in marked if meta.creation_timestamp == newest), default=None)


def _prepare_volume(
    volume: PersistentVolume, old: PersistentVolume | None, _admission: Admission
) -> PersistentVolume:
    """Modes and policies, and the phase in which whoever looks after volumes would put it."""
    spec, status = volume.spec, volume.status
    if old is not None and spec.claim_ref is None:
        # Who writes a manifest does not know whom it is bound to.
        spec = replace(spec, claim_ref=old.spec.claim_ref)
    spec = replace(
        spec,
        capacity=canonical_quantities(spec.capacity),
        volume_mode=spec.volume_mode or FILESYSTEM,
        persistent_volume_reclaim_policy=spec.persistent_volume_reclaim_policy or "Retain",
    )
    if old is None and not status.phase:
        status = replace(status, phase="Available")
    return replace(volume, spec=spec, status=status)


def _prepare_class(found: StorageClass, _old: StorageClass | None, _admission: Admission) -> StorageClass:
    return replace(
        found,
        reclaim_policy=found.reclaim_policy or "Delete",
        volume_binding_mode=found.volume_binding_mode or IMMEDIATE,
    )


def _amount(found: PersistentVolume | PersistentVolumeClaim) -> object:
    amounts = found.spec.capacity if isinstance(found, PersistentVolume) else found.spec.resources.requests
    return amounts.get(STORAGE, "")


def _claim_of(volume: PersistentVolume) -> str:
    ref = volume.spec.claim_ref
    return "" if ref is None else f"{ref.namespace}/{ref.name}"


PERSISTENT_VOLUME_CLAIM = Kind(
    name="PersistentVolumeClaim",
    type=PersistentVolumeClaim,
    version="v1",
    plural="persistentvolumeclaims",
    short_names=("pvc",),
    subresources=("status",),
    prepare=_prepare_claim,
    validate=validate_volume_claim,
    validate_update=validate_volume_claim_update,
    events="upstream",
    columns=(
        column(PersistentVolumeClaim, "STATUS", lambda c: c.status.phase),
        column(PersistentVolumeClaim, "VOLUME", lambda c: c.spec.volume_name),
        column(PersistentVolumeClaim, "CAPACITY", _amount),
        column(PersistentVolumeClaim, "ACCESS MODES", lambda c: ",".join(c.spec.access_modes)),
        column(PersistentVolumeClaim, "STORAGECLASS", class_of),
    ),
    redaction=Redaction(kept=_AMOUNTS),
)
PERSISTENT_VOLUME = Kind(
    name="PersistentVolume",
    type=PersistentVolume,
    version="v1",
    plural="persistentvolumes",
    short_names=("pv",),
    namespaced=False,
    subresources=("status",),
    prepare=_prepare_volume,
    validate=validate_volume,
    validate_update=validate_volume_update,
    events="upstream",
    columns=(
        column(PersistentVolume, "CAPACITY", _amount),
        column(PersistentVolume, "ACCESS MODES", lambda v: ",".join(v.spec.access_modes)),
        column(PersistentVolume, "RECLAIM POLICY", lambda v: v.spec.persistent_volume_reclaim_policy),
        column(PersistentVolume, "STATUS", lambda v: v.status.phase),
        column(PersistentVolume, "CLAIM", _claim_of),
        column(PersistentVolume, "STORAGECLASS", class_of),
    ),
    redaction=Redaction(
        kept=(*_AMOUNTS, "persistentVolumeReclaimPolicy"),
        dropped=("azureFile", "vsphereVolume", "message", "reason"),
    ),
)
STORAGE_CLASS = Kind(
    name="StorageClass",
    type=StorageClass,
    group=GROUP,
    version="v1",
    plural="storageclasses",
    short_names=("sc",),
    namespaced=False,
    other_versions=("v1beta1",),
    prepare=_prepare_class,
    validate=validate_storage_class,
    validate_update=validate_storage_class_update,
    events="upstream",
    columns=(
        column(StorageClass, "PROVISIONER", lambda c: c.provisioner),
        column(StorageClass, "RECLAIM POLICY", lambda c: c.reclaim_policy),
        column(StorageClass, "VOLUME BINDING MODE", lambda c: c.volume_binding_mode),
    ),
    redaction=Redaction(kept=("reclaimPolicy", "volumeBindingMode"), dropped=("parameters",)),
)
CSI_NODE = Kind(
    name="CSINode",
    type=CSINode,
    group=GROUP,
    version="v1",
    plural="csinodes",
    namespaced=False,
    other_versions=("v1beta1",),
    validate=validate_csi_node,
    events="upstream",
    columns=(column(CSINode, "DRIVERS", lambda n: len(n.spec.drivers)),),
    redaction=Redaction(dropped=("nodeID",), label_keys=("topologyKeys",)),
)
CSI_DRIVER = Kind(
    name="CSIDriver",
    type=CSIDriver,
    group=GROUP,
    version="v1",
    plural="csidrivers",
    namespaced=False,
    other_versions=("v1beta1",),
    events="upstream",
    columns=(
        column(CSIDriver, "STORAGE CAPACITY", lambda d: d.spec.storage_capacity),
        column(CSIDriver, "MUST BE ON NODE", lambda d: d.spec.prevent_pod_scheduling_if_missing),
    ),
)
CSI_STORAGE_CAPACITY = Kind(
    name="CSIStorageCapacity",
    type=CSIStorageCapacity,
    group=GROUP,
    version="v1",
    plural="csistoragecapacities",
    other_versions=("v1beta1",),
    validate=validate_storage_capacity,
    validate_update=validate_storage_capacity_update,
    events="upstream",
    columns=(
        column(CSIStorageCapacity, "STORAGECLASS", lambda c: c.storage_class_name),
        column(CSIStorageCapacity, "CAPACITY", lambda c: c.capacity),
    ),
    redaction=Redaction(kept=("capacity", "maximumVolumeSize")),
)
VOLUME_ATTACHMENT = Kind(
    name="VolumeAttachment",
    type=VolumeAttachment,
    group=GROUP,
    version="v1",
    plural="volumeattachments",
    namespaced=False,
    other_versions=("v1beta1",),
    validate=validate_attachment,
    validate_update=validate_attachment_update,
    events="upstream",
    columns=(
        column(VolumeAttachment, "ATTACHER", lambda a: a.spec.attacher),
        column(VolumeAttachment, "PV", lambda a: a.spec.source.persistent_volume_name),
        column(VolumeAttachment, "NODE", lambda a: a.spec.node_name),
        column(VolumeAttachment, "ATTACHED", lambda a: a.status.attached),
    ),
)

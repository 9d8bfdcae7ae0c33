"""The objects of storage: claims, volumes, classes, and what CSI drivers and provisioners say of themselves.

As in `tidelog.api.objects`, as far as scheduling reads them; the structs that a pod's own volumes share are there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidelog.api.objects import (
    AwsElasticBlockStore,
    AzureDisk,
    CinderVolume,
    Condition,
    GcePersistentDisk,
    Int32,
    LabelSelector,
    Model,
    NodeSelector,
    Object,
    PersistentVolumeClaimSpec,
    PortworxVolume,
    Quantity,
)


class ObjectReference(Model, frozen=True, kw_only=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""


class PersistentVolumeClaimStatus(Model, frozen=True, kw_only=True):
    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, Quantity] = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class PersistentVolumeClaim(Object, frozen=True, kw_only=True):
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class VolumeNodeAffinity(Model, frozen=True, kw_only=True):
    required: NodeSelector | None = None


class CsiPersistentVolume(Model, frozen=True, kw_only=True):
    driver: str = ""
    volume_handle: str = ""


class LocalVolume(Model, frozen=True, kw_only=True):
    path: str = ""


class PersistentVolumeSpec(Model, frozen=True, kw_only=True):
    capacity: dict[str, Quantity] = msgspec.field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = ""
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiPersistentVolume | None = None
    local: LocalVolume | None = None
    host_path: LocalVolume | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    azure_file: dict[str, Any] | None = None
    cinder: CinderVolume | None = None
    vsphere_volume: dict[str, Any] | None = None
    portworx_volume: PortworxVolume | None = None


class PersistentVolumeStatus(Model, frozen=True, kw_only=True):
    phase: str = ""
    message: str = ""
    reason: str = ""


class PersistentVolume(Object, frozen=True, kw_only=True):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorLabelRequirement(Model, frozen=True, kw_only=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Model, frozen=True, kw_only=True):
    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(Object, frozen=True, kw_only=True):
    provisioner: str = ""
    parameters: dict[str, str] = msgspec.field(default_factory=dict)
    reclaim_policy: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()
    allow_volume_expansion: bool | None = None


class CSINodeAllocatable(Model, frozen=True, kw_only=True):
    count: Int32 | None = None


class CSINodeDriver(Model, frozen=True, kw_only=True):
    name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")
    topology_keys: tuple[str, ...] = ()
    allocatable: CSINodeAllocatable | None = None


class CSINodeSpec(Model, frozen=True, kw_only=True):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object, frozen=True, kw_only=True):
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Model, frozen=True, kw_only=True):
    storage_capacity: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None
    attach_required: bool | None = None


class CSIDriver(Object, frozen=True, kw_only=True):
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Object, frozen=True, kw_only=True):
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    """Absent: accessible from nowhere; empty: from everywhere."""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(Model, frozen=True, kw_only=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Model, frozen=True, kw_only=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachmentStatus(Model, frozen=True, kw_only=True):
    attached: bool = False


class VolumeAttachment(Object, frozen=True, kw_only=True):
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()

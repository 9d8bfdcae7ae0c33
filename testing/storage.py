"""Objects of storage for tests, as `tidelog.testing.builders` has the others: plain functions, with what matters as arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidelog.api.objects import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    OwnerReference,
    PersistentVolumeClaimSpec,
    Pod,
    StorageRequirements,
)
from tidelog.api.storage import (
    CSIDriver,
    CSIDriverSpec,
    CSINode,
    CSINodeAllocatable,
    CSINodeDriver,
    CSINodeSpec,
    CsiPersistentVolume,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)
from tidelog.api.volumes import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    pod_uid,
    reference_to,
)
from tidelog.api.well_known import ZONE

PROVISIONER = "disk.csi.example.com"


def storage_class(
    name: str = "fast",
    provisioner: str = PROVISIONER,
    mode: str = WAIT_FOR_FIRST_CONSUMER,
    zones: Sequence[str] = (),
) -> StorageClass:
    """A class; its volumes can be made in these zones, or anywhere."""
    asked = TopologySelectorLabelRequirement(key=ZONE, values=tuple(zones))
    terms = (TopologySelectorTerm(match_label_expressions=(asked,)),) if zones else ()
    return StorageClass(
        metadata=ObjectMeta(name=name, uid=f"class-{name}"),
        provisioner=provisioner,
        volume_binding_mode=mode,
        reclaim_policy="Delete",
        allowed_topologies=terms,
    )


def local_class(name: str = "local") -> StorageClass:
    """A class of which nobody makes volumes."""
    return storage_class(name, NO_PROVISIONER)


def claim(
    name: str,
    storage: str = "1Gi",
    storage_class: str = "fast",
    *,
    namespace: str = "default",
    modes: Sequence[str] = ("ReadWriteOnce",),
    volume: str = "",
    owner: Pod | None = None,
    phase: str = "Pending",
) -> PersistentVolumeClaim:
    """A claim; bound to `volume` if that is given."""
    owners: tuple[OwnerReference, ...] = ()
    if owner is not None:
        reference = OwnerReference(
            api_version="v1", kind="Pod", name=owner.metadata.name, uid=pod_uid(owner), controller=True
        )
        owners = (reference,)
    annotations = {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"} if volume else {}
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"claim-{namespace}-{name}",
            annotations=annotations,
            owner_references=owners,
        ),
        spec=PersistentVolumeClaimSpec(
            access_modes=tuple(modes),
            resources=StorageRequirements(requests={STORAGE: storage}),
            storage_class_name=storage_class,
            volume_name=volume,
        ),
        status=PersistentVolumeClaimStatus(phase="Bound" if volume else phase),
    )


def volume(
    name: str,
    storage: str = "1Gi",
    storage_class: str = "local",
    *,
    on: Mapping[str, str] | None = None,
    bound: PersistentVolumeClaim | None = None,
    driver: str = PROVISIONER,
    labels: Mapping[str, str] | None = None,
) -> PersistentVolume:
    """A volume that nodes with the labels `on` reach, or all; `bound` to a claim, or free."""
    asked = tuple(NodeSelectorRequirement(key=k, operator="In", values=(v,)) for k, v in (on or {}).items())
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=asked),))
    return PersistentVolume(
        metadata=ObjectMeta(name=name, uid=f"volume-{name}", labels=dict(labels or {})),
        spec=PersistentVolumeSpec(
            capacity={STORAGE: storage},
            access_modes=("ReadWriteOnce",),
            storage_class_name=storage_class,
            node_affinity=VolumeNodeAffinity(required=selector) if on else None,
            claim_ref=None if bound is None else reference_to(bound),
            csi=CsiPersistentVolume(driver=driver, volume_handle=f"handle-{name}"),
        ),
        status=PersistentVolumeStatus(phase="Available" if bound is None else "Bound"),
    )


def csi_node(name: str, limits: Mapping[str, int]) -> CSINode:
    """Limits of a node: driver → how many volumes."""
    drivers = tuple(
        CSINodeDriver(name=driver, node_id=name, allocatable=CSINodeAllocatable(count=count))
        for driver, count in limits.items()
    )
    return CSINode(metadata=ObjectMeta(name=name, uid=f"csinode-{name}"), spec=CSINodeSpec(drivers=drivers))


def csi_driver(name: str = PROVISIONER, *, storage_capacity: bool = False) -> CSIDriver:
    """A driver."""
    return CSIDriver(
        metadata=ObjectMeta(name=name, uid=f"driver-{name}"),
        spec=CSIDriverSpec(storage_capacity=storage_capacity),
    )

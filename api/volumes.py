"""Claims and volumes as Kubernetes reads them: the annotations, whose claim a pod's volume is, which class, what is bound.

Shared by the plugins that place pods with volumes and by those who bind and provide the volumes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from tidelog.api.objects import Pod, Quantity, Volume
from tidelog.api.quantity import parse_exact
from tidelog.api.storage import ObjectReference, PersistentVolume, PersistentVolumeClaim, StorageClass
from tidelog.api.well_known import HOSTNAME

CLASS = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
IMMEDIATE = "Immediate"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
FILESYSTEM = "Filesystem"
STORAGE = "storage"


class ClaimUse(NamedTuple):
    """A volume of a pod that stands for a claim."""

    volume: Volume
    claim: str
    """The claim's name, in the pod's namespace."""
    is_ephemeral: bool


def claim_uses(pod: Pod) -> Iterator[ClaimUse]:
    """In the order of the pod's volumes. A generic ephemeral volume uses the claim `<pod>-<volume>`."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield ClaimUse(volume, volume.persistent_volume_claim.claim_name, False)
        elif volume.ephemeral is not None:
            yield ClaimUse(volume, f"{pod.metadata.name}-{volume.name}", True)


def matters(volume: Volume) -> bool:
    """Whether a volume can have a say in where its pod runs; configMaps, secrets and the like have none."""
    return (
        volume.persistent_volume_claim is not None
        or volume.ephemeral is not None
        or volume.gce_persistent_disk is not None
        or volume.aws_elastic_block_store is not None
        or volume.rbd is not None
        or volume.iscsi is not None
        or volume.azure_disk is not None
        or volume.azure_file is not None
        or volume.cinder is not None
        or volume.vsphere_volume is not None
        or volume.portworx_volume is not None
    )


def pod_uid(pod: Pod) -> str:
    """The uid that owner references name; files of tests may leave it out."""
    return pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"


def is_made_for(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Whether the claim of an ephemeral volume is controlled by this very pod."""
    owner = next((o for o in claim.metadata.owner_references if o.controller), None)
    return owner is not None and owner.uid == pod_uid(pod)


def host_of(volume: PersistentVolume) -> str | None:
    """The one value of the label kubernetes.io/hostname with which nodes reach the volume, as they reach a disk of their own; None of others."""
    affinity = volume.spec.node_affinity
    terms = () if affinity is None or affinity.required is None else affinity.required.node_selector_terms
    if len(terms) != 1:
        return None
    for asked in terms[0].match_expressions:
        if asked.key == HOSTNAME and asked.operator == "In" and len(asked.values) == 1:
            return asked.values[0]
    return None


def class_of(obj: PersistentVolumeClaim | PersistentVolume) -> str:
    """The storage class: the beta annotation where it is there, even empty; else the field."""
    annotated = obj.metadata.annotations.get(CLASS)
    return obj.spec.storage_class_name or "" if annotated is None else annotated


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """As the scheduler has it; the phase is not looked at."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume is taken by, or promised to, this claim."""
    ref = volume.spec.claim_ref
    return (
        ref is not None
        and ref.name == claim.metadata.name
        and ref.namespace == claim.metadata.namespace
        and (not ref.uid or ref.uid == claim_uid(claim))
    )


def claim_uid(claim: PersistentVolumeClaim) -> str:
    """The uid that a volume's claimRef names; files of tests may leave it out."""
    return claim.metadata.uid or f"{claim.metadata.namespace}/{claim.metadata.name}"


def reference_to(claim: PersistentVolumeClaim) -> ObjectReference:
    """A volume's claimRef for this claim."""
    meta = claim.metadata
    return ObjectReference(
        kind="PersistentVolumeClaim",
        api_version="v1",
        namespace=meta.namespace,
        name=meta.name,
        uid=claim_uid(claim),
        resource_version=meta.resource_version,
    )


def size(amounts: Mapping[str, Quantity]) -> tuple[int, int]:
    """How much storage, exactly, as a fraction; nothing is 0."""
    return parse_exact(amounts.get(STORAGE, 0))


def bound_to_claim(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """The volume as whoever binds it to the claim writes it. It is marked as ours unless it named the claim already."""
    ref = volume.spec.claim_ref
    annotations = volume.metadata.annotations
    if ref is None or not is_for(volume, claim):
        annotations = {**annotations, BOUND_BY_CONTROLLER: "yes"}
    if ref is None or not is_for(volume, claim) or ref.uid != claim_uid(claim):
        ref = reference_to(claim)
    return replace(
        volume,
        metadata=replace(volume.metadata, annotations=annotations),
        spec=replace(volume.spec, claim_ref=ref),
    )


def can_provision(found: StorageClass) -> bool:
    """Whether somebody makes volumes of the class."""
    return found.provisioner not in ("", NO_PROVISIONER)

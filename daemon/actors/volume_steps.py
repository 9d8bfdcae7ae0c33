"""The steps of Kubernetes' volume controllers, as functions of claims and volumes: bind, provide, release, lose.

Used by the actor that plays them (`volume_controller`), and by tests that answer in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from msgspec.structs import replace

from tidelog.api.objects import (
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    OwnerReference,
    Pod,
    Volume,
)
from tidelog.api.selectors import label_matcher
from tidelog.api.storage import (
    CSINode,
    CsiPersistentVolume,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
    VolumeNodeAffinity,
)
from tidelog.api.volumes import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    FILESYSTEM,
    PROVISIONED_BY,
    SELECTED_NODE,
    STORAGE,
    STORAGE_PROVISIONER,
    bound_to_claim,
    claim_uid,
    class_of,
    is_for,
    pod_uid,
    reference_to,
    size,
)
from tidelog.api.well_known import ZONE


def satisfies(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume holds what the claim asks for, and nobody else has it."""
    spec, wanted = volume.spec, claim.spec
    return (
        not volume.metadata.deletion_timestamp
        and (spec.claim_ref is None or is_for(volume, claim))
        and Fraction(*size(spec.capacity)) >= Fraction(*size(wanted.resources.requests))
        and (spec.volume_mode or FILESYSTEM) == (wanted.volume_mode or FILESYSTEM)
        and set(wanted.access_modes) <= set(spec.access_modes)
        and class_of(volume) == class_of(claim)
        and (wanted.selector is None or label_matcher(wanted.selector)(volume.metadata.labels))
    )


def best_volume(volumes: Iterable[PersistentVolume], claim: PersistentVolumeClaim) -> PersistentVolume | None:
    """The one that names the claim, or the smallest that is free; the first by name of equals."""
    found = [volume for volume in volumes if satisfies(volume, claim)]
    promised = [volume for volume in found if is_for(volume, claim)]
    free = promised or [volume for volume in found if volume.status.phase == "Available"]
    return min(free, key=lambda v: (Fraction(*size(v.spec.capacity)), v.metadata.name), default=None)


def bound(
    volume: PersistentVolume, claim: PersistentVolumeClaim
) -> tuple[PersistentVolume, PersistentVolumeClaim]:
    """Volume and claim put together for good."""
    taken = bound_to_claim(volume, claim)
    taken = replace(taken, status=replace(taken.status, phase="Bound"))
    annotations = {**claim.metadata.annotations, BIND_COMPLETED: "yes"}
    if not claim.spec.volume_name:
        annotations[BOUND_BY_CONTROLLER] = "yes"
    holder = replace(
        claim,
        metadata=replace(claim.metadata, annotations=annotations),
        spec=replace(claim.spec, volume_name=volume.metadata.name),
        status=replace(
            claim.status, phase="Bound", access_modes=volume.spec.access_modes, capacity=volume.spec.capacity
        ),
    )
    return taken, holder


def provided(
    claim: PersistentVolumeClaim,
    storage_class: StorageClass,
    node: Node | None = None,
    csi_node: CSINode | None = None,
) -> tuple[PersistentVolume, PersistentVolumeClaim]:
    """A new volume for the claim, where the node reaches it, bound to it."""
    name = f"pvc-{claim_uid(claim).replace('/', '-')}"
    reached = _topology(storage_class, node, csi_node)
    volume = PersistentVolume(
        metadata=ObjectMeta(name=name, annotations={PROVISIONED_BY: storage_class.provisioner}),
        spec=PersistentVolumeSpec(
            capacity={STORAGE: claim.spec.resources.requests.get(STORAGE, 0)},
            access_modes=claim.spec.access_modes,
            claim_ref=reference_to(claim),
            persistent_volume_reclaim_policy=storage_class.reclaim_policy or "Delete",
            storage_class_name=class_of(claim),
            volume_mode=claim.spec.volume_mode or FILESYSTEM,
            node_affinity=VolumeNodeAffinity(required=_selector(reached)) if reached else None,
            csi=CsiPersistentVolume(driver=storage_class.provisioner, volume_handle=name),
        ),
        status=PersistentVolumeStatus(phase="Bound"),
    )
    _, holder = bound(volume, claim)
    annotations = {**holder.metadata.annotations, STORAGE_PROVISIONER: storage_class.provisioner}
    return volume, replace(holder, metadata=replace(holder.metadata, annotations=annotations))


def _topology(
    storage_class: StorageClass, node: Node | None, csi_node: CSINode | None
) -> Mapping[str, tuple[str, ...]]:
    """Labels of the nodes that will reach the volume: those by which the node's driver tells, or its zone; without a node the first that the class allows."""
    if node is None:
        first = storage_class.allowed_topologies[:1]
        return {asked.key: asked.values[:1] for term in first for asked in term.match_label_expressions}
    drivers = () if csi_node is None else csi_node.spec.drivers
    keys = next((d.topology_keys for d in drivers if d.name == storage_class.provisioner), ()) or (ZONE,)
    labels = node.metadata.labels
    return {key: (labels[key],) for key in keys if key in labels}


def _selector(reached: Mapping[str, tuple[str, ...]]) -> NodeSelector:
    asked = tuple(NodeSelectorRequirement(key=k, operator="In", values=v) for k, v in reached.items())
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=asked),))


def refused(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    """No volume could be made where the node would reach it: the scheduler has to choose again."""
    annotations = {k: v for k, v in claim.metadata.annotations.items() if k != SELECTED_NODE}
    return replace(claim, metadata=replace(claim.metadata, annotations=annotations))


def lost(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    """Its volume is gone."""
    return replace(claim, status=replace(claim.status, phase="Lost"))


def released(volume: PersistentVolume) -> PersistentVolume:
    """Its claim is gone."""
    return replace(volume, status=replace(volume.status, phase="Released"))


def claim_for(pod: Pod, volume: Volume) -> PersistentVolumeClaim:
    """The claim of a generic ephemeral volume."""
    assert volume.ephemeral is not None
    template = volume.ephemeral.volume_claim_template
    assert template is not None
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod_uid(pod), controller=True
    )
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=f"{pod.metadata.name}-{volume.name}",
            namespace=pod.metadata.namespace,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(owner,),
        ),
        spec=template.spec,
        status=PersistentVolumeClaimStatus(phase="Pending"),
    )

"""Volumes of the old in-tree kinds, as the CSI drivers that have taken them over see them.

Five kinds are migrated. What changes by it is the driver that counts them, the handle by which two of them are told to be one, and, for
volumes with zones, the label of nodes that says where they can be reached.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from msgspec.structs import replace

from tidelog.api.objects import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Volume,
)
from tidelog.api.storage import CSINode, PersistentVolume, PersistentVolumeSpec
from tidelog.api.volumes import MIGRATED_PLUGINS
from tidelog.api.well_known import BETA_REGION, BETA_ZONE, REGION, ZONE

UNSPECIFIED = "UNSPECIFIED"
ZONES_DELIMITER = "__"
_EBS_ID = re.compile(r"vol-[^/]*")


class InTreeKind(NamedTuple):
    """A kind of volume that a CSI driver has taken over."""

    name: str
    driver: str
    field: str
    """Of `Volume` and `PersistentVolumeSpec`."""
    topology_key: str = ""
    """The driver's label of nodes for their zone; empty: it has none of its own."""
    is_migrated: bool = True
    """Else it could be translated, and is not."""


KINDS = (
    InTreeKind(
        "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "aws_elastic_block_store", "topology.ebs.csi.aws.com/zone"
    ),
    InTreeKind(
        "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "gce_persistent_disk", "topology.gke.io/zone"
    ),
    InTreeKind(
        "kubernetes.io/cinder", "cinder.csi.openstack.org", "cinder", "topology.cinder.csi.openstack.org/zone"
    ),
    InTreeKind("kubernetes.io/azure-disk", "disk.csi.azure.com", "azure_disk"),
    InTreeKind("kubernetes.io/portworx-volume", "pxd.portworx.com", "portworx_volume"),
    InTreeKind("kubernetes.io/azure-file", "file.csi.azure.com", "azure_file", is_migrated=False),
    InTreeKind("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "vsphere_volume", is_migrated=False),
)
_BY_NAME = {kind.name: kind for kind in KINDS}


class TranslationError(ValueError):
    """The volume's source makes no sense to its driver."""


def kind_of(source: Volume | PersistentVolumeSpec) -> InTreeKind | None:
    """The in-tree kind that a pod's volume or a PersistentVolume is of, if it is of one."""
    for kind in KINDS:
        if getattr(source, kind.field) is not None:
            return kind
    return None


def kind_named(provisioner: str) -> InTreeKind | None:
    """The in-tree kind that a storage class provides by this name."""
    return _BY_NAME.get(provisioner)


def is_migrated_on(kind: InTreeKind, csi_node: CSINode | None) -> bool:
    """Whether the node says that it leaves volumes of this kind to the driver."""
    if csi_node is None or not kind.is_migrated:
        return False
    return kind.name in csi_node.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")


def handle_of_volume(volume: PersistentVolume, kind: InTreeKind) -> str:
    """By what the driver knows the volume. Raises TranslationError."""
    if kind.field == "gce_persistent_disk":
        labels = volume.metadata.labels
        return _gce_handle(volume.spec, labels.get(ZONE) or labels.get(BETA_ZONE) or "")
    return _handle(volume.spec, kind)


def handle_of_inline(volume: Volume, kind: InTreeKind) -> str:
    """By what the driver knows the volume that a pod names itself. Raises TranslationError."""
    return _gce_handle(volume, "") if kind.field == "gce_persistent_disk" else _handle(volume, kind)


def _handle(source: Volume | PersistentVolumeSpec, kind: InTreeKind) -> str:
    found: Any = getattr(source, kind.field)
    if kind.field == "azure_disk":
        if found.kind is not None and found.kind != "Managed":
            raise TranslationError(f"kind({found.kind}) is not supported in csi migration")
        return str(found.disk_uri)
    if kind.field == "aws_elastic_block_store":
        return _ebs_handle(found.volume_id)
    return str(found.volume_id)


def _ebs_handle(text: str) -> str:
    if not text.startswith("aws://"):
        return text
    found = text.removeprefix("aws://").partition("/")[2].strip("/")
    if not _EBS_ID.fullmatch(found):
        raise TranslationError(
            f"failed to translate Kubernetes ID to EBS Volume ID invalid format for AWS volume ({text})"
        )
    return found


def _gce_handle(source: Volume | PersistentVolumeSpec, label: str) -> str:
    assert source.gce_persistent_disk is not None
    disk = source.gce_persistent_disk.pd_name
    zones = label.split(ZONES_DELIMITER)
    if len(zones) > 1:
        return f"projects/{UNSPECIFIED}/regions/{_region_of(zones)}/disks/{disk}"
    return f"projects/{UNSPECIFIED}/zones/{zones[0] or UNSPECIFIED}/disks/{disk}"


def _region_of(zones: list[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise TranslationError(
                "failed to get region from zones: zone in unexpected format, expected: "
                f"{{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        listed = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(
            f"failed to get region from zones: multiple or no regions gotten from zones, got: map[{listed}]"
        )
    return regions.pop()


# --- where a volume can be reached --------------------------------------------------------------------------------------


def affinity_for(volume: PersistentVolume, csi_node: CSINode | None) -> NodeSelector | None:
    """Which nodes reach the volume, in the labels by which this node's drivers say so; None: all. Raises TranslationError."""
    kind = kind_of(volume.spec)
    if kind is None or not is_migrated_on(kind, csi_node):
        return _own_affinity(volume)
    return affinity_of_migrated(volume)


def _own_affinity(volume: PersistentVolume) -> NodeSelector | None:
    return None if volume.spec.node_affinity is None else volume.spec.node_affinity.required


def affinity_of_migrated(volume: PersistentVolume) -> NodeSelector | None:
    """As `affinity_for`, for a node that leaves volumes of this kind to their driver. Raises TranslationError."""
    kind, own = kind_of(volume.spec), _own_affinity(volume)
    assert kind is not None
    handle_of_volume(volume, kind)  # What the driver cannot read is an error, wherever it could be reached.
    return _translated(volume, own, kind.topology_key) if kind.topology_key else own


def _translated(volume: PersistentVolume, own: NodeSelector | None, driver_key: str) -> NodeSelector | None:
    zone_key, region_key = _topology_keys(volume, own)
    labels = volume.metadata.labels
    if _values(own, zone_key):
        assert own is not None
        own = _renamed(own, zone_key, driver_key)
    elif labels.get(zone_key):
        zones = sorted({zone.strip() for zone in labels[zone_key].split(ZONES_DELIMITER)} - {""})
        if not zones:
            raise TranslationError("there are no valid zones to add to pv")
        own = _with_requirement(
            own, NodeSelectorRequirement(key=driver_key, operator="In", values=tuple(zones))
        )
    if own is not None and region_key == BETA_REGION and _values(own, BETA_REGION):
        own = _renamed(own, BETA_REGION, REGION)
    return own


def _topology_keys(volume: PersistentVolume, own: NodeSelector | None) -> tuple[str, str]:
    """The labels for zone and region that are in use: the affinity's first, then the volume's own."""
    labels = volume.metadata.labels
    in_use = ((_names(own, ZONE), _names(own, BETA_ZONE)), (ZONE in labels, BETA_ZONE in labels))
    for has_zone, has_beta in in_use:
        if has_zone:
            return ZONE, REGION
        if has_beta:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _names(selector: NodeSelector | None, key: str) -> bool:
    terms = () if selector is None else selector.node_selector_terms
    return any(requirement.key == key for term in terms for requirement in term.match_expressions)


def _values(selector: NodeSelector | None, key: str) -> set[str]:
    terms = () if selector is None else selector.node_selector_terms
    return {
        value
        for term in terms
        for requirement in term.match_expressions
        if requirement.key == key
        for value in requirement.values
    }


def _renamed(selector: NodeSelector, key: str, new: str) -> NodeSelector:
    return NodeSelector(
        node_selector_terms=tuple(
            replace(
                term,
                match_expressions=tuple(
                    replace(requirement, key=new) if requirement.key == key else requirement
                    for requirement in term.match_expressions
                ),
            )
            for term in selector.node_selector_terms
        )
    )


def _with_requirement(selector: NodeSelector | None, more: NodeSelectorRequirement) -> NodeSelector:
    terms = (() if selector is None else selector.node_selector_terms) or (NodeSelectorTerm(),)
    return NodeSelector(
        node_selector_terms=tuple(
            replace(term, match_expressions=(*term.match_expressions, more)) for term in terms
        )
    )

"""The rules of claims, volumes, classes, and what CSI drivers and provisioners say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.api.objects import PersistentVolumeClaimSpec, Quantity
from tidelog.api.quantity import compare
from tidelog.api.storage import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
    VolumeAttachment,
)
from tidelog.api.validation import common as validate_common
from tidelog.api.validation import names
from tidelog.api.validation import placement as validate_placement
from tidelog.api.validation.field_errors import IMMUTABLE, NOT_NEGATIVE, POSITIVE, ErrorList
from tidelog.api.validation.resources import quantity
from tidelog.api.volumes import (
    IMMEDIATE,
    READ_WRITE_ONCE_POD,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
)

ACCESS_MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", READ_WRITE_ONCE_POD)
VOLUME_MODES = ("Filesystem", "Block")
RECLAIM_POLICIES = ("Delete", "Retain", "Recycle")
BINDING_MODES = (IMMEDIATE, WAIT_FOR_FIRST_CONSUMER)
CLAIM_PHASES = ("Pending", "Bound", "Lost")
VOLUME_PHASES = ("Pending", "Available", "Bound", "Released", "Failed")
TOPOLOGY_KEYS_MAX = 16
"""Of a driver on a node; as Kubernetes."""
ONE_POD_ALONE = f"may not use {READ_WRITE_ONCE_POD} with other access modes"


# --- claims -------------------------------------------------------------------------------------------------------------


def validate_volume_claim(found: PersistentVolumeClaim, errors: ErrorList) -> None:
    """Validate a claim: its requests, and its phase."""
    claim_spec(errors, found.spec, "spec")
    if found.status.phase and found.status.phase not in CLAIM_PHASES:
        errors.not_supported("status.phase", found.status.phase, CLAIM_PHASES)
    _amounts(errors, found.status.capacity, "status.capacity")


def claim_spec(errors: ErrorList, spec: PersistentVolumeClaimSpec, path: str) -> None:
    """Of a claim, or of the template of one."""
    if not spec.access_modes:
        errors.required(f"{path}.accessModes", "at least 1 access mode is required")
    _access_modes(errors, spec.access_modes, f"{path}.accessModes")
    validate_common.label_selector(errors, spec.selector, f"{path}.selector")
    requests = spec.resources.requests
    if STORAGE not in requests:
        errors.required(f"{path}.resources.requests[{STORAGE}]")
    _amounts(errors, requests, f"{path}.resources.requests", is_positive=True)
    _amounts(errors, spec.resources.limits, f"{path}.resources.limits")
    if spec.storage_class_name:
        _class_name(errors, spec.storage_class_name, f"{path}.storageClassName")
    if spec.volume_name:
        errors.invalid_each(f"{path}.volumeName", spec.volume_name, names.dns_subdomain(spec.volume_name))
    _volume_mode(errors, spec.volume_mode, f"{path}.volumeMode")
    if spec.volume_attributes_class_name:
        _class_name(errors, spec.volume_attributes_class_name, f"{path}.volumeAttributesClassName")


def validate_volume_claim_update(
    old: PersistentVolumeClaim, new: PersistentVolumeClaim, errors: ErrorList
) -> None:
    """A claim gets its volume once, and can only grow. Everything else that it asks for stays."""
    before, after = old.spec, new.spec
    for field, was, now in (
        ("accessModes", before.access_modes, after.access_modes),
        ("selector", before.selector, after.selector),
        ("volumeMode", before.volume_mode, after.volume_mode),
    ):
        if was != now:
            errors.invalid(f"spec.{field}", None, IMMUTABLE)
    if before.volume_name and before.volume_name != after.volume_name:
        errors.invalid("spec.volumeName", after.volume_name, "is immutable once it is set")
    if before.storage_class_name and before.storage_class_name != after.storage_class_name:
        errors.invalid("spec.storageClassName", after.storage_class_name, "is immutable once it is set")
    was_amount, amount = before.resources.requests.get(STORAGE), after.resources.requests.get(STORAGE)
    if was_amount is not None and amount is not None and not errors and compare(amount, was_amount) < 0:
        where = f"spec.resources.requests[{STORAGE}]"
        errors.forbidden(where, "field can not be less than previous value")


# --- volumes ------------------------------------------------------------------------------------------------------------


def validate_volume(found: PersistentVolume, errors: ErrorList) -> None:
    """How much, for whom, and from where it can be reached."""
    spec = found.spec
    if STORAGE not in spec.capacity:
        errors.required(f"spec.capacity[{STORAGE}]")
    _amounts(errors, spec.capacity, "spec.capacity", is_positive=True)
    if not spec.access_modes:
        errors.required("spec.accessModes")
    _access_modes(errors, spec.access_modes, "spec.accessModes")
    _volume_mode(errors, spec.volume_mode, "spec.volumeMode")
    if spec.storage_class_name:
        _class_name(errors, spec.storage_class_name, "spec.storageClassName")
    policy = spec.persistent_volume_reclaim_policy
    if policy and policy not in RECLAIM_POLICIES:
        errors.not_supported("spec.persistentVolumeReclaimPolicy", policy, RECLAIM_POLICIES)
    if spec.node_affinity is not None:
        if spec.node_affinity.required is None:
            errors.required("spec.nodeAffinity.required", "must specify required node constraints")
        else:
            validate_placement.node_selector(
                errors, spec.node_affinity.required, "spec.nodeAffinity.required"
            )
    elif spec.local is not None:
        errors.required("spec.nodeAffinity", "Local volume requires node affinity")
    if spec.claim_ref is not None:
        for field, value in (("namespace", spec.claim_ref.namespace), ("name", spec.claim_ref.name)):
            if not value:
                errors.required(f"spec.claimRef.{field}")
    if spec.csi is not None:
        _driver_name(errors, spec.csi.driver, "spec.csi.driver")
        if not spec.csi.volume_handle:
            errors.required("spec.csi.volumeHandle")
    for source in (spec.azure_file, spec.vsphere_volume):
        if source is not None:
            validate_common.raw(errors, source, "spec")
    phase = found.status.phase
    if phase and phase not in VOLUME_PHASES:
        errors.not_supported("status.phase", phase, VOLUME_PHASES)


def validate_volume_update(old: PersistentVolume, new: PersistentVolume, errors: ErrorList) -> None:
    """A volume stays what and where it is; who has it, and how much it holds, may change."""
    for field, was, now in (
        ("volumeMode", old.spec.volume_mode, new.spec.volume_mode),
        ("csi", old.spec.csi, new.spec.csi),
    ):
        if was != now:
            errors.invalid(f"spec.{field}", None, IMMUTABLE)
    if old.spec.node_affinity is not None and old.spec.node_affinity != new.spec.node_affinity:
        errors.invalid(
            "spec.nodeAffinity", None, "field is immutable, except for updating from beta label to GA"
        )


# --- classes and drivers ------------------------------------------------------------------------------------------------


def validate_storage_class(found: StorageClass, errors: ErrorList) -> None:
    """Validate a class: its provisioner, its binding mode, its topologies."""
    if found.provisioner:
        errors.invalid_each("provisioner", found.provisioner, names.label_key(found.provisioner.lower()))
    else:
        errors.required("provisioner")
    if found.volume_binding_mode and found.volume_binding_mode not in BINDING_MODES:
        errors.not_supported("volumeBindingMode", found.volume_binding_mode, BINDING_MODES)
    if found.reclaim_policy and found.reclaim_policy not in RECLAIM_POLICIES[:2]:
        errors.not_supported("reclaimPolicy", found.reclaim_policy, RECLAIM_POLICIES[:2])
    _topologies(errors, found.allowed_topologies)


def _topologies(errors: ErrorList, terms: Iterable[TopologySelectorTerm]) -> None:
    for number, term in enumerate(terms):
        path = f"allowedTopologies[{number}]"
        seen: set[str] = set()
        for index, asked in enumerate(term.match_label_expressions):
            where = f"{path}.matchLabelExpressions[{index}]"
            errors.invalid_each(f"{where}.key", asked.key, names.label_key(asked.key))
            errors.unique(f"{where}.key", asked.key, seen)
            if not asked.values:
                errors.required(f"{where}.values")
            validate_common.label_values(errors, asked.values, where)


def validate_storage_class_update(old: StorageClass, new: StorageClass, errors: ErrorList) -> None:
    """A class stays; where it is allowed may change."""
    for field, was, now in (
        ("provisioner", old.provisioner, new.provisioner),
        ("parameters", old.parameters, new.parameters),
        ("reclaimPolicy", old.reclaim_policy, new.reclaim_policy),
        ("volumeBindingMode", old.volume_binding_mode, new.volume_binding_mode),
    ):
        if was != now:
            errors.forbidden(field, "updates to this field are forbidden.")


def validate_csi_node(found: CSINode, errors: ErrorList) -> None:
    """Its drivers."""
    seen: set[str] = set()
    for index, driver in enumerate(found.spec.drivers):
        path = f"spec.drivers[{index}]"
        _driver_name(errors, driver.name, f"{path}.name")
        errors.unique(f"{path}.name", driver.name, seen)
        if driver.allocatable is not None and (driver.allocatable.count or 0) < 0:
            errors.invalid(f"{path}.allocatable.count", driver.allocatable.count, NOT_NEGATIVE)
        if len(driver.topology_keys) > TOPOLOGY_KEYS_MAX:
            errors.too_many(f"{path}.topologyKeys", len(driver.topology_keys), TOPOLOGY_KEYS_MAX)
        for key in driver.topology_keys:
            errors.invalid_each(f"{path}.topologyKeys", key, names.label_key(key))


def validate_storage_capacity(found: CSIStorageCapacity, errors: ErrorList) -> None:
    """How much of which class, and where."""
    if found.storage_class_name:
        _class_name(errors, found.storage_class_name, "storageClassName")
    else:
        errors.required("storageClassName")
    validate_common.label_selector(errors, found.node_topology, "nodeTopology")
    for field, value in (("capacity", found.capacity), ("maximumVolumeSize", found.maximum_volume_size)):
        if value is not None:
            quantity(errors, "", value, field)


def validate_storage_capacity_update(
    old: CSIStorageCapacity, new: CSIStorageCapacity, errors: ErrorList
) -> None:
    """It stays about the same class and place."""
    if old.storage_class_name != new.storage_class_name:
        errors.invalid("storageClassName", new.storage_class_name, IMMUTABLE)
    if old.node_topology != new.node_topology:
        errors.invalid("nodeTopology", None, IMMUTABLE)


def validate_attachment(found: VolumeAttachment, errors: ErrorList) -> None:
    """Validate an attachment: volume, attacher and node."""
    _driver_name(errors, found.spec.attacher, "spec.attacher")
    if found.spec.node_name:
        errors.invalid_each("spec.nodeName", found.spec.node_name, names.dns_subdomain(found.spec.node_name))
    else:
        errors.required("spec.nodeName")
    if not found.spec.source.persistent_volume_name:
        errors.required("spec.source.persistentVolumeName", "must specify a PersistentVolume")


def validate_attachment_update(old: VolumeAttachment, new: VolumeAttachment, errors: ErrorList) -> None:
    """Attachments stay."""
    if old.spec != new.spec:
        errors.invalid("spec", None, IMMUTABLE)


# --- parts --------------------------------------------------------------------------------------------------------------


def _access_modes(errors: ErrorList, modes: Iterable[str], path: str) -> None:
    modes = list(modes)
    for mode in modes:
        if mode not in ACCESS_MODES:
            errors.not_supported(path, mode, ACCESS_MODES)
    if READ_WRITE_ONCE_POD in modes and len(set(modes)) > 1:
        errors.forbidden(path, ONE_POD_ALONE)


def _volume_mode(errors: ErrorList, mode: str | None, path: str) -> None:
    if mode is not None and mode not in VOLUME_MODES:
        errors.not_supported(path, mode, VOLUME_MODES)


def _amounts(
    errors: ErrorList, amounts: Mapping[str, Quantity], path: str, *, is_positive: bool = False
) -> None:
    for name, amount in amounts.items():
        where = f"{path}[{name}]"
        before = len(errors)
        quantity(errors, "", amount, where)
        if is_positive and len(errors) == before and compare(amount, 0) <= 0:
            errors.invalid(where, amount, POSITIVE)


def _class_name(errors: ErrorList, name: str, path: str) -> None:
    errors.invalid_each(path, name, names.dns_subdomain(name))


def _driver_name(errors: ErrorList, name: str, path: str) -> None:
    if name:
        errors.invalid_each(path, name, names.dns_subdomain(name.lower()))
    else:
        errors.required(path)

"""Whether somebody would make a volume for a claim where a node can reach it, and how much would be left there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import NamedTuple

from tidelog.api.quantity import parse_exact
from tidelog.api.selectors import SelectorError, label_matcher
from tidelog.api.storage import CSIStorageCapacity, PersistentVolumeClaim, StorageClass, TopologySelectorTerm
from tidelog.api.volumes import STORAGE, can_provision, class_of, size
from tidelog.framework.storage import Storage
from tidelog.plugins.volumes.claims import LookupFailed, error

Labels = Mapping[str, str]


class Lacking(Enum):
    """Why no volume would be made."""

    VOLUMES = "nobody makes one there"
    SPACE = "there is not enough space"


class Provision(NamedTuple):
    """A volume that is to be made for a claim."""

    claim: PersistentVolumeClaim
    capacity: CSIStorageCapacity | None = None
    """Where the space was found, if anybody counts it."""


def provisions(
    claims: Sequence[PersistentVolumeClaim], labels: Labels, storage: Storage
) -> list[Provision] | Lacking:
    """How all the claims get volumes that are made for a node with these labels. Raises LookupFailed."""
    found = []
    for claim in claims:
        name = class_of(claim)
        if not name:
            where = f"{claim.metadata.namespace}/{claim.metadata.name}"
            raise LookupFailed(error(f'no class for claim "{where}"'))
        storage_class = storage.storage_class(name)
        if storage_class is None:
            raise LookupFailed(error(f'failed to find storage class "{name}"'))
        if not can_provision(storage_class) or not is_allowed(storage_class.allowed_topologies, labels):
            return Lacking.VOLUMES
        capacity = _space(claim, storage_class, labels, storage)
        if isinstance(capacity, Lacking):
            return capacity
        found.append(Provision(claim, capacity))
    return found


def is_allowed(terms: Sequence[TopologySelectorTerm], labels: Labels) -> bool:
    """Whether the class makes volumes for such nodes. A term without expressions allows nothing."""
    return not terms or any(
        term.match_label_expressions
        and all(labels.get(asked.key) in asked.values for asked in term.match_label_expressions)
        for term in terms
    )


def _space(
    claim: PersistentVolumeClaim, storage_class: StorageClass, labels: Labels, storage: Storage
) -> CSIStorageCapacity | Lacking | None:
    """Where there is enough space, None if nobody counts it. Every claim is looked at alone."""
    if STORAGE not in claim.spec.resources.requests:
        return None
    driver = storage.csi_driver(storage_class.provisioner)
    if driver is None or not driver.spec.storage_capacity:
        return None
    wanted = Fraction(*size(claim.spec.resources.requests))
    for capacity in storage.capacities_of_class(storage_class.metadata.name):
        most = limit_of(capacity)
        if most is not None and most >= wanted and _reaches(capacity, labels):
            return capacity
    return Lacking.SPACE


def limit_of(capacity: CSIStorageCapacity) -> Fraction | None:
    """How large a volume may be there; None: not even that is known."""
    found = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    return None if found is None else Fraction(*parse_exact(found))


def _reaches(capacity: CSIStorageCapacity, labels: Labels) -> bool:
    try:
        return label_matcher(capacity.node_topology)(labels)
    except SelectorError:
        return False

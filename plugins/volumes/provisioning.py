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


class Provisioning:
    """How volumes are made for one claim; what does not depend on the node is found once."""

    def __init__(self, claim: PersistentVolumeClaim, storage: Storage) -> None:
        """Raises LookupFailed."""
        name = class_of(claim)
        if not name:
            where = f"{claim.metadata.namespace}/{claim.metadata.name}"
            raise LookupFailed(error(f'no class for claim "{where}"'))
        found = storage.storage_class(name)
        if found is None:
            raise LookupFailed(error(f'failed to find storage class "{name}"'))
        self._claim = claim
        self._class = found
        self._storage = storage
        self._everywhere: Provision | Lacking | None = None
        """The answer, where it is the same for all nodes."""
        if not can_provision(found):
            self._everywhere = Lacking.VOLUMES
        elif not found.allowed_topologies and not self._counts_space():
            self._everywhere = Provision(claim)

    def on(self, labels: Labels) -> Provision | Lacking:
        """For a node with these labels."""
        if self._everywhere is not None:
            return self._everywhere
        if not is_allowed(self._class.allowed_topologies, labels):
            return Lacking.VOLUMES
        space = _space(self._claim, self._class, labels, self._storage) if self._counts_space() else None
        return space if isinstance(space, Lacking) else Provision(self._claim, space)

    def _counts_space(self) -> bool:
        return counts_space(self._claim, self._class, self._storage)


def counts_space(claim: PersistentVolumeClaim, found: StorageClass, storage: Storage) -> bool:
    """Somebody says how much there is for volumes of the class, and the claim says how much it wants."""
    driver = storage.csi_driver(found.provisioner)
    counts = driver is not None and bool(driver.spec.storage_capacity)
    return counts and STORAGE in claim.spec.resources.requests


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
    """Where there is enough space. Every claim is looked at alone."""
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

"""Claims, volumes, and what says where volumes can be had: the part of the listers that plugins for volumes ask.

Kept by `tidelog.framework.listers` from the log's records. What an attempt has promised is put over the objects' stored versions until its
record is in the log. `put` and `delete` cost the same however many objects there are; lists are made anew after a change of one of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from tidelog.api.objects import Object
from tidelog.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from tidelog.api.volumes import class_of, host_of
from tidelog.framework.contents import MASK, number_of

KINDS_OF_STORAGE = (
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CSINode,
    CSIDriver,
    CSIStorageCapacity,
    VolumeAttachment,
)

_BY_NAME: dict[str, type] = {kind.__name__: kind for kind in KINDS_OF_STORAGE}

_K = TypeVar("_K", bound=Object)


class Storage:
    """The objects of storage, by name and by what they are looked for."""

    def __init__(self, first: int = 0) -> None:
        """`first`: the generation in which it begins."""
        self.generation = first
        """Grows with each change of any of them."""
        self.csi_generation = first
        """Grows with each change of what drivers and nodes say of themselves."""
        self.attachment_generation = first
        """Grows with each change of a VolumeAttachment."""
        self.class_generation = first
        """Grows with each change of a StorageClass or of what drivers say of themselves: rarely."""
        self._tables: dict[type, dict[tuple[str, str], Any]] = {kind: {} for kind in KINDS_OF_STORAGE}
        self._by_class = _Index[PersistentVolume](class_of)
        self._free = _Index[PersistentVolume](
            lambda v: class_of(v) if v.spec.claim_ref is None and host_of(v) is None else None,
            has_versions=True,
        )
        self._local = _Index[PersistentVolume](_class_and_host)
        self._with_local = _Index[PersistentVolume](
            lambda v: class_of(v) if v.spec.claim_ref is None and host_of(v) is not None else None
        )
        self._promised = _Index[PersistentVolume](_claim_named_by)
        self._by_handle = _Index[PersistentVolume](_handle_of)
        self._users = _Index[PersistentVolumeClaim](lambda found: found.spec.volume_name or None)
        self._capacities = _Index[CSIStorageCapacity](
            lambda found: found.storage_class_name, has_versions=True
        )
        self._attachments = _Index[VolumeAttachment](lambda found: found.spec.node_name)
        self._attaching = _Index[VolumeAttachment](
            lambda found: found.spec.source.persistent_volume_name or None
        )
        self._indexes: dict[type, tuple[_Index[Any], ...]] = {
            PersistentVolumeClaim: (self._users,),
            PersistentVolume: (
                self._by_class,
                self._free,
                self._local,
                self._with_local,
                self._promised,
                self._by_handle,
            ),
            CSIStorageCapacity: (self._capacities,),
            VolumeAttachment: (self._attachments, self._attaching),
        }

    # --- following the log --------------------------------------------------------------------------------------------

    def put(self, obj: Object) -> None:
        """A new object or a new version of one; of another kind it is ignored."""
        table = self._tables.get(type(obj))
        if table is None:
            return
        self._count(obj)
        key = (obj.metadata.namespace, obj.metadata.name)
        old, table[key] = table.get(key), obj
        for index in self._indexes.get(type(obj), ()):
            index.change(key, old, obj)

    def delete(self, obj: Object) -> None:
        """The object of this kind, namespace and name is gone."""
        table = self._tables.get(type(obj))
        if table is None:
            return
        self._count(obj)
        key = (obj.metadata.namespace, obj.metadata.name)
        old = table.pop(key, None)
        for index in self._indexes.get(type(obj), ()):
            index.change(key, old, None)

    def _count(self, obj: Object) -> None:
        self.generation += 1
        if isinstance(obj, CSINode | CSIDriver):
            self.csi_generation += 1
        elif isinstance(obj, VolumeAttachment):
            self.attachment_generation += 1
        if isinstance(obj, StorageClass | CSIDriver):
            self.class_generation += 1

    # --- what plugins ask ---------------------------------------------------------------------------------------------

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object of this kind and name; None also for other kinds."""
        found = _BY_NAME.get(kind)
        return None if found is None else self._tables[found].get((namespace, name))

    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """The PersistentVolumeClaim of this name."""
        return self._get(PersistentVolumeClaim, namespace, name)

    def volume(self, name: str) -> PersistentVolume | None:
        """The PersistentVolume of this name."""
        return self._get(PersistentVolume, "", name)

    def storage_class(self, name: str) -> StorageClass | None:
        """The StorageClass of this name."""
        return self._get(StorageClass, "", name)

    def csi_node(self, name: str) -> CSINode | None:
        """Return the limits of the node of this name."""
        return self._get(CSINode, "", name)

    def csi_driver(self, name: str) -> CSIDriver | None:
        """The CSIDriver of this name."""
        return self._get(CSIDriver, "", name)

    def volumes_of_class(self, name: str) -> Sequence[PersistentVolume]:
        """All volumes of the class, by name."""
        return self._by_class.of(name)

    def free_volumes_of_class(self, name: str) -> Sequence[PersistentVolume]:
        """Those of the class that no claim has and that are promised to none, by name; those of a single host aside."""
        return self._free.of(name)

    def has_local_volumes(self, name: str) -> bool:
        """Whether there are such volumes of single hosts."""
        return name in self._with_local

    def local_volumes(self, name: str, host: str) -> Sequence[PersistentVolume]:
        """Those of this host, by name. A change of one of them is a change of its nodes, and not of `offers_of_class`."""
        return self._local.of(f"{name}/{host}")

    def volumes_promised_to(self, namespace: str, name: str) -> Sequence[PersistentVolume]:
        """Those that name the claim, by name."""
        return self._promised.of(f"{namespace}/{name}")

    def volumes_with_handle(self, driver: str, handle: str) -> Sequence[PersistentVolume]:
        """Those that are one and the same to the driver, by name."""
        return self._by_handle.of(f"{driver}/{handle}")

    def claims_with_volume(self, name: str) -> Sequence[PersistentVolumeClaim]:
        """Those that say they have the volume of this name, by namespace and name."""
        return self._users.of(name)

    def attachments_of(self, volume: str) -> Sequence[VolumeAttachment]:
        """Of the volume of this name, by name."""
        return self._attaching.of(volume)

    def capacities_of_class(self, name: str) -> Sequence[CSIStorageCapacity]:
        """Return the capacities left for volumes of the class, by namespace and name."""
        return self._capacities.of(name)

    def offers_of_class(self, name: str) -> tuple[int, int]:
        """Others whenever free volumes of the class, or the space that is left for new ones, have changed; the same again when that is undone."""
        return self._free.version(name), self._capacities.version(name)

    def attachments_to(self, node: str) -> Sequence[VolumeAttachment]:
        """Return the attachments, made or under way, to the node of this name, by name."""
        return self._attachments.of(node)

    def csi_nodes(self) -> Iterable[CSINode]:
        """All of them, in no order that means anything."""
        return self._tables[CSINode].values()

    def most_attachments(self) -> int:
        """How many there are to a node, at most."""
        return max(map(len, self._attachments.values()), default=0)

    def _get(self, kind: type[_K], namespace: str, name: str) -> _K | None:
        found: _K | None = self._tables[kind].get((namespace, name))
        return found


class _Index(dict[str, dict[tuple[str, str], _K]]):
    """Objects by one thing about them, and within that by namespace and name."""

    def __init__(self, about: Callable[[_K], str | None], *, has_versions: bool = False) -> None:
        """`about` tells None of an object that is not looked for."""
        super().__init__()
        self._about = about
        self._has_versions = has_versions
        self._numbers: dict[tuple[str, str], int] = {}
        self._versions: dict[str, int] = {}
        self._sorted: dict[str, tuple[_K, ...]] = {}
        """Answers of `of`, until one of them changes."""

    def change(self, key: tuple[str, str], old: _K | None, new: _K | None) -> None:
        before = None if old is None else self._about(old)
        if before is not None:
            named = self[before]
            del named[key]
            if not named:
                del self[before]
            self._sorted.pop(before, None)
            if self._has_versions:
                self._versions[before] = (self._versions[before] - self._numbers.pop(key)) & MASK
        now = None if new is None else self._about(new)
        if new is not None and now is not None:
            self.setdefault(now, {})[key] = new
            self._sorted.pop(now, None)
            if self._has_versions:
                number = self._numbers[key] = number_of((key, new))
                self._versions[now] = (self._versions.get(now, 0) + number) & MASK

    def version(self, value: str) -> int:
        """The answer of `of` as a number (`tidelog.framework.contents`)."""
        return self._versions.get(value, 0)

    def of(self, value: str) -> Sequence[_K]:
        found = self._sorted.get(value)
        if found is None:
            named = self.get(value)
            if named is None:
                return ()
            found = self._sorted[value] = tuple(named[key] for key in sorted(named))
        return found


def _class_and_host(volume: PersistentVolume) -> str | None:
    host = host_of(volume) if volume.spec.claim_ref is None else None
    return None if host is None else f"{class_of(volume)}/{host}"


def _claim_named_by(volume: PersistentVolume) -> str | None:
    ref = volume.spec.claim_ref
    return None if ref is None else f"{ref.namespace}/{ref.name}"


def _handle_of(volume: PersistentVolume) -> str | None:
    csi = volume.spec.csi
    return None if csi is None else f"{csi.driver}/{csi.volume_handle}"

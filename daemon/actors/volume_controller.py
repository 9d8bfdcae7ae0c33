"""The volume controller and the provisioners: they bind claims to volumes, make volumes, and look after those of ephemeral volumes.

    claim of a class with Immediate          ──► the smallest volume that will do, or a new one
    volume that names a claim (Reserved)     ──► both bound
    claim with a selected node (Reserved)    ──► after provisionSeconds a new volume that the node reaches, bound
    pod with a generic ephemeral volume      ──► its claim; deleted with the pod
    volume deleted ──► claim Lost            claim deleted ──► volume deleted, or Released

A provisioner can be told to refuse (the selected node is taken back, and the scheduler chooses again) or never to answer.
A look at a claim costs the volumes there are; claims that wait for a volume are looked at whenever one is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tidelog.api.errors import FieldError
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Node, Object, Pod
from tidelog.api.pod_status import is_terminal
from tidelog.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from tidelog.api.times import NANOS
from tidelog.api.volumes import (
    IMMEDIATE,
    SELECTED_NODE,
    can_provision,
    class_of,
    is_for,
    is_fully_bound,
    pod_uid,
)
from tidelog.daemon.actors import volume_steps as steps
from tidelog.daemon.actors.protocol import NOTHING, Deeds, Errand, Objects, delete, put
from tidelog.eventlog.records import Body, Draft, ObjectPut, Record, Reserved

CLAIM = "PersistentVolumeClaim/"
VOLUME = "PersistentVolume/"
LOOK = "look"
PROVIDE = "provide"
RECLAIM = "reclaim"


class VolumeControllerSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How fast it is, and what does not work."""

    provision_seconds: float = 1.0
    """Until a volume is made."""
    refuses: tuple[str, ...] = ()
    """Names of storage classes of which no volume can be made."""
    silent: tuple[str, ...] = ()
    """Names of storage classes whose provisioner never answers."""

    def errors(self, path: str) -> Iterator[FieldError]:
        """Every rule that is broken."""
        if not 0 <= self.provision_seconds <= 86400:
            rule = "must be from 0 to 86400"
            value = self.provision_seconds
            yield FieldError(path=f"{path}.provisionSeconds", kind="Invalid", value=value, rule=rule)


class VolumeController:
    """Implements `tidelog.daemon.actors.protocol.Actor`."""

    name = "volume-controller"
    Settings = VolumeControllerSettings

    def __init__(self, settings: VolumeControllerSettings | None = None) -> None:
        self._settings = settings or VolumeControllerSettings()
        self._waiting: dict[str, None] = {}
        """Keys of claims for which there was no volume when they were looked at."""
        self._owned: dict[str, dict[str, None]] = {}
        """Uid of a pod → keys of the claims of its ephemeral volumes."""
        self._pods: dict[str, str] = {}
        """Key of a pod with such volumes → its uid."""

    def begin(self, objects: Objects, seq: int, at: int) -> Sequence[Errand]:
        self._waiting, self._owned, self._pods = {}, {}, {}
        found: list[Errand] = []
        for kind in ("Pod", "PersistentVolume", "PersistentVolumeClaim"):
            for obj in objects.of_kind(kind):
                found += self._errands(object_key(obj), obj, objects, seq, at)
        gone = [uid for uid in self._owned if uid not in self._pods.values()]
        return [*found, *(Errand(at, RECLAIM, uid, seq) for uid in gone)]

    def react(self, record: Record, body: Body, objects: Objects) -> Sequence[Errand]:
        keys = [record.key]
        if isinstance(body, Reserved):
            keys += [write.key for write in body.writes]
        seq, at = record.seq, record.at
        found = [e for key in keys for e in self._errands(key, objects.get(key), objects, seq, at)]
        if isinstance(body, ObjectPut) and isinstance(body.object, StorageClass):
            found += [Errand(at, LOOK, key, seq) for key in self._waiting]
        return found

    def _errands(self, key: str, obj: Object | None, objects: Objects, seq: int, at: int) -> Iterator[Errand]:
        if key.startswith("Pod/"):
            yield from self._of_pod(key, obj, seq, at)
        elif isinstance(obj, PersistentVolumeClaim):
            owner = next((o for o in obj.metadata.owner_references if o.controller), None)
            if owner is not None and owner.kind == "Pod":
                self._owned.setdefault(owner.uid, {})[key] = None
            yield Errand(at, LOOK, key, seq)
        elif isinstance(obj, PersistentVolume):
            ref = obj.spec.claim_ref
            if ref is not None:
                yield Errand(at, LOOK, f"{CLAIM}{ref.namespace}/{ref.name}", seq)
            elif obj.status.phase == "Available":
                yield from (Errand(at, LOOK, claim, seq) for claim in self._waiting)
        elif key.startswith((CLAIM, VOLUME)):
            yield Errand(at, RECLAIM, key, seq)

    def _of_pod(self, key: str, pod: Object | None, seq: int, at: int) -> Iterator[Errand]:
        known = self._pods.get(key)
        if known is not None and (not isinstance(pod, Pod) or pod_uid(pod) != known):
            del self._pods[key]
            yield Errand(at, RECLAIM, known, seq)
        if isinstance(pod, Pod) and not is_terminal(pod) and any(v.ephemeral for v in pod.spec.volumes):
            self._pods[key] = pod_uid(pod)
            yield Errand(at, LOOK, key, seq)

    # --- doing --------------------------------------------------------------------------------------------------------

    def run(self, errand: Errand, objects: Objects, at: int) -> Deeds:
        key = errand.key
        if errand.what == RECLAIM:
            return Deeds(list(self._reclaimed(key, objects)))
        found = objects.get(key)
        if isinstance(found, Pod):
            return Deeds(list(_claims_of(found, objects)))
        self._waiting.pop(key, None)
        if not isinstance(found, PersistentVolumeClaim) or found.metadata.deletion_timestamp:
            return NOTHING
        return self._look(found, errand, objects, at)

    def _look(self, claim: PersistentVolumeClaim, errand: Errand, objects: Objects, at: int) -> Deeds:
        if is_fully_bound(claim):
            has_volume = objects.get(f"{VOLUME}/{claim.spec.volume_name}") is not None
            return NOTHING if has_volume or claim.status.phase == "Lost" else _puts(steps.lost(claim))
        storage_class = objects.get(f"StorageClass//{class_of(claim)}")
        has_mode = isinstance(storage_class, StorageClass)
        is_immediate = not has_mode or storage_class.volume_binding_mode == IMMEDIATE  # type: ignore[union-attr]
        volume = self._volume_for(claim, objects, is_immediate)
        if volume is not None:
            # One of the two may be there already: a repair may have dropped what was written of the other.
            return _puts(*(obj for obj in steps.bound(volume, claim) if obj != objects.get(object_key(obj))))
        chosen = claim.metadata.annotations.get(SELECTED_NODE, "")
        can_be_made = isinstance(storage_class, StorageClass) and can_provision(storage_class)
        if claim.spec.volume_name or not (is_immediate or chosen) or not can_be_made:
            if is_immediate:
                self._waiting[errand.key] = None
            return NOTHING
        assert isinstance(storage_class, StorageClass)
        return self._provide(claim, storage_class, chosen, errand, objects, at)

    def _provide(
        self,
        claim: PersistentVolumeClaim,
        storage_class: StorageClass,
        chosen: str,
        errand: Errand,
        objects: Objects,
        at: int,
    ) -> Deeds:
        name, settings = storage_class.metadata.name, self._settings
        if name in settings.silent:
            return NOTHING
        if errand.what == LOOK:
            due = at + round(settings.provision_seconds * NANOS)
            return Deeds(errands=[Errand(due, PROVIDE, errand.key, errand.cause)])
        if name in settings.refuses:
            return _puts(steps.refused(claim)) if chosen else NOTHING
        node, csi_node = objects.get(f"Node//{chosen}"), objects.get(f"CSINode//{chosen}")
        if chosen and not isinstance(node, Node):
            return _puts(steps.refused(claim))
        made = steps.provided(
            claim,
            storage_class,
            node if isinstance(node, Node) else None,
            csi_node if isinstance(csi_node, CSINode) else None,
        )
        return _puts(*made)

    def _volume_for(
        self, claim: PersistentVolumeClaim, objects: Objects, is_immediate: bool
    ) -> PersistentVolume | None:
        """The volume that the claim names, one that names the claim, or, if it need not wait for a pod, any that will do."""
        if claim.spec.volume_name:
            named = objects.get(f"{VOLUME}/{claim.spec.volume_name}")
            return named if isinstance(named, PersistentVolume) and steps.satisfies(named, claim) else None
        volumes = _volumes(objects)
        if not is_immediate:
            volumes = (volume for volume in volumes if is_for(volume, claim))
        return steps.best_volume(volumes, claim)

    def _reclaimed(self, key: str, objects: Objects) -> Iterator[Draft]:
        """Clean up after a claim, a volume, or a pod that is gone."""
        if key.startswith(CLAIM) and objects.get(key) is None:
            for volume in _volumes(objects):
                ref = volume.spec.claim_ref
                if ref is None or f"{CLAIM}{ref.namespace}/{ref.name}" != key:
                    continue
                if volume.spec.persistent_volume_reclaim_policy == "Delete":
                    yield delete(volume)
                elif volume.status.phase == "Bound":
                    yield put(steps.released(volume))
        elif key.startswith(VOLUME) and objects.get(key) is None:
            name = key.rpartition("/")[2]
            for claim in objects.of_kind("PersistentVolumeClaim"):
                if isinstance(claim, PersistentVolumeClaim) and claim.spec.volume_name == name:
                    if claim.status.phase == "Bound":
                        yield put(steps.lost(claim))
        else:
            for claim_key in self._owned.pop(key, ()):
                owned = objects.get(claim_key)
                if owned is not None:
                    yield delete(owned)


def _volumes(objects: Objects) -> Iterable[PersistentVolume]:
    return (found for found in objects.of_kind("PersistentVolume") if isinstance(found, PersistentVolume))


def _claims_of(pod: Pod, objects: Objects) -> Iterator[Draft]:
    """The claims of the pod's ephemeral volumes that are not there."""
    for volume in pod.spec.volumes:
        if volume.ephemeral is None or volume.ephemeral.volume_claim_template is None:
            continue
        claim = steps.claim_for(pod, volume)
        if objects.get(object_key(claim)) is None:
            yield put(claim)


def _puts(*objects: Object) -> Deeds:
    return Deeds([put(obj) for obj in objects])

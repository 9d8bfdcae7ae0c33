"""Attaches volumes to nodes: a VolumeAttachment for each volume of a CSI driver that a pod on the node uses, and limits for nodes that tell none.

    pod bound ──(attachSeconds)──► VolumeAttachment, attached
    the last pod on the node that uses the volume gone ──(detachSeconds)──► VolumeAttachment deleted
    node without a CSINode, and `limits` set ──► a CSINode with these limits, as a kubelet would register its drivers

Between the end of a pod and the end of its attachment the volume still counts on the node, as in a real cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import msgspec

from tidelog.api.errors import FieldError
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Node, Object, ObjectMeta, OwnerReference, Pod
from tidelog.api.pod_status import is_terminal
from tidelog.api.storage import (
    CSINode,
    CSINodeAllocatable,
    CSINodeDriver,
    CSINodeSpec,
    PersistentVolume,
    PersistentVolumeClaim,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    VolumeAttachmentStatus,
)
from tidelog.api.times import NANOS
from tidelog.api.volumes import claim_uses
from tidelog.api.well_known import ZONE
from tidelog.daemon.actors.protocol import NOTHING, Deeds, Errand, Objects, delete, put
from tidelog.eventlog.records import Body, Draft, Record

ATTACH = "attach"
DETACH = "detach"
REGISTER = "register"


class AttachControllerSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How fast it is, and how much a node attaches."""

    attach_seconds: float = 1.0
    detach_seconds: float = 1.0
    limits: dict[str, int] = {}
    """CSI driver → how many volumes a node attaches that has no CSINode of its own."""

    def errors(self, path: str) -> Iterator[FieldError]:
        """Every rule that is broken."""
        for field, value in (("attachSeconds", self.attach_seconds), ("detachSeconds", self.detach_seconds)):
            if not 0 <= value <= 86400:
                rule = "must be from 0 to 86400"
                yield FieldError(path=f"{path}.{field}", kind="Invalid", value=value, rule=rule)
        for driver, count in self.limits.items():
            if count < 0:
                rule = "must be greater than or equal to 0"
                yield FieldError(path=f"{path}.limits[{driver}]", kind="Invalid", value=count, rule=rule)


class AttachController:
    """Implements `tidelog.daemon.actors.protocol.Actor`. It remembers which node each pod was on, to look there when the pod is gone."""

    name = "attach-controller"
    Settings = AttachControllerSettings

    def __init__(self, settings: AttachControllerSettings | None = None) -> None:
        self._settings = settings or AttachControllerSettings()
        self._places: dict[str, str] = {}
        """Key of a pod with volumes → its node."""
        self._on: dict[str, dict[str, None]] = {}
        """Node → keys of such pods on it."""

    def begin(self, objects: Objects, seq: int, at: int) -> Sequence[Errand]:
        self._places, self._on = {}, {}
        found = [
            e for kind in ("Node", "Pod") for obj in objects.of_kind(kind) for e in self._see(obj, seq, at)
        ]
        attached = (a for a in objects.of_kind("VolumeAttachment") if isinstance(a, VolumeAttachment))
        nodes = dict.fromkeys(attachment.spec.node_name for attachment in attached)
        return [*found, *(Errand(at + self._after(DETACH), DETACH, node, seq) for node in nodes)]

    def react(self, record: Record, body: Body, objects: Objects) -> Sequence[Errand]:
        if not record.key.startswith(("Pod/", "Node/")):
            return ()
        obj = objects.get(record.key)
        if obj is None or (isinstance(obj, Pod) and is_terminal(obj)):
            return list(self._gone(record.key, record.seq, record.at))
        return list(self._see(obj, record.seq, record.at))

    def _see(self, obj: Object, seq: int, at: int) -> Iterator[Errand]:
        if isinstance(obj, Node):
            if self._settings.limits:
                yield Errand(at, REGISTER, obj.metadata.name, seq)
        elif isinstance(obj, Pod) and obj.spec.node_name and not is_terminal(obj) and any(claim_uses(obj)):
            key, node = object_key(obj), obj.spec.node_name
            if self._places.get(key) != node:
                self._places[key] = node
                self._on.setdefault(node, {})[key] = None
                yield Errand(at + self._after(ATTACH), ATTACH, key, seq)

    def _gone(self, key: str, seq: int, at: int) -> Iterator[Errand]:
        node = self._places.pop(key, None)
        if node is not None:
            del self._on[node][key]
            yield Errand(at + self._after(DETACH), DETACH, node, seq)

    def _after(self, what: str) -> int:
        seconds = self._settings.attach_seconds if what == ATTACH else self._settings.detach_seconds
        return round(seconds * NANOS)

    # --- doing --------------------------------------------------------------------------------------------------------

    def run(self, errand: Errand, objects: Objects, at: int) -> Deeds:
        if errand.what == REGISTER:
            node = objects.get(f"Node//{errand.key}")
            is_known = objects.get(f"CSINode//{errand.key}") is not None
            return NOTHING if is_known or not isinstance(node, Node) else Deeds([put(self._registered(node))])
        if errand.what == ATTACH:
            return Deeds(
                [
                    put(made)
                    for made in self._wanted(errand.key, objects)
                    if objects.get(object_key(made)) is None
                ]
            )
        return Deeds(list(self._detached(errand.key, objects)))

    def _registered(self, node: Node) -> CSINode:
        name = node.metadata.name
        drivers = tuple(
            CSINodeDriver(
                name=driver,
                node_id=name,
                topology_keys=(ZONE,) if ZONE in node.metadata.labels else (),
                allocatable=CSINodeAllocatable(count=count),
            )
            for driver, count in sorted(self._settings.limits.items())
        )
        owner = OwnerReference(api_version="v1", kind="Node", name=name, uid=node.metadata.uid)
        return CSINode(
            metadata=ObjectMeta(name=name, owner_references=(owner,)), spec=CSINodeSpec(drivers=drivers)
        )

    def _wanted(self, key: str, objects: Objects) -> Iterator[VolumeAttachment]:
        pod = objects.get(key)
        if not isinstance(pod, Pod) or not pod.spec.node_name or is_terminal(pod):
            return
        for use in claim_uses(pod):
            claim = objects.get(f"PersistentVolumeClaim/{pod.metadata.namespace}/{use.claim}")
            if not isinstance(claim, PersistentVolumeClaim) or not claim.spec.volume_name:
                continue
            volume = objects.get(f"PersistentVolume//{claim.spec.volume_name}")
            if isinstance(volume, PersistentVolume) and volume.spec.csi is not None:
                yield attachment(volume.spec.csi.driver, volume.metadata.name, pod.spec.node_name)

    def _detached(self, node: str, objects: Objects) -> Iterator[Draft]:
        used = {object_key(wanted) for pod in self._on.get(node, ()) for wanted in self._wanted(pod, objects)}
        for found in objects.of_kind("VolumeAttachment"):
            if isinstance(found, VolumeAttachment) and found.spec.node_name == node:
                if object_key(found) not in used:
                    yield delete(found)


def attachment(driver: str, volume: str, node: str) -> VolumeAttachment:
    """A volume on a node; its name is made of the three, as Kubernetes makes it."""
    name = "csi-" + hashlib.sha256(f"{volume}{driver}{node}".encode()).hexdigest()
    return VolumeAttachment(
        metadata=ObjectMeta(name=name),
        spec=VolumeAttachmentSpec(
            attacher=driver, node_name=node, source=VolumeAttachmentSource(persistent_volume_name=volume)
        ),
        status=VolumeAttachmentStatus(attached=True),
    )

"""Objects as they are shown: encoded once, for everybody who asks.

An `Item` is one version of one object. Its JSON is made when it is first wanted and then kept, without kind and apiVersion, which are put in
front where they belong: in front of a single object and of an event's, not of the items of a list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from tidelog.api.objects import Object, Pod
from tidelog.eventlog.objects import ObjectEntry
from tidelog.kube import opaque
from tidelog.kube.resources import ApiResource
from tidelog.kube.selectors import FIELD_DEFAULTS, typed_field, value_in
from tidelog.kube.serve.revisions import revision

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Item:
    """One version of an object. Either typed, with what is left over, or plain data."""

    __slots__ = ("_body", "_manifest", "kind", "name", "namespace", "opaque", "revision", "typed")

    def __init__(
        self,
        kind: str,
        namespace: str,
        name: str,
        revision: int,
        typed: Object | None,
        opaque: str = "",
        manifest: dict[str, Any] | None = None,
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self.name = name
        self.revision = revision
        self.typed = typed
        self.opaque = opaque
        self._manifest = manifest
        self._body: bytes | None = None

    @property
    def sort_key(self) -> tuple[str, str]:
        """Lists are in this order."""
        return self.namespace, self.name

    @property
    def uid(self) -> str:
        """The object's."""
        return self.typed.metadata.uid if self.typed is not None else self.manifest["metadata"].get("uid", "")

    @property
    def labels(self) -> Mapping[str, str]:
        """The object's."""
        if self.typed is not None:
            return self.typed.metadata.labels
        found = self.manifest["metadata"].get("labels")
        return found if isinstance(found, dict) else {}

    @property
    def body(self) -> bytes:
        """The JSON of the object without kind and apiVersion; not empty."""
        if self._body is None:
            if self.typed is not None and not self.opaque and self.kind not in _COMPLETED:
                self._body = _encode(self._stamped(self.typed))
            else:
                self._body = _encode(self.manifest)
        return self._body

    @property
    def manifest(self) -> dict[str, Any]:
        """The whole object as plain data, for reading only, without kind and apiVersion."""
        if self._manifest is None:
            assert self.typed is not None
            found = _decode(_encode(self._stamped(self.typed)))
            if self.opaque:
                opaque.with_left_over(found, opaque.read(self.opaque), type(self.typed))
            complete = _COMPLETED.get(self.kind)
            if complete is not None:
                complete(found)
            if self._body is not None:
                return found
            self._body = _encode(found)
            return found
        return self._manifest

    def _stamped(self, typed: Object) -> Object:
        if isinstance(typed, Pod) and not typed.status.phase:
            # An API server writes this at a pod's creation.
            typed = replace(typed, status=replace(typed.status, phase="Pending"))
        return replace(typed, metadata=replace(typed.metadata, resource_version=str(self.revision)))

    def json(self, resource: ApiResource) -> bytes:
        """The object by itself."""
        return head_of(resource) + self.body[1:]

    def field(self, name: str) -> str:
        """A field as field selectors compare it."""
        if name == "metadata.name":
            return self.name
        if name == "metadata.namespace":
            return self.namespace
        if self.typed is not None and (known := typed_field(self.typed, name)) is not None:
            return known
        if self.kind == "Event":
            return _event_field(self.manifest, name)
        found = value_in(self.manifest, name)
        return found or FIELD_DEFAULTS.get(name, "")


def _event_field(manifest: Mapping[str, Any], name: str) -> str:
    if name.startswith("involvedObject."):
        rest = name.removeprefix("involvedObject.")
        return value_in(manifest, f"involvedObject.{rest}") or value_in(manifest, f"regarding.{rest}")
    if name == "source":
        return value_in(manifest, "source.component") or value_in(manifest, "reportingController")
    if name == "reportingComponent":
        return value_in(manifest, "reportingComponent") or value_in(manifest, "reportingController")
    return value_in(manifest, name)


_heads: dict[tuple[str, str], bytes] = {}


def head_of(resource: ApiResource) -> bytes:
    """How the JSON of an object of this resource begins."""
    found = _heads.get((resource.kind, resource.api_version))
    if found is None:
        found = _encode({"kind": resource.kind, "apiVersion": resource.api_version})[:-1] + b","
        _heads[resource.kind, resource.api_version] = found
    return found


def item_of(key: str, entry: ObjectEntry) -> Item:
    """The item of an entry of the table of objects."""
    kind, namespace, name = key.split("/")
    return Item(kind, namespace, name, revision(entry.seq, entry.place), entry.object, entry.opaque)


# --- what a server adds, because readers rely on it ---------------------------------------------------------------------


def _complete_namespace(data: dict[str, Any]) -> None:
    data.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    phase = "Terminating" if data["metadata"].get("deletionTimestamp") else "Active"
    data.setdefault("status", {}).setdefault("phase", phase)


def _complete_class(data: dict[str, Any]) -> None:
    data.setdefault("value", 0)


def _complete_budget(data: dict[str, Any]) -> None:
    status = data.setdefault("status", {})
    for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        status.setdefault(name, 0)


def _complete_replicas(data: dict[str, Any]) -> None:
    data.setdefault("status", {}).setdefault("replicas", 0)


def _complete_status(data: dict[str, Any]) -> None:
    data.setdefault("status", {})


_COMPLETED: dict[str, Callable[[dict[str, Any]], None]] = {
    "Namespace": _complete_namespace,
    "PriorityClass": _complete_class,
    "PodDisruptionBudget": _complete_budget,
    "ReplicaSet": _complete_replicas,
    "StatefulSet": _complete_replicas,
    "ReplicationController": _complete_replicas,
    "Deployment": _complete_status,
    "Job": _complete_status,
    "Service": _complete_status,
    "PodGroup": _complete_status,
}

"""Writing what is kept beside the log: events and leases, by the same rules as everything else, in memory."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidelog.api.errors import FieldError
from tidelog.api.times import NANOS, format_time
from tidelog.kube import status
from tidelog.kube.events import GROUP, NOTE_BYTES_MAX, as_core, as_new
from tidelog.kube.resources import ApiResource
from tidelog.kube.serve.items import Item
from tidelog.kube.serve.memory import MemoryView
from tidelog.kube.serve.writes import Options, Preconditions, Written, check_kind, patched, without_nulls

OBJECT_BYTES_MAX = 64 << 10
"""Of an event or a lease as JSON; arbitrary."""
_KEPT = ("uid", "creationTimestamp", "namespace", "name")


class BesideWriter:
    """Changes events and leases."""

    def __init__(self, view: MemoryView, clock: Callable[[], int]) -> None:
        self._view = view
        self._clock = clock

    def create(self, resource: ApiResource, namespace: str, manifest: Any, options: Options) -> Written:
        """Put a new one. Raises ApiError."""
        found = self._given(resource, manifest, namespace)
        meta = found["metadata"]
        at = self._clock()
        if not meta.get("name"):
            start = meta.get("generateName")
            if not start:
                error = FieldError(
                    path="metadata.name", kind="Required", rule="name or generateName is required"
                )
                raise status.invalid(resource.group, resource.kind, "", [error])
            meta["name"] = (
                start + hashlib.sha256(f"{start}{at}{self._view.revision}".encode()).hexdigest()[:5]
            )
        name = meta["name"]
        if self._view.shelves[resource.kind].get(namespace, name) is not None:
            raise status.already_exists(resource.group, resource.plural, name)
        if meta.pop("resourceVersion", None):
            raise status.bad_request("resourceVersion should not be set on objects to be created")
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = format_time(at // NANOS * NANOS)
        return Written(self._put(resource, found, options), created=True)

    def update(
        self, resource: ApiResource, namespace: str, name: str, manifest: Any, options: Options
    ) -> Written:
        """Put a new version of one. Raises ApiError."""
        old = self._found(resource, namespace, name)
        return self._replace(resource, old, self._given(resource, manifest, namespace), options)

    def patch(
        self, resource: ApiResource, namespace: str, name: str, patch: Any, how: str, options: Options
    ) -> Written:
        """Change one by a patch. Raises ApiError."""
        old = self._found(resource, namespace, name)
        before = as_new(old.manifest) if resource.group == GROUP else dict(old.manifest)
        manifest = patched({"apiVersion": resource.api_version, "kind": resource.kind, **before}, patch, how)
        return self._replace(resource, old, self._given(resource, manifest, namespace), options)

    def delete(
        self, resource: ApiResource, namespace: str, name: str, options: Options, wanted: Preconditions
    ) -> Written:
        """Take one away. Raises ApiError."""
        old = self._found(resource, namespace, name)
        for given, mine in ((wanted.uid, old.uid), (wanted.revision, str(old.revision))):
            if given and given != mine:
                why = f"Precondition failed: {given} in the precondition, {mine} in the object"
                raise status.conflict(resource.group, resource.plural, name, why)
        if not options.dry_run:
            self._view.delete(resource.kind, namespace, name)
        return Written(old, gone=True)

    def _found(self, resource: ApiResource, namespace: str, name: str) -> Item:
        found = self._view.shelves[resource.kind].get(namespace, name)
        if found is None:
            raise status.not_found(resource.group, resource.plural, name)
        return found

    def _given(self, resource: ApiResource, manifest: Any, namespace: str) -> dict[str, Any]:
        check_kind(resource, manifest)
        found: dict[str, Any] = without_nulls(
            {key: value for key, value in manifest.items() if key not in ("kind", "apiVersion")}
        )
        if not isinstance(found.get("metadata"), dict):
            found["metadata"] = {}
        meta = found["metadata"]
        meta.pop("managedFields", None)
        _check_texts(resource, meta)
        if meta.setdefault("namespace", namespace) != namespace:
            raise status.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if resource.kind == "Event":
            found = as_core(found)
            _check_note(found)
        return found

    def _replace(self, resource: ApiResource, old: Item, found: dict[str, Any], options: Options) -> Written:
        meta, before = found["metadata"], old.manifest["metadata"]
        if meta.get("resourceVersion", "") not in ("", str(old.revision)):
            raise status.conflict(resource.group, resource.plural, old.name, status.MODIFIED)
        if meta.get("uid", before["uid"]) != before["uid"]:
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {before['uid']}"
            raise status.conflict(resource.group, resource.plural, old.name, why)
        found["metadata"] = {**meta, **{key: before[key] for key in _KEPT}}
        if _same(found, old.manifest):
            return Written(old)
        return Written(self._put(resource, found, options))

    def _put(self, resource: ApiResource, found: dict[str, Any], options: Options) -> Item:

        if len(msgspec.json.encode(found)) > OBJECT_BYTES_MAX:
            raise status.too_large(OBJECT_BYTES_MAX)
        if options.dry_run:
            meta = found["metadata"]
            return Item(resource.kind, meta["namespace"], meta["name"], self._view.revision, None, "", found)
        return self._view.put(resource.kind, found)


def _same(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    def bare(manifest: Mapping[str, Any]) -> dict[str, Any]:
        meta = {key: value for key, value in manifest["metadata"].items() if key != "resourceVersion"}
        return {**manifest, "metadata": meta}

    return bare(new) == bare(old)


def _check_texts(resource: ApiResource, meta: Mapping[str, Any]) -> None:
    for field in ("name", "namespace", "generateName", "uid", "resourceVersion"):
        if not isinstance(meta.get(field, ""), str):
            raise status.bad_request(f"metadata.{field} of a {resource.kind} must be a string")
    labels = meta.get("labels", {})
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise status.bad_request(f"metadata.labels of a {resource.kind} must be strings")
    name = meta.get("name") or meta.get("generateName") or ""
    if len(name) > 253 or "/" in name or name in (".", ".."):
        error = FieldError(
            path="metadata.name",
            kind="Invalid",
            value=name,
            rule="must be a name of at most 253 characters without /",
        )
        raise status.invalid(resource.group, resource.kind, name[:253], [error])


def _check_note(event: Mapping[str, Any]) -> None:
    message = event.get("message", "")
    if not isinstance(message, str) or len(message.encode(errors="replace")) > NOTE_BYTES_MAX:
        error = FieldError(path="message", kind="Invalid", value="", rule="can have at most 1024 characters")
        raise status.invalid("", "Event", event["metadata"].get("name", ""), [error])

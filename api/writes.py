"""Writes to objects that a plugin wants before its pod is bound, as data: the log records it, and whoever keeps the objects does it.

A write is a JSON merge patch (RFC 7386) of one object: what it does not name stays, also where somebody else has changed it meanwhile. The log
takes it as done by its own record; on a live cluster it is sent to the API server, which takes such patches as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tidelog.api.kinds.registry import KIND_BY_NAME, object_key
from tidelog.api.objects import Object


class Write(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """One change of one object."""

    key: str
    """`Kind/namespace/name`."""
    uid: str = ""
    """The object must be the one of this uid; empty: any of this name."""
    verb: Literal["patch", "create", "delete"] = "patch"
    patch: dict[str, Any] = {}
    """The fields that change, as Kubernetes spells them; null takes a field away. The whole object, where it is created."""


def patch_of(obj: Object, patch: Mapping[str, Any]) -> Write:
    """A write that patches this object."""
    return Write(key=object_key(obj), uid=obj.metadata.uid, patch=dict(patch))


def written(obj: Object | None, write: Write) -> Object | None:
    """Return the object after the write, which may be missing; the object itself where it is not the one that was meant."""
    if write.verb == "delete":
        return obj if obj is not None and _is_another(obj, write) else None
    if write.verb == "create":
        return obj if obj is not None else msgspec.convert(write.patch, _type_of(write.key))
    if obj is None or _is_another(obj, write):
        return obj
    found: Object = msgspec.convert(merged(msgspec.to_builtins(obj), write.patch), type(obj))
    return found


def combined(first: Write, second: Write) -> Write:
    """Two patches of one object as one: the second comes later."""
    return Write(key=second.key, uid=second.uid or first.uid, patch=_both(first.patch, second.patch))


def _both(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(first)
    for name, value in second.items():
        known = found.get(name)
        is_nested = isinstance(known, Mapping) and isinstance(value, Mapping)
        found[name] = _both(known, value) if is_nested else value  # type: ignore[arg-type]
    return found


def _type_of(key: str) -> Any:
    return KIND_BY_NAME[key.partition("/")[0]].type


def _is_another(obj: Object, write: Write) -> bool:
    return bool(write.uid and obj.metadata.uid) and write.uid != obj.metadata.uid


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged field by field, null removes, everything else replaces. The arguments stay as they are."""
    if not isinstance(patch, Mapping):
        return patch
    found = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found

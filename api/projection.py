"""Cut a cluster's object down to what may be stored: everything that decisions depend on, nothing that may be a secret.

    projection = Projection(level="pseudonymous", key=key)
    stored = projection.of(obj)          # obj itself if there is nothing to take out

What tidelog does not read is gone with decoding. Of the rest are taken out, by rules that hold for every kind: annotations but for a few;
free texts, apart from the messages of the conditions that scheduling writes; parameters, and whatever is stored as it came, down to
the names of drivers and claims; on demand, the names of images. `pseudonymous` replaces names by pseudonyms besides.

The rules are compiled when the first object of a type comes, into the fields where they can apply, so that a plain pod costs a microsecond.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

import msgspec
from msgspec.inspect import (
    AnyType,
    CollectionType,
    DictType,
    StructType,
    Type,
    UnionType,
    type_info,
)
from msgspec.structs import replace

from tidelog.api.errors import UsageError
from tidelog.api.kinds.registry import kind_of
from tidelog.api.objects import Condition, Container, ContainerImage, Object
from tidelog.api.renaming import Pseudonyms

OWN_ANNOTATIONS = "scheduling.tidelog.dev/"
KEPT_ANNOTATIONS = frozenset(
    (
        "pv.kubernetes.io/bind-completed",
        "pv.kubernetes.io/bound-by-controller",
        "resource.kubernetes.io/pod-claim-name",
        "storage.alpha.kubernetes.io/migrated-plugins",
        "volume.beta.kubernetes.io/storage-class",
        "volume.kubernetes.io/selected-node",
    )
)
"""Annotations of others that decisions depend on."""
KEPT_MESSAGES = frozenset(("PodScheduled", "NodeProvisioningInProgress", "DisruptionTarget"))
"""Types of conditions whose messages are the scheduler's, or about it."""
LEVELS = ("standard", "pseudonymous")
_TEXTS = frozenset(("message", "description"))
_FREE_MAPS = frozenset(("parameters",))
_RAW_KEPT = frozenset(("driver", "reference", "claimName", "readOnly"))
"""Of what is stored as it came."""
_RULES = 1
"""Raised with each change of the rules: two logs with the same digest had the same taken out."""

O = TypeVar("O", bound=Object)  # noqa: E741 # As elsewhere.
_Clean = Callable[[Any], Any]


class Projection:
    """The rules of one session."""

    def __init__(
        self,
        *,
        level: str = "standard",
        key: bytes = b"",
        keep_annotations: Collection[str] = (),
        hide_images: bool = False,
    ) -> None:
        if level not in LEVELS:
            raise UsageError(f'there is no redaction "{level}" (known: {", ".join(LEVELS)})')
        if level == "pseudonymous" and not key:
            raise UsageError("pseudonyms need a key: name a file that holds one")
        self.level = level
        self._keep = KEPT_ANNOTATIONS.union(keep_annotations)
        self._hide_images = hide_images
        self._pseudonyms = Pseudonyms(key) if level == "pseudonymous" else None
        self._known: dict[type, _Clean | None] = {}
        rules = (_RULES, level, sorted(self._keep), (), hide_images)
        self.digest = hmac.digest(key, msgspec.json.encode(rules), hashlib.sha256).hex()
        """Of the rules, and of the key, which it does not tell."""

    def of(self, obj: O) -> O:
        """Return the part of the object that is stored."""
        if type(obj) not in self._known:
            self._of_type(type_info(type(obj)))
        clean = self._known[type(obj)]
        found = cast("O", obj if clean is None else clean(obj))
        if self._pseudonyms is None:
            return found
        renamed = self._pseudonyms.value(msgspec.to_builtins(found), kind_of(obj).name)
        return msgspec.convert(renamed, type(obj))

    def place(self, namespace: str, name: str) -> tuple[str, str]:
        """Namespace and name as a stored object has them, for one of which no more than these is known."""
        if self._pseudonyms is None:
            return namespace, name
        return self._pseudonyms.name(namespace), self._pseudonyms.name(name)

    # --- compiling ----------------------------------------------------------------------------------------------------

    def _of_struct(self, info: StructType) -> _Clean | None:
        if info.cls in self._known:
            return self._known[info.cls]
        parts = [
            (field.name, part)
            for field in info.fields
            if (part := self._of_field(info.cls, field.name, field.type))
        ]
        if info.cls is Condition:
            clean: _Clean | None = _condition
        elif not parts:
            clean = None
        elif len(parts) == 1:
            clean = _one(*parts[0])
        else:
            clean = _several(parts)
        self._known[info.cls] = clean
        return clean

    def _of_field(self, owner: type, name: str, type_: Type) -> _Clean | None:
        if name == "annotations":
            return self._annotations
        if name in _TEXTS:
            return _empty_text
        if name in _FREE_MAPS:
            return _empty_map
        if self._hide_images and (owner, name) in ((Container, "image"), (ContainerImage, "names")):
            return _hidden
        return self._of_type(type_)

    def _of_type(self, type_: Type) -> _Clean | None:
        if isinstance(type_, StructType):
            return self._of_struct(type_)
        if isinstance(type_, UnionType):
            return next((found for one in type_.types if (found := self._of_type(one))), None)
        if isinstance(type_, AnyType):
            return self._raw
        if isinstance(type_, DictType):
            if isinstance(type_.value_type, AnyType):
                return self._raw
            inner = self._of_type(type_.value_type)
            return None if inner is None else _each_value(inner)
        if isinstance(type_, CollectionType):
            inner = self._of_type(type_.item_type)
            return None if inner is None else _each(inner)
        return None

    def _annotations(self, found: dict[str, str]) -> dict[str, str]:
        if not found:
            return found
        kept = {k: v for k, v in found.items() if k in self._keep or k.startswith(OWN_ANNOTATIONS)}
        return found if len(kept) == len(found) else kept

    def _raw(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return None
        kept = {k: v for k, v in value.items() if k in _RAW_KEPT and isinstance(v, str | bool)}
        if self._hide_images and "reference" in kept:
            kept["reference"] = ""
        return value if kept == value else kept


def _one(name: str, part: _Clean) -> _Clean:
    def clean(obj: Any) -> Any:
        before = getattr(obj, name)
        if before is None or (after := part(before)) is before:
            return obj
        return replace(obj, **{name: after})

    return clean


def _several(parts: list[tuple[str, _Clean]]) -> _Clean:
    def clean(obj: Any) -> Any:
        changes = {}
        for name, part in parts:
            before = getattr(obj, name)
            if before is not None and (after := part(before)) is not before:
                changes[name] = after
        return replace(obj, **changes) if changes else obj

    return clean


def _each(part: _Clean) -> _Clean:
    def clean(values: Any) -> Any:
        if not values:
            return values
        found = tuple(map(part, values))
        return found if any(a is not b for a, b in zip(found, values, strict=True)) else values

    return clean


def _each_value(part: _Clean) -> _Clean:
    def clean(values: dict[str, Any]) -> Any:
        found = {key: part(value) for key, value in values.items()}
        return found if any(found[key] is not values[key] for key in values) else values

    return clean


def _condition(condition: Condition) -> Condition:
    if not condition.message or condition.type in KEPT_MESSAGES:
        return condition
    return replace(condition, message="")


def _empty_text(text: str) -> str:
    return "" if text else text


def _empty_map(entries: dict[str, str]) -> dict[str, str]:
    return {} if entries else entries


def _hidden(names: str | tuple[str, ...]) -> str | tuple[str, ...]:
    return type(names)() if names else names

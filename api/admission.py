"""Admit an object to the log: defaults, priorities, identity, and whether it may enter at all.

    admitted, warnings = admit(new, old, cluster, gates, stamp)      # put
    remaining = admit_delete(stored, grace, stamp)                   # delete: None, or the pod that is now terminating
    changed = set_condition(pod, type, status, reason, message, at)  # one condition

All of them are pure functions of their arguments. They raise InvalidObjects with every broken rule and change nothing.
`stamp` is where in the log the fact will stand: it gives an object its uid, its creation time and its resourceVersion,
so that the same log always has the same objects and an object that is created again gets another uid.

An object that brings a uid has been admitted by a cluster before: it is a recording. It keeps its uid, its creation time
and its priority, and its priority class need not be known. Everything else is held to the rules like any other.

Putting replaces the whole object; only what a manifest leaves out because others write it is kept from the stored
object: the status, where the pod is, what admission computed at its creation.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from tidelog.api.cluster import Admission, Cluster, Stamp, uid_of
from tidelog.api.conditions import set_condition
from tidelog.api.errors import FieldError, InvalidObjects, printable
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import kind_of, object_key
from tidelog.api.objects import Object
from tidelog.api.times import format_time
from tidelog.api.validation.field_errors import ErrorList
from tidelog.api.validation.rules import validate, validate_update, warnings

__all__ = ["Stamp", "admit", "admit_delete", "set_condition", "uid_of"]

_O = TypeVar("_O", bound=Object)

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def admit(
    new: _O,
    old: _O | None,
    cluster: Cluster,
    gates: FeatureGates,
    stamp: Stamp,
    *,
    resize: bool = False,
) -> tuple[_O, tuple[str, ...]]:
    """The object to store, and what to tell the user about it. `old` is what is stored under its name now.

    Returns `old` itself if nothing changes, so that nothing need be appended. Without a name but with a generateName the
    object is new and gets one. `resize` lets cpu and memory of a pod's containers change, which nothing else does.
    """
    errors = ErrorList()
    said: list[str] = []
    kind = kind_of(new)
    prepared = cast(_O, _named(new, stamp)) if old is None else new
    if kind.prepare is not None:
        admission = Admission(cluster=cluster, gates=gates, stamp=stamp, errors=errors, warnings=said)
        prepared = kind.prepare(prepared, old, admission)
    if old is None:
        prepared = _created(prepared, stamp)
        errors.extend(validate(prepared, gates, constraints_max=cluster.constraints_max))
    else:
        prepared = _updated(prepared, old)
        more = cluster.constraints_max
        errors.extend(validate_update(old, prepared, gates, resize=resize, constraints_max=more))
    if errors:
        raise InvalidObjects(_subject(new), errors)
    if old is not None:
        if prepared == old:
            return old, ()
        meta = replace(prepared.metadata, resource_version=str(stamp.seq))
        prepared = replace(prepared, metadata=meta)
    return prepared, (*said, *warnings(prepared))


def _subject(obj: Object) -> str:
    meta = obj.metadata
    return f'{kind_of(obj).name} "{printable(meta.name or meta.generate_name, 253)}"'


# --- identity -----------------------------------------------------------------------------------------------------------


def _named(obj: Object, stamp: Stamp) -> Object:
    meta = obj.metadata
    if meta.name or not meta.generate_name:
        return obj
    number = int(hashlib.sha256(uid_of(object_key(obj), stamp).encode()).hexdigest(), 16)
    suffix = ""
    for _ in range(5):
        number, letter = divmod(number, len(_SUFFIX_LETTERS))
        suffix += _SUFFIX_LETTERS[letter]
    return replace(obj, metadata=replace(meta, name=meta.generate_name + suffix))


def _created(obj: _O, stamp: Stamp) -> _O:
    meta = obj.metadata
    changed = replace(
        meta,
        uid=meta.uid or uid_of(object_key(obj), stamp),
        creation_timestamp=meta.creation_timestamp or format_time(stamp.at),
        generation=meta.generation or 1,
        resource_version=str(stamp.seq),
    )
    return replace(obj, metadata=changed)


def _updated(obj: _O, old: _O) -> _O:
    """The metadata of an object go on; its generation counts the changes of what is wanted of it."""
    before, meta = old.metadata, obj.metadata
    generation = before.generation + (_wanted(obj) != _wanted(old))
    changed = replace(
        meta,
        uid=meta.uid or before.uid,
        generate_name=meta.generate_name or before.generate_name,
        creation_timestamp=before.creation_timestamp or meta.creation_timestamp,
        deletion_timestamp=before.deletion_timestamp or meta.deletion_timestamp,
        deletion_grace_period_seconds=(
            before if before.deletion_timestamp else meta
        ).deletion_grace_period_seconds,
        # A negative one is for validation to refuse.
        generation=max(meta.generation, generation) if meta.generation >= 0 else meta.generation,
        resource_version=before.resource_version,
    )
    changes: dict[str, Any] = {"metadata": changed}
    status = getattr(obj, "status", None)
    if status is not None and status == type(status)():
        # A manifest without a status has nothing to say about it.
        changes["status"] = getattr(old, "status", None)
    return replace(obj, **changes)


def _wanted(obj: Object) -> tuple[Any, ...]:
    return tuple(
        getattr(obj, field) for field in obj.__struct_fields__ if field not in ("metadata", "status")
    )


# --- deletion -----------------------------------------------------------------------------------------------------------


def admit_delete(old: _O, grace: int | None, stamp: Stamp) -> _O | None:
    """Return what a deletion leaves of an object: nothing, or a pod that its node has to finish first.

    A pod that no node runs goes at once; any other gets a deletionTimestamp `grace` seconds (None: what its spec says)
    from now, or goes at once if that is 0. Deleting it again can only shorten that. Raises InvalidObjects for what
    cannot be deleted.
    """
    kind = kind_of(old)
    if old.metadata.name in kind.protected_names:
        rule = kind.protected_rule
        raise InvalidObjects(
            _subject(old),
            [FieldError(path="metadata.name", kind="Forbidden", value=old.metadata.name, rule=rule)],
        )
    return None if kind.remains is None else cast("_O | None", kind.remains(old, grace, stamp))

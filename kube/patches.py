"""The three kinds of patches, applied to the plain data of an object.

    merged(manifest, patch)                  RFC 7386: what is null goes, mappings are merged, everything else is replaced
    strategically_merged(manifest, patch)    Kubernetes' own: lists of things that have a name are merged by it
    json_patched(manifest, operations)       RFC 6902, by the library `jsonpatch` of the extra [kube]

Which lists are merged and by what is said in `MERGE_KEYS`, by the name of the field, as Kubernetes' types say it; every other list is replaced.
Nothing that was given is changed. Raises PatchError with what is wrong.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.api.errors import TidelogError

OPERATIONS_MAX = 10_000
"""Of one JSON patch; as many as Kubernetes takes."""
DEPTH_MAX = 200
"""Levels of a patch."""


class PatchError(TidelogError):
    """The patch is not one, or does not fit."""


# --- merge patches ------------------------------------------------------------------------------------------------------


# --- strategic merge patches --------------------------------------------------------------------------------------------

MERGE_KEYS: Mapping[str, str] = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "resourceClaims": "name",
    "resourceClaimStatuses": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
    "podGroupTemplates": "name",
}
"""Field → what its items are told apart by."""
ADDRESSES = "addresses"
PORTS = "ports"
PRIMITIVES = frozenset(("finalizers",))
"""Lists of texts that are merged as sets."""

_PATCH = "$patch"
_RETAIN = "$retainKeys"
_DELETE = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"


def merge_key(field: str, item: Mapping[str, Any]) -> str:
    """Return the key by which the items of a list are merged; empty if the list is replaced."""
    if field == PORTS:
        return "containerPort" if "containerPort" in item else "port"
    if field == ADDRESSES:
        return "type"
    return MERGE_KEYS.get(field, "")


def strategically_merged(target: Mapping[str, Any], patch: Any) -> dict[str, Any]:
    """The object with the strategic merge patch applied."""
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch must be an object")
    return _merge_map(target, patch, 0)


def _merge_map(target: Mapping[str, Any], patch: Mapping[str, Any], depth: int) -> dict[str, Any]:
    if depth > DEPTH_MAX:
        raise PatchError(f"a patch may have at most {DEPTH_MAX} levels")
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchError(f"unknown patch directive {directive!r}")
    found = dict(target)
    retained = patch.get(_RETAIN)
    if isinstance(retained, list):
        found = {key: value for key, value in found.items() if key in retained}
    for key, value in patch.items():
        if key in (_PATCH, _RETAIN) or key.startswith((_DELETE, _ORDER)):
            continue
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            mine = found.get(key)
            found[key] = _merge_map(mine if isinstance(mine, dict) else {}, value, depth + 1)
        elif isinstance(value, list):
            mine = found.get(key)
            found[key] = _merge_list(key, mine if isinstance(mine, list) else [], value, depth + 1)
        else:
            found[key] = value
    for key, value in patch.items():
        if not isinstance(value, list):
            continue
        if key.startswith(_DELETE):
            field = key.removeprefix(_DELETE)
            mine = found.get(field)
            if isinstance(mine, list):
                found[field] = [item for item in mine if item not in value]
        elif key.startswith(_ORDER):
            field = key.removeprefix(_ORDER)
            mine = found.get(field)
            if isinstance(mine, list):
                before = target.get(field)
                found[field] = _arranged(field, mine, before if isinstance(before, list) else [], value)
    return found


def _merge_list(field: str, target: Sequence[Any], patch: Sequence[Any], depth: int) -> list[Any]:
    if field in PRIMITIVES:
        return _arranged(field, [*target, *(item for item in patch if item not in target)], target, patch)
    if not patch:
        return list(target) if field in MERGE_KEYS or field in (ADDRESSES, PORTS) else []
    items = [item for item in patch if isinstance(item, dict)]
    if any(item.get(_PATCH) == "replace" and len(item) == 1 for item in items):
        return [item for item in patch if not (isinstance(item, dict) and _PATCH in item)]
    sample = next((item for item in items if len(item) > (_PATCH in item)), None)
    if sample is None or len(items) != len(patch):
        return list(patch) if len(items) != len(patch) or not items else list(target)
    name = merge_key(field, sample)
    if not name:
        return [item for item in patch if _PATCH not in item]
    found = list(target)
    for item in items:
        if name not in item:
            raise PatchError(f"map: {item} does not contain declared merge key: {name}")
        place = next(
            (
                place
                for place, mine in enumerate(found)
                if isinstance(mine, dict) and mine.get(name) == item[name]
            ),
            None,
        )
        if item.get(_PATCH) == "delete":
            if place is not None:
                del found[place]
        elif place is None:
            found.append(_merge_map({}, item, depth))
        else:
            found[place] = _merge_map(found[place], item, depth)
    return _arranged(field, found, target, items)


def _arranged(field: str, items: Sequence[Any], before: Sequence[Any], order: Sequence[Any]) -> list[Any]:
    """The items, those that `order` names in its order, the others in the order in which they were `before`.

    Between the two the order before decides, where both were there; else those that `order` names come first.
    """

    def name(item: Any) -> Any:
        found = item.get(merge_key(field, item)) if isinstance(item, dict) else item
        return found if isinstance(found, str | int) else repr(found)

    wanted = {name(item): place for place, item in enumerate(order)}
    known = {name(item): place for place, item in enumerate(before)}
    named = sorted((item for item in items if name(item) in wanted), key=lambda item: wanted[name(item)])
    others = [item for item in items if name(item) not in wanted]
    found: list[Any] = []
    while named and others:
        mine, other = known.get(name(named[0])), known.get(name(others[0]))
        is_other_first = mine is not None and other is not None and other < mine
        found.append((others if is_other_first else named).pop(0))
    return found + named + others


# --- JSON patches -------------------------------------------------------------------------------------------------------


def json_patched(target: Mapping[str, Any], operations: Any) -> dict[str, Any]:
    """The object with the operations of a JSON patch applied, all or none."""
    import jsonpatch
    import jsonpointer

    if not isinstance(operations, list):
        raise PatchError("a JSON patch must be a list of operations")
    if len(operations) > OPERATIONS_MAX:
        raise PatchError(
            f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {len(operations)}"
        )
    try:
        found = jsonpatch.JsonPatch(operations).apply(copy.deepcopy(dict(target)))
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise PatchError(f"the JSON patch cannot be applied: {error}") from None
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise PatchError(f"the JSON patch is not one: {type(error).__name__}: {error}") from None
    if not isinstance(found, dict):
        raise PatchError("a JSON patch must leave an object")
    return found

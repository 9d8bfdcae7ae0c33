"""Name what a changed object lost: labels, taints, fields that the old one has and the new one has not.

Putting an object replaces it whole, so a manifest that leaves something out takes it away. Items of lists are told apart by what Kubernetes merges
them by: a container by its name, a condition by its type, a taint by its key and effect. Costs encoding both objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from tidelog.api.manifests.manifests import to_builtins
from tidelog.api.objects import Object

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
NAMED_MAX = 8
"""More removals than this are only said to exist."""
_ITEM_KEYS = ("name", "type", "uid", "containerPort", "topologyKey", "device", "key")
"""The first of these that an item has names it."""
_FREE = ("labels", "annotations", "nodeSelector", "allocatable", "capacity", "requests", "limits")
"""Fields whose keys people choose."""
_IDENTITY = frozenset(
    ("uid", "resourceVersion", "creationTimestamp", "generation", "deletionTimestamp", "managedFields")
)


def removals(old: Object, new: Object) -> str:
    """`metadata.labels[zone], spec.taints[dedicated=batch:NoSchedule]`; empty if nothing was lost."""
    found = list(islice(_lost(to_builtins(old), to_builtins(new), ""), NAMED_MAX + 1))
    more = ", and more" if len(found) > NAMED_MAX else ""
    return ", ".join(found[:NAMED_MAX]) + more


def _lost(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, dict):
        yield from _lost_keys(old, new if isinstance(new, dict) else {}, path)
    elif isinstance(old, list):
        yield from _lost_items(old, new if isinstance(new, list) else [], path)


def _lost_keys(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, part in old.items():
        where = field_path(path, name)
        if is_identity(path, name):
            continue
        if name in new or isinstance(part, list):
            yield from _lost(part, new.get(name), where)
        elif part not in ({}, "", False, 0):
            # A mapping whose keys people chose is told key by key.
            inner = list(_lost(part, {}, where)) if isinstance(part, dict) else []
            yield from inner or [where]


def _lost_items(old: Sequence[Any], new: Sequence[Any], path: str) -> Iterator[str]:
    kept = {item_name(item): item for item in new}
    for item in old:
        name = item_name(item)
        if name not in kept:
            yield f"{path}[{name}]"
        else:
            yield from _lost(item, kept[name], f"{path}[{name}]")


def field_path(path: str, name: str) -> str:
    """The path of a field of what is at `path`: `spec.taints`, `metadata.labels[zone]` where people chose the name."""
    if path.endswith(_FREE):
        return f"{path}[{name}]"
    return f"{path}.{name}" if path else name


def is_identity(path: str, name: str) -> bool:
    """Whether the cluster writes this field by itself, or kubectl keeps its own book in it."""
    return (path == "metadata" and name in _IDENTITY) or name == _LAST_APPLIED


def item_name(item: Any) -> str:
    """By what an item of a list is told from the others."""
    if not isinstance(item, dict):
        return str(item)
    if "effect" in item or "operator" in item:
        value = f"={item['value']}" if item.get("value") else ""
        return f"{item.get('key', '')}{value}:{item.get('effect', '')}"
    return next((str(item[key]) for key in _ITEM_KEYS if key in item), "…")

"""The objects of a cluster by kind, namespace and name: what admission looks things up in.

A plain table, kept by whoever applies facts: `put` and `delete` cost the same however many objects there are. It begins
with what exists in every cluster: the two system priority classes and the system namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.api.cluster import NAMESPACE_LABEL, SYSTEM_NAMESPACES, group_of
from tidelog.api.kinds.registry import KIND_OF_TYPE
from tidelog.api.objects import Namespace, Object, ObjectMeta, Pod, PriorityClass


def _system_class(name: str, value: int, description: str) -> PriorityClass:
    return PriorityClass(
        metadata=ObjectMeta(name=name, generation=1),
        value=value,
        description=description,
        preemption_policy="PreemptLowerPriority",
    )


INITIAL_OBJECTS: tuple[Object, ...] = (
    *(
        Namespace(metadata=ObjectMeta(name=name, labels={NAMESPACE_LABEL: name}, generation=1))
        for name in SYSTEM_NAMESPACES
    ),
    _system_class(
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    _system_class(
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
)
"""Objects that exist before the first record. None of them can be deleted."""


class ObjectTable:
    """Implements `tidelog.api.cluster.Cluster` on dictionaries."""

    def __init__(self, objects: Sequence[Object] = ()) -> None:
        self._objects: dict[tuple[str, str], dict[str, Object]] = {}
        """By kind and namespace, then by name, in the order of first arrival."""
        self._members: dict[tuple[str, str], dict[str, Pod]] = {}
        """By namespace and group, then by name; no entry for a group without members."""
        self.constraints_max = 1
        """The configuration in force may allow more."""
        for obj in (*INITIAL_OBJECTS, *objects):
            self.put(obj)

    def put(self, obj: Object) -> None:
        """A new object or a new version of one."""
        meta = obj.metadata
        name, place = meta.name, (KIND_OF_TYPE[type(obj)].name, meta.namespace)
        named = self._objects.get(place)
        if named is None:
            named = self._objects[place] = {}
        if isinstance(obj, Pod):
            self._regroup(named.get(name), obj)
        named[name] = obj

    def _regroup(self, old: Object | None, new: Pod) -> None:
        """Enter a pod in its group; a new version takes the place of the one before, as in a table that is loaded."""
        meta, group = new.metadata, group_of(new)
        if not isinstance(old, Pod) or group_of(old) != group:
            self._leave(old)
        if group:
            self._members.setdefault((meta.namespace, group), {})[meta.name] = new

    def delete(self, kind: str, namespace: str, name: str) -> Object | None:
        """Take the object out; None if it was not there."""
        named = self._objects.get((kind, namespace), {})
        found = named.pop(name, None)
        if not named:
            self._objects.pop((kind, namespace), None)
        self._leave(found)
        return found

    def _leave(self, obj: Object | None) -> None:
        if isinstance(obj, Pod) and (group := group_of(obj)):
            members = self._members[obj.metadata.namespace, group]
            del members[obj.metadata.name]
            if not members:
                del self._members[obj.metadata.namespace, group]

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        return self._objects.get((kind, namespace), {}).get(name)

    def of_kind(self, kind: str, namespace: str = "") -> Iterable[Object]:
        return self._objects.get((kind, namespace), {}).values()

    def member(self, namespace: str, group: str) -> Pod | None:
        return next(iter(self._members.get((namespace, group), {}).values()), None)

"""The objects other than pods and nodes that plugins may look at.

Kept by the state machine from the log's records: `put` and `delete` cost the size of one namespace's table at most. Pods and
nodes are accepted and ignored, so that the caller need not tell kinds apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from tidelog.api.object_table import INITIAL_OBJECTS
from tidelog.api.objects import (
    DeviceClass,
    LabelSelector,
    Namespace,
    Node,
    Object,
    OwnerReference,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    ResourceClaim,
    ResourceSlice,
    Service,
    StatefulSet,
)
from tidelog.api.selectors import SelectorError, label_matcher, map_matcher
from tidelog.api.writes import Write, written
from tidelog.framework.devices import Devices
from tidelog.framework.interface import LevelConstraint
from tidelog.framework.storage import KINDS_OF_STORAGE, Storage

_OWNER_TYPES: dict[tuple[str, str], type[ReplicationController | ReplicaSet | StatefulSet]] = {
    ("v1", "ReplicationController"): ReplicationController,
    ("apps/v1", "ReplicaSet"): ReplicaSet,
    ("apps/v1", "StatefulSet"): StatefulSet,
}
_SYSTEM_NAMESPACES = {obj.metadata.name: obj for obj in INITIAL_OBJECTS if isinstance(obj, Namespace)}
"""No record tells of them, and yet a `namespaceSelector` selects them: they exist in every cluster, for admission too."""
_O = TypeVar("_O", bound=Object)
_Named = dict[str, dict[str, Object]]
"""Namespace → name → object."""


class Listers:
    """Implements `tidelog.framework.interface.Listers`."""

    def __init__(self) -> None:
        self._namespaces = dict(_SYSTEM_NAMESPACES)
        self._tables: dict[type, _Named] = defaultdict(dict)
        """Every kind but pods, nodes and namespaces."""
        self.gangs: Callable[[Pod], tuple[int, int] | None] = lambda _pod: None
        self.levels: Callable[[Pod], Sequence[LevelConstraint]] = lambda _pod: ()
        """They answer `gang_of` and `levels_of`; who follows the groups puts himself here."""
        self.generation = 0
        """Grows when a namespace or a device class changes in more than its version, or the selector of a Service or controller does: what pods are selected and served by."""
        self.storage = Storage()
        self.devices = Devices()
        self._budgets: dict[str, tuple[PodDisruptionBudget, ...]] = {}
        """The last answers of `budgets`, until a budget of the namespace changes."""

    # --- following the log --------------------------------------------------------------------------------------------

    def put(self, obj: Object) -> None:
        """A new object or a new version of one."""
        self.devices.put(obj)
        name = obj.metadata.name
        if isinstance(obj, Namespace):
            self._count_change(self._namespaces.get(name), obj)
            self._namespaces[name] = obj
        elif isinstance(obj, KINDS_OF_STORAGE):
            self.storage.put(obj)
        elif not isinstance(obj, Pod | Node):
            named = self._tables[type(obj)].setdefault(obj.metadata.namespace, {})
            self._count_change(named.get(name), obj)
            named[name] = obj
            self._forget_answers(obj)

    def delete(self, obj: Object) -> None:
        """The object of this kind, namespace and name is gone."""
        self._count_change(obj, None)
        self.devices.delete(obj)
        if isinstance(obj, Namespace):
            self._namespaces.pop(obj.metadata.name, None)
        elif isinstance(obj, KINDS_OF_STORAGE):
            self.storage.delete(obj)
        elif not isinstance(obj, Pod | Node):
            table = self._tables[type(obj)]
            named = table.get(obj.metadata.namespace, {})
            named.pop(obj.metadata.name, None)
            if not named:
                table.pop(obj.metadata.namespace, None)
            self._forget_answers(obj)

    def _count_change(self, old: Object | None, new: Object | None) -> None:
        # What a controller wants more of, and what its status says, comes often and changes nothing of this.
        self.generation += _selecting(old) != _selecting(new)

    def _forget_answers(self, obj: Object) -> None:
        if isinstance(obj, PodDisruptionBudget):
            self._budgets.pop(obj.metadata.namespace, None)

    # --- what an attempt has promised ---------------------------------------------------------------------------------

    def get(self, key: str) -> Object | None:
        """The object of this `Kind/namespace/name`, as plugins see it; only of claims and storage."""
        kind, namespace, name = key.split("/")
        if kind == ResourceClaim.__name__:
            return self._tables[ResourceClaim].get(namespace, {}).get(name)
        return self.storage.get(kind, namespace, name)

    def promise(self, writes: Iterable[Write]) -> list[tuple[str, Object | None]]:
        """Show plugins the objects as these writes will leave them; returns what to `restore`."""
        before = []
        for write in writes:
            found = self.get(write.key)
            before.append((write.key, found))
            after = written(found, write)
            self._show(write.key, after)
            self.devices.promised(found, after)
        return before

    def restore(self, before: Sequence[tuple[str, Object | None]]) -> None:
        """Show the objects as they were."""
        for key, obj in reversed(before):
            self._show(key, obj)

    def _show(self, key: str, obj: Object | None) -> None:
        if obj is not None:
            self.put(obj)
        elif (found := self.get(key)) is not None:
            self.delete(found)

    # --- what plugins ask ----------------------------------------------------------------------------------------------

    def namespace(self, name: str) -> Namespace | None:
        """The namespace of this name."""
        return self._namespaces.get(name)

    def budgets(self, namespace: str) -> Sequence[PodDisruptionBudget]:
        """The disruption budgets of a namespace, by name."""
        found = self._budgets.get(namespace)
        if found is None:
            table = self._tables[PodDisruptionBudget].get(namespace, {})
            found = tuple(b for _, b in sorted(table.items()) if isinstance(b, PodDisruptionBudget))
            self._budgets[namespace] = found
        return found

    def resource_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim of this name."""
        return self.object_of(ResourceClaim, namespace, name)

    def resource_claims(self) -> Sequence[ResourceClaim]:
        """All claims, by namespace and name."""
        return self.objects_of(ResourceClaim)

    def resource_slices(self) -> Sequence[ResourceSlice]:
        """All slices of devices, by name."""
        return self.objects_of(ResourceSlice)

    def device_class(self, name: str) -> DeviceClass | None:
        """The device class of this name."""
        return self.object_of(DeviceClass, "", name)

    def object_of(self, kind: type[_O], namespace: str, name: str) -> _O | None:
        """The object of this kind, also of one that another package registered; the namespace is empty for kinds without."""
        found = self._tables[kind].get(namespace, {}).get(name)
        return found if isinstance(found, kind) else None

    def objects_of(self, kind: type[_O]) -> Sequence[_O]:
        """All objects of this kind, by namespace and name."""
        found = (named for _, named in sorted(self._tables[kind].items()))
        return [obj for named in found for _, obj in sorted(named.items()) if isinstance(obj, kind)]

    def gang_of(self, pod: Pod) -> tuple[int, int] | None:
        """How many members the pod's gang needs, and how many are known; None if it is in no known group, or in no gang."""
        return self.gangs(pod)

    def levels_of(self, pod: Pod) -> Sequence[LevelConstraint]:
        """The topology levels that the pod's group asks for, the widest first; none if it is in no known group."""
        return self.levels(pod)

    def owner_selectors(self, pod: Pod) -> Sequence[LabelSelector]:
        """Selectors that a pod must match, all of them, to count as one of this pod's kin; none: it has no kin.

        They come from the Services that select the pod and from the controller that owns it. As in kube-scheduler, the
        plain maps of Services and of a ReplicationController are merged into one.
        """
        merged: dict[str, str] = {}
        for _, service in sorted(self._tables[Service].get(pod.metadata.namespace, {}).items()):
            assert isinstance(service, Service)
            if map_matcher(service.spec.selector)(pod.metadata.labels):
                merged.update(service.spec.selector)
        owner = self._owner(pod)
        if isinstance(owner, ReplicationController):
            merged.update(owner.spec.selector)
        selectors = [LabelSelector(match_labels=merged)] if merged else []
        if isinstance(owner, ReplicaSet | StatefulSet) and _selects_something(owner.spec.selector):
            assert owner.spec.selector is not None
            selectors.append(owner.spec.selector)
        return selectors

    def _owner(self, pod: Pod) -> Object | None:
        reference = _controller(pod)
        if reference is None:
            return None
        kind = _OWNER_TYPES.get((reference.api_version, reference.kind))
        if kind is None:
            return None
        return self._tables[kind].get(pod.metadata.namespace, {}).get(reference.name)


def _selecting(obj: Object | None) -> object:
    """The part of an object by which pods are selected and served; None if it has none."""
    if isinstance(obj, Service | ReplicationController | ReplicaSet | StatefulSet):
        return obj.spec.selector
    if isinstance(obj, Namespace | DeviceClass):
        return replace(obj, metadata=replace(obj.metadata, resource_version="", generation=0))
    return None


def _controller(pod: Pod) -> OwnerReference | None:
    return next((o for o in pod.metadata.owner_references if o.controller), None)


def _selects_something(selector: LabelSelector | None) -> bool:
    """Whether it adds a requirement; an empty, absent or broken selector adds none."""
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return False
    try:
        label_matcher(selector)
    except SelectorError:
        return False
    return True

"""Devices and what claims them: the part of the listers that plugins for devices ask.

Kept by `tidelog.framework.listers` from the log's records, with what attempts have promised put over the stored claims. A change costs the same
however many objects there are; `slices`, `rules` and `class_backing` are made anew after a change of one of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.api.objects import DeviceClass, DeviceTaintRule, Object, ResourceClaim, ResourceSlice
from tidelog.api.resources import CLASS_PREFIX

CHANGES_MAX = 8192
"""So many changes of claims are remembered; arbitrary. A reader that is further behind looks at all claims."""

PoolKey = tuple[str, str]
"""Driver and name of a pool."""
ClaimChange = tuple[ResourceClaim | None, ResourceClaim | None]
"""Before and after."""


class Devices:
    """Slices, classes and taint rules, and the changes of claims."""

    def __init__(self, first: int = 0) -> None:
        """`first`: the generation in which it begins."""
        self.slices_generation = first
        """Grows with each change of a slice or a taint rule."""
        self.shared_generation = first
        """Grows with each change of a slice that is not one node's own, and of a taint rule."""
        self.classes_generation = first
        """Grows with each change of a class."""
        self._slices: dict[str, ResourceSlice] = {}
        self._of_pool: dict[PoolKey, dict[str, str]] = {}
        """Driver and pool → name of a slice → the node that it names, or nothing."""
        self._rules: dict[str, DeviceTaintRule] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._claims: dict[tuple[str, str], ResourceClaim] = {}
        self._promised: dict[tuple[str, str], None] = {}
        """Claims whose allocation an attempt has promised, and that is not in the log yet."""
        self._owned: dict[str, dict[tuple[str, str], None]] = {}
        """Uid of a pod → claims that it controls."""
        self._changes: list[ClaimChange] = []
        self._first = first
        """The number of the first change that is remembered."""
        self._backing: tuple[int, dict[str, DeviceClass]] = (-1, {})

    # --- following the log --------------------------------------------------------------------------------------------

    def put(self, obj: Object) -> None:
        """A new object or a new version of one; of another kind it is ignored."""
        name = obj.metadata.name
        if isinstance(obj, ResourceClaim):
            key = (obj.metadata.namespace, name)
            self._claim_changed(key, self._claims.get(key), obj)
        elif isinstance(obj, ResourceSlice):
            self._slice_changed(name, obj)
        elif isinstance(obj, DeviceTaintRule):
            self._rules[name] = obj
            self.slices_generation += 1
            self.shared_generation += 1
        elif isinstance(obj, DeviceClass):
            self._classes[name] = obj
            self.classes_generation += 1

    def delete(self, obj: Object) -> None:
        """The object of this kind, namespace and name is gone."""
        name = obj.metadata.name
        if isinstance(obj, ResourceClaim):
            key = (obj.metadata.namespace, name)
            self._claim_changed(key, self._claims.get(key), None)
        elif isinstance(obj, ResourceSlice):
            self._slice_changed(name, None)
        elif isinstance(obj, DeviceTaintRule):
            self._rules.pop(name, None)
            self.slices_generation += 1
            self.shared_generation += 1
        elif isinstance(obj, DeviceClass):
            self._classes.pop(name, None)
            self.classes_generation += 1

    def _slice_changed(self, name: str, new: ResourceSlice | None) -> None:
        old = self._slices.pop(name, None)
        if old is not None:
            named = self._of_pool[_pool_of(old)]
            del named[name]
            if not named:
                del self._of_pool[_pool_of(old)]
        if new is not None:
            self._slices[name] = new
            self._of_pool.setdefault(_pool_of(new), {})[name] = new.spec.node_name or ""
        self.slices_generation += 1
        if any(one is not None and not one.spec.node_name for one in (old, new)):
            self.shared_generation += 1

    def promised(self, before: Object | None, after: Object | None) -> None:
        """This is how an attempt will leave the object; `put` has been told."""
        if isinstance(before, ResourceClaim) and isinstance(after, ResourceClaim):
            if before.status.allocation is None and after.status.allocation is not None:
                self._promised[after.metadata.namespace, after.metadata.name] = None

    def _claim_changed(
        self, key: tuple[str, str], old: ResourceClaim | None, new: ResourceClaim | None
    ) -> None:
        for claim, is_there in ((old, False), (new, True)):
            for owner in () if claim is None else claim.metadata.owner_references:
                if owner.controller:
                    owned = self._owned.setdefault(owner.uid, {})
                    owned.pop(key, None)
                    if is_there:
                        owned[key] = None
                    elif not owned:
                        del self._owned[owner.uid]
        self._promised.pop(key, None)
        if new is None:
            self._claims.pop(key, None)
        else:
            self._claims[key] = new
        self._changes.append((old, new))
        if len(self._changes) > 2 * CHANGES_MAX:
            del self._changes[:CHANGES_MAX]
            self._first += CHANGES_MAX

    # --- what plugins ask ---------------------------------------------------------------------------------------------

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim of this name."""
        return self._claims.get((namespace, name))

    def is_promised(self, claim: ResourceClaim) -> bool:
        """Whether the claim has its devices by a promise alone. (kube-scheduler: its allocation is in flight.)"""
        return (claim.metadata.namespace, claim.metadata.name) in self._promised

    def claims(self) -> Sequence[ResourceClaim]:
        """All claims, in no order that means anything: for sums."""
        return tuple(self._claims.values())

    def claims_controlled_by(self, uid: str) -> Sequence[ResourceClaim]:
        """The claims that the pod of this uid controls, by namespace and name."""
        return tuple(self._claims[key] for key in sorted(self._owned.get(uid, ())))

    @property
    def claims_generation(self) -> int:
        """The number of the next change of a claim."""
        return self._first + len(self._changes)

    def claim_changes(self, since: int) -> Sequence[ClaimChange] | None:
        """Return the changes of claims since that generation; None if it is too long ago, or none of these claims'."""
        if not self._first <= since <= self.claims_generation:
            return None
        return self._changes[since - self._first :]

    def slices(self) -> Sequence[ResourceSlice]:
        """All slices, by name."""
        return tuple(self._slices[name] for name in sorted(self._slices))

    def slices_of_pool(self, driver: str, pool: str) -> Sequence[ResourceSlice]:
        """The slices of the pool, in no order that means anything."""
        return tuple(self._slices[name] for name in self._of_pool.get((driver, pool), {}))

    def nodes_of_pool(self, driver: str, pool: str) -> Sequence[str]:
        """The nodes that slices of the pool name, in no order that means anything; an empty name for a slice that more than one node may reach."""
        return tuple(self._of_pool.get((driver, pool), {}).values())

    def rules(self) -> Sequence[DeviceTaintRule]:
        """All taint rules, by name."""
        return tuple(self._rules[name] for name in sorted(self._rules))

    def device_class(self, name: str) -> DeviceClass | None:
        """The class of this name."""
        return self._classes.get(name)

    def class_backing(self, resource: str) -> DeviceClass | None:
        """The class whose devices serve requests for this extended resource; of two the newer one, then that of the smaller name."""
        if resource.startswith(CLASS_PREFIX):
            return self._classes.get(resource.removeprefix(CLASS_PREFIX))
        generation, found = self._backing
        if generation != self.classes_generation:
            found = {}
            for one in sorted(self._classes.values(), key=_least_wanted_first):
                if one.spec.extended_resource_name:
                    found[one.spec.extended_resource_name] = one
            self._backing = (self.classes_generation, found)
        return found.get(resource)


def _least_wanted_first(found: DeviceClass) -> tuple[str, tuple[int, ...]]:
    name = found.metadata.name
    return found.metadata.creation_timestamp, (*(-ord(letter) for letter in name), 1)


def _pool_of(found: ResourceSlice) -> PoolKey:
    return found.spec.driver, found.spec.pool.name

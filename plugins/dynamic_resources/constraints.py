"""Constraints between the devices of a claim: the same attribute, or all different ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidelog.api.objects import DeviceConstraint
from tidelog.plugins.dynamic_resources.inventory import PoolDevice

Attribute = tuple[str, str | int | bool]
"""Type and value."""


class Constraint(Protocol):
    """A constraint on a claim's devices: the devices chosen so far allow a further one, or do not."""

    def allows(self, request: str, sub_request: str, device: PoolDevice) -> bool:
        """Whether the device could be added."""

    def add(self, request: str, sub_request: str, device: PoolDevice) -> None:
        """It is; `allows` said so."""

    def remove(self, request: str, sub_request: str, device: PoolDevice) -> None:
        """The last that was added is given back."""


class _OfRequests:
    """Concerns the requests that it lists, by name or as `request/alternative`; all, if it lists none."""

    def __init__(self, attribute: str, requests: Sequence[str]) -> None:
        self._attribute = attribute
        self._requests = frozenset(requests)

    def _concerns(self, request: str, sub_request: str) -> bool:
        if not self._requests or request in self._requests:
            return True
        return bool(sub_request) and f"{request}/{sub_request}" in self._requests


class MatchAttribute(_OfRequests):
    """All devices have the attribute, with one value and type."""

    def __init__(self, attribute: str, requests: Sequence[str]) -> None:
        super().__init__(attribute, requests)
        self._value: Attribute | None = None
        self._count = 0

    def allows(self, request: str, sub_request: str, device: PoolDevice) -> bool:
        if not self._concerns(request, sub_request):
            return True
        found = attribute_of(device, self._attribute)
        return found is not None and (not self._count or found == self._value)

    def add(self, request: str, sub_request: str, device: PoolDevice) -> None:
        if self._concerns(request, sub_request):
            self._value = attribute_of(device, self._attribute)
            self._count += 1

    def remove(self, request: str, sub_request: str, device: PoolDevice) -> None:
        self._count -= self._concerns(request, sub_request)


class DistinctAttribute(_OfRequests):
    """All devices have the attribute, and no two the same value."""

    def __init__(self, attribute: str, requests: Sequence[str]) -> None:
        super().__init__(attribute, requests)
        self._values: list[Attribute | None] = []

    def allows(self, request: str, sub_request: str, device: PoolDevice) -> bool:
        if not self._concerns(request, sub_request):
            return True
        found = attribute_of(device, self._attribute)
        return found is not None and found not in self._values

    def add(self, request: str, sub_request: str, device: PoolDevice) -> None:
        if self._concerns(request, sub_request):
            self._values.append(attribute_of(device, self._attribute))

    def remove(self, request: str, sub_request: str, device: PoolDevice) -> None:
        if self._concerns(request, sub_request):
            self._values.pop()


def constraint_of(found: DeviceConstraint) -> Constraint | None:
    """None if it says nothing that is known."""
    if found.match_attribute is not None:
        return MatchAttribute(found.match_attribute, found.requests)
    if found.distinct_attribute is not None:
        return DistinctAttribute(found.distinct_attribute, found.requests)
    return None


def attribute_of(device: PoolDevice, name: str) -> Attribute | None:
    """By its full name, or by its bare one if the domain is the driver's."""
    attributes = device.device.attributes
    found = attributes.get(name)
    if found is None:
        domain, slash, bare = name.partition("/")
        if slash and domain == device.key[0]:
            found = attributes.get(bare)
    if found is None:
        return None
    if found.string is not None:
        return "string", found.string
    if found.int_value is not None:
        return "int", found.int_value
    if found.bool_value is not None:
        return "bool", found.bool_value
    return None if found.version is None else ("version", found.version)

"""Selectors of devices: CEL over `device`, compiled once and asked about each device that an allocation reaches.

    device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model in ["a100", "h100"]

The language is in `api/cel/`. What it does not support is refused at admission, by name and position, so that no selector is ever half
understood. A device that lacks an attribute makes an error, which `&&` and `||` absorb where the other side decides alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.api.cel.errors import EvaluationError, InvalidExpression
from tidelog.api.cel.kubernetes_functions import quantity_of, semver_of
from tidelog.api.cel.program import LENGTH_MAX, compile_selector, device_value
from tidelog.api.cel.values import CelMap
from tidelog.api.objects import Device, DeviceAttribute

Value = str | int | bool
Matcher = Callable[[str, Device], bool]
"""Given the driver and a device of it. A selector that ends in an error does not match."""

DeviceSelectorError = InvalidExpression
"""The expression is no CEL, or CEL that is not supported here."""

__all__ = ["LENGTH_MAX", "DeviceSelectorError", "Matcher", "attribute", "device_matcher", "value_of"]


def device_matcher(expression: str) -> Matcher:
    """The expression as a function. Raises DeviceSelectorError."""
    program = compile_selector(expression)

    def matches(driver: str, device: Device) -> bool:
        try:
            return program.matches(value_of(driver, device))[0]
        except EvaluationError:
            return False

    return matches


def value_of(driver: str, device: Device) -> CelMap:
    """The device as selectors see it; a name without a domain belongs to the driver's. Raises EvaluationError for values that nobody can read."""
    attributes: dict[str, dict[str, Any]] = {}
    for name, found in device.attributes.items():
        domain, slash, identifier = name.partition("/")
        own = (domain, identifier) if slash else (driver, name)
        attributes.setdefault(own[0], {})[own[1]] = _attribute_value(name, found)
    capacity: dict[str, dict[str, Any]] = {}
    for name, amount in device.capacity.items():
        domain, slash, identifier = name.partition("/")
        own = (domain, identifier) if slash else (driver, name)
        capacity.setdefault(own[0], {})[own[1]] = quantity_of(str(amount.value))
    return device_value(driver, attributes, capacity, bool(device.allow_multiple_allocations))


def _attribute_value(name: str, found: DeviceAttribute) -> Any:
    for value in (found.int_value, found.bool_value, found.string):
        if value is not None:
            return value
    if found.version is None:
        raise EvaluationError(f"attribute {name}: unsupported attribute value")
    try:
        return semver_of(found.version)
    except EvaluationError as problem:
        raise EvaluationError(f"attribute {name}: parse semantic version: {problem}") from None


def attribute(driver: str, device: Device, domain: str, name: str) -> Value | None:
    """The value of a device's attribute; one without a domain belongs to the driver's. None if it is not there."""
    found = device.attributes.get(f"{domain}/{name}")
    if found is None and domain == driver:
        found = device.attributes.get(name)
    if found is None:
        return None
    values = (found.string, found.int_value, found.bool_value, found.version)
    return next((value for value in values if value is not None), None)

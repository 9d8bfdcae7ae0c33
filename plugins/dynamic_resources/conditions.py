"""Devices that are ready only when conditions are met: somebody attaches them to the node after the claim has them (binding conditions)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.api.objects import AllocatedDeviceStatus, DeviceResult, ResourceClaim
from tidelog.api.times import parse_time


class Failed(Exception):
    """A failure condition is true; the text says which."""


class Unready(NamedTuple):
    """The conditions still missing."""

    device: str
    driver: str
    conditions: tuple[str, ...]


def unready(claim: ResourceClaim) -> Unready | None:
    """The first device of the claim that is not ready; None if all are. Raises Failed."""
    for result in _waiting_results(claim):
        status = _status_of(claim, result)
        name = f"{result.driver}/{result.pool}/{result.device}"
        if status is None:
            return Unready(name, result.driver, result.binding_conditions)
        true = {condition.type: condition for condition in status.conditions if condition.status == "True"}
        for condition in result.binding_failure_conditions:
            if condition in true:
                found = true[condition]
                raise Failed(
                    f'device binding failed: claim={claim.metadata.name}, reason={found.reason}, message="{found.message}"'
                )
        missing = tuple(name for name in result.binding_conditions if name not in true)
        if missing:
            return Unready(name, result.driver, missing)
    return None


def _waiting_results(claim: ResourceClaim) -> Iterator[DeviceResult]:
    allocation = claim.status.allocation
    if allocation is not None:
        yield from (result for result in allocation.devices.results if result.binding_conditions)


def _status_of(claim: ResourceClaim, result: DeviceResult) -> AllocatedDeviceStatus | None:
    wanted = (result.driver, result.pool, result.device)
    return next((s for s in claim.status.devices if (s.driver, s.pool, s.device) == wanted), None)


def is_late(claim: ResourceClaim, now: int, timeout: int) -> bool:
    """Whether its devices have had more than `timeout` nanoseconds to get ready."""
    allocation = claim.status.allocation
    if allocation is None or not allocation.allocation_timestamp:
        return False
    try:
        return parse_time(allocation.allocation_timestamp) + timeout < now
    except ValueError:
        return False

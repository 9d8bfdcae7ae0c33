"""Which devices are taken, and how much of those that are shared: a fold of the claims' allocations."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from tidelog.api.objects import DeviceResult, ResourceClaim
from tidelog.api.quantity import parse_exact
from tidelog.framework.contents import MASK, number_of
from tidelog.plugins.dynamic_resources.inventory import DeviceKey


class Allocated:
    """Counts, so that a claim can be taken out again. Allocations with admin access do not count."""

    __slots__ = ("capacity", "changes", "shared", "taken", "versions")

    def __init__(self, claims: Iterable[ResourceClaim] = ()) -> None:
        self.taken: dict[DeviceKey, int] = {}
        """Device → how many claims have it for themselves; more than one is somebody's mistake."""
        self.shared: dict[DeviceKey, int] = {}
        """Device → how many have a share of it."""
        self.capacity: dict[DeviceKey, dict[str, Fraction]] = {}
        """Shared device → capacity → what is consumed of it."""
        self.versions: dict[tuple[str, str], int] = {}
        """Driver and pool → what is allocated of it, as a number (`tidelog.framework.contents`)."""
        self.changes = 0
        """How often anything has."""
        for claim in claims:
            self.add(claim)

    def add(self, claim: ResourceClaim) -> None:
        """Count the claim's devices."""
        for result in results_of(claim):
            self._change(result, 1)

    def remove(self, claim: ResourceClaim) -> None:
        """Do not count the claim's devices any more."""
        for result in results_of(claim):
            self._change(result, -1)

    def _change(self, result: DeviceResult, sign: int) -> None:
        key = (result.driver, result.pool, result.device)
        self.changes += 1
        self.versions[key[:2]] = (self.versions.get(key[:2], 0) + sign * number_of_result(result)) & MASK
        counts = self.taken if result.share_id is None else self.shared
        counts[key] = counts.get(key, 0) + sign
        if not counts[key]:
            del counts[key]
        if result.share_id is None:
            return
        capacity = self.capacity.setdefault(key, {})
        for name, amount in result.consumed_capacity.items():
            capacity[name] = capacity.get(name, Fraction(0)) + sign * Fraction(*parse_exact(amount))
        if key not in self.shared:
            del self.capacity[key]

    def has(self, key: DeviceKey) -> bool:
        """Somebody has it, or a share of it."""
        return key in self.taken or key in self.shared


def number_of_result(result: DeviceResult) -> int:
    """Return a number for what having this device takes from others."""
    shared = None if result.share_id is None else result.consumed_capacity
    return number_of((result.driver, result.pool, result.device, shared))


def results_of(claim: ResourceClaim) -> list[DeviceResult]:
    """The devices that the claim takes from others."""
    allocation = claim.status.allocation
    if allocation is None:
        return []
    return [result for result in allocation.devices.results if not result.admin_access]

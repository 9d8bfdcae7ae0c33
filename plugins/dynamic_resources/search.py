"""The search: first fit, depth first, so that the answer is determined by the objects alone.

    place(claim, request, k-th device, start)
        all claims done                        → found
        all requests of the claim done         → next claim
        alternatives                           → the first that leads to a solution of everything after it
        k devices taken                        → next request
        more than 32 results                   → TOO_MANY, passed up to the nearest alternative or claim
        every device from `start` on in turn   → take it, place the next one behind it; give it back if that fails

Upstream tries until ten seconds are over, which for a claim that cannot be fulfilled is 2ⁿ devices. Here what cannot be any more is
pruned, and steps are counted. Pruning changes no answer: all that keeps a device from being taken stays true while the search goes deeper (it
is in use, does not match, has an untolerated taint, breaks a constraint, overdraws a counter or capacity), so if fewer devices can be taken
*now* than a request still needs, it fails. A device on which a selector or an amount fails counts as one that can be taken, so that nobody
escapes an error that upstream would run into, and nobody runs into one that upstream never reaches.

The search does not call itself: `_place` yields the next position and is sent what came of it, so its depth is no stack of Python's.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from fractions import Fraction
from typing import NamedTuple

from tidelog.api.objects import Node
from tidelog.framework.effort import Effort
from tidelog.plugins.dynamic_resources.allocated import Allocated
from tidelog.plugins.dynamic_resources.capacity import Consumption, is_left
from tidelog.plugins.dynamic_resources.constraints import Constraint, constraint_of
from tidelog.plugins.dynamic_resources.errors import AllocationError, NodeLocalFailure, SearchGivenUp
from tidelog.plugins.dynamic_resources.inventory import (
    DeviceKey,
    DevicePool,
    PoolDevice,
    reaches_device,
)
from tidelog.plugins.dynamic_resources.requests import RESULTS_MAX, PreparedClaim, Wanted

FAILED, DONE, TOO_MANY = range(3)
_EAGER_AFTER = 200
"""Steps after which the search looks ahead. Arbitrary: most end long before."""


STEPS_OF_OWN = 1_000
"""Steps that a search may take whatever those on other nodes took: enough to find out that there is nothing, or to take what is free. Arbitrary."""
_PAUSED_AFTER = 100
"""Steps between two looks at whether the attempt has had its turn; arbitrary."""


class Taken(NamedTuple):
    """A device that the search has given to a request."""

    wanted: Wanted
    device: PoolDevice
    consumed: tuple[Consumption, ...]
    """Of a device that others may have too."""
    counted: bool
    """It was taken from the pool's counters."""
    pool: DevicePool


class _Position(NamedTuple):
    claim: int = 0
    request: int = 0
    alternative: int = -1
    """-1: none is chosen yet."""
    device: int = 0
    start: int = 0


_Step = Generator[_Position | None, int, int]
"""Yields the position after it, and is sent what came of that; or nothing, where the search may be interrupted."""


def given_up(limit: int) -> SearchGivenUp:
    """After so many steps; fewer than a node may take, where the attempt has taken all that it may."""
    after = f"after {limit} steps" if limit else "because other nodes took all steps of the attempt"
    also = ", because other nodes took the rest of the attempt's" if 0 < limit <= STEPS_OF_OWN else ""
    return SearchGivenUp(f"the search for devices was given up {after}{also}")


class Search:
    """One search, on one node."""

    def __init__(
        self,
        node: Node,
        pools: Sequence[DevicePool],
        claims: Sequence[PreparedClaim],
        allocated: Allocated,
        limit: int,
        effort: Effort,
        *,
        counts_first: bool = True,
    ) -> None:
        """`limit`: steps that it may take. `counts_first`: it begins with no request for which there are too few devices. `effort`: of the attempt; when its turn is over, `run` may be called again."""
        self._node = node
        self._pools = pools
        self._claims = claims
        self._allocated = allocated
        self.limit = self._left = limit
        self.effort = effort
        self._counts_first = counts_first
        usable = [pool for pool in pools if not (pool.is_incomplete or pool.is_invalid)]
        self._devices = [(device, pool) for pool in usable for device in pool.devices]
        self._asked: set[tuple[Wanted, PoolDevice]] = set()
        self._all: dict[Wanted, list[tuple[PoolDevice, DevicePool]]] = {}
        self._constraints: list[list[Constraint]] = []
        self._using: dict[DeviceKey, set[int]] = {}
        """Device → claims of this search that have it."""
        self._sharing: dict[DeviceKey, list[dict[str, Fraction]]] = {}
        """Shared device → what each share consumes."""
        self._available: dict[DevicePool, dict[tuple[str, str], Fraction]] = {}
        """Pool → counters, less what was allocated before and what this search has given away."""
        self.results: list[list[Taken]] = [[] for _ in claims]
        self.chosen: dict[tuple[int, int], int] = {}
        """(claim, request) → the alternative that was chosen."""
        self._stack: list[_Step] = []
        self._outcome: int | None = None

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return min(self.limit, self.limit - self._left)

    def run(self) -> bool:
        """Whether all claims can be fulfilled; `results` and `chosen` say how. Raises AllocationError, NodeLocalFailure, SearchGivenUp."""
        if not self._stack:
            self._prepare()
            self._stack = [self._place(_Position())]
        found = self._solve()
        if not found and any(pool.is_invalid for pool in self._pools):
            raise NodeLocalFailure("invalid resource pools were encountered")
        return found

    def _solve(self) -> bool:
        stack, paid = self._stack, self._left
        while stack:
            if paid - self._left > _PAUSED_AFTER:
                spent, paid = paid - self._left, self._left
                self.effort.spend(spent)
            try:
                position = stack[-1].send(self._outcome)  # type: ignore[arg-type]
                self._outcome = None
                if position is not None:
                    stack.append(self._place(position))
            except StopIteration as end:
                stack.pop()
                self._outcome = end.value
        return self._outcome == DONE

    def _spend(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise given_up(self.limit)

    # --- what is wrong with the claims ------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        for claim in self._claims:
            least = sum(
                min(self._number_of(wanted) for wanted in request.alternatives) for request in claim.requests
            )
            if least > RESULTS_MAX:
                raise AllocationError(
                    f"claim {claim.name}: number of requested devices {least} exceeds the claim limit of {RESULTS_MAX}"
                )
            if claim.bad_constraint >= 0:
                raise AllocationError(
                    f"claim {claim.name}, constraint #{claim.bad_constraint}: empty constraint (unsupported constraint type?)"
                )
            found = map(constraint_of, claim.claim.spec.devices.constraints)
            self._constraints.append([one for one in found if one is not None])

    def _number_of(self, wanted: Wanted) -> int:
        if wanted.error:
            raise AllocationError(wanted.error)
        if not wanted.is_all:
            return wanted.count
        self._all[wanted] = self._collected(wanted)
        return len(self._all[wanted])

    def _collected(self, wanted: Wanted) -> list[tuple[PoolDevice, DevicePool]]:
        """All devices for which the request could ask, in use or not."""
        found: list[tuple[PoolDevice, DevicePool]] = []
        for pool in self._pools:
            if pool.is_incomplete:
                raise wanted.fail(
                    f"asks for all devices, but resource pool {pool} is currently being updated"
                )
            if pool.is_invalid:
                raise wanted.fail(f"asks for all devices, but resource pool {pool} is currently invalid")
            for device in pool.devices:
                self._spend()
                if self._is_selectable(wanted, device):
                    needed = wanted.consumes(device)
                    if needed is not None and is_left(needed, {}, {}):
                        found.append((device, pool))
        return found

    # --- the search -------------------------------------------------------------------------------------------------------

    def _place(self, at: _Position) -> _Step:
        self._spend()
        if at.claim == len(self._claims):
            return DONE
        requests = self._claims[at.claim].requests
        if at.request == len(requests):
            outcome = yield _Position(at.claim + 1)
            return FAILED if outcome == TOO_MANY else outcome
        request = requests[at.request]
        if at.alternative < 0 and request.is_prioritized:
            return (yield from self._first_available(at, len(request.alternatives)))
        wanted = request.alternatives[max(at.alternative, 0)]
        number = len(self._all[wanted]) if wanted.is_all else wanted.count
        if wanted.is_all and not number:
            return FAILED
        if at.device >= number:
            return (yield _Position(at.claim, at.request + 1))
        if len(self.results[at.claim]) + number - at.device > RESULTS_MAX:
            return TOO_MANY
        if wanted.is_all:
            return (yield from self._next_of_all(at, wanted))
        if self.steps > _EAGER_AFTER:
            if self._is_hopeless(at, wanted, number - at.device):
                return FAILED
        elif self._counts_first and at.device == 0 and number > 1 and self._is_out_of_reach(at.claim, wanted):
            return FAILED
        return (yield from self._any(at, wanted))

    def _first_available(self, at: _Position, count: int) -> _Step:
        all_too_many = True
        for index in range(count):
            outcome = yield _Position(at.claim, at.request, index)
            if outcome == TOO_MANY:
                continue
            all_too_many = False
            if outcome == DONE:
                self.chosen[at.claim, at.request] = index
                return DONE
        return TOO_MANY if all_too_many else FAILED

    def _next_of_all(self, at: _Position, wanted: Wanted) -> _Step:
        device, pool = self._all[wanted][at.device]
        taken = self._take(at.claim, wanted, device, pool)
        if taken is None:
            return FAILED
        outcome = yield at._replace(device=at.device + 1, start=0)
        if outcome != DONE:
            self._give_back(at.claim, taken)
        return outcome

    def _any(self, at: _Position, wanted: Wanted) -> _Step:
        for index in range(at.start, len(self._devices)):
            if not index % _PAUSED_AFTER:
                yield None
            self._spend()
            device, pool = self._devices[index]
            if self._is_in_use(at.claim, wanted, device) or not self._is_selectable(wanted, device):
                continue
            if not self._has_capacity(wanted, device):
                continue
            taken = self._take(at.claim, wanted, device, pool)
            if taken is None:
                continue
            outcome = yield at._replace(device=at.device + 1, start=index + 1)
            if outcome == DONE:
                return DONE
            self._give_back(at.claim, taken)
            if outcome == TOO_MANY:
                return TOO_MANY
        return FAILED

    # --- pruning ----------------------------------------------------------------------------------------------------------

    def _is_hopeless(self, at: _Position, wanted: Wanted, missing: int) -> bool:
        """Fewer devices can be taken than this request, or one after it, needs."""
        if self._can_be_taken(at.claim, wanted, at.start, missing) < missing:
            return True
        for index in range(at.claim, len(self._claims)):
            first = at.request + 1 if index == at.claim else 0
            for request in self._claims[index].requests[first:]:
                if all(self._is_out_of_reach(index, one) for one in request.alternatives):
                    return True
        return False

    def _is_out_of_reach(self, claim: int, wanted: Wanted) -> bool:
        if wanted.is_all:
            return False
        return self._can_be_taken(claim, wanted, 0, wanted.count) < wanted.count

    def _can_be_taken(self, claim: int, wanted: Wanted, start: int, enough: int) -> int:
        """How many could be taken as things stand, as far as it matters."""
        count = 0
        for index in range(start, len(self._devices)):
            if count >= enough:
                break
            self._spend()
            device, pool = self._devices[index]
            if self._is_in_use(claim, wanted, device):
                continue
            self._pay_for(wanted, device)
            if wanted.may_match(device) and self._is_takeable(claim, wanted, device, pool):
                count += 1
        return count

    def _is_takeable(self, claim: int, wanted: Wanted, device: PoolDevice, pool: DevicePool) -> bool:
        if not self._has_counters(device, pool) or not wanted.tolerates_all(device):
            return False
        if not all(
            one.allows(wanted.request, wanted.alternative, device) for one in self._constraints[claim]
        ):
            return False
        try:
            return self._has_capacity(wanted, device)
        except AllocationError:
            return True

    # --- one device -------------------------------------------------------------------------------------------------------

    def _is_in_use(self, claim: int, wanted: Wanted, device: PoolDevice) -> bool:
        """With admin access a device may be somebody else's; the same claim does not get it twice."""
        using = self._using.get(device.key)
        if wanted.has_admin_access:
            return bool(using) and using is not None and claim in using
        return bool(using) or device.key in self._allocated.taken

    def _is_selectable(self, wanted: Wanted, device: PoolDevice) -> bool:
        self._pay_for(wanted, device)
        found = wanted.matches(device)
        if found and device.of.spec.per_device_node_selection:
            return reaches_device(self._node, device.device, device.of.metadata.name)
        return found

    def _pay_for(self, wanted: Wanted, device: PoolDevice) -> None:
        """Each search pays for its own questions, so that it stops at the same step whatever is known already."""
        if (wanted, device) not in self._asked:
            self._asked.add((wanted, device))
            self._spend(wanted.cost_of(device))

    def _has_capacity(self, wanted: Wanted, device: PoolDevice) -> bool:
        needed = wanted.consumes(device)
        if needed is None:
            return False
        allocating: dict[str, Fraction] = {}
        for share in self._sharing.get(device.key, ()):
            for name, amount in share.items():
                allocating[name] = allocating.get(name, Fraction(0)) + amount
        return is_left(needed, self._allocated.capacity.get(device.key, {}), allocating)

    def _is_shared_already(self, device: PoolDevice) -> bool:
        return device.is_shareable and (
            device.key in self._allocated.shared or bool(self._sharing.get(device.key))
        )

    def _has_counters(self, device: PoolDevice, pool: DevicePool) -> bool:
        if not device.consumes or self._is_shared_already(device):
            return True
        available = self._counters(pool)
        wanted: dict[tuple[str, str], Fraction] = {}
        for counter, amount in device.consumes:
            wanted[counter] = wanted.get(counter, Fraction(0)) + amount
        # Any counter of the pool that is overdrawn forbids it, its own or not.
        return all(left >= wanted.get(counter, 0) for counter, left in available.items())

    def _counters(self, pool: DevicePool) -> dict[tuple[str, str], Fraction]:
        available = self._available.get(pool)
        if available is None:
            available = self._available[pool] = dict(pool.counters)
            for device in (*pool.devices, *pool.elsewhere):
                if device.consumes and self._allocated.has(device.key):
                    for counter, amount in device.consumes:
                        available[counter] -= amount
        return available

    def _take(self, claim: int, wanted: Wanted, device: PoolDevice, pool: DevicePool) -> Taken | None:
        """Give the device to the request if that may be. A constraint that forbids one of *all* devices is an error."""
        if self._is_in_use(claim, wanted, device) and not (device.is_shareable and wanted.has_admin_access):
            return None
        if not self._has_counters(device, pool) or not wanted.tolerates_all(device):
            return None
        constraints = self._constraints[claim]
        if not all(one.allows(wanted.request, wanted.alternative, device) for one in constraints):
            if wanted.is_all:
                raise wanted.fail(
                    f"cannot add device {device.name} because a claim constraint would not be satisfied"
                )
            return None
        if not self._has_capacity(wanted, device):
            return None
        consumed = wanted.consumes(device) if device.is_shareable else ()
        counted = bool(device.consumes) and not self._is_shared_already(device)
        taken = Taken(wanted, device, consumed or (), counted, pool)
        self._note(claim, taken)
        return taken

    def _note(self, claim: int, taken: Taken) -> None:
        wanted, device = taken.wanted, taken.device
        for one in self._constraints[claim]:
            one.add(wanted.request, wanted.alternative, device)
        if taken.counted:
            for counter, amount in device.consumes:
                self._counters(taken.pool)[counter] -= amount
        if device.is_shareable:
            shares = self._sharing.setdefault(device.key, [])
            shares.append({each.name: each.amount for each in taken.consumed})
        else:
            self._using.setdefault(device.key, set()).add(claim)
        self.results[claim].append(taken)

    def _give_back(self, claim: int, taken: Taken) -> None:
        wanted, device = taken.wanted, taken.device
        self.results[claim].pop()
        if device.is_shareable:
            self._sharing[device.key].pop()
        else:
            self._using[device.key].discard(claim)
        if taken.counted:
            for counter, amount in device.consumes:
                self._counters(taken.pool)[counter] += amount
        for one in reversed(self._constraints[claim]):
            one.remove(wanted.request, wanted.alternative, device)

"""Bounds of NodeResourcesBalancedAllocation's score for ranges of uses, each in a lane (`tidelog.framework.lanes`).

Shares are counted in fixed point. Implements `tidelog.framework.offers.Bounds`, for nodes with the same allocatable cpu and memory.
"""

from __future__ import annotations

from tidelog.framework.lanes import TOP, WIDTH, Lanes, Row, octets, ones, widened
from tidelog.framework.node_info import PodInfo
from tidelog.framework.offers import Corner, NodeUse
from tidelog.plugins.node_resources.many_pods import Amounts

_ANY = TOP >> 1
"""More than is free anywhere."""
_OVER = _ANY - 1
"""In place of any use that is larger."""


class _Left:
    """How much of one resource is left where what is in the lane is taken; kept with the highest bit set."""

    def __init__(self, amount: int) -> None:
        self._amount = amount
        self._most = Row(TOP)
        self._least = _ANY
        """It suffices in every lane that there has been if no more than this is taken."""

    def put(self, lane: int, wanted: int) -> None:
        most = max(self._amount - wanted, -1)
        self._least = min(most, self._least)
        self._most.put(lane, TOP + most)

    def suffices(self, taken: int, every: Lanes) -> Lanes:
        """1 in the lanes of those for which there is enough."""
        if taken <= self._least:
            return every
        return (self._most.lanes - min(taken, _OVER) * every) >> (WIDTH - 1) & every


_FINE = 40
"""So many binary places have the shares that are compared for balance."""
_NEAR = 1 << 10
"""So near to a whole number, a float may be on the other side of it."""
_MIDDLE = TOP >> 1


class BalanceBounds:
    """How much more even the pod makes the use of cpu and memory, on nodes that have both.

    By how much the share of cpu exceeds that of memory is a number of the node and one of the pod, added. It may be negative, so it is kept
    from the middle of the lane.
    """

    def __init__(self, cpu: int, memory: int, amounts: Amounts) -> None:
        self._amounts = amounts
        self._lanes = 0
        self._ones: Lanes = 0
        self._cpu, self._memory = cpu, memory
        self._cpu_left, self._memory_left = _Left(cpu), _Left(memory)
        self._apart = Row()
        self._unequal = Row(512 << _FINE)
        """How unequally cpu and memory are used."""

    def _difference(self, cpu: int, memory: int) -> int:
        """Fifty times that of the shares: half of it in percent."""
        cpu, memory = min(cpu, self._cpu), min(memory, self._memory)
        apart = 50 * (cpu * self._memory - memory * self._cpu) << _FINE
        return _MIDDLE + apart // (self._cpu * self._memory)

    def put_use(self, lane: int, use: NodeUse) -> None:
        if lane >= self._lanes:
            self._lanes = widened(self._lanes, lane)
            self._ones = ones(self._lanes)
        difference = self._difference(use.cpu, use.memory)
        self._apart.put(lane, difference)
        self._cpu_left.put(lane, use.cpu)
        self._memory_left.put(lane, use.memory)
        self._unequal.put(lane, (512 << _FINE) + abs(difference - _MIDDLE))

    def _after(self, cpu: int, memory: int) -> Lanes:
        """How unequally cpu and memory are used with both summands."""
        apart = self._apart.lanes + self._difference(cpu, memory) * self._ones
        below = self._ones ^ (apart >> (WIDTH - 1) & self._ones)
        if below:
            apart ^= (below << (WIDTH - 1)) - below
        return apart & self._ones * (TOP - 1)

    def _within(self, cpu: int, memory: int) -> Lanes:
        """1 where nothing is overcommitted."""
        every = self._ones
        of_cpu, of_memory = self._cpu_left.suffices(cpu, every), self._memory_left.suffices(memory, every)
        return of_cpu if of_memory is every else of_cpu & of_memory

    def corner(self, pod: PodInfo) -> Corner:
        """How much more even a node becomes falls or rises with how uneven it is, all the way: who takes more cpu than memory does best where memory is taken."""
        cpu, memory = self._amounts(pod)
        takes_cpu = cpu * self._memory > memory * self._cpu
        return Corner(cpu=not takes_cpu, memory=takes_cpu)

    def bounds_for(self, pod: PodInfo) -> Lanes:
        """Both measures of evenness are cut off in a score, so that their difference may be one more than this."""
        every, amounts = self._ones, self._amounts(pod)
        gain = (self._unequal.lanes - self._after(*amounts) + every * _NEAR) >> _FINE & every * 1023
        # `_unequal` is 512 more, and a score 50 + (50 + gain) // 2.
        bounds = (gain + every * (100 + 50 + 1)) >> 1 & every * 1023
        bounds -= every * (512 // 2)
        within = self._within(*amounts)
        if within is not every:
            within = (within << 8) - within
            bounds = bounds & within | every * 100 & ~within
        return int.from_bytes(octets(bounds, self._lanes), "little")

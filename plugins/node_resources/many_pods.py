"""The answers of NodeResourcesFit and NodeResourcesBalancedAllocation about a node for hundreds of pods at once, a pod a lane (`tidelog.framework.lanes`).

Each class is for nodes with the same allocatable cpu and memory, and says of every pod what `use_fits` or `use_score` of the plugin
says of it alone. Shares are counted in fixed point, so fine that a quotient is never taken for the next whole number; where the plugin
counts in floats, the pods are told about which the last bit of a float decides. They implement `tidelog.framework.offers.ManyPods`.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.framework.interface import CycleState
from tidelog.framework.lanes import TOP, WIDTH, Lanes, Row, ones, widened
from tidelog.framework.node_info import PodInfo
from tidelog.framework.offers import NodeUse

AMOUNT_MAX = 1 << 52
"""Nodes that have more of a resource are left to the question about one pod."""
_ANY = TOP >> 1
"""As if so much were free: more than there is anywhere."""
_OVER = _ANY - 1
"""In place of any use that is larger."""

Amounts = Callable[[PodInfo], tuple[int, int]]
"""The cpu and the memory that count of a pod."""


class _Many:
    """Pods in lanes."""

    def __init__(self, amounts: Amounts) -> None:
        self._amounts = amounts
        self._lanes = 0
        self._ones: Lanes = 0

    def put(self, lane: int, state: CycleState, pod: PodInfo) -> None:
        """The pod is in this lane from now on."""
        if lane >= self._lanes:
            self._lanes = widened(self._lanes, lane)
            self._ones = ones(self._lanes)
            self._widen(self._ones)
        self._put(lane, *self._amounts(pod))

    def _widen(self, every: Lanes) -> None:
        """There are more lanes; `every` has 1 in each."""

    def _put(self, lane: int, cpu: int, memory: int) -> None:
        raise NotImplementedError


class _Left:
    """How much of one resource the node may have given away before the pod comes; kept with the highest bit set."""

    def __init__(self, amount: int) -> None:
        self._amount = amount
        self._most = Row(TOP)
        self._least = _ANY
        """It suffices for every pod that there has been if no more than this is taken."""

    def put(self, lane: int, wanted: int | None) -> None:
        """None: more may be given away than there is."""
        most = _ANY if wanted is None else max(self._amount - wanted, -1)
        self._least = min(most, self._least)
        self._most.put(lane, TOP + most)

    def suffices(self, taken: int, every: Lanes) -> Lanes:
        """1 in the lanes of those for which there is enough."""
        if taken <= self._least:
            return every
        return (self._most.lanes - min(taken, _OVER) * every) >> (WIDTH - 1) & every


class RoomForMany(_Many):
    """Whether requests of cpu and memory fit; what is not asked for may be overcommitted."""

    def __init__(self, cpu: int, memory: int, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._cpu, self._memory = _Left(cpu), _Left(memory)

    def _put(self, lane: int, cpu: int, memory: int) -> None:
        self._cpu.put(lane, cpu or None)
        self._memory.put(lane, memory or None)

    def answers(self, use: NodeUse) -> tuple[Lanes, Lanes]:
        every = self._ones
        return self._cpu.suffices(use.cpu, every) & self._memory.suffices(use.memory, every), 0


class _Used:
    """The used part of one resource, in percent and rounded up: what `(amount - taken) * 100 // amount` is less than 100; 100 for what is overcommitted.

    It is counted in 2^-bits, four of which are less than the smallest part that the percentage can be away from a whole number, and both summands
    are rounded down: so what is added before it is cut off is one short of the next whole number, and one more for the roundings.
    """

    def __init__(self, amount: int, weight: int) -> None:
        self.weight = weight
        self._amount = amount
        self._bits = amount.bit_length() + 2
        self._shares = Row()
        self._most = 0
        """The largest share that there has been."""
        self._percent: Lanes = 0
        """Lets nothing but a percentage through."""
        self._all: Lanes = 0
        """100, and 1,024 more: the bit of that tells where nothing is overcommitted."""

    def widen(self, every: Lanes) -> None:
        self._percent, self._all = every * 1023, every * 1124

    def _share(self, amount: int) -> int:
        return (min(amount, self._amount + 1) * 100 << self._bits) // self._amount

    def put(self, lane: int, amount: int) -> None:
        share = self._share(amount) + (1 << self._bits) - 2
        self._most = max(share, self._most)
        self._shares.put(lane, share)

    def percent(self, taken: int, every: Lanes) -> Lanes:
        """For each pod, with the weight."""
        share = self._share(taken)
        used = (self._shares.lanes + share * every) >> self._bits & self._percent
        if self._most + share >= 101 << self._bits:
            free = self._all - used
            enough = free >> 10 & every
            used = every * 100 - (free & ((enough << 10) - enough))
        return used if self.weight == 1 else used * self.weight


class LeastAllocatedForMany(_Many):
    """`least_allocated` of cpu and memory, weighted."""

    def __init__(self, cpu: tuple[int, int], memory: tuple[int, int], amounts: Amounts) -> None:
        """Of each resource the amount and the weight, of which one is above zero."""
        super().__init__(amounts)
        self._cpu, self._memory = _Used(*cpu), _Used(*memory)
        self._weights = cpu[1] + memory[1]
        self._octet = self._all = 0
        """The same number in each lane."""

    def _widen(self, every: Lanes) -> None:
        self._octet, self._all = every * 255, every * (100 * self._weights)
        self._cpu.widen(every)
        self._memory.widen(every)

    def _put(self, lane: int, cpu: int, memory: int) -> None:
        self._cpu.put(lane, cpu)
        self._memory.put(lane, memory)

    def answers(self, use: NodeUse) -> tuple[Lanes, Lanes]:
        every, weights = self._ones, self._weights
        free = self._all - self._cpu.percent(use.scored_cpu, every)
        free -= self._memory.percent(use.scored_memory, every)
        if weights == 2:
            return free >> 1 & self._octet, 0
        # Instead of a division; exact for numbers as small as these.
        return free * ((1 << 32) // weights + 1) >> 32 & self._octet, 0


_FINE = 40
"""So many binary places have the shares that are compared for balance."""
_NEAR = 1 << 10
"""So near to a whole number, a float may be on the other side of it."""
_MIDDLE = TOP >> 1
_AWAY = (1 << _FINE) - 2 * _NEAR


def evenness(cpu: float, memory: float) -> int:
    """How evenly a node is used, of whose cpu and memory these parts are taken; 50 to 100."""
    return int((1 - abs((cpu - memory) / 2)) * 100)


class BalanceForMany(_Many):
    """How much more even the pod makes the use of cpu and memory, on nodes that have both.

    By how much the share of cpu exceeds that of memory is a number of the node and one of the pod, added. It may be negative, so it is kept
    from the middle of the lane.
    """

    def __init__(self, cpu: int, memory: int, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._cpu, self._memory = cpu, memory
        self._cpu_left, self._memory_left = _Left(cpu), _Left(memory)
        self._apart = Row()
        self._unsigned = self._near = self._away = self._octet = self._fifty = 0
        """The same number in each lane."""

    def _widen(self, every: Lanes) -> None:
        self._unsigned, self._near, self._away = every * (TOP - 1), every * _NEAR, every * _AWAY
        self._octet, self._fifty = every * 255, every * 50

    def _put(self, lane: int, cpu: int, memory: int) -> None:
        self._apart.put(lane, self._difference(cpu, memory))
        self._cpu_left.put(lane, cpu)
        self._memory_left.put(lane, memory)

    def _difference(self, cpu: int, memory: int) -> int:
        """Fifty times that of the shares: half of it in percent."""
        cpu, memory = min(cpu, self._cpu), min(memory, self._memory)
        apart = 50 * (cpu * self._memory - memory * self._cpu) << _FINE
        return _MIDDLE + apart // (self._cpu * self._memory)

    def answers(self, use: NodeUse) -> tuple[Lanes, Lanes]:
        every = self._ones
        cpu, memory = min(use.cpu, self._cpu), min(use.memory, self._memory)
        before = evenness(cpu / self._cpu, memory / self._memory)
        apart = self._apart.lanes + self._difference(cpu, memory) * every
        below = every ^ (apart >> (WIDTH - 1) & every)
        apart = (apart ^ ((below << (WIDTH - 1)) - below)) & self._unsigned
        apart += self._near
        clear = ((apart & self._away) + self._away) >> _FINE & every
        unequal = apart >> _FINE & self._octet
        # 50 + (50 + after - before) // 2, and after is 99 less that, because what is left of it is cut off.
        gain = (every * (512 + 149 - before) - unequal) >> 1 & self._octet
        within = self._cpu_left.suffices(use.cpu, every) & self._memory_left.suffices(use.memory, every)
        doubt = every ^ (clear & within)
        return gain + self._fifty, doubt

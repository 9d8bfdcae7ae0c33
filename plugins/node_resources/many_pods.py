"""The answers of NodeResourcesFit and NodeResourcesBalancedAllocation for hundreds of pods or uses of nodes at once, each in an octet (`tidelog.framework.lanes`).

Each class is for nodes with the same allocatable cpu and memory, and says of every pod and use what `use_fits` or `use_score` of the plugin
says of them alone. What is asked for and what is used are summands, so it is the same sum with either of them in the lanes, and of a sum the whole part is wanted. So the whole part
of each summand is in an octet; who gets one more because the two rests together make another whole follows from the order of the rests. All of that is exact;
where the plugin counts in floats, the lanes are told about which the last bit of a float decides. They implement `tidelog.framework.offers.ManyPods` and `ManyUses`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from tidelog.framework.lanes import OCTET, WIDTH, Lanes, Octets, ones, widened
from tidelog.framework.node_info import PodInfo
from tidelog.framework.offers import Corner, NodeUse

AMOUNT_MAX = 1 << 52
"""Nodes that have more of a resource are left to the question about one pod."""
STEP = 32
"""So many places in an order are between two sets of lanes that are kept; arbitrary within a factor of two."""
STOPS_AFTER = 8
"""Lanes that are asked about more often than this before one of them changes are worth such sets."""
_ANY = 2 * AMOUNT_MAX
"""More than is used anywhere."""
_LANE_BITS = 32
_LANE = (1 << _LANE_BITS) - 1
_MIDDLE = 128
"""Taken for zero in octets whose numbers may be negative."""
_NEAR_BITS = 30
"""A float may be on the other side of a whole number if it is nearer to it than this negative power of two."""

Amounts = Callable[[PodInfo], tuple[int, int]]
"""The cpu and the memory that count of a pod."""


def evenness(cpu: float, memory: float) -> int:
    """How evenly a node is used, of whose cpu and memory these parts are taken; 50 to 100."""
    return int((1 - abs((cpu - memory) / 2)) * 100)


def base_of(use: NodeUse, cpu: int, memory: int) -> int:
    """Of a node with so much cpu and memory that is used so, twice the score for balance is this less how unequally they are used with the pod."""
    before = evenness(min(use.cpu, cpu) / cpu, min(use.memory, memory) / memory)
    # 50 + (50 + after - before) // 2, and after is 99 less that, because what is left of it is cut off.
    return 100 + 149 - before


class _Ranked:
    """Lanes in the order of a number in each."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._order: list[int] = []
        """Numbers, and in their lowest bits their lanes."""
        self._there = bytearray()
        """1 in each lane that has a number."""
        self._most = -1
        """No number is larger."""
        self._stops: list[bytes] = []
        """After every so many places in the order: 1 in the lanes from there on."""
        self._asked = 0
        """How often, since a lane changed."""

    def put(self, lane: int, number: int) -> None:
        before = self._numbers.get(lane)
        if before == number:
            return
        if before is not None:
            del self._order[bisect_left(self._order, before << _LANE_BITS | lane)]
        self._numbers[lane] = number
        self._most = max(self._most, number)
        insort(self._order, number << _LANE_BITS | lane)
        if lane >= len(self._there):
            self._there += bytes(lane + 1 - len(self._there))
        self._there[lane] = 1
        self._stops.clear()
        self._asked = 0

    def from_number(self, least: int) -> Lanes:
        """1 in the lanes of numbers that are not smaller."""
        if least > self._most:
            return 0
        order = self._order
        first = bisect_left(order, least << _LANE_BITS)
        if not self._stops:
            self._asked += 1
            if self._asked <= STOPS_AFTER:
                return int.from_bytes(self._marks(first), "little")
            self._stops += [bytes(self._marks(place)) for place in range(0, len(order) + STEP, STEP)]
        stop = (first + STEP // 2) // STEP
        marks = bytearray(self._stops[stop])
        at = stop * STEP
        if first < at:
            for one in order[first:at]:
                marks[one & _LANE] = 1
        else:
            for one in order[at:first]:
                marks[one & _LANE] = 0
        return int.from_bytes(marks, "little")

    def _marks(self, first: int) -> bytearray:
        """1 in the lanes from this place in the order on."""
        order = self._order
        if 2 * first < len(order):
            marks = self._there.copy()
            for one in order[:first]:
                marks[one & _LANE] = 0
        else:
            marks = bytearray(len(self._there))
            for one in order[first:]:
                marks[one & _LANE] = 1
        return marks

    def between(self, low: int, high: int) -> Lanes:
        """1 in the lanes of numbers from `low` to `high`."""
        order = self._order
        first, last = bisect_left(order, low << _LANE_BITS), bisect_left(order, (high + 1) << _LANE_BITS)
        found = 0
        for one in order[first:last]:
            found |= 1 << OCTET * (one & _LANE)
        return found


class _Sums:
    """In each lane a number; to be added is another one, and what is wanted is the whole part of the sum, counted in wholes of a size."""

    def __init__(self, size: int, zero: int = 0) -> None:
        """`zero` is counted on top."""
        self._size = size
        self._zero = zero
        self._wholes = Octets(zero)
        self._rests = _Ranked()
        self.most = 0
        """No number had more wholes."""

    def put(self, lane: int, number: int) -> None:
        whole, rest = divmod(number, self._size)
        self._wholes.put(lane, self._zero + whole)
        self._rests.put(lane, rest)
        self.most = max(self.most, whole)

    def with_added(self, number: int, every: Lanes) -> Lanes:
        """The whole parts."""
        whole, rest = divmod(number, self._size)
        return self._wholes.lanes + whole * every + self._rests.from_number(self._size - rest)

    def near_whole(self, number: int, near: int) -> Lanes:
        """1 where the sum is so near to a whole number, or nearer."""
        size = self._size
        rest = number % size
        found = self._rests.between(size - rest - near, size - rest + near)
        if rest <= near:
            found |= self._rests.between(0, near - rest)
        if rest >= size - near:
            found |= self._rests.between(2 * size - near - rest, size)
        return found


class _Many:
    """Pods or uses in lanes."""

    def __init__(self, amounts: Amounts) -> None:
        self._amounts = amounts
        self._lanes = 0
        self._ones: Lanes = 0

    def _reach(self, lane: int) -> None:
        if lane >= self._lanes:
            self._lanes = widened(self._lanes, lane)
            self._ones = ones(self._lanes, OCTET)


class ManyRooms(_Many):
    """Whether requests of cpu and memory fit; what is not asked for may be overcommitted."""

    def __init__(self, cpu: int, memory: int, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._cpu, self._memory = cpu, memory
        self._of_cpu, self._of_memory = _Ranked(), _Ranked()

    def put(self, lane: int, pod: PodInfo) -> None:
        self._reach(lane)
        cpu, memory = self._amounts(pod)
        self._of_cpu.put(lane, cpu or -AMOUNT_MAX)
        self._of_memory.put(lane, memory or -AMOUNT_MAX)

    def answers(self, use: NodeUse) -> tuple[Lanes, Lanes]:
        cpu, memory = max(self._cpu - use.cpu, 0), max(self._memory - use.memory, 0)
        return self._but_over(cpu, memory)

    def put_use(self, lane: int, use: NodeUse) -> None:
        self._reach(lane)
        self._of_cpu.put(lane, use.cpu)
        self._of_memory.put(lane, use.memory)

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        cpu, memory = self._amounts(pod)
        return self._but_over(self._cpu - cpu if cpu else _ANY, self._memory - memory if memory else _ANY)

    def _but_over(self, cpu: int, memory: int) -> tuple[Lanes, Lanes]:
        lacking = self._of_cpu.from_number(cpu + 1) | self._of_memory.from_number(memory + 1)
        return self._ones ^ lacking if lacking else self._ones, 0


class _Percent:
    """The used part of one resource, in percent and rounded up: what `(amount - taken) * 100 // amount` is less than 100; 100 for what is overcommitted."""

    def __init__(self, amount: int) -> None:
        self._amount = amount
        self._sums = _Sums(amount)

    def put(self, lane: int, amount: int) -> None:
        self._sums.put(lane, self._hundredfold(amount) + self._amount - 1)

    def _hundredfold(self, amount: int) -> int:
        return min(100 * amount, 100 * self._amount + 1)

    def answers(self, taken: int, every: Lanes) -> Lanes:
        number = self._hundredfold(taken)
        used = self._sums.with_added(number, every)
        if self._sums.most + number // self._amount < 100:
            return used
        # Above 100, if there are 128, or if 27 more make 128.
        over = (used | (used & every * 127) + every * 27) >> 7 & every
        return used ^ (used ^ every * 100) & ((over << OCTET) - over)


class ManyFree(_Many):
    """`least_allocated` of cpu and memory, weighted."""

    def __init__(self, cpu: tuple[int, int], memory: tuple[int, int], amounts: Amounts) -> None:
        """Of each resource the amount and the weight, of which one is above zero."""
        super().__init__(amounts)
        self._cpu, self._memory = _Percent(cpu[0]), _Percent(memory[0])
        self._weights = cpu[1], memory[1]

    def put(self, lane: int, pod: PodInfo) -> None:
        self._put(lane, *self._amounts(pod))

    def answers(self, use: NodeUse) -> tuple[Lanes, Lanes]:
        return self._free(use.scored_cpu, use.scored_memory), 0

    def put_use(self, lane: int, use: NodeUse) -> None:
        self._put(lane, use.scored_cpu, use.scored_memory)

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        return self._free(*self._amounts(pod)), 0

    def corner(self, pod: PodInfo) -> Corner:
        return Corner(cpu=False, memory=False)

    def bounds_for(self, pod: PodInfo) -> Lanes:
        return self._free(*self._amounts(pod))

    def _put(self, lane: int, cpu: int, memory: int) -> None:
        self._reach(lane)
        self._cpu.put(lane, cpu)
        self._memory.put(lane, memory)

    def _free(self, cpu: int, memory: int) -> Lanes:
        every = self._ones
        of_cpu, of_memory = self._weights
        used_cpu, used_memory = self._cpu.answers(cpu, every), self._memory.answers(memory, every)
        if of_cpu == of_memory:
            return every * 200 - used_cpu - used_memory >> 1 & every * 127
        return self._weighted(used_cpu, used_memory)

    def _weighted(self, cpu: Lanes, memory: Lanes) -> Lanes:
        """As many octets at once as there is room for."""
        of_cpu, of_memory = self._weights
        weights = of_cpu + of_memory
        every = ones(-(-self._lanes * OCTET // WIDTH))
        octet, found = every * 255, 0
        for shift in range(0, WIDTH, OCTET):
            free = every * (100 * weights)
            free -= (cpu >> shift & octet) * of_cpu + (memory >> shift & octet) * of_memory
            # Instead of a division; exact for numbers as small as these.
            found |= (free * ((1 << 32) // weights + 1) >> 32 & octet) << shift
        return found


class ManyBalances(_Many):
    """How much more even the pod makes the use of cpu and memory, on nodes that have both.

    By how much the share of cpu exceeds that of memory is a number of the node and one of the pod, added.
    """

    def __init__(self, cpu: int, memory: int, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._cpu, self._memory = cpu, memory
        self._near = (cpu * memory >> _NEAR_BITS) + 1
        self._apart = _Sums(cpu * memory, _MIDDLE)
        self._of_cpu, self._of_memory = _Ranked(), _Ranked()
        self._bases = Octets(_MIDDLE)
        """Where the lanes are uses, `base_of` them."""

    def put(self, lane: int, pod: PodInfo) -> None:
        self._put(lane, *self._amounts(pod))

    def answers(self, use: NodeUse) -> tuple[Lanes, Lanes]:
        return self._scores(use.cpu, use.memory, self._ones * base_of(use, self._cpu, self._memory))

    def put_use(self, lane: int, use: NodeUse) -> None:
        self._put(lane, use.cpu, use.memory)
        self._bases.put(lane, base_of(use, self._cpu, self._memory))

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        return self._scores(*self._amounts(pod), self._bases.lanes)

    def _put(self, lane: int, cpu: int, memory: int) -> None:
        self._reach(lane)
        self._apart.put(lane, self._difference(cpu, memory))
        self._of_cpu.put(lane, cpu)
        self._of_memory.put(lane, memory)

    def _difference(self, cpu: int, memory: int) -> int:
        """Fifty times that of the shares: half of it in percent."""
        cpu, memory = min(cpu, self._cpu), min(memory, self._memory)
        return 50 * (cpu * self._memory - memory * self._cpu)

    def _scores(self, cpu: int, memory: int, bases: Lanes) -> tuple[Lanes, Lanes]:
        every, difference = self._ones, self._difference(cpu, memory)
        apart = self._apart.with_added(difference, every)
        # What is cut off of a number below zero is what is cut off of its amount, and that is one less than its whole part.
        below = ~apart >> 7 & every
        unequal = (apart ^ (below << 7) - below) & every * 127
        doubt = self._apart.near_whole(difference, self._near)
        # Overcommitted.
        doubt |= self._of_cpu.from_number(max(self._cpu - cpu, -1) + 1)
        doubt |= self._of_memory.from_number(max(self._memory - memory, -1) + 1)
        return bases - unequal >> 1 & every * 127, doubt

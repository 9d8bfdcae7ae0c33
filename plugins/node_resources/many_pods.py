"""The answers of NodeResourcesFit and NodeResourcesBalancedAllocation for hundreds of pods or uses of nodes at once, each in a lane (`tidelog.framework.lanes`).

Each class is for nodes with the same allocatable cpu and memory, and says of every pod and use what `use_fits` or `use_score` of the plugin
says of them alone. What is asked for and what is used are summands, so it is the same sum with either of them in the lanes, and of a sum the whole part is
wanted, which follows from sixteen binary places of each summand but for a few lanes. These are told: there, and where the plugin counts in floats and the last bit of one
may decide, it is to be asked about one alone. They implement `tidelog.framework.offers.ManyPods`, `ManyUses` and `Bounds`.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.framework.lanes import WIDTH, Lanes, Row, ones, widened
from tidelog.framework.node_info import PodInfo
from tidelog.framework.offers import Corner, NodeUse

AMOUNT_MAX = 1 << 52
"""Nodes that have more of a resource are left to the question about one pod."""
_PLACES = 16
"""So many binary places are in a lane below the whole part."""
_PARTS = (1 << _PLACES) - 1
_SIGN = 7
"""The bit of a whole part that is set if the number is not negative, …"""
_MIDDLE = 1 << _SIGN
"""… because so much is added to it."""
_DIVIDED = 22
"""Sums of two weighted scores are divided to so many binary places."""
_NOTED_SPARE = 100
"""So many rests more than twice as many as there are lanes are remembered at most."""
_SEVERAL = 50
"""So many times a node's amount are as much as anything more."""

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


class _Sums:
    """In each lane a number, counted in a size; another one is added to all, and the whole parts of the sums are wanted.

    A sum is right but for less than one in the last place, and its whole part is never too small.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._row = Row(_MIDDLE << _PLACES)
        self.least = size
        """No number that has been in a lane is smaller."""

    def put(self, lane: int, number: int) -> None:
        self._row.put(lane, (_MIDDLE << _PLACES) + (number << _PLACES) // self._size)
        if number < self.least:
            self.least = number

    def with_added(self, number: int, every: Lanes, more: int = 0) -> Lanes:
        """The sums, and so many in the last place more."""
        return self._row.lanes + (more - (-number << _PLACES) // self._size) * every


class _ExactSums(_Sums):
    """It is known where a whole part may be too large."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._numbers: dict[int, int] = {}
        """By lane."""
        self._rests: dict[int, int] = {}
        """Places → the smallest of the rests that these are of."""

    def put(self, lane: int, number: int) -> None:
        super().put(lane, number)
        self._numbers[lane] = number
        self._note(number)
        if len(self._rests) > _NOTED_SPARE + 2 * len(self._numbers):
            self._rests.clear()
            for one in self._numbers.values():
                self._note(one)

    def _note(self, number: int) -> None:
        rest = number % self._size
        places = (rest << _PLACES) // self._size
        known = self._rests.get(places)
        if known is None or rest < known:
            self._rests[places] = rest

    def unsure(self, number: int) -> Lanes:
        """1 where, with this number added, the whole part may be too large."""
        size = self._size
        lacking = size - number % size
        places = (lacking << _PLACES) // size
        if self._rests.get(places, lacking) >= lacking:
            return 0
        found = 0
        for lane, one in self._numbers.items():
            if (one % size << _PLACES) // size == places:
                found |= 1 << WIDTH * lane
        return found


def _left(amount: int, taken: int) -> int:
    """Of an amount, or anything below zero."""
    return max(amount - taken, -1)


def _enough(left: _Sums, taken: int, every: Lanes, more: int = 0) -> Lanes:
    """1 where so much is left; `more` decides where it is about as much."""
    return left.with_added(-taken, every, more) >> _PLACES + _SIGN & every


class _Many:
    """Pods or uses in lanes."""

    def __init__(self, amounts: Amounts) -> None:
        self._amounts = amounts
        self._lanes = 0
        self._reach(0)

    def _reach(self, lane: int) -> None:
        if lane >= self._lanes:
            self._lanes = widened(self._lanes, lane)
            self._ones = every = ones(self._lanes)
            self._scored = every * (_MIDDLE - 1)
            """All bits of a number that is not negative, …"""
            self._wholes = self._scored << _PLACES
            """… of the same above the places, and of the places."""
            self._parts = every * _PARTS


class ManyRooms(_Many):
    """Whether requests of cpu and memory fit; what is not asked for may be overcommitted."""

    def __init__(self, cpu: int, memory: int, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._rooms = [(amount, _ExactSums(amount or 1)) for amount in (cpu, memory)]

    def put(self, lane: int, pod: PodInfo) -> None:
        self._reach(lane)
        for (amount, left), asked in zip(self._rooms, self._amounts(pod), strict=True):
            left.put(lane, _left(amount, asked) if asked else 2 * _SEVERAL * (amount or 1))

    def answers(self, use: NodeUse) -> tuple[Lanes, Lanes]:
        return self._but_over(use.cpu, use.memory)

    def put_use(self, lane: int, use: NodeUse) -> None:
        self._reach(lane)
        for (amount, left), used in zip(self._rooms, (use.cpu, use.memory), strict=True):
            left.put(lane, _left(amount, used))

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        return self._but_over(*[asked or -1 for asked in self._amounts(pod)])

    def _but_over(self, cpu: int, memory: int) -> tuple[Lanes, Lanes]:
        every, unsure = self._ones, 0
        fits = every
        for (amount, left), taken in zip(self._rooms, (cpu, memory), strict=True):
            if taken > left.least:
                taken = min(taken, _SEVERAL * (amount or 1))
                fits &= _enough(left, taken, every)
                unsure |= left.unsure(-taken)
        return fits, unsure


class ManyFree(_Many):
    """`least_allocated` of cpu and memory, weighted."""

    def __init__(self, cpu: tuple[int, int], memory: tuple[int, int], amounts: Amounts) -> None:
        """Of each resource the amount and the weight, of which one is above zero."""
        super().__init__(amounts)
        self._amount_of_cpu, self._amount_of_memory = cpu[0], memory[0]
        self._cpu, self._memory = _ExactSums(cpu[0]), _ExactSums(memory[0])
        self._weights = cpu[1], memory[1]

    def put(self, lane: int, pod: PodInfo) -> None:
        self._put(lane, *self._amounts(pod))

    def answers(self, use: NodeUse) -> tuple[Lanes, Lanes]:
        return self._free(use.scored_cpu, use.scored_memory)

    def put_use(self, lane: int, use: NodeUse) -> None:
        self._put(lane, use.scored_cpu, use.scored_memory)

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        return self._free(*self._amounts(pod))

    def corner(self, pod: PodInfo) -> Corner:
        return Corner(cpu=False, memory=False)

    def bounds_for(self, pod: PodInfo) -> Lanes:
        return self._free(*self._amounts(pod))[0]

    def _put(self, lane: int, cpu: int, memory: int) -> None:
        self._reach(lane)
        self._cpu.put(lane, _left(100 * self._amount_of_cpu, 100 * cpu))
        self._memory.put(lane, _left(100 * self._amount_of_memory, 100 * memory))

    def _free(self, cpu: int, memory: int) -> tuple[Lanes, Lanes]:
        """No score is too small."""
        of_cpu, of_memory = self._weights
        free_cpu, unsure_cpu = self._percent(self._cpu, self._amount_of_cpu, cpu)
        free_memory, unsure_memory = self._percent(self._memory, self._amount_of_memory, memory)
        if of_cpu == of_memory:
            return free_cpu + free_memory >> _PLACES + 1 & self._scored, unsure_cpu | unsure_memory
        total = (free_cpu >> _PLACES) * of_cpu + (free_memory >> _PLACES) * of_memory
        return self._divided(total, of_cpu + of_memory), unsure_cpu | unsure_memory

    def _percent(self, left: _ExactSums, amount: int, taken: int) -> tuple[Lanes, Lanes]:
        """Of an amount what is left, above the places, where so much more is taken; 0 if that is too much. And 1 where that is not sure."""
        number = -min(100 * taken, 101 * amount)
        found = left.with_added(number, self._ones)
        if left.least + number >= 0:
            return found & self._wholes, left.unsure(number)
        there = found >> _PLACES + _SIGN & self._ones
        return found & (there << _PLACES + _SIGN) - (there << _PLACES), left.unsure(number)

    def _divided(self, lanes: Lanes, divisor: int) -> Lanes:
        """The lanes divided by that, every second one at once, because there is room between them."""
        second = int.from_bytes(
            (b"\xff" * (WIDTH // 8) + bytes(WIDTH // 8)) * (self._lanes // 2 + 1), "little"
        )
        found = 0
        for shift in (0, WIDTH):
            # Instead of a division; exact for numbers as small as these.
            product = (lanes >> shift & second) * ((1 << _DIVIDED) // divisor + 1)
            found |= (product >> _DIVIDED & second) << shift
        return found


class _ManyApart(_Many):
    """By how much the shares of cpu and memory differ, on nodes that have both: a number of the node and one of the pod, added."""

    def __init__(self, cpu: int, memory: int, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._cpu, self._memory = cpu, memory
        self._apart = _Sums(cpu * memory)
        self._left_of_cpu, self._left_of_memory = _Sums(cpu), _Sums(memory)

    def _put(self, lane: int, cpu: int, memory: int) -> None:
        self._reach(lane)
        self._apart.put(lane, self._difference(cpu, memory))
        self._left_of_cpu.put(lane, _left(self._cpu, cpu))
        self._left_of_memory.put(lane, _left(self._memory, memory))

    def _difference(self, cpu: int, memory: int) -> int:
        """Fifty times that of the shares: half of it in percent."""
        return 50 * (min(cpu, self._cpu) * self._memory - min(memory, self._memory) * self._cpu)

    def _overcommitted(self, cpu: int, memory: int) -> Lanes:
        """1 where there is too little of one of them, or just enough."""
        every = enough = self._ones
        if cpu > self._left_of_cpu.least:
            enough = _enough(self._left_of_cpu, min(cpu, _SEVERAL * self._cpu), every, -1)
        if memory > self._left_of_memory.least:
            enough &= _enough(self._left_of_memory, min(memory, _SEVERAL * self._memory), every, -1)
        return enough ^ every


class ManyBalances(_ManyApart):
    """How much more even the pod makes the use of cpu and memory."""

    def __init__(self, cpu: int, memory: int, amounts: Amounts) -> None:
        super().__init__(cpu, memory, amounts)
        self._bases = Row(_MIDDLE)
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

    def _scores(self, cpu: int, memory: int, bases: Lanes) -> tuple[Lanes, Lanes]:
        every = self._ones
        apart = self._apart.with_added(self._difference(cpu, memory), every, 1)
        # Next to a whole number these places are 0, 1 or 2: there a float may be on the other side of it.
        beyond = (apart & self._parts) + self._parts - (every << 1) >> _PLACES & every
        whole = apart >> _PLACES
        # What is cut off of a number below zero is what is cut off of its amount, and that is one less than its whole part.
        below = whole >> _SIGN & every ^ every
        unequal = (whole ^ (below << _SIGN) - below) & self._scored
        return bases - unequal >> 1 & self._scored, beyond ^ every | self._overcommitted(cpu, memory)


class BalanceBounds(_ManyApart):
    """Bounds of these scores for ranges of uses."""

    def __init__(self, cpu: int, memory: int, amounts: Amounts) -> None:
        super().__init__(cpu, memory, amounts)
        self._bases = Row(_MIDDLE << _PLACES)
        """Twice the bound is this less how unequally they are used with the pod."""

    def put_use(self, lane: int, use: NodeUse) -> None:
        self._put(lane, use.cpu, use.memory)
        unequal = (abs(self._difference(use.cpu, use.memory)) << _PLACES) // (self._cpu * self._memory)
        # Both measures of evenness are cut off in a score, so that their difference may be one more than it is; and none of the sums here is to make it smaller.
        self._bases.put(lane, (100 + 50 + 1 << _PLACES) + unequal + 4)

    def corner(self, pod: PodInfo) -> Corner:
        """How much more even a node becomes falls or rises with how uneven it is, all the way: who takes more cpu than memory does best where memory is taken."""
        cpu, memory = self._amounts(pod)
        takes_cpu = cpu * self._memory > memory * self._cpu
        return Corner(cpu=not takes_cpu, memory=takes_cpu)

    def bounds_for(self, pod: PodInfo) -> Lanes:
        every, amounts = self._ones, self._amounts(pod)
        apart = self._apart.with_added(self._difference(*amounts), every)
        below = apart >> _PLACES + _SIGN & every ^ every
        unequal = (apart ^ (below << WIDTH) - below) & (self._wholes | self._parts)
        bounds = self._bases.lanes - unequal >> _PLACES + 1 & self._scored
        over = self._overcommitted(*amounts)
        if over:
            over = (over << _SIGN) - over
            bounds = bounds & ~over | every * 100 & over
        return bounds

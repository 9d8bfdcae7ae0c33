"""Room, free parts and balance, judged for hundreds of pods or uses of nodes at once, each in a lane (`tidelog.framework.lanes`).

What a pod asks for and what is used are parts of what a node has to give, and these are added. So pods are counted once in each amount of cpu and once
in each amount of memory that nodes have, which nodes of several sizes share; and uses of nodes of all sizes stand side by side, because what is added differs
by size only. Of a sum the whole part is wanted, which follows from sixteen binary places of each summand but for a few lanes. These are told: there, and where the
plugin counts in floats and the last bit of one may decide, it is to be asked about one alone. They implement `tidelog.framework.offers.ManyPods`, `ManyUses` and `Bounds`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tidelog.framework.lanes import WIDTH, Lanes, Row, ones, widened
from tidelog.framework.node_info import PodInfo
from tidelog.framework.offers import NodeSize, NodeUse

AMOUNT_MAX = 1 << 52
"""Nodes that have more of a resource are left to the question about one pod."""
_PLACES = 16
"""So many binary places are in a lane below the whole part."""
_PARTS = (1 << _PLACES) - 1
_SIGN = 7
"""The bit of a whole part that is set if the number is not negative, …"""
_MIDDLE = 1 << _SIGN << _PLACES
"""… because so much is added to it."""
_DIVIDED = 22
"""Sums of two weighted scores are divided to so many binary places."""
_NOTED_SPARE = 100
"""So many rests more than twice as many as there are lanes are remembered at most."""
_SPARE = 16
"""So much in the last place is more than what is cut off of the sums of a bound."""

Amounts = Callable[[PodInfo], tuple[int, int]]
"""The cpu and the memory that count of a pod."""


def is_countable(size: NodeSize) -> bool:
    """Whether nodes of this size are judged here."""
    return 0 < size.cpu < AMOUNT_MAX and 0 < size.memory < AMOUNT_MAX


def evenness(cpu: float, memory: float) -> int:
    """How evenly a node is used, of whose cpu and memory these parts are taken; 50 to 100."""
    return int((1 - abs((cpu - memory) / 2)) * 100)


def base_of(use: NodeUse, size: NodeSize) -> int:
    """Of a node that is used so, twice the score for balance is this less how unequally it is used with the pod."""
    before = evenness(min(use.cpu, size.cpu) / size.cpu, min(use.memory, size.memory) / size.memory)
    # 50 + (50 + after - before) // 2, and after is 99 less that, because what is left of it is cut off.
    return 100 + 149 - before


def apart(cpu: int, memory: int, size: NodeSize) -> int:
    """By how much the shares of cpu and memory differ of which so much is taken, in half percent with binary places; what is left of it is cut off."""
    return (50 * (min(cpu, size.cpu) * size.memory - min(memory, size.memory) * size.cpu) << _PLACES) // (
        size.cpu * size.memory
    )


# --- amounts in lanes -----------------------------------------------------------------------------------------------------


class _OfAmount:
    """The lanes that are counted in one amount, and the rests that are cut off of them."""

    def __init__(self, amount: int) -> None:
        self._amount = amount
        self._row = Row()
        self.lefts: dict[int, int] = {}
        """By lane what is left, times a hundred."""
        self._rests: dict[int, int] | None = None
        """Places → the smallest of the rests that these are of, if somebody has asked."""

    @property
    def lanes(self) -> Lanes:
        """1 in each of them."""
        return self._row.lanes

    def put(self, lane: int, left: int) -> None:
        if lane not in self.lefts:
            self._row.put(lane, 1)
        self.lefts[lane] = left
        if self._rests is not None:
            self._note(self._rests, left)
            if len(self._rests) > _NOTED_SPARE + 2 * len(self.lefts):
                self._rests = None

    def _note(self, rests: dict[int, int], left: int) -> None:
        rest = left % self._amount
        places = (rest << _PLACES) // self._amount
        known = rests.get(places)
        if known is None or rest < known:
            rests[places] = rest

    def unsure(self, taken: int) -> Lanes:
        """1 where, with so much more taken, the whole percentage that is left may be too large."""
        amount, rests = self._amount, self._rests
        if rests is None:
            rests = self._rests = {}
            for one in self.lefts.values():
                self._note(rests, one)
        lacking = amount - -100 * taken % amount
        places = (lacking << _PLACES) // amount
        if rests.get(places, lacking) >= lacking:
            return 0
        found = 0
        for lane, one in self.lefts.items():
            if (one % amount << _PLACES) // amount == places:
                found |= 1 << WIDTH * lane
        return found


class _Left:
    """In each lane what is left of an amount, in percent."""

    def __init__(self) -> None:
        self._row = Row(_MIDDLE)
        self._of: dict[int, _OfAmount] = {}
        """By amount."""
        self.least = AMOUNT_MAX
        """So much at least has been left in every lane."""

    def put(self, lane: int, taken: int, amount: int) -> None:
        if amount - taken < self.least:
            self.least = amount - taken
        left = 100 * (amount - taken) if taken <= amount else -1
        known = self._of.get(amount)
        if known is None:
            known = self._of[amount] = _OfAmount(amount)
        elif known.lefts.get(lane) == left:
            return
        self._row.put(lane, _MIDDLE + (left << _PLACES) // amount)
        known.put(lane, left)

    def less(self, taken: int) -> Lanes:
        """Where so much more is taken; a whole percentage is not too small."""
        found = self._row.lanes
        for amount, one in self._of.items():
            found -= (min(100 * taken, 101 * amount) << _PLACES) // amount * one.lanes
        return found

    def unsure(self, taken: int) -> Lanes:
        """1 where the whole percentage may be too large then."""
        found = 0
        for one in self._of.values():
            found |= one.unsure(taken)
        return found


class _Shares:
    """In each lane what is taken of an amount, in half percent; what is left of it is cut off."""

    def __init__(self) -> None:
        self._row = Row()

    @property
    def lanes(self) -> Lanes:
        return self._row.lanes

    def put(self, lane: int, taken: int, amount: int) -> None:
        self._row.put(lane, (50 * min(taken, amount) << _PLACES) // amount)


class _Scale:
    """Which lanes are counted in which amount."""

    def __init__(self) -> None:
        self._of: dict[int, Row] = {}

    def put(self, lane: int, amount: int) -> None:
        row = self._of.get(amount)
        if row is None:
            row = self._of[amount] = Row()
        row.put(lane, 1)

    def shares(self, taken: int) -> Lanes:
        """As `_Shares`, the same in each lane."""
        found = 0
        for amount, row in self._of.items():
            found += (50 * min(taken, amount) << _PLACES) // amount * row.lanes
        return found


class _Counted(Protocol):
    def put(self, lane: int, taken: int, amount: int) -> None:
        """So much of the amount is in this lane from now on."""


C = TypeVar("C", bound=_Counted)


class _OfPods(Generic[C]):
    """Amounts that pods ask for of one resource, each in a lane, counted in each amount that somebody asked for."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._asked: dict[int, int] = {}
        """By lane."""
        self._made: dict[int, C] = {}
        """By amount."""
        self.most = 0
        """No pod has asked for more."""

    def put(self, lane: int, asked: int) -> None:
        self._asked[lane] = asked
        self.most = max(self.most, asked)
        for amount, one in self._made.items():
            one.put(lane, asked, amount)

    def of(self, amount: int) -> C:
        found = self._made.get(amount)
        if found is None:
            found = self._made[amount] = self._make()
            for lane, asked in self._asked.items():
                found.put(lane, asked, amount)
        return found


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
            self._parts = every * _PARTS
            self._nearly = every * (_PARTS - 3)
            self._units = every << _PLACES
            self._signs = every * _MIDDLE
            self._scores = every * ((1 << _SIGN) - 1)
            """All bits of a number below 128, …"""
            self._wholes = self._scores << _PLACES
            """… and of one above the places."""

    def _enough(self, left: Lanes) -> Lanes:
        """1 where something is left, or nothing is lacking."""
        return left >> _PLACES + _SIGN & self._ones

    def _masked(self, marks: Lanes) -> Lanes:
        """All bits below the sign where that is the only one."""
        return marks - (marks >> _PLACES + _SIGN)


# --- whether there is room ------------------------------------------------------------------------------------------------


class RoomsOfPods(_Many):
    """Whether requests of cpu and memory fit; what is not asked for may be overcommitted."""

    def __init__(self, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._lefts = [(_OfPods(_Left), Row()) for _ in range(2)]
        """Of each resource what is left by pods, and 1 for those that ask for none of it."""

    def put(self, lane: int, pod: PodInfo) -> None:
        self._reach(lane)
        for (left, unasked), asked in zip(self._lefts, self._amounts(pod), strict=True):
            left.put(lane, asked)
            unasked.put(lane, not asked)

    def answers(self, use: NodeUse, size: NodeSize) -> tuple[Lanes, Lanes]:
        fits, unsure = self._ones, 0
        for (left, unasked), taken, amount in zip(self._lefts, use[:2], size, strict=True):
            if left.most + taken > amount:
                of_amount = left.of(amount)
                fits &= self._enough(of_amount.less(taken)) | unasked.lanes
                unsure |= of_amount.unsure(taken)
        return fits, unsure


class RoomsOfUses(_Many):
    """The same."""

    def __init__(self, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._lefts = [_Left() for _ in range(2)]

    def put_use(self, lane: int, use: NodeUse, size: NodeSize) -> None:
        self._reach(lane)
        for left, taken, amount in zip(self._lefts, use[:2], size, strict=True):
            left.put(lane, taken, amount)

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        fits, unsure = self._ones, 0
        for left, asked in zip(self._lefts, self._amounts(pod), strict=True):
            if asked and asked > left.least:
                fits &= self._enough(left.less(asked))
                unsure |= left.unsure(asked)
        return fits, unsure


# --- how much is free -----------------------------------------------------------------------------------------------------


class _ManyFree(_Many):
    """`least_allocated` of cpu and memory, weighted."""

    def __init__(self, of_cpu: int, of_memory: int, amounts: Amounts) -> None:
        """The weights, of which one is above zero."""
        super().__init__(amounts)
        self._weights = of_cpu, of_memory

    def _percent(self, left: Lanes, is_enough: bool, /) -> Lanes:
        """The whole part of it, above the places; 0 where it is below zero."""
        return left & (self._wholes if is_enough else self._wholes & self._masked(left & self._signs))

    def _free(self, cpu: Lanes, memory: Lanes) -> Lanes:
        """The score, where so much is free in percent."""
        of_cpu, of_memory = self._weights
        if of_cpu == of_memory:
            return cpu + memory >> _PLACES + 1 & self._scores
        return self._divided((cpu >> _PLACES) * of_cpu + (memory >> _PLACES) * of_memory, of_cpu + of_memory)

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


class FreeOfPods(_ManyFree):
    """The same for many pods."""

    def __init__(self, of_cpu: int, of_memory: int, amounts: Amounts) -> None:
        super().__init__(of_cpu, of_memory, amounts)
        self._cpu, self._memory = _OfPods(_Left), _OfPods(_Left)

    def put(self, lane: int, pod: PodInfo) -> None:
        self._reach(lane)
        cpu, memory = self._amounts(pod)
        self._cpu.put(lane, cpu)
        self._memory.put(lane, memory)

    def answers(self, use: NodeUse, size: NodeSize) -> tuple[Lanes, Lanes]:
        _, _, taken_cpu, taken_memory = use
        cpu, memory = self._cpu.of(size.cpu), self._memory.of(size.memory)
        free = self._free(
            self._percent(cpu.less(taken_cpu), self._cpu.most + taken_cpu <= size.cpu),
            self._percent(memory.less(taken_memory), self._memory.most + taken_memory <= size.memory),
        )
        return free, cpu.unsure(taken_cpu) | memory.unsure(taken_memory)


class FreeOfUses(_ManyFree):
    """The same for many uses. It falls with them, so that no use in a range has more than the lowest."""

    def __init__(self, of_cpu: int, of_memory: int, amounts: Amounts) -> None:
        super().__init__(of_cpu, of_memory, amounts)
        self._cpu, self._memory = _Left(), _Left()

    def put_use(self, lane: int, use: NodeUse, size: NodeSize) -> None:
        self._reach(lane)
        self._cpu.put(lane, use.scored_cpu, size.cpu)
        self._memory.put(lane, use.scored_memory, size.memory)

    def put_range(self, lane: int, low: NodeUse, high: NodeUse, size: NodeSize) -> None:
        self.put_use(lane, low, size)

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        cpu, memory = self._amounts(pod)
        return self._scores_for(cpu, memory), self._cpu.unsure(cpu) | self._memory.unsure(memory)

    def bounds_for(self, pod: PodInfo) -> Lanes:
        return self._scores_for(*self._amounts(pod))

    def _scores_for(self, cpu: int, memory: int) -> Lanes:
        return self._free(
            self._percent(self._cpu.less(cpu), cpu <= self._cpu.least),
            self._percent(self._memory.less(memory), memory <= self._memory.least),
        )


# --- how evenly it is used ------------------------------------------------------------------------------------------------


class _ManyBalances(_Many):
    """How much more even the pod makes the use of cpu and memory."""

    def _balances(self, differing: Lanes, bases: Lanes) -> tuple[Lanes, Lanes]:
        """The scores, where shares differ by so much with the pod, and 1 where they are not sure.

        Less than three in the last place has been added to that; `bases` are `base_of` the uses, above the places.
        """
        # Next to a whole number these places are 0 to 3: there a float may be on the other side of it.
        beyond = (differing & self._parts) + self._nearly & self._units
        # What is cut off of a number below zero is what is cut off of its amount, and that is one less than its whole part.
        unequal = (differing ^ self._masked(differing & self._signs ^ self._signs)) & self._wholes
        unsure = 0 if beyond == self._units else (beyond ^ self._units) >> _PLACES
        return bases - unequal >> _PLACES + 1 & self._scores, unsure


class BalancesOfPods(_ManyBalances):
    """The same for many pods."""

    def __init__(self, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._cpu, self._memory = _OfPods(_Shares), _OfPods(_Shares)
        self._left_of_cpu, self._left_of_memory = _OfPods(_Left), _OfPods(_Left)
        self._aparts: dict[NodeSize, Lanes] = {}

    def put(self, lane: int, pod: PodInfo) -> None:
        self._reach(lane)
        cpu, memory = self._amounts(pod)
        self._cpu.put(lane, cpu)
        self._memory.put(lane, memory)
        self._left_of_cpu.put(lane, cpu)
        self._left_of_memory.put(lane, memory)
        self._aparts.clear()

    def answers(self, use: NodeUse, size: NodeSize) -> tuple[Lanes, Lanes]:
        every = self._ones
        found = self._aparts.get(size)
        if found is None:
            found = self._cpu.of(size.cpu).lanes - self._memory.of(size.memory).lanes
            self._aparts[size] = found
        found, unsure = self._balances(
            found + (_MIDDLE + 2 + apart(use.cpu, use.memory, size)) * every,
            (base_of(use, size) << _PLACES) * every,
        )
        for left, taken, amount in (
            (self._left_of_cpu, use.cpu, size.cpu),
            (self._left_of_memory, use.memory, size.memory),
        ):
            if left.most + taken >= amount:
                unsure |= self._enough(left.of(amount).less(taken) - every) ^ every
        return found, unsure


class BalancesOfUses(_ManyBalances):
    """The same for many uses."""

    def __init__(self, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._scales = _Scale(), _Scale()
        self._lefts = _Left(), _Left()
        self._aparts = Row(_MIDDLE)
        self._bases = Row(_MIDDLE)

    def put_use(self, lane: int, use: NodeUse, size: NodeSize) -> None:
        self._reach(lane)
        for scale, left, taken, amount in zip(self._scales, self._lefts, use[:2], size, strict=True):
            scale.put(lane, amount)
            left.put(lane, taken, amount)
        self._aparts.put(lane, _MIDDLE + apart(use.cpu, use.memory, size))
        self._bases.put(lane, base_of(use, size) << _PLACES)

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        every = self._ones
        cpu, memory = self._amounts(pod)
        of_cpu, of_memory = self._scales
        found, unsure = self._balances(
            self._aparts.lanes + of_cpu.shares(cpu) - of_memory.shares(memory) + 2 * every, self._bases.lanes
        )
        for left, asked in zip(self._lefts, (cpu, memory), strict=True):
            if asked >= left.least:
                unsure |= self._enough(left.less(asked) - every) ^ every
        return found, unsure


class BalanceBounds(_Many):
    """Bounds of these scores for ranges of uses.

    How much more even a node becomes falls or rises with how uneven it is, all the way: who takes more cpu than memory does best where memory is taken.
    """

    def __init__(self, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._there = Row()
        self._scales = _Scale(), _Scale()
        self._with_memory, self._with_cpu = _Corner(), _Corner()

    def put_range(self, lane: int, low: NodeUse, high: NodeUse, size: NodeSize) -> None:
        self._reach(lane)
        self._there.put(lane, 1)
        for scale, amount in zip(self._scales, size, strict=True):
            scale.put(lane, amount)
        self._with_memory.put(lane, low.cpu, high.memory, size)
        self._with_cpu.put(lane, high.cpu, low.memory, size)

    def bounds_for(self, pod: PodInfo) -> Lanes:
        cpu, memory = self._amounts(pod)
        of_cpu, of_memory = self._scales
        more = of_cpu.shares(cpu) - of_memory.shares(memory)
        takes_cpu = self._enough(more + self._signs) & self._there.lanes
        if takes_cpu == self._there.lanes:
            return self._at(self._with_memory, more, cpu, memory)
        bounds = self._at(self._with_cpu, more, cpu, memory)
        if not takes_cpu:
            return bounds
        mask = (takes_cpu << WIDTH) - takes_cpu
        return bounds ^ (bounds ^ self._at(self._with_memory, more, cpu, memory)) & mask

    def _at(self, corner: _Corner, more: Lanes, cpu: int, memory: int) -> Lanes:
        """Where the shares differ by so much `more` with the pod."""
        found = corner.aparts.lanes + more
        unequal = (found ^ self._masked(found & self._signs ^ self._signs)) & (self._wholes | self._parts)
        bounds = corner.bases.lanes - unequal >> _PLACES + 1 & self._scores
        for left, asked in zip(corner.lefts, (cpu, memory), strict=True):
            if asked >= left.least:
                over = self._enough(left.less(asked) - self._ones) ^ self._ones
                bounds = bounds & ~(over * 255) | over * 100
        return bounds


class _Corner:
    """The uses in ranges with the most of one resource and the least of the other."""

    def __init__(self) -> None:
        self.aparts = Row(_MIDDLE)
        self.bases = Row(_MIDDLE)
        """Twice the bound is this less how unequally they are used with the pod."""
        self.lefts = _Left(), _Left()
        self._held: dict[int, tuple[int, int]] = {}
        """By lane."""

    def put(self, lane: int, cpu: int, memory: int, size: NodeSize) -> None:
        if self._held.get(lane) == (cpu, memory):
            return
        self._held[lane] = cpu, memory
        difference = apart(cpu, memory, size)
        self.aparts.put(lane, _MIDDLE + difference)
        # Both measures of evenness are cut off in a score, so that their difference may be one more than it is; and none of the sums here is to make it smaller.
        self.bases.put(lane, (100 + 50 + 1 << _PLACES) + abs(difference) + _SPARE)
        for left, taken, amount in zip(self.lefts, (cpu, memory), size, strict=True):
            left.put(lane, taken, amount)

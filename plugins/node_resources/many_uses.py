"""The answers of NodeResourcesFit and NodeResourcesBalancedAllocation about one pod for hundreds of uses of nodes at once, each in a lane (`tidelog.framework.lanes`).

Each class is for nodes with the same allocatable cpu and memory, and says of every pod and use what `use_fits` or `use_score` of the plugin
says of them alone. Shares are counted in fixed point, so fine that a quotient is never taken for the next whole number; where the plugin
counts in floats, the uses are told about which the last bit of a float decides. They implement `tidelog.framework.offers.ManyUses`.
"""

from __future__ import annotations

from tidelog.framework.lanes import TOP, WIDTH, Lanes, Row, ones, widened
from tidelog.framework.node_info import PodInfo
from tidelog.framework.offers import Corner, NodeUse
from tidelog.plugins.node_resources.many_pods import Amounts, base_of

_ANY = TOP >> 1
"""As if so much were free: more than there is anywhere."""
_OVER = _ANY - 1
"""In place of any use that is larger."""


_LEAST = Corner(cpu=False, memory=False)


class _Many:
    """Uses in lanes."""

    def __init__(self, amounts: Amounts) -> None:
        self._amounts = amounts
        self._lanes = 0
        self._ones: Lanes = 0

    def put_use(self, lane: int, use: NodeUse) -> None:
        self._reach(lane)
        self._put_use(lane, use)

    def _reach(self, lane: int) -> None:
        if lane >= self._lanes:
            self._lanes = widened(self._lanes, lane)
            self._ones = ones(self._lanes)
            self._widen(self._ones)

    def _widen(self, every: Lanes) -> None:
        """There are more lanes; `every` has 1 in each."""

    def _put_use(self, lane: int, use: NodeUse) -> None:
        raise NotImplementedError

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        raise NotImplementedError

    def corner(self, pod: PodInfo) -> Corner:
        return _LEAST

    def bounds_for(self, pod: PodInfo) -> Lanes:
        return self.answers_for(pod)[0]


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


class RoomForUses(_Many):
    """Whether requests of cpu and memory fit; what is not asked for may be overcommitted."""

    def __init__(self, cpu: int, memory: int, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._cpu, self._memory = _Left(cpu), _Left(memory)

    def _put_use(self, lane: int, use: NodeUse) -> None:
        self._cpu.put(lane, use.cpu)
        self._memory.put(lane, use.memory)

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        cpu, memory = self._amounts(pod)
        found = self._cpu.suffices(cpu, self._ones) if cpu else self._ones
        return found & self._memory.suffices(memory, self._ones) if memory else found, 0


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
        """In each lane, with the weight."""
        share = self._share(taken)
        used = (self._shares.lanes + share * every) >> self._bits & self._percent
        if self._most + share >= 101 << self._bits:
            free = self._all - used
            enough = free >> 10 & every
            used = every * 100 - (free & ((enough << 10) - enough))
        return used if self.weight == 1 else used * self.weight


class LeastAllocatedForUses(_Many):
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

    def _put_use(self, lane: int, use: NodeUse) -> None:
        self._cpu.put(lane, use.scored_cpu)
        self._memory.put(lane, use.scored_memory)

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        (cpu, memory), every, weights = self._amounts(pod), self._ones, self._weights
        free = self._all - self._cpu.percent(cpu, every) - self._memory.percent(memory, every)
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


class BalanceForUses(_Many):
    """How much more even the pod makes the use of cpu and memory, on nodes that have both.

    By how much the share of cpu exceeds that of memory is a number of the node and one of the pod, added. It may be negative, so it is kept
    from the middle of the lane.
    """

    def __init__(self, cpu: int, memory: int, amounts: Amounts) -> None:
        super().__init__(amounts)
        self._cpu, self._memory = cpu, memory
        self._cpu_left, self._memory_left = _Left(cpu), _Left(memory)
        self._apart = Row()
        self._base = Row(512)
        self._unequal = Row(512 << _FINE)
        """How unequally cpu and memory are used."""
        self._unsigned = self._near = self._away = self._octet = 0
        """The same number in each lane."""

    def _widen(self, every: Lanes) -> None:
        self._unsigned, self._near, self._away = every * (TOP - 1), every * _NEAR, every * _AWAY
        self._octet = every * 255

    def _difference(self, cpu: int, memory: int) -> int:
        """Fifty times that of the shares: half of it in percent."""
        cpu, memory = min(cpu, self._cpu), min(memory, self._memory)
        apart = 50 * (cpu * self._memory - memory * self._cpu) << _FINE
        return _MIDDLE + apart // (self._cpu * self._memory)

    def _put_use(self, lane: int, use: NodeUse) -> None:
        difference = self._difference(use.cpu, use.memory)
        self._apart.put(lane, difference)
        self._cpu_left.put(lane, use.cpu)
        self._memory_left.put(lane, use.memory)
        # Twice the score is this less how unequally cpu and memory are used with the pod.
        self._base.put(lane, 512 + base_of(use, self._cpu, self._memory))
        self._unequal.put(lane, (512 << _FINE) + abs(difference - _MIDDLE))

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        (cpu, memory), base, every = self._amounts(pod), self._base.lanes, self._ones
        apart = self._after(cpu, memory) + self._near
        clear = ((apart & self._away) + self._away) >> _FINE & every
        unequal = apart >> _FINE & self._octet
        within = self._within(cpu, memory)
        sure = clear if within is every else clear & within
        return (base - unequal) >> 1 & self._octet, every ^ sure

    def _after(self, cpu: int, memory: int) -> Lanes:
        """How unequally cpu and memory are used with both summands."""
        apart = self._apart.lanes + self._difference(cpu, memory) * self._ones
        below = self._ones ^ (apart >> (WIDTH - 1) & self._ones)
        if below:
            apart ^= (below << (WIDTH - 1)) - below
        return apart & self._unsigned

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
        gain = (self._unequal.lanes - self._after(*amounts) + self._near) >> _FINE & every * 1023
        # `_unequal` is 512 more, and a score 50 + (50 + gain) // 2.
        bounds = (gain + every * (100 + 50 + 1)) >> 1 & every * 1023
        bounds -= every * (512 // 2)
        within = self._within(*amounts)
        if within is not every:
            within = (within << 8) - within
            bounds = bounds & within | every * 100 & ~within
        return bounds

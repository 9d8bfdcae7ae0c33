"""The first pod of a shape, perhaps the only one: where a table would be made for one question only, the nodes are searched instead.

Nodes that are about equally full are one *cell* of the index. How good a node in each cell can be at most is computed for all cells at
once (`Bounds`, a cell a lane); from the best bound down, the states in a cell are scored at once, a state a lane. It applies
where every filter and score goes by traits, by the use of cpu and memory, or by counted domains.

Costs some twenty microseconds, a few for each set of traits and each amount of cpu or memory that nodes have, and five to fifteen for each cell that had to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import compress

from tidelog.framework.lanes import Row, marked, octets, ones
from tidelog.framework.node_info import NodeInfo
from tidelog.framework.node_sets import Bits, Groups, first_place
from tidelog.framework.offers import Bounds, ManyUses, Together
from tidelog.scheduler.evaluation.asking import Asked, Evaluation
from tidelog.scheduler.evaluation.kinds import (
    Judge,
    NoBounds,
    TraitKind,
    TraitKinds,
)
from tidelog.scheduler.evaluation.node_index import Cell, NodeIndex, NodeState
from tidelog.scheduler.evaluation.partitions import combined, normalized
from tidelog.scheduler.evaluation.parts import Counted
from tidelog.scheduler.evaluation.shape import Found

_LEVEL_MAX = 255
BLOCKS_MAX = 2_000
"""So many cells have their states in lanes at a time; eight kilobytes each, if they are few."""
STATES_SPARE = 8
"""A cell's lanes are begun anew when half of them, and so many more, are of states that no node is in."""


class Search:
    """Of one framework. Its lanes follow the index."""

    def __init__(self, index: NodeIndex) -> None:
        self._index = index
        self._cells = _Cells()
        self._changed: list[Cell] = []
        """The index's list of changed cells that is followed, and how far."""
        self._followed = 0

    def find(
        self,
        evaluation: Evaluation,
        domains: Sequence[Counted],
        start: int,
        *,
        fewest: bool,
        kinds: TraitKinds,
    ) -> Found | None:
        """The best node; None where the plugins do not answer for many nodes at once, or no node is left. Raises NotFast."""
        self._follow()
        try:
            return self._find(evaluation, [c for c in domains if not c.now.has_no_say], start, fewest, kinds)
        except NoBounds:
            return None

    def _follow(self) -> None:
        changed = self._index.changed_cells
        if self._changed is not changed:
            self._cells, self._changed, self._followed = _Cells(), changed, 0
        for cell in changed[self._followed :]:
            self._cells.hold(cell)
        self._followed = len(changed)

    def _sample_of(self, traits: int) -> NodeInfo:
        return self._index.node_in(self._index.by_traits[traits])

    def _find(
        self,
        evaluation: Evaluation,
        domains: Sequence[Counted],
        start: int,
        fewest: bool,
        kinds: TraitKinds,
    ) -> Found | None:
        index = self._index
        if evaluation.most > _LEVEL_MAX:
            raise NoBounds
        feasible = index.all
        for counted in domains:
            allowed = counted.now.allowed()
            if allowed is not None:
                feasible &= allowed
        passing: dict[int, TraitKind] = {}
        for traits, nodes in index.by_traits.items():
            kind = kinds.of(traits, partial(self._sample_of, traits))
            if kind.passes:
                passing[traits] = kind
            else:
                feasible &= ~nodes
        if not passing:
            return None
        view = _View(
            self._cells,
            passing,
            evaluation,
            lambda traits: kinds.judge(traits, partial(self._sample_of, traits)),
        )
        feasible &= ~view.without_room()
        count = feasible.bit_count()
        if not count:
            return None
        if count == 1:
            return Found(first_place(feasible), 1, feasible, 0)
        groups = combined(feasible, self._normalized(evaluation, domains, kinds, passing, feasible))
        best, winners = _best(view, groups, index.all)
        tied = winners.nodes(fewest=fewest)
        return Found(index.places.first(tied, start), count, tied, best)

    def _normalized(
        self,
        evaluation: Evaluation,
        domains: Sequence[Counted],
        kinds: TraitKinds,
        passing: Mapping[int, TraitKind],
        feasible: Bits,
    ) -> Iterator[tuple[int, Groups]]:
        by_traits = self._index.by_traits
        for number, asked in enumerate(evaluation.raw_scorers):
            raws = {kind.raws[number] for kind in passing.values()}
            if len(raws) == 1:
                yield asked.weight, [(kinds.alone(number, *raws), feasible)]
                continue
            sets = dict.fromkeys(sorted(raws), 0)
            for traits, kind in passing.items():
                sets[kind.raws[number]] |= by_traits[traits] & feasible
            groups = [(raw, nodes) for raw, nodes in sets.items() if nodes]
            yield asked.weight, normalized(asked, evaluation.state, evaluation.pod, groups)
        for counted in domains:
            scores = counted.now.scores(feasible)
            if scores is not None:
                yield counted.weight, scores


def _best(view: _View, groups: Groups, everything: Bits) -> tuple[int, _Winners]:
    """The best total and who has it; groups and cells best first, as far as they can still win."""
    best, winners = -1, _Winners()
    for score, nodes in sorted(groups, reverse=True):
        some = None if nodes == everything else nodes
        total = score + view.most
        while total >= best and total >= score:
            for cell in view.bounded(total - score):
                found, states = view.best_of(cell, score, total, some, best)
                if states:
                    if found > best:
                        best, winners = found, _Winners()
                    winners.add(states, some)
            total -= 1
    return best, winners


class _Winners:
    """Equally good nodes, by their states."""

    def __init__(self) -> None:
        self._states: list[tuple[list[NodeState], Bits | None]] = []

    def add(self, states: list[NodeState], some: Bits | None) -> None:
        """The nodes in these states, some of them if that is a set."""
        self._states.append((states, some))

    def nodes(self, *, fewest: bool) -> Bits:
        """All of them, `fewest`: those with the fewest pods. It is not asked about nodes that are left out then."""
        least = min([state.pods for states, _ in self._states for state in states]) if fewest else 0
        found = 0
        for states, some in self._states:
            # A sum is a union where no node is in two sets.
            nodes = sum([state.bits for state in states if not fewest or state.pods == least])
            found |= nodes if some is None else nodes & some
        return found


class _Cells:
    """The cells of the index that have places for pods, in lanes."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        """By lane."""
        self.octets = 0
        """255 in the lane of each."""
        self.full: list[Cell] = []
        """Those without places."""
        self.of_traits: dict[int, Row] = {}
        """1 in the lanes of those of nodes with these traits."""
        self._lane_of: dict[Cell, int] = {}
        self._bounds: dict[Asked, Bounds] = {}
        self._rooms: dict[Asked, tuple[ManyUses, ManyUses]] = {}
        """At least and at most so much is used."""
        self._uncovered: dict[Asked, set[int]] = {}
        """Traits of nodes about which the plugin does not answer so."""
        self._blocks: dict[Cell, _Block] = {}

    def hold(self, cell: Cell) -> None:
        """The cell is new, or wider than before."""
        if cell.is_full:
            if cell not in self._lane_of:
                self._lane_of[cell] = -1
                self.full.append(cell)
            return
        lane = self._lane_of.get(cell)
        if lane is None:
            lane = self._lane_of[cell] = len(self.cells)
            self.cells.append(cell)
            self.octets = ones(len(self.cells)) * _LEVEL_MAX
            row = self.of_traits.get(cell.traits)
            if row is None:
                row = self.of_traits[cell.traits] = Row()
            row.put(lane, 1)
        for asked, bounds in self._bounds.items():
            if self._covers(asked, cell):
                bounds.put_range(lane, cell.low, cell.high, cell.size)
        for asked, rooms in self._rooms.items():
            if self._covers(asked, cell):
                _put_rooms(rooms, lane, cell)

    def _covers(self, asked: Asked, cell: Cell) -> bool:
        if _together(asked).covers(cell.size):
            return True
        self._uncovered[asked].add(cell.traits)
        return False

    def bounds_of(self, asked: Asked, traits: Iterable[int]) -> Bounds:
        """The plugin's bounds for the cells. Raises NoBounds if it has none for some cell of nodes with these traits."""
        found = self._bounds.get(asked)
        if found is None:
            make = _together(asked).bounds
            if make is None:
                raise NoBounds
            found = self._bounds[asked] = make()
            self._uncovered[asked] = set()
            for lane, cell in enumerate(self.cells):
                if self._covers(asked, cell):
                    found.put_range(lane, cell.low, cell.high, cell.size)
        self._check(asked, traits)
        return found

    def rooms_of(self, asked: Asked, traits: Iterable[int]) -> tuple[ManyUses, ManyUses]:
        """Whether there is room in the cells where the least is used, and where the most is. Raises NoBounds."""
        found = self._rooms.get(asked)
        if found is None:
            make = _together(asked).uses
            found = self._rooms[asked] = make(), make()
            self._uncovered[asked] = set()
            for lane, cell in enumerate(self.cells):
                if self._covers(asked, cell):
                    _put_rooms(found, lane, cell)
        self._check(asked, traits)
        return found

    def _check(self, asked: Asked, traits: Iterable[int]) -> None:
        uncovered = self._uncovered[asked]
        if uncovered and not uncovered.isdisjoint(traits):
            raise NoBounds

    def block(self, cell: Cell) -> _Block:
        """The states of the cell."""
        found = self._blocks.get(cell)
        if found is None or len(found.states) > 2 * len(cell.states) + STATES_SPARE:
            if len(self._blocks) >= BLOCKS_MAX:
                self._blocks.clear()
            found = self._blocks[cell] = _Block(cell)
        found.follow()
        return found


def _together(asked: Asked) -> Together:
    found = asked.together
    if found is None:
        raise NoBounds
    return found


def _put_rooms(rooms: tuple[ManyUses, ManyUses], lane: int, cell: Cell) -> None:
    for one, use in zip(rooms, (cell.low, cell.high), strict=True):
        one.put_use(lane, use, cell.size)


class _Block:
    """The states of a cell, in lanes: those that nodes are in, and some that nodes were in."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._joined = -1
        self._lane_of: dict[NodeState, int] = {}
        self.states: list[NodeState] = []
        """By lane."""
        self._octets = 0
        """255 in each lane."""
        self._known: dict[Asked, ManyUses] = {}

    def follow(self) -> None:
        """Have all states that there are."""
        if self._joined == self._cell.joined:
            return
        self._joined = self._cell.joined
        for state in self._cell.states:
            if state not in self._lane_of:
                lane = self._lane_of[state] = len(self.states)
                self.states.append(state)
                for together in self._known.values():
                    together.put_use(lane, state.use, self._cell.size)
        self._octets = ones(len(self.states)) * _LEVEL_MAX

    def levels(self, evaluation: Evaluation, judge: Callable[[], Judge]) -> bytes:
        """The sum of the scores that depend on the use, for each state."""
        sums = doubt = 0
        for one in evaluation.uses:
            found, unsure = self._of(one).answers_for(evaluation.pod)
            doubt |= unsure
            sums += found if one.weight == 1 else found * one.weight
        levels = octets(sums & self._octets, len(self.states))
        doubt &= self._octets
        if doubt:
            corrected = bytearray(levels)
            score = judge().score
            # In these lanes there may be anything.
            for lane in marked(doubt):
                corrected[lane] = score(self.states[lane].use)
            return bytes(corrected)
        return levels

    def _of(self, asked: Asked) -> ManyUses:
        found = self._known.get(asked)
        if found is None:
            found = self._known[asked] = _together(asked).uses()
            for lane, state in enumerate(self.states):
                found.put_use(lane, state.use, self._cell.size)
        return found


class _View:
    """All cells, as the pod sees them."""

    def __init__(
        self,
        cells: _Cells,
        passing: Mapping[int, TraitKind],
        evaluation: Evaluation,
        judge: Callable[[int], Judge],
    ) -> None:
        """`passing`: the traits of nodes for which it may do; `judge` gives who judges nodes with some traits. Raises NoBounds."""
        self._judge = judge
        self._cells = cells
        self._passing = passing
        self._evaluation = evaluation
        self._levels: dict[Cell, tuple[bytes, Sequence[NodeState]]] = {}
        """The sums of the scores that depend on the use, and the states that have them: all in which nodes are."""
        pod, sums = evaluation.pod, 0
        for one in evaluation.uses:
            bounds = cells.bounds_of(one, passing).bounds_for(pod)
            sums += bounds if one.weight == 1 else bounds * one.weight
        sums &= cells.octets
        fixed = [kind.fixed for kind in passing.values()]
        self._base = min(fixed)
        """The least fixed part of a score."""
        if max(fixed) + evaluation.most - self._base > _LEVEL_MAX:
            raise NoBounds
        for traits, kind in passing.items():
            # Of nodes with some traits there may be none that takes another pod.
            if kind.fixed > self._base and traits in cells.of_traits:
                sums += (kind.fixed - self._base) * cells.of_traits[traits].lanes
        self._bounds = octets(sums, len(cells.cells))
        """Of cells for which the pod may do, how much is added to that at most."""
        self.most = self._base + max(self._bounds, default=0)
        """No node is better."""

    def without_room(self) -> Bits:
        """The nodes that the pod does not fit on, of those for which it may do."""
        cells, evaluation, passing = self._cells, self._evaluation, self._passing
        pod = evaluation.pod
        out = 0
        for cell in cells.full:
            out |= cell.bits
        some = sure = every = cells.octets // _LEVEL_MAX
        rooms = [cells.rooms_of(one, passing) for one in evaluation.rooms]
        for _, high in rooms:
            found, unsure = high.answers_for(pod)
            sure &= found & ~unsure
        if sure == every:
            return out
        for low, _ in rooms:
            found, unsure = low.answers_for(pod)
            some &= found | unsure
        count = len(cells.cells)
        marks = octets(sure, count), octets(some, count)
        for cell, is_sure, has_some in zip(cells.cells, *marks, strict=True):
            if is_sure or not cell.bits or cell.traits not in passing:
                continue
            if not has_some:
                out |= cell.bits
                continue
            has_room = self._judge(cell.traits).has_room
            for state in cell.states:
                if not has_room(state.use):
                    out |= state.bits
        return out

    def bounded(self, bound: int) -> Iterator[Cell]:
        """The cells with this bound."""
        bounds, cells, passing = self._bounds, self._cells.cells, self._passing
        wanted = bound - self._base
        if 0 <= wanted <= _LEVEL_MAX:
            lane = bounds.find(wanted)
            while lane >= 0:
                cell = cells[lane]
                if cell.traits in passing:
                    yield cell
                lane = bounds.find(wanted, lane + 1)

    def best_of(
        self, cell: Cell, score: int, bound: int, some: Bits | None, best: int
    ) -> tuple[int, list[NodeState]]:
        """The best total of nodes in the cell, which is not above `bound`, and their states, if it is not below `best`; `some`: only those of them."""
        if not (cell.bits if some is None else cell.bits & some):
            return best, []
        kind = self._passing[cell.traits]
        known = self._levels.get(cell)
        if known is None:
            block = self._cells.block(cell)
            levels = block.levels(self._evaluation, partial(self._judge, cell.traits))
            known = self._levels[cell] = levels, block.states
        levels, states = known
        base = score + kind.fixed
        for level in range(bound - base, -1, -1):
            total = base + level
            if total < best:
                break
            if level not in levels:
                continue
            of_level = compress(states, levels.translate(_only(level)))
            found = [state for state in of_level if (state.bits if some is None else state.bits & some)]
            if found:
                return total, found
        return best, []


@cache
def _only(level: int) -> bytes:
    """Translates this level to 1, and all others to 0."""
    return bytes(one == level for one in range(_LEVEL_MAX + 1))

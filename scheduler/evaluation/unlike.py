"""The first pod of a shape, perhaps the only one: where a table would be made for one question only, the nodes are searched instead.

Nodes that are about equally full are one *cell* of the index. How good a node in each cell can be at most is computed for all cells of nodes with
equal traits at once (`ManyUses`, a cell a lane); from the best bound down, the states in a cell are scored at once, a state a lane. It applies
where every filter and score goes by traits, by the use of cpu and memory, or by counted domains.

Costs some ten microseconds for each set of traits, and five for each cell that had to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import compress
from typing import NamedTuple

from tidelog.framework.lanes import marked, octets, ones
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import Bits, Groups, first_from, first_place
from tidelog.framework.offers import Bounds, Corner, ManyUses, NodeUse
from tidelog.scheduler.evaluation.asking import Asked, Evaluation
from tidelog.scheduler.evaluation.kinds import (
    NoBounds,
    TraitKind,
    TraitKinds,
)
from tidelog.scheduler.evaluation.node_index import Cell, NodeIndex, NodeState
from tidelog.scheduler.evaluation.partitions import combined, normalized
from tidelog.scheduler.evaluation.parts import Counted
from tidelog.scheduler.evaluation.shape import Found

_LEVEL_MAX = 255
STATES_SPARE = 8
"""A cell's lanes are begun anew when half of them, and so many more, are of states that no node is in."""
_MOST = Corner(cpu=True, memory=True)
_LEAST = Corner(cpu=False, memory=False)


class Search:
    """Of one framework. Its lanes follow the index."""

    def __init__(self, index: NodeIndex) -> None:
        self._index = index
        self._banks: dict[int, _Bank] = {}
        """By the number of the traits."""
        self._cells: list[Cell] = []
        """The index's list of changed cells that is followed, and how far."""
        self._followed = 0
        self._left: list[Cell] = []
        """Changed cells of traits that no node has any more: they are held when one has them again."""

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
        if self._cells is not changed:
            self._banks, self._cells, self._followed, self._left = {}, changed, 0, []
        todo, self._left = [*self._left, *changed[self._followed :]], []
        for cell in todo:
            bank = self._banks.get(cell.traits)
            if bank is None and cell.traits not in self._index.by_traits:
                self._left.append(cell)
                continue
            if bank is None:
                bank = self._banks[cell.traits] = _Bank(self._sample_of(cell.traits))
            bank.hold(cell)
        self._followed = len(changed)

    def _sample_of(self, traits: int) -> NodeInfo:
        return self._index.snapshot.nodes[first_place(self._index.by_traits[traits])]

    def _find(
        self,
        evaluation: Evaluation,
        domains: Sequence[Counted],
        start: int,
        fewest: bool,
        kinds: TraitKinds,
    ) -> Found | None:
        index = self._index
        asked = _AskedTogether.of(evaluation)
        feasible = index.all
        for counted in domains:
            allowed = counted.now.allowed()
            if allowed is not None:
                feasible &= allowed
        views = []
        for traits, nodes in index.by_traits.items():
            kind = kinds.of(traits, partial(self._sample_of, traits))
            if kind.passes:
                view = _View(self._banks[traits], kind, asked, nodes)
                feasible &= ~view.without_room()
                views.append(view)
            else:
                feasible &= ~nodes
        count = feasible.bit_count()
        if not count:
            return None
        if count == 1:
            return Found(first_place(feasible), 1, feasible, 0)
        groups = combined(feasible, self._normalized(evaluation, domains, views, feasible))
        best, winners = _best(views, groups, index.all)
        tied = winners.nodes(fewest=fewest)
        return Found(first_from(tied, start), count, tied, best)

    def _normalized(
        self, evaluation: Evaluation, domains: Sequence[Counted], views: Sequence[_View], feasible: Bits
    ) -> Iterator[tuple[int, Groups]]:
        for number, asked in enumerate(evaluation.raw_scorers):
            sets: dict[int, Bits] = {}
            for view in views:
                nodes = feasible if len(views) == 1 else view.nodes & feasible
                if nodes:
                    raw = view.kind.raws[number]
                    sets[raw] = sets.get(raw, 0) | nodes
            yield asked.weight, normalized(asked, evaluation.state, evaluation.pod, list(sets.items()))
        for counted in domains:
            scores = counted.now.scores(feasible)
            if scores is not None:
                yield counted.weight, scores


def _best(views: Sequence[_View], groups: Groups, everything: Bits) -> tuple[int, _Winners]:
    """The best total and who has it; groups and cells best first, as far as they can still win."""
    best, winners = -1, _Winners()
    for score, nodes in sorted(groups, reverse=True):
        some = None if nodes == everything else nodes
        total = score + max(view.most for view in views)
        while total >= best and total >= score:
            for view in views:
                if view.most >= total - score:
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


class _Bank:
    """The nodes with equal traits, in lanes."""

    def __init__(self, sample: NodeInfo) -> None:
        self._sample = sample
        self.cells: list[Cell] = []
        """By lane, those that have places for pods."""
        self.octets = 0
        """255 in the lane of each."""
        self.full: list[Cell] = []
        self._lane_of: dict[Cell, int] = {}
        self._models: dict[Asked, Bounds] = {}
        self._bounds: dict[tuple[Asked, Corner], Bounds] = {}
        self._rooms: dict[tuple[Asked, Corner], ManyUses] = {}
        self._ends: dict[Corner, _Ends] = {}
        """Of each cell a use, for those."""
        self._blocks: dict[Cell, _Block] = {}

    def hold(self, cell: Cell) -> None:
        """The cell is new, or wider than before."""
        lane = self._lane_of.get(cell)
        if lane is None:
            cells = self.full if cell.is_full else self.cells
            lane = self._lane_of[cell] = len(cells)
            cells.append(cell)
            self.octets = ones(len(self.cells)) * _LEVEL_MAX
        if not cell.is_full:
            for ends in self._ends.values():
                ends.put(lane, cell)

    def corner_for(self, asked: Asked, pod: PodInfo) -> Corner:
        """Where in a cell the score of the plugin is the highest. Raises NoBounds if it does not answer for many nodes at once."""
        model = self._models.get(asked)
        if model is None:
            model = self._models[asked] = _bounds(asked, self._sample)
        return model.corner(pod)

    def bounds_at(self, asked: Asked, corner: Corner) -> Bounds:
        """The cells in lanes, each with the use at this corner."""
        found = self._bounds.get((asked, corner))
        if found is None:
            found = self._bounds[asked, corner] = _bounds(asked, self._sample)
            self._ends_at(corner).tell(found)
        return found

    def rooms_at(self, asked: Asked, corner: Corner) -> ManyUses:
        """The same."""
        found = self._rooms.get((asked, corner))
        if found is None:
            found = self._rooms[asked, corner] = _uses(asked, self._sample)
            self._ends_at(corner).tell(found)
        return found

    def _ends_at(self, corner: Corner) -> _Ends:
        found = self._ends.get(corner)
        if found is None:
            found = self._ends[corner] = _Ends(corner)
            for lane, cell in enumerate(self.cells):
                found.put(lane, cell)
        return found

    def block(self, cell: Cell) -> _Block:
        """The states of the cell."""
        found = self._blocks.get(cell)
        if found is None or len(found.states) > 2 * len(cell.states) + STATES_SPARE:
            found = self._blocks[cell] = _Block(cell, self._sample)
        found.follow()
        return found


def _uses(asked: Asked, node: NodeInfo) -> ManyUses:
    found = asked.together(node)
    if found is None:
        raise NoBounds
    return found.uses()


def _bounds(asked: Asked, node: NodeInfo) -> Bounds:
    found = asked.together(node)
    if found is None or found.bounds is None:
        raise NoBounds
    return found.bounds()


class _Ends:
    """Of each cell of a bank the use at one corner of its range."""

    def __init__(self, corner: Corner) -> None:
        self._corner = corner
        self._uses: list[NodeUse] = []
        """By lane."""
        self._told: list[Bounds | ManyUses] = []

    def tell(self, one: Bounds | ManyUses) -> None:
        """Have them in its lanes, from now on."""
        self._told.append(one)
        for lane, use in enumerate(self._uses):
            one.put_use(lane, use)

    def put(self, lane: int, cell: Cell) -> None:
        """The cell in this lane is new, or wider than before: mostly at another corner."""
        low, high = cell.low, cell.high
        of_cpu, of_memory = (high if self._corner.cpu else low), (high if self._corner.memory else low)
        use = NodeUse(of_cpu.cpu, of_memory.memory, of_cpu.scored_cpu, of_memory.scored_memory)
        if lane == len(self._uses):
            self._uses.append(use)
        elif self._uses[lane] == use:
            return
        else:
            self._uses[lane] = use
        for one in self._told:
            one.put_use(lane, use)


class _Block:
    """The states of a cell, in lanes: those that nodes are in, and some that nodes were in."""

    def __init__(self, cell: Cell, sample: NodeInfo) -> None:
        self._cell = cell
        self._sample = sample
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
                    together.put_use(lane, state.use)
        self._octets = ones(len(self.states)) * _LEVEL_MAX

    def levels(self, asked: _AskedTogether, kind: TraitKind) -> bytes:
        """The sum of the scores that depend on the use, for each state."""
        sums = doubt = 0
        for one in asked.scorers:
            found, unsure = self._of(one).answers_for(asked.pod)
            doubt |= unsure
            sums += found if one.weight == 1 else found * one.weight
        levels = octets(sums & self._octets, len(self.states))
        doubt &= self._octets
        if doubt:
            corrected = bytearray(levels)
            # In these lanes there may be anything.
            for lane in marked(doubt):
                corrected[lane] = kind.score(self.states[lane].use)
            return bytes(corrected)
        return levels

    def _of(self, asked: Asked) -> ManyUses:
        found = self._known.get(asked)
        if found is None:
            found = self._known[asked] = _uses(asked, self._sample)
            for lane, state in enumerate(self.states):
                found.put_use(lane, state.use)
        return found


class _View:
    """The nodes with equal traits, as the pod sees them."""

    def __init__(self, bank: _Bank, kind: TraitKind, asked: _AskedTogether, nodes: Bits) -> None:
        """Raises NoBounds."""
        self._bank = bank
        self._asked = asked
        self.kind = kind
        self.nodes = nodes
        self._levels: dict[Cell, tuple[bytes, Sequence[NodeState]]] = {}
        pod, sums = asked.pod, 0
        for one in asked.scorers:
            bounds = bank.bounds_at(one, bank.corner_for(one, pod)).bounds_for(pod)
            sums += bounds if one.weight == 1 else bounds * one.weight
        self._bounds = octets(sums & bank.octets, len(bank.cells))
        self.most = self.kind.fixed + max(self._bounds, default=0)
        """No node is better."""

    def without_room(self) -> Bits:
        """The nodes that the pod does not fit on."""
        bank, kind, pod = self._bank, self.kind, self._asked.pod
        out = 0
        for cell in bank.full:
            out |= cell.bits
        count = len(bank.cells)
        every = bank.octets // _LEVEL_MAX
        some = sure = every
        for one in self._asked.rooms:
            found, unsure = bank.rooms_at(one, _MOST).answers_for(pod)
            sure &= found & ~unsure
        if sure == every:
            return out
        for one in self._asked.rooms:
            found, unsure = bank.rooms_at(one, _LEAST).answers_for(pod)
            some &= found | unsure
        marks = octets(sure, count), octets(some, count)
        for cell, is_sure, has_some in zip(bank.cells, *marks, strict=True):
            if is_sure or not cell.bits:
                continue
            if not has_some:
                out |= cell.bits
                continue
            for state in cell.states:
                if not kind.has_room(state.use):
                    out |= state.bits
        return out

    def bounded(self, bound: int) -> Iterator[Cell]:
        """The cells with this bound."""
        bounds, cells, wanted = self._bounds, self._bank.cells, bound - self.kind.fixed
        if 0 <= wanted <= _LEVEL_MAX:
            lane = bounds.find(wanted)
            while lane >= 0:
                yield cells[lane]
                lane = bounds.find(wanted, lane + 1)

    def best_of(
        self, cell: Cell, score: int, bound: int, some: Bits | None, best: int
    ) -> tuple[int, list[NodeState]]:
        """The best total of nodes in the cell, which is not above `bound`, and their states, if it is not below `best`; `some`: only those of them."""
        if not (cell.bits if some is None else cell.bits & some):
            return best, []
        known = self._levels.get(cell)
        if known is None:
            block = self._bank.block(cell)
            known = self._levels[cell] = block.levels(self._asked, self.kind), block.states
        levels, states = known
        base = score + self.kind.fixed
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


class _AskedTogether(NamedTuple):
    """Plugins that answer for many nodes at once, about one pod."""

    pod: PodInfo
    rooms: Sequence[Asked]
    scorers: Sequence[Asked]
    most: int
    """No sum of scores is higher."""

    @classmethod
    def of(cls, evaluation: Evaluation) -> _AskedTogether:
        """Raises NoBounds."""
        rooms = [asked for asked in evaluation.filters if not asked.of_traits]
        scorers = [asked for asked in evaluation.scorers if not asked.of_traits]
        most = sum(100 * asked.weight for asked in scorers)
        if most > _LEVEL_MAX:
            raise NoBounds
        return cls(evaluation.pod, rooms, scorers, most)


@cache
def _only(level: int) -> bytes:
    """Translates this level to 1, and all others to 0."""
    return bytes(one == level for one in range(_LEVEL_MAX + 1))

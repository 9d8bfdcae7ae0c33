"""The first pod of a shape, perhaps the only one: where a table would be made for one question only, bounds spare most of the work.

Nodes that are about equally full are one *cell* of the index. For a cell plugins tell how good a node in it can be at most (`BoundsScores`)
and whether there is room (`BoundsRoom`), so the cells are gone through from the best bound down, and only states that can still win
are scored. It applies where every filter and score goes by traits, bounds, or counted domains.

Costs two microseconds a cell, and half of one for each state that had to be looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tidelog.framework.node_sets import Bits, Groups, first_from, first_place
from tidelog.scheduler.evaluation.asking import Evaluation
from tidelog.scheduler.evaluation.kinds import NoBounds, TraitKind, TraitKinds
from tidelog.scheduler.evaluation.node_index import Cell, NodeIndex, NodeState
from tidelog.scheduler.evaluation.partitions import combined, normalized
from tidelog.scheduler.evaluation.shape import Counted, Found


class _Candidates(NamedTuple):
    """States of one cell that pass the filters."""

    bound: int
    """None of them has a higher sum of scores, normalised ones aside."""
    bounds: Sequence[int]
    """The same, score by score."""
    kind: TraitKind
    states: Collection[NodeState]
    bits: Bits


def find_once(
    index: NodeIndex,
    evaluation: Evaluation,
    domains: Sequence[Counted],
    start: int,
    *,
    fewest: bool,
    kinds: TraitKinds,
) -> tuple[Found, Bits] | None:
    """The best node, and those among which it was chosen (`fewest`: of the equally good ones those with the fewest pods); None where some node has no bounds, or no node is left. Raises NotFast."""
    try:
        return _Search(index, evaluation, domains, kinds).run(start, fewest=fewest)
    except NoBounds:
        return None


class _Search:
    def __init__(
        self, index: NodeIndex, evaluation: Evaluation, domains: Sequence[Counted], kinds: TraitKinds
    ) -> None:
        self._index = index
        self._evaluation = evaluation
        self._domains = [counted for counted in domains if not counted.now.has_no_say]
        self._kinds = kinds

    def run(self, start: int, *, fewest: bool) -> tuple[Found, Bits] | None:
        among = self._index.all
        for counted in self._domains:
            allowed = counted.now.allowed()
            if allowed is not None:
                among &= allowed
        candidates = list(self._candidates(among))
        feasible = 0
        for one in candidates:
            feasible |= one.bits
        count = feasible.bit_count()
        if not count:
            return None
        if count == 1:
            return Found(first_place(feasible), 1, 1, 0), feasible
        candidates.sort(key=_bound, reverse=True)
        groups = combined(feasible, self._normalized(candidates, feasible))
        best, winners = self._best(candidates, groups, feasible)
        left = self._index.fewest(winners) if fewest else winners
        return Found(first_from(left, start), count, winners.bit_count(), best), left

    # --- who passes ---------------------------------------------------------------------------------------------------

    def _candidates(self, among: Bits) -> Iterator[_Candidates]:
        everywhere = among == self._index.all
        for cell in self._index.cells.values():
            if cell.is_full or not cell.bits:
                continue
            kind = self._kind(cell)
            if not kind.passes:
                continue
            states, bits = self._with_room(cell, kind)
            if not everywhere:
                bits &= among
            if bits:
                bounds = [weight * score.bound(cell.range) for weight, score in kind.scores]
                yield _Candidates(kind.fixed + sum(bounds), bounds, kind, states, bits)

    def _with_room(self, cell: Cell, kind: TraitKind) -> tuple[Collection[NodeState], Bits]:
        """The states of the cell that have room, and their nodes."""
        fits = [room(cell.range) for room in kind.rooms]
        if all(fits):
            return cell.states, cell.bits
        if False in fits:
            return (), 0
        evaluation, found, bits = self._evaluation, [], 0
        asked_by_state = [asked for asked in evaluation.filters if not asked.of_traits]
        for state in cell.states:
            node = self._index.sample(state)
            if all(one.verdict(evaluation.state, evaluation.pod, node) is None for one in asked_by_state):
                found.append(state)
                bits |= state.bits
        return found, bits

    def _kind(self, cell: Cell) -> TraitKind:
        return self._kinds.of(cell.traits, lambda: self._index.snapshot.nodes[first_place(cell.bits)])

    # --- the best -----------------------------------------------------------------------------------------------------

    def _normalized(self, candidates: Sequence[_Candidates], feasible: Bits) -> Iterator[tuple[int, Groups]]:
        evaluation = self._evaluation
        for number, asked in enumerate(evaluation.raw_scorers):
            sets: dict[int, Bits] = {}
            for one in candidates:
                raw = one.kind.raws[number]
                sets[raw] = sets.get(raw, 0) | one.bits
            yield asked.weight, normalized(asked, evaluation.state, evaluation.pod, list(sets.items()))
        for counted in self._domains:
            scores = counted.now.scores(feasible)
            if scores is not None:
                yield counted.weight, scores

    def _best(self, candidates: Sequence[_Candidates], groups: Groups, feasible: Bits) -> tuple[int, Bits]:
        """The best total and its nodes; groups and cells best first, as far as they can still win."""
        best, winners = -1, 0
        for score, nodes in sorted(groups, reverse=True):
            some = nodes if nodes != feasible or feasible != self._index.all else None
            for one in candidates:
                if score + one.bound < best:
                    break
                if some is None or one.bits & some:
                    best, winners = _best_of(one, score, some, best, winners)
        return best, winners


def _best_of(
    candidates: _Candidates, score: int, some: Bits | None, best: int, winners: Bits
) -> tuple[int, Bits]:
    """The best total of these and of what is known, and the nodes with it; `some`: only those of them."""
    kind = candidates.kind
    fixed = score + kind.fixed
    # The most that is still to come after each score: where that is not enough, the next one is not asked for.
    steps, rest = [], candidates.bound - kind.fixed
    for (weight, one), bound in zip(kind.scores, candidates.bounds, strict=True):
        rest -= bound
        steps.append((weight, one.score, rest))
    for state in candidates.states:
        total, use = fixed, state.use
        for weight, scored, rest in steps:
            total += weight * scored(use)
            if total + rest < best:
                break
        else:
            bits = state.bits if some is None else state.bits & some
            if not bits:
                continue
            if total > best:
                best, winners = total, bits
            else:
                winners |= bits
    return best, winners


def _bound(candidates: _Candidates) -> int:
    return candidates.bound

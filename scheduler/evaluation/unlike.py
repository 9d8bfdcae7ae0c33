"""The first pod of a shape, perhaps the only one: where a table would be made for one question only, bounds spare most of the work.

Nodes that are about equally full are one *cell* of the index. For a cell plugins tell how good a node in it can be at most (`BoundsScores`)
and whether there is room (`BoundsRoom`), so the cells are gone through from the best bound down, and only states that can still win
are scored. It applies where every filter and score goes by traits, bounds, or counted domains.

Costs two microseconds a cell, and half of one for each state that had to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from tidelog.framework.node_sets import Bits, Groups, first_from, first_place
from tidelog.framework.offers import UseRange, UseScore
from tidelog.scheduler.evaluation.asking import Asked, Way
from tidelog.scheduler.evaluation.node_index import Cell, NodeIndex, NodeState
from tidelog.scheduler.evaluation.shape import Counted, Evaluation, Found, combined, normalized

Rooms = tuple[Callable[[UseRange], bool | None], ...]
Scores = tuple[tuple[int, UseScore], ...]


class _Kind(NamedTuple):
    """What nodes with equal traits have in common for the pod."""

    passes: bool
    rooms: Rooms = ()
    fixed: int = 0
    """The part of the score that does not depend on the pods there."""
    scores: Scores = ()
    """With their weights."""
    raws: tuple[int, ...] = ()
    """To be normalised."""


class _Candidates(NamedTuple):
    """States of one cell that pass the filters."""

    bound: int
    """None of them has a higher sum of scores, normalised ones aside."""
    bounds: Sequence[int]
    """The same, score by score."""
    kind: _Kind
    states: Collection[NodeState]
    bits: Bits


class _NoBounds(Exception):
    """A plugin has no bounds for this pod, or for nodes of some kind."""


def find_once(
    index: NodeIndex, evaluation: Evaluation, domains: Sequence[Counted], start: int
) -> tuple[Found, Bits] | None:
    """The best node, and all that are as good; None where it does not apply, or no node is left. Raises NotFast."""
    if not is_searchable(evaluation):
        return None
    try:
        return _Search(index, evaluation, domains).run(start)
    except _NoBounds:
        return None


def is_searchable(evaluation: Evaluation) -> bool:
    """Whether all plugins that have a say about the pod may have bounds."""
    if evaluation.node_filters or evaluation.node_scorers:
        return False
    # In cells without places for pods nobody looks: that a filter cares about these is told by its offering.
    return (
        any(asked.has_rooms for asked in evaluation.filters)
        and all(asked.of_traits or asked.has_rooms for asked in evaluation.filters)
        and all(asked.of_traits or asked.has_bounds for asked in evaluation.scorers)
        and all(asked.of_traits for asked in evaluation.raw_scorers)
    )


class _Search:
    def __init__(self, index: NodeIndex, evaluation: Evaluation, domains: Sequence[Counted]) -> None:
        self._index = index
        self._evaluation = evaluation
        self._domains = [counted for counted in domains if not counted.now.has_no_say]
        self._kinds: dict[int, _Kind] = {}

    def run(self, start: int) -> tuple[Found, Bits] | None:
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
        return Found(first_from(winners, start), count, winners.bit_count(), best), winners

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

    def _with_room(self, cell: Cell, kind: _Kind) -> tuple[Collection[NodeState], Bits]:
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

    def _kind(self, cell: Cell) -> _Kind:
        known = self._kinds.get(cell.traits)
        if known is None:
            known = self._kinds[cell.traits] = self._made_kind(cell)
        return known

    def _made_kind(self, cell: Cell) -> _Kind:
        evaluation = self._evaluation
        state, pod = evaluation.state, evaluation.pod
        node = self._index.snapshot.nodes[first_place(cell.bits)]
        rooms: Rooms = ()
        for asked in evaluation.filters:
            if asked.of_traits:
                if asked.verdict(state, pod, node) is not None:
                    return _Kind(False)
                continue
            room = asked.plugin.use_fits(state, pod, node)
            if room is None:
                raise _NoBounds
            rooms = (*rooms, room)
        fixed, scores = 0, []
        for asked in evaluation.scorers:
            if asked.of_traits:
                fixed += asked.weight * asked.raw_score(state, pod, node)
            else:
                scores.append((asked.weight, _use_score(asked, evaluation, node)))
        raws = tuple([asked.raw_score(state, pod, node) for asked in evaluation.raw_scorers])
        return _Kind(True, rooms, fixed, tuple(scores), raws)

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


def _use_score(asked: Asked, evaluation: Evaluation, node: object) -> UseScore:
    assert asked.way is Way.STATE
    found: UseScore | None = asked.plugin.use_score(evaluation.state, evaluation.pod, node)
    if found is None:
        raise _NoBounds
    return found


def _bound(candidates: _Candidates) -> int:
    return candidates.bound

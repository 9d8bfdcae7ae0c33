"""A shape: pods that no plugin can tell apart, and what is known of every node for them.

Per shape there is a table: which nodes pass the filters, and, for the scores that depend on a node's state alone, the set of nodes
for each sum, its *level* (`state_table`, `board`). It is brought up to date with the nodes that changed since the shape's last use.
Scores that are normalised over the feasible nodes, or depend on labels and domains, are *partitions*: sets of nodes with an equal score.
The best nodes are found among the intersections of these sets, best first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tidelog.framework.interface import CycleState, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import Bits, Groups, SizeMemo
from tidelog.scheduler.evaluation.asking import Asked, Evaluation, NotFast, Way
from tidelog.scheduler.evaluation.board import FAR, BoardTable
from tidelog.scheduler.evaluation.columns import AnswerColumn
from tidelog.scheduler.evaluation.kinds import NoBounds, TraitKinds
from tidelog.scheduler.evaluation.node_index import NodeIndex
from tidelog.scheduler.evaluation.partitions import combined, normalized
from tidelog.scheduler.evaluation.parts import Counted
from tidelog.scheduler.evaluation.state_table import StateTable


class Found(NamedTuple):
    """The best place for a pod of the shape."""

    place: int
    feasible: int
    """How many nodes could have taken the pod."""
    tied: Bits
    """Those among which it was chosen: the equally good ones, or of these the ones with the fewest pods. They are not counted, because hardly anybody asks how many they are."""
    score: int


class Shape:
    """The table of one shape."""

    def __init__(
        self,
        index: NodeIndex,
        evaluation: Evaluation,
        domains: Sequence[Counted],
        *,
        kinds: TraitKinds | None,
        on_board: Callable[[TraitKinds], BoardTable],
        seldom: bool,
    ) -> None:
        """`kinds` are known of nodes by their traits, if the plugins offer that; then `on_board` gives a table on the board. `seldom`: many nodes have changed since the shape's first pod."""
        self._index = index
        self._evaluation = evaluation
        self._on_board = on_board
        self._kinds = kinds
        self._domains = domains
        self._generation = index.snapshot.generation
        self._changes = index.changes
        """Those of the index that are followed."""
        self._object_generation = index.snapshot.object_generation
        state, pod = evaluation.state, evaluation.pod
        self.filters: list[AnswerColumn[Status | None]] = [
            AnswerColumn(asked, index, _verdict_of(asked, state, pod)) for asked in evaluation.node_filters
        ]
        self.scorers: list[AnswerColumn[int]] = [
            AnswerColumn(asked, index, _score_of(asked, state, pod)) for asked in evaluation.node_scorers
        ]
        columns: list[AnswerColumn[Status | None] | AnswerColumn[int]] = [*self.filters, *self.scorers]
        self._by_node = [c for c in columns if c.asked.way is Way.NODE]
        self._by_object = [c for c in columns if c.asked.way is Way.OBJECT]
        self.beside: AnswerColumn[Status | None] | None = None
        """Verdicts on a pod of the shape beside those that are nominated to a node."""
        self._size = SizeMemo()
        """Of the feasible nodes, which are mostly those of the attempt before."""
        table = self._joined() if seldom else None
        self._table: StateTable | BoardTable = table or StateTable(index, evaluation, kinds)

    def give_up(self) -> None:
        """Nobody asks any more."""
        if isinstance(self._table, BoardTable):
            self._table.give_up()

    # --- keeping up ---------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look at the nodes that changed since the last use. The index must be as the snapshot is."""
        snapshot = self._index.snapshot
        if snapshot.generation == self._generation:
            return
        places = self._index.changed_since(self._changes)
        self._follow(places)
        for column in self._by_node:
            column.forget(places)
        if self.beside is not None:
            self.beside.forget(places)
        # A plugin that is asked may interrupt this: what is done here by then is done, and the rest is done next time.
        self._changes = self._index.changes
        for counted in self._domains:
            counted.follow()
        if snapshot.object_generation != self._object_generation:
            self._follow_objects()
        self._generation = snapshot.generation

    def _follow(self, places: Sequence[int]) -> None:
        if len(places) >= FAR and isinstance(self._table, StateTable):
            table = self._joined()
            if table is not None:
                self._table = table
                return
        try:
            self._table.follow(places)
        except NoBounds:
            self._kinds = None
            self._leave_board()

    def _joined(self) -> BoardTable | None:
        """A table for a shape that is asked seldom, where the plugins offer that."""
        if self._kinds is None:
            return None
        table = self._on_board(self._kinds)
        try:
            table.join()
        except NoBounds:
            table.give_up()
            self._kinds = None
            return None
        except BaseException:
            table.give_up()
            raise
        return table

    def _leave_board(self) -> StateTable:
        table = StateTable(self._index, self._evaluation, self._kinds)
        self.give_up()
        self._table = table
        return table

    def _follow_objects(self) -> None:
        snapshot = self._index.snapshot
        changed = snapshot.objects_changed_since(self._object_generation)
        if changed is None:
            raise NotFast("too many changes")
        # Places that nodes have left are not asked about any more.
        places = self._index.places.of_those_there(changed)
        for column in self._by_object:
            column.forget(places)
        self._object_generation = snapshot.object_generation

    # --- choosing -----------------------------------------------------------------------------------------------------

    def feasible(self, among: Bits) -> Bits:
        """Those of these nodes that pass all filters that are not asked anew in each attempt."""
        found = self._table.fit & among
        for counted in self._domains:
            allowed = counted.now.allowed()
            if allowed is not None:
                found &= allowed
        for column in self.filters:
            if not found:
                break
            column.learn(found)
            found &= column.sets.get(None, 0)
        return found

    def rejections(self, name: str, among: Bits) -> Sequence[tuple[Status, Bits]]:
        """Return the rejections by the filter of this name of those of these nodes that pass all earlier ones."""
        for column in self.filters:
            if column.asked.name == name:
                return [(status, bits) for status, bits in column.groups(among) if status is not None]
        for counted in self._domains:
            if counted.name == name:
                return counted.now.rejections(among)
        table = self._table
        return (self._leave_board() if isinstance(table, BoardTable) else table).rejections(name, among)

    def apart(self) -> tuple[Bits, ...]:
        """The sets of nodes that the pods tell apart though they may be in one state. Nodes are asked about their own objects only."""
        everything = self._index.all
        found: dict[Bits, None] = {}
        columns: list[AnswerColumn[Status | None] | AnswerColumn[int]] = [*self.filters, *self.scorers]
        for column in columns:
            column.learn(everything)
            found.update(dict.fromkeys([bits & everything for bits in column.sets.values()]))
        return tuple(bits for bits in found if bits and bits != everything)

    def choose(
        self, feasible: Bits, start: int, also: Sequence[tuple[int, Groups]] = (), *, fewest: bool
    ) -> Found:
        """The best of these nodes, of which there must be one; among equals the first at or after `start`, `fewest`: of those with the fewest pods.

        `also` are normalised scores of plugins that were asked in this attempt, with their weights.
        """
        count = self._size.of(feasible)
        if count == 1:
            return Found(feasible.bit_length() - 1, 1, feasible, 0)
        groups = combined(feasible, (*self._scores(feasible), *also))
        best, tied = self._table.best(groups)
        if fewest:
            tied = self._index.fewest(tied)
        return Found(self._index.places.first(tied, start), count, tied, best)

    def _scores(self, feasible: Bits) -> Iterable[tuple[int, Groups]]:
        evaluation = self._evaluation
        state, pod = evaluation.state, evaluation.pod
        for partition in self._table.partitions:
            yield partition.asked.weight, partition.normalized(state, pod, feasible)
        for column in self.scorers:
            yield column.asked.weight, normalized(column.asked, state, pod, column.groups(feasible))
        for counted in self._domains:
            scores = counted.now.scores(feasible)
            if scores is not None:
                yield counted.weight, scores


def _verdict_of(asked: Asked, state: CycleState, pod: PodInfo) -> Callable[[NodeInfo], Status | None]:
    return lambda node: asked.verdict(state, pod, node)


def _score_of(asked: Asked, state: CycleState, pod: PodInfo) -> Callable[[NodeInfo], int]:
    return lambda node: asked.raw_score(state, pod, node)

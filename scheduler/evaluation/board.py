"""The board: for each of many shapes a column, for each node a row of bytes that tell how good the node is for each shape.

    a node changed  ─► its row is computed for all shapes at once, in lanes (`tidelog.framework.lanes`), when one of them asks
    a shape is asked ─► its column is there; which nodes are the best is a search for bytes

With hundreds of shapes asked in turn, each would find hundreds of nodes changed since it was last asked, at two microseconds each. A row costs
some ten microseconds and as much again for every three hundred shapes; where a node comes into a state that has one, it is only copied. A column that is asked again at once is not worth rows: it looks at the few nodes itself.

It is for shapes whose plugins go by the traits of nodes and their use of cpu and memory (`kinds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import repeat

from tidelog.framework.lanes import Lanes, Row, marked, octets
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import Bits, Groups, places_in
from tidelog.framework.offers import NodeSize, Together
from tidelog.scheduler.evaluation.asking import Asked, Evaluation, NotFast
from tidelog.scheduler.evaluation.kinds import (
    Judge,
    NoBounds,
    TraitKind,
    TraitKinds,
)
from tidelog.scheduler.evaluation.latest_rows import LatestRows
from tidelog.scheduler.evaluation.node_index import Cell, NodeIndex, NodeState
from tidelog.scheduler.evaluation.partitions import Partition

FAR = 32
"""A shape that finds so many changes is asked so seldom that rows are worth while; arbitrary within a factor of two."""
COLUMNS_MIN = 8
"""Below so many shapes it is quicker that each looks at the changed nodes itself."""
NODES_PER_TRAITS = 16
"""Rows are computed where on the average so many nodes at least have the same traits: what is kept for each set of traits is as long as a row."""
ROWS_MIN = 16
"""So many rows are computed at a time at least."""
WAITING_MIN = 16
"""So many new columns are filled together, row by row, instead of each by itself."""
FILL_MAX = 1_000_000
"""They are, if there are not more states times shapes than this: some fifty milliseconds. …"""
STATES_PER_TRAITS = 40
"""… To put a shape beside others for nodes with some traits costs as much as for so many states; arbitrary within a factor of two."""
MEMO_MAX = 2_000
"""So many levels of states are remembered for a shape; arbitrary."""
SPARE_SHARE, SPARE_MIN = 16, 64
"""So many places more than there are, in proportion and at least, are for nodes that come; arbitrary."""
FEW = 4
"""So many nodes of a level are looked for one by one …"""
COME_MAX = 32
"""… and so many that have come to it, before its nodes are looked for anew."""
SETS_MAX = 8
"""So many sets of nodes of a level are kept at most from one pod of a shape to its next; they are to stay in the processor's caches."""
ROWS_BYTES_MAX = 1 << 23
"""Rows are kept by state up to about so many bytes together: many a changed node comes into a state that has a row. Arbitrary, …"""
ROW_SPARE = 350
"""… and so many bytes are counted for each beside a byte a shape."""
_LEVEL_MAX = 255


class Board:
    """Of one framework, while no more nodes come than it has places for."""

    def __init__(self, index: NodeIndex) -> None:
        self.index = index
        self.size = index.size + index.size // SPARE_SHARE + SPARE_MIN
        """Places, those included that nodes may get as long as it serves."""
        self.levels = bytearray()
        """Column by column, in each the nodes from the last place to the first: 0 where a node is rejected, else one more than the sum of plain scores."""
        self.tables: list[BoardTable | None] = []
        """By column."""
        self.waiting: dict[BoardTable, None] = {}
        """Those of shapes that had one pod yet. If one of them has another, all get a column."""
        self._free: list[int] = []
        """Columns that nobody has any more."""
        self._many: dict[Asked, _Many] = {}
        self._banks: dict[int, _Bank] = {}
        """By the number of the traits."""
        self._rows: dict[NodeState, bytes] = {}
        """Rows of states, for the shapes that have columns now."""
        self._given: list[int] = []
        """Columns, in the order in which shapes got them."""
        self.begin = self.end = index.changes
        """All columns tell of the changes between these two."""
        self.latest = LatestRows()

    def fill(self) -> bool:
        """Give a column to each that is waiting, if it is quicker to compute the rows of all nodes; each state of nodes is judged once for all shapes."""
        index, waiting = self.index, self.waiting
        columns = len(self.tables) + len(waiting)
        steps = len(index.states) + STATES_PER_TRAITS * len(index.by_traits)
        if len(waiting) < WAITING_MIN or not self._has_rows() or steps * columns > FILL_MAX:
            return False
        taken = list(waiting)
        for table in taken:
            table.take(bytes(self.size))
        waiting.clear()
        self.latest.forget()
        try:
            self._fill()
        except BaseException:
            # Interrupted by a plugin: their columns are not as the nodes are.
            for table in taken:
                table.is_void = True
            raise
        self.begin, self.end = 0, index.changes
        return True

    def _fill(self) -> None:
        size, levels = self.size, self.levels
        for state in self.index.states.values():
            if state.bits:
                row = self._row(state)
                for place in places_in(state.bits):
                    levels[size - 1 - place :: size] = row

    def _has_rows(self) -> bool:
        return len(self.index.by_traits) * NODES_PER_TRAITS <= self.size

    def give(self, table: BoardTable, levels: bytes) -> int:
        """A column for the table, with these levels."""
        if self._free:
            column = self._free.pop()
            self.levels[column * self.size : (column + 1) * self.size] = levels
            self.tables[column] = table
        else:
            column = len(self.tables)
            self.levels += levels
            self.latest.add_column()
            self.tables.append(table)
        if len(self._given) > 4 * len(self.tables):
            self._given.clear()
            self._given += [number for number, one in enumerate(self.tables) if one is not None]
            self._banks.clear()
        else:
            self._given.append(column)
        self._rows.clear()
        for one in self._many.values():
            one.members.put(column, 0)
        # A shape with scores too high for a lane is always asked alone, and has none.
        evaluation = table.evaluation
        for asked in (*evaluation.rooms, *evaluation.uses) if evaluation.most < _LEVEL_MAX else ():
            if asked.together is not None:
                known = self._many.get(asked)
                if known is None:
                    known = self._many[asked] = _Many(asked.together, asked.weight)
                known.put(column, evaluation.pod)
        return column

    def take_back(self, column: int) -> None:
        """Nobody asks for this column any more."""
        self.tables[column] = None
        self._free.append(column)

    def catch_up(self, changes: int) -> None:
        """Compute rows, for a shape that finds so many changes: at a cost that is in proportion to what it would do alone."""
        index = self.index
        if len(self.tables) - len(self._free) < COLUMNS_MIN or not self._has_rows():
            return
        places = index.changes_after(self.end, max(ROWS_MIN, changes // COLUMNS_MIN))
        if places is None:
            self.begin = self.end = index.changes
            return
        for place in dict.fromkeys(places):
            self._write_row(place, index.state_at[place])
        self.end += len(places)

    def _write_row(self, place: int, state: NodeState) -> None:
        row = self._rows.get(state) or self._row(state)
        self.levels[self.size - 1 - place :: self.size] = row
        self.latest.add(place, row)

    def _row(self, state: NodeState) -> bytes:
        """Compute the level for each shape of nodes in this state, in which there must be one, and keep it."""
        if len(self._rows) * (len(self.tables) + ROW_SPARE) >= ROWS_BYTES_MAX:
            self._rows.clear()
        row = self._rows[state] = self._computed(state)
        return row

    def _computed(self, state: NodeState) -> bytes:
        cell, use = state.cell, state.use
        if cell.is_full:
            return bytes(len(self.tables))
        bank = self._banks.get(cell.traits)
        if bank is None:
            bank = self._banks[cell.traits] = _Bank(cell.traits, cell.size)
        if bank.joined < len(self._given):
            bank.join(self.tables, self._given, self._many.values(), self.index.sample(state))
        keep, passing, doubt, levels = bank.passing, bank.passing, bank.alone, bank.fixed
        for one, members, counting in bank.asked:
            found, unsure = one.pods.answers(use, cell.size)
            if unsure:
                # In such a lane there may be anything.
                doubt |= unsure & members
            if one.weight:
                found &= counting
                levels += found if one.weight == 1 else found * one.weight
            else:
                lacking = members ^ members & (found | unsure)
                if lacking:
                    keep ^= keep & lacking * _LEVEL_MAX
        row = octets(levels if keep is passing else levels & keep, len(self.tables))
        doubt &= keep
        return self._corrected(row, doubt, state) if doubt else row

    def _corrected(self, row: bytes, doubt: Lanes, state: NodeState) -> bytes:
        """The row, where the shapes in doubt have been asked alone."""
        found = bytearray(row)
        for column in marked(doubt):
            table = self.tables[column]
            found[column] = 0 if table is None or table.is_void else table.level_or_void(state)
        return bytes(found)


class _Many:
    """One plugin's answers about the pods of all shapes that it has a say for."""

    __slots__ = ("members", "pods", "together", "weight")

    def __init__(self, together: Together, weight: int) -> None:
        """`weight` is 0 of a filter."""
        self.together = together
        self.pods = together.pods()
        self.members = Row()
        """All bits of an answer in the lanes of its pods."""
        self.weight = weight

    def put(self, column: int, pod: PodInfo) -> None:
        self.pods.put(column, pod)
        self.members.put(column, _LEVEL_MAX if self.weight else 1)


class _Bank:
    """Answers that all nodes with equal traits have in common, of all shapes of a board in lanes."""

    def __init__(self, traits: int, size: NodeSize) -> None:
        self._traits = traits
        self._size = size
        self.joined = 0
        """How many of the columns that were given away are known here."""
        self._rows = Row(), Row(), Row()
        self.passing: Lanes = 0
        """255 for shapes that such nodes may do for."""
        self.alone: Lanes = 0
        """1 for shapes that are always asked alone."""
        self.fixed: Lanes = 0
        """The least level of such nodes; 0 if they do not do."""
        self.asked: Sequence[tuple[_Many, Lanes, Lanes]] = ()
        """The plugins that answer for such nodes, each with its `members`, and those of them that may do."""

    def join(
        self,
        tables: Sequence[BoardTable | None],
        given: Sequence[int],
        many: Iterable[_Many],
        node: NodeInfo,
    ) -> None:
        """Know all of these; `node` has the traits."""
        for column in given[self.joined :]:
            table = tables[column]
            if table is not None:
                for row, value in zip(self._rows, self._judged(table, node), strict=True):
                    row.put(column, value)
        self.joined = len(given)
        self.passing, self.alone, self.fixed = [row.lanes for row in self._rows]
        self.asked = [
            (one, one.members.lanes, one.members.lanes & self.passing)
            for one in many
            if one.together.covers(self._size)
        ]

    def _judged(self, table: BoardTable, node: NodeInfo) -> tuple[int, int, int]:
        try:
            kind = table.kinds.of(self._traits, lambda: node)
        except (NoBounds, NotFast):
            table.is_void = True
            return 0, 0, 0
        if not kind.passes:
            return 0, 0, 0
        evaluation = table.evaluation
        alone = kind.fixed + evaluation.most >= _LEVEL_MAX or not all(
            asked.together is not None and asked.together.covers(self._size)
            for asked in (*evaluation.rooms, *evaluation.uses)
        )
        return _LEVEL_MAX, alone, 0 if alone else kind.fixed + 1


class BoardTable:
    """One shape's column, and the sets of nodes that were found in it. Does the same as `StateTable`, but for telling why nodes are rejected.

    Raises NoBounds where a plugin has no bounds for a node; then it knows nothing any more.
    """

    def __init__(self, board: Board, evaluation: Evaluation, kinds: TraitKinds) -> None:
        self._board = board
        self._index = board.index
        self.evaluation = evaluation
        self.kinds = kinds
        self.is_void = False
        """Some node has no bounds."""
        self._column = -1
        board.waiting[self] = None

    def join(self) -> None:
        """Get a column that is as the nodes are, if it has none."""
        if self._column < 0 and not self._board.fill():
            del self._board.waiting[self]
            levels = bytes(map(self._known_levels().__getitem__, reversed(self._index.state_at)))
            self.take(bytes(self._board.size - len(levels)) + levels)
        self.follow(self._index.changed_since(self._seen))

    def take(self, levels: bytes) -> None:
        """Get a column with these levels, which is as the nodes are from now on. Most shapes have one pod and never get here."""
        self._column = self._board.give(self, levels)
        self._memo: dict[NodeState, int] = {}
        self.partitions = [Partition(asked) for asked in self.evaluation.raw_scorers]
        self._traits_changed = -1
        self._seen = self._index.changes
        """The changes of the index that are in the column."""
        self._sets: dict[int, Bits] = {}
        """Level → its nodes, as far as somebody has asked."""
        self._rows = self._board.latest.count
        """So many rows had been computed when these were as the column is, …"""
        self._written = self._rows
        """… and so many when something else than a row was last written to it."""
        self._highest = 1
        self._may_be_higher = True
        """Some node may have a higher level than that."""
        self._best_of: tuple[Bits, int] = (0, 0)
        """Of these nodes, which were asked about last, none has a higher level than this."""

    def _known_levels(self) -> dict[NodeState, int]:
        """As `_level`, of each state that nodes are in, with one look at the room for states that are about equally full."""
        node_in, known = self._index.node_in, {self._index.nowhere: 0}
        for cell in self._index.cells.values():
            if not cell.states:
                continue
            kind = self.kinds.of(cell.traits, lambda cell=cell: node_in(cell.bits))  # type: ignore[misc]
            judge = self._judge_if_easy(cell, kind)
            if judge is not None:
                for state in cell.states:
                    known[state] = kind.fixed + 1 + judge.score(state.use)
            else:
                known.update((state, self._level(state)) for state in cell.states)
        return known

    def _judge_if_easy(self, cell: Cell, kind: TraitKind) -> Judge | None:
        """For a cell whose states all have room, and none is too good."""
        if not kind.passes or cell.is_full:
            return None
        judge = self.kinds.judge(cell.traits, lambda: self._index.node_in(cell.bits))
        most = kind.fixed + sum(100 * weight for weight, _ in judge.scores)
        return judge if most < _LEVEL_MAX and judge.has_room(cell.high) else None

    def give_up(self) -> None:
        """Nobody asks any more."""
        if self._column < 0:
            self._board.waiting.pop(self, None)
        else:
            self._board.take_back(self._column)

    @property
    def fit(self) -> Bits:
        """The nodes that pass the filters that go by states."""
        everything, end = self._index.all, (self._column + 1) * self._board.size
        if self._board.levels.find(0, end - self._index.size, end) < 0:
            return everything
        return everything ^ (everything & self._with(0))

    # --- keeping up ---------------------------------------------------------------------------------------------------

    def follow(self, places: Sequence[int]) -> None:
        """The nodes at these places have changed."""
        board, index = self._board, self._index
        if len(places) >= FAR:
            board.catch_up(len(places))
        if board.begin <= self._seen < board.end:
            places = index.changed_since(board.end)
        if self.is_void:
            raise NoBounds
        if self._rows != board.latest.count:
            self._follow_rows()
        for place in dict.fromkeys(places) if len(places) >= FAR else places:
            self._set(place, index.state_at[place])
        self._follow_traits()
        self._seen = index.changes

    def _follow_rows(self) -> None:
        """Have the sets as the column is."""
        latest, sets = self._board.latest, self._sets
        since = latest.since(self._rows, self._column)
        self._rows, self._sets = latest.count, {}
        self._best_of = (0, 0)
        if since is None or since.first < self._written:
            self._may_be_higher = True
            return
        self._highest = max(since.levels.translate(None, _up_to(self._highest)), default=self._highest)
        for level, bits in sets.items() if len(sets) <= SETS_MAX else ():
            come = since.places_with(level, COME_MAX)
            if len(come) <= COME_MAX:
                found = bits ^ (bits & since.changed)
                for place in come:
                    # It may have had another level since.
                    if self._level_at(place) == level:
                        found |= 1 << place
                if found:
                    self._sets[level] = found

    def _level_at(self, place: int) -> int:
        return self._board.levels[(self._column + 1) * self._board.size - 1 - place]

    def _set(self, place: int, state: NodeState) -> None:
        memo = self._memo
        level = memo.get(state)
        if level is None:
            if len(memo) >= MEMO_MAX:
                memo.clear()
            level = memo[state] = self._level(state)
        size, levels = self._board.size, self._board.levels
        at = self._column * size + size - 1 - place
        before = levels[at]
        if before == level:
            return
        levels[at] = level
        self._written = self._board.latest.count
        self._highest = max(self._highest, level)
        if level > self._best_of[1]:
            self._best_of = (0, 0)
        bit, sets = 1 << place, self._sets
        if before in sets:
            sets[before] ^= bit
        if level in sets:
            sets[level] ^= bit

    def level_or_void(self, state: NodeState) -> int:
        """As `_level`; where that cannot be told, the column is void."""
        try:
            return self._level(state)
        except (NoBounds, NotFast):
            self.is_void = True
            return 0

    def _level(self, state: NodeState) -> int:
        verdict = self.kinds.verdict(state, self._index.sample)
        if verdict is None:
            return 0
        if verdict[0] >= _LEVEL_MAX:
            raise NoBounds
        return verdict[0] + 1

    def _follow_traits(self) -> None:
        """Sort the nodes by the scores that go by their traits."""
        index = self._index
        if self._traits_changed == index.traits_changed or not self.partitions:
            return
        for partition in self.partitions:
            partition.sets.clear()
        for traits, bits in index.by_traits.items():
            kind = self.kinds.of(traits, lambda bits=bits: index.node_in(bits))  # type: ignore[misc]
            if kind.passes:
                for partition, raw in zip(self.partitions, kind.raws, strict=True):
                    partition.add(raw, bits)
        self._traits_changed = index.traits_changed

    # --- choosing -----------------------------------------------------------------------------------------------------

    def best(self, groups: Groups) -> tuple[int, Bits]:
        """The best total and its nodes. Groups and levels are gone through best first, as far as they can still win."""
        highest = self._found_highest()
        best, winners = -1, 0
        for score, bits in sorted(groups, reverse=True):
            asked, most = self._best_of
            for level in range(min(most, highest) if bits == asked else highest, 0, -1):
                total = score + level - 1
                if total < best:
                    break
                both = bits & self._with(level)
                if both:
                    winners = winners | both if total == best else both
                    best = total
                    self._best_of = bits, level
                    break
            if score + highest - 1 < best:
                break
        return best, winners

    def _found_highest(self) -> int:
        """The highest level that there is: seldom much below that of last time."""
        if self._may_be_higher:
            self._may_be_higher = False
            first = self._column * self._board.size
            higher = self._board.levels[first : first + self._board.size].translate(
                None, _up_to(self._highest)
            )
            self._highest = max(higher, default=self._highest)
        while not self._with(self._highest):
            self._highest -= 1
        return self._highest

    def _with(self, level: int) -> Bits:
        """The nodes of this level."""
        found = self._sets.get(level)
        if found is None:
            levels, size = self._board.levels, self._board.size
            first = self._column * size
            end = first + size
            found, at = 0, levels.find(level, first, end)
            for _ in range(FEW):
                if at < 0:
                    break
                at += 1
                found |= 1 << end - at
                at = levels.find(level, at, end)
            else:
                found = int(levels[first:end].translate(_only(level)), 2)
            self._sets[level] = found
        return found


@cache
def _up_to(level: int) -> bytes:
    return bytes(range(level + 1))


@cache
def _only(level: int) -> bytes:
    """Translates this level to the digit 1, and all others to 0."""
    return bytes(repeat(0x30, level)) + b"1" + bytes(repeat(0x30, 255 - level))

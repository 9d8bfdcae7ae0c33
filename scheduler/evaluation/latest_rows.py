"""The latest rows of a board once more, column by column: what has changed in a column since it was last looked at is a few hundred bytes side by side.

So the sets of nodes that were found in a column stay, and follow: who is in one of them and has changed is taken out, and those that have come are looked for among these bytes.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.framework.node_sets import Bits

ROWS = 1_024
"""So many rows are remembered; as many shapes that are asked in turn can follow."""
_BLOCK = 64
"""Of so many rows together it is known which nodes have changed."""
_BLOCKS = ROWS // _BLOCK
_COLUMN = ROWS + 64
"""So many bytes are from one column to the next. A power of two would have all bytes of a row in a few lines of the processor's caches, which drive each other out."""


class Since(NamedTuple):
    """The changes of a column."""

    changed: Bits
    """These nodes at most."""
    levels: bytearray
    """Those that were written, in order, and perhaps some that were known already; a node may be there twice."""
    places: list[int]
    """Of the rows, in turn."""
    first: int
    """The number of the first of these rows."""

    def places_with(self, level: int, most: int) -> list[int]:
        """The nodes for which this level was written; if they are more than `most`, no more than show that."""
        levels, places, first = self.levels, self.places, self.first
        found: list[int] = []
        at = levels.find(level)
        while at >= 0 and len(found) <= most:
            found.append(places[(first + at) % ROWS])
            at = levels.find(level, at + 1)
        return found


class LatestRows:
    """Of one board."""

    def __init__(self) -> None:
        self.count = 0
        """How many rows there have been."""
        self._levels = bytearray()
        """Column by column, in each the level of a row at the row's number, which begins anew after so many."""
        self._places = [0] * ROWS
        self._changed: list[Bits] = [0] * _BLOCKS

    def add_column(self) -> None:
        """Have one more."""
        self._levels += bytes(_COLUMN)

    def add(self, place: int, row: bytes) -> None:
        """The node at this place has this row."""
        at = self.count % ROWS
        self.count += 1
        self._levels[at::_COLUMN] = row
        self._places[at] = place
        block = at // _BLOCK
        if at % _BLOCK:
            self._changed[block] |= 1 << place
        else:
            self._changed[block] = 1 << place

    def forget(self) -> None:
        """All columns are other ones from now on."""
        self.count += 2 * ROWS - self.count % _BLOCK

    def since(self, count: int, column: int) -> Since | None:
        """The changes of the column since there had been so many rows, which were fewer; None if they are not remembered."""
        first = count - count % _BLOCK
        if self.count - first > ROWS:
            return None
        changed = 0
        for block in range(first // _BLOCK, -(-self.count // _BLOCK)):
            changed |= self._changed[block % _BLOCKS]
        own = column * _COLUMN
        begin, end = own + first % ROWS, own + self.count % ROWS
        levels = (
            self._levels[begin:end]
            if begin < end
            else self._levels[begin : own + ROWS] + self._levels[own:end]
        )
        return Since(changed, levels, self._places, first)

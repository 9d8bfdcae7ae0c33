"""Journals of changes: the list by which snapshots and tables bring themselves up to date.

A `ChangeList` counts generations. `touch(name)` gives a node the next one and moves it to the end; `since(generation)` walks
back from the end, so that it costs the number of nodes changed since, not the number of nodes there are. Names of removed
nodes stay on the list, because who keeps something about them must hear of it; to keep a cluster that replaces its nodes from
growing the list for ever, the oldest entries are dropped, and who asks for a time before the drop is told to start over.
"""

from __future__ import annotations

from collections.abc import Collection


class ChangeList:
    """Names in the order of their last change."""

    __slots__ = ("_floor", "_last", "generation")

    def __init__(self) -> None:
        self.generation = 0
        """The number of the latest change."""
        self._last: dict[str, int] = {}
        self._floor = 0
        """Changes up to this generation may have been dropped."""

    def touch(self, name: str) -> int:
        """`name` changed: the generation of this change."""
        self.generation += 1
        last = self._last
        last.pop(name, None)
        last[name] = self.generation
        return self.generation

    def since(self, generation: int) -> list[str] | None:
        """The names changed after `generation`, latest first; None if that is too long ago to be known."""
        if generation < self._floor:
            return None
        last = self._last
        if generation == self.generation - 1:
            return [next(reversed(last))]
        found: list[str] = []
        for name in reversed(last):
            if last[name] <= generation:
                break
            found.append(name)
        return found

    def drop_removed(self, alive: Collection[str]) -> None:
        """Forget removed names once they outnumber the living, so that the list stays within twice the cluster's size."""
        if len(self._last) <= 2 * len(alive) + 64:
            return
        removed = [name for name in self._last if name not in alive]
        self._floor = max(self._last[name] for name in removed)
        for name in removed:
            del self._last[name]

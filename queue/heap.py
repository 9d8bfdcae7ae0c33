"""A priority queue whose entries can be taken from the middle.

`heapq` with lazy deletion: `discard` only forgets, and the dead entry is dropped when it comes to the top. When more
than half of the heap is dead it is rebuilt, so memory follows the living. Push and pop cost O(log n) in C; discard O(1)
amortised.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Heap(Generic[T]):
    """Items with an order each: a tuple of integers that no other item in the heap has."""

    __slots__ = ("_heap", "live")

    def __init__(self) -> None:
        self._heap: list[tuple[Any, ...]] = []
        self.live: dict[T, tuple[Any, ...]] = {}
        """Item → its entry in the heap. Entries that are not here are dead."""

    def __len__(self) -> int:
        return len(self.live)

    def __contains__(self, item: T) -> bool:
        return item in self.live

    def push(self, item: T, order: tuple[int, ...]) -> None:
        """Put the item in, or give it another order."""
        live = self.live
        if item in live:
            self.discard(item)
        entry = (*order, item)
        live[item] = entry
        heappush(self._heap, entry)

    def pop(self) -> T | None:
        """Take out the first."""
        heap, live = self._heap, self.live
        while heap:
            entry = heappop(heap)
            item: T = entry[-1]
            if live.get(item) is entry:
                del live[item]
                return item
        return None

    def first(self) -> T | None:
        """The item that `pop` would take."""
        heap, live = self._heap, self.live
        while heap:
            item: T = heap[0][-1]
            if live.get(item) is heap[0]:
                return item
            heappop(heap)
        return None

    def discard(self, item: T) -> bool:
        """Take the item out, wherever it is. False if it is not in."""
        if self.live.pop(item, None) is None:
            return False
        if len(self._heap) > 2 * len(self.live) + 64:
            self._heap = list(self.live.values())
            heapify(self._heap)
        return True

    def order_of(self, item: T) -> tuple[Any, ...]:
        """The order under which the item was put in."""
        return self.live[item][:-1]

    def ordered(self) -> list[T]:
        """All items, the first first. Costs a sort."""
        return [entry[-1] for entry in sorted(self.live.values())]

    def unordered(self) -> list[T]:
        """All items in the order in which they were put in."""
        return list(self.live)

"""A dict that is to stay as it is for a while, with what has changed since beside it.

    layer = Layer(entries)          nobody may change `entries` now: whoever marked it goes through it in his own time
    layer[key] = …; layer.pop(key)  seen in the layer, and not below
    entries = layer.fold(1_000)     as long as it is None: the dict is brought up to date, so many changes at a time; then it is the same dict

To read it, and to go through it, is what a dict that had been changed at once would be, its order too.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from itertools import islice
from typing import TypeVar

V = TypeVar("V")


class Layer(MutableMapping[str, V]):
    """Changes of a dict, or of another layer."""

    def __init__(self, below: MutableMapping[str, V]) -> None:
        self._below = below
        self._replaced: dict[str, V] = {}
        """They stand where they stood."""
        self._gone: set[str] = set()
        """Keys of what stands there no more."""
        self._new: dict[str, V] = {}
        """They stand behind all others; some of their keys may have gone before."""

    def __getitem__(self, key: str) -> V:
        for known in (self._new, self._replaced):
            if key in known:
                return known[key]
        if key in self._gone:
            raise KeyError(key)
        return self._below[key]

    def __setitem__(self, key: str, value: V) -> None:
        stands = key not in self._new and key not in self._gone and key in self._below
        (self._replaced if stands else self._new)[key] = value

    def __delitem__(self, key: str) -> None:
        if key in self._new:
            del self._new[key]
        elif key in self._gone or key not in self._below:
            raise KeyError(key)
        else:
            self._replaced.pop(key, None)
            self._gone.add(key)

    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self._below if key not in self._gone)
        yield from self._new

    def __len__(self) -> int:
        return len(self._below) - len(self._gone) + len(self._new)

    def fold(self, most: int) -> MutableMapping[str, V] | None:
        """Bring the dict below up to date by so many changes at most, and return it when it is. The layer reads as before, and may change in between."""
        below = self._below
        if isinstance(below, Layer):
            folded = below.fold(most)
            if folded is not None:
                self._below = folded
            return None
        while self._gone and most:
            del below[self._gone.pop()]
            most -= 1
        while self._replaced and most:
            key, value = self._replaced.popitem()
            below[key] = value
            most -= 1
        for key in [*islice(self._new, most)]:
            below[key] = self._new.pop(key)
        return None if self._gone or self._replaced or self._new else below

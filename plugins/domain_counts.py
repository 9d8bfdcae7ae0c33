"""Counts per topology domain that an attempt can change and throw away.

PreFilter counts the cluster once; preemption and nominated pods then try what a few pods more or less would do, once per
node, each on its own copy. So a copy shares the counted part and has only its own differences: `clone` costs the number of
changed domains, reading, `add` and the minimum cost one step each, however many domains there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, Self, TypeVar

K = TypeVar("K", bound=Hashable)


class _Counts(Generic[K]):
    """The counts, shared and never written again, and the changes since."""

    __slots__ = ("_changes", "_counted")

    def __init__(self, counted: dict[K, int]) -> None:
        self._counted = counted
        self._changes: dict[K, int] = {}
        """Differences other than 0."""

    def get(self, key: K) -> int:
        """The count of this key; 0 for one that is not known."""
        count = self._counted.get(key, 0)
        return count + self._changes.get(key, 0) if self._changes else count

    def as_dict(self) -> dict[K, int]:
        """All counts, for explanations and tests."""
        counts = dict(self._counted)
        for key, change in self._changes.items():
            counts[key] = counts.get(key, 0) + change
        return counts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.as_dict()})"

    def _change(self, key: K, by: int) -> tuple[int, int]:
        """The count before and after."""
        old = self.get(key)
        change = self._changes.get(key, 0) + by
        if change:
            self._changes[key] = change
        else:
            self._changes.pop(key, None)
        return old, old + by

    def _share(self, other: Self) -> Self:
        """Make `other`, a new instance, share what was counted and have its own changes."""
        other._counted = self._counted
        other._changes = self._changes.copy()
        return other


class DomainCounts(_Counts[str]):
    """Matching pods per domain of one constraint. The domains are fixed: one without pods is a domain with 0."""

    __slots__ = ("_frequency", "_minimum")

    def __init__(self, counted: dict[str, int]) -> None:
        super().__init__(counted)
        self._frequency: Counter[int] = Counter(counted.values())
        """Count → how many domains have it."""
        self._minimum = min(self._frequency, default=0)

    def __len__(self) -> int:
        return len(self._counted)

    @property
    def minimum(self) -> int:
        """The smallest count of a domain, exact after any changes; 0 if there is no domain."""
        return self._minimum

    def add(self, domain: str, by: int) -> None:
        """Pods came to the domain or left it. A domain that was not counted does not become one by that."""
        if domain not in self._counted:
            return
        old, new = self._change(domain, by)
        frequency = self._frequency
        frequency[new] += 1
        if frequency[old] == 1:
            del frequency[old]
        else:
            frequency[old] -= 1
        if new < self._minimum:
            self._minimum = new
        elif old == self._minimum and old not in frequency:
            self._minimum = min(frequency)

    def clone(self) -> DomainCounts:
        """Independent of this one."""
        other: DomainCounts = self._share(DomainCounts.__new__(DomainCounts))
        other._frequency = self._frequency.copy()
        other._minimum = self._minimum
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DomainCounts) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]


TopologyPair = tuple[str, str]
"""A topology key and a value."""


class PairCounts(_Counts[TopologyPair]):
    """Matching terms per topology pair. A pair with 0 is as good as absent."""

    __slots__ = ("keys",)

    def __init__(self, counted: dict[TopologyPair, int]) -> None:
        super().__init__(counted)
        self.keys: Counter[str] = Counter(key for key, _value in counted)
        """Topology key → how many of its values have a count; keys without any are not there. Read-only."""

    def __bool__(self) -> bool:
        """Whether there is any count at all."""
        return bool(self.keys)

    def add(self, pair: TopologyPair, by: int) -> None:
        """Terms came to the pair or left it."""
        old, new = self._change(pair, by)
        key = pair[0]
        if not old and new:
            self.keys[key] += 1
        elif old and not new:
            if self.keys[key] == 1:
                del self.keys[key]
            else:
                self.keys[key] -= 1

    def clone(self) -> PairCounts:
        """Independent of this one."""
        other: PairCounts = self._share(PairCounts.__new__(PairCounts))
        other.keys = self.keys.copy()
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PairCounts) and self._positive() == other._positive()

    __hash__ = None  # type: ignore[assignment]

    def _positive(self) -> dict[TopologyPair, int]:
        return {pair: count for pair, count in self.as_dict().items() if count}

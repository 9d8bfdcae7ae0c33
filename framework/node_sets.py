"""Sets of nodes that an integer holds, and the domains of topology keys as such sets: what the fast evaluation and plugins speak in.

A set of nodes is an `int` whose bit i stands for the node at place i: union, intersection, size and "the first
one at or after" are one machine-level pass over a few hundred bytes, whatever Python costs per step.

Whose places they are must be known. Those of `NodeSets` a node keeps as long as it stays, so that sets need not be made anew when others come or go; there are gaps, and
they are in no order that means anything. Where the order of examination counts, the places are those in `snapshot.nodes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from tidelog.framework.node_info import NodeInfo
    from tidelog.framework.snapshot import Snapshot

T = TypeVar("T")

Bits = int
"""A set of places."""

Groups = list[tuple[int, Bits]]
"""(score, nodes with it); each node is in one of them."""


def first_place(bits: Bits) -> int:
    """The smallest place in a set that is not empty."""
    # A negative number, as in `bits & -bits`, costs Python four times as much.
    return (bits ^ (bits - 1)).bit_length() - 1


def first_from(bits: Bits, start: int) -> int:
    """The first place of the set at or after `start`, going round. The set must not be empty."""
    later = bits >> start
    return start + first_place(later) if later else first_place(bits)


def nth_place(bits: Bits, n: int) -> int:
    """The place of the set's n-th member, counted from 0; it must have so many."""
    first, size = 0, bits.bit_length()
    while size > 1:
        half = size >> 1
        lower = bits & ((1 << half) - 1)
        count = lower.bit_count()
        if n < count:
            bits, size = lower, half
        else:
            bits, n, first, size = bits >> half, n - count, first + half, size - half
    return first


def turned(bits: Bits, start: int, size: int) -> Bits:
    """The set as seen from `start`, which becomes place 0, going round `size` places."""
    return bits >> start | (bits & ((1 << start) - 1)) << (size - start)


def places_in(bits: Bits) -> Iterator[int]:
    """The places of a set, in order."""
    if bits.bit_count() > 16:
        yield from (place for place, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")
        return
    while bits:
        yield first_place(bits)
        bits &= bits - 1


def picked(items: Sequence[T], bits: Bits) -> list[T]:
    """The items at the places of the set, in order."""
    return list(compress(items, f"{bits:b}"[::-1].encode().translate(_DIGITS)))


_DIGITS = bytes(digit == ord("1") for digit in range(256))


def bits_of(places: Sequence[int], size: int) -> Bits:
    """The set of these places below `size`."""
    if len(places) == 1:
        return 1 << places[0]
    table = bytearray((size + 7) // 8)
    for place in places:
        table[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(table, "little")


class SizeMemo:
    """The size of a set, counted anew if it is another set than the last time: to count takes twenty times as long as to compare."""

    __slots__ = ("_bits", "_size")

    def __init__(self) -> None:
        self._bits: Bits = 0
        self._size = 0

    def of(self, bits: Bits) -> int:
        """Return how many places are in the set."""
        if bits != self._bits:
            self._bits, self._size = bits, bits.bit_count()
        return self._size


class Topology:
    """The domains of one topology key. Follows the nodes' labels."""

    __slots__ = ("bits", "everywhere", "value_at")

    def __init__(self, key: str, nodes: Sequence[NodeInfo | None]) -> None:
        self.value_at: list[str | None] = [None if node is None else node.labels.get(key) for node in nodes]
        """Place → the node's value; of places without a node None, too."""
        places: dict[str, list[int]] = {}
        absent: list[int] = []
        for place, value in enumerate(self.value_at):
            if value is None:
                absent.append(place)
            elif value in places:
                places[value].append(place)
            else:
                places[value] = [place]
        size = len(nodes)
        self.bits: dict[str, Bits] = {value: bits_of(found, size) for value, found in places.items()}
        """Value → its nodes."""
        self.everywhere: Bits = ((1 << size) - 1) ^ (bits_of(absent, size) if absent else 0)
        """The nodes that have the key."""

    def move(self, place: int, value: str | None) -> bool:
        """The node at this place has this value from now on; whether it had another one."""
        old = self.value_at[place]
        if old == value:
            return False
        bit = 1 << place
        if old is not None:
            left = self.bits[old] ^ bit
            if left:
                self.bits[old] = left
            else:
                del self.bits[old]
        if value is not None:
            self.bits[value] = self.bits.get(value, 0) | bit
        if (old is None) != (value is None):
            self.everywhere ^= bit
        self.value_at[place] = value
        return True


class NodeSets(Protocol):
    """The nodes of a snapshot, as sets."""

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot whose nodes they are."""

    @property
    def all(self) -> Bits:
        """All nodes."""

    @property
    def size(self) -> int:
        """One more than the highest place."""

    def occupied(self) -> Iterable[tuple[int, NodeInfo]]:
        """Each place with its node."""

    def node_or_none(self, place: int) -> NodeInfo | None:
        """The node at a place, if there is one."""

    def place_of(self, name: str) -> int:
        """The place of a node that is there."""

    def in_order(self, nodes: Bits) -> list[NodeInfo]:
        """These nodes, in the order in which they are examined."""

    def listed(self, nodes: Bits) -> Bits:
        """The set of these nodes by their places in `snapshot.nodes`."""

    def topology(self, key: str) -> Topology:
        """The domains of this key. The first question costs a step a node; later ones nothing."""

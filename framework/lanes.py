"""Numbers side by side in one integer, its *lanes*: adding two such integers adds all the numbers, in about the time of one sum.

What is to be known of one node for hundreds of pods is computed so, a pod a lane, and what is to be known of one pod for hundreds of nodes. A lane is
64 bits wide, or eight where the numbers are that small: an octet. Whoever computes with lanes sees to it that no number leaves its own: none falls below zero, and none reaches 2^64, or 256.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack_into

Lanes = int

WIDTH = 64
OCTET = 8
TOP = 1 << (WIDTH - 1)
"""The highest bit of a lane: with it set, a number below it can be taken away, and the bit tells whether there was enough."""
_OCTETS = WIDTH // 8
_ONE = b"\1" + bytes(_OCTETS - 1)


def ones(count: int, width: int = WIDTH) -> Lanes:
    """1 in each of so many lanes; times a number, that number in each."""
    return int.from_bytes((_ONE if width == WIDTH else b"\1") * count, "little")


def widened(there: int, lane: int) -> int:
    """How many lanes there are from now on, where this one is to be among them."""
    return there if lane < there else max(lane + 1, 2 * there)


class Row:
    """Lanes of which now and then one changes."""

    __slots__ = ("_blank", "_held", "_lanes")

    def __init__(self, blank: int = 0) -> None:
        """`blank` is in the lanes that were never set."""
        self._blank = blank.to_bytes(_OCTETS, "little")
        self._held = bytearray()
        self._lanes: Lanes | None = 0

    def put(self, lane: int, value: int) -> None:
        """Have this number in this lane."""
        there = len(self._held) // _OCTETS
        if lane >= there:
            self._held += self._blank * (widened(there, lane) - there)
        pack_into("<Q", self._held, lane * _OCTETS, value)
        self._lanes = None

    @property
    def lanes(self) -> Lanes:
        """All of them, as many as `widened` says."""
        if self._lanes is None:
            self._lanes = int.from_bytes(self._held, "little")
        return self._lanes


class Octets(Row):
    """As `Row`, of lanes of eight bits."""

    __slots__ = ()

    def __init__(self, blank: int = 0) -> None:
        """`blank` is in the lanes that were never set."""
        super().__init__()
        self._blank = bytes([blank])

    def put(self, lane: int, value: int) -> None:
        """Have this number in this lane."""
        there = len(self._held)
        if lane >= there:
            self._held += self._blank * (widened(there, lane) - there)
        self._held[lane] = value
        self._lanes = None


def marked(marks: Lanes, width: int = WIDTH) -> Iterator[int]:
    """The lanes that hold 1, where all others hold 0."""
    while marks:
        yield ((marks ^ (marks - 1)).bit_length() - 1) // width
        marks &= marks - 1


def octets(lanes: Lanes, count: int) -> bytes:
    """The numbers of the first lanes, of which all are below 256 and no further ones are set."""
    return lanes.to_bytes(count * _OCTETS, "little")[::_OCTETS]

"""Numbers side by side in one integer, its *lanes*: adding two such integers adds all the numbers, in about the time of one sum.

What is to be known of one node for hundreds of pods is computed so, a pod a lane, and what is to be known of one pod for hundreds of nodes. A lane is
24 bits wide: there is room for a number below 256 and for sixteen binary places of it. Whoever computes with lanes sees to it that no number leaves its own: none falls below zero, and none reaches 2^24.
"""

from __future__ import annotations

from collections.abc import Iterator

Lanes = int

_BYTES = 3
WIDTH = 8 * _BYTES


def ones(count: int) -> Lanes:
    """1 in each of so many lanes; times a number, that number in each."""
    return int.from_bytes(b"\1\0\0" * count, "little")


def widened(there: int, lane: int) -> int:
    """How many lanes there are from now on, where this one is to be among them."""
    return there if lane < there else max(lane + 1, 2 * there)


class Row:
    """Lanes of which now and then one changes."""

    __slots__ = ("_blank", "_held", "_lanes")

    def __init__(self, blank: int = 0) -> None:
        """`blank` is in the lanes that were never set."""
        self._blank = blank.to_bytes(_BYTES, "little")
        self._held = bytearray()
        self._lanes: Lanes | None = 0

    def put(self, lane: int, value: int) -> None:
        """Have this number in this lane."""
        there = len(self._held) // _BYTES
        if lane >= there:
            self._held += self._blank * (widened(there, lane) - there)
        self._held[_BYTES * lane : _BYTES * lane + _BYTES] = value.to_bytes(_BYTES, "little")
        self._lanes = None

    @property
    def lanes(self) -> Lanes:
        """All of them, as many as `widened` says."""
        if self._lanes is None:
            self._lanes = int.from_bytes(self._held, "little")
        return self._lanes


def marked(marks: Lanes) -> Iterator[int]:
    """The lanes that hold 1, where all others hold 0."""
    while marks:
        yield ((marks ^ (marks - 1)).bit_length() - 1) // WIDTH
        marks &= marks - 1


def octets(lanes: Lanes, count: int) -> bytes:
    """The numbers of the first lanes, of which all are below 256 and no further ones are set."""
    return lanes.to_bytes(count * _BYTES, "little")[::_BYTES]

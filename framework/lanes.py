"""Numbers side by side in one integer, its *lanes*: adding two such integers adds all the numbers, in about the time of one sum.

What is to be known of one node for hundreds of pods is computed so, a pod a lane. A lane is 64 bits wide. Whoever computes with lanes sees
to it that no number leaves its own: none falls below zero, and none reaches 2^64.
"""

from __future__ import annotations

from collections.abc import Iterator

Lanes = int

WIDTH = 64
TOP = 1 << (WIDTH - 1)
"""The highest bit of a lane: with it set, a number below it can be taken away, and the bit tells whether there was enough."""
_LANE = (1 << WIDTH) - 1
_ONE = b"\1" + bytes(WIDTH // 8 - 1)


def ones(count: int) -> Lanes:
    """1 in each of so many lanes; times a number, that number in each."""
    return int.from_bytes(_ONE * count, "little")


def with_lane(lanes: Lanes, lane: int, value: int) -> Lanes:
    """The same with another number in this lane."""
    shift = WIDTH * lane
    return lanes + ((value - (lanes >> shift & _LANE)) << shift)


def marked(marks: Lanes) -> Iterator[int]:
    """The lanes that hold 1, where all others hold 0."""
    while marks:
        lowest = marks & -marks
        yield (lowest.bit_length() - 1) // WIDTH
        marks ^= lowest


def octets(lanes: Lanes, count: int) -> bytes:
    """The numbers of the first lanes, of which all are below 256 and no further ones are set."""
    return lanes.to_bytes(count * (WIDTH // 8), "little")[:: WIDTH // 8]

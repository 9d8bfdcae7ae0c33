"""resourceVersions: each names a change, by its record and its place in it; those of lists name the end of a record.

    revision = seq · 2²⁰ + place        a record can change many objects, and a watch may be cut in between

They are unique and grow with each change, also over restarts, and say where in the log to look: `tidelog log show $((rv >> 20))`.
"""

from __future__ import annotations

from typing import NamedTuple

PLACES = 1 << 20
"""More changes than a record can make."""


class Spot(NamedTuple):
    """A revision taken apart."""

    seq: int
    place: int


def revision(seq: int, place: int) -> int:
    """Of the change at this place of a record."""
    return seq * PLACES + place


def end_of(seq: int) -> int:
    """Of everything up to and including a record."""
    return (seq + 1) * PLACES - 1


def spot_of(revision: int) -> Spot:
    """The record and the place."""
    return Spot(*divmod(revision, PLACES))

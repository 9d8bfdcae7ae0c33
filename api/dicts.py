"""Dropping the oldest entries of a dict, for caches that are bounded."""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def drop_oldest(known: dict[K, V], count: int) -> None:
    """Remove the first entries, so many at once: one by one each would have to pass the places that those before it have left."""
    for key in list(islice(known, count)):
        del known[key]

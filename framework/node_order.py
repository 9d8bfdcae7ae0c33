"""The order in which nodes are examined: round-robin over the zones, zones in the order in which they first appeared, nodes in the order in which they came to their zone.

It follows from the order of the log's records alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from typing import TypeVar

from tidelog.api.objects import Node
from tidelog.api.well_known import REGION, ZONE

T = TypeVar("T")

Zone = tuple[str, str]
"""Region and zone; empty where the node has no such label."""


def zone_of(node: Node) -> Zone:
    """Where the node is, by its labels."""
    labels = node.metadata.labels
    return labels.get(REGION, ""), labels.get(ZONE, "")


def round_robin(zones: Iterable[Collection[T]]) -> list[T]:
    """The first of each zone, then the second of each, and so on."""
    left = [list(zone) for zone in zones]
    found: list[T] = []
    turn = 0
    while left:
        until = min(map(len, left))
        found.extend(chain.from_iterable(zip(*[zone[turn:until] for zone in left], strict=True)))
        turn = until
        left = [zone for zone in left if len(zone) > turn]
    return found

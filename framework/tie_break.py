"""The tie-break: which of several equally good nodes is taken (docs/decisions/0010).

Among equals those with the fewest pods are left, and of these the first one wins at or after a place in the list of nodes that follows from
the pod's own number (`tidelog.api.tie_number`), going round. In logs written before that rule all equals are left, and the place follows from
the number of the attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.framework.node_info import NodeInfo

_GOLDEN = 0x9E3779B97F4A7C15
"""2⁶⁴ divided by the golden ratio: its multiples, modulo 2⁶⁴, fall as evenly as possible."""


def scan_start(turn: int, nodes: int) -> int:
    """Where the search for the best node begins: the `turn`-th multiple of the golden ratio, as a part of the list.

    Turns next to each other begin far apart, and so do every second, third, … turn: pods of one kind that come at regular
    intervals are spread over all nodes, and not over those of one zone.
    """
    return ((turn * _GOLDEN) % (1 << 64)) * nodes >> 64


def winner(
    tied: Sequence[NodeInfo], place_of: Callable[[str], int], turn: int, count: int, *, fewest: bool
) -> NodeInfo:
    """Return the one of these nodes that is taken; `count` nodes are there in all, each at its place. `fewest`: pods on a node count first."""
    left = tied
    if fewest:
        least = min(len(node.pods) for node in tied)
        left = [node for node in tied if len(node.pods) == least]
    start = scan_start(turn, count)
    return min(left, key=lambda node: (place_of(node.name) - start) % count)

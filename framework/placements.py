"""Types that the group cycle and plugins about placements share beside `Placement` itself."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.framework.interface import Placement

NO_PLACEMENTS = "no feasible placements found"
FUTURE_PODS = "PlacementPodCountScorer.futurePods"
"""In the group's cycle state: placement → how many pods that do not exist yet would fit beside the members."""


def whole(nodes: Sequence[str]) -> Placement:
    """Where generation begins: everything."""
    return Placement(name="", nodes=tuple(nodes))

"""Types that the group cycle and plugins about placements share beside `Placement` itself."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidelog.api.tie_number import MARK
from tidelog.framework.interface import Placement
from tidelog.framework.node_info import PodInfo

NO_PLACEMENTS = "no feasible placements found"
FUTURE_PODS = "PlacementPodCountScorer.futurePods"
"""In the group's cycle state: placement → how many pods that do not exist yet would fit beside the members."""


def whole(nodes: Sequence[str]) -> Placement:
    """Where generation begins: everything."""
    return Placement(name="", nodes=tuple(nodes))


def future_pod(like: PodInfo, number: int) -> PodInfo:
    """A pod that may come: a copy of one that is there, told apart by a name that no pod can have."""
    mark = f"{MARK}{number + 1}"
    meta = replace(like.pod.metadata, name=like.name + mark, uid=like.uid + mark)
    return PodInfo(replace(like.pod, metadata=meta))

"""PlacementBinPacking: of the placements that can take a group, the one that is left with least (KEP-5732).

The score is how much of each resource would be used over all the placement's nodes together, pods already there included, in
percent, and the mean of that over the resources: cpu and memory, and whatever else a member asks for. Containers that say
nothing count with kube-scheduler's defaults. So large free domains stay free for large groups.

In `compat: upstream` the arithmetic is kube-scheduler's, in whole percent.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.api.resources import CPU, MEMORY, is_scalar
from tidelog.framework.interface import CycleState, GroupInfo, Placement, PlacementScorePlugin, Plugin
from tidelog.framework.node_info import NodeInfo, PodInfo


class PlacementBinPacking(Plugin):
    """Scores the used part of a placement, with the group in it."""

    name = "PlacementBinPacking"
    scores_by_sums = True
    reads_first_member = False

    def score_placement(
        self, state: CycleState, group: GroupInfo, placement: Placement, assignment: Mapping[str, str]
    ) -> float:
        """Costs a pass over the placement's nodes."""
        nodes = [node for node in map(self.handle.snapshot.get, placement.nodes) if node is not None]
        placed = [pod for pod in group.members if pod.key in assignment]
        used = [u for name in _resources(group) for u in _used(name, nodes, placed)]
        if not used:
            return 0.0
        if self.handle.upstream:
            return float(sum(100 * min(taken, there) // there for taken, there in used) // len(used))
        return sum(100 * min(taken, there) / there for taken, there in used) / len(used)


def _resources(group: GroupInfo) -> list[str]:
    asked = {name for pod in group.members for name, amount in pod.requests.items() if amount}
    return [CPU, MEMORY, *sorted(name for name in asked if is_scalar(name))]


def _used(name: str, nodes: list[NodeInfo], placed: list[PodInfo]) -> list[tuple[int, int]]:
    """(used, allocatable) of a resource; none where the nodes do not have it."""
    there = sum(node.allocatable.get(name, 0) for node in nodes)
    if not there:
        return []
    if name == CPU:
        return [(sum(n.non_zero_cpu for n in nodes) + sum(p.non_zero_cpu for p in placed), there)]
    if name == MEMORY:
        return [(sum(n.non_zero_memory for n in nodes) + sum(p.non_zero_memory for p in placed), there)]
    taken = sum(n.requested.get(name, 0) for n in nodes) + sum(p.requests.get(name, 0) for p in placed)
    return [(taken, there)]


_score: type[PlacementScorePlugin] = PlacementBinPacking

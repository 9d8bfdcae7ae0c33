"""Scoring by soft spread constraints: the fewer matching pods in a node's domains, the better.

Only domains of feasible nodes matter, but the pods in them are counted on all nodes that the constraint admits. How much a
constraint weighs grows with the number of its domains, so that the many small ones of a host name do not drown the few zones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tidelog.api.well_known import HOSTNAME
from tidelog.framework.arithmetic import round_half_away
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.pod_topology_spread.constraints import Constraint, Constraints, has_all_keys


class SpreadScores:
    """State for scoring one incoming pod and one set of feasible nodes."""

    __slots__ = ("_constraints", "_counts", "_ignored", "_namespace", "_weights")

    def __init__(
        self,
        pod: PodInfo,
        constraints: Constraints,
        feasible: Sequence[NodeInfo],
        nodes: Iterable[NodeInfo],
        needs_all_keys: bool,
    ) -> None:
        """Costs the pods of all nodes, unless every constraint spreads over host names: these are counted as scored."""
        self._constraints = constraints
        self._namespace = pod.namespace
        self._ignored: frozenset[str] = frozenset()
        """Feasible nodes that lack a topology key: they get the worst score."""
        if needs_all_keys:
            self._ignored = frozenset(n.name for n in feasible if not has_all_keys(n.labels, constraints))
        scored = [node for node in feasible if node.name not in self._ignored]
        self._counts = tuple(_domains(constraint, scored) for constraint in constraints)
        """For each constraint, domain → matching pods; nothing for host names."""
        self._weights = tuple(
            weight_of(len(scored) if constraint.topology_key == HOSTNAME else len(counts))
            for constraint, counts in zip(constraints, self._counts, strict=True)
        )
        self._count(pod, nodes, needs_all_keys)

    def _count(self, pod: PodInfo, nodes: Iterable[NodeInfo], needs_all_keys: bool) -> None:
        counted = [pair for pair in zip(self._constraints, self._counts, strict=True) if pair[1]]
        if not counted:
            return
        for node in nodes:
            labels = node.labels
            if needs_all_keys and not has_all_keys(labels, self._constraints):
                continue
            for constraint, counts in counted:
                domain = labels.get(constraint.topology_key, "")
                if domain in counts and constraint.admits(pod.pod, node.node):
                    counts[domain] += constraint.count_pods(node.pods.values(), pod.namespace)

    def raw(self, node: NodeInfo) -> int:
        """The weighted number of matching pods near the node, over the constraints whose key it has."""
        if node.name in self._ignored:
            return 0
        labels, score = node.labels, 0.0
        for constraint, counts, weight in zip(self._constraints, self._counts, self._weights, strict=True):
            domain = labels.get(constraint.topology_key)
            if domain is not None:
                if constraint.topology_key == HOSTNAME:
                    count = constraint.count_pods(node.pods.values(), self._namespace)
                else:
                    count = counts.get(domain, 0)
                score += count * weight + (constraint.max_skew - 1)
        return round_half_away(score)

    def normalized(self, nodes: Sequence[NodeInfo], scores: Sequence[int]) -> list[int]:
        """100 for an empty neighbourhood; ignored nodes 0, whatever the others have."""
        counting = [s for n, s in zip(nodes, scores, strict=True) if n.name not in self._ignored]
        lowest, highest = min(counting, default=0), max(counting, default=0)

        return [
            0 if node.name in self._ignored else normalized_score(score, lowest, highest)
            for node, score in zip(nodes, scores, strict=True)
        ]


def weight_of(domains: int) -> float:
    """The weight of a constraint with so many domains."""
    return math.log(domains + 2)


def normalized_score(raw: int, lowest: int, highest: int) -> int:
    """100 for the lowest of these raw scores."""
    return 100 * (highest + lowest - raw) // highest if highest else 100


def _domains(constraint: Constraint, nodes: Iterable[NodeInfo]) -> dict[str, int]:
    """The domains of these nodes, uncounted. A node without the key is in the domain of the empty value."""
    if constraint.topology_key == HOSTNAME:
        return {}
    return dict.fromkeys((node.labels.get(constraint.topology_key, "") for node in nodes), 0)

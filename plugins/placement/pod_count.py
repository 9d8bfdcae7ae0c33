"""PlacementPodCountScorer: of the placements that can take a group, the one that takes most of its pods (KEP-5732).

Pods that are placed already count. So do, where the group says how many it will have (`desiredCount`), the pods that would still
fit when they come: the cycle tries copies of the last pod and leaves their number here (`FUTURE_PODS`).

The best of the feasible placements has 100, the others their part of it; in `compat: upstream` in whole points.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.framework.interface import (
    CycleState,
    GroupInfo,
    NormalizePlacementScores,
    Placement,
    PlacementScorePlugin,
    Plugin,
)
from tidelog.framework.placements import FUTURE_PODS


class PlacementPodCountScorer(Plugin):
    """Scores the number of pods."""

    name = "PlacementPodCountScorer"
    scores_by_sums = True
    reads_first_member = False

    def score_placement(
        self, state: CycleState, group: GroupInfo, placement: Placement, assignment: Mapping[str, str]
    ) -> float:
        future: Mapping[str, int] = state.read(FUTURE_PODS) or {}
        return float(len(group.placed) + len(assignment) + future.get(placement.name, 0))

    def normalize_placement_scores(self, scores: list[float]) -> list[float]:
        best = max(scores)
        if not best:
            return scores
        if self.handle.upstream:
            return [float(100 * int(score) // int(best)) for score in scores]
        return [100 * score / best for score in scores]


class PodGroupPodsCount(PlacementPodCountScorer):
    """kube-scheduler's name of the plugin, for configurations that mention it."""

    name = "PodGroupPodsCount"


_score: type[PlacementScorePlugin] = PlacementPodCountScorer
_normalize: type[NormalizePlacementScores] = PlacementPodCountScorer

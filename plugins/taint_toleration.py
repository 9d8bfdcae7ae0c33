"""TaintToleration: keeps pods off nodes with taints they do not tolerate, and away from taints they would rather avoid.

`NoSchedule` and `NoExecute` taints filter, `PreferNoSchedule` ones score.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.api.objects import Node, Pod, Toleration
from tidelog.api.taints import PREFER_NO_SCHEDULE, is_tolerated, untolerated
from tidelog.framework.arithmetic import scaled_to_maximum
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import (
    SKIP,
    CycleState,
    Depends,
    FilterPlugin,
    NormalizeScore,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
    Status,
    unresolvable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import PodParts, SignsPods

REASON = "node(s) had untolerated taint(s)"
_STATE = "TaintToleration.preferring"


class TaintToleration(Plugin):
    """Rejects nodes with an untolerated taint; prefers nodes with few untolerated `PreferNoSchedule` taints."""

    name = "TaintToleration"
    filter_depends = Depends.TRAITS
    score_depends = Depends.TRAITS
    signed_parts = PodParts.SPEC

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.pod.spec.tolerations

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        """Nothing to check for a pod that tolerates every taint there can be."""
        everything = any(map(_tolerates_everything, pod.pod.spec.tolerations))
        return PreFilterResult(status=SKIP if everything else None)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        taints = node.node.spec.taints
        if not taints or untolerated(taints, pod.pod.spec.tolerations) is None:
            return None
        return unresolvable(REASON)

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        """Never skips: even where no taint is, each node scores 100."""
        state.write(_STATE, _about_preference(pod.pod.spec.tolerations))
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """How many `PreferNoSchedule` taints the pod does not tolerate."""
        taints = node.node.spec.taints
        if not taints:
            return 0
        tolerations: tuple[Toleration, ...] | None = state.read(_STATE)
        if tolerations is None:
            tolerations = _about_preference(pod.pod.spec.tolerations)
        return sum(t.effect == PREFER_NO_SCHEDULE and not is_tolerated(t, tolerations) for t in taints)

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]:
        """100 for the fewest, 0 for the most."""
        return scaled_to_maximum(scores, reverse=True)

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Nodes that lose taints, and the pod gaining a toleration."""
        nodes = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)
        own_tolerations = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)
        return [EventRegistration(nodes, _node_changed), EventRegistration(own_tolerations, _pod_changed)]


def _tolerates_everything(toleration: Toleration) -> bool:
    return toleration.operator == "Exists" and not toleration.key and not toleration.effect


def _about_preference(tolerations: Iterable[Toleration]) -> tuple[Toleration, ...]:
    """A toleration for another effect cannot meet a `PreferNoSchedule` taint."""
    return tuple(t for t in tolerations if t.effect in ("", PREFER_NO_SCHEDULE))


def _node_changed(waiting: WaitingPod, old: Node | None, new: Node) -> Hint:
    """Only from untolerated to tolerated; a new node counts as untolerated before."""
    tolerations = waiting.pod.spec.tolerations
    was_tolerated = old is not None and untolerated(old.spec.taints, tolerations) is None
    is_tolerated_now = untolerated(new.spec.taints, tolerations) is None
    return Hint.QUEUE if is_tolerated_now and not was_tolerated else Hint.SKIP


def _pod_changed(waiting: WaitingPod, old: Pod | None, new: Pod | None) -> Hint:
    """A toleration was added: there is no telling from here on which nodes it helps."""
    return Hint.QUEUE


_pre_filter: type[PreFilterPlugin] = TaintToleration
_filter: type[FilterPlugin] = TaintToleration
_pre_score: type[PreScorePlugin] = TaintToleration
_score: type[ScorePlugin] = TaintToleration
_normalize: type[NormalizeScore] = TaintToleration
_signs: type[SignsPods] = TaintToleration

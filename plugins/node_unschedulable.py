"""NodeUnschedulable: keeps pods off cordoned nodes (`spec.unschedulable`), unless they tolerate the cordon.

The cordon is looked at as the taint `node.kubernetes.io/unschedulable:NoSchedule`, whether or not the node carries that
taint as well; the taint itself is TaintToleration's business.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.api.objects import Node, Pod
from tidelog.api.taints import UNSCHEDULABLE_TAINT, is_tolerated
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import (
    SKIP,
    CycleState,
    Depends,
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    Status,
    unresolvable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import PodParts, SignsPods

REASON = "node(s) were unschedulable"


class NodeUnschedulable(Plugin):
    """Rejects cordoned nodes for pods that do not tolerate the cordon."""

    name = "NodeUnschedulable"
    filter_depends = Depends.TRAITS
    signed_parts = PodParts.SPEC

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.pod.spec.tolerations

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        """Nothing to check for a pod that tolerates the cordon."""
        return PreFilterResult(status=SKIP if _tolerates_cordon(pod.pod) else None)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if not node.node.spec.unschedulable or _tolerates_cordon(pod.pod):
            return None
        return unresolvable(REASON)

    def events_to_register(self) -> Sequence[EventRegistration]:
        """Lifting a cordon is raised as a taint update."""
        nodes = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)
        own_tolerations = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)
        return [EventRegistration(nodes, _node_changed), EventRegistration(own_tolerations, _pod_changed)]


def _tolerates_cordon(pod: Pod) -> bool:
    return is_tolerated(UNSCHEDULABLE_TAINT, pod.spec.tolerations)


def _node_changed(waiting: WaitingPod, old: Node | None, new: Node) -> Hint:
    """Only a node that opens helps: one that was open before did not reject the pod."""
    opened = not new.spec.unschedulable and (old is None or old.spec.unschedulable)
    return Hint.QUEUE if opened else Hint.SKIP


def _pod_changed(waiting: WaitingPod, old: Pod | None, new: Pod) -> Hint:
    """Tolerations can only be added, so tolerating now means not having done so at the rejection."""
    return Hint.QUEUE if _tolerates_cordon(new) else Hint.SKIP


_pre_filter: type[PreFilterPlugin] = NodeUnschedulable
_filter: type[FilterPlugin] = NodeUnschedulable
_signs: type[SignsPods] = NodeUnschedulable

"""NodeName: a pod whose `spec.nodeName` is set may run on that node only."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Resource
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

REASON = "node(s) didn't match the requested node name"


class NodeName(Plugin):
    """Narrows the nodes to the one that the pod names.

    A pod with a node is assigned and normally never enters the queue, so almost every attempt skips this plugin.
    """

    name = "NodeName"
    filter_depends = Depends.LABELS
    signed_parts = PodParts.SPEC

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.pod.spec.node_name

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        wanted = pod.pod.spec.node_name
        return PreFilterResult(frozenset([wanted])) if wanted else PreFilterResult(status=SKIP)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        wanted = pod.pod.spec.node_name
        return unresolvable(REASON) if wanted and wanted != node.name else None

    def events_to_register(self) -> Sequence[EventRegistration]:
        """A new node may be the one that was asked for."""
        return [EventRegistration(ClusterEvent(Resource.NODE, Action.ADD))]


_pre_filter: type[PreFilterPlugin] = NodeName
_filter: type[FilterPlugin] = NodeName
_signs: type[SignsPods] = NodeName

"""NodePorts: a pod that asks for host ports may run only where they are free.

Two ports conflict when protocol and number agree and the addresses do: the same one, or one of them is 0.0.0.0 (which is
what an absent address means). The ports of one pod never conflict with each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.api.objects import Pod
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
    unschedulable,
)
from tidelog.framework.node_info import ANY_IP, HostPort, NodeInfo, PodInfo, host_ports_of
from tidelog.framework.offers import PodParts, SignsPods

REASON = "node(s) didn't have free ports for the requested pod ports"


class NodePorts(Plugin):
    """Rejects nodes on which a wanted host port is taken."""

    name = "NodePorts"
    filter_depends = Depends.LOAD
    signed_parts = PodParts.SPEC

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.host_ports

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        return PreFilterResult(status=None if pod.host_ports else SKIP)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return unschedulable(REASON) if node.conflicts_with(pod.host_ports) else None

    def events_to_register(self) -> Sequence[EventRegistration]:
        pods = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
        nodes = ClusterEvent(Resource.NODE, Action.ADD)
        return [EventRegistration(pods, _pod_deleted), EventRegistration(nodes)]


def _pod_deleted(waiting: WaitingPod, old: Pod, new: Pod | None) -> Hint:
    """Only a pod that held a place, and a port in it that the waiting pod wants."""
    if not (old.spec.node_name or old.status.nominated_node_name):
        return Hint.SKIP
    return Hint.QUEUE if _conflict(host_ports_of(waiting.pod), host_ports_of(old)) else Hint.SKIP


def _conflict(wanted: Sequence[HostPort], held: Sequence[HostPort]) -> bool:
    return any(
        (protocol, port) == (held_protocol, held_port) and (ip == held_ip or ANY_IP in (ip, held_ip))
        for ip, protocol, port in wanted
        for held_ip, held_protocol, held_port in held
    )


_pre_filter: type[PreFilterPlugin] = NodePorts
_filter: type[FilterPlugin] = NodePorts
_signs: type[SignsPods] = NodePorts

"""Plugins of somebody else's, for measuring what each declaration costs: one filter and one scorer, declared in several ways."""

# ruff: noqa: ARG002 - plugins are given more than they need

from __future__ import annotations

from collections.abc import Sequence

from tidelog.framework.interface import CycleState, Depends, Plugin, Status, unschedulable
from tidelog.framework.node_info import NodeInfo, PodInfo

LABEL = "licence"


class ForeignFilter(Plugin):
    """At most ninety pods with the same licence on a node: looks at the node and every pod on it."""

    name = "ForeignFilter"

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.labels.get(LABEL)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        wanted = pod.labels.get(LABEL)
        taken = sum(other.labels.get(LABEL) == wanted for other in node.pods.values())
        return None if taken < 90 else unschedulable("node(s) had no free licence")


class ForeignScore(Plugin):
    """Rather nodes with few pods of a licence; a hundred different raw scores at most."""

    name = "ForeignScore"

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.labels.get(LABEL)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        wanted = pod.labels.get(LABEL)
        return sum(other.labels.get(LABEL) == wanted for other in node.pods.values()) % 100

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]:
        most = max(scores)
        return [100 - 100 * score // most if most else 100 for score in scores]


class NodeFilter(ForeignFilter):
    """Looks at the node's labels only."""

    name = "NodeFilter"

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return unschedulable("node(s) were reserved") if node.labels.get("reserved") else None


class NodeScore(NodeFilter):
    """Looks at the node's labels only, for a score."""

    name = "NodeScore"

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(node.labels) % 100


DECLARED: dict[str, tuple[type[Plugin], Depends]] = {
    "filter NODE|OCCUPANTS": (ForeignFilter, Depends.NODE | Depends.OCCUPANTS),
    "score NODE|OCCUPANTS": (ForeignScore, Depends.NODE | Depends.OCCUPANTS),
    "filter NODE": (NodeFilter, Depends.NODE),
    "score NODE": (NodeScore, Depends.NODE),
    "filter STATE": (NodeFilter, Depends.STATE),
    "filter POD": (NodeFilter, Depends.POD),
    "filter undeclared": (NodeFilter, Depends.CLUSTER),
    "score undeclared": (NodeScore, Depends.CLUSTER),
}
"""Name of a measurement → the plugin, and its declaration."""


def declared(name: str) -> type[Plugin]:
    """A plugin that says this of itself, under a name of its own."""
    plugin, depends = DECLARED[name]
    members = {"name": plugin.name, "filter_depends": depends, "score_depends": depends}
    return type(plugin.__name__, (plugin,), members)

"""Plugins of somebody else's: one or more for each declaration, and with `foreign_offers` for every kind of offer.

All of them go through the conformance kit (`test_foreign_plugins`), and beside the default ones through the comparison of the fast with the plain evaluation
(`test_declarations`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tests.scheduler.evaluation.foreign_offers import OFFERING, ByStorage, ByZone
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.framework.interface import (
    SKIP,
    CycleState,
    Depends,
    Plugin,
    PreFilterResult,
    Status,
    unresolvable,
    unschedulable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.registry import Registry


class ByPod(Plugin):
    """Depends on the pod alone."""

    name = "ByPod"
    filter_depends = Depends.POD

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return (
            unresolvable("cache is full") if pod.labels.get("app") == "cache" and pod.priority == 10 else None
        )


class ByState(Plugin):
    """Depends on what a node's state says."""

    name = "ByState"
    filter_depends = Depends.STATE
    score_depends = Depends.STATE

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.labels.get("app")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return unschedulable("odd") if pod.labels.get("app") == "db" and len(node.pods) == 2 else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(node.pods) * 7 % 50

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]:
        most = max(scores)
        return [100 * score // most if most else 0 for score in scores]


class ByTraits(Plugin):
    """Depends on what nodes have in common that are alike."""

    name = "ByTraits"
    filter_depends = Depends.TRAITS
    score_depends = Depends.TRAITS

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.labels.get("app")

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        is_small = pod.labels.get("app") == "db" and node.allocatable.get("cpu", 0) < 3_000
        return unresolvable("too small") if is_small else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 20 * len(node.node.spec.taints)


class ByLoad(Plugin):
    """Depends on how much there is on a node, whatever it is."""

    name = "ByLoad"
    filter_depends = Depends.LOAD
    score_depends = Depends.LOAD

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return unschedulable("odd") if pod.labels.get("app") == "web" and len(node.pods) % 3 == 2 else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return node.requested.get("cpu", 0) + 10 * len(node.used_ports)

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]:
        most = max(scores)
        return [100 - 100 * score // most if most else 100 for score in scores]


class ByLabels(Plugin):
    """Depends on what sets a node apart from others like it."""

    name = "ByLabels"
    filter_depends = Depends.LABELS
    score_depends = Depends.LABELS

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return unresolvable("no spinning disk") if node.labels.get("disk") == "hdd" and pod.priority else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 10 * len(node.images) + len(node.labels)


class ByNode(Plugin):
    """Depends on the node's own object."""

    name = "ByNode"
    filter_depends = Depends.NODE
    score_depends = Depends.NODE

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        return PreFilterResult(status=SKIP if pod.labels.get("app") == "db" else None)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        is_slow = node.labels.get("disk") == "hdd" and bool(node.node.spec.taints)
        return unresolvable("slow") if is_slow else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(node.labels) * 10


class ByNeighbours(Plugin):
    """Depends on which pods there are."""

    name = "ByNeighbours"
    filter_depends = Depends.PODS
    score_depends = Depends.PODS

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        tiers = {other.labels.get("app") for other in node.pods.values()} - {pod.labels.get("app")}
        return unschedulable("mixed company") if len(tiers) > 1 else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return 100 if any(other.priority for other in node.pods.values()) else 0


class ByOccupants(Plugin):
    """Depends on the node and who is on it."""

    name = "ByOccupants"
    filter_depends = Depends.NODE | Depends.OCCUPANTS
    score_depends = Depends.OCCUPANTS

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        app = pod.labels.get("app")
        taken = sum(other.labels.get("app") == app for other in node.pods.values())
        return None if taken < 4 else unschedulable("enough of these")

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return sum(other.labels.get("app") == "web" for other in node.pods.values())

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]:
        most = max(scores)
        return [100 - 100 * score // most if most else 100 for score in scores]


class ByAllNodes(Plugin):
    """Depends on the objects of all nodes, and does not say on what of them."""

    name = "ByAllNodes"
    filter_depends = Depends.ALL_NODES
    score_depends = Depends.ALL_NODES

    def _alike(self, node: NodeInfo) -> int:
        disk = node.labels.get("disk")
        return sum(other.labels.get("disk") == disk for other in self.handle.snapshot.nodes)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        is_last = pod.labels.get("app") == "cache" and self._alike(node) == 1
        return unresolvable("the last of its kind") if is_last else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return min(100, 10 * self._alike(node))


class Undeclared(Plugin):
    """Says nothing, counts in PreFilter, and has hooks."""

    name = "Undeclared"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        if pod.labels.get("app") == "cache":
            return PreFilterResult(status=SKIP)
        state.write("Undeclared.pods", sum(len(node.pods) for node in nodes))
        return PreFilterResult()

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        state.write("Undeclared.pods", state.read("Undeclared.pods") + 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        state.write("Undeclared.pods", state.read("Undeclared.pods") - 1)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return unschedulable("not now") if (state.read("Undeclared.pods") + len(node.pods)) % 5 == 0 else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(node.pods) % 2 * 100


class Narrowing(Plugin):
    """Leaves some nodes in PreFilter; what it is about is its own."""

    name = "Narrowing"
    filter_depends = Depends.POD

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.labels.get("app")

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        if pod.labels.get("app") != "web":
            return PreFilterResult()
        return PreFilterResult(frozenset(f"n{number}" for number in range(1, 9)))


def _has_priority(pod: PodInfo) -> bool:
    return pod.priority > 0


class Reserving(Plugin):
    """Declares itself, and looks in Reserve for what its Filter wrote about the node."""

    name = "Reserving"
    filter_depends = Depends.NODE | Depends.OCCUPANTS

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        state.write("Reserving.pod", pod.uid)
        return PreFilterResult()

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        state.write(f"Reserving.{node.name}", len(node.pods))
        return (
            unschedulable("enough with a priority")
            if sum(map(_has_priority, node.pods.values())) > 1
            else None
        )

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        own = state.read("Reserving.pod") == pod.uid
        return (
            None if own and state.read(f"Reserving.{node}") is not None else unschedulable("nothing written")
        )

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Nothing was set aside."""


class Counting(Plugin):
    """Notes whom it is asked about."""

    name = "Counting"
    noted: ClassVar[list[str]] = []

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        self.noted.append(node.name)
        return None


DECLARING: tuple[type[Plugin], ...] = (
    ByPod,
    ByState,
    ByLoad,
    ByTraits,
    ByLabels,
    ByNode,
    ByNeighbours,
    ByOccupants,
    ByZone,
    ByAllNodes,
    ByStorage,
    Undeclared,
    Narrowing,
    Reserving,
)
"""They declare what they depend on, or nothing, and offer no more than a signature."""

ALL = (*DECLARING, *OFFERING)


def registry_with(plugins: Sequence[type[Plugin]]) -> Registry:
    """All that there are, and these."""
    registry = Registry()
    for plugin in plugins:
        registry.register(plugin)
    return registry


def configured(
    registry: Registry, plugins: Sequence[type[Plugin]], without: Sequence[str] = (), **sections: Any
) -> SchedulerConfiguration:
    """The default profile with these, and without those of such names; further sections of the file as they are."""
    enabled: Any = [{"name": plugin.name} for plugin in plugins]
    file = {
        **sections,
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {
                    "multiPoint": {"enabled": enabled, "disabled": [{"name": name} for name in without]}
                },
            }
        ],
    }
    return resolve_configuration(file, registry).configuration

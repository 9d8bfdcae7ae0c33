"""Plugins of somebody else's, one or more for each declaration, and of every kind of offer."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

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


class ByLabels(Plugin):
    """Depends on the node's own object."""

    name = "ByLabels"
    filter_depends = Depends.NODE
    score_depends = Depends.NODE

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        return PreFilterResult(status=SKIP if pod.labels.get("app") == "db" else None)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return unresolvable("no spinning disk") if node.labels.get("disk") == "hdd" and pod.priority else None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(node.labels) * 10


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


class Sizes(Plugin):
    """Reads something of all nodes, and says what."""

    name = "Sizes"
    score_depends = Depends.NODE | Depends.ALL_NODES

    def beyond_node(self, pod: PodInfo) -> Hashable:
        return len(self.handle.snapshot.nodes)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return (len(node.name) + len(self.handle.snapshot.nodes)) % 100


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


class Reserving(Plugin):
    """Declares itself, and looks in Reserve for what its Filter wrote about the node."""

    name = "Reserving"
    filter_depends = Depends.NODE | Depends.OCCUPANTS

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        state.write("Reserving.pod", pod.uid)
        return PreFilterResult()

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        state.write(f"Reserving.{node.name}", len(node.pods))
        return None

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


class Choosy(Plugin):
    """Has to do with labelled pods only, and says so."""

    name = "Choosy"

    def sign_pod(self, pod: PodInfo) -> object:
        return self.concerns(pod)

    def concerns(self, pod: PodInfo) -> bool:
        return "choosy" in pod.labels

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        return PreFilterResult(status=None if self.concerns(pod) else SKIP)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None if len(node.pods) < 2 else unschedulable("too many neighbours")

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Nothing was set aside."""


ALL: tuple[type[Plugin], ...] = (
    ByPod,
    ByState,
    ByLabels,
    ByOccupants,
    Sizes,
    Undeclared,
    Narrowing,
    Reserving,
    Choosy,
)


def registry_with(plugins: Sequence[type[Plugin]]) -> Registry:
    """All that there are, and these."""
    registry = Registry()
    for plugin in plugins:
        registry.register(plugin)
    return registry


def configured(registry: Registry, plugins: Sequence[type[Plugin]]) -> SchedulerConfiguration:
    """The default profile with these."""
    enabled: Any = [{"name": plugin.name} for plugin in plugins]
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": {"multiPoint": {"enabled": enabled}}}],
    }
    return resolve_configuration(file, registry).configuration

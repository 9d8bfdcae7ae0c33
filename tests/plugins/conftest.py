"""One plugin and one node: for the tests of the plugins that look at nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tidelog.api.features import FeatureGates
from tidelog.framework.events import ClusterEvent, Hint, matches
from tidelog.framework.interface import Plugin, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.testing.builders import NodeBuilder, PodBuilder
from tidelog.testing.plugin_kit import Subject, WaitingSubject, WorldCluster


class Bench:
    """A plugin that can be asked, in default or upstream mode."""

    def __init__(self, plugin: type[Plugin], args: Any = None, *, upstream: bool = False) -> None:
        self.subject = Subject(plugin, args, FeatureGates(), upstream=upstream)
        self.plugin = self.subject.plugin

    def verdicts(self, pod: PodBuilder, *nodes: NodeBuilder) -> dict[str, Status | None]:
        """What an attempt with this plugin alone says of each node."""
        return self.subject.verdicts(WorldCluster([node.build() for node in nodes]), pod.build())

    def verdict(
        self, pod: PodBuilder, node: NodeBuilder, occupants: Iterable[PodBuilder] = ()
    ) -> Status | None:
        """What it says of a single node with these pods on it."""
        name = node.build().metadata.name
        pods = [one.named(f"there-{i}").on(name).build() for i, one in enumerate(occupants)]
        return self.subject.verdicts(WorldCluster([node.build()], pods), pod.build())[name]

    def pre_filter(self, pod: PodBuilder, *nodes: NodeBuilder) -> Any:
        """None, the set of the only nodes that can do, or a status."""
        return self.subject.pre_filter(WorldCluster([node.build() for node in nodes]), PodInfo(pod.build()))[
            1
        ]

    def scores(self, pod: PodBuilder, *nodes: NodeBuilder) -> Any:
        """The normalised scores in order, or the status with which PreScore ended."""
        cluster, one = WorldCluster([node.build() for node in nodes]), PodInfo(pod.build())
        raw = [self.subject.raw_score(cluster, one.pod, info.name) for info in cluster.nodes]
        if any(isinstance(score, Status) for score in raw):
            return raw[0]
        return self.plugin.normalize_scores(None, one, cluster.nodes, raw)  # type: ignore[attr-defined]

    def hint(self, event: ClusterEvent, pod: PodBuilder, old: Any = None, new: Any = None) -> Hint | None:
        """What the plugin's hint says of the event; None if it did not register it."""
        registered = [r for r in self.plugin.events_to_register() or () if matches(r.event, event)]
        if not registered:
            return None
        assert len(registered) == 1, "one event must not have two registrations"
        waiting = WaitingSubject(pod.build(), self.plugin.name)
        old, new = (one.build() if isinstance(one, NodeBuilder | PodBuilder) else one for one in (old, new))
        return Hint.QUEUE if registered[0].hint is None else registered[0].hint(waiting, old, new)


@pytest.fixture
def bench() -> Callable[..., Bench]:
    """`bench(NodePorts)` or `bench(NodeAffinity, args, upstream=True)`."""
    return Bench


@pytest.fixture
def node_info() -> Callable[..., NodeInfo]:
    """A node with pods on it."""
    return lambda node, *pods: NodeInfo(node.build(), [PodInfo(pod.build()) for pod in pods])

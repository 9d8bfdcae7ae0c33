"""A snapshot, and groups, for the plugins that look at placements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.api.features import FeatureGates
from tidelog.api.objects import Node, Object
from tidelog.framework.behaviours import all_behaviours
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import LevelConstraint
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import PodInfo
from tidelog.framework.snapshot import Snapshot
from tidelog.scheduler.cache import Cache
from tidelog.scheduler.groups.group import Group, GroupRule, GroupSettings
from tidelog.testing import builders as b

RACK, BLOCK = "rack", "block"


def handle(
    nodes: Sequence[Node], *others: Object, pods: Sequence[Any] = (), upstream: bool = False
) -> FrameworkHandle:
    """What plugins of a cluster with these nodes, pods on them and other objects are given."""
    cache, snapshot, listers = Cache(), Snapshot(), Listers()
    for node in nodes:
        cache.put_node(node)
    for pod in pods:
        cache.put_pod(PodInfo(pod))
    for other in others:
        listers.put(other)
    snapshot.refresh(cache)
    return FrameworkHandle(snapshot, listers, upstream=upstream, behaviours=all_behaviours())


def node(name: str, cpu: str = "4", **labels: str) -> Node:
    """A node with these labels."""
    return b.node(name).label(labels).capacity(cpu=cpu, memory="8Gi").build()


def group(
    *constraints: LevelConstraint | str,
    members: Sequence[Any] = (),
    placed: Sequence[tuple[Any, str]] = (),
    min_count: int = 0,
) -> Group:
    """A group of these pods that asks for these levels."""
    levels = tuple(LevelConstraint(c) if isinstance(c, str) else c for c in constraints)
    rule = GroupRule(
        object_key="PodGroup/default/g", is_gang=bool(min_count), min_count=min_count, constraints=levels
    )
    settings = GroupSettings(gates=FeatureGates(topology_aware_workload_scheduling=True))
    return Group(
        "PodGroup/default/g",
        rule,
        [PodInfo(pod) for pod in members],
        [(PodInfo(pod), on) for pod, on in placed],
        settings,
    )

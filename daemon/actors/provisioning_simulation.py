"""Trying out whether a node would help a pod: the project's own filters on a copy of the cluster.

Each pod is asked for twice. *As it is written*: nothing has fallen back, so a spread constraint that could fall back asks for the node that
keeps it. *As it stands*: what has fallen back by the pod's conditions only scores. Only when the first has failed does the second matter.

A pod that found a place is counted there for the pods that come after. Building it costs the cluster's pods and nodes, a question the pods
of all nodes (PreFilter counts anew); an autoscaler asks seldom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from tidelog.api.features import FeatureGates
from tidelog.api.objects import Node, Object, Pod
from tidelog.api.pod_status import is_terminal
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.configuration.profiles import ProfileSpec, build_profile
from tidelog.framework.framework import Framework
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import CycleState
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.results import Feasible
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.registry import Registry
from tidelog.scheduler.cache import Cache

LISTED = ("Namespace", "Service", "ReplicaSet", "ReplicationController", "StatefulSet")
_POINTS = ("preFilter", "filter")


class Simulation:
    """The cluster as it is, to which nodes may be added."""

    def __init__(
        self,
        configuration: SchedulerConfiguration,
        registry: Registry,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        listed: Iterable[Object],
        at: int,
    ) -> None:
        self._cache, self._snapshot, listers = Cache(), Snapshot(), Listers()
        for obj in listed:
            listers.put(obj)
        self.real: list[str] = []
        """The nodes that are there."""
        for node in nodes:
            self._cache.put_node(node)
            self.real.append(node.metadata.name)
        for pod in pods:
            if pod.spec.node_name and not is_terminal(pod):
                self._cache.put_pod(PodInfo(pod))
        self._at = at
        gates = configuration.feature_gates
        as_written = replace(gates, pod_topology_spread_fallback_mode=False)
        self._as_written = _frameworks(configuration, registry, self._snapshot, listers, as_written)
        self._as_it_stands = _frameworks(configuration, registry, self._snapshot, listers, gates)

    def knows(self, pod: Pod) -> bool:
        """Whether some profile schedules the pod."""
        return pod.spec.scheduler_name in self._as_written

    def add(self, node: Node) -> None:
        """There is such a node."""
        self._cache.put_node(node)

    def remove(self, name: str, pod: Pod | None = None) -> None:
        """There is not; and the pod, if one is named, which was placed on it, has no place."""
        if pod is not None:
            self._cache.forget(PodInfo(pod).uid)
        self._cache.remove_node(name)

    def place(self, pod: Pod, nodes: Iterable[str], *, as_it_stands: bool = False) -> str:
        """Put the pod on the first of these nodes on which it may run, and return its name; empty if there is none."""
        self._snapshot.refresh(self._cache)
        frameworks = self._as_it_stands if as_it_stands else self._as_written
        info, candidates = PodInfo(pod), [self._node(name) for name in nodes]
        if not candidates:
            return ""
        found = frameworks[pod.spec.scheduler_name].find_feasible(
            CycleState(self._at), info, candidates=candidates
        )
        if not isinstance(found, Feasible):
            return ""
        chosen = found.nodes[0].name
        self._cache.assume(info, chosen)
        return chosen

    def _node(self, name: str) -> NodeInfo:
        found = self._snapshot.get(name)
        assert found is not None, f"node {name} was not added"
        return found


def _frameworks(
    configuration: SchedulerConfiguration,
    registry: Registry,
    snapshot: Snapshot,
    listers: Listers,
    gates: FeatureGates,
) -> Mapping[str, Framework]:
    found = {}
    for profile in configuration.profiles:
        handle = FrameworkHandle(
            snapshot,
            listers,
            gates,
            upstream=configuration.upstream,
            fallback_only_if_rejected_by_spread=False,
        )
        points = build_profile(_filters_of(profile, registry), registry, handle).points
        found[profile.scheduler_name] = Framework(profile.scheduler_name, points, handle)
    return found


def _filters_of(profile: ProfileSpec, registry: Registry) -> ProfileSpec:
    """The profile without what does not filter, and without plugins that are not installed here."""
    points = {
        point: tuple(entry for entry in profile.points.get(point, ()) if registry.get(entry.name))
        for point in _POINTS
    }
    return replace(profile, points=points)

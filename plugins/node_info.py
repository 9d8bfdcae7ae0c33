"""A pod and a node as plugins see them: the objects, and beside them the integers that are asked for again and again.

`PodInfo` is computed once per version of a pod. `NodeInfo` is kept by the cluster cache (`tidelog.scheduler.cache`): adding
or removing a pod costs the pod's own size, not the node's.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.api.objects import ContainerPort, Node, Pod, PodAffinityTerm, WeightedPodAffinityTerm
from tidelog.api.resources import CPU, MEMORY, PODS, Requests, occupied_requests, parse_requests, pod_requests

HostPort = tuple[str, str, int]
"""IP, protocol, port, with the defaults (0.0.0.0, TCP) filled in."""


class PodInfo:
    """One version of a pod, read once."""

    __slots__ = (
        "affinity_preferred",
        "affinity_required",
        "anti_affinity_preferred",
        "anti_affinity_required",
        "host_ports",
        "key",
        "labels",
        "name",
        "namespace",
        "non_zero_cpu",
        "non_zero_memory",
        "occupied",
        "pod",
        "priority",
        "requests",
        "terminating",
        "uid",
    )

    def __init__(self, pod: Pod) -> None:
        meta, spec = pod.metadata, pod.spec
        self.pod = pod
        self.name = meta.name
        self.namespace = meta.namespace
        self.key = f"{meta.namespace}/{meta.name}"
        self.uid = meta.uid or self.key
        self.labels = meta.labels
        self.priority = spec.priority or 0
        self.terminating = bool(meta.deletion_timestamp)
        self.requests: Requests = pod_requests(pod)
        """What it asks of a node (filters)."""
        self.occupied: Requests = occupied_requests(pod)
        """What it takes from the node it is on; more than `requests` during an in-place resize."""
        self.host_ports: tuple[HostPort, ...] = _host_ports(pod)
        affinity = spec.affinity
        pod_affinity = affinity.pod_affinity if affinity else None
        anti = affinity.pod_anti_affinity if affinity else None
        self.affinity_required: tuple[PodAffinityTerm, ...] = pod_affinity.required if pod_affinity else ()
        self.affinity_preferred: tuple[WeightedPodAffinityTerm, ...] = (
            pod_affinity.preferred if pod_affinity else ()
        )
        self.anti_affinity_required: tuple[PodAffinityTerm, ...] = anti.required if anti else ()
        self.anti_affinity_preferred: tuple[WeightedPodAffinityTerm, ...] = anti.preferred if anti else ()


def _host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Of containers and sidecars; a plain init container's ports do not count."""
    return tuple(
        _host_port(port)
        for containers, wanted in ((pod.spec.containers, False), (pod.spec.init_containers, True))
        for container in containers
        if not wanted or container.restart_policy == "Always"
        for port in container.ports
        if port.host_port > 0
    )


def _host_port(port: ContainerPort) -> HostPort:
    return (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)


class NodeInfo:
    """A node with the pods on it, terminating ones included until they are gone."""

    __slots__ = (
        "allocatable",
        "generation",
        "name",
        "node",
        "non_zero_cpu",
        "non_zero_memory",
        "pods",
        "requested",
    )

    def __init__(self, node: Node, pods: Iterable[PodInfo] = ()) -> None:
        self.generation = 0
        """Grows with each change, over all nodes: what is newer than a snapshot is what must be copied to it."""
        self.pods: dict[str, PodInfo] = {}
        """By uid, in the order in which they came."""
        self.requested: Requests = {}
        self.non_zero_cpu = 0
        self.non_zero_memory = 0
        self.set_node(node)
        for pod in pods:
            self.add_pod(pod)

    def set_node(self, node: Node) -> None:
        """A new version of the node's object."""
        self.node = node
        self.name = node.metadata.name
        self.allocatable: Requests = parse_requests(node.status.allocatable)

    def add_pod(self, pod: PodInfo) -> None:
        """The pod takes its place."""
        raise NotImplementedError

    def remove_pod(self, pod: PodInfo) -> None:
        """The pod's place is free again."""
        raise NotImplementedError

    def clone(self) -> NodeInfo:
        """A copy whose pods can be added and removed without touching this one."""
        raise NotImplementedError


__all__ = ["CPU", "MEMORY", "PODS", "HostPort", "NodeInfo", "PodInfo"]

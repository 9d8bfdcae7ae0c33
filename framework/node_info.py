"""A pod and a node as plugins see them: the objects, and beside them the integers that are asked for again and again.

`PodInfo` is computed once per version of a pod and never changes. `NodeInfo` is kept by the cluster cache
(`tidelog.scheduler.cache`): adding or removing a pod costs the pod's own size, not the node's; a clone costs one copied
dict entry per pod on the node, and only who tries something on a node makes one.

A pod on a node need not have `spec.nodeName`: pods that are assumed or nominated do not. Where a pod is, its `NodeInfo` says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count
from typing import Any, NamedTuple

import msgspec

from tidelog.api.objects import Affinity, ContainerPort, Node, Pod, PodAffinityTerm, WeightedPodAffinityTerm
from tidelog.api.resources import (
    CPU,
    MEMORY,
    PODS,
    EffectiveRequests,
    Requests,
    effective_requests,
    parse_requests,
)
from tidelog.api.volumes import matters
from tidelog.framework.affinity_terms import NO_TERMS, PodTerms, compile_terms

HostPort = tuple[str, str, int]
"""IP, protocol, port, with the defaults (0.0.0.0, TCP) filled in."""

ANY_IP = "0.0.0.0"


_LATER: Any = None
"""Stands where `__post_init__` puts what the pod says."""


class PodInfo(msgspec.Struct, gc=False, eq=False):
    """One version of a pod, read once: `PodInfo(pod)`.

    There are as many as pods, and nothing in them leads back to them: as structs that the collector does not track, neither they nor
    the dicts that hold them by uid cost it anything.
    """

    pod: Pod
    name: str = ""
    namespace: str = ""
    key: str = ""
    uid: str = ""
    labels: dict[str, str] = _LATER
    priority: int = 0
    terminating: bool = False
    requests: Requests = _LATER
    """The requests that filters use."""
    score_requests: Requests = _LATER
    """The requests by which NodeResourcesFit scores it: with defaults for cpu and memory."""
    occupied: Requests = _LATER
    """Resources it takes from the node it is on; more than `requests` during an in-place resize."""
    non_zero_cpu: int = 0
    non_zero_memory: int = 0
    """Resources it takes from the node it is on where NodeResourcesFit scores others: with defaults."""
    host_ports: tuple[HostPort, ...] = ()
    volumes: int = 0
    """How many of its volumes have a say in where it runs."""
    claims: tuple[tuple[str, str], ...] = ()
    """Namespace and name of each claim that a `persistentVolumeClaim` volume names."""
    affinity_required: tuple[PodAffinityTerm, ...] = ()
    affinity_preferred: tuple[WeightedPodAffinityTerm, ...] = ()
    anti_affinity_required: tuple[PodAffinityTerm, ...] = ()
    anti_affinity_preferred: tuple[WeightedPodAffinityTerm, ...] = ()
    has_affinity: bool = False
    """It has a pod affinity or anti-affinity term of any kind."""
    is_plain: bool = True
    """Its node has to know nothing of it but what it takes."""
    likeness: int = 0
    """A number that pods have in common whose going makes the same difference to others; see `_kind_of`."""
    _terms: PodTerms | None = NO_TERMS

    def __post_init__(self) -> None:
        pod = self.pod
        meta, spec = pod.metadata, pod.spec
        self.name = name = meta.name
        self.namespace = namespace = meta.namespace
        self.key = key = f"{namespace}/{name}"
        self.uid = meta.uid or key
        self.labels = meta.labels
        if spec.priority:
            self.priority = spec.priority
        if meta.deletion_timestamp:
            self.terminating = True
        requests, ports, self.likeness = _kind_of(pod)
        self.requests, self.score_requests, self.occupied, self.non_zero_cpu, self.non_zero_memory = requests
        if ports:
            self.host_ports = ports
            self.is_plain = False
        if spec.volumes:
            self.volumes = sum(map(matters, spec.volumes))
            self.claims = claims_mounted_by(pod)
            if self.volumes or self.claims:
                self.is_plain = False
        if spec.affinity is not None:
            self._read_affinity(spec.affinity)

    def _read_affinity(self, affinity: Affinity) -> None:
        wanted, avoided = affinity.pod_affinity, affinity.pod_anti_affinity
        if wanted is not None:
            self.affinity_required, self.affinity_preferred = wanted.required, wanted.preferred
        if avoided is not None:
            self.anti_affinity_required, self.anti_affinity_preferred = avoided.required, avoided.preferred
        self.has_affinity = bool(
            self.affinity_required
            or self.affinity_preferred
            or self.anti_affinity_required
            or self.anti_affinity_preferred
        )
        if self.has_affinity:
            self.is_plain, self._terms = False, None

    @property
    def terms(self) -> PodTerms:
        """Its pod (anti-)affinity terms, compiled when first asked for."""
        if self._terms is None:
            self._terms = compile_terms(self.pod)
        return self._terms

    def compile_terms(self) -> None:
        """Do now what the first question for `terms` would have to do."""
        if self._terms is None:
            self._terms = compile_terms(self.pod)

    def __repr__(self) -> str:
        return f"PodInfo({self.key})"


class _Kind(NamedTuple):
    """All that pods of the same number have in common."""

    requests: EffectiveRequests
    host_ports: tuple[HostPort, ...]
    number: int


KINDS_MAX = 4_096
"""So many are known at a time; arbitrary. Later pods get other numbers, and are like nobody before them."""

_encode = msgspec.msgpack.Encoder().encode
_kinds: dict[bytes, _Kind] = {}
_numbers = count(1)
_match_beginning = re.compile("[^0-9]*").match


def _kind_of(pod: Pod) -> _Kind:
    """Read what the pod takes, and a number: the same one for pods whose going makes the same difference to others. It means nothing else.

    They are of one namespace and priority, guarded alike, take the same resources and ports, their names begin alike, and all say when they
    were started, or none does. Once containers say how they are, what they take is the pod's own, and so is the number.
    """
    meta, spec, status = pod.metadata, pod.spec, pod.status
    if spec.resources is not None or status.container_statuses or status.init_container_statuses:
        return _Kind(effective_requests(pod), host_ports_of(pod), next(_numbers))
    key = _encode(
        (
            spec.containers,
            spec.init_containers,
            spec.overhead,
            meta.namespace,
            beginning(meta.name),
            spec.priority,
            spec.allow_disruption_by_priority_greater_than_or_equal,
            not status.start_time,
        )
    )
    found = _kinds.get(key)
    if found is None:
        if len(_kinds) >= KINDS_MAX:
            _kinds.clear()
        found = _kinds[key] = _Kind(effective_requests(pod), host_ports_of(pod), next(_numbers))
    return found


def beginning(name: str) -> str:
    """A pod's name up to the first digit."""
    found = _match_beginning(name)
    return found[0] if found else ""


def claims_mounted_by(pod: Pod) -> tuple[tuple[str, str], ...]:
    """Those of ephemeral volumes are left out; one that two volumes name is there once."""
    namespace = pod.metadata.namespace
    found = [v.persistent_volume_claim for v in pod.spec.volumes if v.persistent_volume_claim is not None]
    return tuple(dict.fromkeys((namespace, claim.claim_name) for claim in found))


def host_ports_of(pod: Pod) -> tuple[HostPort, ...]:
    """Of containers and sidecars; a plain init container's ports do not count."""
    spec = pod.spec
    containers = spec.containers
    if spec.init_containers:
        containers = (*containers, *(c for c in spec.init_containers if c.restart_policy == "Always"))
    for container in containers:
        if container.ports:
            return tuple([_host_port(port) for c in containers for port in c.ports if port.host_port > 0])
    return ()  # Nearly all pods.


def _host_port(port: ContainerPort) -> HostPort:
    return (port.host_ip or ANY_IP, port.protocol or "TCP", port.host_port)


class NodeInfo:
    """A node with the pods on it, terminating ones included until they are gone."""

    __slots__ = (
        "affinity_pods",
        "allocatable",
        "allowed_pods",
        "arrival",
        "claims",
        "generation",
        "images",
        "labels",
        "name",
        "node",
        "non_zero_cpu",
        "non_zero_memory",
        "pods",
        "requested",
        "required_anti_affinity_pods",
        "used_ports",
        "volumes",
    )

    def __init__(self, node: Node, pods: Iterable[PodInfo] = ()) -> None:
        self.generation = 0
        """The cache's generation at the last change of this node; grows with each change, over all nodes."""
        self.arrival = 0
        """Of nodes in one zone those with a smaller number came earlier; another one when the node comes to another zone."""
        self.pods: dict[str, PodInfo] = {}
        """By uid, in the order in which they came."""
        self.affinity_pods: dict[str, PodInfo] = {}
        """Those of `pods` with any pod (anti-)affinity term."""
        self.required_anti_affinity_pods: dict[str, PodInfo] = {}
        """Those of `pods` with a required anti-affinity term."""
        self.requested: Requests = {}
        """The sum of what the pods occupy; holds no zeros."""
        self.non_zero_cpu = 0
        self.non_zero_memory = 0
        self.used_ports: dict[tuple[str, int], dict[str, int]] = {}
        """(protocol, port) → IP → how many pods hold it; more than one only if somebody bound them past us."""
        self.volumes = 0
        """How many volumes the pods have here, those of one claim counted for each; most have none."""
        self.claims: dict[tuple[str, str], int] = {}
        """Namespace and name of a PersistentVolumeClaim → how many pods here mount it."""
        self.set_node(node)
        for pod in pods:
            self.add_pod(pod)

    def set_node(self, node: Node) -> None:
        """A new version of the node's object."""
        self.node = node
        self.name = node.metadata.name
        self.labels = node.metadata.labels
        self.allocatable: Requests = parse_requests(node.status.allocatable)
        self.allowed_pods = self.allocatable.get(PODS, 0)
        self.images: dict[str, int] = {
            name: image.size_bytes for image in node.status.images for name in image.names
        }
        """Image name, as the node spells it (with tag or digest) → size in bytes."""

    def add_pod(self, pod: PodInfo) -> None:
        """The pod takes its place. The node must not hold a pod of this uid."""
        uid = pod.uid
        assert uid not in self.pods, f"{pod.key} ({uid}) is on {self.name} already"
        self.pods[uid] = pod
        requested = self.requested
        for name, value in pod.occupied.items():
            if value:
                requested[name] = requested.get(name, 0) + value
        self.non_zero_cpu += pod.non_zero_cpu
        self.non_zero_memory += pod.non_zero_memory
        if not pod.is_plain:
            self._add_rest(pod)

    def _add_rest(self, pod: PodInfo) -> None:
        if pod.has_affinity:
            self.affinity_pods[pod.uid] = pod
            if pod.anti_affinity_required:
                self.required_anti_affinity_pods[pod.uid] = pod
        for ip, protocol, port in pod.host_ports:
            holders = self.used_ports.setdefault((protocol, port), {})
            holders[ip] = holders.get(ip, 0) + 1
        self.volumes += pod.volumes
        for claim in pod.claims:
            self.claims[claim] = self.claims.get(claim, 0) + 1

    def remove_pod(self, pod: PodInfo) -> None:
        """The exact inverse of `add_pod` for the pod of this uid, in the version in which it was added."""
        removed = self.pods.pop(pod.uid)
        requested = self.requested
        for name, value in removed.occupied.items():
            if value:
                left = requested[name] - value
                if left:
                    requested[name] = left
                else:
                    del requested[name]
        self.non_zero_cpu -= removed.non_zero_cpu
        self.non_zero_memory -= removed.non_zero_memory
        if not removed.is_plain:
            self._remove_rest(removed)

    def _remove_rest(self, removed: PodInfo) -> None:
        if removed.has_affinity:
            del self.affinity_pods[removed.uid]
            self.required_anti_affinity_pods.pop(removed.uid, None)
        for ip, protocol, port in removed.host_ports:
            holders = self.used_ports[protocol, port]
            holders[ip] -= 1
            if not holders[ip]:
                del holders[ip]
                if not holders:
                    del self.used_ports[protocol, port]
        self.volumes -= removed.volumes
        for claim in removed.claims:
            self.claims[claim] -= 1
            if not self.claims[claim]:
                del self.claims[claim]

    def conflicts_with(self, ports: Iterable[HostPort]) -> bool:
        """Whether one of the ports is taken: same protocol and port, and the same IP or one of the two any IP."""
        used = self.used_ports
        if not used:
            return False
        for ip, protocol, port in ports:
            holders = used.get((protocol, port))
            if holders and (ip == ANY_IP or ip in holders or ANY_IP in holders):
                return True
        return False

    def clone(self) -> NodeInfo:
        """A copy whose pods can be added and removed without touching this one. What `set_node` computed is shared."""
        other: NodeInfo = NodeInfo.__new__(NodeInfo)
        other.generation = self.generation
        other.arrival = self.arrival
        other.node = self.node
        other.name = self.name
        other.labels = self.labels
        other.allocatable = self.allocatable
        other.allowed_pods = self.allowed_pods
        other.images = self.images
        other.pods = self.pods.copy()
        other.affinity_pods = self.affinity_pods.copy()
        other.required_anti_affinity_pods = self.required_anti_affinity_pods.copy()
        other.requested = self.requested.copy()
        other.non_zero_cpu = self.non_zero_cpu
        other.non_zero_memory = self.non_zero_memory
        other.volumes = self.volumes
        other.claims = self.claims.copy() if self.claims else {}
        ports = self.used_ports
        other.used_ports = {key: holders.copy() for key, holders in ports.items()} if ports else {}
        return other

    def __repr__(self) -> str:
        return f"NodeInfo({self.name}, {len(self.pods)} pods)"


__all__ = ["ANY_IP", "CPU", "MEMORY", "PODS", "HostPort", "NodeInfo", "PodInfo"]

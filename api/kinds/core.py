"""The kinds of the core group: pods, nodes, namespaces, and two owners of pods."""

from __future__ import annotations

from msgspec.structs import replace

from tidelog.api.cluster import NAMESPACE_LABEL, SYSTEM_NAMESPACES, Admission
from tidelog.api.defaulting import default_node
from tidelog.api.kinds.columns import (
    POD_COLUMNS,
    Column,
    column,
    label_words,
    node_status,
    taint_words,
    used_cpu,
    used_extended,
    used_memory,
    used_pods,
)
from tidelog.api.kinds.kind import Kind, Redaction
from tidelog.api.objects import Namespace, Node, Pod, ReplicationController, Service
from tidelog.api.pod_admission import prepare_pod, terminating_pod
from tidelog.api.quantity import compare
from tidelog.api.validation.cluster import validate_node, validate_owner, validate_owner_update
from tidelog.api.validation.names import dns_label
from tidelog.api.validation.pod import validate_pod, validate_pod_update
from tidelog.api.well_known import REGION, ZONE

POD = Kind(
    name="Pod",
    type=Pod,
    version="v1",
    plural="pods",
    short_names=("po",),
    categories=("all",),
    subresources=("binding", "eviction", "resize", "status"),
    prepare=prepare_pod,
    validate=validate_pod,
    validate_update=validate_pod_update,
    remains=terminating_pod,
    events="upstream",
    columns=POD_COLUMNS,
    redaction=Redaction(
        kept=(
            "allocatedResources", "claims", "effect", "fallbackCriteria", "limits", "nodeAffinityPolicy", "nodeTaintsPolicy",
            "overhead", "phase", "preemptionPolicy", "protocol", "requests", "resource", "restartPolicy", "schedulerName",
            "startTime", "whenUnsatisfiable",
        ),
        dropped=("azureFile", "vsphereVolume"),
        label_keys=("topologyKey", "matchLabelKeys", "mismatchLabelKeys"),
        images=("image",),
    ),
)  # fmt: skip


# --- nodes ----------------------------------------------------------------------------------------------------------


def _prepare_node(node: Node, _old: Node | None, _admission: Admission) -> Node:
    return default_node(node)


def _node_warnings(node: Node) -> tuple[str, ...]:
    return (*_capacity_warnings(node), *_topology_warnings(node))


def _capacity_warnings(node: Node) -> list[str]:
    capacity = node.status.capacity
    return [
        f"status.allocatable[{name}]: {value} is more than the capacity of {capacity[name]}"
        for name, value in node.status.allocatable.items()
        if name in capacity and value != capacity[name] and compare(value, capacity[name]) > 0
    ]


def _topology_warnings(node: Node) -> list[str]:
    return [
        f"metadata.labels[{key}]: the empty value is a topology domain like any other"
        for key, value in node.metadata.labels.items()
        if not value and key.startswith("topology.kubernetes.io/")
    ]


NODE = Kind(
    name="Node",
    type=Node,
    version="v1",
    plural="nodes",
    short_names=("no",),
    namespaced=False,
    subresources=("status",),
    prepare=_prepare_node,
    validate=validate_node,
    warnings=_node_warnings,
    events="upstream",
    columns=(
        column(Node, "STATUS", node_status),
        column(Node, "ZONE", lambda n: n.metadata.labels.get(ZONE)),
        Column("CPU", used_cpu),
        Column("MEMORY", used_memory),
        Column("PODS", used_pods),
        column(Node, "TAINTS", lambda n: ",".join(map(taint_words, n.spec.taints))),
        Column("EXTENDED", used_extended, wide=True, if_any=True),
        column(Node, "REGION", lambda n: n.metadata.labels.get(REGION), wide=True),
    ),
    redaction=Redaction(
        kept=("allocatable", "capacity", "declaredFeatures", "effect", "timeAdded"), images=("names",)
    ),
)


# --- namespaces -----------------------------------------------------------------------------------------------------


def _prepare_namespace(namespace: Namespace, _old: Namespace | None, _admission: Admission) -> Namespace:
    meta = namespace.metadata
    if meta.labels.get(NAMESPACE_LABEL) == meta.name:
        return namespace
    return replace(namespace, metadata=replace(meta, labels={**meta.labels, NAMESPACE_LABEL: meta.name}))


NAMESPACE = Kind(
    name="Namespace",
    type=Namespace,
    version="v1",
    plural="namespaces",
    short_names=("ns",),
    namespaced=False,
    name_rule=dns_label,
    prepare=_prepare_namespace,
    protected_names=SYSTEM_NAMESPACES,
    protected_rule="this namespace may not be deleted",
    events="ours",
)


# --- owners of pods, as far as default spread constraints and budgets read them ---------------------------------------

SERVICE = Kind(
    name="Service",
    type=Service,
    version="v1",
    plural="services",
    short_names=("svc",),
    categories=("all",),
    name_rule=dns_label,
    validate=validate_owner,
    validate_update=validate_owner_update,
    columns=(column(Service, "SELECTOR", lambda s: label_words(s.spec.selector)),),
)
REPLICATION_CONTROLLER = Kind(
    name="ReplicationController",
    type=ReplicationController,
    version="v1",
    plural="replicationcontrollers",
    short_names=("rc",),
    categories=("all",),
    validate=validate_owner,
    validate_update=validate_owner_update,
    columns=(column(ReplicationController, "SELECTOR", lambda s: label_words(s.spec.selector)),),
)

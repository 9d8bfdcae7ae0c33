"""Short ways to write objects: for tests, examples and the sandbox.

    pod("web-1").label(app="web").request(cpu="500m", memory="1Gi").spread("zone").build()
    node("n1").capacity(cpu=8, memory="32Gi").label(zone="a").taint("dedicated", "gpu").build()
    priority_class("high", 1000); pdb("web", "app=web", min_available=2); pod_group("train", min_count=4, level="rack")

`pod` and `node` give builders whose every method returns a new builder, so a half-built one can be kept and varied
(`base.named("web-2")`). The other functions give the object itself. Selectors are written as `kubectl -l` takes them
(`app=web,tier in (a,b),!old`). Topology keys and labels are literal: nothing is abbreviated.

Objects come out as a user would write them: no defaulting, no admission (`tidelog.api.admission.admit` does that).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from tidelog.api import well_known
from tidelog.api.objects import (
    Affinity,
    BasicPolicy,
    ClaimVolume,
    Condition,
    Container,
    ContainerImage,
    ContainerPort,
    GangPolicy,
    GroupPolicy,
    GroupSchedulingConstraints,
    IntOrString,
    LabelSelector,
    LabelSelectorRequirement,
    MapSelectorSpec,
    Namespace,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodGroup,
    PodGroupSpec,
    PodResourceClaim,
    PodSchedulingGate,
    PodSchedulingGroup,
    PodSpec,
    PreferredSchedulingTerm,
    PriorityClass,
    Quantity,
    ReplicaSet,
    ReplicationController,
    ResourceRequirements,
    SelectorSpec,
    Service,
    StatefulSet,
    Taint,
    Toleration,
    TopologyConstraint,
    TopologySpreadConstraint,
    Volume,
    WeightedPodAffinityTerm,
    Workload,
    WorkloadPodGroup,
    WorkloadReference,
    WorkloadSpec,
)
from tidelog.api.selector_text import parse_label_selector, parse_requirements
from tidelog.api.times import format_time

ZONE, REGION, RACK, HOSTNAME = well_known.ZONE, well_known.REGION, well_known.RACK, well_known.HOSTNAME
"""Labels of nodes that tests name again and again."""

Selector = str | Mapping[str, str] | LabelSelector | None
"""`app=web,!old`, a map of labels, a ready selector, or None, which is the absent one that selects nothing."""
Moment = int | str
"""Nanoseconds since 1970, or RFC 3339 text."""


def _selector(selector: Selector) -> LabelSelector | None:
    if isinstance(selector, str):
        return parse_label_selector(selector)
    if selector is None or isinstance(selector, LabelSelector):
        return selector
    return LabelSelector(match_labels=dict(selector))


def _time(at: Moment) -> str:
    return at if isinstance(at, str) else format_time(at)


def _named(named: Mapping[str, Quantity] | None, spelled: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """Resources by exact name, and those whose name is a Python word (`ephemeral_storage`)."""
    return {**(named or {}), **{name.replace("_", "-"): value for name, value in spelled.items()}}


def _set_condition(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    return (*(c for c in conditions if c.type != new.type), new)


class _Builder(msgspec.Struct, frozen=True):
    """The part that pods and nodes share."""

    meta: ObjectMeta

    def _meta(self, **changes: Any) -> Self:
        return replace(self, meta=replace(self.meta, **changes))

    def named(self, name: str) -> Self:
        """The same object under another name."""
        return self._meta(name=name)

    def uid(self, uid: str) -> Self:
        return self._meta(uid=uid)

    def label(self, labels: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Add labels, by a map where the key is no Python word."""
        return self._meta(labels={**self.meta.labels, **(labels or {}), **more})

    def annotate(self, annotations: Mapping[str, str]) -> Self:
        return self._meta(annotations={**self.meta.annotations, **annotations})

    def created(self, at: Moment) -> Self:
        return self._meta(creation_timestamp=_time(at))

    def terminating(self, at: Moment = "2030-01-01T00:00:00Z", grace: int = 30) -> Self:
        """Deletion has begun, and ends when the node says so."""
        return self._meta(deletion_timestamp=_time(at), deletion_grace_period_seconds=grace)


class PodBuilder(_Builder, frozen=True):
    """A pod with one container `main`, to which `request`, `limit`, `image` and `port` apply."""

    spec: PodSpec = PodSpec(containers=(Container(name="main"),))
    phase_name: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node: str = ""
    start_time: str = ""

    def build(self) -> Pod:
        pod = Pod(metadata=self.meta, spec=self.spec)
        return replace(
            pod,
            status=replace(
                pod.status,
                phase=self.phase_name,
                conditions=self.conditions,
                nominated_node_name=self.nominated_node,
                start_time=self.start_time,
            ),
        )

    def _spec(self, **changes: Any) -> PodBuilder:
        return replace(self, spec=replace(self.spec, **changes))

    def _main(self, **changes: Any) -> PodBuilder:
        main, *others = self.spec.containers
        return self._spec(containers=(replace(main, **changes), *others))

    def namespace(self, namespace: str) -> PodBuilder:
        return self._meta(namespace=namespace)

    def owner(self, kind: str, name: str, uid: str = "", api_version: str = "apps/v1") -> PodBuilder:
        """The controller that made the pod."""
        reference = OwnerReference(
            api_version=api_version, kind=kind, name=name, uid=uid or f"{kind}/{name}", controller=True
        )
        return self._meta(owner_references=(*self.meta.owner_references, reference))

    # --- containers and resources

    def request(self, named: Mapping[str, Quantity] | None = None, /, **more: Quantity) -> PodBuilder:
        """Requests of the main container: `request(cpu="500m")`, `request({"nvidia.com/gpu": 1})`."""
        resources = self.spec.containers[0].resources
        return self._main(
            resources=replace(resources, requests={**resources.requests, **_named(named, more)})
        )

    def limit(self, named: Mapping[str, Quantity] | None = None, /, **more: Quantity) -> PodBuilder:
        resources = self.spec.containers[0].resources
        return self._main(resources=replace(resources, limits={**resources.limits, **_named(named, more)}))

    def image(self, image: str) -> PodBuilder:
        return self._main(image=image)

    def port(self, host_port: int, protocol: str = "", host_ip: str = "", container: int = 0) -> PodBuilder:
        """A host port of the main container."""
        port = ContainerPort(
            container_port=container or host_port, host_port=host_port, protocol=protocol, host_ip=host_ip
        )
        return self._main(ports=(*self.spec.containers[0].ports, port))

    def container(
        self,
        name: str = "",
        requests: Mapping[str, Quantity] | None = None,
        limits: Mapping[str, Quantity] | None = None,
        image: str = "",
        ports: tuple[ContainerPort, ...] = (),
    ) -> PodBuilder:
        """One more container."""
        number = len(self.spec.containers)
        more = _container(name or f"c{number}", requests, limits, image, ports)
        return self._spec(containers=(*self.spec.containers, more))

    def init_container(
        self,
        name: str = "",
        requests: Mapping[str, Quantity] | None = None,
        limits: Mapping[str, Quantity] | None = None,
        image: str = "",
        ports: tuple[ContainerPort, ...] = (),
        sidecar: bool = False,
    ) -> PodBuilder:
        """One more init container; a sidecar goes on running."""
        number = len(self.spec.init_containers)
        more = _container(name or f"init{number}", requests, limits, image, ports)
        if sidecar:
            more = replace(more, restart_policy="Always")
        return self._spec(init_containers=(*self.spec.init_containers, more))

    def pod_level(
        self, requests: Mapping[str, Quantity] | None = None, limits: Mapping[str, Quantity] | None = None
    ) -> PodBuilder:
        """Pod-level resources."""
        return self._spec(
            resources=ResourceRequirements(requests=dict(requests or {}), limits=dict(limits or {}))
        )

    def overhead(self, named: Mapping[str, Quantity] | None = None, /, **more: Quantity) -> PodBuilder:
        return self._spec(overhead=_named(named, more))

    def host_network(self) -> PodBuilder:
        return self._spec(host_network=True)

    # --- where it may go

    def node_selector(self, labels: Mapping[str, str] | None = None, /, **more: str) -> PodBuilder:
        return self._spec(node_selector={**self.spec.node_selector, **(labels or {}), **more})

    def node_affinity(self, *terms: str) -> PodBuilder:
        """Required node affinity: each argument is a term, one of which must match (`zone in (a,b),cores>4`)."""
        required = NodeSelector(node_selector_terms=tuple(node_term(term) for term in terms))
        return self._node_affinity(required=required)

    def prefer_node(self, weight: int, term: str) -> PodBuilder:
        """One more preferred node affinity term."""
        old = self._affinity.node_affinity or NodeAffinity()
        more = PreferredSchedulingTerm(weight=weight, preference=node_term(term))
        return self._node_affinity(preferred=(*old.preferred, more))

    def _node_affinity(self, **changes: Any) -> PodBuilder:
        old = self._affinity.node_affinity or NodeAffinity()
        return self._spec(affinity=replace(self._affinity, node_affinity=replace(old, **changes)))

    @property
    def _affinity(self) -> Affinity:
        return self.spec.affinity or Affinity()

    def pod_affinity(self, topology_key: str, selector: Selector, **term: Any) -> PodBuilder:
        """One more required affinity term; `term` takes further fields of PodAffinityTerm."""
        return self._pod_term("pod_affinity", "required", _affinity_term(topology_key, selector, term))

    def pod_anti_affinity(self, topology_key: str, selector: Selector, **term: Any) -> PodBuilder:
        """One more required anti-affinity term."""
        return self._pod_term("pod_anti_affinity", "required", _affinity_term(topology_key, selector, term))

    def prefer_pod_affinity(
        self, weight: int, topology_key: str, selector: Selector, **term: Any
    ) -> PodBuilder:
        """One more preferred affinity term."""
        more = _weighted_term(weight, topology_key, selector, term)
        return self._pod_term("pod_affinity", "preferred", more)

    def prefer_pod_anti_affinity(
        self, weight: int, topology_key: str, selector: Selector, **term: Any
    ) -> PodBuilder:
        """One more preferred anti-affinity term."""
        more = _weighted_term(weight, topology_key, selector, term)
        return self._pod_term("pod_anti_affinity", "preferred", more)

    def _pod_term(self, kind: str, which: str, more: object) -> PodBuilder:
        old = getattr(self._affinity, kind) or PodAffinity()
        changed = replace(old, **{which: (*getattr(old, which), more)})
        return self._spec(affinity=replace(self._affinity, **{kind: changed}))

    def spread(
        self,
        topology_key: str,
        selector: Selector | EllipsisType = ...,
        *,
        max_skew: int = 1,
        soft: bool = False,
        fallback: tuple[str, ...] = (),
        **constraint: Any,
    ) -> PodBuilder:
        """One more spread constraint, over the pods that have the labels which this pod has by now unless a selector is given.

        Hard (`DoNotSchedule`) unless `soft`; `fallback` holds KEP-3990's criteria; `constraint` takes further fields
        of TopologySpreadConstraint (`min_domains=3`).
        """
        more = TopologySpreadConstraint(
            topology_key=topology_key,
            max_skew=max_skew,
            when_unsatisfiable="ScheduleAnyway" if soft else "DoNotSchedule",
            label_selector=_selector(self.meta.labels if selector is ... else selector),
            fallback_criteria=fallback,
            **constraint,
        )
        return self._spec(topology_spread_constraints=(*self.spec.topology_spread_constraints, more))

    def tolerate(
        self, key: str = "", value: str | None = None, effect: str = "", seconds: int | None = None
    ) -> PodBuilder:
        """One more toleration: of any value unless one is given, of everything without a key."""
        more = Toleration(
            key=key,
            operator="Exists" if value is None else "Equal",
            value=value or "",
            effect=effect,
            toleration_seconds=seconds,
        )
        return self._spec(tolerations=(*self.spec.tolerations, more))

    # --- how it is scheduled

    def priority(self, priority: int) -> PodBuilder:
        return self._spec(priority=priority)

    def priority_class(self, name: str) -> PodBuilder:
        return self._spec(priority_class_name=name)

    def never_preempts(self) -> PodBuilder:
        return self._spec(preemption_policy="Never")

    def guarded_below(self, priority: int) -> PodBuilder:
        """KEP-4664: preemptors below this priority must keep to this pod's disruption budgets."""
        return self._spec(allow_disruption_by_priority_greater_than_or_equal=priority)

    def gate(self, *names: str) -> PodBuilder:
        gates = tuple(PodSchedulingGate(name=name) for name in names)
        return self._spec(scheduling_gates=(*self.spec.scheduling_gates, *gates))

    def scheduler(self, name: str) -> PodBuilder:
        return self._spec(scheduler_name=name)

    def group(self, pod_group: str) -> PodBuilder:
        """Member of a PodGroup."""
        return self._spec(scheduling_group=PodSchedulingGroup(pod_group_name=pod_group))

    def workload(self, name: str, pod_group: str, replica: str = "") -> PodBuilder:
        """Member of a group of a Workload."""
        reference = WorkloadReference(name=name, pod_group=pod_group, pod_group_replica_key=replica)
        return self._spec(workload_ref=reference)

    def claim(self, name: str, claim: str | None = None, template: str | None = None) -> PodBuilder:
        more = PodResourceClaim(name=name, resource_claim_name=claim, resource_claim_template_name=template)
        return self._spec(resource_claims=(*self.spec.resource_claims, more))

    def pvc(self, claim: str) -> PodBuilder:
        """A volume of a persistent volume claim."""
        volume = Volume(name=claim, persistent_volume_claim=ClaimVolume(claim_name=claim))
        return self._spec(volumes=(*self.spec.volumes, volume))

    def grace(self, seconds: int) -> PodBuilder:
        return self._spec(termination_grace_period_seconds=seconds)

    # --- what has become of it

    def on(self, node_name: str) -> PodBuilder:
        """Bound to the node."""
        return self._spec(node_name=node_name)

    def phase(self, phase: str) -> PodBuilder:
        return replace(self, phase_name=phase)

    def nominated(self, node_name: str) -> PodBuilder:
        return replace(self, nominated_node=node_name)

    def started(self, at: Moment) -> PodBuilder:
        return replace(self, start_time=_time(at))

    def condition(
        self, type: str, status: str = "True", reason: str = "", message: str = "", at: Moment = ""
    ) -> PodBuilder:
        """Set the condition of this type."""
        new = Condition(
            type=type, status=status, reason=reason, message=message, last_transition_time=_time(at)
        )
        return replace(self, conditions=_set_condition(self.conditions, new))


class NodeBuilder(_Builder, frozen=True):
    """A node with 8 cores, 32 GiB and 110 pod slots, labelled with its own host name."""

    status: NodeStatus
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False

    def build(self) -> Node:
        node = Node(metadata=self.meta, status=self.status)
        return replace(node, spec=replace(node.spec, taints=self.taints, unschedulable=self.unschedulable))

    def named(self, name: str) -> NodeBuilder:
        """The same node under another name, with that host name."""
        return self._meta(name=name, labels={**self.meta.labels, HOSTNAME: name})

    def capacity(self, named: Mapping[str, Quantity] | None = None, /, **more: Quantity) -> NodeBuilder:
        """Set these resources, all of them allocatable."""
        given = _named(named, more)
        return replace(
            self,
            status=replace(
                self.status,
                capacity={**self.status.capacity, **given},
                allocatable={**self.status.allocatable, **given},
            ),
        )

    def allocatable(self, named: Mapping[str, Quantity] | None = None, /, **more: Quantity) -> NodeBuilder:
        """Set what of the capacity pods can use."""
        given = _named(named, more)
        return replace(self, status=replace(self.status, allocatable={**self.status.allocatable, **given}))

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> NodeBuilder:
        return replace(self, taints=(*self.taints, Taint(key=key, value=value, effect=effect)))

    def cordon(self) -> NodeBuilder:
        """Closed to new pods, by the field and by the taint that the node controller adds."""
        taint = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
        return replace(self, unschedulable=True, taints=(*self.taints, taint))

    def image(self, name: str, size_bytes: int) -> NodeBuilder:
        image = ContainerImage(names=(name,), size_bytes=size_bytes)
        return replace(self, status=replace(self.status, images=(*self.status.images, image)))

    def condition(self, type: str, status: str = "True", reason: str = "") -> NodeBuilder:
        new = Condition(type=type, status=status, reason=reason)
        conditions = _set_condition(self.status.conditions, new)
        return replace(self, status=replace(self.status, conditions=conditions))


def pod(name: str, namespace: str = "default") -> PodBuilder:
    """Begin a pod."""
    return PodBuilder(ObjectMeta(name=name, namespace=namespace))


def node(name: str) -> NodeBuilder:
    """Begin a node."""
    meta = ObjectMeta(name=name, labels={HOSTNAME: name})
    resources: dict[str, Quantity] = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return NodeBuilder(meta, NodeStatus(capacity=resources, allocatable=resources))


def node_term(text: str) -> NodeSelectorTerm:
    """A node selector term from `zone in (a,b),cores>4`; `metadata.name` is the field, all else labels."""
    requirements = [
        NodeSelectorRequirement(key=r.key, operator=r.operator, values=r.values)
        for r in parse_requirements(text)
    ]
    return NodeSelectorTerm(
        match_expressions=tuple(r for r in requirements if r.key != "metadata.name"),
        match_fields=tuple(r for r in requirements if r.key == "metadata.name"),
    )


def namespace(name: str, labels: Mapping[str, str] | None = None) -> Namespace:
    """A namespace, labelled with its name as Kubernetes does."""
    return Namespace(
        metadata=ObjectMeta(name=name, labels={"kubernetes.io/metadata.name": name, **(labels or {})})
    )


def priority_class(
    name: str,
    value: int,
    *,
    never_preempts: bool = False,
    default: bool = False,
    guarded_below: int | None = None,
) -> PriorityClass:
    """A priority class; `guarded_below` is KEP-4664's threshold."""
    return PriorityClass(
        metadata=ObjectMeta(name=name),
        value=value,
        global_default=default,
        preemption_policy="Never" if never_preempts else None,
        allow_disruption_by_priority_greater_than_or_equal=guarded_below,
    )


def pdb(
    name: str,
    selector: Selector,
    *,
    namespace: str = "default",
    min_available: IntOrString | None = None,
    max_unavailable: IntOrString | None = None,
    allowed: int = 0,
    **status: Any,
) -> PodDisruptionBudget:
    """A disruption budget; `allowed` and further status fields stand for what its controller computed."""
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=PodDisruptionBudgetSpec(
            selector=_selector(selector), min_available=min_available, max_unavailable=max_unavailable
        ),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed, **status),
    )


def _policy(min_count: int | None, desired_count: int | None) -> GroupPolicy:
    if min_count is not None:
        return GroupPolicy(gang=GangPolicy(min_count=min_count))
    return GroupPolicy(basic=BasicPolicy(desired_count=desired_count))


def pod_group(
    name: str,
    *,
    namespace: str = "default",
    min_count: int | None = None,
    level: str | None = None,
    **spec: Any,
) -> PodGroup:
    """Upstream's pod group: a gang if it has a `min_count`, else basic; `level` is its topology key."""
    constraints = level and GroupSchedulingConstraints(topology=(TopologyConstraint(key=level),))
    return PodGroup(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=PodGroupSpec(
            scheduling_policy=_policy(min_count, None), scheduling_constraints=constraints or None, **spec
        ),
    )


def workload_group(
    name: str, *, min_count: int | None = None, desired_count: int | None = None, level: str | None = None
) -> WorkloadPodGroup:
    """One group of a workload, as KEP-5732 spells it."""
    constraints = level and GroupSchedulingConstraints(
        topology_constraints=(TopologyConstraint(level=level),)
    )
    return WorkloadPodGroup(
        name=name, policy=_policy(min_count, desired_count), scheduling_constraints=constraints or None
    )


def workload(name: str, *groups: WorkloadPodGroup, namespace: str = "default") -> Workload:
    """A workload of these groups (see `workload_group`)."""
    return Workload(metadata=ObjectMeta(name=name, namespace=namespace), spec=WorkloadSpec(pod_groups=groups))


def service(name: str, selector: Mapping[str, str], namespace: str = "default") -> Service:
    """A service that selects pods by labels."""
    return Service(
        metadata=ObjectMeta(name=name, namespace=namespace), spec=MapSelectorSpec(selector=dict(selector))
    )


def replication_controller(
    name: str, selector: Mapping[str, str], namespace: str = "default"
) -> ReplicationController:
    """A replication controller, as far as default spread constraints read it."""
    return ReplicationController(
        metadata=ObjectMeta(name=name, namespace=namespace), spec=MapSelectorSpec(selector=dict(selector))
    )


def replica_set(name: str, selector: Selector, namespace: str = "default") -> ReplicaSet:
    """A replica set, as far as default spread constraints read it."""
    return ReplicaSet(
        metadata=ObjectMeta(name=name, namespace=namespace), spec=SelectorSpec(selector=_selector(selector))
    )


def stateful_set(name: str, selector: Selector, namespace: str = "default") -> StatefulSet:
    """A stateful set, as far as default spread constraints read it."""
    return StatefulSet(
        metadata=ObjectMeta(name=name, namespace=namespace), spec=SelectorSpec(selector=_selector(selector))
    )


def requirement(key: str, operator: str, *values: str) -> LabelSelectorRequirement:
    """One requirement of a label selector."""
    return LabelSelectorRequirement(key=key, operator=operator, values=values)


def _container(
    name: str,
    requests: Mapping[str, Quantity] | None,
    limits: Mapping[str, Quantity] | None,
    image: str,
    ports: tuple[ContainerPort, ...],
) -> Container:
    resources = ResourceRequirements(requests=dict(requests or {}), limits=dict(limits or {}))
    return Container(name=name, image=image, resources=resources, ports=ports)


def _affinity_term(topology_key: str, selector: Selector, term: Mapping[str, Any]) -> PodAffinityTerm:
    more = dict(term)
    if "namespace_selector" in more:
        more["namespace_selector"] = _selector(more["namespace_selector"])
    return PodAffinityTerm(topology_key=topology_key, label_selector=_selector(selector), **more)


def _weighted_term(
    weight: int, topology_key: str, selector: Selector, term: Mapping[str, Any]
) -> WeightedPodAffinityTerm:
    return WeightedPodAffinityTerm(
        weight=weight, pod_affinity_term=_affinity_term(topology_key, selector, term)
    )

"""The objects of a cluster, as far as scheduling reads them.

Each struct carries Kubernetes' own JSON names, ignores fields that it does not know, and is immutable: a change is a
new object (`msgspec.structs.replace`). They are what manifests are decoded into and what the log stores, so a field
added here with a default is compatible with old logs, and a field removed or renamed is not.

Absent and null are the same to Kubernetes and to us; where "absent" and "empty" mean different things (a selector), the
field is `X | None`. Quantities, times and int-or-string values stay as written: `tidelog.api.quantity` and friends read
them once, where they are used.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
IntOrString = int | str
Quantity = str | int | float


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """Base of all API structs: immutable, Kubernetes' camelCase on the wire, defaults left out."""


# --- metadata -------------------------------------------------------------------------------------------------------


class OwnerReference(Model, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Model, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generate_name: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Object(Model, frozen=True, kw_only=True):
    """Base of what has a name of its own: of every kind (`tidelog.api.kinds`)."""

    metadata: ObjectMeta = ObjectMeta()


class LabelSelectorRequirement(Model, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Model, frozen=True, kw_only=True):
    """`None` in its place selects nothing; an empty one selects everything, except where the field says otherwise."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class Condition(Model, frozen=True, kw_only=True):
    """A condition of any object's status. For pods `NodeProvisioningInProgress` (KEP-3990) is one like the others."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: Int64 = 0


# --- pod ------------------------------------------------------------------------------------------------------------


class ResourceRequirements(Model, frozen=True, kw_only=True):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: tuple[ContainerClaim, ...] = ()


class ContainerClaim(Model, frozen=True, kw_only=True):
    name: str = ""
    request: str = ""


class ContainerPort(Model, frozen=True, kw_only=True):
    name: str = ""
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class Container(Model, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    """`Always` on an init container makes it a sidecar: it goes on running beside the containers."""


class NodeSelectorRequirement(Model, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Model, frozen=True, kw_only=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Model, frozen=True, kw_only=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Model, frozen=True, kw_only=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Model, frozen=True, kw_only=True):
    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Model, frozen=True, kw_only=True):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Model, frozen=True, kw_only=True):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Model, frozen=True, kw_only=True):
    """The shape of both podAffinity and podAntiAffinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Model, frozen=True, kw_only=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Model, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class TopologySpreadConstraint(Model, frozen=True, kw_only=True):
    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()
    fallback_criteria: tuple[str, ...] = ()
    """KEP-3990: NodeProvisioningFailed, PreemptionFailed. Empty means: never fall back."""


class PodSchedulingGate(Model, frozen=True, kw_only=True):
    name: str = ""


class PodSchedulingGroup(Model, frozen=True, kw_only=True):
    """Upstream's way to name the group of a pod."""

    pod_group_name: str = ""


class WorkloadReference(Model, frozen=True, kw_only=True):
    """KEP-5732's way to name the group of a pod."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodResourceClaim(Model, frozen=True, kw_only=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


# --- volumes, as pods name them and as they stand behind a PersistentVolume ---------------------------------------------


class GcePersistentDisk(Model, frozen=True, kw_only=True):
    pd_name: str = ""
    read_only: bool = False


class AwsElasticBlockStore(Model, frozen=True, kw_only=True):
    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class RbdVolume(Model, frozen=True, kw_only=True):
    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = ""
    read_only: bool = False


class IscsiVolume(Model, frozen=True, kw_only=True):
    target_portal: str = ""
    iqn: str = ""
    lun: Int32 = 0
    read_only: bool = False


class AzureDisk(Model, frozen=True, kw_only=True):
    disk_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None
    read_only: bool = False


class CinderVolume(Model, frozen=True, kw_only=True):
    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class PortworxVolume(Model, frozen=True, kw_only=True):
    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class ClaimVolume(Model, frozen=True, kw_only=True):
    """A volume of a pod that a PersistentVolumeClaim stands for."""

    claim_name: str = ""
    read_only: bool = False


class StorageRequirements(Model, frozen=True, kw_only=True):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class PersistentVolumeClaimSpec(Model, frozen=True, kw_only=True):
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: StorageRequirements = StorageRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimTemplate(Model, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


class EphemeralVolume(Model, frozen=True, kw_only=True):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class Volume(Model, frozen=True, kw_only=True):
    """Sources that scheduling does not look at (configMap, secret, emptyDir, nfs, …) are not read."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: EphemeralVolume | None = None
    gce_persistent_disk: GcePersistentDisk | None = None
    aws_elastic_block_store: AwsElasticBlockStore | None = None
    rbd: RbdVolume | None = None
    iscsi: IscsiVolume | None = None
    azure_disk: AzureDisk | None = None
    azure_file: dict[str, Any] | None = None
    cinder: CinderVolume | None = None
    vsphere_volume: dict[str, Any] | None = None
    portworx_volume: PortworxVolume | None = None
    csi: dict[str, Any] | None = None
    """Stored as it came; only its `driver` is read."""
    image: dict[str, Any] | None = None


class PodSpec(Model, frozen=True, kw_only=True):
    node_name: str = ""
    scheduler_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, Quantity] = {}
    resources: ResourceRequirements | None = None
    """Pod-level resources."""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    allow_disruption_by_priority_greater_than_or_equal: Int32 | None = None
    """KEP-4664: preemptors below this priority must not break this pod's disruption budgets."""
    host_network: bool = False
    termination_grace_period_seconds: Int64 | None = None
    active_deadline_seconds: Int64 | None = None
    restart_policy: str = ""
    scheduling_group: PodSchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    volumes: tuple[Volume, ...] = ()
    eviction_responders: tuple[dict[str, Any], ...] = ()
    """Read only to refuse it together with a scheduling group."""


class ContainerStatus(Model, frozen=True, kw_only=True):
    name: str = ""
    allocated_resources: dict[str, Quantity] = {}
    resources: ResourceRequirements | None = None


class ExtendedResourceMapping(Model, frozen=True, kw_only=True, gc=False):
    """Which request of the claim serves which container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimStatus(Model, frozen=True, kw_only=True, gc=False):
    """The claim that was made for the pod's extended resources."""

    resource_claim_name: str = ""
    request_mappings: tuple[ExtendedResourceMapping, ...] = ()


class PodResourceClaimStatus(Model, frozen=True, kw_only=True):
    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Model, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    start_time: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None
    """Stored, and noticed when it changes; not read."""


class Pod(Object, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# --- node, namespace ------------------------------------------------------------------------------------------------


class Taint(Model, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""


class NodeSpec(Model, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")
    pod_preemption_policy: Any = None
    """Stored, and noticed when it changes; not read."""


class ContainerImage(Model, frozen=True, kw_only=True):
    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeStatus(Model, frozen=True, kw_only=True):
    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Object, frozen=True, kw_only=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Namespace(Object, frozen=True, kw_only=True):
    pass


# --- policy ---------------------------------------------------------------------------------------------------------


class PriorityClass(Object, frozen=True, kw_only=True):
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str | None = None
    description: str = ""
    allow_disruption_by_priority_greater_than_or_equal: Int32 | None = None


class PodDisruptionBudgetSpec(Model, frozen=True, kw_only=True):
    min_available: IntOrString | None = None
    max_unavailable: IntOrString | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Model, frozen=True, kw_only=True):
    observed_generation: Int64 = 0
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0
    disrupted_pods: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()


class PodDisruptionBudget(Object, frozen=True, kw_only=True):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


# --- owners, only as far as default spread constraints need them ------------------------------------------------------


class MapSelectorSpec(Model, frozen=True, kw_only=True):
    """Services and ReplicationControllers select by a plain map; an empty one selects nothing."""

    selector: dict[str, str] = {}
    replicas: Int32 | None = None
    """How many pods a ReplicationController wants; budgets in percent count on it."""


class Service(Object, frozen=True, kw_only=True):
    spec: MapSelectorSpec = MapSelectorSpec()


class ReplicationController(Object, frozen=True, kw_only=True):
    spec: MapSelectorSpec = MapSelectorSpec()


class SelectorSpec(Model, frozen=True, kw_only=True):
    selector: LabelSelector | None = None
    replicas: Int32 | None = None
    """How many pods are wanted; budgets in percent count on it."""


class ReplicaSet(Object, frozen=True, kw_only=True):
    spec: SelectorSpec = SelectorSpec()


class StatefulSet(Object, frozen=True, kw_only=True):
    spec: SelectorSpec = SelectorSpec()


class Deployment(Object, frozen=True, kw_only=True):
    spec: SelectorSpec = SelectorSpec()


class JobSpec(Model, frozen=True, kw_only=True):
    parallelism: Int32 | None = None
    completions: Int32 | None = None
    completion_mode: str = ""
    backoff_limit: Int32 | None = None
    suspend: bool = False


class Job(Object, frozen=True, kw_only=True):
    spec: JobSpec = JobSpec()


# --- workloads (KEP-5732) and upstream's pod groups --------------------------------------------------------------------


class BasicPolicy(Model, frozen=True, kw_only=True):
    desired_count: Int32 | None = None


class GangPolicy(Model, frozen=True, kw_only=True):
    min_count: Int32 = 0
    desired_count: Int32 | None = None


class GroupPolicy(Model, frozen=True, kw_only=True):
    """Exactly one of the two."""

    basic: BasicPolicy | None = None
    gang: GangPolicy | None = None


class TopologyConstraint(Model, frozen=True, kw_only=True):
    """`level` is KEP-5732's spelling, `key` upstream's."""

    level: str = ""
    key: str = ""
    preferred: bool = False
    """Ours: the domain is only preferred; where none can take the group, the next wider one will do."""


class GroupSchedulingConstraints(Model, frozen=True, kw_only=True):
    """`topologyConstraints` is KEP-5732's spelling, `topology` upstream's."""

    topology_constraints: tuple[TopologyConstraint, ...] = ()
    topology: tuple[TopologyConstraint, ...] = ()


class DisruptionMode(Model, frozen=True, kw_only=True):
    single: dict[str, Any] | None = None
    all: dict[str, Any] | None = None


class GroupWorkloadRef(Model, frozen=True, kw_only=True):
    workload_name: str = ""
    template_name: str = ""


class PodGroupSpec(Model, frozen=True, kw_only=True):
    scheduling_policy: GroupPolicy | None = None
    policy: GroupPolicy | None = None
    scheduling_constraints: GroupSchedulingConstraints | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    workload_ref: GroupWorkloadRef | None = None
    parent_composite_pod_group_name: str = ""


class PodGroupStatus(Model, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] = ()


class PodGroup(Object, frozen=True, kw_only=True):
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class WorkloadPodGroup(Model, frozen=True, kw_only=True):
    name: str = ""
    policy: GroupPolicy | None = None
    scheduling_policy: GroupPolicy | None = None
    scheduling_constraints: GroupSchedulingConstraints | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    priority_class_name: str = ""
    priority: Int32 | None = None


class WorkloadSpec(Model, frozen=True, kw_only=True):
    pod_groups: tuple[WorkloadPodGroup, ...] = ()
    pod_group_templates: tuple[WorkloadPodGroup, ...] = ()
    """Upstream's templates: stored, not read."""


class Workload(Object, frozen=True, kw_only=True):
    spec: WorkloadSpec = WorkloadSpec()


# --- devices (DRA), only as far as shared devices need ------------------------------------------------------------------


class DeviceAttribute(Model, frozen=True, kw_only=True):
    """Exactly one of them."""

    int_value: Int64 | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class CapacityRange(Model, frozen=True, kw_only=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Model, frozen=True, kw_only=True):
    """How a shared device's capacity may be asked for, and what is taken where nobody asks."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Model, frozen=True, kw_only=True):
    value: Quantity = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(Model, frozen=True, kw_only=True):
    value: Quantity = "0"


class CounterSet(Model, frozen=True, kw_only=True):
    """Amounts that the devices of a pool share: a GPU's memory, of which its partitions take parts."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Model, frozen=True, kw_only=True):
    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class Device(Model, frozen=True, kw_only=True):
    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[Taint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None


class ResourcePool(Model, frozen=True, kw_only=True):
    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Model, frozen=True, kw_only=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Object, frozen=True, kw_only=True):
    spec: ResourceSliceSpec = ResourceSliceSpec()


class CelSelector(Model, frozen=True, kw_only=True):
    expression: str = ""


class DeviceSelector(Model, frozen=True, kw_only=True):
    cel: CelSelector | None = None


class OpaqueConfiguration(Model, frozen=True, kw_only=True):
    """Read by the driver alone."""

    driver: str = ""
    parameters: dict[str, Any] | None = None


class DeviceClassConfiguration(Model, frozen=True, kw_only=True):
    opaque: OpaqueConfiguration | None = None


class DeviceClaimConfiguration(Model, frozen=True, kw_only=True):
    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceClassSpec(Model, frozen=True, kw_only=True):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Object, frozen=True, kw_only=True):
    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequirements(Model, frozen=True, kw_only=True):
    requests: dict[str, Quantity] = {}


class ExactDeviceRequest(Model, frozen=True, kw_only=True):
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 | None = None
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Model, frozen=True, kw_only=True):
    """One of several alternatives."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 | None = None
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(Model, frozen=True, kw_only=True):
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Model, frozen=True, kw_only=True):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Model, frozen=True, kw_only=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Model, frozen=True, kw_only=True):
    devices: DeviceClaim = DeviceClaim()


class DeviceResult(Model, frozen=True, kw_only=True):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    """Of a device that several may have at once: tells the shares apart."""
    consumed_capacity: dict[str, Quantity] = {}


class DeviceAllocationConfiguration(Model, frozen=True, kw_only=True):
    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueConfiguration | None = None


class DeviceAllocation(Model, frozen=True, kw_only=True):
    results: tuple[DeviceResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Model, frozen=True, kw_only=True):
    devices: DeviceAllocation = DeviceAllocation()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str = ""


class ClaimConsumer(Model, frozen=True, kw_only=True):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(Model, frozen=True, kw_only=True):
    """Reported by the driver of an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()
    data: dict[str, Any] | None = None
    network_data: dict[str, Any] | None = None


class ResourceClaimStatus(Model, frozen=True, kw_only=True):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Object, frozen=True, kw_only=True):
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class DeviceTaintSelector(Model, frozen=True, kw_only=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Model, frozen=True, kw_only=True):
    device_selector: DeviceTaintSelector | None = None
    taint: Taint = Taint()


class DeviceTaintRule(Object, frozen=True, kw_only=True):
    """Taints devices from outside of their slices."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()


class ResourceClaimTemplateSpec(Model, frozen=True, kw_only=True):
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Object, frozen=True, kw_only=True):
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


# --- looking -----------------------------------------------------------------------------------------------------------


def pod_condition(pod: Pod, type: str) -> Condition | None:
    """The pod's condition of this type, if it has one."""
    for condition in pod.status.conditions:
        if condition.type == type:
            return condition
    return None

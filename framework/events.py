"""Cluster events, and the QueueingHints with which plugins say what may wake a pod they rejected (KEP-4247).

A *cluster event* is a resource and what happened to it. A plugin registers the events that can make a pod it rejected
schedulable, each with an optional hint that looks at the one object that changed. Hints are pure: they see the waiting
pod, the old and the new object, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, IntFlag, StrEnum
from functools import cache
from typing import Any, NamedTuple, Protocol

from tidelog.api.kinds.registry import KINDS
from tidelog.api.objects import Pod


class Resource(StrEnum):
    """The resource that an event is about. The three pod resources differ in which pod changed."""

    POD = "Pod"
    """For registration only: any of the three below."""
    ASSIGNED_POD = "AssignedPod"
    """Another pod, which has a node (or is nominated to one)."""
    UNSCHEDULED_POD = "UnscheduledPod"
    """Another pod, which has none."""
    TARGET_POD = "TargetPod"
    """The waiting pod itself."""
    NODE = "Node"
    NAMESPACE = "Namespace"
    POD_DISRUPTION_BUDGET = "policy/PodDisruptionBudget"
    PRIORITY_CLASS = "scheduling.k8s.io/PriorityClass"
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    WORKLOAD = "scheduling.k8s.io/Workload"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    TIME = "Time"
    """A tick of the log's clock (KEP-3990). Matches a registration for `Time` only, never a wildcard."""
    WILDCARD = "*"

    @classmethod
    def _missing_(cls, value: object) -> Resource | None:
        """Return the resource of a kind that another package registered: `Resource("example.com/Licence")`."""
        kind = next((kind for kind in KINDS if kind.qualified_name == value), None)
        if kind is None:
            return None
        resource = str.__new__(cls, value)
        resource._name_, resource._value_ = kind.name, kind.qualified_name
        cls._value2member_map_[value] = resource
        return resource


class Action(IntFlag):
    """The action that happened. `UPDATE` is every kind of update, `ALL` everything; the names are kube-scheduler's."""

    ADD = 1 << 0
    DELETE = 1 << 1
    UPDATE_NODE_ALLOCATABLE = 1 << 2
    UPDATE_NODE_LABEL = 1 << 3
    UPDATE_NODE_TAINT = 1 << 4
    UPDATE_NODE_CONDITION = 1 << 5
    UPDATE_NODE_ANNOTATION = 1 << 6
    UPDATE_NODE_DECLARED_FEATURE = 1 << 7
    UPDATE_NODE_PREEMPTION_POLICY = 1 << 8
    UPDATE_POD_LABEL = 1 << 9
    UPDATE_POD_SCALE_DOWN = 1 << 10
    UPDATE_POD_SCALE_UP = 1 << 11
    UPDATE_POD_TOLERATION = 1 << 12
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 1 << 13
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 1 << 14
    # Ours, for KEP-3990: raised beside the ones above, so that a condition change is never hidden by a label change.
    UPDATE_POD_CONDITION = 1 << 15
    UPDATE_POD_NOMINATED_NODE = 1 << 16
    # Ours: the pod's deletion begins; who counts only pods that stay cannot wait for its end.
    UPDATE_POD_TERMINATING = 1 << 17
    UPDATE = (1 << 18) - 4
    ALL = (1 << 18) - 1


_ACTION_NAMES: dict[Action, str] = {
    Action.ADD: "Add",
    Action.DELETE: "Delete",
    Action.UPDATE_NODE_ALLOCATABLE: "UpdateNodeAllocatable",
    Action.UPDATE_NODE_LABEL: "UpdateNodeLabel",
    Action.UPDATE_NODE_TAINT: "UpdateNodeTaint",
    Action.UPDATE_NODE_CONDITION: "UpdateNodeCondition",
    Action.UPDATE_NODE_ANNOTATION: "UpdateNodeAnnotation",
    Action.UPDATE_NODE_DECLARED_FEATURE: "UpdateNodeDeclaredFeature",
    Action.UPDATE_NODE_PREEMPTION_POLICY: "UpdateNodePreemptionPolicy",
    Action.UPDATE_POD_LABEL: "UpdatePodLabel",
    Action.UPDATE_POD_SCALE_DOWN: "UpdatePodScaleDown",
    Action.UPDATE_POD_SCALE_UP: "UpdatePodScaleUp",
    Action.UPDATE_POD_TOLERATION: "UpdatePodToleration",
    Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
    Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM: "UpdatePodGeneratedResourceClaim",
    Action.UPDATE_POD_CONDITION: "UpdatePodCondition",
    Action.UPDATE_POD_NOMINATED_NODE: "UpdatePodNominatedNode",
    Action.UPDATE_POD_TERMINATING: "UpdatePodTerminating",
    Action.UPDATE: "Update",
    Action.ALL: "All",
}
ACTION_BY_NAME: dict[str, Action] = {name: action for action, name in _ACTION_NAMES.items()}

_POD_RESOURCES = (Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD, Resource.TARGET_POD)


class ClusterEvent(NamedTuple):
    """A resource and an action; `custom_label` replaces the name in metrics, logs and explanations."""

    resource: Resource
    action: Action
    custom_label: str = ""

    @property
    def label(self) -> str:
        """As kube-scheduler's metrics spell it: `NodeAdd`, `TargetPodUpdatePodLabel`; composites are empty."""
        if self.custom_label:
            return self.custom_label
        name = _ACTION_NAMES.get(self.action)
        return "" if name is None else f"{self.resource}{name}"

    @property
    def is_wildcard(self) -> bool:
        """Any resource *and* any action; such an event concerns every waiting pod."""
        return self.resource is Resource.WILDCARD and self.action == Action.ALL


WILDCARD = ClusterEvent(Resource.WILDCARD, Action.ALL)
UNSCHEDULABLE_TIMEOUT = ClusterEvent(Resource.WILDCARD, Action.ALL, "UnschedulableTimeout")
FORCE_ACTIVATE = ClusterEvent(Resource.WILDCARD, Action.ALL, "ForceActivate")
TIME = ClusterEvent(Resource.TIME, Action.ALL, "Time")


@cache
def matches(registered: ClusterEvent, incoming: ClusterEvent) -> bool:
    """Whether a registration is for this event.

    The incoming actions must be a subset of the registered ones: who registered for label updates is not woken by an
    update of unknown kind. `Time` is met by `Time` only, or every wildcard registrant would be retried at each tick.
    """
    if incoming.resource is Resource.TIME or registered.resource is Resource.TIME:
        return incoming.resource is registered.resource
    if registered.is_wildcard:
        return True
    if not (
        registered.resource is Resource.WILDCARD
        or registered.resource is incoming.resource
        or (registered.resource is Resource.POD and incoming.resource in _POD_RESOURCES)
    ):
        return False
    return incoming.action & registered.action == incoming.action


class Hint(Enum):
    """A hint's answer: may this event make the pod schedulable?"""

    QUEUE = "Queue"
    SKIP = "QueueSkip"


class Tick(NamedTuple):
    """The `new` object of a `Time` event."""

    at: int


class WaitingPod(Protocol):
    """The facts that a hint may know of the pod it judges. The queue's own record of the pod provides it."""

    @property
    def pod(self) -> Pod:
        """The newest version of the waiting pod."""

    @property
    def attempted_at(self) -> int:
        """When its last attempt was popped (nanoseconds of the log's clock); 0 before the first."""

    @property
    def first_rejected_at(self) -> Mapping[str, int]:
        """Plugin name → time of its first rejection since the pod was created or last ungated."""

    @property
    def blocked_by(self) -> tuple[str, ...]:
        """Keys of the disruption budgets that stood in the way of its last preemption (KEP-4664)."""

    @property
    def fallback_node(self) -> str:
        """The node to which it was nominated while spread constraints had fallen back (KEP-3990), as long as it is …"""

    @property
    def fallback_constraints(self) -> tuple[int, ...]:
        """… and the indices of those that had because preemption had failed."""


HintFn = Callable[[WaitingPod, Any, Any], Hint]
"""`hint(waiting, old, new)`: old is None for additions, new is None for deletions. Raising counts as `QUEUE`."""


class EventRegistration(NamedTuple):
    """An event that can make a pod schedulable again. Without a hint function the answer is always `QUEUE`."""

    event: ClusterEvent
    hint: HintFn | None = None

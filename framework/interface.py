"""The plugin interface: a class with a name and the methods of the extension points it takes part in.

The framework looks for the methods of the protocols below; a plugin implements those it needs and no others. All are
synchronous and pure: no clock, no randomness, no I/O. What they may read is the pod, the node they are asked about, the
cycle's state and, through the `Handle`, the cycle's snapshot of the cluster.

    queue        PreEnqueue  QueueSort
    per attempt  PreFilter  Filter  PostFilter  PreScore  Score  Reserve  Permit  PreBind  Bind  PostBind
    per group    PlacementGenerate  PlacementState  PlacementScore          (KEP-5732)

Success is spelled `None`, because it is by far the most frequent answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, Flag
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import msgspec

from tidelog.api.kinds.kind import Kind
from tidelog.api.objects import (
    DeviceClass,
    LabelSelector,
    Namespace,
    Object,
    Pod,
    PodDisruptionBudget,
    ResourceClaim,
    ResourceSlice,
)
from tidelog.api.writes import Write
from tidelog.framework.effort import Effort
from tidelog.framework.events import EventRegistration, WaitingPod

if TYPE_CHECKING:
    from tidelog.api.errors import FieldError
    from tidelog.api.features import FeatureGates
    from tidelog.framework.devices import Devices
    from tidelog.framework.label_keys import LabelKeys
    from tidelog.framework.node_info import NodeInfo, PodInfo
    from tidelog.framework.nominations import NominatedPods
    from tidelog.framework.preemption_plan import (
        PreemptionOutcome,
        PreemptionPlan,
        PreemptionPort,
        RefusedEviction,
    )
    from tidelog.framework.storage import Storage
    from tidelog.framework.told import ToldByPlugin


class Code(Enum):
    """kube-scheduler's status codes; their meaning for preemption and queue is in docs/plugins.md."""

    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNSCHEDULABLE_AND_UNRESOLVABLE = "UnschedulableAndUnresolvable"
    WAIT = "Wait"
    SKIP = "Skip"
    PENDING = "Pending"


_REJECTED = (Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING)


class Status(msgspec.Struct, frozen=True):
    """A plugin's answer other than success. The framework fills in `plugin`."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def is_rejected(self) -> bool:
        """The pod was rejected, as opposed to: something went wrong."""
        return self.code in _REJECTED

    @property
    def message(self) -> str:
        """All reasons in one line."""
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Status:
        """The same status, with the plugin that gave it."""
        return Status(self.code, self.reasons, plugin)


def unschedulable(*reasons: str) -> Status:
    """Rejected; removing pods from the node may help, so preemption will look at it."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Rejected; preemption on this node is pointless."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


SKIP = Status(Code.SKIP)


class Depends(Flag):
    """Parts of the cluster that an answer about (pod, node) depends on besides the pod itself.

    The fast evaluation keeps an answer until something it depends on has changed, so a declaration that is too small
    gives wrong placements; the conformance kit (`tidelog.testing.plugin_kit`) checks it. A plugin that declares nothing is asked
    anew in each attempt, about every node that the others left.
    """

    POD = 0
    TRAITS = 1
    """Of the node's own object: allocatable, taints, unschedulable. Nodes with equal ones are alike in this."""
    LOAD = 2
    """How many pods are on this node, the sums of what they request, and the host ports they hold."""
    LABELS = 64
    """All else of the node's own object: name, labels, annotations, conditions, images."""
    PODS = 128
    """Which pods are on this node."""
    STATE = TRAITS | LOAD
    """With this alone the plugin is asked once for all nodes that are in the same state."""
    NODE = TRAITS | LABELS
    """The node's own object."""
    OCCUPANTS = LOAD | PODS
    """The pods on this node."""
    DOMAINS = 4
    """The pods on, and labels and taints of, the nodes that share a topology domain with this node, and the domains.

    Also the namespaces and owners of pods, by which pods are selected.
    """
    ALL_NODES = 8
    """Every node's own object."""
    CLUSTER = 16
    """Anything: never kept."""
    STORAGE = 32
    """The objects of storage: claims, volumes, classes, CSI nodes (`Listers.storage`, whose generation tells of changes)."""


class CycleState:
    """State that plugins keep from one extension point to the next, for one attempt of one pod.

    Values written by PreFilter and changed by the add/remove-pod hooks must have a `clone()`; others are shared.
    """

    __slots__ = ("_data", "at", "is_shared", "later", "skip_filter", "skip_score", "told", "turn", "waiting")

    def __init__(self, at: int = 0, waiting: WaitingPod | None = None, turn: int = 0) -> None:
        self.at = at
        """The attempt's time, in nanoseconds of the log's clock: the only clock there is."""
        self.waiting = waiting
        """The queue's memory of the pod's earlier attempts, where it came from the queue."""
        self.turn = turn
        """The number of the attempt. Who would draw lots counts on from here instead: the outcome records it."""
        self.is_shared = False
        """It serves all pods of a shape, and outlives the attempt."""
        self._data: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()
        self.later: LaterPlugins | None = None
        """Those that take part after the choice of a node, where it is known that others have nothing to do with the pod."""
        self.told: ToldByPlugin | None = None
        """A plugin's note for the attempt's outcomes; None if there is none, or the attempt ended before that."""

    def write(self, key: str, value: Any) -> None:
        """Keep `value` under `key`; by convention the key begins with the plugin's name."""
        self._data[key] = value

    def read(self, key: str) -> Any:
        """Return the value that was kept, or None."""
        return self._data.get(key)

    def adopt(self, other: CycleState) -> None:
        """Take over what the other one keeps, as far as there is nothing of that name here."""
        data = self._data
        for key, value in other._data.items():
            data.setdefault(key, value)
        self.told = self.told or other.told

    def clone(self) -> CycleState:
        """A state whose changes by add/remove-pod hooks do not touch this one."""
        other = CycleState(self.at, self.waiting, self.turn)
        other._data = {k: v.clone() if hasattr(v, "clone") else v for k, v in self._data.items()}
        other.skip_filter = self.skip_filter
        other.skip_score = self.skip_score
        other.later = self.later
        other.told = self.told
        return other


class Snapshot(Protocol):
    """The cluster as it was when the attempt began, assumed pods included. From Reserve on its nodes show the attempt's own pod, too."""

    @property
    def nodes(self) -> Sequence[NodeInfo]:
        """All nodes, in the order in which they are examined."""

    @property
    def node_count(self) -> int:
        """How many nodes there are."""

    @property
    def object_generation(self) -> int:
        """Another number whenever a node is added, removed or its own object changes: what follows from those alone may be kept."""

    @property
    def label_keys(self) -> LabelKeys:
        """The labels that terms of placed pods ask for."""

    @property
    def effort(self) -> Effort:
        """The work of the attempt: a plugin whose Filter is dear counts it there (`tidelog.framework.effort`)."""

    def get(self, name: str) -> NodeInfo | None:
        """The node of this name."""

    def nodes_with_affinity_pods(self) -> Iterable[NodeInfo]:
        """Nodes with a pod that has any pod (anti-)affinity term."""

    def nodes_with_required_anti_affinity_pods(self) -> Iterable[NodeInfo]:
        """Nodes with a pod that has a required pod anti-affinity term."""

    def nodes_with_claim(self, namespace: str, name: str) -> Collection[str]:
        """Names of the nodes with a pod that mounts this claim, those of ephemeral volumes aside; in no order that means anything."""

    def image_nodes(self, image: str) -> int:
        """How many nodes have the image of this normalised name."""

    def image_size(self, image: str) -> int:
        """The size of the image on the first node that has it; 0 if none has."""


_O = TypeVar("_O", bound=Object)


class Listers(Protocol):
    """The objects other than pods and nodes that plugins may look at."""

    @property
    def storage(self) -> Storage:
        """Claims, volumes, and what says where volumes can be had."""

    @property
    def devices(self) -> Devices:
        """Slices of devices, their classes, and what claims have of them."""

    def namespace(self, name: str) -> Namespace | None:
        """The namespace of this name."""

    def owner_selectors(self, pod: Pod) -> Sequence[LabelSelector]:
        """Selectors of the Services that select the pod and of the controller that owns it (default spreading)."""

    def budgets(self, namespace: str) -> Sequence[PodDisruptionBudget]:
        """The disruption budgets of a namespace, by name."""

    def resource_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim of this name."""

    def resource_claims(self) -> Sequence[ResourceClaim]:
        """All claims, by namespace and name."""

    def resource_slices(self) -> Sequence[ResourceSlice]:
        """All slices of devices, by name."""

    def device_class(self, name: str) -> DeviceClass | None:
        """The device class of this name."""

    def object_of(self, kind: type[_O], namespace: str, name: str) -> _O | None:
        """The object of this kind, also of one that another package registered; the namespace is empty for kinds without."""

    def objects_of(self, kind: type[_O]) -> Sequence[_O]:
        """All objects of this kind, by namespace and name."""

    def gang_of(self, pod: Pod) -> tuple[int, int] | None:
        """How many members the pod's gang needs, and how many are known; None if it is in no known group, or in no gang."""

    def levels_of(self, pod: Pod) -> Sequence[LevelConstraint]:
        """The topology levels that the pod's group asks for, the widest first; none if it is in no known group."""


class Handle(Protocol):
    """The framework's services for a plugin."""

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of the attempt under way. Do not keep it."""

    @property
    def listers(self) -> Listers:
        """The other objects of the cluster."""

    @property
    def features(self) -> FeatureGates:
        """The feature gates in force."""

    @property
    def upstream(self) -> bool:
        """`compat: upstream`: reproduce kube-scheduler, known defects included (docs/differences.md)."""

    @property
    def fallback_only_if_rejected_by_spread(self) -> bool:
        """The configuration's option of that name (KEP-3990)."""

    @property
    def guard_starting_pods(self) -> bool:
        """The configuration's option of that name (KEP-4664)."""

    @property
    def preemption(self) -> PreemptionPort | None:
        """For PostFilter plugins that make room; None where a plugin is made outside a framework."""

    @property
    def nominated(self) -> NominatedPods:
        """Pods for which room was made on nodes: the filters are asked with them there, too."""

    def behaves(self, number: int) -> bool:
        """Whether a numbered change of behaviour is in force (`tidelog.framework.behaviours`)."""


class PluginArgs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of the plugins' arguments. Every field has a default; the configuration decodes them strictly."""


class Plugin:
    """Base of all plugins. `Args` is the struct of its arguments in the configuration, if it has any.

    A plugin that can reject a pod should say what may wake it: see `events_to_register`.
    """

    name: ClassVar[str]
    Args: ClassVar[type[msgspec.Struct] | None] = None
    kinds: ClassVar[tuple[Kind, ...]] = ()
    """Kinds of object that come with the plugin; registering it registers them."""
    filter_depends: ClassVar[Depends] = Depends.CLUSTER
    score_depends: ClassVar[Depends] = Depends.CLUSTER
    ours_at: ClassVar[tuple[str, ...]] = ()
    """Extension points at which kube-scheduler's plugin of this name takes no part: with `compat: upstream` nor does this one, unless it is named there."""
    tries_resolvable_only: ClassVar[bool] = False
    """Of a PostFilter plugin: where no node has a status Unschedulable it looks at no state."""
    reads_first_member: ClassVar[bool] = True
    """Of a plugin for placements: whether it reads what PreFilter prepared for the group's first member. Where none of a profile does, that is spared."""
    scores_by_sums: ClassVar[bool] = False
    """Of a PlacementScore plugin: it looks at how many members a placement takes, and at sums over its nodes, but not at which member goes where."""
    gates_newcomers: ClassVar[bool] = True
    """Of a PreEnqueue plugin: a pod that passes its gate is as good as new, so how long it has waited for anything is counted anew."""

    def __init__(self, args: Any, handle: Handle) -> None:
        self.args = args
        self.handle = handle

    @classmethod
    def validate_args(cls, args: Any, path: str, gates: FeatureGates) -> list[FieldError]:
        """Every rule that well-typed arguments break; `path` leads to them in the configuration file."""
        return []

    def events_to_register(self) -> Sequence[EventRegistration] | None:
        """Return the events that may make a pod schedulable that this plugin rejected.

        None, the default, declares nothing: such a pod is woken by every event on pods, nodes and devices. An empty
        list declares that no event can help: such a pod waits for the five-minute flush.
        """
        return None


# --- extension points --------------------------------------------------------------------------------------------------


class PreFilterResult(NamedTuple):
    """`nodes`: the only nodes that can do, or None for all. `status`: None, a rejection, or SKIP."""

    nodes: frozenset[str] | None = None
    status: Status | None = None


class PostFilterResult(NamedTuple):
    """The result of an attempt to make room: `nominated_node` is None to keep, "" to clear, else the new nomination."""

    status: Status | None = None
    nominated_node: str | None = None
    plan: PreemptionPlan | None = None
    """The evictions for the new nomination."""
    refusals: tuple[RefusedEviction, ...] = ()
    """Evictions that were asked for in vain."""
    blocked_by: tuple[str, ...] = ()
    """Keys of the disruption budgets but for which room could perhaps have been made (KEP-4664)."""
    blocking: tuple[str, ...] = ()
    """The plugins that say so, by name; the framework fills it in."""
    in_the_way: tuple[str, ...] = ()
    """Plugins that rejected nodes even without the pods that could be made to go, by name."""
    writes: tuple[Write, ...] = ()
    """Writes that let a later attempt find a node. The attempt is off if one of these objects changes before it is in the log."""
    outcome: PreemptionOutcome | None = None
    """The result in a word, of a plugin that preempts."""


class PermitResult(NamedTuple):
    """`timeout_seconds` counts only with status WAIT."""

    status: Status | None = None
    timeout_seconds: float = 0.0


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """Before a pod enters the active or backoff queue; any status other than None gates it."""

    name: ClassVar[str]

    def pre_enqueue(self, pod: Pod) -> Status | None: ...


@runtime_checkable
class QueueSortPlugin(Protocol):
    """The order of the active queue: smaller keys first. Ties are broken by the order of arrival."""

    name: ClassVar[str]

    def sort_key(self, pod: Pod, timestamp: int) -> tuple[int, ...]: ...


@runtime_checkable
class PreFilterPlugin(Protocol):
    """Once per attempt, before any node is looked at."""

    name: ClassVar[str]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult: ...


@runtime_checkable
class PodHooks(Protocol):
    """Keeps what PreFilter wrote exact while pods are added to and removed from nodes; exact inverses."""

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None: ...

    def remove_pod(
        self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo
    ) -> Status | None: ...


@runtime_checkable
class FilterPlugin(Protocol):
    """May the pod run on this node?"""

    name: ClassVar[str]

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None: ...


@runtime_checkable
class PostFilterPlugin(Protocol):
    """When no node was left: try to make room. `statuses` holds each examined node's rejection."""

    name: ClassVar[str]

    def post_filter(
        self, state: CycleState, pod: PodInfo, statuses: Mapping[str, Status]
    ) -> PostFilterResult: ...


@runtime_checkable
class PreScorePlugin(Protocol):
    """Once per attempt, with the feasible nodes; SKIP leaves the plugin's scores out."""

    name: ClassVar[str]

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None: ...


@runtime_checkable
class ScorePlugin(Protocol):
    """How good is this node? 0..100 after normalisation. An exception or another value fails the attempt."""

    name: ClassVar[str]

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int: ...


@runtime_checkable
class NormalizeScore(Protocol):
    """Brings raw scores, one per feasible node, into 0..100."""

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]: ...


@runtime_checkable
class ReservePlugin(Protocol):
    """Set resources aside for the pod on the chosen node; `unreserve` must always succeed, also twice."""

    name: ClassVar[str]

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None: ...

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None: ...


@runtime_checkable
class PermitPlugin(Protocol):
    """Allow, reject, or make the pod wait with its resources reserved."""

    name: ClassVar[str]

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> PermitResult: ...


@runtime_checkable
class PreBindPlugin(Protocol):
    """The last word before the pod is bound: when everything that was written for it has been answered."""

    name: ClassVar[str]

    def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None: ...


class Awaited(NamedTuple):
    """Something that has not happened yet."""

    key: str
    """`Kind/namespace/name` of the object whose change would tell; it need not exist."""
    what: str
    """A sentence for people: the controller, and its task."""


class Answer(NamedTuple):
    """Whether what was written for a pod has been answered: it has if nothing is awaited and nothing failed."""

    awaited: tuple[Awaited, ...] = ()
    failure: Status | None = None
    """The attempt fails."""


@runtime_checkable
class WritesBeforeBinding(Protocol):
    """Of a PreBind plugin that has objects changed, and waits for the answers, before its pod is bound.

    The writes are recorded with the pod's place and count from then on. `answer` must follow from its arguments and the listers alone: the
    cycle's state is lost at a restart. It is asked again when an object changes that was written or is awaited, or the pod or the node.
    """

    name: ClassVar[str]
    too_late: ClassVar[str]
    """The message when the answers have not come in time."""

    @property
    def answer_timeout_seconds(self) -> float:
        """How long to wait."""

    def writes(self, state: CycleState, pod: PodInfo, node: str) -> Sequence[Write]:
        """Return the writes, in order, that let the pod run on the node."""

    def reads(self, state: CycleState, pod: PodInfo, node: str) -> Iterable[str]:
        """Keys of the objects by which the node was chosen: the attempt is off if one changes before it is in the log."""

    def answer(self, pod: PodInfo, node: NodeInfo | None, writes: Sequence[Write]) -> Answer:
        """Whether these writes have been answered; those of other plugins are among them. `node` is None when it is gone."""


@runtime_checkable
class BindPlugin(Protocol):
    """SKIP hands the pod to the next bind plugin."""

    name: ClassVar[str]

    def bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None: ...


@runtime_checkable
class PostBindPlugin(Protocol):
    name: ClassVar[str]

    def post_bind(self, state: CycleState, pod: PodInfo, node: str) -> None: ...


class LaterPlugins(NamedTuple):
    """The plugins that take part after the choice of a pod's node, those of each point in the order of the profile."""

    reserve: Sequence[ReservePlugin]
    permit: Sequence[PermitPlugin]
    writers: Sequence[WritesBeforeBinding]
    pre_bind: Sequence[PreBindPlugin]
    is_empty: bool
    """There are none."""


@runtime_checkable
class WaitsForTime(Protocol):
    """Of a plugin with a hint for `Time`: from when on the passing of time alone may make that hint say Queue for this pod; None: never,
    as the pod is now. It must depend on nothing else than `waiting`. For who does not tell, a tick is recorded in every period while a pod
    waits that it rejected."""

    name: ClassVar[str]

    def time_due(self, waiting: WaitingPod) -> int | None: ...


# --- placements (KEP-5732) -----------------------------------------------------------------------------------------------


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the cluster that could take a whole group. Lists of them are sorted by (rank, name)."""

    name: str
    nodes: tuple[str, ...]
    rank: int = 0
    parent: str = ""
    allocations: tuple[tuple[str, Any], ...] = ()
    """Claim key → the devices chosen for it."""


class LevelConstraint(NamedTuple):
    """All pods of a group go to one domain of this node label; only if possible, where it is `preferred`."""

    level: str
    preferred: bool = False


class GroupInfo(Protocol):
    """The group that is to be placed."""

    @property
    def key(self) -> str:
        """`PodGroup/namespace/name`, or `Workload/namespace/name/group`, with the replica's key if there is one."""

    @property
    def members(self) -> Sequence[PodInfo]:
        """The pods that are to be placed, in the order in which they are tried."""

    @property
    def placed(self) -> Sequence[tuple[PodInfo, str]]:
        """The pods that have a node already, with it, by name."""

    @property
    def min_count(self) -> int:
        """How many a gang needs, those that are placed included; 0 for other groups."""

    @property
    def desired_count(self) -> int:
        """How many pods there will be, as far as somebody said so; else 0."""

    @property
    def constraints(self) -> Sequence[LevelConstraint]:
        """The topology that it asks for, the widest domain first."""

    @property
    def claims(self) -> Sequence[str]:
        """Names of the resource claims that all its pods share, in its own namespace."""


@runtime_checkable
class PlacementGeneratePlugin(Protocol):
    """Turns each parent placement into the placements inside it; returns the parents if it has nothing to say."""

    name: ClassVar[str]

    def generate(
        self, state: CycleState, group: GroupInfo, parents: Sequence[Placement]
    ) -> tuple[Sequence[Placement], Status | None]: ...


@runtime_checkable
class PlacementStatePlugin(Protocol):
    """Makes the pod-level plugins see a placement as taken, and undoes it; exact inverses."""

    name: ClassVar[str]

    def assume(self, state: CycleState, group: GroupInfo, placement: Placement) -> Status | None: ...

    def revert(self, state: CycleState, group: GroupInfo, placement: Placement) -> Status | None: ...


@runtime_checkable
class PlacementScorePlugin(Protocol):
    """How good is a placement, given which member would go where (`assignment`: pod key → node)? 0..100 after normalisation."""

    name: ClassVar[str]

    def score_placement(
        self, state: CycleState, group: GroupInfo, placement: Placement, assignment: Mapping[str, str]
    ) -> float: ...


@runtime_checkable
class NormalizePlacementScores(Protocol):
    """Brings raw scores, one per feasible placement, into 0..100."""

    def normalize_placement_scores(self, scores: list[float]) -> list[float]: ...


P = TypeVar("P")

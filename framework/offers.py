"""Offers that a plugin can make beside its answers, to be asked less often: optional methods, open to every plugin.

A plugin that offers none of them is right, and asked as often as its declaration says (`Depends`). Each is a promise. The conformance kit checks
`SignsPods` and `SignsAttempts`; that the others are kept is for a plugin's own tests.

    SignsPods        what it reads of a pod: pods that no plugin tells apart share what is known of the nodes (`PodParts`: of what that is made)
    ConcernsPods     whether it has anything to do with a pod
    SignsAttempts    what else an attempt's answers depend on, where they differ though the pod is the same
    LooksBeyond      what it reads beyond the node that it is asked about
    CountsDomains    its answers as sets of nodes, from counts by topology domain that it keeps
    UseScores,
    UseRooms         its answers as functions of used cpu and memory
    RoomsTogether,
    ScoresTogether   the same about many nodes, or for many pods, at once: for pods of which no two are alike, and many kinds of pods in turn
    SumsUp           what many nodes have together: for groups
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Flag, auto
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, runtime_checkable

from tidelog.api.selectors import Labels
from tidelog.framework.lanes import Lanes
from tidelog.framework.node_sets import Bits, Groups, NodeSets

if TYPE_CHECKING:
    from tidelog.framework.interface import CycleState, Status
    from tidelog.framework.node_info import NodeInfo, PodInfo


class NotCountable(Exception):
    """Raised by what a plugin offers: it does not hold for this pod, or as the cluster is now. The plugin is asked plainly."""


class PodParts(Flag):
    """Of which parts of a pod a plugin's signature is made."""

    SPEC = auto()
    """Its namespace and its spec, without what containers request."""
    REQUESTS = auto()
    """Resources that its containers request, and what follows from them: `requests`, `score_requests`."""
    LABELS = auto()
    """Labels and owners."""
    ANNOTATIONS = auto()


EVERYTHING = PodParts.SPEC | PodParts.REQUESTS | PodParts.LABELS | PodParts.ANNOTATIONS


@runtime_checkable
class SignsPods(Protocol):
    """A plugin that does not offer this may read namespace, labels, annotations, owners and the whole spec, and nothing else of a pod.

    An attribute `signed_parts` may say of what the signature is made (`PodParts`): the plugin is not asked again about pods that differ in other things.
    """

    def sign_pod(self, pod: PodInfo) -> object:
        """All that the plugin reads of the pod: equal for pods that it does not tell apart. msgpack must be able to encode it.

        It may depend on objects that `listers` tells of, and on `snapshot.label_keys`, the labels that terms of pods ask for: it is asked again when
        these change.
        """


@runtime_checkable
class ConcernsPods(Protocol):
    """For a plugin that has nothing to do with most pods: about these it is asked nothing more."""

    def concerns(self, pod: PodInfo) -> bool:
        """False if PreFilter and PreScore skip such a pod, Filter lets it pass, and the plugin does nothing from Reserve to PreBind, whatever the cluster.

        It depends on what `sign_pod` signs.
        """


@runtime_checkable
class SignsAttempts(Protocol):
    """For answers that depend on more than the pod, the nodes and their pods: time, what the queue remembers, or objects that the pod names.

    An attribute `signed_depends` may say which flags of the declaration the signature covers, `STORAGE` for instance: they cost no more then. Such a
    plugin's PreFilter runs once for all attempts that are signed alike, so what it leaves for Filter and Score follows from the signature too.
    """

    def sign_attempt(self, state: CycleState, pod: PodInfo) -> object | None:
        """Return what this attempt's answers depend on beside the pod; may leave something in `state`. None: nothing, for any pod that is signed alike.

        Of a plugin that is also `ConcernsPods` it is asked only for pods that concern it.
        """


@runtime_checkable
class LooksBeyond(Protocol):
    """With this, a declaration of `ALL_NODES` or `DOMAINS` costs no more than the rest of it."""

    def beyond_node(self, pod: PodInfo) -> Hashable:
        """Return what the answers for this pod depend on beyond the node itself. They are kept while it is equal. Asked in each attempt: be quick."""


class Domains(Protocol):
    """A plugin's answers about all nodes, for the pods of one shape, from counts that it keeps up to date."""

    @property
    def skips_filter(self) -> bool:
        """As PreFilter would say for the cluster as it is now."""

    @property
    def has_no_say(self) -> bool:
        """It lets all nodes pass, and scores none, as the cluster is now."""

    @property
    def reads_labels(self) -> Sequence[str]:
        """The labels of nodes by which it counts. When one of them changes on some node, or nodes come or go, everything is counted anew, unless it is `FollowsMoves`."""

    @property
    def reads_nodes(self) -> bool:
        """It reads more of the nodes' own objects than these labels: then any change of a label or taint counts."""

    @property
    def reads_pods(self) -> bool:
        """It looks at the pods on the nodes. Else it is told of a node only where the nodes' own objects have changed."""

    def follow(self, place: int, node: NodeInfo) -> None:
        """The node at this place has changed, or the pods on it."""

    def allowed(self) -> Bits | None:
        """The nodes that its filter lets pass; None for all."""

    def rejections(self, among: Bits) -> Sequence[tuple[Status, Bits]]:
        """Return its filter's rejections of these nodes."""

    def scores(self, feasible: Bits) -> Groups | None:
        """Normalised scores of the feasible nodes, None where it skips or all have 0."""

    def fill(self, state: CycleState) -> None:
        """Leave in the state what PreFilter would leave."""


@runtime_checkable
class FollowsMoves(Protocol):
    """For `Domains` that need not be counted anew when nodes come, go, or get other labels or taints."""

    def follow_moves(self, moves: Mapping[int, Labels | None]) -> bool:
        """Be as the nodes at these places are: place → the labels of the node there until now, None where none was. The topologies are as the nodes are already.
        The pods there are told of afterwards, with `follow`, of nodes that are there. False: everything has to be counted anew.
        """


@runtime_checkable
class CountsDomains(Protocol):
    """The protocol of PodTopologySpread and InterPodAffinity. It stands for PreFilter, Filter, PreScore, Score and NormalizeScore together."""

    def domains(self, state: CycleState, pod: PodInfo, nodes: NodeSets) -> Domains | None:
        """Count now, for all pods that are signed like this one; None if the plugin has nothing to say about such pods, whatever happens.

        Raises NotCountable, or SelectorError.
        """


class NodeUse(NamedTuple):
    """Resources that the pods on a node take, as plugins see it: for nodes that are alike otherwise."""

    cpu: int
    memory: int
    """The resources requested."""
    scored_cpu: int
    scored_memory: int
    """The same, with defaults for containers that request nothing."""


@runtime_checkable
class UseScores(Protocol):
    """For a plugin whose score depends on `STATE`, and of that only on the node's traits and its use of cpu and memory."""

    def use_score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Callable[[NodeUse], int] | None:
        """The score as a function of the use, for all nodes with the traits of this one; None if it depends on more."""


@runtime_checkable
class UseRooms(Protocol):
    """For a filter that depends on `STATE`, and of that only on traits, how many pods there are, and the use of cpu and memory.

    Nodes without a place for another pod are taken for rejected, without a question.
    """

    def use_fits(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Callable[[NodeUse], bool] | None:
        """A function that tells whether nodes with the traits of this one, a place for another pod and such a use pass. No function, if more
        counts for this pod."""


class NodeSize(NamedTuple):
    """Amounts that nodes have to give."""

    cpu: int
    memory: int


class ManyPods(Protocol):
    """A plugin's answers about one use of nodes of one size for many pods, each in a lane of its own (`tidelog.framework.lanes`): numbers below 256."""

    def put(self, lane: int, pod: PodInfo) -> None:
        """The pod is in this lane from now on, in place of any other."""

    def answers(self, use: NodeUse, size: NodeSize) -> tuple[Lanes, Lanes]:
        """Each pod on a node that is used so: the answers, and 1 in the lanes of those about which the plugin must be asked alone.

        What is in these lanes, and in those into which nothing was put, does not matter.
        """


class ManyUses(Protocol):
    """A plugin's answers about one pod for many uses of nodes, each in a lane of its own. An answer is as that of `ManyPods`."""

    def put_use(self, lane: int, use: NodeUse, size: NodeSize) -> None:
        """The use, of a node of this size, is in this lane from now on, in place of any other of the same size."""

    def answers_for(self, pod: PodInfo) -> tuple[Lanes, Lanes]:
        """The pod on nodes that are used as each lane says."""


class Bounds(Protocol):
    """Bounds of a plugin's score for one pod, for many ranges of uses, each in a lane of its own."""

    def put_range(self, lane: int, low: NodeUse, high: NodeUse, size: NodeSize) -> None:
        """Of nodes of this size, uses from one to the other are in this lane from now on, in place of others of the same size."""

    def bounds_for(self, pod: PodInfo) -> Lanes:
        """No use in the range on which the pod fits has a higher score. Numbers below 256."""


class Together(NamedTuple):
    """A plugin's answers about many pods or nodes at once; of each a new one with nothing in its lanes."""

    covers: Callable[[NodeSize], bool]
    """Whether it answers so about nodes of a size."""
    pods: Callable[[], ManyPods]
    uses: Callable[[], ManyUses]
    bounds: Callable[[], Bounds] | None = None
    """Of scores."""


@runtime_checkable
class RoomsTogether(Protocol):
    """For a plugin that is `UseRooms`."""

    def rooms_together(self) -> Together | None:
        """For pods for which `use_fits` has a function: 1 where that says True, else 0. It depends on nothing of the node but use and size. Where there is no function for nodes with some traits, this is not asked."""


@runtime_checkable
class ScoresTogether(Protocol):
    """For a plugin that is `UseScores`."""

    def scores_together(self) -> Together | None:
        """For pods for which `use_score` has a score: that score. It depends on nothing of the node but use and size. Where there is none for nodes with some traits, this is not asked."""


@runtime_checkable
class SumsUp(Protocol):
    """For groups: a filter that lets no pod on a node without so much free of some resources, and a place for a pod."""

    name: ClassVar[str]

    def needs(self, pod: PodInfo) -> Mapping[str, int]:
        """Resource → how much of it the pod takes at least. The plugin rejects nodes where less is free; members of a group are added up."""


__all__: Sequence[str] = (
    "EVERYTHING",
    "Bounds",
    "ConcernsPods",
    "CountsDomains",
    "Domains",
    "FollowsMoves",
    "LooksBeyond",
    "ManyPods",
    "ManyUses",
    "NodeSize",
    "NodeUse",
    "NotCountable",
    "PodParts",
    "RoomsTogether",
    "ScoresTogether",
    "SignsAttempts",
    "SignsPods",
    "SumsUp",
    "Together",
    "UseRooms",
    "UseScores",
)

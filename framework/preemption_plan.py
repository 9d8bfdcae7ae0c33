"""The plan of a preemption, and its ports: the types that the plugin and the scheduler's core share.

`DefaultPreemption` (a PostFilter plugin) makes the plan; the core turns it into outcomes of one transaction and lets it count at once. The
other way round, the core gives the plugin a `PreemptionPort`, through which it tries the profile's filters on clones of nodes, sees which
pods have been asked to go already, and asks for evictions.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tidelog.api.objects import Pod
    from tidelog.framework.disruption_budgets import Allowances
    from tidelog.framework.interface import CycleState, Depends, Status
    from tidelog.framework.node_info import NodeInfo, PodInfo
    from tidelog.framework.snapshot import Snapshot


class PreemptionOutcome(enum.Enum):
    """The result of an attempt to make room; the value is its label in the metrics."""

    NOMINATED = "nominated"
    BLOCKED = "blocked"
    """Protected budgets are in the way."""
    REFUSED = "refused"
    """The evictions were refused on every candidate."""
    NO_CANDIDATE = "no_candidate"
    NOT_ELIGIBLE = "not_eligible"
    """The pod may not preempt, or not yet."""


class Refusal(NamedTuple):
    """An eviction was answered with 429: too many requests."""

    pod: PodInfo
    budget: str
    """Key of the disruption budget that does not allow it; empty if it is none of these."""


class PlannedEviction(NamedTuple):
    """A victim that is to be asked to go."""

    pod: PodInfo
    method: str
    """`evict`, or `delete` where the eviction was refused, or is not tried."""
    protected: bool
    """Its budgets must not be broken for this preemptor (KEP-4664)."""
    budgets: tuple[str, ...]
    """Keys of the budgets that it is charged to."""


class RefusedEviction(NamedTuple):
    """A refusal on the way to the plan, for the log."""

    node: str
    refusal: Refusal
    message: str


class PreemptionPlan(NamedTuple):
    """Room for the preemptor on `node`."""

    node: str
    victims: tuple[PodInfo, ...]
    """The victims, the most important first; those included that are going already."""
    evictions: tuple[PlannedEviction, ...]
    """The evictions to carry out, in order: protected victims first."""
    cleared: tuple[PodInfo, ...] = ()
    """Pods of lower priority that lose their nomination to the node."""
    violations: int = 0
    """How many victims break a disruption budget."""
    spared: tuple[PodInfo, ...] = ()
    """Pods of lower priority on the node that can stay."""
    candidates: int = 1
    """How many nodes would have done."""


class EvictionPort(Protocol):
    """Grants evictions: by the budgets in the log, or by a real API server."""

    def evict(self, pods: Sequence[PodInfo], allowances: Allowances) -> Refusal | None:
        """Ask for all of them at once: None grants all, and charges them to `allowances`; a refusal has done nothing."""


class PreemptionPort(Protocol):
    """The framework's services for the preempting plugin beside the rest of the `Handle`."""

    @property
    def evictions(self) -> EvictionPort:
        """The port that grants evictions."""

    def run_filters(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, *, again: bool = False
    ) -> Status | None:
        """The profile's filters on a node, with and without the pods nominated to it. None: the pod fits.

        `again`: they have all let it pass already, and only the pods on the node are others.
        """

    def looked_at(self, state: CycleState) -> Depends:
        """Return the parts of the cluster that the active filters look at."""

    def tells_equal_nodes_apart(self, state: CycleState) -> bool:
        """Whether the filters that have a say about the pod can look at more of a node than its resources, ports and taints."""

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        """Put a pod on a clone of a node; the state, a clone too, follows. A status is an error."""

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        """Take a pod off a clone of a node; the state, a clone too, follows. A status is an error."""

    @property
    def snapshot(self) -> Snapshot:
        """The nodes, and which of them have changed since when."""

    def nominated(self, node: str) -> Sequence[PodInfo]:
        """The pods that are nominated to the node."""

    def nominations(self) -> Mapping[str, Sequence[PodInfo]]:
        """Node → the pods that are nominated to it, for all nodes with any."""

    def is_evicted(self, uid: str) -> bool:
        """The pod was asked to go by a decision of ours, and has not gone yet."""

    def is_deciding(self, pod: Pod) -> bool:
        """A preemption for this pod was decided, and not all of its victims have been told yet."""

    def charged(self, budget: str, at: int) -> Sequence[str]:
        """Names of the pods whose eviction was charged to this budget and has neither ended nor expired."""

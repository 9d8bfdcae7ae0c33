"""Allowances of disruption budgets, as one attempt of preemption has to see it.

A budget's status is written by somebody else, and late. So what it allows here is what its status says, less the evictions of ours that
its status does not know of yet: those decided and not in the log, and those that a status computed before them has overwritten.

Two questions are asked of it, and they are not the same:

- *violating* (kube-scheduler's best effort): walking over possible victims, whom could no budget pay for any more? Only a preference.
- *costs* (KEP-4664's promise): which budgets would the eviction endpoint charge for this pod? What it would refuse must not be planned.
  For whom the budgets are guarded, the promise is more: a pod that is pending or starting counts as one that is Ready, although the
  endpoint would let it go for nothing.

`compat: upstream` keeps kube-scheduler's way of matching and charging (docs/differences.md). Without budgets in a pod's namespace every
answer costs a dict lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Pod, PodDisruptionBudget, pod_condition
from tidelog.api.selectors import SelectorError, is_empty, label_matcher
from tidelog.api.times import parse_time
from tidelog.framework.interface import Listers
from tidelog.framework.node_info import PodInfo
from tidelog.framework.preemption_plan import PreemptionPort, Refusal

Budgets = tuple[PodDisruptionBudget, ...]

_encode = msgspec.msgpack.Encoder(order="deterministic").encode

NEVER_HEALTHY = ("Pending", "Succeeded", "Failed")
"""Phases of pods that no budget counts as healthy, so that the eviction endpoint charges nothing for their end."""


def selects(budget: PodDisruptionBudget, pod: PodInfo, *, upstream: bool = False) -> bool:
    """Whether the budget is about the pod, which is in its namespace. `{}` selects all pods, an absent selector none.

    kube-scheduler of this version overlooks budgets with an empty selector, and pods without labels.
    """
    selector = budget.spec.selector
    if selector is None or (upstream and (is_empty(selector) or not pod.labels)):
        return False
    try:
        return label_matcher(selector)(pod.labels)
    except SelectorError:
        return False


def has_paid(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """The budget has been charged for this pod: its name is among the disrupted.

    A pod of that name which was made later is another one, and has not paid.
    """
    since = budget.status.disrupted_pods.get(pod.metadata.name)
    if since is None:
        return False
    created = _time(pod.metadata.creation_timestamp)
    charged = _time(since)
    return created is None or charged is None or created <= charged


def is_ready(pod: Pod) -> bool:
    """Its condition Ready is True."""
    condition = pod_condition(pod, "Ready")
    return condition is not None and condition.status == "True"


def is_observed(budget: PodDisruptionBudget) -> bool:
    """Its status was computed for the spec that it has now."""
    return budget.status.observed_generation >= budget.metadata.generation


def is_protected(victim: PodInfo, priority: int) -> bool:
    """Whether the victim's budgets must be kept for a preemptor of this priority. Equal to the threshold is enough not to."""
    threshold = victim.pod.spec.allow_disruption_by_priority_greater_than_or_equal
    return threshold is not None and priority < threshold


def nobody(pod: PodInfo) -> bool:
    """Nobody's start is guarded."""
    return False


class Allowances:
    """The budgets as they stand in one attempt; what the attempt spends is charged here, and nowhere else."""

    def __init__(
        self,
        listers: Listers,
        port: PreemptionPort,
        at: int,
        *,
        upstream: bool = False,
        guards_start: Callable[[PodInfo], bool] = nobody,
    ) -> None:
        """`guards_start`: whose end costs the same before the pod is Ready."""
        self._guards_start = guards_start
        self._listers = listers
        self._port = port
        self.at = at
        self._upstream = upstream
        self._left: dict[str, int] = {}
        """By the budget's key, as far as asked for."""
        self._standings: dict[str, bytes] = {}

    def standing(self, namespace: str) -> bytes:
        """How things stand for the pods of a namespace: while it is the same, what is said here of the same pods is the same.

        Empty if there are no budgets. Asked before anything is charged.
        """
        found = self._standings.get(namespace)
        if found is None:
            budgets = self._listers.budgets(namespace)
            found = _encode([self._as_it_stands(budget) for budget in budgets]) if budgets else b""
            self._standings[namespace] = found
        return found

    def _as_it_stands(self, budget: PodDisruptionBudget) -> tuple[object, ...]:
        disrupted = budget.status.disrupted_pods
        return (
            budget.metadata.name,
            budget.spec,
            self.left(budget),
            is_observed(budget),
            _has_enough(budget),
            disrupted,
        )

    def selecting(self, pod: PodInfo) -> Budgets:
        """The budgets that are about the pod, by name."""
        budgets = self._listers.budgets(pod.namespace)
        if not budgets:
            return ()
        return tuple(budget for budget in budgets if selects(budget, pod, upstream=self._upstream))

    def left(self, budget: PodDisruptionBudget) -> int:
        """How many disruptions the budget still allows; negative if more have been decided than it allows."""
        key = object_key(budget)
        found = self._left.get(key)
        if found is None:
            found = self._left[key] = self._stated(budget, key)
        return found

    def _stated(self, budget: PodDisruptionBudget, key: str) -> int:
        allowed = budget.status.disruptions_allowed
        if self._upstream:
            return allowed
        if not is_observed(budget):
            return 0
        known = budget.status.disrupted_pods
        return allowed - sum(name not in known for name in self._port.charged(key, self.at))

    def is_going(self, pod: PodInfo) -> bool:
        """The pod terminates already, or was asked to."""
        return pod.terminating or self._port.is_evicted(pod.uid)

    # --- the promise ------------------------------------------------------------------------------------------------

    def costs(self, pod: PodInfo) -> Budgets:
        """The budgets that the pod's eviction would be charged to, by the rules of the eviction endpoint.

        Several budgets are all charged; a real API server refuses pods with more than one altogether. A pod whose start is guarded
        costs the same as a Ready one, but of budgets that let such pods go whatever becomes of the others.
        """
        selecting = self.selecting(pod)
        if not selecting or self.is_going(pod):
            return ()
        phase, guarded = pod.pod.status.phase, self._guards_start(pod)
        if phase in NEVER_HEALTHY and not (guarded and phase == "Pending"):
            return ()
        ready = is_ready(pod.pod)
        return tuple(
            budget
            for budget in selecting
            if not has_paid(budget, pod.pod)
            and (ready or not (_always_lets_go(budget) or (not guarded and _has_enough(budget))))
        )

    def forbidding(self, pod: PodInfo) -> PodDisruptionBudget | None:
        """The first budget that by itself forbids the pod's eviction now."""
        return next((budget for budget in self.costs(pod) if self.left(budget) < 1), None)

    def spend(self, pods: Sequence[PodInfo]) -> Refusal | None:
        """Charge the eviction of all these pods, or of none: then the answer names the first that cannot be paid for."""
        left: dict[str, int] = {}
        for pod in pods:
            for budget in self.costs(pod):
                key = object_key(budget)
                left[key] = left.get(key, self.left(budget)) - 1
                if left[key] < 0:
                    return Refusal(pod, key)
        self._left.update(left)
        return None

    def charge(self, pod: PodInfo) -> tuple[str, ...]:
        """Charge a pod that goes whether its budgets allow it or not; the keys of the budgets."""
        keys = []
        for budget in self.costs(pod):
            key = object_key(budget)
            self._left[key] = self.left(budget) - 1
            keys.append(key)
        return tuple(keys)

    # --- the preference -----------------------------------------------------------------------------------------------

    def violating(self, victims: Sequence[PodInfo], protected: Iterable[str] = ()) -> frozenset[str]:
        """Uids of those among possible victims, most important first, whom the budgets cannot pay for.

        The `protected` (uids) are charged before the others: they are evicted first, and never violate anything. For a pod under
        several budgets the walk ends at the first that is exhausted: later ones are not charged for it.
        """
        first = frozenset(protected)
        left: dict[str, int] = {}

        def fails(budget: PodDisruptionBudget) -> bool:
            key = object_key(budget)
            left[key] = left.get(key, self.left(budget)) - 1
            return left[key] < 0

        for pod in victims:
            if pod.uid in first:
                for budget in self.costs(pod):
                    fails(budget)
        return frozenset(
            pod.uid
            for pod in victims
            if pod.uid not in first and any(fails(budget) for budget in self._charging(pod))
        )

    def _charging(self, pod: PodInfo) -> Budgets:
        if not self._upstream and self.is_going(pod):
            return ()
        return tuple(budget for budget in self.selecting(pod) if not self._paid(budget, pod))

    def _paid(self, budget: PodDisruptionBudget, pod: PodInfo) -> bool:
        if self._upstream:
            return pod.name in budget.status.disrupted_pods
        return has_paid(budget, pod.pod)


class EvictionsFromBudgets:
    """The standalone eviction endpoint: grants what the budgets in the log allow. Implements `EvictionPort`."""

    def evict(self, pods: Sequence[PodInfo], allowances: Allowances) -> Refusal | None:
        """All or none of them."""
        return allowances.spend(pods)


def _always_lets_go(budget: PodDisruptionBudget) -> bool:
    """A pod that is not Ready may go without charge."""
    return budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow"


def _has_enough(budget: PodDisruptionBudget) -> bool:
    """A pod that is not Ready may go without charge while this is so, if nobody guards it: the others are enough."""
    return budget.status.current_healthy >= budget.status.desired_healthy > 0


def _time(text: str) -> int | None:
    try:
        return parse_time(text)
    except ValueError:
        return None

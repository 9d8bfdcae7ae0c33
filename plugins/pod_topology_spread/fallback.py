"""Topology spread that falls back (KEP-3990): when a hard constraint counts as a soft one for a pod.

A hard constraint may name criteria. While all of them hold it only scores, as if it said `ScheduleAnyway`:

    NodeProvisioningFailed   the autoscaler has said that it gets no node (condition NodeProvisioningInProgress False), or has
                             said nothing for `nodeProvisioningTimeout` since topology spread first rejected the pod
    PreemptionFailed         the pod was rejected and no room is being made for it; or room is being made for it somewhere where
                             it may go only because this constraint had fallen back, and must not be lost by going back to hard

Every question is answered from a `Standing`: the pod, a moment, and what the queue remembers. All of that is in the log, and
nothing else is looked at, so the attempt, the hints that wake the pod and the explanation cannot disagree.

A constraint without criteria costs one look at an empty tuple; one with criteria a look at two conditions of the pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.api.objects import Condition, Pod, TopologySpreadConstraint, pod_condition
from tidelog.api.pod_status import POD_SCHEDULED, UNSCHEDULABLE
from tidelog.api.times import format_duration, format_time
from tidelog.framework.events import Hint, Tick, WaitingPod
from tidelog.framework.told import NODE_PROVISIONING_IN_PROGRESS, PREEMPTION_FAILED

PLUGIN = "PodTopologySpread"
NODE_PROVISIONING_FAILED = "NodeProvisioningFailed"

Numbered = Sequence[tuple[int, TopologySpreadConstraint]]
"""Constraints with their index in the list that they come from."""


class Standing(NamedTuple):
    """The facts that the criteria are judged by."""

    pod: Pod
    at: int
    """The moment for which they are judged."""
    first_rejected_at: int | None = None
    """When topology spread first rejected the pod; None if it has not."""
    nominated_node: str = ""
    """The node to which the pod was nominated in an attempt with fallback, if the last nomination was such a one …"""
    nominated_for: tuple[int, ...] = ()
    """… and the constraints that had fallen back there because preemption had failed."""

    @property
    def is_rejected(self) -> bool:
        """Topology spread has rejected the pod before then. (At the very moment would not do: that may be the attempt's own end.)"""
        return self.first_rejected_at is not None and self.first_rejected_at < self.at

    @property
    def rejected_by(self) -> int | None:
        """The first moment at which it is so."""
        return None if self.first_rejected_at is None else self.first_rejected_at + 1

    @classmethod
    def of(cls, pod: Pod, at: int, waiting: WaitingPod | None) -> Standing:
        """`waiting` is what the queue remembers of the pod; without it the pod is new."""
        if waiting is None:
            return cls(pod, at)
        rejected_at = waiting.first_rejected_at.get(PLUGIN)
        return cls(pod, at, rejected_at, waiting.fallback_node, waiting.fallback_constraints)


class FallenBack(NamedTuple):
    """A constraint that only scores, and why."""

    constraint: int
    topology_key: str
    criteria: tuple[str, ...]
    reason: str
    rejected_before: bool
    """Topology spread had rejected the pod. Where it had not, the fallback may not be what the pod needed."""


class Verdict(NamedTuple):
    """Whether a criterion holds, and the words for it."""

    holds: bool
    why: str


class FallbackRules:
    """The criteria, as one profile's configuration has them."""

    def __init__(self, *, enabled: bool, timeout: int | None, only_if_rejected: bool) -> None:
        self.enabled = enabled
        """The gate PodTopologySpreadFallbackMode. Off: no constraint ever falls back."""
        self.timeout = timeout
        """nodeProvisioningTimeout in nanoseconds."""
        self._only_if_rejected = only_if_rejected

    # --- the attempt --------------------------------------------------------------------------------------------------

    def has_fallen(self, index: int, constraint: TopologySpreadConstraint, standing: Standing) -> bool:
        """Whether the hard constraint only scores."""
        criteria = constraint.fallback_criteria
        if not criteria or not self.enabled:
            return False
        if self._only_if_rejected and not standing.is_rejected:
            return False
        return all(self._verdict(criterion, index, standing).holds for criterion in criteria)

    def fallen(self, hard: Numbered, standing: Standing) -> tuple[FallenBack, ...]:
        """Those of the hard constraints that only score, with the reason."""
        return tuple(
            FallenBack(
                index,
                constraint.topology_key,
                constraint.fallback_criteria,
                self._reason(index, constraint, standing),
                standing.is_rejected,
            )
            for index, constraint in hard
            if self.has_fallen(index, constraint, standing)
        )

    def lines(self, hard: Numbered, standing: Standing, name: str = "topologySpread") -> tuple[str, ...]:
        """One line for every constraint with criteria: whether it has fallen back, or what it still waits for."""
        if not self.enabled:
            return ()
        return tuple(
            f"{name}[{index}] {constraint.topology_key}: {self._state_of(index, constraint, standing)}"
            for index, constraint in hard
            if constraint.fallback_criteria
        )

    def _state_of(self, index: int, constraint: TopologySpreadConstraint, standing: Standing) -> str:
        if self.has_fallen(index, constraint, standing):
            return f"fell back to ScheduleAnyway ({self._reason(index, constraint, standing)})"
        verdicts = [(c, self._verdict(c, index, standing)) for c in constraint.fallback_criteria]
        missing = [f"{criterion} ({verdict.why})" for criterion, verdict in verdicts if not verdict.holds]
        if not missing:
            missing = [f"a rejection by {PLUGIN}"]
        return f"hard, waiting for {', '.join(missing)}"

    def _reason(self, index: int, constraint: TopologySpreadConstraint, standing: Standing) -> str:
        verdicts = (self._verdict(criterion, index, standing) for criterion in constraint.fallback_criteria)
        return ", ".join(verdict.why for verdict in verdicts)

    # --- the criteria -------------------------------------------------------------------------------------------------

    def _verdict(self, criterion: str, index: int, standing: Standing) -> Verdict:
        if criterion == NODE_PROVISIONING_FAILED:
            return self._provisioning(standing)
        if criterion == PREEMPTION_FAILED:
            return _preemption(index, standing)
        return Verdict(False, "unknown criterion")

    def _provisioning(self, standing: Standing) -> Verdict:
        condition = pod_condition(standing.pod, NODE_PROVISIONING_IN_PROGRESS)
        if condition is not None and condition.status == "False":
            return Verdict(True, _since(NODE_PROVISIONING_FAILED, condition))
        if condition is not None and condition.status == "True":
            # An answer, so the timeout is off: it is for an autoscaler that says nothing.
            return Verdict(False, _since(f"{NODE_PROVISIONING_IN_PROGRESS} is True", condition))
        silence = (
            f"no {NODE_PROVISIONING_IN_PROGRESS} condition"
            if condition is None
            else f"{NODE_PROVISIONING_IN_PROGRESS} is {condition.status}"
        )
        if self.timeout is None:
            return Verdict(False, f"{silence}; there is no timeout")
        due = self._timeout_at(standing)
        if due is None:
            return Verdict(
                False, f"{silence}; times out {format_duration(self.timeout)} after the first rejection"
            )
        if due > standing.at:
            return Verdict(False, f"{silence}; times out at {format_time(due)}")
        waited = format_duration(self.timeout)
        return Verdict(True, f"{NODE_PROVISIONING_FAILED} since {format_time(due)}: {silence} for {waited}")

    def _timeout_at(self, standing: Standing) -> int | None:
        """When the autoscaler's time is over. It begins with the first rejection: later ones do not prolong it."""
        rejected_at = standing.first_rejected_at
        return None if self.timeout is None or rejected_at is None else rejected_at + self.timeout

    # --- waking -------------------------------------------------------------------------------------------------------

    @property
    def needs_time(self) -> bool:
        """Whether a constraint can fall back though nothing about the pod changes.

        Where only pods fall back that topology spread has rejected, its first rejection may be all that was missing, and
        nothing else tells of that.
        """
        return self.enabled and (self.timeout is not None or self._only_if_rejected)

    def time_due(self, hard: Numbered, waiting: WaitingPod) -> int | None:
        """When time alone will let a constraint fall back that had not at the last attempt; None: never, as things are."""
        before = Standing.of(waiting.pod, waiting.attempted_at, waiting)
        for due in (before.rejected_by, self._timeout_at(before)):
            if due is not None and due > before.at:
                if self._falls_between(hard, before, before._replace(at=due)):
                    return due
        return None

    def time_passed(self, hard: Numbered, waiting: WaitingPod, tick: Tick) -> Hint:
        """A hint: has the passing of time since the last attempt let a constraint fall back?"""
        before = Standing.of(waiting.pod, waiting.attempted_at, waiting)
        return _queue_if(self._falls_between(hard, before, before._replace(at=tick.at)))

    def pod_changed(self, hard: Numbered, waiting: WaitingPod, old: Pod, new: Pod) -> Hint:
        """A hint: has the change of the pod's conditions or nomination let a constraint fall back?

        Both versions are judged for the time of the last attempt, the new one with the first rejection if that was it. What only
        time has changed since is told by a tick.
        """
        before = Standing.of(old, waiting.attempted_at, waiting)
        at = max(before.at, before.rejected_by or 0)
        return _queue_if(self._falls_between(hard, before, before._replace(pod=new, at=at)))

    def _falls_between(self, hard: Numbered, before: Standing, after: Standing) -> bool:
        return any(
            self.has_fallen(index, constraint, after) and not self.has_fallen(index, constraint, before)
            for index, constraint in hard
        )


def _preemption(index: int, standing: Standing) -> Verdict:
    status = standing.pod.status
    nominated = status.nominated_node_name
    if nominated:
        if nominated == standing.nominated_node and index in standing.nominated_for:
            # Hard again, it could not go where its victims have just died for it.
            return Verdict(True, f"{PREEMPTION_FAILED}: nominated to {nominated} in fallback")
        return Verdict(False, f"nominated to {nominated}")
    scheduled = pod_condition(standing.pod, POD_SCHEDULED)
    if scheduled is None or scheduled.status != "False":
        return Verdict(False, "not rejected yet")
    if scheduled.reason != UNSCHEDULABLE:
        # A gate or an error ended it before preemption was tried.
        return Verdict(False, f"{POD_SCHEDULED} is False for {scheduled.reason or 'no reason'}")
    return Verdict(True, _since(PREEMPTION_FAILED, scheduled))


def _since(what: str, condition: Condition) -> str:
    at = condition.last_transition_time
    return f"{what} since {at}" if at else what


def _queue_if(condition: bool) -> Hint:
    return Hint.QUEUE if condition else Hint.SKIP

"""One pod's way through the extension points, from PreFilter to Bind, and what becomes of it.

    schedule_pod ─► node ─► Reserve ─► Permit ─┬─► PreBind ─► Bind ─► PostBind ─► Scheduled
         │                     │          │    ├─► (some plugin waits) ──────────► Waiting
         │                     │          │    └─► (objects are to be written) ──► Reserved ─ ─ ► PreBind ─► Bind ─► … when that is answered
         └─► nobody ─► PostFilter         │
                           └──────────────┴──────────────────────────────────────► Unschedulable
                     a plugin failed ────────────────────────────────────────────► AttemptError

Everything here is computed from the snapshot; nothing in the cluster's state is changed. What the core does with the result is in
`tidelog.scheduler.core`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidelog.api.writes import Write
from tidelog.eventlog.records import (
    AttemptError,
    Body,
    Nominated,
    Reserved,
    Scheduled,
    Unschedulable,
    Waiting,
)
from tidelog.framework.diagnosis import NO_NODES, FitError
from tidelog.framework.framework import Framework
from tidelog.framework.interface import Code, CycleState, Depends, Status
from tidelog.framework.node_info import PodInfo
from tidelog.framework.preemption_plan import PreemptionOutcome, PreemptionPlan
from tidelog.framework.results import PromisedWrites, ScheduleResult
from tidelog.scheduler.fallback import explained, rejectors_of_preemption
from tidelog.scheduler.permits import Permit
from tidelog.scheduler.preemption import plan_outcomes, refusal_outcomes


class Stamp(NamedTuple):
    """The numbers that every outcome of an attempt carries."""

    attempt: int
    observed: int
    at: int
    epoch: int


class CycleResult(msgspec.Struct, frozen=True, gc=False):
    """The result of one pod's cycle."""

    outcomes: tuple[tuple[str, Body], ...]
    """(key of the record, body); the pod's own outcome first."""
    node: str = ""
    """Where the pod is to go, if it is."""
    on: Depends = Depends.POD
    """Parts of the cluster that the filters looked at."""
    state: CycleState | None = None
    """Kept while a plugin waits, for the rest of the cycle."""
    plan: PreemptionPlan | None = None
    """How room is made for the pod, if it is."""
    reads: frozenset[str] = frozenset()
    """Keys of the objects beside pods and nodes by which the node was chosen."""
    preemption: PreemptionOutcome | None = None
    """The result of making room for the pod; None if that was not tried."""


class PodCycle:
    """One attempt of one pod: `key` is its record's, `state` what the plugins keep of the attempt."""

    __slots__ = ("_framework", "_key", "_pod", "_stamp", "_state")

    def __init__(self, framework: Framework, pod: PodInfo, key: str, stamp: Stamp, state: CycleState) -> None:
        self._framework = framework
        self._pod = pod
        self._key = key
        self._stamp = stamp
        self._state = state

    def run(self, nominated_node: str = "") -> CycleResult:
        """Try to place the pod."""
        found = self._framework.schedule_pod(
            self._state, self._pod, turn=self._stamp.attempt, nominated_node=nominated_node
        )
        if isinstance(found, ScheduleResult):
            result = self._place(found)
        elif isinstance(found, FitError):
            result = self._make_room(found)
        else:
            result = self._failed(found, clears=bool(nominated_node))
        told = self._state.told
        return (
            result if told is None else replace(result, outcomes=explained(result.outcomes, self._key, told))
        )

    # --- the end of a wait ------------------------------------------------------------------------------------------------

    def reject_waiting(self, node: str, status: Status) -> CycleResult:
        """The wait was too long. Nothing else ends it but the pod's own end."""
        self._framework.run_unreserve(self._state, self._pod, node)
        return self._rejected(FitError.of_node(node, status), clears=True)

    def bind_reserved(self, permit: Permit) -> CycleResult:
        """Everything that was written for the pod has been answered: the rest of its cycle. What its attempt said about the node is told again."""
        return self._bind(ScheduleResult(permit.node, permit.feasible, score=permit.score), permit.group)

    def give_up(self, node: str, status: Status) -> CycleResult:
        """The attempt failed after the choice of its node. What was written stays, and the next attempt goes by it."""
        self._framework.run_unreserve(self._state, self._pod, node)
        return self._failed(status, clears=True)

    # --- a node was chosen ------------------------------------------------------------------------------------------------

    def _place(self, result: ScheduleResult) -> CycleResult:
        framework, state, pod, node = self._framework, self._state, self._pod, result.node
        if framework.binds_at_once(state):
            return self._bind_now(result)
        status = framework.run_reserve(state, pod, node)
        if status is not None:
            return self._refused(node, status)
        permit = framework.run_permit(state, pod, node)
        if permit.status is None:
            return self._write(result)
        if permit.status.code is not Code.WAIT:
            framework.run_unreserve(state, pod, node)
            return self._refused(node, permit.status)
        waiting = Waiting(
            **self._stamp._asdict(),
            node=node,
            plugins=tuple(plugin for plugin, _ in permit.waits),
            deadline=self._stamp.at + min(timeout for _, timeout in permit.waits),
        )
        return CycleResult(((self._key, waiting),), node, framework.looked_at(state), state)

    def _write(self, result: ScheduleResult) -> CycleResult:
        """Bind the pod, or have written what has to be before."""
        framework, state, pod, node = self._framework, self._state, self._pod, result.node
        promised = framework.run_writes(state, pod, node)
        if isinstance(promised, Status):
            return self.give_up(node, promised)
        reads = framework.read_for(state, pod, node)
        if not promised:
            found = self._bind(result)
            return replace(found, reads=reads) if reads else found
        body = reserved(self._stamp, result, promised)
        # The attempt must not miss a change of what it read, nor of what it writes.
        reads |= {write.key for write in body.writes}
        return CycleResult(((self._key, body),), node, framework.looked_at(state), state, reads=reads)

    def _bind(self, result: ScheduleResult, group: str = "") -> CycleResult:
        status = self._framework.run_pre_bind(self._state, self._pod, result.node)
        return self._bind_now(result, group) if status is None else self.give_up(result.node, status)

    def _bind_now(self, result: ScheduleResult, group: str = "") -> CycleResult:
        framework, state, pod, node = self._framework, self._state, self._pod, result.node
        status = framework.run_bind(state, pod, node)
        if status is not None:
            return self.give_up(node, status)
        framework.run_post_bind(state, pod, node)
        body = scheduled(self._stamp, result, group)
        return CycleResult(((self._key, body),), node, framework.looked_at(state))

    # --- no node was found, or it was refused -----------------------------------------------------------------------------

    def _make_room(self, error: FitError) -> CycleResult:
        """No node was found: let the PostFilter plugins try."""
        framework, key, stamp = self._framework, self._key, self._stamp
        if not framework.post_filter:
            return self._rejected(error)
        statuses: Mapping[str, Status] = error.diagnosis.statuses(framework.snapshot.nodes)
        result = framework.run_post_filter(self._state, self._pod, statuses)
        if result.status is not None:
            error.post_filter_message = result.status.message
        # Only so are the hints asked of the plugin that budgets kept from making room, when one of these changes.
        also = (*rejectors_of_preemption(self._state, result.in_the_way), *result.blocking)
        outcome = self._rejected(error, blocked_by=result.blocked_by, also=also, writes=result.writes)
        outcome = replace(outcome, preemption=result.outcome)
        refusals = refusal_outcomes(result.refusals, key, stamp._asdict()) if result.refusals else []
        if result.plan is not None:
            more = plan_outcomes(result.plan, key, framework.name, stamp._asdict())
            on, reads = framework.looked_at(self._state), framework.read_for_room(self._state)
            outcomes = (*outcome.outcomes, *refusals, *more)
            return replace(outcome, outcomes=outcomes, on=on, plan=result.plan, reads=reads)
        if result.nominated_node is not None:
            refusals.append((key, Nominated(**stamp._asdict(), node=result.nominated_node)))
        return replace(outcome, outcomes=(*outcome.outcomes, *refusals)) if refusals else outcome

    def _refused(self, node: str, status: Status) -> CycleResult:
        """The chosen node was refused by Reserve or Permit."""
        if not status.is_rejected:
            return self._failed(status, clears=True)
        return self._rejected(FitError.of_node(node, status), clears=True)

    def _rejected(
        self,
        error: FitError,
        *,
        clears: bool = False,
        blocked_by: tuple[str, ...] = (),
        also: tuple[str, ...] = (),
        writes: tuple[Write, ...] = (),
    ) -> CycleResult:
        """`also`: who else counts as having rejected the pod."""
        body = rejection(self._stamp, error)
        if also:
            body = replace(body, plugins=tuple(sorted({*body.plugins, *also})))
        if blocked_by or writes:
            body = replace(body, blocked_by=blocked_by, writes=writes)
        read = frozenset(write.key for write in writes)
        return CycleResult(self._with_nomination_cleared(body, clears), reads=read)

    def _failed(self, status: Status, *, clears: bool = False) -> CycleResult:
        """An error; no nodes at all is told as a rejection, but has nobody to blame and so is retried like an error."""
        body: Body
        if status is NO_NODES:
            body = Unschedulable(**self._stamp._asdict(), message=status.message)
        else:
            body = AttemptError(**self._stamp._asdict(), message=status.message, plugin=status.plugin)
        return CycleResult(self._with_nomination_cleared(body, clears))

    def _with_nomination_cleared(self, body: Body, clears: bool) -> tuple[tuple[str, Body], ...]:
        own = (self._key, body)
        return (own, (self._key, Nominated(**self._stamp._asdict()))) if clears else (own,)


# --- outcomes, of pods and of members of groups ---------------------------------------------------------------------------


def scheduled(stamp: Stamp, result: ScheduleResult, group: str = "") -> Scheduled:
    """The pod is bound."""
    attempt, observed, at, epoch = stamp
    return Scheduled(
        attempt=attempt,
        observed=observed,
        at=at,
        epoch=epoch,
        node=result.node,
        score=result.score,
        feasible=result.feasible,
        group=group,
    )


def reserved(
    stamp: Stamp, result: ScheduleResult, promised: Sequence[PromisedWrites], group: str = ""
) -> Reserved:
    """The pod has its place, and is bound when the writes have been answered."""
    return Reserved(
        **stamp._asdict(),
        node=result.node,
        writes=tuple(write for each in promised for write in each.writes),
        plugins=tuple(each.plugin for each in promised),
        deadline=stamp.at + min(each.timeout for each in promised),
        score=result.score,
        feasible=result.feasible,
        group=group,
    )


def rejection(stamp: Stamp, error: FitError, group: str = "") -> Unschedulable:
    """No node is feasible for the pod."""
    attempt, observed, at, epoch = stamp
    return Unschedulable(
        attempt=attempt,
        observed=observed,
        at=at,
        epoch=epoch,
        message=error.message,
        plugins=error.unschedulable_plugins,
        pending=error.pending_plugins,
        rejections=error.diagnosis.rejections(error.node_count),
        nodes=error.node_count,
        group=group,
    )

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
from tidelog.framework.events import WaitingPod
from tidelog.framework.framework import Framework, PromisedWrites, ScheduleResult
from tidelog.framework.interface import Code, CycleState, Depends, Status
from tidelog.framework.node_info import PodInfo
from tidelog.framework.preemption_plan import PreemptionOutcome, PreemptionPlan
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


def run_pod_cycle(
    framework: Framework,
    pod: PodInfo,
    key: str,
    stamp: Stamp,
    *,
    waiting: WaitingPod | None = None,
    nominated_node: str = "",
) -> CycleResult:
    """Try to place the pod. `key` is its record's, `waiting` what the queue remembers of it."""
    state = CycleState(stamp.at, waiting, stamp.attempt)
    found = framework.schedule_pod(state, pod, turn=stamp.attempt, nominated_node=nominated_node)
    if isinstance(found, ScheduleResult):
        result = _place(framework, state, pod, key, stamp, found)
    elif isinstance(found, FitError):
        result = _make_room(framework, state, pod, key, stamp, found)
    else:
        result = _failed(key, stamp, found, clears=bool(nominated_node))
    if state.told is None:
        return result
    return replace(result, outcomes=explained(result.outcomes, key, state.told))


def reject_waiting(
    framework: Framework, state: CycleState, pod: PodInfo, key: str, stamp: Stamp, node: str, status: Status
) -> CycleResult:
    """The wait was too long. Nothing else ends it but the pod's own end."""
    framework.run_unreserve(state, pod, node)
    return _rejected(key, stamp, FitError.of_node(node, status), clears=True)


def bind_reserved(
    framework: Framework, state: CycleState, pod: PodInfo, permit: Permit, stamp: Stamp
) -> CycleResult:
    """Everything that was written for the pod has been answered: the rest of its cycle. What its attempt said about the node is told again."""
    result = ScheduleResult(permit.node, permit.feasible, score=permit.score)
    found = _bind(framework, state, pod, permit.key, stamp, result)
    if not permit.group:
        return found
    (key, body), *others = found.outcomes
    return (
        replace(found, outcomes=((key, replace(body, group=permit.group)), *others))
        if isinstance(body, Scheduled)
        else found
    )


def fail_reserved(
    framework: Framework, state: CycleState, pod: PodInfo, permit: Permit, stamp: Stamp, status: Status
) -> CycleResult:
    """The answers failed, or have not come in time. What was written stays, and the next attempt goes by it."""
    framework.run_unreserve(state, pod, permit.node)
    return _failed(permit.key, stamp, status, clears=True)


def _place(
    framework: Framework, state: CycleState, pod: PodInfo, key: str, stamp: Stamp, result: ScheduleResult
) -> CycleResult:
    if framework.binds_at_once(state):
        return _bind_now(framework, state, pod, key, stamp, result)
    node = result.node
    status = framework.run_reserve(state, pod, node)
    if status is not None:
        return _refused(key, stamp, node, status)
    permit = framework.run_permit(state, pod, node)
    if permit.status is None:
        return _write(framework, state, pod, key, stamp, result)
    if permit.status.code is not Code.WAIT:
        framework.run_unreserve(state, pod, node)
        return _refused(key, stamp, node, permit.status)
    waiting = Waiting(
        **stamp._asdict(),
        node=node,
        plugins=tuple(plugin for plugin, _ in permit.waits),
        deadline=stamp.at + min(timeout for _, timeout in permit.waits),
    )
    return CycleResult(((key, waiting),), node, framework.looked_at(state), state)


def _write(
    framework: Framework, state: CycleState, pod: PodInfo, key: str, stamp: Stamp, result: ScheduleResult
) -> CycleResult:
    """Bind the pod, or have written what has to be before."""
    node = result.node
    promised = framework.run_writes(state, pod, node)
    if isinstance(promised, Status):
        framework.run_unreserve(state, pod, node)
        return _failed(key, stamp, promised, clears=True)
    reads = framework.read_for(state, pod, node)
    if not promised:
        found = _bind(framework, state, pod, key, stamp, result)
        return replace(found, reads=reads) if reads else found
    body = reserved(stamp, result, promised)
    return CycleResult(
        ((key, body),), node, framework.looked_at(state), state, reads=reads_and_writes(reads, body)
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


def reads_and_writes(reads: frozenset[str], body: Reserved) -> frozenset[str]:
    """Return the keys that an attempt must not miss a change of."""
    return reads | {write.key for write in body.writes}


def _bind(
    framework: Framework, state: CycleState, pod: PodInfo, key: str, stamp: Stamp, result: ScheduleResult
) -> CycleResult:
    status = framework.run_pre_bind(state, pod, result.node)
    if status is not None:
        framework.run_unreserve(state, pod, result.node)
        return _failed(key, stamp, status, clears=True)
    return _bind_now(framework, state, pod, key, stamp, result)


def _bind_now(
    framework: Framework, state: CycleState, pod: PodInfo, key: str, stamp: Stamp, result: ScheduleResult
) -> CycleResult:
    node = result.node
    status = framework.run_bind(state, pod, node)
    if status is not None:
        framework.run_unreserve(state, pod, node)
        return _failed(key, stamp, status, clears=True)
    framework.run_post_bind(state, pod, node)
    attempt, observed, at, epoch = stamp
    scheduled = Scheduled(
        attempt=attempt,
        observed=observed,
        at=at,
        epoch=epoch,
        node=node,
        score=result.score,
        feasible=result.feasible,
    )
    return CycleResult(((key, scheduled),), node, framework.looked_at(state))


def _make_room(
    framework: Framework, state: CycleState, pod: PodInfo, key: str, stamp: Stamp, error: FitError
) -> CycleResult:
    """No node was found: let the PostFilter plugins try."""
    if not framework.post_filter:
        return _rejected(key, stamp, error)
    statuses: Mapping[str, Status] = error.diagnosis.statuses(framework.snapshot.nodes)
    result = framework.run_post_filter(state, pod, statuses)
    if result.status is not None:
        error.post_filter_message = result.status.message
    more_rejectors = rejectors_of_preemption(state, result.in_the_way)
    # Only so are the hints asked of the plugin that budgets kept from making room, when one of these changes.
    also = (*more_rejectors, *result.blocking)
    outcome = _rejected(key, stamp, error, blocked_by=result.blocked_by, also=also, writes=result.writes)
    outcome = replace(outcome, preemption=result.outcome)
    refusals = refusal_outcomes(result.refusals, key, stamp._asdict()) if result.refusals else []
    if result.plan is not None:
        more = plan_outcomes(result.plan, key, framework.name, stamp._asdict())
        on = framework.looked_at(state)
        return replace(outcome, outcomes=(*outcome.outcomes, *refusals, *more), on=on, plan=result.plan)
    if result.nominated_node is not None:
        refusals.append((key, Nominated(**stamp._asdict(), node=result.nominated_node)))
    return replace(outcome, outcomes=(*outcome.outcomes, *refusals)) if refusals else outcome


def _refused(key: str, stamp: Stamp, node: str, status: Status) -> CycleResult:
    """The chosen node was refused by Reserve or Permit."""
    if not status.is_rejected:
        return _failed(key, stamp, status, clears=True)
    return _rejected(key, stamp, FitError.of_node(node, status), clears=True)


def _rejected(
    key: str,
    stamp: Stamp,
    error: FitError,
    *,
    clears: bool = False,
    blocked_by: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    writes: tuple[Write, ...] = (),
) -> CycleResult:
    """`also`: who else counts as having rejected the pod."""
    plugins = error.unschedulable_plugins
    if also:
        plugins = tuple(sorted({*plugins, *also}))
    attempt, observed, at, epoch = stamp
    body = Unschedulable(
        attempt=attempt,
        observed=observed,
        at=at,
        epoch=epoch,
        message=error.message,
        plugins=plugins,
        pending=error.pending_plugins,
        rejections=error.diagnosis.rejections(error.node_count),
        nodes=error.node_count,
        blocked_by=blocked_by,
        writes=writes,
    )
    read = frozenset(write.key for write in writes)
    return CycleResult(_with_nomination_cleared(key, stamp, body, clears), reads=read)


def _failed(key: str, stamp: Stamp, status: Status, *, clears: bool = False) -> CycleResult:
    """An error; no nodes at all is told as a rejection, but has nobody to blame and so is retried like an error."""
    body: Body
    if status is NO_NODES:
        body = Unschedulable(**stamp._asdict(), message=status.message)
    else:
        body = AttemptError(**stamp._asdict(), message=status.message, plugin=status.plugin)
    return CycleResult(_with_nomination_cleared(key, stamp, body, clears))


def _with_nomination_cleared(
    key: str, stamp: Stamp, body: Body, clears: bool
) -> tuple[tuple[str, Body], ...]:
    if not clears:
        return ((key, body),)
    return ((key, body), (key, Nominated(**stamp._asdict())))

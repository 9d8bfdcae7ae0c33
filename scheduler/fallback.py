"""Marks in an attempt's outcomes topology spread that has fallen back (KEP-3990).

The plugin's decision is in the cycle state; here it becomes what the records hold. Every outcome of the attempt carries the same, so that
each can be read alone: the binding says why a constraint was not kept, the rejection what is still being waited for, and the nomination
under which fallback its victims had to go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from tidelog.api.objects import Pod, pod_condition
from tidelog.eventlog.records import Body, Fallback, Nominated, Reserved, Scheduled, Unschedulable, Waiting
from tidelog.framework.interface import CycleState
from tidelog.framework.told import NODE_PROVISIONING_IN_PROGRESS, PREEMPTION_FAILED, ToldByPlugin

Outcomes = tuple[tuple[str, Body], ...]


def explained(outcomes: Outcomes, key: str, told: ToldByPlugin | None) -> Outcomes:
    """The outcomes of an attempt for the pod of this key, with what was decided about fallback."""
    if told is None:
        return outcomes
    return tuple(
        (
            k,
            replace(body, explanation=told.lines) if k == key and isinstance(body, Unschedulable) else body,
        )
        for k, body in with_fallback(outcomes, key, told.fallback)
    )


def lines_of_members(tried: Iterable[tuple[str, CycleState]]) -> Iterator[str]:
    """For the rejection of a group: what was decided about its members, by key and state. A line that holds for several comes once.

    The placement does not matter for it, so of a member that was tried in several the first counts.
    """
    found: dict[str, dict[str, None]] = {}
    seen: set[str] = set()
    for key, state in tried:
        told = state.told
        if key in seen or told is None:
            continue
        seen.add(key)
        for line in told.lines:
            found.setdefault(line, {})[key] = None
    for line, keys in found.items():
        others = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        yield f"{next(iter(keys))}{others}: {line}"


def rejectors_of_preemption(state: CycleState, in_the_way: tuple[str, ...]) -> tuple[str, ...]:
    """Topology spread, if it was what kept preemption from helping a pod that can fall back.

    Another plugin may have been the first to reject every node, so that it would not count as a rejector, and the pod would not
    be woken when its constraints fall back, although then preemption may help it.
    """
    told = state.told
    return () if told is None or told.plugin not in in_the_way else (told.plugin,)


def with_fallback(outcomes: Outcomes, key: str, fallback: tuple[Fallback, ...]) -> Outcomes:
    """The outcomes, saying what had fallen back."""
    if not fallback:
        return outcomes
    return tuple((k, _telling(body, fallback) if k == key else body) for k, body in outcomes)


def _telling(body: Body, fallback: tuple[Fallback, ...]) -> Body:
    match body:
        case Scheduled() | Unschedulable() | Waiting() | Reserved():
            return replace(body, fallback=fallback)
        case Nominated() if body.node:
            return replace(body, fallback=fallback)
        case _:
            return body


def withdraws_fallback(before: Pod, after: Pod) -> bool:
    """Whether an attempt made with the earlier version may have let a constraint fall back that is hard for the later one.

    Pods without constraints of their own may have default ones that fall back.
    """
    constraints = before.spec.topology_spread_constraints
    if constraints and not any(constraint.fallback_criteria for constraint in constraints):
        return False
    said, says = _provisioning(before), _provisioning(after)
    if said != says and said != "True" and says != "False":
        return True
    nominated = after.status.nominated_node_name
    return bool(nominated) and nominated != before.status.nominated_node_name


def _provisioning(pod: Pod) -> str:
    """Return the autoscaler's words about the pod; empty if nothing."""
    condition = pod_condition(pod, NODE_PROVISIONING_IN_PROGRESS)
    return "" if condition is None or condition.status == "Unknown" else condition.status


def preemption_marks(fallback: tuple[Fallback, ...]) -> tuple[int, ...]:
    """The constraints that stay fallen back as long as the nomination stands: going back to hard would let victims die in vain."""
    return tuple(one.constraint for one in fallback if PREEMPTION_FAILED in one.criteria)

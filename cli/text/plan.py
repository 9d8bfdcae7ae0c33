"""A plan in words."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.api.text import safe
from tidelog.cli.text.why import moment
from tidelog.replay.plan import Plan, PlannedPod


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield a summary, then what would become of each pod."""
    placed = [pod for pod in plan.pods if pod.node]
    preempting = [pod for pod in plan.pods if not pod.node and pod.nominated]
    rest = len(plan.pods) - len(placed) - len(preempting)
    counts = [
        f"{len(placed)} would be placed",
        f"{len(preempting)} would make room first" if preempting else "",
        f"{rest} would stay pending" if rest else "",
    ]
    yield f"{len(plan.pods)} {'pod' if len(plan.pods) == 1 else 'pods'}, if tried after record {plan.seq}, {moment(plan.at)}: {', '.join(filter(None, counts))}; nothing was written"
    for pod in plan.pods:
        yield ""
        yield from _pod_lines(pod)


def _pod_lines(pod: PlannedPod) -> Iterator[str]:
    of = f", with its group {safe(pod.group)}" if pod.group else ""
    if pod.node:
        yield f"{safe(pod.pod)}: on {safe(pod.node)}{_among(pod)}{of}"
        if pod.waits_for:
            yield f"  its place is reserved until {safe(', '.join(pod.waits_for))} permits it"
        if pod.message:
            yield f"  {safe(pod.message)}"
        return
    if pod.nominated:
        yield f"{safe(pod.pod)}: on {safe(pod.nominated)}, when {safe(', '.join(pod.preempts))} made room{of}"
        return
    yield f"{safe(pod.pod)}: pending{of}"
    yield f"  {safe(pod.message)}"
    if pod.kept:
        yield f"  {safe(pod.kept)}"
    for refused in pod.refused:
        yield f"  may not be preempted: {safe(refused)}"
    for help_ in pod.help:
        for advice in help_.advice:
            yield f"  would help: {safe(advice)}"


def _among(pod: PlannedPod) -> str:
    if pod.feasible <= 1:
        return ", the only node that would do" if pod.feasible else ""
    if pod.tied > 1:
        return f", one of {pod.tied} equally good nodes of {pod.feasible} that would do"
    return f", the best of {pod.feasible} nodes"

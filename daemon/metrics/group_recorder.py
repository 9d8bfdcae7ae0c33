"""Record a pod group's attempt: its result, its time, and how many placements were looked at.

The members that are placed or left over are counted as pods beside it; of a group that is rejected as a whole, only the group is.
"""

from __future__ import annotations

from tidelog.daemon.metrics.catalogue import GroupMetrics
from tidelog.eventlog.records import AttemptError, Body, PlacementChosen, Unschedulable
from tidelog.scheduler.core import Core


def profile_of(core: Core, key: str) -> str:
    """The profile of a group in flight, by its record key; empty if it is not."""
    group = core.queue.get_group(key.partition("/")[2])
    return group.popped[0].profile if group is not None and group.popped else ""


def record_group(metrics: GroupMetrics, profile: str, body: Body, duration: int, algorithm: int) -> None:
    """The attempt's own outcome is durable; times in nanoseconds. A repeated rejection tells nothing about placements."""
    match body:
        case PlacementChosen():
            result = "scheduled"
            infeasible = body.evaluated - body.candidates
            metrics.placements.labels(profile).inc(body.evaluated)
            metrics.placement_evaluations.labels("feasible", profile).inc(body.candidates)
            metrics.placement_evaluations.labels("infeasible", profile).inc(infeasible)
        case Unschedulable():
            result = "unschedulable"
            metrics.placements.labels(profile).inc(len(body.explanation))
            metrics.placement_evaluations.labels("infeasible", profile).inc(len(body.explanation))
        case AttemptError():
            result = "error"
        case _:
            return
    metrics.attempts.labels(result, profile).inc()
    metrics.duration.labels(result, profile).observe(duration)
    metrics.algorithm_duration.observe(algorithm)

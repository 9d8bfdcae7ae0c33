"""Words about placements: in the sentence for the whole group, and line by line.

    0/3 placements of podGroup ns/train are feasible (level topology.kubernetes.io/rack): rack=r1: 3/4 pods fit, ns/train-3: 0/2 nodes …

The sentence names the first few placements; the lines name them all, up to a limit that keeps a record of an attempt on a cluster with
thousands of racks small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.scheduler.groups.group import Group
from tidelog.scheduler.groups.trial import TrialEvaluation

SENTENCE_PLACEMENTS_MAX = 8
LINES_MAX = 256


def progress(group: Group, evaluation: TrialEvaluation, *, upstream: bool) -> str:
    """Why a placement cannot take the group, as far as its members were tried."""
    placed, fit = len(group.placed), evaluation.fit_count
    left = len(group.members) - evaluation.tried
    if upstream:
        return f"minCount ({group.quorum}) cannot be satisfied: {placed + fit} scheduled, {left} remaining"
    needed = f", {group.quorum} needed" if group.rule.is_gang else ""
    there = f" beside {placed} placed" if placed else ""
    failure = evaluation.first_failure
    first = "" if failure is None else f", {failure.pod.key}: {failure.message}"
    return f"{fit}/{len(group.members)} pods fit{there}{needed}{first}"


def infeasible_message(
    group: Group, evaluations: Sequence[TrialEvaluation], unlabeled: int, *, upstream: bool
) -> str:
    """Why no placement takes the group. `unlabeled`: how many nodes are in no domain."""
    if upstream:
        return (
            f"pod group is unschedulable, 0/{len(evaluations)} placements are available, "
            f"first placement status: {evaluations[0].message}"
        )
    levels = ", ".join(c.level for c in group.constraints)
    level = f" (level {levels})" if levels else ""
    parts = [_line(evaluation) for evaluation in evaluations[:SENTENCE_PLACEMENTS_MAX]]
    if len(evaluations) > SENTENCE_PLACEMENTS_MAX:
        parts.append(f"and {len(evaluations) - SENTENCE_PLACEMENTS_MAX} more")
    if unlabeled and levels:
        parts.append(f"{unlabeled} nodes without the label")
    return (
        f"0/{len(evaluations)} placements of podGroup {group.name} are feasible{level}: {'; '.join(parts)}. "
        "Groups do not preempt."
    )


def placement_lines(evaluations: Sequence[TrialEvaluation]) -> Iterator[str]:
    """One line for each placement."""
    for evaluation in evaluations[:LINES_MAX]:
        yield _line(evaluation)
    if len(evaluations) > LINES_MAX:
        yield f"and {len(evaluations) - LINES_MAX} more placements"


def _line(evaluation: TrialEvaluation) -> str:
    name = evaluation.placement.name or "the whole cluster"
    if not evaluation.is_feasible:
        return f"{name}: {evaluation.message}"
    kind = "takes all" if evaluation.is_full else f"takes {evaluation.fit_count} of {evaluation.tried} pods"
    return f"{name}: {kind}, score {evaluation.score:.2f}"

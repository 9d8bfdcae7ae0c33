"""Why this node: the scores of an attempt, computed again in the state in which it was made."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import msgspec

from tidelog.eventlog.records import Outcome, Record, Reserved, Scheduled, Waiting
from tidelog.framework.interface import Status
from tidelog.framework.results import NodeScores
from tidelog.replay.examine import Examination, examine
from tidelog.scheduler.core import Core
from tidelog.scheduler.recorded import RecordedAttempt, RecordedAttempts

RUNNERS_UP = 4
"""Number of nodes shown beside the winner."""


class PluginScore(msgspec.Struct, frozen=True, kw_only=True):
    """The score of one plugin for one node."""

    raw: int
    normalized: int
    weighted: int
    """Times the weight: what counts."""


class NodeScore(msgspec.Struct, frozen=True, kw_only=True):
    """A feasible node's points."""

    node: str
    total: int
    plugins: dict[str, PluginScore]


class NodeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of one attempt."""

    attempt: int
    seq: int
    """The record that holds the outcome."""
    node: str
    feasible: int
    nodes: int
    tied: int
    """How many nodes were as good as the winner; among them the rule of docs/decisions/0010 decides."""
    tie_rule: str
    """The rule in words; empty where there was no tie."""
    weights: dict[str, int]
    """Plugin → its weight; one that had nothing to say is missing."""
    scores: tuple[NodeScore, ...]
    """The winner, then the best of the others."""
    rejected: dict[str, int]
    """Plugin → how many nodes it ruled out."""
    note: str = ""


_TIE_RULE = "of those with the fewest pods, the pod's own number chose one, which is made of its name"
_OLDER_TIE_RULE = "the attempt's number chose one"


def placement_of(pop: RecordedAttempt, key: str) -> tuple[Record, str] | None:
    """The record in which the attempt found a node for the pod, and the node."""
    for record, body in pop.outcomes:
        if record.key == key and isinstance(body, Scheduled | Waiting | Reserved):
            return record, body.node
    return None


def placing_attempt(records: Sequence[Record], key: str) -> int:
    """The number of the last attempt that chose a node for the pod, 0 if there is none. That which binds a reserved pod chooses nothing."""
    last = 0
    is_reserved = False
    for pop in RecordedAttempts(records):
        for record, body in pop.outcomes:
            if record.key != key or not isinstance(body, Outcome):
                continue
            if isinstance(body, Scheduled | Waiting | Reserved) and not (
                is_reserved and isinstance(body, Scheduled)
            ):
                last = pop.attempt
            is_reserved = isinstance(body, Reserved)
    return last


def choice_of(core: Core, pop: RecordedAttempt, key: str) -> NodeChoice | None:
    """How the node was chosen. `core` is in the state in which the attempt is about to be made."""
    placed, pod = placement_of(pop, key), core.cluster.pod(key)
    if placed is None or pod is None:
        return None
    record, node = placed
    waiting = copy.copy(core.queue.get(key.partition("/")[2]))
    if waiting is not None:
        waiting.attempted_at = pop.at
    seen = examine(core, pod, pop.at, waiting)
    scores = seen.scores() if len(seen.feasible) > 1 else None
    note = _note(seen, node, is_grouped=pop.key != key)
    if isinstance(scores, NodeScores):
        table, weights = _table(scores, node), {name: s.weight for name, s in scores.plugins.items()}
    else:
        table, weights = (), {}
    best = max((row.total for row in table), default=0)
    tied = sum(total == best for total in scores.totals) if isinstance(scores, NodeScores) else 1
    rule = _TIE_RULE if seen.framework.ties_follow_pods else _OLDER_TIE_RULE
    return NodeChoice(
        attempt=pop.attempt,
        seq=record.seq,
        node=node,
        feasible=len(seen.feasible),
        nodes=len(seen.nodes),
        tied=tied,
        tie_rule=rule if tied > 1 else "",
        weights=weights,
        scores=table,
        rejected=_rejected(seen),
        note=scores.message if isinstance(scores, Status) else note,
    )


def _note(seen: Examination, node: str, *, is_grouped: bool) -> str:
    if is_grouped:
        return "the pod was placed with its group: the nodes were those of the chosen placement, and members placed before it count"
    if node not in {n.name for n in seen.feasible}:
        return "the node was chosen by other means than these scores: a reservation that was waited for, or a nomination"
    if len(seen.feasible) == 1:
        return "the only feasible node, so nothing was scored"
    return ""


def _table(scores: NodeScores, winner: str) -> tuple[NodeScore, ...]:
    order = sorted(
        range(len(scores.nodes)), key=lambda i: (scores.nodes[i].name != winner, -scores.totals[i], i)
    )
    return tuple(
        NodeScore(
            node=scores.nodes[i].name,
            total=scores.totals[i],
            plugins={
                name: PluginScore(
                    raw=s.raw[i], normalized=s.normalized[i], weighted=s.weight * s.normalized[i]
                )
                for name, s in scores.plugins.items()
            },
        )
        for i in order[: RUNNERS_UP + 1]
    )


def _rejected(seen: Examination) -> dict[str, int]:
    """Each node counted once, for the first plugin that rules it out, as an attempt does."""
    found: dict[str, int] = {}
    for statuses in seen.by_node.values():
        if statuses:
            found[statuses[0].plugin] = found.get(statuses[0].plugin, 0) + 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

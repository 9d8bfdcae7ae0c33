"""What earlier dry runs have shown, for as long as it is still true.

Preemptors come in numbers and look alike, and one preemption changes one node. So the answer for a node is kept while nothing that it
depends on has changed: the preemptor's shape (all of it but its name), the node with the pods on it (its generation), and how things stand
with the disruption budgets of the victims' namespaces. Where an answer could depend on more, it is not kept: filters that look beyond the
node, pods nominated to it, victims that were asked to go and do not show it, victims of which only some say when they were started.

Nothing is decided here: with an empty memory the answers are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tidelog.plugins.disruption_budgets import Allowances
from tidelog.plugins.interface import CycleState, Depends, Status
from tidelog.plugins.node_info import NodeInfo, PodInfo
from tidelog.plugins.preemption_candidates import Candidate
from tidelog.plugins.preemption_dry_run import Blocker
from tidelog.plugins.preemption_plan import PreemptionPort

SHAPES_MAX = 16
"""Arbitrary; a shape costs a few hundred bytes for each node."""

_BEYOND = ~(Depends.NODE | Depends.OCCUPANTS)
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Answer(NamedTuple):
    """What came out of a dry run, and what it depends on beside the preemptor's shape."""

    generation: int
    """The node's."""
    standings: tuple[bytes, ...]
    """Of the budgets in the victims' namespaces."""
    found: Candidate | Status
    blockers: Sequence[Blocker]
    """Why the node is out, if it is for protected pods only."""


Answers = dict[str, Answer]
"""By node."""


class Memory:
    """Of one plugin of one profile."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, Answers] = {}

    def answers(self, port: PreemptionPort, state: CycleState, pod: PodInfo) -> Answers | None:
        """What is known for pods like this one; None if nothing can be known."""
        meta, status = pod.pod.metadata, pod.pod.status
        if port.looked_at(state) & _BEYOND or status.container_statuses or status.init_container_statuses:
            return None  # With container statuses, what it requests is not told by its spec alone.
        shape = _encode((meta.namespace, meta.labels, meta.annotations, meta.owner_references, pod.pod.spec))
        found = self._shapes.pop(shape, None)
        if found is None:
            found = {}
            if len(self._shapes) >= SHAPES_MAX:
                del self._shapes[next(iter(self._shapes))]
        self._shapes[shape] = found  # The last one used is the last one to go.
        return found

    def recall(
        self,
        answers: Answers | None,
        port: PreemptionPort,
        allowances: Allowances,
        pod: PodInfo,
        node: NodeInfo,
    ) -> Answer | None:
        """What a dry run on this node would come to, if that is known."""
        known = None if answers is None else answers.get(node.name)
        if known is None or known.generation != node.generation:
            return None
        return known if known.standings == _standings(port, allowances, pod, node) else None

    def keep(
        self,
        answers: Answers | None,
        port: PreemptionPort,
        allowances: Allowances,
        pod: PodInfo,
        node: NodeInfo,
        found: Candidate | Status,
        blockers: Sequence[Blocker],
    ) -> None:
        """Remember what a dry run came to, if that may be done."""
        if answers is None:
            return
        standings = _standings(port, allowances, pod, node)
        if standings is not None:
            answers[node.name] = Answer(node.generation, standings, found, blockers)


def _standings(
    port: PreemptionPort, allowances: Allowances, pod: PodInfo, node: NodeInfo
) -> tuple[bytes, ...] | None:
    """How the budgets stand on which an answer depends; None if it depends on more than them and the node."""
    if port.nominated(node.name):
        return None
    started: bool | None = None
    found: dict[str, bytes] = {}
    for other in node.pods.values():
        if other.priority >= pod.priority:
            continue
        says = bool(other.pod.status.start_time)
        if says is not (says if started is None else started):
            return None
        started = says
        standing = allowances.standing(other.namespace)
        if standing:
            if not other.terminating and port.is_evicted(other.uid):
                return None
            found[other.namespace] = standing
    return tuple(found.values())

"""What earlier dry runs have shown, for as long as it is still true.

Preemptors come in numbers and look alike, and one preemption changes one node. So the answer for a node is kept while nothing that it
depends on has changed: the preemptor's shape (all of it but its name), the node with the pods on it (its generation), and nothing else. Where
an answer could depend on more, it is not kept: filters that look beyond the node, pods nominated to it, disruption budgets in a victim's
namespace, victims of which only some say when they were started.

Nothing is decided here: with an empty memory the answers are the same.
"""

from __future__ import annotations

import msgspec

from tidelog.plugins.interface import CycleState, Depends, Listers, Status
from tidelog.plugins.node_info import NodeInfo, PodInfo
from tidelog.plugins.preemption_candidates import Candidate
from tidelog.plugins.preemption_plan import PreemptionPort

SHAPES_MAX = 16
"""Arbitrary; a shape costs about a hundred bytes for each node."""

_BEYOND = ~(Depends.NODE | Depends.OCCUPANTS)
_encode = msgspec.msgpack.Encoder(order="deterministic").encode

Answers = dict[str, tuple[int, Candidate | Status]]
"""Node → its generation when it was tried, and what came out."""


class Memory:
    """Of one plugin of one profile."""

    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        self._shapes: dict[bytes, Answers] = {}

    def answers(self, port: PreemptionPort, state: CycleState, pod: PodInfo) -> Answers | None:
        """What is known for pods like this one; None if nothing can be known."""
        if port.looked_at(state) & _BEYOND:
            return None
        meta = pod.pod.metadata
        shape = _encode((meta.namespace, meta.labels, meta.annotations, meta.owner_references, pod.pod.spec))
        found = self._shapes.pop(shape, None)
        if found is None:
            found = {}
            if len(self._shapes) >= SHAPES_MAX:
                del self._shapes[next(iter(self._shapes))]
        self._shapes[shape] = found  # The last one used is the last one to go.
        return found

    def recall(
        self, answers: Answers | None, port: PreemptionPort, pod: PodInfo, node: NodeInfo
    ) -> Candidate | Status | None:
        """What a dry run on this node would come to, if that is known."""
        known = None if answers is None else answers.get(node.name)
        if known is None or known[0] != node.generation or not self._depends_on_node_alone(port, pod, node):
            return None
        return known[1]

    def keep(
        self,
        answers: Answers | None,
        port: PreemptionPort,
        pod: PodInfo,
        node: NodeInfo,
        found: Candidate | Status,
    ) -> None:
        """Remember what a dry run came to, if that may be done."""
        if answers is not None and self._depends_on_node_alone(port, pod, node):
            answers[node.name] = (node.generation, found)

    def _depends_on_node_alone(self, port: PreemptionPort, pod: PodInfo, node: NodeInfo) -> bool:
        if port.nominated(node.name):
            return False
        started: bool | None = None
        for other in node.pods.values():
            if other.priority >= pod.priority:
                continue
            says = bool(other.pod.status.start_time)
            if says is not (says if started is None else started) or self._listers.budgets(other.namespace):
                return False
            started = says
        return True

"""Remembers the results of earlier dry runs for as long as they are true.

Preemptors come in numbers and look alike, and one preemption changes one node. So the answer for a node is kept while nothing that it
depends on has changed: the preemptor's shape (all of it but its name), the node with the pods on it (its generation), and how things stand
with the disruption budgets of the victims' namespaces. Where an answer could depend on more, it is not kept: filters that look beyond the
node, pods nominated to it, victims that were asked to go and do not show it, victims of which only some say when they were started.

Nodes look alike, too. Where the filters go by resources, ports and taints alone and no budget has a say, what came out on one node holds, place
by place in the order of importance, for all nodes that are as large and as full and have victims of the same kinds: their *twins*.

Nothing is decided here: with an empty memory the answers are the same. A node that was asked about costs a dict lookup, a twin a step for each pod on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tidelog.framework.disruption_budgets import Allowances
from tidelog.framework.interface import CycleState, Depends, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.preemption_plan import PreemptionPort
from tidelog.plugins.default_preemption.candidates import Candidate, Pattern, Twin, by_importance
from tidelog.plugins.default_preemption.dry_run import Blocker

SHAPES_MAX = 16
"""Arbitrary; a shape costs a few hundred bytes for each node."""
KINDS_MAX = 5_000
"""Of nodes for one shape; arbitrary. One costs about a kilobyte."""

_BEYOND = ~(Depends.NODE | Depends.OCCUPANTS)
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Answer(NamedTuple):
    """The result of a dry run, and what it depends on beside the preemptor's shape."""

    generation: int
    """The node's."""
    namespaces: tuple[str, ...]
    """Of the victims that come into question."""
    standings: tuple[bytes, ...]
    """Of the budgets in these, as far as there are any."""
    found: Candidate | Twin | Status
    blockers: Sequence[Blocker]
    """Why the node is out, if it is for protected pods only."""


class Answers:
    """Results known for preemptors of one shape."""

    __slots__ = ("by_kind", "by_node")

    def __init__(self) -> None:
        self.by_node: dict[str, Answer] = {}
        self.by_kind: dict[tuple[object, ...], Pattern | Status] = {}
        """The result that holds for all twins."""


class Memory:
    """Of one plugin of one profile."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, Answers] = {}

    def recollection(
        self, port: PreemptionPort, allowances: Allowances, state: CycleState, pod: PodInfo, nodes: int
    ) -> Recollection:
        """Results known for this preemptor, in this attempt, before anything is charged. There are so many `nodes`."""
        answers = self._answers(port, state, pod)
        if answers is not None and len(answers.by_node) > 2 * nodes:
            answers.by_node.clear()  # Most of them are gone: nodes come and go, and nobody tells.
        return Recollection(answers, port, allowances, state, pod)

    def _answers(self, port: PreemptionPort, state: CycleState, pod: PodInfo) -> Answers | None:
        """Return the results known for pods like this one; None if nothing can be known."""
        meta, status = pod.pod.metadata, pod.pod.status
        if port.looked_at(state) & _BEYOND or status.container_statuses or status.init_container_statuses:
            return None  # With container statuses, what it requests is not told by its spec alone.
        shape = _encode((meta.namespace, meta.labels, meta.annotations, meta.owner_references, pod.pod.spec))
        found = self._shapes.pop(shape, None)
        if found is None:
            found = Answers()
            if len(self._shapes) >= SHAPES_MAX:
                del self._shapes[next(iter(self._shapes))]
        self._shapes[shape] = found  # The last one used is the last one to go.
        return found


class Recollection:
    """Of one preemptor in one attempt."""

    def __init__(
        self,
        answers: Answers | None,
        port: PreemptionPort,
        allowances: Allowances,
        state: CycleState,
        pod: PodInfo,
    ) -> None:
        self._answers = answers
        self._port = port
        self._allowances = allowances
        self._state = state
        self._pod = pod
        self._known_standings: dict[tuple[str, ...], tuple[bytes, ...]] = {}
        self._has_twins = answers is not None and not (
            pod.pod.spec.node_name or port.tells_equal_nodes_apart(state)
        )

    def recall(self, node: NodeInfo) -> Answer | None:
        """Return the result that a dry run on this node would have, if it is known."""
        answers = self._answers
        if answers is None or self._port.nominated(node.name):
            return None
        known = answers.by_node.get(node.name)
        if known is not None and known.generation == node.generation:
            standings = self._standings(known.namespaces)
            if standings == known.standings and (not standings or self._victims(node) is not None):
                return known
        if not self._has_twins:
            return None
        victims = self._victims(node)
        if victims is None or victims.standings:
            return None
        twin = answers.by_kind.get(_kind(node, self._placed(victims)))
        if twin is None:
            return None
        found: Candidate | Twin | Status
        if not isinstance(twin, Pattern):
            found = twin
        elif victims.started:
            found = twin.on(node.name, by_importance(victims.pods, self._state.at))
        else:
            found = Twin(node, self._pod.priority, twin)
        answer = Answer(node.generation, victims.namespaces, (), found, ())
        answers.by_node[node.name] = answer
        return answer

    def keep(self, node: NodeInfo, found: Candidate | Status, blockers: Sequence[Blocker]) -> None:
        """Remember what a dry run came to, if that may be done."""
        answers = self._answers
        if answers is None or self._port.nominated(node.name):
            return
        victims = self._victims(node)
        if victims is None:
            return
        answers.by_node[node.name] = Answer(
            node.generation, victims.namespaces, victims.standings, found, blockers
        )
        if not self._has_twins or victims.standings:
            return
        kind = _kind(node, self._placed(victims))
        if isinstance(found, Candidate):
            answers.by_kind[kind] = Pattern.of(found, by_importance(victims.pods, self._state.at))
        elif found.is_rejected:
            answers.by_kind[kind] = found
        if len(answers.by_kind) > KINDS_MAX:
            del answers.by_kind[next(iter(answers.by_kind))]

    def _victims(self, node: NodeInfo) -> _Victims | None:
        """The pods that come into question; None if the answer depends on more than them, the node and the budgets."""
        priority = self._pod.priority
        pods = [other for other in node.pods.values() if other.priority < priority]
        started = {bool(other.pod.status.start_time) for other in pods}
        if len(started) > 1:
            return None
        namespaces = tuple(dict.fromkeys([other.namespace for other in pods]))
        standings = self._standings(namespaces)
        if standings and self._has_asked_silently(pods):
            return None
        return _Victims(pods, True in started, namespaces, standings)

    def _has_asked_silently(self, pods: Sequence[PodInfo]) -> bool:
        """One of them that a budget may be about was asked to go, and does not show it."""
        return any(
            self._allowances.standing(pod.namespace)
            and not pod.terminating
            and self._port.is_evicted(pod.uid)
            for pod in pods
        )

    def _standings(self, namespaces: tuple[str, ...]) -> tuple[bytes, ...]:
        known = self._known_standings.get(namespaces)
        if known is None:
            standing = self._allowances.standing
            known = tuple([found for namespace in namespaces if (found := standing(namespace))])
            self._known_standings[namespaces] = known
        return known

    def _placed(self, victims: _Victims) -> list[_Part]:
        """The parts of each victim that the dry run looks at, in the order of importance."""
        parts = [_part(pod) for pod in victims.pods]
        if all(part == parts[0] for part in parts):
            return parts  # In any order.
        return [_part(pod) for pod in by_importance(victims.pods, self._state.at)]


class _Victims(NamedTuple):
    """The pods on a node that come into question."""

    pods: Sequence[PodInfo]
    started: bool
    """They say when they were started; else none of them does."""
    namespaces: tuple[str, ...]
    standings: tuple[bytes, ...]
    """How the budgets there stand."""


_Part = tuple[object, ...]


def _part(pod: PodInfo) -> _Part:
    return (
        pod.priority,
        pod.pod.spec.allow_disruption_by_priority_greater_than_or_equal,
        pod.host_ports,
        *pod.occupied.items(),
    )


def _kind(node: NodeInfo, lower: Sequence[_Part]) -> tuple[object, ...]:
    """Equal for twins: all that filters by resources, ports and taints, and the dry run itself, look at, budgets aside."""
    spec = node.node.spec
    return (
        spec.taints,
        spec.unschedulable,
        tuple(node.allocatable.items()),
        tuple(node.requested.items()),
        len(node.pods),
        tuple([(port, *holders.items()) for port, holders in node.used_ports.items()]),
        *lower,
    )

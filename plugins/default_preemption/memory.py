"""Remembers the results of earlier dry runs for as long as they are true.

Preemptors come in numbers and look alike, and one preemption changes one node. So the answer for a node is kept while nothing that it
depends on has changed: the preemptor's shape (all of it but its name), the node with the pods on it and those nominated to it, and how things
stand with the disruption budgets of the victims' namespaces. Where an answer could depend on more, it is not kept: filters that look beyond
the node, victims that were asked to go and do not show it, victims of which only some say when they were started.

Nodes look alike, too. Where the filters go by resources, ports and taints alone and no budget has a say, what came out on one node holds, place
by place in the order of importance, for all nodes that are as large and as full and have victims of the same kinds: their *twins*. Which are, is
told by numbers that their pods keep (`PodInfo.likeness`); nodes for which these are the same are asked about as one.

What no budget has a say in is known as sets of nodes: those with a status, and those where victims of the same worth would do. A search
(`search`) asks about the nodes that changed; the others cost nothing one by one.

Nothing is decided here: with an empty memory the answers are the same. A node that changed is forgotten, and costs two microseconds when it is asked
about again, if it has a twin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tidelog.api.dicts import drop_oldest
from tidelog.api.objects import Taint
from tidelog.framework.disruption_budgets import Allowances
from tidelog.framework.interface import CycleState, Depends, Status
from tidelog.framework.node_info import NodeInfo, PodInfo, beginning
from tidelog.framework.node_sets import Bits, bits_of
from tidelog.framework.preemption_plan import PreemptionPort
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.default_preemption.candidates import (
    Candidate,
    Pattern,
    Twin,
    Worth,
    by_importance,
    worth,
)
from tidelog.plugins.default_preemption.dry_run import Blocker, DryRun

SHAPES_MAX = 16
"""Arbitrary; a shape costs a few hundred bytes for each node."""
KINDS_MAX = 5_000
"""Of nodes for one shape; arbitrary. One costs about a kilobyte."""

_BEYOND = ~(Depends.NODE | Depends.OCCUPANTS)
_encode = msgspec.msgpack.Encoder(order="deterministic").encode

Known = Candidate | Pattern | Status
"""A result that holds until the node changes; a pattern where none of the victims says when it was started."""


class Answer(NamedTuple):
    """The result of a dry run in which budgets have a say, and what it depends on beside the preemptor's shape."""

    generation: int
    """The node's."""
    nominated: Sequence[PodInfo]
    namespaces: tuple[str, ...]
    """Of the victims that come into question."""
    standings: tuple[bytes, ...]
    """Of the budgets in these."""
    found: Candidate | Status
    blockers: Sequence[Blocker]
    """Why the node is out, if it is for protected pods only."""


class Answers:
    """Results known for preemptors of one shape."""

    def __init__(self) -> None:
        self.by_node: dict[str, Answer] = {}
        """Where budgets have a say."""
        self.by_kind: dict[tuple[object, ...], Pattern | Status] = {}
        """The result that holds for all twins."""
        self.victims: dict[tuple[int, ...], _Victims] = {}
        """By the likenesses of all pods of a node."""
        self.known: Bits = 0
        """The nodes with a result in which no budget has a say."""
        self.sets: dict[Worth | Status, Bits] = {}
        """The worth of the victims, or why none would do → the nodes of `known` of which that is true."""
        self.started: Bits = 0
        """Those of them whose victims say when they were started."""
        self._at: dict[int, Known] = {}
        """Place → the result, for the nodes of `known` and some others."""
        self._fresh: dict[Worth | Status, list[int]] = {}
        """Learnt and not yet among the sets."""
        self._fresh_started: list[int] = []
        self._layout = -1
        self._generation = -1
        self.nominated: Mapping[str, Sequence[PodInfo]] = {}
        """Node → who is nominated to it beside the preemptor."""
        self._namespaces: dict[str, None] = {}
        """Of all victims in `known`."""

    def __getitem__(self, place: int) -> Known:
        """The result for a node of `known`."""
        return self._at[place]

    def candidates(self) -> Bits:
        """The nodes of `known` with victims that would do."""
        found = 0
        for key, bits in self.sets.items():
            if not isinstance(key, Status):
                found |= bits
        return found

    def follow(
        self, snapshot: Snapshot, nominated: Mapping[str, Sequence[PodInfo]], allowances: Allowances
    ) -> None:
        """Forget the nodes that have changed, or to which others are nominated."""
        changed = snapshot.changed_since(self._generation) if snapshot.layout == self._layout else None
        before, self.nominated = self.nominated, nominated
        self._generation, self._layout = snapshot.generation, snapshot.layout
        if changed is None or any(map(allowances.standing, self._namespaces)):
            self._forget_all()
            return
        if nominated != before:
            names = dict.fromkeys((*before, *nominated))
            changed = [*changed, *[name for name in names if before.get(name) != nominated.get(name)]]
        places = [snapshot.place_of(name) for name in changed if snapshot.get(name) is not None]
        if places:
            self._forget(bits_of(places, len(snapshot.nodes)))

    def _forget(self, nodes: Bits) -> None:
        nodes &= self.known
        if nodes:
            self.known ^= nodes
            self.started &= ~nodes
            self.sets = {key: left for key, bits in self.sets.items() if (left := bits & ~nodes)}

    def _forget_all(self) -> None:
        self.known = self.started = 0
        self.sets = {}
        self._at = {}
        self._namespaces = {}

    def learn(self, places: Sequence[int], found: Known, namespaces: Sequence[str], started: bool) -> None:
        """Remember the result for these nodes, from the next `settle` on."""
        self._at.update(dict.fromkeys(places, found))
        key = (
            found
            if isinstance(found, Status)
            else found.worth
            if isinstance(found, Pattern)
            else worth(found)
        )
        self._fresh.setdefault(key, []).extend(places)
        if started:
            self._fresh_started.extend(places)
        self._namespaces.update(dict.fromkeys(namespaces))

    def settle(self, nodes: int) -> None:
        """Put what was learnt among the sets; there are so many `nodes`."""
        for key, places in self._fresh.items():
            bits = bits_of(places, nodes)
            self.sets[key] = self.sets.get(key, 0) | bits
            self.known |= bits
        if self._fresh_started:
            self.started |= bits_of(self._fresh_started, nodes)
        self._fresh, self._fresh_started = {}, []


class Memory:
    """Of one plugin of one profile."""

    def __init__(self) -> None:
        self._shapes: dict[bytes, Answers] = {}

    def recollection(
        self, port: PreemptionPort, allowances: Allowances, state: CycleState, pod: PodInfo
    ) -> Recollection:
        """Results known for this preemptor, in this attempt, before anything is charged."""
        answers = self._answers(port, state, pod)
        if answers is None:
            return Recollection(Answers(), port, allowances, state, pod, keeps=False)
        answers.follow(port.snapshot, _others_nominated(port, pod), allowances)
        if len(answers.by_node) > 2 * port.snapshot.node_count:
            answers.by_node.clear()  # Most of them are gone: nodes come and go, and nobody tells.
        return Recollection(answers, port, allowances, state, pod, keeps=True)

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
        answers: Answers,
        port: PreemptionPort,
        allowances: Allowances,
        state: CycleState,
        pod: PodInfo,
        *,
        keeps: bool,
    ) -> None:
        """`keeps`: what is found out holds for later attempts."""
        self.answers = answers
        self._keeps = keeps
        self._port = port
        self._allowances = allowances
        self._state = state
        self._pod = pod
        self._nominated = answers.nominated
        self._known_standings: dict[tuple[str, ...], tuple[bytes, ...]] = {}
        self._has_twins = keeps and not (pod.pod.spec.node_name or port.tells_equal_nodes_apart(state))

    def found_at(self, place: int) -> Candidate | Twin | Status:
        """Return what is known of a node of `answers.known`."""
        found = self.answers[place]
        if isinstance(found, Pattern):
            return Twin(self._port.snapshot.nodes[place], self._pod.priority, found)
        return found

    def ask(self, places: Iterable[int], run: DryRun) -> dict[int, Candidate | Status]:
        """Find out about nodes that are not known. They will be, when the answers are settled, but for the results that are returned."""
        nodes, nominated = self._port.snapshot.nodes, self._nominated
        if not self._keeps:
            return {place: run.on(nodes[place]) for place in places}
        alike: dict[_Likeness, list[int]] = {}
        for place in places:
            node = nodes[place]
            pods = [pod.likeness for pod in node.pods.values()]
            pods.sort()
            beside = self._beside(node) if node.name in nominated else ()
            spec = node.node.spec
            key = (tuple(pods), spec.taints, spec.unschedulable, tuple(node.allocatable.items()), beside)
            alike.setdefault(key, []).append(place)
        passing: dict[int, Candidate | Status] = {}
        for key, those in alike.items():
            self._ask_alike(key, those, run, passing)
        return passing

    def _ask_alike(
        self, key: _Likeness, places: Sequence[int], run: DryRun, passing: dict[int, Candidate | Status]
    ) -> None:
        """Find out about nodes that are alike, as far as the starts of their pods, and the rest of their names, do not matter."""
        nodes, answers = self._port.snapshot.nodes, self.answers
        pods, *rest = key
        victims = self._victims(pods, nodes[places[0]])
        standings = self._standings(victims.namespaces)
        if self._has_twins and victims.order is not None and not standings:
            kind = (victims.order, *rest)
            found = self._twin(kind, nodes[places[0]], run)
            if kind in answers.by_kind:
                answers.learn(places, found, victims.namespaces, False)
                return
        for place in places:
            node = nodes[place]
            if victims.some_started or (standings and self._has_asked_silently(node)):
                passing[place] = run.on(node)
            elif standings:
                passing[place] = self._ask_with_budgets(node, victims.namespaces, standings, run)
            else:
                lasting = self._ask_twin(rest, node, run) if self._has_twins else run.on(node)
                answers.learn((place,), lasting, victims.namespaces, victims.started)

    def _ask_with_budgets(
        self, node: NodeInfo, namespaces: tuple[str, ...], standings: tuple[bytes, ...], run: DryRun
    ) -> Candidate | Status:
        by_node = self.answers.by_node
        known = by_node.get(node.name)
        depends_on = (node.generation, self._nominated.get(node.name, ()), namespaces, standings)
        if known is not None and known[:4] == depends_on:
            if known.blockers:
                run.blockers[node.name] = known.blockers
            return known.found
        found = run.on(node)
        by_node[node.name] = Answer(*depends_on, found, run.blockers.get(node.name, ()))
        return found

    def _ask_twin(self, rest: Sequence[object], node: NodeInfo, run: DryRun) -> Known:
        """The answer for one node, whose twins have victims alike in the same order of importance."""
        lower = by_importance(self._lower(node), self._state.at)
        twin = self._twin((_in_order(node, lower), *rest), node, run)
        if isinstance(twin, Pattern) and lower[0].pod.status.start_time:
            return twin.on(node.name, lower)
        return twin

    def _twin(self, kind: tuple[object, ...], node: NodeInfo, run: DryRun) -> Pattern | Status:
        """The answer for all nodes of this kind; it is tried out on the first one."""
        by_kind = self.answers.by_kind
        known = by_kind.get(kind)
        if known is not None:
            return known
        found = run.on(node)
        if isinstance(found, Status):
            if not found.is_rejected:
                return found  # A failure says nothing about others.
            twin: Pattern | Status = found
        else:
            twin = Pattern.of(found, by_importance(self._lower(node), self._state.at))
        by_kind[kind] = twin
        if len(by_kind) > KINDS_MAX:
            drop_oldest(by_kind, 1 + KINDS_MAX // 8)
        return twin

    def _lower(self, node: NodeInfo) -> list[PodInfo]:
        """The pods that come into question."""
        priority = self._pod.priority
        return [other for other in node.pods.values() if other.priority < priority]

    def _victims(self, pods: tuple[int, ...], node: NodeInfo) -> _Victims:
        """Those of all nodes that have pods of these likenesses; this is one of them."""
        known = self.answers.victims.get(pods)
        if known is None:
            known = self.answers.victims[pods] = _victims(node, self._lower(node))
            if len(self.answers.victims) > KINDS_MAX:
                drop_oldest(self.answers.victims, 1 + KINDS_MAX // 8)
        return known

    def _has_asked_silently(self, node: NodeInfo) -> bool:
        """One of those that come into question, and that a budget may be about, was asked to go, and does not show it."""
        return any(
            self._allowances.standing(pod.namespace)
            and not pod.terminating
            and self._port.is_evicted(pod.uid)
            for pod in self._lower(node)
        )

    def _standings(self, namespaces: tuple[str, ...]) -> tuple[bytes, ...]:
        known = self._known_standings.get(namespaces)
        if known is None:
            standing = self._allowances.standing
            known = tuple([found for namespace in namespaces if (found := standing(namespace))])
            self._known_standings[namespaces] = known
        return known

    def _beside(self, node: NodeInfo) -> tuple[_Part, ...]:
        """The parts of those that count as if they were on the node."""
        least, there = self._pod.priority, node.pods
        nominated = self._nominated[node.name]
        return tuple(_parts([pod for pod in nominated if pod.priority >= least and pod.uid not in there]))


class _Victims(NamedTuple):
    """The pods that come into question on nodes whose pods are alike."""

    namespaces: tuple[str, ...]
    started: bool
    """They say when they were started."""
    some_started: bool
    """Only some of them do; then nothing is known of the node for long."""
    order: tuple[object, ...] | None
    """Their answer of `_in_order`; None if it depends on the rest of the names, or on who was started when."""


_Likeness = tuple[tuple[int, ...], tuple[Taint, ...], bool, tuple[tuple[str, int], ...], tuple["_Part", ...]]
"""Likenesses of all pods on a node, its taints, whether it is cordoned, its room, and the parts of those that are nominated to it."""

_Part = tuple[object, ...]
"""All that a dry run without budgets goes by in a pod."""


def _victims(node: NodeInfo, lower: Sequence[PodInfo]) -> _Victims:
    starts = [bool(pod.pod.status.start_time) for pod in lower]
    # Names are compared first by their beginnings: pods of one owner are mostly alike, and so that is mostly enough.
    ranks = [(-pod.priority, beginning(pod.name)) for pod in lower]
    part_of = dict(zip(ranks, _parts(lower), strict=True))
    is_settled = not any(starts) and [part_of[rank] for rank in ranks] == _parts(lower)
    return _Victims(
        tuple(dict.fromkeys([pod.namespace for pod in lower])),
        started=any(starts),
        some_started=any(starts) and not all(starts),
        order=_in_order(node, by_importance(lower, 0)) if is_settled else None,
    )


def _in_order(node: NodeInfo, lower: Sequence[PodInfo]) -> tuple[object, ...]:
    """Equal for nodes that are as full, and have victims alike in the same order of importance. `lower`: these pods in that order.

    So they are equal in all that filters by resources, ports and taints look at, and the dry run itself, what is said of the node alone and
    budgets aside.
    """
    return (
        tuple(node.requested.items()),
        len(node.pods),
        tuple([(port, *holders.items()) for port, holders in node.used_ports.items()]),
        *_parts(lower),
    )


def _parts(pods: Sequence[PodInfo]) -> list[_Part]:
    return [
        (
            pod.priority,
            pod.pod.spec.allow_disruption_by_priority_greater_than_or_equal,
            pod.host_ports,
            *pod.occupied.items(),
        )
        for pod in pods
    ]


def _others_nominated(port: PreemptionPort, pod: PodInfo) -> Mapping[str, Sequence[PodInfo]]:
    """Node → the pods nominated to it, this one aside, with which no filter counts."""
    found = {}
    for node, pods in port.nominations().items():
        others = tuple([other for other in pods if other.uid != pod.uid])
        if others:
            found[node] = others
    return found

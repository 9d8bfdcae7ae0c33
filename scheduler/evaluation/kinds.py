"""Kinds of nodes: what those with equal traits have in common for the pods of a shape, where plugins offer their answers as functions of what is used.

With these a state of nodes is judged in a microsecond or two, without asking the plugins about a node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.framework.node_info import NodeInfo
from tidelog.framework.offers import NodeUse
from tidelog.scheduler.evaluation.asking import Asked, Evaluation
from tidelog.scheduler.evaluation.node_index import NodeState

Rooms = tuple[Callable[[NodeUse], bool], ...]
Scores = tuple[tuple[int, Callable[[NodeUse], int]], ...]


class TraitKind(NamedTuple):
    """Nodes with equal traits, for all pods that the plugins that go by traits sign alike."""

    passes: bool
    """As far as filters go by traits."""
    fixed: int = 0
    """The part of the score that does not depend on the pods there."""
    raws: tuple[int, ...] = ()
    """To be normalised."""


class Judge(NamedTuple):
    """Judges nodes with equal traits by their use of cpu and memory, for one shape."""

    rooms: Rooms
    scores: Scores
    """With their weights."""

    def has_room(self, use: NodeUse) -> bool:
        """The pod fits where cpu and memory are used so."""
        return False not in [room(use) for room in self.rooms]

    def score(self, use: NodeUse) -> int:
        """The part of the score that depends on how cpu and memory are used."""
        total = 0
        for weight, one in self.scores:
            total += weight * one(use)
        return total


class NoBounds(Exception):
    """A plugin has no bounds for this pod, or for nodes of some kind."""


def is_searchable(filters: Sequence[Asked], scorers: Sequence[Asked], raw_scorers: Sequence[Asked]) -> bool:
    """Whether all of these, which go by states of nodes, may have bounds."""
    # In cells without places for pods nobody looks: that a filter cares about these is told by its offering.
    return (
        any(asked.has_use_rooms for asked in filters)
        and all(asked.of_traits or asked.has_use_rooms for asked in filters)
        and all(asked.of_traits or asked.has_use_score for asked in scorers)
        and all(asked.of_traits for asked in raw_scorers)
    )


class KnownKinds:
    """Knowledge of nodes by their traits, for all pods that the plugins that go by traits sign alike."""

    __slots__ = ("alone", "by_traits")

    def __init__(self) -> None:
        self.by_traits: dict[int, TraitKind] = {}
        self.alone: dict[tuple[int, int], int] = {}
        """Number of a plugin and raw score → what that is normalised to where no node has another one."""


class TraitKinds:
    """Of one shape, by the number of the traits."""

    def __init__(self, evaluation: Evaluation, known: KnownKinds) -> None:
        """`known` is shared with shapes that the plugins that go by traits cannot tell from this one."""
        self._evaluation = evaluation
        self._alone = known.alone
        self._kinds = known.by_traits
        self._judges: dict[int, Judge] = {}
        """Those that somebody asked for, or that came with a new kind: with hundreds of shapes and dozens of traits all would be too many."""

    def of(self, traits: int, sample: Callable[[], NodeInfo]) -> TraitKind:
        """`sample` gives a node with these traits. Raises NoBounds, or NotFast."""
        known = self._kinds.get(traits)
        if known is None:
            node = sample()
            known = self._made(node)
            if known.passes:
                # Raises NoBounds where a plugin has no function for such nodes.
                self.judge(traits, lambda: node)
            self._kinds[traits] = known
        elif known.passes and not self._judges:
            # For these nodes plugins have functions, for pods that they cannot tell from this one; whether they have for this one is asked once.
            self.judge(traits, sample)
        return known

    def alone(self, number: int, raw: int) -> int:
        """Return what this raw score of the plugin of this number is normalised to where no node has another one. Raises NotFast."""
        known = self._alone.get((number, raw))
        if known is None:
            evaluation = self._evaluation
            asked = evaluation.raw_scorers[number]
            (known,) = asked.normalized(evaluation.state, evaluation.pod, (), [raw])
            self._alone[number, raw] = known
        return known

    def judge(self, traits: int, sample: Callable[[], NodeInfo]) -> Judge:
        """For nodes with these traits, of which `sample` gives one. Raises NoBounds."""
        known = self._judges.get(traits)
        if known is None:
            known = self._judges[traits] = self._judge(sample())
        return known

    def verdict(self, state: NodeState, sample: Callable[[NodeState], NodeInfo]) -> tuple[int, ...] | None:
        """`sample` gives a node in a state. The sum of the scores and the raw scores to be normalised; None where a filter does not let the pod on such nodes."""
        cell = state.cell
        if cell.is_full:
            return None
        kind, judge = self._kinds.get(cell.traits), self._judges.get(cell.traits)
        if kind is None:
            kind = self.of(cell.traits, lambda: sample(state))
        if not kind.passes:
            return None
        if judge is None:
            judge = self.judge(cell.traits, lambda: sample(state))
        use = state.use
        if not judge.has_room(use):
            return None
        return kind.fixed + judge.score(use), *kind.raws

    def _made(self, node: NodeInfo) -> TraitKind:
        evaluation = self._evaluation
        state, pod = evaluation.state, evaluation.pod
        for asked in evaluation.filters:
            if asked.of_traits and asked.verdict(state, pod, node) is not None:
                return TraitKind(False)
        fixed = 0
        for asked in evaluation.scorers:
            if asked.of_traits:
                fixed += asked.weight * asked.raw_score(state, pod, node)
        raws = tuple([asked.raw_score(state, pod, node) for asked in evaluation.raw_scorers])
        return TraitKind(True, fixed, raws)

    def _judge(self, node: NodeInfo) -> Judge:
        evaluation = self._evaluation
        rooms = [asked.plugin.use_fits(evaluation.state, evaluation.pod, node) for asked in evaluation.rooms]
        if None in rooms:
            raise NoBounds
        scores = [(asked.weight, _use_score(asked, evaluation, node)) for asked in evaluation.uses]
        return Judge(tuple(rooms), tuple(scores))


def _use_score(asked: Asked, evaluation: Evaluation, node: NodeInfo) -> Callable[[NodeUse], int]:
    found: Callable[[NodeUse], int] | None = asked.plugin.use_score(evaluation.state, evaluation.pod, node)
    if found is None:
        raise NoBounds
    return found

"""Which of several possible preemptions hurts least: the importance of victims, and kube-scheduler's six rules (`rank` has five, the sixth is the order in which they come)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

from tidelog.api.times import parse_time
from tidelog.framework.node_info import NodeInfo, PodInfo

_PARTS = re.compile(r"([^0-9]*)([0-9]*)")
_SHIFT = 1 << 31
"""Added to every priority before they are summed up, so that one more victim always counts, of negative priority too."""


Worth = tuple[int, int, int, int]
"""The criteria by which candidates are compared before it counts who was started when."""


Rank = tuple[int, int, int, int, int]
"""All criteria but the order of the search."""


class Candidate(NamedTuple):
    """A node on which the preemptor would fit if these pods were not there."""

    node: str
    victims: tuple[PodInfo, ...]
    """The most important first. Never empty."""
    violations: int
    """How many of them break a disruption budget."""
    protected: frozenset[str] = frozenset()
    """Uids of those whose budgets must not be broken."""
    spared: tuple[PodInfo, ...] = ()
    """Pods of lower priority that can stay, the most important first."""


def start_of(pod: PodInfo, at: int) -> int:
    """When the pod was started; one that does not say has been started just now."""
    text = pod.pod.status.start_time
    if not text:
        return at
    try:
        return parse_time(text)
    except ValueError:
        return at


def importance(pod: PodInfo, at: int) -> tuple[int, int]:
    """Sorts the most important pod first: the higher priority, then the longer running."""
    return (-pod.priority, start_of(pod, at))


def possible_victims(node: NodeInfo, pod: PodInfo, at: int) -> list[PodInfo]:
    """The node's pods of lower priority than this one, `by_importance`."""
    return by_importance([other for other in node.pods.values() if other.priority < pod.priority], at)


def by_importance(pods: Iterable[PodInfo], at: int) -> list[PodInfo]:
    """The pods, most important first; among equals by name, numbers in it as numbers: the last replicas go first."""
    return sorted(pods, key=lambda pod: (*importance(pod, at), _natural(pod.name), pod.namespace))


@lru_cache(maxsize=8192)
def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """Sorts `web-2` before `web-10`."""
    return tuple((text, int(digits or -1)) for text, digits in _PARTS.findall(name))


class Twin:
    """A candidate on a node that is like one for which it is known which victims there are, none of which says when it was started.

    Its victims are looked up when somebody asks for them: of hundreds of candidates one is taken.
    """

    def __init__(self, node: NodeInfo, priority: int, like: Pattern) -> None:
        """`priority` is the preemptor's."""
        self._node = node
        self._priority = priority
        self._like = like
        self.node = node.name
        self.violations = 0
        self.worth = like.worth

    @cached_property
    def _found(self) -> Candidate:
        lower = [other for other in self._node.pods.values() if other.priority < self._priority]
        return self._like.on(self.node, by_importance(lower, 0))

    @property
    def victims(self) -> tuple[PodInfo, ...]:
        return self._found.victims

    @property
    def protected(self) -> frozenset[str]:
        return self._found.protected

    @property
    def spared(self) -> tuple[PodInfo, ...]:
        return self._found.spared


class Pattern(NamedTuple):
    """A candidate with places in the order of importance instead of pods."""

    victims: tuple[int, ...]
    protected: tuple[int, ...]
    spared: tuple[int, ...]
    worth: Worth

    @classmethod
    def of(cls, candidate: Candidate | Twin, lower: Sequence[PodInfo]) -> Pattern:
        """`lower` are the pods that came into question, the most important first."""
        place = {pod.uid: i for i, pod in enumerate(lower)}
        return cls(
            tuple(place[pod.uid] for pod in candidate.victims),
            tuple(sorted(place[uid] for uid in candidate.protected)),
            tuple(place[pod.uid] for pod in candidate.spared),
            worth(candidate),
        )

    def on(self, node: str, lower: Sequence[PodInfo]) -> Candidate:
        """The candidate on another node where pods of the same kinds come into question."""
        return Candidate(
            node,
            tuple([lower[i] for i in self.victims]),
            0,
            frozenset(lower[i].uid for i in self.protected),
            tuple([lower[i] for i in self.spared]),
        )


def ranked(candidates: Iterable[Candidate | Twin], at: int) -> list[Candidate | Twin]:
    """The candidates, the best first; among equals in the order in which they come."""
    return sorted(candidates, key=lambda candidate: rank(candidate, at))


def rank(candidate: Candidate | Twin, at: int) -> Rank:
    """Criteria, in this order, the least first:

    1. fewest violations of budgets; 2. lowest priority of the first victim; 3. smallest sum of the (shifted) priorities;
    4. fewest victims; 5. latest start of the one that runs longest among the victims of the highest priority.
    """
    if isinstance(candidate, Twin):
        return *candidate.worth, -at
    # The first victim is of the highest priority, and of those the one that runs longest.
    return *worth(candidate), -start_of(candidate.victims[0], at)


def worth(candidate: Candidate | Twin) -> Worth:
    """The first four criteria."""
    victims = candidate.victims
    total = sum([pod.priority for pod in victims]) + len(victims) * _SHIFT
    return (candidate.violations, victims[0].priority, total, len(victims))

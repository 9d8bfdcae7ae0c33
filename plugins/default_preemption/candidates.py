"""Which of several possible preemptions hurts least: the importance of victims, and kube-scheduler's six rules (`rank` has five, the sixth is the order in which they come)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from tidelog.api.times import parse_time
from tidelog.framework.node_info import NodeInfo, PodInfo

_PARTS = re.compile(r"([^0-9]*)([0-9]*)")
_SHIFT = 1 << 31
"""Added to every priority before they are summed up, so that one more victim always counts, of negative priority too."""


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


def ranked(candidates: Iterable[Candidate], at: int) -> list[Candidate]:
    """The candidates, the best first; among equals in the order in which they come."""
    return sorted(candidates, key=lambda candidate: rank(candidate, at))


def rank(candidate: Candidate, at: int) -> tuple[int, int, int, int, int]:
    """Criteria, in this order, the least first:

    1. fewest violations of budgets; 2. lowest priority of the first victim; 3. smallest sum of the (shifted) priorities;
    4. fewest victims; 5. latest start of the one that runs longest among the victims of the highest priority.
    """
    victims = candidate.victims
    first = victims[0]  # Of the highest priority, and of those the one that runs longest.
    total = sum([pod.priority for pod in victims]) + len(victims) * _SHIFT
    return (candidate.violations, first.priority, total, len(victims), -start_of(first, at))

"""Nominations: the pods that are to get a node as soon as others have left it, as the filters ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidelog.framework.node_info import PodInfo


class NominatedPods(Protocol):
    """Pods for which preemption made room somewhere; the queue's nominator provides them."""

    def pods_on(self, node: str) -> Sequence[PodInfo]:
        """The pods nominated to the node of this name, in a reproducible order."""

    def nodes(self) -> Sequence[str]:
        """The names of the nodes to which somebody is nominated."""


class FixedNominations:
    """Nominations that do not change, by node: none at all, or those of a test or a case."""

    def __init__(self, pods: Mapping[str, Sequence[PodInfo]] | None = None) -> None:
        self._pods = pods or {}

    def pods_on(self, node: str) -> Sequence[PodInfo]:
        return self._pods.get(node, ())

    def nodes(self) -> Sequence[str]:
        return list(self._pods)

"""Partitions: sets of nodes with an equal raw score, which the plugin normalises over the feasible ones; and how such sets go together."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.framework.interface import CycleState
from tidelog.framework.node_info import PodInfo
from tidelog.framework.node_sets import Bits, Groups
from tidelog.scheduler.evaluation.asking import Asked


class Partition:
    """Nodes by a raw score that depends on their state, and how the plugin normalises such scores."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.sets: dict[int, Bits] = {}
        self._alone: dict[int, int] = {}
        """Raw score → what it is normalised to where no node has another one."""

    def normalized(self, state: CycleState, pod: PodInfo, feasible: Bits) -> Groups:
        """The feasible nodes by normalised score."""
        sets = self.sets
        if len(sets) > 1:
            groups = self.groups(feasible)
            if len(groups) > 1:
                return normalized(self.asked, state, pod, groups)
            ((raw, _),) = groups
        else:
            (raw,) = sets
        known = self._alone.get(raw)
        if known is None:
            ((known, _),) = normalized(self.asked, state, pod, [(raw, feasible)])
            self._alone[raw] = known
        return [(known, feasible)]

    def add(self, raw: int, bits: Bits) -> None:
        self.sets[raw] = self.sets.get(raw, 0) | bits

    def remove(self, raw: int, bits: Bits) -> None:
        left = self.sets[raw] ^ bits
        if left:
            self.sets[raw] = left
        else:
            del self.sets[raw]

    def groups(self, feasible: Bits) -> Groups:
        """Those of the feasible nodes with each raw score."""
        return [(raw, both) for raw, bits in self.sets.items() if (both := bits & feasible)]


def normalized(asked: Asked, state: CycleState, pod: PodInfo, groups: Groups) -> Groups:
    """Once for each distinct raw score: how many nodes have it does not matter to a plugin that declares what its score depends on."""
    if not asked.normalizes:
        return groups
    raws = asked.normalized(state, pod, (), [raw for raw, _ in groups])
    return [(score, bits) for score, (_, bits) in zip(raws, groups, strict=True)]


def combined(feasible: Bits, scores: Iterable[tuple[int, Groups]]) -> Groups:
    """The nodes by the sum of these weighted scores; a sum may come more than once."""
    groups: Groups = [(0, feasible)]
    for weight, own in scores:
        if len(own) == 1:
            more = weight * own[0][0]
            groups = [(score + more, bits) for score, bits in groups]
        else:
            groups = [
                (score + weight * more, both)
                for score, bits in groups
                for more, nodes in own
                if (both := bits & nodes)
            ]
    return groups

"""The first pod of a shape: where a table would be made for one question only, bounds spare most of the work.

Nodes that are about equally full are one *cell* of the index. For a cell it is quick to say how good a node in it can be at most, so
the cells are gone through from the best bound down, and only states that can still win are asked about. It applies where the default
scores for resources decide: nothing about labels or domains, one kind of taint, cpu and memory only. Whether a pod fits is told for whole
cells as well, all but those on the edge.

Costs two microseconds a cell, and half of one for each state that had to be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tidelog.api.resources import CPU, MEMORY
from tidelog.plugins.image_locality import ImageLocality
from tidelog.plugins.node_resources.balanced_allocation import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
)
from tidelog.plugins.node_resources.fit import NodeResourcesFit, NodeResourcesFitArgs
from tidelog.scheduler.evaluation.node_index import Bits, Cell, NodeIndex, NodeState, first_from, first_place
from tidelog.scheduler.evaluation.shape import Evaluation, Found

_ONLY = frozenset((CPU, MEMORY))
_SLACK = 1
"""Bounds are computed in another order than scores, and may differ from them by a rounding."""


class _Kind(NamedTuple):
    """What nodes with equal objects (but for names and labels) have in common for the pod."""

    passes: bool
    fixed: int
    """The part of the score that does not depend on the pods there."""
    taints: int


def find_once(index: NodeIndex, evaluation: Evaluation, start: int) -> Found | None:
    """The best node; None where it does not apply, or no node is left."""
    search = _Search.of(index, evaluation)
    return None if search is None else search.run(start)


class _Search:
    def __init__(self, index: NodeIndex, evaluation: Evaluation) -> None:
        self._index = index
        self._evaluation = evaluation
        pod = evaluation.pod
        self._cpu, self._memory = pod.requests.get(CPU, 0), pod.requests.get(MEMORY, 0)
        self._scored_cpu, self._scored_memory = (
            pod.score_requests.get(CPU, 0),
            pod.score_requests.get(MEMORY, 0),
        )
        self._kinds: dict[object, _Kind] = {}
        self._fit = _only(evaluation.filters, NodeResourcesFit)
        self._filters = [plugin for plugin in evaluation.filters if plugin is not self._fit]
        weights = {type(plugin): weight for plugin, weight in evaluation.scorers}
        self._fit_weight = weights.get(NodeResourcesFit, 0)
        self._balance_weight = weights.get(NodeResourcesBalancedAllocation, 0)

    @classmethod
    def of(cls, index: NodeIndex, evaluation: Evaluation) -> _Search | None:
        """None where the bounds would not hold."""
        if evaluation.labelled is not None or evaluation.preferring is not None:
            return None
        pod = evaluation.pod
        if pod.host_ports or not pod.requests.keys() <= _ONLY or not pod.score_requests.keys() <= _ONLY:
            return None
        for plugin, _ in evaluation.scorers:
            if not _is_default(plugin):
                return None
        if not any(isinstance(plugin, NodeResourcesFit) for plugin in evaluation.filters):
            return None
        return cls(index, evaluation)

    def run(self, start: int) -> Found | None:
        bounded: list[tuple[int, int, Cell, Sequence[NodeState]]] = []
        taints: int | None = None
        count = 0
        alone = 0
        for number, cell in enumerate(self._index.cells.values()):
            if cell.is_full or not cell.bits:
                continue
            kind = self._kind(cell)
            if not kind.passes:
                continue
            states, bits = self._fitting(cell)
            if not bits:
                continue
            if taints is not None and taints != kind.taints:
                return None
            taints, alone = kind.taints, bits
            count += bits.bit_count()
            bounded.append((self._bound(cell, kind), number, cell, states))
        if not count:
            return None
        if count == 1:
            return Found(first_place(alone), 1, 1, 0)
        assert taints is not None
        best, winners = self._best(bounded)
        return Found(first_from(winners, start), count, winners.bit_count(), best + self._taint_score(taints))

    def _best(self, bounded: list[tuple[int, int, Cell, Sequence[NodeState]]]) -> tuple[int, Bits]:
        found = (-1, 0)
        for bound, _, cell, states in sorted(bounded, key=lambda entry: -entry[0]):
            if bound < found[0]:
                break
            found = (self._plainly_best if self._is_plain(cell) else self._best_asked)(cell, states, *found)
        return found

    def _is_plain(self, cell: Cell) -> bool:
        """It has both resources, and where the pod fits, no more than all of a node would be taken: there the plugin cuts shares off."""
        return bool(
            cell.cpu
            and cell.memory
            and (self._cpu or cell.cpu_high <= cell.cpu)
            and (self._memory or cell.memory_high <= cell.memory)
        )

    def _best_asked(
        self, _cell: Cell, states: Sequence[NodeState], best: int, winners: Bits
    ) -> tuple[int, Bits]:
        """The best total of these states and of what is known, and the nodes with it."""
        evaluation = self._evaluation
        for state in states:
            node = self._index.sample(state)
            total = sum(
                weight * int(plugin.score(evaluation.state, evaluation.pod, node))
                for plugin, weight in evaluation.scorers
            )
            if total > best:
                best, winners = total, state.bits
            elif total == best:
                winners |= state.bits
        return best, winners

    def _plainly_best(
        self, cell: Cell, states: Sequence[NodeState], best: int, winners: Bits
    ) -> tuple[int, Bits]:
        """As `_best_asked` on nodes that have room and both resources: the default plugins' arithmetic, written out.

        This is the innermost loop for pods that are all different; one step takes half a microsecond.
        """
        has_cpu, has_memory = cell.cpu, cell.memory
        cpu, memory = self._cpu, self._memory
        free_cpu, free_memory = has_cpu - self._scored_cpu, has_memory - self._scored_memory
        fit_weight, balance_weight = self._fit_weight, self._balance_weight
        fixed = self._kinds[cell.static].fixed + 50 * balance_weight
        for state in states:
            requested_cpu, requested_memory, scored_cpu, scored_memory, before = state.use
            left_cpu, left_memory = free_cpu - scored_cpu, free_memory - scored_memory
            free = left_cpu * 100 // has_cpu if left_cpu > 0 else 0
            if left_memory > 0:
                free += left_memory * 100 // has_memory
            apart = abs(((requested_cpu + cpu) / has_cpu - (requested_memory + memory) / has_memory) / 2)
            gain = int((1 - apart) * 100) - before
            total = fixed + fit_weight * (free // 2) + balance_weight * ((50 + gain) // 2)
            if total > best:
                best, winners = total, state.bits
            elif total == best:
                winners |= state.bits
        return best, winners

    def _kind(self, cell: Cell) -> _Kind:
        known = self._kinds.get(cell.static)
        if known is None:
            evaluation = self._evaluation
            state, pod = evaluation.state, evaluation.pod
            node = self._index.snapshot.nodes[first_place(cell.bits)]
            passes = all(plugin.filter(state, pod, node) is None for plugin in self._filters)
            fixed = sum(
                weight * plugin.score(state, pod, node)
                for plugin, weight in evaluation.scorers
                if isinstance(plugin, ImageLocality)
            )
            tainted = evaluation.tainted
            raw = 0 if tainted is None else tainted[0].score(state, pod, node)
            known = self._kinds[cell.static] = _Kind(passes, fixed, raw)
        return known

    def _taint_score(self, raw: int) -> int:
        tainted = self._evaluation.tainted
        if tainted is None:
            return 0
        plugin, weight = tainted
        (score,) = plugin.normalize_scores(self._evaluation.state, self._evaluation.pod, (), [raw])
        return int(weight * score)

    def _fitting(self, cell: Cell) -> tuple[Sequence[NodeState], Bits]:
        """The states of the cell that have room, and their nodes."""
        cpu, memory = self._cpu, self._memory
        if (not cpu or cell.cpu_high + cpu <= cell.cpu) and (
            not memory or cell.memory_high + memory <= cell.memory
        ):
            return list(cell.states), cell.bits
        if (cpu and cell.cpu_low + cpu > cell.cpu) or (memory and cell.memory_low + memory > cell.memory):
            return (), 0
        evaluation, found, bits = self._evaluation, [], 0
        for state in cell.states:
            node = self._index.sample(state)
            if self._fit.filter(evaluation.state, evaluation.pod, node) is None:
                found.append(state)
                bits |= state.bits
        return found, bits

    def _bound(self, cell: Cell, kind: _Kind) -> int:
        """No node of the cell that has room scores more, taints aside."""
        bound = kind.fixed
        capacities = [
            (amount, low + added)
            for amount, low, added in (
                (cell.cpu, cell.scored_cpu_low, self._scored_cpu),
                (cell.memory, cell.scored_memory_low, self._scored_memory),
            )
            if amount
        ]
        if capacities:
            free = sum((amount - used) * 100 // amount for amount, used in capacities if used <= amount)
            bound += self._fit_weight * (free // len(capacities))
        if self._balance_weight:
            bound += self._balance_weight * self._balance_bound(cell)
        return bound

    def _balance_bound(self, cell: Cell) -> int:
        if not cell.cpu or not cell.memory:
            return 100
        # By how much the share of cpu exceeds that of memory: at least and at most, before and with the pod.
        least = cell.cpu_low / cell.cpu - cell.memory_high / cell.memory
        most = cell.cpu_high / cell.cpu - cell.memory_low / cell.memory
        more = self._cpu / cell.cpu - self._memory / cell.memory
        worst_before = 100 - 50 * max(abs(least), abs(most))
        least, most = least + more, most + more
        nearest = 0.0 if least <= 0 <= most else min(abs(least), abs(most))
        best_after = 100 - 50 * nearest
        return 50 + int(50 + best_after - max(50.0, worst_before)) // 2 + _SLACK


def _only(plugins: Sequence[Any], kind: type) -> Any:
    return next(plugin for plugin in plugins if isinstance(plugin, kind))


def _is_default(plugin: Any) -> bool:
    """Whether the bounds hold for this plugin's scores."""
    if isinstance(plugin, NodeResourcesFit):
        return bool(plugin.args == NodeResourcesFitArgs())
    if isinstance(plugin, NodeResourcesBalancedAllocation):
        return bool(plugin.args == NodeResourcesBalancedAllocationArgs())
    return isinstance(plugin, ImageLocality)

"""NodeResourcesBalancedAllocation: rather use a node's resources evenly than leave it with memory and no cpu.

What is scored is the improvement: how even the node would be with the pod, against how even it is. A typical score is about 75.
Real requests count here, without the defaults that NodeResourcesFit's score adds; a pod that requests nothing is not scored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.resources import CPU, MEMORY, counts, is_scalar
from tidelog.framework.arithmetic import div_trunc
from tidelog.framework.interface import (
    SKIP,
    CycleState,
    Depends,
    Handle,
    Plugin,
    PluginArgs,
    PreScorePlugin,
    ScorePlugin,
    Status,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import (
    NodeUse,
    PodParts,
    ScoresTogether,
    SignsPods,
    Together,
    UseScores,
)
from tidelog.plugins.node_resources.many_pods import (
    BalanceBounds,
    BalancesOfPods,
    BalancesOfUses,
    evenness,
    is_countable,
)
from tidelog.plugins.node_resources.scoring import (
    DEFAULT_RESOURCES,
    ResourceSpec,
    resource_name_errors,
    weighted_resources,
)

_STATE = "NodeResourcesBalancedAllocation.requests"


class NodeResourcesBalancedAllocationArgs(PluginArgs, frozen=True, kw_only=True):
    resources: tuple[ResourceSpec, ...] = DEFAULT_RESOURCES
    """Their weights must be 1: the deviation has no use for others."""


class NodeResourcesBalancedAllocation(Plugin):
    """Prefers nodes whose use of the configured resources the pod makes more even."""

    name = "NodeResourcesBalancedAllocation"
    Args = NodeResourcesBalancedAllocationArgs
    score_depends = Depends.STATE
    signed_parts = PodParts.SPEC | PodParts.REQUESTS

    def __init__(self, args: NodeResourcesBalancedAllocationArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._resources = [name for name, _ in weighted_resources(args.resources) if counts(name)]

    @classmethod
    def validate_args(cls, args: Any, path: str, gates: FeatureGates) -> list[FieldError]:
        return [
            *_weight_errors(args.resources, f"{path}.resources"),
            *resource_name_errors(args.resources, f"{path}.resources"),
        ]

    def sign_pod(self, pod: PodInfo) -> object:
        return pod.requests

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        requests = self._requests(pod)
        if not any(amount for _, amount in requests):
            return SKIP
        state.write(_STATE, requests)
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        requests: list[tuple[str, int]] = state.read(_STATE) or self._requests(pod)
        before: list[float] = []
        after: list[float] = []
        for name, added in requests:
            capacity = node.allocatable.get(name, 0)
            if capacity:
                taken = node.requested.get(name, 0)
                before.append(min(1.0, taken / capacity))
                after.append(min(1.0, (taken + added) / capacity))
        return 50 + div_trunc(50 + balance(after) - balance(before), 2)

    def use_score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Callable[[NodeUse], int] | None:
        if self._resources != [CPU, MEMORY]:
            return None
        cpu, memory = node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0)
        if not cpu or not memory:
            # Of one resource there is nothing to balance.
            return _even
        return partial(_improvement, cpu, memory, pod.requests.get(CPU, 0), pod.requests.get(MEMORY, 0))

    def scores_together(self) -> Together | None:
        if self._resources != [CPU, MEMORY]:
            return None
        return Together(
            is_countable,
            partial(BalancesOfPods, _amounts),
            partial(BalancesOfUses, _amounts),
            partial(BalanceBounds, _amounts),
        )

    def _requests(self, pod: PodInfo) -> list[tuple[str, int]]:
        """(resource, what the pod adds); a scalar resource that the pod does not ask for is left out."""
        requests = pod.requests
        return [
            (name, requests.get(name, 0))
            for name in self._resources
            if requests.get(name, 0) or not is_scalar(name)
        ]


def _amounts(pod: PodInfo) -> tuple[int, int]:
    return pod.requests.get(CPU, 0), pod.requests.get(MEMORY, 0)


def _even(_: object) -> int:
    return 75


def _improvement(cpu: int, memory: int, more_cpu: int, more_memory: int, use: NodeUse) -> int:
    """As `score`, written out for two resources."""
    cpu_taken, memory_taken, _, _ = use
    cpu_after, memory_after = cpu_taken + more_cpu, memory_taken + more_memory
    if cpu_after > cpu or memory_after > memory:
        cpu_taken, memory_taken = min(cpu_taken, cpu), min(memory_taken, memory)
        cpu_after, memory_after = min(cpu_after, cpu), min(memory_after, memory)
    before = evenness(cpu_taken / cpu, memory_taken / memory)
    after = evenness(cpu_after / cpu, memory_after / memory)
    return 50 + (50 + after - before) // 2  # Either is from 50 to 100.


def balance(fractions: Sequence[float]) -> int:
    """100 for equal fractions, down to 50: one less their standard deviation, in percent."""
    return int((1 - _deviation(fractions)) * 100)


def _deviation(fractions: Sequence[float]) -> float:
    """The order of the operations is kube-scheduler's: the last bit decides between two scores now and then."""
    if len(fractions) < 2:
        return 0.0
    if len(fractions) == 2:
        return abs((fractions[0] - fractions[1]) / 2)
    total = squares = 0.0
    for fraction in fractions:  # Not `sum`, which newer Pythons compute more exactly.
        total += fraction
    mean = total / len(fractions)
    for fraction in fractions:
        squares += (fraction - mean) * (fraction - mean)
    return math.sqrt(squares / len(fractions))


def _weight_errors(resources: Sequence[ResourceSpec], path: str) -> Iterator[FieldError]:
    for i, spec in enumerate(resources):
        if spec.weight not in (0, 1):
            rule = "resource weight must be 1"
            yield FieldError(path=f"{path}[{i}].weight", kind="Invalid", value=spec.weight, rule=rule)


_pre_score: type[PreScorePlugin] = NodeResourcesBalancedAllocation
_score: type[ScorePlugin] = NodeResourcesBalancedAllocation
_signs: type[SignsPods] = NodeResourcesBalancedAllocation
_use_scores: type[UseScores] = NodeResourcesBalancedAllocation
_together: type[ScoresTogether] = NodeResourcesBalancedAllocation

"""NodeResourcesFit: a pod may run where what it requests is still free, and would rather run where the strategy says.

The filter counts real requests. The score counts a container that does not mention cpu or memory with a default, so that pods
without requests do not pile up on one node (`tidelog.api.resources`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.objects import DeviceClass, Node, Pod
from tidelog.api.resources import (
    CLASS_PREFIX,
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    counted,
    counts,
    is_extended,
    is_scalar,
    occupied_requests,
    parse_requests,
    pod_requests,
)
from tidelog.api.validation.names import label_key
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import (
    Code,
    CycleState,
    Depends,
    FilterPlugin,
    Handle,
    Plugin,
    PluginArgs,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
    Status,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import (
    NodeUse,
    PodParts,
    RoomsTogether,
    ScoresTogether,
    SignsPods,
    SumsUp,
    Together,
    UseRooms,
    UseScores,
)
from tidelog.plugins.node_resources.many_pods import (
    FreeOfPods,
    FreeOfUses,
    RoomsOfPods,
    RoomsOfUses,
    is_countable,
)
from tidelog.plugins.node_resources.scoring import (
    ScoringStrategy,
    Use,
    least_allocated,
    strategy_errors,
    strategy_of,
    weighted_resources,
)

REASON_TOO_MANY_PODS = "Too many pods"
_CPU_AND_MEMORY = frozenset((CPU, MEMORY))
_FIRST = (CPU, MEMORY, EPHEMERAL_STORAGE)
_FIRST_ALL = frozenset(_FIRST)
_NONE: frozenset[str] = frozenset()
_FILTER_STATE = "NodeResourcesFit.wanted"
_SCORE_STATE = "NodeResourcesFit.scored"

Wanted = tuple[tuple[str, int], ...]
"""(resource, amount) of what a pod really asks for, in the order of the reasons."""


def reason_insufficient(resource: str) -> str:
    """Why a node without enough of the resource is rejected."""
    return f"Insufficient {resource}"


class NodeResourcesFitArgs(PluginArgs, frozen=True, kw_only=True):
    ignored_resources: tuple[str, ...] = ()
    """Extended resources that somebody else looks after."""
    ignored_resource_groups: tuple[str, ...] = ()
    """As `ignoredResources`, for all resources of a domain: `example.com` ignores `example.com/fpga`."""
    scoring_strategy: ScoringStrategy = ScoringStrategy()


class NodeResourcesFit(Plugin):
    """Rejects nodes without enough free resources; scores the others by how full they would be."""

    name = "NodeResourcesFit"
    Args = NodeResourcesFitArgs
    filter_depends = Depends.STATE
    score_depends = Depends.STATE
    signed_parts = PodParts.SPEC | PodParts.REQUESTS

    def __init__(self, args: NodeResourcesFitArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._strategy = strategy_of(args.scoring_strategy)
        self._resources = [
            (name, weight)
            for name, weight in weighted_resources(args.scoring_strategy.resources)
            if counts(name)
        ]
        self._is_least_of_two = self._strategy is least_allocated and (
            _CPU_AND_MEMORY.issuperset(name for name, _ in self._resources)
        )
        """The score is the free part of cpu and memory."""
        self._weights = dict(self._resources)

    @classmethod
    def validate_args(cls, args: Any, path: str, gates: FeatureGates) -> list[FieldError]:
        return [
            *_name_errors(args.ignored_resources, f"{path}.ignoredResources"),
            *_group_errors(args.ignored_resource_groups, f"{path}.ignoredResourceGroups"),
            *strategy_errors(args.scoring_strategy, f"{path}.scoringStrategy"),
        ]

    def sign_pod(self, pod: PodInfo) -> object:
        return (pod.requests, pod.score_requests, sorted(self._backed(pod)))

    # --- filtering ------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        """Never skips: a pod without requests still needs one of the node's places for pods."""
        state.write(_FILTER_STATE, (self.wanted(pod.requests), self._backed(pod)))
        return PreFilterResult()

    def _backed(self, pod: PodInfo) -> frozenset[str]:
        """Resources that a device class serves; a node that has none of one is DynamicResources' business."""
        names = [name for name, amount in pod.requests.items() if amount and "/" in name]
        if not names:
            return _NONE
        backing = self.handle.listers.devices.class_backing
        return frozenset(name for name in names if backing(name) is not None)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        asked: tuple[Wanted, frozenset[str]] | None = state.read(_FILTER_STATE)
        if asked is None:
            asked = (self.wanted(pod.requests), self._backed(pod))
        return _shortage(*asked, node)

    def wanted(self, requests: Mapping[str, int]) -> Wanted:
        """Requests above zero, without the ignored resources: cpu, memory and storage first, then by name."""
        found = [(name, requests[name]) for name in _FIRST if requests.get(name, 0) > 0]
        if not _FIRST_ALL.issuperset(requests):
            found += [
                (name, requests[name])
                for name in sorted(requests)
                if name not in _FIRST and requests[name] > 0 and not self._is_ignored(name)
            ]
        return tuple(found)

    def _is_ignored(self, name: str) -> bool:
        if not (self._ignored or self._ignored_groups) or not is_extended(name):
            return False
        return name in self._ignored or name.split("/", 1)[0] in self._ignored_groups

    # --- scoring --------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        state.write(_SCORE_STATE, self._scored(pod))
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        scored: list[tuple[str, int, int]] | None = state.read(_SCORE_STATE)
        return self._strategy(_uses(self._scored(pod) if scored is None else scored, node))

    def _scored(self, pod: PodInfo) -> list[tuple[str, int, int]]:
        """(resource, what the pod adds, weight); a scalar resource that the pod does not ask for is left out."""
        requests = pod.score_requests
        return [
            (name, requests.get(name, 0), weight)
            for name, weight in self._resources
            if requests.get(name, 0) or not is_scalar(name)
        ]

    # --- what it offers -------------------------------------------------------------------------------------------

    def needs(self, pod: PodInfo) -> Mapping[str, int]:
        return {n: amount for n, amount in pod.requests.items() if amount > 0 and not self._is_ignored(n)}

    def use_fits(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Callable[[NodeUse], bool] | None:
        asked: tuple[Wanted, frozenset[str]] | None = state.read(_FILTER_STATE)
        cpu = memory = 0
        for name, amount in self.wanted(pod.requests) if asked is None else asked[0]:
            if name == CPU:
                cpu = amount
            elif name == MEMORY:
                memory = amount
            else:
                return None
        # What is not asked for may be overcommitted.
        cpu_most = node.allocatable.get(CPU, 0) - cpu if cpu else math.inf
        memory_most = node.allocatable.get(MEMORY, 0) - memory if memory else math.inf
        return partial(_has_room, cpu_most, memory_most)

    def rooms_together(self) -> Together | None:
        return Together(
            is_countable, partial(RoomsOfPods, self._room_for), partial(RoomsOfUses, self._room_for)
        )

    def _room_for(self, pod: PodInfo) -> tuple[int, int]:
        requests = pod.requests
        return requests.get(CPU, 0), requests.get(MEMORY, 0)

    def scores_together(self) -> Together | None:
        if not self._is_least_of_two or not self._resources:
            return None
        given = self._weights.get(CPU, 0), self._weights.get(MEMORY, 0), _scored_amounts
        uses = partial(FreeOfUses, *given)
        return Together(is_countable, partial(FreeOfPods, *given), uses, uses)

    def use_score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Callable[[NodeUse], int] | None:
        if not self._is_least_of_two:
            return None
        there, weights, requests = node.allocatable, self._weights, pod.score_requests
        cpu, memory = there.get(CPU, 0), there.get(MEMORY, 0)
        cpu_weight = weights.get(CPU, 0) if cpu else 0
        memory_weight = weights.get(MEMORY, 0) if memory else 0
        total = cpu_weight + memory_weight
        if not total:
            return _nothing
        cpu, memory = cpu or 1, memory or 1
        cpu_free, memory_free = cpu - requests.get(CPU, 0), memory - requests.get(MEMORY, 0)
        return partial(_free_part, (cpu, cpu_free, cpu_weight), (memory, memory_free, memory_weight), total)

    # --- hints ----------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[EventRegistration]:
        others = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN)
        itself = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCALE_DOWN)
        nodes = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)
        return [
            EventRegistration(others, self._other_pod_changed),
            EventRegistration(itself, _pod_asks_for_less),
            EventRegistration(nodes, self._node_changed),
            EventRegistration(
                ClusterEvent(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE), _class_changed
            ),
        ]

    def _other_pod_changed(self, waiting: WaitingPod, old: Pod, new: Pod | None) -> Hint:
        """A pod that left its place, or one that takes less of something the waiting pod asks for."""
        if new is None:
            had_place = old.spec.node_name or old.status.nominated_node_name
            return Hint.QUEUE if had_place else Hint.SKIP
        if not new.spec.node_name:
            return Hint.SKIP
        before, after = occupied_requests(old), occupied_requests(new)
        wanted = self.wanted(counted(pod_requests(waiting.pod)))
        less = any(after.get(name, 0) < before.get(name, 0) for name, _ in wanted)
        return Hint.QUEUE if less else Hint.SKIP

    def _node_changed(self, waiting: WaitingPod, old: Node | None, new: Node) -> Hint:
        """Only if the pod fits on the empty node, and the node is new or has more of something that the pod needs."""
        wanted = self.wanted(counted(pod_requests(waiting.pod)))
        node = NodeInfo(new)
        if _shortage(wanted, self._backed(PodInfo(waiting.pod)), node) is not None:
            return Hint.SKIP
        if old is None:
            return Hint.QUEUE
        before, after = parse_requests(old.status.allocatable), node.allocatable
        grew = (after.get(name, 0) > before.get(name, 0) for name in (PODS, *(name for name, _ in wanted)))
        return Hint.QUEUE if any(grew) else Hint.SKIP


def _class_changed(waiting: WaitingPod, old: DeviceClass | None, new: DeviceClass) -> Hint:
    """A class that serves a resource of the pod is new, or serves it now."""
    requests = counted(pod_requests(waiting.pod))
    explicit = new.spec.extended_resource_name
    if old is None:
        named = requests.get(f"{CLASS_PREFIX}{new.metadata.name}", 0) or requests.get(explicit or "", 0)
        return Hint.QUEUE if named else Hint.SKIP
    is_new = explicit != old.spec.extended_resource_name and bool(requests.get(explicit or "", 0))
    return Hint.QUEUE if is_new else Hint.SKIP


def _nothing(_: object) -> int:
    return 0


def _has_room(cpu_most: float, memory_most: float, use: NodeUse) -> bool:
    return use.cpu <= cpu_most and use.memory <= memory_most


def _free_part(
    of_cpu: tuple[int, int, int], of_memory: tuple[int, int, int], weights: int, use: NodeUse
) -> int:
    """`least_allocated`, written out: of each resource the amount, what the pod leaves of it, and the weight."""
    _, _, cpu_taken, memory_taken = use
    cpu, cpu_free, cpu_weight = of_cpu
    memory, memory_free, memory_weight = of_memory
    cpu_left, memory_left = cpu_free - cpu_taken, memory_free - memory_taken
    free = cpu_left * 100 // cpu * cpu_weight if cpu_left > 0 else 0
    if memory_left > 0:
        free += memory_left * 100 // memory * memory_weight
    return free // weights


def _scored_amounts(pod: PodInfo) -> tuple[int, int]:
    return pod.score_requests.get(CPU, 0), pod.score_requests.get(MEMORY, 0)


def _pod_asks_for_less(waiting: WaitingPod, old: Pod | None, new: Pod | None) -> Hint:
    """The waiting pod itself was scaled down: there is no telling from here which nodes that opens."""
    return Hint.QUEUE


def _shortage(wanted: Wanted, backed: frozenset[str], node: NodeInfo) -> Status | None:
    """All that the node lacks. It is beyond help if it could not hold one of the amounts even when empty."""
    reasons: list[str] = []
    code = Code.UNSCHEDULABLE
    if len(node.pods) >= node.allowed_pods:
        reasons.append(REASON_TOO_MANY_PODS)
    allocatable, requested = node.allocatable, node.requested
    for name, amount in wanted:
        there = allocatable.get(name, 0)
        if amount > there - requested.get(name, 0) and (there or name not in backed):
            reasons.append(reason_insufficient(name))
            if amount > there:
                code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    return Status(code, tuple(reasons)) if reasons else None


def _uses(scored: Sequence[tuple[str, int, int]], node: NodeInfo) -> Iterator[Use]:
    """Return the sum that would be requested of each resource of which the node has any."""
    for name, added, weight in scored:
        capacity = node.allocatable.get(name, 0)
        if capacity:
            if name == CPU:
                taken = node.non_zero_cpu
            elif name == MEMORY:
                taken = node.non_zero_memory
            else:
                taken = node.requested.get(name, 0)
            yield taken + added, capacity, weight


def _name_errors(names: Sequence[str], path: str) -> Iterator[FieldError]:
    for i, name in enumerate(names):
        for rule in label_key(name):
            yield FieldError(path=f"{path}[{i}]", kind="Invalid", value=name, rule=rule)


def _group_errors(groups: Sequence[str], path: str) -> Iterator[FieldError]:
    for i, group in enumerate(groups):
        if "/" in group:
            rule = "resource group name can't contain '/'"
            yield FieldError(path=f"{path}[{i}]", kind="Invalid", value=group, rule=rule)
    yield from _name_errors(groups, path)


_pre_filter: type[PreFilterPlugin] = NodeResourcesFit
_filter: type[FilterPlugin] = NodeResourcesFit
_pre_score: type[PreScorePlugin] = NodeResourcesFit
_score: type[ScorePlugin] = NodeResourcesFit
_signs: type[SignsPods] = NodeResourcesFit
_room: type[UseRooms] = NodeResourcesFit
_use_scores: type[UseScores] = NodeResourcesFit
_rooms_together: type[RoomsTogether] = NodeResourcesFit
_scores_together: type[ScoresTogether] = NodeResourcesFit
_sums: type[SumsUp] = NodeResourcesFit

"""The quick look at a placement: can it be that enough of a group fits, going by sums alone?

Simulating costs every member on every node; summing costs one pass. A placement is turned down only if no order and no choice of nodes
could place the pods that must fit:

- the requests of the cheapest such pods, resource by resource, exceed what is free on all usable nodes together, or
- no single usable node has room for the largest of them, or
- there are more of them than places for pods.

Free is what the filters that sum up (`SumsUp`) would let a pod have, and a node is usable if the filters that look at nothing but the node let some
member on it. Nominated pods, and everything that other filters say, are left out: they can only make it worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidelog.api.objects import Pod
from tidelog.framework.framework import Framework
from tidelog.framework.interface import CycleState
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import SumsUp

NO_NODE = "no usable node"

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Shortage(NamedTuple):
    """Why a placement cannot take the group."""

    reason: str
    plugins: tuple[str, ...]
    """The plugins to blame: an event that one of them finds helpful may change it."""


class AggregateCheck:
    """The check for one group in one attempt. `required`: how many of the members have to fit."""

    def __init__(
        self,
        framework: Framework,
        members: Sequence[PodInfo],
        required: int,
        state: CycleState,
        *,
        pre_filtered: bool = False,
    ) -> None:
        """`pre_filtered`: the state is what PreFilter has made of the first member."""
        self._framework = framework
        self._required = required
        self._sets = pod_sets(members)
        self._sums = framework.summing
        self._states = [CycleState(state.at, None, state.turn) for _ in self._sets]
        if pre_filtered:
            self._states[0] = state
        for set_state, pods in list(zip(self._states, self._sets, strict=True))[pre_filtered:]:
            framework.run_pre_filter(set_state, pods[0])
        static = [framework.static_filters(set_state) for set_state in self._states]
        self._filters = [filters for filters, _ in static]
        self._by_traits = all(by_traits for _, by_traits in static)
        """Nodes with the same traits are as usable as each other."""
        self._usable: dict[object, tuple[bool, tuple[str, ...]]] = {}
        self._least = _cheapest(self._sums, members, required)

    def shortage(self, nodes: Iterable[NodeInfo]) -> Shortage | None:
        """Return the resources that these nodes lack, or None if the group may fit. Looks at no more of them than it takes to see that it may."""
        if not self._sums:
            return None
        blamed = {plugin.name for plugin in self._sums}
        slots = 0
        free = dict.fromkeys(self._least, (0, 0))
        """Resource → what is free on all usable nodes so far, and on the best of them."""
        for node in nodes:
            is_usable, plugins = self._look_at(node)
            if not is_usable:
                blamed.update(plugins)
                continue
            slots += max(0, node.allowed_pods - len(node.pods))
            for name, (total, most) in free.items():
                here = max(0, node.allocatable.get(name, 0) - node.requested.get(name, 0))
                free[name] = (total + here, max(most, here))
            if not self._reason(slots, free):
                return None
        return Shortage(self._reason(slots, free) or NO_NODE, tuple(sorted(blamed)))

    def _look_at(self, node: NodeInfo) -> tuple[bool, tuple[str, ...]]:
        """Whether some member may use the node, and else who keeps them away; the same for every placement it is in."""
        spec = node.node.spec
        key: object = node.name
        if self._by_traits:
            key = (spec.taints, spec.unschedulable, tuple(node.allocatable.items()))
        found = self._usable.get(key)
        if found is None:
            plugins: list[str] = []
            for state, filters, pods in zip(self._states, self._filters, self._sets, strict=True):
                status = self._framework.run_filters_alone(state, pods[0], node, filters)
                if status is None:
                    plugins = []
                    break
                plugins.append(status.plugin)
            found = self._usable[key] = (not plugins, tuple(plugins))
        return found

    def _reason(self, slots: int, free: Mapping[str, tuple[int, int]]) -> str:
        if slots < self._required:
            return f"aggregate: {slots} places for pods free, {self._required} needed"
        for name, (needed, largest) in self._least.items():
            total, most = free[name]
            if needed > total:
                return f"aggregate {name}: {total} free, {needed} needed ({unit(name)})"
            if largest > most:
                return f"{name}: no node has {largest} free, the most is {most} ({unit(name)})"
        return ""


def unit(resource: str) -> str:
    """In which unit an amount is counted here."""
    return {"cpu": "millicores", "memory": "bytes", "ephemeral-storage": "bytes"}.get(resource, "units")


def _cheapest(
    sums: Sequence[SumsUp], members: Sequence[PodInfo], required: int
) -> dict[str, tuple[int, int]]:
    """Resource → the sum and the largest of the smallest requests, as many as have to fit; resources that cost nothing are left out."""
    wanted = [_needed(sums, pod) for pod in members]
    names = dict.fromkeys(name for amounts in wanted for name in amounts)
    found = {name: sorted(amounts.get(name, 0) for amounts in wanted)[:required] for name in sorted(names)}
    return {name: (sum(amounts), amounts[-1]) for name, amounts in found.items() if amounts and amounts[-1]}


def _needed(sums: Sequence[SumsUp], pod: PodInfo) -> dict[str, int]:
    """Return the resources that the pod's node must have free for all of these filters."""
    found: dict[str, int] = {}
    for plugin in sums:
        for name, amount in plugin.needs(pod).items():
            found[name] = max(amount, found.get(name, 0))
    return found


def pod_sets(members: Sequence[PodInfo]) -> list[list[PodInfo]]:
    """The members by equal spec and labels: KEP-5732's podSets, in the order of their first members."""
    found: dict[bytes, list[PodInfo]] = {}
    for pod in members:
        found.setdefault(_shape(pod.pod), []).append(pod)
    return list(found.values())


def _shape(pod: Pod) -> bytes:
    spec = replace(pod.spec, node_name="")
    return _encode((pod.metadata.namespace, pod.metadata.labels, spec))

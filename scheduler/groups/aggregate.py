"""The quick look at a placement: can it be that enough of a group fits, going by sums alone?

Simulating costs every member on every node; summing costs one pass. A placement is turned down only if no order and no choice of nodes
could place the pods that must fit:

- the requests of the cheapest such pods, resource by resource, exceed what is free on all usable nodes together, or
- no single usable node has room for the largest of them, or
- there are more of them than places for pods.

Free is what NodeResourcesFit would let a pod have, and a node is usable if the filters that look at nothing but the node let some
member on it. Nominated pods, and everything that other filters say, are left out: they can only make it worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidelog.api.objects import Pod
from tidelog.framework.framework import Framework
from tidelog.framework.interface import CycleState, Depends, FilterPlugin
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.node_affinity import NodeAffinity
from tidelog.plugins.node_name import NodeName
from tidelog.plugins.node_resources.fit import NodeResourcesFit
from tidelog.plugins.node_unschedulable import NodeUnschedulable
from tidelog.plugins.taint_toleration import TaintToleration

_STATIC = (Depends.POD, Depends.NODE)
_KNOWN = (NodeName, NodeUnschedulable, TaintToleration, NodeAffinity)
"""Filters of a node's own object that let a pod on every node without taints, if it does not ask for special ones."""

NO_NODE = "no usable node"

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class Shortage(NamedTuple):
    """Why a placement cannot take the group."""

    reason: str
    plugins: tuple[str, ...]
    """Who is to blame: an event that one of them finds helpful may change it."""


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
        self._fit = next((f for f in framework.filter if isinstance(f, NodeResourcesFit)), None)
        self._states = [CycleState(state.at, None, state.turn) for _ in self._sets]
        if pre_filtered:
            self._states[0] = state
        for set_state, pods in list(zip(self._states, self._sets, strict=True))[pre_filtered:]:
            framework.run_pre_filter(set_state, pods[0])
        self._filters = [self._static_filters(set_state) for set_state in self._states]
        self._open_to_all = any(map(_asks_for_no_node, self._sets)) and all(
            type(plugin) in _KNOWN for filters in self._filters for plugin in filters
        )
        """Some member goes wherever there is no taint, so most nodes need no plugin to be asked."""
        self._usable: dict[str, tuple[bool, tuple[str, ...]]] = {}
        self._least = {} if self._fit is None else _cheapest(self._fit, members, required)

    def _static_filters(self, state: CycleState) -> list[FilterPlugin]:
        return [
            plugin
            for plugin in self._framework.active_filters(state)
            if getattr(plugin, "filter_depends", Depends.CLUSTER) in _STATIC
        ]

    def shortage(self, nodes: Iterable[NodeInfo]) -> Shortage | None:
        """What these nodes lack, or None if the group may fit. Looks at no more of them than it takes to see that it may."""
        if self._fit is None:
            return None
        blamed = {self._fit.name}
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
        if self._open_to_all and not spec.taints and not spec.unschedulable:
            return True, ()
        found = self._usable.get(node.name)
        if found is None:
            plugins: list[str] = []
            for state, filters, pods in zip(self._states, self._filters, self._sets, strict=True):
                status = self._framework.run_filters_alone(state, pods[0], node, filters)
                if status is None:
                    plugins = []
                    break
                plugins.append(status.plugin)
            found = self._usable[node.name] = (not plugins, tuple(plugins))
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


def _asks_for_no_node(pods: Sequence[PodInfo]) -> bool:
    spec = pods[0].pod.spec
    return not spec.node_name and not spec.node_selector and spec.affinity is None


def unit(resource: str) -> str:
    """In which unit an amount is counted here."""
    return {"cpu": "millicores", "memory": "bytes", "ephemeral-storage": "bytes"}.get(resource, "units")


def _cheapest(fit: NodeResourcesFit, members: Sequence[PodInfo], required: int) -> dict[str, tuple[int, int]]:
    """Resource → the sum and the largest of the smallest requests, as many as have to fit; resources that cost nothing are left out."""
    wanted = [dict(fit.wanted(pod.requests)) for pod in members]
    names = dict.fromkeys(name for amounts in wanted for name in amounts)
    found = {name: sorted(amounts.get(name, 0) for amounts in wanted)[:required] for name in sorted(names)}
    return {name: (sum(amounts), amounts[-1]) for name, amounts in found.items() if amounts and amounts[-1]}


def pod_sets(members: Sequence[PodInfo]) -> list[list[PodInfo]]:
    """The members by equal spec and labels: KEP-5732's podSets, in the order of their first members."""
    found: dict[bytes, list[PodInfo]] = {}
    for pod in members:
        found.setdefault(_shape(pod.pod), []).append(pod)
    return list(found.values())


def _shape(pod: Pod) -> bytes:
    spec = replace(pod.spec, node_name="")
    return _encode((pod.metadata.namespace, pod.metadata.labels, spec))

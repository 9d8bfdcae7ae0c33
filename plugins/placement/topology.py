"""TopologyPlacement: the placements of a group are the domains of the node labels that it names (KEP-5732).

    parent        level rack             placements
    everything ──► rack ∈ {r1, r2} ────► rack=r1, rack=r2              (nodes without the label are in none)

Each further level splits each placement of the one before, so `block`, then `rack` gives `block=b1,rack=r1`. A level that is only
preferred keeps the undivided placement too, one rank behind: prefer a rack, else the block will do. Pods of the group that are placed
already pin it: only their domain is left.

Costs one pass over the nodes for each level, once for all groups that ask for the same while no node's object changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.api.objects import Node
from tidelog.framework.behaviours import OWN_LEVELS_WAKE
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import (
    Code,
    CycleState,
    GroupInfo,
    Handle,
    LevelConstraint,
    Placement,
    PlacementGeneratePlugin,
    Plugin,
    Status,
    unschedulable,
)
from tidelog.framework.placements import NO_PLACEMENTS

KNOWN_MAX = 64
"""So many lists of placements are kept: for each topology that groups ask for, and each domain that some are bound to. One costs eight
bytes a node."""
_Levels = tuple[tuple[LevelConstraint, str | None], ...]
"""Each level with the one domain that is left of it, if pods are placed already."""
_PINNED = "cannot determine domain for already scheduled pods"


class _Pinned(Exception):
    """The pods that are placed leave no domain, or no single one."""


class TopologyPlacement(Plugin):
    """Generates one placement for each value of the label; a group without constraints keeps what there is."""

    name = "TopologyPlacement"
    reads_first_member = False

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._known: dict[_Levels, Sequence[Placement]] = {}
        """The placements made of the latest parents."""
        self._made_for: tuple[int, list[Placement]] = (-1, [])
        """These parents, and for which objects of nodes."""

    def generate(
        self, state: CycleState, group: GroupInfo, parents: Sequence[Placement]
    ) -> tuple[Sequence[Placement], Status | None]:
        """With no domain at all the group is rejected. With placed pods in two domains as well, and in `upstream` that is an error."""
        try:
            levels = tuple((one, self._pinned_domain(group, one)) for one in group.constraints)
        except _Pinned as problem:
            code = Code.ERROR if self.handle.upstream else Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            return (), Status(code, (f"{_PINNED}: {problem}",))
        placements = self._inside(parents, levels)
        return placements, None if placements else unschedulable(NO_PLACEMENTS)

    def _inside(self, parents: Sequence[Placement], levels: _Levels) -> Sequence[Placement]:
        """Those inside the parents, by rank and name."""
        known = self._known
        made_for = (self.handle.snapshot.object_generation, list(parents))
        if made_for != self._made_for or len(known) >= KNOWN_MAX:
            known.clear()
            self._made_for = made_for
        if levels not in known:
            placements = list(parents)
            for constraint, domain in levels:
                placements = [p for parent in placements for p in self._split(parent, constraint, domain)]
            known[levels] = sorted(placements, key=lambda placement: (placement.rank, placement.name))
        return known[levels]

    def _pinned_domain(self, group: GroupInfo, constraint: LevelConstraint) -> str | None:
        """The domain of the pods that are placed; None if there are none. A preferred level is pinned only if they agree."""
        found: dict[str, None] = {}
        for pod, node_name in group.placed:
            node = self.handle.snapshot.get(node_name)
            if node is None and not constraint.preferred:
                raise _Pinned(
                    f'getting node for pod {pod.key}: nodeinfo not found for node name "{node_name}"'
                )
            if node is None or constraint.level not in node.labels:
                if constraint.preferred:
                    return None
                raise _Pinned(f"no topology domain found for pod {pod.key}")
            found[node.labels[constraint.level]] = None
        if len(found) > 1:
            if constraint.preferred:
                return None
            raise _Pinned(f"more than 1 domain found for pod group: {', '.join(sorted(found))}")
        return next(iter(found), None)

    def _split(self, parent: Placement, constraint: LevelConstraint, pinned: str | None) -> list[Placement]:
        """The parent's domains of this level."""
        domains: dict[str, list[str]] = {}
        for name in parent.nodes:
            node = self.handle.snapshot.get(name)
            value = None if node is None else node.labels.get(constraint.level)
            if value is not None and pinned in (None, value):
                domains.setdefault(value, []).append(name)
        children = [
            Placement(
                name=self._name(parent, constraint.level, value),
                nodes=tuple(names),
                rank=parent.rank,
                parent=parent.name,
                allocations=parent.allocations,
            )
            for value, names in domains.items()
        ]
        if constraint.preferred:
            children.append(
                Placement(
                    name=parent.name,
                    nodes=parent.nodes,
                    rank=parent.rank + 1,
                    parent=parent.parent,
                    allocations=parent.allocations,
                )
            )
        return children

    def _name(self, parent: Placement, level: str, value: str) -> str:
        """kube-scheduler names a placement after its domain only, which is not unique with several levels."""
        if self.handle.upstream:
            return value
        return f"{parent.name},{level}={value}" if parent.name else f"{level}={value}"

    def events_to_register(self) -> list[EventRegistration]:
        """A new node, another label, a placed pod that goes and no longer pins the group, or other constraints."""
        labels_changed = self._levels_changed if self.handle.behaves(OWN_LEVELS_WAKE) else _labels_changed
        node = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        pod = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
        return [
            EventRegistration(node, labels_changed),
            EventRegistration(pod, _is_of_the_group),
            EventRegistration(ClusterEvent(Resource.POD_GROUP, Action.ADD | Action.UPDATE), spec_changed),
            EventRegistration(ClusterEvent(Resource.WORKLOAD, Action.ADD | Action.UPDATE), spec_changed),
        ]

    def _levels_changed(self, waiting: WaitingPod, old: Node | None, new: Node) -> Hint:
        """The node is in another domain of some level that the group asks for; a new one, in a domain of each that it must keep to."""
        levels, labels = self.handle.listers.levels_of(waiting.pod), new.metadata.labels
        if old is None:
            opens = all(one.preferred or one.level in labels for one in levels)
        else:
            before = old.metadata.labels
            opens = any(before.get(one.level) != labels.get(one.level) for one in levels)
        return Hint.QUEUE if opens else Hint.SKIP


class TopologyPlacementGenerator(TopologyPlacement):
    """kube-scheduler's name of the plugin, for configurations that mention it."""

    name = "TopologyPlacementGenerator"


def _labels_changed(waiting: WaitingPod, old: Node | None, new: Node) -> Hint:
    """The way before behaviour 2: any change of labels may open a domain."""
    return Hint.QUEUE if old is None or old.metadata.labels != new.metadata.labels else Hint.SKIP


def _is_of_the_group(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    mine, its = waiting.pod.spec, old.spec
    same = mine.scheduling_group == its.scheduling_group and mine.workload_ref == its.workload_ref
    return Hint.QUEUE if same and waiting.pod.metadata.namespace == old.metadata.namespace else Hint.SKIP


def spec_changed(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    """The object of the pod's own group is new, or asks for something else."""
    spec, meta = waiting.pod.spec, new.metadata
    name = spec.scheduling_group.pod_group_name if spec.scheduling_group is not None else ""
    if spec.workload_ref is not None:
        name = spec.workload_ref.name
    mine = name == meta.name and waiting.pod.metadata.namespace == meta.namespace
    return Hint.QUEUE if mine and (old is None or old.spec != new.spec) else Hint.SKIP


_generate: type[PlacementGeneratePlugin] = TopologyPlacement

"""The cluster as the log has told it, and what the scheduler has added to it by its own decisions.

    put_pod (bound) ───────────────► bound ◄───────── confirm / put_pod (bound)
                                       │                       │
    assume ───────────────► assumed ───┼───────────────────────┘
                               │       │
                    forget ◄───┘       └──► gone      remove_pod, or put_pod with phase Succeeded or Failed

A pod that is *assumed* was placed by an attempt whose outcome is not in the log yet. It counts exactly like a bound one; `forget`
restores exactly what was before. A terminating pod counts until it is deleted; a finished one leaves at once. Pods bound to a node
that is not known are kept aside, without influence, until the node comes.

Nodes are listed in the order in which they are examined (`tidelog.framework.node_order`).

Every operation costs the size of the pod or node it is about. What changed since a generation is told by `changed_since`, which
costs the number of changes; `tidelog.framework.snapshot` lives on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tidelog.api.objects import Condition, Node, Object, Pod, PodSpec
from tidelog.api.pod_status import is_terminal
from tidelog.framework.changes import ChangeList
from tidelog.framework.label_keys import LabelKeys
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_order import Zone, round_robin, zone_of


class AssumedAs(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an assumed pod that has changed since, and counts for others as it was until the pod is bound."""

    labels: dict[str, str]
    spec: PodSpec

    @classmethod
    def of(cls, assumed: Pod, now: Pod) -> AssumedAs | None:
        """None if the pod is in this what it was."""
        labels, spec = assumed.metadata.labels, assumed.spec
        if (labels is now.metadata.labels and spec is now.spec) or (
            labels == now.metadata.labels and spec == now.spec
        ):
            return None
        return cls(labels=labels, spec=spec)

    def on(self, pod: Pod) -> Pod:
        """The pod as it was assumed."""
        return replace(pod, metadata=replace(pod.metadata, labels=self.labels), spec=self.spec)


class CacheLayout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The order of the nodes, and the placements that the objects do not tell."""

    zones: list[tuple[str, str, list[str]]]
    """(region, zone, names of its nodes); all in the order of their first appearance."""
    assumed: dict[str, str]
    """Uid → node."""
    changed: dict[str, AssumedAs] = {}
    """Those that have changed since, by uid."""


class Cache:
    """Nodes and the pods on them. Pods are told apart by uid, nodes by name."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._zones: dict[Zone, dict[str, None]] = {}
        """Zone → names of its nodes; both in the order of their first appearance. No zone is empty."""
        self._arrivals = 0
        """How often nodes have come to a zone."""
        self._order: list[str] | None = []
        """The last answer of `node_names`, until nodes come or go."""
        self._place: dict[str, str] = {}
        """Uid of every pod that is bound or assumed → the name of its node, known or not."""
        self._assumed: dict[str, None] = {}
        """Uids of the assumed pods, in the order in which they were assumed."""
        self._outdated: dict[str, AssumedAs] = {}
        """Pods that were bound as what they had been, by uid (before behaviour 22)."""
        self._aside: dict[str, dict[str, PodInfo]] = {}
        """Name of a node that is not known → the pods bound to it, by uid."""
        self.label_keys = LabelKeys()
        """The labels that terms of pods ask for which are or were placed."""
        self._changes = ChangeList()
        self.generation = 0
        """The number of the latest change; grows with each."""

    # --- reading ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of known nodes."""
        return len(self._nodes)

    @property
    def pod_count(self) -> int:
        """The number of bound and assumed pods."""
        return len(self._place)

    def get(self, name: str) -> NodeInfo | None:
        """The node of this name. Do not change it; take a clone to keep it."""
        return self._nodes.get(name)

    def nodes(self) -> Iterator[NodeInfo]:
        """All known nodes, in the order of `node_names`."""
        return (self._nodes[name] for name in self.node_names())

    def node_names(self) -> Sequence[str]:
        """All known nodes, in the order in which they are examined."""
        if self._order is None:
            self._order = round_robin(self._zones.values())
        return self._order

    @property
    def zones(self) -> Collection[Zone]:
        """Those with nodes, in the order in which they first appeared."""
        return self._zones.keys()

    def changed_since(self, generation: int) -> Sequence[str] | None:
        """Names of the nodes that changed after `generation`, latest first, removed ones included.

        None means that it is too long ago to be known: everything may have changed.
        """
        return self._changes.since(generation)

    def pod(self, uid: str) -> PodInfo | None:
        """The bound or assumed pod of this uid."""
        name = self._place.get(uid)
        if name is None:
            return None
        node = self._nodes.get(name)
        return node.pods[uid] if node is not None else self._aside[name][uid]

    def node_of(self, uid: str) -> str | None:
        """The name of the node of a bound or assumed pod; the node need not be known."""
        return self._place.get(uid)

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod was placed by an attempt whose outcome is not in the log yet."""
        return uid in self._assumed

    def assumed(self) -> Sequence[str]:
        """Uids of the assumed pods, in the order in which they were assumed."""
        return list(self._assumed)

    # --- nodes ------------------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """A new node, or a new version of a known one. A node that changes its zone goes to the end of the new one.

        A version that is equal in all that plugins may look at is no change: a kubelet's heartbeat costs nothing downstream.
        """
        node = _as_plugins_see_it(node)
        name = node.metadata.name
        zone = zone_of(node)
        known = self._nodes.get(name)
        moves = True
        if known is None:
            known = NodeInfo(node, self._aside.pop(name, {}).values())
            self._nodes[name] = known
            self._enter_zone(known, zone)
        elif node == known.node:
            return
        else:
            old_zone = zone_of(known.node)
            moves = old_zone != zone
            # Another `NodeInfo`: by that the snapshot tells that the node's own object has changed, and not only the pods on it.
            known = self._nodes[name] = known.clone()
            known.set_node(node)
            if moves:
                self._leave_zone(name, old_zone)
                self._enter_zone(known, zone)
        self._touch(known)

    def touch(self, name: str) -> None:
        """Something has changed that counts as the node's own, though it is told elsewhere; a node that is not known is not an error."""
        node = self._nodes.get(name)
        if node is not None:
            self._touch(node)

    def remove_node(self, name: str) -> None:
        """The node is gone; its pods are kept aside until they are removed or the node comes back."""
        node = self._nodes.pop(name, None)
        if node is None:
            return
        if node.pods:
            self._aside[name] = node.pods
        self._leave_zone(name, zone_of(node.node))
        self.generation = self._changes.touch(name)
        self._changes.drop_removed(self._nodes)

    def _enter_zone(self, node: NodeInfo, zone: Zone) -> None:
        self._arrivals += 1
        node.arrival = self._arrivals
        self._zones.setdefault(zone, {})[node.name] = None
        self._order = None

    def _leave_zone(self, name: str, zone: Zone) -> None:
        names = self._zones[zone]
        del names[name]
        if not names:
            del self._zones[zone]
        self._order = None

    def _touch(self, node: NodeInfo) -> None:
        self.generation = node.generation = self._changes.touch(node.name)

    # --- pods -------------------------------------------------------------------------------------------------------

    def put_pod(self, pod: PodInfo) -> None:
        """The newest version of a pod, as the log has it.

        A bound pod takes its place, wherever it was assumed. A finished one leaves. A pod without a node changes
        nothing: if it is assumed, it stays so until its outcome comes.
        """
        name = pod.pod.spec.node_name
        if is_terminal(pod.pod):
            self.remove_pod(pod.uid)
        elif name:
            self.remove_pod(pod.uid)
            self._add(pod, name)

    def remove_pod(self, uid: str) -> None:
        """The pod is gone, bound or assumed; an unknown one is not an error."""
        name = self._place.pop(uid, None)
        if name is None:
            return
        self._assumed.pop(uid, None)
        self._outdated.pop(uid, None)
        node = self._nodes.get(name)
        if node is not None:
            node.remove_pod(node.pods[uid])
            self._touch(node)
            return
        aside = self._aside[name]
        del aside[uid]
        if not aside:
            del self._aside[name]

    def assume(self, pod: PodInfo, node_name: str) -> None:
        """The attempt under way places the pod. It must not be on a node already, and the node must be known."""
        assert pod.uid not in self._place, f"{pod.key} is on {self._place.get(pod.uid)} already"
        assert node_name in self._nodes, f"{pod.key} cannot be assumed on the unknown node {node_name}"
        self._add(pod, node_name)
        self._assumed[pod.uid] = None

    def forget(self, uid: str) -> None:
        """The placement is off: exactly undo `assume`. The pod must be assumed, or have left with its removal."""
        if uid in self._assumed:
            self.remove_pod(uid)
        else:
            assert uid not in self._place, f"pod {uid} is bound and cannot be forgotten"

    def confirm(self, uid: str, outdated: AssumedAs | None = None) -> None:
        """The log has the placement: an assumed pod is now bound. Costs nothing, because nothing on the node changes, also where it is `outdated`."""
        self._assumed.pop(uid, None)
        if outdated is not None:
            self._outdated[uid] = outdated

    def _add(self, pod: PodInfo, name: str) -> None:
        # Here, pod by pod: else the next attempt would do it for all pods that came since the last one.
        pod.compile_terms()
        if pod.has_affinity:
            self.label_keys.note(pod)
        self._place[pod.uid] = name
        node = self._nodes.get(name)
        if node is None:
            self._aside.setdefault(name, {})[pod.uid] = pod
            return
        node.add_pod(pod)
        self._touch(node)

    # --- coming back ------------------------------------------------------------------------------------------------

    def layout(self, objects: Mapping[str, Object]) -> CacheLayout:
        """State that the objects, by key, do not tell, left by the order of arrivals and by what was assumed: `restore` needs it."""
        changed = {uid: found for uid in self._assumed if (found := self._changed(uid, objects))}
        return CacheLayout(
            zones=[(region, zone, list(names)) for (region, zone), names in self._zones.items()],
            assumed={uid: self._place[uid] for uid in self._assumed},
            changed=self._outdated | changed,
        )

    def _changed(self, uid: str, objects: Mapping[str, Object]) -> AssumedAs | None:
        known = self.pod(uid)
        now = None if known is None else objects.get(f"Pod/{known.key}")
        return AssumedAs.of(known.pod, now) if known is not None and isinstance(now, Pod) else None

    def restore(self, layout: CacheLayout, node: Callable[[str], Node], pods: Iterable[Pod]) -> None:
        """Fill a new cache as one with this layout was. `node` finds the objects by name; `pods` are all there are.

        The pods of a node may stand in another order than before: nothing may depend on that.
        """
        assert not self._nodes, "a layout is restored into a new cache"
        for _, _, names in layout.zones:
            for name in names:
                self.put_node(node(name))
        for pod in pods:
            # Where it is assumed without a look at the node, which may be gone since.
            uid = pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"
            name = layout.assumed.get(uid, "" if is_terminal(pod) else pod.spec.node_name)
            if name:
                self.remove_pod(uid)  # Of two with the same uid, the later one counts, as ever.
                changed = layout.changed.get(uid)
                self._add(PodInfo(pod if changed is None else changed.on(pod)), name)
        self._assumed = dict.fromkeys(layout.assumed)
        self._outdated = {uid: one for uid, one in layout.changed.items() if uid not in layout.assumed}

    # --- comparing --------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """All of the state that has a meaning, as plain data; equal for caches that behave alike from here on."""
        return {
            "zones": [[region, zone, list(names)] for (region, zone), names in self._zones.items()],
            "nodes": {name: self._dump_node(self._nodes[name]) for name in sorted(self._nodes)},
            "aside": {name: self._dump_pods(pods) for name, pods in sorted(self._aside.items())},
        }

    def digest(self) -> str:
        """A SHA-256 of `dump`."""
        return hashlib.sha256(msgspec.json.encode(self.dump(), order="deterministic")).hexdigest()

    def _dump_node(self, node: NodeInfo) -> dict[str, Any]:
        return {
            "node": node.node,
            "requested": node.requested,
            "non_zero": [node.non_zero_cpu, node.non_zero_memory],
            "ports": sorted([*key, sorted(holders.items())] for key, holders in node.used_ports.items()),
            "pods": self._dump_pods(node.pods),
        }

    def _dump_pods(self, pods: dict[str, PodInfo]) -> dict[str, Any]:
        return {uid: _dump_pod(pods[uid]) | {"assumed": uid in self._assumed} for uid in sorted(pods)}


def _dump_pod(pod: PodInfo) -> dict[str, Any]:
    """The pod on a node, as plugins read it. Not `spec.nodeName`, which a confirmed pod need not have yet."""
    return {
        "key": pod.key,
        "labels": pod.labels,
        "priority": pod.priority,
        "terminating": pod.terminating,
        "occupied": pod.occupied,
        "non_zero": [pod.non_zero_cpu, pod.non_zero_memory],
        "ports": pod.host_ports,
        "terms": [
            pod.affinity_required,
            pod.affinity_preferred,
            pod.anti_affinity_required,
            pod.anti_affinity_preferred,
        ],
    }


def _as_plugins_see_it(node: Node) -> Node:
    """Without what changes though nothing has: the version's number, and when and why a condition was last reported.

    It is left out, and not only left uncompared, so that no plugin can decide by it.
    """
    conditions = tuple([Condition(type=one.type, status=one.status) for one in node.status.conditions])
    return replace(
        node,
        metadata=replace(node.metadata, resource_version=""),
        status=replace(node.status, conditions=conditions),
    )

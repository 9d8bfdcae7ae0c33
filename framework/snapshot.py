"""The cluster as an attempt sees it: the cache's nodes, and what is derived from all of them.

There is one snapshot, refreshed before each attempt. Its nodes are the cache's own, not copies: nobody changes the cache between the
refresh and the decision, as all that an attempt does is done at once. A refresh costs what changed since the last one; the list of nodes
in the order in which they are examined is laid out again when somebody asks for it after nodes came or went, or moved to another zone. From the moment that a decision is taken over into the cache
the nodes show it, and what is derived from them shows it at the next refresh. A cycle that must try things (a gang's placements) adds
pods and takes them away again with `assume` and `forget`, each the other's exact inverse, before it ends: nothing of it is left.

Who keeps tables about nodes (the fast evaluation) brings them up to date with `changed_since`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from tidelog.api.well_known import HOSTNAME
from tidelog.framework.changes import ChangeList
from tidelog.framework.effort import Effort, Paused
from tidelog.framework.label_keys import LabelKeys
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_order import Zone, round_robin, zone_of


class SnapshotSource(Protocol):
    """The source of a snapshot: the cluster cache."""

    @property
    def generation(self) -> int:
        """Of the latest change."""

    @property
    def label_keys(self) -> LabelKeys:
        """The labels that terms of pods ask for."""

    def changed_since(self, generation: int) -> Sequence[str] | None:
        """Names of the nodes that changed after `generation`, removed ones included; None: everything may have."""

    def get(self, name: str) -> NodeInfo | None:
        """The node of this name."""

    def node_names(self) -> Sequence[str]:
        """All nodes, in the order in which they are examined."""

    @property
    def zones(self) -> Collection[Zone]:
        """Those with nodes, in the order in which they are gone round."""


class _NodeList:
    """All nodes in the order in which they are examined."""

    def __init__(self, names: Sequence[str], nodes: Mapping[str, NodeInfo]) -> None:
        self.names = tuple(names)
        self.nodes = list(map(nodes.__getitem__, names))

    @cached_property
    def place_of(self) -> Mapping[str, int]:
        return dict(zip(self.names, range(len(self.names)), strict=True))


class Snapshot:
    """Implements `tidelog.framework.interface.Snapshot`. Empty until it is first refreshed."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        """By name, in no order that means anything. A node whose own object has changed is another `NodeInfo`."""
        self._zones: dict[Zone, dict[str, None]] = {}
        """Zone → names of its nodes, in the order in which they are examined there; zones in the order in which they are gone round."""
        self._list: _NodeList | None = None
        """Of these nodes, since somebody asked for it."""
        self._affinity: dict[str, NodeInfo] = {}
        self._anti_affinity: dict[str, NodeInfo] = {}
        self._claims: dict[tuple[str, str], dict[str, None]] = {}
        """Namespace and name of a claim → nodes with a pod that mounts it."""
        self._claims_of: dict[str, tuple[tuple[str, str], ...]] = {}
        """Node → the claims mounted there, as `_claims` has them; most have none."""
        self._hosts: dict[str, dict[str, None]] = {}
        """Value of the label for hosts → nodes with it."""
        self._images: dict[str, int] = {}
        """Image name → number of nodes that have it."""
        self._image_sizes: tuple[int, dict[str, int]] = (0, {})
        """Answers of `image_size`, and up to which object generation that holds."""
        self.label_keys = LabelKeys()
        """The labels that terms of pods ask for; the source's own."""
        self.layout = 0
        """Grows when nodes come, go or move in the list."""
        self._source_generation = 0
        self._left: Sequence[str] | None = None
        """Nodes that have changed, which a refresh did not come to before its turn was over; None if it came to the end."""
        self._is_laid_out = True
        """Zones and list are as the nodes are."""
        self._mixed: dict[Zone, None] = {}
        """Zones whose nodes may be in another order."""
        self.generation = 0
        """Grows with each change of the snapshot."""
        self.object_generation = 0
        """Grows when a node is added, removed, or its own object changes."""
        self.effort = Effort()
        """Of the attempt that looks at it."""
        self._changes = ChangeList()
        self._object_changes = ChangeList()

    # --- reading ----------------------------------------------------------------------------------------------------

    def get(self, name: str) -> NodeInfo | None:
        """The node of this name."""
        return self._nodes.get(name)

    @property
    def source_generation(self) -> int:
        """The source's as of the last refresh: while an attempt lasts it stays the same, whatever is tried."""
        return self._source_generation

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return len(self._nodes)

    @property
    def zones(self) -> Mapping[Zone, Collection[str]]:
        """Those with nodes, in the order in which they are gone round, and the nodes of each in the order of examination."""
        return self._zones

    @property
    def nodes(self) -> Sequence[NodeInfo]:
        """In the order in which they are examined. After nodes came or went the first question costs a step for each node."""
        return self._listed().nodes

    @property
    def names(self) -> tuple[str, ...]:
        """Of all nodes, in this order."""
        return self._listed().names

    def place_of(self, name: str) -> int:
        """The place of a node of the snapshot in `nodes`."""
        return self._listed().place_of[name]

    def in_order(self, names: Iterable[str]) -> list[NodeInfo]:
        """The nodes of these names, as far as they are there, in the order of `nodes`; costs the number of names."""
        found = [name for name in names if name in self._nodes]
        if len(found) > 1:
            found.sort(key=self._listed().place_of.__getitem__)
        return [self._nodes[name] for name in found]

    def _listed(self) -> _NodeList:
        found = self._list
        if found is None:
            found = self._list = _NodeList(round_robin(self._zones.values()), self._nodes)
        return found

    def nodes_with_affinity_pods(self) -> Iterable[NodeInfo]:
        """Nodes with a pod that has any pod (anti-)affinity term, in no meaningful order: for counting only."""
        return self._affinity.values()

    def nodes_with_required_anti_affinity_pods(self) -> Iterable[NodeInfo]:
        """Nodes with a pod that has a required anti-affinity term, in no meaningful order: for counting only."""
        return self._anti_affinity.values()

    def nodes_with_claim(self, namespace: str, name: str) -> Collection[str]:
        """Names of the nodes with a pod that mounts this claim, those of ephemeral volumes aside; in no order that means anything."""
        return self._claims.get((namespace, name), ())

    def nodes_of_host(self, host: str) -> Collection[str]:
        """Names of the nodes with this value of the label kubernetes.io/hostname; in no order that means anything."""
        return self._hosts.get(host, ())

    def image_nodes(self, image: str) -> int:
        """How many nodes have the image of this normalised name."""
        return self._images.get(image, 0)

    def image_size(self, image: str) -> int:
        """The size of the image on the first node of the list that has it; 0 if none has. Looked for once, until a node's object changes."""
        generation, known = self._image_sizes
        if generation != self.object_generation:
            known = {}
            self._image_sizes = (self.object_generation, known)
        size = known.get(image)
        if size is None:
            size = next((node.images[image] for node in self.nodes if image in node.images), 0)
            known[image] = size
        return size

    def changed_since(self, generation: int) -> Sequence[str] | None:
        """Names of the nodes that changed after `generation` (a value of `self.generation`), latest first.

        Removed nodes are among them (`get` then gives None). None means that it is too long ago: start over.
        """
        return self._changes.since(generation)

    def objects_changed_since(self, generation: int) -> Sequence[str] | None:
        """As `changed_since`, of nodes whose own object changed, were added or removed (`self.object_generation`)."""
        return self._object_changes.since(generation)

    # --- following the cache ------------------------------------------------------------------------------------------

    def refresh(self, source: SnapshotSource) -> None:
        """Be as the source is now. Raises Paused when the turn of the attempt is over: after thousands of nodes came, say; the next refresh goes on."""
        if source.generation == self._source_generation and self._left is None:
            return
        self.label_keys = source.label_keys
        changed = source.changed_since(self._source_generation)
        if changed is None:
            changed = list(dict.fromkeys((*self._nodes, *source.node_names())))
        # Oldest change first, so that the snapshot's own list has the source's order.
        left = changed[::-1] if self._left is None else list(dict.fromkeys((*self._left, *reversed(changed))))
        self._source_generation = source.generation
        nodes, effort = self._nodes, self.effort
        for number, name in enumerate(left, 1):
            old, new = nodes.get(name), source.get(name)
            self._note(name, old, new)
            if old is not new:
                self._replace(name, old, new)
            try:
                effort.spend(1)
            except Paused:
                self._left = left[number:]
                raise
        self._left = None
        if not self._is_laid_out:
            self._lay_out(source)

    def _replace(self, name: str, old: NodeInfo | None, new: NodeInfo | None) -> None:
        if new is None:
            del self._nodes[name]
        else:
            self._nodes[name] = new
        if old is None or new is None or old.arrival != new.arrival:
            self._is_laid_out = False
            if old is not None:
                del self._zones[zone_of(old.node)][name]
            if new is not None:
                self._enter(new)
        if self._list is not None and self._is_laid_out:
            assert new is not None, "no node has gone"
            self._list.nodes[self._list.place_of[name]] = new

    def _enter(self, node: NodeInfo) -> None:
        zone = zone_of(node.node)
        names = self._zones.setdefault(zone, {})
        # They come in the order of their last change, which is mostly that in which they arrived.
        if names and self._nodes[next(reversed(names))].arrival > node.arrival:
            self._mixed[zone] = None
        names[node.name] = None

    def _lay_out(self, source: SnapshotSource) -> None:
        """Have the zones as the source has them."""
        nodes, zones = self._nodes, self._zones
        for zone in self._mixed:
            zones[zone] = dict.fromkeys(sorted(zones[zone], key=lambda name: nodes[name].arrival))
        self._mixed = {}
        self._zones = {zone: zones[zone] for zone in source.zones}
        self._list = None
        self.layout += 1
        self._changes.drop_removed(nodes)
        self._object_changes.drop_removed(nodes)
        self._is_laid_out = True

    def _note(self, name: str, old: NodeInfo | None, new: NodeInfo | None) -> None:
        """Keep what is derived from all nodes exact while `old` becomes `new`."""
        if old is None and new is None:
            return
        self.generation = self._changes.touch(name)
        if old is None or new is None or old.node is not new.node:
            self.object_generation = self._object_changes.touch(name)
            self._count_images(old, -1)
            self._count_images(new, 1)
            self._index_host(old, new)
        self._index_pods(name, new)

    def _index_host(self, old: NodeInfo | None, new: NodeInfo | None) -> None:
        before = None if old is None else old.labels.get(HOSTNAME)
        now = None if new is None else new.labels.get(HOSTNAME)
        if before == now:
            return
        if old is not None and before is not None:
            del self._hosts[before][old.name]
            if not self._hosts[before]:
                del self._hosts[before]
        if new is not None and now is not None:
            self._hosts.setdefault(now, {})[new.name] = None

    def _count_images(self, node: NodeInfo | None, by: int) -> None:
        if node is None:
            return
        images = self._images
        for image in node.images:
            count = images.get(image, 0) + by
            if count:
                images[image] = count
            else:
                del images[image]

    def _index_pods(self, name: str, node: NodeInfo | None) -> None:
        if node is not None and node.affinity_pods:
            self._affinity[name] = node
        elif self._affinity:
            self._affinity.pop(name, None)
        if node is not None and node.required_anti_affinity_pods:
            self._anti_affinity[name] = node
        elif self._anti_affinity:
            self._anti_affinity.pop(name, None)
        claims = () if node is None else node.claims
        if claims or name in self._claims_of:
            self._index_claims(name, tuple(claims))

    def _index_claims(self, name: str, now: tuple[tuple[str, str], ...]) -> None:
        before = self._claims_of.get(name, ())
        if before == now:
            return
        for claim in set(before).difference(now):
            nodes = self._claims[claim]
            del nodes[name]
            if not nodes:
                del self._claims[claim]
        for claim in set(now).difference(before):
            self._claims.setdefault(claim, {})[name] = None
        if now:
            self._claims_of[name] = now
        else:
            del self._claims_of[name]

    # --- trying things --------------------------------------------------------------------------------------------------

    def assume(self, pod: PodInfo, node_name: str) -> None:
        """Put a pod on a node, for a trial. It must be taken away with `forget` before the attempt goes on to anything else."""
        node = self._nodes[node_name]
        node.add_pod(pod)
        if pod.has_affinity:
            self.label_keys.note(pod)
        self.generation = self._changes.touch(node_name)
        self._index_pods(node_name, node)

    def forget(self, pod: PodInfo, node_name: str) -> None:
        """Take back what `assume` did."""
        node = self._nodes[node_name]
        node.remove_pod(pod)
        self.generation = self._changes.touch(node_name)
        self._index_pods(node_name, node)

    def hide(self, uid: str, node_name: str) -> None:
        """Show a node without the pod of this uid until the next refresh: as it was before the last attempt put the pod there."""
        node = self._nodes[node_name]
        if uid in node.pods:
            self._nodes[node_name] = node = node.clone()
            if self._list is not None:
                self._list.nodes[self._list.place_of[node_name]] = node
            node.remove_pod(node.pods[uid])
            self._index_pods(node_name, node)

    def touch(self, name: str) -> None:
        """Something has changed that counts as the node's own, though it is told elsewhere; a node that is not known is not an error."""
        if name in self._nodes:
            self.generation = self._changes.touch(name)

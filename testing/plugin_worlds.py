"""Small random clusters, and random things that happen to them: what the conformance kit tries plugins on.

A `World` says what nodes and pods are like. The standard one has a bit of everything that the default plugins read, in so few
variants that pods and nodes often agree, and often do not. For a plugin that reads labels of its own, subclass it:

    class Seats(World):
        def node_labels(self, dice, name):
            return super().node_labels(dice, name) | {"example.com/seats": str(dice.below(3))}

Chance comes from `Dice`, which are the same for the same seed on every machine and every Python: this folder is pure, and a
failure must be found again by its seed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import (
    DeviceClass,
    LabelSelector,
    Namespace,
    Node,
    Object,
    Pod,
    PodDisruptionBudget,
    ResourceClaim,
    ResourceSlice,
    Service,
    Toleration,
)
from tidelog.api.selectors import map_matcher
from tidelog.api.storage import CSIDriver, StorageClass
from tidelog.api.well_known import HOSTNAME
from tidelog.framework.contents import number_of
from tidelog.framework.devices import Devices
from tidelog.framework.effort import Effort
from tidelog.framework.interface import LevelConstraint
from tidelog.framework.label_keys import LabelKeys
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.storage import Storage
from tidelog.testing.builders import PodBuilder, namespace, node, pod, service

T = TypeVar("T")

SCHEDULER = "default-scheduler"
_MASK = (1 << 64) - 1


class Dice:
    """Choices that look random (SplitMix64)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, limit: int) -> int:
        """A number from 0 to `limit` - 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return (mixed ^ (mixed >> 31)) % limit

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred cases."""
        return self.below(100) < percent


_O = TypeVar("_O", bound=Object)
_GENERATIONS = count(1)


class WorldCluster:
    """Nodes with their pods, and the other objects. Never changes: `with_` and `without_` give another one.

    Implements `Snapshot` and `Listers` of the plugin interface, the plain way.
    """

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        pods: Iterable[Pod] = (),
        namespaces: Iterable[Namespace] = (),
        services: Iterable[Service] = (),
        others: Iterable[Object] = (),
        *,
        like: WorldCluster | None = None,
    ) -> None:
        """`others`: claims, volumes, devices, and what they can be had from; or those of the cluster that this is `like`."""
        self.node_objects = {n.metadata.name: n for n in nodes}
        self.pods = {p.metadata.name: p for p in pods}
        self.namespaces = {n.metadata.name: n for n in namespaces}
        self.services = tuple(services)
        self.object_generation = next(_GENERATIONS) << 20
        """No two clusters have the same."""
        self.others: tuple[Object, ...] = tuple(others) if like is None else like.others
        if like is None:
            self.storage, self.devices = Storage(self.object_generation), Devices(self.object_generation)
            for obj in self.others:
                self.storage.put(obj)
                self.devices.put(obj)
            # Attempts are signed with it: those in clusters of the same classes can be signed alike.
            classes = [obj for obj in self.others if isinstance(obj, StorageClass | CSIDriver)]
            self.storage.class_generation = number_of(classes)
        else:
            self.storage, self.devices = like.storage, like.devices
        self.effort = Effort()
        self._nodes = {
            name: NodeInfo(obj, [PodInfo(p) for p in self.pods.values() if p.spec.node_name == name])
            for name, obj in self.node_objects.items()
        }
        self.nodes: Sequence[NodeInfo] = tuple(self._nodes.values())
        self.label_keys = LabelKeys()
        """The labels that terms of its pods ask for."""
        for info in (info for placed in self.nodes for info in placed.pods.values()):
            self.label_keys.note(info)

    def with_others(self, others: Iterable[Object]) -> WorldCluster:
        """With these claims, volumes and devices."""
        return WorldCluster(
            self.node_objects.values(), self.pods.values(), self.namespaces.values(), self.services, others
        )

    def with_object(self, obj: Object) -> WorldCluster:
        """With one more object, or another version of one."""
        return self._changed(obj, remove=False)

    def without_object(self, obj: Object) -> WorldCluster:
        """Without an object. Pods on a node that is gone stay, as they do in a real cluster."""
        return self._changed(obj, remove=True)

    def _changed(self, obj: Object, *, remove: bool) -> WorldCluster:
        tables: tuple[dict[str, Node], dict[str, Pod], dict[str, Namespace]] = (
            dict(self.node_objects),
            dict(self.pods),
            dict(self.namespaces),
        )
        nodes, pods, namespaces = tables
        if isinstance(obj, Node):
            _put(nodes, obj, obj.metadata.name, remove)
        elif isinstance(obj, Pod):
            _put(pods, obj, obj.metadata.name, remove)
        elif isinstance(obj, Namespace):
            _put(namespaces, obj, obj.metadata.name, remove)
        else:
            others = {object_key(other): other for other in self.others}
            _put(others, obj, object_key(obj), remove)
            return self.with_others(others.values())
        return WorldCluster(nodes.values(), pods.values(), namespaces.values(), self.services, like=self)

    # --- Snapshot

    def get(self, name: str) -> NodeInfo | None:
        return self._nodes.get(name)

    @property
    def node_count(self) -> int:
        return len(self.nodes)

    def nodes_with_affinity_pods(self) -> Iterable[NodeInfo]:
        return [info for info in self.nodes if info.affinity_pods]

    def nodes_with_required_anti_affinity_pods(self) -> Iterable[NodeInfo]:
        return [info for info in self.nodes if info.required_anti_affinity_pods]

    def nodes_of_host(self, host: str) -> Collection[str]:
        return [info.name for info in self.nodes if info.labels.get(HOSTNAME) == host]

    def nodes_with_claim(self, namespace: str, name: str) -> Collection[str]:
        return [info.name for info in self.nodes if (namespace, name) in info.claims]

    def image_nodes(self, image: str) -> int:
        return sum(image in info.images for info in self.nodes)

    def image_size(self, image: str) -> int:
        return next((info.images[image] for info in self.nodes if image in info.images), 0)

    # --- Listers

    def namespace(self, name: str) -> Namespace | None:
        return self.namespaces.get(name)

    def owner_selectors(self, pod: Pod) -> Sequence[LabelSelector]:
        """Of Services only."""
        return [
            LabelSelector(match_labels=found.spec.selector)
            for found in self.services
            if found.metadata.namespace == pod.metadata.namespace
            and map_matcher(found.spec.selector)(pod.metadata.labels)
        ]

    def budgets(self, namespace: str) -> Sequence[PodDisruptionBudget]:
        return ()

    def resource_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        return self.devices.claim(namespace, name)

    def resource_claims(self) -> Sequence[ResourceClaim]:
        return self.objects_of(ResourceClaim)

    def resource_slices(self) -> Sequence[ResourceSlice]:
        return self.devices.slices()

    def device_class(self, name: str) -> DeviceClass | None:
        return self.devices.device_class(name)

    def object_of(self, kind: type[_O], namespace: str, name: str) -> _O | None:
        found = {(obj.metadata.namespace, obj.metadata.name): obj for obj in self.objects_of(kind)}
        return found.get((namespace, name))

    def objects_of(self, kind: type[_O]) -> Sequence[_O]:
        found = [obj for obj in self.others if isinstance(obj, kind)]
        return sorted(found, key=lambda obj: (obj.metadata.namespace, obj.metadata.name))

    def gang_of(self, pod: Pod) -> tuple[int, int] | None:
        return None

    def levels_of(self, pod: Pod) -> Sequence[LevelConstraint]:
        return ()


def _put(table: dict[str, T], obj: T, name: str, remove: bool) -> None:
    if remove:
        del table[name]
    else:
        table[name] = obj


class Happening(NamedTuple):
    """Something that happened: one object changed, in the cluster or the waiting pod itself."""

    cluster: WorldCluster
    target: Pod
    old: Object | None
    new: Object | None
    of_target: bool = False


class World:
    """Random nodes and pods, and random changes to them. Override what your plugin reads."""

    topology_keys: tuple[str, ...] = ("zone", HOSTNAME)
    selectors: tuple[str, ...] = ("app=web", "app in (web,db)", "tier=front", "app=web,tier=front", "")

    # --- nodes

    def node_labels(self, dice: Dice, name: str) -> dict[str, str]:
        """Labels of a node."""
        labels = {HOSTNAME: name, "disk": dice.pick(("ssd", "hdd"))}
        if dice.chance(85):
            labels["zone"] = dice.pick(("a", "b", "c"))
        return labels

    def node(self, dice: Dice, name: str) -> Node:
        """A node with a bit of everything."""
        made = node(name).label(self.node_labels(dice, name))
        made = made.capacity(cpu=1 + dice.below(4), memory=f"{1 + dice.below(4)}Gi", pods=1 + dice.below(5))
        for key in ("dedicated", "old"):
            if dice.chance(25):
                made = made.taint(key, "x", dice.pick(("NoSchedule", "NoExecute", "PreferNoSchedule")))
        if dice.chance(40):
            made = made.image(f"{dice.pick(('one', 'two'))}:latest", 100 * 2**20 * (1 + dice.below(9)))
        return replace(made, unschedulable=dice.chance(20)).build()

    def changed_node(self, dice: Dice, old: Node) -> Node:
        """The node with some of its parts as in another node."""
        other = self.node(dice, old.metadata.name)
        match dice.below(5):
            case 0:
                return replace(old, metadata=replace(old.metadata, labels=other.metadata.labels))
            case 1:
                return replace(old, spec=replace(old.spec, taints=other.spec.taints))
            case 2:
                return replace(old, spec=replace(old.spec, unschedulable=not old.spec.unschedulable))
            case 3:
                status = replace(
                    old.status, capacity=other.status.capacity, allocatable=other.status.allocatable
                )
                return replace(old, status=status)
            case _:
                return other

    # --- pods

    def pod_labels(self, dice: Dice) -> dict[str, str]:
        """Labels of a pod."""
        labels = {"app": dice.pick(("web", "db"))}
        if dice.chance(50):
            labels["tier"] = dice.pick(("front", "back"))
        return labels

    def pod(self, dice: Dice, name: str) -> Pod:
        """A pod that may want anything, without a node."""
        made = pod(name, dice.pick(("default", "default", "default", "other"))).uid(name)
        made = made.label(self.pod_labels(dice)).scheduler(SCHEDULER)
        made = self._with_needs(dice, made)
        made = self._with_node_wishes(dice, made)
        made = self._with_pod_wishes(dice, made)
        if dice.chance(30):
            made = made.gate("example.com/hold")
        return made.build()

    def _with_needs(self, dice: Dice, made: PodBuilder) -> PodBuilder:
        made = made.image(dice.pick(("one", "two", "three:v1")))
        if dice.chance(70):
            made = made.request(cpu=f"{250 * (1 + dice.below(6))}m")
        if dice.chance(40):
            made = made.request(memory=f"{256 * (1 + dice.below(6))}Mi")
        if dice.chance(35):
            made = made.port(
                8080 + dice.below(2), host_ip=dice.pick(("", "", "10.0.0.1")), protocol=dice.pick(("", "UDP"))
            )
        return made

    def _with_node_wishes(self, dice: Dice, made: PodBuilder) -> PodBuilder:
        if dice.chance(25):
            made = made.node_selector(disk=dice.pick(("ssd", "hdd")))
        if dice.chance(25):
            made = made.node_affinity(*dice.pick((("zone in (a,b)",), ("disk=ssd", "zone=c"), ("!zone",))))
        if dice.chance(40):
            made = made.prefer_node(1 + dice.below(50), dice.pick(("zone=a", "disk=ssd", "zone in (b,c)")))
        for key in ("dedicated", "node.kubernetes.io/unschedulable"):
            if dice.chance(25):
                made = made.tolerate(key, effect=dice.pick(("", "NoSchedule")))
        return made

    def _with_pod_wishes(self, dice: Dice, made: PodBuilder) -> PodBuilder:
        if dice.chance(40):
            made = self._spread(dice, made, hard=True)
        if dice.chance(30):
            made = self._spread(dice, made, hard=False)
        if dice.chance(25):
            key, selector = dice.pick(self.topology_keys), dice.pick(self.selectors)
            made = made.pod_affinity(key, selector, **self._scope(dice))
        for _ in range(1 + dice.below(2) if dice.chance(30) else 0):
            key, selector = dice.pick(self.topology_keys), dice.pick(self.selectors)
            made = made.pod_anti_affinity(key, selector, **self._scope(dice))
        if dice.chance(25):
            key, selector = dice.pick(self.topology_keys), dice.pick(self.selectors)
            made = made.prefer_pod_affinity(1 + dice.below(50), key, selector)
        return made

    def _spread(self, dice: Dice, made: PodBuilder, *, hard: bool) -> PodBuilder:
        more: dict[str, Any] = {}
        if dice.chance(30):
            more["node_affinity_policy"] = dice.pick(("Honor", "Ignore"))
        if dice.chance(30):
            more["node_taints_policy"] = dice.pick(("Honor", "Ignore"))
        if hard and dice.chance(30):
            more["min_domains"] = 1 + dice.below(4)
        return made.spread(
            dice.pick(self.topology_keys),
            dice.pick(self.selectors),
            max_skew=1 + dice.below(2),
            soft=not hard,
            **more,
        )

    def _scope(self, dice: Dice) -> dict[str, Any]:
        """Which namespaces an affinity term is about."""
        match dice.below(5):
            case 0:
                return {"namespaces": ("default", "other")}
            case 1:
                return {"namespace_selector": LabelSelector(match_labels={"team": "red"})}
            case 2:
                return {"namespace_selector": LabelSelector()}
            case _:
                return {}

    def changed_occupant(self, dice: Dice, old: Pod) -> Pod:
        """A random change of a pod on a node: other labels, other requests, its deletion begins."""
        match dice.below(4):
            case 0:
                return replace(old, metadata=replace(old.metadata, deletion_timestamp="2030-01-01T00:00:00Z"))
            case 1:
                return self.resized(dice, old)
            case _:
                return self._relabelled(dice, old)

    def changed_target(self, dice: Dice, old: Pod) -> Pod:
        """A random change of a waiting pod: other labels, other requests, one more toleration, no gates any more."""
        match dice.below(4):
            case 0:
                return self.resized(dice, old)
            case 1:
                return self._relabelled(dice, old)
            case 2:
                key = dice.pick(("dedicated", "old", "node.kubernetes.io/unschedulable", ""))
                more = Toleration(key=key, operator="Exists")
                return replace(old, spec=replace(old.spec, tolerations=(*old.spec.tolerations, more)))
            case _:
                return replace(old, spec=replace(old.spec, scheduling_gates=()))

    def _relabelled(self, dice: Dice, old: Pod) -> Pod:
        return replace(old, metadata=replace(old.metadata, labels=self.pod_labels(dice)))

    def resized(self, dice: Dice, old: Pod) -> Pod:
        """The pod with another request."""
        main, *others = old.spec.containers
        resources = replace(main.resources, requests={"cpu": f"{250 * (1 + dice.below(6))}m"})
        return replace(old, spec=replace(old.spec, containers=(replace(main, resources=resources), *others)))

    # --- clusters

    def namespace(self, dice: Dice, name: str) -> Namespace:
        """A namespace with a label."""
        return namespace(name, {"team": dice.pick(("red", "blue"))})

    def occupant(self, dice: Dice, name: str, on: str) -> Pod:
        """A pod on a node; it fits no better than one that somebody bound by hand."""
        made = self.pod(dice, name)
        return replace(made, spec=replace(made.spec, node_name=on, scheduling_gates=()))

    def cluster(self, dice: Dice) -> WorldCluster:
        """Two to five nodes, few pods on each. Claims and devices are those of `tidelog.testing.claim_worlds`."""
        names = [f"n{i}" for i in range(2 + dice.below(4))]
        pods = [self.occupant(dice, f"p{i}", dice.pick(names)) for i in range(dice.below(8))]
        return WorldCluster(
            [self.node(dice, name) for name in names],
            pods,
            [self.namespace(dice, name) for name in ("default", "other")],
            [service("web", {"app": "web"})],
        )

    def others(self, dice: Dice, nodes: Sequence[str]) -> Sequence[Object]:
        """Other objects beside nodes of these names."""
        return ()

    def target(self, dice: Dice) -> Pod:
        """The pod that waits."""
        return self.pod(dice, "target")

    def step(self, dice: Dice, cluster: WorldCluster, target: Pod) -> Happening:
        """Let something happen."""
        match dice.below(12):
            case 0 | 1:
                made = self.node(dice, "new")
                return Happening(cluster.with_object(made), target, None, made)
            case 2:
                gone = dice.pick(list(cluster.node_objects.values()))
                return Happening(cluster.without_object(gone), target, gone, None)
            case 3 | 4 | 5:
                old = dice.pick(list(cluster.node_objects.values()))
                new = self.changed_node(dice, old)
                return Happening(cluster.with_object(new), target, old, new)
            case 6:
                changed = self.changed_target(dice, target)
                return Happening(cluster, changed, target, changed, of_target=True)
            case 7:
                before = dice.pick(list(cluster.namespaces.values()))
                after = self.namespace(dice, before.metadata.name)
                return Happening(cluster.with_object(after), target, before, after)
            case _:
                return self._pod_step(dice, cluster, target)

    def _pod_step(self, dice: Dice, cluster: WorldCluster, target: Pod) -> Happening:
        occupants = list(cluster.pods.values())
        if not occupants or dice.chance(25):
            made = self.occupant(dice, "new", dice.pick(list(cluster.node_objects)))
            return Happening(cluster.with_object(made), target, None, made)
        old = dice.pick(occupants)
        if dice.chance(50):
            return Happening(cluster.without_object(old), target, old, None)
        new = self.changed_occupant(dice, old)
        return Happening(cluster.with_object(new), target, old, new)

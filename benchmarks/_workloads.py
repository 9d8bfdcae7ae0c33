"""The workloads of kube-scheduler's own benchmark suite, scheduler_perf, rebuilt with the same objects and sizes.

Each is a story in two parts: what is there before the clock starts (nodes, and pods that are placed already), and what is measured. The
default sizes are the suite's at 5,000 nodes; both can be scaled. Where the suite draws names by lot, names are counted here, so that
two runs write the same facts. What the suite does in the background by the clock comes here after every so many pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tidelog.api.objects import (
    Condition,
    Node,
    Object,
    Pod,
    Volume,
)
from tidelog.benchmarks._claims import (
    BACKED,
    EBS,
    backed_classes,
    claiming,
    devices_setup,
    mounting,
    volumes_setup,
)
from tidelog.testing.builders import (
    HOSTNAME,
    RACK,
    ZONE,
    NodeBuilder,
    PodBuilder,
    namespace,
    node,
    pod,
    pod_group,
    priority_class,
    service,
)

SPREAD_ZONES = ("moon-1", "moon-2", "moon-3")
NODES_PER_RACK = 100


class Background(NamedTuple):
    """Events beside the measured pods: after every `every` of them, `step(n)` is put; what it deletes goes first."""

    every: int
    step: Callable[[int], tuple[Sequence[Object], Sequence[Object]]]
    """n → (objects to delete, objects to put)."""


class Story(NamedTuple):
    """One workload at one size."""

    setup: Sequence[Object]
    """Put and settled before the clock starts."""
    measured: Sequence[Object]
    """Put as fast as they are taken; the clock stops when the last outcome about them is durable."""
    background: Background | None = None
    gates: Mapping[str, bool] = {}
    """Feature gates other than the default ones."""


class Workload(NamedTuple):
    """A workload by name. `build(nodes, pods)` gives it at a size."""

    summary: str
    nodes: int
    pods: int
    build: Callable[[int, int], Story]


# --- objects --------------------------------------------------------------------------------------------------------------


def _pod(name: str, space: str) -> PodBuilder:
    return pod(name, space).scheduler("default-scheduler")


def _nodes(count: int, shape: Callable[[int, NodeBuilder], NodeBuilder] = lambda _, n: n) -> list[Object]:
    """node-default: 4 cores, 32 GiB, 110 pods."""
    plain = node("node").capacity(cpu="4", memory="32Gi", pods="110")
    return [shape(i, plain.named(f"node-{i:05}")).build() for i in range(count)]


def _zoned(count: int, zones: Sequence[str]) -> list[Object]:
    return _nodes(count, lambda i, n: n.label({ZONE: zones[i % len(zones)]}))


def _copies(name: str, count: int, like: PodBuilder) -> list[Object]:
    """So many pods like this one, which is built once: copies differ in nothing but their names."""
    one = like.build()
    return [replace(one, metadata=replace(one.metadata, name=f"{name}-{i:05}")) for i in range(count)]


def _requesting(like: PodBuilder, cpu: str = "100m", memory: str = "500Mi") -> PodBuilder:
    return like.image("registry.k8s.io/pause:3.10").request(cpu=cpu, memory=memory)


def _default(space: str = "measured") -> PodBuilder:
    """pod-default."""
    return _requesting(_pod("pod", space)).limit(cpu="100m", memory="500Mi")


def _low() -> PodBuilder:
    return _requesting(_pod("low", "init"), cpu="900m").limit(cpu="900m", memory="500Mi").grace(0)


def _large(name: str) -> PodBuilder:
    """pod-high-priority-large-cpu, which never fits a node of 4 cores."""
    return _requesting(_pod(name, "churn"), cpu="9").priority_class("large")


def _spaces(*names: str) -> list[Object]:
    classes = [priority_class("large", 10), priority_class("high", 9_999_999)]
    return [*classes, *(namespace(name) for name in names)]


_ALL_SPACES = _spaces("init", "measured", "churn")


# --- workloads ------------------------------------------------------------------------------------------------------------


def _scheduling_basic(nodes: int, pods: int) -> Story:
    setup = [*_ALL_SPACES, *_nodes(nodes), *_copies("init", min(1_000, nodes), _default("init"))]
    return Story(setup, _copies("pod", pods, _default()))


def _spread(soft: bool) -> Callable[[int, int], Story]:
    def build(nodes: int, pods: int) -> Story:
        like = _default().label(color="blue").spread(ZONE, max_skew=5, soft=soft)
        setup = [*_ALL_SPACES, *_zoned(nodes, SPREAD_ZONES), *_copies("init", nodes, _default("init"))]
        return Story(setup, _copies("pod", pods, like))

    return build


def _default_spreading(nodes: int, pods: int) -> Story:
    setup = [
        *_ALL_SPACES,
        service("web", {"app": "scheduler-perf"}, "measured"),
        *_zoned(nodes, SPREAD_ZONES),
        *_copies("init", nodes, _default("init")),
    ]
    like = _pod("pod", "measured").image("registry.k8s.io/pause:3.10").label(app="scheduler-perf")
    return Story(setup, _copies("pod", pods, like))


def _affinity(
    like: Callable[[PodBuilder], PodBuilder], *, zone: str = "", init: int | None = None
) -> Callable[[int, int], Story]:
    """Pods with the same terms, first in sched-0 and then, measured, in sched-1."""

    def build(nodes: int, pods: int) -> Story:
        there = _zoned(nodes, [zone]) if zone else _nodes(nodes)
        before = nodes if init is None else min(init, nodes // 5)
        setup = [
            *_spaces("sched-0", "sched-1"),
            *there,
            *_copies("init", before, like(_default("sched-0"))),
        ]
        return Story(setup, _copies("pod", pods, like(_default("sched-1"))))

    return build


_BOTH = ("sched-1", "sched-0")


def _repelling(like: PodBuilder) -> PodBuilder:
    return like.label(color="green").pod_anti_affinity(HOSTNAME, "color=green", namespaces=_BOTH)


def _attracted(like: PodBuilder) -> PodBuilder:
    return like.label(color="blue").pod_affinity(ZONE, "color=blue", namespaces=_BOTH)


def _rather_near(like: PodBuilder) -> PodBuilder:
    return like.label(color="red").prefer_pod_affinity(1, HOSTNAME, "color=red", namespaces=_BOTH)


def _rather_far(like: PodBuilder) -> PodBuilder:
    return like.label(color="yellow").prefer_pod_anti_affinity(1, HOSTNAME, "color=yellow", namespaces=_BOTH)


def _in_zones(like: PodBuilder) -> PodBuilder:
    return like.node_affinity(f"{ZONE} in (zone1,zone2)")


def _mixed(nodes: int, pods: int) -> Story:
    """MixedSchedulingBasePod: plain pods among pods of every kind of affinity and spread."""
    kinds: tuple[tuple[str, Callable[[PodBuilder], PodBuilder]], ...] = (
        ("plain", lambda like: like),
        ("near", _attracted),
        ("far", _repelling),
        ("rather-near", _rather_near),
        ("rather-far", _rather_far),
    )
    each = min(2_000, nodes // 3)
    setup = [*_spaces("sched-0", "sched-1", "measured"), *_zoned(nodes, ["zone1"])]
    for name, like in kinds:
        setup += _copies(name, each, like(_default("sched-0")))
    return Story(setup, _copies("pod", pods, _default()))


def _daemonset(nodes: int, pods: int) -> Story:
    big = node("scheduler-perf-node").capacity(cpu="4", memory="32Gi", pods="90000").build()
    like = _pod("pod", "measured").image("registry.k8s.io/pause:3.10")
    like = like.node_affinity("metadata.name=scheduler-perf-node")
    return Story([*_ALL_SPACES, big, *_nodes(nodes)], _copies("pod", pods, like))


def _unschedulable(nodes: int, pods: int) -> Story:
    """Two pods that never fit beside each one that does."""
    never = _copies("never", 2 * pods, _large("never").namespace("measured"))
    fitting = _copies("pod", pods, _default())
    measured: list[Object] = []
    for i, one in enumerate(fitting):
        measured += (one, *never[2 * i : 2 * i + 2])
    return Story([*_ALL_SPACES, *_nodes(nodes)], measured)


def _mixed_churn(nodes: int, pods: int) -> Story:
    """Beside the measured pods a node without room, a pod that never fits and a Service come and go, as each second of the suite's."""
    things: tuple[Object, ...] = (
        node("node-churn").capacity(cpu="0", memory="0", pods="0").build(),
        _large("pod-churn").build(),
        service("service-churn", {"app": "foo"}, "churn"),
    )
    background = Background(500, lambda n: (things, ()) if n % 2 else ((), things))
    return Story([*_ALL_SPACES, *_nodes(nodes)], _copies("pod", pods, _default()), background)


def _while_gated(nodes: int, pods: int) -> Story:
    """One node; half as many gated pods as measured ones wait all the time, and as many light pods are deleted meanwhile."""
    del nodes
    big = node("scheduler-perf-node").capacity(cpu="4", memory="32Gi", pods="90000").build()
    light = _pod("light", "measured").image("registry.k8s.io/pause:3.10").grace(0)
    gated = _copies("gated", pods // 2, light.gate("test.k8s.io/hold"))
    leaving = _copies("leaving", pods, light)
    background = Background(100, lambda n: (leaving[n * 10 : n * 10 + 10], ()))
    return Story([*_ALL_SPACES, big, *gated, *leaving], _copies("pod", pods, light), background)


def _preemption(nodes: int, pods: int) -> Story:
    """PreemptionAsync: nodes full of low pods; now and then one comes that must evict four of them, the measured ones always fit."""

    def step(n: int) -> tuple[Sequence[Object], Sequence[Object]]:
        high = _requesting(_pod(f"high-{n:05}", "churn"), cpu="3970m").priority_class("high").grace(0)
        return (), (high.build(),)

    setup = [*_ALL_SPACES, *_nodes(nodes), *_copies("low", 4 * nodes, _low())]
    return Story(setup, _copies("pod", pods, _default()), Background(70, step))


def _gangs(size: int, level: str | None) -> Callable[[int, int], Story]:
    def build(nodes: int, pods: int) -> Story:
        def racked(i: int, n: NodeBuilder) -> NodeBuilder:
            return n.label({ZONE: f"zone-{i // NODES_PER_RACK}", RACK: f"rack-{i // NODES_PER_RACK}"})

        there = _nodes(nodes) if level is None else _nodes(nodes, racked)
        measured: list[Object] = []
        for group in range(pods // size):
            name = f"gang-{group:05}"
            measured.append(pod_group(name, namespace="measured", min_count=size, level=level))
            like = _requesting(_pod(name, "measured"), memory="100Mi").group(name)
            measured += _copies(name, size, like)
        gates = {"TopologyAwareWorkloadScheduling": True} if level else {}
        return Story([*_ALL_SPACES, *there], measured, gates=gates)

    return build


def _heterogeneous(nodes: int, pods: int) -> Story:
    """No two pods ask for the same or have the same labels."""
    measured: list[Object] = [
        _requesting(_pod(f"pod-{i:05}", "measured"), cpu=f"{50 + i % 97}m", memory=f"{100 + i}Mi")
        .label(app=f"app-{i}")
        .build()
        for i in range(pods)
    ]
    return Story([*_ALL_SPACES, *_nodes(nodes)], measured)


def _many_deployments(nodes: int, pods: int) -> Story:
    """A deployment for every 40 pods, each with requests, an image and a label of its own, interleaved; nodes of 20 sizes."""

    def sized(i: int, n: NodeBuilder) -> NodeBuilder:
        return n.capacity(cpu=str(4 + i % 5 * 4), memory=f"{16 + i % 4 * 16}Gi", pods="110")

    count = max(1, pods // 40)
    likes = [
        _pod(f"app-{d:03}", "measured")
        .image(f"registry.example.com/app-{d}:1")
        .request(cpu=f"{50 + d * 37 % 450}m", memory=f"{64 + d * 53 % 900}Mi")
        .label({"app": f"app-{d}", "pod-template-hash": f"{d * 7919 % 99991:05}"})
        .build()
        for d in range(count)
    ]
    measured: list[Object] = []
    for i in range(pods):
        like = likes[i % count]
        name = f"{like.metadata.name}-{i // count:03}"
        measured.append(replace(like, metadata=replace(like.metadata, name=name)))
    return Story([*_ALL_SPACES, *_nodes(nodes, sized)], measured)


def _stateful_sets(nodes: int, pods: int) -> Story:
    """Of each 100 pods, whose labels tell their number."""
    measured: list[Object] = []
    for s in range(max(1, pods // 100)):
        like = _default().label(app=f"set-{s}").build()
        for i in range(min(100, pods)):
            name = f"set-{s}-{i}"
            labels = {
                **like.metadata.labels,
                "apps.kubernetes.io/pod-index": str(i),
                "statefulset.kubernetes.io/pod-name": name,
            }
            measured.append(replace(like, metadata=replace(like.metadata, name=name, labels=labels)))
    return Story([*_ALL_SPACES, *_nodes(nodes)], measured)


HEARTBEAT_EVERY = 300
"""Seconds between two statuses of one node."""
PODS_PER_SECOND = 10_000
"""The rhythm of the heartbeats: so many measured pods are a second."""


def _heartbeats(nodes: int, pods: int) -> Story:
    """SchedulingBasic, while each node reports its status every five minutes."""
    story = _scheduling_basic(nodes, pods)
    every = max(1, PODS_PER_SECOND * HEARTBEAT_EVERY // nodes)
    at_once = max(1, REPORTING * nodes // (PODS_PER_SECOND * HEARTBEAT_EVERY))
    there = [one for one in story.setup if isinstance(one, Node)]

    def step(n: int) -> tuple[Sequence[Object], Sequence[Object]]:
        told = []
        for i in range(at_once):
            place, turn = (n * at_once + i) % nodes, (n * at_once + i) // nodes
            ready = Condition(
                type="Ready",
                status="True",
                reason="KubeletReady",
                last_transition_time=f"2030-01-01T00:{turn % 60:02}:{n % 60:02}Z",
            )
            node_ = there[place]
            told.append(replace(node_, status=replace(node_.status, conditions=(ready,))))
        return (), told

    return story._replace(background=Background(min(every, REPORTING) if at_once == 1 else REPORTING, step))


REPORTING = 250
"""Heartbeats come beside so many pods, or fewer."""


def _pod_delete(nodes: int, pods: int) -> Story:
    """EventHandlingPodDelete, its part without volumes: every node is full of pods that leave one by one, which lets others in."""
    blockers = _copies("blocker", 2 * nodes, _requesting(_pod("blocker", "init"), cpu="2").grace(0))
    step = max(1, pods // max(1, len(blockers)))
    background = Background(step, lambda n: (blockers[n : n + 1], ()))
    measured = _copies("pod", pods, _requesting(_pod("pod", "measured"), cpu="500m"))
    return Story([*_ALL_SPACES, *_nodes(nodes), *blockers], measured, background)


def _node_add(nodes: int, pods: int) -> Story:
    """EventHandlingNodeAdd, its part about resources: the pods wait for nodes that come one by one."""
    background = Background(
        max(1, pods // nodes), lambda n: ((), _nodes(nodes)[n : n + 1] if n < nodes else ())
    )
    return Story(
        [*_ALL_SPACES, *_nodes(1)],
        _copies("pod", pods, _requesting(_pod("pod", "measured"), cpu="2")),
        background,
    )


def _pod_update(nodes: int, pods: int) -> Story:
    """EventHandlingPodUpdate, its part about tolerations: no node is open to the pods until each is given a toleration."""
    closed = _nodes(nodes, lambda i, n: _roomy(i, n).taint("toleration"))
    waiting = _copies("pod", pods, _requesting(_pod("pod", "measured"), cpu="1m", memory="1Mi"))
    tolerating = _copies(
        "pod", pods, _requesting(_pod("pod", "measured"), cpu="1m", memory="1Mi").tolerate("toleration")
    )
    return Story([*_ALL_SPACES, *closed, *waiting], tolerating)


def _pod_add(nodes: int, pods: int) -> Story:
    """EventHandlingPodAdd, its part about affinity: each pod waits for one with a colour of its own, which is the next to come."""
    like = _requesting(_pod("pod", "measured"), cpu="1m", memory="1Mi")
    measured: list[Object] = []
    waiting: list[Object] = []
    for i in range(pods):
        colour = f"yellow-{i}"
        waiting.append(like.named(f"pod-{i:05}").pod_affinity(HOSTNAME, f"color={colour}").build())
        measured.append(like.named(f"unblocker-{i:05}").label(color=colour).build())
    return Story([*_ALL_SPACES, *_nodes(nodes, _roomy), *waiting], measured)


def _node_update(nodes: int, pods: int) -> Story:
    """EventHandlingNodeUpdate, its part about resources: the nodes are there, and are given room one by one."""
    without = _nodes(nodes, lambda _, n: n.capacity(cpu="1m", memory="1Mi", pods="110"))
    background = Background(
        max(1, pods // nodes), lambda n: ((), _nodes(nodes)[n : n + 1] if n < nodes else ())
    )
    measured = _copies("pod", pods, _requesting(_pod("pod", "measured"), cpu="350m", memory="3Gi"))
    return Story([*_ALL_SPACES, *without], measured, background)


def _secrets(nodes: int, pods: int) -> Story:
    """Volumes that have nothing to do with where a pod runs."""

    def like(space: str) -> PodBuilder:
        made = _default(space)
        return replace(made, spec=replace(made.spec, volumes=(Volume(name="secret"),)))

    setup = [*_ALL_SPACES, *_nodes(nodes), *_copies("init", min(1_000, nodes), like("init"))]
    return Story(setup, _copies("pod", pods, like("measured")))


def _volumes(
    driver: str, init: int, *, limited: bool = False, migrated: bool = False
) -> Callable[[int, int], Story]:
    """Pods with a claim each, bound to a volume of its own before the pod comes. An empty driver: volumes of the old in-tree kind."""

    def build(nodes: int, pods: int) -> Story:
        there = _nodes(nodes)
        setup = [*_ALL_SPACES, *there, *volumes_setup(there, limited=limited, migrated=migrated)]
        before = mounting(_copies("init", min(init, nodes), _default("init")), driver)
        return Story([*setup, *before], list(mounting(_copies("pod", pods, _default()), driver)))

    return build


def _preempting_with_volumes(nodes: int, pods: int) -> Story:
    """PreemptionPVs: each pod has a volume, and must evict the four low pods of a node. It ends with the nominations: no kubelet ends the victims."""
    high = _requesting(_pod("high", "measured"), cpu="3970m").priority_class("high").grace(0)
    there = _nodes(nodes)
    setup = [*_ALL_SPACES, *there, *volumes_setup(there, limited=False)]
    return Story(
        [*setup, *_copies("low", 4 * nodes, _low())], list(mounting(_copies("high", pods, high), ""))
    )


def _devices(claims: int = 1, *selectors: str) -> Callable[[int, int], Story]:
    """Half of the pods are there before; each has claims of its own, of one device each."""

    def build(nodes: int, pods: int) -> Story:
        there, like = _nodes(nodes), _requesting(_pod("pod", "measured"), cpu="1m", memory="1Mi")
        init = list(claiming(_copies("init", pods, like.named("init")), claims, *selectors))
        setup = [*_ALL_SPACES, *there, *devices_setup(there, 2 * claims * -(-pods // nodes)), *init]
        return Story(setup, list(claiming(_copies("pod", pods, like), claims, *selectors)))

    return build


def _extended_resources(classes: int) -> Callable[[int, int], Story]:
    """Each pod asks for an extended resource that a class of devices backs; without classes the nodes have it themselves."""

    def build(nodes: int, pods: int) -> Story:
        like = _requesting(_pod("pod", "measured"), cpu="1m", memory="1Mi")
        if not classes:
            there = _nodes(nodes, lambda _, n: n.capacity({BACKED: 10}))
            return Story([*_ALL_SPACES, *there], _copies("pod", pods, _of(like, BACKED)))
        there = _nodes(nodes)
        setup = [*_ALL_SPACES, *there, *devices_setup(there, -(-pods // nodes)), *backed_classes(classes)]
        kinds = [
            list(_copies(f"pod-{i}", -(-pods // classes), _of(like, f"{BACKED}-{i}"))) for i in range(classes)
        ]
        return Story(setup, [one for kind in kinds for one in kind][:pods])

    return build


def _of(like: PodBuilder, resource: str) -> PodBuilder:
    """Asking for one of an extended resource."""
    return like.request({resource: 1}).limit({resource: 1})


def _roomy(_: int, n: NodeBuilder) -> NodeBuilder:
    return n.capacity(cpu="4", memory="32Gi", pods="90000")


WORKLOADS: dict[str, Workload] = {
    "SchedulingBasic": Workload("plain pods", 5_000, 10_000, _scheduling_basic),
    "TopologySpreading": Workload("required spread over three zones", 5_000, 5_000, _spread(False)),
    "PreferredTopologySpreading": Workload("preferred spread over zones", 5_000, 5_000, _spread(True)),
    "DefaultTopologySpreading": Workload(
        "pods of a Service, spread by default", 5_000, 10_000, _default_spreading
    ),
    "SchedulingPodAntiAffinity": Workload(
        "one of a kind on a node", 5_000, 2_000, _affinity(_repelling, init=1_000)
    ),
    "SchedulingPodAffinity": Workload(
        "required affinity within a zone", 5_000, 5_000, _affinity(_attracted, zone="zone1")
    ),
    "SchedulingPreferredPodAffinity": Workload(
        "preferred affinity on a node", 5_000, 5_000, _affinity(_rather_near)
    ),
    "SchedulingNodeAffinity": Workload(
        "required zones", 5_000, 10_000, _affinity(_in_zones, zone="zone1", init=5_000)
    ),
    "MixedSchedulingBasePod": Workload("plain pods among all kinds of affinity", 5_000, 5_000, _mixed),
    "SchedulingDaemonset": Workload("pods that name their node", 15_000, 30_000, _daemonset),
    "Unschedulable": Workload("two pods that never fit beside each that does", 5_000, 10_000, _unschedulable),
    "SchedulingWithMixedChurn": Workload(
        "plain pods while other things come and go", 5_000, 10_000, _mixed_churn
    ),
    "SchedulingWhileGated": Workload("plain pods beside gated and leaving ones", 1, 20_000, _while_gated),
    "PreemptionAsync": Workload("plain pods while others preempt", 5_000, 5_000, _preemption),
    "EventHandlingPodDelete": Workload("full nodes whose pods leave", 50, 500, _pod_delete),
    "EventHandlingPodUpdate": Workload("pods that are given a toleration", 1, 1_000, _pod_update),
    "EventHandlingPodAdd": Workload("pods that wait for another pod each", 2, 1_000, _pod_add),
    "EventHandlingNodeAdd": Workload("pods that wait for nodes", 100, 200, _node_add),
    "EventHandlingNodeUpdate": Workload("nodes that are given room", 100, 1_000, _node_update),
    "GangScheduling": Workload("gangs of 3", 5_000, 3_000, _gangs(3, None)),
    "GangSchedulingLarge": Workload("gangs of 1,000", 5_000, 3_000, _gangs(1_000, None)),
    "TopologyAwareScheduling": Workload("gangs of 4, each in one rack", 5_000, 3_000, _gangs(4, RACK)),
    "TopologyAwareSchedulingLarge": Workload(
        "gangs of 1,000, each in one rack", 5_000, 3_000, _gangs(1_000, RACK)
    ),
    "SchedulingSecrets": Workload("pods with a secret each", 5_000, 10_000, _secrets),
    "SchedulingInTreePVs": Workload(
        "pods with a bound volume of the old kind each", 5_000, 2_000, _volumes("", 1_000)
    ),
    "SchedulingMigratedInTreePVs": Workload(
        "the same, left to a CSI driver with limits",
        5_000,
        5_000,
        _volumes("", 5_000, limited=True, migrated=True),
    ),
    "SchedulingCSIPVs": Workload(
        "pods with a bound CSI volume each, on nodes with limits",
        5_000,
        5_000,
        _volumes(EBS, 5_000, limited=True),
    ),
    "PreemptionPVs": Workload("pods with a volume that preempt", 1_000, 1_000, _preempting_with_volumes),
    "SchedulingWithResourceClaimTemplate": Workload(
        "pods with a claim of one device each", 500, 2_500, _devices()
    ),
    "SchedulingWithResourceClaimSelector": Workload(
        "the same, chosen by an attribute",
        500,
        2_500,
        _devices(1, "device.attributes['gpu.example.com'].index >= 0"),
    ),
    "SchedulingWithMultipleResourceClaims": Workload("pods with two claims each", 500, 2_500, _devices(2)),
    "ExtendedResource": Workload(
        "extended resources that 25 classes of devices back", 500, 5_000, _extended_resources(25)
    ),
    "SchedulingWithExtendedResource": Workload(
        "extended resources that the nodes have", 5_000, 5_000, _extended_resources(0)
    ),
    "ManyDeployments": Workload(
        "deployments of 40 pods each, interleaved, on nodes of 20 sizes", 5_000, 20_000, _many_deployments
    ),
    "StatefulSets": Workload("pods whose labels tell their number", 5_000, 10_000, _stateful_sets),
    "Heartbeats": Workload(
        "plain pods while every node reports every five minutes", 5_000, 10_000, _heartbeats
    ),
    "130kNodes": Workload("plain pods on 130,000 nodes", 130_000, 1_000_000, _scheduling_basic),
    "heterogeneous": Workload("no two pods alike", 5_000, 5_000, _heterogeneous),
}
"""By the suite's names; the last five are ours, and so is that of the selector."""


def pods_of(objects: Iterable[Object]) -> int:
    """How many of them are pods."""
    return sum(isinstance(one, Pod) for one in objects)

"""Plugins of every declaration beside the default ones: the fast evaluation gives the plain one's answers, and asks no more than it must."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec
import pytest
from msgspec.structs import replace

from tests.scheduler.evaluation import foreign_plugins as foreign
from tests.scheduler.evaluation.foreign_offers import (
    ByUse,
    ByUseTogether,
    Choosy,
    PodsInLanes,
    SpareCpu,
    UsesInLanes,
)
from tests.scheduler.evaluation.foreign_plugins import configured, registry_with
from tests.scheduler.evaluation.test_fast import SEEDS, STEPS, World, asked, copies, rows, step
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Condition, Node
from tidelog.framework.effort import Paused
from tidelog.framework.framework import Framework
from tidelog.framework.interface import CycleState, Depends, Plugin, Status, unschedulable
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import PodParts
from tidelog.plugins.inter_pod_affinity.domains import AffinityDomains
from tidelog.plugins.inter_pod_affinity.plugin import InterPodAffinity
from tidelog.plugins.node_affinity import NodeAffinity
from tidelog.plugins.node_resources.fit import NodeResourcesFit
from tidelog.replay.driver import Driver
from tidelog.replay.verify import verify
from tidelog.scheduler.core import Core
from tidelog.scheduler.decision import Decision
from tidelog.scheduler.evaluation.fast import FastEvaluation
from tidelog.scheduler.groups.aggregate import AggregateCheck, Shortage
from tidelog.testing import builders as b
from tidelog.testing import storage as s

__all__ = ["asked", "rows"]

COMBINATIONS: tuple[tuple[type[Plugin], ...], ...] = (
    *((plugin,) for plugin in foreign.ALL),
    (foreign.ByOccupants, foreign.ByNode, foreign.ByState),
    (foreign.Undeclared, foreign.ByOccupants, foreign.Narrowing),
    foreign.ALL,
)


def begin(seed: int, plugins: Sequence[type[Plugin]], *, fast: bool = True) -> tuple[World, Driver]:
    registry = registry_with(plugins)
    world, driver = World(seed), Driver(registry)
    driver.core = Core(registry, fast=fast)
    driver.start(configured(registry, plugins))
    driver.put(b.namespace("default"), *(world.node() for _ in range(world.random.randint(2, 12))))
    return world, driver


@pytest.fixture(autouse=True)
def narrowed_pods_have_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.scheduler.evaluation.fast.NARROWED_FEW", 0)


@pytest.mark.parametrize("plugins", COMBINATIONS, ids=lambda found: "+".join(p.name for p in found))
@pytest.mark.parametrize("seed", range(max(2, SEEDS // 12)))
def test_fast_and_plain_evaluation_agree_beside_foreign_plugins(
    seed: int, plugins: Sequence[type[Plugin]], asked: Counter[str]
) -> None:
    world, driver = begin(
        500 + 3 * seed, plugins
    )  # In every second world nodes come, go and change all the time.

    for _ in range(STEPS):
        change_storage(world, driver)
        step(world, driver)

    assert asked["fast"] > asked["plain"]
    assert verify(driver.records, driver.registry).first_difference is None


@pytest.mark.parametrize("plugins", COMBINATIONS, ids=lambda found: "+".join(p.name for p in found))
def test_log_is_the_same_with_foreign_plugins_without_the_fast_evaluation(
    plugins: Sequence[type[Plugin]],
) -> None:
    (world, driver), (again, plain) = begin(79, plugins), begin(79, plugins, fast=False)

    for _ in range(STEPS):
        for there, one in ((world, driver), (again, plain)):
            change_storage(there, one)
            step(there, one)

    encode = msgspec.json.Encoder(order="deterministic").encode
    assert [encode(record) for record in plain.records] == [encode(record) for record in driver.records]
    assert len(driver.placements()) > 10
    assert verify(driver.records, driver.registry).first_difference is None


def change_storage(world: World, driver: Driver) -> None:
    """A volume comes or goes, now and then."""
    volume = s.volume(f"free{world.random.randrange(4)}")
    if not world.chance(0.3):
        return
    known = driver.core.objects.get(object_key(volume))
    if known is None:
        driver.put(volume)
    else:
        driver.delete(known)


@pytest.mark.parametrize("plugin", [ByUse, ByUseTogether])
def test_functions_of_use_of_a_foreign_plugin_give_what_it_says_of_each_node(
    plugin: type[Plugin], asked: Counter[str], rows: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_lanes = calls_of(
        monkeypatch, (PodsInLanes, "answers"), (UsesInLanes, "answers_for"), (UsesInLanes, "bounds_for")
    )
    draw, registry = random.Random(1), registry_with([plugin])
    driver = Driver(registry)
    # Sums of three such scores are too high for the board.
    driver.start(configured(registry, [plugin], without=["NodeResourcesBalancedAllocation"]))
    driver.put(
        *(b.node(f"n{i}").capacity(cpu="3", memory=draw.choice(["8Gi", "9Gi"])).build() for i in range(40))
    )
    kinds = [b.pod("kind").request(cpu=f"{i + 1}00m", memory=f"{64 * (i + 1)}Mi") for i in range(10)]

    for number in range(150):
        made = draw.choice(kinds)
        if number % 3 == 0:
            made = made.request(cpu=f"{200 + number}m", memory=f"{100 + number}Mi")
        driver.put(made.named(f"p{number}").scheduler("default-scheduler").build())
        driver.settle()

    assert asked["plain"] == 0
    assert rows() > 0
    assert set(in_lanes) == (
        {"PodsInLanes.answers", "UsesInLanes.answers_for", "UsesInLanes.bounds_for"}
        if plugin is ByUseTogether
        else set()
    )
    assert verify(driver.records, driver.registry).first_difference is None


@pytest.mark.parametrize(("count", "nodes"), [(4, {"b0", "b1"}), (8, set())])
def test_sums_of_a_foreign_plugin_turn_down_zones_that_cannot_take_a_gang(
    count: int, nodes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shortage, reasons = AggregateCheck.shortage, []

    def noted(check: AggregateCheck, there: Iterable[NodeInfo]) -> Shortage | None:
        found = shortage(check, there)
        reasons.append(found)
        return found

    monkeypatch.setattr(AggregateCheck, "shortage", noted)
    gates = {"featureGates": {"TopologyAwareWorkloadScheduling": True}}
    drivers = []
    for fast in (True, False):
        registry = registry_with([SpareCpu])
        driver = Driver(registry)
        driver.core = Core(registry, fast=fast)
        driver.start(configured(registry, [SpareCpu], without=["NodeResourcesFit"], tidelog=gates))
        driver.put(
            *(b.node(name).label({b.ZONE: name[0]}).capacity(cpu="3").build() for name in ("a0", "b0", "b1"))
        )
        driver.put(b.namespace("default"), b.pod_group("train", min_count=count, level=b.ZONE))
        like = b.pod("train").scheduler("default-scheduler").group("train").request(cpu="1")
        driver.put(*copies(count, like))
        driver.settle()
        assert verify(driver.records, driver.registry).first_difference is None
        drivers.append(driver)

    assert Shortage(f"aggregate cpu: 3000 free, {count}000 needed (millicores)", ("SpareCpu",)) in reasons
    assert set(drivers[0].placements().values()) == nodes
    assert [record.body for record in drivers[0].records] == [record.body for record in drivers[1].records]


def calls_of(monkeypatch: pytest.MonkeyPatch, *methods: tuple[type, str]) -> Counter[str]:
    """How often these methods are called from now on."""
    found: Counter[str] = Counter()

    def count(owner: type, method: str) -> None:
        original = getattr(owner, method)

        def call(*arguments: object) -> object:
            found[f"{owner.__name__}.{method}"] += 1
            return original(*arguments)

        monkeypatch.setattr(owner, method, call)

    for owner, method in methods:
        count(owner, method)
    return found


class Tainted(Plugin):
    """Rather a node with a taint."""

    name = "Tainted"
    score_depends = Depends.TRAITS
    signed_parts = PodParts.SPEC

    def sign_pod(self, pod: PodInfo) -> object:
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return len(node.node.spec.taints)


def test_first_pods_are_placed_though_all_nodes_with_the_best_traits_are_full(asked: Counter[str]) -> None:
    registry = registry_with([Tainted])
    driver = Driver(registry)
    driver.start(configured(registry, [Tainted]))
    driver.put(*(b.node(f"n{i}").build() for i in range(20)))
    driver.put(b.node("full").capacity(pods="1").taint("slow", "", "PreferNoSchedule").build())
    driver.put(b.pod("there").on("full").build())

    for number in range(3):
        driver.put(b.pod(f"p{number}").scheduler("default-scheduler").request(cpu=f"{number + 1}00m").build())
        driver.settle()

    assert asked["fast"] == 3
    assert "full" not in [driver.placements()[f"default/p{number}"] for number in range(3)]
    assert verify(driver.records, driver.registry).first_difference is None


class CountingByTraits(Tainted):
    """Counts how often it is asked."""

    name = "CountingByTraits"
    asked = 0

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        CountingByTraits.asked += 1
        return super().score(state, pod, node)


def test_plugins_that_go_by_traits_are_asked_once_for_all_shapes_that_they_cannot_tell_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CountingByTraits, "asked", 0)
    registry = registry_with([CountingByTraits])
    driver = Driver(registry)
    driver.start(configured(registry, [CountingByTraits]))
    driver.put(*(b.node(f"n{i}").capacity(cpu=str(4 + i % 5)).build() for i in range(20)))

    for number in range(30):
        made = b.pod(f"p{number}").scheduler("default-scheduler").image(f"example.com/{number}:1")
        driver.put(made.request(cpu=f"{number + 1}0m").build())
        driver.settle()

    assert len(driver.placements()) == 30
    assert CountingByTraits.asked == 5
    assert verify(driver.records, driver.registry).first_difference is None


class Dear(Plugin):
    """Takes so long that an attempt is interrupted."""

    name = "Dear"
    filter_depends = Depends.STATE

    def sign_pod(self, pod: PodInfo) -> object:
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        self.handle.snapshot.effort.spend(1)
        return unschedulable("odd") if len(node.pods) == 3 else None


class DearByTraits(Dear):
    """The same, and looks at less."""

    name = "DearByTraits"
    filter_depends = Depends.TRAITS

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        self.handle.snapshot.effort.spend(1)
        return unschedulable("odd") if node.allocatable["cpu"] == 3_000 else None


@pytest.mark.parametrize("plugin", [Dear, DearByTraits])
def test_attempts_that_a_filter_interrupts_anywhere_come_to_what_they_would_come_to_at_once(
    plugin: type[Plugin], rows: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, registry = random.Random(1), registry_with([plugin])
    driver = Driver(registry)
    attempt, paused = driver.core.attempt, 0

    def in_turns(now: int, most: int | None = None) -> Decision | None:
        nonlocal paused
        for _ in range(draw.choice([0, 3, 20])):
            try:
                return attempt(now, draw.choice([0, 1, 2, 5]))
            except Paused:
                paused += 1
        return attempt(now)

    monkeypatch.setattr(driver.core, "attempt", in_turns)
    driver.start(configured(registry, [plugin]))

    def put_node(number: int) -> None:
        made = b.node(f"n{number}").capacity(cpu=draw.choice("2348"), pods=draw.choice("6789"))
        driver.put(made.taint("slow", draw.choice("xy"), "PreferNoSchedule").build())

    for number in range(30):
        put_node(number)
    for number in range(240):
        made = b.pod(f"p{number}").scheduler("default-scheduler").tolerate(f"of-{number % 7}")
        if number % 5 == 0:
            made = made.label(app="spread").spread(b.HOSTNAME, max_skew=2)
            made = made.prefer_pod_affinity(number % 7 + 1, b.HOSTNAME, "app=spread")
        driver.put(made.request(cpu=draw.choice(["100m", "200m", "300m"])).build())
        if number % 3 == 0:
            driver.settle()
        if number % 4 == 0:
            put_node(draw.randrange(60))
    driver.settle()

    assert paused > 100
    assert verify(driver.records, driver.registry).first_difference is None


# --- how often they are asked --------------------------------------------------------------------------------------------


def counting() -> Driver:
    registry = registry_with([foreign.Counting])
    driver = Driver(registry)
    driver.start(configured(registry, [foreign.Counting]))
    return driver


@pytest.mark.parametrize(
    ("depends", "most"),
    [
        (Depends.POD, 2),
        (Depends.STATE, 4),
        (Depends.NODE, 102),
        (Depends.NODE | Depends.OCCUPANTS, 162),
        (Depends.CLUSTER, 60 * 100),
    ],
)
def test_declaration_decides_how_often_a_filter_is_asked(
    depends: Depends, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign.Counting, "filter_depends", depends)
    noted = foreign.Counting.noted
    noted.clear()
    driver = counting()
    driver.put(*(b.node(f"n{i}").build() for i in range(100)))
    driver.put(*copies(60, b.pod("web").scheduler("default-scheduler").request(cpu="100m", memory="128Mi")))

    driver.settle()

    assert len(driver.placements()) == 60
    assert 0 < len(noted) <= most
    assert verify(driver.records, driver.registry).first_difference is None


def test_undeclared_filter_is_asked_about_the_nodes_that_others_leave() -> None:
    noted = foreign.Counting.noted
    noted.clear()
    driver = counting()
    driver.put(*(b.node(f"n{i}").label(disk="ssd" if i < 3 else "hdd").build() for i in range(50)))

    driver.put(b.pod("choosy").scheduler("default-scheduler").node_selector(disk="ssd").build())
    driver.settle()

    assert noted == ["n0", "n1", "n2"]
    assert verify(driver.records, driver.registry).first_difference is None


# --- nodes that change ---------------------------------------------------------------------------------------------------


def evaluation(driver: Driver) -> FastEvaluation:
    (framework,) = driver.core.frameworks.values()
    assert isinstance(framework, Framework)
    assert isinstance(framework.fast, FastEvaluation)
    return framework.fast


def settled(nodes: int = 50) -> tuple[Driver, list[Node]]:
    driver = Driver()
    driver.start()
    made = [b.node(f"n{i}").label({b.ZONE: "abc"[i % 3]}).build() for i in range(nodes)]
    driver.put(*made)
    like = b.pod("web").scheduler("default-scheduler").label(app="web").request(cpu="100m")
    driver.put(*copies(30, like.spread(b.ZONE, "app=web", max_skew=2)))
    driver.settle()
    return driver, made


def test_heartbeat_of_a_node_changes_nothing_that_plugins_see() -> None:
    driver, nodes = settled()
    before = driver.core.cluster.cache.generation
    ready = Condition(type="Ready", status="True", last_transition_time="2030-01-01T00:00:00Z")

    driver.put(replace(nodes[0], status=replace(nodes[0].status, conditions=(ready,))))
    once = driver.core.cluster.cache.generation
    later = replace(
        ready, last_transition_time="2030-01-01T00:05:00Z", message="kubelet is posting ready status"
    )
    driver.put(replace(nodes[0], status=replace(nodes[0].status, conditions=(later,))))

    assert once == before + 1
    assert driver.core.cluster.cache.generation == once
    assert verify(driver.records, driver.registry).first_difference is None


@pytest.mark.parametrize("change", ["label", "zone of a topology", "taint", "allocatable", "image"])
def test_changed_object_of_one_node_costs_that_node_and_no_new_index(
    change: str, asked: Counter[str]
) -> None:
    driver, _ = settled()
    index = evaluation(driver)._index
    epoch = index.epoch
    shapes = dict(evaluation(driver)._shapes)
    node = b.node("n0").label({b.ZONE: "a"})
    match change:
        case "label":
            node = node.label(disk="ssd")
        case "taint":
            node = node.taint("slow", "", "PreferNoSchedule")
        case "allocatable":
            node = node.capacity(cpu="7")
        case "image":
            node = node.image("web:1", 900 * 2**20)
        case _:
            node = node.label(rack="r1")

    driver.put(node.build())
    like = b.pod("more").scheduler("default-scheduler").label(app="web").request(cpu="100m")
    driver.put(*copies(5, like.spread(b.ZONE, "app=web", max_skew=2)))
    driver.settle()

    assert index.epoch == epoch
    assert set(shapes) <= set(evaluation(driver)._shapes)
    assert asked["plain"] == 0
    assert verify(driver.records, driver.registry).first_difference is None


def test_domains_are_counted_anew_when_a_node_changes_its_rack(asked: Counter[str]) -> None:
    driver = Driver()
    driver.start()
    driver.put(*(b.node(f"n{i}").label(rack=f"r{i % 4}").build() for i in range(12)))
    like = b.pod("web").scheduler("default-scheduler").label(app="web").request(cpu="100m")
    like = like.spread("rack", "app=web", max_skew=1).prefer_pod_anti_affinity(7, "rack", "app=web")
    for turn in range(8):
        driver.put(*copies(3, like.named(f"web{turn}")))
        driver.settle()
        driver.put(b.node(f"n{turn}").label(rack=f"r{(turn + 1) % 5}").build())

    assert asked["plain"] == 0
    assert verify(driver.records, driver.registry).first_difference is None


# --- shapes ---------------------------------------------------------------------------------------------------------------


def test_labels_that_nobody_asks_for_make_no_new_shape() -> None:
    driver = Driver()
    driver.start()
    driver.put(*(b.node(f"n{i}").build() for i in range(10)))
    like = b.pod("web").scheduler("default-scheduler").request(cpu="100m")
    for i in range(20):
        driver.put(like.named(f"web-{i}").label({"apps.kubernetes.io/pod-index": str(i)}).build())
    driver.settle()

    assert len(evaluation(driver)._shapes) == 1
    assert evaluation(driver).rekeyed == 0
    assert verify(driver.records, driver.registry).first_difference is None


def test_label_that_a_term_asks_for_tells_pods_apart_from_then_on(asked: Counter[str]) -> None:
    driver = Driver()
    driver.start()
    driver.put(b.namespace("default"), *(b.node(f"n{i}").build() for i in range(10)))
    like = b.pod("web").scheduler("default-scheduler").request(cpu="100m")
    driver.put(*(like.named(f"a-{i}").label(tier="front" if i % 2 else "back").build() for i in range(6)))
    driver.settle()
    one = len(evaluation(driver)._shapes)

    shy = b.pod("shy").scheduler("default-scheduler").pod_anti_affinity(b.HOSTNAME, "tier=front")
    driver.put(shy.build())
    driver.settle()
    driver.put(*(like.named(f"b-{i}").label(tier="front" if i % 2 else "back").build() for i in range(6)))
    driver.settle()

    fast = evaluation(driver)
    assert (one, len(fast._shapes), fast.rekeyed) == (1, 2, 1)
    assert asked["plain"] == 0
    there = driver.placements()
    assert there["default/shy"] not in {there[f"default/b-{i}"] for i in range(1, 6, 2)}
    assert verify(driver.records, driver.registry).first_difference is None


# --- what is done once ----------------------------------------------------------------------------------------------------


def test_domains_are_counted_once_though_the_first_pod_of_a_shape_gets_no_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    followed: Counter[int] = Counter()
    follow = AffinityDomains.follow

    def note(domains: AffinityDomains, place: int, node: NodeInfo) -> None:
        followed[place] += 1
        follow(domains, place, node)

    monkeypatch.setattr(AffinityDomains, "follow", note)
    driver = Driver()
    driver.start()
    driver.put(b.namespace("default"), *(b.node(f"n{i}").label({b.ZONE: "a"}).build() for i in range(40)))
    like = b.pod("web").scheduler("default-scheduler").label(app="web").pod_affinity(b.ZONE, "app=web")
    driver.put(like.named("first").request(cpu="300m").build())
    driver.settle()
    followed.clear()

    driver.put(*copies(5, like.request(cpu="100m")))
    driver.settle()

    assert followed.total() <= 40 + 4
    assert verify(driver.records, driver.registry).first_difference is None


def test_plugins_that_have_nothing_to_do_with_a_pod_are_not_asked_after_the_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reserved: list[str] = []
    monkeypatch.setattr(
        Choosy, "reserve", lambda _self, _state, pod, _node: reserved.append(pod.pod.metadata.name)
    )
    registry = registry_with([Choosy])
    driver = Driver(registry)
    driver.start(configured(registry, [Choosy]))
    driver.put(*(b.node(f"n{i}").build() for i in range(30)))
    like = b.pod("web").scheduler("default-scheduler").request(cpu="100m")

    driver.put(*copies(3, like), *copies(2, like.named("choosy").label(choosy="yes")))
    driver.settle()

    assert len(driver.placements()) == 5
    assert len(reserved) == 2
    assert verify(driver.records, driver.registry).first_difference is None


def calls(monkeypatch: pytest.MonkeyPatch, plugins: Sequence[type[Plugin]], method: str) -> Counter[str]:
    """How often this method of each of these is called from now on."""
    found: Counter[str] = Counter()

    def counted(plugin: type[Plugin]) -> None:
        original = getattr(plugin, method)

        def call(self: Plugin, *arguments: object) -> object:
            found[plugin.name] += 1
            return original(self, *arguments)

        monkeypatch.setattr(plugin, method, call)

    for plugin in plugins:
        counted(plugin)
    return found


def test_plugin_is_asked_again_for_signatures_only_about_pods_that_differ_in_what_they_are_made_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signed = calls(monkeypatch, [NodeAffinity, NodeResourcesFit, InterPodAffinity], "sign_pod")
    driver = Driver()
    driver.start()
    driver.put(*(b.node(f"n{i}").build() for i in range(30)))
    like = b.pod("web").scheduler("default-scheduler")

    driver.put(*(like.named(f"a-{i}").request(cpu="100m").label(number=str(i)).build() for i in range(10)))
    driver.settle()
    labelled = dict(signed)
    driver.put(*(like.named(f"b-{i}").request(cpu=f"{200 + i}m").build() for i in range(10)))
    driver.settle()

    assert labelled == {"NodeAffinity": 1, "NodeResourcesFit": 1, "InterPodAffinity": 10}
    assert signed == {"NodeAffinity": 1, "NodeResourcesFit": 11, "InterPodAffinity": 20}
    assert len(driver.placements()) == 20
    assert verify(driver.records, driver.registry).first_difference is None


def test_what_a_plugin_prepares_serves_all_pods_that_it_signs_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared = calls(monkeypatch, [NodeAffinity, NodeResourcesFit], "pre_filter")
    counted = calls(monkeypatch, [InterPodAffinity], "domains")
    driver = Driver()
    driver.start()
    driver.put(*(b.node(f"n{i}").label({b.ZONE: "a"}).build() for i in range(30)))
    like = (
        b.pod("web").scheduler("default-scheduler").label(app="web").pod_anti_affinity(b.HOSTNAME, "app=web")
    )

    driver.put(*(like.named(f"web-{i}").request(cpu=f"{100 + i}m").build() for i in range(12)))
    driver.settle()

    # Once more when the first pod's term asks for a label.
    assert prepared == {"NodeAffinity": 2, "NodeResourcesFit": 12}
    assert counted["InterPodAffinity"] == 2
    assert len(set(driver.placements().values())) == 12
    assert verify(driver.records, driver.registry).first_difference is None

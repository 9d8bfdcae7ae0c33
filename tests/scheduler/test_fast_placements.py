"""A placement that is like one that was tried need not be tried: the log is the same, byte for byte, as if each had been.

More worlds: `TIDELOG_FAST_SEEDS=2000 pytest tests/scheduler/test_fast_placements.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from os import environ
from typing import Any

import pytest
from msgspec.structs import replace

from tidelog.api import builders as b
from tidelog.api.objects import (
    GroupSchedulingConstraints,
    Node,
    Object,
    Pod,
    TopologyConstraint,
    WorkloadPodGroup,
)
from tidelog.eventlog.records import PlacementChosen, Unschedulable, decode_body
from tidelog.plugins.configuration import resolve_configuration
from tidelog.plugins.interface import CycleState, GroupInfo, Placement, Plugin, Status
from tidelog.plugins.node_info import NodeInfo, PodInfo
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.scheduler.core import Core
from tidelog.scheduler.fast_index import Cell, NodeState
from tidelog.scheduler.fast_placements import Outlook, Watch
from tidelog.scheduler.group_cycle import _Cycle
from tidelog.scheduler.group_trial import Evaluation, Foreseen

from .group_world import BLOCK, GATES, HEADER, RACK, assert_replays, members, node, nodes_of, started

SEEDS = int(environ.get("TIDELOG_FAST_SEEDS", "24"))
STEPS = 14


class OddScorer(Plugin):
    """Cares which node each member gets."""

    name = "OddScorer"

    def score_placement(
        self, state: CycleState, group: GroupInfo, placement: Placement, assignment: Mapping[str, str]
    ) -> float:
        return float(sum(int(name.removeprefix("n")) % 3 for name in assignment.values()))


class OddReserve(Plugin):
    """Has a limit of its own, of which no node tells."""

    name = "OddReserve"

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Nothing was set aside."""


def registry_with(*plugins: type[Plugin]) -> Registry:
    registry = Registry()
    for plugin in plugins:
        registry.register(plugin)
    return registry


def driver_with(*plugins: type[Plugin], fast: bool, **section: Any) -> Driver:
    registry = registry_with(*plugins)
    driver = Driver(registry)
    driver.core = Core(registry, fast=fast)
    profiles = [{"plugins": {"multiPoint": {"enabled": [{"name": plugin.name} for plugin in plugins]}}}]
    file = {**HEADER, "profiles": profiles, "tidelog": {"featureGates": GATES, **section}}
    driver.start(resolve_configuration(file, registry).configuration)
    return driver


# --- random worlds ------------------------------------------------------------------------------------------------------


class World:
    """Draws the same steps for the same seed. In every third world all nodes are equal, in another third they are of two kinds."""

    def __init__(self, seed: int, driver: Driver) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.kind = seed % 3
        self.driver = driver
        self.number = 0
        count = self.random.randint(6, 24)
        self.racks = self.random.randint(2, 6)
        driver.put(b.namespace("default"), *(self.node(i) for i in range(count)))
        self.nodes = count

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def node(self, number: int) -> Node:
        rack = number % self.racks
        made = b.node(f"n{number}").label({RACK: f"r{rack}", BLOCK: f"b{rack % 2}"})
        if self.kind == 0:
            return made.capacity(cpu="4").build()
        made = made.capacity(cpu="48"[number // self.racks % 2])
        if self.kind == 1:
            return made.label(disk=("ssd", "hdd")[number // self.racks % 2]).build()
        draw = self.random
        made = made.capacity(cpu=draw.choice("2468"), memory=draw.choice(["4Gi", "8Gi"]))
        made = made.capacity(pods=draw.choice(["2", "5", "110"])).label(disk=draw.choice(["ssd", "hdd"]))
        if self.chance(0.2):
            made = made.taint("dedicated", "batch")
        if self.chance(0.2):
            made = made.taint("slow", "", "PreferNoSchedule")
        return made.cordon().build() if self.chance(0.05) else made.build()

    def group(self) -> list[Object]:
        """One of four kinds, so that kinds come again."""
        outer, self.random = self.random, random.Random(f"{self.seed} {self.random.randrange(4)}")
        try:
            return list(self._group())
        finally:
            self.random = outer

    def _group(self) -> Iterator[Object]:
        draw = self.random
        self.number += 1
        name, size = f"g{self.number}", draw.choice([1, 2, 3, 4, 8])
        yield b.workload(name, self._rule(size))
        mixed, cpu = self.chance(0.3), draw.choice(["100m", "1", "1500m"])
        more = [change for share, change in self._extras(name) if self.chance(share)]
        for i in range(size):
            made = (
                b.pod(f"{name}-{i}")
                .workload(name, "workers")
                .label(app=draw.choice("ab"))
                .scheduler("default-scheduler")
            )
            made = made.request(cpu=draw.choice(["100m", "1", "2"]) if mixed else cpu)
            made = made.request(memory=draw.choice(["128Mi", "1Gi"]) if mixed else "256Mi")
            for change in more:
                if not mixed or self.chance(0.5):
                    made = change(made)
            yield made.build()

    def _rule(self, size: int) -> WorkloadPodGroup:
        draw = self.random
        gang = self.chance(0.6)
        rule = b.workload_group(
            "workers",
            min_count=draw.choice([1, size, size]) if gang else None,
            desired_count=None if gang else draw.choice([None, size + 2]),
        )
        levels = draw.choice([[(RACK, False)], [(RACK, True)], [(BLOCK, False), (RACK, True)]])
        found = tuple(TopologyConstraint(level=level, preferred=preferred) for level, preferred in levels)
        return replace(rule, scheduling_constraints=GroupSchedulingConstraints(topology_constraints=found))

    def _extras(self, name: str) -> Iterator[tuple[float, Callable[[b.PodBuilder], b.PodBuilder]]]:
        yield 0.15, lambda p: p.node_selector(disk="ssd")
        yield 0.15, lambda p: p.prefer_node(30, "disk=ssd")
        yield 0.15, lambda p: p.prefer_node(7, f"{RACK}=r1")
        yield 0.2, lambda p: p.tolerate("dedicated")
        yield 0.1, lambda p: p.port(8080)
        yield 0.05, lambda p: p.spread(b.HOSTNAME, "app=a", max_skew=1)
        yield 0.05, lambda p: p.pod_anti_affinity(b.HOSTNAME, "app=a")
        yield 0.05, lambda p: p.prefer_pod_affinity(10, RACK, "app=b")

    def single(self) -> Pod:
        draw = self.random
        self.number += 1
        made = (
            b.pod(f"p{self.number}").request(cpu=draw.choice(["500m", "1", "3"])).label(app=draw.choice("ab"))
        )
        if self.seed % 4 == 0 and self.chance(0.15):
            made = made.pod_anti_affinity(b.HOSTNAME, "app=a")
        if self.chance(0.2):
            made = made.priority(100).request(cpu="4")
        if self.chance(0.5):
            made = made.on(f"n{draw.randrange(self.nodes)}")
        return made.scheduler("default-scheduler").build()

    def step(self) -> None:
        """Something happens."""
        draw, driver = self.random, self.driver
        roll = draw.random()
        if roll < 0.6:
            driver.put(*self.group())
        elif roll < 0.75:
            driver.put(*(self.single() for _ in range(draw.randint(1, 3))))
        elif roll < 0.85:
            pods = [one for one in driver.core.objects.values() if isinstance(one, Pod)]
            for pod in draw.sample(pods, min(len(pods), 2)):
                driver.delete(pod)
        elif roll < 0.9:
            driver.put(self.node(draw.randrange(self.nodes)))
        elif roll < 0.93:
            driver.put(b.service("svc", {"app": "a"}))
        else:
            driver.advance(draw.choice([1, 15, 300]))
        driver.settle()


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> list[Foreseen]:
    """The placements that were not tried."""
    found: list[Foreseen] = []
    foresee = _Cycle._foresee

    def noted(self: _Cycle, *args: Any) -> Evaluation:
        evaluation = foresee(self, *args)
        if isinstance(evaluation, Foreseen):
            found.append(evaluation)
        return evaluation

    monkeypatch.setattr(_Cycle, "_foresee", noted)
    return found


def bodies(driver: Driver) -> list[bytes]:
    return [record.body for record in driver.records]


def told(seed: int, *plugins: type[Plugin], fast: bool) -> Driver:
    section = {
        "partialPlacement": ("auto", "always")[seed // 3 % 2],
        "maxFeasiblePlacements": (0, 0, 1)[seed // 5 % 3],
    }
    driver = driver_with(*plugins, fast=fast, **section)
    world = World(seed, driver)
    for _ in range(STEPS):
        world.step()
    return driver


@pytest.mark.parametrize("seed", range(SEEDS))
def test_log_is_the_same_as_if_every_placement_had_been_tried(seed: int) -> None:
    fast = told(seed, fast=True)
    plain = told(seed, fast=False)

    assert bodies(fast) == bodies(plain)


def test_random_worlds_have_placements_that_are_alike(foreseen: list[Foreseen]) -> None:
    for seed in range(12):
        told(seed, fast=True)
    feasible = sum(one.is_feasible for one in foreseen)

    assert feasible >= 20
    assert len(foreseen) - feasible >= 5


@pytest.mark.parametrize("seed", range(SEEDS // 8))
@pytest.mark.parametrize("plugin", [OddScorer, OddReserve])
def test_every_placement_is_tried_where_an_unknown_plugin_has_a_say(
    seed: int, plugin: type[Plugin], foreseen: list[Foreseen]
) -> None:
    fast = told(seed, plugin, fast=True)
    plain = told(seed, plugin, fast=False)

    assert bodies(fast) == bodies(plain)
    assert foreseen == []


# --- how many are tried ---------------------------------------------------------------------------------------------------


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the placements that were tried, in order."""
    found: list[str] = []
    simulate = _Cycle._simulate

    def noted(self: _Cycle, placement: Placement) -> Evaluation:
        found.append(placement.name.removeprefix(f"{RACK}="))
        return simulate(self, placement)

    monkeypatch.setattr(_Cycle, "_simulate", noted)
    return found


def test_of_equal_racks_one_is_tried(trials: list[str]) -> None:
    driver = started()
    driver.put(*(node(f"n{i}", f"r{i % 5}") for i in range(20)))

    driver.put(b.pod_group("train", min_count=4, level=RACK), *members(4))
    driver.settle()

    assert trials == ["r0"]
    assert len(nodes_of(driver)) == 4
    assert_replays(driver)


def test_next_group_of_the_kind_tries_only_the_rack_that_changed(trials: list[str]) -> None:
    driver = started()
    driver.put(*(node(f"n{i}", f"r{i % 5}") for i in range(20)))
    driver.put(b.pod_group("one", min_count=4, level=RACK), *members(4, "one"))
    driver.settle()
    trials.clear()

    driver.put(b.pod_group("two", min_count=4, level=RACK), *members(4, "two"))
    driver.settle()

    assert trials == ["r0"]
    assert_replays(driver)


def test_rack_that_was_not_tried_is_tried_once_it_is_chosen(trials: list[str]) -> None:
    """Both racks were tried by the first group; the second one knows what becomes of it there, but not where its member would go."""
    driver = started()
    driver.put(node("a1", "a"), node("b1", "b", "8"))
    driver.put(b.pod_group("one", min_count=1, level=RACK), *members(1, "one"))
    driver.settle()
    (first,) = nodes_of(driver, "one")
    driver.delete(members(1, "one")[0])
    tried = list(trials)

    driver.put(b.pod_group("two", min_count=1, level=RACK), *members(1, "two"))
    driver.settle()

    assert nodes_of(driver, "two") == [first] == ["a1"]
    assert (tried, trials) == (["a", "b"], ["a", "b", "a"])
    assert_replays(driver)


def test_failing_member_is_called_by_its_own_name_where_nothing_was_tried(trials: list[str]) -> None:
    driver = started()
    driver.put(*(node(f"n{i}", f"r{i}", "2") for i in range(3)))
    for name in ("one", "two"):
        pods = [b.pod(f"{name}-{i}").group(name).request(cpu="1").port(80) for i in range(2)]
        driver.put(b.pod_group(name, min_count=2, level=RACK))
        driver.put(*(pod.scheduler("default-scheduler").build() for pod in pods))

    driver.settle()

    said = [body for record in driver.records if isinstance(body := decode_body(record), Unschedulable)]
    assert trials == ["r0"]
    for name, body in zip(("one", "two"), said, strict=True):
        wanted = f"1/2 pods fit, 2 needed, default/{name}-1: 0/1 nodes are available"
        assert [wanted in line for line in body.explanation] == [True] * 3
        assert body.plugins == ("NodePorts", "TopologyPlacement")
    assert_replays(driver)


def test_rack_with_a_node_that_is_promised_to_somebody_is_tried(trials: list[str]) -> None:
    driver = started()
    driver.put(*(node(f"n{i}", f"r{i}") for i in range(4)))
    promised = b.pod("promised").priority(1).request(cpu="4").nominated("n2").scheduler("default-scheduler")
    pods = [replace(pod, spec=replace(pod.spec, priority=20)) for pod in members(2)]
    driver.put(promised.build(), b.pod_group("train", min_count=2, level=RACK, priority=20), *pods)

    decision = driver.attempt()

    assert decision is not None
    assert isinstance(decision.outcomes[0][1], PlacementChosen)
    assert trials == ["r0", "r2"]
    driver.commit()


def test_groups_that_differ_in_labels_alone_are_of_one_kind(trials: list[str]) -> None:
    driver = started()
    driver.put(*(node(f"n{i}", f"r{i}", str(4 + i)) for i in range(3)))

    for name in ("one", "two"):
        pods = [b.pod(f"{name}-{i}").group(name).request(cpu="100m").label(job=name) for i in range(2)]
        driver.put(b.pod_group(name, min_count=2, level=RACK))
        driver.put(*(pod.scheduler("default-scheduler").build() for pod in pods))
        driver.settle()

    assert trials == ["r0", "r1", "r2", "r0"]
    assert_replays(driver)


def test_outcomes_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.scheduler.fast_placements.OUTCOMES_MAX", 3)
    sizes: list[int] = []
    learn = Outlook.learn

    def noted(self: Outlook, *args: Any) -> Any:
        found = learn(self, *args)
        sizes.append(len(self._owner.outcomes))
        return found

    monkeypatch.setattr(Outlook, "learn", noted)
    driver = started()
    driver.put(*(node(f"n{i}", f"r{i}", str(4 + i)) for i in range(6)))

    driver.put(b.pod_group("train", min_count=2, level=RACK), *members(2))
    driver.settle()

    assert len(sizes) >= 6
    assert max(sizes) == 3
    assert len(nodes_of(driver)) == 2


@pytest.mark.parametrize(
    ("winners", "matters"), [(0b0010, False), (0b0110, False), (0b1010, True), (0b0011, True), (0b1000, True)]
)
def test_order_matters_where_equally_good_nodes_are_not_alike(winners: int, matters: bool) -> None:
    """Places 0 to 2 are in the state of the chosen one; of them, pods tell place 0 apart from the others by its labels."""
    state = NodeState(Cell(0, NodeInfo(b.node("n").build()), False), NodeInfo(b.node("n").build()))
    state.bits = 0b0111
    watch = Watch([0b0001])

    watch.chosen(winners, state)

    assert watch.depends_on_order is matters


def test_placement_is_tried_each_time_if_its_outcome_depends_on_the_order_of_nodes(trials: list[str]) -> None:
    """Of `a`'s two nodes both are equally good for a pod that asks for nothing, but only one of them is large."""
    driver = started()
    driver.put(node("a1", "a", "4"), node("a2", "a", "8"), node("b1", "b", "4"))

    for name in ("one", "two"):
        driver.put(b.pod_group(name, min_count=1, level=RACK))
        driver.put(b.pod(f"{name}-0").group(name).scheduler("default-scheduler").build())
        driver.settle()

    assert trials.count("a") == 2
    assert_replays(driver)

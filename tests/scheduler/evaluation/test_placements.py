"""A placement that is like one that was tried need not be tried: the log is the same, byte for byte, as if each had been.

More worlds: `TIDELOG_FAST_SEEDS=2000 pytest tests/scheduler/evaluation/test_placements.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from tests.thorough import cases
from tests.worlds.groups import (
    BLOCK,
    GATES,
    HEADER,
    RACK,
    assert_replays,
    members,
    node,
    nodes_of,
    started,
)
from tidelog.api.objects import (
    GroupSchedulingConstraints,
    Node,
    Object,
    Pod,
    TopologyConstraint,
    WorkloadPodGroup,
)
from tidelog.configuration.configuration import resolve_configuration
from tidelog.eventlog.records import PlacementChosen, Unschedulable, decode_body
from tidelog.framework.interface import CycleState, GroupInfo, Placement, Plugin, Status
from tidelog.framework.node_info import PodInfo
from tidelog.framework.placements import FUTURE_PODS
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.scheduler.core import Core
from tidelog.scheduler.evaluation.node_index import NodeIndex
from tidelog.scheduler.evaluation.placements import Fork, Outlook, PlacementMemory, Watch
from tidelog.scheduler.groups.cycle import _Cycle
from tidelog.scheduler.groups.trial import Foreseen, TrialEvaluation
from tidelog.testing import builders as b

SEEDS = cases(16, "TIDELOG_FAST_SEEDS")
STEPS = 20
GPU = "example.com/gpu"


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
    """Draws the same steps for the same seed. The more kinds of nodes there are, the fewer racks are alike.

    Many nodes are equally good for one member and not for the next.
    """

    def __init__(self, seed: int, driver: Driver) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.kinds = (1, 2, 2, 3, 3, 6)[seed % 6]
        self.driver = driver
        self.number = 0
        self.racks = self.random.randint(3, 6)
        self.nodes = self.racks * self.random.randint(2, 5)
        driver.put(b.namespace("default"), *(self.node(i) for i in range(self.nodes)))

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def node(self, number: int) -> Node:
        rack = number % self.racks
        made = b.node(f"n{number}").label({RACK: f"r{rack}", BLOCK: f"b{rack % 2}"}).capacity(cpu="4")
        if self.seed % 3:
            made = made.label(disk=self.random.choice(["ssd", "hdd"]))
        match self.random.randrange(self.kinds):
            case 0:
                pass
            case 1:
                made = made.capacity({GPU: 1})
            case 2:
                made = made.capacity(pods=self.random.choice("123"))
            case 3:
                made = made.capacity({GPU: 1}).taint("dedicated", "batch")
            case 4:
                made = made.taint("slow", "", "PreferNoSchedule")
            case _:
                made = made.capacity(cpu=self.random.choice("28")).capacity({GPU: 2})
        return made.build()

    def group(self) -> list[Object]:
        """One of three kinds, so that kinds come again."""
        size = self.random.choice([2, 4, 4, 6])
        rule = self._rule(size)
        outer, self.random = self.random, random.Random(f"{self.seed} {self.random.randrange(3)}")
        try:
            return list(self._group(rule, size))
        finally:
            self.random = outer

    def _group(self, rule: WorkloadPodGroup, size: int) -> Iterator[Object]:
        draw = self.random
        self.number += 1
        name = f"g{self.number}"
        yield b.workload(name, rule)
        mixed, cpu = self.chance(0.7), draw.choice(["100m", "1", "2"])
        for i in range(size):
            made = b.pod(f"{name}-{i}").workload(name, "workers").label(app=draw.choice("ab"), job=name)
            made = made.scheduler("default-scheduler").request(cpu=cpu, memory="256Mi")
            for share, change in self._extras() if mixed else ():
                if self.chance(share):
                    made = change(made)
            yield made.build()

    def _rule(self, size: int) -> WorkloadPodGroup:
        draw = self.random
        gang = self.chance(0.6)
        rule = b.workload_group(
            "workers",
            min_count=draw.choice([1, size - 1, size, size]) if gang else None,
            desired_count=None if gang else draw.choice([None, size + 2]),
        )
        levels = draw.choice([[(RACK, False)], [(RACK, True)], [(BLOCK, False), (RACK, True)]])
        found = tuple(TopologyConstraint(level=level, preferred=preferred) for level, preferred in levels)
        return replace(rule, scheduling_constraints=GroupSchedulingConstraints(topology_constraints=found))

    def _extras(self) -> Iterator[tuple[float, Callable[[b.PodBuilder], b.PodBuilder]]]:
        draw = self.random
        yield 0.3, lambda p: p.request({GPU: 1})
        yield 0.3, lambda p: p.request(cpu=draw.choice(["1", "2", "3"]))
        yield 0.2, lambda p: p.node_selector(disk="ssd")
        yield 0.1, lambda p: p.prefer_node(30, "disk=ssd")
        yield 0.1, lambda p: p.prefer_node(7, f"{RACK}=r1")
        yield 0.2, lambda p: p.tolerate("dedicated")
        yield 0.1, lambda p: p.port(8080)
        if self.seed % 5 == 0:
            yield 0.1, lambda p: p.spread(b.HOSTNAME, "app=a", max_skew=1)
            yield 0.1, lambda p: p.pod_anti_affinity(b.HOSTNAME, "app=a")
            yield 0.5, lambda p: p.prefer_pod_affinity(100, b.HOSTNAME, "app=b")

    def single(self) -> Pod:
        draw = self.random
        self.number += 1
        made = b.pod(f"p{self.number}").request(cpu=draw.choice(["500m", "1", "3"]))
        made = made.label(app=draw.choice("ab"))
        if self.seed % 5 == 0 and self.chance(0.3):
            made = made.pod_anti_affinity(b.HOSTNAME, "app=a")
        if self.chance(0.5):
            made = made.on(f"n{draw.randrange(self.nodes)}")
        elif self.chance(0.7):
            made = made.nominated(f"n{draw.randrange(self.nodes)}").priority(10).request(cpu="3500m")
            return made.gate("later").build()
        return made.scheduler("default-scheduler").build()

    def step(self) -> None:
        """Something happens."""
        draw, driver = self.random, self.driver
        roll = draw.random()
        if roll < 0.5:
            driver.put(*self.group())
        elif roll < 0.68:
            driver.put(self.single())
        elif roll < 0.9:
            pods = [one for one in driver.core.objects.values() if isinstance(one, Pod)]
            there = [one for one in pods if one.spec.workload_ref is not None] or pods
            if there:
                job = draw.choice(there).metadata.labels.get("job")
                for one in pods:
                    if one.metadata.labels.get("job") == job:
                        driver.delete(one)
        elif roll < 0.93:
            driver.put(self.node(draw.randrange(self.nodes)))
        elif roll < 0.95 and self.seed % 5 == 0:
            driver.put(b.service("svc", {"app": "a"}))
        else:
            driver.advance(draw.choice([1, 15, 300]))
        driver.settle()


@pytest.fixture
def foreseen(monkeypatch: pytest.MonkeyPatch) -> list[Foreseen]:
    """The placements that were not tried; they are tried here, and must come to the same."""
    found: list[Foreseen] = []
    foresee = _Cycle._foresee

    def compared(
        self: _Cycle, outlook: Outlook, number: int, placement: Placement, sums_up: bool
    ) -> TrialEvaluation:
        evaluation = foresee(self, outlook, number, placement, sums_up)
        if isinstance(evaluation, Foreseen):
            found.append(evaluation)
            tried = self._look_at(placement, sums_up)
            assert summary(evaluation) == summary(tried)
            self.state.write(FUTURE_PODS, {placement.name: tried.future})
            for plugin in self.framework.placement_score if tried.is_feasible else ():
                score = plugin.score_placement(self.state, self.group, placement, tried.assignment)
                assert score == self._raw_score(plugin, evaluation)
        return evaluation

    monkeypatch.setattr(_Cycle, "_foresee", compared)
    return found


def summary(evaluation: TrialEvaluation) -> tuple[object, ...]:
    first = evaluation.first_failure
    return (
        evaluation.fit_count,
        evaluation.tried,
        evaluation.is_feasible,
        evaluation.is_full,
        evaluation.future,
        evaluation.message,
        sorted(evaluation.rejecting),
        sorted(evaluation.pending),
        None if first is None else (first.pod.key, first.message),
    )


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
def test_placement_that_is_not_tried_comes_to_what_it_is_taken_for(
    seed: int, foreseen: list[Foreseen]
) -> None:
    told(seed, fast=True)

    assert all(one.steps == [] for one in foreseen)


def test_random_worlds_have_placements_that_are_alike(foreseen: list[Foreseen]) -> None:
    for seed in range(8):
        told(seed, fast=True)
    feasible = sum(one.is_feasible for one in foreseen)

    assert feasible > 20
    assert len(foreseen) > feasible


@pytest.mark.parametrize("seed", range(SEEDS))
def test_log_is_the_same_as_if_every_placement_had_been_tried(seed: int) -> None:
    fast = told(seed, fast=True)
    plain = told(seed, fast=False)

    assert bodies(fast) == bodies(plain)


@pytest.mark.parametrize("seed", range(SEEDS // 8))
@pytest.mark.parametrize("plugin", [OddScorer, OddReserve])
def test_every_placement_is_tried_where_an_unknown_plugin_has_a_say(
    seed: int, plugin: type[Plugin], foreseen: list[Foreseen]
) -> None:
    fast = told(seed, plugin, fast=True)
    plain = told(seed, plugin, fast=False)

    assert bodies(fast) == bodies(plain)
    assert foreseen == []


def told_while_nodes_come_and_go(seed: int, *, fast: bool) -> Driver:
    driver = driver_with(fast=fast)
    world = World(seed, driver)
    for _ in range(STEPS):
        number = world.random.randrange(world.nodes + 1)
        known = driver.core.objects.get(f"Node//n{number}")
        if known is not None and world.chance(0.4):
            driver.delete(known)
        else:
            world.nodes = max(world.nodes, number + 1)
            driver.put(world.node(number))
        world.step()
    return driver


@pytest.mark.parametrize("seed", range(SEEDS // 2))
def test_nodes_keep_their_places_while_placements_are_tried(
    seed: int, foreseen: list[Foreseen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each detour is one too many, and where it takes a few trials to come to that."""
    monkeypatch.setattr("tidelog.scheduler.evaluation.node_places.DETOURS_PER_NODE", seed % 3)

    fast = told_while_nodes_come_and_go(seed, fast=True)
    plain = told_while_nodes_come_and_go(seed, fast=False)

    assert bodies(fast) == bodies(plain)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nodes_keep_their_places_also_where_it_is_forgotten_what_a_trial_has_changed(
    seed: int, foreseen: list[Foreseen], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count(seed)
    since = Snapshot.changed_since

    def forgetful(snapshot: Snapshot, generation: int) -> Sequence[str] | None:
        return None if next(calls) % 23 == 0 else since(snapshot, generation)

    monkeypatch.setattr(Snapshot, "changed_since", forgetful)

    fast = told_while_nodes_come_and_go(seed, fast=True)
    plain = told_while_nodes_come_and_go(seed, fast=False)

    assert bodies(fast) == bodies(plain)


# --- how many are tried ---------------------------------------------------------------------------------------------------


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the placements that were tried, in order."""
    found: list[str] = []
    simulate = _Cycle._simulate

    def noted(self: _Cycle, placement: Placement) -> TrialEvaluation:
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


def test_index_is_looked_after_as_often_as_racks_are_tried_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: Counter[int] = Counter()
    refresh = NodeIndex.refresh
    racks = 0

    def counted(index: NodeIndex) -> None:
        looks[racks] += 1
        refresh(index)

    monkeypatch.setattr(NodeIndex, "refresh", counted)
    for racks in (5, 50):
        driver = started()
        driver.put(*(node(f"n{i}", f"r{i % racks}") for i in range(4 * racks)))
        driver.put(b.pod_group("train", min_count=4, level=RACK), *members(4))
        driver.settle()

    assert looks[50] == looks[5] > 0


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


def test_least_recently_used_outcomes_are_forgotten(
    trials: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rack is a kind of one class of nodes, so that two kinds are remembered."""
    monkeypatch.setattr("tidelog.scheduler.evaluation.placements.CLASSES_MAX", 2)
    driver = started()
    driver.put(*(node(f"n{i}", f"r{i}", str(4 + i)) for i in range(3)))

    for name in ("one", "two"):
        driver.put(b.pod_group(name, min_count=2, level=RACK), *members(2, name))
        driver.settle()

    assert trials == ["r0", "r1", "r2", "r0", "r1", "r2"]
    assert_replays(driver)


def test_choice_between_equally_good_nodes_of_two_classes_is_tried_each_way_once(trials: list[str]) -> None:
    """The nodes of `b` differ in what matters to no single pod; `a` wins, because it is smaller."""
    driver = started()
    driver.put(node("a1", "a", "2"))
    for name, pods in (("b1", "10"), ("b2", "20")):
        driver.put(b.node(name).label({RACK: "b"}).capacity(cpu="8", pods=pods).build())

    for name in "stuvwxyz":
        driver.put(b.pod_group(name, min_count=1, level=RACK), *members(1, name))
        driver.settle()
        driver.delete(members(1, name)[0])

    assert trials.count("b") == 2
    assert_replays(driver)


def test_placement_goes_its_own_way_at_a_fork(foreseen: list[Foreseen]) -> None:
    """In each rack only one node has a GPU, and is as good as the others for the member that does not need it, and is tried first."""
    draw = random.Random(1)
    driver = started()
    found = [b.node(f"n{i}").label({RACK: f"r{i % 6}"}).capacity(cpu="2") for i in range(24)]
    found = [made.capacity({GPU: 1}) if i < 6 else made for i, made in enumerate(found)]
    draw.shuffle(found)
    driver.put(*(made.build() for made in found))

    for turn in range(12):
        like = b.pod("train").group("train").request(cpu="2").scheduler("default-scheduler")
        pods = [
            like.named(f"train{turn}-0").build(),
            like.named(f"train{turn}-1").request({GPU: 1}).build(),
        ]
        for pod in pods:
            driver.now += 1
            driver.put(pod)
        driver.put(b.pod_group("train", min_count=1, level=RACK))
        driver.settle()
        for obj in (*pods, b.pod_group("train", min_count=1, level=RACK)):
            driver.delete(obj)

    ways = Counter(one.fit_count for one in foreseen)
    assert len(foreseen) > 40
    assert ways[1] >= 3
    assert ways[2] > 20
    assert_replays(driver)


def spreading_beside_others(*, fast: bool) -> list[bytes]:
    """Two racks that are equally full, where the members count the pods of the first one only."""
    driver = driver_with(fast=fast)
    driver.put(*(node(f"n{i}", f"r{i // 2}", "4", **{b.HOSTNAME: f"n{i}"}) for i in range(4)))
    for place, app in (("n0", "a"), ("n2", "b")):
        driver.put(*(b.pod(f"{app}{i}").label(app=app).request(cpu="1").on(place).build() for i in range(2)))
    pods = [b.pod(f"train-{i}").group("train").label(app="a").request(cpu="2") for i in range(3)]
    spread = [pod.spread(b.HOSTNAME, "app=a", max_skew=1).scheduler("default-scheduler") for pod in pods]
    driver.put(b.pod_group("train", min_count=3, level=RACK), *(pod.build() for pod in spread))
    driver.settle()
    return bodies(driver)


def test_racks_where_members_spread_from_others_are_not_alike() -> None:
    assert spreading_beside_others(fast=True) == spreading_beside_others(fast=False)


def racks_in_blocks(seed: int, *, fast: bool) -> list[bytes]:
    """Groups come and go that ask for a rack or, if none takes them, for the block that it is in: placements share nodes."""
    draw, driver = random.Random(seed), driver_with(fast=fast)
    driver.put(b.namespace("default"))
    for i in range(draw.choice([8, 12, 16])):
        made = b.node(f"n{i}").label({RACK: f"r{i % 4}", BLOCK: f"b{i % 2}"})
        made = made.capacity(cpu="2", pods=draw.choice(["10", "11"]))
        driver.put((made.capacity({GPU: 1}) if draw.random() < 0.3 else made).build())
    for number in range(25):
        like = random.Random(f"{seed} {draw.randrange(2)}")
        name, size = f"g{number}", like.choice([3, 5])
        rule = b.workload_group("workers", min_count=like.choice([None, 1, size]))
        outer = TopologyConstraint(level=BLOCK, preferred=like.random() >= 0.7)
        levels = (outer, TopologyConstraint(level=RACK, preferred=True))
        rule = replace(rule, scheduling_constraints=GroupSchedulingConstraints(topology_constraints=levels))
        group: list[Object] = [b.workload(name, rule)]
        cpu = like.choice(["1", "2", "1500m"])
        for i in range(size):
            pod = b.pod(f"{name}-{i}").workload(name, "workers").request(cpu=cpu)
            pod = pod.scheduler("default-scheduler")
            group.append((pod.request({GPU: 1}) if like.random() < 0.3 else pod).build())
        driver.put(*group)
        driver.settle()
        for obj in group if draw.random() < 0.9 else ():
            driver.delete(obj)
        driver.settle()
    return bodies(driver)


@pytest.mark.parametrize("seed", range(26, 34))
def test_states_that_are_dropped_while_placements_are_tried_are_spoken_of_no_more(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Usually there are a thousand more before any is dropped."""
    monkeypatch.setattr("tidelog.scheduler.evaluation.node_index.EMPTY_STATES_MAX", -8)

    fast = racks_in_blocks(seed, fast=True)
    plain = racks_in_blocks(seed, fast=False)

    assert fast == plain


def test_forks_count_as_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt goes another way, because its scan starts at another node. Without the forks there are two classes."""
    monkeypatch.setattr("tidelog.scheduler.evaluation.placements.CLASSES_MAX", 40)
    remembered: list[tuple[int, int]] = []
    remember = PlacementMemory.remember

    def noted(self: PlacementMemory, *args: Any) -> None:
        remember(self, *args)
        remembered.append((self._classes, sum(map(classes_in_forks, self._outcomes.values()))))

    monkeypatch.setattr(PlacementMemory, "remember", noted)
    driver = started()
    for i, pods in enumerate(["10", "11", "10", "10", "11", "11", "10", "11"]):
        driver.put(b.node(f"n{i}").label({RACK: "a" if i < 7 else "b"}).capacity(cpu="1", pods=pods).build())

    for number in range(20):
        group = [b.pod_group(f"g{number}", min_count=4, level=RACK), *members(4, f"g{number}")]
        driver.put(*group)
        driver.settle()
        for obj in group:
            driver.delete(obj)

    assert max(forks for _, forks in remembered) > 20
    assert all(forks <= counted <= 40 for counted, forks in remembered)
    assert_replays(driver)


def classes_in_forks(found: object) -> int:
    """Beside those of the first one: they are in the kind already."""
    if not isinstance(found, Fork):
        return 0
    later = [then for _, then in found.ways.values() if isinstance(then, Fork)]
    return sum(len(then.among) + classes_in_forks(then) for then in later)


def seen(watch_apart: Sequence[int], choices: Sequence[tuple[int, int]]) -> Watch:
    """Of five nodes, the last two have taints. Nobody is placed."""
    driver = started()
    driver.put(*(b.node(f"n{i}").build() for i in range(3)))
    driver.put(*(b.node(f"n{i}").taint("slow", "", "PreferNoSchedule").build() for i in range(3, 5)))
    driver.core.cluster.snapshot.refresh(driver.core.cluster.cache)
    index = NodeIndex(driver.core.cluster.snapshot)
    index.refresh()
    watch = Watch(index, watch_apart)
    for winners, place in choices:
        watch.chosen(winners, place)
    return watch


def test_choice_between_nodes_that_are_alike_is_no_fork() -> None:
    assert seen([], [(0b00111, 1), (0b11000, 3), (0b00001, 0)]).choices() == []


def test_choice_between_nodes_in_two_states_is_a_fork_and_what_comes_after_the_last_is_left_out() -> None:
    choices = seen([], [(0b00011, 1), (0b01100, 3), (0b00001, 0)]).choices()

    assert [len(choice.among) for choice in choices] == [1, 2]
    assert choices[1].taken == choices[1].among[1]


def test_nodes_that_labels_tell_apart_are_not_alike() -> None:
    (choice,) = seen([0b00001], [(0b00111, 2)]).choices()

    assert [marks for _, marks in choice.among] == [(1,), (0,)]
    assert choice.taken == choice.among[1]

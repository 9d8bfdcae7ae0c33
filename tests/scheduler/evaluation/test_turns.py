"""Attempts take turns, of which none counts again what one before has counted; and plugins that fail, or have nothing to do with a pod, hold up nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tests.conftest import AssertReplays
from tests.scheduler.evaluation.foreign_plugins import configured, registry_with
from tests.worlds.groups import started
from tidelog.api.objects import Pod
from tidelog.framework.effort import Paused
from tidelog.framework.interface import CycleState, Depends, Plugin, PreFilterResult, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.inter_pod_affinity.plugin import InterPodAffinity
from tidelog.plugins.pod_topology_spread.plugin import PodTopologySpread
from tidelog.plugins.volumes.binding import VolumeBinding
from tidelog.replay.driver import Driver
from tidelog.scheduler.evaluation import fast
from tidelog.testing import builders as b
from tidelog.testing import storage

NODES = 40


def demanding() -> Pod:
    made = b.pod("wants").scheduler("default-scheduler").label(app="web")
    for number in range(8):
        made = made.spread(b.ZONE, f"app=web{number}").pod_affinity(b.ZONE, "app=db")
    return made.build()


def world() -> Driver:
    driver = Driver()
    driver.start()
    driver.put(*(b.node(f"n{i:02}").label({b.ZONE: "abc"[i % 3]}).build() for i in range(NODES)))
    driver.put(b.pod("db").label(app="db").on("n01").build())
    return driver


@pytest.mark.parametrize("steps", [3, NODES, 2 * NODES])
def test_domains_are_counted_once_however_many_turns_it_takes(
    steps: int, monkeypatch: pytest.MonkeyPatch, assert_replays: AssertReplays
) -> None:
    counted: Counter[str] = Counter()
    for plugin in (InterPodAffinity, PodTopologySpread):

        def domains(self: Any, *given: Any, ask: Any = plugin.domains) -> Any:
            counted[self.name] += 1
            return ask(self, *given)

        monkeypatch.setattr(plugin, "domains", domains)
    at_once, in_turns = world(), world()
    at_once.put(demanding())
    in_turns.put(demanding())
    decision = None
    for turns in range(100):
        try:
            decision = in_turns.core.attempt(in_turns.now, steps)
            break
        except Paused:
            if turns < 3:
                other = b.pod(f"other{turns}").on("n02").build()
                at_once.put(other)
                in_turns.put(other)

    at_once.settle()
    assert turns > 1
    assert decision is not None
    in_turns.append(*decision.drafts())
    assert in_turns.placements() == at_once.placements()
    assert counted["InterPodAffinity"] == counted["PodTopologySpread"] == 2
    assert assert_replays(in_turns.records)


def test_gang_of_pods_that_are_all_unlike_comes_to_a_decision_where_few_tables_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast, "SHAPES_MAX", 4)
    monkeypatch.setattr(fast, "PLACES_MAX", 1)
    driver = started()
    driver.put(*(b.node(f"n{i:02}").label({b.ZONE: "abc"[i % 3]}).build() for i in range(NODES)))
    driver.put(b.pod_group("train", min_count=6))
    for number in range(6):
        driver.put(b.pod(f"db{number}").label(app=f"db{number}").on("n01").build())
        member = b.pod(f"train-{number}").group("train").scheduler("default-scheduler")
        for _ in range(4):
            member = member.pod_affinity(b.ZONE, f"app=db{number}")
        driver.put(member.build())

    decision, turns = None, 0
    while decision is None and turns < 100:
        try:
            decision = driver.core.attempt(driver.now, 15)
        except Paused:
            turns += 1

    assert turns > 5
    assert decision is not None
    driver.append(*decision.drafts())
    assert sum(name.startswith("default/train") for name in driver.placements()) == 6
    assert not driver.core.cluster.snapshot.effort._kept


@pytest.mark.parametrize("member", [False, True])
def test_plugin_whose_answers_nobody_keeps_does_not_end_turns(member: bool) -> None:
    driver = with_foreign(Undeclared)
    driver.put(b.pod_group("train", min_count=1))
    made = b.pod("asks").scheduler("default-scheduler")
    driver.put((made.group("train") if member else made).build())

    decision, turns = None, 0
    while decision is None and turns < 10:
        try:
            decision = driver.core.attempt(driver.now, NODES - 1)
        except Paused:
            turns += 1

    assert decision is not None


class Quiet(Plugin):
    """Lets all pods pass, and fails where it is asked for what it offers."""

    filter_depends = Depends.POD
    asked = 0

    def sign_pod(self, pod: PodInfo) -> object:
        return 1

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        return PreFilterResult()

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None

    def fails(self, *_: Any) -> Any:
        Quiet.asked += 1
        raise RuntimeError("nothing to offer")


class FailsToConcern(Quiet):
    name = "FailsToConcern"
    concerns = Quiet.fails


class FailsToSign(Quiet):
    name = "FailsToSign"
    sign_attempt = Quiet.fails


class FailsToLook(Quiet):
    name = "FailsToLook"
    beyond_node = Quiet.fails


class FailsToCount(Quiet):
    name = "FailsToCount"
    domains = Quiet.fails


@pytest.mark.parametrize("plugin", [FailsToConcern, FailsToSign, FailsToLook, FailsToCount])
@pytest.mark.parametrize("daemon", [False, True])
def test_pods_are_placed_though_what_a_plugin_offers_raises(plugin: type[Plugin], daemon: bool) -> None:
    asked = Quiet.asked
    driver = with_foreign(plugin)
    for number in range(3):
        made = b.pod(f"p{number}").scheduler("default-scheduler")
        driver.put((made.node_affinity("metadata.name in (n07)") if daemon else made).build())

    driver.settle()

    assert Quiet.asked > asked
    assert len(driver.placements()) == 3


class Undeclared(Plugin):
    """Does not say what it looks at."""

    name = "Undeclared"

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        return None


def with_foreign(plugin: type[Plugin]) -> Driver:
    registry = registry_with([plugin])
    driver = Driver(registry)
    driver.start(configured(registry, [plugin]))
    driver.put(*(b.node(f"n{i:02}").label({b.ZONE: "abc"[i % 3]}).build() for i in range(NODES)))
    return driver


class Silent:
    """Is told of each step."""

    def step_began(self, point: str) -> None: ...
    def step_ended(self, point: str, state: CycleState, result: Any) -> None: ...
    def step_failed(self) -> None: ...


@pytest.mark.parametrize("timed", [False, True])
def test_plugins_that_have_nothing_to_do_with_a_daemons_pod_are_asked_nothing(
    timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    for point in ("pre_filter", "reads", "writes"):
        of = getattr(VolumeBinding, point)

        def ask(self: Any, *given: Any, of: Any = of, point: str = point) -> Any:
            asked[point] += 1
            return of(self, *given)

        monkeypatch.setattr(VolumeBinding, point, ask)
    driver = world()
    if timed:  # As those of a daemon are.
        driver.core.frameworks["default-scheduler"].observe_steps(Silent())
    driver.put(storage.storage_class(), storage.claim("data"))
    daemon = b.pod("daemon").scheduler("default-scheduler")
    driver.put(daemon.node_affinity("metadata.name in (n07)").build())
    driver.settle()
    assert driver.placements()["default/daemon"] == "n07"
    assert not asked
    driver.put(b.pod("with").scheduler("default-scheduler").pvc("data").node_selector({b.ZONE: "c"}).build())
    driver.settle()
    assert asked["pre_filter"]

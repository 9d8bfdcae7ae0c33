"""Profiles see the same nodes, and follow them together."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.scheduler.evaluation.test_fast import asked
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.framework.framework import Framework
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.scheduler.core import Core
from tidelog.scheduler.evaluation.fast import FastEvaluation
from tidelog.scheduler.evaluation.node_index import NodeIndex
from tidelog.testing import builders as b

__all__ = ["asked"]

NAMES = ("default-scheduler", "packing", "plain-scores")


def three_profiles(driver: Driver) -> SchedulerConfiguration:
    packing = {"scoringStrategy": {"type": "MostAllocated"}}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": NAMES[0]},
            {"schedulerName": NAMES[1], "pluginConfig": [{"name": "NodeResourcesFit", "args": packing}]},
            {"schedulerName": NAMES[2], "plugins": {"score": {"disabled": [{"name": "*"}]}}},
        ],
    }
    return resolve_configuration(document, driver.registry).configuration


def started(*, fast: bool = True) -> Driver:
    driver = Driver()
    driver.core = Core(driver.registry, fast=fast)
    driver.start(three_profiles(driver))
    driver.put(b.namespace("default"))
    driver.put(*(b.node(f"n{i}").label({b.ZONE: "abc"[i % 3]}).build() for i in range(30)))
    return driver


def evaluations(driver: Driver) -> list[FastEvaluation]:
    found = []
    for framework in driver.core.frameworks.values():
        assert isinstance(framework, Framework)
        assert isinstance(framework.fast, FastEvaluation)
        found.append(framework.fast)
    return found


def live(driver: Driver) -> None:
    """Pods of each profile in turn, while nodes change, come and go."""
    for turn in range(12):
        for number, name in enumerate(NAMES):
            like = b.pod(f"p{turn}-{number}").scheduler(name).label(app="web").request(cpu="300m")
            driver.put(like.spread(b.ZONE, "app=web", max_skew=3).build())
        driver.settle()
        driver.put(b.node(f"n{turn}").label({b.ZONE: "cab"[turn % 3]}).capacity(cpu="4").build())
        if turn % 4 == 3:
            driver.put(b.node(f"new{turn}").label({b.ZONE: "a"}).build())
            driver.delete(driver.core.objects[f"Node//n{15 + turn}"])


def test_profiles_share_one_index_of_nodes() -> None:
    driver = started()

    indexes = [fast._index for fast in evaluations(driver)]

    assert len(indexes) == len(NAMES)
    assert all(index is indexes[0] for index in indexes)


def test_change_of_a_node_is_followed_once_for_all_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = started()
    live(driver)
    driver.put(b.pod("before").scheduler(NAMES[0]).build())
    driver.settle()
    followed: Counter[int] = Counter()
    follow = NodeIndex._follow

    def note(index: NodeIndex, place: int) -> None:
        followed[place] += 1
        follow(index, place)

    monkeypatch.setattr(NodeIndex, "_follow", note)
    cpu = {name: f"{100 + number}m" for number, name in enumerate(NAMES)}

    driver.put(b.node("n5").label({b.ZONE: "a"}).capacity(cpu="7").build())
    for name in NAMES:
        driver.put(b.pod(f"last-{name}").scheduler(name).request(cpu=cpu[name]).build())
        driver.settle()

    # The node that changed, that of the pod before, and those of the last ones. With an index for each profile each would be followed by each of these.
    assert followed.total() <= 2 + len(NAMES)
    assert set(followed.values()) == {1}
    assert evaluations(driver)[0]._index.place_of("n5") in followed


def test_profiles_with_one_index_decide_as_the_plain_evaluation_does(asked: Counter[str]) -> None:
    driver, plain = started(), started(fast=False)

    for one in (driver, plain):
        live(one)

    assert asked["fast"] > 30
    assert asked["plain"] == 0
    assert [record.body for record in plain.records] == [record.body for record in driver.records]
    assert verify(driver.records, driver.registry).first_difference is None
    assert driver.core.digest() == recover(driver.records, driver.registry).digest()


def test_another_configuration_gets_an_index_of_its_own(asked: Counter[str]) -> None:
    driver = started()
    live(driver)
    before = evaluations(driver)[0]._index

    driver.configure(three_profiles(driver))
    driver.put(*(b.pod(f"after-{name}").scheduler(name).build() for name in NAMES))
    driver.settle()

    indexes = [fast._index for fast in evaluations(driver)]
    assert indexes[0] is not before
    assert all(index is indexes[0] for index in indexes)
    assert {f"default/after-{name}" for name in NAMES} <= set(driver.placements())
    assert verify(driver.records, driver.registry).first_difference is None

"""Pods that no plugin tells apart are of one shape, whatever else differs; and which labels tell pods apart is bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.scheduler.evaluation.test_fast import asked
from tidelog.framework import label_keys
from tidelog.framework.framework import Framework
from tidelog.replay.driver import Driver
from tidelog.replay.verify import verify
from tidelog.scheduler.core import Core
from tidelog.scheduler.evaluation.fast import FastEvaluation
from tidelog.testing import builders as b

__all__ = ["asked"]


def evaluation(driver: Driver) -> FastEvaluation:
    (framework,) = driver.core.frameworks.values()
    assert isinstance(framework, Framework)
    assert isinstance(framework.fast, FastEvaluation)
    return framework.fast


def started(*, fast: bool = True) -> Driver:
    driver = Driver()
    driver.core = Core(driver.registry, fast=fast)
    driver.start()
    driver.put(b.namespace("default"))
    driver.put(*(b.node(f"n{i}").label({b.ZONE: "abc"[i % 3]}).build() for i in range(30)))
    return driver


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a shape was prepared."""
    found: Counter[str] = Counter()
    prepare = FastEvaluation._prepare

    def count(self: FastEvaluation, *arguments: object) -> object:
        found["shapes"] += 1
        return prepare(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(FastEvaluation, "_prepare", count)
    return found


# --- shapes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "differ",
    [
        lambda made, text: made.label({"pod-template-hash": text}),
        lambda made, text: made.label({"apps.kubernetes.io/pod-index": text}),
        lambda made, text: made.annotate({"example.com/note": text}),
        lambda made, text: made.owner("ReplicaSet", text),
    ],
    ids=["pod-template-hash", "pod-index", "annotations", "owner"],
)
def test_pods_that_differ_in_what_no_plugin_reads_are_of_one_shape(
    differ: Callable[[b.PodBuilder, str], b.PodBuilder], asked: Counter[str], prepared: Counter[str]
) -> None:
    driver = started()
    like = b.pod("web").scheduler("default-scheduler").label(app="web").request(cpu="100m")
    like = like.spread(b.ZONE, "app=web", max_skew=2).prefer_pod_anti_affinity(10, b.HOSTNAME, "app=web")

    driver.put(*(like.named(f"first-{i}").build() for i in range(3)))
    driver.settle()
    before = prepared.total()
    driver.put(*(differ(like.named(f"web-{i}"), f"text-{i}").build() for i in range(20)))
    driver.settle()

    assert len(evaluation(driver)._shapes) == 1
    assert prepared.total() == before
    assert asked == Counter(fast=23, plain=0)
    assert len(driver.placements()) == 23
    assert verify(driver.records, driver.registry).first_difference is None


def test_pods_that_differ_in_a_label_by_which_they_are_spread_are_not(
    asked: Counter[str], prepared: Counter[str]
) -> None:
    driver = started()
    like = b.pod("web").scheduler("default-scheduler").request(cpu="100m")
    like = like.spread(b.ZONE, "app=web", match_label_keys=("pod-template-hash",))

    for turn in range(3):
        made = [like.named(f"web-{turn}-{i}").label({"pod-template-hash": str(i)}).build() for i in range(2)]
        driver.put(*made)
        driver.settle()

    assert prepared.total() == len(evaluation(driver)._shapes) == 2
    assert asked == Counter(fast=6, plain=0)
    assert verify(driver.records, driver.registry).first_difference is None


# --- labels that are asked for --------------------------------------------------------------------------------------------


def test_no_more_labels_are_learnt_than_the_bound_and_beyond_it_all_count(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_keys, "KEYS_MAX", 4)
    driver, plain = started(), started(fast=False)
    seen = []

    for turn in range(10):
        for one in (driver, plain):
            choosy = b.pod(f"choosy-{turn}").scheduler("default-scheduler").label({f"key-{turn}": "yes"})
            one.put(choosy.pod_anti_affinity(b.HOSTNAME, f"key-{turn + 1}=yes").build())
            one.settle()
            like = b.pod("web").scheduler("default-scheduler").request(cpu="100m")
            for number in range(4):
                key = f"key-{(turn + number) % 11}"
                one.put(
                    like.named(f"web-{turn}-{number}").label({key: "yes" if number % 2 else "no"}).build()
                )
            one.settle()
        seen.append(evaluation(driver).rekeyed)

    assert seen[:4] == [1, 2, 3, 4]
    assert seen[4:] == [seen[4]] * 6
    assert asked["plain"] == 0
    assert driver.placements() == plain.placements()
    assert len(driver.placements()) == 50
    for one in (driver, plain):
        assert verify(one.records, one.registry).first_difference is None


def test_beyond_the_bound_pods_are_told_apart_by_labels_that_nobody_asks_for(
    asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_keys, "KEYS_MAX", 2)
    driver = started()
    for number in range(4):
        shy = b.pod(f"shy-{number}").scheduler("default-scheduler")
        driver.put(shy.pod_anti_affinity(b.HOSTNAME, f"key-{number}=yes").build())
        driver.settle()
    before = len(evaluation(driver)._shapes)
    like = b.pod("web").scheduler("default-scheduler").request(cpu="100m")

    driver.put(*(like.named(f"web-{i}").label(nobody=str(i % 5)).build() for i in range(20)))
    driver.settle()

    assert len(evaluation(driver)._shapes) == before + 5
    assert asked["plain"] == 0
    assert verify(driver.records, driver.registry).first_difference is None

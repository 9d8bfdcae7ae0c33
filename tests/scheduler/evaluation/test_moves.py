"""What plugins count in domains follows nodes that come, go, or get other labels and taints: it is what they would count anew."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.scheduler.evaluation.test_fast import SEEDS, STEPS, asked, begin, places_are_kept, step
from tidelog.plugins.image_locality import ImageDomains
from tidelog.plugins.inter_pod_affinity.domains import AffinityDomains
from tidelog.plugins.pod_topology_spread.domains import SpreadDomains
from tidelog.replay.driver import Driver
from tidelog.scheduler.evaluation.parts import Counted
from tidelog.testing import builders as b

__all__ = ["asked", "places_are_kept"]


def contents(domains: Any) -> object:
    """All that is counted."""
    if isinstance(domains, SpreadDomains):
        return [
            (one._counts, one.frequency, one.domains, one.sets, one._here, one._counting)
            for one in (*domains._hard, *domains._soft)
        ]
    if isinstance(domains, AffinityDomains):
        pairs = [
            (one._counts, one.at, one.sets) for one in (domains._near, domains._too_near, domains._unwanted)
        ]
        weights = domains._weights
        settled = {key: sets for key, sets in weights.sets.items() if any(sets)}
        return [*pairs, weights._pairs, weights.at, settled]
    assert isinstance(domains, ImageDomains)
    return domains._at, domains._sets


@pytest.mark.parametrize("seed", range(7_000, 7_000 + SEEDS))
def test_counts_that_follow_moves_are_as_counted_anew(
    seed: int, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = Counter[str]()
    is_renewed = Counted._is_renewed
    follow = Counted.follow

    def noted(self: Counted) -> bool:
        found = is_renewed(self)
        followed[self.name] += not found
        return found

    def compared(self: Counted) -> None:
        follow(self)
        anew = self._count()
        assert anew is not None
        assert contents(self.now) == contents(anew)

    monkeypatch.setattr(Counted, "_is_renewed", noted)
    monkeypatch.setattr(Counted, "follow", compared)
    world, driver = begin(seed)
    world.restless = True

    for _ in range(STEPS):
        step(world, driver)

    assert followed.total() > 0


@pytest.mark.parametrize("kind", ["spread", "affinity", "image"])
def test_a_node_that_moves_is_not_a_reason_to_count_all(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0
    for one in (SpreadDomains, AffinityDomains, ImageDomains):
        begins = one.__init__

        def noted(self: Any, *args: Any, begins: Any = begins, **more: Any) -> None:
            nonlocal counted
            counted += 1
            begins(self, *args, **more)

        monkeypatch.setattr(one, "__init__", noted)
    driver = Driver()
    driver.start()
    driver.put(b.namespace("default"))
    driver.put(*(b.node(f"n{i}").label({b.ZONE: f"z{i % 3}"}).image("web:1", 10).build() for i in range(60)))

    def place(number: int) -> None:
        pod = b.pod(f"p{number}").scheduler("default-scheduler").label(app="web").image("web:1")
        if kind == "spread":
            pod = pod.spread(b.ZONE, "app=web", max_skew=1)
        elif kind == "affinity":
            pod = pod.pod_affinity(b.ZONE, "app=web")
        driver.put(pod.build())
        driver.settle()

    for number in range(3):
        place(number)
    before = counted
    driver.put(b.node("new").label({b.ZONE: "z1"}).image("web:1", 10).build())
    place(3)
    driver.put(b.node("n7").label({b.ZONE: "z2"}).build())
    place(4)
    driver.delete(driver.core.objects["Node//n8"])
    place(5)

    assert len(driver.placements()) == 6
    assert counted == before


@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_counts_that_cannot_follow_any_more_are_no_answer_for_other_pods_either(
    known: bool, asked: Counter[str]
) -> None:
    """An empty zone is one with nodes that have none. A pod that is new, or had no table yet, is the first to find that out."""
    driver = Driver()
    driver.start()
    driver.put(b.namespace("default"), b.service("web", {"app": "web"}))
    driver.put(*(b.node(f"n{i}").label({b.ZONE: f"z{i % 3}"}).build() for i in range(20)))

    def place(*cpus: str) -> None:
        for cpu in cpus:
            name = f"p{len(driver.placements())}"
            pod = b.pod(name).scheduler("default-scheduler").label(app="web").request(cpu=cpu)
            driver.put(pod.build())
            driver.settle()

    place("100m", "200m", "100m", "200m", *(["300m"] if known else []))
    driver.put(*(b.node(f"m{i}").label({b.ZONE: ""}).build() for i in range(3)))
    place("300m", "200m", "100m", "200m", "100m")
    for i in range(3):
        driver.delete(driver.core.objects[f"Node//m{i}"])
    before = asked["fast"]
    place("300m", "200m", "100m", "200m")

    assert len(driver.placements()) == 13 + known
    assert asked["fast"] == before + 4

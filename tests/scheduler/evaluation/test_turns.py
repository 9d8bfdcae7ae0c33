"""The first attempt of a pod that demands much of others takes turns, and none of them counts again what one before has counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.conftest import AssertReplays
from tidelog.api.objects import Pod
from tidelog.framework.effort import Paused
from tidelog.plugins.inter_pod_affinity.plugin import InterPodAffinity
from tidelog.plugins.pod_topology_spread.plugin import PodTopologySpread
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b

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

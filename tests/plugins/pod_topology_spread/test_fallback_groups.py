"""Fallback in pod groups: each member is judged by itself, for the time of the group's attempt."""

from __future__ import annotations

from typing import Any

from tests.worlds.spread import NP, PREEMPTION, PROVISIONING, World, node, two_zones, web
from tidelog.api.times import NANOS
from tidelog.eventlog.records import Scheduled, Unschedulable, decode_body
from tidelog.replay.driver import START
from tidelog.testing import builders as b

LINE = "topologySpread[0] topology.kubernetes.io/zone"
WAITING = "hard, waiting for NodeProvisioningFailed (no NodeProvisioningInProgress condition"

GROUP_GATES = {"PodTopologySpreadFallbackMode": True, "TopologyAwareWorkloadScheduling": True}


def two_zones_and_a_gang(*criteria: str, **settings: Any) -> World:
    """Both of `m-0` and `m-1`, or neither; zone b is full."""
    world = two_zones(featureGates=GROUP_GATES, **settings)
    gang = (web(f"m-{i}", *criteria).group("train") for i in range(2))
    world.put(b.pod_group("train", min_count=2), *gang)
    return world


def placed_members(world: World) -> list[tuple[str, str, tuple[int, ...]]]:
    """Of those that were placed: name, node, and what had fallen back."""
    names = ("m-0", "m-1")
    ended = [(name, body) for name in names for body in world.outcomes(name) if isinstance(body, Scheduled)]
    return [(name, body.node, tuple(f.constraint for f in body.fallback)) for name, body in ended]


def rejections_of_the_gang(world: World) -> list[Unschedulable]:
    """Each rejection of the group as a whole."""
    bodies = [
        decode_body(record) for record in world.driver.records if record.key == "PodGroup/default/train"
    ]
    return [body for body in bodies if isinstance(body, Unschedulable)]


def test_members_of_a_gang_fall_back_after_its_first_rejection() -> None:
    world = two_zones_and_a_gang(PREEMPTION)

    world.advance(seconds=12)

    assert len(rejections_of_the_gang(world)) == 1
    assert placed_members(world) == [("m-0", "a1", (0,)), ("m-1", "a1", (0,))]
    world.assert_replays()


def test_each_member_of_a_gang_falls_back_by_its_own_conditions() -> None:
    world = two_zones_and_a_gang(PROVISIONING)

    world.say("m-0", "False")
    one_told = placed_members(world)
    lines = rejections_of_the_gang(world)[-1].explanation[1:]
    world.say("m-1", "False")

    assert one_told == []
    assert lines == (
        f"default/m-0: {LINE}: fell back to ScheduleAnyway (NodeProvisioningFailed since 2023-11-14T22:13:20Z)",
        f"default/m-1: {LINE}: {WAITING}; there is no timeout)",
    )
    assert placed_members(world) == [("m-0", "a1", (0,)), ("m-1", "a1", (0,))]
    world.assert_replays()


def test_members_of_a_gang_are_judged_for_the_time_of_its_attempt() -> None:
    """Nobody has said anything of either; a node that helps nobody has the gang tried before its time."""
    world = two_zones_and_a_gang(PROVISIONING, timeout="1m")

    world.advance(seconds=50)
    world.put(node("b", 2, cpu="100m"))
    world.advance(seconds=9)
    before = placed_members(world)
    world.advance(seconds=1)

    assert [(body.at - START) / NANOS for body in rejections_of_the_gang(world)] == [0, 50]
    assert before == []
    assert world.ticks() == [60]
    assert placed_members(world) == [("m-0", "a1", (0,)), ("m-1", "a1", (0,))]
    world.assert_replays()


def test_rejection_of_a_gang_tells_for_how_many_members_a_line_holds() -> None:
    """Both may be placed, were it not for the third, which is too big for any node."""
    world = World(node("a"), node("b"), featureGates=GROUP_GATES)
    small = [web(f"m-{i}", PROVISIONING).condition(NP, "True") for i in range(2)]
    world.put(b.pod_group("train", min_count=3))
    world.put(*(pod.group("train") for pod in (*small, web("m-2", cpu="9"))))

    (rejection,) = rejections_of_the_gang(world)

    line = f"{LINE}: hard, waiting for NodeProvisioningFailed (NodeProvisioningInProgress is True)"
    assert rejection.explanation[1:] == (f"default/m-0 and 1 more: {line}",)
    world.assert_replays()

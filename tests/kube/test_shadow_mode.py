"""What another scheduler decides on a live cluster is judged as it shows, and as the report on the log judges it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.kube.live_world import LiveWorld
from tests.kube.memory_server import MemoryServer
from tidelog.eventlog.records import ShadowVerdict
from tidelog.replay.shadow.follower import Follower


def a_server() -> MemoryServer:
    server = MemoryServer()
    server.add_node("large", cpu="4")
    server.add_node("small", cpu="1")
    return server


def shadowing(server: MemoryServer, **more: Any) -> LiveWorld:
    return LiveWorld(server, mode="shadow", **more)


def bind(server: MemoryServer, name: str, node: str) -> None:
    server.put("pods", "default", name, spec={"nodeName": node})


async def judged(world: LiveWorld, count: int) -> dict[str, int]:
    """The counts when there are so many verdicts: they are worked out in a thread."""
    assert world.live.shadow is not None
    counts = world.live.shadow.counts
    while sum(counts.values()) < count:
        await world.advance(0.5)
        await asyncio.sleep(0.002)
    return counts


async def test_a_binding_is_judged_half_a_second_later() -> None:
    async with shadowing(a_server()) as world:
        world.server.add_pod("web", cpu="2")
        await world.advance(0.1)
        bind(world.server, "web", "large")
        await world.quiet()
        assert world.live.shadow is not None
        assert world.live.shadow.counts == {}

        assert await judged(world, 1) == {"same": 1}
        assert await world.bodies("ShadowVerdict") == []
        assert world.server.bound() == {"default/web": "large"}, "nothing is written to the cluster"


async def test_a_binding_that_we_would_not_make_is_refused() -> None:
    async with shadowing(a_server()) as world:
        world.server.add_pod("web", cpu="2")
        await world.advance(0.1)
        bind(world.server, "web", "small")

        assert await judged(world, 1) == {"refused": 1}
        assert world.live.statistics().shadow == {("refused",): 1}


async def test_verdicts_are_records_on_demand_and_the_report_says_the_same() -> None:
    async with shadowing(a_server(), shadow_records=True) as world:
        for number, node in enumerate(("large", "large", "small")):
            world.server.add_pod(f"web-{number}", cpu="500m")
            await world.advance(0.1)
            bind(world.server, f"web-{number}", node)
            await world.advance(2)
        await judged(world, 3)
        await world.advance(1)

        records = await world.records()
        made = [r for r in records if r.kind == "ShadowVerdict"]
        follower = Follower(world.registry)
        report = [one for r in records for one in follower.take(r)] + list(follower.finish())

        assert [(r.author, r.key, r.cause) for r in made] == [("shadow", one.key, one.seq) for one in report]
        bodies = await world.bodies("ShadowVerdict")
        assert [b.verdict for b in bodies] == [one.verdict for one in report]
        assert all(isinstance(b, ShadowVerdict) and b.feasible for b in bodies)


async def test_what_was_decided_while_nobody_watched_is_not_judged() -> None:
    world = shadowing(a_server())
    async with world:
        world.server.add_pod("web", cpu="2")
        await world.advance(0.1)
        await world.kill()
        bind(world.server, "web", "small")
        await world.start()
        world.server.add_pod("late", cpu="2")
        await world.advance(10)
        bind(world.server, "late", "large")

        assert await judged(world, 1) == {"unordered": 1} or await judged(world, 2) == {
            "unordered": 1,
            "same": 1,
        }

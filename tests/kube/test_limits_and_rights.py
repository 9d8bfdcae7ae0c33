"""What limits a client: the rate that somebody sets, and the rights that its user has."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.kube.live_world import LiveWorld
from tests.kube.memory_server import MemoryServer
from tidelog.api.errors import UsageError
from tidelog.api.times import NANOS
from tidelog.cli.commands.cluster_options import lease_options
from tidelog.configuration.cluster import LeaseOptions
from tidelog.kube.cluster.port import Answer, Request
from tidelog.kube.cluster.rights import REVIEWS
from tidelog.kube.cluster.throttle import RequestLimit
from tidelog.testing.virtual_time import VirtualClock

# --- rates ------------------------------------------------------------------------------------------------------------


async def test_burst_goes_at_once_and_then_so_many_a_second() -> None:
    clock = VirtualClock()
    limit = RequestLimit(10, 3, clock)
    times: list[float] = []
    begun = clock.now()

    async def one() -> None:
        await limit.taken()
        times.append((clock.now() - begun) / NANOS)

    async def quiet() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(one()) for _ in range(6)]
    await quiet()
    await clock.advance(10 * NANOS, quiet)
    await asyncio.gather(*tasks)
    await one()

    assert times == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3, 10.0])


async def test_scheduler_asks_no_more_often_than_it_may() -> None:
    server = MemoryServer()
    server.add_node("n0")
    for number in range(30):
        server.add_pod(f"p{number}")
    async with LiveWorld(server, qps=2.0, burst=1) as world:
        began = world.clock.now()
        await world.advance(5)
        early = len(server.bound())
        await world.advance(60)

        assert early <= 2 * (world.clock.now() - began) / NANOS
        assert early < 30
        assert len(server.bound()) == 30
        await world.verify()


# --- rights -----------------------------------------------------------------------------------------------------------


def denying(*lacking: str) -> tuple[MemoryServer, list[str]]:
    """A server that lets its user do everything but this."""
    server = MemoryServer()
    server.add_node("n0")
    server.add_pod("web")
    asked: list[str] = []

    def answer(request: Request) -> Answer | None:
        if request.path != REVIEWS:
            return None
        found = request.body["spec"]["resourceAttributes"]
        asked.append("/".join(filter(None, (found["resource"], found.get("subresource")))))
        body: Any = {"status": {"allowed": asked[-1] not in lacking}}
        return Answer(status=201, body=json.dumps(body).encode())

    server.refuse = answer
    return server, asked


async def test_who_may_not_bind_is_told_at_the_start_and_nothing_is_decided() -> None:
    server, asked = denying("pods/binding", "leases")
    world = LiveWorld(server, lease=LeaseOptions())

    with pytest.raises(UsageError, match=r"let this user create pods/binding, get leases\.coordination"):
        await world.start()
    await world.kill()

    assert asked.count("pods/binding") > 3, "roles may come late after the server's start"
    assert server.bound() == {}


async def test_who_may_post_no_events_schedules_without() -> None:
    server, _ = denying("events")
    async with LiveWorld(server) as world:
        assert server.bound() == {"default/web": "n0"}
        assert not [r for r in server.requests if r.path.endswith("/events")]
        await world.verify()


async def test_answer_about_rights_that_is_lost_is_asked_for_again() -> None:
    server, asked = denying()
    lost = [True, True]
    server.lose = lambda request: request.path == REVIEWS and bool(lost) and lost.pop()
    server.refuse = lambda request: None
    async with LiveWorld(server) as world:
        assert lost == []
        assert server.bound() == {"default/web": "n0"}
        await world.verify()
    assert asked == []


async def test_recorder_is_not_asked_what_it_may() -> None:
    server, asked = denying("pods/binding")
    async with LiveWorld(server, mode="record"):
        assert asked == []


# --- the command line before the configuration ------------------------------------------------------------------------


def test_lease_of_the_command_line_has_the_times_of_the_configuration() -> None:
    said = LeaseOptions(namespace="team", name="ours", duration=40, renew_deadline=20)

    assert lease_options(None, said) == LeaseOptions(
        namespace="team", name="ours", duration=40, renew_deadline=20
    )
    assert lease_options("a/b", said) == LeaseOptions(namespace="a", name="b", duration=40, renew_deadline=20)
    assert lease_options("none", said) is None
    assert lease_options(None, LeaseOptions()) == LeaseOptions()
    with pytest.raises(UsageError, match="must be NAMESPACE/NAME"):
        lease_options("a/b/c", said)

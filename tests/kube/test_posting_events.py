"""Events get what the writes leave of the API server."""

from __future__ import annotations

import asyncio

import pytest

from tests.kube.live_world import LiveWorld
from tests.kube.memory_server import MemoryServer
from tidelog.kube.cluster import events as module
from tidelog.kube.cluster.events import Events
from tidelog.kube.cluster.port import Answer, ClusterPort, NoAnswer, Request
from tidelog.kube.cluster.writer import WriterSettings
from tidelog.testing.builders import pod
from tidelog.testing.virtual_time import VirtualClock


class Waiting(MemoryServer):
    """It answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[asyncio.Future[Answer]] = []

    async def send(self, request: Request) -> Answer:
        self.requests.append(request)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    def answer(self, error: Exception | None = None) -> None:
        future = self.answers.pop(0)
        if error is None:
            future.set_result(Answer(status=201))
        else:
            future.set_exception(error)


async def quiet() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Room:
    """What the writes leave."""

    def __init__(self, port: ClusterPort, many: int) -> None:
        self.left = many
        self.clock = VirtualClock()
        self.events = Events(port, self.clock, "a", room=lambda: self.left)
        for number in range(many + 20):
            self.events.scheduled(pod(f"p{number}").build(), "n")


async def test_one_goes_at_a_time_while_the_writes_leave_no_room() -> None:
    port = Waiting()
    world = Room(port, 0)
    task = asyncio.create_task(world.events.run())
    for sent in range(1, 4):
        await quiet()
        assert len(port.requests) == sent
        port.answer()
    world.left = 12
    await quiet()
    alone = len(port.requests)
    port.answer()
    await quiet()
    task.cancel()

    assert alone == 4 + 11, (
        "the answer before had made room for it, and there is room for more when that has come"
    )
    assert len(port.answers) == 12


async def test_those_that_are_not_answered_make_room_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKLOG", 10)
    port = Waiting()
    world = Room(port, 0)
    task = asyncio.create_task(world.events.run())
    await quiet()
    at_first = len(port.requests)
    for _ in range(at_first):
        port.answer(NoAnswer("lost"))
    await quiet()
    lost = len(port.requests)
    await world.clock.advance(2_000_000_000, quiet)
    later = len(port.requests)
    task.cancel()

    assert (at_first, lost) == (module.BACKLOG_UNDER_WAY, at_first)
    assert later > lost
    assert world.events.dropped == at_first


class Slow(MemoryServer):
    """It takes a few turns of the event loop for each write."""

    async def send(self, request: Request) -> Answer:
        for _ in range(50 if request.method == "POST" else 0):
            await asyncio.sleep(0)
        return await super().send(request)


async def test_bindings_of_a_burst_go_before_its_events() -> None:
    server = Slow()
    server.add_node("n0")
    for number in range(40):
        server.add_pod(f"p{number}")
    async with LiveWorld(server, writer=WriterSettings(concurrency=4)) as world:
        posts = [r.path.rpartition("/")[2] for r in server.requests if r.method == "POST"]
        bindings = [place for place, name in enumerate(posts) if name == "binding"]
        early = posts[: bindings[-1]].count("events")
        await world.verify()

    assert len(bindings) == posts.count("events") == 40
    assert 0 < early < 20

"""A gang at a live cluster: placed by one record, bound one by one, and never evicted because one is missing."""

from __future__ import annotations

from tests.kube.live_world import LiveWorld
from tests.kube.memory_server import MemoryServer
from tests.kube.test_promises import assert_bound_once
from tidelog.kube.cluster.port import Answer, Request
from tidelog.kube.cluster.writer import WriterSettings


def a_gang(server: MemoryServer, name: str, members: int, least: int) -> None:
    policy = {"gang": {"minCount": least}}
    server.put("podgroups", "default", name, spec={"schedulingPolicy": policy})
    for number in range(members):
        server.add_pod(f"{name}-{number}", schedulingGroup={"podGroupName": name})


def a_server() -> MemoryServer:
    server = MemoryServer()
    for number in range(3):
        server.add_node(f"n{number}")
    return server


def group_condition(server: MemoryServer, name: str) -> str:
    found = server.objects["podgroups"][f"default/{name}"].get("status", {}).get("conditions", [])
    return next(
        (f"{c['status']} {c['reason']}" for c in found if c["type"] == "PodGroupInitiallyScheduled"), ""
    )


async def test_gang_is_bound_whole_and_its_condition_follows() -> None:
    server = a_server()
    async with LiveWorld(server) as world:
        a_gang(server, "g", 5, 5)
        await world.advance(2)

        assert len(server.bound()) == 5
        assert group_condition(server, "g") == "True Scheduled"
        assert len(world.core.promises) == 0
        await assert_bound_once(world)
        await world.verify()


async def test_condition_waits_until_enough_members_are_seen_bound() -> None:
    server = a_server()
    async with LiveWorld(server) as world:
        server.before = lambda r: server.hold("pods") if r.path.endswith("/binding") else None
        a_gang(server, "g", 3, 3)
        await world.advance(2)
        early = group_condition(server, "g")
        server.before = lambda r: None
        server.let_go()
        await world.advance(2)

        assert early == ""
        assert group_condition(server, "g") == "True Scheduled"


async def test_members_that_are_not_sent_are_withdrawn_when_one_is_refused() -> None:
    server = a_server()
    refused: list[str] = []

    def refuse(request: Request) -> Answer | None:
        if request.path.endswith("/binding") and not refused:
            refused.append(request.path.split("/")[6])
            return Answer(status=422, body=b'{"kind":"Status","code":422,"reason":"Invalid"}')
        return None

    server.refuse = refuse
    async with LiveWorld(server, writer=WriterSettings(concurrency=1)) as world:
        a_gang(server, "g", 4, 4)
        await world.quiet()
        failed = await world.bodies("WriteFailed")
        await world.advance(60)

        assert [body.sent for body in failed] == [True, False, False, False]
        assert len(server.bound()) == 4
        await assert_bound_once(world)
        await world.verify()


async def test_bound_members_stay_when_another_is_refused() -> None:
    server = a_server()
    asked: list[str] = []

    def refuse(request: Request) -> Answer | None:
        if request.path.endswith("/binding"):
            asked.append(request.path.split("/")[6])
            if len(asked) == 3:
                return Answer(status=422, body=b'{"kind":"Status","code":422,"reason":"Invalid"}')
        return None

    server.refuse = refuse
    async with LiveWorld(server, writer=WriterSettings(concurrency=1)) as world:
        a_gang(server, "g", 4, 3)
        await world.advance(60)

        assert len(server.bound()) == 4
        await assert_bound_once(world)
        assert not [r for r in server.requests if r.path.endswith("/eviction")]
        await world.verify()


async def test_gang_whose_node_closed_before_the_first_was_sent_is_decided_anew_as_a_whole() -> None:
    server = MemoryServer()
    server.add_node("n0", cpu="1")
    server.add_node("n1", cpu="1")
    async with LiveWorld(server) as world:
        server.unreachable = True
        a_gang(server, "g", 2, 2)
        await world.quiet()
        server.put("nodes", "", "n0", spec={"unschedulable": True})
        server.unreachable = False
        server.cut()
        await world.advance(30)

        assert set(server.bound().values()) == {"n1"}
        assert len(server.bound()) == 2
        await world.verify()


async def test_gang_survives_a_restart_with_half_of_it_bound() -> None:
    server = a_server()
    world = LiveWorld(server)
    async with world:
        sent = 0

        def stop_after_two(request: Request) -> Answer | None:
            nonlocal sent
            if request.path.endswith("/binding"):
                sent += 1
                if sent > 2:
                    return Answer(status=503, body=b"")
            return None

        server.refuse = stop_after_two
        a_gang(server, "g", 4, 4)
        await world.quiet()
        server.refuse = lambda r: None
        await world.restart()
        await world.advance(20)

        assert len(server.bound()) == 4
        await assert_bound_once(world)
        await world.verify()

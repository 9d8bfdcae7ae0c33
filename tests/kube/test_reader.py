"""The log follows the server: listed, watched, resumed, bridged where something is missing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.live_world import LiveWorld
from tests.kube.memory_server import KINDS, MemoryServer
from tidelog.api.errors import UsageError
from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.projection import Projection
from tidelog.api.wire import read_object
from tidelog.daemon.intake.messages import Delete
from tidelog.eventlog.attachment import is_newer
from tidelog.eventlog.records import ObjectDeleted, ObjectPut, decode_body
from tidelog.kube.cluster.port import Answer

WATCHED = [resource for resource in KINDS if resource != "leases"]


def a_server() -> MemoryServer:
    server = MemoryServer()
    for number in range(3):
        server.add_node(f"n{number}", zone=f"z{number}")
    server.add_pod("a")
    return server


def recording(server: MemoryServer, **more: Any) -> LiveWorld:
    return LiveWorld(server, mode="record", **more)


def assert_same(world: LiveWorld) -> None:
    """The log's objects are the server's, projected."""
    projection = Projection()
    found = {key: msgspec.to_builtins(obj) for key, obj in world.core.objects.items()}
    wanted = {}
    for resource in WATCHED:
        kind = KIND_BY_NAME[KINDS[resource]]
        for obj in world.server._visible(resource):
            meta = obj["metadata"]
            key = f"{kind.name}/{meta.get('namespace', '')}/{meta['name']}"
            wanted[key] = msgspec.to_builtins(projection.of(read_object(kind.name, msgspec.json.encode(obj))))
    for objects in (found, wanted):
        for each in objects.values():
            del each["metadata"]["resourceVersion"]
    assert found == wanted


async def test_first_sync_puts_all_objects_and_says_so() -> None:
    async with recording(a_server()) as world:
        synced = {body.kind: body for body in await world.bodies("KindSynced")}

        assert world.live.synced
        assert (synced["Node"].objects, synced["Node"].how) == (3, "initial")
        assert_same(world)
        await world.verify()


async def test_recording_decides_and_writes_nothing() -> None:
    async with recording(a_server()) as world:
        await world.advance(30)

        assert {r.method for r in world.server.requests} == {"GET"}
        assert not await world.bodies("Scheduled")


async def test_what_changes_nothing_that_is_stored_appends_nothing() -> None:
    async with recording(a_server()) as world:
        before = world.log.head.seq
        for _ in range(5):
            world.server.put(
                "nodes", "", "n1", status={"nodeInfo": {"kubeletVersion": str(world.server.version)}}
            )
            await world.quiet()

        assert world.log.head.seq == before
        assert world.live.readers["Node"].view.suppressed == 5


async def test_session_goes_on_where_the_last_one_ended() -> None:
    world = recording(a_server())
    async with world:
        world.server.add_pod("b")
        await world.quiet()
        await world.kill()
        world.server.add_pod("c")
        world.server.delete("pods", "default", "a")
        await world.start()
        how = [body.how for body in await world.bodies("KindSynced") if body.kind == "Pod"]

        assert how == ["initial", "resume"]
        assert_same(world)
        await world.verify()


async def test_gap_is_told_and_bridged_by_a_list() -> None:
    world = recording(a_server())
    async with world:
        await world.kill()
        world.server.add_pod("b")
        world.server.delete("pods", "default", "a")
        world.server.compact()
        await world.start()
        gaps = [body for body in await world.bodies("KindGap") if body.kind == "Pod"]
        synced = [body for body in await world.bodies("KindSynced") if body.kind == "Pod"][-1]

        assert [gap.reason for gap in gaps] == ["expired"]
        assert (synced.how, synced.added, synced.removed) == ("relist", 1, 1)
        assert_same(world)


async def test_expiry_in_the_middle_of_a_watch_is_bridged() -> None:
    async with recording(a_server()) as world:
        for watch in list(world.server._watches):
            if watch.resource == "pods":
                watch.send("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
        world.server.add_pod("b")
        await world.advance(2)

        assert [body.kind for body in await world.bodies("KindGap")] == ["Pod"]
        assert_same(world)


async def test_server_without_streaming_lists_is_read_by_pages() -> None:
    server = a_server()
    server.streams_lists = False
    for number in range(1_203):
        server.add_pod(f"p{number}")
    async with recording(server) as world:
        pages = [r for r in server.requests if r.path == "/api/v1/pods" and "limit" in r.query]

        assert len(pages) >= 3
        assert_same(world)


async def test_list_that_expires_between_pages_begins_anew() -> None:
    server = a_server()
    server.streams_lists = False
    for number in range(600):
        server.add_pod(f"p{number}")
    expired = [
        Answer(
            status=410, body=b'{"kind":"Status","code":410,"reason":"Expired","metadata":{"continue":"x"}}'
        )
    ]
    server.refuse = lambda r: expired.pop() if "continue" in r.query and expired else None
    async with recording(server) as world:
        await world.advance(3)

        assert not expired
        assert_same(world)


async def test_server_that_was_set_back_is_noticed_and_listed() -> None:
    server = a_server()
    async with recording(server) as world:
        backup = server.snapshot()
        server.add_pod("b")
        server.delete("pods", "default", "a")
        await world.quiet()
        server.restore(backup)
        await world.advance(10)

        assert "wentBack" in [body.reason for body in await world.bodies("KindGap")]
        assert_same(world)


async def test_server_that_was_set_back_in_silence_is_noticed_by_the_check() -> None:
    server = a_server()
    async with recording(server) as world:
        backup = server.snapshot()
        for number in range(5):
            server.add_pod(f"b{number}")
        await world.quiet()
        watches = list(server._watches)
        server.restore(backup)
        server._watches += watches
        for watch in watches:
            watch.ended = False
            watch.send("BOOKMARK", {"metadata": {"resourceVersion": "1"}})
        await world.advance(301)
        server.put("pods", "default", "a", metadata={"labels": {"x": "y"}})
        await world.advance(30)

        assert "wentBack" in [body.reason for body in await world.bodies("KindGap") if body.kind == "Pod"]
        assert_same(world)


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_refusals_of_reads_are_waited_out_and_told(status: int) -> None:
    server = a_server()
    async with recording(server) as world:
        server.refuse = lambda r: Answer(status=status, body=b'{"kind":"Status","message":"no"}')
        server.cut()
        server.add_pod("b")
        await world.advance(40)
        troubles = world.live.readers["Pod"].trouble
        server.refuse = lambda r: None
        await world.advance(120)

        assert str(status) in troubles
        assert world.live.readers["Pod"].trouble == ""
        assert server.renewed or status != 401
        assert_same(world)


async def test_watch_that_breaks_is_resumed_and_nothing_is_missing() -> None:
    server = a_server()
    async with recording(server) as world:
        for number in range(4):
            server.cut(broken=number % 2 == 0)
            server.add_pod(f"b{number}")
            await world.advance(5)

        assert not await world.bodies("KindGap")
        assert_same(world)


async def test_unreachable_server_is_waited_for() -> None:
    server = a_server()
    async with recording(server) as world:
        server.unreachable = True
        server.cut()
        await world.advance(60)
        server.add_pod("b")
        server.unreachable = False
        await world.advance(60)

        assert_same(world)


async def test_object_that_cannot_be_read_makes_itself_heard_and_stops_nobody() -> None:
    server = a_server()
    async with recording(server) as world:
        server.put("pods", "default", "a", spec={"containers": "nonsense"})
        server.add_pod("b")
        await world.quiet()
        (unread,) = await world.bodies("ObjectUnread")

        assert "containers" in unread.error
        assert "nonsense" not in unread.error
        assert world.core.objects["Pod/default/a"].spec.containers
        assert "Pod/default/b" in world.core.objects


async def test_pod_that_has_finished_leaves() -> None:
    async with recording(a_server()) as world:
        world.server.put("pods", "default", "a", status={"phase": "Succeeded"})
        await world.quiet()

        assert "Pod/default/a" not in world.core.objects


async def test_pod_made_anew_under_its_name_is_another_one() -> None:
    world = recording(a_server())
    async with world:
        await world.kill()
        world.server.delete("pods", "default", "a")
        world.server.add_pod("a")
        world.server.compact()
        await world.start()
        kinds = [r.kind for r in await world.records() if r.key == "Pod/default/a"]

        assert kinds == ["ObjectPut", "ObjectDeleted", "ObjectPut"]
        await world.verify()


async def test_secrets_are_in_no_record() -> None:
    server = MemoryServer()
    canary = "canary-1234567890"
    container = {"name": "c", "env": [{"name": "TOKEN", "value": canary}], "args": [canary]}
    server.put(
        "pods",
        "default",
        "a",
        metadata={
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": canary},
            "managedFields": [{"manager": canary}],
        },
        spec={
            "containers": [container],
            "volumes": [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"k": canary}}}],
        },
        status={"conditions": [{"type": "Ready", "status": "False", "message": canary}]},
    )
    async with recording(server) as world:
        assert "Pod/default/a" in world.core.objects
        assert not [r for r in await world.records() if canary.encode() in r.body]


async def test_facts_of_others_are_refused_while_a_cluster_says_what_is_so() -> None:
    async with recording(a_server()) as world:
        world.runtime.facts.cluster = "https://example"

        with pytest.raises(UsageError, match="kubectl"):
            await world.runtime.facts.submit(Delete(keys=["Pod/default/a"]))


async def test_log_of_another_cluster_is_refused() -> None:
    world = recording(a_server())
    async with world:
        await world.kill()
        world.server = a_server()
        system = world.server.objects["namespaces"]["/kube-system"]
        system["metadata"]["uid"] = "another"

        with pytest.raises(UsageError, match="--reattach"):
            await world.start()
        world.live._tasks.clear()
        await world.runtime.stop()
        await world.log.close()
        world.settings = msgspec.structs.replace(world.settings, reattach=True)
        await world.start()
        assert_same(world)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "add",
                "add",
                "change",
                "change",
                "delete",
                "anew",
                "node",
                "cut",
                "break",
                "compact",
                "hold",
                "let go",
                "repeat",
                "bookmark",
                "quiet",
                "quiet",
                "wait",
                "kill",
                "finish",
            ]
        ),
        st.integers(0, 4),
    ),
    max_size=40,
)


@given(ACTIONS)
async def test_whatever_happens_the_log_ends_where_the_server_is(actions: list[tuple[str, int]]) -> None:
    server = a_server()
    world = recording(server)
    async with world:
        for action, number in actions:
            await _act(world, action, number)
        server.let_go()
        await world.advance(90)

        assert_same(world)
        await assert_in_order(world)
        await world.verify()


async def _act(world: LiveWorld, action: str, number: int) -> None:
    server, name = world.server, f"p{number}"
    there = f"default/{name}" in server.objects["pods"]
    if action == "add" and not there:
        server.add_pod(name)
    elif action == "change" and there:
        server.put("pods", "default", name, metadata={"labels": {"v": str(server.version)}})
    elif action == "delete" and there:
        server.delete("pods", "default", name)
    elif action == "anew" and there:
        server.delete("pods", "default", name)
        server.add_pod(name)
    elif action == "finish" and there:
        server.put("pods", "default", name, status={"phase": "Succeeded"})
    elif action == "node":
        server.put("nodes", "", f"n{number}", spec={"unschedulable": server.version % 2 == 0})
    elif action in ("cut", "break"):
        server.cut(broken=action == "break")
    elif action == "compact":
        server.compact()
    elif action == "hold":
        server.hold(("pods", "nodes")[number % 2])
    elif action == "let go":
        server.let_go()
    elif action == "repeat" and not server.held:
        server.repeat(("pods", "nodes")[number % 2])
    elif action == "bookmark" and not server.held:
        server.bookmark()
    elif action == "quiet":
        await world.quiet()
    elif action == "wait":
        await world.advance(number)
    elif action == "kill":
        server.let_go()
        await world.restart()


async def assert_in_order(world: LiveWorld) -> None:
    """Each object's versions are in the server's order, none twice, and nothing of an incarnation comes after its end."""
    last: dict[str, str] = {}
    ended: set[str] = set()
    for record in await world.records():
        body = decode_body(record)
        if isinstance(body, ObjectPut):
            meta = body.object.metadata
            assert meta.uid not in ended
            assert is_newer(meta.resource_version, last.get(meta.uid, "")), record
            last[meta.uid] = meta.resource_version
        elif isinstance(body, ObjectDeleted):
            ended.add(body.uid)


async def test_object_that_is_deleted_while_it_is_listed_is_not_there() -> None:
    server = a_server()
    server.brief["pods"] = [server.add_pod("gone")]
    server.delete("pods", "default", "gone")
    async with recording(server) as world:
        assert world.live.synced
        assert_same(world)
        await world.verify()

"""What is decided is promised, and counts until the server shows it or the log says that it did not come about."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.live_world import LiveWorld
from tests.kube.memory_server import MemoryServer
from tests.kube.test_reader import assert_in_order, assert_same
from tidelog.api.errors import LogError, LogFull
from tidelog.api.pod_status import POD_SCHEDULED
from tidelog.daemon.process.runtime import Limits
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.promises import Promise, PromisedEffect, Promises
from tidelog.eventlog.records import ClusterAttached
from tidelog.kube.cluster.lease import Leadership
from tidelog.kube.cluster.port import Answer, Request
from tidelog.kube.cluster.writer import Writer, WriterSettings
from tidelog.plugins.registry import Registry
from tidelog.replay.playback import Beginning, recover
from tidelog.replay.redact import redact
from tidelog.replay.verify import verify
from tidelog.scheduler.state import load_state
from tidelog.testing import builders as b


def a_server(nodes: int = 3, cpu: str = "4") -> MemoryServer:
    server = MemoryServer()
    for number in range(nodes):
        server.add_node(f"n{number}", cpu, zone=f"z{number}")
    return server


def is_binding(request: Request) -> bool:
    return request.path.endswith("/binding")


def condition(pod: Any, type: str = POD_SCHEDULED) -> Any:
    return next((c for c in pod.get("status", {}).get("conditions", ()) if c["type"] == type), None)


async def assert_bound_once(world: LiveWorld) -> None:
    """Every pod has its node by one binding, which names the log and the seq of its outcome."""
    log_id = world.core.promises.log_id
    outcomes = {r.seq: r.key for r in await world.records() if r.kind == "Scheduled"}
    for key, pod in world.server.objects["pods"].items():
        bindings = world.server.bindings.get(pod["metadata"]["uid"], [])
        assert len(bindings) == bool(pod["spec"].get("nodeName")), key
        for node, annotation in bindings:
            found, _, seq = annotation.partition("/")
            assert (node, found) == (pod["spec"]["nodeName"], log_id)
            assert outcomes[int(seq)] == f"Pod/{key}"


async def test_pods_are_bound_once_and_everything_is_settled() -> None:
    server = a_server()
    for number in range(20):
        server.add_pod(f"p{number}")
    async with LiveWorld(server) as world:
        assert len(server.bound()) == 20
        assert len(world.core.promises) == 0
        await assert_bound_once(world)
        assert_same(world)
        await world.verify()


async def test_stale_version_between_decision_and_confirmation_does_not_unbind() -> None:
    server = a_server()
    async with LiveWorld(server) as world:
        server.gate = asyncio.Event()
        server.add_pod("a")
        await world.quiet()
        server.put("pods", "default", "a", status={"conditions": [{"type": "Ready", "status": "False"}]})
        await world.quiet()
        node = world.core.objects["Pod/default/a"].spec.node_name
        server.gate.set()
        await world.quiet()

        assert node
        assert server.bound() == {"default/a": node}
        assert len(await world.bodies("Scheduled")) == 1
        await world.verify()


async def test_answer_that_is_lost_is_asked_for_and_nothing_is_bound_twice() -> None:
    server = a_server()
    lost = [True, True, True]
    server.lose = lambda r: is_binding(r) and bool(lost) and lost.pop()
    async with LiveWorld(server) as world:
        server.hold("pods")
        for number in range(5):
            server.add_pod(f"p{number}")
        server.let_go()
        await world.advance(20)

        assert len(server.bound()) == 5
        assert not await world.bodies("WriteFailed")
        await assert_bound_once(world)
        await world.verify()


async def test_redacted_log_of_a_cluster_begins_with_what_is_promised() -> None:
    server = a_server()
    async with LiveWorld(server) as world:
        server.gate = asyncio.Event()
        for number in range(3):
            server.add_pod(f"payroll-{number}")
        await world.quiet()
        begin, open_then = world.core.seq, len(world.core.promises)
        server.gate.set()
        server.add_pod("payroll-9")
        await world.quiet()
        records = await world.records()

    table = ObjectTable()
    for record in records[:begin]:
        table.apply(record)
    beginning = Beginning(recover(records[:begin], Registry()), table.encode(), records[begin - 1].digest)
    made = redact(records[begin:], Registry(), beginning=beginning)

    assert open_then == 3
    assert made.first is not None
    objects = ObjectTable.decode(made.first.objects).objects()
    core = load_state(made.first.scheduler, Registry(), objects)
    assert core is not None
    assert len(core.promises) == 3
    assert verify(made.records, Registry(), core=core).first_difference is None
    told = b" ".join(
        (made.first.scheduler, made.first.objects, *(r.key.encode() + r.body for r in made.records))
    )
    assert [name for name in (b"payroll", b"n0", b"n1", b"n2", b"uid-") if name in told] == []


async def test_event_that_is_late_settles_after_the_answer() -> None:
    server = a_server()
    async with LiveWorld(server) as world:
        server.add_pod("a")
        server.before = lambda r: server.hold("pods")
        await world.quiet()
        open_before = world.core.promises.binds
        server.before = lambda r: None
        server.let_go()
        await world.quiet()

        assert (open_before, world.core.promises.binds) == (1, 0)
        assert_same(world)
        await world.verify()


async def test_pod_that_begins_to_go_takes_no_room_from_a_binding_that_waits() -> None:
    server = a_server(nodes=1)
    async with LiveWorld(server, writer=WriterSettings(concurrency=1)) as world:
        server.add_pod("old")
        await world.quiet()
        server.gate = asyncio.Event()
        for name in ("first", "second"):
            server.add_pod(name)
        await world.quiet()
        server.put("pods", "default", "old", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        await world.quiet()
        server.gate.set()
        await world.advance(2)

        assert server.bound().keys() == {"default/old", "default/first", "default/second"}
        assert not await world.bodies("WriteFailed")
        await assert_bound_once(world)
        await world.verify()


async def test_binding_that_is_not_seen_for_long_is_read_back() -> None:
    server = a_server()
    async with LiveWorld(server) as world:
        server.add_pod("a")
        server.before = lambda r: server.hold("pods")
        await world.quiet()
        await world.advance(40)

        assert world.core.promises.binds == 0
        assert world.core.objects["Pod/default/a"].spec.node_name
        server.before = lambda r: None
        server.let_go()
        await world.quiet()
        await assert_in_order(world)


async def test_pod_that_another_scheduler_bound_is_given_up() -> None:
    server = a_server()

    def steal(request: Request) -> None:
        if is_binding(request) and not server.pod("a")["spec"].get("nodeName"):
            server.put(
                "pods",
                "default",
                "a",
                spec={"nodeName": "n2" if request.body["target"]["name"] != "n2" else "n1"},
            )

    server.before = steal
    server.add_pod("a")
    async with LiveWorld(server) as world:
        (failed,) = await world.bodies("WriteFailed")

        assert failed.by == server.pod("a")["spec"]["nodeName"]
        assert world.core.objects["Pod/default/a"].spec.node_name == failed.by
        assert len(world.core.promises) == 0
        assert_same(world)
        await world.verify()


async def test_refused_binding_is_tried_again_after_a_backoff_that_grows() -> None:
    server = a_server()
    asked: list[int] = []

    def refuse(request: Request) -> Answer | None:
        if is_binding(request) and len(asked) < 3:
            asked.append(world.clock.now())
            return Answer(status=422, body=b'{"kind":"Status","code":422,"reason":"Invalid"}')
        return None

    server.refuse = refuse
    world = LiveWorld(server)
    async with world:
        server.add_pod("a")
        await world.advance(60)
        waits = [later - earlier for earlier, later in itertools.pairwise(asked)]

        assert len(asked) == 3
        assert 0 < waits[0] < waits[1]
        assert "default/a" in server.bound()
        assert [body.final for body in await world.bodies("WriteFailed")] == [True] * 3
        await world.verify()


async def test_pod_that_is_gone_is_forgotten() -> None:
    server = a_server()
    server.before = lambda r: (
        is_binding(r) and "default/a" in server.objects["pods"] and server.delete("pods", "default", "a")
    )
    server.add_pod("a")
    async with LiveWorld(server) as world:
        assert len(world.core.promises) == 0
        assert "Pod/default/a" not in world.core.objects
        await world.verify()


async def test_pod_made_anew_meanwhile_is_decided_on_its_own() -> None:
    server = a_server()
    first = True

    def recreate(request: Request) -> None:
        nonlocal first
        if is_binding(request) and first:
            first = False
            server.delete("pods", "default", "a")
            server.add_pod("a")

    server.before = recreate
    server.add_pod("a")
    async with LiveWorld(server) as world:
        await world.advance(10)

        assert "default/a" in server.bound()
        await assert_bound_once(world)
        await world.verify()


async def test_rejection_is_written_once_and_settled_by_the_answer() -> None:
    server = a_server(cpu="1")
    server.add_pod("big", cpu="8")
    async with LiveWorld(server) as world:
        await world.advance(30)
        found = condition(server.pod("big"))
        patches = [r for r in server.requests if r.method == "PATCH" and r.path.endswith("/status")]

        assert found["status"] == "False"
        assert "Insufficient cpu" in found["message"]
        assert len(patches) == 1
        assert len(world.core.promises) == 0
        await world.verify()


async def test_nothing_is_written_about_a_pod_after_it_was_bound() -> None:
    server = a_server(1, cpu="1")
    server.add_pod("a", cpu="2")
    async with LiveWorld(server) as world:
        server.gate = asyncio.Event()
        server.put("nodes", "", "n0", status={"allocatable": {"cpu": "8"}})
        await world.advance(15)
        server.gate.set()
        await world.advance(5)

        assert condition(server.pod("a"))["status"] == "True"
        assert server.pod("a")["spec"]["nodeName"] == "n0"


@pytest.mark.parametrize("change", ["cordon", "delete", "taint"])
async def test_binding_that_waits_is_withdrawn_when_its_node_closes(change: str) -> None:
    server = a_server(1, cpu="200")
    async with LiveWorld(server) as world:
        server.gate = asyncio.Event()
        for number in range(100):
            server.add_pod(f"p{number}")
        await world.quiet()
        if change == "cordon":
            server.put("nodes", "", "n0", spec={"unschedulable": True})
        elif change == "taint":
            server.put("nodes", "", "n0", spec={"taints": [{"key": "k", "effect": "NoSchedule"}]})
        else:
            server.delete("nodes", "", "n0")
        await world.quiet()
        server.gate.set()
        await world.advance(3)
        failed = await world.bodies("WriteFailed")

        assert len(server.bound()) == 32
        assert len(failed) == 68
        assert not any(body.sent for body in failed)
        await assert_bound_once(world)
        await world.verify()


async def test_no_more_is_decided_than_the_server_keeps_up_with() -> None:
    server = a_server(3, cpu="500")
    async with LiveWorld(server, unsettled=40) as world:
        server.gate = asyncio.Event()
        for number in range(100):
            server.add_pod(f"p{number}")
        await world.quiet()
        ahead = world.core.promises.binds
        server.gate.set()
        await world.quiet()

        assert ahead == 40
        assert len(server.bound()) == 100


async def test_overload_slows_down_and_loses_nothing() -> None:
    server = a_server(3, cpu="500")
    refused = 10

    def refuse(request: Request) -> Answer | None:
        nonlocal refused
        if is_binding(request) and refused:
            refused -= 1
            return Answer(status=429, body=b"Too many requests, please try again later.\n", retry_after=1.0)
        return None

    server.refuse = refuse
    async with LiveWorld(server) as world:
        for number in range(50):
            server.add_pod(f"p{number}")
        await world.quiet()
        slowed = world.live.writer.channel.concurrency
        await world.advance(30)

        assert slowed < 32
        assert len(server.bound()) == 50
        assert not await world.bodies("WriteFailed")


async def test_writes_that_are_forbidden_are_told_and_stop_the_deciding() -> None:
    server = a_server()
    server.refuse = lambda r: (
        Answer(status=403, body=b'{"kind":"Status","code":403,"message":"no role"}')
        if r.method != "GET"
        else None
    )
    async with LiveWorld(server) as world:
        server.add_pod("a")
        await world.quiet()

        assert any("no role" in trouble for trouble in world.live.troubles())
        assert not world.live.may_decide()
        server.refuse = lambda r: None
        await world.advance(10)
        assert "default/a" in server.bound()


STEPS = [
    "pod",
    "pod",
    "pod",
    "big",
    "cordon",
    "uncordon",
    "delete",
    "cut",
    "hold",
    "let go",
    "lose",
    "late",
    "quiet",
    "wait",
    "kill",
    "kill",
]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 4)), max_size=30))
async def test_whatever_happens_each_pod_is_bound_once(steps: list[tuple[str, int]]) -> None:
    server = a_server()
    world = LiveWorld(server, unsettled=3)
    names = 0
    async with world:
        for step, number in steps:
            if step in ("pod", "big"):
                names += 1
                server.add_pod(f"p{names}", cpu="100m" if step == "pod" else "3")
            elif step in ("cordon", "uncordon"):
                server.put("nodes", "", f"n{number % 3}", spec={"unschedulable": step == "cordon"})
            elif step == "delete":
                if pods := list(server.objects["pods"].values()):
                    server.delete("pods", "default", pods[number % len(pods)]["metadata"]["name"])
            elif step == "cut":
                server.cut(broken=number % 2 == 0)
            elif step == "hold":
                server.hold(("pods", "nodes")[number % 2])
            elif step == "let go":
                server.let_go()
            elif step == "lose":
                left = [number]

                def lose(request: Request, left: list[int] = left) -> bool:
                    left[0] -= 1
                    return left[0] >= 0 and "leases" not in request.path

                server.lose = lose
            elif step == "late":
                server.gate = asyncio.Event()
                await world.quiet()
                server.gate.set()
                server.gate = None
            elif step == "quiet":
                await world.quiet()
            elif step == "wait":
                await world.advance(number)
            else:
                server.let_go()
                await world.restart()
        server.let_go()
        server.lose = lambda r: False
        for number in range(3):
            server.put(
                "nodes",
                "",
                f"n{number}",
                spec={"unschedulable": False},
                status={"allocatable": {"cpu": "400"}},
            )
        await world.advance(400)

        assert len(world.core.promises) == 0
        assert len(server.bound()) == len(server.objects["pods"])
        await assert_bound_once(world)
        assert_same(world)
        await assert_in_order(world)
        await world.verify()


async def test_nothing_is_sent_that_is_not_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    server = a_server()
    async with LiveWorld(server) as world:

        def full() -> None:
            raise LogFull("live", 0)

        server.add_pod("early")
        await world.quiet()
        monkeypatch.setattr(world.store, "check_room", full)
        for number in range(5):
            server.add_pod(f"p{number}")
        await world.advance(20)
        sent = [r for r in server.requests if is_binding(r)]
        monkeypatch.undo()
        await world.advance(20)

        assert len(sent) == 1
        assert len(server.bound()) == 6
        await assert_bound_once(world)
        await world.verify()


async def test_log_that_cannot_be_written_any_more_ends_the_process_and_all_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = a_server()
    world = LiveWorld(server)
    await world.start()

    async def broken(*_: Any) -> None:
        raise LogError("live: the disk is gone")

    monkeypatch.setattr(world.store, "append", broken)
    for number in range(5):
        server.add_pod(f"p{number}")
    with pytest.raises(LogError):
        await world.advance(5)

    assert not [r for r in server.requests if is_binding(r)]
    await world.kill()


async def test_gated_pod_whose_binding_was_sent_all_the_same_is_refused_and_tried_when_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = a_server()
    closed: list[bool] = []

    def close(request: Request) -> None:
        if is_binding(request) and not closed:
            closed.append(True)
            server.hold("pods")
            server.put("pods", "default", "a", spec={"schedulingGates": [{"name": "g"}]})

    server.before = close
    async with LiveWorld(server) as world:
        server.add_pod("a")
        await world.quiet()
        (failed,) = await world.bodies("WriteFailed")
        server.let_go()
        server.put("pods", "default", "a", spec={"schedulingGates": []})
        await world.advance(10)

        assert (failed.code, failed.final, failed.sent) == (409, True, True)
        assert "default/a" in server.bound()
        await assert_bound_once(world)


async def test_nothing_is_decided_before_all_that_was_listed_is_consumed() -> None:
    server = a_server(600, cpu="1")
    for number in range(5):
        server.add_pod(f"p{number}")
    tiny = Limits(slice_steps=1)
    async with LiveWorld(server, limits=tiny) as world:
        assert len(server.bound()) == 5
        assert not await world.bodies("Unschedulable")
        assert all(body.feasible == 600 for body in await world.bodies("Scheduled"))


def test_what_is_not_durable_is_not_sent_beside_what_is() -> None:
    pod = b.pod("a").uid("a").build()
    told = PromisedEffect(name="status", seq=5, at=0)
    nominated = PromisedEffect(name="nominate", seq=9, at=0, node="n1")
    promise = Promise(key="Pod/default/a", uid="a", base=pod, effects={"status": told, "nominate": nominated})
    nothing: Any = SimpleNamespace(promises=Promises())
    durable = 5
    writer = Writer(
        nothing,
        nothing,
        lambda: durable,
        nothing,
        nothing,
        nothing,
        Leadership(),
        codec=nothing,
        views={},
        kinds={},
        events=nothing,
    )

    assert writer._next(promise) == [told]
    durable = 9
    assert writer._next(promise) == [told, nominated]


async def test_nothing_is_kept_of_pods_that_are_gone_before_their_binding_is_sent() -> None:
    server = MemoryServer()
    server.add_node("n0")
    async with LiveWorld(server, writer=WriterSettings(concurrency=1)) as world:
        server.gate = asyncio.Event()
        for number in range(6):
            server.add_pod(f"p{number}")
        await world.quiet()
        promised = world.core.promises.binds
        for number in range(6):
            server.delete("pods", "default", f"p{number}")
        await world.quiet()
        server.gate.set()
        await world.advance(60)

        assert promised == 6
        assert len(world.core.promises) == 0
        assert world.live.writer is not None
        assert world.live.writer.grounds._of_pod == {}
        assert not world.core.cluster.notes.wanted, "changes are noted for nobody"
        await world.verify()


def test_who_does_not_ask_what_is_promised_collects_nothing() -> None:
    asked, table = Promises(), Promises()
    pods = [b.pod(f"p{number}").uid(f"u{number}").build() for number in range(3)]
    for promises in (asked, table):
        promises.attach(ClusterAttached(cluster="c", mode="schedule", log_id="l"))
    first = asked.take_fresh()
    for promises in (asked, table):
        for number, one in enumerate(pods):
            effect = PromisedEffect(name="bind", seq=number + 1, at=1, node="n0")
            promises._promise(f"Pod/default/p{number}", effect, lambda _, one=one: one)  # type: ignore[misc]

    assert first == []
    assert asked.take_fresh() == ["u0", "u1", "u2"]
    assert asked.take_fresh() == []
    assert table._fresh is None
    assert table.take_fresh() == ["u0", "u1", "u2"]

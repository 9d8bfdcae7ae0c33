"""The shell around the core: what it promises while records, decisions, time and failures come in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

import pytest
from msgspec.structs import replace

from tests.patience import PATIENCE
from tests.worlds.objects import node as a_node
from tests.worlds.objects import pod as a_pod
from tidelog.api.errors import LogError, LogFull, PluginError
from tidelog.api.objects import Node, Pod
from tidelog.api.resources import occupied_requests, parse_requests
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import resolve_configuration
from tidelog.daemon.intake.messages import Delete
from tidelog.daemon.process.runtime import Limits, Stopped, Watcher
from tidelog.eventlog.memory import MemoryStore
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import AttemptAborted, Body, Record, Scheduled, decode_body
from tidelog.eventlog.store import BETWEEN, Head
from tidelog.eventlog.verify import verify as verify_log
from tidelog.framework.effort import Paused
from tidelog.framework.interface import Code, CycleState, Handle, PermitResult, Plugin, Status
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.states import NAMES, beginnings, loaded, newest_state
from tidelog.replay.verify import recover
from tidelog.scheduler.core import Core
from tidelog.scheduler.decision import Decision
from tidelog.scheduler.recovery import Recovery
from tidelog.scheduler.state import SNAPSHOT
from tidelog.testing.builders import pod
from tidelog.testing.pytest_plugin import MakeSandbox
from tidelog.testing.sandbox import Sandbox

ZONE = "topology.kubernetes.io/zone"


def of_kind(records: Sequence[Record], kind: str) -> list[Record]:
    return [record for record in records if record.kind == kind]


# --- the commit check ---------------------------------------------------------------------------------------------------


async def delete_node(cluster: Sandbox) -> object:
    return await cluster.delete("Node//n1", settle=False)


async def cordon_node(cluster: Sandbox) -> object:
    cordoned = cluster.node("n1")
    return await cluster.apply(
        replace(cordoned, spec=replace(cordoned.spec, unschedulable=True)), settle=False
    )


async def fill_node(cluster: Sandbox) -> object:
    return await cluster.apply(pod("guest").request(cpu="3500m").on("n1").build(), settle=False)


async def delete_pod(cluster: Sandbox) -> object:
    return await cluster.runtime.facts.submit(Delete(keys=["Pod/default/web"], ignore_not_found=True))


async def bind_pod(cluster: Sandbox) -> object:
    return await cluster.apply(pod("web").request(cpu="1").on("n2").build(), settle=False)


def check_bindings(records: Sequence[Record]) -> None:
    """No binding was wrong when it was written: its node was there, open, and had room, and its pod was pending."""
    table = ObjectTable()
    for record in records:
        if record.kind == "Scheduled":
            body = decode_body(record)
            assert isinstance(body, Scheduled)
            bound, target = table.get(record.key), table.get(f"Node//{body.node}")
            assert isinstance(bound, Pod), record
            assert not bound.spec.node_name
            assert isinstance(target, Node), record
            assert not target.spec.unschedulable
            others = [e.object for e in table.of_kind("Pod") if isinstance(e.object, Pod)]
            there = [p for p in others if p.spec.node_name == body.node]
            used = sum(occupied_requests(p).get("cpu", 0) for p in (*there, bound))
            assert used <= parse_requests(target.status.allocatable)["cpu"]
        table.apply(record)


@pytest.mark.parametrize("disturb", [delete_node, cordon_node, fill_node, delete_pod, bind_pod])
@pytest.mark.parametrize("waiting", [1, 4])
async def test_no_interleaving_leads_to_a_binding_that_was_wrong_when_it_was_written(
    disturb: Callable[[Sandbox], Awaitable[object]], waiting: int
) -> None:
    aborted = 0
    for turns in range(25):
        async with Sandbox() as cluster:
            await cluster.apply(a_node("n1"))
            pods = [a_pod("web"), *(a_pod(f"small{i}", "100m") for i in range(waiting - 1))]
            putting = asyncio.create_task(cluster.apply(pods, settle=False))
            for _ in range(turns):
                await asyncio.sleep(0)
            disturbing = asyncio.create_task(disturb(cluster))
            # Whoever binds or changes a pod that was bound meanwhile is refused, which is fine.
            await asyncio.gather(putting, disturbing, return_exceptions=True)

            records = [record async for record in cluster.records()]
            await cluster.advance(seconds=5)
            await cluster.verify()
        check_bindings(records)
        aborted += len(of_kind(records, "AttemptAborted"))
    assert aborted > 0, "no interleaving came between a decision and its commit"


async def test_aborted_attempt_names_the_record_that_it_lost_to() -> None:
    for turns in range(25):
        async with Sandbox() as cluster:
            await cluster.apply([a_node("n1"), a_node("n2", cpu="1")])
            putting = asyncio.create_task(cluster.apply(a_pod("web", "2"), settle=False))
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.gather(putting, delete_node(cluster))
            await cluster.settled()
            records = [record async for record in cluster.records()]
        for record in of_kind(records, "AttemptAborted"):
            body = decode_body(record)
            assert isinstance(body, AttemptAborted)
            assert body.reason == "node n1 was deleted"
            assert records[body.conflict - 1].key == "Node//n1"
            return
    raise AssertionError("no interleaving aborted the attempt")


# --- in flight ----------------------------------------------------------------------------------------------------------


async def test_node_that_arrives_while_a_failing_attempt_is_committed_wakes_the_pod_at_once() -> None:
    in_between = 0
    for turns in range(25):
        async with Sandbox() as cluster:
            await cluster.apply(a_node("n1", cpu="1"))
            putting = asyncio.create_task(cluster.apply(a_pod("big", "2"), settle=False))
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.gather(putting, cluster.apply(a_node("n2"), settle=False))
            await cluster.advance(seconds=2)

            assert cluster.placements == {"default/big": "n2"}
            records = [record async for record in cluster.records()]
            await cluster.verify()
        (arrived,) = [r.seq for r in records if r.key == "Node//n2"]
        for record in of_kind(records, "Unschedulable"):
            body = decode_body(record)
            in_between += body.observed < arrived < record.seq  # type: ignore[union-attr]
    assert in_between > 0, "in no interleaving did the node come while the attempt was in flight"


async def test_decisions_are_made_while_a_commit_is_under_way(tidelog_sandbox: MakeSandbox) -> None:
    store = SlowStore()
    cluster = await tidelog_sandbox(store=store, limits=Limits(slice_steps=1))
    await cluster.apply(a_node("n1", cpu="64"))

    store.hold()
    putting = asyncio.create_task(cluster.apply([a_pod(f"p{i}") for i in range(6)], settle=False))
    await turns()
    store.let_one_through()
    await putting
    await turns()
    decided, durable = (
        cluster.core.attempts,
        of_kind([record async for record in cluster.records()], "Scheduled"),
    )
    store.groups.clear()
    store.release()
    await cluster.settled()

    assert decided == 6
    assert durable == []
    # The first commit began with the first decision, and the others were made meanwhile.
    assert store.groups == [1, 5]


async def test_nothing_more_is_decided_when_too_much_is_uncommitted(tidelog_sandbox: MakeSandbox) -> None:
    store = SlowStore()
    cluster = await tidelog_sandbox(store=store, limits=Limits(uncommitted=3))
    await cluster.apply(a_node("n1", cpu="64"))

    store.hold()
    putting = asyncio.create_task(cluster.apply([a_pod(f"p{i}") for i in range(20)], settle=False))
    await turns()
    store.let_one_through()
    await turns()
    await putting
    most = cluster.runtime.uncommitted
    store.release()
    await cluster.settled()

    assert most == 3
    assert len(cluster.placements) == 20


# --- time ---------------------------------------------------------------------------------------------------------------


async def test_no_tick_is_recorded_while_nobody_waits_for_time(tidelog_cluster: Sandbox) -> None:
    await tidelog_cluster.apply([a_node("n1"), a_pod("web")])

    await tidelog_cluster.advance(hours=2)

    assert of_kind([record async for record in tidelog_cluster.records()], "Tick") == []


async def test_clock_that_is_set_back_does_not_turn_time_back(tidelog_cluster: Sandbox) -> None:
    await tidelog_cluster.apply(a_node("n1", cpu="1"))
    tidelog_cluster.clock._now -= 3600 * NANOS

    await tidelog_cluster.apply(a_pod("web"))

    times = [record.at for record in [record async for record in tidelog_cluster.records()]]
    assert times == sorted(times)
    assert tidelog_cluster.placements == {"default/web": "n1"}


# --- waiting in Permit --------------------------------------------------------------------------------------------------


class AskForTenSeconds(Plugin):
    """Keeps every pod waiting for ten seconds, and then lets it be rejected."""

    name = "AskForTenSeconds"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        return PermitResult(Status(Code.WAIT), 10)


ASKING = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"plugins": {"permit": {"enabled": [{"name": "AskForTenSeconds"}]}}}],
}


@pytest.mark.parametrize("restart", [False, True])
async def test_wait_in_permit_survives_a_restart(tidelog_sandbox: MakeSandbox, restart: bool) -> None:
    cluster = await tidelog_sandbox(ASKING, registry=Registry((*IN_TREE, AskForTenSeconds)))
    await cluster.apply([a_node("n1", cpu="1"), a_pod("first"), a_pod("second")])
    await cluster.advance(seconds=4)

    if restart:
        await cluster.restart()
        await cluster.settled()

    records = [record async for record in cluster.records()]
    assert [r.key for r in of_kind(records, "Waiting")] == ["Pod/default/first"]
    assert [r.key for r in of_kind(records, "Unschedulable")] == ["Pod/default/second"]
    await cluster.advance(seconds=5)
    assert len(of_kind([record async for record in cluster.records()], "Unschedulable")) == 1
    await cluster.advance(seconds=1)
    over = of_kind([record async for record in cluster.records()], "Unschedulable")[1]
    assert over.key == "Pod/default/first"
    assert over.at - records[0].at == 10 * NANOS


# --- snapshots ----------------------------------------------------------------------------------------------------------


async def test_restart_from_a_snapshot_gives_the_same_state(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox(limits=Limits(snapshot_every=10))
    await cluster.apply([a_node(f"n{i}", cpu="2") for i in range(4)])
    for i in range(30):
        await cluster.apply(a_pod(f"p{i}"))
    digest = cluster.core.digest()
    kept = [s.seq for s in await cluster.log.snapshots() if s.name == SNAPSHOT]
    snapshot = await cluster.log.snapshot(SNAPSHOT)

    assert len(kept) > 1
    assert snapshot is not None
    state = await loaded(cluster.log, cluster.registry, snapshot)
    assert state is not None
    core = state.core
    assert core.seq == kept[-1]
    recovery = Recovery(core)
    recovery.add([record async for record in cluster.records(core.seq + 1)])
    list(recovery.finish())
    assert digest == recovery.core.digest()
    await cluster.restart()
    await cluster.settled()
    assert len(cluster.placements) == 8


async def test_restart_goes_on_from_the_whole_state_that_the_log_has(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox(limits=Limits(snapshot_every=50))
    await cluster.apply(a_node("n1", cpu="640"))
    await cluster.runtime.keep_snapshot()

    for _ in range(6):
        await cluster.restart()
        for i in range(30):
            await cluster.apply(a_pod(f"p{cluster.core.seq}-{i}"))

    stored = await cluster.log.snapshots()
    wholes = [s.seq for s in stored if s.name == SNAPSHOT]
    assert wholes == await beginnings(cluster.log, cluster.core.seq)
    assert len(wholes) >= 3
    assert min(later - earlier for earlier, later in pairwise(wholes)) >= 50
    assert len([s for s in stored if s.name in NAMES]) > len(wholes)


async def test_states_are_kept_of_a_log_whose_scheduler_is_restarted_often(
    tidelog_sandbox: MakeSandbox,
) -> None:
    """No process lives through as many records as a state takes: without one every start would begin with the first record, and no record could be dropped."""
    cluster = await tidelog_sandbox(limits=Limits(snapshot_every=50))
    await cluster.apply(a_node("n1", cpu="640"))

    for number in range(20):
        await cluster.restart()
        await cluster.apply([a_pod(f"p{number}-{i}") for i in range(10)])

    kept = sorted({s.seq for s in await cluster.log.snapshots() if s.name in NAMES})
    gaps = [later - earlier for earlier, later in pairwise([0, *kept, cluster.core.seq])]
    assert min(gaps[:-1]) >= 50
    assert max(gaps) <= 100
    assert len(await beginnings(cluster.log, cluster.core.seq)) >= 3


async def test_every_state_is_loaded_from_what_was_kept(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox(limits=Limits(snapshot_every=10))
    await cluster.apply([a_node(f"n{i}", cpu="2") for i in range(4)])
    for i in range(30):
        await cluster.apply(a_pod(f"p{i}"))
        if i % 3 == 0:
            await cluster.delete(f"Pod/default/p{i}")
    records = [record async for record in cluster.records()]
    stored = await cluster.log.snapshots()
    kept = [s.seq for s in stored if s.name in NAMES]

    assert sorted({s.name for s in stored}) == ["objects", SNAPSHOT, SNAPSHOT + BETWEEN]
    assert len(kept) == 6
    for seq in kept:
        state = await newest_state(cluster.log, cluster.registry, seq)
        assert state is not None
        core = state.core
        assert (core.seq, core.digest()) == (seq, recover(records[:seq], cluster.registry).digest())
    assert (await verify_log(cluster.log, rebuild=True)).problems == ()


async def test_snapshot_waits_until_nothing_is_in_flight(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox(limits=Limits(snapshot_every=5, uncommitted=4))
    await cluster.apply(a_node("n1", cpu="64"))

    await cluster.apply([a_pod(f"p{i}") for i in range(50)])

    assert len(cluster.placements) == 50
    assert {s.name for s in await cluster.log.snapshots()} == {
        "scheduler",
        "objects",
        "scheduler-changes",
    }


async def test_table_for_admission_keeps_up_while_nobody_asks(tidelog_sandbox: MakeSandbox) -> None:
    """Who asks after a burst, and a state that is to be kept, need not wait until it has caught up."""
    cluster = await tidelog_sandbox(limits=Limits(snapshot_every=0))

    await cluster.apply([a_node("n1", cpu="64"), *(a_pod(f"p{i}") for i in range(50))])

    assert len(cluster.placements) == 50
    assert cluster.runtime.facts.objects.seq == cluster.log.head.seq


async def test_table_keeps_up_that_is_behind_what_the_core_has_consumed_at_the_start() -> None:
    async with Sandbox() as cluster:
        assert cluster.runtime.facts.objects.seq == cluster.log.head.seq == cluster.core.seq


async def test_no_outcome_of_ours_is_decoded_and_each_fact_once(
    tidelog_sandbox: MakeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await tidelog_sandbox(limits=Limits(snapshot_every=0))
    decoded: list[str] = []

    def decode(record: Record) -> Body:
        decoded.append(record.kind)
        return decode_body(record)

    monkeypatch.setattr("tidelog.eventlog.log.decode_body", decode)

    await cluster.apply([a_node("n1", cpu="64"), *(a_pod(f"p{i}") for i in range(50)), a_pod("large", "99")])

    assert len(cluster.placements) == 50
    assert decoded == ["ObjectPut"] * 52


async def test_settled_when_the_table_for_admission_is(
    tidelog_sandbox: MakeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await tidelog_sandbox()
    assert cluster.runtime.is_settled

    with monkeypatch.context() as behind:
        behind.setattr(cluster.runtime.facts.objects, "seq", cluster.log.head.seq - 1)

        assert not cluster.runtime.is_settled


async def test_state_of_many_that_wait_is_captured_in_steps_of_one_moment(
    tidelog_sandbox: MakeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await tidelog_sandbox(limits=Limits(snapshot_every=0))
    await cluster.apply([a_pod(f"p{i}") for i in range(50)])
    monkeypatch.setattr("tidelog.queue.state.ROWS_PER_STEP", 2)

    keeping = asyncio.create_task(cluster.runtime.keep_snapshot())
    asked = asyncio.create_task(cluster.apply(a_node("n1", cpu="64")))
    behind = 0
    while not keeping.done():
        await asyncio.sleep(0)
        behind = max(behind, cluster.runtime.behind)
    await asked
    await cluster.advance(seconds=30)

    seq = keeping.result()
    records = [record async for record in cluster.records()]
    found = await cluster.log.snapshot(SNAPSHOT, seq)
    assert found is not None
    state = await loaded(cluster.log, cluster.registry, found)
    assert state is not None
    core = state.core
    assert behind == 1  # The node was in the log already, and the core stood still.
    assert (core.seq, core.digest()) == (seq, recover(records[:seq], cluster.registry).digest())
    assert len(cluster.placements) == 50


async def test_objects_are_kept_as_they_were_though_others_come_change_and_go_meanwhile(
    tidelog_sandbox: MakeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await tidelog_sandbox(limits=Limits(snapshot_every=0))
    await cluster.apply([a_node("n1", cpu="64"), *(a_pod(f"p{i}") for i in range(50))])
    monkeypatch.setattr("tidelog.eventlog.table_encoding.OBJECTS_PER_STEP", 2)
    table = cluster.runtime.facts.objects

    keeping = asyncio.create_task(cluster.runtime.keep_snapshot())
    while not table._marks:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await cluster.delete([f"Pod/default/p{i}" for i in range(40, 50)], settle=False)
    await cluster.apply([a_pod("p45"), *(a_pod(f"new{i}") for i in range(10))], settle=False)
    changed_meanwhile = table._marks
    seq = await keeping
    await cluster.settled()

    assert changed_meanwhile
    assert not table._marks
    records = [record async for record in cluster.records()]
    state = await newest_state(cluster.log, cluster.registry, seq)
    assert state is not None
    assert state.core.seq == state.whole == seq < table.seq
    assert state.core.digest() == recover(records[:seq], cluster.registry).digest()
    assert (await verify_log(cluster.log, rebuild=True)).problems == ()


# --- when the log cannot be written ---------------------------------------------------------------------------------------


class SlowStore(MemoryStore):
    """A store whose commits wait until they are let through."""

    def __init__(self) -> None:
        super().__init__("slow")
        self.groups: list[int] = []
        self._gate: asyncio.Semaphore | None = None

    def hold(self) -> None:
        self._gate = asyncio.Semaphore(0)

    def let_one_through(self) -> None:
        assert self._gate is not None
        self._gate.release()

    def release(self) -> None:
        assert self._gate is not None
        gate, self._gate = self._gate, None
        gate.release()

    async def append(self, records: Sequence[Record], head: Head) -> None:
        if self._gate is not None:
            await self._gate.acquire()
        self.groups.append(len(records))
        await super().append(records, head)


class FailingStore(MemoryStore):
    """A store that fails, or is full, from a moment on."""

    def __init__(self) -> None:
        super().__init__("failing")
        self.broken = False
        self.is_full = False

    def check_room(self) -> None:
        if self.is_full:
            raise LogFull(self.name, 1)

    async def append(self, records: Sequence[Record], head: Head) -> None:
        if self.broken:
            raise LogError(f"{self.name}: the disk is gone")
        await super().append(records, head)


async def turns(count: int = 30) -> None:
    """Let all tasks work."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Let all tasks work until it holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never held")


async def test_nothing_is_decided_any_more_when_the_log_cannot_be_written() -> None:
    store = FailingStore()
    cluster = Sandbox(store=store)
    await cluster.__aenter__()
    await cluster.apply([a_node("n1", cpu="64"), a_pod("p0")])
    store.broken = True

    with pytest.raises(LogError, match="the disk is gone"):
        await cluster.apply([a_pod(f"p{i}") for i in range(1, 50)])
    with pytest.raises(LogError, match="the disk is gone"):
        await cluster.runtime.wait()
    attempts = cluster.core.attempts
    await turns()

    assert attempts == cluster.core.attempts
    assert cluster.runtime.log.failure is not None
    with pytest.raises(LogError, match="the disk is gone"):
        await cluster.__aexit__(None, None, None)


async def test_commit_that_fails_ends_the_runtime() -> None:
    store = SlowStore()
    cluster = Sandbox(store=store)
    await cluster.__aenter__()
    await cluster.apply(a_node("n1"))

    store.hold()
    putting = asyncio.create_task(cluster.apply(a_pod("web"), settle=False))
    await turns()
    store.let_one_through()
    await putting
    await turns()
    failing = cluster.log._sequencer
    failing.cancel()

    with pytest.raises(LogError):
        await cluster.runtime.wait()
    with pytest.raises(LogError):
        await cluster.settled()
    with pytest.raises((LogError, asyncio.CancelledError)):
        await cluster.__aexit__(None, None, None)


async def test_full_disk_holds_decisions_back_until_there_is_room(tidelog_sandbox: MakeSandbox) -> None:
    store = FailingStore()
    cluster = await tidelog_sandbox(store=store)
    await cluster.apply(a_node("n1", cpu="64"))
    putting = asyncio.create_task(cluster.apply([a_pod("p0"), a_pod("p1")], settle=False))
    await until(lambda: cluster.log.head.seq == 5)
    store.is_full = True
    await putting
    await turns()
    full = cluster.runtime.full

    with pytest.raises(LogFull):
        await cluster.apply(a_pod("p2"), settle=False)
    store.is_full = False
    await cluster.advance(seconds=2)

    assert full is not None
    assert cluster.runtime.full is None
    assert cluster.placements == {"default/p0": "n1", "default/p1": "n1"}


async def test_bug_in_the_core_ends_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Sandbox()
    await cluster.__aenter__()
    await cluster.apply(a_node("n1"))

    def broken(self: Core, now: int, most: int | None = None) -> Decision | None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Core, "attempt", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        await cluster.apply(a_pod("web"))
    with pytest.raises(RuntimeError, match="a bug"):
        await cluster.__aexit__(None, None, None)


async def test_stopped_runtime_says_so() -> None:
    async with Sandbox() as cluster:
        await cluster.apply(a_node("n1"))
        await cluster.runtime.stop()

        with pytest.raises(Stopped):
            await cluster.runtime.settled()


async def test_runtime_that_has_not_begun_can_be_stopped() -> None:
    async with Sandbox() as cluster:
        await cluster.runtime.stop()
        await cluster.log.close()
        await cluster._start()

        async with asyncio.timeout(PATIENCE):
            await cluster.runtime.stop()

        with pytest.raises(Stopped):
            await cluster.runtime.settled()


async def test_stop_finishes_what_is_in_flight() -> None:
    async with Sandbox() as cluster:
        await cluster.apply(a_node("n1", cpu="64"))
        await cluster.apply([a_pod(f"p{i}") for i in range(20)], settle=False)
        await until(lambda: cluster.core.attempts > 0)

        await cluster.runtime.stop()

        records = [record async for record in cluster.records()]
        outcomes = len(of_kind(records, "Scheduled"))
        assert outcomes == cluster.core.attempts
        assert cluster.runtime.uncommitted == 0


# --- watching -----------------------------------------------------------------------------------------------------------


class Counting(Watcher):
    """Counts what it is told."""

    def __init__(self) -> None:
        self.attempts = self.commits = self.records = 0

    def attempted(self, core: Core, decision: Decision, nanos: int) -> None:
        self.attempts += 1

    def committed(self, decisions: Sequence[Decision]) -> None:
        self.commits += len(decisions)

    def consumed(self, record: Record, body: object) -> None:
        self.records += 1


async def test_watcher_is_told_of_everything_once(tidelog_sandbox: MakeSandbox) -> None:
    watcher = Counting()
    cluster = await tidelog_sandbox(watcher=watcher)

    await cluster.apply([a_node("n1"), *(a_pod(f"p{i}") for i in range(6))])

    assert watcher.attempts == cluster.core.attempts == 6
    assert watcher.commits == 6
    assert watcher.records == cluster.core.seq


async def test_event_loop_gets_its_turn_between_slices(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox(limits=Limits(slice_steps=8))
    await cluster.apply(a_node("n1", cpu="640"))
    attempts: list[int] = []

    putting = asyncio.create_task(cluster.apply([a_pod(f"p{i}") for i in range(200)]))
    while not putting.done():
        attempts.append(cluster.core.attempts)
        await asyncio.sleep(0)

    steps = [b - a for a, b in pairwise(attempts)]
    assert max(steps) <= 8
    assert sum(steps) == 200


class Breaks(Plugin):
    """A plugin that cannot be made."""

    name = "Breaks"

    def __init__(self, args: object, handle: Handle) -> None:
        raise RuntimeError("no licence")

    def post_bind(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Never reached."""


async def test_scheduler_and_admission_have_one_copy_of_each_pod() -> None:
    async with Sandbox() as cluster:
        await cluster.apply([a_node("n1"), a_pod("web", "2"), a_pod("large", "40")])
        await cluster.settled()
        await cluster.runtime.facts.catch_up()

        mine, theirs = cluster.core.objects, cluster.runtime.facts.objects

        assert [key for key, found in mine.items() if theirs.get(key) is not found] == []
        placed = mine["Pod/default/web"]
        assert isinstance(placed, Pod)
        assert placed.spec.node_name == "n1"


async def test_configuration_with_a_plugin_that_cannot_be_made_never_enters_the_log() -> None:
    registry = Registry((*IN_TREE, Breaks))
    broken = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"postBind": {"enabled": [{"name": "Breaks"}]}}}],
    }
    async with Sandbox(registry=registry) as cluster:
        before = cluster.log.head.seq

        with pytest.raises(PluginError, match="no licence"):
            await cluster.runtime.configure(resolve_configuration(broken, registry).configuration)

        assert cluster.log.head.seq == before


async def test_snapshot_waits_for_the_disk_without_going_round_in_circles() -> None:
    may_write = asyncio.Event()
    may_write.set()

    class SlowStore(MemoryStore):
        async def append(self, records: Sequence[Record], head: Head) -> None:
            await may_write.wait()
            await super().append(records, head)

    async with Sandbox(store=SlowStore()) as cluster:
        await cluster.apply(a_node("n1"))
        await cluster.apply(a_pod("web"), settle=False)
        may_write.clear()
        while not cluster.core.in_flight:  # noqa: ASYNC110
            await asyncio.sleep(0)
        rung = 0
        ring = cluster.runtime.changed.ring

        def counting() -> None:
            nonlocal rung
            rung += 1
            ring()

        cluster.runtime.changed.ring = counting  # type: ignore[method-assign]
        keeping = asyncio.create_task(cluster.runtime.keep_snapshot())
        for _ in range(100):
            await asyncio.sleep(0)
        rung_while_waiting = rung
        may_write.set()
        await keeping

    assert rung_while_waiting < 5


async def test_full_disk_keeps_nobody_busy_whose_backoff_is_over() -> None:
    is_full = False

    class SmallStore(MemoryStore):
        def check_room(self) -> None:
            if is_full:
                raise LogFull(self.name, 0)

    async with Sandbox(store=SmallStore(), limits=Limits(uncommitted=1)) as cluster:
        await cluster.apply(a_pod("one"))
        await cluster.advance(seconds=1.5)
        await cluster.apply(a_pod("two"))
        await cluster.apply(a_node("n1"))
        is_full = True
        await cluster.advance(seconds=2.7)
        woken_at = cluster.clock.next_at()
        now = cluster.now
        is_full = False
        await cluster.advance(seconds=2)
        placed = cluster.placements

    assert woken_at is not None
    assert woken_at > now
    assert len(placed) == 2


# --- turns of an attempt ------------------------------------------------------------------------------------------------


async def test_turns_get_longer_while_an_attempt_goes_on_and_come_to_an_end(
    tidelog_sandbox: MakeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await tidelog_sandbox(limits=Limits(attempt_steps=10, attempt_growth=3, attempt_pauses=50))
    await cluster.apply(a_node("n1", cpu="64"))
    attempt, given = cluster.core.attempt, list[int | None]()

    def never_done(now: int, most: int | None = None) -> Decision | None:
        given.append(most)
        if most is not None:
            raise Paused
        return attempt(now, most)

    monkeypatch.setattr(cluster.core, "attempt", never_done)
    await cluster.apply(a_pod("web"))

    assert given[:51] == [*[10] * 16, *[20] * 16, *[30] * 18, None]
    assert cluster.pod("web").spec.node_name == "n1"

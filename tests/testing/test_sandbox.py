"""The sandbox: the real runtime on virtual time."""

from __future__ import annotations

import pytest

from tests.worlds.objects import node as a_node
from tests.worlds.objects import pod as a_pod
from tidelog.api.times import NANOS
from tidelog.daemon.actors.node_agent import NodeAgent
from tidelog.daemon.intake.messages import Refused
from tidelog.eventlog.records import Scheduled, decode_body
from tidelog.testing.builders import PodBuilder, pdb, pod, priority_class
from tidelog.testing.pytest_plugin import MakeSandbox
from tidelog.testing.sandbox import Sandbox
from tidelog.testing.virtual_time import START

ZONE = "topology.kubernetes.io/zone"


def a_pod_of(name: str, priority: str) -> PodBuilder:
    return pod(name).request(cpu="1").priority_class(priority)


HEADER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
WITHOUT_RESOURCES = {
    **HEADER,
    "profiles": [{"plugins": {"filter": {"disabled": [{"name": "NodeResourcesFit"}]}}}],
}
GUARDED = {**HEADER, "tidelog": {"featureGates": {"DisruptionPolicyInPriorityClass": True}}}


async def test_pod_is_placed_at_once(tidelog_cluster: Sandbox) -> None:
    await tidelog_cluster.apply([a_node("n1"), a_pod("web")])

    assert tidelog_cluster.placements == {"default/web": "n1"}
    assert tidelog_cluster.pod("web").spec.node_name == "n1"
    assert [n.metadata.name for n in tidelog_cluster.nodes()] == ["n1"]


async def test_time_stands_still_until_it_is_moved(tidelog_cluster: Sandbox) -> None:
    await tidelog_cluster.apply(a_node("n1"))

    assert tidelog_cluster.now == START
    assert {record.at for record in [record async for record in tidelog_cluster.records()]} == {START}


async def test_what_is_due_happens_at_its_time(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox(actors=[NodeAgent()])

    await cluster.apply([a_node("n1"), a_pod("web")])
    await cluster.advance(seconds=10)

    (record,) = [r for r in [record async for record in cluster.records()] if r.author == "node-agent"]
    assert record.at - START == 1 * NANOS
    assert cluster.now - START == 10 * NANOS
    assert cluster.pod("web").status.phase == "Running"


async def test_forgotten_pod_is_tried_again_after_five_minutes_by_a_tick(tidelog_cluster: Sandbox) -> None:
    await tidelog_cluster.apply([a_node("n1", cpu="1"), a_pod("big", cpu="2")])

    await tidelog_cluster.advance(minutes=6)

    records = [record async for record in tidelog_cluster.records()]
    ticks = [(r.at - START) // NANOS for r in records if r.kind == "Tick"]
    assert ticks == [300]
    assert [r.kind for r in records if r.kind == "Unschedulable"] == ["Unschedulable"] * 2


async def test_hours_in_which_nothing_waits_leave_no_records(tidelog_cluster: Sandbox) -> None:
    await tidelog_cluster.apply([a_node("n1"), a_pod("web")])
    head = tidelog_cluster.log.head.seq

    await tidelog_cluster.advance(hours=100)

    assert tidelog_cluster.log.head.seq == head


async def test_same_test_writes_the_same_log(tidelog_sandbox: MakeSandbox) -> None:
    logs = []
    for _ in range(2):
        cluster = await tidelog_sandbox(actors=[NodeAgent()])
        await cluster.apply([a_node(f"n{i}", zone="abc"[i % 3]) for i in range(5)])
        await cluster.apply([a_pod(f"p{i}") for i in range(40)])
        await cluster.advance(seconds=90)
        await cluster.delete(["Pod/default/p1", "Node//n2"])
        await cluster.advance(minutes=10)
        logs.append([record async for record in cluster.records()])

    assert logs[0] == logs[1]


async def test_several_decisions_are_in_flight_at_once(tidelog_cluster: Sandbox) -> None:
    await tidelog_cluster.apply([a_node("n1", cpu="32"), *(a_pod(f"p{i}") for i in range(30))])

    bodies = [decode_body(r) for r in [record async for record in tidelog_cluster.records()]]
    observed = [body.observed for body in bodies if isinstance(body, Scheduled)]
    assert len(observed) == 30
    assert len(set(observed)) < 5


async def test_refused_objects_change_nothing(tidelog_cluster: Sandbox) -> None:
    head = tidelog_cluster.log.head.seq

    with pytest.raises(Refused, match="name"):
        await tidelog_cluster.apply([a_node("n1"), pod("Not A Name").build()])

    assert tidelog_cluster.log.head.seq == head


async def test_dry_run_changes_nothing(tidelog_cluster: Sandbox) -> None:
    head = tidelog_cluster.log.head.seq

    answer = await tidelog_cluster.apply(a_node("n1"), dry_run=True)

    assert [result.action for result in answer.results] == ["created"]
    assert tidelog_cluster.log.head.seq == head


async def test_restart_goes_on_where_the_log_ends(tidelog_cluster: Sandbox) -> None:
    await tidelog_cluster.apply([a_node("n1", cpu="1"), a_pod("small"), a_pod("big", cpu="2")])
    placements = tidelog_cluster.placements

    await tidelog_cluster.restart()
    await tidelog_cluster.apply(a_node("n2"))
    await tidelog_cluster.advance(seconds=5)

    assert tidelog_cluster.core.epoch == 2
    assert tidelog_cluster.placements == {**placements, "default/big": "n2"}


async def test_restart_with_the_same_configuration_wakes_nobody(tidelog_cluster: Sandbox) -> None:
    await tidelog_cluster.apply([a_node("n1", cpu="1"), a_pod("big", cpu="2")])
    attempts = tidelog_cluster.core.attempts

    await tidelog_cluster.restart()
    await tidelog_cluster.settled()

    assert attempts == tidelog_cluster.core.attempts


async def test_restart_keeps_the_configuration_that_is_in_the_log(tidelog_cluster: Sandbox) -> None:
    await tidelog_cluster.configure(WITHOUT_RESOURCES)
    configured = tidelog_cluster.core.configuration

    await tidelog_cluster.restart()
    await tidelog_cluster.apply([a_node("n1", cpu="1"), a_pod("big", cpu="2")])

    assert tidelog_cluster.core.configuration == configured
    assert tidelog_cluster.placements == {"default/big": "n1"}
    assert [r.kind for r in [record async for record in tidelog_cluster.records()]].count(
        "ConfigurationLoaded"
    ) == 2


async def test_another_configuration_is_in_the_log_and_wakes_the_waiting(tidelog_cluster: Sandbox) -> None:
    await tidelog_cluster.apply([a_node("n1", cpu="1"), a_pod("big", cpu="2")])
    attempts = tidelog_cluster.core.attempts

    await tidelog_cluster.configure(WITHOUT_RESOURCES)
    await tidelog_cluster.advance(seconds=5)

    assert attempts < tidelog_cluster.core.attempts
    assert [r.kind for r in [record async for record in tidelog_cluster.records()]].count(
        "ConfigurationLoaded"
    ) == 2


@pytest.mark.unreplayed("the test answers the evictions")
async def test_evictions_are_refused_and_granted_at_will() -> None:
    async with Sandbox(GUARDED) as cluster:
        await cluster.apply([priority_class("web", 0, guarded_below=1000), pdb("web", "app=web", allowed=1)])
        await cluster.apply(priority_class("high", 500))
        web = a_pod_of("web-1", "web").label(app="web")
        await cluster.apply([a_node("n1", cpu="1"), web.on("n1").phase("Running").condition("Ready").build()])

        cluster.refuse_evictions("web-1")
        await cluster.apply(a_pod_of("urgent", "high").build())
        refused = cluster.pod("urgent").status.conditions[0].message
        await cluster.restart()
        cluster.refuse_evictions()
        await cluster.advance(minutes=6)

        assert "eviction of default/web-1 refused by PDB default/web (429); no candidate is left" in refused
        assert cluster.pod("web-1").metadata.deletion_timestamp
        assert [r.kind for r in [record async for record in cluster.records()]].count("EvictionRefused") == 1
        await cluster.verify()


@pytest.mark.unreplayed("the test answers the evictions")
async def test_eviction_is_refused_where_no_budget_asks_for_it() -> None:
    async with Sandbox(GUARDED) as cluster:
        await cluster.apply([priority_class("web", 0, guarded_below=1000), priority_class("high", 500)])
        await cluster.apply([a_node("n1", cpu="1"), a_pod_of("web-1", "web").on("n1").build()])

        cluster.refuse_evictions("default/web-1")
        await cluster.apply(a_pod_of("urgent", "high").build())

        message = cluster.pod("urgent").status.conditions[0].message
        assert message.endswith("preemption: eviction of default/web-1 refused (429); no candidate is left")
        await cluster.verify()


@pytest.mark.unreplayed("a plugin is taken away behind the back of the log")
async def test_log_that_does_not_replay_fails_the_test(tidelog_sandbox: MakeSandbox) -> None:
    async with Sandbox() as cluster:
        await cluster.apply([a_node("n1"), a_node("n2"), a_pod("web")])
        cluster.registry = type(cluster.registry)(
            [plugin for plugin in cluster.registry if plugin.name != "NodeResourcesFit"]
        )

        with pytest.raises(BaseException, match="NodeResourcesFit"):
            await cluster.verify()

"""What a running scheduler counts, and what its HTTP endpoints show of it while it works."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.patience import PATIENCE
from tests.worlds.objects import node as a_node
from tests.worlds.objects import pod as a_pod
from tidelog.daemon.http.endpoints import HttpServer
from tidelog.daemon.http.sources import ProcessState
from tidelog.daemon.metrics.framework_recorder import SAMPLED_EACH, status_of
from tidelog.daemon.metrics.metrics import Metrics, Scrape, Statistics
from tidelog.daemon.metrics.recorder import Recorder
from tidelog.daemon.process.clock import SystemClock
from tidelog.daemon.process.scheduler import Scheduler, assembled, load_configuration
from tidelog.eventlog.log import memory_log
from tidelog.framework.interface import Code, CycleState, PermitResult, Plugin, Status
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.testing import builders as b
from tidelog.testing.pytest_plugin import MakeSandbox
from tidelog.testing.sandbox import Sandbox

Measured = tuple[Sandbox, Metrics]


async def measured(make: MakeSandbox, config: Any = None, **settings: Any) -> Measured:
    metrics = Metrics(Statistics)
    recorder = Recorder(metrics, time.perf_counter_ns)
    cluster = await make(config, watcher=recorder, **settings)
    cluster.log.on_commit = recorder.group_committed
    return cluster, metrics


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """Label values → value, of the samples of this name that are not zero."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == name and sample.value
    }


async def test_attempts_are_counted_by_what_they_came_to(tidelog_sandbox: MakeSandbox) -> None:
    cluster, metrics = await measured(tidelog_sandbox)

    await cluster.apply([a_node("n1", "2"), a_pod("a"), a_pod("b"), a_pod("big", "3")])

    profile = "default-scheduler"
    attempts = samples(metrics, "scheduler_schedule_attempts_total")
    assert attempts == {("scheduled", profile): 2, ("unschedulable", profile): 1}
    assert samples(metrics, "scheduler_scheduling_algorithm_duration_seconds_count") == {(): 3}
    assert samples(metrics, "scheduler_pod_scheduling_attempts_count") == {(): 2}
    assert samples(metrics, "scheduler_pod_scheduling_sli_duration_seconds_count") == {("1",): 2}
    points = samples(metrics, "scheduler_framework_extension_point_duration_seconds_count")
    assert points["Filter", "Success", profile] == 2
    assert points["Filter", "Unschedulable", profile] == 1
    assert points["Bind", "Success", profile] == 2
    evaluations = samples(metrics, "scheduler_plugin_evaluation_total")
    assert evaluations["NodeResourcesFit", "Filter", profile] == 3
    assert samples(metrics, "scheduler_preemption_attempts_total") == {(): 1}


async def test_records_and_commits_of_the_log_are_counted(tidelog_sandbox: MakeSandbox) -> None:
    cluster, metrics = await measured(tidelog_sandbox)

    await cluster.apply([a_node("n1"), a_pod("a"), a_pod("b")])

    assert samples(metrics, "tidelog_log_appended_records_total") == {("ObjectPut",): 3, ("Scheduled",): 2}
    assert samples(metrics, "tidelog_log_commit_records_sum") == {(): 5}


async def test_recovery_counts_nothing(tidelog_sandbox: MakeSandbox) -> None:
    cluster = await tidelog_sandbox()
    await cluster.apply([a_node("n1"), a_pod("a")])
    metrics = Metrics(Statistics)
    cluster._watcher = Recorder(metrics, time.perf_counter_ns)

    await cluster.restart()
    await cluster.settled()

    assert samples(metrics, "scheduler_schedule_attempts_total") == {}
    assert samples(metrics, "scheduler_queue_incoming_pods_total") == {}


async def test_events_hints_and_waits_are_counted(tidelog_sandbox: MakeSandbox) -> None:
    cluster, metrics = await measured(tidelog_sandbox)
    await cluster.apply([a_node("n1", "1"), a_pod("big", "2")])
    await cluster.advance(seconds=30)

    await cluster.apply(a_node("n2"))
    await cluster.advance(seconds=1)

    assert samples(metrics, "scheduler_event_handling_duration_seconds_count")[("NodeAdd",)] == 2
    assert samples(metrics, "tidelog_requeue_total")["NodeResourcesFit", "NodeAdd", "AfterBackoff"] == 1
    assert samples(metrics, "tidelog_queue_wait_seconds_sum")[("unschedulable",)] == 30
    incoming = samples(metrics, "scheduler_queue_incoming_pods_total")
    assert incoming["active", "UnscheduledPodAdd"] == 1


@pytest.mark.unreplayed("the scheduler's cache is changed behind the back of the log")
async def test_pod_that_only_the_flush_woke_is_counted_against_its_plugins(
    tidelog_sandbox: MakeSandbox,
) -> None:
    cluster, metrics = await measured(tidelog_sandbox)
    await cluster.apply([a_node("n1", "1"), a_pod("big", "2")])
    entity = cluster.core.queue.get("default/big")  # type: ignore[union-attr]
    assert entity is not None
    # As if a hint had slept: the room is there, and nobody was told.
    cluster.core.cluster.cache.put_node(a_node("n1", "4"))

    await cluster.advance(minutes=6)

    assert samples(metrics, "scheduler_pod_scheduled_after_flush_total") == {(): 1}
    assert samples(metrics, "tidelog_flush_would_have_been_needed_total") == {("NodeResourcesFit",): 1}
    # What was done to the cache is not in the log: make it so, for the replay at the end.
    cluster.verify = _nothing  # type: ignore[method-assign]


async def _nothing() -> None:
    """Instead of a verification."""


class AskForTenSeconds(Plugin):
    """Keeps every pod waiting for ten seconds, and then lets it be rejected."""

    name = "AskForTenSeconds"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        return PermitResult(Status(Code.WAIT), 10)


async def test_attempt_that_waits_counts_when_the_wait_is_over(tidelog_sandbox: MakeSandbox) -> None:
    asking = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"permit": {"enabled": [{"name": "AskForTenSeconds"}]}}}],
    }
    registry = Registry((*IN_TREE, AskForTenSeconds))
    cluster, metrics = await measured(tidelog_sandbox, asking, registry=registry)
    await cluster.apply([a_node("n1"), a_pod("a")])
    before = samples(metrics, "scheduler_schedule_attempts_total")

    await cluster.advance(seconds=10)

    assert before == {}
    after = samples(metrics, "scheduler_schedule_attempts_total")
    assert after == {("unschedulable", "default-scheduler"): 1}
    assert samples(metrics, "scheduler_permit_wait_duration_seconds_sum") == {("unschedulable",): 10}


async def test_aborted_attempts_are_counted_by_reason_and_not_as_attempts() -> None:
    seen: dict[tuple[str, ...], float] = {}
    for turns in range(25):
        metrics = Metrics(Statistics)
        async with Sandbox(watcher=Recorder(metrics, time.perf_counter_ns)) as cluster:
            await cluster.apply(a_node("n1"))
            putting = asyncio.create_task(cluster.apply(a_pod("web"), settle=False))
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.gather(putting, cluster.delete("Node//n1", settle=False))
            await cluster.settled()
            attempts = samples(metrics, "scheduler_schedule_attempts_total")
            aborted = samples(metrics, "tidelog_attempts_aborted_total")
            assert sum(attempts.values()) + sum(aborted.values()) == cluster.core.attempts
        seen.update(aborted)
    assert seen == {("node deleted",): 1}


async def test_single_plugins_are_measured_in_some_attempts_only(tidelog_sandbox: MakeSandbox) -> None:
    cluster, metrics = await measured(tidelog_sandbox)

    await cluster.apply([a_node("n1", "64"), *(a_pod(f"p{i}") for i in range(3 * SAMPLED_EACH))])

    measured_binds = samples(metrics, "scheduler_plugin_execution_duration_seconds_count")
    assert measured_binds["DefaultBinder", "Bind", "Success"] == 3


async def test_filters_are_sampled_where_the_fast_evaluation_chooses(tidelog_sandbox: MakeSandbox) -> None:
    cluster, metrics = await measured(tidelog_sandbox)
    pod = b.pod("p").label(app="web").spread(b.ZONE, "app=web")

    nodes = [b.node(f"n{i}").capacity(cpu="64").label({b.ZONE: "ab"[i % 2]}).build() for i in range(4)]
    await cluster.apply([*nodes, *(pod.named(f"p{i}").build() for i in range(3 * SAMPLED_EACH))])

    took = samples(metrics, "scheduler_plugin_execution_duration_seconds_count")
    filters = {plugin: count for (plugin, point, status), count in took.items() if point == "Filter"}
    assert filters["PodTopologySpread"] == 3, "once in a sampled attempt, about the node that was chosen"
    assert filters["NodeResourcesFit"] == 3
    assert "InterPodAffinity" not in filters, "skipped by its PreFilter"


def test_status_of_a_step_is_that_of_its_answer() -> None:
    assert status_of(None) == "Success"
    assert status_of(Status(Code.WAIT)) == "Wait"
    assert status_of(("a", "b")) == "Success"


# --- under load -------------------------------------------------------------------------------------------------------------


async def test_decisions_go_on_while_a_scrape_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, registry = SystemClock(), Registry()
    configuration = load_configuration(None, registry).configuration
    state = ProcessState("memory", configuration)
    state.phase = "leading"
    recorder = Recorder(state.measured, clock.lap)
    went_on, begun, loop = threading.Event(), asyncio.Event(), asyncio.get_running_loop()
    writers: list[threading.Thread] = []
    write = Scrape.text

    def held_up(scrape: Scrape) -> str:
        writers.append(threading.current_thread())
        loop.call_soon_threadsafe(begun.set)
        assert went_on.wait(PATIENCE)
        return write(scrape)

    monkeypatch.setattr(Scrape, "text", held_up)

    def scrape(address: str) -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as answer:
            body: bytes = answer.read()
        return body.decode()

    log = await memory_log(clock=clock.now)
    runtime = await assembled(log, registry, configuration, clock, watcher=recorder)
    async with runtime, HttpServer("127.0.0.1:0", state) as server:
        state.runtime, state.core = runtime, runtime.core
        scheduler = Scheduler(runtime)
        await scheduler.apply(a_node("n1", "640"))
        scraping = asyncio.create_task(asyncio.to_thread(scrape, server.address))
        await begun.wait()
        await scheduler.apply([a_pod(f"p{i}") for i in range(100)])
        await scheduler.settled()
        decided = runtime.core.attempts
        went_on.set()
        text = await scraping
    await log.close()

    # A hundred decisions were made and committed between the scrape's beginning and its end.
    assert decided == 100
    assert writers[0] is not threading.main_thread()
    assert {family.name for family in text_string_to_metric_families(text)} >= {"tidelog_ready"}

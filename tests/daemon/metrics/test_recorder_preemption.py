"""Preemptions are counted when they are durable, as what they came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from tidelog.api.features import FeatureGates
from tidelog.configuration.configuration import SchedulerConfiguration, default_configuration
from tidelog.daemon.metrics.metrics import Metrics, Statistics
from tidelog.daemon.metrics.recorder import Recorder
from tidelog.eventlog.records import decode_body
from tidelog.framework.disruption_budgets import Allowances
from tidelog.framework.node_info import PodInfo
from tidelog.framework.preemption_plan import Refusal
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b
from tidelog.testing.sandbox import Sandbox

OUTCOMES = "tidelog_preemption_outcomes_total"
EVICTIONS = "tidelog_evictions_total"


class RefusesAll:
    """An eviction endpoint that has had enough."""

    def evict(self, pods: Sequence[PodInfo], allowances: Allowances) -> Refusal | None:
        return Refusal(pods[0], "PodDisruptionBudget/default/web")


def guarded() -> SchedulerConfiguration:
    gates = FeatureGates(disruption_policy_in_priority_class=True)
    return replace(default_configuration(Registry()), feature_gates=gates)


def preemptor(name: str, priority_class: str = "batch") -> b.PodBuilder:
    return b.pod(name).request(cpu="1").priority_class(priority_class)


async def full_node(sandbox: Sandbox, allowed: int) -> None:
    """One node, and on it one protected pod."""
    await sandbox.apply([b.priority_class("web", 100, guarded_below=1000), b.priority_class("batch", 500)])
    await sandbox.apply([b.node("n1").capacity(cpu="1").build(), b.pdb("web", "app=web", allowed=allowed)])
    web = b.pod("web").label(app="web").request(cpu="1").priority_class("web")
    await sandbox.apply(web.on("n1").phase("Running").condition("Ready").build())


def counted(metrics: Metrics, name: str) -> Mapping[str, float]:
    """Label → count, for those that are not zero."""
    found = {}
    for line in metrics.read().text().splitlines():
        if line.startswith(name + "{"):
            _, label, rest = line.split('"', 2)
            found[label] = float(rest.split()[-1])
    return {label: count for label, count in found.items() if count}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(Statistics)


def recorder(metrics: Metrics) -> Recorder:
    return Recorder(metrics, lambda: 0)


async def test_preemption_is_counted_by_its_outcome(metrics: Metrics) -> None:
    async with Sandbox(guarded(), watcher=recorder(metrics)) as sandbox:
        await full_node(sandbox, allowed=0)
        await sandbox.apply(b.priority_class("modest", 500, never_preempts=True))
        for name, priority_class in (("never", "modest"), ("equal", "web"), ("high", "batch")):
            await sandbox.apply(preemptor(name, priority_class).build())
        before = counted(metrics, OUTCOMES)

        await sandbox.apply(b.pdb("web", "app=web", allowed=1))
        await sandbox.advance(seconds=10)

        assert before == {"not_eligible": 1, "no_candidate": 1, "blocked": 1}
        assert counted(metrics, OUTCOMES) == {**before, "nominated": 1}
        assert counted(metrics, EVICTIONS) == {"granted": 1}
        await sandbox.verify()


async def test_rejection_that_only_refers_to_the_last_one_is_counted_as_that(metrics: Metrics) -> None:
    async with Sandbox(guarded(), watcher=recorder(metrics)) as sandbox:
        await full_node(sandbox, allowed=0)
        await sandbox.apply(preemptor("high").build())

        await sandbox.advance(minutes=6)

        rejections = [r for r in [record async for record in sandbox.records()] if r.kind == "Unschedulable"]
        assert len(rejections) > 1
        assert counted(metrics, OUTCOMES) == {"blocked": len(rejections)}


@pytest.mark.unreplayed("the test answers the evictions")
async def test_refused_evictions_are_counted_and_so_is_that_none_was_left(metrics: Metrics) -> None:
    async with Sandbox(guarded(), watcher=recorder(metrics)) as sandbox:
        sandbox.core.evictions.port = RefusesAll()
        await full_node(sandbox, allowed=1)

        await sandbox.apply(preemptor("high").build())

        assert counted(metrics, OUTCOMES) == {"refused": 1}
        assert counted(metrics, EVICTIONS) == {"refused": 1}


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """(level, words) of every line about a refused eviction."""
    return [
        (line.levelname, line.__dict__["fields"]["said"])
        for line in caplog.records
        if line.getMessage() == "an eviction was refused"
    ]


@pytest.mark.unreplayed("the test answers the evictions")
async def test_refused_eviction_of_a_protected_pod_is_logged_as_an_error(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    """KEP-4664: "If it responses `429 Too Many Requests`, the scheduler will output an error log and choose another victim"."""
    async with Sandbox(guarded(), watcher=recorder(metrics)) as sandbox:
        await full_node(sandbox, allowed=2)
        await sandbox.apply(b.node("n2").capacity(cpu="1").build())
        web = b.pod("web-2").label(app="web").request(cpu="1").priority_class("web")
        await sandbox.apply(web.on("n2").phase("Running").condition("Ready").build())
        sandbox.refuse_evictions("web", "web-2")

        with caplog.at_level("INFO", logger="tidelog"):
            await sandbox.apply(preemptor("high").build())

        assert counted(metrics, EVICTIONS) == {"refused": 2}
        refused = "eviction of default/{} refused by PDB default/web (429); {}"
        assert told(caplog) == [
            ("ERROR", refused.format("web", "trying next candidate 2 of 2")),
            ("ERROR", refused.format("web-2", "no candidate is left")),
        ]
        await sandbox.verify()


async def test_refused_eviction_of_a_pod_that_is_deleted_then_is_no_error(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    async with Sandbox(guarded(), watcher=recorder(metrics)) as sandbox:
        await full_node(sandbox, allowed=0)
        await sandbox.apply(b.priority_class("urgent", 1000))

        with caplog.at_level("INFO", logger="tidelog"):
            await sandbox.apply(preemptor("high", "urgent").build())

        assert told(caplog) == [
            ("INFO", "eviction of default/web refused by PDB default/web (429); deleting it")
        ]


def test_preemption_that_is_called_off_is_counted_as_aborted_only(metrics: Metrics) -> None:
    driver, watcher = Driver(), recorder(metrics)
    driver.start(guarded())
    watcher.configured(driver.core)
    driver.put(b.node("n1").capacity(cpu="1").build(), b.pod("low").request(cpu="1").on("n1").build())
    driver.put(b.pod("high").request(cpu="1").priority(10).scheduler("default-scheduler").build())
    decision = driver.attempt()
    assert decision is not None
    watcher.attempted(driver.core, decision, 0)
    start = len(driver.records)

    driver.delete(driver.pod("low"))
    committed = driver.commit()
    for record in driver.records[start:]:
        watcher.consumed(record, decode_body(record))
    watcher.committed(committed)

    assert counted(metrics, OUTCOMES) == {}
    assert counted(metrics, EVICTIONS) == {}
    assert counted(metrics, "tidelog_attempts_aborted_total") == {"victim changed": 1}

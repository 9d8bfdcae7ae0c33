"""The workloads: each runs, its log verifies by replay, and what a pod costs in operations has not grown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import AssertReplays
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object
from tidelog.benchmarks import scheduling
from tidelog.benchmarks._workloads import WORKLOADS, pods_of
from tidelog.eventlog import disk as eventlog_disk
from tidelog.eventlog import sqlite as eventlog_sqlite
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Record
from tidelog.plugins.registry import IN_TREE
from tidelog.scheduler.evaluation.fast import FastEvaluation

NODES, PODS = 20, 12

FIGURES = {
    "workload",
    "nodes",
    "pods",
    "pods_per_second",
    "seconds",
    "attempt_p50_ms",
    "attempt_p99_ms",
    "cpu_seconds",
    "peak_rss_mib",
    "log_bytes_per_pod",
}


async def records_of(path: Path) -> list[Record]:
    async with open_reader(path) as reader:
        return [record async for batch in reader.read_batches(1) for record in batch]


def small(workload: str) -> tuple[int, int]:
    """A size at which the workload is still itself."""
    return (NODES, 1_000) if workload.endswith("Large") else (NODES, PODS)


@pytest.mark.parametrize("workload", [name for name in WORKLOADS if not name.endswith("Large")])
async def test_log_of_a_workload_verifies_by_replay(
    workload: str, tmp_path: Path, assert_replays: AssertReplays
) -> None:
    path = tmp_path / "cluster.db"

    figures = await scheduling.measured(workload, *small(workload), log=path)

    assert figures.keys() >= FIGURES
    done = figures["attempts"] if workload == "PreemptionPVs" else figures["placed"]
    assert done > 0
    assert_replays(await records_of(path))


def test_core_alone_places_as_many_pods() -> None:
    figures = scheduling.measure("TopologySpreading", NODES, PODS, core_only=True)

    assert (figures["placed"], figures["attempts"], figures["records_per_pod"]) == (PODS, PODS, 2)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_workload_puts_as_many_pods_as_it_is_asked_for(workload: str) -> None:
    nodes, pods = small(workload)
    story = WORKLOADS[workload].build(nodes, pods)

    names = Counter(map(object_key, [*story.setup, *story.measured]))

    expected = 3 * pods if workload == "Unschedulable" else pods
    assert pods_of(story.measured) == expected
    assert names.most_common(1)[0][1] == (2 if workload == "EventHandlingPodUpdate" else 1)
    assert all(isinstance(one, Object) for one in story.setup)


REPLICAS = (
    "SchedulingBasic",
    "TopologySpreading",
    "PreferredTopologySpreading",
    "DefaultTopologySpreading",
    "SchedulingPodAntiAffinity",
    "SchedulingPodAffinity",
    "SchedulingPreferredPodAffinity",
    "SchedulingNodeAffinity",
    "MixedSchedulingBasePod",
)


@pytest.mark.parametrize("workload", REPLICAS)
def test_replicas_cost_a_few_questions_to_plugins_each(
    workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain evaluation asks some six plugins about every node: at this size two hundred thousand questions."""
    questions: Counter[str] = Counter()
    for plugin in IN_TREE:
        for point in ("filter", "score"):
            if hasattr(plugin, point):
                monkeypatch.setattr(plugin, point, counting(questions, getattr(plugin, point)))
    plain = 0
    choose = FastEvaluation.choose

    def choosing(*args: Any, **kwargs: Any) -> Any:
        nonlocal plain
        answer = choose(*args, **kwargs)
        plain += answer is None
        return answer

    monkeypatch.setattr(FastEvaluation, "choose", choosing)
    nodes, pods = 300, 200

    figures = scheduling.measure(workload, nodes, pods, core_only=True)

    assert figures["records_per_pod"] == 2
    assert plain == 0
    assert questions.total() < 10 * (nodes + pods)


class Disk(eventlog_disk.Disk):
    """Counts what is waited for."""

    syncs = 0

    def sync(self, fd: int) -> None:
        type(self).syncs += 1
        super().sync(fd)


async def test_many_outcomes_share_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit is two fsyncs. That of the head file is counted, the other is SQLite's own."""
    monkeypatch.setattr(Disk, "syncs", 0)
    monkeypatch.setattr(eventlog_sqlite, "Disk", Disk)
    pods = 2_000

    figures = await scheduling.measured("SchedulingBasic", 100, pods, log=tmp_path / "cluster.db")

    assert figures["placed"] == pods
    assert 0 < Disk.syncs < pods / 20


def counting(questions: Counter[str], ask: Any) -> Any:
    def counted(self: Any, *args: Any) -> Any:
        questions[self.name] += 1
        return ask(self, *args)

    return counted

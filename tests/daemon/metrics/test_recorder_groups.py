"""What a running scheduler counts of pod groups."""

from __future__ import annotations

import time

from tidelog.daemon.metrics.metrics import Metrics, Statistics
from tidelog.daemon.metrics.recorder import Recorder
from tidelog.testing.builders import node, pod, pod_group
from tidelog.testing.pytest_plugin import MakeSandbox

RACK = "rack"
CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "tidelog": {"featureGates": {"TopologyAwareWorkloadScheduling": True}},
}


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if sample.name == name and sample.value
    }


async def test_groups_and_their_placements_are_counted(tidelog_sandbox: MakeSandbox) -> None:
    metrics = Metrics(Statistics)
    cluster = await tidelog_sandbox(CONFIG, watcher=Recorder(metrics, time.perf_counter_ns))
    racks = (node(f"n{i}").label({RACK: f"r{i}"}).capacity(cpu=f"{i + 1}").build() for i in range(3))
    await cluster.apply([*racks, pod_group("fits", min_count=2, level=RACK)])
    await cluster.apply([pod_group("waits", min_count=4, level=RACK)])

    await cluster.apply([pod(f"fits-{i}").group("fits").request(cpu="1").build() for i in range(2)])
    await cluster.apply([pod(f"waits-{i}").group("waits").request(cpu="1").build() for i in range(4)])
    await cluster.settled()

    profile = "default-scheduler"
    assert samples(metrics, "scheduler_podgroup_schedule_attempts_total") == {
        ("scheduled", profile): 1,
        ("unschedulable", profile): 1,
    }
    assert samples(metrics, "scheduler_placement_evaluations_total") == {
        ("feasible", profile): 2,
        ("infeasible", profile): 4,
    }
    assert samples(metrics, "scheduler_generated_placements_total") == {(profile,): 6}

"""A plugin of somebody else's beside the default ones: what each declaration costs, the core alone and end to end.

    tidelog bench foreign           or            .venv/bin/python benchmarks/foreign.py [NODES [PODS]]

SchedulingBasic's cluster and pods, with the default profile alone and with one more filter or scorer, in turn, twice; of each the quicker run counts. Of the core the CPU microseconds a
pod, end to end the pods a second, and both as a part of what the default profile does. What is undeclared is asked about every node in every attempt, so it is measured on a twentieth of the
pods, and what comes once in a run counts for more there; `own_us` is what the plugin alone takes to be asked about all nodes, by nobody but this benchmark.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

if __name__ == "__main__":
    # Started as a script, this file's folder comes first on the path, and some files in it are called like standard modules.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from tidelog.benchmarks._foreign import DECLARED, declared
from tidelog.benchmarks._workloads import WORKLOADS, Story
from tidelog.configuration.configuration import (
    SchedulerConfiguration,
    default_configuration,
    resolve_configuration,
)
from tidelog.daemon.process.scheduler import Scheduler
from tidelog.framework.interface import CycleState
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver

ROUNDS = 2
AT_ONCE = 250
"""Pods of a request."""


def run(nodes: int = 5_000, pods: int = 3_000) -> dict[str, Any]:
    """By what is declared."""
    cost: dict[str, float] = {}
    speed: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name in ("default profile", *DECLARED):
            count = pods if "undeclared" not in name else max(10, pods // 20)
            story = WORKLOADS["SchedulingBasic"].build(nodes, count)
            cost[name] = min(cost.get(name, float("inf")), _core(story, name, count))
            speed[name] = max(speed.get(name, 0), asyncio.run(_end_to_end(story, name, count)))
    alone, quick = cost["default profile"], speed["default profile"]
    found: dict[str, Any] = {"nodes": nodes, "pods": pods}
    for name, taken in cost.items():
        found[name] = {
            "core_cpu_us_per_pod": round(taken, 1),
            "core_of_default": round(alone / taken, 3),
            "pods_per_second": round(speed[name], 1),
            "of_default": round(speed[name] / quick, 3),
        }
        if "undeclared" in name:
            found[name]["own_us"] = round(_own(name, nodes), 1)
    return found


def _configured(name: str) -> tuple[Registry, SchedulerConfiguration]:
    registry = Registry()
    if name not in DECLARED:
        return registry, default_configuration(registry)
    plugin = declared(name)
    registry.register(plugin)
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": plugin.name}]}}}],
    }
    return registry, resolve_configuration(file, registry).configuration


def _core(story: Story, name: str, count: int) -> float:
    registry, configuration = _configured(name)
    driver = Driver(registry)
    driver.start(configuration)
    driver.put(*story.setup)
    driver.settle(limit=len(story.setup) + 1)
    driver.put(*story.measured)
    gc.collect()
    began = process_time()
    driver.settle(limit=len(story.measured) + 1)
    return (process_time() - began) / count * 1e6


async def _end_to_end(story: Story, name: str, count: int) -> float:
    registry, configuration = _configured(name)
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        async with Scheduler.open(Path(folder) / "cluster.db", configuration, registry=registry) as scheduler:
            await scheduler.apply(story.setup)
            await scheduler.settled()
            gc.collect()
            began = perf_counter()
            for first in range(0, len(story.measured), AT_ONCE):
                await scheduler.apply(story.measured[first : first + AT_ONCE])
            await scheduler.settled()
            return count / (perf_counter() - began)


def _own(name: str, nodes: int) -> float:
    """Microseconds that the plugin takes for all nodes, when nobody comes between."""
    story = WORKLOADS["SchedulingBasic"].build(nodes, 1)
    driver = Driver()
    driver.start()
    driver.put(*story.setup)
    driver.settle(limit=len(story.setup) + 1)
    plugin: Any = declared(name)(None, None)  # type: ignore[arg-type] # It asks for neither.
    state, pod = CycleState(), PodInfo(story.measured[0])  # type: ignore[arg-type] # It is a pod.
    driver.core.cluster.snapshot.refresh(driver.core.cluster.cache)
    ask = plugin.score if name.startswith("score") else plugin.filter
    all_nodes = driver.core.cluster.snapshot.nodes
    best = float("inf")
    for _ in range(10):
        began = process_time()
        for node in all_nodes:
            ask(state, pod, node)
        best = min(best, process_time() - began)
    return best * 1e6


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:])), indent=2))

"""Gangs and placements: pods per second, and what a group costs against the number of placements.

    tidelog bench tas [--nodes N]            or            .venv/bin/python benchmarks/tas.py

- *gangs*: GangScheduling of kube-scheduler's suite: gangs without a level on nodes of 4 cores;
- *tas*: TopologyAwareScheduling: the same with racks of 100 nodes as the level;
- *placements*: one gang of eight at a time against 10, 100 and 1,000 racks of ten nodes, empty, and nine tenths of them full; the time
  of one attempt.

Everything runs on the core and a list of records in memory: what is timed is deciding, adopting and consuming.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter
from typing import Any

if __name__ == "__main__":
    # Started as a script, this file's folder comes first on the path, and some files in it are called like standard modules.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from msgspec.structs import replace

from tidelog.api.objects import Node, Pod
from tidelog.configuration.configuration import default_configuration
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b

RACK = "topology.kubernetes.io/rack"
RACK_NODES = 100
"""Nodes of a rack in the suite's workload."""


def run(nodes: int = 5000, pods: int = 400) -> dict[str, Any]:
    """The figures. So many pods in groups of three or four, as in the suite, and all of them in one group."""
    return {
        "gangs": workload(nodes, pods // 3, 3, level=None),
        "gangs_one_group": workload(nodes, 1, pods, level=None),
        "tas": workload(nodes, pods // 4, 4, level=RACK),
        "tas_one_group": workload(nodes, 1, pods, level=RACK),
        "placements": [placements(count) for count in (10, 100, 1000)],
    }


def workload(nodes: int, groups: int, size: int, *, level: str | None) -> dict[str, Any]:
    """All groups and pods are there before the clock starts; what is timed is until the last is placed."""
    driver = _started()
    driver.put(*(_node(i, RACK_NODES) for i in range(nodes)))
    for group in range(groups):
        driver.put(b.pod_group(f"gang-{group}", min_count=size, level=level))
        driver.put(*_pods(f"gang-{group}", size, cpu="100m"))
    gc.collect()
    started = perf_counter()
    attempts = driver.settle()
    seconds = perf_counter() - started
    placed = len(driver.placements())
    return {
        "nodes": nodes,
        "groups": groups,
        "pods_per_group": size,
        "placed": placed,
        "attempts": attempts,
        "seconds": round(seconds, 3),
        "pods_per_second": round(placed / seconds, 1),
        "ms_per_group": round(1000 * seconds / groups, 2),
    }


def placements(count: int, rounds: int = 3) -> dict[str, Any]:
    """One attempt of a gang of eight against so many racks, the best of a few."""
    return {
        "placements": count,
        "ms_empty": _attempt_ms(count, rounds, full=0),
        "ms_nine_tenths_full": _attempt_ms(count, rounds, full=9),
        "ms_first_feasible": _attempt_ms(count, rounds, full=0, feasible_max=1),
    }


def _attempt_ms(count: int, rounds: int, *, full: int, feasible_max: int = 0) -> float:
    """`full` of ten racks have no room left; they are turned down by sums."""
    driver = _started(feasible_max)
    driver.put(*(_node(i, 10) for i in range(10 * count)))
    for number in range(10 * count):
        if number // 10 % 10 < full:
            driver.put(b.pod(f"there-{number}").request(cpu="4").on(f"node-{number}").build())
    best = float("inf")
    for turn in range(rounds):
        driver.put(b.pod_group(f"gang-{turn}", min_count=8, level=RACK), *_pods(f"gang-{turn}", 8, cpu="1"))
        started = perf_counter()
        decision = driver.attempt()
        best = min(best, perf_counter() - started)
        assert decision is not None
        driver.commit()
    return round(1000 * best, 2)


def _started(feasible_max: int = 0) -> Driver:
    driver = Driver(Registry())
    gates = {"TopologyAwareWorkloadScheduling": True}
    configuration = default_configuration(driver.registry, gates)
    driver.start(replace(configuration, max_feasible_placements=feasible_max))
    return driver


def _node(number: int, rack: int) -> Node:
    node = b.node(f"node-{number}").label({RACK: f"rack-{number // rack:04}"})
    return node.capacity(cpu="4", memory="32Gi", pods="110").build()


def _pods(group: str, count: int, cpu: str) -> Iterable[Pod]:
    for number in range(count):
        pod = b.pod(f"{group}-{number}").group(group).request(cpu=cpu, memory="100Mi")
        yield pod.scheduler("default-scheduler").build()


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))

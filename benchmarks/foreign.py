"""A plugin of somebody else's beside the default ones: what each declaration costs, the core alone.

    tidelog bench foreign           or            .venv/bin/python benchmarks/foreign.py [NODES [PODS]]

SchedulingBasic's cluster and pods, with the default profile alone and with one more filter or scorer, in turn, twice; of each the quicker run counts. CPU microseconds a pod, and the
pods in a CPU second as a part of those of the default profile. What is undeclared is asked about every node in every attempt, so it is measured on a twentieth of the pods.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

if __name__ == "__main__":
    # Started as a script, this file's folder comes first on the path, and some files in it are called like standard modules.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from tidelog.benchmarks._foreign import DECLARED, declared
from tidelog.benchmarks._workloads import WORKLOADS, Story
from tidelog.configuration.configuration import default_configuration, resolve_configuration
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver

ROUNDS = 2


def run(nodes: int = 5_000, pods: int = 3_000) -> dict[str, Any]:
    """Microseconds of CPU for a pod, by what is declared."""
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name in ("default profile", *DECLARED):
            count = pods if "undeclared" not in name else max(10, pods // 20)
            story = WORKLOADS["SchedulingBasic"].build(nodes, count)
            best[name] = min(best.get(name, float("inf")), _measured(story, name, count))
    alone = best["default profile"]
    return {
        "nodes": nodes,
        "pods": pods,
        **{
            name: {"cpu_us_per_pod": round(cost, 1), "of_default": round(alone / cost, 3)}
            for name, cost in best.items()
        },
    }


def _measured(story: Story, name: str, count: int) -> float:
    registry = Registry()
    configuration = default_configuration(registry)
    if name in DECLARED:
        plugin = declared(name)
        registry.register(plugin)
        enabled: Any = {"multiPoint": {"enabled": [{"name": plugin.name}]}}
        file = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"plugins": enabled}],
        }
        configuration = resolve_configuration(file, registry).configuration
    driver = Driver(registry)
    driver.start(configuration)
    driver.put(*story.setup)
    driver.settle(limit=len(story.setup) + 1)
    driver.put(*story.measured)
    began = process_time()
    driver.settle(limit=len(story.measured) + 1)
    return (process_time() - began) / count * 1e6


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:])), indent=2))

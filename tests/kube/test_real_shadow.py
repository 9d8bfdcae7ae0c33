"""Beside a real kube-scheduler, if one is named: its decisions judged as they show, and its groups.

TIDELOG_LIVE_PODS says how many pods (by default 300, 5,000 for a claim).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kube.real_world import (
    TIDELOG,
    add_nodes,
    at_once,
    daemon,
    records_of,
    start_kube_scheduler,
    until,
)
from tests.kube.server import RealServer, need

pytestmark = pytest.mark.slow
PODS = int(os.environ.get("TIDELOG_LIVE_PODS", "300"))
SEEN_FROM_ELSEWHERE = "kubernetes.io/hostname"


def a_pod(server: RealServer, name: str, chance: random.Random) -> dict[str, Any]:
    """One of the kinds of pods that upstream's performance tests create."""
    app = f"app{chance.randrange(12)}"
    cpu = chance.choice(["50m", "100m", "250m", "500m"])
    spec: dict[str, Any] = {}
    term = {"topologyKey": SEEN_FROM_ELSEWHERE, "labelSelector": {"matchLabels": {"app": app}}}
    match chance.randrange(7):
        case 1:
            spec["affinity"] = {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 10, "podAffinityTerm": term}
                    ]
                }
            }
        case 2:
            spec["affinity"] = {
                "podAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 5,
                            "podAffinityTerm": {**term, "topologyKey": "topology.kubernetes.io/zone"},
                        }
                    ]
                }
            }
        case 3 | 4 as which:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 3,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule" if which == 3 else "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": app}},
                }
            ]
        case 5:
            wanted = {
                "key": "topology.kubernetes.io/zone",
                "operator": "In",
                "values": [f"z{chance.randrange(3)}"],
            }
            how = chance.choice(["required", "preferred"])
            selector: Any = {"matchExpressions": [wanted]}
            spec["affinity"] = {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [selector]}
                }
                if how == "required"
                else {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": selector}]
                }
            }
        case 6:
            cpu = "1000"  # Nowhere.
        case _:
            pass
    found = server.pod(name, cpu=cpu, scheduler="default-scheduler", **spec)
    found["metadata"]["labels"] = {"app": app}
    return found


def test_shadow_of_kube_scheduler_refuses_nothing(server: RealServer, tmp_path: Path) -> None:
    """Tests 31 and 32: with percentageOfNodesToScore 100, and the report twice the same."""
    need("kube-scheduler")
    add_nodes(server, max(20, PODS // 50), cpu="32")
    recorder = daemon(server, tmp_path / "a" / "c.db", "shadow", scheduler="default-scheduler")
    until(recorder.ready, "the first sync")
    start_kube_scheduler(server, percentageOfNodesToScore=100)
    chance = random.Random(7)
    pods = [a_pod(server, f"p-{number}", chance) for number in range(PODS)]
    placeable = sum(p["spec"]["containers"][0]["resources"]["requests"]["cpu"] != "1000" for p in pods)
    at_once(lambda pod=pod: server.must("POST", "/api/v1/namespaces/default/pods", pod) for pod in pods)
    until(lambda: len(server.bound()) >= placeable, "all bound", seconds=1800)
    until(lambda: recorder.metric("tidelog_shadow_total") >= placeable, "all judged", seconds=600)
    used = recorder.cpu()
    assert recorder.stop() == 0
    sizes = {path.name: path.stat().st_size for path in sorted(recorder.log.parent.glob("c.db*"))}
    size = sum(count for name, count in sizes.items() if not name.endswith(".reserve"))

    def report(seed: str) -> bytes:
        command = [*TIDELOG, "shadow", "report", str(recorder.log), "-o", "json"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(command, check=True, capture_output=True, env=environment).stdout

    first = report("1")
    found = json.loads(first)
    print(json.dumps({key: value for key, value in found.items() if key != "decisions"})[:3000])
    versions = [r for r in records_of(recorder.log) if r.kind == "ObjectPut" and r.key.startswith("Pod/")]
    print(
        f"{sum(len(r.body) for r in versions) / len(versions):.0f} bytes a version of a pod ({len(versions)}), with snapshots and "
        f"indexes {size / len(versions):.0f} (files: {sizes}); {used / PODS * 1e6:.0f} us of CPU a pod"
    )
    counts = found["bindings"]["upstream"]

    assert report("2") == first
    assert found["refusedBy"] == {}
    assert sum(counts.values()) >= placeable
    assert found["share"] >= 0.99

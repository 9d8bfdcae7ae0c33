"""Preemption: preemptors per second on full nodes, and what they cost the pods beside them.

    tidelog bench preemption            or            .venv/bin/python benchmarks/preemption.py [NODES [PREEMPTORS]]

- *preemptors*: nodes that are full of pods of low priority (4 x 900m of 4 cores), and pods that need a whole node (3970m), one after
  the other: each has four pods evicted, they end, and it gets their room. From the pod's arrival to its place, and the times of single
  attempts that preempt;
- *beside*: scheduler_perf's PreemptionAsync: plain pods that always fit are measured, while such a preemptor comes after every so many;
- *guarded*: as *preemptors*, with KEP-4664 and every fourth pod under a disruption budget that allows one of them to go at a time.

On the Driver: the core alone, with records in memory. An end-to-end figure is that of `tidelog bench PreemptionAsync`.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

if __name__ == "__main__":
    # Started as a script, this file's folder comes first on the path, and some files in it are called like standard modules.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from msgspec.structs import replace

from tidelog.api.features import FeatureGates
from tidelog.api.objects import Object, Pod
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import default_configuration
from tidelog.eventlog.records import Evicted, Nominated, Scheduled, decode_body
from tidelog.replay.driver import Driver
from tidelog.testing.builders import node, pdb, pod

BESIDE_EVERY = 114
"""Plain pods for each preemptor: what scheduler_perf's threshold of 570 pods a second makes of one in 200 ms."""
GUARDED_EVERY = 4
THRESHOLD = 10_000_000


def run(nodes: int = 5_000, preemptors: int = 1_000) -> dict[str, Any]:
    """The figures. The *beside* part takes as many plain pods as the first part takes preemptors."""
    return {
        "nodes": nodes,
        "preemptors": _preempt(_full(nodes), preemptors),
        "beside": _beside(_full(nodes), preemptors),
        "guarded": _preempt(_full(nodes, guarded=True), preemptors),
    }


def _full(nodes: int, *, guarded: bool = False) -> Driver:
    """A cluster in which every node holds four pods of low priority."""
    driver = Driver()
    gates = FeatureGates(disruption_policy_in_priority_class=guarded)
    driver.start(replace(default_configuration(driver.registry), feature_gates=gates))
    plain = node("n").capacity(cpu="4", memory="32Gi", pods="110")
    driver.put(*(plain.named(f"node-{i:05}").build() for i in range(nodes)))
    low = pod("low").request(cpu="900m", memory="500Mi").condition("Ready")
    pods: list[Object] = []
    for number in range(4 * nodes):
        one = low.named(f"low-{number:06}").on(f"node-{number // 4:05}")
        if guarded and number % GUARDED_EVERY == 0:
            one = one.label(app="guarded").guarded_below(THRESHOLD)
        pods.append(one.build())
    driver.put(*pods)
    if guarded:
        driver.put(pdb("guarded", "app=guarded", allowed=1))
    return driver


def _high(number: int) -> Pod:
    made = pod(f"high-{number:05}").request(cpu="3970m", memory="500Mi").priority(9_999_999)
    return made.scheduler("default-scheduler").build()


def _preempt(driver: Driver, count: int) -> dict[str, Any]:
    """Preemptors, one after the other, each until it has its place."""
    attempts: list[float] = []
    placed = 0
    start = len(driver.records)
    gc.collect()
    began = perf_counter()
    for number in range(count):
        driver.put(_high(number))
        before = perf_counter()
        decision = driver.attempt()
        attempts.append(perf_counter() - before)
        driver.commit()
        assert decision is not None
        placed += _end_victims(driver, [key for key, body in decision.outcomes if isinstance(body, Evicted)])
    elapsed = perf_counter() - began
    evicted = sum(kind == "Evicted" for kind in driver.kinds(start))
    return {
        "count": count,
        "placed": placed,
        "evicted": evicted,
        "seconds": round(elapsed, 3),
        "per_second": round(count / elapsed, 1),
        **_times(attempts),
    }


def _end_victims(driver: Driver, keys: Sequence[str]) -> int:
    """The victims end, a budget that was charged is computed anew, and the preemptor takes its place; 1 if it did."""
    start = len(driver.records)
    for key in keys:
        driver.delete(driver.core.objects[key])
    if keys and "PodDisruptionBudget/default/guarded" in driver.core.objects:
        driver.put(pdb("guarded", "app=guarded", allowed=1))
    driver.now += NANOS
    driver.settle()
    return sum(isinstance(decode_body(r), Scheduled) for r in driver.records[start:])


def _beside(driver: Driver, count: int) -> dict[str, Any]:
    """Plain pods, and a preemptor now and then."""
    plain = pod("plain").request(cpu="100m", memory="500Mi").scheduler("default-scheduler")
    pods = [plain.named(f"plain-{i:06}").build() for i in range(count)]
    seconds, preemptors, start = 0.0, 0, len(driver.records)
    gc.collect()
    for first in range(0, count, BESIDE_EVERY):
        began = perf_counter()
        driver.put(_high(preemptors))
        preemptors += 1
        driver.put(*pods[first : first + BESIDE_EVERY])
        driver.settle()
        victims = [r.key for r in driver.records[start:] if r.kind == "Evicted"]
        start = len(driver.records)
        _end_victims(driver, victims)
        seconds += perf_counter() - began
    nominated = sum(bool(b.node) for r in driver.records if isinstance(b := decode_body(r), Nominated))
    return {
        "pods": count,
        "preemptors": preemptors,
        "nominated": nominated,
        "seconds": round(seconds, 3),
        "pods_per_second": round(count / seconds, 1),
    }


def _times(attempts: list[float]) -> dict[str, float]:
    ordered = sorted(attempts)
    return {
        f"attempt_p{percent}_ms": round(
            1000 * ordered[min(len(ordered) * percent // 100, len(ordered) - 1)], 2
        )
        for percent in (50, 99)
    }


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:])), indent=2))

"""How long the first attempt of a pod with the most terms and constraints keeps everybody else waiting.

    tidelog bench turns             or            .venv/bin/python benchmarks/turns.py [NODES [PODS]]

A cluster with eight topology keys that every node has and so many pods placed already. Each kind of demanding pod comes four times, each time with other terms, so that nothing is
known of it; a gang of sixteen such pods comes at last. An attempt takes turns as in a running scheduler, and between two of them others have theirs: CPU milliseconds
of the longest turn, and of all turns of an attempt together, the worst of the four.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import thread_time
from typing import Any

if __name__ == "__main__":
    # Started as a script, this file's folder comes first on the path, and some files in it are called like standard modules.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from tidelog.daemon.process.runtime import PAUSES_PER_GROWTH, Limits
from tidelog.framework.effort import Paused
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b

KEYS = [f"key-{number}" for number in range(8)]
TERMS = 32
"""At most this many of a kind are admitted (docs/limits.md)."""
TIMES = 4
MEMBERS = 16


def run(nodes: int = 5_000, pods: int = 10_000) -> dict[str, Any]:
    """Milliseconds, by what is demanded."""
    driver = _cluster(nodes, pods)
    found: dict[str, Any] = {"nodes": nodes, "pods": pods}
    numbers = count()
    for kind, demands in DEMANDS.items():
        found[kind] = _told([_attempt(driver, [_demanding(next(numbers), demands)]) for _ in range(TIMES)])
    members = [_demanding(next(numbers), DEMANDS["all of these"]) for _ in range(MEMBERS)]
    driver.put(b.pod_group("gang", min_count=MEMBERS))
    found["a gang of sixteen"] = _told([_attempt(driver, [one.group("gang") for one in members])])
    return found


def _told(attempts: list[list[float]]) -> dict[str, float]:
    return {
        "longest_turn_ms": round(max(max(turns) for turns in attempts), 1),
        "all_turns_ms": round(max(sum(turns) for turns in attempts), 1),
    }


def _cluster(nodes: int, pods: int) -> Driver:
    driver = Driver()
    driver.start()
    for number in range(nodes):
        labels = {key: f"v{number % (7 + 50 * place)}" for place, key in enumerate(KEYS)}
        like = b.node(f"n{number:05}").label(
            {b.HOSTNAME: f"n{number:05}", b.ZONE: "abc"[number % 3]} | labels
        )
        driver.put(like.capacity(cpu="64", memory="256Gi", pods="110").build())
    for number in range(pods):
        labels = {f"l{place}": f"v{(number + place) % 3}" for place in range(8)} | {"app": f"a{number % 50}"}
        driver.put(b.pod(f"p{number}").label(labels).request(cpu="100m").on(f"n{number % nodes:05}").build())
    driver.put(b.pod("first").scheduler("default-scheduler").request(cpu="1").build())
    driver.settle()
    return driver


def _selector(place: int) -> str:
    return f"l{place % 8}=v{place % 3}" if place % 2 else f"app=a{place}"


def _spread(pod: b.PodBuilder, count: int, number: int, *, soft: bool) -> b.PodBuilder:
    for place in range(count):
        pod = pod.spread(KEYS[place % 8], _selector(place + number), max_skew=1_000, soft=soft)
    return pod


def _near(pod: b.PodBuilder, count: int) -> b.PodBuilder:
    for place in range(count):
        pod = pod.pod_affinity(KEYS[place % 8], f"l{place % 8} in (v0,v1,v2)")
    return pod


def _apart(pod: b.PodBuilder, count: int) -> b.PodBuilder:
    for place in range(count):
        pod = pod.pod_anti_affinity(KEYS[place % 8], f"app=none{place}")
    return pod


def _rather(pod: b.PodBuilder, count: int, number: int) -> b.PodBuilder:
    for place in range(count):
        pod = pod.prefer_pod_affinity(1 + place, KEYS[place % 8], _selector(place + number))
    return pod


_Demands = Callable[[b.PodBuilder, int], b.PodBuilder]

DEMANDS: dict[str, _Demands] = {
    "hard constraints": lambda pod, number: _spread(pod, TERMS, number, soft=False),
    "soft constraints": lambda pod, number: _spread(pod, TERMS, number, soft=True),
    "preferred affinity": lambda pod, number: _rather(pod, TERMS, number),
    "affinity": lambda pod, _: _near(pod, TERMS),
    "anti-affinity": lambda pod, _: _apart(pod, TERMS),
    "all of these": lambda pod, number: _near(
        _apart(_spread(_spread(pod, 8, number, soft=False), 8, number, soft=True), 8), 8
    ),
}
"""Each with as many terms as are let in, over eight topology keys."""


def _demanding(number: int, demands: _Demands) -> b.PodBuilder:
    """Unlike every other one in its labels, and in the nodes that it prefers."""
    pod = b.pod(f"demanding-{number}").scheduler("default-scheduler").request(cpu="100m")
    pod = demands(pod.label({"app": f"x{number}", "l1": "v1"}), number)
    for place in range(TERMS):
        pod = pod.prefer_node(1 + place, f"{KEYS[place % 8]} in (v{place},v{number})")
    return pod


def _attempt(driver: Driver, pods: list[b.PodBuilder]) -> list[float]:
    """Milliseconds of each turn of the attempt that comes next."""
    driver.put(*(pod.build() for pod in pods))
    limits, turns = Limits(), list[float]()
    gc.collect()
    gc.disable()
    try:
        while True:
            growth = min(limits.attempt_growth, 1 + len(turns) // PAUSES_PER_GROWTH)
            began = thread_time()
            try:
                decision = driver.core.attempt(driver.now, limits.attempt_steps * growth)
                turns.append((thread_time() - began) * 1e3)
                break
            except Paused:
                turns.append((thread_time() - began) * 1e3)
    finally:
        gc.enable()
    assert decision is not None, "somebody was waiting"
    return turns


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:])), indent=2))

"""The scheduling queue: cycles per second, and what an event costs.

    tidelog bench queue            or            .venv/bin/python benchmarks/queue.py

- *cycles*: add + pop + done of a pod, with a queue that is kept short, and with all pods added before the first is popped;
- *failing cycles*: add + pop + fail + an event that wakes everybody + pop + done;
- *events*: one event against pools of 100, 10,000 and 100,000 waiting pods, of which k are concerned. The figure must grow
  with k and not with the pool;
- *in flight*: fail of one of many pods in flight, after many events that do not concern it.

Pods are made beforehand: what is timed is the queue, in CPU time. Each figure is the best of a few rounds.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

if __name__ == "__main__":
    # Started as a script, this file's folder comes first on the path, and this file is called like a standard module.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from tidelog.api.objects import Node, ObjectMeta, Pod, PodSpec
from tidelog.api.times import NANOS
from tidelog.framework.events import (
    WILDCARD,
    Action,
    ClusterEvent,
    EventRegistration,
    Hint,
    Resource,
    WaitingPod,
)
from tidelog.framework.interface import Plugin
from tidelog.plugins.priority_sort import PrioritySort
from tidelog.queue.scheduling_queue import SchedulingQueue

PROFILE = "default-scheduler"
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
POD_DELETE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
ROUNDS = 3


class Rejecter(Plugin):
    """Registers one event, with a hint that looks at the object and says no, so that the pool stays as it is."""

    def __init__(self, name: str, event: ClusterEvent) -> None:
        self.name = name  # type: ignore[misc]
        self._event = event

    def events_to_register(self) -> list[EventRegistration]:
        return [EventRegistration(self._event, self._hint)]

    def _hint(self, waiting: WaitingPod, _old: Any, new: Any) -> Hint:
        return Hint.QUEUE if new is not None and new.metadata.name == waiting.pod.metadata.name else Hint.SKIP


def new_queue() -> SchedulingQueue:
    plugins = [Rejecter("Big", POD_DELETE), Rejecter("Few", NODE_ADD), Rejecter("None", NODE_LABEL)]
    return SchedulingQueue({PROFILE: plugins}, PrioritySort(None, None))  # type: ignore[arg-type]


def make_pods(count: int) -> list[Pod]:
    return [
        Pod(
            metadata=ObjectMeta(name=f"pod-{i}", namespace="default", uid=f"uid-{i}"),
            spec=PodSpec(scheduler_name=PROFILE, priority=i % 7),
        )
        for i in range(count)
    ]


def best(measure: Callable[[], float]) -> float:
    """The shortest of a few rounds, garbage of one not being collected in the next."""
    times = []
    for _ in range(ROUNDS):
        gc.collect()
        times.append(measure())
    return min(times)


def short_cycles(pods: list[Pod]) -> float:
    """Seconds for all pods, each popped and done right after it was added to a queue of a hundred others."""
    queue = new_queue()
    for now, pod in enumerate(pods[:100]):
        queue.add(pod, now)
    began = process_time()
    for now, pod in enumerate(pods[100:], 100):
        queue.add(pod, now)
        popped = queue.pop(now, now)
        queue.done(popped.uid)
    return (process_time() - began) * len(pods) / (len(pods) - 100)


def long_cycles(pods: list[Pod]) -> float:
    """Seconds for all pods, added before the first is popped, with a hundred in flight at a time."""
    queue = new_queue()
    in_flight: list[str] = []
    began = process_time()
    for now, pod in enumerate(pods):
        queue.add(pod, now)
    while (entity := queue.pop(0, len(pods))) is not None:
        in_flight.append(entity.uid)
        if len(in_flight) == 100:
            for uid in in_flight:
                queue.done(uid)
            in_flight.clear()
    return process_time() - began


def failing_cycles(pods: list[Pod]) -> float:
    """Seconds for all pods, each rejected once, woken once, and then done."""
    queue = new_queue()
    began = process_time()
    for now, pod in enumerate(pods):
        queue.add(pod, now)
    while (entity := queue.pop(0, len(pods))) is not None:
        queue.fail(entity.uid, ("Big",), now=len(pods))
    later = len(pods) + 60 * NANOS
    queue.on_event(WILDCARD, None, None, 1, later)
    while (entity := queue.pop(1, later)) is not None:
        queue.done(entity.uid)
    return process_time() - began


def event_costs(size: int, concerned: tuple[int, ...]) -> dict[str, float]:
    """Microseconds for one event, by the number of pods that it concerns."""
    pods = make_pods(size)
    return {str(count): event_cost(pods, count) for count in concerned if count <= size}


def event_cost(pods: list[Pod], concerned: int) -> float:
    """Microseconds for one event that concerns so many of the waiting pods."""
    queue = new_queue()
    for now, pod in enumerate(pods):
        queue.add(pod, now)
    number = 0
    while (entity := queue.pop(0, len(pods))) is not None:
        queue.fail(entity.uid, ("Few",) if number < concerned else ("Big",), now=len(pods))
        number += 1
    node = Node(metadata=ObjectMeta(name="node"))
    repeats = max(10, min(2000, 20_000 // (concerned + 1)))
    event = NODE_ADD if concerned else NODE_LABEL

    def measure() -> float:
        began = process_time()
        for seq in range(repeats):
            queue.on_event(event, None, node, seq, len(pods))
        return process_time() - began

    return round(best(measure) / repeats * 1e6, 3)


def in_flight_costs(flying: int) -> dict[str, float]:
    """Microseconds to fail one of many pods in flight after as many events, none of which concern it."""
    pods = make_pods(flying)

    def measure() -> float:
        queue = new_queue()
        for now, pod in enumerate(pods):
            queue.add(pod, now)
        while queue.pop(0, flying) is not None:
            pass
        for seq, pod in enumerate(pods):
            queue.on_event(POD_DELETE, pod, None, seq, flying)
        began = process_time()
        for pod in pods:
            queue.fail(pod.metadata.uid, ("Few",), now=flying)
        return process_time() - began

    return {"pods_and_events": flying, "fail_us": round(best(measure) / flying * 1e6, 3)}


def run(
    pods: int = 100_000, pool_sizes: tuple[int, ...] = (100, 10_000, 100_000), **_: Any
) -> dict[str, Any]:
    """All figures, as they are printed."""
    made = make_pods(pods)
    cycles = {
        name: round(pods / best(lambda measure=measure: measure(made)))  # type: ignore[misc]
        for name, measure in (
            ("short_queue", short_cycles),
            ("all_added_first", long_cycles),
            ("rejected_once", failing_cycles),
        )
    }
    sizes = (0, 1, 10, 100, 1000)
    return {
        "benchmark": "queue",
        "pods": pods,
        "cycles_per_second": cycles,
        "event_us_by_pool_and_concerned": {str(size): event_costs(size, sizes) for size in pool_sizes},
        "in_flight": [in_flight_costs(flying) for flying in (100, 1_000, 10_000)],
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))

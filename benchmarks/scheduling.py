"""Scheduling: pods per second, from the first fact to the last durable outcome.

    tidelog bench SchedulingBasic --nodes 5000 --pods 10000        (any name of `benchmarks/_workloads.py`)
    tidelog bench scheduling                                       SchedulingBasic
    .venv/bin/python benchmarks/scheduling.py [--core] WORKLOAD [NODES [PODS]]

End to end: a scheduler as `tidelog run` has it, on a log file in the directory for temporary files. Facts are admitted in requests of
250 objects, four at a time, as an importer of a cluster sends them; each outcome is durable before it counts. With `--core` only the
core works, on records in memory, synchronously: what is left when the disk, the loop, admission and the shell cost nothing.

`attempt_p50_ms` and `attempt_p99_ms` are the times of single attempts, from the pop to the decision.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Started as a script, this file's folder comes first on the path, and some files in it are called like standard modules.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from msgspec.structs import replace

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object, Pod, PriorityClass
from tidelog.benchmarks._workloads import WORKLOADS, Story, pods_of
from tidelog.configuration.configuration import default_configuration
from tidelog.daemon.process.runtime import Watcher
from tidelog.daemon.process.scheduler import Scheduler
from tidelog.eventlog.address import LogAddress, is_database
from tidelog.eventlog.records import Body, Record, Scheduled
from tidelog.replay.driver import Driver
from tidelog.scheduler.core import Core
from tidelog.scheduler.decision import Decision

REQUEST = 250
"""Objects in one request; arbitrary."""
REQUESTS = 4
"""Requests under way at a time."""
_BEFORE = 2_000
"""Objects in a request before the clock starts."""


def run(
    workload: str = "SchedulingBasic", nodes: int | None = None, pods: int | None = None
) -> dict[str, Any]:
    """Its figures, end to end."""
    return measure(workload, nodes, pods)


def measure(
    workload: str,
    nodes: int | None = None,
    pods: int | None = None,
    *,
    core_only: bool = False,
) -> dict[str, Any]:
    """As `run`, or of the core alone."""
    if not core_only:
        return asyncio.run(measured(workload, nodes, pods))
    sizes, story = _sized(workload, nodes, pods)
    return {**sizes, **_core(story)}


async def measured(
    workload: str, nodes: int | None = None, pods: int | None = None, *, log: LogAddress | None = None
) -> dict[str, Any]:
    """As `run`, from within a loop. The log is left at `log`, if one is given."""
    sizes, story = _sized(workload, nodes, pods)
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        return {**sizes, **await _end_to_end(story, log or Path(folder) / "cluster.db")}


def _sized(workload: str, nodes: int | None, pods: int | None) -> tuple[dict[str, Any], Story]:
    found = WORKLOADS[workload]
    nodes, pods = nodes or found.nodes, pods or found.pods
    return {"workload": workload, "nodes": nodes, "pods": pods}, found.build(nodes, pods)


# --- end to end -------------------------------------------------------------------------------------------------------------


class _Meter(Watcher):
    """Notes when what became durable."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.attempts: list[int] = []
        self.placed: list[float] = []
        """When each binding was durable."""
        self._shown = 0.0

    def attempted(self, _core: Core, _decision: Decision, nanos: int) -> None:
        self.attempts.append(nanos)

    def committed(self, decisions: Sequence[Decision]) -> None:
        now = time.perf_counter()
        for decision in decisions:
            for _, body in decision.outcomes:
                if isinstance(body, Scheduled):
                    self.placed.append(now)
        if now - self._shown > 0.2 and sys.stderr.isatty():
            self._shown = now
            done = min(1.0, len(self.placed) / max(1, self.total))
            sys.stderr.write(f"\r[{'#' * round(40 * done):40}] {len(self.placed):,} placed ")
            sys.stderr.flush()

    def consumed(self, record: Record, body: Body) -> None:
        """Nothing to note."""

    def end(self) -> None:
        """Take the bar away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")


async def _end_to_end(story: Story, path: LogAddress) -> dict[str, Any]:
    meter = _Meter(pods_of(story.measured))
    async with Scheduler.open(path, watcher=meter, gates=story.gates) as scheduler:
        for chunk in _chunks(story.setup, _BEFORE):
            await scheduler.apply(chunk)
        await scheduler.settled()
        size, head = _size(path), scheduler.runtime.log.head.seq
        meter.attempts.clear()
        meter.placed.clear()
        gc.collect()
        cpu, began = time.process_time(), time.perf_counter()
        await _put(scheduler, story)
        await scheduler.settled()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        meter.end()
        new = pods_of(story.measured)
        return {
            "pods_per_second": round(new / seconds, 1),
            "seconds": round(seconds, 3),
            **_latency(meter.attempts),
            "cpu_seconds": round(cpu, 3),
            "peak_rss_mib": _peak_rss(),
            "log_bytes_per_pod": round((_size(path) - size) / new),
            "records_per_pod": round((scheduler.runtime.log.head.seq - head) / new, 2),
            "placed": len(meter.placed),
            "attempts": len(meter.attempts),
            "samples": _samples(meter.placed, began),
        }


async def _put(scheduler: Scheduler, story: Story) -> None:
    """The measured objects, in order, some requests ahead of their answers, and what happens beside them."""
    room = asyncio.Semaphore(REQUESTS)

    async def send(objects: Sequence[Object], gone: Sequence[Object] = ()) -> None:
        try:
            if gone:
                await scheduler.delete(gone, grace_period_seconds=0)
            if objects:
                await scheduler.apply(objects)
        finally:
            room.release()

    beside: dict[str, asyncio.Task[None]] = {}
    async with asyncio.TaskGroup() as group:
        for gone, objects, is_beside in _steps(story, REQUEST):
            keys = [object_key(one) for one in (*gone, *objects)] if is_beside else ()
            for earlier in dict.fromkeys(beside[key] for key in keys if key in beside):
                await earlier  # The same things come and go in turn.
            await room.acquire()
            sent = group.create_task(send(objects, gone))
            beside.update(dict.fromkeys(keys, sent))


def _steps(story: Story, most: int) -> Iterator[tuple[Sequence[Object], Sequence[Object], bool]]:
    """(what goes, what comes, whether that is beside the measured objects), in order."""
    background = story.background
    if background is None:
        yield from (((), chunk, False) for chunk in _chunks(story.measured, most))
        return
    for n, part in enumerate(_chunks(story.measured, background.every)):
        yield from (((), chunk, False) for chunk in _chunks(part, most))
        yield (*background.step(n), True)


def _chunks(objects: Sequence[Object], size: int) -> Iterator[Sequence[Object]]:
    return (objects[i : i + size] for i in range(0, len(objects), size))


def _size(path: LogAddress) -> int:
    """Of a file with what belongs to it; a database has its own accounts."""
    if is_database(path):
        return 0
    path = Path(path)
    return sum(part.stat().st_size for part in path.parent.glob(path.name + "*"))


# --- the core alone ---------------------------------------------------------------------------------------------------------


def _core(story: Story) -> dict[str, Any]:
    driver = Driver()
    driver.start(default_configuration(driver.registry, story.gates))
    admitted = _Admission()
    driver.put(*map(admitted, story.setup))
    driver.settle(limit=len(story.setup) + 1)
    attempts: list[int] = []
    known, head = len(driver.placements()), len(driver.records)
    gc.collect()
    cpu, began = time.process_time(), time.perf_counter()
    for gone, objects, _ in _steps(story, REQUEST):
        for one in gone:
            if object_key(one) in driver.core.objects:
                driver.delete(one)
        driver.put(*map(admitted, objects))
        while True:
            at = time.perf_counter_ns()
            if driver.attempt() is None:
                break
            attempts.append(time.perf_counter_ns() - at)
            driver.commit()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    new = sum(isinstance(one, Pod) for one in story.measured)
    return {
        "pods_per_second": round(new / seconds, 1),
        "seconds": round(seconds, 3),
        **_latency(attempts),
        "cpu_seconds": round(cpu, 3),
        "peak_rss_mib": _peak_rss(),
        "records_per_pod": round((len(driver.records) - head) / new, 2),
        "placed": len(driver.placements()) - known,
        "attempts": len(attempts),
    }


class _Admission:
    """Do what the core relies on admission for."""

    def __init__(self) -> None:
        self._priorities: dict[str, int] = {}

    def __call__(self, obj: Object) -> Object:
        if isinstance(obj, PriorityClass):
            self._priorities[obj.metadata.name] = obj.value
        elif isinstance(obj, Pod):
            meta = obj.metadata
            obj = replace(obj, metadata=replace(meta, uid=f"{meta.namespace}/{meta.name}"))
            if obj.spec.priority_class_name:
                priority = self._priorities[obj.spec.priority_class_name]
                return replace(obj, spec=replace(obj.spec, priority=priority))
        return obj


# --- figures ----------------------------------------------------------------------------------------------------------------


def _latency(nanos: Sequence[int]) -> dict[str, float]:
    ordered = sorted(nanos) or [0]

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6, 4)

    return {"attempt_p50_ms": at(0.5), "attempt_p99_ms": at(0.99)}


def _samples(times: Sequence[float], began: float) -> list[int]:
    """Bindings that became durable in each second."""
    counts: dict[int, int] = {}
    for moment in times:
        second = int(moment - began)
        counts[second] = counts.get(second, 0) + 1
    return [counts.get(second, 0) for second in range(max(counts, default=-1) + 1)]


def _peak_rss() -> float:
    """Of the whole process, the setup included."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def main(arguments: list[str]) -> None:
    """Run as a script."""
    flags = {word for word in arguments if word.startswith("-")}
    workload, *sizes = [word for word in arguments if word not in flags] or ["SchedulingBasic"]
    nodes, pods = [*map(int, sizes), None, None][:2]
    print(json.dumps(measure(workload, nodes, pods, core_only="--core" in flags)))


if __name__ == "__main__":
    main(sys.argv[1:])

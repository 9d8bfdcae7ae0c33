"""The event log: appends per second with acknowledgement, reading, verifying, and how far behind a tail is.

    tidelog bench log            or            .venv/bin/python benchmarks/log.py

- *append*: 1, 32 and 1,000 concurrent callers, each with one record at a time, a pod and its binding in turn; every record
  is answered only when it is durable (WAL and head file fsynced) in a log file in the directory for temporary files. The
  processor time beside the rate tells a slow disk or a busy machine from slow code;
- *read*: all records back, each checked against the chain; *decode*: their bodies to typed structs, from memory;
- *verify*: the whole chain against the head; with *rebuild*, every body decoded and the objects computed as well;
- *tail*: from the moment at which a record is numbered (before its commit) until a reader has it, in the same process and
  in another one, at some 200 records a second.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Started as a script, this file's folder comes first on the path, and some files in it are called like standard modules.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import (
    Container,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Toleration,
)
from tidelog.eventlog.log import Log, open_log
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Draft, ObjectPut, Record, Scheduled, Tick, decode_body
from tidelog.eventlog.verify import verify

CALLERS = (1, 32, 1_000)
TAIL_SAMPLES = 300

_FOLLOWER = """
import asyncio, sys, time
from tidelog.eventlog.reader import open_reader

async def main(path, first, count):
    async with open_reader(path) as reader:
        print("ready", flush=True)
        lags = []
        async for record in reader.tail(first):
            lags.append(time.time_ns() - record.at)
            if len(lags) == count:
                break
    print(*lags)

asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


def sample_drafts(number: int) -> tuple[Draft, Draft]:
    """A pod as a Deployment makes it, and its binding."""
    pod = Pod(
        metadata=ObjectMeta(
            name=f"web-7d4b9c6f5-{number:05}",
            namespace="default",
            uid=f"2f1c{number:08}",
            creation_timestamp="2026-01-01T00:00:00Z",
            labels={"app": "web", "pod-template-hash": "7d4b9c6f5"},
            owner_references=(
                OwnerReference(
                    api_version="apps/v1", kind="ReplicaSet", name="web-7d4b9c6f5", controller=True
                ),
            ),
        ),
        spec=PodSpec(
            scheduler_name="default-scheduler",
            containers=(
                Container(
                    name="web",
                    image="registry.example/web:1.27",
                    resources=ResourceRequirements(requests={"cpu": "100m", "memory": "128Mi"}),
                ),
            ),
            tolerations=(
                Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute"),
            ),
            priority=0,
        ),
        status=PodStatus(phase="Pending"),
    )
    bound = Scheduled(attempt=number, observed=number, at=number, epoch=1, node="node-1234", feasible=5_000)
    key = object_key(pod)
    put = Draft(body=ObjectPut(object=pod), author="cluster", key=key)
    return put, Draft(body=bound, author="scheduler", key=key)


async def append_rate(log: Log, callers: int, count: int) -> dict[str, float]:
    """Records per second of so many callers, and how long one of them waits."""
    drafts = [draft for number in range(1, 101) for draft in sample_drafts(number)]
    waits: list[float] = []

    async def caller(start: int) -> None:
        for turn in range(start, start + count // callers):
            began = time.perf_counter()
            await log.append((drafts[turn % len(drafts)],))
            waits.append(time.perf_counter() - began)

    began, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(caller(start) for start in range(callers)))
    seconds, used = time.perf_counter() - began, time.process_time() - used
    waits.sort()
    return {
        "callers": callers,
        "records_per_second": round(len(waits) / seconds),
        "cpu_us_per_record": round(used / len(waits) * 1e6, 1),
        "wait_p50_ms": round(waits[len(waits) // 2] * 1e3, 3),
        "wait_p99_ms": round(waits[len(waits) * 99 // 100] * 1e3, 3),
    }


async def timed(what: str, count: int, work: Callable[[], Awaitable[object]]) -> dict[str, Any]:
    """Records per second of work on so many records, and the processor time it takes."""
    began, used = time.perf_counter(), time.process_time()
    await work()
    seconds, used = time.perf_counter() - began, time.process_time() - used
    return {
        "work": what,
        "records": count,
        "records_per_second": round(count / seconds),
        "cpu_us_per_record": round(used / count * 1e6, 2),
    }


async def read_rates(path: str) -> list[dict[str, Any]]:
    """Reading, decoding and verifying, each from the file or, for decoding, from memory."""
    async with open_reader(path) as reader:
        count = reader.head.seq
        records: list[Record] = []

        async def read() -> None:
            async for batch in reader.read_batches():
                records.extend(batch)

        async def decode() -> None:
            for record in records:
                decode_body(record)

        return [
            await timed("read", count, read),
            await timed("decode", count, decode),
            await timed("verify", count, lambda: verify(reader)),
            await timed("verify and rebuild", count, lambda: verify(reader, rebuild=True)),
        ]


async def tail_lags(log: Log) -> dict[str, dict[str, float]]:
    """How far behind tails are, in this process and in another."""
    first = log.head.seq + 1
    arguments = (sys.executable, "-c", _FOLLOWER, log.name, str(first), str(TAIL_SAMPLES))
    other = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    assert other.stdout is not None
    await other.stdout.readline()
    lags: list[int] = []

    async def follow() -> None:
        async for record in log.tail(first):
            lags.append(time.time_ns() - record.at)
            if len(lags) == TAIL_SAMPLES:
                return

    following = asyncio.create_task(follow())
    rng = random.Random(0)
    for number in range(TAIL_SAMPLES):
        await log.append((Draft(body=Tick(), author="cluster", key=f"Pod/default/{number}"),))
        await asyncio.sleep(rng.uniform(0.002, 0.008))
    await following
    output, _ = await other.communicate()
    return {
        "same_process": _quantiles(lags),
        "other_process": _quantiles([int(lag) for lag in output.split()]),
    }


def _quantiles(lags: list[int]) -> dict[str, float]:
    lags = sorted(lags)
    return {
        "p50_ms": round(lags[len(lags) // 2] / 1e6, 3),
        "p99_ms": round(lags[len(lags) * 99 // 100] / 1e6, 3),
    }


async def measure(records: int) -> dict[str, Any]:
    """All figures; `records` is how many 1,000 callers append."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bench.db")
        async with open_log(path, what="tidelog bench log") as log:
            await log.take_over("bench")
            await append_rate(log, 32, 3_200)  # Files, threads and caches come to be.
            counts = (records // 100, records // 10, records)
            appends = [
                await append_rate(log, callers, max(count, callers))
                for callers, count in zip(CALLERS, counts, strict=True)
            ]
            lags = await tail_lags(log)
        reads = await read_rates(path)
        size = (await asyncio.to_thread(os.stat, path)).st_size
    return {
        "benchmark": "log",
        "append": appends,
        "read": reads,
        "tail_lag": lags,
        "bytes_per_record": round(size / reads[0]["records"]),
    }


def run(records: int = 100_000, **_: Any) -> dict[str, Any]:
    """All figures, as they are printed."""
    return asyncio.run(measure(records))


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))

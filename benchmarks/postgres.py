"""The log in PostgreSQL beside the one in a file, in one run: appends, SchedulingBasic end to end, and take-over.

    tidelog bench postgres --log postgresql://owner@db.example/scratch

- *append*: 1, 32 and 1,000 callers with one record at a time, answered when durable, the stores in turn (`tidelog bench log` tells more of the file);
- *scheduling*: `SchedulingBasic` from the first fact to the last decision on disk, in turn;
- *take-over*: from the end of a leader, clean or not, to a standby's lease, at the lease of the address. Of a clean one it is what the hand-over costs;
- *full load*: `SchedulingBasic` and 1,000 callers in turn, for so long, while a `tidelog run` stands by in a process of its own: how often that took over
  although the leader was at work, and how little of its lease the leader ever had left, as somebody sees it who looks twenty times a second.

It makes schemas `bench_…` in that database, and drops them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Started as a script, this file's folder comes first on the path, and some files in it are called like standard modules.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

import asyncpg

from tidelog.api.errors import LogError, LogLocked, UsageError
from tidelog.benchmarks.log import CALLERS, append_rate
from tidelog.benchmarks.scheduling import measured
from tidelog.daemon.process.process import Options, Process
from tidelog.eventlog import password
from tidelog.eventlog.address import LogAddress, is_database
from tidelog.eventlog.log import open_log
from tidelog.eventlog.postgres.address import parse_address
from tidelog.eventlog.postgres.schema import initialize
from tidelog.eventlog.postgres.store import PostgresStore
from tidelog.eventlog.postgres.watch import LeaseWatch

TURNS = 3
"""So often each store has its turn; the median is told."""

TAKE_OVERS = 20
LOAD_SECONDS = 60.0
LOOK_SECONDS = 0.05
POLL_SECONDS = 0.1
"""As a standby does (`tidelog.daemon.process.standby`)."""

_numbers = itertools.count(1)
_SPAWN = multiprocessing.get_context("spawn")


class _Scratch:
    """Schemas of their own in one database."""

    def __init__(self, log: str) -> None:
        self._log = log.partition("?")[0]
        self._options = [
            part for part in log.partition("?")[2].split("&") if part and not part.startswith("schema=")
        ]
        self._made: list[str] = []

    async def new(self, *options: str) -> str:
        schema = f"bench_{os.getpid()}_{next(_numbers)}"
        self._made.append(schema)
        url = self._log + "?" + "&".join([f"schema={schema}", *self._options, *options])
        await initialize(url)
        return url

    async def drop(self) -> None:
        connection = await asyncpg.connect(parse_address(self._log).dsn)
        for schema in self._made:
            await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        await connection.close()


async def _appends(address: LogAddress, records: int) -> dict[str, int]:
    async with open_log(address, what="tidelog bench") as log:
        await log.take_over("bench")
        await append_rate(log, 32, 640)  # Files, connections and caches come to be.
        found = {}
        for callers, count in zip(CALLERS, (records // 100, records // 10, records), strict=True):
            figures = await append_rate(log, callers, max(count, callers))
            found[str(callers)] = int(figures["records_per_second"])
    return found


async def _take_over(url: str, *, clean: bool) -> float:
    """Seconds from the end of the leader to the lease of one that polls for it."""
    leader = await PostgresStore.open(url, what="leader")
    watch = LeaseWatch(url, "standby")
    try:
        with_lease = asyncio.create_task(_polling(url, watch))
        await asyncio.sleep(POLL_SECONDS)
        began = time.perf_counter()
        if clean:
            await leader.close()
        else:  # Its process is gone: nobody renews, nobody lets go.
            leader.lease._renewals.cancel()
        taken = await with_lease
        seconds = time.perf_counter() - began
        await taken.close()
        return seconds
    finally:
        await leader.close()
        await watch.close()


async def _polling(url: str, watch: LeaseWatch) -> PostgresStore:
    while True:
        try:
            await watch.check_free()
            return await PostgresStore.open(url, what="standby")
        except LogLocked:
            await watch.wait(POLL_SECONDS)


async def _under_load(scratch: _Scratch, seconds: float, nodes: int, pods: int) -> dict[str, Any]:
    """Full load beside a standby, for at least so long."""
    rounds, take_overs, least = 0, 0, math.inf
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or rounds < 2:
        url = await scratch.new()
        ours, theirs = _SPAWN.Pipe()
        standby = _SPAWN.Process(target=_stand_by, args=(url, password.kept(), theirs), daemon=True)
        standby.start()
        try:
            if rounds % 2 == 0:
                await measured("SchedulingBasic", nodes, pods, log=url)
            else:
                async with open_log(url, what="tidelog bench") as log:
                    await log.take_over("bench")
                    await append_rate(log, 1_000, max(4 * pods, 1_000))
        except LogError as error:
            if "took it over" not in str(error):
                raise
            take_overs += 1
        ours.send("enough")
        least = min(least, await asyncio.to_thread(ours.recv))
        standby.kill()
        standby.join()
        rounds += 1
    return {
        "seconds": round(time.perf_counter() - began),
        "rounds": rounds,
        "take_overs": take_overs,
        "least_seconds_left": round(least, 2),
    }


def _stand_by(url: str, secret: str | None, pipe: Connection) -> None:
    """The process of a standby; tells in the end the least that it has seen left of a lease."""
    logging.disable()
    password.give(secret)
    asyncio.run(_standing_by(url, pipe))


async def _standing_by(url: str, pipe: Connection) -> None:
    watch = LeaseWatch(url, "tidelog bench")
    least = math.inf
    standby: asyncio.Task[None] | None = None
    while not pipe.poll():
        try:
            await watch.check_free()
        except LogLocked:
            assert watch.state is not None
            least = min(least, watch.state.seconds_left)
            # Not before, or it would lead.
            standby = standby or asyncio.create_task(Process(Options(log=url)).run())
        await asyncio.sleep(LOOK_SECONDS)
    pipe.send(least)


def _quantiles(seconds: list[float]) -> dict[str, float]:
    seconds = sorted(seconds)
    return {
        "p50_s": round(seconds[len(seconds) // 2], 2),
        "p99_s": round(seconds[min(len(seconds) - 1, len(seconds) * 99 // 100)], 2),
    }


async def measure(
    log: str, records: int, nodes: int, pods: int, take_overs: int, load_seconds: float
) -> dict[str, Any]:
    """All figures."""
    scratch = _Scratch(log)
    appends: dict[str, list[dict[str, int]]] = {"file": [], "postgres": []}
    scheduling: dict[str, list[float]] = {"file": [], "postgres": []}
    try:
        with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
            for turn in range(TURNS):
                for store in ("file", "postgres") if turn % 2 == 0 else ("postgres", "file"):
                    path = Path(folder) / f"{store}-{turn}"
                    appends[store].append(
                        await _appends(path if store == "file" else await scratch.new(), records)
                    )
                    where = path.with_suffix(".s") if store == "file" else await scratch.new()
                    figures = await measured("SchedulingBasic", nodes, pods, log=where)
                    scheduling[store].append(figures["pods_per_second"])
        clean = [await _take_over(await scratch.new(), clean=True) for _ in range(take_overs)]
        dead = [await _take_over(await scratch.new(), clean=False) for _ in range(take_overs)]
        loaded = await _under_load(scratch, load_seconds, nodes, pods)
    finally:
        await scratch.drop()
    middle = {
        store: {callers: int(statistics.median(turn[callers] for turn in turns)) for callers in turns[0]}
        for store, turns in appends.items()
    }
    pods_per_second = {store: round(statistics.median(turns), 1) for store, turns in scheduling.items()}
    return {
        "benchmark": "postgres",
        "appends_per_second_by_callers": middle,
        "scheduling_pods_per_second": pods_per_second,
        "scheduling_share": round(pods_per_second["postgres"] / pods_per_second["file"], 2),
        "lease_seconds": parse_address(log).lease_seconds,
        "take_over": {"clean": _quantiles(clean), "dead": _quantiles(dead)},
        "full_load": loaded,
    }


def run(
    log: str = "",
    records: int = 20_000,
    nodes: int = 5_000,
    pods: int = 5_000,
    take_overs: int = TAKE_OVERS,
    load_seconds: float = LOAD_SECONDS,
    **_: Any,
) -> dict[str, Any]:
    """All figures, as they are printed."""
    if not is_database(log):
        raise UsageError(
            "tidelog bench postgres: name a database for its scratch logs: --log postgresql://owner@host/scratch"
        )
    return asyncio.run(measure(log, records, nodes, pods, take_overs, load_seconds))


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1]), indent=2))

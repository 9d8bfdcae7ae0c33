"""A day of churn under retention: does the file stay small, do decisions stop, and is everything that lives still explained?

    .venv/bin/python tools/retention_day.py [--keep 100000] [--pods 100000] [--live 2000] [--nodes 200] [-o json]        make retention

A scheduler with `--keep` works on a file, on a clock of its own: 24 hours go by in waves, in which pods come and go, nodes are cordoned and left alone again,
and some pods fit nowhere for a while. Reported: the records written and kept, the size of the file at its largest after the first compaction, how long one callback of the event loop
took the processor at most (a decision waits for no more than that), and then, on the file that is left: `log verify`, `replay verify`, and `why` of pods that live.
Exit code 1 if anything of it does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidelog.api.times import NANOS
from tidelog.daemon.process.retention import read_retention
from tidelog.daemon.process.runtime import Limits
from tidelog.daemon.process.scheduler import Scheduler
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.verify import verify
from tidelog.replay.history import open_history
from tidelog.testing import builders as b
from tidelog.testing.virtual_time import VirtualClock

DAY_SECONDS = 86_400
PAUSE_MAX = 0.1
"""Seconds."""
NOTED_SECONDS = 0.01
"""Callbacks that take the processor for longer are told."""
ASKED = 200
"""So many living pods are asked why."""


class Longest:
    """The callback of the event loop that took the processor longest."""

    def __init__(self) -> None:
        self.cpu = 0.0
        self.wall = 0.0
        self.collecting = 0.0
        self.collection = 0.0
        """The longest collection of garbage, which is within a callback."""
        self.many = 0
        """How many took more than half of what is allowed."""
        self.most: list[tuple[float, str]] = []
        """The longest, and where they came from and got to."""


@contextmanager
def timed_callbacks() -> Iterator[Longest]:
    """Time every callback."""
    found, run = Longest(), asyncio.Handle._run

    def timed(handle: Any) -> None:
        task = getattr(handle._callback, "__self__", None)
        begin = place_of(task) if isinstance(task, asyncio.Task) else ""
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            run(handle)
        finally:
            spent = time.thread_time() - cpu
            found.wall = max(found.wall, time.perf_counter() - wall)
            found.many += spent > PAUSE_MAX / 2
            found.cpu = max(found.cpu, spent)
            if spent > NOTED_SECONDS:
                name = task.get_name() if isinstance(task, asyncio.Task) else str(handle._callback)
                end = place_of(task) if isinstance(task, asyncio.Task) else ""
                found.most = sorted([*found.most, (spent, f"{name}: {begin} to {end}")], reverse=True)[:8]

    def collected(phase: str, _info: dict[str, int]) -> None:
        now = time.thread_time()
        if phase == "start":
            found.collecting = now
        else:
            found.collection = max(found.collection, now - found.collecting)

    # As the daemon does when it begins to lead.
    gc.freeze()
    gc.callbacks.append(collected)
    asyncio.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield found
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]
        gc.callbacks.remove(collected)
        gc.unfreeze()


async def churn(path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """The day; the figures of it."""
    dice, clock = random.Random(args.seed), VirtualClock()
    limits = Limits(keep=read_retention(args.keep), snapshot_every=args.snapshot_every)
    sizes: list[tuple[int, int]] = []
    live: list[str] = []
    made = 0
    wave = max(args.live // 20, 1)
    waves = max(args.pods // wave, 1)
    async with Scheduler.open(path, limits=limits, clock=clock) as scheduler:
        log = scheduler.runtime.log
        await scheduler.apply([node(number).build() for number in range(args.nodes)])
        with timed_callbacks() as longest:
            for number in range(waves):
                pods = [pod(made + place, dice).build() for place in range(wave)]
                made += wave
                await scheduler.apply(pods)
                live += [f"Pod/default/{found.metadata.name}" for found in pods]
                if number % 7 == 0:
                    chosen = node(dice.randrange(args.nodes))
                    await scheduler.apply([(chosen.cordon() if number % 14 == 0 else chosen).build()])
                await scheduler.settled()
                if len(live) > args.live:
                    dice.shuffle(live)
                    gone, live = live[args.live :], live[: args.live]
                    await scheduler.delete(gone, grace_period_seconds=0)
                await clock.advance(DAY_SECONDS * NANOS // waves, scheduler.settled)
                sizes.append((log.anchor.seq, size_of(path)))
                if number % max(waves // 24, 1) == 0:
                    told = f"{24 * number // waves:2} h: {log.head.seq:,} records, {log.head.seq - log.anchor.seq:,} kept, {sizes[-1][1]:,} bytes"
                    print(
                        f"{told}, longest callback {longest.cpu * 1000:.0f} ms of CPU",
                        file=sys.stderr,
                        flush=True,
                    )
        await scheduler.settled()
        kept, written = log.head.seq - log.anchor.seq, log.head.seq
    after = [size for anchor, size in sizes if anchor]
    return {
        "pods": made,
        "records_written": written,
        "records_kept": kept,
        "bytes_max_before_first_compaction": max((size for anchor, size in sizes if not anchor), default=0),
        "bytes_max_after": max(after, default=0),
        "bytes_at_end": size_of(path),
        "longest_callback_cpu_ms": round(longest.cpu * 1000, 1),
        "longest_callbacks": [f"{spent * 1000:.0f} ms {what}" for spent, what in longest.most],
        "longest_collection_ms": round(longest.collection * 1000, 1),
        "callbacks_over_50_ms": longest.many,
        "longest_callback_wall_ms": round(longest.wall * 1000, 1),
        "live": live,
    }


def place_of(task: asyncio.Task[Any]) -> str:
    """The innermost function that the task waits in, and the line."""
    waiting: Any = task.get_coro()
    frame = None
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None) or frame
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
    return "its end" if frame is None else f"{frame.f_code.co_qualname}:{frame.f_lineno}"


def size_of(path: Path) -> int:
    """Of the database and its write-ahead log."""
    files = (path, path.with_name(path.name + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def node(number: int) -> b.NodeBuilder:
    """A node of the cluster."""
    return b.node(f"n{number}").label({b.ZONE: "abc"[number % 3]}).capacity(cpu="16", memory="64Gi", pods=110)


def pod(number: int, dice: random.Random) -> b.PodBuilder:
    """A pod; one in fifty fits nowhere."""
    cpu = "20" if dice.random() < 0.02 else f"{dice.choice((100, 250, 500))}m"
    return b.pod(f"p{number}").label(app=f"a{number % 20}").request(cpu=cpu, memory="128Mi")


async def checked(path: Path, live: list[str], dice: random.Random) -> dict[str, Any]:
    """The verdicts of the log that is left on itself."""
    async with open_reader(path) as log:
        found = await verify(log)
        chain = found.head.seq == log.head.seq
    unexplained = 0
    async with open_history(path) as history:
        report = await history.verify()
        for key in dice.sample(live, min(ASKED, len(live))):
            try:
                why = await history.why(key)
            except Exception as error:
                print(f"{key}: {error}", file=sys.stderr)
                unexplained += 1
                continue
            unexplained += not (why.node or why.help or why.waits)
    return {
        "chain_ok": chain,
        "outcomes": report.outcomes,
        "outcomes_identical": report.identical,
        "asked_why": min(ASKED, len(live)),
        "unexplained": unexplained,
    }


def main() -> int:
    """Run it, print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keep", default="100000")
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--live", type=int, default=2_000)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--snapshot-every", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.db"
        figures = asyncio.run(churn(path, args))
        live = figures.pop("live")
        figures |= asyncio.run(checked(path, live, random.Random(args.seed)))
    problems = [
        problem
        for problem, is_so in {
            "the file grew after the first compaction": figures["bytes_max_after"]
            > 2 * figures["bytes_max_before_first_compaction"],
            "nothing was dropped": figures["records_kept"] == figures["records_written"],
            "a callback held decisions up": figures["longest_callback_cpu_ms"] > PAUSE_MAX * 1000,
            "the chain is broken": not figures["chain_ok"],
            "a decision differs": figures["outcomes"] != figures["outcomes_identical"],
            "a living pod is not explained": bool(figures["unexplained"]),
        }.items()
        if is_so
    ]
    figures["problems"] = problems
    if args.output == "json":
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:<34} {value}" for name, value in figures.items()))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

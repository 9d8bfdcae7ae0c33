"""A soak: a real daemon under steady churn for as long as one likes, and whether it grows or slows down.

    .venv/bin/python tools/soak.py [--minutes 10] [--facts 0] [--rate 200] [--nodes 60] [--pods 1200] [--seed 0] [-o json]        make soak MINUTES=10

`tidelog run` works on a new log file while facts come over its socket at the given rate: deployments of all kinds come and are deleted,
nodes leave and join, are cordoned and tainted, gangs, gated pods, pods that fit nowhere and pods that preempt within budgets. The size of
the cluster stays what it is, so memory and latency must, too. At the end the daemon is stopped, and its log is verified by replay.

Reported: the slope of the daemon's memory after a warm-up (a third of the time, at least until what it keeps of recent records is full,
as far as the time allows), how the latency of an append drifts between the first and the last quarter after it, and the gauges that
must be back at nothing. Exit code 1 if the log does not verify or the daemon ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object
from tidelog.daemon.intake.messages import Apply, Delete, Facts, read_answer, write_request
from tidelog.eventlog.socket import HandoverClient, NoWriter, connect
from tidelog.testing import builders as b

TIDELOG = str(Path(sys.executable).with_name("tidelog"))
ACTORS = "nodeAgent:\n  startSeconds: 0.1\ndisruptionController:\n"
PATIENCE_SECONDS = 600
"""So long the daemon may take to get ready, to answer, to come to rest, and to stop: as slow as a machine may be."""
IN_FLIGHT = 16
"""So many requests are under way at most. A daemon that cannot keep up makes the rate fall, and the figures say so."""


class Sample(NamedTuple):
    """The daemon at one moment."""

    at: float
    """Seconds since the facts began to flow."""
    rss_mib: float
    attempts: float
    p50_ms: float
    p99_ms: float
    """Of the appends since the sample before, as their sender saw them."""


class Churn:
    """An endless story of facts about a cluster that stays as large as it is."""

    def __init__(self, nodes: int, pods: int, seed: int) -> None:
        self._dice = random.Random(seed)
        self._nodes = nodes
        self._pods = pods
        self._number = 0
        self._deployments: list[list[str]] = []
        """The keys of what was put together and will go together, oldest first."""
        self._alive = 0

    def beginning(self) -> list[Object]:
        """Return the objects that are there before anything happens."""
        classes: list[Object] = [b.priority_class("high", 1000), b.priority_class("low", 0)]
        guard = b.pdb("guarded", "app=guarded", min_available=2)
        return [*classes, guard, *(self._node(i) for i in range(self._nodes))]

    def step(self) -> Facts:
        """Return the next objects."""
        dice = self._dice.random()
        if self._alive > self._pods:
            gone = self._deployments.pop(0)
            self._alive -= len(gone)
            return Delete(keys=gone, grace_period_seconds=0, ignore_not_found=True)
        if dice < 0.06:
            return Delete(keys=[f"Node//n{self._dice.randrange(self._nodes):03}"], ignore_not_found=True)
        if dice < 0.30:
            return Apply(objects=[self._node(i) for i in self._dice.sample(range(self._nodes), 3)])
        return self._deployment()

    def _node(self, i: int) -> Object:
        made = b.node(f"n{i:03}").label({b.ZONE: f"z{i % 3}", b.RACK: f"r{i % 12}"})
        made = made.capacity(cpu="8", memory="32Gi", pods="110")
        chance = self._dice.random()
        if chance < 0.05:
            made = made.cordon()
        elif chance < 0.10:
            made = made.taint("maintenance")
        return made.build()

    def _deployment(self) -> Apply:
        self._number += 1
        name = f"d{self._number}"
        size = self._dice.randint(3, 20)
        kind = self._dice.choice(
            ("plain", "plain", "spread", "apart", "gang", "gated", "huge", "high", "guarded")
        )
        like = (
            b.pod(name)
            .label(app="guarded" if kind == "guarded" else name)
            .scheduler("default-scheduler")
            .grace(0)
        )
        like = like.request(cpu=f"{self._dice.choice((50, 100, 200))}m", memory="128Mi")
        objects: list[Object] = []
        match kind:
            case "spread":
                like = like.spread(b.ZONE, max_skew=2)
            case "apart":
                like = like.pod_anti_affinity(b.HOSTNAME, f"app={name}")
            case "gang":
                objects.append(b.pod_group(name, min_count=size))
                like = like.group(name)
            case "gated":
                like = like.gate("example.com/hold")
            case "huge":
                like, size = like.request(cpu="100"), 2
            case "high":
                like, size = like.priority_class("high").request(cpu="6"), 1
            case "guarded":
                like = like.priority_class("low").guarded_below(2000)
        objects += [like.named(f"{name}-{i}").build() for i in range(size)]
        self._deployments.append([object_key(one) for one in objects])
        self._alive += len(objects)
        return Apply(objects=objects)


class Soak:
    """One run."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._log = folder / "soak.db"
        self._actors = folder / "actors.yaml"
        self._messages = folder / "messages.txt"
        self._seconds = options.minutes * 60
        self._churn = Churn(options.nodes, options.pods, options.seed)
        self._latencies: list[float] = []
        self._sent = 0
        self._refused = 0
        self._samples: list[Sample] = []
        self._address = ""

    def run(self) -> dict[str, Any]:
        """Its figures."""
        self._actors.write_text(ACTORS)
        with self._messages.open("w") as messages:
            daemon = subprocess.Popen(
                [
                    *(TIDELOG, "run", "--log", str(self._log), "--actors", str(self._actors)),
                    *("--listen", "127.0.0.1:0", "--log-format", "json"),
                ],
                stderr=messages,
            )
            try:
                self._address = self._wait_for_address(daemon)
                idle = asyncio.run(self._drive())
                daemon.send_signal(signal.SIGTERM)
                code = daemon.wait(PATIENCE_SECONDS)
            except* NoWriter as gone:
                code = daemon.wait(PATIENCE_SECONDS)
                raise SystemExit(
                    f"the daemon ended with {code}: {gone.exceptions[0]}\n{self._messages.read_text()[-2000:]}"
                ) from None
            finally:
                daemon.kill()
                daemon.wait()
        if code != 0:
            raise SystemExit(f"the daemon ended with {code}:\n{self._messages.read_text()[-2000:]}")
        return {**self._figures(), **idle, **self._verified()}

    def _wait_for_address(self, daemon: subprocess.Popen[bytes]) -> str:
        address = ""
        for _ in range(PATIENCE_SECONDS * 20):
            for line in self._messages.read_text().splitlines():
                event = json.loads(line)
                address = event.get("address", address)
                if event["message"] == "scheduling" and address:
                    return address
            if daemon.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"the daemon did not get ready:\n{self._messages.read_text()}")

    # --- what is sent -------------------------------------------------------------------------------------------------

    async def _drive(self) -> dict[str, Any]:
        clients = [await connect(self._log) for _ in range(IN_FLIGHT)]
        free: asyncio.Queue[HandoverClient] = asyncio.Queue()
        for client in clients:
            free.put_nowait(client)
        await self._send_with(await free.get(), free, Apply(objects=self._churn.beginning()))
        self._latencies.clear()
        began = time.monotonic()
        every = max(0.5, self._seconds / 120)
        async with asyncio.TaskGroup() as group:
            sampler = group.create_task(self._sample(began, every))
            while (now := time.monotonic() - began) < self._seconds or self._sent < self._options.facts:
                if self._sent > now * self._options.rate:
                    await asyncio.sleep(0.005)
                    continue
                facts = self._churn.step()
                self._sent += len(facts.objects if isinstance(facts, Apply) else facts.keys)
                client = await free.get()
                group.create_task(self._send_with(client, free, facts))
            sampler.cancel()
        await self._look(began)
        seconds = time.monotonic() - began
        for client in clients:
            await client.close()
        at_rest = await self._rested()
        return {
            "in_flight_events_at_rest": sum(at_rest.get("scheduler_inflight_events", [0])),
            "scheduled_after_flush": sum(at_rest.get("scheduler_pod_scheduled_after_flush_total", [0])),
            "facts_per_second": round(self._sent / seconds, 1),
        }

    async def _rested(self) -> dict[str, list[float]]:
        """The gauges when nothing comes any more and nothing is in flight, or would not cease to be."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            await asyncio.sleep(1)
            seen = await asyncio.to_thread(self._scrape)
            if not sum(seen.get("scheduler_inflight_events", [0])) or time.monotonic() > until:
                return seen

    async def _send_with(
        self, client: HandoverClient, free: asyncio.Queue[HandoverClient], facts: Facts
    ) -> None:
        at = time.perf_counter()
        try:
            read_answer(await client.request(write_request(facts)))
        except ValueError:
            self._refused += 1
        self._latencies.append(1000 * (time.perf_counter() - at))
        free.put_nowait(client)

    # --- what is measured ---------------------------------------------------------------------------------------------

    async def _sample(self, began: float, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            await self._look(began)

    async def _look(self, began: float) -> None:
        seen = await asyncio.to_thread(self._scrape)
        latencies, self._latencies = sorted(self._latencies) or [0.0], []
        sample = Sample(
            time.monotonic() - began,
            sum(seen["process_resident_memory_bytes"]) / 2**20,
            sum(seen.get("scheduler_schedule_attempts_total", [0])),
            latencies[len(latencies) // 2],
            latencies[int(0.99 * len(latencies))],
        )
        self._samples.append(sample)
        if sys.stderr.isatty():
            share = min(1.0, sample.at / self._seconds)
            sys.stderr.write(
                f"\r[{'#' * round(30 * share):30}] {sample.at:.0f} s, {sample.rss_mib:.0f} MiB, "
                f"p50/p99 {sample.p50_ms:.1f}/{sample.p99_ms:.1f} ms "
            )
            sys.stderr.flush()

    def _scrape(self) -> dict[str, list[float]]:
        with urllib.request.urlopen(f"http://{self._address}/metrics", timeout=PATIENCE_SECONDS) as answer:
            text = answer.read().decode()
        found: dict[str, list[float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample.value)
        return found

    def _figures(self) -> dict[str, Any]:
        warm = [sample for sample in self._samples if sample.at > self._seconds / 3]
        quarter = max(1, len(warm) // 4)
        first, last = warm[:quarter], warm[-quarter:]

        def drift(figure: str) -> float:
            before, after = (
                statistics.median(getattr(sample, figure) for sample in some) for some in (first, last)
            )
            return round(100 * (after / before - 1), 1) if before else 0.0

        return {
            "minutes": self._options.minutes,
            "facts": self._sent,
            "requests_refused": self._refused,
            "attempts": int(self._samples[-1].attempts),
            "rss_first_mib": round(warm[0].rss_mib, 1),
            "rss_last_mib": round(warm[-1].rss_mib, 1),
            "rss_slope_mib_per_hour": round(3600 * _slope([(s.at, s.rss_mib) for s in warm]), 2),
            "append_p50_ms": round(statistics.median(sample.p50_ms for sample in warm), 2),
            "append_p99_ms": round(statistics.median(sample.p99_ms for sample in warm), 2),
            "append_p50_drift_percent": drift("p50_ms"),
            "append_p99_drift_percent": drift("p99_ms"),
            "log_mib": round(os.path.getsize(self._log) / 2**20, 1),
        }

    def _verified(self) -> dict[str, Any]:
        done = subprocess.run(
            [TIDELOG, "replay", "verify", str(self._log), "-o", "json"],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise SystemExit(f"the log does not verify:\n{done.stdout}{done.stderr}")
        report = json.loads(done.stdout)
        return {"outcomes": report["outcomes"], "outcomes_identical": report["identical"]}


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line with the least squares."""
    if len(points) < 2:
        return 0.0
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument(
        "--facts", type=int, default=0, help="go on for at least so many, however long it takes (default: 0)"
    )
    parser.add_argument("--rate", type=float, default=200.0, help="facts a second (default: 200)")
    parser.add_argument("--nodes", type=int, default=60, help="default: 60")
    parser.add_argument(
        "--pods", type=int, default=1200, help="about so many are there at a time (default: 1200)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the story (default: 0)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelog-soak-") as folder:
        figures = Soak(options, Path(folder)).run()
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    if options.output == "json":
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value}")


if __name__ == "__main__":
    main()

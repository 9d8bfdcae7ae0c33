"""Metrics and the HTTP endpoints: what counting costs an attempt, and what a scrape costs the decision loop.

    tidelog bench metrics            or            .venv/bin/python benchmarks/metrics.py

- *recording*: nanoseconds for what is counted of each attempt, of its extension points, of a hint, of a commit;
- *scrape*: a page as a large cluster fills it (every plugin, extension point, event and hint has been seen): the copy on the
  event loop, and the text in another thread;
- *queue*: the walk over 100,000 waiting pods that the gauges need;
- *under load*: scrapes over HTTP while the event loop is busy in steps of a millisecond: how long a scrape takes, how
  long the loop's longest round takes with and without scrapes, and how much of its work it loses;
- *pod resources*: the same for the page of 150,000 pods (5,000 nodes with 30 pods each).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

if __name__ == "__main__":
    # Started as a script, this file's folder comes first on the path, and a neighbour is called like a standard module.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

from tidelog.api.objects import Pod
from tidelog.daemon.http.endpoints import Checks, HttpServer
from tidelog.daemon.metrics.metrics import Metrics, Scrape, Statistics
from tidelog.daemon.metrics.queue_recorder import QueueRecorder
from tidelog.framework.events import Action, ClusterEvent, Resource
from tidelog.framework.interface import Plugin
from tidelog.plugins.priority_sort import PrioritySort
from tidelog.queue.scheduling_queue import SchedulingQueue
from tidelog.testing.builders import pod

PROFILE = "default-scheduler"
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
POINTS = ("PreFilter", "Filter", "PreScore", "Score", "Reserve", "Permit", "PreBind", "Bind")
ALL_POINTS = (*POINTS, "PreEnqueue", "PostFilter", "Unreserve", "PostBind", "ScoreExtensionNormalize")
STATUSES = ("Success", "Unschedulable")
ROUNDS = 3


def best(measure: Callable[[], float]) -> float:
    """The shortest of a few rounds."""
    return min(measure() for _ in range(ROUNDS))


def cost(step: Callable[[], object], repeats: int = 100_000) -> int:
    """Nanoseconds for one step, with the call of it."""

    def measure() -> float:
        began = perf_counter_ns()
        for _ in range(repeats):
            step()
        return (perf_counter_ns() - began) / repeats

    return round(best(measure))


def recording() -> dict[str, int]:
    """Nanoseconds for each kind of recording."""
    of = Metrics(Statistics)
    points = [of.framework.extension_point_duration.labels(point, "Success", PROFILE) for point in POINTS]
    recorder = QueueRecorder(of.queue)
    queue = SchedulingQueue({PROFILE: [SORT]}, SORT)
    queue.add(pod("p").scheduler(PROFILE).build(), 0)
    entity = queue.get("default/p")
    assert entity is not None
    waits = of.queue.wait.labels("active")

    def attempt() -> None:
        recorder.entered(entity, NODE_ADD)
        waits.observe(2_000_000)
        of.attempts.finished(PROFILE, "scheduled", 1_200_000, 300_000)
        of.attempts.placed(1, 3_000_000)

    def extension_points() -> None:
        for point in points:
            point.observe(150_000)

    def hint() -> None:
        recorder.hint_answered(entity, "NodeResourcesFit", NODE_ADD, "Queue")

    recorder.begin()
    kinds = {"Scheduled": 100, "ObjectPut": 20}
    return {
        "attempt_ns": cost(attempt),
        "eight_extension_points_ns": cost(extension_points),
        "hint_ns": cost(hint),
        "commit_ns": cost(lambda: of.log.committed(kinds, 900_000)),
    }


SORT = PrioritySort(None, None)  # type: ignore[arg-type]


def filled(statistics: Callable[[], Statistics] = Statistics) -> Metrics:
    """Metrics as they are after a long time in a large cluster with three profiles."""
    profiles = [PROFILE, "batch", "gpu"]
    plugins = [f"PluginWithALongName{i}" for i in range(20)]
    events = [f"AssignedPodUpdatePodLabel{i}" for i in range(20)]
    of = Metrics(statistics, profiles)
    for attempts in range(1, 16):
        of.attempts.placed(attempts, 1)
    for status in STATUSES:
        for point in ALL_POINTS:
            for profile in profiles:
                of.framework.extension_point_duration.labels(point, status, profile).observe(1)
            for plugin in plugins[:8]:
                of.framework.plugin_duration.labels(plugin, point, status).observe(1)
    for event in events:
        of.queue.event_handling_duration.labels(event).observe(1)
        for queue in ("active", "backoff", "unschedulable"):
            of.queue.incoming_pods.labels(queue, event).inc()
            of.queue.incoming_entities.labels(queue, event, "pod").inc()
        for plugin in plugins[:6]:
            for hint in ("Queue", "QueueSkip"):
                of.queue.hint_duration.labels(plugin, event, hint).observe(1)
    return of


def scrape() -> dict[str, Any]:
    """Milliseconds for a page."""
    of = filled()
    text = of.read().text()

    def read() -> float:
        began = perf_counter()
        of.read()
        return perf_counter() - began

    taken = of.read()

    def write() -> float:
        began = perf_counter()
        taken.text()
        return perf_counter() - began

    return {
        "lines": text.count("\n"),
        "bytes": len(text),
        "read_ms": round(best(read) * 1e3, 3),
        "text_ms": round(best(write) * 1e3, 3),
    }


def queue_walk(waiting: int) -> dict[str, Any]:
    """Milliseconds for the queue's figures."""
    plugins: list[Plugin] = [SORT]
    queue = SchedulingQueue({PROFILE: plugins}, SORT)
    for number in range(waiting):
        queue.add(pod(f"p-{number}").uid(f"u{number}").scheduler(PROFILE).build(), 0)
    while (entity := queue.pop(0, 0)) is not None:
        queue.fail(entity.uid, ("NodeResourcesFit",), now=0)  # type: ignore[union-attr]

    def measure() -> float:
        began = perf_counter()
        queue.statistics()
        return perf_counter() - began

    return {"waiting_pods": waiting, "statistics_ms": round(best(measure) * 1e3, 2)}


class Busy:
    """The sources of the endpoints."""

    def __init__(self, pods: int) -> None:
        self._metrics = filled()
        base = pod("p").request(cpu="500m", memory="1Gi").limit(cpu=1, memory="2Gi").on("node-1234")
        self._pods = {f"pod-{i}": base.named(f"pod-{i}").build() for i in range(pods)}

    def metrics(self) -> Scrape:
        return self._metrics.read()

    def pods(self) -> Sequence[Pod]:
        return list(self._pods.values())

    def live(self) -> Checks:
        return {}

    def ready(self) -> Checks:
        return {}

    def configuration(self) -> object:
        return {}

    def status(self) -> Mapping[str, object]:
        return {}


def work() -> None:
    """A step of a millisecond, as a decision loop makes it between two turns of the event loop."""
    end = perf_counter() + 0.001
    while perf_counter() < end:
        pass


async def rounds(done: asyncio.Future[Any] | asyncio.Task[Any]) -> tuple[int, float]:
    """Rounds of the busy loop until then, and the longest in milliseconds."""
    count, longest = 0, 0.0
    while not done.done():
        began = perf_counter()
        work()
        await asyncio.sleep(0)
        longest = max(longest, perf_counter() - began)
        count += 1
    return count, longest * 1e3


CLIENT = """
import sys, time, urllib.request
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    with urllib.request.urlopen(sys.argv[1]) as reply:
        size = len(reply.read())
    print((time.perf_counter() - began) * 1e3, size)
"""


async def scrapes_of(url: str, count: int) -> list[tuple[float, int]]:
    """Milliseconds and bytes of one scrape after the other, by a process of its own as in real life."""
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, url, str(count), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await client.communicate()
    return [(float(ms), int(size)) for ms, size in (line.split() for line in printed.splitlines())]


async def under_load(path: str, pods: int, scrapes: int) -> dict[str, Any]:
    """One scrape after the other while the loop works; then as long without."""
    async with HttpServer("127.0.0.1:0", Busy(pods)) as server:
        url = f"http://{server.address}{path}"

        began = perf_counter()
        task = asyncio.create_task(scrapes_of(url, scrapes))
        busy_rounds, busy_longest = await rounds(task)
        seconds = perf_counter() - began
        quiet_rounds, quiet_longest = await rounds(asyncio.create_task(asyncio.sleep(seconds)))
    times = sorted(milliseconds for milliseconds, _ in task.result())
    return {
        "path": path,
        "bytes": task.result()[0][1],
        "scrapes": scrapes,
        "scrape_ms_median": round(times[len(times) // 2], 1),
        "scrape_ms_max": round(times[-1], 1),
        "longest_round_ms": round(busy_longest, 1),
        "longest_round_ms_without_scrapes": round(quiet_longest, 1),
        "work_lost": round(1 - busy_rounds / quiet_rounds, 3),
    }


def run(pods: int = 150_000, waiting: int = 100_000, **_: Any) -> dict[str, Any]:
    """All figures, as they are printed."""
    return {
        "benchmark": "metrics",
        "recording": recording(),
        "scrape": scrape(),
        "queue": queue_walk(waiting),
        "under_load": [
            asyncio.run(under_load("/metrics", 0, 50)),
            asyncio.run(under_load("/metrics/resources", pods, 1)),
        ],
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))

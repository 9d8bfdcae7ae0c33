"""The metrics of one daemon: what is recorded (`tidelog.daemon.metrics.catalogue`), and what is computed when somebody asks.

Gauges are never counted up and down, because such gauges drift: they are computed from the structures they measure, which a
function given to `Metrics` puts together as `Statistics` once for each scrape.

`Metrics.read()` runs on the event loop's thread and takes, beside that function, a fraction of a millisecond; `Scrape.text()`
runs in any thread.
prometheus-client's global registry is not touched; `Metrics` is a collector that a program can register in one of its own
(and must then collect on the event loop's thread). docs/metrics.md lists every metric; a test compares it with the code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import msgspec
from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric

from tidelog.daemon.metrics.catalogue import (
    AttemptMetrics,
    Catalogue,
    FrameworkMetrics,
    GroupMetrics,
    LogMetrics,
    PreemptionMetrics,
    QueueMetrics,
    add_unused,
)
from tidelog.daemon.metrics.cluster import ClusterStatistics, cluster_families
from tidelog.daemon.metrics.families import (
    Description,
    Family,
    Gauge,
    LabelValues,
    Reading,
    families,
    text_lines,
)
from tidelog.queue.statistics import QueueStatistics

PENDING_QUEUES = ("active", "backoff", "unschedulable", "gated", "incomplete", "pending")
ENTITY_QUEUES = ("active", "backoff", "unschedulable", "gated")
ENTITY_TYPES = ("pod", "podgroup")
CACHE_TYPES = ("nodes", "pods", "assumed_pods")
POD_POPPED = "PodPopped"
"""The in-flight "event" that stands for an attempt in flight."""
GATES_SHOWN = 100
"""Arbitrary. Who gates a pod may be named by users, so the number must be bounded: the rest is summed up under OTHER_GATES."""
OTHER_GATES = "(other)"


NO_QUEUE = QueueStatistics(
    pending_pods={},
    queued_entities={},
    unschedulable_pods={},
    inflight_events={},
    gated_pods={},
    oldest_attempt=None,
)


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the gauges at one moment."""

    queue: QueueStatistics = NO_QUEUE
    """The result of `SchedulingQueue.statistics()`."""
    cache_size: Mapping[str, int] = {}
    """Type of thing (CACHE_TYPES) → number in the cluster cache."""
    oldest_inflight_seconds: float = 0.0
    """The age of the oldest attempt in flight."""
    uncommitted_attempts: int = 0
    """Attempts that are decided and whose outcome is not yet in the log."""
    log_head_seq: int = 0
    """The seq of the last durable record."""
    log_bytes: int = 0
    """The log's size on disk, with its write-ahead log."""
    leader_silent_seconds: float = 0.0
    """For so long the leader that this standby follows has shown no sign of life."""
    lease_age_seconds: float = 0.0
    """Since the lease of a log in a database was renewed; 0 where this process does not lead one."""
    followers: int = 0
    """Standbys that follow the log in a database which this process leads."""
    epoch: int = 0
    """The newest epoch in the log."""
    ready: bool = False
    """The answer of /readyz."""


class Scrape(NamedTuple):
    """All values at one moment; nobody changes them any more."""

    readings: list[Reading]

    def text(self) -> str:
        """Prometheus' text format 0.0.4, with the process's own memory, CPU time and open files (on Linux)."""
        process = generate_latest(ProcessCollector(registry=None)).decode()
        return "".join(text_lines(self.readings)) + process


class Metrics:
    """All metrics of one daemon. `profiles` get their attempt series from the start, at zero."""

    def __init__(
        self, statistics: Callable[[], Statistics], profiles: Iterable[str] = ("default-scheduler",)
    ) -> None:
        self._statistics = statistics
        self._latest = Statistics()
        new = Catalogue()
        self.attempts = AttemptMetrics(new, profiles)
        self.framework = FrameworkMetrics(new)
        self.queue = QueueMetrics(new)
        self.preemption = PreemptionMetrics(new)
        self.groups = GroupMetrics(new)
        self.log = LogMetrics(new)
        add_unused(new)
        self.cluster: Callable[[], ClusterStatistics] = ClusterStatistics
        """Metrics of a live cluster, where there is one."""
        self._of_cluster = ClusterStatistics()
        self.families: tuple[Family, ...] = (
            *new.families,
            *_gauges(lambda: self._latest),
            *cluster_families(lambda: self._of_cluster),
        )

    @property
    def descriptions(self) -> list[Description]:
        """All families, in the order of the output."""
        return [family.description for family in self.families]

    def read(self) -> Scrape:
        """All values as they are now. To be called on the event loop's thread."""
        self._latest = self._statistics()
        self._of_cluster = self.cluster()
        return Scrape([family.read() for family in self.families])

    def collect(self) -> Iterator[Metric]:
        """For a registry of prometheus-client. To be called on the event loop's thread."""
        return families(self.read().readings)

    def describe(self) -> Iterator[Metric]:
        """For a registry of prometheus-client: the names, without values."""
        return families([Reading(family, []) for family in self.families])


def _gauges(now: Callable[[], Statistics]) -> Iterator[Gauge]:
    yield _gauge(
        "scheduler_pending_pods",
        "Pending pods by queue. `gated` and `unschedulable` are the two parts of the unschedulable pool; pods in flight are in none.",
        lambda: _by_one(now().queue.pending_pods),
        "queue",
        always=[(queue,) for queue in PENDING_QUEUES],
    )
    yield _gauge(
        "scheduler_queued_entities",
        "Pods and pod groups by queue, a group counted once.",
        lambda: _by_two(now().queue.queued_entities),
        "queue",
        "type",
        always=[(queue, type_) for queue in ENTITY_QUEUES for type_ in ENTITY_TYPES],
    )
    yield _gauge(
        "scheduler_unschedulable_pods",
        "Waiting pods for each plugin that rejected or gates them; a pod counts once for each, so a sum over plugins means nothing.",
        lambda: _by_two(now().queue.unschedulable_pods),
        "plugin",
        "profile",
    )
    yield _gauge(
        "scheduler_inflight_events",
        "Cluster events kept for attempts in flight; `PodPopped` counts those attempts. Zero whenever the scheduler is idle.",
        lambda: _by_one(now().queue.inflight_events),
        "event",
        always=[(POD_POPPED,)],
    )
    yield _gauge(
        "scheduler_cache_size",
        "Nodes, pods and assumed pods in the cluster cache.",
        lambda: _by_one(now().cache_size),
        "type",
        always=[(type_,) for type_ in CACHE_TYPES],
    )
    yield _gauge(
        "scheduler_goroutines",
        "Work under way. tidelog has no goroutines; `binding` counts attempts that are decided and not yet in the log.",
        lambda: {("binding",): now().uncommitted_attempts},
        "operation",
    )
    yield _gauge(
        "scheduler_pending_async_api_calls",
        "API calls waiting in the asynchronous dispatcher.",
        dict,
        "call_type",
        unused="a binding is a record; there are no API calls",
    )
    yield _gauge(
        "tidelog_gated_pods",
        f"Gated pods by what keeps them out: the {GATES_SHOWN} gates with most pods, and all others together as `{OTHER_GATES}`.",
        lambda: _most_used(now().queue.gated_pods),
        "gate",
        forget=True,
    )
    for field, text in _NUMBERS:
        yield _gauge(f"tidelog_{field}", text, partial(_number, now, field))


_NUMBERS = (
    ("oldest_inflight_seconds", "Age of the oldest attempt in flight; 0 when there is none."),
    ("log_head_seq", "Seq of the last durable record."),
    ("log_bytes", "Size of the log on disk, with its write-ahead log."),
    ("leader_silent_seconds", "For so long the leader that this standby follows has shown no sign of life."),
    ("lease_age_seconds",
     "Time since the lease of a log in PostgreSQL was renewed, which is done four times in its length; 0 on a standby, and for a file."),
    ("followers", "Standbys that follow the log in PostgreSQL which this process leads, seen in the last ten seconds."),
    ("epoch", "Newest epoch in the log."),
    ("ready", "1 when /readyz says that the daemon is ready."),
)  # fmt: skip
"""Field of the statistics, and help."""


def _number(now: Callable[[], Statistics], field: str) -> dict[LabelValues, float]:
    found: float = +getattr(now(), field)  # A truth value is 1 or 0.
    return {(): found}


def _gauge(
    name: str,
    help: str,
    compute: Callable[[], Mapping[LabelValues, float]],
    *labels: str,
    always: Iterable[LabelValues] = (),
    forget: bool = False,
    unused: str = "",
) -> Gauge:
    description = Description(name=name, kind="gauge", help=help, labels=labels, unused=unused)
    return Gauge(description, compute, always, forget)


def _by_one(values: Mapping[str, int]) -> dict[LabelValues, float]:
    return {(label,): value for label, value in values.items()}


def _by_two(values: Mapping[tuple[str, str], int]) -> dict[LabelValues, float]:
    return dict(values.items())


def _most_used(gates: Mapping[str, int]) -> dict[LabelValues, float]:
    """The gates with most pods, and the sum of the others."""
    ordered = sorted(gates.items(), key=lambda gate: (-gate[1], gate[0]))
    rows = _by_one(dict(ordered[:GATES_SHOWN]))
    if len(ordered) > GATES_SHOWN:
        rows[OTHER_GATES,] = sum(pods for _, pods in ordered[GATES_SHOWN:])
    return rows

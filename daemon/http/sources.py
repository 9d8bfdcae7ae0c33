"""The state of the process for the HTTP endpoints: its phase, and the runtime's state once there is one.

    recovering ──► standby ──► leading ──► stopping
                  (only while another process holds the log)

Everything here is asked on the event loop, between two steps of the runtime, and answers at once.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tidelog.api.errors import LogError
from tidelog.api.objects import Pod
from tidelog.api.text import age
from tidelog.api.times import NANOS, format_time
from tidelog.configuration.configuration import SchedulerConfiguration, configuration_file
from tidelog.daemon.http.endpoints import Checks
from tidelog.daemon.metrics.metrics import Metrics, Scrape, Statistics
from tidelog.daemon.process.runtime import Runtime
from tidelog.eventlog.log import Log
from tidelog.scheduler.core import Core


class LeaseWatched(Protocol):
    """As much of a lease as metrics show."""

    @property
    def age(self) -> float: ...

    @property
    def followers(self) -> int: ...


class ProcessState:
    """Implements `tidelog.daemon.http.endpoints.Sources`."""

    def __init__(
        self, path: str, configuration: SchedulerConfiguration, flags: Mapping[str, str] | None = None
    ) -> None:
        """`flags` are the options of the command line."""
        self.path = path
        self.given = flags or {}
        self.wanted = configuration
        """The configuration from the file, in force when this process leads."""
        self.phase = "recovering"
        self.began = time.time_ns()
        self.runtime: Runtime | None = None
        """Set when this process leads."""
        self.leader_silent = 0.0
        """Seconds for which the one that this standby follows has shown no sign of life."""
        self.kept_out: LogError | None = None
        """Why the log cannot be opened, or not be written to yet."""
        self.lease: LeaseWatched | None = None
        """The lease of a log in a database, while this process leads it."""
        self.core: Core | None = None
        """The runtime's, or the one that a standby keeps warm."""
        self.more_checks: Callable[[], Checks] = dict
        """Further checks, of a live cluster."""
        self.more_rows: Callable[[], Mapping[str, object]] = dict
        """Facts about it."""
        profiles = [profile.scheduler_name for profile in configuration.profiles]
        self.measured = Metrics(self.statistics, profiles)

    # --- Sources --------------------------------------------------------------------------------------------------------

    def metrics(self) -> Scrape:
        return self.measured.read()

    def flags(self) -> Mapping[str, str]:
        return self.given

    def pods(self) -> Sequence[Pod]:
        """The leader's: a standby that told the same would have each pod counted twice."""
        if self.core is None or self.phase == "standby":
            return []
        return [o for o in self.core.objects.values() if isinstance(o, Pod)]

    def live(self) -> Checks:
        failure = None if self.runtime is None else self.runtime.failure
        return {"scheduler": None if failure is None else str(failure)}

    def ready(self) -> Checks:
        """A standby is ready: it does what it is there for."""
        checks: dict[str, str | None] = {"recovery": None, "log": None}
        if self.phase == "recovering":
            checks["recovery"] = "the log is still being read"
        if self.phase == "stopping":
            checks["shutdown"] = "the process is stopping"
        runtime = self.runtime
        failure: BaseException | None = self.kept_out
        if runtime is not None:
            log = runtime.log
            failure = log.failure or runtime.failure or runtime.full or log.waits or _unwritable(log)
        checks["log"] = None if failure is None else str(failure)
        return {**checks, **self.more_checks()}

    def configuration(self) -> object:
        """The core's, or where it has none yet, the one that was read."""
        in_force = None if self.core is None else self.core.configuration
        return configuration_file(in_force or self.wanted)

    def status(self) -> Mapping[str, object]:
        rows: dict[str, object] = {
            "Phase": self.phase,
            "Since": f"{format_time(self.began // NANOS * NANOS)} ({age(time.time_ns() - self.began)})",
            "Log": self.path,
            "Process": os.getpid(),
        }
        if self.phase == "standby":
            rows["Leader silent for"] = f"{self.leader_silent:.0f} s"
        core, runtime = self.core, self.runtime
        if core is not None and self.phase == "standby":
            rows |= {"Followed up to": core.seq, "Objects": len(core.objects)}
        elif core is not None:
            rows |= {
                "Consumed": core.seq,
                "Epoch": core.epoch,
                "Attempts": core.attempts,
                "Objects": len(core.objects),
                "Nodes": len(core.cluster.cache),
                "Pending pods": len(core.queue),
            }
        if runtime is not None:
            rows |= {"Durable": runtime.log.head.seq, "Uncommitted": runtime.uncommitted}
        return {**rows, **self.more_rows()}

    # --- gauges ---------------------------------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """The values of the gauges."""
        core, runtime = self.core, self.runtime
        ready = not any(self.ready().values())
        if core is None or core.configuration is None or self.phase == "standby":
            # A standby's core is the leader's a moment ago: half of it told again would be counted twice.
            return Statistics(
                ready=ready,
                log_bytes=_size(self.path),
                leader_silent_seconds=self.leader_silent,
                log_head_seq=0 if core is None else core.seq,
            )
        queue = core.queue.statistics()
        cache = core.cluster.cache
        now = core.at if runtime is None else max(runtime.clock.now(), core.at)
        oldest = 0.0 if queue.oldest_attempt is None else (now - queue.oldest_attempt.at) / NANOS
        return Statistics(
            queue=queue,
            cache_size={
                "nodes": len(cache),
                "pods": cache.pod_count,
                "assumed_pods": len(cache.assumed()),
            },
            oldest_inflight_seconds=max(oldest, 0.0),
            uncommitted_attempts=0 if runtime is None else runtime.uncommitted,
            log_head_seq=core.seq if runtime is None else runtime.log.head.seq,
            log_bytes=_size(self.path),
            epoch=core.epoch,
            lease_age_seconds=0.0 if self.lease is None else self.lease.age,
            followers=0 if self.lease is None else self.lease.followers,
            leader_silent_seconds=self.leader_silent,
            ready=ready,
        )


def _unwritable(log: Log) -> Exception | None:
    """Why the next group could not be appended: also while there is nothing to append."""
    try:
        log.store.check_room()
    except (LogError, OSError) as error:
        return error
    return None


def _size(path: str) -> int:
    size = 0
    for name in (path, f"{path}-wal"):
        with contextlib.suppress(OSError):
            size += os.stat(name).st_size
    return size

"""Counts what a runtime does: the `Watcher` that fills the metrics.

An attempt is counted when its outcome is durable, as what it came to: an aborted one only as aborted, one that waits when its wait is
over. What has to be known about its pod is looked up when the decision is made, because afterwards the queue has forgotten it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.daemon.metrics.families import Distribution
from tidelog.daemon.metrics.framework_recorder import FrameworkRecorder
from tidelog.daemon.metrics.group_recorder import profile_of, record_group
from tidelog.daemon.metrics.metrics import Metrics
from tidelog.daemon.metrics.queue_recorder import QueueRecorder
from tidelog.daemon.process.logs import fields
from tidelog.daemon.process.runtime import Watcher
from tidelog.eventlog.records import (
    AttemptError,
    Body,
    Evicted,
    EvictionRefused,
    Nominated,
    ObjectDeleted,
    Outcome,
    Record,
    Reserved,
    Scheduled,
    Unschedulable,
    Waiting,
)
from tidelog.framework.events import ClusterEvent
from tidelog.queue.entity import AnyEntity, Where
from tidelog.scheduler.core import Core
from tidelog.scheduler.decision import Decision
from tidelog.scheduler.groups.group import is_group_key

_log = logging.getLogger("tidelog.scheduler")


class _Entity(NamedTuple):
    """Facts about a pod at the time of its decision."""

    profile: str
    attempts: int
    entered_at: int
    after_flush: bool
    rejectors: tuple[str, ...]


class _Flight(NamedTuple):
    """An attempt whose outcome is not durable."""

    began: int
    algorithm: int
    at: int
    pods: dict[str, _Entity]
    """By record key."""
    landed: list[tuple[str, Body]]
    group_profile: str = ""
    """The profile of the group that it was about; empty if it was about a pod."""


class QueueWatcher(QueueRecorder):
    """Counts what the queue says, and how long entities were in its queues, on the log's clock."""

    def __init__(self, metrics: Metrics, core: Core, clock: Callable[[], int]) -> None:
        super().__init__(metrics.queue, clock)
        self._core = core
        self._entered: dict[str, tuple[Where, int]] = {}
        """When each entity entered its queue."""
        self._waits: dict[Where, Distribution] = {
            where: metrics.queue.wait.labels(where.value)
            for where in (Where.ACTIVE, Where.BACKOFF, Where.UNSCHEDULABLE)
        }

    def entered(self, entity: AnyEntity, event: ClusterEvent) -> None:
        """The entity entered a queue, and so left another."""
        super().entered(entity, event)
        self.left(entity.key, self._core.at)
        self._entered[entity.key] = entity.where, self._core.at

    def left(self, key: str, at: int) -> None:
        """The entity is in no queue any more."""
        known = self._entered.pop(key, None)
        if known is not None and known[0] in self._waits:
            self._waits[known[0]].observe(max(at - known[1], 0))

    def forget(self, key: str) -> None:
        """It was deleted while it waited: that is no wait that ended."""
        self._entered.pop(key, None)


class Recorder(Watcher):
    """Fills `metrics`. `lap` measures how long something takes."""

    def __init__(self, metrics: Metrics, lap: Callable[[], int]) -> None:
        self._metrics = metrics
        self._lap = lap
        self._queue: QueueWatcher | None = None
        self._flights: dict[int, _Flight] = {}
        self._waiting: dict[str, int] = {}
        """Keys of pods that wait in Permit, and since when."""

    def configured(self, core: Core) -> None:
        if self._queue is None:
            self._queue = QueueWatcher(self._metrics, core, self._lap)
            core.cluster.observer = self._queue
        core.queue.observe(self._queue)
        for framework in core.frameworks.values():
            FrameworkRecorder(framework, self._metrics, self._lap)

    def consuming(self) -> None:
        if self._queue is not None:
            self._queue.begin()

    # --- attempts -------------------------------------------------------------------------------------------------------

    def attempted(self, core: Core, decision: Decision, nanos: int) -> None:
        assert self._queue is not None
        pods = {}
        for key, _ in decision.outcomes:
            if key not in pods and key.startswith("Pod/") and (entity := self._entity(core, key)):
                pods[key] = entity
                self._queue.left(key.removeprefix("Pod/"), decision.at)
        self._queue.left(decision.key.partition("/")[2], decision.at)
        now = self._lap()
        profile = profile_of(core, decision.key) if is_group_key(decision.key) else ""
        self._flights[decision.attempt] = _Flight(now - nanos, nanos, decision.at, pods, [], profile)

    def _entity(self, core: Core, key: str) -> _Entity | None:
        pod = core.queue.get(key.removeprefix("Pod/"))
        if pod is None:
            return None
        rejectors = (*pod.unschedulable_plugins, *pod.pending_plugins)
        return _Entity(pod.profile, pod.attempts, pod.entered_active_at, pod.was_flushed, rejectors)

    def consumed(self, record: Record, body: Body) -> None:
        if isinstance(body, Outcome):
            flight = self._flights.get(body.attempt)
            if flight is not None:
                flight.landed.append((record.key, body))
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug("outcome", extra=fields(kind=record.kind, key=record.key, seq=record.seq))
        elif isinstance(body, ObjectDeleted) and record.key.startswith("Pod/"):
            self._waiting.pop(record.key, None)
            if self._queue is not None:
                self._queue.forget(record.key.removeprefix("Pod/"))

    def committed(self, decisions: Sequence[Decision]) -> None:
        now = self._lap()
        for decision in decisions:
            flight = self._flights.pop(decision.attempt, None)
            if flight is not None:
                for key, body in flight.landed:
                    self._land(flight, key, body, now)
                _log_refusals(flight.landed)
                if decision.conflict is not None:
                    self._metrics.attempts.aborted.labels(decision.conflict.reason.cause.label).inc()
                elif decision.preemption is not None:
                    self._metrics.preemption.outcomes.labels(decision.preemption.value).inc()

    def _land(self, flight: _Flight, key: str, body: Body, now: int) -> None:
        metrics, pod = self._metrics, flight.pods.get(key)
        if is_group_key(key):
            record_group(metrics.groups, flight.group_profile, body, now - flight.began, flight.algorithm)
        if isinstance(body, Waiting | Reserved):
            self._waiting[key] = body.at
            return
        if isinstance(body, Evicted):
            metrics.preemption.evictions.labels("granted" if body.method == "evict" else "deleted").inc()
            return
        if isinstance(body, EvictionRefused):
            metrics.preemption.evictions.labels("refused").inc()
            return
        if isinstance(body, Nominated) and body.victims:
            metrics.preemption.victims.observe(len(body.victims))
            metrics.preemption.execution_duration.labels("pod", "success").observe(now - flight.began)
            metrics.preemption.disruptions.labels("pod").observe(len(body.victims))
            metrics.preemption.budget_violations.labels("pod").inc(body.violations)
            return
        result = _result_of(body)
        if result is None or pod is None:
            return
        metrics.attempts.finished(pod.profile, result, now - flight.began, flight.algorithm)
        since = self._waiting.pop(key, None)
        if since is not None:
            metrics.attempts.permit_wait_duration.labels(result).observe(flight.at - since)
        if result == "scheduled":
            metrics.attempts.placed(
                pod.attempts,
                max(flight.at - pod.entered_at, 0) + now - flight.began,
                after_flush=pod.after_flush,
            )
            for plugin in pod.rejectors if pod.after_flush else ():
                metrics.queue.flush_needed.labels(plugin).inc()

    # --- the log --------------------------------------------------------------------------------------------------------

    def group_committed(self, records: Sequence[Record], nanos: int) -> None:
        """The log made these durable, in this time."""
        self._metrics.log.committed(Counter(record.kind for record in records), nanos)


def _log_refusals(landed: Sequence[tuple[str, Body]]) -> None:
    """KEP-4664: "the scheduler will output an error log and choose another victim". Who is deleted then was not protected, and that is no error."""
    refused = [(key, body) for key, body in landed if isinstance(body, EvictionRefused)]
    if refused:
        gone = {key for key, body in landed if isinstance(body, Evicted)}
        for key, body in refused:
            level = logging.INFO if key in gone else logging.ERROR
            told = fields(preemptor=body.preemptor.removeprefix("Pod/"), node=body.node, said=body.message)
            _log.log(level, "an eviction was refused", extra=told)


def _result_of(body: Body) -> str | None:
    match body:
        case Scheduled():
            return "scheduled"
        case Unschedulable():
            return "unschedulable"
        case AttemptError():
            return "error"
        case _:
            return None

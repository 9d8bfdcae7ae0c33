"""What the queue does is counted under kube-scheduler's labels, on a real queue with a clock of our own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.api.objects import Node
from tidelog.daemon.metrics.metrics import Metrics, Statistics
from tidelog.daemon.metrics.queue_recorder import QueueRecorder
from tidelog.daemon.process.logs import HINTS
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import Plugin
from tidelog.plugins.priority_sort import PrioritySort
from tidelog.queue.scheduling_queue import SchedulingQueue
from tidelog.testing.builders import node, pod

PROFILE = "default-scheduler"
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
MILLISECOND = 1_000_000


class Clock:
    """Moves only when it is told to."""

    def __init__(self) -> None:
        self.now = 5_000

    def __call__(self) -> int:
        return self.now


class Fit(Plugin):
    """Its hint takes two milliseconds and says what the node's name says."""

    name = "Fit"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def events_to_register(self) -> list[EventRegistration]:
        return [EventRegistration(NODE_ADD, self._hint)]

    def _hint(self, waiting: WaitingPod, old: Any, new: Node) -> Hint:
        self._clock.now += 2 * MILLISECOND
        if new.metadata.name == "broken":
            raise ValueError
        return Hint.QUEUE if new.metadata.name == "good" else Hint.SKIP


class Bench:
    """A queue, its recorder, and its metrics."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.metrics = Metrics(Statistics)
        self.recorder = QueueRecorder(self.metrics.queue, self.clock)
        sort = PrioritySort(None, None)  # type: ignore[arg-type]
        self.queue = SchedulingQueue({PROFILE: [sort, Fit(self.clock)]}, sort, observer=self.recorder)

    def reject(self, *, pending: bool = False) -> None:
        """A pod is added, tried, and rejected by Fit."""
        waiting = pod("web-1").uid("u1").scheduler(PROFILE).build()
        self.queue.add(waiting, 0)
        assert self.queue.pop(0, 0) is not None
        plugins = {"pending" if pending else "unschedulable": ["Fit"]}
        self.queue.fail("u1", **plugins, now=0)

    def node_arrives(self, name: str) -> None:
        self.recorder.begin()
        self.queue.on_event(NODE_ADD, None, node(name).build(), 1, 100 * MILLISECOND)
        self.recorder.end_event(NODE_ADD)

    def values(self, name: str) -> Iterator[tuple[tuple[str, ...], float]]:
        """(label values, count or sum) of a family, without zeros."""
        (reading,) = [r for r in self.metrics.read().readings if r.family.description.name == name]
        for labels, value in reading.rows:
            total = value[1] if isinstance(value, tuple) else value
            if total:
                yield labels, total


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_pods_are_counted_where_they_enter(bench: Bench) -> None:
    bench.reject()
    bench.node_arrives("good")

    assert dict(bench.values("scheduler_queue_incoming_pods_total")) == {
        ("active", "UnscheduledPodAdd"): 1,
        ("unschedulable", "ScheduleAttemptFailure"): 1,
        ("backoff", "NodeAdd"): 1,
    }
    assert dict(bench.values("scheduler_queue_incoming_entities_total")) == {
        ("active", "UnscheduledPodAdd", "pod"): 1,
        ("unschedulable", "ScheduleAttemptFailure", "pod"): 1,
        ("backoff", "NodeAdd", "pod"): 1,
    }


@pytest.mark.parametrize(
    ("node_name", "pending", "answer", "verdict"),
    [
        ("good", False, "Queue", "AfterBackoff"),
        ("good", True, "Queue", "Immediately"),
        ("bad", False, "QueueSkip", "Skip"),
        ("broken", False, "Error", "AfterBackoff"),
    ],
)
def test_answer_of_a_hint_is_counted_with_its_time_and_verdict(
    bench: Bench, node_name: str, pending: bool, answer: str, verdict: str
) -> None:
    bench.reject(pending=pending)

    bench.node_arrives(node_name)

    assert dict(bench.values("scheduler_queueing_hint_execution_duration_seconds")) == {
        ("Fit", "NodeAdd", answer): 2 * MILLISECOND
    }
    assert dict(bench.values("tidelog_requeue_total")) == {("Fit", "NodeAdd", verdict): 1}
    assert dict(bench.values("scheduler_event_handling_duration_seconds")) == {("NodeAdd",): 2 * MILLISECOND}


def test_answer_of_a_hint_is_a_log_line_at_a_level_of_its_own(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.reject()
    caplog.set_level(logging.INFO, HINTS)
    bench.node_arrives("bad")
    assert caplog.records == []

    caplog.set_level(logging.DEBUG, HINTS)
    bench.node_arrives("good")

    (line,) = caplog.records
    told: dict[str, object] = line.fields  # type: ignore[attr-defined]
    assert line.getMessage() == "a QueueingHint answered"
    assert (told["plugin"], told["event"], told["hint"]) == ("Fit", "NodeAdd", "Queue")


def test_answer_without_a_beginning_is_counted_without_a_time(bench: Bench) -> None:
    bench.reject()

    bench.queue.on_event(NODE_ADD, None, node("bad").build(), 1, 0)

    assert dict(bench.values("tidelog_requeue_total")) == {("Fit", "NodeAdd", "Skip"): 1}
    assert dict(bench.values("scheduler_queueing_hint_execution_duration_seconds")) == {}


def test_gauges_are_the_queues_own(bench: Bench) -> None:
    of = Metrics(lambda: Statistics(queue=bench.queue.statistics()))

    bench.reject()

    found = {r.family.description.name: dict(r.rows) for r in of.read().readings}
    assert found["scheduler_pending_pods"]["unschedulable",] == 1
    assert found["scheduler_unschedulable_pods"]["Fit", PROFILE] == 1
    assert found["scheduler_queued_entities"]["unschedulable", "pod"] == 1
    assert found["scheduler_inflight_events"]["PodPopped",] == 0

"""What the queue is told of the cluster's changes: of which record, and at what time."""

from __future__ import annotations

import pytest

from tests.worlds.objects import node, pod
from tidelog.framework.events import ClusterEvent
from tidelog.queue.entity import QueuedPod
from tidelog.queue.in_flight import InFlightEvent
from tidelog.queue.scheduling_queue import SchedulingQueue
from tidelog.replay.driver import Driver


class Entries:
    """Hears where pods are put, and what for."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str]] = []

    def hint_answered(self, waiting: QueuedPod, plugin: str, event: ClusterEvent, answer: str) -> None:
        """Not asked for here."""

    def entered(self, entity: QueuedPod, event: ClusterEvent) -> None:
        self.heard.append((entity.key, str(entity.where), event.label))


@pytest.fixture
def driver() -> Driver:
    started = Driver()
    started.start()
    return started


def queue_of(driver: Driver) -> SchedulingQueue:
    return driver.core.queue


def test_event_is_kept_for_pods_in_flight_under_the_record_that_raised_it(driver: Driver) -> None:
    driver.put(pod("big", cpu="2"))
    driver.attempt()

    driver.put(node("n1", cpu="4"))

    kept = [each for each in queue_of(driver).in_flight.timeline() if isinstance(each, InFlightEvent)]
    assert [(each.event.label, each.seq) for each in kept] == [("NodeAdd", driver.records[-1].seq)]


@pytest.mark.parametrize(("seconds", "place"), [(0.5, "backoff"), (2, "active")])
def test_event_is_judged_at_the_time_of_its_record(driver: Driver, seconds: float, place: str) -> None:
    """The backoff of the first failure takes a second."""
    driver.put(node("small", cpu="1"), pod("big", cpu="2"))
    driver.settle()
    entries = Entries()
    queue_of(driver).observe(entries)  # type: ignore[arg-type]

    driver.advance(seconds)
    driver.put(node("n1", cpu="4"))

    assert entries.heard == [("default/big", place, "NodeAdd")]


def test_whoever_has_backed_off_by_the_time_of_a_record_is_let_go_by_it(driver: Driver) -> None:
    driver.put(node("small", cpu="1"), pod("big", cpu="2"))
    driver.settle()
    driver.put(node("n1", cpu="4"))
    queue = queue_of(driver)
    entity = queue.get("default/big")
    assert entity is not None
    assert str(queue.whereabouts(entity)) == "backoff"

    driver.now += 2_000_000_000
    driver.put(node("n2", cpu="1"))

    assert str(queue.whereabouts(entity)) == "active"


def test_nothing_is_noted_while_nothing_is_in_flight(driver: Driver) -> None:
    driver.put(node("n1", cpu="4"), pod("web", cpu="1"))
    driver.attempt()
    driver.put(node("n2", cpu="4"))
    assert driver.core.cluster.notes.wanted

    driver.commit()

    assert not driver.core.cluster.notes.wanted

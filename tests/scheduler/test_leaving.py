"""A pod that is being deleted before it has a node is never given one (kube-scheduler's skipPodSchedule)."""

from __future__ import annotations

from typing import ClassVar

import pytest
from msgspec.structs import replace

from tests.worlds.objects import pod
from tidelog.api.objects import Pod
from tidelog.configuration.configuration import read_configuration
from tidelog.eventlog.records import Scheduled
from tidelog.framework.interface import Code, CycleState, PermitResult, Plugin, Status
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.testing import builders as b


class Holds(Plugin):
    """Makes every pod wait for a minute."""

    name: ClassVar[str] = "Holds"

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> PermitResult:
        return PermitResult(Status(Code.WAIT), timeout_seconds=60)


def leaving(found: Pod) -> Pod:
    return replace(found, metadata=replace(found.metadata, deletion_timestamp="2023-11-14T22:13:20Z"))


@pytest.fixture
def driver() -> Driver:
    started = Driver()
    started.start()
    return started


def test_leaving_pod_is_not_placed(driver: Driver) -> None:
    driver.put(b.node("n1").build(), pod("web"), leaving(pod("late")))
    driver.put(leaving(pod("web")))

    driver.advance(seconds=400)

    assert driver.placements() == {}
    assert driver.core.attempts == 0


def test_pod_that_begins_to_leave_while_waiting_for_a_node_is_not_tried_again(driver: Driver) -> None:
    driver.put(pod("web"))
    driver.settle()
    attempts = driver.core.attempts

    driver.put(leaving(pod("web")), b.node("n1").build())
    driver.advance(seconds=400)

    assert driver.placements() == {}
    assert attempts == driver.core.attempts


def test_pod_that_begins_to_leave_between_decision_and_commit_loses_its_place(driver: Driver) -> None:
    driver.put(b.node("n1").capacity(cpu="1").build(), pod("web"), pod("next"))
    driver.attempt()

    driver.put(leaving(pod("web")))
    driver.commit()
    driver.advance(seconds=30)

    assert driver.placements() == {"default/next": "n1"}


def test_pod_that_counted_on_one_that_was_deleted_in_flight_is_tried_again(driver: Driver) -> None:
    zone = "topology.kubernetes.io/zone"

    def spread(name: str) -> Pod:
        return b.pod(name).label(app="web").scheduler("default-scheduler").spread(zone).build()

    driver.put(*(b.node(f"n{z}{i}").label({zone: z}).capacity(cpu="1").build() for z in "ab" for i in (1, 2)))
    driver.put(*(spread(f"web-{i}") for i in range(3)))
    decisions = [driver.attempt() for _ in range(3)]
    zones = {
        d.key: body.node[1] for d in decisions if d for _, body in d.outcomes if isinstance(body, Scheduled)
    }
    alone = next(key for key, found in zones.items() if list(zones.values()).count(found) == 1)

    driver.delete(spread(alone.removeprefix("Pod/default/")))
    driver.commit()
    driver.settle()

    assert len(zones) == 3
    assert sorted(node[1] for node in driver.placements().values()) == ["a", "b"]


def test_configuration_does_not_enlist_a_leaving_pod() -> None:
    driver = Driver()
    driver.put(b.node("n1").build(), leaving(pod("web")))

    driver.start()
    driver.settle()

    assert driver.core.attempts == 0


@pytest.mark.parametrize("end", ["leaving", "deleted", "bound elsewhere"])
def test_attempt_of_a_pod_that_waits_for_a_permit_ends_with_the_pod(end: str) -> None:
    registry = Registry((*IN_TREE, Holds))
    text = """
        apiVersion: kubescheduler.config.k8s.io/v1
        kind: KubeSchedulerConfiguration
        profiles: [{plugins: {permit: {enabled: [{name: Holds}]}}}]
    """
    driver = Driver(registry)
    driver.start(read_configuration(text, registry).configuration)
    driver.put(b.node("n1").build(), b.node("n2").build(), pod("web"))
    driver.settle()
    assert driver.core.queue.statistics().inflight_events["PodPopped"] == 1

    if end == "leaving":
        driver.put(leaving(pod("web")))
    elif end == "deleted":
        driver.delete(pod("web"))
    else:
        node = "n2" if driver.core.cluster.cache.node_of("default/web") == "n1" else "n1"
        driver.put(b.pod("web").request(cpu="1").scheduler("default-scheduler").on(node).build())

    driver.advance(seconds=90)
    assert driver.core.queue.statistics().inflight_events["PodPopped"] == 0
    assert [kind for kind in driver.kinds() if kind in ("Scheduled", "Unschedulable", "AttemptError")] == []


def test_pod_that_only_a_later_attempt_placed_calls_no_earlier_one_off() -> None:
    """Else a scheduler that dies before the later one is in the log leaves an abort that nobody can explain."""
    driver = Driver()
    driver.start()
    for zone in "ab":
        driver.put(b.node(f"n{zone}").label({b.ZONE: zone, b.HOSTNAME: f"n{zone}"}).capacity(cpu="4").build())
    for name in ("first", "second"):
        spread = b.pod(name).scheduler("default-scheduler").label(app="x").request(cpu="1")
        driver.put(spread.spread(b.ZONE, selector="app=x").build())
    driver.attempt()
    driver.attempt()
    driver.delete(driver.pod("second"))

    (first,) = driver.commit(1)
    driver.submitted.clear()
    driver.core = recover(driver.records, driver.registry)
    driver.start()
    driver.settle()

    assert [type(body) for _, body in first.outcomes] == [Scheduled]
    assert verify(driver.records, driver.registry).first_difference is None

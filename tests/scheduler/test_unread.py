"""An object of a live cluster that this version cannot read: nobody is placed where it is not known what is there."""

from __future__ import annotations

import pytest

from tidelog.api.objects import Node, Object, Pod
from tidelog.eventlog.records import Draft, ObjectUnread
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover
from tidelog.scheduler.core import Core
from tidelog.testing import builders as b


def pod(name: str) -> Pod:
    return b.pod(name).scheduler("default-scheduler").request(cpu="100m").build()


def node(name: str) -> Node:
    return b.node(name).capacity(cpu="4", memory="8Gi", pods="10").build()


@pytest.fixture
def driver() -> Driver:
    """Two nodes; on the first one there is a pod already."""
    started = Driver()
    started.start()
    resident = b.pod("resident").request(cpu="100m").on("first").build()
    started.put(node("first"), node("second"), resident)
    return started


def unread(driver: Driver, key: str) -> None:
    driver.append(Draft(body=ObjectUnread(resource_version="9", error="?"), author="cluster", key=key))


def placed(driver: Driver, name: str) -> str:
    driver.put(pod(name))
    driver.settle()
    return driver.pod(name).spec.node_name


@pytest.mark.parametrize("key", ["Pod/default/resident", "Node//first"])
def test_the_node_is_closed_and_others_go_on(driver: Driver, key: str) -> None:
    unread(driver, key)

    assert {placed(driver, f"p{i}") for i in range(6)} == {"second"}
    assert driver.core.objects["Node//first"] == node("first"), "the object itself is as it was"


@pytest.mark.parametrize("key", ["Pod/default/resident", "Node//first"])
def test_a_version_that_can_be_read_opens_it_and_wakes_who_waits(driver: Driver, key: str) -> None:
    unread(driver, key)
    driver.delete(node("second"))
    assert placed(driver, "web") == ""

    known = driver.core.objects[key]
    driver.put(known)
    driver.advance(seconds=10)

    assert driver.pod("web").spec.node_name == "first"


def test_the_end_of_the_object_opens_it_too(driver: Driver) -> None:
    unread(driver, "Pod/default/resident")
    driver.delete(driver.pod("resident"))

    assert {placed(driver, f"p{i}") for i in range(4)} == {"first", "second"}


def test_a_node_is_closed_as_long_as_anything_on_it_is_unread(driver: Driver) -> None:
    other = b.pod("other").request(cpu="100m").on("first").build()
    driver.put(other)
    unread(driver, "Pod/default/resident")
    unread(driver, "Pod/default/other")

    driver.put(other)
    assert placed(driver, "web-1") == "second"

    driver.put(driver.pod("resident"))
    assert {placed(driver, f"p{i}") for i in range(4)} == {"first", "second"}


def test_a_new_version_of_a_closed_node_stays_closed(driver: Driver) -> None:
    unread(driver, "Pod/default/resident")
    larger: Object = b.node("first").capacity(cpu="64", memory="64Gi", pods="10").build()
    driver.put(larger)

    assert placed(driver, "web") == "second"


@pytest.mark.parametrize("key", ["Pod/default/pending", "Pod/default/nobody", "PriorityClass//high"])
def test_what_is_on_no_node_closes_none(driver: Driver, key: str) -> None:
    driver.put(b.pod("pending").scheduler("nobody").build())
    unread(driver, key)

    assert {placed(driver, f"p{i}") for i in range(4)} == {"first", "second"}


def test_a_decision_that_did_not_see_it_is_called_off(driver: Driver) -> None:
    driver.delete(node("second"))
    driver.put(pod("web"))
    driver.attempt()

    unread(driver, "Pod/default/resident")
    driver.commit()

    assert driver.records[-1].kind == "AttemptAborted"


def test_it_is_part_of_the_state(driver: Driver) -> None:
    unread(driver, "Pod/default/resident")
    core = driver.core
    loaded = Core.load(Registry(), core.dump(), dict(core.objects))

    assert loaded.digest() == core.digest() == recover(driver.records, Registry()).digest()
    closed = loaded.cluster.cache.get("first")
    assert closed is not None
    assert closed.node.spec.unschedulable

"""No device is promised twice, and what the log writes is what counts, whatever comes between: attempts in flight, aborts, releases, restarts, groups."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidelog.api.objects import Node, Pod, ResourceClaim, ResourceClaimStatus
from tidelog.configuration.configuration import resolve_configuration
from tidelog.eventlog.records import AttemptAborted, Reserved, decode_body
from tidelog.framework.effort import Paused
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.testing import builders as b
from tidelog.testing import devices as d

CLAIMS = 5
SHARED = "fabric"
STEPS = (
    "pod",
    "attempt",
    "attempt",
    "pause",
    "commit",
    "commit",
    "gang",
    "release",
    "unclaim",
    "unpod",
    "slice",
    "wait",
    "restart",
)
Story = Sequence[tuple[str, int]]


class World:
    """Two nodes with two devices each, two devices that both reach, and claims of one device or of two alike."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.driver.start()
        self.driver.put(d.device_class())
        for i in range(2):
            self.driver.put(b.node(f"n{i}").capacity(cpu="8").build(), self.own(i, 2))
        self.driver.put(d.resource_slice(SHARED, self.listed(2), pool=SHARED))
        for i in range(CLAIMS):
            self.driver.put(self.claim(i))
        self.pods = 0

    @staticmethod
    def listed(count: int) -> list[dict[str, Any]]:
        return [d.device(f"d{i}", attributes={"rail": "x" if i % 2 else "y"}) for i in range(count)]

    def own(self, i: int, count: int) -> Any:
        return d.resource_slice(f"s{i}", self.listed(count), node=f"n{i}")

    @staticmethod
    def claim(i: int) -> ResourceClaim:
        return d.claim(f"c{i}", d.request("r", count=1 + i % 2))

    def do(self, step: str, number: int) -> None:
        driver, objects = self.driver, self.driver.core.objects
        claim = objects.get(f"ResourceClaim/default/c{number % CLAIMS}")
        if step == "pod":
            self.pods += 1
            driver.put(self.pod(f"p{self.pods}", number).build())
        elif step == "gang":
            self.pods += 1
            name = f"g{self.pods}"
            members = (self.pod(f"{name}-{i}", number).group(name).build() for i in range(2))
            driver.put(b.pod_group(name, min_count=2), *members)
        elif step == "attempt":
            driver.attempt()
        elif step == "pause":
            with contextlib.suppress(Paused):
                decision = driver.core.attempt(driver.now, 49)
                driver.submitted += [] if decision is None else [decision]
        elif step == "commit":
            driver.commit(most=1 + number % 2)
        elif step == "release" and isinstance(claim, ResourceClaim) and claim.status.allocation is not None:
            driver.put(replace(claim, status=ResourceClaimStatus()))
        elif step == "unclaim":
            if claim is not None:
                driver.delete(claim)
            driver.put(self.claim(number % CLAIMS))
        elif step == "unpod":
            if (found := objects.get(f"Pod/default/p{number}")) is not None:
                driver.delete(found)
        elif step == "slice":
            driver.put(self.own(number % 2, 1 + number % 3))
        elif step == "wait":
            driver.now += 10**9 * (1 if number else 700)
        elif step == "restart":
            driver.submitted.clear()
            driver.core = recover(driver.records, driver.registry)
            driver.start()

    @staticmethod
    def pod(name: str, number: int) -> b.PodBuilder:
        claim = f"c{number % CLAIMS}"
        return b.pod(name).request(cpu="1").claim("c", claim=claim).scheduler("default-scheduler")

    def check(self) -> None:
        core = self.driver.core
        told = Counter(
            (one.driver, one.pool, one.device)
            for claim in core.objects.values()
            if isinstance(claim, ResourceClaim) and claim.status.allocation is not None
            for one in claim.status.allocation.devices.results
        )
        assert all(count == 1 for count in told.values()), told
        shown = Counter(
            (one.driver, one.pool, one.device)
            for claim in core.cluster.listers.devices.claims()
            if claim.status.allocation is not None
            for one in claim.status.allocation.devices.results
        )
        assert all(count == 1 for count in shown.values()), "a promise in flight counts as well"


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), max_size=40))
def test_no_device_is_promised_twice(story: Story) -> None:
    world = World()
    for step, number in story:
        world.do(step, number)
        world.check()
    world.driver.commit()
    world.driver.settle()
    world.check()

    records = world.driver.records
    report = verify(records, world.driver.registry)
    assert report.first_difference is None
    assert world.driver.core.digest() == report.digest
    assert_what_is_written_is_what_counts(world.driver)


def assert_what_is_written_is_what_counts(driver: Driver) -> None:
    """Each allocation that a claim has was written by a `Reserved` record, and each pod that is bound has its claims reserved for it or released since."""
    written = {
        (write.key, one["pool"], one["device"])
        for record in driver.records
        if isinstance(body := decode_body(record), Reserved) and not isinstance(body, AttemptAborted)
        for write in body.writes
        for one in write.patch.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    }
    for key, claim in driver.core.objects.items():
        if isinstance(claim, ResourceClaim) and claim.status.allocation is not None:
            for one in claim.status.allocation.devices.results:
                assert (key, one.pool, one.device) in written
            for consumer in claim.status.reserved_for:
                pod = driver.core.objects.get(f"Pod/default/{consumer.name}")
                assert pod is None or isinstance(pod, Pod)


def test_pod_is_added_to_those_that_share_its_claim_also_while_some_are_in_flight() -> None:
    """The promise of the first comes true, and the next attempt goes by what those after it have promised as well."""
    world = World()
    driver = world.driver
    driver.put(world.pod("p0", 1).build())
    driver.settle()
    driver.put(*(world.pod(f"p{i}", 1).build() for i in range(1, 5)))
    for _ in range(3):
        driver.attempt()

    driver.commit(1)
    while driver.attempt() is not None:
        pass
    driver.commit()
    driver.settle()

    claim = driver.core.objects["ResourceClaim/default/c1"]
    assert isinstance(claim, ResourceClaim)
    assert [consumer.name for consumer in claim.status.reserved_for] == [f"p{i}" for i in range(5)]
    assert verify(driver.records, driver.registry).first_difference is None


def test_nobody_is_evicted_for_devices_that_are_gone_before_the_record_is_written() -> None:
    driver = Driver()
    driver.start()
    driver.put(
        d.device_class(), b.node("n0").capacity(cpu="1").build(), d.resource_slice("s0", ["gpu"], node="n0")
    )
    driver.put(d.claim("c", d.request()), b.pod("victim").request(cpu="1").on("n0").build())
    driver.put(
        b.pod("vip")
        .priority(10)
        .request(cpu="1")
        .claim("gpu", claim="c")
        .scheduler("default-scheduler")
        .build()
    )
    driver.attempt()

    driver.put(d.resource_slice("s0", [], node="n0", generation=2))
    driver.commit()
    driver.settle()

    assert "AttemptAborted" in driver.kinds()
    assert not {"Evicted", "Nominated"} & set(driver.kinds())
    assert verify(driver.records, driver.registry).first_difference is None


@pytest.mark.parametrize("when", ["before the end of the wait is decided", "before it is written"])
def test_pod_is_not_bound_to_a_node_that_was_deleted_while_it_waited_for_its_devices(when: str) -> None:
    world = World()
    driver = world.driver
    driver.put(world.pod("p", 0).build())
    driver.attempt()
    driver.commit()
    (reserved,) = (body for r in driver.records if isinstance(body := decode_body(r), Reserved))

    if when == "before it is written":
        driver.attempt()
    node = driver.core.objects[f"Node//{reserved.node}"]
    assert isinstance(node, Node)
    driver.delete(node)
    driver.commit()
    driver.settle()

    ending = "AttemptError" if when == "before the end of the wait is decided" else "AttemptAborted"
    assert driver.kinds()[driver.kinds().index("ObjectDeleted") + 1] == ending
    driver.put(node)
    driver.advance(seconds=30)
    assert driver.pod("p").spec.node_name in ("n0", "n1")
    assert verify(driver.records, driver.registry).first_difference is None


def test_no_member_of_a_gang_is_bound_if_the_node_of_one_was_deleted_while_it_waited_for_the_others_devices() -> (
    None
):
    world = World()
    driver = world.driver
    gates = {"featureGates": {"TopologyAwareWorkloadScheduling": True}}
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "tidelog": gates,
    }
    driver.configure(resolve_configuration(file, driver.registry).configuration)
    plain = (
        b.pod("plain").group("g").request(cpu="1").scheduler("default-scheduler").node_selector({"on": "x"})
    )
    node = b.node("x").label({"on": "x"}).capacity(cpu="8").build()
    driver.put(node, b.pod_group("g", min_count=2), world.pod("p", 0).group("g").build(), plain.build())
    driver.attempt()
    driver.commit()
    assert driver.kinds()[-2:] in (["Reserved", "Waiting"], ["Waiting", "Reserved"])

    driver.delete(node)
    driver.settle()

    assert "Scheduled" not in driver.kinds()
    assert verify(driver.records, driver.registry).first_difference is None
    driver.put(node)
    driver.advance(seconds=30)
    assert [driver.pod(name).spec.node_name != "" for name in ("p", "plain")] == [True, True]

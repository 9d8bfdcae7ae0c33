"""Groups that share devices (DRATestPlugin), and pods that wait for a driver (WaitForDriver)."""

from __future__ import annotations

from msgspec.structs import replace

from tests.worlds.groups import (
    DRIVER,
    assert_replays,
    claim,
    device_class,
    devices,
    in_rack,
    member,
    members,
    node,
    nodes_of,
    started,
    the_claim,
)
from tidelog.api.objects import (
    AllocationResult,
    DeviceAllocation,
    DeviceResult,
    pod_condition,
)
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import PlacementChosen, decode_body
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b
from tidelog.testing.devices import allocated
from tidelog.testing.devices import claim as claim_with


def device_names(driver: Driver, name: str = "shared") -> list[str]:
    allocation = the_claim(driver, name).status.allocation
    return [] if allocation is None else [result.device for result in allocation.devices.results]


def two_racks() -> Driver:
    driver = started("DRATestPlugin")
    driver.put(node("a1", "a", "8"), node("b1", "b", "8"), device_class())
    return driver


def test_group_with_a_shared_claim_goes_to_the_nodes_of_the_devices() -> None:
    driver = two_racks()
    driver.put(devices("fa", "f1", 1, in_rack("a")), devices("fb", "f2", 2, in_rack("b")), claim())
    driver.put(b.pod_group("train", min_count=3), *members(3, claim="shared"))

    driver.settle()

    assert nodes_of(driver) == ["b1"] * 3
    assert device_names(driver) == ["fb-0", "fb-1"]
    (user,) = the_claim(driver).status.reserved_for
    assert (user.resource, user.name) == ("podgroups", "train")
    assert_replays(driver)


def test_two_groups_never_get_the_same_devices_even_before_the_first_is_committed() -> None:
    driver = two_racks()
    driver.put(devices("fa", "f1", 2), devices("fb", "f2", 2), claim("one"), claim("two"))
    for name in ("one", "two"):
        driver.put(b.pod_group(name, min_count=2), *members(2, name, claim=name))

    driver.attempt()
    driver.attempt()
    driver.commit()

    assert device_names(driver, "one") != device_names(driver, "two")
    assert len(device_names(driver, "one")) == len(device_names(driver, "two")) == 2
    assert_replays(driver)


def test_group_waits_for_devices_and_is_woken_when_a_claim_gives_them_back() -> None:
    driver = two_racks()
    driver.put(devices("fa", "f1", 2), claim("one"), claim("two"))
    driver.put(b.pod_group("one", min_count=2), *members(2, "one", claim="one"))
    driver.settle()
    driver.put(b.pod_group("two", min_count=2), *members(2, "two", claim="two"))
    driver.settle()
    condition = pod_condition(driver.pod("two-0"), "PodScheduled")
    before = nodes_of(driver, "two")

    driver.delete(the_claim(driver, "one"))
    driver.advance(seconds=3)

    assert before == []
    assert condition is not None
    assert condition.message == 'cannot allocate all devices of resourceclaim "two"'
    assert len(nodes_of(driver, "two")) == 2
    assert_replays(driver)


def test_claim_that_is_allocated_leaves_one_placement() -> None:
    driver = two_racks()
    result = DeviceResult(request="links", driver=DRIVER, pool="fb", device="fb-0")
    allocation = AllocationResult(devices=DeviceAllocation(results=(result,)), node_selector=in_rack("b"))
    found = claim()
    driver.put(replace(found, status=replace(found.status, allocation=allocation)))
    driver.put(b.pod_group("train", min_count=2), *members(2, claim="shared"))

    driver.settle()

    assert nodes_of(driver) == ["b1"] * 2
    assert_replays(driver)


def test_members_whose_devices_are_not_ready_go_each_to_its_own() -> None:
    driver = started()
    for name in ("train-0", "train-1"):
        had = allocated("gpu", pool=name, node=name, conditions=["Attached"])
        driver.put(node(name), claim_with(name, status=had))
    driver.put(b.pod_group("train", min_count=2))
    driver.put(*(member(name, claim=name) for name in ("train-0", "train-1")))

    driver.settle()

    (chosen,) = (decode_body(r) for r in driver.records if r.kind == "PlacementChosen")
    assert isinstance(chosen, PlacementChosen)
    assert chosen.assignment == {f"Pod/default/{name}": name for name in ("train-0", "train-1")}
    assert_replays(driver)


def sharing() -> Driver:
    """Two groups with one claim, both tried and neither committed."""
    driver = two_racks()
    driver.put(devices("fa", "f1", 2), claim())
    for name in ("one", "two"):
        driver.put(b.pod_group(name, min_count=1), member(f"{name}-0", name, claim="shared"))
    driver.attempt()
    driver.attempt()
    return driver


def test_claim_is_reserved_for_every_group_that_uses_it() -> None:
    driver = sharing()

    driver.commit()

    users = the_claim(driver, "shared").status.reserved_for
    assert [user.name for user in users] == ["one", "two"]
    assert driver.kinds().count("PlacementChosen") == 2
    assert_replays(driver)


def test_group_that_relied_on_an_allocation_that_was_aborted_is_tried_again() -> None:
    driver = sharing()

    driver.delete(member("one-0", "one", claim="shared"))
    driver.commit()
    aborted = driver.kinds().count("AttemptAborted")
    driver.settle()

    assert aborted == 2
    assert len(nodes_of(driver, "two")) == 1
    assert device_names(driver) == ["fa-0", "fa-1"]
    assert [user.name for user in the_claim(driver, "shared").status.reserved_for] == ["two"]
    assert_replays(driver)


def test_claim_that_changes_before_the_commit_aborts_the_group() -> None:
    driver = two_racks()
    driver.put(
        devices("fa", "f1", 4), claim(), b.pod_group("train", min_count=2), *members(2, claim="shared")
    )
    driver.attempt()

    driver.put(claim(count=3))
    driver.commit()
    driver.settle()

    assert "AttemptAborted" in driver.kinds()
    assert len(device_names(driver)) == 3
    assert_replays(driver)


def test_claim_that_is_deleted_before_the_commit_aborts_the_group_and_gives_its_devices_back() -> None:
    driver = two_racks()
    driver.put(devices("fa", "f1", 2), claim(), b.pod_group("train", min_count=2))
    driver.put(*members(2, claim="shared"))
    driver.attempt()

    driver.delete(claim())
    driver.commit()
    driver.settle()

    assert "AttemptAborted" in driver.kinds()
    assert driver.placements() == {}
    driver.put(claim())
    driver.advance(seconds=15)
    assert device_names(driver) == ["fa-0", "fa-1"]
    assert len(nodes_of(driver)) == 2
    assert_replays(driver)


def test_devices_that_are_withdrawn_before_the_commit_abort_the_group() -> None:
    driver = two_racks()
    driver.put(devices("fa", "f1", 2), claim(), b.pod_group("train", min_count=2))
    driver.put(*members(2, claim="shared"))
    driver.attempt()

    driver.delete(devices("fa", "f1", 2))
    driver.put(devices("fb", "f2", 2))
    driver.commit()
    driver.settle()

    assert "AttemptAborted" in driver.kinds()
    assert device_names(driver) == ["fb-0", "fb-1"]
    assert_replays(driver)


def test_selectors_and_unknown_classes_narrow_the_devices() -> None:
    driver = started("DRATestPlugin")
    driver.put(node("a1", "a", "8"), devices("fa", "f1", 2), devices("fb", "f2", 2))
    driver.put(claim(expression=f'device.attributes["{DRIVER}"].fabric == "f2"'))
    driver.put(b.pod_group("train", min_count=2), *members(2, claim="shared"))
    driver.settle()
    condition = pod_condition(driver.pod("train-0"), "PodScheduled")

    driver.put(device_class())
    driver.advance(seconds=3)

    assert condition is not None
    assert condition.message == 'resourceclaim "shared": device class fabric not found'
    assert device_names(driver) == ["fb-0", "fb-1"]
    assert_replays(driver)


def test_allocation_is_in_the_table_of_objects_as_it_is_in_the_core() -> None:
    driver = two_racks()
    driver.put(
        devices("fa", "f1", 2), claim(), b.pod_group("train", min_count=2), *members(2, claim="shared")
    )
    driver.settle()

    table = ObjectTable()
    for record in driver.records:
        table.apply(record)

    for key, obj in driver.core.objects.items():
        assert table.get(key) == obj


def test_pod_that_waits_for_its_driver_goes_on_without_backoff() -> None:
    driver = started("WaitForDriver")
    pod = b.pod("solo").request(cpu="1").claim("gpu", claim="gpu").scheduler("default-scheduler").build()
    driver.put(node("a1", "a"), claim("gpu"), pod)
    driver.settle()
    condition = pod_condition(driver.pod("solo"), "PodScheduled")

    found = the_claim(driver, "gpu")
    allocation = AllocationResult(node_selector=in_rack("a"))
    driver.put(replace(found, status=replace(found.status, allocation=allocation)))
    driver.settle()

    assert condition is not None
    assert "waiting for resource driver to allocate resource" in condition.message
    assert driver.placements() == {"default/solo": "a1"}
    assert_replays(driver)


def test_group_that_waits_for_a_driver_goes_on_without_backoff() -> None:
    driver = started("WaitForDriver")
    driver.put(node("a1", "a"), claim("gpu"), b.pod_group("train", min_count=2))
    driver.put(member("train-0", claim="gpu"), member("train-1", claim="gpu"))
    driver.settle()
    before = nodes_of(driver)

    found = the_claim(driver, "gpu")
    driver.put(replace(found, status=replace(found.status, allocation=AllocationResult())))
    driver.settle()

    assert before == []
    assert nodes_of(driver) == ["a1", "a1"]
    assert_replays(driver)

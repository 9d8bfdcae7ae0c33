"""Groups that share claims of devices, placed by DynamicResources: KEP-5732's second story and what may go wrong with it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tests.worlds.groups import (
    RACK,
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
from tidelog.configuration.configuration import default_configuration
from tidelog.eventlog.records import PlacementChosen, decode_body
from tidelog.framework.behaviours import DEVICE_PLACEMENTS
from tidelog.replay.driver import Driver
from tidelog.testing import builders as b
from tidelog.testing import devices as d


def racks(*sizes: tuple[str, str]) -> Driver:
    """Nodes `<rack>1`, with this many cores."""
    driver = started()
    driver.put(*(node(f"{rack}1", rack, cores) for rack, cores in sizes), device_class())
    return driver


def names(driver: Driver, name: str = "shared") -> list[str]:
    return [one.rpartition("/")[2] for one in d.devices_of(the_claim(driver, name))]


def chosen(driver: Driver) -> list[PlacementChosen]:
    bodies = [decode_body(record) for record in driver.records]
    return [body for body in bodies if isinstance(body, PlacementChosen)]


def test_member_whose_own_device_is_not_ready_is_asked_about_in_each_placement() -> None:
    driver = started()
    driver.put(*(node(f"a{i}", "a", "1" if i == 0 else "500m") for i in range(20)))
    driver.put(*(node(f"b{i}", "b", "4") for i in range(20)), d.device_class())
    for rack in "ab":
        reach = msgspec.to_builtins(in_rack(rack))
        driver.put(d.resource_slice(f"p{rack}", ["x"], pool=f"p{rack}", nodeSelector=reach))
    for name in ("train-0", "train-1"):
        driver.put(d.claim(name, status=d.allocated("gpu", pool=name, conditions=["Attached"])))
        pod = b.pod(name).group("train").request(cpu="1").scheduler("default-scheduler")
        driver.put(pod.claim("own", claim=name).claim("all", claim="all").build())
    driver.put(d.claim("all"), b.pod_group("train", min_count=2))

    driver.settle()

    assert sorted(chosen(driver)[0].assignment) == ["Pod/default/train-0", "Pod/default/train-1"]
    assert all(name.startswith("b") for name in chosen(driver)[0].assignment.values())


def tempt_the_first_member(driver: Driver) -> None:
    """A node with the most room, and places for two pods only; four want devices of one fabric."""
    wide = b.node("a1").label({RACK: "a"}).capacity(cpu="64", pods="2").build()
    driver.put(wide, node("b1", "b", "8"), device_class())
    driver.put(devices("fa", "f1", 2, in_rack("a")), devices("fb", "f2", 2, in_rack("b")), claim())
    driver.put(b.pod_group("train", min_count=4), *members(4, claim="shared"))


def test_group_goes_to_the_nodes_that_reach_devices_of_one_fabric() -> None:
    driver = racks(("a", "8"), ("b", "8"))
    driver.put(devices("fa", "f1", 1, in_rack("a")), devices("fb", "f2", 2, in_rack("b")), claim())
    driver.put(b.pod_group("train", min_count=3), *members(3, claim="shared"))

    driver.settle()

    assert nodes_of(driver) == ["b1"] * 3
    assert names(driver) == ["fb-0", "fb-1"]
    assert [user.name for user in the_claim(driver).status.reserved_for] == [f"train-{i}" for i in range(3)]
    assert chosen(driver)[0].placement == "shared=f2"
    assert chosen(driver)[0].claims == {}, "what the members' own writes say is not said twice"
    assert_replays(driver)


def test_fabric_whose_nodes_are_too_small_for_all_is_passed_over() -> None:
    """The first member alone would have taken it, and the others would not have fitted beside it."""
    driver = started()
    tempt_the_first_member(driver)

    driver.settle()

    assert nodes_of(driver) == ["b1"] * 4
    assert names(driver) == ["fb-0", "fb-1"]
    assert_replays(driver)


def test_levels_and_devices_narrow_each_other() -> None:
    driver = racks(("a", "8"), ("b", "8"))
    driver.put(devices("fa", "f1", 2), devices("fb", "f2", 2, in_rack("b")), claim())
    driver.put(b.pod_group("train", min_count=2, level=RACK), *members(2, claim="shared"))

    driver.settle()

    (placement,) = {body.placement for body in chosen(driver)}
    assert placement in ("shared=f1,topology.kubernetes.io/rack=a", "topology.kubernetes.io/rack=a,shared=f1")
    assert len(set(nodes_of(driver))) == 1
    assert_replays(driver)


def test_member_with_a_claim_of_its_own_gets_none_of_the_shared_devices() -> None:
    driver = racks(("a", "8"))
    driver.put(devices("fa", "f1", 3, in_rack("a")), claim(), d.claim("own", d.request("r", "fabric")))
    both = b.pod("train-0").group("train").request(cpu="1").scheduler("default-scheduler")
    driver.put(b.pod_group("train", min_count=2), member("train-1", claim="shared"))
    driver.put(both.claim("own", claim="own").claim("shared", claim="shared").build())

    driver.settle()

    assert nodes_of(driver) == ["a1", "a1"]
    assert not {*names(driver, "own")} & {*names(driver)}
    assert len({*names(driver, "own"), *names(driver)}) == 3
    assert_replays(driver)


def test_two_groups_in_flight_never_get_the_same_devices() -> None:
    driver = racks(("a", "8"), ("b", "8"))
    driver.put(devices("fa", "f1", 2), devices("fb", "f2", 2), claim("one"), claim("two"))
    for name in ("one", "two"):
        driver.put(b.pod_group(name, min_count=2), *members(2, name, claim=name))

    driver.attempt()
    driver.attempt()
    driver.commit()
    driver.settle()

    assert not {*names(driver, "one")} & {*names(driver, "two")}
    assert len(names(driver, "one")) == len(names(driver, "two")) == 2
    assert_replays(driver)


def test_group_waits_for_devices_and_the_members_say_why() -> None:
    driver = racks(("a", "8"))
    driver.put(devices("fa", "f1", 1), claim())
    driver.put(b.pod_group("train", min_count=2), *members(2, claim="shared"))

    driver.settle()
    before = nodes_of(driver)
    driver.put(devices("fb", "f2", 2))
    driver.advance(seconds=3)

    assert before == []
    assert nodes_of(driver) == ["a1", "a1"]
    assert names(driver) == ["fb-0", "fb-1"]
    assert_replays(driver)


def test_claim_without_constraints_is_tried_pool_by_pool() -> None:
    driver = racks(("a", "2"), ("b", "8"))
    driver.put(d.resource_slice("pool-a", ["x", "y"], node="a1", driver="fabric.example.com"))
    driver.put(d.resource_slice("pool-b", ["x", "y"], node="b1", driver="fabric.example.com"))
    driver.put(d.claim("shared", d.request("r", "fabric", count=2)))
    driver.put(b.pod_group("train", min_count=4), *members(4, claim="shared"))

    driver.settle()

    assert nodes_of(driver) == ["b1"] * 4
    assert d.devices_of(the_claim(driver)) == ["b1/x", "b1/y"]
    assert_replays(driver)


def test_log_from_before_is_decided_as_it_was() -> None:
    """Without the behaviour the first member takes what it finds, as it did."""
    driver = Driver()
    configuration = default_configuration(driver.registry)
    older = tuple(number for number in configuration.behaviours if number != DEVICE_PLACEMENTS)
    driver.start(replace(configuration, behaviours=older))
    tempt_the_first_member(driver)

    driver.settle()

    assert nodes_of(driver) == []
    assert_replays(driver)

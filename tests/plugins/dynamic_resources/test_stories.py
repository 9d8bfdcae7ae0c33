"""Pods with claims of devices, from the claim to the node: the stories of Kubernetes' documentation, and what must never happen."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tidelog.api.cel.program import Program
from tidelog.api.objects import (
    ClaimConsumer,
    DeviceTaintRule,
    Object,
    OwnerReference,
    Pod,
    ResourceClaim,
    ResourceSlice,
)
from tidelog.api.times import format_time
from tidelog.configuration.configuration import default_configuration, resolve_configuration
from tidelog.plugins.dynamic_resources.extended_resources import ANNOTATION
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import verify
from tidelog.testing import builders as b
from tidelog.testing import devices as d

OWN = f'device.attributes["{d.DRIVER}"]'


def pod(name: str, *claims: str) -> b.PodBuilder:
    built = b.pod(name).request(cpu="1").scheduler("default-scheduler")
    for claim in claims:
        built = built.claim(claim, claim=claim)
    return built


def started(*objects: Object, compat: str = "default") -> Driver:
    driver = Driver()
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "tidelog": {"compat": compat},
    }
    driver.start(resolve_configuration(file, driver.registry).configuration)
    driver.put(*objects)
    driver.settle()
    return driver


def claim_of(driver: Driver, name: str) -> ResourceClaim:
    found = driver.core.cluster.objects[f"ResourceClaim/default/{name}"]
    assert isinstance(found, ResourceClaim)
    return found


def nodes(*names: str) -> list[Object]:
    return [b.node(name).build() for name in names]


def test_one_gpu() -> None:
    driver = started(
        *nodes("n1", "n2"),
        d.device_class("gpu", f'device.driver == "{d.DRIVER}"'),
        d.resource_slice("s2", ["g0"], node="n2"),
        d.claim("one"),
        pod("p", "one").build(),
    )

    claim = claim_of(driver, "one")
    assert driver.placements() == {"default/p": "n2"}
    assert d.devices_of(claim) == ["n2/g0"]
    assert [consumer.name for consumer in claim.status.reserved_for] == ["p"]
    assert claim.metadata.finalizers == ("resource.kubernetes.io/delete-protection",)
    assert claim.status.allocation is not None
    assert claim.status.allocation.allocation_timestamp


def test_two_pods_share_a_claim_and_the_third_waits_for_a_device() -> None:
    driver = started(
        *nodes("n1", "n2"),
        d.device_class(),
        d.resource_slice("s1", ["g0"], node="n1"),
        d.claim("shared"),
        d.claim("other"),
        pod("a", "shared").build(),
        pod("b", "shared").build(),
        pod("c", "other").build(),
    )

    assert driver.placements() == {"default/a": "n1", "default/b": "n1"}
    assert {c.name for c in claim_of(driver, "shared").status.reserved_for} == {"a", "b"}
    assert d.devices_of(claim_of(driver, "other")) == []

    driver.put(d.resource_slice("s2", ["g0"], node="n2"))
    driver.settle()
    assert driver.placements()["default/c"] == "n2"


def test_devices_with_one_attribute_in_common() -> None:
    rack = {
        f"n{i}": [d.device(f"g{j}", attributes={"rack": "ab"[(i + j) % 2]}) for j in range(3)] for i in (1, 2)
    }
    driver = started(
        *nodes("n1", "n2"),
        d.device_class(),
        *(d.resource_slice(name, found, node=name) for name, found in rack.items()),
        d.claim("pair", d.request(count=2), constraints=[{"matchAttribute": f"{d.DRIVER}/rack"}]),
        pod("p", "pair").build(),
    )

    found = d.devices_of(claim_of(driver, "pair"))
    assert [name[-2:] for name in found] == ["g0", "g2"]


def test_partitions_of_a_device_share_its_memory() -> None:
    def part(name: str, memory: str) -> dict[str, Any]:
        counters = [{"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}]
        return d.device(name, consumesCounters=counters, attributes={"memory": memory})

    driver = started(
        *nodes("n1"),
        d.device_class(),
        d.resource_slice(
            "s1", [part("whole", "40Gi"), part("half-0", "20Gi"), part("half-1", "20Gi")], node="n1", count=2
        ),
        d.resource_slice(
            "s2",
            node="n1",
            count=2,
            sharedCounters=[{"name": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}],
        ),
        *(d.claim(f"half-{i}", d.request("r", "gpu", f'{OWN}.memory == "20Gi"')) for i in range(2)),
        d.claim("whole"),
        pod("a", "half-0").build(),
        pod("b", "half-1").build(),
        pod("c", "whole").build(),
    )

    assert driver.placements() == {"default/a": "n1", "default/b": "n1"}
    for name in "ab":
        driver.delete(driver.core.cluster.objects[f"Pod/default/{name}"])
    for name in ("half-0", "half-1"):
        freed = msgspec.structs.replace(
            claim_of(driver, name), status=msgspec.convert({}, type(claim_of(driver, name).status))
        )
        driver.put(freed)
    driver.advance(seconds=60)
    assert d.devices_of(claim_of(driver, "whole")) == ["n1/whole"]


def test_the_alternative_that_is_wanted_most_wins_where_it_can_be_had() -> None:
    def model(name: str, model: str) -> dict[str, Any]:
        return d.device(name, attributes={"model": model})

    wanted = d.first_available(
        "r",
        {"name": "big", **d.exact("gpu", f'{OWN}.model == "h100"')},
        {"name": "small", **d.exact("gpu", f'{OWN}.model == "t4"', count=2)},
    )
    driver = started(
        *nodes("n1", "n2", "n3"),
        d.device_class(),
        d.resource_slice("s1", [model("g0", "t4"), model("g1", "t4")], node="n1"),
        d.resource_slice("s2", [model("g0", "h100")], node="n2"),
        d.claim("a", wanted),
        d.claim("b", wanted),
        pod("a", "a").build(),
        pod("b", "b").build(),
    )

    assert driver.placements() == {"default/a": "n2", "default/b": "n1"}
    assert d.devices_of(claim_of(driver, "b")) == ["n1/g0", "n1/g1"]


def test_admin_access_looks_at_a_device_that_somebody_has() -> None:
    driver = started(
        *nodes("n1"),
        d.device_class(),
        d.resource_slice("s1", ["g0"], node="n1"),
        d.claim("work"),
        d.claim("look", d.request(adminAccess=True)),
        pod("a", "work").build(),
        pod("b", "look").build(),
    )

    assert driver.placements() == {"default/a": "n1", "default/b": "n1"}
    assert d.devices_of(claim_of(driver, "look")) == d.devices_of(claim_of(driver, "work")) == ["n1/g0"]


def test_tainted_device_is_for_those_who_tolerate_it() -> None:
    rule = {
        "metadata": {"name": "sick"},
        "spec": {"deviceSelector": {"device": "g0"}, "taint": {"key": "sick", "effect": "NoSchedule"}},
    }
    driver = started(
        *nodes("n1"),
        d.device_class(),
        d.resource_slice("s1", ["g0"], node="n1"),
        msgspec.convert(rule, DeviceTaintRule),
        d.claim("healthy"),
        d.claim("test", d.request(tolerations=[{"key": "sick", "operator": "Exists"}])),
        pod("a", "healthy").build(),
        pod("b", "test").build(),
    )

    assert driver.placements() == {"default/b": "n1"}


def test_device_that_several_may_have_is_given_until_it_is_used_up() -> None:
    nic = d.device(
        "nic",
        allowMultipleAllocations=True,
        capacity={"bandwidth": {"value": "10", "requestPolicy": {"default": "1"}}},
    )
    driver = started(
        *nodes("n1"),
        d.device_class("nic"),
        d.resource_slice("s1", [nic], node="n1"),
        *(
            d.claim(f"c{i}", d.request("r", "nic", capacity={"requests": {"bandwidth": "4"}}))
            for i in range(3)
        ),
        *(pod(f"p{i}", f"c{i}").build() for i in range(3)),
    )

    assert sorted(driver.placements()) == ["default/p0", "default/p1"]
    allocations = [claim_of(driver, f"c{i}").status.allocation for i in range(2)]
    shares = [a.devices.results[0] for a in allocations if a is not None]
    assert len({share.share_id for share in shares}) == 2
    assert [share.consumed_capacity for share in shares] == [{"bandwidth": "4"}] * 2


def test_extended_resource_is_served_by_devices_of_its_class() -> None:
    driver = started(
        *nodes("n1", "n2"),
        d.device_class("gpu", extendedResourceName="example.com/gpu"),
        d.resource_slice("s2", ["g0", "g1"], node="n2"),
        b.pod("p").request({"cpu": "1", "example.com/gpu": "2"}).scheduler("default-scheduler").build(),
    )

    made = [o for key, o in driver.core.cluster.objects.items() if key.startswith("ResourceClaim/")]
    assert driver.placements() == {"default/p": "n2"}
    assert [d.devices_of(claim) for claim in made if isinstance(claim, ResourceClaim)] == [["n2/g0", "n2/g1"]]
    found: Any = driver.core.cluster.objects["Pod/default/p"]
    assert found.status.extended_resource_claim_status.resource_claim_name == made[0].metadata.name


def test_claim_that_is_not_there_keeps_its_pod_out_of_the_queue() -> None:
    driver = started(
        *nodes("n1"), d.device_class(), d.resource_slice("s1", ["g0"], node="n1"), pod("p", "c").build()
    )
    assert driver.placements() == {}

    driver.put(d.claim("c"))
    driver.settle()
    assert driver.placements() == {"default/p": "n1"}


def test_allocation_that_no_node_can_use_any_more_is_given_back() -> None:
    """The claim's devices are on a node that is gone; the next attempt finds others."""
    status = d.allocated("g0", pool="gone")
    here = {"key": "metadata.name", "operator": "In", "values": ["gone"]}
    status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    driver = started(
        *nodes("n1"),
        d.device_class(),
        d.resource_slice("s1", ["g0"], node="n1"),
        d.claim("c", status=status),
        pod("p", "c").build(),
    )
    driver.advance(seconds=30)

    assert driver.placements() == {"default/p": "n1"}
    assert d.devices_of(claim_of(driver, "c")) == ["n1/g0"]


GPU = "example.com/gpu"
ONE = d.resource_slice("s1", ["g0"], node="n1")
WAITS = [*nodes("n1"), d.device_class(), d.claim("c"), pod("p", "c").build()]


def served(name: str) -> Pod:
    asked = {"cpu": "1", GPU: "1"}
    return b.pod(name).uid(name).request(asked).scheduler("default-scheduler").build()


def having(*devices: str, pool: str = "n1") -> ResourceClaim:
    return d.claim("had", status=d.allocated(*devices, pool=pool))


def another(**spec: Any) -> ResourceSlice:
    """A slice more of the node."""
    return d.resource_slice("s2", ["g0"], node="n1", **spec)


MAKES_WAY: dict[str, tuple[list[Object], Object, Object | None]] = {
    "another claim gets other devices": (
        [*WAITS, ONE, having("g0")],
        having("g0"),
        having("g0", pool="elsewhere"),
    ),
    "another claim has a device less": (
        [*WAITS, ONE, having("g0", "g1")],
        having("g0", "g1"),
        having("g1"),
    ),
    "a device goes, and all that are left are free": (
        [
            *WAITS,
            d.claim("c", d.request(allocationMode="All")),
            ONE,
            another(pool="2"),
            having("g0", pool="2"),
        ],
        another(pool="2"),
        None,
    ),
    "a slice goes that its pool has too many": ([*WAITS, ONE, another()], another(), None),
    "a class goes, and another one backs the resource": (
        [
            *nodes("n1"),
            ONE,
            d.device_class("a", "false", extendedResourceName=GPU),
            d.device_class("b", extendedResourceName=GPU),
            served("p"),
        ],
        d.device_class("a"),
        None,
    ),
}
"""What happens → the objects before; one of them, and its new version."""


@pytest.mark.parametrize("compat", ["default", "upstream"])
@pytest.mark.parametrize("what", MAKES_WAY)
def test_pod_is_woken_when_what_kept_it_from_devices_goes(what: str, compat: str) -> None:
    """kube-scheduler has it wait for the flush."""
    before, old, new = MAKES_WAY[what]
    driver = started(*before, compat=compat)
    assert driver.placements() == {}
    assert driver.kinds().count("Unschedulable") == 1

    if new is None:
        driver.delete(old)
    else:
        driver.put(new)
    driver.advance(seconds=20)

    assert driver.placements() == ({"default/p": "n1"} if compat == "default" else {})
    assert verify(driver.records, driver.registry).first_difference is None


@pytest.mark.parametrize("compat", ["default", "upstream"])
def test_pod_is_woken_when_the_claim_without_devices_goes_that_was_made_for_it(compat: str) -> None:
    """Whoever made it ended before it got any; kube-scheduler has the pod wait for the flush."""
    owner = OwnerReference(api_version="v1", kind="Pod", name="p", uid="p", controller=True)
    made, annotations = d.claim("left"), {ANNOTATION: "true"}
    meta = replace(made.metadata, uid="left", annotations=annotations, owner_references=(owner,))
    driver = started(
        *nodes("n1"),
        ONE,
        d.device_class(extendedResourceName=GPU),
        replace(made, metadata=meta),
        served("p"),
        compat=compat,
    )
    driver.advance(seconds=20)

    assert "ResourceClaim/default/left" not in driver.core.cluster.objects
    assert driver.placements() == ({"default/p": "n1"} if compat == "default" else {})
    assert verify(driver.records, driver.registry).first_difference is None


LEAVES_AS_IT_WAS: dict[str, tuple[list[Object], Object, Object | None]] = {
    "a claim with its devices is used by one more": (
        [*WAITS, ONE, having("g0")],
        having("g0"),
        replace(
            having("g0"),
            status=replace(
                having("g0").status, reserved_for=(ClaimConsumer(resource="pods", name="x", uid="x"),)
            ),
        ),
    ),
    "another claim has its devices in another order": (
        [*WAITS, ONE, having("g0", "g1")],
        having("g0", "g1"),
        having("g1", "g0"),
    ),
    "another claim has a device more": ([*WAITS, ONE, having("g0")], having("g0"), having("g0", "g1")),
    "the devices of a node go": ([*WAITS, ONE, having("g0")], ONE, None),
    "half of the devices of a node go": (
        [
            *WAITS,
            another(count=2, pool="2"),
            d.resource_slice("s1", node="n1", count=2, pool="2"),
            having("g0", pool="2"),
        ],
        another(count=2, pool="2"),
        None,
    ),
    "a class goes of which no resource is asked": (
        [*WAITS, ONE, having("g0"), d.device_class("b", extendedResourceName=GPU)],
        d.device_class("b"),
        None,
    ),
    "a claim without devices goes": ([*WAITS, ONE, having("g0"), d.claim("free")], d.claim("free"), None),
}


@pytest.mark.parametrize("what", LEAVES_AS_IT_WAS)
def test_pod_sleeps_when_what_happens_gives_it_no_device(what: str) -> None:
    before, old, new = LEAVES_AS_IT_WAS[what]
    driver = started(*before)

    if new is None:
        driver.delete(old)
    else:
        driver.put(new)
    driver.advance(seconds=20)

    assert driver.kinds().count("Unschedulable") == 1
    assert driver.placements() == {}


def test_pod_is_bound_when_its_device_is_ready() -> None:
    fabric = d.device("g0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"])
    driver = started(
        *nodes("n1"),
        d.device_class(),
        d.resource_slice("s1", [fabric], node="n1"),
        d.claim("c"),
        pod("p", "c").build(),
    )
    assert driver.placements() == {}
    claim = claim_of(driver, "c")
    assert d.devices_of(claim) == ["n1/g0"]

    told = [
        {
            "driver": d.DRIVER,
            "pool": "n1",
            "device": "g0",
            "conditions": [{"type": "Attached", "status": "True"}],
        }
    ]
    status = {**msgspec.to_builtins(claim.status), "devices": told}
    driver.put(msgspec.structs.replace(claim, status=msgspec.convert(status, type(claim.status))))
    driver.settle()
    assert driver.placements() == {"default/p": "n1"}


def test_pod_that_has_its_device_already_is_bound_when_it_is_ready() -> None:
    place = {"driver": d.DRIVER, "pool": "n1", "device": "g0"}
    had = d.allocated("g0", pool="n1", conditions=["Attached"])
    had["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "of-p"}]
    driver = started(*nodes("n1"), d.claim("c", status=had), pod("p", "c").uid("of-p").build())
    assert driver.placements() == {}

    ready = {"devices": [{**place, "conditions": [{"type": "Attached", "status": "True"}]}]}
    driver.put(d.claim("c", status={**had, **ready}))
    driver.settle()
    assert driver.placements() == {"default/p": "n1"}


def test_claim_has_its_own_time_to_get_ready_whichever_was_looked_at_before() -> None:
    driver = started(b.node("n1").capacity(cpu="4").build(), b.pod("there").request(cpu="4").on("n1").build())

    def allocated(name: str) -> ResourceClaim:
        had = d.allocated("g0", pool="n1", node="n1", conditions=["Attached"])
        had["allocation"]["allocationTimestamp"] = format_time(driver.now)
        return d.claim(name, status=had)

    driver.put(allocated("old"), pod("first", "old").build())
    driver.settle()
    driver.advance(seconds=11 * 60)
    driver.put(allocated("new"), pod("second", "new").priority(10).build())
    driver.settle()

    assert [record.key for record in driver.records if record.kind == "Evicted"] == ["Pod/default/there"]
    assert verify(driver.records, driver.registry).first_difference is None


def test_selector_that_fails_is_the_pods_error_and_others_go_on() -> None:
    driver = started(
        *nodes("n1"),
        d.device_class(),
        d.resource_slice("s1", ["g0"], node="n1"),
        d.claim("bad", d.request("r", "gpu", f"{OWN}.nothing == 1")),
        d.claim("good"),
        pod("a", "bad").build(),
        pod("b", "good").build(),
    )

    assert driver.placements() == {"default/b": "n1"}


@pytest.mark.parametrize("count", [1, 3])
def test_no_device_is_promised_twice_while_many_attempts_are_in_flight(count: int) -> None:
    objects: list[Object] = [*nodes("n1", "n2"), d.device_class()]
    objects += [d.resource_slice(f"s{i}", ["g0", "g1", "g2"], node=f"n{i}") for i in (1, 2)]
    objects += [d.claim(f"c{i}", d.request(count=count)) for i in range(8)]
    driver = started(*objects)
    driver.put(*(pod(f"p{i}", f"c{i}").build() for i in range(8)))
    driver.settle()

    given = [device for i in range(8) for device in d.devices_of(claim_of(driver, f"c{i}"))]
    assert len(given) == len(set(given)) == 6
    assert len(driver.placements()) == 6 // count


def test_four_pods_want_two_devices_each_of_one_host() -> None:
    driver = Driver()
    driver.start(default_configuration(Registry(), {"TopologyAwareWorkloadScheduling": True}))
    for host, count in {"h1": 6, "h2": 8, "h3": 7}.items():
        driver.put(b.node(host).label({b.HOSTNAME: host}).capacity(cpu="64").build())
        driver.put(d.resource_slice(host, [f"g{i}" for i in range(count)], node=host))
    driver.put(d.device_class(), b.pod_group("train", min_count=4, level=b.HOSTNAME))
    driver.put(*(d.claim(f"c{i}", d.request(count=2)) for i in range(4)))
    driver.put(*(pod(f"p{i}", f"c{i}").group("train").build() for i in range(4)))
    driver.settle()

    given = [device for i in range(4) for device in d.devices_of(claim_of(driver, f"c{i}"))]
    assert set(driver.placements().values()) == {"h2"}
    assert given == [f"h2/g{i}" for i in range(8)]


def test_members_of_a_gang_share_the_claim_that_the_first_allocates() -> None:
    """Two racks, each with a fabric that all of its nodes reach; only one has room for all."""
    driver = Driver()
    driver.start(default_configuration(Registry(), {"TopologyAwareWorkloadScheduling": True}))
    for rack, cpu in {"a": "1", "b": "4"}.items():
        inside = {"key": "rack", "operator": "In", "values": [rack]}
        selector = {"nodeSelectorTerms": [{"matchExpressions": [inside]}]}
        driver.put(*(b.node(f"{rack}{i}").label({"rack": rack}).capacity(cpu=cpu).build() for i in (1, 2)))
        driver.put(d.resource_slice(f"fabric-{rack}", ["link"], nodeSelector=selector))
    driver.put(d.device_class(), b.pod_group("train", min_count=6, level="rack"), d.claim("nvlink"))
    driver.put(*(pod(f"p{i}", "nvlink").group("train").build() for i in range(6)))
    driver.settle()

    assert {node[0] for node in driver.placements().values()} == {"b"}
    assert d.devices_of(claim_of(driver, "nvlink")) == ["fabric-b/link"]
    assert len(claim_of(driver, "nvlink").status.reserved_for) == 6


def test_device_that_somebody_else_was_given_meanwhile_calls_the_attempt_off() -> None:
    """Another scheduler allocates the device between the decision and its record."""
    driver = started(*nodes("n1"), d.device_class(), d.resource_slice("s1", ["g0"], node="n1"), d.claim("c"))
    driver.put(pod("p", "c").build())
    driver.attempt()
    driver.put(d.claim("theirs", status=d.allocated("g0", pool="n1")))
    driver.commit()
    driver.settle()

    assert driver.placements() == {}
    assert d.devices_of(claim_of(driver, "c")) == []


@pytest.mark.parametrize("compat", ["default", "upstream"])
def test_dear_selectors_pay_for_what_they_take(compat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A selector of 14,500 units about each of 30 devices: three fit into the steps of a node, but kube-scheduler asks all."""
    dear = "!lists.range(100).all(x, lists.range(20).all(y, x + y >= 0))"
    asked: list[int] = []
    plain = Program.matches

    def counted(self: Program, *given: Any) -> tuple[bool, int]:
        answer, cost = plain(self, *given)
        asked.append(cost)
        return answer, cost

    monkeypatch.setattr(Program, "matches", counted)
    driver = started(
        *nodes("n1"),
        d.device_class(),
        d.resource_slice("s1", [f"g{i}" for i in range(30)], node="n1"),
        d.claim("dear", d.request("r", "gpu", dear)),
        pod("p", "dear").build(),
        compat=compat,
    )

    message = msgspec.msgpack.decode(driver.records[-1].body)["message"]
    if compat == "default":
        assert "the search for devices was given up after 50000 steps" in message
        assert sum(asked[:-1]) <= 50_000 < sum(asked)
    else:
        assert len(asked) == 30
        assert "cannot allocate all claims" in message

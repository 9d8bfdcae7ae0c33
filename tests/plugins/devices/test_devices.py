"""Devices of pools, the sets that belong together, DRATestPlugin's two halves, and what wakes WaitForDriver."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.worlds.device_sets import NoSuchClass, device_sets, devices_of
from tests.worlds.dra_test_plugin import TAKEN, DRATestPlugin, shared_claims
from tests.worlds.placements import group, handle, node
from tidelog.api.objects import (
    AllocationResult,
    CelSelector,
    Device,
    DeviceAllocation,
    DeviceAttribute,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceRequest,
    DeviceResult,
    DeviceSelector,
    ExactDeviceRequest,
    ObjectMeta,
    PodResourceClaimStatus,
    ResourceClaim,
    ResourceClaimSpec,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    Taint,
)
from tidelog.framework.events import Hint
from tidelog.framework.interface import Code, CycleState, Placement
from tidelog.framework.node_info import PodInfo
from tidelog.framework.placements import whole
from tidelog.plugins.devices.wait_for_driver import WaitForDriver, claim_names
from tidelog.queue.entity import QueuedPod
from tidelog.testing import builders as b

DRIVER = "fabric.example.com"


def devices(*names: str, fabric: str = "") -> tuple[Device, ...]:
    attributes = {"fabric": DeviceAttribute(string=fabric)} if fabric else {}
    return tuple(Device(name=name, attributes=attributes) for name in names)


def slice_of(
    pool: str, found: Sequence[Device], *, generation: int = 1, count: int = 1, name: str = "", on: str = ""
) -> ResourceSlice:
    return ResourceSlice(
        metadata=ObjectMeta(name=name or pool),
        spec=ResourceSliceSpec(
            driver=DRIVER,
            pool=ResourcePool(name=pool, generation=generation, resource_slice_count=count),
            node_name=on or None,
            all_nodes=None if on else True,
            devices=tuple(found),
        ),
    )


def claim(*requests: ExactDeviceRequest, name: str = "c", **constraint: str) -> ResourceClaim:
    wanted = tuple(DeviceRequest(name=f"r{i}", exactly=one) for i, one in enumerate(requests))
    constraints = (DeviceConstraint(**constraint),) if constraint else ()
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=wanted, constraints=constraints)),
    )


def exactly(count: int | None = 1, mode: str = "") -> ExactDeviceRequest:
    return ExactDeviceRequest(device_class_name="any", count=count, allocation_mode=mode)


ANY = DeviceClass(metadata=ObjectMeta(name="any"))


def sets(wanted: ResourceClaim, *slices: ResourceSlice, taken: Sequence[str] = ()) -> dict[str, list[str]]:
    busy = frozenset((DRIVER, device[0], device) for device in taken)
    found = device_sets(wanted, devices_of(slices), busy, {"any": ANY}.get)
    return {one.name: [r.device for r in one.allocation.devices.results] for one in found}


# --- pools and sets ---------------------------------------------------------------------------------------------------------


def test_pool_counts_when_all_slices_of_its_newest_generation_are_there() -> None:
    old = slice_of("p", devices("p0"), name="old")
    first = slice_of("p", devices("p1"), generation=2, count=2, name="first")
    second = slice_of("p", devices("p2"), generation=2, count=2, name="second")

    assert [d.id[2] for d in devices_of([old])] == ["p0"]
    assert devices_of([old, first]) == []
    assert [d.id[2] for d in devices_of([second, old, first])] == ["p1", "p2"]


def test_tainted_devices_are_never_chosen() -> None:
    tainted = Device(name="p0", taints=(Taint(key="broken", effect="NoSchedule"),))

    assert devices_of([slice_of("p", [tainted])]) == []


def test_devices_belong_together_by_their_pool_or_by_the_attribute_that_has_to_match() -> None:
    a = slice_of("a", [*devices("a0", fabric="f1"), *devices("a1", fabric="f2")])
    c = slice_of("c", devices("c0", fabric="f1"))

    assert sets(claim(exactly(2)), a, c) == {f"{DRIVER}/a": ["a0", "a1"]}
    assert sets(claim(exactly(2), match_attribute=f"{DRIVER}/fabric"), a, c) == {"f1": ["a0", "c0"]}


def test_devices_of_different_nodes_do_not_belong_together() -> None:
    first, second = slice_of("p", devices("p0"), on="n1"), slice_of("q", devices("q0"), on="n2")

    assert sets(claim(exactly(2), match_attribute="fabric"), first, second) == {}
    assert list(sets(claim(exactly()), first, second)) == [
        f"{DRIVER}/p@metadata.name In n1",
        f"{DRIVER}/q@metadata.name In n2",
    ]


def test_taken_devices_are_passed_over_and_a_request_for_all_wants_all() -> None:
    pool = slice_of("p", devices("p0", "p1", "p2"))

    assert sets(claim(exactly(2)), pool, taken=["p0"]) == {f"{DRIVER}/p": ["p1", "p2"]}
    assert sets(claim(exactly(None, "All")), pool) == {f"{DRIVER}/p": ["p0", "p1", "p2"]}
    assert sets(claim(exactly(None, "All")), pool, taken=["p0"]) == {}


def test_requests_of_one_claim_do_not_share_devices() -> None:
    pool = slice_of("p", devices("p0", "p1", "p2"))

    assert sets(claim(exactly(1), exactly(2)), pool) == {f"{DRIVER}/p": ["p0", "p1", "p2"]}
    assert sets(claim(exactly(2), exactly(2)), pool) == {}


def test_distinct_attribute_takes_one_of_each() -> None:
    pool = slice_of("p", [*devices("p0", "p1", fabric="f1"), *devices("p2", fabric="f2")])

    assert sets(claim(exactly(2), distinct_attribute=f"{DRIVER}/fabric"), pool) == {
        f"{DRIVER}/p": ["p0", "p2"]
    }


def test_unknown_class_and_selector_that_cannot_be_read_are_said() -> None:
    pool = devices_of([slice_of("p", devices("p0"))])
    broken = DeviceClassSpec(selectors=(DeviceSelector(cel=CelSelector(expression="device.capacity")),))
    unreadable = replace(ANY, spec=broken)

    with pytest.raises(NoSuchClass, match="device class any not found"):
        device_sets(claim(exactly()), pool, frozenset(), {}.get)  # type: ignore[arg-type]
    with pytest.raises(NoSuchClass, match="cannot be understood: must evaluate to bool"):
        device_sets(claim(exactly()), pool, frozenset(), {"any": unreadable}.get)


# --- DRATestPlugin ----------------------------------------------------------------------------------------------------------


def member(name: str, *claims: str) -> b.PodBuilder:
    pod = b.pod(name)
    for one in claims:
        pod = pod.claim(one, claim=one)
    return pod


def test_shared_claims_are_those_of_all_members() -> None:
    found = group(members=[member("p", "x", "y").build(), member("q", "y", "z").build()])

    assert shared_claims(found) == ["y"]


def test_assume_takes_the_devices_and_revert_gives_them_back() -> None:
    plugin = DRATestPlugin(None, handle([node("n1")]))
    result = DeviceResult(request="r0", driver=DRIVER, pool="p", device="p0")
    allocation = AllocationResult(devices=DeviceAllocation(results=(result,)))
    state, found = CycleState(), group()
    one = Placement(name="one", nodes=("n1",), allocations=(("ResourceClaim/default/c", allocation),))
    two = Placement(name="two", nodes=("n1",), allocations=(("ResourceClaim/default/d", allocation),))

    assert plugin.assume(state, found, one) is None
    refused = plugin.assume(state, found, two)
    assert refused is not None
    assert refused.message == "devices of ResourceClaim/default/d are taken"
    assert plugin.revert(state, found, one) is None
    assert state.read(TAKEN) == {}
    assert plugin.assume(state, found, two) is None


def test_two_claims_of_a_group_split_the_placements_twice_and_share_no_device() -> None:
    wanted = [claim(exactly(), name="c"), claim(exactly(), name="d")]
    given = handle([node("n1")], *wanted, ANY, slice_of("p", devices("p0", "p1")))
    plugin = DRATestPlugin(None, given)
    found = group(members=[member("p", "c", "d").build()])

    placements, status = plugin.generate(CycleState(), found, [whole(["n1"])])

    assert status is None
    (only,) = placements
    chosen = [r.device for _, allocation in only.allocations for r in allocation.devices.results]
    assert chosen == ["p0", "p1"]


# --- WaitForDriver ----------------------------------------------------------------------------------------------------------


def allocated(found: ResourceClaim) -> ResourceClaim:
    return replace(found, status=replace(found.status, allocation=AllocationResult()))


def test_reserve_is_pending_until_the_claim_is_allocated() -> None:
    waiting = claim(exactly())
    pod = PodInfo(member("p", "c").build())
    answers = []
    for found in (waiting, allocated(waiting)):
        plugin, state = WaitForDriver(None, handle([node("n1")], found)), CycleState()
        assert plugin.pre_filter(state, pod, []).status is None
        answers.append(plugin.reserve(state, pod, "n1"))

    first, second = answers
    assert first is not None
    assert first.code is Code.PENDING
    assert second is None


def test_pod_without_claims_is_none_of_its_business_and_a_missing_claim_is_said() -> None:
    plugin = WaitForDriver(None, handle([node("n1")]))

    skipped = plugin.pre_filter(CycleState(), PodInfo(b.pod("p").build()), []).status
    missing = plugin.pre_filter(CycleState(), PodInfo(member("p", "c").build()), []).status

    assert skipped is not None
    assert skipped.code is Code.SKIP
    assert missing is not None
    assert missing.message == 'resourceclaim "c" not found'


def test_only_the_allocation_of_its_own_claim_wakes_a_pod() -> None:
    hint = WaitForDriver(None, handle([node("n1")])).events_to_register()[0].hint
    assert hint is not None
    pod = member("p", "c").build()
    waiting = QueuedPod(key="default/p", timestamp=0, uid="p", pod=pod, profile="default-scheduler")
    own, other = claim(exactly()), claim(exactly(), name="d")

    assert hint(waiting, own, allocated(own)) is Hint.QUEUE
    assert hint(waiting, own, own) is Hint.SKIP
    assert hint(waiting, other, allocated(other)) is Hint.SKIP


def test_claims_that_a_template_made_are_known_by_the_status() -> None:
    pod = b.pod("p").claim("gpu", template="t").build()
    made = PodResourceClaimStatus(name="gpu", resource_claim_name="p-gpu")

    assert claim_names(pod) == []
    assert claim_names(replace(pod, status=replace(pod.status, resource_claim_statuses=(made,)))) == ["p-gpu"]

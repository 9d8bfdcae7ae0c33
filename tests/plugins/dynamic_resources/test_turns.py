"""An attempt that takes long stops now and then, and comes to the same as one that does not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tidelog.api.objects import Node, Object, Pod, PodResourceClaim, PodSchedulingGroup, ResourceClaim
from tidelog.api.times import NANOS
from tidelog.eventlog.records import Reserved, decode_body
from tidelog.framework.effort import Paused
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.dynamic_resources.search import Search
from tidelog.plugins.registry import Registry
from tidelog.queue.entity import Where
from tidelog.replay.driver import Driver
from tidelog.replay.examine import Examination
from tidelog.replay.verify import verify
from tidelog.scheduler.state import encode_state
from tidelog.testing import builders as b
from tidelog.testing import devices as d
from tidelog.testing import storage as s

CLASS = d.device_class("gpu", f"device.driver == '{d.DRIVER}'")


def claiming(name: str, *claims: str) -> Pod:
    pod = b.pod(name).build()
    named = tuple(PodResourceClaim(name=claim, resource_claim_name=claim) for claim in claims)
    return replace(
        pod,
        metadata=replace(pod.metadata, uid=f"uid-{name}"),
        spec=replace(pod.spec, scheduler_name="default-scheduler", resource_claims=named),
    )


def hosts(count: int, devices: Sequence[dict[str, object]]) -> list[Object]:
    found: list[Object] = [CLASS]
    for name in (f"n{i:03}" for i in range(count)):
        found += (b.node(name).build(), d.resource_slice(name, devices, node=name))
    return found


def exploding() -> dict[str, object]:
    """Twelve and twelve devices of which no two groups of three are alike: nothing that prunes sees that there is no way."""
    return {
        "constraints": [
            {"distinctAttribute": f"{d.DRIVER}/i"},
            {"requests": ["a", "b"], "matchAttribute": f"{d.DRIVER}/g"},
        ]
    }


def gang(*claims: str) -> list[Object]:
    """A pod for each claim, all or none of them."""
    pods = [claiming(f"p{i}", claim) for i, claim in enumerate(claims)]
    return _grouped(pods)


def mounting(count: int) -> list[Object]:
    pods = [
        b.pod(f"p{i}").uid(f"uid-p{i}").scheduler("default-scheduler").pvc(f"v{i}").build()
        for i in range(count)
    ]
    return _grouped(pods)


def _grouped(pods: Sequence[Pod]) -> list[Object]:
    group = PodSchedulingGroup(pod_group_name="g")
    members = [replace(pod, spec=replace(pod.spec, scheduling_group=group)) for pod in pods]
    return [b.pod_group("g", min_count=len(pods)), *members]


def zones(count: int) -> list[Object]:
    nodes = [b.node(f"n{i:03}").label({b.ZONE: f"z{i % 2}"}).build() for i in range(count)]
    volumes = [s.volume(f"pv{i}", "5Gi", "local", on={b.ZONE: f"z{i % 2}"}) for i in range(4)]
    return [s.local_class(), *nodes, *volumes]


def preempting(
    count: int, devices: Sequence[dict[str, object]], claim: Object
) -> tuple[list[Object], list[Object]]:
    """A pod that fits nowhere as long as others are there, and for which there are no devices anyway."""
    there = [
        b.pod(f"low{i}").uid(f"uid-low{i}").request(cpu="3").on(f"n{i:03}").build() for i in range(count)
    ]
    nodes = [b.node(f"n{i:03}").capacity(cpu="4").build() for i in range(count)]
    others = [obj for obj in hosts(count, devices) if not isinstance(obj, Node)]
    pod = claiming("p0", "c3")
    more = b.pod("p0").request(cpu="2").priority(10).build().spec
    return [*others, *nodes, *there], [
        claim,
        replace(pod, spec=replace(pod.spec, containers=more.containers, priority=10)),
    ]


def worlds() -> dict[str, tuple[list[Object], list[Object]]]:
    mixed = [d.device(f"d{i:02}", attributes={"i": i, "g": i % 3}) for i in range(40)]
    plain = [d.device(f"d{i}") for i in range(4)]
    shareable = [d.device(f"d{i}", allowMultipleAllocations=True) for i in range(4)]
    two = (d.request("a", count=12), d.request("b", count=12))
    dear = d.claim("c3", *two, **exploding())
    three = [d.claim(f"c{i}", d.request(count=count)) for i, count in enumerate((5, 4, 4))]
    return {
        "preemptor": preempting(4, mixed, dear),
        "group that explodes at last": (
            hosts(3, mixed),
            [d.claim("c0", d.request()), dear, *gang("c0", "c3")],
        ),
        "group that shares a dear claim": (hosts(2, mixed), [dear, *gang("c3", "c3")]),
        "group on many nodes": (hosts(60, plain), [*three[1:], *gang("c1", "c2")]),
        "group with shares": (hosts(60, shareable), [*three[1:], *gang("c1", "c2")]),
        "group with volumes": (
            zones(60),
            [*(s.claim(f"v{i}", "1Gi", "local") for i in range(3)), *mounting(3)],
        ),
        "one dear search": (hosts(3, mixed), [d.claim("c", *two, **exploding()), claiming("p", "c")]),
        "many nodes": (hosts(60, plain), [*three, *(claiming(f"p{i}", f"c{i}") for i in range(3))]),
    }


def why_of(driver: Driver) -> object:
    """All that `why` says about one of the pods that are still to be placed."""
    core = driver.core
    pod = next(o for o in core.objects.values() if isinstance(o, Pod) and not o.spec.node_name)
    framework = core.frameworks["default-scheduler"]
    return Examination(framework, PodInfo(pod)).blamed() or True


def decided(driver: Driver, most: int | None) -> int:
    """Decide everything that there is to decide, in turns of so many steps; how many turns ended early."""
    paused = 0
    while True:
        before = encode_state(driver.core)
        try:
            decision = driver.core.attempt(driver.now, most)
        except Paused:
            paused += 1
            assert paused < 10_000, "it comes to an end"
            assert encode_state(driver.core) == before, "nothing has happened"
            assert why_of(driver), "who asks in between is answered"
            continue
        if decision is None:
            return paused
        driver.submitted.append(decision)
        driver.commit()


@pytest.mark.parametrize("name", list(worlds()))
def test_turns_change_no_decision(name: str) -> None:
    logs = []
    for most in (None, 300):
        setup, pods = worlds()[name]
        driver = Driver()
        driver.start()
        driver.put(*setup)
        driver.put(*pods)
        paused = decided(driver, most)
        assert bool(paused) == (most is not None)
        driver.advance(30)
        assert verify(driver.records, Registry()).first_difference is None
        logs.append(driver.records)
    assert logs[0] == logs[1]


def test_pod_that_came_out_of_backoff_goes_back_there() -> None:
    setup, (*claims, first, second, third) = worlds()["many nodes"]
    driver = Driver()
    driver.start()
    driver.put(*setup, *claims, first)
    driver.settle()
    driver.put(d.resource_slice("n000", ["more"], node="n000", generation=2))
    assert driver.core.queue.get("default/p0").where is Where.BACKOFF  # type: ignore[union-attr]
    driver.put(b.node("n100").build())
    before = encode_state(driver.core)
    with pytest.raises(Paused):
        driver.core.attempt(driver.now, 10)
    assert encode_state(driver.core) == before
    driver.put(second, third)
    driver.now += 60 * NANOS
    before = encode_state(driver.core)
    with pytest.raises(Paused):
        driver.core.attempt(driver.now, 10)
    assert encode_state(driver.core) == before
    decided(driver, 300)
    assert sorted(driver.placements()) == ["default/p1", "default/p2"]
    driver.advance(60)
    assert verify(driver.records, Registry()).first_difference is None


def test_group_that_came_out_of_backoff_goes_back_there() -> None:
    setup, (*claims, group, first, second) = worlds()["group on many nodes"]
    driver = Driver()
    driver.start()
    driver.put(*setup, *claims, group, first, second, d.claim("c1", d.request(count=5)))
    driver.settle()
    driver.put(d.resource_slice("n000", ["more"], node="n000", generation=2))
    found = driver.core.queue.get_group("default/g")
    assert found is not None
    assert found.where is Where.BACKOFF
    for later in (0, 60):
        driver.now += later * NANOS
        before = encode_state(driver.core)
        with pytest.raises(Paused):
            driver.core.attempt(driver.now, 10)
        assert encode_state(driver.core) == before
    decided(driver, 300)
    assert not driver.placements()
    driver.advance(60)
    assert verify(driver.records, Registry()).first_difference is None


def test_last_of_many_nodes_is_found_though_all_others_have_a_device_too_few() -> None:
    nodes = 2_000
    eight = [d.device(f"d{i}") for i in range(8)]
    setup: list[Object] = [CLASS]
    for i in range(nodes):
        name = f"n{i:04}"
        devices = eight if i == nodes - 1 else eight[:7]
        setup += (b.node(name).build(), d.resource_slice(name, devices, node=name))
    driver = Driver()
    driver.start()
    driver.put(*setup, d.claim("all", d.request(count=8)), claiming("p", "all"))

    decided(driver, 5_000)

    assert driver.placements() == {"default/p": f"n{nodes - 1:04}"}


def test_devices_that_many_nodes_reach_are_searched_in_vain_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = 0
    run = Search.run

    def counted(self: Search) -> bool:
        nonlocal searches
        searches += 1
        return run(self)

    monkeypatch.setattr(Search, "run", counted)
    zone = {"key": b.ZONE, "operator": "In", "values": ["b"]}
    own, far = ({"nodeSelectorTerms": [{"matchExpressions": [{**zone, "values": [name]}]}]} for name in "ab")
    setup: list[Object] = [CLASS, d.resource_slice("host", ["h0"], node="n99")]
    setup += [d.resource_slice(f"s{i:02}", ["d0"], nodeSelector=own if i % 2 else far) for i in range(40)]
    setup += [b.node(f"n{i:02}").label({b.ZONE: "ab"[i % 2]}).build() for i in range(100)]
    driver = Driver()
    driver.start()
    driver.put(*setup, d.claim("c", d.request("r", "gpu", "device.driver == 'other'")), claiming("p", "c"))

    decided(driver, None)

    assert searches == 3, "one for each zone, and one for the host with a device of its own"
    driver.put(d.resource_slice("more", ["x"], node="n50", driver="other"), d.device_class())
    driver.advance(60)
    assert driver.placements() == {"default/p": "n50"}


def test_claim_whose_devices_move_between_two_turns_is_looked_at_anew() -> None:
    def claim(node: str) -> ResourceClaim:
        return d.claim("c", status=d.allocated("gpu", pool="p", node=node, conditions=["Attached"]))

    driver = Driver()
    driver.start()
    driver.put(CLASS, *(b.node(f"n{i}").build() for i in range(60)))
    # What the plugins say of nodes without claims is known, so that nothing but the claim is asked about.
    driver.put(d.claim("first", status=d.allocated("gpu", pool="q")), claiming("first", "first"))
    driver.settle()
    driver.put(claim("n1"), claiming("p", "c"))
    with pytest.raises(Paused):
        driver.core.attempt(driver.now, 10)

    driver.put(claim("n2"))
    driver.settle()

    reserved = [decode_body(record) for record in driver.records if record.kind == "Reserved"]
    assert isinstance(reserved[-1], Reserved)
    assert reserved[-1].node == "n2"
    assert verify(driver.records, driver.registry).first_difference is None

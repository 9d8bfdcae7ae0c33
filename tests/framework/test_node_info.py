"""A node's sums, ports and lists stay exact while pods come and go."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.testing.builders import HOSTNAME, PodBuilder, node, pod

SLOTS = [name for name in NodeInfo.__slots__ if name != "generation"]


def contents(info: NodeInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in SLOTS}


def copied(info: NodeInfo) -> dict[str, Any]:
    return {
        name: value.copy() if isinstance(value, dict) else value for name, value in contents(info).items()
    } | {"used_ports": {key: holders.copy() for key, holders in info.used_ports.items()}}


def variants(name: str) -> list[PodBuilder]:
    plain = pod(name)
    return [
        plain,
        plain.request(cpu="100m", memory="1Mi"),
        plain.request({"example.com/gpu": 1}, cpu="0"),
        plain.port(80),
        plain.port(80, host_ip="10.0.0.1").port(80, protocol="UDP"),
        plain.pod_affinity(HOSTNAME, "app=a"),
        plain.pod_anti_affinity(HOSTNAME, "app=a").request(cpu="1"),
        plain.prefer_pod_anti_affinity(5, HOSTNAME, "app=a").overhead(cpu="10m"),
    ]


pods = st.lists(st.integers(0, 7), max_size=6).map(
    lambda kinds: [PodInfo(variants(f"p{i}")[kind].build()) for i, kind in enumerate(kinds)]
)


def test_requested_is_the_sum_and_holds_no_zeros() -> None:
    info = NodeInfo(node("n").capacity(cpu=4, pods=10).build())

    info.add_pod(PodInfo(pod("a").request({"example.com/gpu": 2}, cpu="100m").build()))
    info.add_pod(PodInfo(pod("b").request(cpu="200m", memory="0").build()))

    assert info.requested == {"cpu": 300, "example.com/gpu": 2}
    assert (info.non_zero_cpu, info.non_zero_memory) == (300, 200 * 1024 * 1024)


def test_an_unnamed_ip_and_protocol_are_any_ip_and_tcp() -> None:
    info = PodInfo(pod("p").port(80).build())

    assert info.host_ports == (("0.0.0.0", "TCP", 80),)


def test_ports_conflict_on_the_same_ip_or_on_any() -> None:
    info = NodeInfo(node("n").build(), [PodInfo(pod("p").port(80, host_ip="10.0.0.1").build())])

    assert info.conflicts_with([("10.0.0.1", "TCP", 80)])
    assert info.conflicts_with([("0.0.0.0", "TCP", 80)])
    assert not info.conflicts_with(
        [("10.0.0.2", "TCP", 80), ("10.0.0.1", "UDP", 80), ("10.0.0.1", "TCP", 81)]
    )


def test_a_port_held_twice_stays_taken_until_both_are_gone() -> None:
    first, second = (PodInfo(pod(name).port(80).build()) for name in "ab")
    info = NodeInfo(node("n").build(), [first, second])

    info.remove_pod(first)

    assert info.conflicts_with([("10.0.0.1", "TCP", 80)])

    info.remove_pod(second)

    assert info.used_ports == {}


def test_affinity_lists_hold_the_pods_with_terms() -> None:
    soft = PodInfo(pod("soft").prefer_pod_affinity(1, HOSTNAME, "a=b").build())
    hard = PodInfo(pod("hard").pod_anti_affinity(HOSTNAME, "a=b").build())
    info = NodeInfo(node("n").build(), [soft, hard, PodInfo(pod("plain").build())])

    assert list(info.affinity_pods) == [soft.uid, hard.uid]
    assert list(info.required_anti_affinity_pods) == [hard.uid]


def test_images_are_listed_under_every_name() -> None:
    info = NodeInfo(node("n").image("a:1", 10).image("b:2", 20).build())

    assert info.images == {"a:1": 10, "b:2": 20}


def test_a_pod_is_removed_as_it_was_added() -> None:
    info = NodeInfo(node("n").build(), [PodInfo(pod("p").request(cpu="100m").build())])

    info.remove_pod(PodInfo(pod("p").request(cpu="300m").build()))

    assert info.requested == {}


@given(pods, pods)
def test_removing_is_the_inverse_of_adding(there: list[PodInfo], more: list[PodInfo]) -> None:
    info = NodeInfo(node("n").build(), there)
    more = [PodInfo(replace_name(one, f"more-{i}")) for i, one in enumerate(more)]
    before = copied(info)

    for one in more:
        info.add_pod(one)
    for one in more[::2] + more[1::2]:
        info.remove_pod(one)

    assert contents(info) == before


@given(pods)
def test_a_clone_is_equal_and_independent(there: list[PodInfo]) -> None:
    info = NodeInfo(node("n").build(), there)
    before = copied(info)

    clone = info.clone()

    assert contents(clone) == before

    clone.add_pod(PodInfo(pod("new").port(80).pod_anti_affinity(HOSTNAME, "a=b").request(cpu=1).build()))
    for one in there:
        clone.remove_pod(one)

    assert contents(info) == before


def replace_name(info: PodInfo, name: str) -> Any:
    return replace(info.pod, metadata=replace(info.pod.metadata, name=name))

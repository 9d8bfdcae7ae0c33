"""The cache holds what the log said and what was assumed; its snapshot follows it change by change.

Laws, held by `CacheMachine` under random operations:

1. A node's sums, ports and lists are those of a node built anew from the same pods.
2. A snapshot that was refreshed now and then equals one taken from scratch.
3. A table that is brought up to date from `changed_since` alone equals one built from scratch.
4. `assume` and then `forget` change nothing.
5. Nodes are listed round-robin over the zones, in the order in which they came.
"""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from tests.thorough import cases
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.snapshot import Snapshot
from tidelog.scheduler.cache import Cache
from tidelog.testing.builders import HOSTNAME, ZONE, NodeBuilder, PodBuilder, node, pod


def info(builder: PodBuilder) -> PodInfo:
    return PodInfo(builder.build())


def cluster(*names: str) -> Cache:
    cache = Cache()
    for name in names:
        cache.put_node(node(name).build())
    return cache


def on_node(cache: Cache, name: str) -> list[str]:
    found = cache.get(name)
    assert found is not None
    return list(found.pods)


# --- pods -----------------------------------------------------------------------------------------------------------------


def test_a_bound_pod_takes_its_place() -> None:
    cache = cluster("n")

    cache.put_pod(info(pod("p").on("n").request(cpu="100m")))

    assert on_node(cache, "n") == ["default/p"]
    assert cache.node_of("default/p") == "n"
    assert not cache.is_assumed("default/p")


def test_a_new_version_replaces_the_old_one() -> None:
    cache = cluster("n")
    cache.put_pod(info(pod("p").on("n").request(cpu="100m")))

    cache.put_pod(info(pod("p").on("n").request(cpu="300m")))

    found = cache.get("n")
    assert found is not None
    assert found.requested == {"cpu": 300}


def test_a_finished_pod_leaves_at_once() -> None:
    for phase in ("Succeeded", "Failed"):
        cache = cluster("n")
        cache.put_pod(info(pod("p").on("n")))

        cache.put_pod(info(pod("p").on("n").phase(phase)))

        assert on_node(cache, "n") == []


def test_a_terminating_pod_stays_until_it_is_deleted() -> None:
    cache = cluster("n")
    cache.put_pod(info(pod("p").on("n")))

    cache.put_pod(info(pod("p").on("n").terminating()))

    assert on_node(cache, "n") == ["default/p"]

    cache.remove_pod("default/p")

    assert on_node(cache, "n") == []


def test_a_pod_of_an_unknown_node_is_kept_aside_until_the_node_comes() -> None:
    cache = cluster()

    cache.put_pod(info(pod("p").on("n").request(cpu="100m")))

    assert len(cache) == 0
    assert cache.changed_since(0) == []

    cache.put_node(node("n").build())

    assert on_node(cache, "n") == ["default/p"]


def test_the_pods_of_a_removed_node_come_back_with_it() -> None:
    cache = cluster("n")
    cache.put_pod(info(pod("p").on("n")))
    cache.put_pod(info(pod("q").on("n")))

    cache.remove_node("n")
    cache.remove_pod("default/q")
    cache.put_node(node("n").build())

    assert on_node(cache, "n") == ["default/p"]


def test_removing_what_is_not_there_changes_nothing() -> None:
    cache = cluster("n")
    before = cache.generation

    cache.remove_pod("default/p")
    cache.remove_node("other")

    assert cache.generation == before


def test_a_pod_without_a_node_changes_nothing() -> None:
    cache = cluster("n")
    cache.assume(info(pod("p")), "n")

    cache.put_pod(info(pod("p").label(app="late")))
    cache.put_pod(info(pod("q")))

    assert on_node(cache, "n") == ["default/p"]
    assert cache.is_assumed("default/p")


# --- assumed pods ---------------------------------------------------------------------------------------------------------


def test_an_assumed_pod_counts_like_a_bound_one() -> None:
    cache = cluster("n")

    cache.assume(info(pod("p").request(cpu="100m")), "n")

    found = cache.get("n")
    assert found is not None
    assert found.requested == {"cpu": 100}
    assert cache.assumed() == ["default/p"]


def test_confirming_changes_nothing_on_the_node() -> None:
    cache = cluster("n")
    cache.assume(info(pod("p")), "n")
    before = cache.generation

    cache.confirm("default/p")

    assert not cache.is_assumed("default/p")
    assert on_node(cache, "n") == ["default/p"]
    assert cache.generation == before


def test_a_binding_elsewhere_moves_the_assumed_pod() -> None:
    cache = cluster("n", "m")
    cache.assume(info(pod("p")), "n")

    cache.put_pod(info(pod("p").on("m")))

    assert (on_node(cache, "n"), on_node(cache, "m")) == ([], ["default/p"])
    assert not cache.is_assumed("default/p")


def test_a_confirmed_pod_is_worth_the_same_as_a_bound_one() -> None:
    assumed, bound = cluster("n"), cluster("n")
    assumed.assume(info(pod("p").request(cpu=1)), "n")
    assumed.confirm("default/p")
    bound.put_pod(info(pod("p").on("n").request(cpu=1)))

    assert assumed.digest() == bound.digest()


def test_the_digest_tells_an_assumed_pod_from_a_bound_one() -> None:
    assumed, bound = cluster("n"), cluster("n")
    assumed.assume(info(pod("p")), "n")
    bound.put_pod(info(pod("p").on("n")))

    assert assumed.digest() != bound.digest()


def test_forgetting_a_pod_that_left_with_its_removal_is_no_error() -> None:
    cache = cluster("n")
    cache.assume(info(pod("p")), "n")
    cache.remove_pod("default/p")

    cache.forget("default/p")

    assert on_node(cache, "n") == []


# --- order and changes ----------------------------------------------------------------------------------------------------


def in_zone(name: str, zone: str) -> NodeBuilder:
    return node(name).label({ZONE: zone})


def test_nodes_are_listed_round_robin_over_the_zones() -> None:
    cache = Cache()
    for name, zone in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("c1", "c"), ("b2", "b")]:
        cache.put_node(in_zone(name, zone).build())

    assert list(cache.node_names()) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_node_that_changes_its_zone_goes_to_the_end_of_the_new_one() -> None:
    cache = Cache()
    for name, zone in [("a1", "a"), ("a2", "a"), ("b1", "b")]:
        cache.put_node(in_zone(name, zone).build())

    cache.put_node(in_zone("a1", "b").build())

    assert list(cache.node_names()) == ["a2", "b1", "a1"]


def test_a_zone_that_was_empty_begins_anew_at_the_end() -> None:
    cache = Cache()
    for name, zone in [("a1", "a"), ("b1", "b")]:
        cache.put_node(in_zone(name, zone).build())

    cache.remove_node("a1")
    cache.put_node(in_zone("a2", "a").build())

    assert list(cache.node_names()) == ["b1", "a2"]


def test_an_equal_version_of_a_node_is_no_change() -> None:
    cache = cluster("n")
    before = cache.generation

    cache.put_node(node("n").build())

    assert cache.generation == before


def test_changes_are_told_from_any_generation_on() -> None:
    cache = cluster("n", "m", "k")
    seen = cache.generation

    cache.assume(info(pod("p")), "m")
    cache.remove_node("k")

    assert cache.changed_since(seen) == ["k", "m"]


# --- laws -----------------------------------------------------------------------------------------------------------------

NODES = [f"n{i}" for i in range(5)]
PODS = [f"p{i}" for i in range(7)]
SLOTS = [name for name in NodeInfo.__slots__ if name not in ("arrival", "generation")]


def contents(found: NodeInfo) -> dict[str, Any]:
    return {name: getattr(found, name) for name in SLOTS}


def pod_kind(builder: PodBuilder, kind: int) -> PodBuilder:
    if kind & 1:
        builder = builder.request(cpu=f"{kind}m", memory=f"{kind}Mi")
    if kind & 2:
        builder = builder.port(8000 + kind % 3)
    if kind & 4:
        builder = builder.pod_anti_affinity(HOSTNAME, "app=a")
    if kind & 8:
        builder = builder.prefer_pod_affinity(3, HOSTNAME, "app=a")
    return builder


def whole(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "nodes": [contents(found) for found in snapshot.nodes],
        "affinity": sorted(found.name for found in snapshot.nodes_with_affinity_pods()),
        "anti": sorted(found.name for found in snapshot.nodes_with_required_anti_affinity_pods()),
        "images": [snapshot.image_nodes(f"image-{i}:1") for i in range(3)],
        "places": [snapshot.place_of(found.name) for found in snapshot.nodes],
        "found": [snapshot.get(found.name) is found for found in snapshot.nodes],
    }


class CacheMachine(RuleBasedStateMachine):
    """Random histories of a small cluster, with a snapshot and a table that follow it now and then."""

    pods = Bundle("pods")

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.zones: dict[str, list[str]] = {}
        self.snapshot = Snapshot()
        self.table: dict[str, dict[str, int]] = {}
        self.table_generation = 0

    @rule(
        name=st.sampled_from(NODES),
        zone=st.sampled_from(["", "a", "b"]),
        image=st.integers(0, 2),
        cpu=st.integers(1, 2),
    )
    def put_node(self, name: str, zone: str, image: int, cpu: int) -> None:
        builder = node(name).capacity(cpu=cpu).image(f"image-{image}:1", 10)
        self.cache.put_node((builder.label({ZONE: zone}) if zone else builder).build())
        if name not in self.zones.get(zone, []):
            self.leave_zone(name)
            self.zones.setdefault(zone, []).append(name)

    @rule(name=st.sampled_from(NODES))
    def remove_node(self, name: str) -> None:
        self.cache.remove_node(name)
        self.leave_zone(name)

    def leave_zone(self, name: str) -> None:
        self.zones = {
            zone: left for zone, names in self.zones.items() if (left := [n for n in names if n != name])
        }

    @rule(name=st.sampled_from(PODS), on=st.sampled_from(NODES), kind=st.integers(0, 15))
    def put_pod(self, name: str, on: str, kind: int) -> None:
        self.cache.put_pod(info(pod_kind(pod(name).on(on), kind)))

    @rule(name=st.sampled_from(PODS), phase=st.sampled_from(["Succeeded", "Failed"]))
    def finish_pod(self, name: str, phase: str) -> None:
        self.cache.put_pod(info(pod(name).on("n0").phase(phase)))

    @rule(name=st.sampled_from(PODS))
    def remove_pod(self, name: str) -> None:
        self.cache.remove_pod(f"default/{name}")

    @rule(name=st.sampled_from(PODS), on=st.sampled_from(NODES), kind=st.integers(0, 15), stay=st.booleans())
    def assume(self, name: str, on: str, kind: int, stay: bool) -> None:
        one = info(pod_kind(pod(name), kind))
        if self.cache.node_of(one.uid) is not None or self.cache.get(on) is None:
            return
        before = self.cache.digest()
        self.cache.assume(one, on)
        if not stay:
            self.cache.forget(one.uid)
            assert self.cache.digest() == before

    @rule(forget=st.booleans())
    def decide_the_oldest_assumed(self, forget: bool) -> None:
        for uid in self.cache.assumed()[:1]:
            if forget:
                self.cache.forget(uid)
                assert self.cache.node_of(uid) is None
            else:
                self.cache.confirm(uid)
                assert self.cache.node_of(uid) is not None

    @rule()
    def refresh_the_snapshot(self) -> None:
        self.snapshot.refresh(self.cache)
        fresh = Snapshot()
        fresh.refresh(self.cache)

        assert whole(self.snapshot) == whole(fresh)

    @rule()
    def refresh_and_follow_with_the_table(self) -> None:
        """The table knows the snapshot only by its change list."""
        self.snapshot.refresh(self.cache)
        changed = self.snapshot.changed_since(self.table_generation)
        assert changed is not None
        for name in changed:
            found = self.snapshot.get(name)
            if found is None:
                self.table.pop(name, None)
            else:
                self.table[name] = dict(found.requested)
        self.table_generation = self.snapshot.generation

        assert self.table == {found.name: found.requested for found in self.snapshot.nodes}

    @rule(kind=st.integers(0, 15), on=st.sampled_from(NODES))
    def try_a_pod_in_the_snapshot(self, kind: int, on: str) -> None:
        if self.snapshot.get(on) is None:
            return
        before = {found.name: contents(found.clone()) for found in self.snapshot.nodes}
        one = info(pod_kind(pod("tried"), kind))

        self.snapshot.assume(one, on)
        self.snapshot.forget(one, on)

        assert {found.name: contents(found) for found in self.snapshot.nodes} == before

    @invariant()
    def nodes_are_what_their_pods_make_them(self) -> None:
        for found in self.cache.nodes():
            assert contents(found) == contents(NodeInfo(found.node, found.pods.values()))

    @invariant()
    def nodes_are_in_order(self) -> None:
        columns = zip_longest(*self.zones.values())
        assert list(self.cache.node_names()) == [name for name in chain(*columns) if name is not None]


CacheMachine.TestCase.settings = settings(max_examples=cases(30), stateful_step_count=40)
TestCache = CacheMachine.TestCase


def test_the_table_of_a_cluster_that_replaces_its_nodes_starts_over_in_the_end() -> None:
    """Names of removed nodes are not kept for ever; a follower that slept too long is told."""
    cache, awake, asleep = Cache(), Snapshot(), Snapshot()
    for i in range(300):
        cache.put_node(node(f"n{i}").build())
        cache.remove_node(f"n{i - 2}")
        awake.refresh(cache)

    assert cache.changed_since(0) is None

    asleep.refresh(cache)

    assert whole(asleep) == whole(awake)
    assert awake.changed_since(0) is None


def test_a_pod_info_keeps_its_uid_apart_from_its_name() -> None:
    """A pod that was deleted and made again under its name is another pod."""
    cache = cluster("n")
    cache.put_pod(info(pod("p").uid("1").on("n")))
    cache.remove_pod("1")
    cache.put_pod(info(pod("p").uid("2").on("n")))

    assert on_node(cache, "n") == ["2"]
    first = cache.pod("2")
    assert first is not None
    assert replace(first.pod.metadata, uid="") == pod("p").build().metadata


def test_pod_without_a_place_is_not_found() -> None:
    cache = cluster("n1")
    cache.put_pod(info(pod("p").uid("1").on("n1")))

    assert cache.pod("1") is not None
    assert cache.pod("2") is None

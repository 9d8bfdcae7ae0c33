"""What a snapshot derives from all nodes stands still until it is refreshed, and then it says what changed. Its laws are in test_cache.py."""

from __future__ import annotations

import operator

from tidelog.framework.node_info import PodInfo
from tidelog.framework.snapshot import Snapshot
from tidelog.scheduler.cache import Cache
from tidelog.testing.builders import HOSTNAME, ZONE, node, pod


def cluster(*names: str) -> tuple[Cache, Snapshot]:
    cache, snapshot = Cache(), Snapshot()
    for name in names:
        cache.put_node(node(name).build())
    snapshot.refresh(cache)
    return cache, snapshot


def test_what_is_derived_from_all_nodes_stands_still_until_the_next_refresh() -> None:
    cache, snapshot = cluster("n")
    seen = snapshot.generation

    cache.assume(PodInfo(pod("p").pod_anti_affinity(HOSTNAME, "app=a").build()), "n")
    cache.put_node(node("m").build())

    assert [found.name for found in snapshot.nodes] == ["n"]
    assert list(snapshot.nodes_with_affinity_pods()) == []
    assert snapshot.changed_since(seen) == []


def test_a_refresh_takes_the_caches_own_nodes_and_says_which_changed() -> None:
    cache, snapshot = cluster("n", "m")
    before, seen = list(snapshot.nodes), snapshot.generation

    cache.assume(PodInfo(pod("p").build()), "m")
    snapshot.refresh(cache)

    assert all(map(operator.is_, snapshot.nodes, before))
    assert snapshot.changed_since(seen) == ["m"]
    assert list(snapshot.nodes[1].pods) == ["default/p"]


def test_a_node_whose_object_changes_is_another_one_and_the_old_one_stays_as_it_was() -> None:
    cache, snapshot = cluster("n")
    cache.assume(PodInfo(pod("p").build()), "n")
    snapshot.refresh(cache)
    before = snapshot.nodes[0]

    cache.put_node(node("n").label({ZONE: "a"}).build())
    cache.assume(PodInfo(pod("q").build()), "n")

    assert snapshot.nodes[0] is before
    assert (before.labels.get(ZONE), list(before.pods)) == (None, ["default/p"])
    snapshot.refresh(cache)
    assert (snapshot.nodes[0].labels[ZONE], list(snapshot.nodes[0].pods)) == ("a", ["default/p", "default/q"])


def test_a_refresh_without_changes_does_nothing() -> None:
    cache, snapshot = cluster("n")
    before = (snapshot.generation, snapshot.nodes[0])

    snapshot.refresh(cache)

    assert (snapshot.generation, snapshot.nodes[0]) == before


def test_pods_that_come_and_go_do_not_change_the_nodes_own_object() -> None:
    cache, snapshot = cluster("n", "m")
    seen, seen_objects = snapshot.generation, snapshot.object_generation

    cache.assume(PodInfo(pod("p").build()), "m")
    snapshot.refresh(cache)

    assert snapshot.changed_since(seen) == ["m"]
    assert snapshot.objects_changed_since(seen_objects) == []


def test_nodes_that_come_change_or_go_are_told_latest_first() -> None:
    cache, snapshot = cluster("n", "m", "k")
    seen, seen_objects = snapshot.generation, snapshot.object_generation

    cache.put_node(node("m").label({ZONE: "a"}).build())
    cache.remove_node("k")
    cache.put_node(node("new").build())
    snapshot.refresh(cache)

    assert snapshot.changed_since(seen) == ["new", "k", "m"]
    assert snapshot.objects_changed_since(seen_objects) == ["new", "k", "m"]
    assert snapshot.get("k") is None


def test_a_node_that_came_and_went_unseen_is_not_told() -> None:
    cache, snapshot = cluster("n")
    seen = snapshot.generation

    cache.put_node(node("short").build())
    cache.remove_node("short")
    snapshot.refresh(cache)

    assert snapshot.changed_since(seen) == []


def test_images_are_counted_over_all_nodes() -> None:
    cache, snapshot = cluster()
    cache.put_node(node("a").image("x:1", 10).build())
    cache.put_node(node("b").image("x:1", 10).image("y:1", 10).build())
    snapshot.refresh(cache)

    assert [snapshot.image_nodes(image) for image in ("x:1", "y:1", "z:1")] == [2, 1, 0]

    cache.put_node(node("b").build())
    cache.remove_node("a")
    snapshot.refresh(cache)

    assert snapshot.image_nodes("x:1") == 0


def test_the_size_of_an_image_is_that_on_the_first_node_that_has_it() -> None:
    cache, snapshot = cluster()
    cache.put_node(node("a").image("x:1", 10).build())
    cache.put_node(node("b").image("x:1", 20).build())
    snapshot.refresh(cache)
    assert (snapshot.image_size("x:1"), snapshot.image_size("y:1")) == (10, 0)

    cache.put_node(node("a").build())
    snapshot.refresh(cache)
    assert snapshot.image_size("x:1") == 20


def test_a_pod_that_is_only_tried_is_a_change_twice_and_leaves_no_trace() -> None:
    cache, snapshot = cluster("n")
    seen = snapshot.generation
    tried = PodInfo(pod("p").pod_anti_affinity(HOSTNAME, "app=a").build())

    snapshot.assume(tried, "n")

    assert [found.name for found in snapshot.nodes_with_required_anti_affinity_pods()] == ["n"]
    assert snapshot.changed_since(seen) == ["n"]
    seen = snapshot.generation

    snapshot.forget(tried, "n")

    assert list(snapshot.nodes_with_affinity_pods()) == []
    assert snapshot.changed_since(seen) == ["n"]
    found = cache.get("n")
    assert found is not None
    assert found.pods == {}


def test_after_a_trial_the_node_and_what_is_derived_from_all_are_as_before() -> None:
    cache, snapshot = cluster("n")
    tried = PodInfo(pod("p").request(cpu=1).port(80).pod_anti_affinity(HOSTNAME, "app=a").build())
    cache.assume(PodInfo(pod("q").request(memory=1).pod_anti_affinity(HOSTNAME, "app=b").build()), "n")
    snapshot.refresh(cache)
    before = cache.dump()

    snapshot.assume(tried, "n")
    assert cache.dump() != before
    snapshot.forget(tried, "n")

    assert cache.dump() == before
    assert [found.name for found in snapshot.nodes_with_required_anti_affinity_pods()] == ["n"]


def test_a_node_is_shown_without_a_pod_until_the_next_refresh() -> None:
    cache, snapshot = cluster("n", "m")
    own = cache.get("n")
    assert own is not None
    cache.assume(PodInfo(pod("p").pod_anti_affinity(HOSTNAME, "app=a").build()), "n")
    objects = snapshot.object_generation

    snapshot.hide("default/p", "n")
    snapshot.hide("default/p", "n")

    assert (list(snapshot.nodes[0].pods), list(own.pods)) == ([], ["default/p"])
    assert list(snapshot.nodes_with_affinity_pods()) == []
    snapshot.refresh(cache)
    assert snapshot.nodes[0] is own
    assert list(snapshot.nodes_with_affinity_pods()) == [own]
    assert snapshot.object_generation == objects

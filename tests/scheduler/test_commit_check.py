"""Which changes can hurt an attempt under way, and in which words the abort tells of them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tidelog.api.objects import Object, ObjectMeta, ResourceClaim, ResourceSlice
from tidelog.scheduler.commit_check import disturbance
from tidelog.testing import builders as b


def node(uid: str = "1", **labels: str) -> b.NodeBuilder:
    return b.node("n1").uid(uid).label(labels).capacity(cpu="4")


def words(old: Object | None, new: Object | None) -> str:
    found = disturbance(7, old, new)
    if found is None:
        return ""
    assert found.seq == 7
    return str(found.takes or found.own or "")


CHANGES_OF_NODES = [
    (node(), None, "node n1 was deleted"),
    (None, node(), "node n1 was created anew"),
    (node(), node("2"), "node n1 was replaced"),
    (node(), node().cordon(), "node n1 was cordoned"),
    (node().cordon(), node(), "the taints of node n1 changed"),
    (node(), node().taint("k", "v"), "the taints of node n1 changed"),
    (node(), node(zone="a"), "the labels of node n1 changed"),
    (node(), node().capacity(cpu="2"), "the allocatable resources of node n1 changed"),
    (node(), node().capacity(cpu="4000m"), ""),
    (node(), node(), ""),
]


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES_OF_NODES)
def test_change_of_a_node_hurts_by_what_changed(
    old: b.NodeBuilder | None, new: b.NodeBuilder | None, expected: str
) -> None:
    assert words(old and old.build(), new and new.build()) == expected


def test_pod_that_has_ended_before_and_after_hurts_nobody() -> None:
    pod = b.pod("p").on("n1").phase("Succeeded").build()

    assert disturbance(7, pod, pod) is None


def test_new_pod_hurts_nobody_until_it_takes_a_place() -> None:
    waits, placed = b.pod("p").build(), b.pod("p").on("n1").build()

    assert disturbance(7, None, waits) is None
    assert words(None, placed) == "default/p took room on node n1"


def test_pod_that_is_created_anew_hurts_the_attempt_at_the_one_before_by_going() -> None:
    assert words(b.pod("p").build(), None) == "the pod is gone"


def test_pod_that_asks_for_something_else_or_is_labelled_hurts_its_own_attempt() -> None:
    pod = b.pod("p").request(cpu="1").label(app="web")

    for changed in (pod.request(cpu="2"), pod.label(app="db")):
        assert words(pod.build(), changed.build()) == "the pod changed"
    assert words(pod.build(), pod.nominated("n1").build()) == ""


def test_pod_that_takes_a_place_is_named_with_its_node() -> None:
    taken = words(b.pod("p").build(), b.pod("p").on("n1").build())

    assert taken == "default/p took room on node n1"


def test_nomination_of_a_pod_withdraws_the_place_that_it_found_by_fallback_and_its_end_does_not() -> None:
    free, nominated = b.pod("p").build(), b.pod("p").nominated("n1").build()

    found = disturbance(7, free, nominated)

    assert found is not None
    assert (found.own, found.takes) == (None, None)
    assert str(found.withdraws).endswith("its spread constraints may be hard again")
    assert disturbance(7, nominated, free) is None


def test_group_hurts_by_what_it_asks_for_and_not_by_how_it_stands() -> None:
    two, three = b.pod_group("g", min_count=2), b.pod_group("g", min_count=3)
    labelled = replace(two, metadata=ObjectMeta(name="g", namespace="default", labels={"a": "b"}))

    found = [words(*change) for change in ((two, labelled), (two, three), (two, None), (None, two))]

    assert found == [
        "",
        "the group's object changed",
        "the group's object was deleted",
        "the group's object changed",
    ]


def test_devices_hurt_by_what_is_wanted_or_offered() -> None:
    meta = ObjectMeta(name="d", namespace="default")
    claim = ResourceClaim(metadata=meta)
    part = ResourceSlice(metadata=meta)

    assert words(claim, replace(claim, metadata=replace(meta, labels={"a": "b"}))) == ""
    assert words(part, replace(part, metadata=replace(meta, labels={"a": "b"}))) == ""
    assert words(claim, None) == "ResourceClaim/default/d changed"
    assert words(part, None) != ""

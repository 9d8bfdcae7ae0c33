"""The table that admission looks things up in, and conditions."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tidelog.api.cluster import group_of
from tidelog.api.conditions import set_condition, with_condition
from tidelog.api.errors import InvalidObjects
from tidelog.api.features import FeatureGates
from tidelog.api.object_table import INITIAL_OBJECTS, ObjectTable
from tidelog.api.times import format_time
from tidelog.api.validation.rules import validate
from tidelog.testing import builders as build


def test_objects_are_found_by_kind_namespace_and_name() -> None:
    pod, node = build.pod("a", "x").build(), build.node("a").build()
    table = ObjectTable([pod, node])

    assert table.get("Pod", "x", "a") is pod
    assert table.get("Node", "", "a") is node
    assert table.get("Pod", "y", "a") is None
    assert table.get("Service", "x", "a") is None


def test_objects_of_a_kind_come_in_the_order_of_their_arrival() -> None:
    table = ObjectTable([build.pod(name).build() for name in "bca"])
    table.put(build.pod("b").label(x="y").build())
    table.delete("Pod", "default", "c")

    assert [obj.metadata.name for obj in table.of_kind("Pod", "default")] == ["b", "a"]
    assert table.delete("Pod", "default", "c") is None


def test_namespace_without_objects_is_empty() -> None:
    table = ObjectTable([build.pod("a", "x").build()])
    table.delete("Pod", "x", "a")

    assert list(table.of_kind("Pod", "x")) == []


def test_every_cluster_begins_with_system_classes_and_namespaces() -> None:
    table = ObjectTable()

    assert [obj.metadata.name for obj in table.of_kind("PriorityClass")] == [
        "system-cluster-critical",
        "system-node-critical",
    ]
    assert [obj.metadata.name for obj in table.of_kind("Namespace")] == [
        "default",
        "kube-system",
        "kube-public",
        "kube-node-lease",
    ]
    assert [validate(obj, FeatureGates()) for obj in INITIAL_OBJECTS] == [[]] * 6


def test_members_follow_their_groups() -> None:
    first, second = build.pod("a").group("g").build(), build.pod("b").group("g").build()
    table = ObjectTable([first, second])

    assert table.member("default", "podgroup/g") is first
    newer = build.pod("a").group("g").on("n").build()
    table.put(newer)
    assert table.member("default", "podgroup/g") is newer
    table.put(build.pod("a").build())
    assert table.member("default", "podgroup/g") is second
    table.delete("Pod", "default", "b")
    assert table.member("default", "podgroup/g") is None


def test_groups_have_names_of_their_own() -> None:
    assert group_of(build.pod("a").build()) == ""
    assert group_of(build.pod("a").group("g").build()) == "podgroup/g"
    assert group_of(build.pod("a").workload("w", "g").build()) == "workload/w/g/"
    assert group_of(build.pod("a").workload("w", "g", "1").build()) == "workload/w/g/1"


# --- conditions ---------------------------------------------------------------------------------------------------------

T1, T2 = 1_000_000_000, 2_000_000_000


def test_new_condition_begins_now() -> None:
    pod = set_condition(build.pod("a").build(), "PodScheduled", "False", "Unschedulable", "no", T1)

    (condition,) = pod.status.conditions
    assert (condition.type, condition.status, condition.reason, condition.message) == (
        "PodScheduled",
        "False",
        "Unschedulable",
        "no",
    )
    assert condition.last_transition_time == format_time(T1)


@pytest.mark.parametrize(
    ("status", "reason", "message", "since"),
    [("True", "x", "y", T2), ("False", "other", "y", T1), ("False", "x", "other", T1)],
)
def test_transition_time_moves_only_with_the_status(
    status: str, reason: str, message: str, since: int
) -> None:
    before = set_condition(build.pod("a").condition("Ready").build(), "C", "False", "x", "y", T1)

    after = set_condition(before, "C", status, reason, message, T2)

    assert [c.type for c in after.status.conditions] == ["Ready", "C"]
    assert after.status.conditions[1].last_transition_time == format_time(since)


def test_condition_that_is_there_already_changes_nothing() -> None:
    pod = set_condition(build.pod("a").build(), "C", "False", "x", "y", T1)

    assert set_condition(pod, "C", "False", "x", "y", T2) is pod
    assert with_condition(pod.status.conditions, "C", "False", "x", "y", T2) is pod.status.conditions


def test_condition_keeps_its_place() -> None:
    pod = build.pod("a").condition("A").condition("B").condition("C").build()

    changed = set_condition(pod, "B", "False", "", "", T1)

    assert [c.type for c in changed.status.conditions] == ["A", "B", "C"]


def test_condition_with_a_bad_type_or_status_is_refused() -> None:
    with pytest.raises(InvalidObjects) as caught:
        set_condition(build.pod("a").build(), "a b", "yes", "", "", T1)

    assert [(error.path, error.kind) for error in caught.value.errors] == [
        ("type", "Invalid"),
        ("status", "NotSupported"),
    ]


def test_put_replaces_the_object() -> None:
    pod = build.pod("a").build()
    table = ObjectTable([pod])
    table.put(replace(pod, spec=replace(pod.spec, node_name="n1")))

    found = table.get("Pod", "default", "a")
    assert found is not None
    assert found != pod


def test_condition_of_an_unknown_status_is_refused() -> None:
    with pytest.raises(InvalidObjects) as refused:
        set_condition(build.pod("a").build(), "C", "Maybe", "", "", T1)

    assert [(error.path, error.value) for error in refused.value.errors] == [("status", "Maybe")]

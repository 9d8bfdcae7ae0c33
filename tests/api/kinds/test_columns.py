"""What the tables say of each kind."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.api.kinds.columns import View, node_status, pod_status, selector_words
from tidelog.api.kinds.registry import KINDS, kind_of
from tidelog.api.manifests.manifests import load
from tidelog.api.objects import LabelSelector, LabelSelectorRequirement, Node, Object, Pod
from tidelog.cli.tables.listing import columns_of
from tidelog.testing.builders import RACK, ZONE, node, pdb, pod, pod_group, priority_class

NOW = 1_700_000_100_000_000_000
CREATED = "2023-11-14T22:13:20Z"
"""A hundred seconds before NOW."""


def row(obj: Object, *pods: Pod, wide: bool = True) -> dict[str, Any]:
    view = View(NOW, pods)
    return {column.heading: column.cell(obj, view) for column in columns_of(kind_of(obj), wide)}


def from_manifest(text: str) -> Object:
    (obj,) = load(text)
    return obj


BASE = pod("web-1")
PODS: list[tuple[Pod, str]] = [
    (BASE.build(), "Pending"),
    (BASE.phase("Pending").build(), "Pending"),
    (BASE.gate("example.com/quota").build(), "SchedulingGated"),
    (BASE.on("a-1").build(), "Scheduled"),
    (BASE.on("a-1").phase("Running").build(), "Running"),
    (BASE.on("a-1").phase("Succeeded").build(), "Succeeded"),
    (BASE.on("a-1").phase("Running").terminating().build(), "Terminating"),
    (BASE.condition("PodScheduled", "False", reason="Unschedulable").build(), "Unschedulable"),
]


@pytest.mark.parametrize(("found", "status"), PODS)
def test_status_of_a_pod_is_where_it_is_on_its_way(found: Pod, status: str) -> None:
    assert pod_status(found) == status


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (node("a-1").build(), "Unknown"),
        (node("a-1").condition("Ready", "True").build(), "Ready"),
        (node("a-1").condition("Ready", "False").build(), "NotReady"),
        (node("a-1").condition("Ready", "True").cordon().build(), "Ready,SchedulingDisabled"),
    ],
)
def test_status_of_a_node_is_kubectls(found: Node, status: str) -> None:
    assert node_status(found) == status


def test_pod_row() -> None:
    found = (
        BASE.label(app="web")
        .request(cpu="1500m", memory="1536Mi")
        .priority(7)
        .created(CREATED)
        .nominated("b-1")
        .build()
    )

    assert row(found) == {
        "STATUS": "Pending",
        "NODE": "",
        "PRIORITY": 7,
        "CPU": "1.5",
        "MEMORY": "1.5Gi",
        "NOMINATED NODE": "b-1",
        "GROUP": "",
        "GATES": "",
        "LABELS": "app=web",
        "AGE": "100s",
    }


def test_node_row_counts_the_pods_on_it() -> None:
    found = (
        node("a-1").capacity(cpu=4, memory="8Gi").label({ZONE: "a"}).taint("key", effect="NoExecute").build()
    )
    there = BASE.request(cpu="250m", memory="2Gi").on("a-1")
    pods = [
        there.build(),
        there.named("done").phase("Succeeded").build(),
        there.named("else").on("b-1").build(),
    ]

    assert row(found, *pods, wide=False) == {
        "STATUS": "Unknown",
        "ZONE": "a",
        "CPU": "0.25/4",
        "MEMORY": "2Gi/8Gi",
        "PODS": "1/110",
        "TAINTS": "key:NoExecute",
        "AGE": "<unknown>",
    }


def test_quantity_that_does_not_parse_counts_as_nothing() -> None:
    """Only a log that another program wrote can hold one."""
    assert row(BASE.request(cpu="much").build())["CPU"] == "0"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (
            priority_class("high", 5),
            {"VALUE": 5, "GLOBAL-DEFAULT": "false", "PREEMPTIONPOLICY": "PreemptLowerPriority"},
        ),
        (
            pdb("web", "app=web", min_available=1),
            {"MIN AVAILABLE": 1, "MAX UNAVAILABLE": "N/A", "SELECTOR": "app=web"},
        ),
        (pod_group("train", min_count=4, level=RACK), {"POLICY": "gang of 4", "TOPOLOGY": RACK}),
        (
            from_manifest(
                "{apiVersion: scheduling.k8s.io/v1alpha1, kind: Workload, metadata: {name: w}, "
                "spec: {podGroups: [{name: a, policy: {gang: {minCount: 2}}}, {name: b, policy: {basic: {}}}]}}"
            ),
            {"GROUPS": "a (gang of 2), b (basic)"},
        ),
        (
            from_manifest(
                "{apiVersion: scheduling.k8s.io/v1alpha1, kind: Workload, metadata: {name: w}, "
                "spec: {podGroups: [{name: a, policy: {basic: {desiredCount: 3}}}, {name: b}]}}"
            ),
            {"GROUPS": "a (basic, 3 desired), b ()"},
        ),
        (
            from_manifest("{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {selector: {a: b}}}"),
            {"SELECTOR": "a=b"},
        ),
        (
            from_manifest(
                "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: s}, spec: {selector: {}}}"
            ),
            {"SELECTOR": "<all>"},
        ),
        (
            from_manifest(
                "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}, "
                "status: {allocation: {devices: {}}, reservedFor: [{name: p}]}}"
            ),
            {"STATE": "allocated,reserved"},
        ),
        (
            from_manifest("{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: c}}"),
            {"STATE": "pending"},
        ),
    ],
)
def test_row_of_other_kinds(obj: Object, expected: dict[str, object]) -> None:
    found = row(obj)

    assert {heading: found[heading] for heading in expected} == expected


def test_group_of_a_pod_is_named_either_way() -> None:
    upstream = from_manifest(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {schedulingGroup: {podGroupName: train}}}"
    )
    proposed = from_manifest(
        "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {workloadRef: {name: job, podGroup: train}}}"
    )

    assert (row(upstream)["GROUP"], row(proposed)["GROUP"]) == ("train", "job/train")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_has_columns_that_stand_an_empty_object(kind: Any) -> None:
    found = row(kind.type())

    assert list(found)[-1] == "AGE"


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        (None, ""),
        (LabelSelector(), "<all>"),
        (
            LabelSelector(
                match_labels={"app": "web"},
                match_expressions=(
                    LabelSelectorRequirement(key="tier", operator="In", values=("a", "b")),
                    LabelSelectorRequirement(key="old", operator="DoesNotExist"),
                    LabelSelectorRequirement(key="new", operator="Exists"),
                ),
            ),
            "app=web,tier in (a,b),!old,new",
        ),
    ],
)
def test_selector_is_written_as_it_is_asked_for(selector: LabelSelector | None, words: str) -> None:
    assert selector_words(selector) == words

"""Kinds by whatever name people give them."""

from __future__ import annotations

import pytest

from tidelog.api.errors import UsageError
from tidelog.api.kinds import ELSEWHERE, find_kind, kind_named
from tidelog.api.objects import KIND_BY_NAME, KINDS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pod", "Pod"),
        ("Pods", "Pod"),
        ("PO", "Pod"),
        ("pods.v1.", "Pod"),
        ("pods.v1", "Pod"),
        ("nodes", "Node"),
        ("no", "Node"),
        ("ns", "Namespace"),
        ("pc", "PriorityClass"),
        ("pdb", "PodDisruptionBudget"),
        ("poddisruptionbudgets.policy", "PodDisruptionBudget"),
        ("poddisruptionbudgets.v1.policy", "PodDisruptionBudget"),
        ("poddisruptionbudgets.v1beta1.policy", "PodDisruptionBudget"),
        ("priorityclasses.v1.scheduling.k8s.io", "PriorityClass"),
        ("priorityclasses.scheduling.k8s.io", "PriorityClass"),
        ("svc", "Service"),
        ("rc", "ReplicationController"),
        ("rs", "ReplicaSet"),
        ("rs.apps", "ReplicaSet"),
        ("sts", "StatefulSet"),
        ("resourceclaims", "ResourceClaim"),
    ],
)
def test_kind_is_found(text: str, expected: str) -> None:
    assert kind_named(text).name == expected


@pytest.mark.parametrize("text", ["", "podz", "pods.apps", "pods.v2.", "rs.policy", "pdb.v9.policy", "."])
def test_other_names_are_no_kind(text: str) -> None:
    assert find_kind(text) is None


def test_unknown_kind_is_told_with_the_closest_and_all_names() -> None:
    with pytest.raises(UsageError) as caught:
        kind_named("podz")

    assert str(caught.value).startswith('there is no kind "podz", did you mean "pod"? (known: pods, nodes, ')


def test_every_kind_is_found_by_each_of_its_names() -> None:
    for kind in KINDS:
        for name in (kind.name, kind.plural, *kind.short_names, f"{kind.plural}.{kind.version}.{kind.group}"):
            assert find_kind(name) is kind


def test_kinds_that_are_refused_with_a_hint_are_not_known() -> None:
    assert not set(ELSEWHERE) & set(KIND_BY_NAME)

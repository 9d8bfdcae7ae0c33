"""Kinds by whatever name people give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.api.errors import UsageError
from tidelog.api.kinds import registry
from tidelog.api.kinds.registry import ELSEWHERE, KIND_BY_NAME, KINDS, find_kind, kind_named


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


def test_names_are_fit_for_discovery() -> None:
    """Kubernetes' clients find a kind by group, version and resource, and people by short names: each must be one kind."""
    resources = [(kind.group, version, kind.plural) for kind in KINDS for version in kind.api_versions]
    words = [name for kind in KINDS for name in kind.names]

    assert len(set(resources)) == len(resources)
    assert len(set(words)) == len(words)
    for kind in KINDS:
        assert kind.plural == kind.plural.lower()
        assert kind.type.__name__ == kind.name
        assert ("status" in kind.subresources) <= ("status" in kind.type.__struct_fields__)


def test_installed_package_is_asked_when_a_name_is_not_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = """
from tidelog.api.kinds.kind import Kind
from tidelog.api.objects import Object

class Seat(Object, frozen=True, kw_only=True):
    pass

SEAT = Kind(name="Seat", type=Seat, group="example.com", version="v1", plural="seats")
"""
    (tmp_path / "offered_kinds.py").write_text(source)
    info = tmp_path / "offered-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: offered\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[tidelog.kinds]\nSeat = offered_kinds:SEAT\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry.load_installed.cache_clear()

    found = registry.known_kind("Seat")

    assert found is not None
    assert found.plural == "seats"
    registry.unregister(found)

"""docs/manifests.md names every kind, version, short name and gate that there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.api.features import GATES, FeatureGate
from tidelog.api.kinds.kind import Kind
from tidelog.api.kinds.registry import KINDS
from tidelog.api.manifests.documents import DEPTH_MAX, INPUT_BYTES_MAX
from tidelog.api.manifests.manifests import OBJECT_BYTES_MAX, VALUES_MAX
from tidelog.api.manifests.yaml_reader import DOCUMENTS_MAX
from tidelog.api.object_table import INITIAL_OBJECTS

PAGE = (Path(__file__).parents[2] / "docs" / "manifests.md").read_text()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_is_on_the_page_with_its_versions_and_short_names(kind: Kind) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {kind.name} | ")]

    _, _, versions, short, _, _ = (cell.strip() for cell in row.split("|"))
    assert versions == ", ".join([kind.api_version, *kind.other_versions])
    assert short == ", ".join(kind.short_names)


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
def test_every_gate_is_on_the_page_with_its_proposal_and_default(gate: FeatureGate) -> None:
    assert f"| {gate.name} | {gate.proposal} | {'on' if gate.default else 'off'} |" in PAGE


def test_limits_are_those_in_force() -> None:
    assert f"{INPUT_BYTES_MAX >> 20} MiB a text, {OBJECT_BYTES_MAX / 2**20} MiB an object" in PAGE
    assert f"{VALUES_MAX:,} entries and items an object" in PAGE
    assert f"{DEPTH_MAX} levels of nesting, {DOCUMENTS_MAX:,} documents" in PAGE


def test_what_every_cluster_has_is_on_the_page() -> None:
    assert all(f"`{obj.metadata.name}`" in PAGE for obj in INITIAL_OBJECTS)

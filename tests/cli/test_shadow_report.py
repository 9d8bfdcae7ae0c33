"""`tidelog shadow report`, on a recording of a small cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Tidelog
from tidelog.testing import recordings

RECORDINGS = Path(__file__).resolve().parent.parent / "conformance" / "recordings"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Read-only: somebody else's production."""
    path = tmp_path / "cluster.db"
    recordings.main([str(RECORDINGS / "imagesizes-101.jsonl.gz"), str(path)])
    return path


def test_it_tells_how_many_of_each_and_what_to_look_at(tidelog: Tidelog, log: Path) -> None:
    ran = tidelog("shadow", "report", log)

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("272 records of cluster imagesizes-101")
    lines = ran.out.splitlines()
    assert "  same                76        29  the node is among our best" in lines
    assert any("binding on node-007: imageGap by 2 points, place 4 of 23" in line for line in lines)


def test_as_json_it_has_every_decision_if_asked(tidelog: Tidelog, log: Path) -> None:
    few, everything = (
        json.loads(tidelog("shadow", "report", log, "-o", "json", *more).out) for more in ([], ["--all"])
    )

    assert (len(few["decisions"]), len(everything["decisions"])) == (1, 77)
    assert few["bindings"] == everything["bindings"]


def test_a_part_of_the_log_is_judged_from_the_state_before_it(tidelog: Tidelog, log: Path) -> None:
    everything, late = (
        json.loads(tidelog("shadow", "report", log, "--all", "-o", "json", *more).out)["decisions"]
        for more in ([], ["--from", "150"])
    )

    assert late
    assert late == [one for one in everything if one["seq"] >= late[0]["seq"]]


@pytest.mark.parametrize("more", [["--from", "999"], ["--to", "0"], ["--to", "999"]])
def test_a_record_that_is_not_there_is_named(tidelog: Tidelog, log: Path, more: list[str]) -> None:
    ran = tidelog("shadow", "report", log, *more)

    assert ran.code != 0
    assert "the log has 1 to 272" in ran.err


def test_without_a_configuration_nobody_knows_what_to_judge_by(two_pods: Tidelog) -> None:
    ran = two_pods("shadow", "report")

    assert ran.code != 0
    assert "it holds no configuration" in ran.err

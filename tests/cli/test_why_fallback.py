"""`why` and `describe` of pods whose topology spread can fall back: what they wait for, until when, and why they were placed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.worlds.spread import PREEMPTION, PROVISIONING, World, two_zones, web
from tidelog.cli.main import main
from tidelog.replay.files import write_log

Run = Callable[..., str]

DUE = (
    "topologySpread[0] topology.kubernetes.io/zone: hard, waiting for NodeProvisioningFailed "
    "(no NodeProvisioningInProgress condition; times out at 2023-11-14T22:18:20Z)"
)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line on a world's log; what it printed."""

    def run_it(world: World, *words: str) -> str:
        path = tmp_path / "cluster.db"
        asyncio.run(write_log(path, world.driver.records))
        assert main([*words, "--log", str(path)]) == 0
        return capsys.readouterr().out

    return run_it


@pytest.mark.parametrize("verb", ["why", "describe"])
def test_waiting_pod_is_told_when_its_fallback_is_due(run: Run, verb: str) -> None:
    world = two_zones(timeout="5m")
    world.put(web("web-1", PROVISIONING))

    words = ("why", "web-1") if verb == "why" else ("describe", "pod", "web-1")

    assert DUE in run(world, *words)


def test_placed_pod_is_told_which_constraint_was_only_preferred(run: Run) -> None:
    world = two_zones()
    world.put(web("web-1", PREEMPTION))
    world.advance(seconds=12)

    said = run(world, "why", "web-1")

    assert "topology.kubernetes.io/zone was only preferred" in said
    assert "PreemptionFailed since 2023-11-14T22:13:20Z" in said


def test_pod_without_criteria_is_told_nothing_of_it(run: Run) -> None:
    world = two_zones()
    world.put(web("web-1"))

    assert "topologySpread[" not in run(world, "why", "web-1")

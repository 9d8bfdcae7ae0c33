"""Recordings of clusters, whose decisions are the real kube-scheduler's: each is judged in the state that it was made in, and none is refused.

`recordings/` holds what a client saw that watched everything a scheduler reads. What may differ, and why, is in docs/live.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.eventlog.records import Record, check_rows
from tidelog.plugins.registry import Registry
from tidelog.replay.shadow import search
from tidelog.replay.shadow.follower import Follower, JudgedDecision
from tidelog.replay.shadow.report import FINE
from tidelog.testing import recordings
from tidelog.testing.recordings import play, read_recording

pytestmark = pytest.mark.no_cover

HERE = Path(__file__).resolve().parent / "recordings"
REGISTRY = Registry()

SEEN: dict[str, tuple[int, int]] = {
    "antiaffinity": (108, 8), "batch": (202, 47), "daemon": (74, 25), "foreign": (115, 85), "gang": (61, 27),
    "gang-topology": (47, 6), "gates": (86, 0), "hardspread": (150, 66), "images": (129, 0), "imagesizes": (77, 0),
    "namespaces": (118, 1), "nodeaffinity": (180, 1), "nodes": (105, 147), "pdb": (42, 101), "plain": (190, 7),
    "podaffinity": (109, 3), "ports": (98, 20), "preemption": (49, 168), "profiles": (119, 228), "resize": (85, 29),
    "resizewait": (87, 24), "restart": (80, 389), "rollout": (52, 0), "sampling": (70, 0), "services": (160, 0),
    "spread": (144, 35), "taints": (138, 112), "volumes": (82, 2), "wake-delete": (62, 68), "wake-label": (91, 135),
    "wake-node": (79, 494), "zoo": (323, 248), "zoo-big": (527, 726), "zoo-crowded": (85, 511),
}  # fmt: skip
"""Recording → bindings and rejections that show in it."""
MAY_DIFFER: dict[str, dict[str, int]] = {
    # How many nodes have an image is older in kube-scheduler's view of a node than the node itself.
    "images": {"imageGap": 4},
    "zoo": {"imageGap": 2},
    "zoo-big": {"imageGap": 1},
    # Which size it counts is that of the node that it first saw with it.
    "imagesizes": {"imageGap": 1},
    # It scored a part of 150 to 200 nodes.
    "sampling": {"sampled": 13},
}
"""The most of each verdict that is no agreement."""


def recorded(
    name: str, change: Callable[[SchedulerConfiguration], SchedulerConfiguration] | None = None
) -> list[Record]:
    found = read_recording(HERE / f"{name}-101.jsonl.gz")
    if change is None:
        return play(found, REGISTRY)
    return play(found, REGISTRY, configuration=change(recordings.configuration_of(found, REGISTRY)))


def judged(records: list[Record]) -> list[JudgedDecision]:
    follower = Follower(REGISTRY)
    found = [one for record in records for one in follower.take(record)]
    return [*found, *follower.finish()]


def test_every_recording_is_judged() -> None:
    assert sorted(path.name for path in HERE.iterdir()) == sorted(f"{name}-101.jsonl.gz" for name in SEEN)


@pytest.mark.parametrize("name", SEEN)
def test_decisions_of_kube_scheduler_are_ours(name: str) -> None:
    found = judged(recorded(name))

    counts = Counter((one.what, one.verdict) for one in found)
    bindings = sum(n for (what, _), n in counts.items() if what == "binding")
    rejections = sum(n for (what, _), n in counts.items() if what == "rejection")
    differing = Counter(one.verdict for one in found if one.verdict not in FINE)
    assert (bindings, rejections) == SEEN[name]
    assert differing <= Counter(MAY_DIFFER.get(name, {})), [one for one in found if one.verdict not in FINE]


def test_groups_are_placed_and_rejected_as_kube_scheduler_did() -> None:
    groups = [
        one for name in ("gang", "gang-topology") for one in judged(recorded(name)) if one.what == "group"
    ]

    assert Counter((one.node, one.verdict) for one in groups) == {
        ("placed", "agreed"): 28,
        ("rejected", "agreed"): 8,
    }


# --- it can fail ------------------------------------------------------------------------------------------------------


def without(plugin: str, *points: str) -> Callable[[SchedulerConfiguration], SchedulerConfiguration]:
    """The configuration with a plugin switched off at some extension points."""

    def change(configuration: SchedulerConfiguration) -> SchedulerConfiguration:
        profiles = []
        for profile in configuration.profiles:
            kept = {
                point: tuple(e for e in entries if not (point in points and e.name == plugin))
                for point, entries in profile.points.items()
            }
            profiles.append(replace(profile, points=kept))
        return replace(configuration, profiles=tuple(profiles))

    return change


MUTANTS = [
    ("NodeUnschedulable", "filter", "daemon"),
    ("TaintToleration", "filter", "taints"),
    ("NodeAffinity", "filter", "nodeaffinity"),
    ("NodePorts", "filter", "ports"),
    ("NodeResourcesFit", "filter", "plain"),
    ("PodTopologySpread", "filter", "hardspread"),
    ("InterPodAffinity", "filter", "antiaffinity"),
    ("DefaultPreemption", "postFilter", "preemption"),
    ("TaintToleration", "score", "taints"),
    ("NodeAffinity", "score", "nodeaffinity"),
    ("NodeResourcesFit", "score", "plain"),
    ("NodeResourcesBalancedAllocation", "score", "plain"),
    ("PodTopologySpread", "score", "spread"),
    ("InterPodAffinity", "score", "podaffinity"),
    ("ImageLocality", "score", "images"),
]
"""NodeName is missing: no pod is decided about that names its node."""


@pytest.mark.parametrize(("plugin", "point", "name"), MUTANTS, ids=str)
def test_a_plugin_that_is_switched_off_makes_verdicts_worse(
    plugin: str, point: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "VIEWS_MAX", 20)
    points = {"filter": ("preFilter", "filter"), "score": ("preScore", "score")}.get(point, (point,))

    found = judged(recorded(name, without(plugin, *points)))

    differing = Counter(one.verdict for one in found if one.verdict not in FINE)
    known = Counter(MAY_DIFFER.get(name, {}))
    assert (differing - known).total() >= 1, f"nobody misses {plugin} at {point}"


# --- the same every time ------------------------------------------------------------------------------------------------


def test_the_report_is_the_same_under_another_hash_seed(tmp_path: Path) -> None:
    log = tmp_path / "zoo.db"
    recordings.main([str(HERE / "zoo-crowded-101.jsonl.gz"), str(log)])

    def report(seed: str) -> bytes:
        command = [
            sys.executable,
            "-m",
            "tidelog.cli.main",
            "shadow",
            "report",
            str(log),
            "--all",
            "-o",
            "json",
        ]
        return subprocess.run(
            command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout

    first = report("1")

    assert first == report("1") == report("2")
    assert b'"verdict"' in first


@pytest.mark.parametrize("name", ["foreign", "rollout"])
def test_a_recording_is_a_log_whose_chain_holds_and_that_is_the_same_each_time(name: str) -> None:
    records = recorded(name)

    rows = [(r.seq, r.at, r.author, r.kind, r.key, r.cause, r.body, r.digest) for r in records]
    assert check_rows(rows, 0, 0, bytes(32)) == records == recorded(name)

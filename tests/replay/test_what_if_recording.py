"""A what-if on the log of a cluster that another scheduler runs: its decisions are made anew, and everything else stays."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.replay.shadow.test_follower import ATTACHED, REGISTRY, Log, bound, going, node, pod, rejected
from tidelog.api.objects import Pod
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.eventlog.records import KindSynced
from tidelog.replay.comparison import compare
from tidelog.replay.story import story
from tidelog.replay.verify import verify
from tidelog.replay.what_if import WhatIfOutcomes, run_what_if
from tidelog.scheduler.core import Core
from tidelog.testing import builders as b


def made(log: Log, **changes: Any) -> WhatIfOutcomes:
    """What the same rules, or others, come to."""

    def configure(recorded: SchedulerConfiguration) -> SchedulerConfiguration:
        return replace(recorded, **changes)

    found = run_what_if(log.records, REGISTRY, configure)
    assert verify(found.driver.records, REGISTRY).first_difference is None
    return found


def pods(found: WhatIfOutcomes) -> dict[str, Pod]:
    return {o.metadata.name: o for o in found.driver.core.objects.values() if isinstance(o, Pod)}


@pytest.fixture
def log() -> Log:
    """A large node, and a small one that the cluster's own scheduler prefers."""
    return Log().put(node("large", "8"), node("small", "2")).synced().later(10)


def test_the_decisions_are_made_anew_from_where_the_whole_cluster_is_there(log: Log) -> None:
    web = pod("web")
    log.put(web).later(10).put(bound(web, "small"))

    found = made(log)

    assert pods(found)["web"].spec.node_name == "large"
    assert found.divergence is not None
    assert (found.divergence.seq, "own scheduler" in found.divergence.reason) == (6, True)


def test_what_the_kubelet_tells_is_kept_and_what_its_scheduler_wrote_is_not(log: Log) -> None:
    web = pod("web")
    told = rejected(web, "0/2 nodes are available.", nominated_node_name="small")
    labels = {"app": "web", "topology.kubernetes.io/zone": "z-of-small"}
    running = bound(replace(web, metadata=replace(web.metadata, labels=labels)), "small")
    running = replace(
        running, status=replace(running.status, phase="Running", start_time="2026-11-19T00:00:00Z")
    )
    log.put(web).later(10).put(told).later(10).put(running)

    there = pods(made(log))["web"]

    assert (there.spec.node_name, there.status.phase, there.status.nominated_node_name) == (
        "large",
        "Running",
        "",
    )
    assert there.metadata.labels == {"app": "web"}
    assert [c.status for c in there.status.conditions if c.type == "PodScheduled"] == ["True"]


def test_pods_that_nobody_here_decides_about_stay_where_they_are(log: Log) -> None:
    mirror, other = bound(pod("mirror"), "small"), b.pod("other").scheduler("another").build()
    log.put(mirror, other).later(10).put(bound(other, "small"))

    found = pods(made(log))

    assert {name: found[name].spec.node_name for name in ("mirror", "other")} == {
        "mirror": "small",
        "other": "small",
    }


def test_its_victims_live_where_we_need_no_room(log: Log) -> None:
    low, vip = pod("low", "2"), pod("vip", "2")
    log.put(low).later(10).put(bound(low, "small")).later(1000).put(vip).later(10)
    log.put(going(bound(low, "small"))).later(500)
    gone = bound(low, "small")
    log.delete(gone).put(bound(vip, "small"))

    found = made(log)

    assert {name: p.spec.node_name for name, p in pods(found).items()} == {"low": "large", "vip": "large"}
    assert not pods(found)["low"].metadata.deletion_timestamp


def test_an_end_that_was_nobodys_preemption_is_kept(log: Log) -> None:
    web = pod("web")
    log.put(web).later(10).put(bound(web, "small")).later(10).delete(bound(web, "small"))

    assert pods(made(log)) == {}


def test_both_are_compared_by_what_shows(log: Log) -> None:
    web, big = pod("web"), pod("big", "9")
    log.put(web, big).later(250).put(bound(web, "small")).later(250)

    comparison = compare(log.records, made(log))

    rows = {row.pod: row for row in comparison.by_pod}
    recorded, other = rows["default/web"].recorded, rows["default/web"].what_if
    assert recorded is not None
    assert other is not None
    assert (recorded.node, recorded.pending_seconds, other.node) == ("small", 0.25, "large")
    assert comparison.pods["another_node"] == 1
    assert [comparison.figures[side].placed for side in ("recorded", "what_if")] == [1, 1]


def test_before_the_whole_cluster_is_there_nothing_is_decided() -> None:
    kinds = {**ATTACHED.kinds, "Node": msgspec.structs.replace(ATTACHED.kinds["Pod"], path="/api/v1/nodes")}
    log = Log().say(msgspec.structs.replace(ATTACHED, kinds=kinds)).put(pod("web")).synced().later(1000)
    log.put(node("late")).later(1000)
    assert pods(made(log))["web"].spec.node_name == ""

    log.say(KindSynced(kind="Node", resource_version="1")).later(10).put(node("later"))
    assert pods(made(log))["web"].spec.node_name


def test_the_pods_story_tells_why_the_other_scheduler_rejected_it(log: Log) -> None:
    web = pod("web", "9")
    first, second = (
        "0/2 nodes are available: 2 Insufficient cpu.",
        "0/2 nodes are available: 2 Too many pods.",
    )
    log.put(web).later(10).put(rejected(web, first)).later(10).put(
        rejected(web, second, nominated_node_name="small")
    )

    told = story(log.records, Core(REGISTRY), "Pod/default/web")

    assert [entry.text for entry in told.entries if entry.what == "rejected"] == [
        f"rejected by default-scheduler: {first}",
        f"rejected by default-scheduler: {second}; room is made on small",
    ]

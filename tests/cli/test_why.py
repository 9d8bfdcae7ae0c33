"""`why`, `why-not`, `describe` and `queue`: for every plugin that can reject a pod, who, why, on how many nodes, and what would help."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidelog.api.objects import Node, Object, Pod
from tidelog.api.times import parse_time
from tidelog.cli.main import main
from tidelog.configuration.configuration import resolve_configuration
from tidelog.framework.interface import Code, CycleState, PermitResult, Plugin, Status
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log
from tidelog.replay.waits import queue_of, waits_of
from tidelog.testing import builders as b

ZONE = b.ZONE
DEFAULT = "default-scheduler"

Run = Callable[..., tuple[int, str]]


def node(name: str, zone: str = "a", cpu: str = "4", **labels: str) -> b.NodeBuilder:
    return b.node(name).label({ZONE: zone, **labels}).capacity(cpu=cpu, memory="8Gi")


def pod(name: str, cpu: str = "1") -> b.PodBuilder:
    return b.pod(name).request(cpu=cpu).scheduler(DEFAULT)


def _three(change: Callable[[b.NodeBuilder], b.NodeBuilder] = lambda n: n) -> list[Node]:
    return [change(node(f"n{i}", zone)).build() for i, zone in enumerate("aab")]


CASES: dict[str, tuple[Sequence[Object], Pod, str, str, int, str]] = {
    "too little cpu": (
        [*_three(), pod("old", "3500m").on("n2").build()],
        pod("p", "4500m").build(),
        "NodeResourcesFit",
        "Insufficient cpu",
        3,
        "a larger node: the pod asks for 4500m cpu, and none of n0, n1, n2 has more than 4 even when empty",
    ),
    "cpu in use": (
        [*_three(), *(pod(f"old{i}", f"{3 + i * 0.25}").on(f"n{i}").build() for i in range(3))],
        pod("p", "2").build(),
        "NodeResourcesFit",
        "Insufficient cpu",
        3,
        "1 more cpu on n0, the node with the most room: it has 1 of 4 free, and the pod asks for 2",
    ),
    "too many pods": (
        [b.node("n1").capacity(cpu="4", pods=1).build(), pod("old").on("n1").build()],
        pod("p").build(),
        "NodeResourcesFit",
        "Too many pods",
        1,
        "a node with room for one more pod: n1 holds 1 and may hold 1",
    ),
    "taint": (
        _three(lambda n: n.taint("dedicated", "gpu")),
        pod("p").build(),
        "TaintToleration",
        "node(s) had untolerated taint(s)",
        3,
        "a toleration of dedicated=gpu:NoSchedule, or its removal from n0, n1, n2",
    ),
    "cordon": (
        _three(lambda n: n.cordon()),
        pod("p").build(),
        "NodeUnschedulable",
        "node(s) were unschedulable",
        3,
        "uncordoning n0, n1, n2",
    ),
    "node selector": (
        _three(lambda n: n.label(disk="hdd")),
        pod("p").node_selector(disk="ssd").build(),
        "NodeAffinity",
        "node(s) didn't match Pod's node affinity/selector",
        3,
        "the label disk=ssd on a node: 3 of these 3 lack it; values there are: hdd (3)",
    ),
    "node affinity": (
        _three(),
        pod("p").node_affinity("tier in (gold,silver)").build(),
        "NodeAffinity",
        "node(s) didn't match Pod's node affinity/selector",
        3,
        "a node with tier in (gold, silver): 0 of these 3 have that",
    ),
    "host port": (
        [*_three()[:1], pod("old").port(8080).on("n0").build()],
        pod("p").port(8080).build(),
        "NodePorts",
        "node(s) didn't have free ports for the requested pod ports",
        1,
        "host port 8080/TCP is held on n0 by default/old",
    ),
    "spread": (
        [
            node("a1", "a").build(),
            node("b1", "b", cpu="500m").build(),
            pod("old").label(app="web").on("a1").build(),
        ],
        pod("p").label(app="web").spread(ZONE, selector="app=web").build(),
        "PodTopologySpread",
        "node(s) didn't match pod topology spread constraints",
        1,
        f"a place in {ZONE} b, which holds the minimum of 0 matching pods (a: 1, b: 0; maxSkew 1)",
    ),
    "spread over labels that nodes lack": (
        [b.node("n1").capacity(cpu="4").build()],
        pod("p").label(app="web").spread(ZONE, selector="app=web").build(),
        "PodTopologySpread",
        "node(s) didn't match pod topology spread constraints (missing required label)",
        1,
        f"the label {ZONE} on n1",
    ),
    "affinity": (
        _three(),
        pod("p").pod_affinity(ZONE, "app=db").build(),
        "InterPodAffinity",
        "node(s) didn't match pod affinity rules",
        3,
        f"a pod with app=db on a node that has the label {ZONE}: there is none",
    ),
    "anti-affinity": (
        [*_three()[:2], pod("old").label(app="db").on("n0").build()],
        pod("p").pod_anti_affinity(ZONE, "app=db").build(),
        "InterPodAffinity",
        "node(s) didn't match pod anti-affinity rules",
        2,
        f"a {ZONE} without pods with app=db: now there are default/old on n0",
    ),
    "anti-affinity of others": (
        [*_three()[:2], pod("old").pod_anti_affinity(ZONE, "app=web").on("n0").build()],
        pod("p").label(app="web").build(),
        "InterPodAffinity",
        "node(s) didn't satisfy existing pods anti-affinity rules",
        2,
        "these pods do not want it near them (their anti-affinity): default/old on n0",
    ),
    "gate": (
        _three(),
        pod("p").gate("quota", "images").build(),
        "SchedulingGates",
        "waiting for scheduling gates: [quota images]",
        3,
        "removing the scheduling gates quota, images",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_why_names_plugin_reason_node_counts_and_what_would_help(case: str, driver: Driver, run: Run) -> None:
    objects, waiting, plugin, reason, nodes, advice = CASES[case]
    driver.put(*objects, waiting)
    driver.settle()

    code, told = run("why", "p")

    assert code == 0
    if case == "gate":
        assert f"{plugin} keeps it out of the queue: {reason}" in told
        assert "feasible once its gate is open: 3 of 3 nodes" in told
    else:
        assert f"{plugin} rejects {nodes} node" in told
        assert f"{nodes} {reason}" in told
    assert advice in told


@pytest.mark.parametrize(
    ("waiting", "plugin", "reason"),
    [
        (
            pod("p").group("train").build(),
            "GangScheduling",
            "waiting for minCount pods from a gang to appear in scheduling queue",
        ),
        (
            pod("p").claim("gpu", claim="mine").build(),
            "DynamicResources",
            'could not find ResourceClaim "default/mine"',
        ),
    ],
)
def test_why_names_who_keeps_a_pod_out_of_the_queue(
    waiting: Pod, plugin: str, reason: str, driver: Driver, run: Run
) -> None:
    driver.put(*_three(), b.pod_group("train", min_count=2), waiting)
    driver.settle()

    code, told = run("why", "p")

    assert code == 0
    assert f"outside the queue until its gate opens: {plugin}: {reason}" in told
    assert f"{plugin} keeps it out of the queue: {reason}" in told


@pytest.mark.parametrize("case", [case for case in CASES if case != "gate"])
def test_why_tells_the_attempt_and_the_events_that_would_wake_the_pod(
    case: str, driver: Driver, run: Run
) -> None:
    objects, waiting, plugin, reason, nodes, _ = CASES[case]
    driver.put(*objects, waiting)
    driver.settle()

    _, told = run("why", "p", "-o", "json")

    found = json.loads(told)
    (attempt,) = [entry for entry in found["story"]["entries"] if entry["what"] == "attempt"]
    assert {"plugin": plugin, "reason": reason, "nodes": nodes} in attempt["rejections"]
    assert plugin in found["waits"]["plugins"]
    assert found["waits"]["events"][plugin]


def test_the_domain_that_should_take_the_pod_says_why_it_does_not(driver: Driver, run: Run) -> None:
    objects, waiting, *_ = CASES["spread"]
    driver.put(*objects, waiting)
    driver.settle()

    _, told = run("why", "p")

    assert "the 1 nodes of b cannot take it: 1 NodeResourcesFit: Insufficient cpu" in told


def test_why_tells_what_woke_the_pod_and_where_it_went(driver: Driver, run: Run) -> None:
    driver.put(node("n1", cpu="1").build(), pod("big", "2").build())
    driver.settle()
    driver.put(node("n2", cpu="4").build())
    driver.advance(seconds=3)

    _, told = run("why", "big")

    assert "NodeAdd node n2: NodeResourcesFit says that may help" in told
    assert "placed on n2" in told


def test_repeated_rejections_are_folded_with_their_count(driver: Driver, run: Run) -> None:
    driver.put(node("n1", cpu="1").build(), pod("big", "2").build())
    driver.advance(seconds=1000)

    _, told = run("why", "big", "-o", "json")

    (attempt,) = [e for e in json.loads(told)["story"]["entries"] if e["what"] == "attempt"]
    assert attempt["count"] == driver.core.attempts > 2
    assert attempt["woken_by"] == {"UnschedulableTimeout": driver.core.attempts - 1}


def test_events_that_did_not_help_are_counted(driver: Driver, run: Run) -> None:
    driver.put(node("n1", cpu="1").build(), pod("big", "2").build())
    driver.settle()
    driver.put(node("n2", cpu="1").build(), node("n3", cpu="1").build())

    _, told = run("why", "big")

    assert "events so far that did not help: 2" in told
    assert "NodeAdd of node n3: NodeResourcesFit said QueueSkip" in told


def test_the_winner_is_shown_with_its_points_beside_the_runners_up(driver: Driver, run: Run) -> None:
    driver.put(node("full").build(), node("empty").build(), pod("old", "2").on("full").build())
    driver.put(pod("p").build())
    driver.settle()
    recorded = driver.core.objects["Pod/default/p"]
    assert isinstance(recorded, Pod)

    _, told = run("why", "p", "-o", "json")

    choice = json.loads(told)["choice"]
    first, second = choice["scores"]
    assert [first["node"], second["node"]] == ["empty", "full"]
    assert first["node"] == recorded.spec.node_name
    assert first["total"] > second["total"]
    assert first["total"] == sum(score["weighted"] for score in first["plugins"].values())
    _, text = run("why", "p")
    assert "NodeResourcesFit ×1" in text


def test_recomputed_points_are_those_that_were_recorded(driver: Driver, run: Run) -> None:
    driver.put(*(node(f"n{i}", "abc"[i % 3]).build() for i in range(6)))
    driver.put(*(pod(f"p{i}", f"{100 + 50 * i}m").build() for i in range(20)))
    driver.settle()

    for i in range(20):
        found = json.loads(run("why", f"p{i}", "-o", "json")[1])
        scheduled = next(e for e in found["story"]["entries"] if e["what"] == "scheduled")
        assert f"score {found['choice']['scores'][0]['total']} among" in scheduled["text"]
        assert found["choice"]["scores"][0]["node"] == scheduled["node"]


def test_why_answers_for_an_earlier_moment(driver: Driver, run: Run) -> None:
    driver.put(node("n1", cpu="1").build(), pod("big", "2").build())
    driver.settle()
    rejected = len(driver.records)
    driver.put(node("n2", cpu="4").build())
    driver.advance(seconds=3)

    _, then = run("why", "big", "--at", str(rejected))
    _, now = run("why", "big")

    assert "big: pending (unschedulable)" in then
    assert "big: placed on n2" in now


def test_a_called_off_attempt_is_told_with_its_reason(driver: Driver, run: Run) -> None:
    driver.put(node("n1").build(), pod("p").build())
    driver.attempt()
    driver.put(node("n1").cordon().build())
    driver.commit()
    driver.settle()

    _, told = run("why", "p")

    assert "attempt 1: called off on n1" in told
    assert "(record " in told


def test_a_pod_for_another_scheduler_is_told_that_nobody_here_will_place_it(driver: Driver, run: Run) -> None:
    driver.put(node("n1").build(), b.pod("p").scheduler("other").build())

    code, told = run("why", "p")

    assert code == 0
    assert "the pod wants the scheduler other; this log's profiles are default-scheduler" in told


def test_unknown_pod_is_one_clear_line(run: Run) -> None:
    code, told = run("why", "nobody")

    assert code == 1
    assert told == "tidelog: error: pod default/nobody is not in the log\n"


def test_deleted_pod_still_has_a_story(driver: Driver, run: Run) -> None:
    waiting = pod("p").build()
    driver.put(waiting)
    driver.delete(waiting)

    code, told = run("why", "p")

    assert code == 0
    assert "pod default/p: deleted" in told
    assert "deleted (by cluster)" in told


def test_why_not_asks_every_plugin_by_itself(driver: Driver, run: Run) -> None:
    driver.put(node("n1", cpu="1").taint("a", "b").cordon().build(), pod("p", "2").build())
    driver.settle()

    _, told = run("why-not", "p", "n1", "-o", "json")

    rejects = [v["plugin"] for v in json.loads(told)["verdicts"] if v["verdict"] == "rejects"]
    assert rejects == ["NodeUnschedulable", "TaintToleration", "NodeResourcesFit"]


def test_why_not_scores_a_node_that_would_have_done_beside_the_winner(driver: Driver, run: Run) -> None:
    driver.put(node("full").build(), node("empty").build(), pod("old", "2").on("full").build())
    driver.put(pod("p").build())
    driver.settle()

    _, told = run("why-not", "p", "full")

    assert "node full for pod default/p, when it was placed: feasible" in told
    assert "points beside empty, which was chosen" in told


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["why-not", "p", "ghost"], "node ghost does not exist"),
        (["why", "a/b/c"], "is no name of a pod"),
        (["why", "podgroup/web"], "the story of a group is told with that of each of its pods"),
        (["why", "p", "--at", "soon"], "--at soon: must be the number of a record"),
        (["why", "p", "--at", "99"], "there is no record 99"),
        (["describe", "service", "n1"], "name pods or nodes"),
    ],
)
def test_bad_questions_are_one_clear_line(words: list[str], error: str, driver: Driver, run: Run) -> None:
    driver.put(node("n1").build(), pod("p", "9").build())
    driver.settle()

    code, told = run(*words)

    assert code in (1, 2)
    assert error in told
    assert told.count("\n") == 1


def test_describe_shows_conditions_and_events_like_kubectl(driver: Driver, run: Run) -> None:
    driver.put(node("n1", cpu="1").build(), pod("big", "2").build())
    driver.settle()
    driver.put(node("n2", cpu="4").build())
    driver.advance(seconds=3)

    _, told = run("describe", "pod", "big")

    assert "Warning   FailedScheduling" in told
    assert "0/1 nodes are available: 1 Insufficient cpu." in told
    assert "Normal    Scheduled" in told
    assert "Successfully assigned default/big to n2" in told
    assert "PodScheduled   True" in told


def test_queue_shows_who_is_where_and_until_when(driver: Driver, run: Run) -> None:
    driver.put(node("n1", cpu="1").build(), pod("big", "2").build(), pod("gated").gate("wait").build())
    driver.settle()
    driver.put(pod("ready").build())

    _, told = run("queue", "-o", "json")

    places: dict[str, Any] = {row["key"]: row["waits"] for row in json.loads(told)["pods"]}
    assert {k: w["place"] for k, w in places.items()} == {
        "default/ready": "active",
        "default/big": "unschedulable",
        "default/gated": "gated",
    }
    assert parse_time(places["default/big"]["until"]) > driver.now


def test_queue_shows_attempts_that_were_in_flight_at_that_moment(driver: Driver, run: Run) -> None:
    driver.put(node("n1").build(), pod("p").build())
    driver.attempt()
    driver.put(node("n2").build())
    between = len(driver.records)
    driver.commit()

    _, told = run("queue", "--at", str(between), "-o", "json")

    assert [row["waits"]["place"] for row in json.loads(told)["pods"]] == ["in flight"]


def test_before_any_scheduler_there_is_no_queue(run: Run) -> None:
    code, told = run("queue", "--at", "1")

    assert code == 0
    assert "no scheduler has taken this log up to record 1" in told


def preemption(driver: Driver) -> None:
    """A pod of priority 10 makes a pod of priority 0 go, and takes its place."""
    driver.put(node("n1", cpu="2").build(), pod("low", "2").grace(30).build())
    driver.settle()
    driver.put(pod("high", "2").priority(10).build())
    driver.settle()
    driver.advance(seconds=30)
    driver.delete(driver.pod("low"))
    driver.advance(seconds=5)


def test_why_tells_a_preemptor_its_nomination_its_victims_and_what_woke_it(driver: Driver, run: Run) -> None:
    preemption(driver)

    _, told = run("why", "high")

    assert "nominated to n1, for which pod default/low must go" in told
    assert "evicts pod default/low from n1" in told
    assert "AssignedPodDelete pod default/low: NodeResourcesFit says that may help" in told
    assert "high: placed on n1" in told


def test_why_tells_a_victim_for_whom_it_had_to_go(driver: Driver, run: Run) -> None:
    preemption(driver)

    _, told = run("why", "low")

    assert "from n1, to make room for pod default/high" in told
    assert "low: deleted" in told


def test_describe_shows_that_a_pod_was_preempted(driver: Driver, run: Run) -> None:
    preemption(driver)
    evicted = next(record.seq for record in driver.records if record.kind == "Evicted")

    _, told = run("describe", "pod", "low", "--at", str(evicted))

    assert "Normal   Preempted" in told
    assert "DisruptionTarget" in told
    assert "Terminating (until" in told


def test_why_tells_which_spread_constraint_fell_back_and_by_which_criterion(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "tidelog": {"featureGates": {"PodTopologySpreadFallbackMode": True}},
    }
    driver = Driver()
    driver.start(resolve_configuration(file, Registry()).configuration)
    driver.put(node("a1", "a").build(), node("b1", "b", cpu="500m").build())
    driver.put(pod("old").label(app="web").on("a1").build())
    web = pod("p").label(app="web").spread(ZONE, selector="app=web", fallback=("PreemptionFailed",))
    driver.put(web.build())
    driver.advance(seconds=12)
    asyncio.run(write_log(tmp_path / "log.db", driver.records))

    main(["why", "p", "--log", str(tmp_path / "log.db")])

    told = capsys.readouterr().out
    assert "p: placed on a1" in told
    assert f"spread over {ZONE} was only preferred, by PreemptionFailed" in told


def test_permit_waits_are_told_with_their_node_and_deadline() -> None:
    """A plugin that lets pods wait: the room is reserved meanwhile."""
    registry = Registry([*IN_TREE, WaitsForPermit])
    section = {"plugins": {"multiPoint": {"enabled": [{"name": "WaitsForPermit"}]}}}
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [section],
    }
    driver = Driver(registry)
    driver.start(resolve_configuration(file, registry).configuration)
    driver.put(node("n1").build(), pod("p").build())
    driver.settle()

    waits = waits_of(driver.core, driver.pod("p"))
    (row,) = queue_of(driver.core)

    assert waits is not None
    assert (waits.place, waits.reserved_on, waits.plugins) == ("permit", "n1", ("WaitsForPermit",))
    assert waits.until == driver.now + 60_000_000_000
    assert (row.key, row.waits.place) == ("default/p", "permit")


class WaitsForPermit(Plugin):
    """Asks every pod to wait for a minute."""

    name = "WaitsForPermit"

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> PermitResult:
        return PermitResult(Status(Code.WAIT), 60)

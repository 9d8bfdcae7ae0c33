"""What-if: nothing differs under the same rules, and what differs under others is what one would work out by hand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.worlds.beginnings import behind, quiet_places
from tests.worlds.histories import node, pod, random_history
from tidelog.api.errors import LogError
from tidelog.api.objects import LabelSelector, LabelSelectorRequirement
from tidelog.api.times import NANOS
from tidelog.cli.main import main
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.daemon.process.scheduler import Scheduler
from tidelog.eventlog.records import Draft, ObjectDeleted, ObjectPut, Scheduled, decode_body
from tidelog.plugins.registry import Registry
from tidelog.replay.comparison import Comparison, compare
from tidelog.replay.driver import Driver
from tidelog.replay.figures import figures
from tidelog.replay.files import rechained, write_log
from tidelog.replay.verify import verify
from tidelog.replay.what_if import Injection, WhatIfOutcomes, run_what_if
from tidelog.scheduler.recorded import CannotFollow
from tidelog.testing import builders as b

HEADER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


@pytest.fixture
def driver() -> Driver:
    started = Driver()
    started.start()
    return started


def packing(strategy: str) -> SchedulerConfiguration:
    """The default profile, with another idea of where a pod should go."""
    args = {"scoringStrategy": {"type": strategy, "resources": [{"name": "cpu", "weight": 1}]}}
    plugins = {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}}
    profile = {"plugins": plugins, "pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}
    return resolve_configuration({**HEADER, "profiles": [profile]}, Registry()).configuration


def asked(driver: Driver, **how: object) -> tuple[WhatIfOutcomes, Comparison]:
    made = run_what_if(driver.records, Registry(), **how)  # type: ignore[arg-type]
    return made, compare(driver.records, made)


@pytest.mark.parametrize("seed", range(6))
def test_the_same_configuration_gives_no_difference(seed: int) -> None:
    driver = random_history(100 + seed, steps=120)

    made, found = asked(driver)

    assert found.outcomes["differing"] == 0
    assert found.figures["recorded"] == found.figures["what_if"]
    assert driver.records == made.driver.records


def test_another_strategy_sends_the_second_pod_to_the_other_node(driver: Driver) -> None:
    """By hand: the least allocated node for the second pod is the empty one, the most allocated one the first pod's."""
    driver.configure(packing("LeastAllocated"))
    driver.put(node("n1").build(), node("n2").build(), pod("a").build())
    driver.settle()
    driver.put(pod("b").build())
    driver.settle()
    first = driver.placements()["default/a"]
    assert driver.placements()["default/b"] != first

    made, found = asked(driver, configure=lambda _: packing("MostAllocated"))

    assert made.driver.placements() == {"default/a": first, "default/b": first}
    assert found.outcomes["differing"] == 1
    assert found.pods["another_node"] == 1
    assert made.divergence is not None
    assert made.divergence.key == "Pod/default/b"
    assert made.divergence.computed["node"] == first


@pytest.mark.unreplayed("the log contradicts itself")
def test_object_under_anothers_key_is_a_contradiction_of_the_log_also_behind_its_end(driver: Driver) -> None:
    driver.put(pod("a").build(), node("n1").build())
    *before, put, last = driver.records
    records = [*before, replace(put, key="Pod"), last]

    with pytest.raises(
        CannotFollow, match=r"cannot follow those before it: .*Pod/default/a, which does not exist"
    ):
        run_what_if(records, Registry(), drop=[last.seq])


def test_a_dropped_node_leaves_the_pods_that_it_took_pending(driver: Driver) -> None:
    driver.put(node("small", cpu="1").build(), pod("big", "2").build())
    driver.settle()
    driver.put(node("large", cpu="4").build())
    driver.advance(seconds=5)
    assert driver.placements() == {"default/big": "large"}

    made, found = asked(driver, drop=["Node//large"])

    assert made.driver.placements() == {}
    assert found.pods["placed_only_recorded"] == 1
    assert found.figures["what_if"].unplaced == 1


def test_a_fact_dropped_by_its_number_takes_what_follows_about_the_object_with_it(driver: Driver) -> None:
    driver.put(node("n1").build())
    arrival = len(driver.records)
    driver.put(node("n1").label(more="labels").build(), pod("p").build())
    driver.settle()

    made, _ = asked(driver, drop=[arrival])

    assert "Node//n1" not in made.driver.core.objects
    assert made.driver.placements() == {}


def test_an_injected_node_takes_the_pod_that_was_pending(driver: Driver) -> None:
    driver.put(pod("p").build())
    driver.settle()
    driver.advance(seconds=5)

    made, found = asked(driver, inject=[Injection(3, node("new").build())])

    assert made.driver.placements() == {"default/p": "new"}
    assert found.pods["placed_only_what_if"] == 1


def test_the_log_of_a_what_if_verifies(driver: Driver) -> None:
    recorded = random_history(7, steps=120)
    node_key = next(r.key for r in recorded.records if r.key.startswith("Node/"))

    made, _ = asked(recorded, drop=[node_key])

    assert verify(made.driver.records, Registry()).first_difference is None


def test_facts_that_answer_a_dropped_decision_are_left_out(driver: Driver) -> None:
    """The autoscaler's node answers the rejection; where the pod fits from the start, nobody asks for it."""
    driver.put(node("n1", cpu="1").build(), pod("big", "2").build())
    driver.settle()
    rejection = driver.records[-1].seq
    driver.now += 60 * NANOS
    put = ObjectPut(object=node("scaled-up", cpu="4").build())
    driver.append(Draft(body=put, author="autoscaler", key="Node//scaled-up", cause=rejection))
    driver.advance(seconds=5)
    assert driver.placements() == {"default/big": "scaled-up"}

    made, _ = asked(driver, inject=[Injection(3, node("roomy", cpu="4").build())])

    assert made.driver.placements() == {"default/big": "roomy"}
    assert "Node//scaled-up" not in made.driver.core.objects


def test_a_reaction_follows_its_outcome_as_long_after_it_as_it_was_recorded(driver: Driver) -> None:
    """The node agent ends the pod 100 s after its placement. With a node from the start, that is 100 s after the start."""
    driver.put(pod("job").build())
    driver.settle()
    driver.advance(seconds=40)
    driver.put(node("late").build())
    driver.advance(seconds=5)
    scheduled = next(r for r in driver.records if r.kind == "Scheduled")
    driver.advance(seconds=(scheduled.at + 100 * NANOS - driver.now) / NANOS)
    driver.append(
        Draft(body=ObjectDeleted(), author="node-agent", key="Pod/default/job", cause=scheduled.seq)
    )
    driver.advance(seconds=50)
    driver.put(node("last").build())

    made, _ = asked(driver, inject=[Injection(3, node("early").build())])

    placed = next(r for r in made.driver.records if r.kind == "Scheduled")
    deleted = next(r for r in made.driver.records if r.kind == "ObjectDeleted")
    assert placed.at < scheduled.at
    assert deleted.at - placed.at == 100 * NANOS


def test_an_update_of_a_placed_pod_does_not_move_it_to_where_it_was_recorded(driver: Driver) -> None:
    driver.configure(packing("LeastAllocated"))
    driver.put(node("n1").build(), node("n2").build(), pod("a").build())
    driver.settle()
    driver.put(pod("b").build())
    driver.settle()
    placed = driver.pod("b")
    meta = msgspec.structs.replace(placed.metadata, labels={"new": "label"})
    driver.now += NANOS
    driver.put(msgspec.structs.replace(placed, metadata=meta))

    made, _ = asked(driver, configure=lambda _: packing("MostAllocated"))

    found = made.driver.pod("b")
    assert found.metadata.labels == {"new": "label"}
    assert found.spec.node_name == made.driver.placements()["default/a"]


def test_the_evicted_go_when_their_grace_period_is_over_though_nobody_recorded_it(driver: Driver) -> None:
    """With a smaller node the high pod has to preempt, which it did not in the recorded log."""
    driver.put(node("n1", cpu="2").build(), pod("low", "2").grace(30).build())
    driver.settle()
    driver.put(node("n2", cpu="2").build(), pod("high", "2").priority(10).build())
    driver.settle()
    driver.advance(seconds=120)
    driver.put(node("n3", cpu="1").build())
    assert driver.placements() == {"default/low": "n1", "default/high": "n2"}

    made, found = asked(driver, drop=["Node//n2"])

    assert made.driver.placements() == {"default/high": "n1"}
    assert found.figures["what_if"].preemptions == 1
    assert found.figures["recorded"].preemptions == 0


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_are_those_worked_out_by_hand(driver: Driver) -> None:
    driver.put(node("a1", "a", cpu="4").build(), node("b1", "b", cpu="2").build())
    driver.put(*(pod(f"p{i}", "1").label(app="w").spread(b.ZONE, selector="app=w").build() for i in range(2)))
    driver.settle()
    driver.put(pod("big", "3500m").build())
    driver.settle()
    driver.advance(seconds=9)
    driver.put(node("c1", "c", cpu="4").build())
    driver.advance(seconds=1)

    found = figures(driver.records)

    assert (found.placed, found.unplaced, found.preemptions) == (3, 0, 0)
    assert found.pending_seconds.p50 == 0
    assert found.pending_seconds.p99 == 9
    # One matching pod in a and b each, none in c.
    assert found.spread_skew_max == 1
    # Used: 1/4, 1/2, 3.5/4; mean 0.541667, so the deviations are -0.291667, -0.041667, 0.333333.
    assert found.cpu_imbalance == pytest.approx(0.2569, abs=1e-4)
    # Free: 3, 1, 0.5; one more pod of the median size, 1 cpu, does not fit into the last.
    assert found.fragmentation == pytest.approx(0.5 / 4.5, abs=1e-4)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(driver: Driver, tmp_path: Path) -> Path:
    driver.configure(packing("LeastAllocated"))
    driver.put(node("n1").build(), node("n2").build(), pod("a").build())
    driver.settle()
    driver.put(pod("b").build())
    driver.settle()
    asyncio.run(write_log(tmp_path / "log.db", driver.records))
    return tmp_path / "log.db"


def test_command_compares_and_shows_the_pods_on_request(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - pluginConfig:
      - name: NodeResourcesFit
        args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
    plugins: {score: {disabled: [{name: NodeResourcesBalancedAllocation}]}}
"""
    )

    code = main(["replay", "what-if", str(log), "--config", str(config), "--pods"])

    said = capsys.readouterr().out
    assert code == 0
    assert "2 outcomes recorded, 2 in the what-if: 1 identical, 1 differ" in said
    assert "leaves the recorded history before record 9, attempt 1 of pod default/b" in said
    assert "default/b" in said.splitlines()[-1]


def test_command_keeps_the_log_of_the_what_if(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["replay", "what-if", str(log), "--drop", "node/n1", "--save", str(tmp_path / "new.db")])
    verified = main(["replay", "verify", str(tmp_path / "new.db")])

    assert (code, verified) == (0, 0)
    assert capsys.readouterr().out


def test_command_injects_manifests(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: extra}, spec: {containers: [{name: c, image: i}]}}"
    )

    main(["replay", "what-if", str(log), "--inject", str(manifest), "--before", "5", "-o", "json"])

    found = json.loads(capsys.readouterr().out)
    assert found["figures"]["what_if"]["placed"] == found["figures"]["recorded"]["placed"] + 1


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--drop", "99"], "--drop 99: the log has the records 1 to 9"),
        (["--drop", "9"], "--drop 9: that record is a decision (Scheduled); only facts can be left out"),
        (["--drop", "node/ghost"], "--drop node/ghost: nothing is said of such an object in the log"),
        (["--drop", "ghost"], "must be the number of a record, or an object as KIND/NAME"),
        (["--gate", "NoSuchGate=true"], "NoSuchGate"),
        (["--config", "nowhere.yaml"], "cannot read nowhere.yaml"),
        (["--inject", "nowhere.yaml"], "cannot read nowhere.yaml"),
        (["--before", "0", "--inject", "nowhere.yaml"], "--before 0: the first record is 1"),
        (["--before", "10", "--inject", "nowhere.yaml"], "--before 10: the log has the records 1 to 9"),
    ],
)
def test_bad_input_is_one_clear_line(
    words: list[str], error: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["replay", "what-if", str(log), *words])

    said = capsys.readouterr().err
    assert code in (1, 2)
    assert error in said
    assert said.count("\n") == 1


def test_a_gate_is_switched_off_for_the_what_if_only(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["replay", "what-if", str(log), "--gate", "SchedulerQueueingHints=false", "-o", "json"])

    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["outcomes"]["differing"] == 0


def test_recorded_score_is_not_what_makes_a_decision_another_one(driver: Driver) -> None:
    driver.put(node("n1").build(), node("n2").build(), pod("p").build())
    driver.settle()
    other = resolve_configuration(
        {
            **HEADER,
            "profiles": [
                {"plugins": {"score": {"disabled": [{"name": "ImageLocality"}, {"name": "TaintToleration"}]}}}
            ],
        },
        Registry(),
    ).configuration

    made, found = asked(driver, configure=lambda _: other)

    scores = [
        body.score
        for records in (driver.records, made.driver.records)
        for body in map(decode_body, records)
        if isinstance(body, Scheduled)
    ]
    assert scores[0] != scores[1]
    assert found.outcomes["differing"] == 0


# --- the report -------------------------------------------------------------------------------------------------------


def test_pod_on_a_node_with_as_many_points_is_told_apart_from_one_that_fares_otherwise(
    driver: Driver,
) -> None:
    """The injected pod takes one of the equal nodes, so whoever would have gone there goes to another one; the last one loses its place."""
    driver.put(*(node(f"n{i}", cpu="4").build() for i in range(6)))
    driver.put(pod("first").build())
    driver.settle()
    arrival = len(driver.records) + 1
    for name in "abcdef":
        driver.now += NANOS // 100
        driver.put(pod(name, cpu="1").build())
        driver.settle()

    _, found = asked(driver, inject=[Injection(arrival, pod("new").build())])

    moved = [row for row in found.by_pod if row.differs and row.recorded is not None]
    assert moved
    assert found.pods["as_good"] == sum(row.as_good for row in moved) == found.outcomes["as_good"]
    assert found.pods["as_good"] + found.pods["another_node"] == len(moved)
    assert found.pods["as_good"] > 0
    assert not any(row.as_good for row in found.by_pod if not row.differs)


def test_another_strategy_does_not_make_another_node_equally_good(driver: Driver) -> None:
    driver.configure(packing("LeastAllocated"))
    driver.put(node("n1").build(), node("n2").build(), pod("a").build())
    driver.settle()
    driver.put(pod("b").build())
    driver.settle()

    _, found = asked(driver, configure=lambda _: packing("MostAllocated"))

    assert (found.pods["as_good"], found.pods["another_node"]) == (0, 1)


def test_time_that_only_the_recorded_scheduler_took_is_no_gain(driver: Driver) -> None:
    """Each pod was decided 20 ms after it came; the what-if decides at once."""
    driver.put(node("n1").build(), node("n2").build())
    for name in ("a", "b", "c"):
        driver.put(pod(name).build())
        driver.now += NANOS // 50
        driver.settle()

    _, found = asked(driver, drop=["Node//n2"])

    assert found.figures["recorded"].pending_seconds.p99 == 0.02
    assert found.figures["what_if"].pending_seconds == found.figures["recorded"].pending_seconds
    assert {row.what_if.pending_seconds for row in found.by_pod if row.what_if} == {0.02}


def test_wait_for_a_node_that_is_there_in_the_what_if_is_a_gain(driver: Driver) -> None:
    driver.put(pod("p").build())
    driver.settle()
    driver.advance(seconds=30)
    driver.put(node("late").build())
    driver.advance(seconds=30)

    _, found = asked(driver, inject=[Injection(3, node("early").build())])

    assert found.figures["recorded"].pending_seconds.p50 >= 30
    assert found.figures["what_if"].pending_seconds.p50 == 0


def test_placement_that_cannot_be_read_is_refused_with_its_record() -> None:
    records = list(random_history(3).records)
    place = next(i for i, record in enumerate(records) if record.kind == "Scheduled")
    records[place] = replace(records[place], body=b"")

    with pytest.raises(LogError, match=f"record {place + 1} .* has a body of another shape"):
        run_what_if(rechained(records), Registry())


def test_nodes_in_use_do_not_count_those_of_daemons_alone(driver: Driver) -> None:
    daemon = b.pod("d").owner("DaemonSet", "agents").on("n2").build()
    driver.put(*(node(f"n{i}").build() for i in range(3)), daemon, b.pod("p").on("n1").build())

    found = figures(driver.records)

    assert (found.nodes, found.nodes_in_use) == (3, 1)


# --- from where a compacted log begins ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_same_configuration_gives_no_difference_behind_a_compaction(seed: int) -> None:
    driver = random_history(200 + seed, steps=120)
    places = quiet_places(driver, 40)
    seq = places[len(places) // 2]
    beginning = behind(driver, seq)

    made = run_what_if(driver.records[seq:], Registry(), beginning=beginning)
    found = compare(driver.records[seq:], made, beginning.objects)

    assert found.outcomes["differing"] == 0
    assert found.figures["recorded"] == found.figures["what_if"]
    assert made.driver.records == driver.records[seq:]
    assert found.figures["recorded"].nodes == figures(driver.records).nodes
    assert found.figures["recorded"].cpu_imbalance == figures(driver.records).cpu_imbalance


def test_what_was_decided_before_the_beginning_stays(driver: Driver) -> None:
    driver.put(node("n1", cpu="2").build(), pod("old").build())
    driver.settle()
    seq = len(driver.records)
    beginning = behind(driver, seq)
    driver.put(pod("waits", cpu="3").build())
    driver.settle()
    driver.advance(seconds=20)
    records = driver.records[seq:]

    made = run_what_if(
        records, Registry(), inject=[Injection(seq + 2, node("new").build())], beginning=beginning
    )
    found = compare(records, made, beginning.objects)

    assert made.driver.placements() == {"default/old": "n1", "default/waits": "new"}
    assert found.pods == {
        "same": 1, "as_good": 0, "another_node": 0, "placed_only_recorded": 0, "placed_only_what_if": 1,
        "evicted_only_recorded": 0, "evicted_only_what_if": 0, "other": 0,
    }  # fmt: skip
    assert (found.figures["recorded"].nodes, found.figures["what_if"].nodes) == (1, 2)


def test_pod_that_only_the_what_if_evicts_is_not_counted_as_placed_elsewhere(driver: Driver) -> None:
    """And a pod that waits in both has waited for as long, though the what-if ends earlier."""
    driver.put(node("n1", cpu="2").build(), node("n2", cpu="2").build(), pod("low", cpu="2").build())
    driver.settle()
    driver.advance(seconds=5)
    driver.put(pod("high", cpu="2").priority(100).build(), pod("waits", cpu="9").build())
    driver.settle()
    driver.advance(seconds=400)

    _, found = asked(driver, drop=["Node//n2"])

    by_pod = {row.pod: (row.recorded, row.what_if) for row in found.by_pod}
    lost = by_pod["default/low"]
    assert lost[0] is not None
    assert lost[1] is not None
    assert (lost[0].evicted, lost[1].evicted) == (False, True)
    assert (found.pods["evicted_only_what_if"], found.pods["another_node"]) == (1, 0)
    assert (found.figures["recorded"].on_nodes, found.figures["what_if"].on_nodes) == (2, 1)
    one, other = by_pod["default/waits"]
    assert one is not None
    assert other is not None
    assert one.pending_seconds == other.pending_seconds


def test_object_from_before_the_beginning_is_taken_away_there(driver: Driver) -> None:
    """Also one of which more was told later, and which stayed when only that was left out."""
    driver.put(node("n1", cpu="1").build(), node("n2", cpu="4").build(), pod("old").build())
    driver.settle()
    seq = len(driver.records)
    beginning = behind(driver, seq)
    driver.put(node("n2", cpu="8").build(), pod("new", cpu="4").build())
    driver.settle()
    records = driver.records[seq:]

    made = run_what_if(records, Registry(), drop=["Node//n2"], beginning=beginning)
    found = compare(records, made, beginning.objects)

    assert driver.placements()["default/new"] == "n2"
    assert "default/new" not in made.driver.placements()
    assert "Node//n2" not in made.driver.core.objects
    assert found.figures["what_if"].nodes == 1
    assert made.divergence is not None
    assert (made.divergence.seq, made.divergence.key) == (seq + 1, "Node//n2")


def test_selector_that_nobody_can_read_counts_for_no_skew(driver: Driver) -> None:
    broken = LabelSelector(match_expressions=(LabelSelectorRequirement(key="app", operator="In"),))
    driver.put(node("n1").build(), pod("p").spread(b.ZONE, selector=broken).build())
    driver.settle()

    found = figures(driver.records)

    assert (found.placed, found.spread_skew_max) == (0, 0)


def test_compacted_log_is_asked_what_if(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.db"

    async def some_history() -> None:
        async with Scheduler.open(path) as scheduler:
            await scheduler.apply([node(f"n{i}").build() for i in range(3)])
            await scheduler.apply([pod(f"p{i}").build() for i in range(5)])
            await scheduler.settled()

    async def more() -> None:
        async with Scheduler.open(path) as scheduler:
            await scheduler.apply([pod(f"q{i}").build() for i in range(5)])
            await scheduler.settled()

    asyncio.run(some_history())
    assert main(["log", "compact", str(path)]) == 0
    asyncio.run(more())
    capsys.readouterr()

    assert main(["replay", "what-if", str(path), "-o", "json"]) == 0
    same = json.loads(capsys.readouterr().out)
    assert main(["replay", "what-if", str(path), "--drop", "node/n1"]) == 0
    assert "node n1: it was there already, and is taken away here" in capsys.readouterr().out
    assert main(["replay", "what-if", str(path), "--drop", "node/n9"]) == 2
    assert "nothing is said of such an object in the log since record" in capsys.readouterr().err
    assert main(["replay", "what-if", str(path), "--drop", "pod/q1"]) == 0
    assert main(["replay", "what-if", str(path), "--save", str(tmp_path / "w.db")]) == 0
    assert main(["replay", "verify", str(tmp_path / "w.db")]) == 0

    assert same["outcomes"]["differing"] == 0
    assert same["outcomes"]["recorded"] == 5
    assert same["figures"]["recorded"]["nodes_in_use"] == 3
    assert "5 outcomes, 5 identical" in capsys.readouterr().out

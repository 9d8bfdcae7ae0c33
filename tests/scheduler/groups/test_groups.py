"""Groups in the state machine: popped as one, placed as one, committed as one (KEP-5732).

Every story ends with the assertion that its log verifies, and that a scheduler that comes back from it is in the same state.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.groups import member, node
from tidelog.api.objects import Condition, Pod, PodGroup, pod_condition
from tidelog.configuration.configuration import resolve_configuration
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import AttemptAborted, PlacementChosen, Unschedulable, decode_body
from tidelog.framework.interface import Code, PermitResult, Plugin, Status
from tidelog.plugins.registry import Registry
from tidelog.queue.hints import HintMap
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.scheduler.core import Core
from tidelog.scheduler.state import encode_state, load_state
from tidelog.testing import builders as b

RACK = "topology.kubernetes.io/rack"
HEADER = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
GATES = {"TopologyAwareWorkloadScheduling": True, "WorkloadBasicPolicyDesiredCount": True}


def started(gates: dict[str, bool] | None = None, *, core: Core | None = None, **section: Any) -> Driver:
    driver = Driver(core=core)
    tidelog = {"featureGates": GATES if gates is None else gates, **section}
    driver.start(resolve_configuration({**HEADER, "tidelog": tidelog}, driver.registry).configuration)
    return driver


@pytest.fixture
def driver() -> Driver:
    return started()


def gang(name: str = "train", min_count: int | None = 4, level: str | None = RACK, **spec: Any) -> PodGroup:
    return b.pod_group(name, min_count=min_count, level=level, **spec)


def members(count: int, group: str = "train", cpu: str = "1") -> list[Pod]:
    return [member(f"{group}-{i}", group, cpu) for i in range(count)]


def nodes_of(driver: Driver, group: str = "train") -> list[str]:
    return sorted(n for pod, n in driver.placements().items() if pod.startswith(f"default/{group}-"))


def last(driver: Driver, kind: type[Any]) -> Any:
    bodies = [decode_body(record) for record in driver.records]
    return next(body for body in reversed(bodies) if isinstance(body, kind))


def assert_replays(driver: Driver) -> None:
    report = verify(driver.records, driver.registry)
    assert report.first_difference is None
    assert driver.core.digest() == report.digest
    assert driver.core.digest() == recover(driver.records, Registry()).digest()


def table_at(driver: Driver, seq: int) -> ObjectTable:
    table = ObjectTable()
    for record in driver.records[:seq]:
        table.apply(record)
    return table


# --- placing ------------------------------------------------------------------------------------------------------------


def test_gang_goes_whole_into_one_rack(driver: Driver) -> None:
    driver.put(node("a1", "a"), node("b1", "b", "2"), node("b2", "b", "2"), gang(), *members(4))

    driver.settle()

    racks = {name[0] for name in nodes_of(driver)}
    assert len(nodes_of(driver)) == 4
    assert len(racks) == 1
    assert_replays(driver)


def test_gang_waits_for_its_min_count(driver: Driver) -> None:
    driver.put(node("a1", "a"), gang(), *members(3))
    driver.settle()
    before = driver.placements()

    driver.put(member("train-3"))
    driver.settle()

    assert before == {}
    assert nodes_of(driver) == ["a1"] * 4
    assert_replays(driver)


def test_gang_takes_the_tightest_rack_that_takes_it_all(driver: Driver) -> None:
    driver.put(node("a1", "a", "8"), node("b1", "b", "5"), node("c1", "c", "3"), gang(), *members(4))

    driver.settle()

    chosen = last(driver, PlacementChosen)
    assert nodes_of(driver) == ["b1"] * 4
    assert chosen.placement == f"{RACK}=b"
    assert chosen.candidates == 2
    assert any("aggregate cpu" in line for line in chosen.explanation)
    assert_replays(driver)


@pytest.mark.parametrize("fast", [True, False])
def test_member_of_a_gang_counts_where_the_members_before_it_have_gone(fast: bool) -> None:
    driver = started(core=Core(Registry(), fast=fast))
    driver.put(node("a1", "a", "3"), node("a2", "a", "3"), node("z"), gang(min_count=3), *members(3, cpu="2"))

    driver.settle()

    assert driver.placements() == {}
    assert_replays(driver)


def test_gang_without_a_rack_that_fits_waits_whole_and_says_why(driver: Driver) -> None:
    driver.put(
        node("a1", "a", "3"), node("b1", "b", "2"), node("b2", "b", "1500m"), node("z"), gang(), *members(4)
    )

    driver.settle()

    rejected = last(driver, Unschedulable)
    condition = pod_condition(driver.pod("train-0"), "PodScheduled")
    assert driver.placements() == {}
    assert condition is not None
    assert condition.message == rejected.message
    assert rejected.message.startswith(
        "0/2 placements of podGroup default/train are feasible (level topology.kubernetes.io/rack): "
        "topology.kubernetes.io/rack=a: aggregate cpu: 3000 free, 4000 needed (millicores)"
    )
    assert "1 nodes without the label" in rejected.message
    assert len(rejected.explanation) == 2
    assert_replays(driver)


def test_rejected_gang_is_woken_by_the_node_that_helps(driver: Driver) -> None:
    driver.put(node("a1", "a", "3"), gang(), *members(4))
    driver.settle()

    driver.put(node("a2", "a", "2"))
    driver.advance(seconds=3)

    assert len(nodes_of(driver)) == 4
    assert_replays(driver)


def test_rejected_gang_sleeps_through_what_cannot_help(driver: Driver) -> None:
    driver.put(node("a1", "a", "3"), gang(), *members(4))
    driver.settle()
    attempts = driver.core.attempts

    driver.put(b.pod("other").request(cpu="100").scheduler("default-scheduler").build())
    driver.advance(seconds=200)

    assert driver.core.attempts == attempts + 1
    assert_replays(driver)


def test_repeated_rejection_refers_to_the_first(driver: Driver) -> None:
    driver.put(node("a1", "a", "3"), gang(), *members(4))
    driver.settle()

    driver.advance(seconds=700)

    bodies = [decode_body(r) for r in driver.records if r.kind == "Unschedulable"]
    first, *others = [body for body in bodies if isinstance(body, Unschedulable)]
    assert first.members
    assert others
    assert all(other.same_as and not other.members for other in others)
    assert_replays(driver)


def test_group_that_was_put_anew_without_its_condition_says_again_why_it_waits(driver: Driver) -> None:
    driver.put(node("a1", "a", "3"), gang(), *members(4))
    driver.settle()
    (said,) = conditions_of_group(driver)
    driver.put(gang())
    assert conditions_of_group(driver) == ()

    driver.advance(seconds=301)

    (again,) = conditions_of_group(driver)
    assert (again.reason, again.message) == (said.reason, said.message)
    bodies = [decode_body(r) for r in driver.records if r.kind == "Unschedulable"]
    assert [body.same_as for body in bodies if isinstance(body, Unschedulable)] == [0, 0]
    assert_replays(driver)


def conditions_of_group(driver: Driver) -> tuple[Condition, ...]:
    group = driver.core.objects["PodGroup/default/train"]
    assert isinstance(group, PodGroup)
    return group.status.conditions


def test_half_a_gang_is_never_seen_at_any_record(driver: Driver) -> None:
    driver.put(node("a1", "a"), gang(), *members(4))
    driver.settle()

    for seq in range(len(driver.records) + 1):
        table = table_at(driver, seq)
        pods = [table.get(f"Pod/default/train-{i}") for i in range(4)]
        bound = sum(isinstance(pod, Pod) and bool(pod.spec.node_name) for pod in pods)
        assert bound in (0, 4)
    assert driver.kinds()[-5:] == ["PlacementChosen", *["Scheduled"] * 4]


def test_group_attempt_is_one_transaction(driver: Driver) -> None:
    driver.put(node("a1", "a"), gang(), *members(4))

    decision = driver.attempt()

    assert decision is not None
    assert [type(body).__name__ for _, body in decision.outcomes] == ["PlacementChosen", *["Scheduled"] * 4]
    assert {body.attempt for _, body in decision.outcomes} == {1}  # type: ignore[union-attr]
    driver.commit()
    assert_replays(driver)


# --- what comes in between ------------------------------------------------------------------------------------------------


def test_conflict_with_one_member_aborts_the_whole_group(driver: Driver) -> None:
    driver.put(node("a1", "a", "2"), node("a2", "a", "2"), gang(), *members(4))
    driver.attempt()

    driver.put(b.node("a1").label({RACK: "a"}).capacity(cpu="2").cordon().build())
    driver.commit()
    seen = driver.placements()
    driver.put(node("a3", "a", "2"))
    driver.advance(seconds=5)

    assert seen == {}
    assert isinstance(last(driver, AttemptAborted), AttemptAborted)
    assert nodes_of(driver) == ["a2", "a2", "a3", "a3"]
    assert_replays(driver)


def test_member_deleted_in_flight_aborts_the_group(driver: Driver) -> None:
    driver.put(node("a1", "a"), gang(min_count=3), *members(4))
    driver.attempt()

    driver.delete(member("train-1"))
    driver.commit()
    seen = driver.placements()
    driver.settle()

    assert seen == {}
    assert nodes_of(driver) == ["a1"] * 3
    assert_replays(driver)


def test_placed_member_deleted_in_flight_aborts_those_who_made_up_the_quorum_with_it(driver: Driver) -> None:
    driver.put(node("a1", "a"), gang(min_count=2), *members(2))
    driver.settle()
    driver.put(member("train-2"))
    driver.attempt()

    driver.delete(member("train-0"))
    driver.delete(member("train-1"))
    driver.commit()

    assert last(driver, AttemptAborted) is not None
    assert driver.placements() == {}
    assert_replays(driver)


def test_group_deleted_in_flight_leaves_its_pods_waiting(driver: Driver) -> None:
    driver.put(node("a1", "a"), gang(), *members(4))
    driver.attempt()

    driver.delete(gang())
    driver.commit()
    driver.advance(seconds=20)
    seen = driver.placements()
    driver.put(gang())
    driver.settle()

    assert seen == {}
    assert len(nodes_of(driver)) == 4
    assert_replays(driver)


def test_next_attempt_sees_the_gang_that_is_not_committed_yet(driver: Driver) -> None:
    driver.put(
        node("a1", "a"), node("b1", "b"), gang("one"), gang("two"), *members(4, "one"), *members(4, "two")
    )

    driver.attempt()
    driver.attempt()
    driver.commit()

    assert len(set(nodes_of(driver, "one"))) == 1
    assert set(nodes_of(driver, "one")).isdisjoint(nodes_of(driver, "two"))
    assert_replays(driver)


def test_aborted_group_is_adopted_again_by_a_scheduler_that_comes_back(driver: Driver) -> None:
    driver.put(
        node("a1", "a"), node("b1", "b"), gang("one"), gang("two"), *members(4, "one"), *members(4, "two")
    )
    driver.attempt()
    driver.attempt()

    driver.delete(member("one-0", "one"))
    driver.commit()
    driver.put(member("one-0", "one"))
    driver.advance(seconds=5)

    assert len(driver.placements()) == 8
    assert_replays(driver)


# --- policies --------------------------------------------------------------------------------------------------------------


def test_placed_members_pin_the_domain_of_late_ones(driver: Driver) -> None:
    driver.put(node("a1", "a", "4"), node("b1", "b", "9"), gang(min_count=2), *members(2))
    driver.settle()

    driver.put(*(member(f"train-{i}") for i in range(2, 6)))
    driver.settle()
    driver.advance(seconds=60)

    assert set(nodes_of(driver)) == {"a1"}
    assert len(nodes_of(driver)) == 4
    assert_replays(driver)


def test_nodes_of_other_domains_are_not_said_to_lack_the_label(driver: Driver) -> None:
    driver.put(node("a1", "a", "3"), gang(min_count=3), *members(3))
    driver.settle()

    driver.put(node("b1", "b", "9"), node("bare", None, "9"), member("train-3"))
    driver.settle()

    assert f"{RACK}=b" not in last(driver, Unschedulable).message
    assert "; 1 nodes without the label." in last(driver, Unschedulable).message
    assert_replays(driver)


def test_basic_group_with_a_level_is_placed_whole_or_not_at_all(driver: Driver) -> None:
    driver.put(node("a1", "a", "3"), gang(min_count=None), *members(4))

    driver.advance(seconds=30)

    assert driver.placements() == {}
    assert_replays(driver)


def test_basic_group_takes_what_fits_if_partial_placement_is_always() -> None:
    driver = started(partialPlacement="always")
    driver.put(node("a1", "a", "3"), gang(min_count=None), *members(4))

    driver.advance(seconds=30)

    assert nodes_of(driver) == ["a1"] * 3
    assert_replays(driver)


def test_gang_is_placed_with_its_min_count_and_the_rest_waits(driver: Driver) -> None:
    driver.put(node("a1", "a", "3"), gang(min_count=2), *members(4))

    driver.advance(seconds=30)

    condition = pod_condition(driver.pod("train-3"), "PodScheduled")
    assert nodes_of(driver) == ["a1"] * 3
    assert condition is not None
    assert condition.reason == "Unschedulable"
    assert_replays(driver)


def test_full_placement_beats_a_tighter_one_that_is_only_sufficient(driver: Driver) -> None:
    driver.put(node("a1", "a", "3"), node("b1", "b", "40"), gang(min_count=2), *members(4))

    driver.settle()

    assert nodes_of(driver) == ["b1"] * 4
    assert_replays(driver)


def test_group_without_a_level_may_go_anywhere(driver: Driver) -> None:
    driver.put(node("a1", "a", "2"), node("b1", None, "2"), gang(level=None), *members(4))

    driver.settle()

    assert nodes_of(driver) == ["a1", "a1", "b1", "b1"]
    assert_replays(driver)


def test_gate_off_ignores_the_level() -> None:
    driver = started(gates={})
    driver.put(node("a1", "a", "2"), node("b1", "b", "2"), gang(), *members(4))

    driver.settle()

    assert nodes_of(driver) == ["a1", "a1", "b1", "b1"]
    assert_replays(driver)


def test_members_of_another_priority_are_an_error_of_the_group(driver: Driver) -> None:
    driver.put(node("a1", "a"), gang(priority=10), *members(4))

    driver.settle()

    condition = pod_condition(driver.pod("train-0"), "PodScheduled")
    assert condition is not None
    assert condition.reason == "SchedulerError"
    assert "got 0 and 10" in condition.message
    assert_replays(driver)


def test_group_that_was_deleted_and_comes_again_is_told_why_in_full() -> None:
    driver = started()
    driver.put(node("a1", "a", "1"), gang(), *members(4))
    driver.settle()
    first = last(driver, Unschedulable)
    assert not first.same_as

    driver.delete(gang())
    driver.put(gang())
    driver.settle()

    rejections = [r for r in driver.records if r.kind == "Unschedulable" and r.key.startswith("PodGroup/")]
    assert len(rejections) == 2
    assert not any(getattr(decode_body(r), "same_as", 0) for r in rejections)
    assert_replays(driver)


def test_two_replicas_may_land_in_different_racks(driver: Driver) -> None:
    work = b.workload("job", b.workload_group("workers", min_count=2, level=RACK))
    pods = [
        b.pod(f"job-{r}-{i}")
        .workload("job", "workers", r)
        .request(cpu="1")
        .scheduler("default-scheduler")
        .build()
        for r in ("r0", "r1")
        for i in range(2)
    ]
    driver.put(node("a1", "a", "2"), node("b1", "b", "2"), work, *pods)

    driver.settle()

    placed = driver.placements()
    first, second = ({placed[f"default/job-{r}-{i}"] for i in range(2)} for r in ("r0", "r1"))
    assert len(first) == len(second) == 1
    assert first != second
    assert_replays(driver)


def test_pods_wait_for_their_workload(driver: Driver) -> None:
    pods = [
        b.pod(f"j-{i}").workload("job", "w").request(cpu="1").scheduler("default-scheduler").build()
        for i in range(2)
    ]
    driver.put(node("a1", "a"), *pods)
    driver.advance(seconds=10)
    before = driver.placements()

    driver.put(b.workload("job", b.workload_group("w", min_count=2, level=RACK)))
    driver.settle()

    assert before == {}
    assert len(driver.placements()) == 2
    assert_replays(driver)


def test_desired_count_waits_a_moment_and_never_blocks(driver: Driver) -> None:
    work = b.workload("job", b.workload_group("w", desired_count=4, level=RACK))
    pods = [
        b.pod(f"j-{i}").workload("job", "w").request(cpu="1").scheduler("default-scheduler").build()
        for i in range(2)
    ]
    driver.put(node("a1", "a", "3"), node("b1", "b", "40"), work, *pods)
    driver.advance(seconds=4)
    early = driver.placements()

    driver.advance(seconds=2)

    assert early == {}
    # Rack a is tighter, but only b has room for the two that are still to come.
    assert set(driver.placements().values()) == {"b1"}
    assert_replays(driver)


def test_deadlock_of_gangs_that_would_block_each_other_is_resolved(driver: Driver) -> None:
    """A, B, C and D together want twice what there is; placed in part they would hold each other up for ever.

    The log says who went first, and why the others had to wait.
    """
    driver.put(*(node(f"{r}{i}", r, "4") for r in "ab" for i in range(2)))
    names = ("aa", "bb", "cc", "dd")
    for i in range(8):
        driver.put(*(member(f"{name}-{i}", name) for name in names))
    driver.put(*(gang(name, min_count=8) for name in names))
    for _ in range(4):
        driver.advance(seconds=20)
        done = {pod.split("/")[1].split("-")[0] for pod in driver.placements()}
        assert all(len(nodes_of(driver, name)) in (0, 8) for name in names)
        for name in sorted(done):
            driver.delete(gang(name))
            for i in range(8):
                driver.delete(member(f"{name}-{i}", name))

    told = [
        (record.key.rpartition("/")[2], body)
        for record in driver.records
        if isinstance(body := decode_body(record), PlacementChosen | Unschedulable)
    ]
    assert [(name, type(body).__name__) for name, body in told] == [
        ("aa", "PlacementChosen"),
        ("bb", "PlacementChosen"),
        ("cc", "Unschedulable"),
        ("dd", "Unschedulable"),
        ("cc", "PlacementChosen"),
        ("dd", "PlacementChosen"),
    ]
    for _, body in told[2:4]:
        assert body.explanation == tuple(
            f"{RACK}={rack}: aggregate cpu: 0 free, 8000 needed (millicores)" for rack in "ab"
        )
    assert_replays(driver)


# --- coming back -----------------------------------------------------------------------------------------------------------


def test_scheduler_loaded_from_a_snapshot_goes_on_like_the_one_that_was_not() -> None:
    """At every record at which nothing was in flight: gated, rejected, placed, with late members, with replicas."""
    driver = started()
    work = b.workload("job", b.workload_group("w", min_count=2, level=RACK))
    replicas = [b.pod(f"j-{i}").workload("job", "w", f"r{i % 2}").request(cpu="1") for i in range(4)]
    driver.put(node("a1", "a", "4"), node("b1", "b", "3"), gang(min_count=4), work, *members(3))
    blobs = [(encode_state(driver.core), len(driver.records))]
    for pod in (*members(6)[3:], *(pod.scheduler("default-scheduler").build() for pod in replicas)):
        driver.put(pod)
        blobs.append((encode_state(driver.core), len(driver.records)))
        driver.advance(seconds=7)
        blobs.append((encode_state(driver.core), len(driver.records)))

    for blob, seen in blobs:
        core = load_state(blob, driver.registry)
        assert core is not None
        assert core.seq == seen
        assert recover(driver.records[seen:], driver.registry, core=core).digest() == driver.core.digest()
        fresh = load_state(blob, driver.registry)
        assert verify(driver.records[seen:], driver.registry, core=fresh).first_difference is None


# --- what wakes a group ---------------------------------------------------------------------------------------------------------


def test_rejecting_a_large_gang_does_not_judge_every_member_by_every_other_ones_condition(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []
    judge = HintMap._judge

    def counting(self: HintMap, waiting: Any, *rest: Any) -> Any:
        judged.append(waiting.key)
        return judge(self, waiting, *rest)

    driver.put(node("a1", "a", "3"), gang(min_count=40), *members(40))
    driver.attempt()
    monkeypatch.setattr(HintMap, "_judge", counting)

    driver.commit()

    # Each member's condition is one or two events, for that member.
    assert max(judged.count(key) for key in set(judged)) <= 2
    assert len(set(judged)) == 40


def test_gang_that_needs_fewer_is_tried_again(driver: Driver) -> None:
    driver.put(node("a1", "a", "3"), gang(), *members(4))
    driver.settle()

    driver.put(gang(min_count=3))
    driver.advance(seconds=3)

    assert len(nodes_of(driver)) == 3
    assert_replays(driver)


def test_workload_whose_group_needs_fewer_is_tried_again(driver: Driver) -> None:
    pods = [b.pod(f"j-{i}").workload("job", "w").request(cpu="1") for i in range(4)]
    driver.put(node("a1", "a", "3"), b.workload("job", b.workload_group("w", min_count=4, level=RACK)))
    driver.put(*(pod.scheduler("default-scheduler").build() for pod in pods))
    driver.settle()
    before = driver.placements()

    driver.put(b.workload("job", b.workload_group("w", min_count=3, level=RACK)))
    driver.advance(seconds=3)

    assert before == {}
    assert len(driver.placements()) == 3
    assert_replays(driver)


def test_label_that_opens_a_rack_wakes_the_gang(driver: Driver) -> None:
    driver.put(node("a1", None, "4"), gang(), *members(4))
    driver.settle()
    condition = pod_condition(driver.pod("train-0"), "PodScheduled")

    driver.put(node("a1", "a", "4"))
    driver.advance(seconds=3)

    assert condition is not None
    assert condition.message == "no feasible placements found"
    assert len(nodes_of(driver)) == 4
    assert_replays(driver)


def test_label_that_is_none_of_its_levels_leaves_the_gang_alone(driver: Driver) -> None:
    """Ten heartbeats with another unrelated label were ten attempts."""
    driver.put(node("a1", "a", "2"), node("b1", "b", "2"), gang(), *members(4))
    driver.settle()
    attempts = driver.core.attempts

    for beat in range(10):
        driver.put(node("a1", "a", "2", seen=str(beat)))
        driver.advance(seconds=11)
    unrelated = driver.core.attempts
    driver.put(node("c1", None, "2"))
    driver.advance(seconds=11)
    without_a_rack = driver.core.attempts - unrelated
    driver.put(node("b1", "a", "2"))
    driver.advance(seconds=11)

    assert unrelated == attempts
    assert without_a_rack == 1  # NodeResourcesFit, which rejected members, hopes for the room.
    assert len(nodes_of(driver)) == 4
    assert_replays(driver)


def test_pod_that_leaves_wakes_the_gang(driver: Driver) -> None:
    other = b.pod("other").request(cpu="2").on("a1").build()
    driver.put(node("a1", "a", "4"), other, gang(), *members(4))
    driver.settle()

    driver.delete(other)
    driver.advance(seconds=3)

    assert len(nodes_of(driver)) == 4
    assert_replays(driver)


def test_one_more_member_is_tried_with_the_rejected_gang(driver: Driver) -> None:
    driver.put(node("a1", "a", "3"), gang(min_count=2), *members(2, cpu="2"))
    driver.settle()
    before = driver.placements()

    driver.put(member("train-9", cpu="1"))
    driver.advance(seconds=3)

    assert before == {}
    assert sorted(driver.placements()) == ["default/train-0", "default/train-9"]
    assert_replays(driver)


def test_gate_that_is_switched_on_makes_levels_count_from_then_on() -> None:
    driver = started(gates={})
    driver.put(node("a1", "a", "2"), node("b1", "b", "2"), gang(), *members(3))
    gated = driver.settle()

    tidelog = {"featureGates": GATES}
    driver.configure(resolve_configuration({**HEADER, "tidelog": tidelog}, driver.registry).configuration)
    driver.put(member("train-3"))
    driver.advance(seconds=30)

    assert gated == 0
    assert driver.placements() == {}
    assert "2 placements" in last(driver, Unschedulable).message
    assert_replays(driver)


# --- permits ----------------------------------------------------------------------------------------------------------------


class Hesitant(Plugin):
    """Lets one pod wait for something that never comes."""

    name = "Hesitant"

    def permit(self, state: Any, pod: Any, node: str) -> PermitResult:
        return PermitResult(Status(Code.WAIT), 30) if pod.name == "train-2" else PermitResult()

    def events_to_register(self) -> list[Any]:
        return []


def with_plugin(plugin: type[Plugin], **section: Any) -> Driver:
    registry = Registry()
    registry.register(plugin)
    driver = Driver(registry)
    profiles = [{"plugins": {"multiPoint": {"enabled": [{"name": plugin.name}]}}}]
    file = {**HEADER, "profiles": profiles, "tidelog": {"featureGates": GATES, **section}}
    driver.start(resolve_configuration(file, registry).configuration)
    return driver


def assert_replays_with(driver: Driver) -> None:
    report = verify(driver.records, driver.registry)
    assert report.first_difference is None
    assert driver.core.digest() == report.digest == recover(driver.records, driver.registry).digest()


def test_while_one_member_waits_for_its_permit_none_is_bound_and_the_timeout_takes_all_back() -> None:
    driver = with_plugin(Hesitant)
    driver.put(node("a1", "a"), gang(), *members(4))
    driver.settle()
    held = driver.core.cluster.cache.pod_count
    before = driver.placements()

    driver.advance(seconds=31)

    assert held == 4
    assert before == driver.placements() == {}
    assert driver.kinds().count("Unschedulable") == 4
    assert_replays_with(driver)


class Undecided(Hesitant):
    """Lets every pod wait."""

    name = "Undecided"

    def permit(self, state: Any, pod: Any, node: str) -> PermitResult:
        return PermitResult(Status(Code.WAIT), 30)


def test_gang_whose_members_all_wait_too_long_is_taken_back_once() -> None:
    driver = with_plugin(Undecided)
    driver.put(node("a1", "a"), gang(), *members(4))
    driver.settle()
    driver.now += 31 * 1_000_000_000

    first = driver.attempt()
    again = driver.attempt()
    driver.commit()

    assert first is not None
    assert {key for key, _ in first.outcomes} == {f"Pod/default/train-{i}" for i in range(4)}
    assert again is None
    assert driver.kinds().count("Unschedulable") == 4
    assert_replays_with(driver)


def test_member_deleted_while_its_gang_is_taken_back_aborts_that_for_all() -> None:
    driver = with_plugin(Hesitant)
    driver.put(node("a1", "a"), gang(), *members(4))
    driver.settle()
    driver.now += 31 * 1_000_000_000
    driver.attempt()

    driver.delete(member("train-1"))
    driver.commit()
    driver.advance(seconds=5)

    assert isinstance(last(driver, AttemptAborted), AttemptAborted)
    assert driver.core.cluster.cache.pod_count == 0
    assert driver.placements() == {}
    assert_replays_with(driver)


def test_member_that_made_up_the_quorum_with_those_taken_back_meanwhile_is_not_placed_without_them() -> None:
    driver = with_plugin(Undecided)
    driver.put(node("a1", "a"), gang(min_count=2), *members(2))
    driver.settle()
    driver.now += 31 * 1_000_000_000
    driver.attempt()
    driver.put(member("train-2"))

    late = driver.attempt()
    driver.commit()
    left = driver.core.cluster.cache.pod_count
    aborted = last(driver, AttemptAborted)
    driver.settle()

    assert late is not None
    assert late.key == "PodGroup/default/train"
    assert aborted.attempt == late.attempt
    assert aborted.reason == "default/train-0, which counts for the group's quorum, has lost its place"
    assert left == 0
    assert set(last(driver, PlacementChosen).assignment) == {f"Pod/default/train-{i}" for i in range(3)}
    assert_replays_with(driver)


def test_member_that_meets_the_quorum_alone_is_placed_though_others_are_taken_back_meanwhile() -> None:
    driver = with_plugin(Undecided)
    driver.put(node("a1", "a"), gang(min_count=1), *members(2))
    driver.settle()
    driver.now += 31 * 1_000_000_000
    driver.attempt()
    driver.put(member("train-2"))

    driver.attempt()
    driver.commit()

    assert "AttemptAborted" not in driver.kinds()
    assert last(driver, PlacementChosen).assignment == {"Pod/default/train-2": "a1"}
    assert_replays_with(driver)

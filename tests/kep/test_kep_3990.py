"""KEP-3990, DoNotSchedule to ScheduleAnyway fallback: each test holds one sentence of the proposal, quoted with its section."""

from __future__ import annotations

import pytest

from tests.worlds.spread import (
    NP,
    PREEMPTION,
    PROVISIONING,
    World,
    configuration,
    node,
    plain,
    two_zones,
    web,
)
from tidelog.api.admission import admit
from tidelog.api.cluster import Stamp
from tidelog.api.errors import InvalidObjects
from tidelog.api.features import FeatureGates
from tidelog.api.object_table import ObjectTable
from tidelog.api.objects import Pod
from tidelog.eventlog.records import Draft, Tick
from tidelog.testing.builders import HOSTNAME

NOW = Stamp(seq=7, at=1_800_000_000_000_000_000)
ON = FeatureGates(pod_topology_spread_fallback_mode=True)
MINUTE = 60


# --- User Stories -------------------------------------------------------------------------------------------------------


def test_story_1_instance_stockout() -> None:
    """Story 1: "if the cluster autoscaler fails to create new Node for Pods due to the instance stockout, you want to fallback"."""
    world = two_zones()
    world.put(web("web-1", PROVISIONING))
    world.advance(seconds=30 * MINUTE)
    assert world.node_of("web-1") == ""

    world.say("web-1", "False", "OutOfStock")

    assert world.node_of("web-1") == "a1"
    assert [(f.constraint, f.criteria) for f in world.fallback("web-1")] == [(0, (PROVISIONING,))]
    world.assert_replays()


def test_story_2_autoscaler_does_not_react_within_the_certain_time() -> None:
    """Story 2: "you want to fallback when the cluster autoscaler doesn't react within the certain time"."""
    world = two_zones(timeout="5m")
    world.put(web("web-1", PROVISIONING))

    world.advance(seconds=5 * MINUTE - 1)
    before = world.node_of("web-1")
    world.advance(seconds=31)

    assert (before, world.node_of("web-1")) == ("", "a1")
    assert world.ticks() == [5 * MINUTE]
    world.assert_replays()


def test_story_3_preemption_first_and_fallback_if_it_does_not_help() -> None:
    """Story 3: "you want to leverage preemption to achieve the best distribution […] But, you don't want to make Pods unschedulable
    by Pod Topology Spread if the preemption won't make Pods schedulable"."""
    balloon = plain("balloon", "b1", cpu="4", priority=-10)
    world = World(node("a"), node("b"), balloon, web("web-0").on("a1").build())

    world.put(web("web-1", PREEMPTION))
    world.finish("balloon")
    world.advance(seconds=30)
    world.put(plain("rock", cpu="3"))
    world.advance(seconds=30)
    world.put(web("web-2", PREEMPTION), web("web-3", PREEMPTION, cpu="1"))
    world.advance(seconds=30)

    assert world.evicted() == ["balloon"]
    assert world.attempts("web-1") == [("Unschedulable",), ("Scheduled",)]
    assert world.node_of("web-1") == "b1"
    placed = {pod: world.node_of(pod) for pod in ("web-2", "web-3")}
    assert all(placed.values())
    world.assert_replays()


# --- new API changes ----------------------------------------------------------------------------------------------------------


def refused(pod: Pod, gates: FeatureGates = ON) -> list[str]:
    with pytest.raises(InvalidObjects) as caught:
        admit(pod, None, ObjectTable(), gates, NOW)
    return [error.path for error in caught.value.errors]


SPREAD = "spec.topologySpreadConstraints[0].fallbackCriteria"


def test_only_valid_with_do_not_schedule() -> None:
    """ "It's valid to set only when WhenUnsatisfiable is DoNotSchedule.\""""
    assert refused(web("p", PROVISIONING, soft=True).build()) == [SPREAD]


def test_criteria_are_two_known_words_each_once() -> None:
    """ "FallbackCriterion represents when the scheduler falls back": NodeProvisioningFailed or PreemptionFailed."""
    assert refused(web("p", "StockOut").build()) == [f"{SPREAD}[0]"]
    assert refused(web("p", PREEMPTION, PREEMPTION).build()) == [f"{SPREAD}[1]"]


def test_without_criteria_the_scheduler_never_falls_back() -> None:
    """ "The default value is nil, meaning the scheduler never falls back.\""""
    world = two_zones(timeout="1m")
    world.put(web("web-1"))

    world.say("web-1", "False")
    world.advance(seconds=60 * MINUTE)

    assert world.node_of("web-1") == ""
    assert set(world.attempts("web-1")) == {("Unschedulable",)}
    world.assert_replays()


@pytest.mark.parametrize("provisioning_fails_first", [True, False])
def test_falls_back_when_all_criteria_are_satisfied(provisioning_fails_first: bool) -> None:
    """ "If multiple criteria are in this list, the scheduler falls back when ALL criteria in `FallbackCriterion` are satisfied.\""""
    world = two_zones()
    pod = web("web-1", PROVISIONING, PREEMPTION)
    if provisioning_fails_first:
        pod = pod.condition(NP, "False")
    world.put(pod)
    world.advance(seconds=12)
    after_one = world.attempts("web-1")

    if not provisioning_fails_first:
        assert after_one == [("Unschedulable",)]
        world.say("web-1", "False")

    assert world.attempts("web-1") == [("Unschedulable",), ("Scheduled", "zone")]
    world.assert_replays()


def test_each_constraint_falls_back_on_its_own() -> None:
    """ "`fallbackCriteria` is introduced to `PodSpec.TopologySpreadConstraint[*]`": another constraint stays as it is."""
    world = two_zones()
    world.put(web("web-1", PROVISIONING).spread(HOSTNAME, "app=web"))

    world.say("web-1", "False")

    assert world.attempts("web-1") == [("Unschedulable",), ("Unschedulable", "zone")]
    world.assert_replays()


# --- NodeProvisioningFailed -------------------------------------------------------------------------------------------------------


def test_scheduler_notices_false_and_schedules_while_falling_back() -> None:
    """ "The scheduler notices `NodeProvisioningInProgress: false` on Pod and schedules that Pod while falling back to
    `ScheduleAnyway`.\""""
    world = two_zones()
    world.put(web("web-1", PROVISIONING))
    world.advance(seconds=30)

    world.say("web-1", "False")

    assert world.attempts("web-1") == [("Unschedulable",), ("Scheduled", "zone")]
    assert world.attempt_seconds("web-1") == [0, 30]
    world.assert_replays()


def test_true_does_not_let_fall_back() -> None:
    """ "If it's true, new Node for the Pod was successfully created.\""""
    world = two_zones()
    world.put(web("web-1", PROVISIONING))

    world.say("web-1", "True")

    assert world.attempts("web-1") == [("Unschedulable",)]
    world.assert_replays()


def test_fallen_back_constraint_still_scores_as_schedule_anyway() -> None:
    """ "when to fallback from DoNotSchedule to ScheduleAnyway": the emptier zone is still the better one."""
    world = World(node("a"), node("b"), node("c"), plain("rock", "c1"))
    world.put(*(web(f"web-{i}").on("a1") for i in range(2)), web("web-2").on("b1"))
    world.put(web("web-3", PROVISIONING).condition(NP, "False"))

    assert world.node_of("web-3") == "b1"
    world.assert_replays()


# --- nodeProvisioningTimeout ------------------------------------------------------------------------------------------------------


def test_without_a_timeout_only_false_counts() -> None:
    """ "If it's empty, `NodeProvisioningFailed` […] is only handled when the cluster autoscaler puts `NodeProvisioningInProgress:
    false`.\""""
    world = two_zones()
    world.put(web("web-1", PROVISIONING))

    world.advance(seconds=24 * 60 * MINUTE)

    assert world.node_of("web-1") == ""
    assert all("zone" not in attempt for attempt in world.attempts("web-1"))
    world.assert_replays()


@pytest.mark.parametrize(("status", "node_name"), [("True", ""), ("Unknown", "a1")])
def test_any_value_of_the_condition_ends_the_timeout(status: str, node_name: str) -> None:
    """ "If the cluster autoscaler hasn't put any value on `NodeProvisioningInProgress` condition for this period of time"; Unknown is
    none."""
    world = two_zones(timeout="1m")
    world.put(web("web-1", PROVISIONING))

    world.say("web-1", status)
    world.advance(seconds=2 * MINUTE)

    assert node_name == world.node_of("web-1")
    world.assert_replays()


@pytest.mark.parametrize("offset", [0, 7, 29])
def test_retried_at_the_first_tick_after_the_timeout_and_never_before(offset: int) -> None:
    """ "we don't guarantee that `NodeProvisioningTimeout` means the pods are going to be retried exactly after this timeout period. The
    scheduler will surely retry those pods, but there might be some delay": a tick comes 30 s after the one before at the earliest."""
    world = two_zones(timeout="2m")
    world.put(web("web-1", PROVISIONING))
    world.advance(seconds=120 - offset)
    world.driver.append(Draft(body=Tick(), author="ticker"))
    world.advance(seconds=60)

    assert world.attempt_seconds("web-1") == [0, 120 if offset == 0 else 150 - offset]
    assert world.ticks()[-1] == world.attempt_seconds("web-1")[-1]
    world.assert_replays()


def test_timeout_counts_from_the_first_rejection() -> None:
    """ "trigger the fallback if a pending pod has been unschedulable for 5 min": retries for other reasons do not prolong it."""
    world = two_zones(timeout="5m")
    world.put(web("web-1", PROVISIONING))

    for i in range(4):
        world.advance(seconds=70)
        world.put(node("b", 10 + i, cpu="100m"))
    world.advance(seconds=60)

    assert len(world.attempts("web-1")) > 3
    assert world.attempt_seconds("web-1")[-1] == 5 * MINUTE
    assert world.node_of("web-1") == "a1"
    world.assert_replays()


def test_time_event_wakes_only_pods_whose_timeout_is_reached() -> None:
    """ "Queueing Hints with the `Resource: Type` event are triggered for pods rejected by those plugins, and the scheduling queue
    requeues/doesn't requeue pods based on QHints, as usual.\""""
    world = two_zones(timeout="2m")
    world.put(web("web-1", PROVISIONING).spread(HOSTNAME, "app=web"), web("hard"))
    world.advance(seconds=90)
    world.put(web("web-2", PROVISIONING))

    world.advance(seconds=60)

    assert world.attempt_seconds("web-1") == [0, 120]
    assert world.attempt_seconds("web-2") == [90]
    assert world.attempt_seconds("hard") == [0]
    world.assert_replays()


def test_no_tick_is_recorded_when_no_pod_waits_for_time() -> None:
    """ "`triggerTimeBasedQueueingHints` is triggered periodically, **but not very often**": and not at all for nobody."""
    world = two_zones(timeout="2m")
    world.put(web("hard"), web("other", PREEMPTION), web("answered", PROVISIONING).condition(NP, "True"))

    world.advance(seconds=250)

    assert world.ticks() == []
    world.assert_replays()


def test_no_tick_after_the_pod_has_been_answered() -> None:
    """As above: the autoscaler's answer ends the waiting for time."""
    world = two_zones(timeout="2m")
    world.put(web("web-1", PROVISIONING))

    world.say("web-1", "True")
    world.advance(seconds=250)

    assert world.ticks() == []
    world.assert_replays()


# --- PreemptionFailed ---------------------------------------------------------------------------------------------------------------


def test_first_attempt_is_hard_and_the_second_falls_back() -> None:
    """ "The scheduler notices that the preemption wasn't performed for Pod by `PodScheduled: false` and empty `NominatedNodeName` on the
    Pod. And, it schedules the Pod while falling back to `ScheduleAnyway`": woken by nothing but its own failure."""
    world = two_zones()

    world.put(web("web-1", PREEMPTION))
    world.advance(seconds=5)

    assert world.attempts("web-1") == [("Unschedulable",), ("Scheduled", "zone")]
    assert world.node_of("web-1") == "a1"
    world.assert_replays()


def test_second_failure_does_not_wake_the_pod_again() -> None:
    """As above; what fails in fallback changes nothing more about the pod."""
    world = World(
        node("a", cpu="1"),
        node("b", cpu="1"),
        plain("rock", "b1", cpu="1"),
        web("w", cpu="1").on("a1").build(),
    )
    world.put(web("web-1", PREEMPTION))

    world.advance(seconds=4 * MINUTE)

    assert world.attempts("web-1") == [("Unschedulable",)]
    world.assert_replays()


def test_pod_with_a_nomination_does_not_fall_back() -> None:
    """ "empty `NominatedNodename` (the past postfilter did nothing for this Pod)": a nominated pod waits for its place, undisturbed."""
    balloon = plain("balloon", "b1", priority=-10)
    world = World(node("a"), node("b"), balloon, web("web-0").on("a1").build())

    world.put(web("web-1", PREEMPTION))
    world.advance(seconds=60)
    waiting = world.attempts("web-1")
    world.finish("balloon")
    world.advance(seconds=12)

    assert waiting == [("Unschedulable",)]
    assert world.nominations("web-1") == [("b1", ())]
    assert world.node_of("web-1") == "b1"
    assert world.fallback("web-1") == ()
    world.assert_replays()


# --- Risks, gate, non-goals ---------------------------------------------------------------------------------------------------------


def _rejected_by_resources_only(**settings: object) -> World:
    world = World(node("a"), node("b"), plain("r1", "a1"), plain("r2", "b1"), **settings)
    world.put(web("web-1", PROVISIONING))
    world.say("web-1", "False")
    world.put(web("other").on("a1"))
    world.finish("r1")
    world.advance(seconds=45)
    return world


def test_pod_rejected_by_others_falls_back_too() -> None:
    """ "Even if the Pod is rejected by plugins other than Pod Topology Spread, when one of specified criteria is satisfied, the scheduler
    fallbacks": recorded as such."""
    world = _rejected_by_resources_only()

    assert world.node_of("web-1") == "a1"
    assert [f.rejected_before for f in world.fallback("web-1")] == [False]
    world.assert_replays()


def test_option_lets_only_pods_rejected_by_spread_fall_back() -> None:
    """ "so that Pod Topology Spread can decide to fall back only when the Pod was rejected by Pod Topology Spread.\""""
    world = _rejected_by_resources_only(fallbackOnlyIfRejectedBySpread=True)

    assert world.attempts("web-1")[1] == ("Unschedulable",)
    assert world.attempts("web-1")[-1] == ("Scheduled", "zone")
    assert [f.rejected_before for f in world.fallback("web-1")] == [True]
    world.assert_replays()


def test_gate_is_off_by_default_and_pods_are_refused() -> None:
    """ "kube-apiserver will reject Pod creation with `fallbackCriteria`"; "The feature gate is added, which is disabled by default.\""""
    assert refused(web("p", PREEMPTION).build(), FeatureGates()) == [SPREAD]


def test_gate_off_ignores_the_criteria_of_existing_pods() -> None:
    """ "Regarding existing Pods, we keep `fallbackCriteria`, but the scheduler ignores them.\""""
    world = two_zones(gate=False)
    world.put(web("web-1", PREEMPTION), web("web-2", PROVISIONING))

    world.say("web-2", "False")
    world.advance(seconds=250)

    assert world.attempts("web-1") == world.attempts("web-2") == [("Unschedulable",)]
    assert world.ticks() == []
    world.assert_replays()


def test_gate_turned_on_again_affects_pods_with_criteria() -> None:
    """ "What happens if we reenable the feature if it was previously rolled back? Scheduling of pods with `fallbackCriteria` is
    affected.\""""
    world = two_zones(gate=False)
    world.put(web("web-1", PREEMPTION))

    world.driver.configure(configuration())
    world.advance(seconds=12)

    assert world.attempts("web-1")[-1] == ("Scheduled", "zone")
    world.assert_replays()


def test_fallen_back_pods_are_not_rescheduled() -> None:
    """Non-goals: "reschedule Pods, which are scheduled by the fallback mode, for a better distribution after some time.\""""
    world = two_zones()
    world.put(web("web-1", PROVISIONING).condition(NP, "False"))

    world.put(node("b", 2))
    world.say("web-1", "True")
    world.advance(seconds=10 * MINUTE)

    assert world.node_of("web-1") == "a1"
    world.assert_replays()

"""Fallback in all its rows: the flip-flop trap, edge cases, what is told, bad values, and random stories."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from msgspec.structs import replace

from tests.kep.spread_judge import Judge
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
from tidelog.api.errors import InvalidObjects
from tidelog.api.features import FeatureGates
from tidelog.api.objects import Condition, Pod
from tidelog.api.pod_status import POD_SCHEDULED
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import resolve_configuration
from tidelog.eventlog.records import (
    PodConditionSet,
    Unschedulable,
    Waiting,
    decode_body,
)
from tidelog.framework.events import Hint, Tick
from tidelog.framework.interface import Code, CycleState, PermitResult, Plugin, Status
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.pod_topology_spread.fallback import FallbackRules
from tidelog.plugins.pod_topology_spread.plugin import PodTopologySpread, PodTopologySpreadArgs
from tidelog.plugins.registry import IN_TREE, Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import recover, verify
from tidelog.scheduler.fallback import withdraws_fallback
from tidelog.testing import builders as b
from tidelog.testing.builders import HOSTNAME, ZONE
from tidelog.testing.plugin_kit import Dice, WorldCluster, check_plugin
from tidelog.testing.plugin_kit import World as Kit
from tidelog.testing.plugin_worlds import Happening

LINE = "topologySpread[0] topology.kubernetes.io/zone"
WAITING = "hard, waiting for NodeProvisioningFailed (no NodeProvisioningInProgress condition"


# --- the flip-flop trap (a nomination made in fallback keeps it) --------------------------------------------------------


def trap(*criteria: str, victims: int = 1) -> World:
    """Preemption helps only in fallback: zone b is held by its equals, zone a has web-0, and low-priority pods in the way."""
    balloons = [plain(f"balloon-{i}", f"a{i}", cpu="3", priority=-10) for i in range(1, victims + 1)]
    nodes = [node("a", i) for i in range(1, victims + 1)]
    world = World(*nodes, node("b"), plain("rock", "b1"), *balloons, web("web-0").on("a1").build())
    world.put(web("web-1", *criteria, cpu="2"))
    return world


def test_victims_of_a_preemption_in_fallback_do_not_die_in_vain() -> None:
    world = trap(PREEMPTION, victims=3)

    world.advance(seconds=30)
    evicted = world.evicted()
    world.finish(evicted[0])
    world.advance(seconds=30)

    assert len(evicted) == 1
    assert world.nominations("web-1") == [(f"a{evicted[0][-1]}", (0,))]
    assert world.attempts("web-1") == [("Unschedulable",), ("Unschedulable", "zone"), ("Scheduled", "zone")]
    assert world.evicted() == evicted
    world.assert_replays()


def test_reason_names_the_nomination() -> None:
    world = trap(PREEMPTION)
    world.advance(seconds=30)
    world.finish("balloon-1")
    world.advance(seconds=30)

    assert [f.reason for f in world.fallback("web-1")] == ["PreemptionFailed: nominated to a1 in fallback"]


def test_mark_is_gone_when_somebody_changes_the_nomination() -> None:
    world = trap(PREEMPTION, victims=2)
    world.advance(seconds=30)
    nominated = world.driver.pod("web-1").status.nominated_node_name
    other = "a1" if nominated == "a2" else "a2"

    for name in (other, nominated):
        world.driver.put(_nominated(world.driver.pod("web-1"), name))
    tried = len(world.attempts("web-1"))
    world.finish(world.evicted()[0])
    world.advance(seconds=30)

    assert world.attempts("web-1")[tried:] == [("Unschedulable",), ("Scheduled", "zone")]
    world.assert_replays()


def test_mark_survives_a_change_of_the_configuration_and_a_snapshot_of_the_queue() -> None:
    world = trap(PREEMPTION)
    world.advance(seconds=30)

    world.driver.configure(configuration())
    world.advance(seconds=12)
    world.finish("balloon-1")
    world.advance(seconds=30)

    assert world.attempts("web-1")[-1] == ("Scheduled", "zone")
    assert world.evicted() == ["balloon-1"]
    world.assert_replays()


def test_gate_turned_off_with_marks_in_the_log_makes_the_constraint_hard() -> None:
    world = trap(PREEMPTION)
    world.advance(seconds=30)

    world.driver.configure(configuration(gate=False))
    world.advance(seconds=12)
    world.finish("balloon-1")
    world.advance(seconds=30)

    assert world.attempts("web-1")[-1] == ("Unschedulable",)
    assert world.node_of("web-1") == ""
    world.assert_replays()


def _nominated(pod: Pod, name: str) -> Pod:
    return replace(pod, status=replace(pod.status, nominated_node_name=name))


# --- waking: spread stands in the way of preemption only -------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", [PREEMPTION, PROVISIONING])
def test_pod_is_woken_where_spread_only_stood_in_the_way_of_preemption(criterion: str) -> None:
    """No node was rejected by spread itself: all were full. Without it among the rejectors nobody would ask its hints."""
    world = trap(criterion)
    if criterion == PROVISIONING:
        world.say("web-1", "False")

    world.advance(seconds=30)

    assert world.evicted() == ["balloon-1"]
    world.assert_replays()


def test_preemption_that_helps_leaves_the_pod_asleep_until_its_victim_is_gone() -> None:
    """The condition that the attempt sets does not look like a failed preemption: the nomination is known with it."""
    world = World(node("a"), node("b"), plain("balloon", "b1", priority=-10), web("web-0").on("a1").build())

    world.put(web("web-1", PREEMPTION))
    world.advance(seconds=240)

    assert world.attempts("web-1") == [("Unschedulable",)]
    world.assert_replays()


# --- edge cases -----------------------------------------------------------------------------------------------------------------


def test_both_criteria_wait_for_the_nomination_to_go() -> None:
    world = World(node("a"), node("b"), plain("balloon", "b1", priority=-10), web("web-0").on("a1").build())
    world.put(web("web-1", PROVISIONING, PREEMPTION).condition(NP, "False"))
    world.advance(seconds=30)
    assert world.attempts("web-1") == [("Unschedulable",)]

    world.driver.put(_nominated(world.driver.pod("web-1"), ""))
    world.advance(seconds=30)

    assert world.attempts("web-1")[-1] == ("Scheduled", "zone")
    world.assert_replays()


def test_pod_waits_for_time_only_while_nothing_else_is_missing() -> None:
    """The timeout may be over while the pod is nominated, which wakes nobody; when the nomination is gone a tick is due at once."""
    rules = FallbackRules(enabled=True, timeout=60 * NANOS, only_if_rejected=False)
    pod = web("p", PROVISIONING, PREEMPTION).condition(POD_SCHEDULED, "False", "Unschedulable").build()
    hard = list(enumerate(pod.spec.topology_spread_constraints))
    waiting = Remembered(pod)

    waiting.pod = _nominated(pod, "b1")
    while_nominated = rules.time_due(hard, waiting)
    waiting.pod = pod
    after = rules.time_due(hard, waiting)
    waiting.attempted_at = after or 0

    assert (while_nominated, after) == (None, 160 * NANOS)
    assert rules.time_due(hard, waiting) is None


@pytest.mark.parametrize(("at", "hint"), [(159, "QueueSkip"), (160, "Queue"), (1000, "Queue")])
def test_time_hint_says_queue_from_the_deadline_on(at: int, hint: str) -> None:
    rules = FallbackRules(enabled=True, timeout=60 * NANOS, only_if_rejected=False)
    waiting = Remembered(web("p", PROVISIONING).build())
    hard = list(enumerate(waiting.pod.spec.topology_spread_constraints))

    assert rules.time_passed(hard, waiting, Tick(at * NANOS)).value == hint


def test_time_hint_says_queue_only_for_what_the_last_attempt_did_not_know() -> None:
    rules = FallbackRules(enabled=True, timeout=60 * NANOS, only_if_rejected=False)
    waiting = Remembered(web("p", PROVISIONING).build(), attempted_at=160 * NANOS)
    hard = list(enumerate(waiting.pod.spec.topology_spread_constraints))

    assert rules.time_passed(hard, waiting, Tick(1000 * NANOS)) is Hint.SKIP


class Remembered:
    """A pod that topology spread rejected at second 100."""

    def __init__(self, pod: Pod, attempted_at: int = 100 * NANOS) -> None:
        self.pod = pod
        self.attempted_at = attempted_at
        self.first_rejected_at = {"PodTopologySpread": 100 * NANOS}
        self.blocked_by = ()
        self.fallback_node = ""
        self.fallback_constraints = ()


def test_true_and_then_no_node_stays_hard() -> None:
    """The hole of the proposal: the autoscaler has answered, so no timeout helps."""
    world = two_zones(timeout="1m")
    world.put(web("web-1", PROVISIONING))
    world.say("web-1", "True")

    world.advance(seconds=3600)

    assert world.node_of("web-1") == ""
    answered = "NodeProvisioningInProgress is True since 2023-11-14T22:13:20Z"
    assert world.explanation("web-1") == (f"{LINE}: hard, waiting for NodeProvisioningFailed ({answered})",)
    world.assert_replays()


def test_true_after_a_fallback_by_timeout_makes_the_constraint_hard_again() -> None:
    world = two_zones(timeout="1m")
    world.put(web("web-1", PROVISIONING).spread(HOSTNAME, "app=web"))
    world.advance(seconds=61)
    assert world.attempts("web-1")[-1] == ("Unschedulable", "zone")

    world.say("web-1", "True")
    world.put(node("b", 9, cpu="100m"))
    world.advance(seconds=30)

    assert world.attempts("web-1")[-1] == ("Unschedulable",)
    world.assert_replays()


def test_counts_of_the_constraint_that_stays_hard_are_over_nodes_with_its_key_only() -> None:
    """A [NodeProvisioningFailed] over racks falls back; then nodes without a rack count for B over zones too."""
    racked = b.node("a1").label({ZONE: "a", "rack": "r1"}).capacity(cpu="4").build()
    unracked = b.node("b1").label({ZONE: "b"}).capacity(cpu="4").build()
    world = World(racked, unracked, web("web-0").on("a1").build())
    pod = web("web-1", PROVISIONING, key="rack").spread(ZONE, "app=web", fallback=(PREEMPTION,))

    world.put(pod.condition(NP, "False").nominated("a1"))

    assert world.attempts("web-1") == [("Scheduled", "rack")]
    assert world.node_of("web-1") == "b1"
    world.assert_replays()


def test_pods_that_fall_back_together_are_still_spread_by_scores() -> None:
    world = World(node("a"), node("b"), node("c"), plain("rock", "c1"))
    world.put(*(web(f"web-{i}", PROVISIONING).condition(NP, "False") for i in range(6)))

    placed = sorted(world.node_of(f"web-{i}") for i in range(6))

    assert placed == ["a1", "a1", "a1", "b1", "b1", "b1"]
    world.assert_replays()


def test_min_domains_applies_while_hard_only() -> None:
    world = World(node("a"), node("b"))
    world.put(*(web(f"web-{i}", PROVISIONING, min_domains=3) for i in range(3)))
    assert [world.node_of(f"web-{i}") != "" for i in range(3)] == [True, True, False]

    world.say("web-2", "False")

    assert world.attempts("web-2") == [("Unschedulable",), ("Scheduled", "zone")]
    world.assert_replays()


@pytest.mark.parametrize("later", ["False", "True", "node"])
def test_pod_that_fell_back_by_timeout_stays_whatever_comes_then(later: str) -> None:
    world = two_zones(timeout="1m")
    world.put(web("web-1", PROVISIONING))
    world.advance(seconds=61)
    placed = (world.node_of("web-1"), world.attempts("web-1"))

    if later == "node":
        world.put(node("b", 2))
    else:
        world.say("web-1", later)
    world.advance(seconds=600)

    assert placed == ("a1", [("Unschedulable",), ("Scheduled", "zone")])
    assert (world.node_of("web-1"), world.attempts("web-1")) == placed
    assert world.ticks() == [60]
    world.assert_replays()


def test_once_gated_pod_does_not_fall_back_on_its_first_attempt() -> None:
    """The API server has set PodScheduled False, but nobody has tried preemption."""
    world = two_zones()
    gated = web("web-1", PREEMPTION).condition(POD_SCHEDULED, "False", "SchedulingGated")

    world.put(gated)
    world.advance(seconds=12)

    assert world.attempts("web-1") == [("Unschedulable",), ("Scheduled", "zone")]
    world.assert_replays()


def test_false_on_a_new_pod_lets_its_first_attempt_fall_back() -> None:
    world = two_zones()

    world.put(web("web-1", PROVISIONING).condition(NP, "False"))

    assert world.attempts("web-1") == [("Scheduled", "zone")]
    world.assert_replays()


def test_criteria_of_default_constraints_count_too() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "fallbackCriteria": [PREEMPTION],
    }
    world = World(
        node("a"),
        node("b"),
        plain("rock", "b1"),
        b.service("web", {"app": "web"}),
        b.pod("web-0").label(app="web").on("a1").build(),
        args={"defaultingType": "List", "defaultConstraints": [constraint]},
    )

    world.put(b.pod("web-1").label(app="web").scheduler("default-scheduler").request(cpu="1"))
    world.advance(seconds=12)

    assert world.attempts("web-1") == [("Unschedulable",), ("Scheduled", "zone")]
    assert [f.is_default for f in world.fallback("web-1")] == [True]
    world.assert_replays()


def test_fallback_works_in_upstream_mode() -> None:
    """There a change of conditions is no event of its own."""
    world = two_zones(compat="upstream", timeout="1m")
    world.put(web("web-1", PREEMPTION))
    world.advance(seconds=12)
    world.put(web("web-2", PROVISIONING).spread(ZONE, "app=web", soft=True))
    world.say("web-2", "False")

    assert world.attempts("web-1")[-1] == ("Scheduled", "zone")
    assert world.attempts("web-2")[-1] == ("Scheduled", "zone")
    world.assert_replays()


def test_condition_that_comes_while_the_attempt_is_being_committed_wakes_the_pod() -> None:
    world = two_zones()
    world.driver.put(web("web-1", PROVISIONING).build())
    world.driver.attempt()

    world.driver.set_condition(
        world.driver.pod("web-1"), PodConditionSet(condition=Condition(type=NP, status="False"))
    )
    world.driver.commit()
    world.advance(seconds=12)

    assert world.attempts("web-1") == [("Unschedulable",), ("Scheduled", "zone")]
    world.assert_replays()


@pytest.mark.parametrize("after", ["True", "Unknown"])
def test_answer_that_is_taken_back_before_the_commit_aborts_the_binding(after: str) -> None:
    """What the decision relies on must still be so when it is committed."""
    world = two_zones()
    world.driver.put(web("web-1", PROVISIONING).condition(NP, "False").build())
    world.driver.attempt()

    condition = Condition(type=NP, status=after)
    world.driver.set_condition(world.driver.pod("web-1"), PodConditionSet(condition=condition))
    world.driver.commit()
    world.advance(seconds=12)

    kinds = [record.kind for record in world.driver.records if record.key == "Pod/default/web-1"]
    assert kinds == ["ObjectPut", "PodConditionSet", "AttemptAborted", "Unschedulable"]
    world.assert_replays()


def test_answer_that_comes_while_a_rejection_is_being_committed_does_not_abort_it() -> None:
    """Nothing was found, so there is nothing to take away."""
    world = two_zones()
    world.driver.put(web("web-1", PROVISIONING).build())
    world.driver.attempt()

    condition = Condition(type=NP, status="True")
    world.driver.set_condition(world.driver.pod("web-1"), PodConditionSet(condition=condition))
    world.driver.commit()

    assert world.attempts("web-1") == [("Unschedulable",)]
    world.assert_replays()


@pytest.mark.parametrize(
    ("criteria", "before", "after", "withdraws"),
    [
        ((PROVISIONING,), "", "True", True),
        ((PROVISIONING,), "Unknown", "True", True),
        ((PROVISIONING,), "", "False", False),
        ((PROVISIONING,), "True", "False", False),
        ((PROVISIONING,), "False", "False", False),
        ((), "False", "True", False),
    ],
)
def test_only_what_may_make_a_constraint_hard_again_withdraws_a_fallback(
    criteria: tuple[str, ...], before: str, after: str, withdraws: bool
) -> None:
    pod = web("p", *criteria)
    old, new = (pod.condition(NP, status).build() if status else pod.build() for status in (before, after))

    assert withdraws_fallback(old, new) is withdraws


def test_nomination_by_somebody_else_withdraws_a_fallback_and_its_end_does_not() -> None:
    pod = web("p", PREEMPTION)
    free, nominated = pod.build(), pod.nominated("n1").build()

    assert (withdraws_fallback(free, nominated), withdraws_fallback(nominated, free)) == (True, False)


def test_node_without_the_key_of_what_has_fallen_back_wakes_the_pod() -> None:
    """In the list as it is written such a node does not count."""
    racked = b.node("a1").label({ZONE: "a", "rack": "r1"}).capacity(cpu="4").build()
    world = World(
        racked,
        b.node("b1").label({ZONE: "b", "rack": "r2"}).capacity(cpu="1").build(),
        plain("r", "b1", cpu="1"),
        web("w0").on("a1").build(),
    )
    world.put(web("web-1", PROVISIONING, key="rack").spread(ZONE, "app=web").condition(NP, "False"))
    assert world.attempts("web-1") == [("Unschedulable", "rack")]

    world.put(b.node("b2").label({ZONE: "b"}).capacity(cpu="4").build())
    world.advance(seconds=12)

    assert world.node_of("web-1") == "b2"
    world.assert_replays()


# --- permit ------------------------------------------------------------------------------------------------------------------------


class SlowPermit(Plugin):
    """Everything waits for ten seconds, and is then rejected."""

    name = "SlowPermit"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        return PermitResult(Status(Code.WAIT), 10)


def test_waiting_pod_and_its_rejection_tell_the_fallback_also_after_a_restart() -> None:
    registry = Registry((*IN_TREE, SlowPermit))
    file = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"permit": {"enabled": [{"name": "SlowPermit"}]}}}],
        "tidelog": {"featureGates": {"PodTopologySpreadFallbackMode": True}},
    }
    driver = Driver(registry)
    driver.start(resolve_configuration(file, registry).configuration)
    driver.put(node("a"), node("b"), plain("rock", "b1"), web("web-0").on("a1").build())
    driver.put(web("web-1", PROVISIONING).condition(NP, "False").build())
    driver.settle()

    driver.core = recover(driver.records, registry)
    driver.advance(seconds=10)

    told = [decode_body(r) for r in driver.records if r.kind in ("Waiting", "Unschedulable")]
    first, second = told[:2]
    assert isinstance(first, Waiting)
    assert isinstance(second, Unschedulable)
    assert [f.constraint for f in first.fallback] == [f.constraint for f in second.fallback] == [0]
    assert verify(driver.records, registry).first_difference is None


# --- gates and the timeout ------------------------------------------------------------------------------------------------------


@pytest.mark.unreplayed("the queue is changed behind the back of the log")
def test_gate_of_a_preemption_does_not_prolong_the_timeout() -> None:
    """Between its decision and its victims' being told a preemptor is gated; it waits for nodes all the same."""
    world = two_zones(timeout="5m")
    world.put(web("web-1", PROVISIONING))
    queue = world.driver.core.queue
    assert queue is not None
    entity = queue.get("default/web-1")
    assert entity is not None
    before = dict(entity.first_rejected_at)

    entity.close_gate("DefaultPreemption", ())
    queue.activate([entity.pod], world.driver.core.seq, world.driver.now)

    assert entity.first_rejected_at == before
    assert before


# --- what is told -----------------------------------------------------------------------------------------------------------------


def test_lines_tell_when_a_fallback_is_due() -> None:
    world = two_zones(timeout="5m")
    world.put(web("web-1", PROVISIONING, PREEMPTION))
    first = world.explanation("web-1")

    world.put(node("b", 2, cpu="100m"))
    world.advance(seconds=12)

    assert first == (
        f"{LINE}: {WAITING}; times out 5m0s after the first rejection), PreemptionFailed (not rejected yet)",
    )
    assert world.explanation("web-1") == (f"{LINE}: {WAITING}; times out at 2023-11-14T22:18:20Z)",)


def test_line_tells_since_when_a_constraint_has_fallen_back() -> None:
    world = two_zones()
    world.put(web("web-1", PREEMPTION).spread(HOSTNAME, "app=web"))
    world.advance(seconds=12)

    assert world.explanation("web-1") == (
        f"{LINE}: fell back to ScheduleAnyway (PreemptionFailed since 2023-11-14T22:13:20Z)",
    )


def test_upstream_message_stays_as_it_is() -> None:
    world = two_zones()
    world.put(web("web-1", PROVISIONING))

    rejected = [o for o in world.outcomes("web-1") if isinstance(o, Unschedulable)][-1]

    assert rejected.message.startswith(
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints. preemption: "
    )
    assert "NodeProvisioning" not in rejected.message


def test_repeated_rejection_in_fallback_refers_to_the_first() -> None:
    world = two_zones()
    world.put(web("web-1", PROVISIONING).spread(HOSTNAME, "app=web").condition(NP, "False"))
    for i in range(3):
        world.put(node("b", 2 + i, cpu="100m"))
        world.advance(seconds=12)

    bodies = [decode_body(r) for r in world.driver.records if r.kind == "Unschedulable"]

    assert len(bodies) == 4
    assert bodies[-1].same_as == 0  # type: ignore[union-attr]
    assert {tuple(f.constraint for f in o.fallback) for o in world.outcomes("web-1")} == {(0,)}  # type: ignore[union-attr]


# --- bad values ---------------------------------------------------------------------------------------------------------------------


def refused(args: dict[str, Any], *, gate: bool = True) -> list[tuple[str, str]]:
    with pytest.raises(InvalidObjects) as caught:
        configuration(gate=gate, args=args)
    return [(error.path, error.rule) for error in caught.value.errors]


ARGS = "profiles[0].pluginConfig[0].args"


@pytest.mark.parametrize("timeout", ["-5m", "0s", "0"])
def test_timeout_that_is_not_positive_is_refused(timeout: str) -> None:
    assert refused({"nodeProvisioningTimeout": timeout}) == [
        (f"{ARGS}.nodeProvisioningTimeout", "must be greater than 0")
    ]


@pytest.mark.parametrize("timeout", ["soon", "5", "5 m", ""])
def test_timeout_that_is_no_duration_is_refused(timeout: str) -> None:
    ((path, rule),) = refused({"nodeProvisioningTimeout": timeout})

    assert path == f"{ARGS}.nodeProvisioningTimeout"
    assert "duration" in rule


@pytest.mark.parametrize("timeout", [300, 5.5, True, ["5m"]])
def test_timeout_of_another_type_is_refused(timeout: Any) -> None:
    assert [path for path, _ in refused({"nodeProvisioningTimeout": timeout})] == [
        f"{ARGS}.nodeProvisioningTimeout"
    ]


def test_timeout_with_the_gate_off_is_refused() -> None:
    assert refused({"nodeProvisioningTimeout": "5m"}, gate=False) == [
        (
            f"{ARGS}.nodeProvisioningTimeout",
            "may not be set while the feature gate PodTopologySpreadFallbackMode is off",
        )
    ]


def test_criteria_of_default_constraints_are_held_to_the_rules_of_pods() -> None:
    soft = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "fallbackCriteria": [PREEMPTION],
    }
    hard = {
        "maxSkew": 1,
        "topologyKey": HOSTNAME,
        "whenUnsatisfiable": "DoNotSchedule",
        "fallbackCriteria": ["Stockout", PREEMPTION, PREEMPTION],
    }
    where = f"{ARGS}.defaultConstraints"

    found = refused({"defaultingType": "List", "defaultConstraints": [soft, hard]})

    assert [path for path, _ in found] == [
        f"{where}[0].fallbackCriteria",
        f"{where}[1].fallbackCriteria[0]",
        f"{where}[1].fallbackCriteria[2]",
    ]


# --- the plugin's promises ------------------------------------------------------------------------------------------------------------


class FallbackWorld(Kit):
    """Pods that may fall back, and may be told so."""

    def _spread(self, dice: Dice, made: b.PodBuilder, *, hard: bool) -> b.PodBuilder:
        made = super()._spread(dice, made, hard=hard)
        criteria = dice.pick([(), (PROVISIONING,), (PREEMPTION,), (PROVISIONING, PREEMPTION)])
        if not hard or not criteria:
            return made
        *others, last = made.spec.topology_spread_constraints
        changed = (*others, replace(last, fallback_criteria=criteria))
        return replace(made, spec=replace(made.spec, topology_spread_constraints=changed))

    def _with_pod_wishes(self, dice: Dice, made: b.PodBuilder) -> b.PodBuilder:
        """Two or three constraints, most of them hard."""
        for _ in range(2 + dice.below(2)):
            made = self._spread(dice, made, hard=dice.chance(80))
        return made

    def target(self, dice: Dice) -> Pod:
        return self._told(dice, super().target(dice))

    def step(self, dice: Dice, cluster: WorldCluster, target: Pod) -> Happening:
        if dice.chance(70):
            return super().step(dice, cluster, target)
        changed = self.changed_target(dice, target)
        return Happening(cluster, changed, target, changed, of_target=True)

    def changed_target(self, dice: Dice, old: Pod) -> Pod:
        return self._told(dice, old) if dice.chance(70) else super().changed_target(dice, old)

    def _told(self, dice: Dice, old: Pod) -> Pod:
        made = b.pod("x")
        if dice.chance(70):
            made = made.condition(NP, dice.pick(("True", "False", "Unknown")))
        if dice.chance(70):
            made = made.condition(POD_SCHEDULED, "False", dice.pick(("Unschedulable", "SchedulerError")))
        nominated = dice.pick(("", "", "n1"))
        return replace(
            old, status=replace(old.status, conditions=made.conditions, nominated_node_name=nominated)
        )


def test_plugin_keeps_its_promises_with_fallback() -> None:
    """Hints above all: whatever lets the pod pass where it was rejected is a reason to wake it."""
    features = FeatureGates(pod_topology_spread_fallback_mode=True)
    args = PodTopologySpreadArgs(node_provisioning_timeout="5m")

    met = check_plugin(PodTopologySpread, args, world=FallbackWorld(), features=features, trials=400)

    assert met["hints"] > 20


# --- random stories -----------------------------------------------------------------------------------------------------------------

STORIES = int(os.environ.get("TIDELOG_SPREAD_STORIES", "25"))
SECONDS = {"45s": 45, "2m": 120, "5m": 300, None: None}
"""nodeProvisioningTimeout, as it is configured and in seconds."""


class Story:
    """An hour or so of a cluster with an unreliable autoscaler."""

    ZONES = "abc"

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.timeout = self.random.choice(list(SECONDS))
        only = self.random.random() < 0.3
        self.world = World(timeout=self.timeout, fallbackOnlyIfRejectedBySpread=only)
        self.driver = self.world.driver
        self.driver.put(*(node(zone) for zone in self.ZONES))
        self.pods = 0

    def run(self, steps: int) -> None:
        happen = (
            self.add_pod,
            self.add_pod,
            self.say,
            self.say,
            self.wait,
            self.wait,
            self.node,
            self.remove,
            self.decide,
        )
        for _ in range(steps):
            self.random.choice(happen)()
            if self.random.random() < 0.5:
                self.driver.settle()
        self.driver.commit()
        self.driver.advance(seconds=700)

    def add_pod(self) -> None:
        self.pods += 1
        chosen = self.random.choice([(), (PROVISIONING,), (PREEMPTION,), (PROVISIONING, PREEMPTION)])
        pod = web(f"web-{self.pods}", *chosen, cpu=self.random.choice(["500m", "1", "2"]))
        if self.random.random() < 0.3:
            pod = pod.spread(
                HOSTNAME, "app=web", max_skew=2, fallback=self.random.choice([(), (PREEMPTION,)])
            )
        if self.random.random() < 0.2:
            pod = web(f"web-{self.pods}", *chosen, cpu="1", min_domains=self.random.choice([2, 3, 4]))
        self.driver.put(pod.priority(self.random.choice([0, 0, 10])).uid(f"u{self.pods}").build())

    def say(self) -> None:
        pending = [p for p in self._pods() if not p.spec.node_name]
        if pending:
            pod = self.random.choice(pending)
            condition = (
                b.pod("x").condition(NP, self.random.choice(["True", "False", "Unknown"])).conditions[0]
            )
            self.driver.set_condition(pod, PodConditionSet(condition=condition))

    def decide(self) -> None:
        """Attempts whose outcomes are not in the log yet: what happens next may take away what they rely on."""
        for _ in range(3):
            self.driver.attempt()

    def wait(self) -> None:
        self.driver.commit()
        self.driver.advance(seconds=self.random.choice([1, 5, 40, 130]))

    def node(self) -> None:
        zone, number = self.random.choice(self.ZONES), self.random.randrange(1, 4)
        self.driver.put(node(zone, number, self.random.choice(["1", "4"])))

    def remove(self) -> None:
        gone = [p for p in self._pods() if p.metadata.deletion_timestamp] or self._pods()
        if gone:
            self.driver.delete(self.random.choice(gone))

    def _pods(self) -> list[Pod]:
        return [obj for obj in self.driver.core.objects.values() if isinstance(obj, Pod)]


@pytest.mark.parametrize("seed", range(STORIES))
def test_random_story_keeps_constraints_or_proves_the_fallback(seed: int) -> None:
    story = Story(seed)
    story.run(120)
    judge = Judge(SECONDS[story.timeout])

    judge.read(story.driver.records)

    assert judge.hard + judge.fallen
    story.world.assert_replays()

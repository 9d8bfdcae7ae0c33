"""KEP-4664, PodDisruptionBudgets guaranteed in preemption: each test holds one sentence of the proposal, quoted with its section, or one
of the cases that the sentences leave open (told without a quotation)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.worlds.preemption import World, budget, configuration, pending, running
from tidelog.api.admission import admit
from tidelog.api.cluster import Stamp
from tidelog.api.errors import InvalidObjects
from tidelog.api.features import FeatureGates
from tidelog.api.object_table import ObjectTable
from tidelog.api.objects import Object, Pod, PriorityClass
from tidelog.eventlog.records import Evicted, Nominated, Unschedulable
from tidelog.framework.disruption_budgets import Allowances
from tidelog.framework.node_info import PodInfo
from tidelog.framework.preemption_plan import Refusal
from tidelog.plugins.registry import Registry
from tidelog.replay.verify import verify
from tidelog.scheduler.core import Core
from tidelog.testing.builders import PodBuilder, node, pod, priority_class

NOW = Stamp(seq=7, at=1_800_000_000_000_000_000)
ON = FeatureGates(disruption_policy_in_priority_class=True)
OFF = FeatureGates()
FIELD = "allowDisruptionByPriorityGreaterThanOrEqual"
REASON = (
    "preemption would violate PodDisruptionBudget protected by allowDisruptionByPriorityGreaterThanOrEqual"
)
DISRUPTIVE = 1000
"""The threshold: a preemptor of this priority may break the budgets."""


def cluster(*cpus: str, **settings: Any) -> World:
    """Nodes n1, n2, … with so many cores."""
    world = World(**settings)
    world.add(*(node(f"n{i}").capacity(cpu=cpu) for i, cpu in enumerate(cpus, 1)))
    return world


def web(number: int, on: str = "n1", cpu: str = "1", priority: int = 0) -> PodBuilder:
    """A replica of `web`, protected from preemptors below 1000."""
    made = running(f"web-{number}", on, cpu, priority, app="web")
    return made.guarded_below(DISRUPTIVE)


# --- user stories -------------------------------------------------------------------------------------------------------


def test_story_1_service_keeps_its_min_available_when_a_more_important_pod_comes() -> None:
    """Story 1: "User created PDB for this deployment and set `.spec.minAvailable` to 3. User wanted the PDB to be guaranteed even
    in case of scheduler preemption."
    """
    world = cluster("1", "1", "1")
    world.add(*(web(i, f"n{i}") for i in (1, 2, 3)), budget(allowed=0, min_available=3))

    world.add(pending("rollout", priority=500))
    world.advance(seconds=60)

    assert world.evicted() == []
    assert world.nominated("rollout") == ""
    assert world.message("rollout").endswith(
        f"preemption: 0/3 nodes are available: 3 {REASON}. preemption blocked: 3 pods on 3 nodes protected by "
        "PDB default/web (allowed 0, needs priority >= 1000, preemptor has 500)"
    )
    world.check()


def test_story_2_distributed_job_keeps_its_five_workers_and_gives_up_the_sixth() -> None:
    """Story 2: "a Tensorflow distributed job that requires a minimum of 5 workers running. User created PDB for the job and set
    `.spec.minAvailable` to 5."
    """
    world = cluster("3", "3")
    world.add(*(web(i, f"n{1 + i % 2}") for i in range(6)), budget(allowed=1, min_available=5))

    world.add(pending("first", priority=500), pending("second", priority=500))
    world.advance(seconds=5)
    gone = world.finish_terminating()
    world.advance(seconds=60)

    workers = [key for key in world.placements() if "web" in key]
    assert len(gone) == 1
    assert len(workers) == 5
    assert [n for n in ("first", "second") if world.pod(n).spec.node_name] == ["first"]
    assert "(allowed 0, needs priority >= 1000, preemptor has 500)" in world.message("second")
    world.check()


def test_protected_service_is_disrupted_by_who_may() -> None:
    world = cluster("1", "1", "1")
    world.add(*(web(i, f"n{i}") for i in (1, 2, 3)), budget(allowed=0, min_available=3))

    world.add(pending("rollout", priority=DISRUPTIVE))
    world.settle()

    assert len(world.evicted()) == 1
    assert list(world.methods().values()) == ["delete"]
    world.check()


# --- the field ----------------------------------------------------------------------------------------------------------


def admitted(obj: Object, *others: Object, old: Object | None = None, gates: FeatureGates = ON) -> Object:
    return admit(obj, old, ObjectTable(others), gates, NOW)[0]


@pytest.mark.parametrize(("threshold", "is_fine"), [(2_000_000_000, True), (2_000_000_001, False)])
def test_threshold_is_not_greater_than_the_critical_priorities(threshold: int, is_fine: bool) -> None:
    """Design Details: "the value of `AllowDisruptionByPriorityGreaterThanOrEqual` cannot be greater than the priority value of
    `system-cluster-critical` and `system-node-critical`."
    """
    made = priority_class("low", 100, guarded_below=threshold)

    if is_fine:
        assert admitted(made).metadata.name == "low"
        return
    with pytest.raises(InvalidObjects, match=FIELD):
        admitted(made)


def test_field_of_the_pod_is_populated_at_admission() -> None:
    """Design Details: "field in PodSpec will be populated during pod admission, similarly to how the PriorityClass Value is
    populated".
    """
    made = priority_class("low", 100, guarded_below=DISRUPTIVE)

    found = admitted(pod("web").priority_class("low").build(), made)

    assert isinstance(found, Pod)
    assert (found.spec.priority, _threshold(found)) == (100, DISRUPTIVE)


def test_users_cannot_set_the_field_of_the_pod() -> None:
    """Design Details: "it prevents users from setting this field. The admission controller populates this field from
    PriorityClassName."
    """
    made = priority_class("low", 100, guarded_below=DISRUPTIVE)

    with pytest.raises(InvalidObjects, match=FIELD):
        admitted(pod("web").priority_class("low").guarded_below(1).build(), made)


def test_changed_class_does_not_change_pods() -> None:
    """Design Details: "Mutating PriorityClass objects does not impact existing pods."""
    before = priority_class("low", 100, guarded_below=DISRUPTIVE)
    stored = admitted(pod("web").priority_class("low").build(), before)
    after = admitted(priority_class("low", 100, guarded_below=1), old=admitted(before))

    again = admitted(pod("web").priority_class("low").build(), after, old=stored)
    new = admitted(pod("web-2").priority_class("low").build(), after)

    assert isinstance(after, PriorityClass)
    assert (_threshold(again), _threshold(new)) == (DISRUPTIVE, 1)


def test_scheduler_does_not_look_at_the_class() -> None:
    """Design Details: "The scheduler does not need to be aware of PiorityClasses, as all relevant information is in the pod."""
    world = cluster("1")
    world.add(priority_class("low", 0), budget(allowed=0), web(1), pending("high", priority=500))

    world.settle()

    assert world.evicted() == []


def test_absent_threshold_means_that_any_more_important_pod_may() -> None:
    """Design Details: "A null value indicates that the PodDisruptionBudget is allow to be disrupted by any other pods with a higher
    priority."
    """
    world = cluster("1")
    world.add(budget(allowed=0), running("web", "n1", app="web"), pending("high", priority=1))

    world.settle()

    assert world.methods() == {"web": "delete"}
    world.check()


# --- the gate -----------------------------------------------------------------------------------------------------------


def test_gate_is_off_by_default_and_then_nothing_is_protected() -> None:
    """Upgrade / Downgrade: "kube-scheduler will ignore `AllowDisruptionByPriorityGreaterThanOrEqual` in `PriorityClass` and `Pod`
    even if it was set."
    """
    world = World(FeatureGates())
    world.add(node("n1").capacity(cpu="1"), budget(allowed=0), web(1), pending("high", priority=1))

    world.settle()

    assert not FeatureGates().disruption_policy_in_priority_class
    assert world.methods() == {"web-1": "delete"}
    world.check()


def test_field_is_dropped_from_what_is_created_while_the_gate_is_off() -> None:
    made = priority_class("low", 100, guarded_below=DISRUPTIVE)
    guarding = admitted(made)

    off = admitted(made, gates=OFF)
    found = admitted(pod("web").priority_class("low").build(), guarding, gates=OFF)

    assert isinstance(off, PriorityClass)
    assert off.allow_disruption_by_priority_greater_than_or_equal is None
    assert _threshold(found) is None


def test_stored_fields_stay_when_the_gate_is_switched_off() -> None:
    """Rollback: "PriorityClasses and Pods that used the feature will continue to have the field"."""
    made = priority_class("low", 100, guarded_below=DISRUPTIVE)
    stored = admitted(pod("web").priority_class("low").build(), made)

    again = admitted(pod("web").label(x="y").priority_class("low").build(), made, old=stored, gates=OFF)

    assert _threshold(again) == DISRUPTIVE


def test_scheduler_checks_the_field_again_when_the_gate_is_on_again() -> None:
    """Rollback: "The scheduler will check the value in the field [...] in `Pod` if preemption occurs during scheduling"."""
    world = World(FeatureGates())
    world.add(node("n1").capacity(cpu="1"), budget(allowed=0), web(1))

    world.configure(configuration(ON))
    world.add(pending("high", priority=500))
    world.settle()

    assert world.evicted() == []
    world.check()


def test_decision_keeps_to_the_mode_in_which_it_was_made() -> None:
    """The gate is flipped between decision and commit: the decision stands as it is."""
    world = World(FeatureGates())
    world.add(node("n1").capacity(cpu="1"), budget(allowed=0), web(1), pending("high", priority=500))
    world.attempt()

    world.configure(configuration(ON))
    world.commit()

    assert world.methods() == {"web-1": "delete"}
    world.check()


# --- preemptors at or above the threshold -------------------------------------------------------------------------------


@pytest.mark.parametrize(("priority", "expected"), [(999, []), (1000, ["web-1"]), (1001, ["web-1"])])
def test_threshold_itself_is_enough_to_disrupt(priority: int, expected: Sequence[str]) -> None:
    """Design Details: "if the priority of the preemptor is greater than or equal to the value [...] preemption will still happen
    [...] despite their PDBs being violated".
    """
    world = cluster("1")
    world.add(budget(allowed=0), web(1), pending("high", priority=priority))

    world.settle()

    assert world.evicted() == expected
    world.check()


def test_victims_that_break_no_budget_are_preferred() -> None:
    """Design Details: "the scheduler will try to select victims whose PDBs are not violated by preemption"."""
    world = cluster("1", "1")
    world.add(budget(allowed=0), web(1, "n1"), running("other", "n2", priority=5))

    world.add(pending("high", priority=DISRUPTIVE))
    world.settle()

    assert world.evicted() == ["other"]


def test_victim_whose_eviction_is_allowed_is_evicted() -> None:
    """Design Details: "lower priority pods will be preempted via the `/evictions` endpoint"."""
    world = cluster("1")
    world.add(budget(allowed=1), web(1), pending("high", priority=DISRUPTIVE))

    world.settle()

    assert world.methods() == {"web-1": "evict"}
    assert world.refused() == []
    assert world.budget().status.disruptions_allowed == 0
    assert list(world.budget().status.disrupted_pods) == ["web-1"]
    world.check()


def test_victim_whose_eviction_is_refused_is_deleted() -> None:
    """Design Details: "If the `/eviction` endpoint returns a response `429 Too Many Requests`, the scheduler will fallback to deletion
    as an alternative."
    """
    world = cluster("1")
    world.add(budget(allowed=0), web(1), pending("high", priority=DISRUPTIVE))

    world.settle()

    assert world.methods() == {"web-1": "delete"}
    assert world.refused() == ["eviction of default/web-1 refused by PDB default/web (429); deleting it"]
    world.check()


# --- preemptors below the threshold -------------------------------------------------------------------------------------


def test_victim_whose_budget_would_be_violated_is_no_candidate() -> None:
    """Design Details: "if violate the victims' PDBs, this victim will not be selected as candidates."""
    world = cluster("1", "1")
    world.add(budget(allowed=0), web(1, "n1"), running("other", "n2", priority=400))

    world.add(pending("high", priority=500))
    world.settle()

    assert world.evicted() == ["other"]
    world.check()


def test_victim_whose_budget_is_not_violated_is_evicted() -> None:
    """Design Details: "if not violate the victims' PDBs, scheduler will preempt this pod via the `/evictions` endpoint."""
    world = cluster("1")
    world.add(budget(allowed=1), web(1), pending("high", priority=500))

    world.settle()

    assert world.methods() == {"web-1": "evict"}
    assert world.bodies(Evicted)[0][1].budgets == ("PodDisruptionBudget/default/web",)
    world.check()


class Refuses:
    """An eviction endpoint that refuses some pods, whatever the budgets say; grants the others as the budgets allow."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def evict(self, pods: Sequence[PodInfo], allowances: Allowances) -> Refusal | None:
        for asked in pods:
            if asked.name in self._names:
                return Refusal(asked, "PodDisruptionBudget/default/web")
        return allowances.spend(pods)


def refusing(*names: str, nodes: int = 3) -> World:
    """One protected pod on each node, and an endpoint that refuses these."""
    world = cluster(*["1"] * nodes)
    world.core.evictions.port = Refuses(*names)
    world.add(budget(allowed=nodes), *(web(i, f"n{i}", priority=i) for i in range(1, nodes + 1)))
    return world


def check_refusing(world: World, *names: str) -> None:
    """As `World.check`, with the same endpoint on the other side."""
    core = Core(Registry())
    core.evictions.port = Refuses(*names)
    assert verify(world.records, Registry(), core=core).first_difference is None


@pytest.mark.unreplayed("the test answers the evictions")
def test_refused_eviction_leads_to_the_next_candidate() -> None:
    """Design Details: "If it responses `429 Too Many Requests`, the scheduler will output an error log and choose another victim among
    the candidate victims to preempt until it succeeds".
    """
    world = refusing("web-1", "web-2")

    world.add(pending("high", priority=500))
    world.settle()

    assert world.evicted() == ["web-3"]
    assert world.nominated("high") == "n3"
    assert world.refused() == [
        "eviction of default/web-1 refused by PDB default/web (429); trying next candidate 2 of 3",
        "eviction of default/web-2 refused by PDB default/web (429); trying next candidate 3 of 3",
    ]
    check_refusing(world, "web-1", "web-2")


@pytest.mark.unreplayed("the test answers the evictions")
def test_preemption_fails_when_no_candidate_is_left() -> None:
    """Design Details: "until it succeeds or there are no more candidates."""
    world = refusing("web-1", "web-2", nodes=2)

    world.add(pending("high", priority=500))
    world.settle()

    assert world.evicted() == []
    assert world.nominated("high") == ""
    assert world.message("high").endswith(
        "eviction of default/web-2 refused by PDB default/web (429); no candidate is left"
    )
    (_, body), *_ = world.bodies(Unschedulable)
    assert body.blocked_by == ("PodDisruptionBudget/default/web",)
    check_refusing(world, "web-1", "web-2")


@pytest.mark.unreplayed("the test answers the evictions")
def test_pod_whose_evictions_were_refused_waits_for_every_budget_in_its_way() -> None:
    world = refusing("web-1", nodes=1)
    world.add(node("n2").capacity(cpu="1"), budget("db", allowed=0, selector="app=db"))
    world.add(running("db", "n2", app="db").guarded_below(1000))

    world.add(pending("high", priority=500))
    world.settle()

    (_, body), *_ = world.bodies(Unschedulable)
    assert body.blocked_by == ("PodDisruptionBudget/default/db", "PodDisruptionBudget/default/web")
    check_refusing(world, "web-1")


@pytest.mark.unreplayed("the test answers the evictions")
def test_nomination_is_taken_back_when_no_candidate_is_left() -> None:
    world = refusing("web-2", nodes=2)
    world.add(pending("high", priority=500))
    world.settle()
    assert world.nominated("high") == "n1"

    # Its node is lost, and with it what it was promised.
    world.delete(node("n1").capacity(cpu="1").build())
    world.advance(seconds=700)

    assert world.nominated("high") == ""
    check_refusing(world, "web-2")


@pytest.mark.unreplayed("the test answers the evictions")
def test_refusal_of_one_protected_victim_spares_the_others_of_the_node() -> None:
    world = cluster("2")
    world.core.evictions.port = Refuses("web-2")
    world.add(budget(allowed=2), web(1), web(2), pending("high", cpu="2", priority=500))

    world.settle()

    assert world.evicted() == []
    assert world.budget().status.disruptions_allowed == 2
    check_refusing(world, "web-2")


# --- preemptionPolicy -----------------------------------------------------------------------------------------------------


def test_threshold_takes_priority_over_preemption_policy() -> None:
    """PreemptionPolicy vs …: "the `AllowDisruptionByPriorityGreaterThanOrEqual` takes priority over the `PreemptionPolicy`."""
    world = cluster("1")
    high = pending("high", priority=500)
    world.add(
        budget(allowed=0),
        web(1),
        replace(high, spec=replace(high.spec, preemption_policy="PreemptLowerPriority")),
    )

    world.settle()

    assert world.evicted() == []


def test_preemptor_that_never_preempts_does_not_preempt_whatever_the_thresholds() -> None:
    world = cluster("1")
    world.add(budget(allowed=1), web(1), pending("high", priority=DISRUPTIVE).never_preempts())

    world.settle()

    assert world.evicted() == []
    assert "not eligible due to preemptionPolicy=Never." in world.message("high")


def test_threshold_allows_nothing_that_priorities_forbid() -> None:
    world = cluster("1")
    world.add(budget(allowed=1), running("web", "n1", priority=600, app="web").guarded_below(100))

    world.add(pending("high", priority=500))
    world.settle()

    assert world.evicted() == []


# --- several victims, several budgets -----------------------------------------------------------------------------------


def test_only_the_unprotected_pod_of_a_node_is_taken_although_it_is_more_important() -> None:
    world = cluster("2")
    world.add(budget(allowed=0), web(1, priority=1), running("other", "n1", priority=400))

    world.add(pending("high", priority=500))
    world.settle()

    assert world.evicted() == ["other"]


def test_node_is_out_when_two_protected_victims_are_needed_and_one_is_allowed() -> None:
    world = cluster("2")
    world.add(budget(allowed=1), web(1), web(2), pending("high", cpu="2", priority=500))

    world.settle()

    assert world.evicted() == []
    assert f"1 {REASON}" in world.message("high")
    assert "2 pods on 1 node protected by PDB default/web (allowed 1" in world.message("high")
    world.check()


def test_less_important_of_two_protected_victims_is_taken_when_either_would_do() -> None:
    world = cluster("2")
    world.add(budget(allowed=1), web(1, priority=7), web(2, priority=3), pending("high", priority=500))

    world.settle()

    assert world.evicted() == ["web-2"]
    world.check()


def test_protected_victim_is_paid_for_before_an_unprotected_one_of_the_same_budget() -> None:
    world = cluster("2")
    unprotected = running("free", "n1", priority=400, app="web")
    world.add(budget(allowed=1), web(1), unprotected, pending("high", cpu="2", priority=500))

    world.settle()

    assert world.evicted() == ["web-1", "free"]
    assert world.methods() == {"web-1": "evict", "free": "delete"}
    assert world.refused() == ["eviction of default/free refused by PDB default/web (429); deleting it"]
    (_, nominated), *_ = world.bodies(Nominated)
    assert nominated.violations == 1
    world.check()


def test_pod_under_two_budgets_needs_both_and_charges_both() -> None:
    world = cluster("1", "1")
    world.add(
        budget("web", allowed=1),
        budget("all", allowed=0, selector="tier"),
        running("both", "n1", app="web", tier="x").guarded_below(DISRUPTIVE),
        web(2, "n2", priority=400),
    )

    world.add(pending("first", priority=500))
    world.settle()
    world.put(budget("all", allowed=1, selector="tier"), budget("web", allowed=1))
    world.finish("web-2")
    world.advance(seconds=5)
    world.add(pending("second", priority=500))
    world.settle()

    assert world.evicted() == ["web-2", "both"]
    assert [world.budget(n).status.disruptions_allowed for n in ("web", "all")] == [0, 0]
    world.check()


# --- who costs nothing --------------------------------------------------------------------------------------------------


def test_pod_that_has_been_paid_for_may_be_taken() -> None:
    world = cluster("1")
    world.add(budget(allowed=0, disrupted_pods={"web-1": "2023-11-14T22:13:00Z"}), web(1))

    world.add(pending("high", priority=500))
    world.settle()

    assert world.evicted() == ["web-1"]
    world.check()


def test_later_pod_of_the_same_name_has_not_been_paid_for() -> None:
    world = cluster("1")
    paid = budget(allowed=0, disrupted_pods={"web-1": "2023-11-14T22:13:00Z"})
    world.add(paid, web(1).created("2023-11-14T22:13:10Z"), pending("high", priority=500))

    world.settle()

    assert world.evicted() == []


def test_protected_pod_that_terminates_already_is_waited_for_without_a_call() -> None:
    world = cluster("1")
    world.add(budget(allowed=0), web(1).terminating(), pending("high", priority=500))

    world.settle()

    assert world.evicted() == []
    assert world.nominated("high") == "n1"
    world.finish("web-1")
    world.advance(seconds=5)
    assert world.placements() == {"default/high": "n1"}
    world.check()


def not_started(phase: str, **settings: Any) -> World:
    """A protected pod in this phase, not Ready, whose budget allows nothing though the others are enough."""
    world = cluster("1", **settings)
    made = web(1).condition("Ready", "False").build()
    enough = budget(allowed=0, current_healthy=3, desired_healthy=3)
    world.add(enough, replace(made, status=replace(made.status, phase=phase)))
    world.add(pending("high", priority=500))
    world.settle()
    return world


def test_pod_that_has_failed_holds_no_room() -> None:
    world = not_started("Failed")

    assert world.evicted() == []
    assert REASON not in world.message("high")


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_pod_that_is_pending_or_starting_is_not_selected_either(phase: str) -> None:
    """Design Details: "if violate the victims' PDBs, this victim will not be selected as candidates." It says nothing of pods that are
    not Ready, which the eviction endpoint lets go for nothing.
    """
    world = not_started(phase)

    assert world.evicted() == []
    assert REASON in world.message("high")
    world.check()


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_switch_lets_pods_that_are_pending_or_starting_go_as_the_eviction_endpoint_does(phase: str) -> None:
    world = not_started(phase, guard_starting_pods=False)

    assert world.methods() == {"web-1": "evict"}
    world.check()


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_log_that_was_written_before_lets_them_go_as_it_did(phase: str) -> None:
    world = not_started(phase, behaviours=())

    assert world.methods() == {"web-1": "evict"}
    world.check()


def test_pending_pods_of_a_rollout_are_taken_as_far_as_their_budget_allows() -> None:
    world = cluster("3")
    pods = [web(i).condition("Ready", "False").build() for i in range(3)]
    world.add(budget(allowed=1), *(replace(p, status=replace(p.status, phase="Pending")) for p in pods))

    world.add(pending("first", priority=500), pending("second", priority=500))
    world.settle()

    assert len(world.evicted()) == 1
    assert world.budget().status.disruptions_allowed == 0
    world.check()


def test_unprotected_pod_that_is_starting_costs_nothing_as_ever() -> None:
    world = cluster("1")
    world.add(budget(allowed=0, current_healthy=3, desired_healthy=3), web(1).condition("Ready", "False"))

    world.add(pending("high", priority=DISRUPTIVE))
    world.settle()

    assert world.methods() == {"web-1": "evict"}


@pytest.mark.parametrize(
    ("policy", "healthy", "expected", "by_the_endpoint"),
    [
        ("IfHealthyBudget", 3, [], ["web-1"]),
        ("IfHealthyBudget", 2, [], []),
        ("AlwaysAllow", 2, ["web-1"], ["web-1"]),
        (None, 3, [], ["web-1"]),
    ],
)
def test_pod_that_is_not_ready_may_go_by_its_budgets_policy(
    policy: str | None, healthy: int, expected: Sequence[str], by_the_endpoint: Sequence[str]
) -> None:
    found = []
    for guard in (True, False):
        world = cluster("1", guard_starting_pods=guard)
        made = budget(allowed=0, current_healthy=healthy, desired_healthy=3)
        made = replace(made, spec=replace(made.spec, unhealthy_pod_eviction_policy=policy))
        world.add(made, web(1).condition("Ready", "False"), pending("high", priority=500))
        world.settle()
        world.check()
        found.append(world.evicted())

    assert found == [expected, by_the_endpoint]


def test_budget_whose_status_is_out_of_date_allows_nothing() -> None:
    world = cluster("1")
    made = budget(allowed=1, observed_generation=1)
    world.add(replace(made, metadata=replace(made.metadata, generation=2)), web(1))

    world.add(pending("high", priority=500))
    world.settle()

    assert world.evicted() == []
    assert "(allowed 0" in world.message("high")


def test_empty_selector_protects_every_pod_of_the_namespace() -> None:
    world = cluster("1")
    world.add(budget("everything", selector=""), running("bare", "n1").guarded_below(DISRUPTIVE))

    world.add(pending("high", priority=500))
    world.settle()

    assert world.evicted() == []


def test_promise_holds_in_the_mode_that_keeps_to_kube_schedulers_defects() -> None:
    """kube-scheduler overlooks a budget with an empty selector, and evictions that its status does not know of yet."""
    world = World(upstream=True)
    world.add(*(node(f"n{i}").capacity(cpu="1") for i in (1, 2)))
    world.add(budget(allowed=1, selector=""), web(1, "n1"), web(2, "n2"))
    world.add(pending("one", priority=500))
    world.attempt()
    world.add(pending("two", priority=500))
    world.attempt()

    world.commit()
    world.settle()

    assert len(world.evicted()) == 1
    assert "preemption blocked: 1 pod on 1 node protected by PDB default/web" in world.message("two")
    world.check()


def test_budget_of_another_namespace_protects_nobody() -> None:
    world = cluster("1")
    world.add(budget(namespace="elsewhere"), web(1), pending("high", priority=500))

    world.settle()

    assert world.evicted() == ["web-1"]


@pytest.mark.parametrize("priority", [2_000_000_000, 2_000_001_000])
def test_critical_pods_are_never_stopped(priority: int) -> None:
    """Design Details: "to prevent situations where core components or necessary add-ons cannot be scheduled due to the inability to
    violate PDBs".
    """
    world = cluster("1")
    world.add(budget(allowed=0), running("web", "n1", app="web").guarded_below(2_000_000_000))

    world.add(pending("critical", priority=priority))
    world.settle()

    assert world.methods() == {"web": "delete"}


# --- telling, and waking ------------------------------------------------------------------------------------------------


def test_message_tells_why_preemption_did_not_occur() -> None:
    """Risks and Mitigations: "additional logging or event descriptions to clearly inform the user of the reason why preemption did not
    occur."
    """
    world = cluster("1", "2", "1")
    world.add(
        budget("web", allowed=0),
        budget("db", allowed=0, selector="app=db"),
        web(1, "n1"),
        web(2, "n2"),
        running("db", "n2", app="db").guarded_below(2000),
        running("equal", "n3", priority=500),
    )

    world.add(pending("high", cpu="1", priority=500))
    world.settle()

    assert world.message("high") == (
        "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: "
        f"1 No preemption victims found for incoming pod, 2 {REASON}. preemption blocked: "
        "1 pod on 1 node protected by PDB default/db (allowed 0, needs priority >= 2000, preemptor has 500); "
        "2 pods on 2 nodes protected by PDB default/web (allowed 0, needs priority >= 1000, preemptor has 500)"
    )


def blocked() -> World:
    world = cluster("1")
    world.add(budget(allowed=0), budget("other", selector="app=other"), web(1))
    world.add(pending("high", priority=500))
    world.settle()
    assert world.evicted() == []
    return world


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.put(budget(allowed=1)),
        lambda w: w.delete(w.budget()),
        lambda w: w.put(budget(allowed=0, selector="app=web,canary")),
        lambda w: w.add(running("web-1", "n1", app="batch").guarded_below(DISRUPTIVE)),
    ],
    ids=["allows more", "is deleted", "selects others", "pod leaves it"],
)
def test_pod_that_a_budget_has_blocked_wakes_when_it_does_not_any_more(change: object) -> None:
    world = blocked()

    change(world)  # type: ignore[operator]
    world.advance(seconds=15)

    assert world.evicted() == ["web-1"]
    world.check()


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.put(budget(allowed=0, current_healthy=1)),
        lambda w: w.put(budget("other", allowed=5, selector="app=other")),
        lambda w: w.delete(w.budget("other")),
        lambda w: w.put(budget("third", selector="app=web")),
    ],
    ids=["only its health", "another allows more", "another is deleted", "one more appears"],
)
def test_pod_that_a_budget_has_blocked_sleeps_through_what_cannot_help(change: object) -> None:
    world = blocked()
    attempts = world.attempts_of("high")

    change(world)  # type: ignore[operator]
    world.advance(seconds=60)

    assert world.attempts_of("high") == attempts
    world.check()


def test_budget_that_opens_while_the_failing_attempt_is_being_committed_wakes_the_pod() -> None:
    world = cluster("1")
    world.add(budget(allowed=0), web(1), pending("high", priority=500))
    world.attempt()

    world.put(budget(allowed=1))
    world.commit()
    world.advance(seconds=15)

    assert world.evicted() == ["web-1"]
    world.check()


def _threshold(obj: Object) -> int | None:
    assert isinstance(obj, Pod)
    return obj.spec.allow_disruption_by_priority_greater_than_or_equal

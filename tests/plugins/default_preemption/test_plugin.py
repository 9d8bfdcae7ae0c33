"""DefaultPreemption as a plugin: who may preempt, how far it searches, what it says, and what wakes whom.

Its choices are held to kube-scheduler's by tests/conformance, its promises by tests/kep and tests/scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tidelog.api.features import FeatureGates
from tidelog.api.objects import Object, Pod, PodDisruptionBudget
from tidelog.configuration.configuration import default_configuration
from tidelog.configuration.profiles import build_profile
from tidelog.framework.diagnosis import FitError
from tidelog.framework.disruption_budgets import Allowances
from tidelog.framework.events import Action, ClusterEvent, Hint, Resource, matches
from tidelog.framework.framework import Framework
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import (
    Code,
    CycleState,
    PostFilterResult,
    Status,
    unresolvable,
    unschedulable,
)
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import PodInfo
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.default_preemption.dry_run import NO_VICTIMS
from tidelog.plugins.default_preemption.plugin import DefaultPreemption, DefaultPreemptionArgs
from tidelog.plugins.registry import Registry
from tidelog.scheduler.cache import Cache
from tidelog.scheduler.preemption import Evictions, Preemption
from tidelog.testing import builders as b

GUARDED = FeatureGates(disruption_policy_in_priority_class=True)


class Cluster:
    """The default profile on objects that do not change."""

    def __init__(self, *objects: Object, gates: FeatureGates | None = None, **args: int) -> None:
        cache, snapshot, self.listers = Cache(), Snapshot(), Listers()
        self.cache = cache
        for obj in objects:
            if isinstance(obj, Pod):
                cache.put_pod(PodInfo(obj))
            elif isinstance(obj, PodDisruptionBudget):
                self.listers.put(obj)
            else:
                cache.put_node(obj)  # type: ignore[arg-type]
        snapshot.refresh(cache)
        handle = FrameworkHandle(snapshot, self.listers, gates or FeatureGates())
        spec = default_configuration(Registry()).profiles[0]
        spec.args["DefaultPreemption"] |= args
        profile = build_profile(spec, Registry(), handle)
        self.framework = Framework(profile.name, profile.points, handle)
        self.port = handle.preemption = Preemption(self.framework, Evictions())
        self.plugin: Any = profile.plugins["DefaultPreemption"]

    def preempt(self, preemptor: b.PodBuilder, turn: int = 0) -> PostFilterResult:
        """What PostFilter says after the filters have rejected every node."""
        pod, state = PodInfo(preemptor.build()), CycleState(turn=turn)
        error = self.framework.find_feasible(state, pod)
        assert isinstance(error, FitError)
        return self.framework.run_post_filter(
            state, pod, error.diagnosis.statuses(self.framework.snapshot.nodes)
        )

    def search(self, preemptor: b.PodBuilder, turn: int = 0) -> Any:
        """The candidates that it finds."""
        pod, state = PodInfo(preemptor.build()), CycleState(turn=turn)
        error = self.framework.find_feasible(state, pod)
        assert isinstance(error, FitError)
        statuses = error.diagnosis.statuses(self.framework.snapshot.nodes)
        return self.plugin.search(self.port, Allowances(self.listers, self.port, 0), state, pod, statuses)


def node(name: str, cpu: str = "1") -> Object:
    return b.node(name).capacity(cpu=cpu).build()


def low(name: str, on: str, priority: int = 0, **labels: str) -> b.PodBuilder:
    return b.pod(name).label(labels).request(cpu="1").priority(priority).on(on).condition("Ready")


HIGH = b.pod("high").request(cpu="1").priority(10)


def full(count: int) -> list[Object]:
    return [o for i in range(count) for o in (node(f"n{i:04}"), low(f"p{i:04}", f"n{i:04}").build())]


# --- eligibility ----------------------------------------------------------------------------------------------------------


def test_pod_that_never_preempts_keeps_its_nomination() -> None:
    result = Cluster(*full(1)).preempt(HIGH.never_preempts())

    assert result.nominated_node is None
    assert result.status == Status(
        Code.UNSCHEDULABLE, ("preemption: not eligible due to preemptionPolicy=Never.",), "DefaultPreemption"
    )


def terminating(reason: str, status: str = "True") -> Pod:
    return low("going", "n1").condition("DisruptionTarget", status, reason).terminating().build()


@pytest.mark.parametrize(
    ("victim", "may"),
    [
        (terminating("PreemptionByScheduler"), False),
        (terminating("PreemptionByScheduler", "False"), True),
        (terminating("EvictionByEvictionAPI"), True),
        (low("going", "n1").terminating().build(), True),
        (low("stays", "n1").condition("DisruptionTarget", "True", "PreemptionByScheduler").build(), True),
    ],
)
def test_pod_waits_for_what_was_preempted_for_it_and_for_nothing_else(victim: Pod, may: bool) -> None:
    cluster, nominated = Cluster(node("n1"), victim), PodInfo(HIGH.nominated("n1").build())

    found = cluster.plugin.eligibility(cluster.port, nominated, {"n1": unschedulable("full")})

    assert (found is None) is may


def test_eviction_of_ours_counts_whatever_the_condition_says() -> None:
    """A real eviction endpoint writes a reason of its own over ours."""
    cluster = Cluster(node("n1"), terminating("EvictionByEvictionAPI"))
    cluster.port.is_evicted = lambda uid: uid == "default/going"  # type: ignore[method-assign]

    found = cluster.plugin.eligibility(
        cluster.port, PodInfo(HIGH.nominated("n1").build()), {"n1": unschedulable("full")}
    )

    assert found is not None


def test_nominated_node_of_no_use_any_more_sets_the_pod_free() -> None:
    cluster = Cluster(node("n1"), terminating("PreemptionByScheduler"))
    nominated = PodInfo(HIGH.nominated("n1").build())

    useless = cluster.plugin.eligibility(cluster.port, nominated, {"n1": unresolvable("tainted")})
    gone = cluster.plugin.eligibility(cluster.port, PodInfo(HIGH.nominated("n2").build()), {})

    assert (useless, gone) == (None, None)


# --- search ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "wanted"), [(5000, 500), (600, 100), (40, 40), (0, 0)])
def test_candidates_wanted_are_a_tenth_but_a_hundred_at_least(nodes: int, wanted: int) -> None:
    assert Cluster().plugin._candidates_wanted(nodes) == wanted


def test_search_stops_when_it_has_enough_and_begins_elsewhere_at_each_attempt() -> None:
    cluster = Cluster(*full(12), minCandidateNodesPercentage=0, minCandidateNodesAbsolute=3)

    searches = [cluster.search(HIGH, turn) for turn in range(40)]

    assert {len(found.candidates) for found in searches} == {3}
    assert {c.node for found in searches for c in found.candidates} == {f"n{i:04}" for i in range(12)}


def test_same_attempt_searches_the_same_nodes() -> None:
    first, second = (Cluster(*full(12), minCandidateNodesAbsolute=3).search(HIGH, 7) for _ in range(2))

    assert first.candidates[0].node == second.candidates[0].node
    assert [c.node for c in first.candidates] == [c.node for c in second.candidates]


def test_all_nodes_are_tried_while_every_candidate_breaks_a_budget() -> None:
    nodes = [node(f"n{i}") for i in range(8)]
    pods = [low(f"p{i}", f"n{i}", app="web").build() for i in range(8)]
    few = {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}

    found = Cluster(*nodes, *pods, b.pdb("web", "app=web", allowed=0), **few).search(HIGH)
    one = Cluster(*nodes, *pods[1:], low("p0", "n0").build(), b.pdb("web", "app=web"), **few).search(HIGH)

    assert (len(found.candidates), found.candidates[0].violations) == (1, 1)
    assert [c.node for c in one.candidates if not c.violations] == ["n0"]
    assert one.candidates[0].node == "n0"


def test_nodes_that_no_eviction_can_help_are_not_tried() -> None:
    tainted = b.node("n1").capacity(cpu="1").taint("k", "v", "NoSchedule").build()

    result = Cluster(tainted, low("p", "n1").build(), node("n2", "500m")).preempt(HIGH)

    assert result.status is not None
    assert result.nominated_node == ""
    assert result.status.message == (
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_node_without_anybody_less_important_does_not_help() -> None:
    result = Cluster(node("n1"), low("equal", "n1", 10).build()).preempt(HIGH)

    assert result.status is not None
    assert result.status.message == f"preemption: 0/1 nodes are available: 1 {NO_VICTIMS}."


def test_plan_tells_victims_and_spared_in_order_of_importance() -> None:
    pods = [low(f"p{i}", "n1", priority=i).build() for i in range(3)]

    plan = Cluster(node("n1", "3"), *pods).preempt(HIGH.request(cpu="2")).plan

    assert plan is not None
    assert [v.name for v in plan.victims] == ["p1", "p0"]
    assert [v.name for v in plan.spared] == ["p2"]
    assert [(e.pod.name, e.method) for e in plan.evictions] == [("p1", "delete"), ("p0", "delete")]


def test_error_of_a_filter_in_the_dry_run_is_an_error_of_the_attempt() -> None:
    cluster = Cluster(*full(1))

    def broken(state: Any, pod: PodInfo, node: Any, **_: bool) -> Status | None:
        return Status(Code.ERROR, ("broken",), "NodePorts") if not node.pods else unschedulable("full")

    cluster.port.run_filters = broken  # type: ignore[method-assign]

    result = cluster.preempt(HIGH)

    assert result.status is not None
    assert (result.status.code, result.nominated_node) == (Code.ERROR, None)
    assert "broken" in result.status.message


def test_success_without_victims_is_an_error_of_that_node() -> None:
    cluster = Cluster(*full(2))
    cluster.port.run_filters = lambda state, pod, node, **_: None  # type: ignore[method-assign]

    result = cluster.preempt(HIGH)

    assert result.status is not None
    assert "would have no victims" in result.status.message


def test_where_nothing_is_worth_a_try_the_answer_follows_the_number_of_nodes() -> None:
    tainted = [b.node(f"n{i}").taint("team", "x").build() for i in range(3)]
    cluster = Cluster(*tainted[:2])

    messages = [said(cluster)]
    cluster.cache.put_node(tainted[2])
    cluster.framework.snapshot.refresh(cluster.cache)
    messages += [said(cluster), said(cluster)]

    assert messages == [
        f"preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
        for nodes in (2, 3, 3)
    ]


def said(cluster: Cluster) -> str:
    status = cluster.preempt(HIGH).status
    assert status is not None
    return status.message


# --- hints ------------------------------------------------------------------------------------------------------------------


class Waiting:
    """A pod that the budget web has blocked."""

    def __init__(self, blocked_by: Sequence[str] = ("PodDisruptionBudget/default/web",)) -> None:
        self.pod = HIGH.build()
        self.attempted_at = 0
        self.first_rejected_at: dict[str, int] = {}
        self.blocked_by = tuple(blocked_by)


def verdict(
    resource: Resource, action: Action, old: Any, new: Any, waiting: Waiting | None = None
) -> Hint | None:
    """The hint's answer; None if the event is not registered."""
    plugin = DefaultPreemption(DefaultPreemptionArgs(), FrameworkHandle(Snapshot(), Listers(), GUARDED))
    event = ClusterEvent(resource, action)
    for registration in plugin.events_to_register():
        if matches(registration.event, event):
            assert registration.hint is not None
            return registration.hint(waiting or Waiting(), old, new)  # type: ignore[arg-type]
    return None


def budget(allowed: int = 0, selector: str = "app=web", **status: Any) -> PodDisruptionBudget:
    return b.pdb("web", selector, allowed=allowed, **status)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (budget(0), budget(1), Hint.QUEUE),
        (budget(1), budget(0), Hint.SKIP),
        (budget(0), budget(0, current_healthy=2), Hint.SKIP),
        (budget(0), budget(0, "app=db"), Hint.QUEUE),
        (
            budget(0, desired_healthy=3, current_healthy=2),
            budget(0, desired_healthy=3, current_healthy=3),
            Hint.QUEUE,
        ),
        (budget(1), budget(0, disrupted_pods={"web-1": "2026-01-01T00:00:00Z"}), Hint.SKIP),
        (budget(0), budget(0, disrupted_pods={"web-1": "2026-01-01T00:00:00Z"}), Hint.QUEUE),
    ],
)
def test_budget_that_forbids_less_wakes(
    old: PodDisruptionBudget, new: PodDisruptionBudget, expected: Hint
) -> None:
    assert verdict(Resource.POD_DISRUPTION_BUDGET, Action.UPDATE, old, new) is expected


def test_budget_that_is_observed_again_wakes() -> None:
    behind = msgspec.structs.replace(
        budget(1), metadata=msgspec.structs.replace(budget().metadata, generation=1)
    )
    caught_up = msgspec.structs.replace(behind, status=budget(1, observed_generation=1).status)

    assert verdict(Resource.POD_DISRUPTION_BUDGET, Action.UPDATE, behind, caught_up) is Hint.QUEUE


def test_budget_that_goes_wakes_whom_it_has_blocked() -> None:
    gone = (Resource.POD_DISRUPTION_BUDGET, Action.DELETE, budget(), None)

    assert verdict(*gone) is Hint.QUEUE
    assert verdict(*gone, Waiting(())) is Hint.SKIP


def test_budget_that_comes_helps_nobody() -> None:
    assert verdict(Resource.POD_DISRUPTION_BUDGET, Action.ADD, None, budget()) is None


@pytest.mark.parametrize(
    ("action", "new", "expected"),
    [
        (Action.UPDATE_POD_LABEL, low("web-1", "n1", app="db"), Hint.QUEUE),
        (Action.UPDATE_POD_CONDITION, low("web-1", "n1", app="web").condition("Ready", "False"), Hint.QUEUE),
        (Action.UPDATE_POD_CONDITION, low("web-1", "n1", app="web").condition("Other"), Hint.SKIP),
        (Action.UPDATE_POD_TERMINATING, low("web-1", "n1", app="web").terminating(), Hint.QUEUE),
    ],
)
def test_pod_that_leaves_the_protection_wakes(action: Action, new: b.PodBuilder, expected: Hint) -> None:
    old, changed = low("web-1", "n1", app="web").build(), new.build()

    assert verdict(Resource.ASSIGNED_POD, action, old, changed) is expected
    assert verdict(Resource.ASSIGNED_POD, action, old, changed, Waiting(())) is Hint.SKIP


def test_end_of_a_pod_wakes_only_if_it_takes_back_a_charge() -> None:
    evicted, other = terminating("PreemptionByScheduler"), low("other", "n1").build()

    assert verdict(Resource.ASSIGNED_POD, Action.DELETE, evicted, None) is Hint.QUEUE
    assert verdict(Resource.ASSIGNED_POD, Action.DELETE, other, None) is Hint.SKIP
    assert verdict(Resource.ASSIGNED_POD, Action.DELETE, evicted, None, Waiting(())) is Hint.SKIP


def test_without_the_gate_it_registers_as_kube_scheduler_does() -> None:
    plugin = DefaultPreemption(DefaultPreemptionArgs(), FrameworkHandle(Snapshot(), Listers()))

    (registration,) = plugin.events_to_register()

    assert registration.event == ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
    assert registration.hint is not None
    assert registration.hint(Waiting(), terminating("PreemptionByScheduler"), None) is Hint.SKIP  # type: ignore[arg-type]


def test_plugin_outside_a_framework_gates_nobody() -> None:
    plugin = DefaultPreemption(DefaultPreemptionArgs(), FrameworkHandle(Snapshot(), Listers()))

    assert plugin.pre_enqueue(HIGH.build()) is None

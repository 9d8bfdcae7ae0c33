"""Preemption in the core: one transaction that counts at once, and is taken back whole if something comes between."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.worlds.objects import node
from tests.worlds.preemption import GUARDED, PluginWorld, World, budget, pending, running, transactions
from tidelog.api.features import FeatureGates
from tidelog.api.objects import ContainerStatus, pod_condition
from tidelog.api.pod_status import is_preempted
from tidelog.api.times import NANOS
from tidelog.eventlog.records import (
    AttemptAborted,
    Evicted,
    Nominated,
    Scheduled,
    Unschedulable,
    Waiting,
)
from tidelog.framework.interface import Code, CycleState, PermitResult, Plugin, Status
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.default_preemption.plugin import WAITING
from tidelog.plugins.registry import Registry
from tidelog.replay.verify import verify
from tidelog.scheduler.permits import Permits
from tidelog.scheduler.preemption import EXPIRY, Evictions, PendingEviction
from tidelog.testing import builders as b


@pytest.fixture
def world() -> World:
    """One full node, and a pod that is more important than what runs there."""
    found = World()
    found.add(node("n1"), running("low", "n1", cpu="3"), pending("high", cpu="3", priority=10))
    return found


# --- the transaction ------------------------------------------------------------------------------------------------------


def test_preemption_is_one_transaction_with_its_outcome(world: World) -> None:
    decision = world.attempt()

    assert decision is not None
    kinds = [type(body) for _, body in decision.outcomes]
    assert [Unschedulable, Nominated, Evicted] == kinds
    world.commit()
    world.check()


def test_victim_is_told_why_and_by_whom(world: World) -> None:
    world.settle()

    condition = pod_condition(world.pod("low"), "DisruptionTarget")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "PreemptionByScheduler")
    assert condition.message == "default-scheduler: preempting to accommodate a higher priority pod"
    assert is_preempted(world.pod("low"))
    assert world.bodies(Evicted)[0][1].preemptor == "Pod/default/high"


def test_preemptor_gets_the_room_when_the_victim_has_ended(world: World) -> None:
    world.settle()
    assert world.nominated("high") == "n1"

    world.finish("low")
    world.advance(seconds=5)

    assert world.placements() == {"default/high": "n1"}
    assert world.nominated("high") == ""
    world.check()


def test_message_of_a_successful_preemption_names_the_node(world: World) -> None:
    world.settle()

    assert world.message("high") == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: found a potential placement for pod on node n1, preempting 1 victims"
    )


def test_protected_victims_are_evicted_before_the_others() -> None:
    world = World()
    world.add(
        node("n1"),
        budget(allowed=1),
        running("plain", "n1", cpu="2", priority=5),
        running("web", "n1", cpu="2", app="web").guarded_below(1000),
        pending("high", cpu="4", priority=10),
    )

    world.settle()

    assert [(n, body.protected) for n, body in world.bodies(Evicted)] == [("web", True), ("plain", False)]
    (_, nominated), *_ = world.bodies(Nominated)
    assert nominated.victims == ("Pod/default/plain", "Pod/default/web")
    world.check()


def test_outcome_tells_who_was_spared_and_how_many_nodes_would_have_done() -> None:
    world = World()
    world.add(
        node("n1"),
        node("n2"),
        *(running(f"a{i}", "n1", cpu="2", priority=i) for i in range(2)),
        *(running(f"b{i}", "n2", cpu="2", priority=i) for i in range(2)),
        pending("high", cpu="2", priority=10),
    )

    world.settle()

    (_, body), *_ = world.bodies(Nominated)
    letter = "a" if body.node == "n1" else "b"
    assert body.victims == (f"Pod/default/{letter}0",)
    assert body.spared == (f"Pod/default/{letter}1",)
    assert body.candidates == 2


def test_preemptor_makes_room_for_what_its_spec_asks_whatever_its_containers_are_said_to_have() -> None:
    """As kube-scheduler: what an in-place resize has allocated only counts on a node."""
    world = World()
    world.add(node("n1", cpu="2"), running("first", "n1"), running("second", "n1"))
    high = pending("high", priority=10).build()
    has = ContainerStatus(name="main", allocated_resources={"cpu": "2"})

    world.put(replace(high, status=replace(high.status, container_statuses=(has,))))
    world.settle()

    assert len(world.evicted()) == 1
    world.check()


# --- it counts at once ------------------------------------------------------------------------------------------------


def test_next_attempt_sees_the_victim_going_before_the_commit() -> None:
    world = World()
    world.add(
        node("n1"),
        node("n2"),
        running("v1", "n1", cpu="4"),
        running("v2", "n2", cpu="4"),
        pending("high1", cpu="4", priority=10),
        pending("high2", cpu="4", priority=10),
    )

    world.attempt()
    world.attempt()
    world.commit()

    assert sorted(world.evicted()) == ["v1", "v2"]
    assert {node for _, node in world.nominations()} == {"n1", "n2"}
    world.check()


def test_next_attempt_sees_the_budget_charged_before_the_commit() -> None:
    world = World()
    world.add(node("n1"), node("n2"), budget(allowed=1))
    world.add(*(running(f"web-{i}", f"n{i}", cpu="4", app="web").guarded_below(1000) for i in (1, 2)))
    world.add(*(pending(f"high{i}", cpu="4", priority=10) for i in (1, 2)))

    world.attempt()
    world.attempt()
    world.commit()

    assert len(world.evicted()) == 1
    assert world.budget().status.disruptions_allowed == 0
    assert "protected by PDB default/web (allowed 0" in world.message("high2")
    world.check()


def test_preemptor_that_is_tried_again_does_not_preempt_again(world: World) -> None:
    world.settle()

    world.add(node("useless", cpu="1"), node("tainted", cpu="1"))
    world.advance(seconds=700)

    assert world.evicted() == ["low"]
    assert world.attempts_of("high") > 1
    assert "not eligible due to a terminating pod on the nominated node." in world.message("high")
    world.check()


def test_more_important_pod_takes_the_room_of_a_nominated_one_and_wakes_it() -> None:
    world = World(FeatureGates())
    world.add(node("n1"), running("low", "n1", cpu="3"), pending("mid", cpu="3", priority=10))
    world.settle()
    attempts = world.attempts_of("mid")

    world.add(pending("high", cpu="3", priority=20))
    world.advance(seconds=20)

    assert ("mid", "n1") in world.nominations()
    (_, last), *_ = [n for n in world.bodies(Nominated) if n[0] == "high"]
    assert last.cleared == ("Pod/default/mid",)
    assert world.nominated("mid") == ""
    assert world.attempts_of("mid") > attempts
    assert world.evicted() == ["low"]
    world.check()


def test_upstream_leaves_the_nomination_if_nobody_has_to_be_evicted() -> None:
    world = World(FeatureGates(), upstream=True)
    world.add(node("n1"), running("low", "n1", cpu="3"), pending("mid", cpu="3", priority=10))
    world.settle()

    world.add(pending("high", cpu="3", priority=20))
    world.settle()

    assert (world.nominated("mid"), world.nominated("high")) == ("n1", "n1")
    world.check()


def test_nominated_pod_is_respected_by_pods_of_equal_priority(world: World) -> None:
    world.settle()

    world.add(pending("rival", cpu="3", priority=10))
    world.settle()
    world.finish("low")
    world.advance(seconds=5)

    assert world.placements() == {"default/high": "n1"}
    world.check()


# --- the gate ---------------------------------------------------------------------------------------------------------


def test_preemptor_is_gated_while_its_victims_have_not_been_told(world: World) -> None:
    decision = world.attempt()
    assert decision is not None
    plugins = world.core.frameworks["default-scheduler"].pre_enqueue
    (gate,) = (plugin for plugin in plugins if plugin.name == "DefaultPreemption")

    during = gate.pre_enqueue(world.pod("high"))
    world.commit()

    assert during is not None
    assert during.reasons == (WAITING,)
    assert gate.pre_enqueue(world.pod("high")) is None
    world.check()


def test_preemptor_that_something_wakes_meanwhile_is_let_go_when_its_victims_have_been_told(
    world: World,
) -> None:
    world.attempt()

    world.add(
        node("n2", cpu="4")
    )  # Would wake it when the attempt lands, which is before its victim is told.
    world.commit()
    world.advance(seconds=15)

    assert world.placements()["default/high"] == "n2"
    world.check()


def test_gate_opens_when_the_last_untold_victim_has_gone() -> None:
    evictions = Evictions()
    for name in ("a", "b"):
        evictions.decide(PendingEviction(name, f"Pod/default/{name}", "Pod/default/p", 1, 0), "uid-p")

    answers = [evictions.told("a"), evictions.is_deciding("uid-p"), evictions.end("b")]

    assert answers == ["", True, "Pod/default/p"]
    assert not evictions.is_deciding("uid-p")
    assert evictions.is_evicted("a")


def test_eviction_is_told_when_it_is_in_the_log_and_not_when_it_is_decided() -> None:
    evictions = Evictions()
    evictions.decide(PendingEviction("a", "Pod/default/a", "Pod/default/p", 1, 0), "uid-p")

    assert (evictions.is_evicted("a"), evictions.is_told("a")) == (True, False)
    evictions.told("a")
    assert evictions.is_told("a")
    evictions.end("a")
    assert not evictions.is_told("a")


def test_wait_that_is_over_while_its_pod_is_to_be_evicted_ends_when_that_is_called_off() -> None:
    evictions = Evictions()
    permits = Permits(evictions)
    waiting = Waiting(attempt=1, observed=1, at=0, epoch=1, node="n1", plugins=("Hold",), deadline=5)
    permits.begin("Pod/default/a", "a", waiting)
    evictions.decide(PendingEviction("a", "Pod/default/a", "Pod/default/p", 2, 0), "uid-p")

    assert permits.take_due(10) is None
    evictions.end("a")

    due = permits.take_due(11)
    assert due is not None
    assert due.uid == "a"


# --- what comes between decision and commit -----------------------------------------------------------------------------


def delete_victim(world: World) -> None:
    world.finish("low")


def finish_victim(world: World) -> None:
    pod = world.pod("low")
    world.put(replace(pod, status=replace(pod.status, phase="Succeeded")))


def begin_to_delete_victim(world: World) -> None:
    world.add(running("low", "n1", cpu="3").terminating())


def delete_node(world: World) -> None:
    world.delete(node("n1"))


def taint_node(world: World) -> None:
    world.put(b.node("n1").capacity(cpu="4").taint("gone", "x", "NoSchedule").build())


def fill_room(world: World) -> None:
    world.add(running("intruder", "n1", cpu="1", priority=100))


def delete_preemptor(world: World) -> None:
    world.finish("high")


def bind_preemptor(world: World) -> None:
    world.add(pending("high", cpu="3", priority=10).on("n1"))


@pytest.mark.parametrize(
    "disturb",
    [
        delete_victim,
        finish_victim,
        begin_to_delete_victim,
        delete_node,
        taint_node,
        fill_room,
        delete_preemptor,
        bind_preemptor,
    ],
)
def test_nothing_is_evicted_if_the_ground_is_taken_away(
    world: World, disturb: Callable[[World], None]
) -> None:
    world.attempt()

    disturb(world)
    world.commit()

    assert world.evicted() == []
    assert world.nominations() == []
    ((name, body),) = world.bodies(AttemptAborted)
    assert (name, body.nominated, body.victims) == ("high", "n1", ("Pod/default/low",))
    assert len(world.core.evictions) == 0
    world.settle()
    world.check()


def test_harmless_changes_of_a_victim_do_not_hinder(world: World) -> None:
    world.attempt()

    world.add(running("low", "n1", cpu="3").annotate({"seen": "yes"}))
    world.commit()

    assert world.evicted() == ["low"]
    world.check()


def test_victim_that_stays_after_all_is_not_terminating_for_later_attempts(world: World) -> None:
    world.attempt()
    cached = world.core.cluster.cache.pod("uid-low")
    assert cached is not None
    assert cached.terminating

    taint_node(world)
    world.commit()

    cached = world.core.cluster.cache.pod("uid-low")
    assert cached is not None
    assert not cached.terminating
    world.check()


def test_nomination_that_was_cleared_counts_again_when_the_preemption_is_called_off() -> None:
    world = World()
    world.add(node("n1"), running("low", "n1", cpu="3"), pending("mid", cpu="3", priority=10))
    world.settle()
    world.add(pending("high", cpu="3", priority=20))
    world.attempt()
    queue = world.core.queue
    assert queue.nominator.node_of(world.pod("mid")) == ""

    world.finish("high")
    world.commit()

    assert queue.nominator.node_of(world.pod("mid")) == "n1"
    world.check()


def test_placement_in_room_that_is_promised_to_another_after_all_is_aborted() -> None:
    """`mid` loses its nomination to `high`, `small` takes the room that is left, and then `high` is not coming."""
    world = World()
    world.add(node("n1", cpu="4"), running("low", "n1", cpu="3"), pending("mid", cpu="4", priority=10))
    world.settle()
    world.add(pending("high", cpu="3", priority=20))
    world.attempt()
    world.add(pending("small", cpu="1", priority=5))
    world.attempt()

    world.finish("high")
    world.commit()
    world.settle()

    assert [name for name, _ in world.bodies(AttemptAborted)] == ["high", "small"]
    assert "default/small" not in world.placements()
    world.check()


def test_placement_in_room_that_a_nominated_pod_needs_after_all_is_aborted() -> None:
    """`mid` has found another node than the one that is kept for it, `small` takes that room, and then the other node goes."""
    world = World()
    world.add(node("n1"), running("low", "n1", cpu="4"), pending("mid", cpu="4", priority=10))
    world.settle()
    world.add(node("n2"))
    world.attempt()
    world.finish("low")
    world.add(pending("small", cpu="1", priority=5))
    world.attempt()

    world.delete(world.core.objects["Node//n2"])
    world.commit()
    world.settle()

    aborted = world.bodies(AttemptAborted)
    assert [name for name, _ in aborted] == ["mid", "small"]
    assert aborted[1][1].reason == "room on node n1 is promised to others after all"
    assert world.placements() == {"default/mid": "n1"}
    world.check()


def test_decision_that_counted_on_a_preemption_falls_with_it() -> None:
    """The second preemptor only waits for the first one's victim; when that is not coming, it must look again."""
    world = World()
    world.add(
        node("n1"),
        running("low", "n1", cpu="4", priority=0),
        pending("mid", cpu="4", priority=10),
    )
    world.attempt()
    world.add(pending("high", cpu="4", priority=20))
    world.attempt()

    world.finish("mid")
    world.commit()
    world.settle()

    assert [name for name, _ in world.bodies(AttemptAborted)] == ["mid", "high"]
    assert world.evicted() == ["low"]
    assert world.bodies(Evicted)[0][1].preemptor == "Pod/default/high"
    world.check()


def test_decision_beside_a_preemption_that_was_called_off_can_be_computed_again() -> None:
    """`small` would have taken the room on n1, had `high` not been promised it; that stands in the log only as an attempt in vain."""
    world = World()
    world.add(node("n1"), node("n2"), running("low", "n1", cpu="3"), running("other", "n2", priority=99))
    world.add(running("more", "n2", priority=99), pending("high", cpu="3", priority=20))
    world.attempt()
    world.add(pending("small", cpu="1", priority=5).prefer_node(100, "kubernetes.io/hostname in (n1)"))
    world.attempt()

    world.finish("high")
    world.commit()

    assert [name for name, _ in world.bodies(AttemptAborted)] == ["high"]
    assert world.placements()["default/small"] == "n2"
    world.check()
    sampled = verify(world.records, world.registry, sample=2)  # Believes the first, and computes the second.
    assert sampled.first_difference is None


def test_rejection_beside_a_preemption_falls_with_it() -> None:
    """`mid` found no room beside `high`, who is not coming; no event of the log would ever say so."""
    world = World()
    world.add(node("n1"), running("low", "n1", cpu="4"), pending("high", cpu="4", priority=20))
    world.attempt()
    world.add(pending("mid", cpu="4", priority=10))
    world.attempt()

    world.finish("high")
    world.commit()
    world.settle()

    assert [(name, body.reason) for name, body in world.bodies(AttemptAborted)] == [
        ("high", "the pod is gone"),
        ("mid", "the preemption on node n1 was called off"),
    ]
    assert world.nominations() == [("mid", "n1")]
    world.check()


def test_group_that_was_rejected_beside_a_preemption_is_tried_again() -> None:
    world = World(FeatureGates(topology_aware_workload_scheduling=True))
    world.add(node("n1"), node("n2", cpu="1"), running("low", "n1", cpu="2"))
    world.add(pending("high", cpu="4", priority=20))
    world.attempt()
    gang = [b.pod(f"g-{i}").request(cpu="1").scheduler("default-scheduler").group("gang") for i in range(2)]
    world.add(b.pod_group("gang", min_count=2), *gang)
    world.attempt()

    world.finish("high")
    world.commit()
    world.settle()

    assert [name for name, _ in world.bodies(AttemptAborted)] == ["high", "gang"]
    assert {"default/g-0", "default/g-1"} <= world.placements().keys()
    world.check()


def test_pod_that_was_blocked_by_the_charge_of_a_preemption_is_tried_again_without_it() -> None:
    world = World()
    world.add(node("n1", cpu="1"), node("n2", cpu="1"), budget(allowed=1))
    for number in (1, 2):
        world.add(running(f"web-{number}", f"n{number}", priority=number, app="web").guarded_below(1000))
    world.add(pending("one", priority=500))
    world.attempt()
    world.add(pending("two", priority=400))
    world.attempt()

    world.finish("one")
    world.commit()
    world.settle()

    assert world.evicted() == ["web-1"]
    assert world.nominated("two") == "n1"
    world.check()


def test_placed_pod_whose_commit_fails_is_not_evicted() -> None:
    """The victim is only assumed when it is chosen, and never gets its node."""
    world = World()
    world.add(node("n1"), pending("low", cpu="4"))
    world.attempt()
    world.add(pending("high", cpu="4", priority=10))
    world.attempt()

    world.put(b.node("n1").capacity(cpu="4").label(zone="b").build())
    world.commit()

    assert [name for name, _ in world.bodies(AttemptAborted)] == ["low", "high"]
    assert world.evicted() == []
    world.settle()
    world.check()


def test_placed_pod_may_be_evicted_before_its_binding_is_in_the_log() -> None:
    world = World()
    world.add(node("n1"), pending("low", cpu="4"))
    world.attempt()
    world.add(pending("high", cpu="4", priority=10))
    world.attempt()

    world.commit()

    assert [name for name, _ in world.bodies(Scheduled)] == ["low"]
    assert world.evicted() == ["low"]
    world.finish("low")
    world.advance(seconds=5)
    assert world.placements() == {"default/high": "n1"}
    world.check()


def test_victim_that_is_asked_to_go_before_it_shows_is_judged_anew_though_its_budget_allows_what_it_did() -> (
    None
):
    """`one` is told that `web` is protected. Then the budget allows one eviction and pays for it: allowing none again, it stands as it did,
    and the node is as it was, because `web` is only assumed there. But `web` is going now, and costs nothing for `two`, who is like `one`.
    """
    world = World()
    world.add(node("n1"), budget(allowed=0), pending("web", cpu="4", app="web").guarded_below(1000))
    world.attempt()
    world.add(pending("one", cpu="4", priority=10))
    world.attempt()
    world.put(budget(allowed=1))
    world.add(pending("more-important", cpu="4", priority=11))
    world.attempt()
    world.finish("more-important")
    world.add(pending("two", cpu="4", priority=10))

    decision = world.attempt()

    assert decision is not None
    nominated = [(key, body.node) for key, body in decision.outcomes if isinstance(body, Nominated)]
    assert nominated == [("Pod/default/two", "n1")]
    world.commit()
    world.settle()
    world.check()


# --- budgets between decision and commit ----------------------------------------------------------------------------------


@pytest.fixture
def guarded() -> World:
    """Two nodes, a protected pod on each; the budget can pay for one."""
    world = World()
    world.add(node("n1"), node("n2"), budget(allowed=1))
    world.add(*(running(f"web-{i}", f"n{i}", cpu="4", app="web").guarded_below(1000) for i in (1, 2)))
    world.add(pending("high", cpu="4", priority=10))
    return world


def spend(world: World) -> None:
    world.put(budget(allowed=0))


def appear(world: World) -> None:
    world.put(budget("another", allowed=0))


def widen(world: World) -> None:
    world.put(budget(allowed=1, selector=""))


def outdate(world: World) -> None:
    old = world.budget()
    world.put(replace(old, metadata=replace(old.metadata, generation=2)))


@pytest.mark.parametrize("disturb", [spend, appear, widen, outdate])
def test_budget_that_forbids_more_at_the_commit_stops_the_eviction(
    guarded: World, disturb: Callable[[World], None]
) -> None:
    guarded.attempt()

    disturb(guarded)
    guarded.commit()

    assert guarded.evicted() == []
    ((_, body),) = guarded.bodies(AttemptAborted)
    assert "PDB default/" in body.reason
    guarded.check()


def test_budget_spent_in_between_leads_to_the_next_candidate() -> None:
    world = World()
    world.add(node("n1"), node("n2"), budget(allowed=1), budget("db", allowed=1, selector="app=db"))
    world.add(
        running("web", "n1", cpu="4", priority=1, app="web").guarded_below(1000),
        running("db", "n2", cpu="4", priority=2, app="db").guarded_below(1000),
        pending("high", cpu="4", priority=10),
    )
    world.attempt()

    world.put(budget(allowed=0))
    world.commit()
    world.settle()

    assert world.evicted() == ["db"]
    world.check()


@pytest.mark.parametrize(
    "change",
    [lambda w: w.put(budget(allowed=2)), lambda w: w.delete(w.budget()), lambda w: w.put(w.budget())],
)
def test_budget_that_allows_more_or_goes_hinders_nothing(
    guarded: World, change: Callable[[World], None]
) -> None:
    guarded.attempt()

    change(guarded)
    guarded.commit()

    assert len(guarded.evicted()) == 1
    guarded.check()


def test_unready_victim_that_becomes_ready_is_judged_anew() -> None:
    world = World(guard_starting_pods=False)
    unready = running("web", "n1", cpu="4", app="web").guarded_below(1000).condition("Ready", "False")
    world.add(node("n1"), budget(allowed=0, current_healthy=3, desired_healthy=3))
    world.add(unready, pending("high", cpu="4", priority=10))
    world.attempt()

    world.add(running("web", "n1", cpu="4", app="web").guarded_below(1000))
    world.commit()
    world.settle()

    assert world.evicted() == []
    assert len(world.bodies(AttemptAborted)) == 1
    world.check()


def test_stale_status_does_not_give_back_what_was_spent(guarded: World) -> None:
    """kubernetes#91492: a status computed before our eviction arrives after it."""
    stale = guarded.budget()
    guarded.settle()

    guarded.put(stale)
    guarded.add(pending("high2", cpu="4", priority=10))
    guarded.settle()

    assert len(guarded.evicted()) == 1
    assert "(allowed 0" in guarded.message("high2")
    guarded.check()


def test_charge_of_an_eviction_that_does_not_end_expires(guarded: World) -> None:
    stale = guarded.budget()
    guarded.settle()
    guarded.put(stale)

    guarded.advance(seconds=EXPIRY / NANOS - 1)
    guarded.add(pending("early", cpu="4", priority=10))
    guarded.settle()
    guarded.advance(seconds=2)
    guarded.add(pending("late", cpu="4", priority=10))
    guarded.settle()

    assert [name for name, node in guarded.nominations() if node] == ["high", "late"]
    guarded.check()


# --- ends ---------------------------------------------------------------------------------------------------------------


def test_eviction_is_forgotten_when_the_victim_is_gone(world: World) -> None:
    world.settle()
    assert world.core.evictions.is_evicted("uid-low")

    world.finish("low")

    assert len(world.core.evictions) == 0


@pytest.mark.parametrize("end", [finish_victim, lambda w: w.add(running("low", "n1").uid("another"))])
def test_eviction_is_forgotten_when_the_victim_has_finished_or_is_another(
    world: World, end: Callable[[World], None]
) -> None:
    world.settle()

    end(world)

    assert len(world.core.evictions) == 0
    world.advance(seconds=5)
    world.check()


def test_victim_whose_deletion_was_taken_back_may_be_evicted_again(world: World) -> None:
    world.settle()

    world.add(running("low", "n1", cpu="3"))
    world.advance(seconds=700)

    assert world.evicted() == ["low", "low"]
    world.check()


def test_second_scheduler_takes_over_in_the_middle_of_a_preemption(world: World) -> None:
    world.settle()

    world.restart()
    world.finish("low")
    world.advance(seconds=5)

    assert world.placements() == {"default/high": "n1"}
    assert world.evicted() == ["low"]
    world.check()


def test_log_cut_between_any_two_transactions_recovers_and_goes_on() -> None:
    world = World()
    world.add(node("n1"), node("n2"), budget(allowed=1))
    world.add(*(running(f"web-{i}", f"n{i}", cpu="4", app="web").guarded_below(1000) for i in (1, 2)))
    world.add(pending("high", cpu="4", priority=10), pending("higher", cpu="4", priority=2000))
    world.attempt()
    world.put(budget(allowed=0))
    world.commit()
    world.settle()
    world.finish_terminating()
    world.advance(seconds=30)
    whole = world.records

    cut = 0
    for group in transactions(whole):
        cut += len(group)
        survivor = World()
        survivor.records = list(whole[:cut])
        survivor.now = world.now
        survivor.restart()
        survivor.settle()
        survivor.finish_terminating()
        survivor.advance(seconds=30)

        assert verify(survivor.records, Registry()).first_difference is None
        if cut > 10:
            assert survivor.pod("higher").spec.node_name
            assert len(survivor.evicted()) <= 2


def test_evictions_come_back_from_a_dump() -> None:
    evictions = Evictions()
    evictions.decide(
        PendingEviction("a", "Pod/default/a", "Pod/default/p", 1, 5, ("PodDisruptionBudget/x/y",)), "uid-p"
    )
    evictions.told("a")

    other = Evictions()
    other.load(evictions.dump())

    assert other.dump() == evictions.dump()
    assert other.charged("PodDisruptionBudget/x/y", 6) == ["a"]
    assert other.charged("PodDisruptionBudget/x/y", 5 + EXPIRY) == []
    assert not other.is_deciding("uid-p")


def test_pod_on_no_node_is_not_known_as_a_victim(world: World) -> None:
    assert not world.core.evictions.is_evicted(PodInfo(world.pod("high")).uid)


# --- victims that wait for a permit -------------------------------------------------------------------------------------


class Patience(Plugin):
    """Lets pods labelled `patient` wait for an hour."""

    name = "Patience"

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> PermitResult:
        waits = "patient" in pod.labels
        return PermitResult(Status(Code.WAIT), 3600) if waits else PermitResult()


def test_victim_that_waits_for_a_permit_only_loses_its_place() -> None:
    world = PluginWorld(Patience)
    world.add(node("n1"), pending("low", cpu="3", patient="yes"))
    world.settle()
    assert [name for name, _ in world.bodies(Waiting)] == ["low"]

    world.add(pending("high", cpu="3", priority=10))
    world.settle()
    world.advance(seconds=5)

    assert world.evicted() == ["low"]
    assert world.placements() == {"default/high": "n1"}
    low = world.pod("low")
    assert not low.metadata.deletion_timestamp
    assert len(world.core.evictions) == 0
    world.check()


def test_place_that_is_lost_costs_no_budget() -> None:
    world = PluginWorld(Patience)
    world.configure(replace(world.core.configuration, feature_gates=GUARDED))
    low = pending("low", cpu="3", patient="yes", app="web").guarded_below(1000)
    world.add(node("n1"), budget(allowed=1), low)
    world.settle()

    world.add(pending("high", cpu="3", priority=10))
    world.settle()

    assert world.evicted() == ["low"]
    assert world.budget().status.disruptions_allowed == 1
    world.check()


def test_permit_that_is_due_after_the_decision_does_not_bind_the_victim() -> None:
    world = PluginWorld(Patience)
    world.add(node("n1"), pending("low", cpu="3", patient="yes"))
    world.settle()
    world.add(pending("high", cpu="3", priority=10))
    world.attempt()

    world.now += 2 * 3600 * NANOS
    late = world.attempt()
    world.commit()
    world.settle()

    assert late is None
    assert world.placements().get("default/low") is None
    world.check()


def test_preemptor_whose_permit_does_not_come_loses_its_nomination() -> None:
    world = PluginWorld(Patience)
    world.add(node("n1"), running("low", "n1", cpu="3"), pending("high", cpu="3", priority=10, patient="yes"))
    world.settle()
    world.finish_terminating()
    world.advance(seconds=5)
    assert [name for name, _ in world.bodies(Waiting)] == ["high"]

    world.put(node("n1", cpu="1"))
    world.advance(seconds=2 * 3600)

    assert world.nominations() == [("high", "n1"), ("high", "")]
    assert world.nominated("high") == ""
    world.check()

"""The plugins that look at one node, its object or its ports, and at the pod's own fields."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.framework.events import Action, ClusterEvent, Hint, Resource
from tidelog.framework.interface import SKIP, CycleState, unresolvable, unschedulable
from tidelog.framework.node_info import PodInfo
from tidelog.plugins import (
    default_binder,
    node_name,
    node_ports,
    node_unschedulable,
    priority_sort,
    scheduling_gates,
    taint_toleration,
)
from tidelog.testing.builders import NodeBuilder, PodBuilder, node, pod

NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
NODE_TAINT = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT)
POD_GONE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
OWN_TOLERATION = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION)

CORDON = "node.kubernetes.io/unschedulable"
OPEN = node("n1")
CLOSED = node("n1").cordon()


# --- SchedulingGates, PrioritySort, DefaultBinder -------------------------------------------------------------------------


def test_gated_pod_is_kept_out_and_told_by_which_gates(bench: Any) -> None:
    gates = bench(scheduling_gates.SchedulingGates).plugin

    assert gates.pre_enqueue(pod("web").build()) is None
    assert gates.pre_enqueue(pod("web").gate("example.com/a", "example.com/b").build()) == unresolvable(
        "waiting for scheduling gates: [example.com/a example.com/b]"
    )


def test_only_the_pod_itself_losing_its_last_gate_opens_the_gate(bench: Any) -> None:
    gates = bench(scheduling_gates.SchedulingGates)
    eliminated = Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED

    own = gates.hint(
        ClusterEvent(Resource.TARGET_POD, eliminated), pod("web"), pod("web").gate("a"), pod("web")
    )
    others = gates.hint(ClusterEvent(Resource.UNSCHEDULED_POD, eliminated), pod("web"))
    labels = gates.hint(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL), pod("web"))

    assert own is Hint.QUEUE
    assert others is None
    assert labels is None


def test_queue_is_sorted_by_priority_then_by_waiting_time(bench: Any) -> None:
    sort = bench(priority_sort.PrioritySort).plugin
    waiting = [
        ("low", pod("low").priority(-1), 1),
        ("new", pod("new"), 9),
        ("old", pod("old").priority(0), 2),
    ]
    waiting.append(("high", pod("high").priority(10), 99))

    ordered = sorted(waiting, key=lambda entry: sort.sort_key(entry[1].build(), entry[2]))

    assert [name for name, _, _ in ordered] == ["high", "old", "new", "low"]


def test_default_binder_agrees_to_every_placement(bench: Any) -> None:
    binder = bench(default_binder.DefaultBinder).plugin

    assert binder.bind(CycleState(), PodInfo(pod("web").build()), "n1") is None


# --- NodeName ---------------------------------------------------------------------------------------------------------------


def test_pod_without_a_node_name_skips_the_check(bench: Any) -> None:
    assert bench(node_name.NodeName).pre_filter(pod("web"), node("n1")) == SKIP


def test_pod_with_a_node_name_is_narrowed_to_that_node(bench: Any) -> None:
    by_name = bench(node_name.NodeName)
    wants = pod("web").on("n2")

    assert by_name.pre_filter(wants, node("n1"), node("n2")) == frozenset(["n2"])
    assert by_name.verdicts(wants, node("n1"), node("n2"))["n2"] is None


def test_other_nodes_are_rejected_for_good_when_asked_one_by_one(bench: Any, node_info: Any) -> None:
    found = bench(node_name.NodeName).plugin.filter(
        CycleState(), PodInfo(pod("web").on("n2").build()), node_info(node("n1"))
    )

    assert found == unresolvable("node(s) didn't match the requested node name")


def test_any_new_node_may_be_the_named_one(bench: Any) -> None:
    assert bench(node_name.NodeName).hint(NODE_ADD, pod("web").on("n2"), None, node("n3")) is Hint.QUEUE


# --- NodeUnschedulable --------------------------------------------------------------------------------------------------------


def test_cordoned_node_is_rejected_for_good(bench: Any) -> None:
    cordon = bench(node_unschedulable.NodeUnschedulable)

    assert cordon.verdict(pod("web"), OPEN) is None
    assert cordon.verdict(pod("web"), CLOSED) == unresolvable("node(s) were unschedulable")


@pytest.mark.parametrize(
    ("tolerant", "skips"),
    [
        (pod("web").tolerate(CORDON), True),
        (pod("web").tolerate(CORDON, effect="NoSchedule"), True),
        (pod("web").tolerate(CORDON, value=""), True),
        (pod("web").tolerate(), True),
        (pod("web").tolerate(CORDON, value="x"), False),
        (pod("web").tolerate(CORDON, effect="NoExecute"), False),
    ],
)
def test_who_tolerates_the_cordon_is_not_asked(bench: Any, tolerant: PodBuilder, skips: bool) -> None:
    cordon = bench(node_unschedulable.NodeUnschedulable)

    assert (cordon.pre_filter(tolerant, CLOSED) == SKIP) is skips
    assert (cordon.verdict(tolerant, CLOSED) is None) is skips


def test_the_taint_alone_is_not_a_cordon(bench: Any) -> None:
    assert bench(node_unschedulable.NodeUnschedulable).verdict(pod("web"), OPEN.taint(CORDON)) is None


@pytest.mark.parametrize(
    ("event", "old", "new", "expected"),
    [
        (NODE_ADD, None, OPEN, Hint.QUEUE),
        (NODE_ADD, None, CLOSED, Hint.SKIP),
        (NODE_TAINT, CLOSED, OPEN, Hint.QUEUE),
        (NODE_TAINT, OPEN, OPEN.taint("a"), Hint.SKIP),
        (NODE_TAINT, OPEN, CLOSED, Hint.SKIP),
        (ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL), CLOSED, OPEN, None),
    ],
)
def test_only_a_node_that_opens_wakes_who_was_kept_out(
    bench: Any, event: ClusterEvent, old: NodeBuilder, new: NodeBuilder, expected: Hint
) -> None:
    assert bench(node_unschedulable.NodeUnschedulable).hint(event, pod("web"), old, new) is expected


def test_own_toleration_wakes_only_if_it_is_for_the_cordon(bench: Any) -> None:
    cordon = bench(node_unschedulable.NodeUnschedulable)
    before, helps, not_helps = pod("web"), pod("web").tolerate(CORDON), pod("web").tolerate("gpu")

    assert cordon.hint(OWN_TOLERATION, helps, before, helps) is Hint.QUEUE
    assert cordon.hint(OWN_TOLERATION, not_helps, before, not_helps) is Hint.SKIP


# --- TaintToleration ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tainted", "wanting", "accepted"),
    [
        (node("n"), pod("p"), True),
        (node("n").taint("gpu"), pod("p"), False),
        (node("n").taint("gpu", effect="NoExecute"), pod("p"), False),
        (node("n").taint("gpu", effect="PreferNoSchedule"), pod("p"), True),
        (node("n").taint("gpu"), pod("p").tolerate("gpu"), True),
        (node("n").taint("gpu", "a100"), pod("p").tolerate("gpu", value="a100"), True),
        (node("n").taint("gpu", "a100"), pod("p").tolerate("gpu", value="h100"), False),
        (node("n").taint("gpu"), pod("p").tolerate("gpu", effect="NoExecute"), False),
        (node("n").taint("gpu").taint("old"), pod("p").tolerate("gpu"), False),
        (node("n").taint("gpu").taint("old"), pod("p").tolerate(), True),
        (node("n").taint("gpu").taint("old"), pod("p").tolerate(effect="NoSchedule"), True),
    ],
)
def test_every_hard_taint_must_be_tolerated(
    bench: Any, tainted: NodeBuilder, wanting: PodBuilder, accepted: bool
) -> None:
    expected = None if accepted else unresolvable("node(s) had untolerated taint(s)")

    assert bench(taint_toleration.TaintToleration).verdict(wanting, tainted) == expected


def test_who_tolerates_everything_is_not_asked(bench: Any) -> None:
    taints = bench(taint_toleration.TaintToleration)

    assert taints.pre_filter(pod("p").tolerate(), node("n")) == SKIP
    assert taints.pre_filter(pod("p").tolerate(effect="NoSchedule"), node("n")) is None


def test_fewer_avoided_taints_score_higher(bench: Any) -> None:
    soft = "PreferNoSchedule"
    nodes = [
        node("none"),
        node("one").taint("a", effect=soft),
        node("three").taint("a", effect=soft).taint("b", effect=soft).taint("c", effect=soft),
        node("hard").taint("z"),
    ]

    assert bench(taint_toleration.TaintToleration).scores(pod("p"), *nodes) == [100, 67, 0, 100]


def test_every_node_scores_full_where_no_taint_is_avoided(bench: Any) -> None:
    assert bench(taint_toleration.TaintToleration).scores(pod("p"), node("a"), node("b")) == [100, 100]


def test_score_heeds_only_tolerations_that_can_be_about_preference(bench: Any) -> None:
    avoided = node("n").taint("a", effect="PreferNoSchedule")
    taints = bench(taint_toleration.TaintToleration)

    assert taints.scores(pod("p").tolerate("a"), node("free"), avoided) == [100, 100]
    assert taints.scores(pod("p").tolerate("a", effect="PreferNoSchedule"), node("free"), avoided) == [
        100,
        100,
    ]
    assert taints.scores(pod("p").tolerate("a", effect="NoSchedule"), node("free"), avoided) == [100, 0]


@pytest.mark.parametrize(
    ("event", "old", "new", "expected"),
    [
        (NODE_ADD, None, node("n"), Hint.QUEUE),
        (NODE_ADD, None, node("n").taint("gpu"), Hint.SKIP),
        (NODE_TAINT, node("n").taint("gpu"), node("n"), Hint.QUEUE),
        (NODE_TAINT, node("n").taint("gpu").taint("old"), node("n").taint("gpu"), Hint.SKIP),
        (NODE_TAINT, node("n"), node("n").taint("x", effect="PreferNoSchedule"), Hint.SKIP),
    ],
)
def test_only_a_node_that_becomes_tolerable_wakes(
    bench: Any, event: ClusterEvent, old: NodeBuilder, new: NodeBuilder, expected: Hint
) -> None:
    assert bench(taint_toleration.TaintToleration).hint(event, pod("p"), old, new) is expected


def test_any_new_toleration_of_the_pod_wakes_it(bench: Any) -> None:
    wakes = bench(taint_toleration.TaintToleration).hint(
        OWN_TOLERATION, pod("p"), pod("p"), pod("p").tolerate("x")
    )

    assert wakes is Hint.QUEUE


# --- NodePorts --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "held", "accepted"),
    [
        (pod("p").port(80), [], True),
        (pod("p").port(80), [pod("q").port(80)], False),
        (pod("p").port(80), [pod("q").port(81)], True),
        (pod("p").port(80), [pod("q").port(80, "UDP")], True),
        (pod("p").port(80, "TCP"), [pod("q").port(80)], False),
        (pod("p").port(80, host_ip="10.0.0.1"), [pod("q").port(80, host_ip="10.0.0.2")], True),
        (pod("p").port(80, host_ip="10.0.0.1"), [pod("q").port(80, host_ip="10.0.0.1")], False),
        (pod("p").port(80, host_ip="10.0.0.1"), [pod("q").port(80)], False),
        (pod("p").port(80), [pod("q").port(80, host_ip="10.0.0.1")], False),
        (pod("p").port(80, host_ip="0.0.0.0"), [pod("q").port(80, host_ip="10.0.0.1")], False),
        (pod("p").port(80).port(80, host_ip="10.0.0.1"), [], True),
    ],
)
def test_port_conflicts(bench: Any, wanted: PodBuilder, held: list[PodBuilder], accepted: bool) -> None:
    expected = (
        None if accepted else unschedulable("node(s) didn't have free ports for the requested pod ports")
    )

    assert bench(node_ports.NodePorts).verdict(wanted, node("n"), held) == expected


def test_ports_of_sidecars_count_and_of_init_containers_do_not(bench: Any) -> None:
    held = pod("q").port(80)
    ports = pod("x").port(80).build().spec.containers[0].ports
    sidecar, step = pod("p").init_container(ports=ports, sidecar=True), pod("p").init_container(ports=ports)
    plugin = bench(node_ports.NodePorts)

    assert plugin.verdict(sidecar, node("n"), [held]) is not None
    assert plugin.pre_filter(step, node("n")) == SKIP


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (pod("q").port(80).on("n"), Hint.QUEUE),
        (pod("q").port(80).nominated("n"), Hint.QUEUE),
        (pod("q").port(80), Hint.SKIP),
        (pod("q").port(81).on("n"), Hint.SKIP),
        (pod("q").on("n"), Hint.SKIP),
        (pod("q").port(80, host_ip="10.0.0.1").on("n"), Hint.QUEUE),
    ],
)
def test_only_a_pod_that_held_a_wanted_port_wakes(bench: Any, gone: PodBuilder, expected: Hint) -> None:
    assert bench(node_ports.NodePorts).hint(POD_GONE, pod("p").port(80), gone, None) is expected


def test_a_new_node_has_free_ports(bench: Any) -> None:
    assert bench(node_ports.NodePorts).hint(NODE_ADD, pod("p").port(80), None, node("n")) is Hint.QUEUE

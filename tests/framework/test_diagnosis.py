"""The sentence that says why a pod does not fit, to the letter."""

from __future__ import annotations

import pytest

from tidelog.framework.diagnosis import Diagnosis, FitError
from tidelog.framework.interface import Code, Status, unresolvable, unschedulable
from tidelog.framework.node_info import NodeInfo
from tidelog.framework.node_statuses import NodeStatuses
from tidelog.replay.driver import Driver
from tidelog.testing.builders import node, pod


def diagnosis(*groups: tuple[int, Status]) -> Diagnosis:
    found, number = Diagnosis(), 0
    for count, status in groups:
        for _ in range(count):
            found.reject_node(f"n{number}", status)
            number += 1
    return found


def test_the_reasons_are_counted_and_sorted_as_text() -> None:
    found = diagnosis(
        (2, unschedulable("Insufficient cpu").by("Fit")),
        (1, unresolvable("node(s) had untolerated taint(s)").by("Taints")),
    )
    found.node_statuses["n1"] = unschedulable("Insufficient cpu", "Insufficient memory")
    found.absent = unresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]")
    error = FitError(14, found)

    error.post_filter_message = "preemption: x"

    assert error.message == (
        "0/14 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint(s), "
        "11 node(s) didn't satisfy plugin(s) [NodeAffinity], 2 Insufficient cpu. preemption: x"
    )


def test_absent_nodes_without_reasons_are_not_mentioned() -> None:
    assert FitError(3, diagnosis((1, unschedulable("full")))).message == "0/3 nodes are available: 1 full."
    assert FitError(3, diagnosis((1, unschedulable()))).message == "0/3 nodes are available:"


def test_a_pre_filter_rejection_is_told_instead() -> None:
    found = diagnosis()
    found.pre_filter_message = "pod affinity terms conflict"

    assert FitError(6, found).message == "0/6 nodes are available: pod affinity terms conflict."


def test_who_is_to_blame_is_sorted_and_pending_is_told_apart() -> None:
    found = Diagnosis(narrowers=["Zoned"])
    found.reject_node("n", Status(Code.PENDING, ("wait",), "Volumes"))
    found.blame(unresolvable("node(s) didn't satisfy plugin Zoned"))
    error = FitError(1, found)

    assert error.unschedulable_plugins == ("Volumes", "Zoned")
    assert error.pending_plugins == ("Volumes",)


def test_a_rejection_after_the_choice_is_about_one_node() -> None:
    error = FitError.of_node("n", unschedulable("taken").by("Reserver"))

    assert error.message == "0/1 nodes are available: 1 taken."
    assert error.unschedulable_plugins == ("Reserver",)


def test_every_node_has_a_status_for_post_filter() -> None:
    found = diagnosis((1, unschedulable("full")))
    nodes = [NodeInfo(node(name).build()) for name in ("n0", "n1")]

    assert found.statuses(nodes) == {"n0": unschedulable("full"), "n1": unresolvable()}


def test_the_words_follow_the_number_of_nodes() -> None:
    found = diagnosis((2, unschedulable("full").by("Fit")))
    found.absent = unresolvable("elsewhere").by("Zoned")

    told = [(FitError(n, found).message, [r.nodes for r in found.rejections(n)]) for n in (2, 5, 5, 2)]

    assert told == [
        ("0/2 nodes are available: 2 full.", [2]),
        ("0/5 nodes are available: 2 full, 3 elsewhere.", [3, 2]),
        ("0/5 nodes are available: 2 full, 3 elsewhere.", [3, 2]),
        ("0/2 nodes are available: 2 full.", [2]),
    ]


def test_pods_that_are_alike_share_a_diagnosis_until_other_nodes_say_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Diagnosis] = []
    plain = Diagnosis.reject_nodes

    def counted(self: Diagnosis, statuses: NodeStatuses) -> None:
        made.append(self)
        plain(self, statuses)

    monkeypatch.setattr(Diagnosis, "reject_nodes", counted)
    driver = Driver()
    driver.start()
    driver.put(*(node(f"n{i}").capacity(cpu="4", memory="8Gi", pods=9).build() for i in range(3)))
    large = pod("large").request(cpu="5").scheduler("default-scheduler")

    counts = []
    for step in range(3):
        if step == 1:
            driver.put(node("n3").capacity(cpu="3", memory="8Gi", pods=9).taint("team", "x").build())
        driver.put(*(large.named(f"large-{step}{i}").build() for i in range(10)))
        driver.settle()
        counts.append(len(made))

    # One for the pods of each step that brings other nodes; the second pod of a shape is the first with a table.
    assert counts[0] <= 2
    assert counts[2] == counts[1] <= counts[0] + 2
    assert [
        driver.pod(name).status.conditions[-1].message.partition(" preemption")[0]
        for name in ("large-00", "large-29")
    ] == [
        "0/3 nodes are available: 3 Insufficient cpu.",
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 Insufficient cpu.",
    ]

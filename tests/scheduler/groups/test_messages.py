"""What is said of placements when there are many of them, or when a group is beside pods that are placed."""

from __future__ import annotations

from tidelog.framework.interface import CycleState, Placement
from tidelog.framework.node_info import PodInfo
from tidelog.scheduler.groups.group import Group, GroupRule
from tidelog.scheduler.groups.messages import LINES_MAX, infeasible_message, placement_lines, progress
from tidelog.scheduler.groups.trial import TrialEvaluation, TrialStep
from tidelog.testing import builders as b


def group(min_count: int = 0, members: int = 3, placed: int = 0) -> Group:
    rule = GroupRule(object_key="PodGroup/ns/train", is_gang=bool(min_count), min_count=min_count)
    pods = [PodInfo(b.pod(f"p{i}", "ns").build()) for i in range(members)]
    there = [(PodInfo(b.pod(f"q{i}", "ns").build()), "n1") for i in range(placed)]
    return Group("PodGroup/ns/train", rule, pods, there)


def tried(found: Group, fits: int, reason: str = "no room") -> TrialEvaluation:
    evaluation = TrialEvaluation(Placement(name="rack=r1", nodes=("n1",)))
    for number, pod in enumerate(found.members):
        node = "n1" if number < fits else ""
        evaluation.add(TrialStep(pod, CycleState(), node, reason="" if node else reason))
    return evaluation


def many(count: int) -> list[TrialEvaluation]:
    return [
        TrialEvaluation(Placement(name=f"rack=r{i:04}", nodes=("n1",)), message="too small")
        for i in range(count)
    ]


def test_progress_names_the_first_member_that_found_nothing() -> None:
    found = group()

    assert progress(found, tried(found, 2), upstream=False) == "2/3 pods fit, ns/p2: no room"


def test_progress_of_a_gang_says_what_it_needs_and_what_it_has() -> None:
    found = group(min_count=4, placed=1)

    assert (
        progress(found, tried(found, 2), upstream=False)
        == "2/3 pods fit beside 1 placed, 4 needed, ns/p2: no room"
    )


def test_upstream_counts_as_kube_scheduler_does() -> None:
    found = group(min_count=4)
    evaluation = tried(found, 1)
    evaluation.steps.pop()

    assert progress(found, evaluation, upstream=True) == (
        "minCount (4) cannot be satisfied: 1 scheduled, 1 remaining"
    )


def test_sentence_names_a_few_placements_and_counts_the_others() -> None:
    said = infeasible_message(group(), many(100), 7, upstream=False)

    assert said.startswith("0/100 placements of podGroup ns/train are feasible: rack=r0000: too small;")
    assert said.endswith("rack=r0007: too small; and 92 more. Groups do not preempt.")


def test_lines_name_all_placements_up_to_a_limit() -> None:
    few, lots = list(placement_lines(many(3))), list(placement_lines(many(LINES_MAX + 10)))

    assert few == ["rack=r0000: too small", "rack=r0001: too small", "rack=r0002: too small"]
    assert len(lots) == LINES_MAX + 1
    assert lots[-1] == "and 10 more placements"


def test_feasible_placement_tells_its_score() -> None:
    found = group()
    full, part = tried(found, 3), tried(found, 2)
    full.is_feasible = full.is_full = part.is_feasible = True
    full.score, part.score = 250.0, 99.5

    assert list(placement_lines([full, part])) == [
        "rack=r1: takes all, score 250.00",
        "rack=r1: takes 2 of 3 pods, score 99.50",
    ]

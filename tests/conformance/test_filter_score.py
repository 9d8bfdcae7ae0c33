"""The filter-score cases pass, and the comparison would notice if they did not."""

from __future__ import annotations

import copy
import gzip
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_conformance import runner

pytestmark = pytest.mark.no_cover  # The same cases are traced in test_conformance.py.

HERE = Path(runner.__file__ or "").parent
Answer = dict[str, Any]


# Loading the runner put its folder, where the families are, on the path.
family = importlib.import_module("families.filter_score")
with gzip.open(HERE / "cases" / "filter-score.jsonl.gz", "rt") as lines:
    CASES = [json.loads(line) for line in lines]


def test_every_case_is_answered_as_kube_scheduler_answered_it() -> None:
    differing = {
        case["id"]: found for case in CASES if (found := family.differences(case, family.answer(case)))
    }

    assert differing == {}


def first_case(wanted: Callable[[Answer], bool]) -> tuple[Answer, Answer]:
    case = next(case for case in CASES if wanted(case["expect"]))
    return case, copy.deepcopy(family.answer(case))


def is_plain(expected: Answer) -> bool:
    """Some nodes fit, some do not, and there is a choice that would be wrong."""
    return (
        bool(expected["filter"]) and len(expected["best"]) < len(expected["feasible"])
        if "best" in expected
        else False
    )


def another_node(answer: Answer) -> str:
    return next(name for name in answer["feasible"] if name not in answer["best"])


def forget_a_feasible_node(answer: Answer) -> None:
    answer["feasible"].pop()


def forget_a_rejecting_plugin(answer: Answer) -> None:
    next(iter(answer["filter"].values()))["rejects"].pop()


def blame_another_plugin_first(answer: Answer) -> None:
    next(iter(answer["filter"].values()))["first"] = "Other"


def change_a_reason(answer: Answer) -> None:
    next(iter(answer["filter"].values()))["rejects"][0]["reasons"] = ["other"]


def change_a_code(answer: Answer) -> None:
    next(iter(answer["filter"].values()))["rejects"][0]["code"] = "Pending"


def change_a_score(answer: Answer) -> None:
    answer["scores"]["NodeResourcesFit"][answer["feasible"][0]] += 1


def change_a_total(answer: Answer) -> None:
    answer["total"][answer["feasible"][0]] += 1


def pick_a_worse_node(answer: Answer) -> None:
    answer["picked"] = [another_node(answer)]


def pick_nothing(answer: Answer) -> None:
    del answer["picked"]


def claim_another_best(answer: Answer) -> None:
    answer["best"] = [another_node(answer)]


@pytest.mark.parametrize(
    "falsify",
    [
        forget_a_feasible_node,
        forget_a_rejecting_plugin,
        blame_another_plugin_first,
        change_a_reason,
        change_a_code,
        change_a_score,
        change_a_total,
        pick_a_worse_node,
        pick_nothing,
        claim_another_best,
    ],
)
def test_a_wrong_answer_is_noticed(falsify: Callable[[Answer], None]) -> None:
    case, answer = first_case(is_plain)
    assert family.differences(case, answer) == []

    falsify(answer)

    assert family.differences(case, answer) != []


def test_another_message_is_noticed() -> None:
    case, answer = first_case(lambda expected: bool(expected.get("fitError")))

    answer["fitError"] += " "

    assert family.differences(case, answer) != []


def test_a_rejection_by_pre_filter_is_compared() -> None:
    case, answer = first_case(lambda expected: "prefilter" in expected)
    assert family.differences(case, answer) == []

    answer["prefilter"]["reasons"] = []

    assert family.differences(case, answer) != []
    assert family.differences(case, {"filter": {}, "feasible": []}) != []


def test_the_pods_own_nomination_must_be_picked_if_it_is_feasible() -> None:
    case, answer = next(
        (case, family.answer(case))
        for case in CASES
        if case["pod"].get("status", {}).get("nominatedNodeName") in case["expect"]["feasible"]
        and len(case["expect"]["feasible"]) > 1
    )
    nominated = case["pod"]["status"]["nominatedNodeName"]
    assert answer["picked"] == [nominated]

    answer["picked"] = [name for name in answer["feasible"] if name != nominated][:1]

    assert family.differences(case, answer) != []

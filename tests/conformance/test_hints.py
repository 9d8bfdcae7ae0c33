"""The hint cases pass, and the comparison would notice if they did not."""

from __future__ import annotations

import gzip
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.test_conformance import runner

HERE = Path(runner.__file__ or "").parent


# Loading the runner put its folder, where the families are, on the path.
family = importlib.import_module("families.hints")
with gzip.open(HERE / "cases" / "hints.jsonl.gz", "rt") as lines:
    CASES = [json.loads(line) for line in lines]


def test_every_case_is_answered_as_kube_scheduler_answered_it() -> None:
    differing = {
        case["id"]: found for case in CASES if (found := family.differences(case, family.answer(case)))
    }

    assert differing == {}


def one_with(**expected: Any) -> dict[str, Any]:
    return next(
        case for case in CASES if all(case["expect"].get(key) == value for key, value in expected.items())
    )


@pytest.mark.parametrize(
    ("case", "wrong", "named"),
    [
        (one_with(hint="Queue"), {"hint": "QueueSkip"}, "hint"),
        (one_with(hint="QueueSkip"), {"hint": "Queue"}, "hint"),
        (one_with(registered=False), {"registered": True, "hint": "Queue"}, "registered"),
        (one_with(error=True), {"error": False}, "error"),
        (next(c for c in CASES if c["expect"].get("derived")), {"derived": []}, "derived"),
    ],
)
def test_wrong_answer_is_a_difference(case: dict[str, Any], wrong: dict[str, Any], named: str) -> None:
    found = family.answer(case) | wrong

    assert [line.split(":")[0] for line in family.differences(case, found)] == [named]


def test_order_of_derived_events_is_not_compared() -> None:
    case = next(case for case in CASES if len(case["expect"].get("derived", ())) > 1)
    found = family.answer(case)

    assert family.differences(case, found | {"derived": found["derived"][::-1]}) == []

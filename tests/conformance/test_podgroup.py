"""What the family `podgroup` makes of a case: exactly the cluster that the case describes."""

from __future__ import annotations

import copy
import importlib
from typing import Any

from tests.conformance.test_conformance import runner

# Loading the runner put its folder, where the families are, on the path.
family = importlib.import_module("families.podgroup")

HOSTNAME = "kubernetes.io/hostname"
CASE: dict[str, Any] = {
    "nodes": [
        {"name": "n1", "labels": {HOSTNAME: "n1"}, "cpu_m": 4000, "memory_mi": 4096, "pods": 10},
        {"name": "n2", "labels": {}, "cpu_m": 8000, "memory_mi": 8192, "pods": 10},
    ],
    "bound": [],
    "group": {"name": "pg", "policy": "gang", "min_count": 2, "topology_key": HOSTNAME},
    "pods": [{"name": name, "cpu_m": 100, "labels": {"app": "train"}} for name in ("g2", "g10", "g1")],
}


def answer(case: dict[str, Any]) -> dict[str, Any]:
    assert "podgroup" in runner.FAMILIES
    found: dict[str, Any] = family.answer(copy.deepcopy(case))
    return found


def test_node_has_no_label_that_the_case_does_not_give_it() -> None:
    generated = answer(CASE)["generate"]

    assert generated == {"status": "Success", "placements": [{"name": "n1", "nodes": ["n1"]}]}


def test_pods_of_equal_priority_are_tried_in_the_order_in_which_they_were_added() -> None:
    assert answer(CASE)["pod_order"] == ["g2", "g10", "g1"]

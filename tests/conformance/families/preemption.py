"""Family `preemption`: one pod that fits nowhere, and what DefaultPreemption finds out on every node where removing pods may help.

The peer's choice among equals is chance; a case says which nodes it may be, and which plans where the order of equally important pods or
of overlapping budgets matters. Ours must be one of them. Clusters are so small that every potential node is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from families import filter_score

from tidelog.api.objects import Pod, PodDisruptionBudget
from tidelog.api.pod_status import is_preempted
from tidelog.framework.diagnosis import FitError
from tidelog.framework.disruption_budgets import Allowances
from tidelog.framework.interface import Code, CycleState, Status
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.default_preemption.plugin import DefaultPreemption
from tidelog.scheduler.preemption import Evictions, Preemption

Answer = dict[str, Any]

NOW = 1_790_000_000 * 1_000_000_000
"""Later than every start time in the cases: a pod that does not say when it was started has the latest start."""


# --- asking ---------------------------------------------------------------------------------------------------------------


def answer(case: Mapping[str, Any]) -> Answer:
    """What our DefaultPreemption says, in the shape of the recorded answer."""
    framework = filter_score.cluster(case)
    for budget in msgspec.convert(case.get("pdbs", []), list[PodDisruptionBudget]):
        framework.handle.listers.put(budget)
    port = framework.handle.preemption = Preemption(framework, Evictions())
    (plugin,) = (p for p in framework.post_filter if isinstance(p, DefaultPreemption))
    pod, state = PodInfo(msgspec.convert(case["pod"], Pod)), CycleState(NOW)
    error = framework.find_feasible(state, pod, nominated_node=pod.pod.status.nominated_node_name)
    assert isinstance(error, FitError), "the pod fits, or its attempt failed"
    statuses = error.diagnosis.statuses(framework.snapshot.nodes)
    result = framework.run_post_filter(state, pod, statuses)
    assert result.status is not None
    found: Answer = {
        "fitError": error.message,
        "eligible": plugin.eligibility(port, pod, statuses) is None,
        "potential": sorted(n for n, status in statuses.items() if status.code is Code.UNSCHEDULABLE),
        "status": {"code": result.status.code.value, "message": result.status.message},
        "nominated": [result.nominated_node] if result.nominated_node else [],
        "clearsNominatedNodeName": result.nominated_node == "",
        "victims": {},
        "pdbViolations": {},
        "nodeStatuses": {},
    }
    if found["eligible"]:
        allowances = Allowances(framework.handle.listers, port, NOW, upstream=True)
        search = plugin.search(port, allowances, state, pod, statuses)
        found["victims"] = {c.node: [victim.key for victim in c.victims] for c in search.candidates}
        found["pdbViolations"] = {c.node: c.violations for c in search.candidates}
        found["nodeStatuses"] = {name: _status(status) for name, status in search.statuses.items()}
    if result.plan is not None:
        found["actuation"] = {
            "node": result.plan.node,
            "deleted": sorted(eviction.pod.key for eviction in result.plan.evictions),
            "conditionPatched": sorted(
                eviction.pod.key for eviction in result.plan.evictions if not is_preempted(eviction.pod.pod)
            ),
            "nominationCleared": sorted(other.key for other in result.plan.cleared),
        }
    return found


def _status(status: Status) -> Answer:
    return {"plugin": status.plugin, "code": status.code.value, "reasons": sorted(status.reasons)}


# --- comparing ------------------------------------------------------------------------------------------------------------


def differences(case: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """In what the answer is none of the recorded possibilities."""
    expected = case["expect"]
    return [
        *_compare("fitError", expected["fitError"], answer["fitError"]),
        *_compare("eligible", expected["eligible"], answer["eligible"]),
        *_compare("potential", sorted(expected["potential"]), answer["potential"]),
        *_compare("status.code", expected["status"]["code"], answer["status"]["code"]),
        *_compare_message(expected["status"], answer["status"]),
        *_compare_plans(expected, answer),
        *_compare_choice(expected["nominated"], answer["nominated"]),
        *_compare_statuses(expected["nodeStatuses"], answer["nodeStatuses"]),
        *_compare_actuation(expected.get("actuation"), answer.get("actuation")),
        *_compare(
            "clearsNominatedNodeName",
            bool(expected.get("clearsNominatedNodeName")),
            answer["clearsNominatedNodeName"],
        ),
    ]


def _compare(what: str, expected: object, got: object) -> list[str]:
    return [] if expected == got else [f"{what}: expected {expected!r}, got {got!r}"]


def _compare_message(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Iterable[str]:
    """The peer's message on success is not recorded."""
    if expected.get("message"):
        yield from _compare("status.message", expected["message"], got["message"])


def _compare_plans(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Iterable[str]:
    """Every candidate's victims in their order, and how many budgets they break."""
    wanted = expected["victims"]
    yield from _compare("candidates", sorted(wanted), sorted(got["victims"]))
    for node in sorted(wanted.keys() & got["victims"].keys()):
        alternatives = expected.get("victimsAlt", {}).get(node) or [
            {"victims": wanted[node], "pdbViolations": expected["pdbViolations"][node]}
        ]
        plan = {"victims": got["victims"][node], "pdbViolations": got["pdbViolations"][node]}
        if plan not in alternatives:
            yield f"victims[{node}]: expected one of {alternatives}, got {plan}"


def _compare_choice(allowed: list[str], got: list[str]) -> Iterable[str]:
    if not set(got) <= set(allowed) or bool(got) != bool(allowed):
        yield f"nominated: expected one of {allowed}, got {got}"


def _compare_statuses(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Iterable[str]:
    for node in sorted(expected.keys() | got.keys()):
        wanted, found = (
            (each[node]["code"], sorted(each[node].get("reasons", []))) if node in each else None
            for each in (expected, got)
        )
        yield from _compare(f"nodeStatuses[{node}]", wanted, found)


def _compare_actuation(expected: Mapping[str, Any] | None, got: Mapping[str, Any] | None) -> Iterable[str]:
    """Recorded only where node and plan leave no choice."""
    if expected is None:
        return
    if got is None:
        yield f"actuation: expected {expected}, got none"
        return
    yield from _compare("actuation.node", expected["node"], got["node"])
    for part in ("deleted", "conditionPatched", "nominationCleared"):
        yield from _compare(f"actuation.{part}", sorted(expected[part]), got[part])

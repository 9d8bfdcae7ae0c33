"""Family `dra`: one pod with claims of devices; which nodes would do, what would be allocated there, what is written, and what follows.

Deallocation in PostFilter is random upstream: any of the listed outcomes is right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec
from families.filter_score import cluster as cluster_of
from families.filter_score import filter_verdicts, scores_of, status_of
from families.volume_dra_hints import with_uid

from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.objects import DeviceClass, DeviceTaintRule, Object, Pod, ResourceClaim, ResourceSlice
from tidelog.api.quantity import parse_exact
from tidelog.api.times import parse_time
from tidelog.api.writes import Write, written
from tidelog.framework.diagnosis import FitError
from tidelog.framework.framework import Framework
from tidelog.framework.interface import CycleState, Status
from tidelog.framework.node_info import PodInfo
from tidelog.framework.results import Feasible
from tidelog.plugins.dynamic_resources.cycle import Cycle, NodePlan, cycle_of
from tidelog.plugins.dynamic_resources.plugin import DynamicResources

Answer = dict[str, Any]
NOW = parse_time("2026-08-20T00:00:00Z")
_KINDS: dict[str, type[Object]] = {
    "deviceClasses": DeviceClass,
    "resourceSlices": ResourceSlice,
    "deviceTaintRules": DeviceTaintRule,
    "resourceClaims": ResourceClaim,
}


# --- asking ---------------------------------------------------------------------------------------------------------------


def answer(case: Mapping[str, Any]) -> Answer:
    """What our default profile says, in the shape of the recorded answer."""
    framework = cluster_of(case)
    listers = framework.handle.listers
    for key, kind in _KINDS.items():
        for obj in case.get(key, ()):
            listers.put(msgspec.convert(with_uid(obj), kind))  # type: ignore[attr-defined]
    pod = PodInfo(msgspec.convert(with_uid(case["pod"]), Pod))
    plugin = next(p for p in framework.pre_filter if isinstance(p, DynamicResources))
    result: Answer = {}
    gate = plugin.pre_enqueue(pod.pod)
    if gate is not None:
        result["preEnqueue"] = status_of(gate.by(plugin.name))
    state = CycleState(at=NOW)
    found = framework.find_feasible(state, pod)
    result |= _placement(framework, pod, state, found)
    result["prefilterEach"] = _each(framework, pod)
    if result.get("errored") or "feasible" not in result:
        return result
    if not result["feasible"]:
        return result | {"postFilter": _post_filter(framework, plugin, state, pod, found)}
    assert isinstance(found, Feasible)
    result |= scores_of(framework, state, pod, found.nodes)[1]
    node = min(result["best"] if "best" in case["expect"] else result["feasible"])
    result["bind"] = _bind(framework, case, state, pod, node, result.get("plans", {}).get(node, {}))
    return result


def _placement(framework: Framework, pod: PodInfo, state: CycleState, found: Any) -> Answer:
    """The part that filtering gives."""
    alone = CycleState(at=NOW)
    outcome = framework.run_pre_filter(alone, pod)
    if outcome.status is not None:
        rejection = {"prefilter": status_of(outcome.status)}
        return rejection | ({"fitError": found.message} if isinstance(found, FitError) else {})
    verdicts = {node.name: filter_verdicts(framework, alone, pod, node) for node in framework.snapshot.nodes}
    feasible = [name for name, rejected in verdicts.items() if not rejected]
    result: Answer = {
        "filter": {
            name: {"first": rejected[0].plugin, "rejects": [status_of(each) for each in rejected]}
            for name, rejected in verdicts.items()
            if rejected
        },
        "feasible": sorted(feasible),
    }
    cycle = cycle_of(alone)
    if cycle is not None:
        result["plans"] = {n: _plan(cycle, cycle.plans[n]) for n in feasible if n in cycle.plans}
    if isinstance(found, Status):
        return result | {"errored": True}
    return result | ({"fitError": found.message} if isinstance(found, FitError) else {})


def _plan(cycle: Cycle, plan: NodePlan) -> Answer:
    names = [claim.metadata.name for claim in cycle.to_allocate]
    if plan.special is not None:
        names.append(plan.special.metadata.name)
    pairs = zip(names, plan.allocations, strict=True)
    found: Answer = {
        "allocations": [{"claim": name, "allocation": _allocation(given)} for name, given in pairs]
    }
    if plan.special is not None:
        found["extended"] = {
            "requests": msgspec.to_builtins(plan.special.spec.devices.requests),
            "mappings": [
                {"containerName": m.container, "resourceName": m.resource, "requestName": m.request}
                for m in plan.mappings
            ],
        }
    return found


def _allocation(given: Any) -> Answer:
    found = msgspec.to_builtins(given)
    for result in found.get("devices", {}).get("results", ()):
        if "shareID" in result:
            result["shareID"] = "*"
    return found  # type: ignore[no-any-return]


def _each(framework: Framework, pod: PodInfo) -> list[Answer]:
    plugin = next(p for p in framework.pre_filter if p.name == DynamicResources.name)
    status = plugin.pre_filter(CycleState(at=NOW), pod, framework.snapshot.nodes).status
    if status is None:
        return []
    # The recorded plugins were asked without the framework, whose words these are.
    by_framework = f'running PreFilter plugin "{plugin.name}": '
    reasons = tuple(reason.removeprefix(by_framework) for reason in status.reasons)
    return [status_of(Status(status.code, reasons, plugin.name))]


def _post_filter(
    framework: Framework, plugin: DynamicResources, state: CycleState, pod: PodInfo, error: Any
) -> Answer:
    nodes = framework.snapshot.nodes
    found = plugin.post_filter(
        state, pod, error.diagnosis.statuses(nodes) if isinstance(error, FitError) else {}
    )
    assert found.status is not None
    writes = _all_told(framework, found.writes)
    return {"code": found.status.code.value, "reasons": list(found.status.reasons), "writes": writes}


def _bind(
    framework: Framework, case: Mapping[str, Any], state: CycleState, pod: PodInfo, node: str, plan: Answer
) -> Answer:
    """What follows for one node: the writes, and what they mean for others."""
    promised = framework.run_writes(state, pod, node)
    assert not isinstance(promised, Status)
    writes = [write for each in promised for write in each.writes]
    result: Answer = {"node": node, "plan": plan, "writes": _all_told(framework, writes)}
    listers = framework.handle.listers
    listers.promise(writes)  # type: ignore[attr-defined]
    pending = {p["metadata"]["name"]: p for p in case["pods"] if not p["spec"].get("nodeName")}
    result["afterReserve"] = {}
    for name in case.get("assumeFirst", ()):
        other = PodInfo(msgspec.convert(with_uid(pending[name]), Pod))
        alone = CycleState(at=NOW)
        found = framework.find_feasible(alone, other)
        result["afterReserve"][name] = _placement(framework, other, alone, found)
    return result


def _all_told(framework: Framework, writes: Sequence[Write]) -> list[Answer]:
    """As the recorded writes are told: what the objects are afterwards; what is free is starred."""
    objects: dict[str, Any] = {}
    found = []
    for write in writes:
        before = objects.get(write.key) or framework.handle.listers.get(write.key)  # type: ignore[attr-defined]
        objects[write.key] = written(before, write)
        found.append(_told(write, msgspec.to_builtins(objects[write.key])))
    return found


def _told(write: Write, after: Any) -> Answer:
    kind, namespace, name = write.key.split("/")
    resource = KIND_BY_NAME[kind].plural
    told: Answer = {"verb": "update", "resource": resource, "namespace": namespace, "name": _starred(name)}
    if write.verb == "create":
        meta = after["metadata"]
        kept = {key: meta[key] for key in ("annotations", "generateName", "ownerReferences")}
        return {**told, "verb": "create", **kept, "spec": after["spec"]}
    if write.verb == "delete":
        return {**told, "verb": "delete"}
    if kind == "Pod":
        patch = json.loads(json.dumps(write.patch))
        status = patch["status"]["extendedResourceClaimStatus"]
        status["resourceClaimName"] = _starred(status["resourceClaimName"])
        return {**told, "verb": "patch", "resource": "pods/status", "patch": patch}
    if "metadata" in write.patch:
        return {**told, "finalizers": write.patch["metadata"]["finalizers"]}
    status = after.get("status", {})
    for result in status.get("allocation", {}).get("devices", {}).get("results", ()):
        if "shareID" in result:
            result["shareID"] = "*"
    return {**told, "resource": f"{resource}/status", "status": status}


def _starred(name: str) -> str:
    return re.sub(r"(-extended-resources-)[0-9a-f]{5}$", r"\1generated", name)


# --- comparing ------------------------------------------------------------------------------------------------------------


def differences(case: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """In what the answer is not one of those recorded."""
    expected, out = case["expect"], []
    out += _one_of("preEnqueue", _said(answer.get("preEnqueue")), [_said(expected.get("preEnqueue"))])
    for mine in answer.get("prefilterEach", ()):
        out += [
            line
            for theirs in expected.get("prefilterEach", ())
            if theirs["plugin"] == mine["plugin"]
            for line in _one_of("prefilterEach", _said(mine), [_said(theirs)])
        ]
    out += _differs(expected, answer)
    if "fitError" in expected and "fitError" in answer:
        out += _one_of("fitError", answer["fitError"], [expected["fitError"]])
    if "prefilter" in expected or "prefilter" in answer or expected.get("errored"):
        return out
    for plugin, scores in expected.get("scores", {}).items():
        mine = answer.get("scores", {}).get(plugin, dict.fromkeys(scores, 0))
        out += _one_of(f"scores[{plugin}]", mine, [scores])
    for key in ("total", "best"):
        if key in expected:
            out += _one_of(key, answer.get(key), [expected[key]])
    if "bind" in expected:
        out += _differs_in_bind(expected["bind"], answer.get("bind"))
    if "postFilter" in expected:
        out += _one_of(
            "postFilter", _plain(answer.get("postFilter")), [_plain(p) for p in expected["postFilter"] or ()]
        )
    return out


def _differs_in_bind(wanted: Mapping[str, Any], got: Mapping[str, Any] | None) -> list[str]:
    if not got:
        return ["bind: missing"]
    out = _one_of("bind.plan", _plain(got.get("plan") or {}), [_plain(wanted.get("plan") or {})])
    out += _one_of("bind.writes", _plain(got.get("writes")), [_plain(wanted.get("writes"))])
    for name, after in wanted.get("afterReserve", {}).items():
        out += _differs(after, got.get("afterReserve", {}).get(name, {}), f"bind.afterReserve[{name}].")
    return out


def _differs(expected: Mapping[str, Any], answer: Mapping[str, Any], at: str = "") -> list[str]:
    if "prefilter" in expected:
        return _one_of(f"{at}prefilter", _said(answer.get("prefilter")), [_said(expected["prefilter"])])
    if answer.get("prefilter"):
        return [f"{at}prefilter: expected none, got {answer['prefilter']}"]
    out = _one_of(f"{at}feasible", sorted(answer.get("feasible", [])), [sorted(expected["feasible"])])
    got = answer.get("filter", {})
    for node in sorted({*expected["filter"], *got}):
        out += _one_of(
            f"{at}filter[{node}]", _verdict(got.get(node)), [_verdict(expected["filter"].get(node))]
        )
    plans, mine = expected.get("plans", {}), answer.get("plans", {})
    for node in sorted({*plans, *mine}):
        out += _one_of(f"{at}plans[{node}]", _plain(mine.get(node)), [_plain(plans.get(node))])
    return out


def _one_of(what: str, got: Any, allowed: list[Any]) -> list[str]:
    if got in allowed:
        return []
    wanted = json.dumps(allowed[0]) if len(allowed) == 1 else "one of " + json.dumps(allowed)
    return [f"{what}: expected {wanted}, got {json.dumps(got)}"]


def _said(status: Mapping[str, Any] | None) -> list[Any] | None:
    if not status:
        return None
    return [status.get("code"), _comparable(status.get("reasons", ())), status.get("plugin", "")]


def _comparable(reasons: Sequence[str]) -> list[str]:
    """The wording of cel-go's errors is not compared."""
    return sorted(re.sub(r"(CEL (?:compile|runtime) error).*", r"\1", r, flags=re.DOTALL) for r in reasons)


def _verdict(found: Mapping[str, Any] | None) -> Any:
    if found is None:
        return None
    rejects = [[r["plugin"], r["code"], _comparable(r.get("reasons", ()))] for r in found.get("rejects", ())]
    return [found.get("first") or "", sorted(rejects)]


def _plain(value: Any, key: str = "") -> Any:
    """Quantities by value, empty things as absent."""
    if isinstance(value, dict):
        if key == "consumedCapacity":
            return {name: str(Fraction(*parse_exact(amount))) for name, amount in value.items()}
        found = {name: _plain(part, name) for name, part in value.items() if name != "allocationTimestamp"}
        return {name: part for name, part in found.items() if part not in (None, [], {}, "")}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value

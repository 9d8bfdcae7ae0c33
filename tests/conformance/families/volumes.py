"""Family `volumes`: one pod with volumes; which nodes would do, what would become of its claims there, what is written, and how that ends.

What kube-scheduler leaves to chance is listed in the case: any of the listed answers is right.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec
from families.filter_score import cluster as cluster_of
from families.filter_score import filter_verdicts, scores_of, status_of

from tidelog.api.kinds.registry import KIND_BY_NAME, object_key
from tidelog.api.objects import Object, Pod
from tidelog.api.quantity import parse_exact
from tidelog.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from tidelog.api.writes import Write, written
from tidelog.framework.diagnosis import FitError
from tidelog.framework.framework import Framework
from tidelog.framework.interface import Code, CycleState, Status
from tidelog.framework.node_info import PodInfo
from tidelog.framework.results import Feasible
from tidelog.framework.storage import Storage
from tidelog.plugins.volumes.binding import plan_for
from tidelog.plugins.volumes.plan import Plan

Answer = dict[str, Any]

_KINDS: dict[str, type[Object]] = {
    "storageClasses": StorageClass,
    "persistentVolumes": PersistentVolume,
    "persistentVolumeClaims": PersistentVolumeClaim,
    "csiNodes": CSINode,
    "csiDrivers": CSIDriver,
    "csiStorageCapacities": CSIStorageCapacity,
    "volumeAttachments": VolumeAttachment,
}
_VOLUME_PLUGINS = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")


# --- asking ---------------------------------------------------------------------------------------------------------------


def answer(case: Mapping[str, Any]) -> Answer:
    """What our default profile says, in the shape of the recorded answer."""
    framework = cluster_of(case)
    objects = _objects(case)
    storage: Storage = framework.handle.listers.storage  # type: ignore[assignment]
    for obj in objects.values():
        storage.put(obj)
    pod = PodInfo(msgspec.convert(case["pod"], Pod))
    state, found = _placed(framework, pod)
    result = _placement(framework, state, pod, found)
    result["prefilterEach"] = _each(framework, pod)
    if "feasible" not in result or result.get("errored") or not result["feasible"]:
        return result
    assert isinstance(found, Feasible)
    result |= scores_of(framework, state, pod, found.nodes)[1]
    node = min(result.get("best") or result["feasible"])
    if "best" not in case["expect"]:
        node = min(result["feasible"])
    result["bind"] = _bind(framework, case, state, pod, node, objects, storage)
    return result


def _objects(case: Mapping[str, Any]) -> dict[str, Object]:
    found: dict[str, Object] = {}
    for key, kind in _KINDS.items():
        for obj in msgspec.convert(case.get(key, []), list[kind]):  # type: ignore[valid-type]
            found[object_key(obj)] = obj
    return found


def _placed(framework: Framework, pod: PodInfo) -> tuple[CycleState, Feasible | FitError | Status]:
    state = CycleState()
    return state, framework.find_feasible(state, pod)


def _placement(
    framework: Framework, state: CycleState, pod: PodInfo, found: Feasible | FitError | Status
) -> Answer:
    """The part that filtering gives."""
    alone = CycleState()
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
    if isinstance(found, Status):
        return result | {"errored": True}
    plans = {name: plan for name in feasible if (plan := plan_for(alone, name)) and any(plan)}
    result["plans"] = {name: _plan(plan) for name, plan in plans.items()}
    return result | ({"fitError": found.message} if isinstance(found, FitError) else {})


def _each(framework: Framework, pod: PodInfo) -> list[Answer]:
    found = []
    for plugin in framework.pre_filter:
        if plugin.name in _VOLUME_PLUGINS:
            status = plugin.pre_filter(CycleState(), pod, framework.snapshot.nodes).status
            if status is not None:
                # The recorded plugins were asked without the framework, whose words these are.
                by_framework = f'running PreFilter plugin "{plugin.name}": '
                reasons = tuple(reason.removeprefix(by_framework) for reason in status.reasons)
                found.append(status_of(Status(status.code, reasons, plugin.name)))
    return found


def _plan(plan: Plan) -> Answer:
    def name(claim: PersistentVolumeClaim) -> str:
        return f"{claim.metadata.namespace}/{claim.metadata.name}"

    return {
        "bindings": [{"claim": name(claim), "volume": v.metadata.name} for claim, v in plan.bindings],
        "provisions": [{"claim": name(provision.claim)} for provision in plan.provisions],
    }


def _bind(
    framework: Framework,
    case: Mapping[str, Any],
    state: CycleState,
    pod: PodInfo,
    node: str,
    objects: dict[str, Object],
    storage: Storage,
) -> Answer:
    """What follows for one node: the writes, what they mean for others, and what comes of them."""
    result: Answer = {"node": node, "plan": _plan(plan_for(state, node))}
    promised = framework.run_writes(state, pod, node)
    assert not isinstance(promised, Status)
    writes = [write for each in promised for write in each.writes]
    for write in writes:
        obj = objects[write.key] = written(objects.get(write.key), write)  # type: ignore[assignment]
        assert obj is not None
        storage.put(obj)
    result["writes"] = [_written(write, objects[write.key]) for write in writes]
    pending = {p["metadata"]["name"]: p for p in case["pods"] if not p["spec"].get("nodeName")}
    result["afterReserve"] = {
        name: _other(framework, PodInfo(msgspec.convert(pending[name], Pod)))
        for name in case.get("assumeFirst", ())
    }
    if "controller" in case:
        result["status"] = _end(framework, case["controller"], pod, node, writes, storage)
    return result


def _other(framework: Framework, pod: PodInfo) -> Answer:
    state, found = _placed(framework, pod)
    return _placement(framework, state, pod, found)


def _written(write: Write, obj: Object) -> Answer:
    kind = KIND_BY_NAME[write.key.partition("/")[0]]
    found: Answer = {"verb": "update", "resource": kind.plural, "name": obj.metadata.name}
    if kind.namespaced:
        found["namespace"] = obj.metadata.namespace
    found["annotations"] = dict(obj.metadata.annotations)
    if isinstance(obj, PersistentVolume):
        found["claimRef"] = msgspec.to_builtins(obj.spec.claim_ref)
        found["claimRef"].pop("resourceVersion", None)
    return found


def _end(
    framework: Framework,
    controller: Mapping[str, Any],
    pod: PodInfo,
    node: str,
    writes: Sequence[Write],
    storage: Storage,
) -> Answer:
    for key in ("persistentVolumes", "persistentVolumeClaims"):
        for obj in msgspec.convert(controller.get(key, []), list[_KINDS[key]]):  # type: ignore[misc]
            storage.put(obj)
    for name in controller.get("deletePersistentVolumes", ()):
        storage.delete(msgspec.convert({"metadata": {"name": name}}, PersistentVolume))
    for name in controller.get("deletePersistentVolumeClaims", ()):
        namespace, _, own = name.partition("/")
        metadata = {"name": own, "namespace": namespace}
        storage.delete(msgspec.convert({"metadata": metadata}, PersistentVolumeClaim))
    if controller.get("deletePod"):
        return _failure(f'pod does not exist any more: pod "{pod.name}" not found')
    awaited, failure = framework.answers(pod, framework.snapshot.get(node), writes)
    if failure is None and awaited:
        failure = framework.too_late(["VolumeBinding"])
    if failure is None:
        return {"code": Code.SUCCESS.value}
    return {"code": failure.code.value, "reasons": list(failure.reasons)}


def _failure(text: str) -> Answer:
    return {
        "code": Code.ERROR.value,
        "reasons": [f'running PreBind plugin "VolumeBinding": binding volumes: {text}'],
    }


# --- comparing ------------------------------------------------------------------------------------------------------------


def differences(case: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """In what the answer is not one of those recorded."""
    expected, out = case["expect"], []
    for mine in answer.get("prefilterEach", ()):
        for theirs in expected.get("prefilterEach", ()):
            if theirs["plugin"] == mine["plugin"] and not expected.get("prefilterEachAlt"):
                out += _one_of("prefilterEach", _said(mine), [_said(theirs)])
    found = _differs(expected, answer)
    out += found
    if "fitError" in expected and "fitError" in answer:
        out += _one_of("fitError", answer["fitError"], [expected["fitError"]])
    if "prefilter" in expected or "prefilter" in answer or expected.get("errored"):
        return out
    for plugin, scores in expected.get("scores", {}).items():
        mine = answer.get("scores", {}).get(plugin, dict.fromkeys(scores, 0))
        out += _one_of(f"scores[{plugin}]", mine, expected.get("scoresAlt", {}).get(plugin, [scores]))
    for key in ("total", "best"):
        if key in expected:
            out += _one_of(key, answer.get(key), [expected[key]])
    if "bind" in expected:
        out += _differs_in_bind(expected, answer.get("bind"))
    return out


def _differs(expected: Mapping[str, Any], answer: Mapping[str, Any], at: str = "") -> list[str]:
    if "prefilter" in expected:
        allowed = expected.get("prefilterAlt", [expected["prefilter"]])
        return _one_of(f"{at}prefilter", _said(answer.get("prefilter")), list(map(_said, allowed)))
    if answer.get("prefilter"):
        return [f"{at}prefilter: expected none, got {answer['prefilter']}"]
    out: list[str] = []
    filter_alt = expected.get("filterAlt", {})
    if not filter_alt:
        out += _one_of(f"{at}feasible", sorted(answer.get("feasible", [])), [sorted(expected["feasible"])])
    got = answer.get("filter", {})
    for node in sorted({*expected["filter"], *got, *filter_alt}):
        allowed = filter_alt.get(node, [expected["filter"].get(node)])
        out += _one_of(f"{at}filter[{node}]", _verdict(got.get(node)), list(map(_verdict, allowed)))
    if not expected.get("plansVary") and not filter_alt:
        plans, mine = expected.get("plans", {}), answer.get("plans", {})
        for node in sorted({*plans, *mine}):
            allowed = expected.get("plansAlt", {}).get(node, [plans.get(node)])
            out += _one_of(f"{at}plans[{node}]", _plan_text(mine.get(node)), list(map(_plan_text, allowed)))
    return out


def _differs_in_bind(expected: Mapping[str, Any], got: Mapping[str, Any] | None) -> list[str]:
    wanted = expected["bind"]
    if not got:
        return ["bind: missing"]
    is_loose = wanted["node"] in expected.get("plansAlt", {})
    allowed = expected["plansAlt"][wanted["node"]] if is_loose else [wanted.get("plan")]
    out = _one_of("bind.plan", _plan_text(got.get("plan")), list(map(_plan_text, allowed)))
    if is_loose:
        return out
    out += _one_of("bind.reserve", _said(got.get("reserve"), False), [_said(wanted.get("reserve"), False)])
    out += _one_of("bind.writes", _plain(got.get("writes")), [_plain(wanted.get("writes"))])
    if "status" in wanted:
        out += _one_of("bind.status", _said(got.get("status"), False), [_said(wanted["status"], False)])
    for name, after in wanted.get("afterReserve", {}).items():
        mine = got.get("afterReserve", {}).get(name, {})
        out += _differs(after, mine, f"bind.afterReserve[{name}].")
    return out


def _one_of(what: str, got: Any, allowed: list[Any]) -> list[str]:
    if got in allowed:
        return []
    wanted = json.dumps(allowed[0]) if len(allowed) == 1 else "one of " + json.dumps(allowed)
    return [f"{what}: expected {wanted}, got {json.dumps(got)}"]


def _said(status: Mapping[str, Any] | None, by: bool = True) -> list[Any] | None:
    if not status:
        return None
    who = [status.get("plugin", "")] if by else []
    return [status.get("code"), sorted(status.get("reasons", [])), *who]


def _verdict(found: Mapping[str, Any] | None) -> Any:
    if found is None:
        return None
    rejects = [[r["plugin"], r["code"], sorted(r.get("reasons", []))] for r in found.get("rejects", ())]
    return [found.get("first") or "", sorted(rejects)]


def _plan_text(plan: Mapping[str, Any] | None) -> Any:
    found = json.loads(json.dumps(plan or {}))
    for provision in found.get("provisions", []):
        provision.pop("capacity", None)
    return _plain(found)


def _plain(value: Any, key: str = "") -> Any:
    """Quantities by value, empty things as absent."""
    if isinstance(value, dict):
        if key == "capacity":
            return {name: str(Fraction(*parse_exact(amount))) for name, amount in value.items()}
        found = {name: _plain(part, name) for name, part in value.items()}
        return {name: part for name, part in found.items() if part not in (None, [], {}, "")}
    return [_plain(part) for part in value] if isinstance(value, list) else value

"""Family `filter-score`: one pod, a cluster, and what every plugin of the default profile says about every node.

Each filter is asked alone on each node, so that all rejecting plugins are known and not only the first; everything that is
feasible is scored, even a single node. Which node is picked is our own choice; it must be among the best.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tidelog.api.objects import (
    Namespace,
    Node,
    Pod,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from tidelog.api.pod_status import is_terminal
from tidelog.configuration.configuration import default_configuration
from tidelog.configuration.profiles import build_profile
from tidelog.framework.diagnosis import FitError
from tidelog.framework.framework import Framework
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import CycleState, Status
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.nominations import FixedNominations
from tidelog.framework.results import Feasible, NodeScores, ScheduleResult
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.registry import Registry
from tidelog.scheduler.cache import Cache

Answer = dict[str, Any]

_LISTED = {
    "namespaces": Namespace,
    "services": Service,
    "replicaSets": ReplicaSet,
    "statefulSets": StatefulSet,
    "replicationControllers": ReplicationController,
}
_NOT_OURS = frozenset(["VolumeBinding", "DynamicResources"])
"""Scoring plugins of the peer that score 0 everywhere here, and that we do not have."""


# --- asking ---------------------------------------------------------------------------------------------------------------


def cluster(case: Mapping[str, Any]) -> Framework:
    """The default profile on the case's cluster, as an attempt would see it."""
    cache, listers = Cache(), Listers()
    for node in msgspec.convert(case["nodes"], list[Node]):
        cache.put_node(node)
    nominated: dict[str, list[PodInfo]] = {}
    for pod in map(PodInfo, msgspec.convert(case["pods"], list[Pod])):
        cache.put_pod(pod)
        if not pod.pod.spec.node_name and not is_terminal(pod.pod):
            nominated.setdefault(pod.pod.status.nominated_node_name, []).append(pod)
    for key, kind in _LISTED.items():
        for obj in msgspec.convert(case.get(key, []), list[kind]):  # type: ignore[valid-type]
            listers.put(obj)
    snapshot = Snapshot()
    snapshot.refresh(cache)
    handle = FrameworkHandle(snapshot, listers, upstream=True)
    registry = Registry()
    profile = build_profile(default_configuration(registry).profiles[0], registry, handle)
    return Framework(
        profile.name,
        profile.points,
        handle,
        weights=profile.weights("score"),
        nominated=FixedNominations(nominated),
    )


def answer(case: Mapping[str, Any]) -> Answer:
    """What our default profile says, in the shape of the recorded answer."""
    framework = cluster(case)
    pod = PodInfo(msgspec.convert(case["pod"], Pod))
    found = framework.find_feasible(CycleState(), pod)
    if isinstance(found, Status):
        raise AssertionError(f"the attempt fails: {found.message}")
    state = CycleState()
    outcome = framework.run_pre_filter(state, pod)
    if outcome.status is not None:
        assert isinstance(found, FitError)
        return {
            "prefilter": status_of(outcome.status),
            "filter": {},
            "feasible": [],
            "fitError": found.message,
        }
    statuses = found.diagnosis.node_statuses
    feasible = found.nodes if isinstance(found, Feasible) else []
    names = [node.name for node in feasible]
    result: Answer = {
        "filter": {
            node.name: {
                "first": statuses[node.name].plugin if node.name in statuses else "",
                "rejects": [status_of(verdict) for verdict in filter_verdicts(framework, state, pod, node)],
            }
            for node in framework.snapshot.nodes
            if node.name not in names
        },
        "feasible": sorted(names),
    }
    if outcome.nodes is not None:
        result["prefilterNodes"] = {"plugins": list(outcome.narrowers), "nodes": sorted(outcome.nodes)}
    if isinstance(found, FitError):
        return result | {"fitError": found.message}
    return result | _scores(framework, state, pod, feasible)


def scores_of(
    framework: Framework, state: CycleState, pod: PodInfo, feasible: Sequence[NodeInfo]
) -> tuple[NodeScores, Answer]:
    """The points of the feasible nodes, and as an answer tells them."""
    scores = framework.score_nodes(state, pod, feasible)
    if isinstance(scores, Status):
        raise AssertionError(f"scoring fails: {scores.message}")
    names = [node.name for node in feasible]
    total = dict(zip(names, scores.totals, strict=True))
    return scores, {
        "scores": {name: dict(zip(names, p.normalized, strict=True)) for name, p in scores.plugins.items()},
        "total": total,
        "best": sorted(name for name in names if total[name] == max(scores.totals)),
    }


def _scores(framework: Framework, state: CycleState, pod: PodInfo, feasible: list[NodeInfo]) -> Answer:
    scores, told = scores_of(framework, state, pod, feasible)
    names = [node.name for node in feasible]
    return told | {
        "raw": {
            name: dict(zip(names, plugin.raw, strict=True))
            for name, plugin in scores.plugins.items()
            if plugin.raw != plugin.normalized
        },
        "skippedScore": sorted(state.skip_score),
        "picked": [_pick(framework, pod)],
    }


def _pick(framework: Framework, pod: PodInfo) -> str:
    nominated = pod.pod.status.nominated_node_name
    result = framework.schedule_pod(CycleState(), pod, turn=1, nominated_node=nominated)
    assert isinstance(result, ScheduleResult)
    return result.node


def status_of(status: Status) -> Answer:
    """A status as an answer tells it."""
    return {"plugin": status.plugin, "code": status.code.value, "reasons": sorted(status.reasons)}


# --- comparing ------------------------------------------------------------------------------------------------------------


def differences(case: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """In what the answer is not the recorded one. Orders and additional detail do not matter; ties leave a choice."""
    expected = case["expect"]
    if "prefilter" in expected or "prefilter" in answer:
        wanted, got = expected.get("prefilter"), answer.get("prefilter")
        same = wanted is not None and got is not None and _rejection(wanted) == _rejection(got)
        return [] if same else [f"prefilter: expected {wanted}, got {got}"]
    return [
        *_compare("feasible", sorted(expected["feasible"]), sorted(answer["feasible"])),
        *_compare_filters(expected["filter"], answer["filter"]),
        *_compare_scores(expected, answer),
        *_compare("total", expected.get("total", {}), answer.get("total", {})),
        *_compare("best", sorted(expected.get("best", [])), sorted(answer.get("best", []))),
        *_compare_pick(case, answer),
        *_compare("fitError", expected.get("fitError", ""), answer.get("fitError", "")),
    ]


def _compare(what: str, expected: object, got: object) -> list[str]:
    return [] if expected == got else [f"{what}: expected {expected!r}, got {got!r}"]


def _rejection(status: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    return status.get("plugin", ""), status["code"], sorted(status.get("reasons", []))


def _compare_filters(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Iterable[str]:
    for node in sorted(expected.keys() | got.keys()):
        if node not in expected or node not in got:
            yield f"filter[{node}]: expected {expected.get(node)}, got {got.get(node)}"
            continue
        yield from _compare(f"filter[{node}].first", expected[node]["first"], got[node]["first"])
        wanted, found = (sorted(map(_rejection, verdict[node]["rejects"])) for verdict in (expected, got))
        yield from _compare(f"filter[{node}].rejects", wanted, found)


def _compare_scores(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Iterable[str]:
    wanted, found = expected.get("scores", {}), got.get("scores", {})
    skipped = expected.get("skippedScore", [])
    for plugin in sorted((wanted.keys() | found.keys()) - _NOT_OURS):
        if plugin not in skipped:
            yield from _compare(f"scores[{plugin}]", wanted.get(plugin), found.get(plugin))
        elif any(found.get(plugin, {}).values()):
            yield f"scores[{plugin}]: expected to be skipped, got {found[plugin]}"


def filter_verdicts(framework: Framework, state: CycleState, pod: PodInfo, node: NodeInfo) -> list[Status]:
    """The status of every filter that rejects the node, each asked alone, in order."""
    verdicts = (framework.run_filters(state, pod, node, [one]) for one in framework.active_filters(state))
    return [status for status in verdicts if status is not None]


def _compare_pick(case: Mapping[str, Any], got: Mapping[str, Any]) -> Iterable[str]:
    """Any of the best, except that the pod's own nomination is taken when it is feasible."""
    expected = case["expect"]
    nominated = case["pod"].get("status", {}).get("nominatedNodeName")
    allowed = [nominated] if nominated in expected["feasible"] else expected.get("best", [])
    picked = got.get("picked", [])
    if not set(picked) <= set(allowed) or bool(picked) != bool(allowed):
        yield f"picked: expected one of {allowed}, got {picked}"

"""Family `podgroup`: a group, a cluster, and what becomes of the group in one cycle.

The case's objects are put into a log, in the order in which they were given to kube-scheduler; the scheduler on that log
(`compat: upstream`) decides and commits. What the cycle saw on the way, placement by placement, is asked for beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from tidelog.api.objects import Node, Pod, Taint, Toleration, pod_condition
from tidelog.configuration.configuration import resolve_configuration
from tidelog.plugins.registry import Registry
from tidelog.queue.entity import QueuedGroup, Where
from tidelog.replay.driver import Driver
from tidelog.replay.verify import verify
from tidelog.scheduler.core import Core
from tidelog.scheduler.groups.cycle import GroupOptions, GroupResult
from tidelog.scheduler.groups.trial import TrialEvaluation
from tidelog.scheduler.pod_cycle import Stamp
from tidelog.testing import builders as b

Json = dict[str, Any]
SCORES = {"PlacementBinPacking": "NodeResourcesFit", "PlacementPodCountScorer": "PodGroupPodsCount"}
"""Our scorers, and what kube-scheduler calls them."""
STATUS = {
    "PlacementChosen": "Success",
    "Unschedulable": "Unschedulable",
    "AttemptError": "Error",
}


# --- asking ---------------------------------------------------------------------------------------------------------------


def _node(case: Json) -> Node:
    node = b.node(case["name"]).label(case["labels"])
    node = node.capacity(cpu=f"{case['cpu_m']}m", memory=f"{case['memory_mi']}Mi", pods=str(case["pods"]))
    for taint in case.get("taints") or ():
        found = Taint(key=taint["Key"], value=taint.get("Value", ""), effect=taint["Effect"])
        node = node.taint(found.key, found.value, found.effect)
    built = (node.cordon() if case.get("unschedulable") else node).build()
    # These labels and no others: the builder would add a host name, which is a domain of its own where that is the level.
    return replace(built, metadata=replace(built.metadata, labels=case["labels"]))


def _pod(case: Json, group: str) -> Pod:
    pod = b.pod(case["name"]).label(case.get("labels") or {}).scheduler("default-scheduler")
    pod = pod.priority(case.get("priority", 0))
    # The recording left requests of nothing out, which makes them count with their defaults in scores.
    requests = {"cpu": f"{case['cpu_m']}m"} if case.get("cpu_m") else {}
    if case.get("memory_mi"):
        requests["memory"] = f"{case['memory_mi']}Mi"
    pod = pod.request(requests)
    if group:
        pod = pod.group(group)
    if "node" in case:
        pod = pod.on(case["node"])
    if "node_selector" in case:
        pod = pod.node_selector(case["node_selector"])
    if "host_port" in case:
        pod = pod.port(case["host_port"])
    app = {"app": (case.get("labels") or {}).get("app", "")}
    if "anti_affinity_key" in case:
        pod = pod.pod_anti_affinity(case["anti_affinity_key"], app)
    if "affinity_key" in case:
        pod = pod.pod_affinity(case["affinity_key"], app)
    built = pod.build()
    tolerations = tuple(
        Toleration(
            key=t.get("Key", ""),
            operator=t.get("Operator", ""),
            value=t.get("Value", ""),
            effect=t.get("Effect", ""),
        )
        for t in case.get("tolerations") or ()
    )
    return replace(built, spec=replace(built.spec, tolerations=tolerations))


def world(case: Json, *, fast: bool = True) -> Driver:
    """A scheduler that has been told of everything in the case. Not `fast`: it tries every placement, also where it knows one that is
    alike."""
    registry = Registry()
    section = {
        "compat": "upstream",
        "featureGates": {"TopologyAwareWorkloadScheduling": case.get("topology_aware", True)},
    }
    header = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    driver = Driver(registry)
    driver.core = Core(registry, fast=fast)
    driver.start(resolve_configuration({**header, "tidelog": section}, registry).configuration)
    group = case["group"]
    driver.put(*map(_node, case["nodes"]))
    driver.put(
        b.pod_group(
            group["name"],
            min_count=group.get("min_count"),
            level=group.get("topology_key"),
            priority=group.get("priority", 0),
        )
    )
    driver.put(*(_pod(pod, pod.get("group", "")) for pod in case["bound"]))
    for pod in case["pods"]:
        # One right after the other, so that each has its own place in the queue's order.
        driver.now += 1
        driver.put(_pod(pod, group["name"]))
    return driver


def answer(case: Json) -> Json:
    """What our cycle says, in the shape of the recorded answer; one result where the recorded answer lists several."""
    driver = world(case, fast=False)
    queue = driver.core.queue
    assert queue is not None
    group = queue.get_group(f"default/{case['group']['name']}")
    assert group is not None
    if group.where is not Where.ACTIVE:
        return {"queue": "gated", "gate_reason": f"{group.gating_plugin}: {', '.join(group.gating_reasons)}"}
    result = _ask(driver, group)
    found: Json = {
        "queue": "popped",
        "pod_order": [member.pod.metadata.name for member in group.ordered_members()],
    }
    found |= _told(result)
    found["cycles"] = [_cycle(world(case), case)]
    return found


def _ask(driver: Driver, group: QueuedGroup) -> GroupResult:
    """The cycle that comes next, without making it."""
    core = driver.core
    assert core.configuration is not None
    core.cluster.snapshot.refresh(core.cluster.cache)
    stamp = Stamp(core.attempts + 1, core.seq, driver.now, core.epoch)
    return core.group_flights.decide(
        group.key, group.ordered_members(), core.frameworks, stamp, GroupOptions.of(core.configuration)
    )


def _told(result: GroupResult) -> Json:
    (_, body), *others = result.outcomes
    status = STATUS[type(body).__name__]
    message = getattr(body, "message", "")
    told: Json = {"outcomes": [{"status": status, "message": message, "placement": None, "assignment": {}}]}
    if not result.evaluations:
        if "all pods in a single pod group" in message:
            return {"validation_error": message}
        return told | {"generate": {"status": status, "messages": [message], "placements": []}}
    told["generate"] = {
        "status": "Success",
        "placements": [
            {"name": e.placement.name, "nodes": sorted(e.placement.nodes)} for e in result.evaluations
        ],
    }
    told["evaluations"] = [
        {"placement": e.placement.name, "outcomes": [_evaluation(e)]} for e in result.evaluations
    ]
    if result.scores:
        told["scores"] = [
            [
                {
                    "placement": name,
                    "plugins": {SCORES[plugin]: int(score) for plugin, score in plugins.items()},
                    "total": int(sum(plugins.values())),
                }
                for name, plugins in result.scores.items()
            ]
        ]
    outcome = told["outcomes"][0]
    if status == "Success":
        outcome["placement"] = body.placement  # type: ignore[union-attr]
        outcome["assignment"] = {_short(pod): node for pod, node in body.assignment.items()}  # type: ignore[union-attr]
        left = [
            {"pod": _short(key), "status": "Unschedulable", "message": getattr(one, "message", "")}
            for key, one in others
            if type(one).__name__ == "Unschedulable"
        ]
        if left:
            outcome["pods"] = left
    return told


def _short(key: str) -> str:
    return key.rpartition("/")[2]


def _evaluation(e: TrialEvaluation) -> Json:
    found: Json = {
        "status": "Success" if e.is_feasible else "Unschedulable",
        "fit_count": e.fit_count,
        "pods_tried": len(e.steps),
        "pods": [],
    }
    if not e.is_feasible:
        found["message"] = e.message
    for step in e.steps:
        pod: Json = {"pod": step.pod.name, "status": "Success" if step.node else "Unschedulable"}
        if step.node:
            pod["node"] = step.node
        else:
            pod["message"] = step.message
        found["pods"].append(pod)
    return found


def _cycle(driver: Driver, case: Json) -> Json:
    """The same once more, through the log and back, and where it leaves everybody."""
    driver.attempt()
    driver.commit()
    report = verify(driver.records, driver.registry)
    assert report.first_difference is None, report.first_difference
    core = driver.core
    assert core.queue is not None
    key = f"default/{case['group']['name']}"
    group = core.queue.get_group(key)
    condition = next(
        c
        for c in core.objects[f"PodGroup/{key}"].status.conditions
        if c.type == "PodGroupInitiallyScheduled"  # type: ignore[union-attr]
    )
    pods = [driver.pod(pod["name"]) for pod in case["pods"]]
    for pod in pods:
        assert pod_condition(pod, "PodScheduled") is not None
    return {
        "condition": f"{condition.status}/{condition.reason}",
        "bound": {pod.metadata.name: pod.spec.node_name for pod in pods if pod.spec.node_name},
        "requeued": sorted(pod.metadata.name for pod in pods if not pod.spec.node_name),
        "queue": "none" if group is None else group.where.value,
    } | ({} if group is None else {"group_attempts": group.attempts})


# --- comparing ------------------------------------------------------------------------------------------------------------


def differences(case: Mapping[str, Any], answer: Mapping[str, Any]) -> list[str]:
    """In what the answer is not among the recorded ones. Messages of the whole group count only where there is no choice."""
    expected = case["expect"]
    found = [
        f"{field}: expected {expected.get(field)!r}, got {answer.get(field)!r}"
        for field in ("queue", "gate_reason", "pod_order", "validation_error")
        if expected.get(field) != answer.get(field)
    ]
    if found or expected["queue"] == "gated":
        return found
    return [
        *_compare_generate(expected.get("generate"), answer.get("generate")),
        *_compare_evaluations(expected.get("evaluations", ()), answer.get("evaluations", ())),
        *_compare_scores(expected.get("scores", ()), answer.get("scores", ())),
        *_compare_outcome(expected.get("outcomes", ()), answer.get("outcomes", ())),
        *_compare_cycle(expected.get("cycles", ()), answer["cycles"][0]),
    ]


def _compare_generate(expected: Json | None, got: Json | None) -> Iterable[str]:
    if expected is None or got is None:
        if expected != got:
            yield f"generate: expected {expected}, got {got}"
        return
    for field in ("status", "placements"):
        if expected[field] != got[field]:
            yield f"generate.{field}: expected {expected[field]}, got {got[field]}"
    if "messages" in expected and not set(got["messages"]) <= set(expected["messages"]):
        yield f"generate.messages: expected one of {expected['messages']}, got {got['messages']}"


def _compare_evaluations(expected: Iterable[Json], got: Iterable[Json]) -> Iterable[str]:
    wanted = {e["placement"]: e["outcomes"] for e in expected}
    found = {e["placement"]: e["outcomes"][0] for e in got}
    if wanted.keys() != found.keys():
        yield f"evaluations of {sorted(wanted)}, got {sorted(found)}"
        return
    for placement, outcome in found.items():
        if outcome not in wanted[placement]:
            yield f"evaluation of {placement}: {outcome} is none of {wanted[placement]}"


def _compare_scores(expected: Iterable[Any], got: Iterable[Any]) -> Iterable[str]:
    def comparable(scores: Any) -> list[Any]:
        return sorted((s["placement"], s["plugins"], s["total"]) for s in scores)

    wanted = [comparable(scores) for scores in expected]
    for scores in got:
        if comparable(scores) not in wanted:
            yield f"scores: {comparable(scores)} are none of {wanted}"
    if bool(wanted) != bool(list(got)):
        yield f"scores: expected {wanted}, got {list(got)}"


def _compare_outcome(expected: Iterable[Json], got: Iterable[Json]) -> Iterable[str]:
    """Of an unschedulable group only the status and that it has no assignment: which placement is told is up to chance."""

    def comparable(outcome: Json) -> tuple[Any, ...]:
        if outcome["status"] != "Success":
            return (outcome["status"],)
        return (outcome["status"], outcome["placement"], outcome["assignment"], outcome.get("pods", []))

    wanted = [comparable(outcome) for outcome in expected]
    for outcome in got:
        if comparable(outcome) not in wanted:
            yield f"outcome: {comparable(outcome)} is none of {wanted}"


def _compare_cycle(expected: Iterable[Json], got: Json) -> Iterable[str]:
    """Samples, so only what does not depend on which nodes were drawn: the condition, the group's place, how many are left."""

    def comparable(cycle: Json) -> tuple[Any, ...]:
        return cycle["condition"], cycle["queue"]

    wanted = [comparable(cycle) for cycle in expected]
    if comparable(got) not in wanted:
        yield f"after the cycle: {comparable(got)} is none of {wanted}"

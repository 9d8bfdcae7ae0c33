"""Bindings, evictions and scales, by the rules of the real server.

bind     the pod gets its node and the binding's annotations; the node need not exist, and is not asked
evict    the pod's disruption budget is asked, and charged in the same transaction; more than one budget is an error there, and so here
scale    the replicas of what has some
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Condition, Node, Pod, PodDisruptionBudget
from tidelog.api.pod_status import DISRUPTION_TARGET, bound_to, charged, is_terminal, with_pod_condition
from tidelog.api.times import NANOS
from tidelog.daemon.intake.facts import CLUSTER
from tidelog.eventlog.log import AppendMoment
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import Draft, ObjectPut
from tidelog.framework.disruption_budgets import is_ready, selects
from tidelog.framework.node_info import PodInfo
from tidelog.kube import status
from tidelog.kube.resources import catalogue
from tidelog.kube.serve.items import Item
from tidelog.kube.serve.tables import at
from tidelog.kube.serve.writes import Options, Preconditions, Writer, check_preconditions

PODS = catalogue().by_kind["Pod"]
BY_EVICTION = "EvictionByEvictionAPI"
TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""Labels that a pod gets from its node when it is bound."""
DISRUPTED_MAX = 2000
"""So many evictions may be under way on the account of one budget, as in Kubernetes."""
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


# --- binding ----------------------------------------------------------------------------------------------------------------


async def bind(writer: Writer, namespace: str, name: str, body: Any, options: Options) -> None:
    """Bind a pod. Raises ApiError."""
    if not isinstance(body, dict):
        raise status.bad_request("the body of the request must be a Binding")
    node = at(body, "target", "name")
    meta = _mapping(body, "metadata")
    if meta.get("name") != name:
        raise status.bad_request("name in URL does not match name in Binding object")
    kind = at(body, "target", "kind")
    if not isinstance(node, str) or not node:
        raise status.ApiError(500, "", "target.name: Required value")
    if kind not in (None, "", "Node"):
        raise status.ApiError(
            500, "", f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"'
        )
    uid, version = _text(meta, "uid"), _text(meta, "resourceVersion")
    annotations = _mapping(meta, "annotations")

    def decide(table: ObjectTable, moment: AppendMoment) -> tuple[Sequence[Draft], None]:
        spot = writer.spot(table, PODS, namespace, name)
        pod = spot.entry.object
        assert isinstance(pod, Pod)
        _check_identity(name, pod, uid, version, str(spot.item.revision))
        why = _unbindable(pod)
        if why:
            message = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
            raise status.ApiError(409, "Conflict", message, {"name": name, "kind": "pods/binding"})
        new = _bound(pod, node, annotations, table.get(f"Node//{node}"), moment)
        return [Draft(body=ObjectPut(object=new), author=CLUSTER, key=spot.key)], None

    await writer.change(decide, dry_run=options.dry_run)


def _mapping(value: dict[str, Any], field: str) -> dict[str, Any]:
    found = value.get(field)
    return found if isinstance(found, dict) else {}


def _text(meta: dict[str, Any], field: str) -> str:
    found = meta.get(field)
    return found if isinstance(found, str) else ""


def _check_identity(name: str, pod: Pod, uid: str, version: str, revision: str) -> None:
    if uid and uid != pod.metadata.uid:
        why = f"UID in precondition: {uid}, UID in object meta: {pod.metadata.uid}"
    elif version and version != revision:
        why = f"ResourceVersion in precondition: {version}, ResourceVersion in object meta: {revision}"
    else:
        return
    key = f"/registry/pods/{pod.metadata.namespace}/{name}"
    why = (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {why}"
    )
    raise status.conflict("", "pods", name, why)


def _unbindable(pod: Pod) -> str:
    name = pod.metadata.name
    if pod.metadata.deletion_timestamp:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if pod.spec.node_name:
        return f'pod {name} is already assigned to node "{pod.spec.node_name}"'
    if pod.spec.scheduling_gates:
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _bound(pod: Pod, node_name: str, annotations: dict[str, Any], node: Any, moment: AppendMoment) -> Pod:
    new = bound_to(pod, node_name, moment.at)
    labels = dict(pod.metadata.labels)
    if isinstance(node, Node):
        labels |= {key: node.metadata.labels[key] for key in TOPOLOGY_LABELS if key in node.metadata.labels}
    taken = {key: value for key, value in annotations.items() if isinstance(value, str)}
    meta = replace(
        new.metadata,
        labels=labels,
        annotations=pod.metadata.annotations | taken,
        resource_version=str(moment.seq + 1),
    )
    return replace(new, metadata=meta)


# --- eviction ---------------------------------------------------------------------------------------------------------------


async def evict(
    writer: Writer,
    namespace: str,
    name: str,
    preconditions: Preconditions,
    grace: int | None,
    options: Options,
) -> None:
    """Evict a pod, if its budget allows it. Raises ApiError, with 429 if it does not."""

    def decide(table: ObjectTable, moment: AppendMoment) -> tuple[Sequence[Draft], None]:
        spot = writer.spot(table, PODS, namespace, name)
        check_preconditions(PODS, spot, preconditions)
        pod = spot.entry.object
        assert isinstance(pod, Pod)
        drafts: list[Draft] = []
        if pod.metadata.deletion_timestamp:
            return drafts, None
        if pod.status.phase != "Pending" and not is_terminal(pod):
            drafts += _charge(table, pod, moment)
        new = _disrupted(pod, moment, len(drafts) + 1)
        entry = replace(spot.entry, object=new)
        before = len(drafts)
        writer.deletion(PODS, spot._replace(entry=entry), table, moment, drafts, grace)
        if len(drafts) == before:
            drafts.append(Draft(body=ObjectPut(object=new), author=CLUSTER, key=spot.key))
        return drafts, None

    await writer.change(decide, dry_run=options.dry_run)


def _disrupted(pod: Pod, moment: AppendMoment, place: int) -> Pod:
    condition = Condition(
        type=DISRUPTION_TARGET, status="True", reason=BY_EVICTION, message="Eviction API: evicting"
    )
    new = with_pod_condition(pod, condition, moment.at // NANOS * NANOS)
    return replace(new, metadata=replace(new.metadata, resource_version=str(moment.seq + place)))


def _charge(table: ObjectTable, pod: Pod, moment: AppendMoment) -> list[Draft]:
    """Take the eviction out of the pod's budget; nothing if there is none, or if it costs nothing."""
    info = PodInfo(pod)
    budgets = [
        budget
        for budget in table.cluster.of_kind("PodDisruptionBudget", pod.metadata.namespace)
        if isinstance(budget, PodDisruptionBudget) and selects(budget, info)
    ]
    if not budgets:
        return []
    if len(budgets) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise status.ApiError(500, "", message)
    budget = budgets[0]
    now = budget.status
    if not is_ready(pod):
        if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
            return []
        if now.current_healthy >= now.desired_healthy > 0:
            return []
    _check_budget(budget)
    changed = charged(budget, pod.metadata.name, moment.at // NANOS * NANOS)
    changed = replace(changed, metadata=replace(changed.metadata, resource_version=str(moment.seq + 1)))
    return [Draft(body=ObjectPut(object=changed), author=CLUSTER, key=object_key(changed))]


def _check_budget(budget: PodDisruptionBudget) -> None:
    name, now = budget.metadata.name, budget.status
    if now.observed_generation < budget.metadata.generation:
        why = f"The disruption budget {name} is still being processed by the server."
        raise _refusal(why, retry_after=10)
    if len(now.disrupted_pods) > DISRUPTED_MAX:
        raise status.forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        )
    if now.disruptions_allowed <= 0:
        if now.current_healthy <= now.desired_healthy:
            why = (
                f"The disruption budget {name} needs {now.desired_healthy} healthy pods and has "
                f"{now.current_healthy} currently"
            )
        else:
            why = f"The disruption budget {name} does not allow evicting pods currently"
        raise _refusal(why)


def _refusal(why: str, retry_after: int | None = None) -> status.ApiError:
    causes = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    return status.ApiError(429, "TooManyRequests", REFUSED, causes, retry_after=retry_after)


# --- scale ------------------------------------------------------------------------------------------------------------------


def scale_of(item: Item) -> dict[str, Any]:
    """The Scale of an object."""
    manifest = item.manifest
    meta = manifest["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    wanted = at(manifest, "spec", "replicas")
    found: dict[str, Any] = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: meta[key] for key in kept if key in meta},
        "spec": {"replicas": 1 if wanted is None else wanted},
        "status": {"replicas": at(manifest, "status", "replicas") or 0},
    }
    labels = at(manifest, "spec", "selector", "matchLabels") or at(manifest, "spec", "selector")
    if isinstance(labels, dict) and all(isinstance(value, str) for value in labels.values()):
        found["status"]["selector"] = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    return found


def scaled(scale: Any) -> tuple[dict[str, Any], str]:
    """The merge patch that a Scale is, and the revision that it is about. Raises ApiError."""
    replicas = at(scale, "spec", "replicas")
    if replicas is None:
        replicas = 0
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        raise status.bad_request("spec.replicas must be a number, and not negative")
    version = at(scale, "metadata", "resourceVersion")
    meta = {"resourceVersion": version} if isinstance(version, str) and version else {}
    return {"metadata": meta, "spec": {"replicas": replicas}}, str(version or "")

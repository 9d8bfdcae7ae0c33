"""Builds the request for each effect: paths and bodies, pure.

All of them may be sent again: a binding by uid is refused the second time, a patch says the whole of what it wants, an eviction and a
deletion carry the uid of the pod that is meant.
"""

from __future__ import annotations

from typing import Any

from tidelog.api.objects import Object, Pod, PodGroup, pod_condition
from tidelog.api.overrides import DECISION, EXPLAIN
from tidelog.api.pod_status import DISRUPTION_TARGET, GROUP_SCHEDULED, POD_SCHEDULED, PREEMPTION_BY_SCHEDULER
from tidelog.api.times import NANOS, format_time
from tidelog.api.writes import Write
from tidelog.eventlog.promises import PromisedEffect
from tidelog.kube.cluster.port import MERGE, STRATEGIC_MERGE, Request
from tidelog.kube.events import cut

WRITE_SECONDS = 5.0
"""Half of what a leader may go on without its Lease: no write is under way when another may lead."""


def _write(method: str, path: str, body: Any, content_type: str = "application/json") -> Request:
    # The server must not go on with one that waited in its queues for longer than we wait for the answer.
    query = {"timeout": f"{WRITE_SECONDS:g}s"}
    return Request(
        method=method,
        path=path,
        query=query,
        body=body,
        content_type=content_type,
        seconds=WRITE_SECONDS,
    )


def pod_path(pod: Pod, part: str = "") -> str:
    """Of the pod, or of a subresource."""
    path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
    return f"{path}/{part}" if part else path


def reading(path: str, obj: Object, *, namespaced: bool) -> Request:
    """The object as it is now. `path`: where the kind is served."""
    return Request(method="GET", path=_path_of(path, obj, namespaced=namespaced), seconds=WRITE_SECONDS)


def _path_of(path: str, obj: Object, *, namespaced: bool) -> str:
    base, _, plural = path.rpartition("/")
    meta = obj.metadata
    return f"{base}/namespaces/{meta.namespace}/{plural}/{meta.name}" if namespaced else f"{path}/{meta.name}"


def binding(pod: Pod, effect: PromisedEffect, log_id: str, *, strict: bool = False) -> Request:
    """The pod, of this uid and no other, goes to the node. The server copies the annotation to it in the same write."""
    meta = pod.metadata
    told = {
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "annotations": {DECISION: decision(log_id, effect)},
    }
    if strict:
        told["resourceVersion"] = meta.resource_version
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": told,
        "target": {"apiVersion": "v1", "kind": "Node", "name": effect.node},
    }
    return _write("POST", pod_path(pod, "binding"), body)


def decision(log_id: str, effect: PromisedEffect) -> str:
    """Return the value of the annotation: whose decision, and where it stands."""
    return f"{log_id}/{effect.seq}"


def status_patch(
    pod: Pod,
    status: PromisedEffect | None,
    nominate: PromisedEffect | None,
    explanation: str | None = None,
) -> Request:
    """The pod's condition and nomination in one patch; `pod` has both already. `explanation`: for an annotation, which goes where there is none; None leaves it alone."""
    changes: dict[str, Any] = {}
    if status is not None:
        changes["conditions"] = [_condition(pod, POD_SCHEDULED)]
    if nominate is not None:
        changes["nominatedNodeName"] = nominate.node or None
    told: dict[str, Any] = {"uid": pod.metadata.uid}
    if explanation or (explanation is not None and EXPLAIN in pod.metadata.annotations):
        told["annotations"] = {EXPLAIN: cut(explanation) or None}
    body = {"metadata": told, "status": changes}
    return _write("PATCH", pod_path(pod, "status"), body, STRATEGIC_MERGE)


def _condition(pod: Pod, type: str) -> dict[str, Any]:
    found = pod_condition(pod, type)
    assert found is not None, f"what is promised of {pod.metadata.name} is put over it"
    told: dict[str, Any] = {
        "type": type,
        "status": found.status,
        "reason": found.reason,
        "message": found.message,
        "lastProbeTime": None,
        "lastTransitionTime": _seconds(found.last_transition_time),
    }
    if pod.metadata.generation:
        told["observedGeneration"] = pod.metadata.generation
    return told


def _seconds(time: str) -> str:
    """Kubernetes' times of conditions have no fraction."""
    head, dot, _ = time.partition(".")
    return f"{head}Z" if dot else time


def eviction(pod: Pod) -> Request:
    """The pod is to go, if its disruption budget allows it."""
    meta = pod.metadata
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "deleteOptions": {"preconditions": {"uid": meta.uid}},
    }
    return _write("POST", pod_path(pod, "eviction"), body)


def disruption_target(pod: Pod, effect: PromisedEffect) -> Request:
    """Say why, before it is deleted."""
    condition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": PREEMPTION_BY_SCHEDULER,
        "message": effect.message,
        "lastTransitionTime": format_time(effect.at - effect.at % NANOS),
    }
    body = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
    return _write("PATCH", pod_path(pod, "status"), body, STRATEGIC_MERGE)


def deletion(pod: Pod) -> Request:
    """The pod is to go, whatever its budgets say."""
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": pod.metadata.uid}}
    return _write("DELETE", pod_path(pod), body)


def group_patch(path: str, group: PodGroup, effect: PromisedEffect) -> Request:
    """The group's condition. `path`: where the kind is served, for the whole cluster."""
    meta = group.metadata
    condition = {
        "type": GROUP_SCHEDULED,
        "status": effect.status,
        "reason": effect.reason,
        "message": effect.message,
        "lastTransitionTime": format_time(effect.at - effect.at % NANOS),
    }
    body = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
    where = _path_of(path, group, namespaced=True)
    return _write("PATCH", f"{where}/status", body, STRATEGIC_MERGE)


def object_patches(path: str, obj: Object, write: Write, *, namespaced: bool) -> list[Request]:
    """Return the requests for a change that a plugin wants: of the object, and of its status, which has a URL of its own. `path`: where the kind is served.

    The object must be as it was when that was decided: whoever came first, came first.
    """
    if write.verb == "create":
        return [_creation(path, obj, write, namespaced=namespaced)]
    meta, where = obj.metadata, _path_of(path, obj, namespaced=namespaced)
    sure = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    found: list[Request] = []
    for part, target in (("", where), ("status", f"{where}/status")):
        changes = {name: value for name, value in write.patch.items() if (name == "status") == bool(part)}
        if changes:
            # The first of two makes another version of it.
            told = sure if not found else {"uid": meta.uid}
            body = {**changes, "metadata": {**changes.get("metadata", {}), **told}}
            found.append(_write("PATCH", target, body, MERGE))
    if write.verb == "delete":
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meta.uid}}
        found.append(_write("DELETE", where, body))
    return found


def _creation(path: str, obj: Object, write: Write, *, namespaced: bool) -> Request:
    """All but its status, and what only the server gives."""
    own = ("uid", "resourceVersion", "creationTimestamp", "generation")
    metadata = {name: value for name, value in write.patch.get("metadata", {}).items() if name not in own}
    base, _, plural = path.rpartition("/")
    group = base.removeprefix("/apis/") if base.startswith("/apis/") else base.removeprefix("/api/")
    body = {
        "apiVersion": group,
        "kind": write.key.partition("/")[0],
        **{name: value for name, value in write.patch.items() if name not in ("status", "metadata")},
        "metadata": metadata,
    }
    return _write(
        "POST", f"{base}/namespaces/{obj.metadata.namespace}/{plural}" if namespaced else path, body
    )

"""An API server in memory, as far as this client knows one: resourceVersions, a window, streaming lists, 410, lost answers.

It implements `ClusterPort` on the test's own event loop and clock; nothing in it waits for real time. A test puts and deletes objects as
others would, and bends the server: cuts watches, shrinks the window, sets it back, delays a kind, loses answers before or after they are carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from tidelog.api.writes import merged
from tidelog.kube.cluster.port import MERGE, Answer, NoAnswer, NotSent, Request, Stream
from tidelog.kube.cluster.rights import REVIEWS

RESOURCES = {
    "/api/v1": (
        "pods",
        "nodes",
        "namespaces",
        "services",
        "replicationcontrollers",
        "persistentvolumes",
        "persistentvolumeclaims",
    ),
    "/apis/apps/v1": ("replicasets", "statefulsets"),
    "/apis/policy/v1": ("poddisruptionbudgets",),
    "/apis/storage.k8s.io/v1": ("storageclasses",),
    "/apis/resource.k8s.io/v1": ("resourceclaims", "resourceslices", "deviceclasses"),
    "/apis/scheduling.k8s.io/v1": ("priorityclasses",),
    "/apis/scheduling.k8s.io/v1beta1": ("podgroups",),
}
KINDS = {
    "pods": "Pod",
    "nodes": "Node",
    "namespaces": "Namespace",
    "services": "Service",
    "replicationcontrollers": "ReplicationController",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "priorityclasses": "PriorityClass",
    "podgroups": "PodGroup",
    "leases": "Lease",
    "persistentvolumes": "PersistentVolume",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "storageclasses": "StorageClass",
    "resourceclaims": "ResourceClaim",
    "resourceslices": "ResourceSlice",
    "deviceclasses": "DeviceClass",
}
Json = dict[str, Any]


class _Watch:
    """Somebody who watches a resource."""

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.lines: list[bytes] = []
        self.come = asyncio.Event()
        self.ended = False
        self.broken = False

    def send(self, type: str, obj: Json) -> None:
        self.lines.append(msgspec.json.encode({"type": type, "object": obj}))
        self.come.set()

    def end(self, *, broken: bool = False) -> None:
        self.ended, self.broken = True, broken
        self.come.set()


class MemoryServer:
    """Implements `ClusterPort`."""

    name = "memory"

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, dict[str, Json]] = {resource: {} for resource in KINDS}
        """Resource → `namespace/name` → object."""
        self.history: list[tuple[int, str, str, Json]] = []
        """(version, resource, type, object): the window."""
        self.window_from = 0
        """Events up to this version are forgotten."""
        self.brief: dict[str, list[Json]] = {}
        """Resource → objects that come and go while a list of them is streamed."""
        self.streams_lists = True
        self.held: dict[str, list[tuple[str, Json]]] = {}
        """Resources whose events wait: kinds come in another order then."""
        self.unreachable = False
        self.refuse: Callable[[Request], Answer | None] = lambda request: None
        """Answers instead of the server, before anything is carried out."""
        self.lose: Callable[[Request], bool] = lambda request: False
        """The request is carried out, and its answer lost."""
        self.before: Callable[[Request], None] = lambda request: None
        """Called before a write is carried out."""
        self.gate: asyncio.Event | None = None
        """Writes wait for it."""
        self.requests: list[Request] = []
        self.bindings: dict[str, list[tuple[str, str]]] = {}
        """Uid → (node, annotation) of each binding that was answered with 201."""
        self.renewed = 0
        self._watches: list[_Watch] = []
        self._uids = 0
        self.put("namespaces", "", "kube-system")

    # --- what a test does -----------------------------------------------------------------------------------------------

    def put(self, resource: str, namespace: str, name: str, **content: Any) -> Json:
        """Create it, or change these parts of it."""
        key = f"{namespace}/{name}"
        known = self.objects[resource].get(key)
        if known is None:
            self._uids += 1
            meta = {"name": name, "uid": f"uid-{self._uids}", "creationTimestamp": "2026-11-19T00:00:00Z"}
            if namespace:
                meta["namespace"] = namespace
            known = {"kind": KINDS[resource], "apiVersion": "v1", "metadata": meta}
            content = copy.deepcopy(content)
            known["metadata"].update(content.pop("metadata", {}))
            known.update(content)
            return self._store(resource, key, known, "ADDED")
        new = copy.deepcopy(known)
        _merge(new, content)
        return self._store(resource, key, new, "MODIFIED")

    def delete(self, resource: str, namespace: str, name: str) -> None:
        """It is gone."""
        obj = copy.deepcopy(self.objects[resource].pop(f"{namespace}/{name}"))
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self._tell(resource, "DELETED", obj)

    def add_pod(self, name: str, cpu: str = "100m", namespace: str = "default", **spec: Any) -> Json:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        status = {"phase": "Pending"}
        labels = spec.pop("labels", {"app": name})
        spec = {"schedulerName": "default-scheduler", "containers": [container], "priority": 0, **spec}
        return self.put("pods", namespace, name, spec=spec, status=status, metadata={"labels": labels})

    def add_node(self, name: str, cpu: str = "4", zone: str = "") -> Json:
        labels = {"topology.kubernetes.io/zone": zone} if zone else {}
        allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        return self.put(
            "nodes", "", name, metadata={"labels": labels}, spec={}, status={"allocatable": allocatable}
        )

    def pod(self, name: str, namespace: str = "default") -> Json:
        return self.objects["pods"][f"{namespace}/{name}"]

    def bound(self) -> dict[str, str]:
        """Pod → node."""
        return {
            key: p["spec"]["nodeName"] for key, p in self.objects["pods"].items() if p["spec"].get("nodeName")
        }

    def cut(self, *, broken: bool = False) -> None:
        """End every watch."""
        for watch in self._watches:
            watch.end(broken=broken)
        self._watches.clear()

    def compact(self) -> None:
        """Forget what happened: older watches are answered with 410."""
        self.history.clear()
        self.window_from = self.version

    def bookmark(self) -> None:
        for watch in self._watches:
            watch.send("BOOKMARK", self._mark(watch.resource))

    def hold(self, *resources: str) -> None:
        """Let events of these wait until `let_go`."""
        for resource in resources:
            self.held.setdefault(resource, [])

    def let_go(self) -> None:
        held, self.held = self.held, {}
        for resource, events in held.items():
            for event, obj in events:
                self._send(resource, event, obj)

    def repeat(self, resource: str) -> None:
        """Say the last event once more."""
        for _, found, event, obj in reversed(self.history):
            if found == resource:
                self._send(resource, event, obj)
                return

    def snapshot(self) -> Any:
        return copy.deepcopy((self.version, self.objects))

    def restore(self, snapshot: Any) -> None:
        """As if etcd were restored: the version goes back, and every watch ends."""
        self.version, self.objects = copy.deepcopy(snapshot)
        self.history.clear()
        self.window_from = self.version
        self.cut()

    # --- the port ---------------------------------------------------------------------------------------------------------

    async def renew(self) -> None:
        self.renewed += 1

    async def send(self, request: Request) -> Answer:
        await asyncio.sleep(0)
        if self.unreachable:
            raise NotSent("memory: connection refused")
        self.requests.append(request)
        refused = self.refuse(request)
        if refused is not None:
            return refused
        if request.method != "GET":
            self.before(request)
            if (
                self.gate is not None and request.path != REVIEWS
            ):  # A question changes nothing, though it is a POST.
                await self.gate.wait()
        status, body = self._answer(request)
        await asyncio.sleep(0)
        if request.method != "GET" and self.lose(request):
            raise NoAnswer("memory: the answer was lost")
        return Answer(status=status, body=msgspec.json.encode(body))

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        await asyncio.sleep(0)
        if self.unreachable:
            raise NotSent("memory: connection refused")
        self.requests.append(request)
        refused = self.refuse(request)
        if refused is not None:
            yield _Body(refused.status, refused.body)
            return
        resource = request.path.rpartition("/")[2]
        query = request.query
        watch = _Watch(resource)
        if query.get("sendInitialEvents") == "true":
            if not self.streams_lists:
                yield _Body(
                    422, msgspec.json.encode(_status(422, "Invalid", "sendInitialEvents is forbidden"))
                )
                return
            for obj in self._visible(resource):
                watch.send("ADDED", obj)
            for obj in self.brief.get(resource, ()):
                watch.send("ADDED", obj)
                watch.send("DELETED", obj)
            mark = self._mark(resource)
            mark["metadata"]["annotations"] = {"k8s.io/initial-events-end": "true"}
            watch.send("BOOKMARK", mark)
        else:
            since = int(query["resourceVersion"])
            if since < self.window_from:
                watch.send("ERROR", _status(410, "Expired", "too old resource version"))
                watch.end()
            for version, found, event, obj in self.history:
                if found == resource and version > since and not watch.ended:
                    watch.send(event, obj)
        if not watch.ended:
            self._watches.append(watch)
        try:
            yield _Lines(watch)
        finally:
            if watch in self._watches:
                self._watches.remove(watch)

    # --- requests ---------------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> tuple[int, Json]:
        path, method = request.path, request.method
        if path == "/version":
            return 200, {"gitVersion": "v1.37.0-memory"}
        if path in RESOURCES:
            return 200, {"resources": [{"name": name} for name in RESOURCES[path]]}
        parts = path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        if not rest:
            return 404, _status(404, "NotFound", path)
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        if rest[0] == "events":
            return 201, {}
        if rest[0] not in self.objects:
            return 404, _status(404, "NotFound", path)
        if len(rest) == 1:
            return (
                self._list(rest[0], request) if method == "GET" else self._create(rest[0], namespace, request)
            )
        resource, name, *part = rest
        known = self.objects[resource].get(f"{namespace}/{name}")
        if known is None:
            return 404, _status(404, "NotFound", f"{resource} {name!r} not found")
        if method == "GET":
            return 200, known
        if part == ["binding"]:
            return self._bind(known, request.body)
        if part == ["eviction"]:
            return self._evict(known, request.body)
        if method == "PATCH":
            if request.content_type == MERGE:
                return self._merge_patch(resource, known, request.body)
            return self._patch(resource, known, request.body)
        if method == "PUT":
            return self._replace(resource, known, request.body)
        return self._terminate(known, request.body)

    def _list(self, resource: str, request: Request) -> tuple[int, Json]:
        items = self._visible(resource)
        start = int(request.query.get("continue", "0"))
        limit = int(request.query.get("limit", "0")) or len(items) or 1
        meta = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            meta["continue"] = str(start + limit)
        return 200, {"metadata": meta, "items": items[start : start + limit]}

    def _visible(self, resource: str) -> list[Json]:
        return [obj for obj in self.objects[resource].values() if _is_visible(resource, obj)]

    def _create(self, resource: str, namespace: str, request: Request) -> tuple[int, Json]:
        name = request.body["metadata"]["name"]
        if f"{namespace}/{name}" in self.objects[resource]:
            return 409, _status(409, "AlreadyExists", name)
        told = {
            k: v
            for k, v in request.body["metadata"].items()
            if k in ("annotations", "finalizers", "ownerReferences")
        }
        return 201, self.put(resource, namespace, name, spec=request.body.get("spec", {}), metadata=told)

    def _bind(self, pod: Json, body: Json) -> tuple[int, Json]:
        meta = pod["metadata"]
        if body["metadata"].get("uid") not in (None, meta["uid"]):
            return 409, _status(409, "Conflict", "uid")
        if pod["spec"].get("nodeName"):
            return 409, _status(409, "Conflict", f"already assigned to {pod['spec']['nodeName']}")
        if meta.get("deletionTimestamp") or pod["spec"].get("schedulingGates"):
            return 409, _status(409, "Conflict", "gated or terminating")
        node = body["target"]["name"]
        annotation = body["metadata"].get("annotations", {})
        self.bindings.setdefault(meta["uid"], []).append((node, next(iter(annotation.values()), "")))
        found = self.objects["nodes"].get(f"/{node}", {})
        zone = found.get("metadata", {}).get("labels", {}).get("topology.kubernetes.io/zone")
        labels = {**meta.get("labels", {}), **({"topology.kubernetes.io/zone": zone} if zone else {})}
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-19T00:00:01Z"}
        status = {"conditions": _with(pod, condition), "nominatedNodeName": None}
        self.put(
            "pods",
            meta["namespace"],
            meta["name"],
            metadata={"annotations": annotation, "labels": labels},
            spec={"nodeName": node},
            status=status,
        )
        return 201, _status(201, "", "")

    def _evict(self, pod: Json, body: Json) -> tuple[int, Json]:
        meta = pod["metadata"]
        if body["deleteOptions"]["preconditions"]["uid"] != meta["uid"]:
            return 409, _status(409, "Conflict", "uid")
        budgets = [
            b
            for b in self.objects["poddisruptionbudgets"].values()
            if b["metadata"]["namespace"] == meta["namespace"]
            and b["spec"]["selector"]["matchLabels"].items() <= meta.get("labels", {}).items()
        ]
        if len(budgets) > 1:
            return 500, _status(500, "", "more than one budget")
        if budgets and budgets[0]["status"]["disruptionsAllowed"] < 1:
            return 429, _status(429, "TooManyRequests", "budget", cause="DisruptionBudget")
        for budget in budgets:
            name = budget["metadata"]["name"]
            allowed = budget["status"]["disruptionsAllowed"] - 1
            disrupted = {**budget["status"].get("disruptedPods", {}), meta["name"]: "2026-11-19T00:00:02Z"}
            status = {"disruptionsAllowed": allowed, "disruptedPods": disrupted}
            self.put("poddisruptionbudgets", meta["namespace"], name, status=status)
        self._begin_to_end(pod)
        return 201, _status(201, "", "")

    def _begin_to_end(self, pod: Json) -> None:
        meta = pod["metadata"]
        if not pod["spec"].get("nodeName"):
            self.delete("pods", meta["namespace"], meta["name"])
        elif not meta.get("deletionTimestamp"):
            stamp = {"deletionTimestamp": "2026-11-19T00:00:32Z", "deletionGracePeriodSeconds": 30}
            self.put("pods", meta["namespace"], meta["name"], metadata=stamp)

    def _terminate(self, pod: Json, body: Json | None) -> tuple[int, Json]:
        uid = ((body or {}).get("preconditions") or {}).get("uid")
        if uid not in (None, pod["metadata"]["uid"]):
            return 409, _status(409, "Conflict", "uid")
        self._begin_to_end(pod)
        return 200, _status(200, "", "")

    def _patch(self, resource: str, known: Json, body: Json) -> tuple[int, Json]:
        meta = known["metadata"]
        if body.get("metadata", {}).get("uid") not in (None, meta["uid"]):
            return 422, _status(422, "Invalid", "uid is immutable")
        status = dict(body["status"])
        conditions = known.get("status", {}).get("conditions", [])
        for condition in status.get("conditions", ()):
            conditions = _with({"status": {"conditions": conditions}}, condition)
        if conditions:
            status["conditions"] = conditions
        changes = {"status": status}
        if "annotations" in body.get("metadata", {}):
            changes["metadata"] = {"annotations": body["metadata"]["annotations"]}
        changed = copy.deepcopy(known)
        _merge(changed, changes)
        if changed == known:
            return 200, known
        return 200, self.put(resource, meta.get("namespace", ""), meta["name"], **changes)

    def _merge_patch(self, resource: str, known: Json, body: Json) -> tuple[int, Json]:
        meta, told = known["metadata"], dict(body["metadata"])
        if (
            told.pop("uid") != meta["uid"]
            or told.pop("resourceVersion", meta["resourceVersion"]) != meta["resourceVersion"]
        ):
            return 409, _status(409, "Conflict", "changed")
        new = merged(known, {**body, "metadata": told})
        return 200, self._store(resource, f"{meta.get('namespace', '')}/{meta['name']}", new, "MODIFIED")

    def _replace(self, resource: str, known: Json, body: Json) -> tuple[int, Json]:
        meta = known["metadata"]
        if body["metadata"].get("resourceVersion") != meta["resourceVersion"]:
            return 409, _status(409, "Conflict", "changed")
        return 200, self.put(resource, meta.get("namespace", ""), meta["name"], spec=body["spec"])

    # --- telling ----------------------------------------------------------------------------------------------------------

    def _store(self, resource: str, key: str, obj: Json, type: str) -> Json:
        before = self.objects[resource].get(key)
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects[resource][key] = obj
        was = before is not None and _is_visible(resource, before)
        now = _is_visible(resource, obj)
        if was and not now:
            left = copy.deepcopy(before)
            assert left is not None
            left["metadata"]["resourceVersion"] = str(self.version)
            self._tell(resource, "DELETED", left)
        elif now:
            self._tell(resource, type if was or type == "ADDED" else "ADDED", obj)
        return obj

    def _tell(self, resource: str, type: str, obj: Json) -> None:
        obj = copy.deepcopy(obj)
        self.history.append((self.version, resource, type, obj))
        if resource in self.held:
            self.held[resource].append((type, obj))
        else:
            self._send(resource, type, obj)

    def _send(self, resource: str, type: str, obj: Json) -> None:
        for watch in self._watches:
            if watch.resource == resource:
                watch.send(type, obj)

    def _mark(self, resource: str) -> Json:
        return {
            "kind": KINDS[resource],
            "metadata": {"resourceVersion": str(self.version)},
            "spec": {"containers": None},
        }


class _Lines:
    """Implements `Stream`."""

    def __init__(self, watch: _Watch) -> None:
        self.status = 200
        self.retry_after = None
        self._watch = watch

    async def read(self) -> bytes:
        return b""

    async def lines(self) -> AsyncIterator[list[bytes]]:
        watch = self._watch
        while True:
            lines, watch.lines = watch.lines, []
            watch.come.clear()
            if lines:
                yield lines
            elif watch.ended:
                if watch.broken:
                    raise NoAnswer("memory: connection reset")
                return
            else:
                await watch.come.wait()


class _Body:
    """Implements `Stream` for an answer that is none."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.retry_after = None
        self._body = body

    async def read(self) -> bytes:
        return self._body

    async def lines(self) -> AsyncIterator[list[bytes]]:
        raise AssertionError("it is no stream")
        yield []


def _is_visible(resource: str, obj: Json) -> bool:
    return resource != "pods" or obj.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def _with(pod: Json, condition: Json) -> list[Json]:
    others = [c for c in pod.get("status", {}).get("conditions", []) if c["type"] != condition["type"]]
    return [*others, condition]


def _merge(target: Json, changes: Json) -> None:
    for key, value in changes.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)


def _status(code: int, reason: str, message: str, cause: str = "") -> Json:
    found: Json = {"kind": "Status", "code": code, "reason": reason, "message": message}
    if cause:
        found["details"] = {"causes": [{"reason": cause, "message": message}]}
    return found

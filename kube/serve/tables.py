"""Tables: objects as `kubectl get` prints them, with the columns that the real server has.

kubectl asks for `as=Table` and prints what it gets. A column of priority 1 is shown with `-o wide`. Kinds without columns of their own have a name and
an age.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from tidelog.api.kinds.columns import number_or_none
from tidelog.api.times import NANOS, parse_time
from tidelog.kube.resources import catalogue
from tidelog.kube.serve.items import Item

Include = Literal["Metadata", "Object", "None"]


class Column(NamedTuple):
    """A column, and what is in it."""

    name: str
    cell: Callable[[Mapping[str, Any], int], Any]
    """The object and the time."""
    type: str = "string"
    wide: bool = False
    format: str = ""

    def definition(self) -> dict[str, Any]:
        """As a table says it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": "",
            "priority": 1 if self.wide else 0,
        }


def table(
    kind: str,
    items: Sequence[Item],
    include: Include,
    now: int,
    metadata: Mapping[str, Any],
    *,
    headings: bool = True,
) -> dict[str, Any]:
    """The Table of some objects of a kind."""
    columns = columns_of(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in columns] if headings else [],
        "rows": [_row(kind, item, columns, include, now) for item in items],
    }


def _row(kind: str, item: Item, columns: Sequence[Column], include: Include, now: int) -> dict[str, Any]:
    manifest = item.manifest
    row: dict[str, Any] = {"cells": [column.cell(manifest, now) for column in columns]}
    if include == "Object":
        row["object"] = _whole(kind, manifest)
    elif include == "Metadata":
        row["object"] = partial(manifest)
    return row


def _whole(kind: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    resource = catalogue().by_kind[kind]
    return {"kind": kind, "apiVersion": resource.api_version, **manifest}


def partial(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": manifest["metadata"]}


def columns_of(kind: str) -> tuple[Column, ...]:
    """The columns of a kind."""
    return _COLUMNS.get(kind, (_NAME, _AGE))


# --- cells ------------------------------------------------------------------------------------------------------------------


def at(value: Any, *path: str | int) -> Any:
    """Return the value at the end of a path; None where it ends early."""
    for part in path:
        if isinstance(part, int):
            value = value[part] if isinstance(value, list) and -len(value) <= part < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def duration(nanos: int) -> str:
    """As kubectl says it: two units at most, and one of what is long ago."""
    seconds = max(nanos, 0) // NANOS
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    rest = days % 365
    return f"{years}y{rest}d" if years < 8 and rest else f"{years}y"


def _since(text: Any, now: int) -> str:
    if not isinstance(text, str) or not text:
        return "<unknown>"
    try:
        return duration(now - parse_time(text))
    except ValueError:
        return "<unknown>"


def _path(*path: str | int, default: Any = "") -> Callable[[Mapping[str, Any], int], Any]:
    def cell(obj: Mapping[str, Any], _now: int) -> Any:
        found = at(obj, *path)
        return default if found is None else found

    return cell


_NAME = Column("Name", _path("metadata", "name"), format="name")
_AGE = Column("Age", lambda obj, now: _since(at(obj, "metadata", "creationTimestamp"), now))
_NONE = "<none>"


def _pairs(found: Any) -> str:
    return (
        ",".join(f"{key}={value}" for key, value in sorted(found.items()))
        if isinstance(found, dict) and found
        else ""
    )


def _selector(obj: Mapping[str, Any], *path: str) -> str:
    found = at(obj, *path)
    if found is None:
        return _NONE
    parts = [_pairs(found.get("matchLabels"))] if found.get("matchLabels") else []
    for need in found.get("matchExpressions") or ():
        operator, key, values = (
            need.get("operator"),
            need.get("key"),
            ",".join(sorted(need.get("values") or ())),
        )
        parts.append(
            {"Exists": f"{key}", "DoesNotExist": f"!{key}", "In": f"{key} in ({values})"}.get(
                operator, f"{key} notin ({values})"
            )
        )
    return ",".join(parts) or _NONE


def _count(items: Any) -> int:
    return len(items) if isinstance(items, list) else 0


def _statuses(obj: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    found = at(obj, "status", field)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _pod_ready(obj: Mapping[str, Any], _now: int) -> str:
    total = _count(at(obj, "spec", "containers"))
    statuses = _statuses(obj, "containerStatuses")
    if statuses:
        ready = sum(bool(one.get("ready")) for one in statuses)
    else:
        ready = total if _condition(obj, "Ready") == "True" else 0
    return f"{ready}/{total}"


def _condition(obj: Mapping[str, Any], type: str) -> str:
    for condition in _statuses(obj, "conditions"):
        if condition.get("type") == type:
            return str(condition.get("status", ""))
    return ""


def _pod_status(obj: Mapping[str, Any], _now: int) -> str:
    reason = at(obj, "status", "reason") or at(obj, "status", "phase") or "Pending"
    for condition in _statuses(obj, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    for one in _statuses(obj, "containerStatuses"):
        reason = at(one, "state", "waiting", "reason") or at(one, "state", "terminated", "reason") or reason
    if at(obj, "metadata", "deletionTimestamp"):
        return "Terminating"
    return "Completed" if reason == "Succeeded" else str(reason)


def _restarts(obj: Mapping[str, Any], _now: int) -> str:
    return str(sum(one.get("restartCount", 0) for one in _statuses(obj, "containerStatuses")))


def _node_status(obj: Mapping[str, Any], _now: int) -> str:
    ready = {"True": "Ready", "": "Unknown"}.get(_condition(obj, "Ready"), "NotReady")
    return f"{ready},SchedulingDisabled" if at(obj, "spec", "unschedulable") else ready


def _node_roles(obj: Mapping[str, Any], _now: int) -> str:
    labels = at(obj, "metadata", "labels") or {}
    head = "node-role.kubernetes.io/"
    roles = sorted({key.removeprefix(head) for key in labels if key.startswith(head) and key != head})
    return ",".join(roles) or _NONE


def _address(type: str) -> Callable[[Mapping[str, Any], int], str]:
    def cell(obj: Mapping[str, Any], _now: int) -> str:
        for one in _statuses(obj, "addresses"):
            if one.get("type") == type:
                return str(one.get("address"))
        return _NONE

    return cell


def _names(*path: str) -> Callable[[Mapping[str, Any], int], str]:
    def cell(obj: Mapping[str, Any], _now: int) -> str:
        return ",".join(str(one.get("name")) for one in at(obj, *path) or ())

    return cell


def _images(*path: str) -> Callable[[Mapping[str, Any], int], str]:
    def cell(obj: Mapping[str, Any], _now: int) -> str:
        return ",".join(str(one.get("image", "")) for one in at(obj, *path) or ())

    return cell


def _ports(obj: Mapping[str, Any], _now: int) -> str:
    found = []
    for port in at(obj, "spec", "ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        found.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(found) or _NONE


def _deployment_ready(obj: Mapping[str, Any], _now: int) -> str:
    return f"{at(obj, 'status', 'readyReplicas') or 0}/{_wanted(obj)}"


def _wanted(obj: Mapping[str, Any]) -> int:
    found = at(obj, "spec", "replicas")
    return 1 if found is None else int(found)


def _completions(obj: Mapping[str, Any], _now: int) -> str:
    wanted = at(obj, "spec", "completions")
    parallel = at(obj, "spec", "parallelism")
    done = at(obj, "status", "succeeded") or 0
    return (
        f"{done}/{wanted}"
        if wanted is not None
        else f"{done}/1 of {parallel}"
        if (parallel or 1) > 1
        else f"{done}/1"
    )


def _job_status(obj: Mapping[str, Any], _now: int) -> str:
    if _condition(obj, "Complete") == "True":
        return "Complete"
    if _condition(obj, "Failed") == "True":
        return "Failed"
    return "Suspended" if _condition(obj, "Suspended") == "True" else "Running"


def _job_duration(obj: Mapping[str, Any], now: int) -> str:
    begun, ended = at(obj, "status", "startTime"), at(obj, "status", "completionTime")
    if not begun:
        return ""
    return duration((parse_time(ended) if ended else now) - parse_time(begun))


def _event_object(obj: Mapping[str, Any], _now: int) -> str:
    about = at(obj, "involvedObject") or at(obj, "regarding") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _event_seen(obj: Mapping[str, Any], now: int) -> str:
    last = (
        at(obj, "series", "lastObservedTime")
        or at(obj, "lastTimestamp")
        or at(obj, "deprecatedLastTimestamp")
        or at(obj, "eventTime")
        or at(obj, "metadata", "creationTimestamp")
    )
    return _since(last, now)


def _policy(obj: Mapping[str, Any], _now: int) -> str:
    policy = at(obj, "spec", "schedulingPolicy") or at(obj, "spec", "policy") or {}
    gang = policy.get("gang")
    return (
        f"gang of {gang.get('minCount', 0)}"
        if isinstance(gang, dict)
        else "basic"
        if "basic" in policy
        else _NONE
    )


def _or_none(*path: str | int) -> Callable[[Mapping[str, Any], int], Any]:
    return lambda obj, _now: at(obj, *path) or _NONE


_READY_COLUMNS = (
    Column("Desired", lambda obj, _now: _wanted(obj), "integer"),
    Column("Current", _path("status", "replicas", default=0), "integer"),
    Column("Ready", _path("status", "readyReplicas", default=0), "integer"),
)
_TEMPLATE_COLUMNS = (
    Column("Containers", _names("spec", "template", "spec", "containers"), wide=True),
    Column("Images", _images("spec", "template", "spec", "containers"), wide=True),
)
_LABEL_SELECTOR = Column("Selector", lambda obj, _now: _selector(obj, "spec", "selector"), wide=True)

_COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "Pod": (
        _NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts),
        _AGE,
        Column("IP", _or_none("status", "podIP"), wide=True),
        Column("Node", _or_none("spec", "nodeName"), wide=True),
        Column("Nominated Node", _or_none("status", "nominatedNodeName"), wide=True),
        Column("Readiness Gates", lambda _obj, _now: _NONE, wide=True),
    ),
    "Node": (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        Column("Version", _path("status", "nodeInfo", "kubeletVersion")),
        Column("Internal-IP", _address("InternalIP"), wide=True),
        Column("External-IP", _address("ExternalIP"), wide=True),
        Column(
            "OS-Image", lambda obj, _now: at(obj, "status", "nodeInfo", "osImage") or "<unknown>", wide=True
        ),
        Column(
            "Kernel-Version",
            lambda obj, _now: at(obj, "status", "nodeInfo", "kernelVersion") or "<unknown>",
            wide=True,
        ),
        Column(
            "Container-Runtime",
            lambda obj, _now: at(obj, "status", "nodeInfo", "containerRuntimeVersion") or "<unknown>",
            wide=True,
        ),
    ),
    "Namespace": (_NAME, Column("Status", _path("status", "phase")), _AGE),
    "PriorityClass": (
        _NAME,
        Column("Value", _path("value", default=0), "integer"),
        Column("Global-Default", _path("globalDefault", default=False), "boolean"),
        _AGE,
        Column("PreemptionPolicy", _path("preemptionPolicy", default="PreemptLowerPriority")),
    ),
    "PodDisruptionBudget": (
        _NAME,
        Column("Min Available", lambda obj, _now: str(number_or_none(at(obj, "spec", "minAvailable")))),
        Column("Max Unavailable", lambda obj, _now: str(number_or_none(at(obj, "spec", "maxUnavailable")))),
        Column("Allowed Disruptions", _path("status", "disruptionsAllowed", default=0), "integer"),
        _AGE,
    ),
    "Service": (
        _NAME,
        Column("Type", _path("spec", "type", default="ClusterIP")),
        Column("Cluster-IP", _or_none("spec", "clusterIP")),
        Column("External-IP", _or_none("spec", "externalIPs", 0)),
        Column("Port(s)", _ports),
        _AGE,
        Column("Selector", lambda obj, _now: _pairs(at(obj, "spec", "selector")) or _NONE, wide=True),
    ),
    "Deployment": (
        _NAME,
        Column("Ready", _deployment_ready),
        Column("Up-to-date", _path("status", "updatedReplicas", default=0), "integer"),
        Column("Available", _path("status", "availableReplicas", default=0), "integer"),
        _AGE,
        *_TEMPLATE_COLUMNS,
        _LABEL_SELECTOR,
    ),
    "ReplicaSet": (_NAME, *_READY_COLUMNS, _AGE, *_TEMPLATE_COLUMNS, _LABEL_SELECTOR),
    "ReplicationController": (
        _NAME,
        *_READY_COLUMNS,
        _AGE,
        *_TEMPLATE_COLUMNS,
        Column("Selector", lambda obj, _now: _pairs(at(obj, "spec", "selector")) or _NONE, wide=True),
    ),
    "StatefulSet": (_NAME, Column("Ready", _deployment_ready), _AGE, *_TEMPLATE_COLUMNS),
    "Job": (
        _NAME,
        Column("Status", _job_status),
        Column("Completions", _completions),
        Column("Duration", _job_duration),
        _AGE,
        *_TEMPLATE_COLUMNS,
        _LABEL_SELECTOR,
    ),
    "Event": (
        Column("Last Seen", _event_seen),
        Column("Type", _path("type")),
        Column("Reason", _path("reason")),
        Column("Object", _event_object),
        Column("Message", lambda obj, _now: str(at(obj, "message") or at(obj, "note") or "").strip()),
        Column("Name", _path("metadata", "name"), format="name", wide=True),
    ),
    "Lease": (_NAME, Column("Holder", _path("spec", "holderIdentity")), _AGE),
    "PodGroup": (
        _NAME,
        Column("Policy", _policy),
        Column("Workload", _or_none("spec", "workloadRef", "workloadName")),
        _AGE,
    ),
    "ResourceClaim": (
        _NAME,
        Column(
            "State",
            lambda obj, _now: (
                "pending"
                if not at(obj, "status", "allocation")
                else "allocated,reserved"
                if at(obj, "status", "reservedFor")
                else "allocated"
            ),
        ),
        _AGE,
    ),
    "ResourceSlice": (
        _NAME,
        Column("Node", _or_none("spec", "nodeName")),
        Column("Driver", _path("spec", "driver")),
        Column("Pool", _path("spec", "pool", "name")),
        _AGE,
    ),
    "PersistentVolumeClaim": (
        _NAME,
        Column("Status", lambda obj, _now: at(obj, "status", "phase") or "Pending"),
        Column("Volume", _path("spec", "volumeName")),
        Column("Capacity", _path("status", "capacity", "storage")),
        Column("Access Modes", lambda obj, _now: ",".join(at(obj, "spec", "accessModes") or ())),
        Column("StorageClass", _path("spec", "storageClassName")),
        _AGE,
    ),
    "PersistentVolume": (
        _NAME,
        Column("Capacity", _path("spec", "capacity", "storage")),
        Column("Access Modes", lambda obj, _now: ",".join(at(obj, "spec", "accessModes") or ())),
        Column("Reclaim Policy", _path("spec", "persistentVolumeReclaimPolicy")),
        Column("Status", _path("status", "phase")),
        Column(
            "Claim",
            lambda obj, _now: (
                f"{at(obj, 'spec', 'claimRef', 'namespace')}/{at(obj, 'spec', 'claimRef', 'name')}"
                if at(obj, "spec", "claimRef")
                else ""
            ),
        ),
        Column("StorageClass", _path("spec", "storageClassName")),
        _AGE,
    ),
    "StorageClass": (
        _NAME,
        Column("Provisioner", _path("provisioner")),
        Column("ReclaimPolicy", _path("reclaimPolicy", default="Delete")),
        Column("VolumeBindingMode", _path("volumeBindingMode", default="Immediate")),
        Column("AllowVolumeExpansion", _path("allowVolumeExpansion", default=False), "boolean"),
        _AGE,
    ),
}

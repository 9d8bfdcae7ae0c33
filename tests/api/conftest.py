"""What the tests of the API share."""

from __future__ import annotations

import copy
import itertools
import re
from typing import Any, NamedTuple

import msgspec

from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.objects import Object

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[([^\]]+)\]")


def put_at(data: dict[str, Any], path: str, value: Any) -> None:
    """Set `spec.containers[0].ports[1].hostPort` in plain data, making what is missing on the way."""
    steps: list[str | int] = []
    for name, index, key in _STEP.findall(path):
        steps.append(int(index) if index else name or key)
    at: Any = data
    for step, following in itertools.pairwise(steps):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(step, int):
            while len(at) <= step:
                at.append(copy.deepcopy(empty))
            at = at[step]
        else:
            at = at.setdefault(step, empty)
    last = steps[-1]
    if isinstance(last, int):
        while len(at) <= last:
            at.append(None)
    if value is ABSENT:
        at.pop(last, None)
    else:
        at[last] = copy.deepcopy(value)


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()
"""As a value to set: take the field away."""

VALID: dict[str, dict[str, Any]] = {
    "Pod": {
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main"}]},
    },
    "Node": {"metadata": {"name": "n1"}},
    "Namespace": {"metadata": {"name": "team-a"}},
    "PriorityClass": {"metadata": {"name": "high"}, "value": 1000},
    "PodDisruptionBudget": {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    },
    "Service": {"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}},
    "ReplicaSet": {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    },
    "PodGroup": {
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    },
    "Workload": {
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 2}}}]},
    },
    "ResourceSlice": {
        "metadata": {"name": "n1-gpus"},
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n1",
            "devices": [{"name": "gpu-0"}],
        },
    },
    "DeviceClass": {"metadata": {"name": "gpu"}},
    "DeviceTaintRule": {
        "metadata": {"name": "broken"},
        "spec": {"taint": {"key": "broken", "effect": "NoSchedule"}},
    },
    "PersistentVolumeClaim": {
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    },
    "PersistentVolume": {
        "metadata": {"name": "pv-1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}},
    },
    "StorageClass": {"metadata": {"name": "fast"}, "provisioner": "disk.example.com"},
    "CSINode": {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "d"}]}},
    "CSIStorageCapacity": {
        "metadata": {"name": "fast-a", "namespace": "default"},
        "storageClassName": "fast",
    },
    "VolumeAttachment": {
        "metadata": {"name": "a-1"},
        "spec": {
            "attacher": "disk.example.com",
            "nodeName": "n1",
            "source": {"persistentVolumeName": "pv-1"},
        },
    },
    "ResourceClaim": {
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
    },
    "ResourceClaimTemplate": {
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}},
    },
}


def made(kind: str, settings: dict[str, Any]) -> Object:
    """A valid object of the kind with these paths set."""
    data = copy.deepcopy(VALID[kind])
    for path, value in settings.items():
        put_at(data, path, value)
    return msgspec.convert(data, KIND_BY_NAME[kind].type)


class Row(NamedTuple):
    """Setting `field` to `good` is valid; setting it to `bad` gives exactly this error."""

    field: str
    good: Any
    bad: Any
    path: str
    kind: str
    text: str
    given: dict[str, Any] = {}  # noqa: RUF012 # Never changed.

    def __str__(self) -> str:
        return f"{self.field}={self.bad!r}"[:100]


def invalid(field: str, good: Any, bad: Any, text: str, at: str = "", **given: Any) -> Row:
    return Row(field, good, bad, at or field, "Invalid", text, given.get("given", {}))


def required(field: str, good: Any, bad: Any, text: str = "", at: str = "", **given: Any) -> Row:
    return Row(field, good, bad, at or field, "Required", text, given.get("given", {}))


def forbidden(field: str, good: Any, bad: Any, text: str, at: str = "", **given: Any) -> Row:
    return Row(field, good, bad, at or field, "Forbidden", text, given.get("given", {}))


def unsupported(field: str, good: Any, bad: Any, text: str, at: str = "", **given: Any) -> Row:
    return Row(field, good, bad, at or field, "NotSupported", text, given.get("given", {}))


def duplicate(field: str, good: Any, bad: Any, at: str = "", **given: Any) -> Row:
    return Row(field, good, bad, at or field, "Duplicate", "", given.get("given", {}))

"""The kinds that decisions depend on, and where this server lists them.

Each has a path by its newest version that the server serves; one that it does not serve at all is left out, if decisions can do without.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidelog.api.kinds.kind import Kind
from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.eventlog.records import Watched
from tidelog.kube.cluster.port import ClusterError, ClusterPort, Request

FIELD_SELECTORS = {"Pod": "status.phase!=Succeeded,status.phase!=Failed"}
"""kube-scheduler's own: a pod that has finished takes no room, and leaves the view."""

REQUIRED = ("Pod", "Node", "Namespace", "PriorityClass", "PodDisruptionBudget")
"""Nothing can be said about a cluster without these."""

OPTIONAL = (
    "Service",
    "ReplicationController",
    "ReplicaSet",
    "StatefulSet",
    "PodGroup",
    "ResourceClaim",
    "ResourceSlice",
    "DeviceClass",
    "DeviceTaintRule",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "VolumeAttachment",
)
"""Watched where the server has them, and this version of tidelog a type for them."""


class _Resource(msgspec.Struct, frozen=True):
    name: str = ""


class _Resources(msgspec.Struct, frozen=True):
    resources: list[_Resource] = []


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of `/version`."""

    git_version: str = ""


def wanted_kinds(names: Iterable[str] = ()) -> list[Kind]:
    """Those to watch: all, or the ones that the user chose."""
    chosen = tuple(names) or (*REQUIRED, *OPTIONAL)
    return [KIND_BY_NAME[name] for name in chosen if name in KIND_BY_NAME]


async def discover(port: ClusterPort, kinds: Iterable[Kind]) -> dict[str, Watched]:
    """Where this server serves each of these kinds; without the optional ones that it does not.

    Raises ClusterError if a required one is missing, or the server does not answer.
    """
    served: dict[str, frozenset[str]] = {}
    found: dict[str, Watched] = {}
    for kind in kinds:
        for version in (kind.version, *kind.other_versions):
            base = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
            if base not in served:
                served[base] = await _resources(port, base)
            if kind.plural in served[base]:
                selector = FIELD_SELECTORS.get(kind.name, "")
                found[kind.name] = Watched(path=f"{base}/{kind.plural}", selector=selector)
                break
        else:
            if kind.name in REQUIRED:
                raise ClusterError(f"{port.name}: does not serve {kind.plural}, without which nothing works")
    return found


async def _resources(port: ClusterPort, base: str) -> frozenset[str]:
    answer = await port.send(Request(method="GET", path=base))
    if answer.status == 404:
        return frozenset()
    checked(port, answer.status, answer.told().message, f"GET {base}")
    return frozenset(r.name for r in msgspec.json.decode(answer.body, type=_Resources).resources)


def checked(port: ClusterPort, status: int, message: str, what: str) -> None:
    """Raises ClusterError for an answer that is no success, with what to do about it."""
    if 200 <= status < 300:
        return
    hint = {
        401: "; the credentials are not taken: look into the kubeconfig",
        403: "; the role is missing: see deploy/ for the ClusterRoles",
    }.get(status, "")
    raise ClusterError(f"{port.name}: {what}: {status} {message}{hint}")

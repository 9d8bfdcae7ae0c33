"""The cluster as admission sees it: a port, the names that exist in every cluster, and the place of a new fact in the log."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

import msgspec

from tidelog.api.features import FeatureGates
from tidelog.api.objects import Object, Pod
from tidelog.api.validation.field_errors import ErrorList

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
NAMESPACE_LABEL = "kubernetes.io/metadata.name"


class Cluster(Protocol):
    """The questions that admission asks of the cluster."""

    @property
    def constraints_max(self) -> int:
        """How many topology constraints a group may have."""

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object; the namespace is empty for kinds of the whole cluster."""

    def of_kind(self, kind: str, namespace: str = "") -> Iterable[Object]:
        """All objects of a kind in a namespace, in an order that depends only on what was put in."""

    def member(self, namespace: str, group: str) -> Pod | None:
        """Some pod of this group (see `group_of`), always the same one of the same pods."""


def group_of(pod: Pod) -> str:
    """A name for the group that a pod refers to, unique in its namespace; empty without one."""
    spec = pod.spec
    if spec.scheduling_group is not None:
        return f"podgroup/{spec.scheduling_group.pod_group_name}"
    reference = spec.workload_ref
    if reference is None:
        return ""
    return f"workload/{reference.name}/{reference.pod_group}/{reference.pod_group_replica_key}"


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a fact in the log."""

    seq: int
    at: int
    """Nanoseconds since 1970."""


def uid_of(key: str, stamp: Stamp) -> str:
    """A UUID (version 8, which leaves its content to us) for what is created under this key at this place."""
    text = hashlib.sha256(f"{key}\n{stamp.seq}\n{stamp.at}".encode()).hexdigest()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-8{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """One admission of one object: what it depends on, and where a kind's rules put what they find."""

    cluster: Cluster
    gates: FeatureGates
    stamp: Stamp
    errors: ErrorList
    warnings: list[str]

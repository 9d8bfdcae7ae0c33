"""The resources of the API: under which group, version and plural a kind is served, and what can be done with it.

Kinds of the log come from their declarations (`tidelog.api.kinds`). `Event` and `Lease` are no kinds of the log: nothing that decisions depend on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.api.kinds.kind import Kind
from tidelog.api.kinds.registry import KINDS

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class ApiResource(NamedTuple):
    """A kind in one version of its group."""

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    in_log: bool = True

    @property
    def singular(self) -> str:
        """As it is said of one object."""
        return self.kind.lower()

    @property
    def api_version(self) -> str:
        """`v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_status(self) -> bool:
        """The status is written through a path of its own."""
        return "status" in self.subresources


_MORE_VERSIONS: Mapping[str, tuple[str, ...]] = {"Workload": ("v1beta1",)}
"""Versions that are served beside the one in which a kind is kept."""
_SCALED = ("scale", "status")
_MORE_SUBRESOURCES: Mapping[str, tuple[str, ...]] = {
    "Deployment": _SCALED,
    "Job": ("status",),
    "ReplicaSet": _SCALED,
    "ReplicationController": _SCALED,
    "Service": ("status",),
    "StatefulSet": _SCALED,
}
"""Of kinds whose status nothing here reads: it is kept beside the typed object."""
_BESIDE = (
    ApiResource("Event", "", "v1", "events", True, ("ev",), in_log=False),
    ApiResource("Event", "events.k8s.io", "v1", "events", True, ("ev",), in_log=False),
    ApiResource("Lease", "coordination.k8s.io", "v1", "leases", True, in_log=False),
)


class Catalogue:
    """Everything that is served, of some kinds."""

    def __init__(self, kinds: tuple[Kind, ...]) -> None:
        self.kinds = kinds
        self.resources = (*(found for kind in kinds for found in _of_kind(kind)), *_BESIDE)
        self.by_path = {(found.group, found.version, found.plural): found for found in self.resources}
        """By group, version and plural."""
        self.by_kind: dict[str, ApiResource] = {}
        """The first of each kind."""
        for found in self.resources:
            self.by_kind.setdefault(found.kind, found)

    def groups(self) -> dict[str, list[str]]:
        """Group → its versions, the preferred one first."""
        found: dict[str, list[str]] = {"": []}
        for resource in sorted(self.resources, key=lambda resource: resource.group):
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return {group: sorted(versions, key=_stability) for group, versions in found.items()}


def _of_kind(kind: Kind) -> list[ApiResource]:
    return [
        ApiResource(
            kind.name,
            kind.group,
            version,
            kind.plural,
            kind.namespaced,
            kind.short_names,
            kind.categories,
            (*kind.subresources, *_MORE_SUBRESOURCES.get(kind.name, ())),
        )
        for version in (kind.version, *_MORE_VERSIONS.get(kind.name, ()))
    ]


def _stability(version: str) -> tuple[int, str]:
    return (2 if "alpha" in version else 1 if "beta" in version else 0), version


_catalogue = Catalogue(tuple(KINDS))


def catalogue() -> Catalogue:
    """Of all kinds that are known now."""
    global _catalogue  # noqa: PLW0603 # Other packages may have registered kinds.
    kinds = tuple(KINDS)
    if kinds != _catalogue.kinds:
        _catalogue = Catalogue(kinds)
    return _catalogue

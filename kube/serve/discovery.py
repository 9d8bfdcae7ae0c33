"""Discovery, as clients ask for it: groups, versions, resources, and their verbs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tidelog.kube.resources import VERBS, ApiResource, catalogue

AGGREGATED = "apidiscovery.k8s.io"
"""Accepted media types with this in `g=` want everything at once."""

MAJOR, MINOR = "1", "37"
"""Of the Kubernetes whose API this is like."""
GIT_VERSION = f"v{MAJOR}.{MINOR}.0+tidelog"

_SUB_VERBS = {
    "status": ("get", "patch", "update"),
    "scale": ("get", "patch", "update"),
    "binding": ("create",),
    "eviction": ("create",),
    "resize": ("get", "patch", "update"),
}
_SUB_KINDS = {
    "binding": ("", "v1", "Binding"),
    "eviction": ("policy", "v1", "Eviction"),
    "scale": ("autoscaling", "v1", "Scale"),
}

REVIEWS = (
    ("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview"),
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
)
"""Questions that are asked by creating an object which is kept nowhere."""


def version_info(version: str) -> dict[str, str]:
    """Return the answer of `/version`."""
    return {
        "major": MAJOR,
        "minor": MINOR,
        "gitVersion": f"{GIT_VERSION}.{version}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "python",
        "platform": "linux",
    }


def api_versions() -> dict[str, Any]:
    """Return the answer of `/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def api_groups() -> dict[str, Any]:
    """Return the answer of `/apis`."""
    found = [_group(group, versions) for group, versions in _groups().items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def api_group(group: str) -> dict[str, Any] | None:
    """Return the answer of `/apis/<group>`."""
    versions = _groups().get(group)
    return (
        None
        if versions is None or not group
        else {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}
    )


def _groups() -> dict[str, list[str]]:
    found = catalogue().groups()
    for group, version, _, _ in REVIEWS:
        found[group] = [version]
    return found


def _group(group: str, versions: list[str]) -> dict[str, Any]:
    named = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": named, "preferredVersion": named[0]}


def resource_list(group: str, version: str) -> dict[str, Any] | None:
    """Return the answer of `/apis/<group>/<version>`."""
    found: list[dict[str, Any]] = []
    for resource in _of(group, version):
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(VERBS),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        found.append(entry)
        for name in resource.subresources:
            sub: dict[str, Any] = {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": _SUB_KINDS[name][2] if name in _SUB_KINDS else resource.kind,
                "verbs": list(_SUB_VERBS[name]),
            }
            if name in _SUB_KINDS and _SUB_KINDS[name][0]:
                sub["group"], sub["version"] = _SUB_KINDS[name][:2]
            found.append(sub)
    for of_group, of_version, plural, kind in REVIEWS:
        if (of_group, of_version) == (group, version):
            found.append(
                {
                    "name": plural,
                    "singularName": kind.lower(),
                    "namespaced": False,
                    "kind": kind,
                    "verbs": ["create"],
                }
            )
    if not found:
        return None
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": found}


def _of(group: str, version: str) -> Iterator[ApiResource]:
    of = [found for found in catalogue().resources if (found.group, found.version) == (group, version)]
    return iter(sorted(of, key=lambda resource: resource.plural))


def wants_aggregated(accept: str) -> str:
    """The version of aggregated discovery that a client wants, as `v2`; empty if it does not."""
    for part in accept.split(","):
        if f"g={AGGREGATED}" in part and "as=APIGroupDiscoveryList" in part:
            version = re.search(r"v=(v2(?:beta1)?)\b", part)
            if version is not None:
                return version[1]
    return ""


def aggregated(version: str, *, core: bool) -> dict[str, Any]:
    """All groups at once: the core one, or all others."""
    items = []
    for group, versions in _groups().items():
        if core is bool(group):
            continue
        items.append(
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {"version": of, "resources": _discovered(group, of), "freshness": "Current"}
                    for of in versions
                ],
            }
        )
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"{AGGREGATED}/{version}",
        "metadata": {},
        "items": items,
    }


def _discovered(group: str, version: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for resource in _of(group, version):
        entry: dict[str, Any] = {
            "resource": resource.plural,
            "responseKind": {"group": group, "version": version, "kind": resource.kind},
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "singularResource": resource.singular,
            "verbs": list(VERBS),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        if resource.subresources:
            entry["subresources"] = [
                {
                    "subresource": name,
                    "responseKind": dict(
                        zip(
                            ("group", "version", "kind"),
                            _SUB_KINDS.get(name, (group, version, resource.kind)),
                            strict=True,
                        )
                    ),
                    "verbs": list(_SUB_VERBS[name]),
                }
                for name in resource.subresources
            ]
        found.append(entry)
    for of_group, of_version, plural, kind in REVIEWS:
        if (of_group, of_version) == (group, version):
            found.append(
                {
                    "resource": plural,
                    "responseKind": {"group": group, "version": version, "kind": kind},
                    "scope": "Cluster",
                    "singularResource": kind.lower(),
                    "verbs": ["create"],
                }
            )
    return found

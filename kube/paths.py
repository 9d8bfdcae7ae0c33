"""Paths of the Kubernetes API: `/apis/policy/v1/namespaces/default/poddisruptionbudgets/b1/status`, taken apart and put together."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote


class ResourcePath(NamedTuple):
    """A path to a resource, an object, or a part of one."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    """Empty: the whole cluster."""
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        """The path."""
        head = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [head]
        if self.namespace:
            parts += ["namespaces", quote(self.namespace, safe="")]
        parts.append(self.resource)
        parts += [quote(part, safe=":") for part in (self.name, self.subresource) if part]
        return "/".join(parts)


def parse_path(parts: list[str]) -> ResourcePath | None:
    """The path whose parts these are, decoded and without the leading slash; None if it leads to no resource."""
    if parts and parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts and parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    # A namespace's own parts are its subresources, as far as there are some.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 or not all(rest):
        return None
    return ResourcePath(group, version, rest[0], namespace, *rest[1:])

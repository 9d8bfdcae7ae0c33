"""Asks for this user's rights before anything is decided: a scheduler that may bind nothing should say so at its start.

The server answers by itself (SelfSubjectAccessReview), so nobody needs a right for asking. One that does not know the question is believed to
allow everything: it will refuse what it does not.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from tidelog.kube.cluster.port import Answer, ClusterPort, Request

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(NamedTuple):
    """One verb on one resource."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        whole = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {whole}{'.' + self.group if self.group else ''}{where}"


NEEDED: tuple[Right, ...] = (
    Right("create", "", "pods", "binding"),
    Right("patch", "", "pods", "status"),
    Right("create", "", "pods", "eviction"),
)
"""Without these a scheduler is none."""
EVENTS = Right("create", "events.k8s.io", "events")
"""Without this it schedules, and nobody reads of it."""


def lease_rights(namespace: str, name: str) -> tuple[Right, ...]:
    """For leading by this Lease."""
    group = "coordination.k8s.io"
    return (
        Right("get", group, "leases", namespace=namespace, name=name),
        Right("update", group, "leases", namespace=namespace, name=name),
    )


class _Said(msgspec.Struct, frozen=True):
    allowed: bool = True


class _Review(msgspec.Struct, frozen=True):
    status: _Said = _Said()


async def missing(port: ClusterPort, rights: tuple[Right, ...]) -> list[Right]:
    """Those that this user does not have. Raises ClusterError."""
    return [right for right in rights if not await _allowed(port, right)]


async def _allowed(port: ClusterPort, right: Right) -> bool:
    attributes: dict[str, Any] = {name: value for name, value in right._asdict().items() if value}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer: Answer = await port.send(Request(method="POST", path=REVIEWS, body=body))
    if not answer.ok:
        return True
    try:
        return msgspec.json.decode(answer.body, type=_Review).status.allowed
    except msgspec.MsgspecError:
        return True

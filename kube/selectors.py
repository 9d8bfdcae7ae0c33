"""Field selectors: `status.phase!=Failed,spec.nodeName=n1`, as lists and watches take them.

Label selectors are `tidelog.api.selector_text`'s. Which fields can be asked for depends on the kind, as in Kubernetes: the server knows no
others than those in `FIELDS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tidelog.api.errors import TidelogError
from tidelog.api.objects import Namespace, Node, Object, Pod

TEXT_MAX = 4096
"""Characters of a selector."""

FIELDS_OF_ALL = ("metadata.name", "metadata.namespace")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "Pod": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "Node": ("spec.unschedulable",),
    "Namespace": ("status.phase",),
    "ReplicaSet": ("status.replicas",),
    "ReplicationController": ("status.replicas",),
    "Job": ("status.successful",),
    "Service": ("spec.clusterIP", "spec.type"),
    "Event": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "ResourceSlice": ("spec.nodeName", "spec.driver"),
}
"""Beside name and namespace, which every kind has."""

_TERM = re.compile(r"\s*([^=!\s]+)\s*(==|!=|=)\s*([^=!]*?)\s*\Z")


class FieldTerm(NamedTuple):
    """One field and what it must, or must not, be."""

    field: str
    value: str
    wanted: bool


class FieldSelectorError(TidelogError):
    """The text is no field selector for the kind."""


def parse_field_selector(text: str, kind: str) -> tuple[FieldTerm, ...]:
    """The terms, all of which must hold. Raises FieldSelectorError."""
    if len(text) > TEXT_MAX:
        raise FieldSelectorError(f"a field selector may have at most {TEXT_MAX} characters")
    terms = []
    for part in filter(None, (part.strip() for part in _split(text))):
        found = _TERM.match(part)
        if found is None:
            raise FieldSelectorError(f"invalid selector: '{part}'; can't understand '{part}'")
        field, operator, value = found.groups()
        if field not in FIELDS_OF_ALL and field not in FIELDS.get(kind, ()):
            raise FieldSelectorError(f"field label not supported: {field}")
        terms.append(FieldTerm(field, _unescaped(value), operator != "!="))
    return tuple(terms)


def _split(text: str) -> list[str]:
    return re.split(r"(?<!\\),", text)


def _unescaped(value: str) -> str:
    return re.sub(r"\\([,=\\])", r"\1", value)


def field_matcher(
    terms: tuple[FieldTerm, ...], value_of: Callable[[Any, str], str]
) -> Callable[[Any], bool] | None:
    """Whether an object has what the terms ask for, by the way to get at its fields; None if they ask for nothing."""
    if not terms:
        return None

    def matches(obj: Any) -> bool:
        return all((value_of(obj, field) == value) is wanted for field, value, wanted in terms)

    return matches


def typed_field(obj: Object, field: str) -> str | None:
    """A field that is read from the object itself; None: it is to be looked for in the manifest, with `value_in`."""
    if field == "metadata.name":
        return obj.metadata.name
    if field == "metadata.namespace":
        return obj.metadata.namespace
    if isinstance(obj, Node) and field == "spec.unschedulable":
        return "true" if obj.spec.unschedulable else "false"
    if isinstance(obj, Namespace) and field == "status.phase":
        return "Terminating" if obj.metadata.deletion_timestamp else "Active"
    if isinstance(obj, Pod) and (read := _POD_FIELDS.get(field)) is not None:
        return read(obj)
    return None


_POD_FIELDS: Mapping[str, Callable[[Pod], str]] = {
    "spec.nodeName": lambda pod: pod.spec.node_name,
    "spec.schedulerName": lambda pod: pod.spec.scheduler_name,
    "spec.restartPolicy": lambda pod: pod.spec.restart_policy or "Always",
    "spec.hostNetwork": lambda pod: "true" if pod.spec.host_network else "false",
    # An API server writes this default at creation.
    "status.phase": lambda pod: pod.status.phase or "Pending",
    "status.nominatedNodeName": lambda pod: pod.status.nominated_node_name,
}
FIELD_DEFAULTS: Mapping[str, str] = {"status.replicas": "0", "status.successful": "0"}
"""Of fields that are absent from a manifest."""


def value_in(manifest: Mapping[str, Any], field: str) -> str:
    """The field of a whole object, as text; empty where it is absent."""
    found: Any = manifest
    for name in field.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if found is None:
        return ""
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found) if isinstance(found, str | int) else ""

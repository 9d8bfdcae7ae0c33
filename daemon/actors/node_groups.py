"""Node groups: what a cluster autoscaler may buy, how long that takes, and when there is nothing to be had.

A group makes nodes after one template, in one or more zones. It is a section of the file of actors; everything that is wrong in it is told
with its path. A group knows nothing of pods, and of time only what it is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.objects import Node, NodeSpec, NodeStatus, ObjectMeta, Quantity, Taint
from tidelog.api.times import NANOS, parse_time
from tidelog.api.validation import names
from tidelog.api.validation.field_errors import NOT_NEGATIVE, ErrorList
from tidelog.api.validation.rules import validate
from tidelog.api.well_known import HOSTNAME, ZONE

NODE_GROUP = "tidelog.io/node-group"
"""The label that says which group a node is of."""

NODES_MAX = 5_000
"""Limit on a group's nodes: as many as Kubernetes allows in a cluster."""


class Stockout(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """For some time there are no instances."""

    zones: tuple[str, ...] = ()
    """Where; empty means everywhere."""
    start: str = ""
    """RFC 3339; empty means since ever."""
    end: str = ""
    """The first moment at which there are instances again; empty means never."""

    def covers(self, zone: str, at: int) -> bool:
        """Whether nothing can be had in the zone at this moment."""
        if self.zones and zone not in self.zones:
            return False
        return (not self.start or parse_time(self.start) <= at) and (
            not self.end or at < parse_time(self.end)
        )


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes that are all alike."""

    name: str = ""
    zones: tuple[str, ...] = ()
    min: int = 0
    max: int = 10
    """Limit for all zones together."""
    provisioning_seconds: float = 60.0
    """From the order until the node is in the cluster."""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    resources: dict[str, Quantity] = msgspec.field(
        default_factory=lambda: {"cpu": "4", "memory": "16Gi", "pods": "110"}
    )
    stockouts: tuple[Stockout, ...] = ()

    @property
    def provisioning_nanos(self) -> int:
        """As `provisioning_seconds`."""
        return round(self.provisioning_seconds * NANOS)

    def is_out_of_stock(self, zone: str, at: int) -> bool:
        """Whether an order for this zone is refused."""
        return any(stockout.covers(zone, at) for stockout in self.stockouts)

    def node(self, zone: str, name: str) -> Node:
        """A new node of the group."""
        labels = {**self.labels, HOSTNAME: name, ZONE: zone, NODE_GROUP: self.name}
        return Node(
            metadata=ObjectMeta(name=name, labels=labels),
            spec=NodeSpec(taints=self.taints),
            status=NodeStatus(capacity=self.resources, allocatable=self.resources),
        )


def node_name(group: str, zone: str, number: int) -> str:
    """The names of a group's nodes."""
    return f"{group}-{zone}-{number}"


def group_errors(groups: Sequence[NodeGroup], path: str) -> Iterator[FieldError]:
    """Every rule that the groups break."""
    for i, group in enumerate(groups):
        where = f"{path}[{i}]"
        errors = ErrorList()
        _name(errors, group, [other.name for other in groups[:i]], where)
        _size(errors, group, where)
        _zones(errors, group, f"{where}.zones")
        for j, stockout in enumerate(group.stockouts):
            _stockout(errors, stockout, group, f"{where}.stockouts[{j}]")
        _template(errors, group, where)
        yield from errors


def _name(errors: ErrorList, group: NodeGroup, taken: Sequence[str], path: str) -> None:
    if not group.name:
        errors.required(f"{path}.name")
        return
    errors.invalid_each(f"{path}.name", group.name, names.dns_label(group.name))
    if group.name in taken:
        errors.duplicate(f"{path}.name", group.name)


def _size(errors: ErrorList, group: NodeGroup, path: str) -> None:
    if group.min < 0:
        errors.invalid(f"{path}.min", group.min, NOT_NEGATIVE)
    if group.max < max(group.min, 0):
        errors.invalid(f"{path}.max", group.max, f"must be at least min ({group.min})")
    if group.max > NODES_MAX:
        errors.invalid(f"{path}.max", group.max, f"must be at most {NODES_MAX}")
    if not 0 <= group.provisioning_seconds <= 86400:
        errors.invalid(f"{path}.provisioningSeconds", group.provisioning_seconds, "must be from 0 to 86400")


def _zones(errors: ErrorList, group: NodeGroup, path: str) -> None:
    zones = group.zones
    if not zones:
        errors.required(path, "a group is in at least one zone")
    for i, zone in enumerate(zones):
        if zone in zones[:i]:
            errors.duplicate(f"{path}[{i}]", zone)
        # It becomes part of the nodes' names, and these are the values of a label.
        errors.invalid_each(f"{path}[{i}]", zone, names.dns_label(zone))
        if len(node_name(group.name, zone, NODES_MAX)) > names.NAME_LENGTH_MAX:
            longest = names.NAME_LENGTH_MAX - len(node_name("", "", NODES_MAX))
            errors.invalid(
                f"{path}[{i}]",
                zone,
                f"must be no more than {longest} characters together with the group's name",
            )


def _stockout(errors: ErrorList, stockout: Stockout, group: NodeGroup, path: str) -> None:
    for i, zone in enumerate(stockout.zones):
        if zone not in group.zones:
            errors.not_supported(f"{path}.zones[{i}]", zone, group.zones)
    times = {"start": stockout.start, "end": stockout.end}
    moments: dict[str, int] = {}
    for field, text in times.items():
        try:
            if text:
                moments[field] = parse_time(text)
        except ValueError as error:
            errors.invalid(f"{path}.{field}", text, str(error))
    if len(moments) == 2 and moments["end"] <= moments["start"]:
        errors.invalid(f"{path}.end", stockout.end, f"must be after start ({stockout.start})")


_OF_TEMPLATE = {"metadata.labels": "labels", "spec.taints": "taints", "status.allocatable": "resources"}


def _template(errors: ErrorList, group: NodeGroup, path: str) -> None:
    """The rules of nodes, for what of the template comes from the file."""
    for reserved in (HOSTNAME, ZONE, NODE_GROUP):
        if reserved in group.labels:
            errors.forbidden(f"{path}.labels.{reserved}", "is set for each node")
    # The group's name, which becomes a label, has been judged.
    template = replace(group, name="group").node("zone", "node")
    for error in validate(template, FeatureGates()):
        for prefix, field in _OF_TEMPLATE.items():
            if error.path.startswith(prefix):
                where = f"{path}.{field}{error.path.removeprefix(prefix)}"
                errors.append(FieldError(path=where, kind=error.kind, value=error.value, rule=error.rule))

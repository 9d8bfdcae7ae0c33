"""A judge of logs in which topology spread may fall back, who shares no arithmetic with the scheduler.

It holds that nobody falls back before the criteria hold, and nobody much later than a timeout allows.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tests.worlds.spread import NP, PROVISIONING
from tidelog.api.objects import Node, Pod, pod_condition
from tidelog.api.pod_status import POD_SCHEDULED
from tidelog.api.times import NANOS, parse_time
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import (
    Body,
    Nominated,
    ObjectDeleted,
    ObjectPut,
    Record,
    Scheduled,
    Unschedulable,
    decode_body,
)

PATIENCE = (30 + 10) * NANOS
"""From one tick to the next, and the longest backoff."""


class Judge:
    """Reads a log and holds each binding to the constraints and criteria, by its own plain arithmetic."""

    def __init__(self, timeout: int | None) -> None:
        self.timeout = timeout
        """nodeProvisioningTimeout in seconds."""
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.rejected: dict[str, int] = {}
        self.nominated: dict[str, Nominated] = {}
        self.said: dict[int, Unschedulable] = {}
        """Rejections by seq, repetitions written out."""
        self.last: dict[str, Unschedulable] = {}
        """By pod, the newest rejection."""
        self.hard = self.fallen = 0

    def read(self, records: Iterable[Record]) -> None:
        """The whole log. Raises AssertionError at the first binding that is against the rules."""
        table = ObjectTable()
        for record in records:
            self.pods = {
                f"Pod/{entry.object.metadata.namespace}/{entry.object.metadata.name}": entry.object
                for entry in table.of_kind("Pod")
                if isinstance(entry.object, Pod)
            }
            self.consume(record, decode_body(record))
            table.apply(record)

    def consume(self, record: Record, body: Body) -> None:
        for key, pod in self.pods.items():
            assert not self._is_overdue(key, pod, record.at), (key, record)
        if isinstance(body, Scheduled):
            self._bound(self.pods[record.key], body, record.key)
        if isinstance(body, Unschedulable):
            if body.same_as:
                body = replace(self.said[body.same_as], at=body.at)
            self.said[record.seq] = self.last[record.key] = body
            self._all_hold(self.pods[record.key], body, record.key)
        if isinstance(body, Unschedulable) and "PodTopologySpread" in body.plugins:
            self.rejected.setdefault(record.key, record.at)
        if isinstance(body, Nominated):
            self.nominated[record.key] = body
        if isinstance(body, ObjectDeleted):
            for table in (self.pods, self.nodes, self.rejected, self.nominated, self.last):
                table.pop(record.key, None)
            return
        if isinstance(body, ObjectPut) and isinstance(body.object, Node):
            self.nodes[record.key] = body.object

    def _is_overdue(self, key: str, pod: Pod, at: int) -> bool:
        """A timeout alone would let the pod fall back, and it was not tried again although a tick and its backoff would be over."""
        last, rejected = self.last.get(key), self.rejected.get(key)
        if (
            self.timeout is None
            or last is None
            or rejected is None
            or "PodTopologySpread" not in last.plugins
        ):
            return False
        if pod.spec.node_name or pod.metadata.deletion_timestamp:
            return False
        if all(c.fallback_criteria != (PROVISIONING,) for c in pod.spec.topology_spread_constraints):
            return False
        condition, due = pod_condition(pod, NP), rejected + self.timeout * NANOS
        if last.at >= due or (condition is not None and condition.status != "Unknown"):
            return False
        changed = 0 if condition is None else parse_time(condition.last_transition_time)
        return at > max(due, changed) + PATIENCE

    def _bound(self, pod: Pod, body: Scheduled, key: str) -> None:
        self._all_hold(pod, body, key)
        indices = {f.constraint for f in body.fallback}
        hard = [c for i, c in enumerate(pod.spec.topology_spread_constraints) if i not in indices]
        keys = [c.topology_key for c in hard]
        counted = [n for n in self.nodes.values() if all(k in n.metadata.labels for k in keys)]
        for constraint in hard:
            counts = {n.metadata.labels[constraint.topology_key]: 0 for n in counted}
            for other in self.pods.values():
                home = self.nodes.get(f"Node//{other.spec.node_name}")
                if home in counted and not other.metadata.deletion_timestamp:
                    counts[home.metadata.labels[constraint.topology_key]] += 1
            domain = self.nodes[f"Node//{body.node}"].metadata.labels[constraint.topology_key]
            least = min(counts.values()) if len(counts) >= (constraint.min_domains or 1) else 0
            assert counts[domain] + 1 - least <= constraint.max_skew, (key, body.node, counts)
            self.hard += 1

    def _all_hold(self, pod: Pod, body: Scheduled | Unschedulable, key: str) -> None:
        for fallen in body.fallback:
            constraint = pod.spec.topology_spread_constraints[fallen.constraint]
            assert fallen.criteria == constraint.fallback_criteria
            for criterion in constraint.fallback_criteria:
                assert self._holds(criterion, pod, fallen.constraint, body.at, key), (key, criterion, body)
            self.fallen += 1

    def _holds(self, criterion: str, pod: Pod, index: int, at: int, key: str) -> bool:
        if criterion == PROVISIONING:
            condition = pod_condition(pod, NP)
            if condition is not None and condition.status in ("True", "False"):
                return condition.status == "False"
            since = self.rejected.get(key)
            return self.timeout is not None and since is not None and at - since >= self.timeout * NANOS
        scheduled, where = pod_condition(pod, POD_SCHEDULED), pod.status.nominated_node_name
        if where:
            made = self.nominated[key]
            return made.node == where and index in {f.constraint for f in made.fallback}
        return (
            scheduled is not None
            and (scheduled.status, scheduled.reason) == ("False", "Unschedulable")
            and parse_time(scheduled.last_transition_time) <= at
        )

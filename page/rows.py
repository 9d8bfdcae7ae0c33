"""Rows: one pod, node, budget or group at one moment, a row each, small enough to be sent for every change.

Times are milliseconds since 1970, as browsers count; amounts are integers in the units of `framework/node_info.py` (millicores, bytes).
A row is computed from the core in some ten microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tidelog.api.objects import (
    Node,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    ResourceClaim,
    pod_condition,
)
from tidelog.api.pod_status import POD_SCHEDULED, is_preempted, is_terminal
from tidelog.api.resources import effective_requests, parse_requests
from tidelog.api.storage import PersistentVolumeClaim
from tidelog.queue.entity import AnyEntity, QueuedPod, Where, pod_uid
from tidelog.replay.waits import fallback_of
from tidelog.scheduler.core import Core

NANOS_PER_MS = 1_000_000


def in_ms(nanos: int) -> float:
    """Return a moment as the browser counts; 0 stays 0, and means never."""
    return nanos / NANOS_PER_MS


class _Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """A row; what is empty is left out."""


class PodRow(_Row, frozen=True, kw_only=True):
    """A pod."""

    where: str
    """`placed`, `terminating`, `finished`; of a pending one `active`, `backoff`, `unschedulable`, `gated`, `in flight`, `permit`, `answers` or `nowhere`."""
    node: str = ""
    nominated: str = ""
    since: float = 0
    until: float = 0
    """When time alone ends the wait."""
    created: float = 0
    priority: int = 0
    requests: dict[str, int] = {}
    attempts: int = 0
    plugins: tuple[str, ...] = ()
    """The plugins that rejected it last."""
    reason: str = ""
    """Its condition's message."""
    gate: str = ""
    group: str = ""
    labels: dict[str, str] = {}
    spread: tuple[tuple[str, int, bool], ...] = ()
    """Of each spread constraint the topology key, maxSkew, and whether it is hard as written."""
    fallback: tuple[str, ...] = ()
    """A line for each constraint that can fall back."""
    fallback_at: float = 0
    """When `nodeProvisioningTimeout` is over for it."""
    claims: tuple[str, ...] = ()
    """Its volumes' claims and its devices' claims."""
    awaited: tuple[str, ...] = ()
    """Actions of others that it waits for before it is bound with its volumes and devices."""
    victim: bool = False
    """It has to go, to make room."""


class NodeRow(_Row, frozen=True, kw_only=True):
    """A node. What is used of it follows from the pods."""

    allocatable: dict[str, int]
    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()
    cordoned: bool = False


class BudgetRow(_Row, frozen=True, kw_only=True):
    """A disruption budget."""

    allowed: int
    healthy: int = 0
    desired: int = 0
    expected: int = 0
    disrupted: tuple[str, ...] = ()
    """Pods that are charged to it."""
    note: str = ""
    """Why it allows nothing, where its condition says so."""


class GroupRow(_Row, frozen=True, kw_only=True):
    """A pod group."""

    minimum: int = 0
    levels: tuple[str, ...] = ()
    """Label keys of its topology constraint."""
    condition: str = ""
    message: str = ""


Row = PodRow | NodeRow | BudgetRow | GroupRow


def row_of(core: Core, key: str) -> Row | None:
    """Return the row of the object of this record key; None if it is gone, or of a kind that has none."""
    match core.objects.get(key):
        case Pod() as pod:
            return pod_row(core, pod)
        case Node() as node:
            return _node_row(node)
        case PodDisruptionBudget() as budget:
            return _budget_row(budget)
        case PodGroup() as group:
            return _group_row(group)
        case _:
            return None


def pod_row(core: Core, pod: Pod) -> PodRow:
    """Return the row of a pod."""
    meta, spec = pod.metadata, pod.spec
    common: dict[str, Any] = {
        "node": spec.node_name,
        "priority": spec.priority or 0,
        "requests": effective_requests(pod).requests,
        "group": "" if spec.scheduling_group is None else spec.scheduling_group.pod_group_name,
        "labels": meta.labels,
        "spread": tuple(
            (c.topology_key, c.max_skew, c.when_unsatisfiable != "ScheduleAnyway")
            for c in spec.topology_spread_constraints
        ),
        "claims": tuple(_claims(core, pod)),
        "victim": is_preempted(pod),
    }
    if meta.deletion_timestamp:
        return PodRow(where="terminating", **common)
    if is_terminal(pod):
        return PodRow(where="finished", **common)
    if spec.node_name:
        return PodRow(where="placed", **common)
    queue = core.queue
    condition = pod_condition(pod, POD_SCHEDULED)
    common["reason"] = "" if condition is None else condition.message
    common["nominated"] = pod.status.nominated_node_name
    waiting = queue.get(f"{meta.namespace}/{meta.name}")
    if waiting is None:
        return PodRow(where="nowhere", **common)
    common["nominated"] = queue.nominator.node_of(pod) or common["nominated"]
    return _pending_row(core, waiting, common)


def _claims(core: Core, pod: Pod) -> Iterator[str]:
    """Tell what the pod claims, and what it has got."""
    namespace = pod.metadata.namespace
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is None and volume.ephemeral is None:
            continue
        # An ephemeral volume's claim is named after the pod.
        claimed = volume.persistent_volume_claim
        name = f"{pod.metadata.name}-{volume.name}" if claimed is None else claimed.claim_name
        found = core.objects.get(f"PersistentVolumeClaim/{namespace}/{name}")
        got = found.spec.volume_name if isinstance(found, PersistentVolumeClaim) else ""
        yield f"volume {volume.name}: claim {name}, {f'volume {got}' if got else 'no volume yet'}"
    made = {status.name: status.resource_claim_name or "" for status in pod.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        name = entry.resource_claim_name or made.get(entry.name, "")
        claim = core.objects.get(f"ResourceClaim/{namespace}/{name}")
        allocation = claim.status.allocation if isinstance(claim, ResourceClaim) else None
        results = () if allocation is None else allocation.devices.results
        devices = ", ".join(f"{result.device} of {result.pool}" for result in results)
        yield f"devices {entry.name}: {f'claim {name}' if name else 'no claim yet'}, {devices or 'no device yet'}"


def _pending_row(core: Core, waiting: QueuedPod, common: dict[str, Any]) -> PodRow:
    queue = core.queue
    permit = core.permit_of(pod_uid(waiting.pod))
    if permit is not None:
        return PodRow(
            where="answers" if permit.is_reserved else "permit",
            until=in_ms(permit.deadline),
            plugins=permit.plugins,
            awaited=tuple(awaited.what for awaited in permit.awaited),
            **{**common, "node": permit.node},
        )
    group = queue.get_group(waiting.group) if waiting.group else None
    holder: AnyEntity = waiting if group is None else group
    where = queue.whereabouts(waiting)
    gate = holder.gating_plugin or waiting.gating_plugin
    gated = where is Where.UNSCHEDULABLE and bool(gate)
    reasons = holder.gating_reasons or waiting.gating_reasons
    blamed = (*waiting.unschedulable_plugins, *waiting.pending_plugins, *holder.unschedulable_plugins)
    fallback = fallback_of(core, waiting)
    return PodRow(
        where="gated" if gated else where.value.replace("_", " "),
        since=in_ms(holder.timestamp),
        until=0 if gated else in_ms(queue.waits_until(holder) or 0),
        attempts=waiting.attempts,
        plugins=tuple(dict.fromkeys(blamed)),
        gate=f"{gate}: {', '.join(reasons)}" if gated else "",
        fallback=fallback.lines,
        fallback_at=in_ms(fallback.due),
        **common,
    )


def _node_row(node: Node) -> NodeRow:
    return NodeRow(
        allocatable=parse_requests(node.status.allocatable),
        labels=node.metadata.labels,
        taints=tuple(f"{t.key}{'=' + t.value if t.value else ''}:{t.effect}" for t in node.spec.taints),
        cordoned=node.spec.unschedulable,
    )


def _budget_row(budget: PodDisruptionBudget) -> BudgetRow:
    status = budget.status
    refused = next((c for c in status.conditions if c.status == "False" and c.message), None)
    return BudgetRow(
        allowed=status.disruptions_allowed,
        healthy=status.current_healthy,
        desired=status.desired_healthy,
        expected=status.expected_pods,
        disrupted=tuple(sorted(status.disrupted_pods)),
        note="" if refused is None else refused.message,
    )


def _group_row(group: PodGroup) -> GroupRow:
    policy = group.spec.scheduling_policy or group.spec.policy
    gang = None if policy is None else policy.gang
    constraints = group.spec.scheduling_constraints
    written = () if constraints is None else constraints.topology or constraints.topology_constraints
    levels = tuple(constraint.key or constraint.level for constraint in written)
    condition = next((c for c in group.status.conditions if c.type == "PodGroupInitiallyScheduled"), None)
    return GroupRow(
        minimum=0 if gang is None else gang.min_count,
        levels=levels,
        condition="" if condition is None else f"{condition.reason or condition.status}",
        message="" if condition is None else condition.message,
    )

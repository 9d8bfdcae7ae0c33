"""Where a pending pod is, why, until when, and which events would wake it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from tidelog.api.objects import Pod
from tidelog.framework.framework import Framework
from tidelog.framework.interface import Plugin
from tidelog.plugins.pod_topology_spread.plugin import PodTopologySpread
from tidelog.queue.entity import AnyEntity, QueuedPod, Where, pod_uid
from tidelog.queue.hints import registrations_of
from tidelog.replay.words import event_name
from tidelog.scheduler.core import Core
from tidelog.scheduler.permits import Permit


class Waits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The wait of a pending pod."""

    place: str
    """`active`, `backoff`, `unschedulable`, `gated`, `in flight`, `permit`, `answers`, `member`, … or `nowhere`."""
    since: int = 0
    until: int = 0
    """When time alone ends the wait: end of the backoff, of the stay in the pool, of the permit. 0: never."""
    attempts: int = 0
    group: str = ""
    gate: str = ""
    """The gate that keeps it out of the queue."""
    plugins: tuple[str, ...] = ()
    """The plugins that rejected it last."""
    pending: tuple[str, ...] = ()
    """The plugins among them that wait for something to finish."""
    first_rejected_at: dict[str, int] = {}
    events: dict[str, tuple[str, ...]] = {}
    """For each of these plugins, the events that may wake the pod."""
    fallback: tuple[str, ...] = ()
    """A line for each spread constraint that can fall back: what it waits for, and when its time is over (KEP-3990)."""
    reserved_on: str = ""
    """The node whose resources are set aside while plugins wait."""
    nominated_to: str = ""
    """The node on which room is made, and kept, for it …"""
    leaving: tuple[str, ...] = ()
    """… and the pods there that are about to go."""
    awaited: tuple[str, ...] = ()
    """A controller and its task, before a pod whose volumes or devices are promised can be bound."""


def waits_of(core: Core, pod: Pod) -> Waits | None:
    """Describe what the pod waits for; None if it is not pending for this scheduler."""
    if pod.spec.node_name:
        return None
    permit = core.permit_of(pod_uid(pod))
    if permit is not None:
        return _held(permit)
    entity = core.queue.get(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return None if entity is None else queued(core, entity)


def _held(permit: Permit, entity: Waits | None = None) -> Waits:
    """The wait of a pod whose place is reserved."""
    return Waits(
        place="answers" if permit.is_reserved else "permit",
        since=0 if entity is None else entity.since,
        until=permit.deadline,
        attempts=0 if entity is None else entity.attempts,
        plugins=permit.plugins,
        reserved_on=permit.node,
        awaited=tuple(awaited.what for awaited in permit.awaited),
    )


def queued(core: Core, entity: QueuedPod) -> Waits:
    """The wait of a pod in the queue."""
    queue = core.queue
    group = queue.get_group(entity.group) if entity.group else None
    holder: AnyEntity = entity if group is None else group
    where = queue.whereabouts(entity)
    gate = holder.gating_plugin or entity.gating_plugin
    gated = where is Where.UNSCHEDULABLE and bool(gate)
    reasons = holder.gating_reasons or entity.gating_reasons
    blamed = dict.fromkeys(
        (
            *entity.unschedulable_plugins,
            *entity.pending_plugins,
            *holder.unschedulable_plugins,
            *holder.pending_plugins,
        )
    )
    nominated = queue.nominator.node_of(entity.pod)
    return Waits(
        place="gated" if gated else where.value.replace("_", " "),
        since=holder.timestamp,
        until=0 if gated else queue.waits_until(holder) or 0,
        attempts=entity.attempts,
        group=entity.group,
        gate=f"{gate}: {', '.join(reasons)}" if gated else "",
        plugins=tuple(blamed),
        pending=tuple(dict.fromkeys((*entity.pending_plugins, *holder.pending_plugins))),
        first_rejected_at=dict(sorted(entity.first_rejected_at.items())),
        events=waking_events(core.frameworks[entity.profile], tuple(blamed)),
        fallback=fallback_of(core, entity).lines,
        nominated_to=nominated,
        leaving=tuple(_leaving(core, nominated)),
    )


def _leaving(core: Core, name: str) -> Iterator[str]:
    node = core.cluster.cache.get(name) if name else None
    for other in () if node is None else node.pods.values():
        if other.pod.metadata.deletion_timestamp:
            yield other.key


class FallbackState(NamedTuple):
    """How a pending pod's spread constraints stand (KEP-3990)."""

    lines: tuple[str, ...]
    """Return the standing now of each constraint that can fall back."""
    due: int
    """When time alone will let one fall back; 0: never, as things are."""


def fallback_of(core: Core, entity: QueuedPod) -> FallbackState:
    """Return how the pod's spread constraints stand."""
    plugins = plugins_of(core.frameworks[entity.profile])
    spread = next((plugin for plugin in plugins if isinstance(plugin, PodTopologySpread)), None)
    if spread is None:
        return FallbackState((), 0)
    return FallbackState(spread.fallback_lines(entity, core.at), spread.time_due(entity) or 0)


def waking_events(framework: Framework, plugins: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """For each of the plugins the events that it registered for."""
    known = registrations_of(plugins_of(framework))
    return {
        name: tuple(dict.fromkeys(event_name(r.event) for r in known[name]))
        for name in plugins
        if name in known
    }


def plugins_of(framework: Framework) -> list[Plugin]:
    """The plugins of a profile that may reject a pod, each once."""
    points = (
        framework.pre_enqueue,
        framework.pre_filter,
        framework.filter,
        framework.post_filter,
        framework.reserve,
        framework.permit,
    )
    found = {plugin.name: plugin for point in points for plugin in point}
    return [plugin for plugin in found.values() if isinstance(plugin, Plugin)]


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A pending pod."""

    key: str
    """`namespace/name`."""
    priority: int
    waits: Waits


def queue_of(core: Core) -> list[QueueRow]:
    """Every pending pod: those being tried, those whose turn comes, and so on to the gated ones."""
    found = core.queue.contents()
    entities: list[AnyEntity] = [attempt.pod for attempt in found.in_flight]
    entities += [*found.active, *found.backoff_rejected, *found.backoff_errors, *found.unschedulable]
    entities += [*found.pending_members, *found.incomplete_members]
    pods: dict[str, QueuedPod] = {}
    for entity in entities:
        for pod in [entity] if isinstance(entity, QueuedPod) else entity.ordered_members():
            pods.setdefault(pod.key, pod)
    rows = [_row(core, pod) for pod in pods.values()]
    return sorted(rows, key=lambda row: _PLACES.get(row.waits.place, len(_PLACES)))


_PLACES = {
    place: number
    for number, place in enumerate(
        ("in flight", "permit", "answers", "active", "backoff", "unschedulable", "gated")
    )
}


def _row(core: Core, entity: QueuedPod) -> QueueRow:
    permit = core.permit_of(entity.uid)
    waits = queued(core, entity)
    if permit is not None:
        waits = _held(permit, waits)
    return QueueRow(key=entity.key, priority=entity.pod.spec.priority or 0, waits=waits)

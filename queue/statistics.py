"""What the gauges show, computed from the queue itself whenever somebody asks.

Gauges that are kept by counting up and down go wrong one day. These are looked up: a call costs one walk over the
waiting pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod
from tidelog.queue.groups import Groups
from tidelog.queue.in_flight import Attempt, InFlight
from tidelog.queue.places import Places


class QueueStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One moment's figures, under kube-scheduler's names and labels."""

    pending_pods: dict[str, int]
    """By queue: active, backoff, unschedulable, gated, incomplete, pending. Pods in flight are in none."""
    queued_entities: dict[tuple[str, str], int]
    """By queue (the first four) and type (pod, podgroup)."""
    unschedulable_pods: dict[tuple[str, str], int]
    """By plugin and profile: pods that it rejected in their last attempt, wherever they wait now."""
    inflight_events: dict[str, int]
    """Kept events by label, and as `PodPopped` the pods in flight. All gone or zero when nothing is in flight."""
    gated_pods: dict[str, int]
    """By the plugin whose gate is closed."""
    oldest_attempt: Attempt | None
    """It is what keeps the events."""


def statistics(places: Places, groups: Groups, in_flight: InFlight) -> QueueStatistics:
    """Count everything."""
    pool = places.pool.all()
    queues: dict[str, list[AnyEntity]] = {
        "active": places.active.unordered(),
        "backoff": places.backoff.rejected() + places.backoff.errors(),
        "unschedulable": [entity for entity in pool if not entity.gating_plugin],
        "gated": [entity for entity in pool if entity.gating_plugin],
    }
    outside = {"incomplete": groups.incomplete, "pending": groups.pending}
    aside = {
        name: [pod for pods in by_group.values() for pod in pods.values()]
        for name, by_group in outside.items()
    }
    entities: Counter[tuple[str, str]] = Counter()
    for name, found in queues.items():
        group_count = sum(isinstance(entity, QueuedGroup) for entity in found)
        entities[name, "pod"] = len(found) - group_count
        entities[name, "podgroup"] = group_count
    pods = {name: list(_pods(found)) for name, found in queues.items()} | aside
    attempts = in_flight.attempts()
    return QueueStatistics(
        pending_pods={name: len(found) for name, found in pods.items()},
        queued_entities=dict(entities),
        unschedulable_pods=_by_rejector(pod for found in pods.values() for pod in found),
        inflight_events=in_flight.event_counts(),
        gated_pods=dict(
            sorted(Counter(pod.gating_plugin for pod in pods["gated"] if pod.gating_plugin).items())
        ),
        oldest_attempt=attempts[0] if attempts else None,
    )


def _pods(entities: Iterable[AnyEntity]) -> Iterator[QueuedPod]:
    for entity in entities:
        if isinstance(entity, QueuedGroup):
            yield from entity.members.values()
        else:
            yield entity


def _by_rejector(pods: Iterable[QueuedPod]) -> dict[tuple[str, str], int]:
    # Most pods were rejected by one of few combinations of plugins: count those, then take them apart.
    combinations = Counter(
        (pod.profile, pod.unschedulable_plugins, pod.pending_plugins)
        for pod in pods
        if pod.unschedulable_plugins or pod.pending_plugins
    )
    found: Counter[tuple[str, str]] = Counter()
    for (profile, unschedulable, pending), count in combinations.items():
        for plugin in dict.fromkeys((*unschedulable, *pending)):
            found[plugin, profile] += count
    return dict(sorted(found.items()))

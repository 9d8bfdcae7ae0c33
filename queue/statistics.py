"""Numbers for the gauges, computed from the queue on demand.

Gauges that are kept by counting up and down go wrong one day. These are looked up: a call costs one walk over the
waiting pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import attrgetter

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
    """By what keeps them out: the plugin whose gate is closed, or the rule for groups."""
    oldest_attempt: Attempt | None
    """It is what keeps the events."""


def statistics(places: Places, groups: Groups, in_flight: InFlight) -> QueueStatistics:
    """Count everything."""
    pool = places.pool.all()
    queues: dict[str, list[AnyEntity]] = {
        "active": places.active.unordered(),
        "backoff": places.backoff.unordered(),
        "unschedulable": [entity for entity in pool if not entity.gating_plugin],
        "gated": [entity for entity in pool if entity.gating_plugin],
    }
    outside = {"incomplete": groups.incomplete, "pending": groups.pending}
    aside = {
        name: [pod for pods in by_group.values() for pod in pods.values()]
        for name, by_group in outside.items()
    }
    entities: dict[tuple[str, str], int] = {}
    pods = dict(aside)
    for name, found in queues.items():
        singles = [entity for entity in found if isinstance(entity, QueuedPod)]
        entities[name, "pod"] = len(singles)
        entities[name, "podgroup"] = len(found) - len(singles)
        if len(found) > len(singles):
            queued_groups = (entity for entity in found if isinstance(entity, QueuedGroup))
            singles.extend(member for group in queued_groups for member in group.members.values())
        pods[name] = singles
    attempts = in_flight.attempts()
    return QueueStatistics(
        pending_pods={name: len(found) for name, found in pods.items()},
        queued_entities=entities,
        unschedulable_pods=_by_rejector(pods.values()),
        inflight_events=in_flight.event_counts(),
        gated_pods=_by_gate(queues["gated"]),
        oldest_attempt=attempts[0] if attempts else None,
    )


def _by_gate(gated: list[AnyEntity]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for entity in gated:
        found[entity.gating_plugin] += len(entity.members) if isinstance(entity, QueuedGroup) else 1
    return dict(sorted(found.items()))


_REJECTION = attrgetter("profile", "unschedulable_plugins", "pending_plugins")


def _by_rejector(pods: Iterable[list[QueuedPod]]) -> dict[tuple[str, str], int]:
    # Most pods were rejected by one of few combinations of plugins: count those, then take them apart.
    combinations: Counter[tuple[str, tuple[str, ...], tuple[str, ...]]] = Counter()
    for found in pods:
        combinations.update(map(_REJECTION, found))
    rejected: Counter[tuple[str, str]] = Counter()
    for (profile, unschedulable, pending), count in combinations.items():
        for plugin in dict.fromkeys((*unschedulable, *pending)):
            rejected[plugin, profile] += count
    return dict(sorted(rejected.items()))

"""Metrics of a live cluster: how the watches go, what is sent, what is outstanding.

All of it is counted where it happens (`tidelog.kube.cluster`) and looked at when somebody asks. Without a cluster every family is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from tidelog.daemon.metrics.families import Description, Gauge, Kind, LabelValues

Values = Mapping[LabelValues, float]


class ClusterStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """One moment."""

    watch_events: Values = {}
    watch_suppressed: Values = {}
    watch_restarts: Values = {}
    watch_relists: Values = {}
    watch_lag: Values = {}
    objects_unread: Values = {}
    api_requests: Values = {}
    api_seconds: Values = {}
    writes_failed: Values = {}
    confirm_seconds: Values = {}
    confirmed: Values = {}
    unsettled: Values = {}
    oldest_unsettled: Values = {}
    leader: Values = {}
    events_posted: Values = {}
    events_dropped: Values = {}
    late_bindings: Values = {}
    shadow: Values = {}


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One family: which values, under which name."""

    field: str
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


FAMILIES: tuple[Told, ...] = (
    Told(
        field="watch_events",
        name="tidelog_watch_events_total",
        kind="counter",
        help="Events of watches by kind, bookmarks left out.",
        labels=("kind",),
    ),
    Told(
        field="watch_suppressed",
        name="tidelog_watch_suppressed_total",
        kind="counter",
        help="Versions of objects that appended nothing, because nothing that is stored was different.",
        labels=("kind",),
    ),
    Told(
        field="watch_restarts",
        name="tidelog_watch_restarts_total",
        kind="counter",
        help="Watches that were opened, by kind; servers end them every few minutes.",
        labels=("kind",),
    ),
    Told(
        field="watch_relists",
        name="tidelog_watch_relists_total",
        kind="counter",
        help="Gaps that were bridged by a list, by kind and reason: expired, wentBack, undecodable, diverged.",
        labels=("kind", "reason"),
    ),
    Told(
        field="watch_lag",
        name="tidelog_watch_lag_seconds",
        kind="gauge",
        help="Time since the server last said anything about the kind; bookmarks come about every minute.",
        labels=("kind",),
    ),
    Told(
        field="objects_unread",
        name="tidelog_objects_unread",
        kind="gauge",
        help="Versions of objects that could not be read, by kind.",
        labels=("kind",),
    ),
    Told(
        field="api_requests",
        name="tidelog_api_requests_total",
        kind="counter",
        help="Writes to the API server, and reads that they made necessary, by HTTP status; 0 is no answer.",
        labels=("verb", "resource", "code"),
    ),
    Told(
        field="api_seconds",
        name="tidelog_api_seconds_total",
        kind="counter",
        help="Time that these requests took.",
        labels=("verb", "resource"),
    ),
    Told(
        field="writes_failed",
        name="tidelog_writes_failed_total",
        kind="counter",
        help="Effects that did not come about at the API server; code 0 was called off before it was sent.",
        labels=("effect", "code", "final"),
    ),
    Told(
        field="confirm_seconds",
        name="tidelog_binding_confirm_seconds_total",
        kind="counter",
        help="Time from the answers to bindings until the pods were seen bound.",
    ),
    Told(
        field="confirmed",
        name="tidelog_bindings_confirmed_total",
        kind="counter",
        help="Bindings that were answered and then seen.",
    ),
    Told(
        field="unsettled",
        name="tidelog_unsettled",
        kind="gauge",
        help="What was decided and does not show in the cluster yet, by effect.",
        labels=("effect",),
    ),
    Told(
        field="oldest_unsettled",
        name="tidelog_unsettled_oldest_seconds",
        kind="gauge",
        help="Age of the oldest of them.",
    ),
    Told(
        field="leader",
        name="tidelog_leader",
        kind="gauge",
        help="1 while this process holds the Lease and may write.",
    ),
    Told(
        field="events_posted",
        name="tidelog_events_posted_total",
        kind="counter",
        help="Events that the API server has taken.",
    ),
    Told(
        field="events_dropped",
        name="tidelog_events_dropped_total",
        kind="counter",
        help="Events that were not posted: too many waited, or the server did not take them.",
    ),
    Told(
        field="late_bindings",
        name="tidelog_late_bindings_total",
        kind="counter",
        help="Pods that were seen bound to a node that was closed or gone by then: nobody guards the node after a binding was sent.",
    ),
    Told(
        field="shadow",
        name="tidelog_shadow_total",
        kind="counter",
        help="Decisions of the cluster's own scheduler by what they are by our rules (docs/shadow.md).",
        labels=("verdict",),
    ),
)


def cluster_families(now: Callable[[], ClusterStatistics]) -> Iterator[Gauge]:
    """One for each, computed when it is read."""
    for told in FAMILIES:
        description = Description(name=told.name, kind=told.kind, help=told.help, labels=told.labels)

        def values(field: str = told.field) -> Values:
            found: Values = getattr(now(), field)
            return found

        counts_from_the_start = told.kind == "counter" and not told.labels
        yield Gauge(description, values, [()] if counts_from_the_start else [])

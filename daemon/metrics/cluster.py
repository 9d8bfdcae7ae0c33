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


FAMILIES: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("watch_events", "tidelog_watch_events_total", ("kind",),
     "Events of watches by kind, bookmarks left out."),
    ("watch_suppressed", "tidelog_watch_suppressed_total", ("kind",),
     "Versions of objects that appended nothing, because nothing that is stored was different."),
    ("watch_restarts", "tidelog_watch_restarts_total", ("kind",),
     "Watches that were opened, by kind; servers end them every few minutes."),
    ("watch_relists", "tidelog_watch_relists_total", ("kind", "reason"),
     "Gaps that were bridged by a list, by kind and reason: expired, wentBack, undecodable, diverged."),
    ("watch_lag", "tidelog_watch_lag_seconds", ("kind",),
     "Time since the server last said anything about the kind; bookmarks come about every minute."),
    ("objects_unread", "tidelog_objects_unread", ("kind",),
     "Versions of objects that could not be read, by kind."),
    ("api_requests", "tidelog_api_requests_total", ("verb", "resource", "code"),
     "Writes to the API server, and reads that they made necessary, by HTTP status; 0 is no answer."),
    ("api_seconds", "tidelog_api_seconds_total", ("verb", "resource"),
     "Time that these requests took."),
    ("writes_failed", "tidelog_writes_failed_total", ("effect", "code", "final"),
     "Effects that did not come about at the API server; code 0 was called off before it was sent."),
    ("confirm_seconds", "tidelog_binding_confirm_seconds_total", (),
     "Time from the answers to bindings until the pods were seen bound."),
    ("confirmed", "tidelog_bindings_confirmed_total", (),
     "Bindings that were answered and then seen."),
    ("unsettled", "tidelog_unsettled", ("effect",),
     "What was decided and does not show in the cluster yet, by effect."),
    ("oldest_unsettled", "tidelog_unsettled_oldest_seconds", (),
     "Age of the oldest of them."),
    ("leader", "tidelog_leader", (),
     "1 while this process holds the Lease and may write."),
    ("events_posted", "tidelog_events_posted_total", (),
     "Events that the API server has taken."),
    ("events_dropped", "tidelog_events_dropped_total", (),
     "Events that were not posted: too many waited, or the server did not take them."),
    ("late_bindings", "tidelog_late_bindings_total", (),
     "Pods that were seen bound to a node that was closed or gone by then: nobody guards the node after a binding was sent."),
    ("shadow", "tidelog_shadow_total", ("verdict",),
     "Decisions of the cluster's own scheduler by what they are by our rules (docs/shadow.md)."),
)  # fmt: skip
"""Field of the statistics, name, labels, help; a family whose name ends on `_total` is a counter, any other a gauge."""


def cluster_families(now: Callable[[], ClusterStatistics]) -> Iterator[Gauge]:
    """One for each, computed when it is read."""
    for of, name, labels, text in FAMILIES:
        kind: Kind = "counter" if name.endswith("_total") else "gauge"

        def values(field: str = of) -> Values:
            found: Values = getattr(now(), field)
            return found

        counts_from_the_start = kind == "counter" and not labels
        description = Description(name=name, kind=kind, help=text, labels=labels)
        yield Gauge(description, values, [()] if counts_from_the_start else [])

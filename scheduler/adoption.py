"""What an attempt decided counts for those that come after it, before it is in the log.

    Scheduled, Waiting ──► the pod is assumed on its node
    Nominated          ──► filters count it on the node; those of lower priority there not any more
    Evicted            ──► the victim is going
    PlacementChosen    ──► the members are assumed, the claims' devices taken
    AttemptAborted     ──► what had been adopted in its place: later attempts saw that

Nothing is needed for it but the outcomes themselves, because a log is recovered by adopting what it says. What the pods' objects say
changes only when the records come (`tidelog.scheduler.outcomes`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.api.objects import Pod
from tidelog.api.pod_status import preempted
from tidelog.eventlog.records import (
    AttemptAborted,
    Body,
    Evicted,
    EvictionRefused,
    Nominated,
    Scheduled,
    Waiting,
)
from tidelog.plugins.node_info import PodInfo
from tidelog.queue.entity import pod_uid
from tidelog.scheduler.cluster import Cluster
from tidelog.scheduler.flights import Flights
from tidelog.scheduler.group import is_group_key
from tidelog.scheduler.group_flights import GroupFlights
from tidelog.scheduler.preemption import Evictions, PendingEviction


class Adoption:
    """Adopts outcomes: in the cluster's cache, in the nominations, in the evictions that are under way."""

    def __init__(
        self, cluster: Cluster, flights: Flights, evictions: Evictions, group_flights: GroupFlights
    ) -> None:
        self._cluster = cluster
        self._flights = flights
        self._evictions = evictions
        self._group_flights = group_flights

    def adopt(self, attempt: int, outcomes: Sequence[tuple[str, Body]]) -> None:
        """Let the attempt's outcomes count for those that come after it. It is in flight from here on."""
        cluster = self._cluster
        uids: dict[str, None] = {}
        if is_group_key(outcomes[0][0]):
            for key, node in self._group_flights.adopt(attempt, outcomes):
                pod = cluster.pod(key)
                if pod is not None:
                    self._assume(pod, node)
            uids.update(dict.fromkeys(self._group_flights.members(attempt)))
        for key, body in outcomes:
            pod = cluster.pod(key)
            if pod is None:
                continue
            self._adopt_one(pod, key, body)
            if not isinstance(body, Evicted | EvictionRefused | Nominated):
                uids[pod_uid(pod)] = None
            if isinstance(body, AttemptAborted):
                others = map(cluster.pod, body.assignment)
                uids.update(dict.fromkeys(pod_uid(other) for other in others if other is not None))
        self._flights.take_off(attempt, uids)

    def _adopt_one(self, pod: Pod, key: str, body: Body) -> None:
        if isinstance(body, Scheduled | Waiting) or (isinstance(body, AttemptAborted) and body.node):
            self._assume(pod, body.node)
        elif isinstance(body, Nominated):
            self._nominate(pod, body.node, body.cleared)
        elif isinstance(body, AttemptAborted) and body.nominated:
            self._nominate(pod, body.nominated, body.cleared)
        elif isinstance(body, Evicted):
            self._evict(pod, key, body)

    def _assume(self, pod: Pod, node: str) -> None:
        cluster = self._cluster
        if not cluster.cache.is_assumed(pod_uid(pod)):
            cluster.cache.assume(cluster.info_of(pod), node)
        assert cluster.queue is not None
        cluster.queue.nominator.forget(pod)

    def _nominate(self, pod: Pod, node: str, cleared: Sequence[str]) -> None:
        """Filters count the pod on the node from now on, and those of lower priority not any more."""
        cluster = self._cluster
        assert cluster.queue is not None
        for key in cleared:
            other = cluster.pod(key)
            if other is not None:
                cluster.queue.nominator.forget(other)
        cluster.queue.nominator.nominate(pod, node)

    def _evict(self, pod: Pod, key: str, body: Evicted) -> None:
        """The pod is going from now on, for every later attempt; its object says so when the record is in the log."""
        uid, at = pod_uid(pod), body.at
        self._evictions.decide(
            PendingEviction(uid, key, body.preemptor, body.attempt, at, tuple(body.budgets))
        )
        if pod.spec.node_name:
            self._cluster.cache.put_pod(PodInfo(preempted(pod, body.message, at)))

"""Adopts a decision: it counts for the attempts after it before it is in the log.

    Scheduled, Waiting ──► the pod is assumed on its node
    Reserved           ──► likewise, and plugins see the objects as they will be written
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
    Reserved,
    Scheduled,
    Waiting,
)
from tidelog.framework.node_info import PodInfo
from tidelog.queue.entity import pod_uid
from tidelog.scheduler.cluster import Cluster
from tidelog.scheduler.groups.flights import GroupFlights
from tidelog.scheduler.groups.group import is_group_key
from tidelog.scheduler.preemption import Evictions, PendingEviction

_PLACED = (Scheduled, Waiting, Reserved)
_BESIDES = (Evicted, EvictionRefused, Nominated)
"""Outcomes that are not the last that an attempt has to say of the pod, or are about another one."""


class Adoption:
    """Adopts outcomes: in the cluster's cache, in the nominations, in the evictions that are under way."""

    def __init__(self, cluster: Cluster, evictions: Evictions, group_flights: GroupFlights) -> None:
        self._cluster = cluster
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
                    self._assume(pod, pod_uid(pod), node)
            uids.update(dict.fromkeys(self._group_flights.members(attempt)))
        for key, body in outcomes:
            if isinstance(body, Reserved | AttemptAborted) and body.writes:
                cluster.promise(body.writes)
            pod = cluster.pod(key)
            if pod is None:
                continue
            uid = pod_uid(pod)
            self._adopt_one(pod, uid, key, body)
            if not isinstance(body, _BESIDES):
                uids[uid] = None
            if isinstance(body, AttemptAborted):
                others = map(cluster.pod, body.assignment)
                uids.update(dict.fromkeys(pod_uid(other) for other in others if other is not None))
        cluster.flights.take_off(attempt, uids, cluster.seq)

    def _adopt_one(self, pod: Pod, uid: str, key: str, body: Body) -> None:
        if isinstance(body, _PLACED) or (isinstance(body, AttemptAborted) and body.node):
            self._assume(pod, uid, body.node)
        elif isinstance(body, Nominated):
            self._nominate(pod, body.node, body.cleared)
        elif isinstance(body, AttemptAborted) and body.nominated:
            self._nominate(pod, body.nominated, body.cleared)
            self._evict_for(pod, key, body)
        elif isinstance(body, Evicted):
            preemptor = self._cluster.pod(body.preemptor)
            assert preemptor is not None, "an attempt is about a pod that is there"
            budgets = tuple(body.budgets)
            eviction = PendingEviction(uid, key, body.preemptor, body.attempt, body.at, budgets)
            self._evict(pod, eviction, preemptor, body.message)

    def _assume(self, pod: Pod, uid: str, node: str) -> None:
        cluster = self._cluster
        if not cluster.cache.is_assumed(uid):
            cluster.cache.assume(cluster.info_of(pod), node)
        cluster.queue.nominator.forget(pod)

    def _nominate(self, pod: Pod, node: str, cleared: Sequence[str]) -> None:
        """Filters count the pod on the node from now on, and those of lower priority not any more."""
        cluster = self._cluster
        for key in cleared:
            other = cluster.pod(key)
            if other is not None:
                cluster.queue.nominator.forget(other)
        cluster.queue.nominator.nominate(pod, node)

    def _evict_for(self, preemptor: Pod, key: str, body: AttemptAborted) -> None:
        """Those who were going until the preemption was called off: of its victims those that were not going already.

        Nobody has decided anything about them in the meantime: a permit whose time was over did not end.
        """
        for victim_key in body.victims:
            victim = self._cluster.pod(victim_key)
            known = None if victim is None else self._cluster.cache.pod(pod_uid(victim))
            if victim is None or known is None or known.terminating or self._evictions.is_evicted(known.uid):
                continue
            eviction = PendingEviction(known.uid, victim_key, key, body.attempt, body.at)
            self._evict(victim, eviction, preemptor, "")

    def _evict(self, victim: Pod, eviction: PendingEviction, preemptor: Pod, message: str) -> None:
        """The pod is going from now on, for every later attempt; its object says so when the record is in the log."""
        self._evictions.decide(eviction, pod_uid(preemptor))
        if victim.spec.node_name:
            self._cluster.cache.put_pod(PodInfo(preempted(victim, message, eviction.at)))

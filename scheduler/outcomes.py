"""Applies an outcome that is in the log: for the pod's object, for the queue, and for what was adopted.

    Scheduled           the pod is bound, the attempt has landed
    Unschedulable       its status says so, the queue keeps it until something changes
    AttemptError        the same, until its backoff is over
    Waiting             it stays in flight for the queue, until every plugin has permitted it
    Nominated, Evicted  the preemptor's status, the victim's, and what its budgets are charged
    PlacementChosen     the members of a group are bound, all at once
    AttemptAborted      whatever had been adopted is off; the pod or group is tried again

An outcome counts for later attempts since it was adopted (`tidelog.scheduler.adoption`); what follows here is what must wait for the log.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tidelog.api.objects import Object, Pod, PodDisruptionBudget
from tidelog.api.pod_status import (
    SCHEDULER_ERROR,
    bound_to,
    charged,
    is_terminal,
    nominated_to,
    preempted,
    rejected,
)
from tidelog.api.writes import Write, written
from tidelog.eventlog.records import (
    AttemptAborted,
    AttemptError,
    Evicted,
    Nominated,
    PlacementChosen,
    Reserved,
    Scheduled,
    Unschedulable,
    Waiting,
)
from tidelog.framework.node_info import PodInfo
from tidelog.queue.entity import pod_uid
from tidelog.scheduler.answers import Answers
from tidelog.scheduler.cluster import Cluster, wants_node
from tidelog.scheduler.commit_check import called_off, not_written, promised_again, spared
from tidelog.scheduler.fallback import preemption_marks
from tidelog.scheduler.groups.flights import GroupFlights
from tidelog.scheduler.permits import Permits
from tidelog.scheduler.preemption import Evictions
from tidelog.scheduler.rejections import Rejections


class Outcomes:
    """Consumes outcomes."""

    def __init__(
        self,
        cluster: Cluster,
        permits: Permits,
        rejections: Rejections,
        evictions: Evictions,
        group_flights: GroupFlights,
        answers: Answers,
    ) -> None:
        self._answers = answers
        self._cluster = cluster
        self._permits = permits
        self._rejections = rejections
        self._evictions = evictions
        self._group_flights = group_flights

    # --- of pods ------------------------------------------------------------------------------------------------------

    def scheduled(self, key: str, body: Scheduled) -> None:
        """The pod is bound."""
        cluster = self._cluster
        pod = cluster.tried_pod(key)
        uid = pod_uid(pod)
        if pod.spec.node_name != body.node:  # Else its group was bound as one.
            cluster.bind(key, pod, bound_to(pod, body.node, cluster.at))
        self.forget_pod(uid)
        cluster.queue.done(uid)
        self._land(body.attempt, (uid,))

    def unschedulable(self, key: str, body: Unschedulable) -> None:
        """The pod waits until something changes."""
        cluster, attempt = self._cluster, body.attempt
        pod, queue = cluster.tried_pod(key), cluster.queue
        uid = pod_uid(pod)
        self._write(body.writes)
        was_told = bool(body.same_as)
        body = self._rejections.consume(uid, cluster.seq, body)
        self._stop_waiting(uid, key)
        # While it is still in flight: what the rejection itself changes about the pod may be just what a plugin waits for. A
        # nomination that the attempt made has counted since the decision; its record comes next, but without it the pod
        # would look as if preemption had failed.
        changed = rejected(pod, body.message, cluster.at)
        if was_told and changed is not pod:
            cluster.apart[key] = None
        if node := queue.nominator.node_of(pod):
            changed = nominated_to(changed, node)
        cluster.change(key, changed)
        if attempt in self._group_flights.under_way:
            self._group_flights.left_over(attempt, uid, body)
        else:
            queue.fail(uid, body.plugins, body.pending, now=cluster.at, blocked_by=body.blocked_by)
        self._land(attempt, (uid,))

    def _write(self, writes: Iterable[Write]) -> None:
        """Nobody has gone by these before now, so whoever is in flight and read one of the objects is aborted."""
        for write in writes:
            found = self._cluster.objects.get(write.key)
            changed = written(found, write)
            if changed is not found:
                self._cluster.change(write.key, changed)

    def errored(self, key: str, body: AttemptError) -> None:
        """The attempt failed; the pod is tried again after its backoff."""
        pod = self._cluster.tried_pod(key)
        uid = pod_uid(pod)
        self._rejections.last.pop(uid, None)
        self._stop_waiting(uid, key)
        self._fail(pod, key, body.message)
        self._land(body.attempt, (uid,))

    def waiting(self, key: str, body: Waiting) -> None:
        """The pod stays in flight for the queue, and assumed; only the attempt is over."""
        uid = pod_uid(self._cluster.tried_pod(key))
        self._permits.begin(key, uid, body)
        self._land(body.attempt, (uid,))

    def reserved(self, key: str, body: Reserved) -> None:
        """Do the promised writes. The pod stays in flight for the queue, and assumed, until it is answered."""
        cluster = self._cluster
        uid = pod_uid(cluster.tried_pod(key))
        for write in body.writes:
            cluster.keep_promise(write.key, written(cluster.objects.get(write.key), write))
        # The pod's own permit is there only now, and is asked last.
        self._answers.look(*(write.key for write in body.writes))
        self._answers.ask(self._permits.begin(key, uid, body))
        if not body.group:
            cluster.queue.forgo_events(uid)
        self._land(body.attempt, (uid,))

    def _give_back(self, writes: Iterable[Write]) -> None:
        """Plugins see the objects again as they are; later attempts saw them otherwise."""
        cluster = self._cluster
        for write in writes:
            cluster.give_back(write.key)
            cluster.notes.append(not_written(cluster.seq, write.key))

    def aborted(self, key: str, body: AttemptAborted) -> None:
        """The attempt does not count. Its pod is tried again, and with it those that it was about besides."""
        cluster = self._cluster
        self._give_back(body.writes)
        if body.nominated:
            self._call_off(body)
        pods = {pod_uid(pod): other for other in (key, *body.assignment) if (pod := cluster.pod(other))}
        for uid in self._cluster.flights.give_up(body.attempt):
            found = pods.get(uid, key)
            self._stop_waiting(uid, found)
            pod = cluster.pod(found)
            if pod is not None and pod_uid(pod) == uid and wants_node(pod):
                self._restore_promise(pod)
            cluster.queue.abort(uid, cluster.at)

    def _restore_promise(self, pod: Pod) -> None:
        """A nomination that the attempt made does not count any more; one from before it, which is in the status, does."""
        cluster = self._cluster
        cluster.queue.nominator.nominate(pod)
        promised = pod.status.nominated_node_name
        if promised:
            cluster.notes.append(promised_again(cluster.seq, promised))

    def _fail(self, pod: Pod, key: str, message: str) -> None:
        """Nobody is to blame but the scheduler."""
        cluster = self._cluster
        cluster.change(key, rejected(pod, message, cluster.at, reason=SCHEDULER_ERROR))
        cluster.queue.fail(pod_uid(pod), now=cluster.at)

    # --- of preemptors and victims ------------------------------------------------------------------------------------

    def nominated(self, key: str, body: Nominated) -> None:
        """Clear nominations to this pod's node; the change of its status wakes a pod that loses one."""
        cluster = self._cluster
        preemptor = cluster.pod(key)
        if preemptor is not None:
            cluster.queue.mark_fallback(preemptor, body.node, preemption_marks(body.fallback))
        for other in (*body.cleared, key):
            pod = cluster.pod(other)
            if pod is not None:
                cluster.change(other, nominated_to(pod, body.node if other == key else ""))

    def evicted(self, key: str, body: Evicted) -> None:
        """The victim is told to go. One that waits for its permit, and so has no node, only loses its placement."""
        cluster, pod = self._cluster, self._cluster.pod(key)
        if pod is None:
            return
        uid = pod_uid(pod)
        if not pod.spec.node_name:
            self._stop_waiting(uid, key)
            self._fail(pod, key, body.message)
            self.end_eviction(uid)
            return
        cached = cluster.cache.pod(uid)
        known = cached is not None and cached.terminating
        cluster.change(key, preempted(pod, body.message, cluster.at), expected=known)
        # A live cluster's budgets are the server's to charge; until they show it, those that were decided count by themselves.
        for budget_key in () if self._evictions.live else body.budgets:
            budget = cluster.objects.get(budget_key)
            if isinstance(budget, PodDisruptionBudget):
                cluster.change(budget_key, charged(budget, pod.metadata.name, cluster.at), expected=True)
        self._release_preemptor(self._evictions.told(uid))

    def end_eviction(self, uid: str) -> None:
        """The pod, if it was a victim, is gone."""
        self._release_preemptor(self._evictions.end(uid))

    def _release_preemptor(self, key: str) -> None:
        """All victims of this pod have been told, or are gone: if its gate was closed meanwhile, it is looked at again."""
        cluster, queue = self._cluster, self._cluster.queue
        entity = queue.get(key.removeprefix("Pod/"))
        if entity is not None and entity.is_gated:
            queue.activate([entity.pod], cluster.seq, cluster.at)

    def _call_off(self, body: AttemptAborted) -> None:
        """A preemption is not coming: its victims stay, and who was to lose a nomination keeps it."""
        cluster = self._cluster
        for key in body.victims:
            pod = cluster.pod(key)
            eviction = None if pod is None else self._evictions.get(pod_uid(pod))
            if pod is None or eviction is None or eviction.attempt != body.attempt:
                continue
            self._evictions.end(eviction.uid)
            if pod.spec.node_name and not is_terminal(pod):
                cluster.cache.put_pod(PodInfo(pod))
            cluster.notes.append(spared(cluster.seq, key, body.nominated))
        cluster.notes.append(called_off(cluster.seq, body.nominated))
        if body.cleared:
            cluster.notes.append(promised_again(cluster.seq, body.nominated))
        for key in body.cleared:
            pod = cluster.pod(key)
            if pod is not None:
                cluster.queue.nominator.nominate(pod)

    # --- of groups ----------------------------------------------------------------------------------------------------

    def group_chosen(self, key: str, body: PlacementChosen) -> None:
        """The members are bound; their own outcomes follow."""
        self._rejections.last.pop(key, None)
        self._group_flights.chosen(key, body)

    def group_rejected(self, key: str, body: Unschedulable) -> None:
        """The whole group waits until something changes."""
        found = self._rejections.consume(key, self._cluster.seq, body)
        before: dict[str, Object | None] = {}
        if body.same_as:
            found = replace(found, attempt=body.attempt)
            before = {other: self._cluster.objects.get(other) for other in (key, *found.members)}
        self._land(body.attempt, self._group_flights.rejected(key, found))
        for other, obj in before.items():
            if self._cluster.objects.get(other) is not obj:
                self._cluster.apart[other] = None

    def group_errored(self, key: str, body: AttemptError) -> None:
        """The whole group is tried again after its backoff."""
        self._rejections.last.pop(key, None)
        self._land(body.attempt, self._group_flights.errored(key, body))

    def group_aborted(self, key: str, body: AttemptAborted) -> None:
        """The attempt does not count; the group is tried again."""
        cluster = self._cluster
        self._give_back(body.writes)
        for uid, member in self._group_flights.aborted(key, body):
            self._stop_waiting(uid, member)
            pod = cluster.pod(member)
            if pod is not None and pod_uid(pod) == uid:
                self._restore_promise(pod)
        self._cluster.flights.give_up(body.attempt)
        self._group_flights.put_back(body.attempt)

    def lost(self, *, waits: bool) -> None:
        """The other outcomes of the attempts in flight are lost: of groups, because what is said of a pod first ends its attempt, and with `waits` of
        those that ended the wait of a group's members. Who has no node is tried again."""
        cluster = self._cluster
        for attempt, flight in list(self._group_flights.under_way.items()):
            group = cluster.queue.get_group(flight.name)
            assert group is not None
            for member in group.popped:
                self._place_again(member.uid, f"Pod/{member.key}")
            cluster.flights.give_up(attempt)
            self._group_flights.put_back(attempt)
        if not waits:
            return
        for permit in self._permits.ending():
            self._place_again(permit.uid, permit.key)
            cluster.queue.abort(permit.uid, cluster.at)

    def _place_again(self, uid: str, key: str) -> None:
        """The pod's placement is off, unless it is bound, or another one by now."""
        pod = self._cluster.pod(key)
        if pod is not None and pod_uid(pod) == uid and not pod.spec.node_name:
            self._stop_waiting(uid, key)
            self._restore_promise(pod)

    # --- of pods that want no node any more ---------------------------------------------------------------------------

    def stop_attempts(self, uid: str) -> None:
        """The pod wants no node any more. If it just waited for a permit, no outcome will come to end that attempt."""
        if uid in self._permits and not self._cluster.flights.attempt_of(uid):
            self._cluster.queue.done(uid)
        self.forget_pod(uid)

    def forget_pod(self, uid: str) -> None:
        """Its attempts are over, one way or the other."""
        self._permits.forget(uid)
        self._rejections.last.pop(uid, None)

    def _stop_waiting(self, uid: str, key: str) -> None:
        """The pod's placement, if it had one, is off."""
        self._permits.forget(uid)
        self._cluster.release(uid, key)

    def _land(self, attempt: int, uids: Iterable[str]) -> None:
        """These pods' parts of the attempt are over. With the last of a group's the group goes on."""
        if self._cluster.flights.land(attempt, uids) and attempt in self._group_flights.under_way:
            self._group_flights.finish(attempt)

"""Pod groups as entities: who is a member of what, and how groups come and go.

A member is never in the queues by itself. It is in one of these:

    incomplete   the group's object is not known: outside the queues until it appears
    member       inside the group's entity, which is where any entity can be
    in flight    popped with its group
    pending      the group is in flight, and this member came, or came back, meanwhile; it joins when the attempt ends

A new member joins its group where the group is. A group whose attempt ended is made again of its pending members; with
none left it is done, and its counters are forgotten.

In `upstream` mode groups behave as kube-scheduler's: one that was rejected only ever backs off, on the error side of the
backoff queue, and the pool holds gated groups only. Otherwise a rejected group waits in the pool for the hints of all
plugins that rejected one of its members or the group, events of its attempt included, and for a change of the group
itself: a member more or less, or other rules. A member that comes back with an error (its volumes could not be bound,
say) makes its group back off as after that error, whatever became of the others, and such a group is not popped early.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from tidelog.api.objects import ObjectMeta, Pod, PodSpec
from tidelog.framework.events import Action, ClusterEvent, Resource
from tidelog.queue.entity import NO_EXPIRY, QueuedGroup, QueuedPod, Strategy, Where
from tidelog.queue.group_rules import GroupRules, QueuedGroupInfo
from tidelog.queue.hints import HintMap
from tidelog.queue.in_flight import InFlightEvent
from tidelog.queue.order import Order
from tidelog.queue.places import Places

GroupStatus = Literal["success", "unschedulable", "error"]

MEMBER_DELETED = ClusterEvent(Resource.UNSCHEDULED_POD, Action.DELETE)
GROUP_ADDED = ClusterEvent(Resource.POD_GROUP, Action.ADD)
GROUP_UPDATED = ClusterEvent(Resource.POD_GROUP, Action.UPDATE)


class Groups:
    """The queued groups, those in flight, and the members outside both."""

    __slots__ = (
        "_errors_wait",
        "_hints",
        "_order",
        "_places",
        "in_flight",
        "incomplete",
        "pending",
        "queued",
        "rules",
        "wait_for_hints",
    )

    def __init__(
        self,
        places: Places,
        rules: GroupRules,
        order: Order,
        hints: HintMap,
        *,
        upstream: bool,
        errors_wait: bool,
    ) -> None:
        self._places = places
        self._order = order
        self._hints = hints
        self.rules = rules
        self.wait_for_hints = not upstream
        """Whether a rejected group waits in the pool for hints; upstream's groups do not."""
        self._errors_wait = errors_wait
        """Whether a member that comes back with an error makes its group back off as after that error, wherever the group is."""
        self.queued: dict[str, QueuedGroup] = {}
        self.in_flight: dict[str, QueuedGroup] = {}
        """Popped, and the result of their attempt is not known."""
        self.pending: dict[str, dict[str, QueuedPod]] = {}
        self.incomplete: dict[str, dict[str, QueuedPod]] = {}

    def place(self, pod: QueuedPod, now: int, cause: ClusterEvent, *, failed: bool = False) -> None:
        """Bring a member where it belongs: a new one, one whose attempt `failed`, or one whose group has appeared."""
        key = pod.group
        group = self.queued.get(key)
        if key not in self.rules.infos:
            pod.where = Where.INCOMPLETE_MEMBER
            self.incomplete.setdefault(key, {})[pod.key] = pod
        elif group is not None:
            self._join(group, pod, now, cause, failed=failed)
        elif key in self.in_flight:
            pod.where = Where.PENDING_MEMBER
            self.pending.setdefault(key, {})[pod.key] = pod
        else:
            self._found(pod, now, cause, failed=failed)

    def add(self, info: QueuedGroupInfo, now: int) -> None:
        """The group's object has appeared, or changed."""
        before = self.rules.infos.get(info.key)
        self.rules.infos[info.key] = info
        for pod in self.incomplete.pop(info.key, {}).values():
            self.place(pod, now, GROUP_ADDED)
        if before is None or before == info:
            return
        if (group := self.queued.get(info.key)) is not None:
            if info.priority != before.priority:
                self._places.reorder(group, self._order.of(group, _as_pod(info)))
            in_pool = group.where is Where.UNSCHEDULABLE
            if in_pool and self.wait_for_hints and (group.is_gated or info.may_help(before)):
                self._put_back(group, self._places.take_out(group), now, GROUP_UPDATED)
        elif (flying := self.in_flight.get(info.key)) is not None and info.may_help(before):
            flying.disturbed = True

    def remove(self, key: str) -> None:
        """The group's object is gone: a queued group is dissolved, and its members keep their records."""
        group = self.queued.pop(key, None)
        self.rules.remove(key)
        if group is not None:
            self._leave(group)
            self._make_incomplete(group.ordered_members())

    def member_deleted(self, pod_key: str, key: str, now: int) -> None:
        """A pod of the group was deleted, be it here or bound already."""
        _take(self.incomplete, key, pod_key)
        _take(self.pending, key, pod_key)
        if (flying := self.in_flight.get(key)) is not None:
            flying.disturbed = True
        elif (group := self.queued.get(key)) is not None:
            group.members.pop(pod_key, None)
            if not group.members:
                del self.queued[key]
                self._leave(group)
            elif not self._may_stay(group) or self.rules.gate(group, now) is not None:
                self._put_back(group, self._places.take_out(group), now, MEMBER_DELETED)
            else:
                self._places.choose_side(group)

    def take_off(self, group: QueuedGroup) -> tuple[QueuedPod, ...]:
        """The group was popped: its members in their order."""
        del self.queued[group.key]
        self.in_flight[group.key] = group
        group.where = Where.IN_FLIGHT
        group.popped = tuple(group.ordered_members())
        group.members = {}
        group.disturbed = False
        return group.popped

    def take_back(self, group: QueuedGroup, members: Sequence[QueuedPod], *, disturbed: bool) -> None:
        """Undo `take_off`: these were its members, in this order."""
        del self.in_flight[group.key]
        self.queued[group.key] = group
        group.members = {member.key: member for member in members}
        group.popped, group.disturbed = (), disturbed
        for member in members:
            member.where = Where.MEMBER
            member.attempts -= 1

    def exchange(self, old: QueuedPod, new: QueuedPod) -> None:
        """The attempt of a popped member is from now on that of another pod."""
        group = self.in_flight.get(old.group)
        if group is not None:
            group.popped = tuple(new if member is old else member for member in group.popped)

    def land(
        self,
        group: QueuedGroup,
        status: GroupStatus,
        missed: Sequence[InFlightEvent],
        now: int,
        cause: ClusterEvent,
    ) -> None:
        """The attempt has ended; members that are still to be placed are pending. `missed`: what happened during it."""
        popped = self._regroup(group)
        if not group.members:
            return
        info = self.rules.infos[group.key]
        newcomers = [member for member in group.members.values() if member not in popped]
        errors = self._errors_of(group.members.values())
        if status == "success":
            group.absolve()
            if errors:
                self._bear(group, errors, now)
                self._places.requeue(group, Strategy.AFTER_BACKOFF, now, cause)
                return
            if len(newcomers) == len(group.members):
                self._order.stamp(group, _as_pod(info), now)
            # Who was in this attempt and is left over keeps its place, and is tried again at once.
            self._places.to_active(group, now, cause)
            return
        group.reject((), (), is_error=status == "error")
        self._order.stamp(group, _as_pod(info), now)
        group.consecutive_errors = max(group.consecutive_errors, errors)
        strategy = Strategy.AFTER_BACKOFF
        # The group that was rejected is not the group that there is now if members came or it changed meanwhile.
        if group.has_rejectors and status == "unschedulable" and not newcomers and not group.disturbed:
            strategy = self._hints.best_strategy(group, missed)
        self._places.requeue(group, strategy, now, cause)

    def put_back(self, group: QueuedGroup, now: int, cause: ClusterEvent) -> None:
        """The attempt did not count: the group, made of its pending members, is tried again, its place unchanged."""
        self._regroup(group)
        if group.members:
            self._places.to_active(group, now, cause)

    def sort(self) -> None:
        """Compute the queued groups' places anew."""
        for group in self.queued.values():
            group.order = self._order.of(group, _as_pod(self.rules.infos[group.key]))

    def _regroup(self, group: QueuedGroup) -> dict[QueuedPod, None]:
        """Make the group's entity again out of its pending members; who was popped for the attempt that is over."""
        popped, group.popped = dict.fromkeys(group.popped), ()
        del self.in_flight[group.key]
        members = self.pending.pop(group.key, {})
        if group.key not in self.rules.infos:
            self._make_incomplete(list(members.values()))
        elif members:
            self.queued[group.key] = group
            group.members = members
            group.order = self._order.of(group, _as_pod(self.rules.infos[group.key]))
            for member in members.values():
                member.where = Where.MEMBER
        return popped

    def _join(
        self, group: QueuedGroup, pod: QueuedPod, now: int, cause: ClusterEvent, *, failed: bool
    ) -> None:
        """One more member of a queued group. If the newcomer is gated, so is the group; if it failed with an error, the group backs off."""
        group.members[pod.key] = pod
        pod.where = Where.MEMBER
        errors = self._errors_of((pod,)) if failed else 0
        if errors:
            self._bear(group, errors, now)
        leaves = errors and group.where is Where.ACTIVE
        if not leaves and self._may_stay(group) and self._places.lets_in(group, pod, now, cause):
            return
        if not errors and self.wait_for_hints and self._places.keeps_out(group, now, cause):
            return
        was = self._places.take_out(group)
        self._put_back(group, Where.BACKOFF if errors else was, now, cause)

    def _errors_of(self, members: Iterable[QueuedPod]) -> int:
        """The most errors in a row that one of these has met, where a group waits for its members' errors to pass."""
        return max((member.consecutive_errors for member in members), default=0) if self._errors_wait else 0

    def _bear(self, group: QueuedGroup, errors: int, now: int) -> None:
        """From now on the group backs off as after so many errors."""
        group.consecutive_errors = max(group.consecutive_errors, errors)
        group.expiry = NO_EXPIRY
        self._order.stamp(group, _as_pod(self.rules.infos[group.key]), now)

    def _may_stay(self, group: QueuedGroup) -> bool:
        """Whether a change of the members leaves the group where it is, because the others' gates let it in already.

        Else a group of n would try n² gates until it is complete. Upstream tries them all each time, and may then find one
        closed.
        """
        return self.wait_for_hints and group.where is not Where.UNSCHEDULABLE

    def _found(self, pod: QueuedPod, now: int, cause: ClusterEvent, *, failed: bool) -> None:
        """A new group entity around one member."""
        group = QueuedGroup(
            key=pod.group, timestamp=pod.timestamp, members={pod.key: pod}, hints=self.wait_for_hints
        )
        self._order.stamp(group, _as_pod(self.rules.infos[pod.group]), pod.timestamp)
        self.queued[pod.group] = group
        pod.where = Where.MEMBER
        if failed and self.wait_for_hints:
            # Upstream tries it at once, again and again if its binding goes on failing.
            group.unschedulable_count = pod.unschedulable_count
            group.consecutive_errors = pod.consecutive_errors
            self._places.requeue(group, Strategy.AFTER_BACKOFF, now, cause)
        else:
            self._places.to_active(group, now, cause)

    def _put_back(self, group: QueuedGroup, was: Where, now: int, cause: ClusterEvent) -> None:
        """A group that was taken out to be changed returns to where it was, as far as its gates let it."""
        if was is Where.ACTIVE:
            self._places.to_active(group, now, cause)
        elif was is Where.UNSCHEDULABLE and not self.wait_for_hints:
            self._places.requeue(group, Strategy.SKIP, now, cause)
        else:
            self._places.requeue(group, Strategy.AFTER_BACKOFF, now, cause)

    def _leave(self, group: QueuedGroup) -> None:
        self._places.take_out(group)
        self.rules.stop_waiting(group)

    def _make_incomplete(self, members: Sequence[QueuedPod]) -> None:
        for pod in members:
            pod.where = Where.INCOMPLETE_MEMBER
            self.incomplete.setdefault(pod.group, {})[pod.key] = pod


def _take(members: dict[str, dict[str, QueuedPod]], group: str, pod: str) -> None:
    """Remove a pod, and the group's entry with the last."""
    of_group = members.get(group)
    if of_group is not None and of_group.pop(pod, None) is not None and not of_group:
        del members[group]


def _as_pod(info: QueuedGroupInfo) -> Pod:
    """A group is sorted as a pod of its name and priority."""
    namespace, _, name = info.key.partition("/")
    return Pod(metadata=ObjectMeta(namespace=namespace, name=name), spec=PodSpec(priority=info.priority))

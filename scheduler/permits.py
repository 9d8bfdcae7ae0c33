"""Pods that have their resources reserved and wait: until every plugin has permitted their binding, or until what was written for them is answered.

A wait begins when a `Waiting` or `Reserved` is consumed, and ends with the pod's next outcome, or with the pod. Of an attempt's members that
wait together all go when one has waited too long or has failed, and all are bound when the last has its answers. Permits are part of the core's state; the plugins' own states of the attempts (`state_of`)
are not, because they cannot be written down: a scheduler that takes the log has none.

Everything costs a look at a dictionary, but for whose time is over: that looks at every pod that waits, once the first deadline has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tidelog.api.writes import Write
from tidelog.eventlog.records import Fallback, Reserved, Waiting
from tidelog.framework.interface import Awaited, CycleState, Status
from tidelog.scheduler.preemption import Evictions

NEVER = 1 << 63
"""Later than any deadline."""

BARRIER = "GangScheduling"
"""For whom the members of a gang wait that have nothing to wait for themselves."""


class Permit(msgspec.Struct, gc=False):
    """A pod that has its resources reserved and waits."""

    key: str
    uid: str
    node: str
    deadline: int
    plugins: tuple[str, ...]
    fallback: tuple[Fallback, ...] = ()
    """Kept because the plugins' state of the attempt is lost at a restart, and the binding has to tell the same."""
    group: str = ""
    """Record key of the group with which it was placed: if it is not bound, no member that waits is."""
    is_ending: bool = False
    """The attempt that ends the wait is in flight: there must not be another."""
    is_reserved: bool = False
    """It waits for answers to `writes`, and not for a permit."""
    writes: tuple[Write, ...] = ()
    score: int = 0
    feasible: int = 0
    """As its `Reserved` says: the binding tells it again."""
    awaited: tuple[Awaited, ...] = ()
    """Answers that have not come yet."""
    failure: Status | None = None
    """An answer that ends the wait for nothing."""
    judged_at: int = 0
    """The record that told so."""

    @property
    def is_answered(self) -> bool:
        """All that was written has been answered."""
        return self.is_reserved and not self.awaited and self.failure is None


class Permits:
    """All that wait, in the order in which they began to."""

    def __init__(self, evictions: Evictions) -> None:
        self._evictions = evictions
        self._permits: dict[str, Permit] = {}
        """By the pod's uid."""
        self._states: dict[str, CycleState] = {}
        """The cycle states of attempts that came to a wait, by the pod's uid."""
        self._begun = 0
        self._numbers: dict[str, int] = {}
        """Uid → the how-manieth wait it is."""
        self._earliest = NEVER
        """No deadline is before this."""
        self.watched: dict[str, dict[str, None]] = {}
        """Key of an object → uids of the pods whose answers it may change."""
        self._judged: dict[str, None] = {}
        """Uids of the pods that await nothing any more, all is answered or something failed, in the order in which that was told."""
        self._grouped: dict[str, dict[str, None]] = {}
        """Group → uids of the members that wait together."""

    def __contains__(self, uid: str) -> bool:
        """Whether the pod waits."""
        return uid in self._permits

    def get(self, uid: str) -> Permit | None:
        """Return the permit that the pod of this uid waits for."""
        return self._permits.get(uid)

    def begin(self, key: str, uid: str, body: Waiting | Reserved) -> Permit:
        """The pod waits from now on. For answers: `judge` must follow."""
        permit = Permit(key, uid, body.node, body.deadline, body.plugins, body.fallback, body.group)
        if isinstance(body, Reserved):
            permit.is_reserved = True
            permit.writes, permit.score, permit.feasible = body.writes, body.score, body.feasible
        self._enter(permit)
        return permit

    def _enter(self, permit: Permit) -> None:
        self.forget_permit(permit.uid)
        self._begun += 1
        self._numbers[permit.uid] = self._begun
        self._permits[permit.uid] = permit
        self._earliest = min(self._earliest, permit.deadline)
        if permit.is_reserved:
            self._watch(permit)
        if permit.group:
            self._grouped.setdefault(permit.group, {})[permit.uid] = None

    def forget(self, uid: str) -> None:
        """The pod does not wait any more, if it did."""
        self.forget_permit(uid)
        self._states.pop(uid, None)

    def forget_permit(self, uid: str) -> None:
        """As `forget`, but what plugins said stays."""
        permit = self._permits.pop(uid, None)
        if permit is None:
            return
        del self._numbers[uid]
        if permit.is_reserved:
            self._unwatch(permit)
        if permit.group:
            del self._grouped[permit.group][uid]
            if not self._grouped[permit.group]:
                del self._grouped[permit.group]

    # --- answers ------------------------------------------------------------------------------------------------------

    def watching(self, key: str) -> list[Permit]:
        """Those whose answers may be others because this object changed, in the order in which they began."""
        found = self.watched.get(key)
        return [self._permits[uid] for uid in sorted(found, key=self._numbers.__getitem__)] if found else []

    def reserved(self) -> list[Permit]:
        """All that wait for answers, in the order in which they began."""
        return [permit for permit in self._permits.values() if permit.is_reserved]

    def judge(self, permit: Permit, awaited: tuple[Awaited, ...], failure: Status | None, seq: int) -> None:
        """Note the answers as they are since this record."""
        self._unwatch(permit)
        permit.awaited, permit.failure, permit.judged_at = awaited, failure, seq
        self._watch(permit)

    def _watch(self, permit: Permit) -> None:
        for key in _keys(permit):
            self.watched.setdefault(key, {})[permit.uid] = None
        if not permit.awaited:
            self._judged[permit.uid] = None

    def _unwatch(self, permit: Permit) -> None:
        for key in _keys(permit):
            watchers = self.watched[key]
            watchers.pop(permit.uid, None)
            if not watchers:
                del self.watched[key]
        self._judged.pop(permit.uid, None)

    # --- the states of plugins ----------------------------------------------------------------------------------------

    def keep_states(self, states: Mapping[str, CycleState]) -> None:
        """Keep the plugins' states of an attempt for the end of its wait: a pod's wait may end in Unreserve."""
        self._states.update(states)

    def state_of(self, permit: Permit) -> CycleState:
        """Return the plugins' state from when the wait began; an empty one if that is lost."""
        return self._states.get(permit.uid) or CycleState()

    def drop_states(self) -> None:
        """A scheduler takes the log. One that was restarted has none, and one that was not must decide like it."""
        self._states.clear()

    # --- the end of waits ---------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When the first of those is over that an attempt can end; 0: now."""
        if not self._permits:
            return None
        if self._first_judged() is not None:
            return 0
        return min((p.deadline for p in self._permits.values() if self._can_end(p)), default=None)

    def take_due(self, now: int) -> Permit | None:
        """The first that has its answers, or whose time is over. An attempt must end it now, together with those `ending_with` it."""
        if not self._permits:
            return None
        found = self._first_judged()
        if found is None and self._earliest <= now:
            found = next((p for p in self._permits.values() if p.deadline <= now and self._can_end(p)), None)
            if found is None:
                self._earliest = min((p.deadline for p in self._permits.values()), default=NEVER)
        if found is not None:
            for each in self.ending_with(found):
                each.is_ending = True
        return found

    def _first_judged(self) -> Permit | None:
        """Return the first pod that has failed or can be bound; of a group only if all have."""
        found = map(self._permits.__getitem__, self._judged)
        return next((p for p in found if self._can_end(p) and self._is_settled(p)), None)

    def _is_settled(self, permit: Permit) -> bool:
        return permit.failure is not None or all(is_ready(each) for each in self.ending_with(permit))

    def ending_with(self, permit: Permit) -> list[Permit]:
        """The permit, and those of the members that wait with it: if one of them has waited too long, none is bound."""
        if not (permit.group and permit.plugins):
            return [permit]
        others = self._grouped.get(permit.group, {})
        return [permit, *(self._permits[uid] for uid in others if uid != permit.uid)]

    def ending(self) -> list[Permit]:
        """Those whose end is in flight, in the order in which they began."""
        return [permit for permit in self._permits.values() if permit.is_ending]

    def _can_end(self, permit: Permit) -> bool:
        return not permit.is_ending and not self._evictions.is_evicted(permit.uid)

    # --- the state as a value -----------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Permit]:
        """In the order in which they began."""
        return iter(self._permits.values())

    def dump(self) -> list[dict[str, Any]]:
        """As builtins."""
        return [msgspec.to_builtins(permit) for permit in self._permits.values()]

    def load(self, dumped: Iterable[dict[str, Any]]) -> None:
        """Take over what `dump` told."""
        for permit in msgspec.convert(list(dumped), list[Permit]):
            self._enter(permit)
        self._judged = dict.fromkeys(sorted(self._judged, key=lambda uid: self._permits[uid].judged_at))


def _keys(permit: Permit) -> set[str]:
    """Of the objects whose change may change the answers."""
    return {
        f"Node//{permit.node}",
        *(write.key for write in permit.writes),
        *(awaited.key for awaited in permit.awaited),
    }


def is_ready(permit: Permit) -> bool:
    """It could be bound; a member of a gang that only waits for the others could."""
    return permit.is_answered or (not permit.is_reserved and permit.plugins == (BARRIER,))

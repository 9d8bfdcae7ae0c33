"""Pods that have their resources reserved and wait until every plugin has permitted their binding.

A wait begins when a `Waiting` is consumed, and ends with the pod's next outcome, or with the pod. Of an attempt's members that wait
together all go when one has waited too long. Permits are part of the core's state; the plugins' own states of the attempts (`state_of`)
are not, because they cannot be written down: a scheduler that takes the log has none.

Everything costs a look at a dictionary, but for who is due next: that looks at every pod that waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tidelog.eventlog.records import Fallback, Waiting
from tidelog.framework.interface import CycleState
from tidelog.scheduler.preemption import Evictions


class Permit(msgspec.Struct, gc=False):
    """A pod that has its resources reserved and waits until every plugin has permitted its binding."""

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


class Permits:
    """All that wait, in the order in which they began to."""

    def __init__(self, evictions: Evictions) -> None:
        self._evictions = evictions
        self._permits: dict[str, Permit] = {}
        """By the pod's uid."""
        self._states: dict[str, CycleState] = {}
        """The cycle states of attempts that came to a wait, by the pod's uid."""

    def __contains__(self, uid: str) -> bool:
        """Whether the pod waits."""
        return uid in self._permits

    def get(self, uid: str) -> Permit | None:
        """What the pod of this uid waits for."""
        return self._permits.get(uid)

    def begin(self, key: str, uid: str, body: Waiting) -> None:
        """The pod waits from now on."""
        self._permits[uid] = Permit(
            key, uid, body.node, body.deadline, body.plugins, body.fallback, body.group
        )

    def forget(self, uid: str) -> None:
        """The pod does not wait any more, if it did."""
        self._permits.pop(uid, None)
        self._states.pop(uid, None)

    # --- the states of plugins ----------------------------------------------------------------------------------------

    def keep_states(self, states: Mapping[str, CycleState]) -> None:
        """What the plugins said in an attempt, for its end: a pod's wait may end in Unreserve."""
        self._states.update(states)

    def state_of(self, permit: Permit) -> CycleState:
        """What the plugins said when the wait began; an empty one if that is lost."""
        return self._states.get(permit.uid) or CycleState()

    def drop_states(self) -> None:
        """A scheduler takes the log. One that was restarted has none, and one that was not must decide like it."""
        self._states.clear()

    # --- the end of waits ---------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When the first of those is over that an attempt can end."""
        return min((p.deadline for p in self._permits.values() if self._can_end(p)), default=None)

    def take_due(self, now: int) -> Permit | None:
        """The first whose time is over. An attempt must end it now, together with those `ending_with` it."""
        for permit in self._permits.values():
            if permit.deadline <= now and self._can_end(permit):
                for each in self.ending_with(permit):
                    each.is_ending = True
                return permit
        return None

    def ending_with(self, permit: Permit) -> list[Permit]:
        """The permit, and those of the members that wait with it: if one of them has waited too long, none is bound."""
        if not (permit.group and permit.plugins):
            return [permit]
        return [permit, *(p for p in self._permits.values() if p.group == permit.group and p is not permit)]

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
        self._permits = {permit.uid: permit for permit in msgspec.convert(list(dumped), list[Permit])}

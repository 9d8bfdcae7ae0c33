"""What happened while pods were being tried.

A popped pod is decided on the cluster as it was at its pop. What happens until its outcome is known may be just what
it needs, so every event that interests any plugin is kept until no pod in flight was popped before it.

    attempt of a ─────────────┐              ┌──── attempt of b
                              ▼              ▼
    events:          [ ... ]  | e1  e2  e3  |  e4  e5          positions, counted from the start of time
                     freed    start of a       start of b

An attempt remembers the position at its pop (and the seq of the log, for the outcome's record); if it fails, the events
from there to the end are put to the hints. When the oldest attempt ends, what lies before the next oldest is freed.
Begin, record and end cost O(1); asking costs the events since the pop. Nothing is kept while nothing is in flight.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from tidelog.plugins.events import ClusterEvent, Resource
from tidelog.queue.entity import QueuedPod


class InFlightEvent(msgspec.Struct, frozen=True):
    """An event with what it was about, and the last record of the log when it happened."""

    seq: int
    event: ClusterEvent
    old: Any = None
    new: Any = None


class Attempt(msgspec.Struct, eq=False, gc=False):
    """A pod in flight."""

    pod: QueuedPod
    number: int
    """Which pop of the queue this was. The members of a group share one."""
    seq: int
    """The last record that had been consumed: what the attempt could know."""
    at: int
    start: int
    """Position of the first event that it could not know."""


class InFlight:
    """The attempts, oldest first, and the events since the oldest."""

    __slots__ = ("_attempts", "_base", "_events")

    def __init__(self) -> None:
        self._attempts: dict[str, Attempt] = {}
        """By the pod's uid, in the order of their pops, and so of their starts."""
        self._events: list[InFlightEvent] = []
        self._base = 0
        """Position of the first event in the list. The oldest attempt's start, if there is one."""

    def __len__(self) -> int:
        return len(self._attempts)

    def get(self, uid: str) -> Attempt | None:
        """The attempt of this pod."""
        return self._attempts.get(uid)

    def begin(self, pod: QueuedPod, number: int, seq: int, at: int) -> None:
        """The pod was popped."""
        self._attempts[pod.uid] = Attempt(pod, number, seq, at, self._base + len(self._events))

    def record(self, seq: int, event: ClusterEvent, old: Any, new: Any) -> None:
        """Something happened that may matter to a pod in flight.

        Of ticks in a row only the last is kept, because what time has brought about by the first, it still has at the
        last. Otherwise they would pile up behind a pod that waits for its permit.
        """
        events = self._events
        happened = InFlightEvent(seq, event, old, new)
        if event.resource is Resource.TIME and events and events[-1].event.resource is Resource.TIME:
            newest = next(reversed(self._attempts.values()))
            if newest.start < self._base + len(events):
                events[-1] = happened
                return
        events.append(happened)

    def events_since_pop(self, uid: str) -> list[tuple[ClusterEvent, Any, Any]]:
        """What happened since this pod was popped, first things first; empty if it is not in flight."""
        attempt = self._attempts.get(uid)
        if attempt is None:
            return []
        return [(e.event, e.old, e.new) for e in self._events[attempt.start - self._base :]]

    def end(self, uid: str) -> Attempt | None:
        """The attempt is over, whatever came of it. Ending one that is over already does nothing."""
        attempt = self._attempts.pop(uid, None)
        if attempt is not None and self._events and attempt.start == self._base:
            self._free()
        return attempt

    def _free(self) -> None:
        """Let go of the events that happened before the oldest attempt."""
        events = self._events
        oldest = next(iter(self._attempts.values()), None)
        start = self._base + len(events) if oldest is None else oldest.start
        del events[: start - self._base]
        self._base = start

    def attempts(self) -> list[Attempt]:
        """All, in the order of their pops."""
        return list(self._attempts.values())

    def timeline(self) -> list[Attempt | InFlightEvent]:
        """Pops and events, in the order in which they happened."""
        line: list[Attempt | InFlightEvent] = []
        position = self._base
        attempts = list(reversed(self._attempts.values()))
        for event in self._events:
            while attempts and attempts[-1].start <= position:
                line.append(attempts.pop())
            line.append(event)
            position += 1
        return [*line, *reversed(attempts)]

    def event_counts(self) -> dict[str, int]:
        """How many events are kept, by label, with the attempts as `PodPopped`. All zero when nothing is in flight."""
        counts = Counter(e.event.label for e in self._events)
        return {**dict(sorted(counts.items())), "PodPopped": len(self._attempts)}

    def state(self) -> tuple[list[tuple[Attempt, int]], list[InFlightEvent]]:
        """The attempts, each with the number of kept events from before its pop, and the events."""
        return [(a, a.start - self._base) for a in self._attempts.values()], list(self._events)

    def restore(self, attempts: list[Attempt], events: list[InFlightEvent]) -> None:
        """Take over a state whose attempts' starts count from its first event."""
        self._attempts = {a.pod.uid: a for a in attempts}
        self._events = list(events)
        self._base = 0

"""Cluster events that arrived while attempts were in flight.

A popped pod is decided on the cluster as it was at its pop. What happens until its outcome is known may be just what
it needs, so every event that interests any plugin is kept until no pod in flight was popped before it.

    attempt of a ─────────────┐              ┌──── attempt of b
                              ▼              ▼
    events:          [ ... ]  | e1  e2  e3  |  e4  e5          positions, counted from the start of time
                     freed    start of a       start of b

An attempt remembers the position at its pop (and the seq of the log, for the outcome's record); if it fails, the events
from there to the end are put to the hints. When the oldest attempt ends, what lies before the next oldest is freed.
Nothing is kept while nothing is in flight.

Begin, record and end cost O(1). Events are filed by kind, and those that concern one pod only by that pod, so that a
failed attempt costs the events its rejectors registered for, and not all that happened to all the others in flight.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import msgspec

from tidelog.api.objects import Pod
from tidelog.framework.events import ClusterEvent, Resource
from tidelog.queue.entity import QueuedPod, pod_uid


class InFlightEvent(msgspec.Struct, frozen=True):
    """An event with what it was about, and the last record of the log when it happened."""

    position: int
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

    __slots__ = ("_attempts", "_base", "_by_kind", "_by_pod", "_events", "_upstream")

    def __init__(self, *, upstream: bool = False) -> None:
        self._upstream = upstream
        self._attempts: dict[str, Attempt] = {}
        """By the pod's uid, in the order of their pops, and so of their starts."""
        self._events: list[InFlightEvent] = []
        self._by_kind: dict[ClusterEvent, deque[InFlightEvent]] = {}
        self._by_pod: dict[str, deque[InFlightEvent]] = {}
        """Each event is also in one of these two, the latter if it is one pod's own business."""
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
        if event.resource is Resource.TIME and events and events[-1].event.resource is Resource.TIME:
            newest = next(reversed(self._attempts.values()))
            if newest.start < self._base + len(events):
                self._unfile(events.pop(), newest=True)
        happened = InFlightEvent(self._base + len(events), seq, event, old, new)
        events.append(happened)
        self._file(happened)

    def missed_by(self, uid: str, concerns: Callable[[ClusterEvent], bool]) -> list[InFlightEvent]:
        """Return the events since this pod was popped that are about itself or `concern` it, in order."""
        attempt = self._attempts[uid]
        if attempt.start == self._base + len(self._events):
            return []
        topics = [filed for event, filed in self._by_kind.items() if concerns(event)]
        if uid in self._by_pod:
            topics.append(self._by_pod[uid])
        found = []
        for filed in topics:
            for happened in reversed(filed):
                if happened.position < attempt.start:
                    break
                found.append(happened)
        found.sort(key=_position)
        return found

    def events_since_pop(self, uid: str) -> list[InFlightEvent]:
        """Everything that happened since this pod was popped, in order."""
        return self._events[self._attempts[uid].start - self._base :]

    def forgo(self, uid: str) -> None:
        """Stop keeping events for this attempt: they cannot matter to it any more."""
        attempt = self._attempts.pop(uid, None)
        if attempt is None:
            return
        is_oldest = attempt.start == self._base
        attempt.start = self._base + len(self._events)
        self._attempts[uid] = attempt
        if self._events and is_oldest:
            self._free()

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
        freed = start - self._base
        if freed:
            for happened in events[:freed]:
                self._unfile(happened)
            del events[:freed]
            self._base = start

    def _whose(self, happened: InFlightEvent) -> str | None:
        """The uid of the only pod that the event can concern, if there is one.

        Upstream shows every pod in flight the updates of all others.
        """
        event, new = happened.event, happened.new
        if not isinstance(new, Pod):
            return None
        if event.resource is Resource.TARGET_POD:
            return None if self._upstream else pod_uid(new)
        return pod_uid(new) if event.is_wildcard else None

    def _file(self, happened: InFlightEvent) -> None:
        uid = self._whose(happened)
        if uid is None:
            self._by_kind.setdefault(happened.event, deque()).append(happened)
        else:
            self._by_pod.setdefault(uid, deque()).append(happened)

    def _unfile(self, happened: InFlightEvent, *, newest: bool = False) -> None:
        """Forget the oldest (or newest) event of its kind."""
        uid = self._whose(happened)
        filed = self._by_kind[happened.event] if uid is None else self._by_pod[uid]
        removed = filed.pop() if newest else filed.popleft()
        assert removed is happened, "events are freed in the order in which they happened"
        if filed:
            return
        if uid is None:
            del self._by_kind[happened.event]
        else:
            del self._by_pod[uid]

    def attempts(self) -> list[Attempt]:
        """All, in the order of their pops."""
        return list(self._attempts.values())

    def timeline(self) -> list[Attempt | InFlightEvent]:
        """Pops and events, in the order in which they happened."""
        line: list[Attempt | InFlightEvent] = []
        attempts = list(reversed(self._attempts.values()))
        for event in self._events:
            while attempts and attempts[-1].start <= event.position:
                line.append(attempts.pop())
            line.append(event)
        return [*line, *reversed(attempts)]

    def event_counts(self) -> dict[str, int]:
        """How many events are kept, by label, with the attempts as `PodPopped`. All zero when nothing is in flight."""
        counts = Counter(e.event.label for e in self._events)
        return {**dict(sorted(counts.items())), "PodPopped": len(self._attempts)}

    def state(self) -> tuple[list[tuple[Attempt, int]], list[InFlightEvent]]:
        """The attempts, each with the number of kept events from before its pop, and the events."""
        return [(a, a.start - self._base) for a in self._attempts.values()], list(self._events)

    def restore(self, attempts: list[Attempt], events: list[InFlightEvent]) -> None:
        """Take over a state whose positions count from its first event."""
        self._attempts = {a.pod.uid: a for a in attempts}
        self._events = list(events)
        self._base = 0
        for happened in events:
            self._file(happened)


def _position(happened: InFlightEvent) -> int:
    return happened.position

"""A clock that stands still until somebody moves it, and the event loop with it.

Nothing here waits for real time. `advance` goes from one appointment to the next, and at each lets all tasks work until they have
nothing to do; so an hour in which little happens costs nothing, and the same story always runs in the same way.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tidelog.api.times import NANOS

START = 1_700_000_000 * NANOS
"""The first moment: a whole second, so that windows of seconds are easy to read."""


class _Appointment:
    """A call that is to come."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Do not make it."""
        self.call = None


class _Entry(NamedTuple):
    at: int
    number: int
    appointment: _Appointment


class VirtualClock:
    """Implements `tidelog.daemon.process.clock.Clock`."""

    def __init__(self, now: int = START) -> None:
        self._now = now
        self._heap: list[_Entry] = []
        self._numbers = 0

    def now(self) -> int:
        return self._now

    def not_before(self, at: int) -> None:
        self._now = max(self._now, at)

    def lap(self) -> int:
        return 0

    def call_at(self, at: int, call: Callable[[], None]) -> _Appointment:
        self._numbers += 1
        appointment = _Appointment(call)
        heapq.heappush(self._heap, _Entry(at, self._numbers, appointment))
        return appointment

    def next_at(self) -> int | None:
        """When the next call is to be made."""
        while self._heap and self._heap[0].appointment.call is None:
            heapq.heappop(self._heap)
        return self._heap[0].at if self._heap else None

    async def advance(self, nanos: int, settled: Callable[[], Awaitable[None]]) -> None:
        """Move the clock, making on the way every call at its time. `settled` returns when all tasks wait for time alone."""
        end = self._now + nanos
        await settled()
        while (at := self.next_at()) is not None and at <= end:
            self._now = max(self._now, at)
            self._call_due()
            await settled()
        self._now = end

    def _call_due(self) -> None:
        while (at := self.next_at()) is not None and at <= self._now:
            call = heapq.heappop(self._heap).appointment.call
            assert call is not None
            call()

"""The clock and the alarm: the only source of time for the daemon's tasks.

`SystemClock` is the machine's. The sandbox has one that stands still until a test moves it (`tidelog.testing.virtual_time`), and then the
very same tasks run on it.

A `Bell` is what tasks of one event loop wait at for a change of something that they share: they look, and if there is nothing to do,
they wait until it is rung or a time has come, and look again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from tidelog.api.times import NANOS

LONGEST_SLEEP = 30.0
"""Seconds. Sleeping is measured on another clock than the one that is set; so the time is looked at again now and then."""


class TimerHandle(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Do not make it."""


class Clock(Protocol):
    """Time for the tasks of one event loop."""

    def now(self) -> int:
        """Nanoseconds since 1970; never less than before."""

    def call_at(self, at: int, call: Callable[[], None]) -> TimerHandle:
        """Make this call when the clock shows `at`; perhaps earlier, never much later."""

    def not_before(self, at: int) -> None:
        """Go on from here, if it shows less: it was set back since somebody else, whose time counts, has looked at it."""

    def lap(self) -> int:
        """Nanoseconds of some clock that only measures how long work takes; on virtual time it stands still."""


LEAP_MAX = 3600 * NANOS
"""A clock that is set forward by more is not followed: time never goes back, so a glitch would stay for ever."""

_log = logging.getLogger("tidelog.clock")


_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)

_steady: Callable[[], int] = time.monotonic_ns if _BOOT is None else partial(time.clock_gettime_ns, _BOOT)
"""Nanoseconds that also count while the machine sleeps, where the system knows them."""


class SystemClock:
    """The machine's clock, made steady: set back it goes on at its own pace, set forward it follows, but for more than an hour at once.

    A leap that is larger is refused, and told once: whoever has really set the clock by so much starts the process again.
    """

    def __init__(self, wall: Callable[[], int] = time.time_ns, steady: Callable[[], int] = _steady) -> None:
        self._wall = wall
        self._steady = steady
        self._ahead = wall() - steady()
        """By so much the time that is shown is ahead of the steady one; it only grows."""
        self.refused = 0
        """So far ahead is the machine's clock, in nanoseconds, by a leap that is not followed."""

    def now(self) -> int:
        # Asked several times for each pod: where the machine's clock is not further ahead than it was, nothing is to be noted.
        steady, wall = self._steady(), self._wall()
        expected = steady + self._ahead
        if wall > expected or self.refused:
            return self._followed(steady, wall, expected)
        return expected

    def _followed(self, steady: int, wall: int, expected: int) -> int:
        """The time where the machine's clock is ahead of it, or was."""
        leap = wall - expected
        if leap > LEAP_MAX:
            if not self.refused:
                _log.error(
                    "the machine's clock leapt ahead, and is not followed: set it right, or start again",
                    extra={"fields": {"seconds": leap // NANOS}},
                )
            self.refused = leap
            return expected
        if self.refused:
            self.refused = 0
            _log.info("the machine's clock is followed again")
        now = max(wall, expected)
        self._ahead = now - steady
        return now

    def call_at(self, at: int, call: Callable[[], None]) -> TimerHandle:
        delay = min(max(at - self.now(), 0) / NANOS, LONGEST_SLEEP)
        return asyncio.get_running_loop().call_later(delay, call)

    def not_before(self, at: int) -> None:
        self._ahead += max(0, at - self.now())

    def lap(self) -> int:
        return time.perf_counter_ns()


class Bell:
    """Rung when something has changed. It does not remember: who waits must have looked before, without a pause in between."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[asyncio.Future[None], None] = {}

    def ring(self) -> None:
        """Wake everybody who waits now."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, until: int | None = None) -> None:
        """Return when it is rung, or about when the clock shows `until`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        handle = None if until is None else self._clock.call_at(until, lambda: self._wake(future))
        try:
            await future
        finally:
            self._waiting.pop(future, None)
            if handle is not None:
                handle.cancel()

    def _wake(self, future: asyncio.Future[None]) -> None:
        self._waiting.pop(future, None)
        if not future.done():
            future.set_result(None)

"""Waiting by the process's clock, and how long to wait between failures."""

from __future__ import annotations

import asyncio
from random import Random

from tidelog.api.times import NANOS, format_time
from tidelog.daemon.process.clock import Clock


async def pause(clock: Clock, seconds: float) -> None:
    """Return about so much later, by this clock."""
    until = clock.now() + round(seconds * NANOS)
    while clock.now() < until:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        handle = clock.call_at(until, lambda woken=woken: woken.done() or woken.set_result(None))  # type: ignore[misc]
        try:
            await woken
        finally:
            handle.cancel()


class Backoff:
    """Seconds to the next try: doubled at each failure, up to a maximum, and spread so that not all come at once."""

    def __init__(self, first: float, longest: float, random: Random, *, full_jitter: bool = False) -> None:
        """`full_jitter`: anything from nothing to the whole; else from once to twice."""
        self._first = first
        self._longest = longest
        self._random = random
        self._full = full_jitter
        self.failures = 0
        """In a row."""

    def forget(self) -> None:
        """It went well."""
        self.failures = 0

    def next(self) -> float:
        """It failed once more."""
        base: float = min(self._first * 2.0 ** min(self.failures, 30), self._longest)
        self.failures += 1
        share = self._random.random()
        return base * share if self._full else min(base * (1 + share), 2 * self._longest)


def micro_time(at: int) -> str:
    """Kubernetes' MicroTime, which has six digits of the second, no more and no fewer."""
    return f"{format_time(at - at % NANOS)[:-1]}.{at % NANOS // 1000:06}Z"

"""Limits of requests: `clientConnection.qps` and `.burst`, where somebody sets them.

    Throttled(port, limit)     the same server, asked at most so often: each request takes a token, as does each watch that is opened

As client-go counts: so many requests at once, and from then on so many a second. What renews a Lease does not go this way: a leader must not lose it
by being busy.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from tidelog.api.times import NANOS
from tidelog.daemon.process.clock import Clock
from tidelog.kube.cluster.port import Answer, ClusterPort, Request, Stream
from tidelog.kube.cluster.waiting import pause


class RequestLimit:
    """Tokens: `burst` at once, and `qps` a second."""

    def __init__(self, qps: float, burst: int, clock: Clock) -> None:
        self._clock = clock
        self._apart = round(NANOS / qps)
        self._ahead = (burst - 1) * self._apart
        self._next = 0
        """When the next token would be due if they came one by one."""

    async def taken(self) -> None:
        """Return when there is one, in the order of asking."""
        now = self._clock.now()
        due = max(self._next, now - self._ahead)
        self._next = due + self._apart
        if due > now:
            await pause(self._clock, (due - now) / NANOS)


class Throttled:
    """Implements `ClusterPort` on another one."""

    def __init__(self, port: ClusterPort, limit: RequestLimit) -> None:
        self.name = port.name
        self._port = port
        self._limit = limit

    async def send(self, request: Request) -> Answer:
        await self._limit.taken()
        return await self._port.send(request)

    @contextlib.asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        await self._limit.taken()
        async with self._port.stream(request) as found:
            yield found

    async def renew(self) -> None:
        await self._port.renew()


def throttled(port: ClusterPort, qps: float, burst: int, clock: Clock) -> ClusterPort:
    """The port itself if there is no limit."""
    return Throttled(port, RequestLimit(qps, burst, clock)) if qps else port

"""The way to the API server for writes: as many at a time as it bears, and what every answer means whatever was asked.

401: the credentials are renewed            429 (not a budget's): half as many at a time, and a rest as long as it asks
403: waited out for a minute, then believed   no answer: half as many; after twenty in a row one try a second
"""

from __future__ import annotations

import logging

from tidelog.api.times import NANOS
from tidelog.api.wire import ApiStatus
from tidelog.daemon.process.clock import Clock
from tidelog.daemon.process.logs import fields
from tidelog.kube.cluster.lease import Leadership
from tidelog.kube.cluster.port import Answer, ClusterPort, NoAnswer, NotSent, Request

FORBIDDEN_SECONDS = 60.0
"""So long a 403 is waited out: roles are loaded late after a server's start."""
FAILURES_TO_BREAK = 20
LEAST_UNDER_WAY = 1

_log = logging.getLogger("tidelog.cluster")


class Again(Exception):
    """Try it once more, after a while."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Channel:
    """Sends requests one by one for those who ask, and says how many of them may ask at a time."""

    def __init__(self, port: ClusterPort, clock: Clock, leadership: Leadership, concurrency: int) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        """(verb, resource, HTTP status; 0 without an answer) → how many."""
        self.seconds: dict[tuple[str, str], tuple[int, float]] = {}
        """(verb, resource) → (how many, seconds in all)."""
        self.forbidden = ""
        """Why the server lets us write nothing; empty while it does."""
        self.concurrency = float(concurrency)
        self.rests_until = 0
        """Nothing new is sent before; 0: at once."""
        self._most = concurrency
        self._port = port
        self._clock = clock
        self._leadership = leadership
        self._forbidden_since = 0
        self._failures = 0
        """In a row."""
        self._successes = 0

    def width(self) -> int:
        """How many requests may be under way now."""
        if self.rests_until and self._clock.now() >= self.rests_until:
            self.rests_until = 0
        if self.rests_until:
            return 0
        if self._failures >= FAILURES_TO_BREAK:
            return LEAST_UNDER_WAY
        return max(int(self.concurrency), LEAST_UNDER_WAY)

    async def ask(self, request: Request, resource: str, *, until: bool = True) -> Answer:
        """The answer, if it is not one that all writes take in the same way. `until`: only while we lead. Raises Again, NoAnswer."""
        if until and not self._leadership.may_write():
            raise Again(1.0)
        began = self._clock.lap()
        try:
            answer = await self._port.send(request)
        except NotSent:
            self._count(request, resource, 0, began)
            self._broke()
            raise
        except NoAnswer:
            self._count(request, resource, 0, began)
            self._slow_down()
            self._broke()
            raise
        self._count(request, resource, answer.status, began)
        if answer.status == 401:
            await self._port.renew()
            raise Again
        if answer.status == 403:
            self._refuse_all(answer)
        elif answer.ok:
            self._forbidden_since, self.forbidden = 0, ""
        if answer.status == 429 and not is_of_budget(answer.told()):
            self._slow_down()
            self.rests_until = self._clock.now() + round((answer.retry_after or 1.0) * NANOS)
            raise Again(answer.retry_after or 1.0)
        self._failures = 0
        self._speed_up()
        return answer

    def _refuse_all(self, answer: Answer) -> None:
        """403: wait, and then believe it."""
        now = self._clock.now()
        self._forbidden_since = self._forbidden_since or now
        text = answer.told().message
        if not self.forbidden:
            _log.error(
                "the API server allows no writes: is the ClusterRole missing?", extra=fields(error=text)
            )
        self.forbidden = text
        if now - self._forbidden_since < FORBIDDEN_SECONDS * NANOS:
            raise Again(5.0)

    def _slow_down(self) -> None:
        self.concurrency = max(self.concurrency / 2, LEAST_UNDER_WAY)

    def _speed_up(self) -> None:
        self._successes += 1
        if self._successes % 100 == 0:
            self.concurrency = min(self.concurrency + 1, self._most)

    def _broke(self) -> None:
        self._failures += 1
        if self._failures >= FAILURES_TO_BREAK:
            self.rests_until = self._clock.now() + NANOS

    def _count(self, request: Request, resource: str, status: int, began: int) -> None:
        verb = request.method.lower()
        key = (verb, resource, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        many, seconds = self.seconds.get((verb, resource), (0, 0.0))
        self.seconds[verb, resource] = (many + 1, seconds + (self._clock.lap() - began) / NANOS)


def is_of_budget(status: ApiStatus) -> bool:
    """Whether a disruption budget refused, and not a busy server."""
    return any(cause.reason == "DisruptionBudget" for cause in status.details.causes)

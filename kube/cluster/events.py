"""Events for people: `Scheduled`, `FailedScheduling`, `Preempted`, as kube-scheduler writes them, and fewer of them.

They are the least of what is to be sent: they get what the writes leave of the server, one at a time at least; they are not tried again, and
the newest are dropped when too many wait. What is said again of the same object is one event with a series: its first repetition is patched at once, later ones now and then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.api.kinds.registry import KIND_OF_TYPE
from tidelog.api.objects import Object, Pod
from tidelog.api.times import NANOS
from tidelog.daemon.process.clock import Clock
from tidelog.daemon.process.logs import fields
from tidelog.kube.cluster.port import STRATEGIC_MERGE, ClusterError, ClusterPort, Request
from tidelog.kube.cluster.waiting import micro_time, pause
from tidelog.kube.events import Saying, cut, preempted, rejected, scheduled

WAITING_MAX = 20_000
"""So many wait; what comes then is dropped and counted. Arbitrary: 4 MB."""
BACKLOG = 10_000
"""When so many wait, they are posted beside the writes, `BACKLOG_UNDER_WAY` at a time."""
BACKLOG_UNDER_WAY = 8
SERIES_NANOS = 360 * NANOS
"""A repetition after more than this is an event of its own."""
SERIES_WRITTEN_NANOS = 1_800 * NANOS
SERIES_MAX = 4_096

_log = logging.getLogger("tidelog.cluster")


class _Said(NamedTuple):
    regarding: Object
    related: Object | None
    saying: Saying
    at: int


class _Series(NamedTuple):
    name: str
    namespace: str
    times: int
    at: int
    written: int


class Events:
    """Posts what is said. `say` never waits."""

    def __init__(
        self,
        port: ClusterPort,
        clock: Clock,
        identity: str,
        *,
        enabled: bool = True,
        scheduled: bool = True,
        room: Callable[[], int] = lambda: BACKLOG_UNDER_WAY,
    ) -> None:
        """`scheduled`: also for each pod that was bound, which is as many requests as there are bindings. `room`: how many requests the writes leave now."""
        self.dropped = 0
        self.posted = 0
        self.enabled = enabled
        self._scheduled = scheduled
        self._port = port
        self._clock = clock
        self._identity = identity
        self._room = room
        self._under_way = 0
        self._waiting: deque[_Said] = deque()
        self._come = asyncio.Event()
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._numbers = 0

    @property
    def waiting(self) -> int:
        """How many are still to be posted."""
        return len(self._waiting)

    def scheduled(self, pod: Pod, node: str) -> None:
        """The pod was bound."""
        if self._scheduled:
            self.say(pod, scheduled(pod.metadata.namespace, pod.metadata.name, node))

    def rejected(self, pod: Pod, message: str) -> None:
        """No place was found for the pod."""
        self.say(pod, rejected(cut(message)))

    def preempted(self, victim: Pod, preemptor: Pod | None, node: str) -> None:
        """The pod was asked to go."""
        uid = "" if preemptor is None else preemptor.metadata.uid
        self.say(victim, preempted(uid, node), related=preemptor)

    def say(self, regarding: Object, saying: Saying, *, related: Object | None = None) -> None:
        """Post it, sooner or later."""
        if not self.enabled:
            return
        if len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
            return
        self._waiting.append(_Said(regarding, related, saying, self._clock.now()))
        self._come.set()

    async def run(self) -> None:
        """Post until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                while self._waiting and self._under_way < self._width():
                    self._under_way += 1
                    group.create_task(self._work(self._waiting.popleft()))
                self._come.clear()
                await self._come.wait()

    def _width(self) -> int:
        """How many may be under way: asked whenever one has ended or another has come."""
        return max(self._room(), BACKLOG_UNDER_WAY if len(self._waiting) > BACKLOG else 1)

    async def _work(self, said: _Said) -> None:
        try:
            await self._say(said)
        except ClusterError as error:
            self.dropped += 1
            _log.info("an event was not posted", extra=fields(error=str(error)))
            await pause(self._clock, 1.0)
        self._under_way -= 1
        self._come.set()

    async def _say(self, said: _Said) -> None:
        key = (said.regarding.metadata.uid, said.saying.reason, said.saying.note)
        known = self._series.pop(key, None)
        if known is not None and said.at - known.at < SERIES_NANOS:
            known = known._replace(times=known.times + 1, at=said.at)
            if known.times == 2 or said.at - known.written > SERIES_WRITTEN_NANOS:
                known = known._replace(written=said.at)
                if not await self._patch(known):
                    known = None
            if known is not None:
                self._keep(key, known)
                return
        name = await self._post(said)
        if name:
            self._keep(key, _Series(name, _namespace(said.regarding), 1, said.at, said.at))

    def _keep(self, key: tuple[str, ...], series: _Series) -> None:
        if key[1] == "Scheduled":
            return  # Nobody is bound twice.
        self._series[key] = series
        if len(self._series) > SERIES_MAX:
            self._series.popitem(last=False)

    async def _post(self, said: _Said) -> str:
        self._numbers += 1
        namespace = _namespace(said.regarding)
        name = f"{said.regarding.metadata.name}.{said.at + self._numbers:x}"
        body: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micro_time(said.at),
            "reportingController": _scheduler(said.regarding),
            "reportingInstance": self._identity[:128],
            "action": said.saying.action,
            "reason": said.saying.reason,
            "type": said.saying.type,
            "note": said.saying.note,
            "regarding": _reference(said.regarding),
        }
        if said.related is not None:
            body["related"] = _reference(said.related)
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        answer = await self._port.send(Request(method="POST", path=path, body=body, seconds=5.0))
        if answer.status == 403 and self.enabled:
            self.enabled = False
            self._waiting.clear()
            _log.warning(
                "events are not allowed, and are left out", extra=fields(error=answer.told().message)
            )
            return ""
        if not answer.ok:
            self.dropped += answer.status != 409
            if answer.status == 429:
                await pause(self._clock, answer.retry_after or 1.0)
            return ""
        self.posted += 1
        return name

    async def _patch(self, series: _Series) -> bool:
        path = f"/apis/events.k8s.io/v1/namespaces/{series.namespace}/events/{series.name}"
        told = {"count": series.times, "lastObservedTime": micro_time(series.at)}
        answer = await self._port.send(
            Request(
                method="PATCH",
                path=path,
                body={"series": told},
                content_type=STRATEGIC_MERGE,
                seconds=5.0,
            )
        )
        return answer.status != 404


def _namespace(obj: Object) -> str:
    return obj.metadata.namespace or "default"


def _scheduler(obj: Object) -> str:
    return obj.spec.scheduler_name if isinstance(obj, Pod) else "tidelog"


def _reference(obj: Object) -> dict[str, str]:
    kind, meta = KIND_OF_TYPE[type(obj)], obj.metadata
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }

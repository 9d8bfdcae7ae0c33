"""A log attached to the server in memory, on a clock that stands still until the test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from types import TracebackType
from typing import Any, Self

from tests.kube.memory_server import MemoryServer
from tidelog.api.projection import Projection
from tidelog.api.times import NANOS
from tidelog.daemon.process.recovery import recovered_core
from tidelog.daemon.process.runtime import Limits
from tidelog.daemon.process.scheduler import assembled, load_configuration
from tidelog.eventlog.log import Log
from tidelog.eventlog.memory import MemoryStore
from tidelog.eventlog.records import Record, decode_body
from tidelog.kube.cluster.live import ClusterSettings, LiveCluster
from tidelog.plugins.registry import Registry
from tidelog.replay.states import State
from tidelog.replay.verify import recover, verify
from tidelog.testing.sandbox import assert_tables_agree
from tidelog.testing.virtual_time import VirtualClock

QUIET_TURNS = 60
"""So many turns of the event loop without a new record or request: nothing happens any more until time goes by."""
BEGIN_SECONDS = 3_600
"""So long the virtual clock may go before a session has begun: what answers none of its questions is a deadlock of the test."""


class LiveWorld:
    """`async with LiveWorld(server, mode="schedule") as world:`."""

    def __init__(
        self,
        server: MemoryServer | None = None,
        *,
        store: MemoryStore | None = None,
        clock: VirtualClock | None = None,
        config: Any = None,
        identity: str = "a",
        limits: Limits | None = None,
        projection: Projection | None = None,
        **settings: Any,
    ) -> None:
        self.server = server or MemoryServer()
        self.store = store or MemoryStore("live")
        self.clock = clock or VirtualClock()
        self.registry = Registry()
        self.identity = identity
        settings.setdefault("mode", "schedule")
        settings.setdefault("lease", None)
        self.settings = ClusterSettings(**settings)
        self.limits = limits
        self._config = config
        self._projection = projection

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.stop()
        else:
            await self.kill()

    async def start(self) -> None:
        """Begin a session; returns when nothing happens any more."""
        self.log = Log(self.store, clock=self.clock.now)
        core = await recovered_core(self.log, self.registry)
        configuration = load_configuration(self._config, self.registry).configuration
        self.runtime = await assembled(
            self.log, self.registry, configuration, self.clock, state=State(core), limits=self.limits
        )
        self.live = LiveCluster(
            self.runtime,
            self.server,
            self.settings,
            self._projection or Projection(),
            identity=self.identity,
            clock=self.clock,
            steady=self.clock.now,
            random=Random(1),
        )
        await self.runtime.__aenter__()
        self._session = self.live.attached()
        entering = asyncio.ensure_future(self._session.__aenter__())
        for _ in range(BEGIN_SECONDS):
            await self.quiet()
            if entering.done():
                break
            await self.advance(1)
        else:
            entering.cancel()
            raise AssertionError(f"it has not begun after {BEGIN_SECONDS} s of its clock")
        await entering
        await self.quiet()

    async def stop(self) -> None:
        """End as SIGTERM does."""
        await self._session.__aexit__(None, None, None)
        await self.runtime.stop()
        if self.runtime.failure is not None:
            raise self.runtime.failure
        await self.log.close()

    async def kill(self) -> None:
        """End as `kill -9` does: nothing is finished."""
        for task in self.live._tasks:
            task.cancel()
        self.runtime.abandon()
        await asyncio.gather(*self.live._tasks, return_exceptions=True)
        await self.runtime.ended()
        await self.log.close()

    async def restart(self) -> None:
        """Kill it, and begin again on the same log and server."""
        await self.kill()
        await self.start()

    @property
    def core(self) -> Any:
        return self.runtime.core

    async def quiet(self) -> None:
        """Let all tasks work until only time could give them something to do."""
        still, seen = 0, None
        for _ in range(200_000):
            if self.live.failure is not None:
                raise self.live.failure
            if self.runtime.failure is not None:
                raise self.runtime.failure
            now = (self.log.head.seq, len(self.server.requests), self.runtime.core.seq)
            still = still + 1 if now == seen else 0
            seen = now
            if still > QUIET_TURNS:
                return
            await asyncio.sleep(0)
        raise AssertionError("it never comes to rest")

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(round(seconds * NANOS), self.quiet)

    async def records(self) -> list[Record]:
        return [record async for record in self.log.read(0)]

    async def bodies(self, kind: str) -> list[Any]:
        return [decode_body(record) for record in await self.records() if record.kind == kind]

    async def verify(self) -> None:
        """The log replays to the byte; the states of recovery, of replay and of the running core are the same."""
        records: Sequence[Record] = await self.records()
        report = verify(records, self.registry)
        assert report.first_difference is None, f"the log does not replay: {report.first_difference}"
        if not self.core.in_flight:
            assert self.core.digest() == report.digest
            assert self.core.digest() == recover(records, self.registry).digest()
        assert_tables_agree(records, self.core)

"""A cluster in memory, on a clock that stands still until the test moves it, scheduled by the real runtime.

    async with Sandbox() as cluster:
        await cluster.apply([node("n1").label(zone="b").build(), pod("web").build()])
        await cluster.advance(minutes=5)
        assert cluster.pod("web").spec.node_name == "n1"
        await cluster.verify()

Nothing in it waits: five minutes pass in milliseconds, and the same test writes the same log each time. The pytest fixture
`tidelog_cluster` (`tidelog.testing.pytest_plugin`) gives one, and verifies its log at the end. docs/testing.md has examples.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Object
from tidelog.api.times import NANOS
from tidelog.daemon.actors.protocol import Actor
from tidelog.daemon.intake.messages import Answer
from tidelog.daemon.process.clock import Clock
from tidelog.daemon.process.recovery import recovered_state
from tidelog.daemon.process.runtime import Limits, Runtime, Watcher
from tidelog.daemon.process.scheduler import Configuration, Scheduler, assembled, load_configuration
from tidelog.eventlog.log import Log
from tidelog.eventlog.memory import MemoryStore
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import Record
from tidelog.eventlog.store import Store
from tidelog.framework.disruption_budgets import Allowances
from tidelog.framework.node_info import PodInfo
from tidelog.framework.preemption_plan import Refusal
from tidelog.plugins.registry import Registry
from tidelog.replay.verify import Report, recover, verify
from tidelog.scheduler.core import Core
from tidelog.testing.virtual_time import START, VirtualClock

TURNS_MAX = 200_000
"""With more turns of the event loop than this before everything is settled, something goes round in circles."""

TURNS_AT_REST = 3
"""Turns without work that count as rest: the next step of a task that was woken shows after one."""


class Sandbox(Scheduler):
    """A scheduler in memory. Its log, clock and core can be looked at: `log`, `clock`, `core`."""

    runtime: Runtime

    def __init__(
        self,
        config: Configuration = None,
        *,
        registry: Registry | None = None,
        actors: Sequence[Actor] = (),
        limits: Limits | None = None,
        watcher: Watcher | None = None,
        store: Store | None = None,
        now: int = START,
        clock: Clock | None = None,
    ) -> None:
        """`clock`: one that goes by itself, in place of one that stands still until `advance`."""
        self.registry = registry or Registry()
        self.clock: Clock = clock or VirtualClock(now)
        self.store: Store = store or MemoryStore("sandbox")
        self._configuration = load_configuration(config, self.registry).configuration
        self._evictions = RefusableEvictions()
        self._actors = tuple(actors)
        self._limits = limits
        self._watcher = watcher

    async def __aenter__(self) -> Self:
        await self._start()
        await self.settled()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.runtime.__aexit__(kind, error, trace)
        finally:
            await self.log.close()

    async def _start(self, *, again: bool = False) -> None:
        self.log = Log(self.store, clock=self.clock.now)
        state = await recovered_state(self.log, self.registry)
        core = state.core
        core.evictions.port = self._evictions
        if again and core.configuration is not None:
            self._configuration = core.configuration
        self.runtime = await assembled(
            self.log,
            self.registry,
            self._configuration,
            self.clock,
            state=state,
            holder="sandbox",
            actors=self._actors,
            limits=self._limits,
            watcher=self._watcher,
        )
        await self.runtime.__aenter__()

    @property
    def core(self) -> Core:
        """The state machine under the runtime."""
        return self.runtime.core

    @property
    def now(self) -> int:
        """The time in nanoseconds."""
        return self.clock.now()

    # --- what a test does -------------------------------------------------------------------------------------------------

    async def apply(
        self, objects: Object | Iterable[Object], *, dry_run: bool = False, settle: bool = True
    ) -> Answer:
        """Put objects, and let the scheduler do what it can do at once. `settle=False`: only put them."""
        answer = await super().apply(objects, dry_run=dry_run)
        if settle:
            await self.settled()
        return answer

    async def delete(
        self,
        objects: Object | str | Iterable[Object | str],
        *,
        grace_period_seconds: int | None = None,
        settle: bool = True,
    ) -> Answer:
        """Delete objects, and let the scheduler do what it can do at once."""
        answer = await super().delete(objects, grace_period_seconds=grace_period_seconds)
        if settle:
            await self.settled()
        return answer

    def refuse_evictions(self, *pods: str) -> None:
        """Answer 429 from now on when these pods (`web-1`, or `namespace/web-1`) are to be evicted; to others, as their budgets allow.

        Without pods all is again as the budgets allow. That these refused is in no budget, so only this sandbox can verify the log.
        """
        self._evictions.refuse(pods)

    async def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0) -> None:
        """Let time go by. Everything that becomes due on the way is done when it is due."""
        nanos = round((seconds + 60 * minutes + 3600 * hours) * NANOS)
        assert isinstance(self.clock, VirtualClock), "this clock goes by itself"
        await self.clock.advance(nanos, self.settled)

    async def settled(self) -> None:
        """Let all tasks work until only time could give them something to do."""
        runtime, quiet = self.runtime, 0
        for _ in range(TURNS_MAX):
            if runtime.failure is not None:
                raise runtime.failure
            quiet = quiet + 1 if runtime.is_settled or runtime.is_sleeping else 0
            if quiet > TURNS_AT_REST:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"still busy after {TURNS_MAX} turns of the event loop")

    async def restart(self, actors: Sequence[Actor] | None = None) -> None:
        """As if the process had been killed: what was not in the log yet is lost, and a new runtime comes back from it.

        The configuration that the log has last stays in force. `actors`: new ones, as a new process has them, in place of the old ones,
        which begin anew.
        """
        if actors is not None:
            self._actors = tuple(actors)
        runtime = self.runtime
        runtime.abandon()
        await runtime.ended()
        await self.log.close()
        await self._start(again=True)

    # --- what it checks at the end ------------------------------------------------------------------------------------------

    async def verify(self) -> Report:
        """Recompute every decision of the log and compare; raises AssertionError at the first difference.

        Also: the state that recovery comes to, and the table of objects, are those of the running core.
        """
        await self.settled()
        records = [record async for record in self.records()]
        core = Core(self.registry)
        core.evictions.port = self._evictions
        report = verify(records, self.registry, core=core)
        assert report.first_difference is None, f"the log does not replay: {report.first_difference}"
        digest = self.core.digest()
        assert digest == report.digest, "the state that was computed again is another one"
        assert digest == recover(records, self.registry).digest(), (
            "the state that was recovered is another one"
        )
        assert_tables_agree(records, self.core)
        return report


class RefusableEvictions:
    """An eviction endpoint that refuses the pods it is told to, and lets the others go as the budgets in the log allow. Implements `EvictionPort`.

    Asked again about the same pods at the same moment, which is what verifying a log does, it gives the same answer.
    """

    def __init__(self) -> None:
        self._refused: frozenset[str] = frozenset()
        self._asked: dict[tuple[int, tuple[str, ...]], frozenset[str]] = {}
        """When it was asked for whom → whom it refused then."""

    def refuse(self, pods: Iterable[str]) -> None:
        """These, by `namespace/name`, or by name in the namespace `default`, and no others any more."""
        self._refused = frozenset(name if "/" in name else f"default/{name}" for name in pods)

    def evict(self, pods: Sequence[PodInfo], allowances: Allowances) -> Refusal | None:
        """All or none of them."""
        refused = self._asked.setdefault((allowances.at, tuple(pod.uid for pod in pods)), self._refused)
        for pod in pods:
            if pod.key in refused:
                budgets = allowances.selecting(pod)
                return Refusal(pod, object_key(budgets[0]) if budgets else "")
        return allowances.spend(pods)


def assert_tables_agree(records: Iterable[Record], core: Core) -> None:
    """The two folds over a log, the core's and the table of objects, have made the same objects of it."""
    table = ObjectTable()
    for record in records:
        table.apply(record)
    mine = dict(core.objects)
    assert len(mine) == len(table), f"{len(mine)} objects in the core, {len(table)} in the table"
    for key, obj in mine.items():
        assert obj == table.get(key), f"{key}: {obj} in the core, {table.get(key)} in the table"

"""The processes of a simulated machine that open its log: the daemon, with the writer's real logic, and the tools that are run on it.

Machine ──► Daemon, Compaction, MendingTool ──► SimPlace ──► the log's files, the lock, a server for clients
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from tests.simulation.loop import Process
from tests.simulation.mending import Mending
from tests.simulation.network import SimServer
from tests.simulation.real_store import RealFiles
from tests.simulation.sim_store import SimStore
from tidelog.api.errors import LogLocked
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.daemon.process.candidate import LeadershipCandidate
from tidelog.daemon.process.clock import SystemClock
from tidelog.daemon.process.compaction import compact
from tidelog.daemon.process.runtime import Runtime, Watcher
from tidelog.eventlog.log import Log
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.records import Body, Record
from tidelog.eventlog.socket import Handler
from tidelog.scheduler.core import Core

if TYPE_CHECKING:
    from tests.simulation.machine import Machine


class SimClock(SystemClock):
    """The machine's clock as a process reads it: the real one, on simulated time."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.wall, machine.steady)
        self._rng = machine.rng
        self._lap = 0

    def lap(self) -> int:
        self._lap += int(self._rng.random() * 200_000)
        return self._lap


class SimLock:
    """The writer's lock of the log. It falls free when its holder dies; and it can be lost (`Machine.lock` is then another's)."""

    program: Program

    def __init__(self, machine: Machine, program: Program) -> None:
        held = machine.lock
        if held is not None and held.program.process.alive:
            raise LogLocked(machine.files.path, held.program.process.name)
        self.program = program
        self._machine = machine
        machine.lock = self

    def release(self) -> None:
        """Let the next one write."""
        if self._machine.lock is self:
            self._machine.lock = None


class Held(Protocol):
    """A lock, for the machine: whose it is."""

    program: Program


class _LockedStore(SimStore):
    """Lets go of the lock when it is closed, as the real one."""

    lock: SimLock

    async def close(self) -> None:
        await super().close()
        self.lock.release()


class SimPlace:
    """Implements `tidelog.daemon.process.place.Place`."""

    def __init__(self, machine: Machine, program: Program) -> None:
        self._machine = machine
        self._program = program

    def leader(self) -> str:
        held = self._machine.lock
        return "unknown" if held is None else held.program.process.name

    def heartbeat(self) -> object:
        return None

    def end_leader(self) -> str:
        return "nobody is ended here"

    async def followed(self, seq: int) -> None:
        pass

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        pass

    async def open_log(self, what: str, clock: Callable[[], int]) -> Log:
        files = self._machine.files
        if isinstance(files, RealFiles):
            return Log(await files.open_store(what), clock=clock)
        lock = SimLock(self._machine, self._program)
        try:
            store = await _LockedStore.open(files, files.path)
            assert isinstance(store, _LockedStore)
            store.lock = lock
            return Log(store, clock=clock)
        except BaseException:
            lock.release()
            raise

    async def open_reader(self) -> LogReader:
        return LogReader(await self._machine.files.open_reader())

    async def serve(self, log: Log, handler: Handler) -> AbstractAsyncContextManager[object]:
        server = SimServer(self._machine, handler)
        self._program.server = server
        return server


class _Onlooker(Watcher):
    """Has the judge look at the scheduler after each record that it consumes."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._core: Core | None = None

    def configured(self, core: Core) -> None:
        self._core = core

    def consumed(self, record: Record, body: Body) -> None:
        if self._core is not None:
            self._machine.judged(self._machine.judge.consumed, self._core)


class Program:
    """One run of a process that may write the log."""

    working: asyncio.Task[None]

    def __init__(self, machine: Machine, process: Process) -> None:
        self.process = process
        self.runtime: Runtime | None = None
        """Once it leads."""
        self.server: SimServer | None = None
        self.faults_before = machine.faults
        self.is_beside_robbed = machine.has_robbed_leader()
        self.is_left_behind = False
        """The files that it leads were replaced by others, which stay: it ends when it notices, however late."""
        self._machine = machine

    async def work(self) -> None:
        """What it does."""
        raise NotImplementedError

    @property
    def may_end(self) -> bool:
        """Its end need not be an error."""
        return True


class Compaction(Program):
    """One run of `tidelog log compact`."""

    def __init__(self, machine: Machine, process: Process, keep: int) -> None:
        super().__init__(machine, process)
        self._keep = keep

    async def work(self) -> None:
        machine = self._machine
        try:
            log = await SimPlace(machine, self).open_log("tidelog log compact", machine.wall)
        except LogLocked:
            machine.counts["compactions refused"] += 1
            return
        async with log:
            last = max(log.head.seq - self._keep, log.anchor.seq, min(log.head.seq, 1))
            machine.judge.compacting(last)
            machine.judge.compacted(await compact(log, machine.registry, last if self._keep else None))
            machine.counts["compactions"] += 1


class MendingTool(Program):
    """One run of `tidelog log repair`, or of export and import."""

    def __init__(self, machine: Machine, process: Process, mending: Mending) -> None:
        super().__init__(machine, process)
        self._mending = mending

    async def work(self) -> None:
        await self._mending.work(self._machine.wall)


class Daemon(Program, LeadershipCandidate):
    """One run of the daemon's process."""

    work = LeadershipCandidate.work

    def __init__(self, machine: Machine, process: Process) -> None:
        Program.__init__(self, machine, process)
        self.poll_seconds = machine.habits.poll_seconds
        LeadershipCandidate.__init__(
            self,
            SimPlace(machine, self),
            machine.registry,
            SimClock(machine),
            machine.configuration,
            source="scheduler.yaml",
            actors=machine.cast,
            limits=machine.habits.limits,
            watcher=_Onlooker(machine),
        )

    @property
    def may_end(self) -> bool:
        """Somebody has told it to."""
        return self._stop.is_set()

    def read_configuration(self) -> SchedulerConfiguration:
        return self._machine.configuration

    @contextlib.asynccontextmanager
    async def leading(self, runtime: Runtime) -> AsyncIterator[None]:
        self.runtime = runtime
        yield

"""How a process comes to lead a log, and how it ends: what `tidelog run` does, without signals, HTTP and files of options.

    the log: ours? ─► recover ──────────► lead ─► told to stop: finish what is in flight, end
      └─ another's ─► stand by ─► take over ─┘ └► the log fails: end with an error

Told to (`reload`), it reads the configuration again when it leads. It touches the world only through a `Place` and a `Clock`, so the same code runs in the daemon and in the simulation.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import TypeVar

from tidelog.api.errors import LogBusy, LogDamaged, LogError, LogFull, LogLocked, TidelogError
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.daemon.actors.catalogue import Cast, nobody
from tidelog.daemon.process.clock import Clock
from tidelog.daemon.process.logs import fields
from tidelog.daemon.process.place import Place
from tidelog.daemon.process.recovery import recovered_state
from tidelog.daemon.process.runtime import Limits, Runtime, Watcher
from tidelog.daemon.process.scheduler import assembled
from tidelog.daemon.process.standby import POLL_SECONDS, Standby, Taken
from tidelog.eventlog.log import Log
from tidelog.plugins.registry import Registry
from tidelog.scheduler.core import Core

CHECK_SECONDS = 1.0
"""How often an idle leader checks that the log's files are still there."""
T = TypeVar("T")

_log = logging.getLogger("tidelog.process")


class LeadershipCandidate:
    """Wants to lead the log at `place`. Those who make one override what they want to be told of."""

    what = "tidelog run"
    """How others call this process while it leads or waits."""

    poll_seconds = POLL_SECONDS
    """How often a standby looks whether the lock is free."""

    end_silent_seconds: float | None = None
    """A standby ends a leader that has shown no sign of life for so long; None: never."""

    def __init__(
        self,
        place: Place,
        registry: Registry,
        clock: Clock,
        configuration: SchedulerConfiguration,
        *,
        source: str = "",
        actors: Cast = nobody,
        limits: Limits | None = None,
        watcher: Watcher | None = None,
        standby: bool = True,
    ) -> None:
        """`standby`: wait if another process holds the log; False: that is an error."""
        self._place = place
        self._registry = registry
        self._clock = clock
        self._configuration = configuration
        self._source = source
        self._actors = actors
        self._limits = limits
        self._watcher = watcher
        self._standby = standby
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()

    def stop(self) -> None:
        """Finish what is in flight, and end."""
        self._stop.set()

    def reload(self) -> None:
        """Read the configuration again; a standby does when it leads."""
        self._reload.set()

    def read_configuration(self) -> SchedulerConfiguration:
        """The configuration as it is now. Raises TidelogError with what is wrong with it; then the old one stays."""
        return self._configuration

    # --- what it tells --------------------------------------------------------------------------------------------------

    def standing_by(self) -> None:
        """Another process leads."""

    def followed(self, core: Core) -> None:
        """This core is kept warm while another process leads."""

    def silent(self, seconds: float) -> None:
        """The leader has shown no sign of life for so long."""

    def kept_out(self, error: LogError) -> None:
        """The log cannot be opened now; it is tried again."""

    def taken(self, log: Log) -> None:
        """The log is this process's."""

    def assembled(self, runtime: Runtime) -> None:
        """The runtime is made, and is about to begin."""

    async def led(self, runtime: Runtime) -> None:
        """Return when there is nothing to lead any more; raises what ended it."""
        await runtime.wait()

    @contextlib.asynccontextmanager
    async def leading(self, runtime: Runtime) -> AsyncIterator[None]:  # noqa: ARG002
        """Everything that runs while this process leads."""
        yield

    def finishing(self) -> None:
        """It was told to stop."""

    # --- its way --------------------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Return when it was told to stop; raises what ended it otherwise."""
        try:
            taken = await self._unless_stopped(self._take())
        finally:
            await self._place.close()
        if taken is None:
            return
        try:
            await self._lead(taken)
        except LogError as error:
            if isinstance(taken.log.failure, LogDamaged):  # Whoever hands in hears of it in other errors.
                raise taken.log.failure from error
            raise
        finally:
            await taken.log.close()

    async def _take(self) -> Taken:
        """The log, when it is ours, and the core that has consumed all of it."""
        try:
            log = await self._open()
        except LogLocked:
            if not self._standby:
                raise
            self.standing_by()
            return await self._stand_by()
        try:
            return Taken(log, await recovered_state(log, self._registry))
        except BaseException:
            await log.close()
            raise

    async def _open(self) -> Log:
        """The log, as soon as there is room for opening it, and no other program's transaction in the way."""
        known: type[LogError] | None = None
        while True:
            try:
                return await self._place.open_log(self.what, self._clock.now)
            except (LogFull, LogBusy) as error:
                if type(error) is not known:
                    known = type(error)
                    _log.warning("the log cannot be opened yet", extra=fields(error=str(error)))
                self.kept_out(error)
                await asyncio.sleep(CHECK_SECONDS)

    async def _stand_by(self) -> Taken:
        standby = Standby(
            self._place,
            self._registry,
            self._clock,
            what=self.what,
            followed=self.followed,
            poll_seconds=self.poll_seconds,
            end_silent_seconds=self.end_silent_seconds,
            silent=self.silent,
        )
        return await standby.take_over()

    async def _lead(self, taken: Taken) -> None:
        log, state = taken
        self.taken(log)
        runtime = await assembled(
            log,
            self._registry,
            self._configuration,
            self._clock,
            state=state,
            source=self._source,
            holder=self.what,
            actors=self._actors(self._registry),
            limits=self._limits,
            watcher=self._watcher,
        )
        self.assembled(runtime)
        # It may have to wait for room on the disk before it has the log in its name.
        if await self._unless_stopped(runtime.begin()) is None:
            return
        async with (
            runtime,
            self.leading(runtime),
            await self._place.serve(log, runtime.facts.handle),
            beside(self._reload_when_told(runtime)),
            beside(self._look_after(log)),
        ):
            doing = (
                "scheduling" if runtime.limits.decides else "keeping the log; decisions are left to others"
            )
            _log.info(doing, extra=fields(log=log.name, seq=state.core.seq, epoch=state.core.epoch))
            await self._unless_stopped(self.led(runtime))
            self.finishing()
            # While the requests under way are answered.
            await runtime.stop()

    async def _look_after(self, log: Log) -> None:
        """See also while nothing is appended that the files are still there: else `/readyz` would go on saying that all is well."""
        with contextlib.suppress(LogError):  # The log takes nothing more then, and the runtime ends by that.
            while True:
                await asyncio.sleep(CHECK_SECONDS)
                await log.check()

    async def _reload_when_told(self, runtime: Runtime) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            try:
                self._configuration = self.read_configuration()
                await runtime.configure(self._configuration, self._source)
            except LogFull as error:
                _log.error("the disk is full: the configuration waits", extra=fields(error=str(error)))
                await asyncio.sleep(runtime.limits.full_seconds)
                self._reload.set()
            except TidelogError as error:
                _log.error("the configuration is refused, the old one stays", extra=fields(error=str(error)))
            except Exception:
                _log.exception("the configuration could not be read again, the old one stays")
            else:
                _log.info("the configuration was read again", extra=fields(source=self._source))

    async def _unless_stopped(self, work: Coroutine[object, object, T]) -> T | None:
        """Return the result of the work; None, and the work cancelled, if the process is to stop."""
        task = asyncio.create_task(work)
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for each in (task, stop):
                each.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)


@contextlib.asynccontextmanager
async def beside(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Work that goes on while the block runs. Not a task group: what ends the block is to be raised as it is."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

"""The process of `tidelog run`: from a path and a few options to a scheduler at work, and to its end.

    configuration ─► HTTP ─► the log: ours? ─► recover ──────────► lead ─► SIGTERM, SIGINT: finish what is in flight, end
                                  └─ another's ─► stand by ─► take over ─┘  └► the log fails: end with an error

What is wrong with the options is told before anything is touched: the configuration is read first, then the address is taken, then the
log. Whatever ends it is raised; the command line makes one line and an exit code of it. SIGHUP reads the configuration again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from tidelog.api.errors import LogLocked, TidelogError
from tidelog.daemon.actors.catalogue import Cast, nobody
from tidelog.daemon.clock import SystemClock
from tidelog.daemon.facts import FactService
from tidelog.daemon.http import HttpServer
from tidelog.daemon.logs import fields
from tidelog.daemon.recorder import Recorder
from tidelog.daemon.recovering import recovered_core
from tidelog.daemon.runtime import Limits, Runtime
from tidelog.daemon.scheduler_api import installed_plugins, load_configuration
from tidelog.daemon.sources import ProcessState
from tidelog.daemon.standby import Standby, Taken
from tidelog.eventlog.handover import serve
from tidelog.eventlog.log import open_log
from tidelog.eventlog.opening import log_path
from tidelog.plugins.configuration import Loaded
from tidelog.scheduler.core import Core

WHAT = "tidelog run"
T = TypeVar("T")

_log = logging.getLogger("tidelog.process")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says."""

    log: Path
    config: Path | None = None
    gates: Mapping[str, bool] | None = None
    listen: str | None = None
    """Address of the HTTP endpoints; None for none."""
    standby: bool = True
    """Wait if another process holds the log; False: that is an error."""
    limits: Limits = Limits()


class Process:
    """One run of the daemon. `actors` makes those that are to play along, anew each time it is called."""

    def __init__(self, options: Options, actors: Cast = nobody) -> None:
        """Raises what is wrong with the configuration."""
        self._options = options
        self._actors = actors
        self._registry = installed_plugins()
        self._loaded = self._read_configuration()
        self._clock = SystemClock()
        self.state = ProcessState(log_path(options.log), self._loaded.configuration)
        self._recorder = Recorder(self.state.measured, self._clock.lap)
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()

    async def run(self) -> None:
        """Return when a signal said to stop; raises what ended it otherwise."""
        with self._signals():
            async with contextlib.AsyncExitStack() as stack:
                if self._options.listen is not None:
                    await stack.enter_async_context(HttpServer(self._options.listen, self.state))
                await self._work()
        _log.info("stopped")

    async def _work(self) -> None:
        taken = await self._unless_stopped(self._take())
        if taken is None:
            return
        try:
            await self._lead(taken)
        finally:
            await taken.log.close()

    # --- the log --------------------------------------------------------------------------------------------------------

    async def _take(self) -> Taken:
        """The log, when it is ours, and the core that has consumed all of it."""
        try:
            log = await open_log(self._options.log, what=WHAT, clock=self._clock.now)
        except LogLocked:
            if not self._options.standby:
                raise
            self.state.phase = "standby"
            return await self._stand_by()
        try:
            return Taken(log, await recovered_core(log, self._registry))
        except BaseException:
            await log.close()
            raise

    async def _stand_by(self) -> Taken:
        def followed(core: Core) -> None:
            self.state.core = core

        standby = Standby(self._options.log, self._registry, self._clock, what=WHAT, followed=followed)
        return await standby.take_over()

    async def _lead(self, taken: Taken) -> None:
        log, core = taken
        state = self.state
        log.on_commit = self._recorder.group_committed
        configuration = self._loaded.configuration
        runtime = Runtime(
            log,
            core,
            await FactService.start(log, configuration.feature_gates),
            self._clock,
            configuration=configuration,
            source=self._source,
            holder=WHAT,
            actors=self._actors(self._registry),
            limits=self._options.limits,
            watcher=self._recorder,
        )
        async with runtime:
            state.runtime, state.core, state.phase = runtime, core, "leading"
            async with await serve(log, runtime.facts.handle), self._reloading(runtime):
                _log.info("scheduling", extra=fields(log=log.name, seq=core.seq, epoch=core.epoch))
                await self._unless_stopped(runtime.wait())
                state.phase = "stopping"
                # While the server below answers the requests under way.
                await runtime.stop()

    # --- the configuration ----------------------------------------------------------------------------------------------

    @property
    def _source(self) -> str:
        return "" if self._options.config is None else str(self._options.config)

    def _read_configuration(self) -> Loaded:
        loaded = load_configuration(self._options.config, self._registry, self._options.gates)
        for warning in loaded.warnings:
            _log.warning("configuration", extra=fields(warning=warning))
        return loaded

    @contextlib.asynccontextmanager
    async def _reloading(self, runtime: Runtime) -> AsyncIterator[None]:
        # Not a task group: what ends the block is to be raised as it is.
        task = asyncio.create_task(self._reload_when_told(runtime))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _reload_when_told(self, runtime: Runtime) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            try:
                self._loaded = self._read_configuration()
                await runtime.configure(self._loaded.configuration, self._source)
            except TidelogError as error:
                _log.error("the configuration is refused, the old one stays", extra=fields(error=str(error)))
            except Exception:
                _log.exception("the configuration could not be read again, the old one stays")
            else:
                _log.info("the configuration was read again", extra=fields(source=self._source))

    # --- signals --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        calls = {
            signal.SIGTERM: self._stop.set,
            signal.SIGINT: self._stop.set,
            signal.SIGHUP: self._reload.set,
        }
        for number, call in calls.items():
            loop.add_signal_handler(number, call)
        try:
            yield
        finally:
            for number in calls:
                loop.remove_signal_handler(number)

    async def _unless_stopped(self, work: Coroutine[object, object, T]) -> T | None:
        """What the work comes to; None, and the work cancelled, if the process is to stop."""
        task = asyncio.create_task(work)
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            for each in (task, stop):
                each.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)

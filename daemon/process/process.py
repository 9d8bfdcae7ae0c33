"""The process of `tidelog run`: from a path and a few options to a scheduler at work, and to its end.

    configuration ─► HTTP ─► the log, led or followed (`tidelog.daemon.process.candidate`) until SIGTERM, SIGINT, or an error

Wrong options are reported before anything is touched: the configuration is read first, then the address is taken, then the
log. Whatever ends it is raised; the command line makes one line and an exit code of it. SIGHUP reads the configuration again, SIGUSR2 tells
what is in memory and compares it with the log, and SIGUSR1 does nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import msgspec

from tidelog.api.errors import LogError, TidelogError
from tidelog.configuration.configuration import Loaded, SchedulerConfiguration
from tidelog.daemon.actors.catalogue import Cast, nobody
from tidelog.daemon.http.endpoints import HttpServer, Site
from tidelog.daemon.http.sources import ProcessState
from tidelog.daemon.metrics.recorder import Recorder
from tidelog.daemon.process.candidate import LeadershipCandidate, beside
from tidelog.daemon.process.clock import SystemClock
from tidelog.daemon.process.inspection import inspect
from tidelog.daemon.process.logs import fields
from tidelog.daemon.process.place import place_of
from tidelog.daemon.process.runtime import Limits, Runtime
from tidelog.daemon.process.scheduler import load_configuration
from tidelog.daemon.process.systemd import Notifier
from tidelog.eventlog.address import LogAddress
from tidelog.eventlog.log import Log
from tidelog.eventlog.opening import name_of
from tidelog.plugins.registry import Registry, installed_plugins
from tidelog.scheduler.core import Core

_log = logging.getLogger("tidelog.process")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    log: LogAddress
    config: Path | None = None
    gates: Mapping[str, bool] | None = None
    listen: str | None = None
    """Address of the HTTP endpoints; None for none."""
    standby: bool = True
    """Wait if another process holds the log; False: that is an error."""
    end_silent_leader: float | None = None
    """Seconds; None: never."""
    limits: Limits = Limits()
    flags: Mapping[str, str] = {}
    """The options as they were given, for `/flagz`."""


class Process(LeadershipCandidate):
    """One run of the daemon. `actors` makes those that are to play along, anew each time it is called."""

    def __init__(self, options: Options, actors: Cast = nobody, site: Site | None = None) -> None:
        """Raises what is wrong with the configuration. `site` is served beside the endpoints."""
        self._options = options
        self._site = site
        self._notifier = Notifier()
        self._inspecting: set[asyncio.Task[None]] = set()
        registry = installed_plugins()
        configuration = self._loaded(registry).configuration
        clock = SystemClock()
        self.state = ProcessState(name_of(options.log), configuration, options.flags)
        self._recorder = Recorder(self.state.measured, clock.lap)
        super().__init__(
            place_of(options.log, self.what),
            registry,
            clock,
            configuration,
            source="" if options.config is None else str(options.config),
            actors=actors,
            limits=options.limits,
            watcher=self._recorder,
            standby=options.standby,
        )
        self.end_silent_seconds = options.end_silent_leader

    async def run(self) -> None:
        """Return when a signal said to stop; raises what ended it otherwise."""
        with self._signals():
            async with contextlib.AsyncExitStack() as stack:
                if self._options.listen is not None:
                    server = HttpServer(self._options.listen, self.state, site=self._site)
                    await stack.enter_async_context(server)
                await stack.enter_async_context(beside(self._notifier.keep_alive()))
                await self.work()
        _log.info("stopped")

    # --- what it is told ------------------------------------------------------------------------------------------------

    def standing_by(self) -> None:
        self.state.phase = "standby"
        self._notifier.ready("standing by")

    def followed(self, core: Core) -> None:
        self.state.core = core

    def silent(self, seconds: float) -> None:
        self.state.leader_silent = seconds

    def kept_out(self, error: LogError) -> None:
        self.state.kept_out = error

    def taken(self, log: Log) -> None:
        self.state.kept_out = None
        self.state.leader_silent = 0.0
        self.state.lease = getattr(log.store, "lease", None)  # Only a log in a database has one.
        log.on_commit = self._recorder.group_committed

    @contextlib.asynccontextmanager
    async def leading(self, runtime: Runtime) -> AsyncIterator[None]:
        state = self.state
        state.runtime, state.core, state.phase = runtime, runtime.core, "leading"
        self._notifier.ready("leading")
        # Modules and the recovered state live as long as the process: a collection that went through them would hold decisions up.
        gc.freeze()
        try:
            yield
        finally:
            gc.unfreeze()

    def finishing(self) -> None:
        self.state.phase = "stopping"
        self._notifier.stopping()

    def reload(self) -> None:
        self._notifier.reloading()
        super().reload()
        # Whether or not it is taken: what is wrong with it is on the log lines.
        self._notifier.ready(self.state.phase)

    def inspect(self) -> None:
        """Tell what is in memory, and compare it with the log."""
        core, runtime = self.state.core, self.state.runtime
        if core is None or runtime is None:
            _log.info(
                "there is nothing to inspect: this process does not lead",
                extra=fields(phase=self.state.phase),
            )
            return
        task = asyncio.get_running_loop().create_task(self._inspect(runtime))
        self._inspecting.add(task)
        task.add_done_callback(self._inspecting.discard)

    async def _inspect(self, runtime: Runtime) -> None:
        try:
            await inspect(runtime.core, runtime.log)
        except TidelogError as error:
            _log.error("memory and log could not be compared", extra=fields(error=str(error)))

    # --- the configuration ----------------------------------------------------------------------------------------------

    def read_configuration(self) -> SchedulerConfiguration:
        return self._loaded(self._registry).configuration

    def _loaded(self, registry: Registry) -> Loaded:
        loaded = load_configuration(self._options.config, registry, self._options.gates)
        for warning in loaded.warnings:
            _log.warning("configuration", extra=fields(warning=warning))
        return loaded

    # --- signals --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        calls = {
            signal.SIGTERM: self.stop,
            signal.SIGINT: self.stop,
            signal.SIGHUP: self.reload,
            signal.SIGUSR1: _nothing,
            signal.SIGUSR2: self.inspect,
        }
        for number, call in calls.items():
            loop.add_signal_handler(number, call)
        try:
            yield
        finally:
            for number in calls:
                loop.remove_signal_handler(number)


def _nothing() -> None:
    """A signal that others send, and that must not end the process."""

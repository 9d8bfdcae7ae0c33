"""A process on its way to lead, and while it leads: here what only a disk without room shows. The rest is told by the daemon's own tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from tests.patience import PATIENCE
from tidelog.api.errors import LogFull
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.daemon.process.candidate import LeadershipCandidate
from tidelog.daemon.process.clock import SystemClock
from tidelog.daemon.process.runtime import Limits, Runtime
from tidelog.eventlog.log import Log
from tidelog.eventlog.memory import MemoryStore
from tidelog.plugins.registry import IN_TREE, Registry

REGISTRY = Registry(IN_TREE)


class SmallDisk(MemoryStore):
    """Has room, or none; tells of each time that it had none."""

    def __init__(self) -> None:
        super().__init__("small")
        self.is_full = False
        self.refused = asyncio.Event()

    def check_room(self) -> None:
        if self.is_full:
            self.refused.set()
            raise LogFull(self.name, 1)


class Alone:
    """A place with one log that nobody else wants."""

    def __init__(self, disk: SmallDisk) -> None:
        self.disk = disk

    async def open_log(self, what: str, clock: Callable[[], int]) -> Log:
        return Log(self.disk, clock=clock)

    async def close(self) -> None:
        pass

    async def serve(self, *_: Any) -> Any:
        return contextlib.nullcontext()


class Reloading(LeadershipCandidate):
    """Reads whatever configuration it is given."""

    newest: SchedulerConfiguration
    leads: asyncio.Future[Runtime]

    def read_configuration(self) -> SchedulerConfiguration:
        return self.newest

    @contextlib.asynccontextmanager
    async def leading(self, runtime: Runtime) -> Any:
        self.leads.set_result(runtime)
        yield


def configuration(seconds: int) -> SchedulerConfiguration:
    """One that can be told from others."""
    of = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return resolve_configuration({**of, "podMaxBackoffSeconds": seconds}, REGISTRY).configuration


async def test_configuration_that_is_read_while_the_disk_is_full_is_in_force_when_there_is_room() -> None:
    disk, before, after = SmallDisk(), configuration(20), configuration(30)
    place: Any = Alone(disk)
    candidate = Reloading(place, REGISTRY, SystemClock(), before, limits=Limits(full_seconds=0.01))
    candidate.newest, candidate.leads = after, asyncio.get_running_loop().create_future()
    async with asyncio.timeout(PATIENCE):
        work = asyncio.create_task(candidate.work())
        runtime = await candidate.leads

        disk.is_full = True
        candidate.reload()
        await disk.refused.wait()
        in_force_then = runtime.core.configuration
        disk.is_full = False
        while runtime.core.configuration == before:
            await runtime.changed.wait()
        candidate.stop()
        await work

    assert in_force_then == before
    assert runtime.core.configuration == after

"""The daemon's process inside the test's own: recovery, standby, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE, until
from tidelog.api.errors import LogDamaged, LogError, LogFull, LogLocked, TidelogError
from tidelog.api.objects import Node, Pod
from tidelog.cli.submit import submit
from tidelog.daemon.intake.messages import Apply
from tidelog.daemon.process import place as place_module
from tidelog.daemon.process.clock import SystemClock
from tidelog.daemon.process.place import LogFiles
from tidelog.daemon.process.process import Options, Process
from tidelog.daemon.process.recovery import CannotRecover, begin_recovery, recovered_core
from tidelog.daemon.process.runtime import Limits
from tidelog.daemon.process.scheduler import Scheduler, load_configuration
from tidelog.daemon.process.standby import Standby
from tidelog.eventlog.log import open_log
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import ConfigurationLoaded, Draft, Scheduled
from tidelog.plugins.registry import Registry
from tidelog.scheduler.core import Core
from tidelog.testing.builders import node, pod
from tidelog.testing.faulty_disk import FaultyDisk


def a_node(name: str = "n1", cpu: str = "4") -> Node:
    return node(name).capacity(cpu=cpu).build()


def a_pod(name: str, cpu: str = "100m") -> Pod:
    return pod(name).request(cpu=cpu).build()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "c.db"


@asynccontextmanager
async def running(options: Options) -> AsyncIterator[tuple[Process, asyncio.Task[None]]]:
    """A process in a task; told to stop at the end."""
    process = Process(options)
    task = asyncio.create_task(process.run())
    try:
        yield process, task
    finally:
        process.stop()
        await asyncio.wait([task])


def is_leading(process: Process) -> Callable[[], bool]:
    return lambda: process.state.phase == "leading"


async def apply(log: Path, *objects: Node | Pod) -> None:
    await submit(log, Apply(objects=objects), verb="apply")


async def test_process_schedules_what_others_apply_and_stops_when_told(log: Path) -> None:
    async with running(Options(log=log)) as (process, task):
        await until(is_leading(process))
        await apply(log, a_node(), a_pod("web"))
        core = process.state.core
        assert core is not None
        await until(lambda: core.attempts == 1)
        ready, live = process.state.ready(), process.state.live()
        process.stop()
        await task

    assert not any(ready.values())
    assert not any(live.values())
    assert process.state.phase == "stopping"
    assert process.state.ready()["shutdown"] is not None


@pytest.mark.parametrize(
    ("decides", "doing"), [(True, "scheduling"), (False, "keeping the log; decisions are left to others")]
)
async def test_process_says_what_it_does_with_the_log(
    log: Path, caplog: pytest.LogCaptureFixture, decides: bool, doing: str
) -> None:
    caplog.set_level(logging.INFO, logger="tidelog")

    async with running(Options(log=log, limits=Limits(decides=decides))) as (process, _):
        await until(is_leading(process))

    assert [
        one.message for one in caplog.records if "seq" in getattr(one, "fields", {}) and one.message == doing
    ] == [doing]
    assert ("scheduling" in [one.message for one in caplog.records]) is decides


async def test_failing_disk_ends_the_process_with_its_error(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = False

    def step(_step: str) -> None:
        if broken:
            raise OSError(errno.EIO, "Input/output error")

    disk = FaultyDisk(step)
    monkeypatch.setattr(place_module, "open_log", partial(open_log, disk=disk))
    async with running(Options(log=log)) as (process, task):
        await until(is_leading(process))
        await apply(log, a_node())
        broken = True
        with pytest.raises(TidelogError):
            await apply(log, *(a_pod(f"p{i}") for i in range(20)))
        await until(task.done)
        state = process.state
        core = state.core
        assert core is not None
        attempts = core.attempts
        problem = state.ready()["log"]
        error = task.exception()
        broken = False

    assert isinstance(error, LogError)
    assert error.exit_code == 1
    assert problem is not None
    assert core.attempts == attempts == 0


async def test_process_that_waits_for_room_on_the_disk_is_not_ready(log: Path) -> None:
    async with running(Options(log=log)) as (process, _):
        await until(is_leading(process))
        runtime = process.state.runtime
        assert runtime is not None
        runtime.full = LogFull(str(log), 1)
        full = process.state.ready()["log"]
        runtime.full = None
        room = process.state.ready()["log"]

    assert full is not None
    assert "are free on this disk" in full
    assert room is None


async def test_held_log_is_an_error_without_standby(log: Path) -> None:
    async with (
        await open_log(log, what="somebody else"),
        running(Options(log=log, standby=False)) as (_, task),
    ):
        await asyncio.wait([task])

    assert isinstance(task.exception(), LogLocked)


async def test_standby_can_be_stopped(log: Path) -> None:
    async with open_log(log, what="somebody else"), running(Options(log=log)) as (process, task):
        await until(lambda: process.state.phase == "standby")
        process.stop()
        await task


# --- recovery -------------------------------------------------------------------------------------------------------------


async def scheduled(log: Path, pods: int = 10, snapshot: bool = False) -> str:
    """A log with some decisions; the digest of the state at its end."""
    async with Scheduler.open(log, registry=Registry()) as scheduler:
        await scheduler.apply([a_node(), *(a_pod(f"p{i}") for i in range(pods))])
        await scheduler.settled()
        if snapshot:
            await scheduler.runtime.keep_snapshot()
            await scheduler.apply([a_pod(f"more{i}") for i in range(pods)])
            await scheduler.settled()
        return scheduler.runtime.core.digest()


@pytest.mark.parametrize("snapshot", [False, True])
async def test_recovered_core_is_the_one_that_was_left(log: Path, snapshot: bool) -> None:
    digest = await scheduled(log, snapshot=snapshot)

    async with open_log(log) as opened:
        recovery = await begin_recovery(opened, Registry())
        core = await recovered_core(opened, Registry())

    assert digest == core.digest()
    assert (recovery.core.seq > 0) == snapshot


@pytest.mark.unreplayed("the records are made by hand: an outcome of no attempt")
async def test_log_of_other_rules_is_refused_with_an_exit_code_of_its_own(log: Path) -> None:
    await scheduled(log)
    async with open_log(log) as opened:
        core = await recovered_core(opened, Registry())
        body = Scheduled(attempt=99, observed=core.seq, at=core.at, epoch=core.epoch, node="n1")
        await opened.append([Draft(body=body, author="scheduler", key="Pod/default/p1")])

        with pytest.raises(CannotRecover, match=r"attempt 99 .* was about Pod/default/p1") as caught:
            await recovered_core(opened, Registry())

    assert caught.value.exit_code == 3


@pytest.mark.unreplayed("the records are made by hand: a configuration of nothing")
async def test_log_that_contradicts_itself_is_refused_in_one_line(log: Path) -> None:
    await scheduled(log)
    async with open_log(log) as opened:
        await opened.append([Draft(body=ConfigurationLoaded(configuration={}), author="scheduler")])

        with pytest.raises(CannotRecover, match="cannot be followed: ValidationError"):
            await recovered_core(opened, Registry())


@pytest.mark.unreplayed("the snapshots are made by hand")
async def test_compacted_log_without_usable_snapshot_is_refused(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scheduled(log, snapshot=True)
    async with open_log(log) as opened:
        await opened.compact()
        monkeypatch.setattr("tidelog.scheduler.state.VERSION", 3)

        with pytest.raises(LogError, match="written by another version of tidelog: use that one") as refused:
            await recovered_core(opened, Registry())
        assert not isinstance(refused.value, LogDamaged)

    with sqlite3.connect(log) as database:
        database.execute("UPDATE parts SET data = zeroblob(3)")
    database.close()
    async with open_reader(log) as reader:
        with pytest.raises(LogDamaged, match="no usable snapshot"):
            await recovered_core(reader, Registry())


async def test_compacted_log_goes_on(log: Path) -> None:
    digest = await scheduled(log, snapshot=True)
    async with open_log(log) as opened:
        await opened.compact()

        assert digest == (await recovered_core(opened, Registry())).digest()


# --- standby --------------------------------------------------------------------------------------------------------------


async def followed_by_standby(log: Path, meanwhile: Callable[[Scheduler], Awaitable[None]]) -> Core:
    """The core of a standby that took over after a scheduler on this log had done this."""
    standby = Standby(LogFiles(log), Registry(), SystemClock(), what="standby")
    async with Scheduler.open(log, registry=Registry()) as scheduler:
        taking = asyncio.create_task(standby.take_over())
        await until(lambda: standby._recovery is not None)
        await meanwhile(scheduler)
        await scheduler.settled()
        digest = scheduler.runtime.core.digest()
    async with asyncio.timeout(PATIENCE):
        taken = await taking
    assert taken.state.core.digest() == digest
    await taken.log.close()
    return taken.state.core


async def test_standby_has_followed_when_it_takes_over(log: Path) -> None:
    async def work(scheduler: Scheduler) -> None:
        await scheduler.apply(a_node())
        for i in range(10):
            await scheduler.apply(a_pod(f"p{i}"))
            await asyncio.sleep(0.02)

    core = await followed_by_standby(log, work)

    assert core.attempts == 10


async def test_standby_survives_that_the_log_is_compacted(log: Path) -> None:
    async def work(scheduler: Scheduler) -> None:
        await scheduler.apply([a_node(), *(a_pod(f"p{i}") for i in range(30))])
        await scheduler.settled()
        await scheduler.runtime.keep_snapshot()
        await scheduler.runtime.log.compact()

    core = await followed_by_standby(log, work)

    assert core.attempts == 30


async def test_standby_on_a_log_that_lost_records_meanwhile_begins_anew(log: Path) -> None:
    await scheduled(log)
    standby = Standby(LogFiles(log), Registry(), SystemClock(), what="standby")
    reader = await standby._begin()
    await standby._read(reader)
    await reader.close()
    standby._digest = b"of a record that the log has lost"

    taken = await standby.take_over()

    assert taken.state.core.seq == taken.log.head.seq
    await taken.log.close()


# --- the library ------------------------------------------------------------------------------------------------------------


async def test_library_goes_on_with_a_log_and_a_configuration_file(log: Path, tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npodMaxBackoffSeconds: 33\n"
    )
    await scheduled(log)

    async with Scheduler.open(log, config) as scheduler:
        await scheduler.apply(a_pod("late"))
        await scheduler.settled()
        configuration = scheduler.runtime.core.configuration
        names = [p.metadata.name for p in scheduler.pods("default") if p.spec.node_name]

    assert configuration is not None
    assert configuration.pod_max_backoff_seconds == 33
    assert len(names) == 11


async def test_library_takes_requests_of_other_processes(log: Path) -> None:
    async with Scheduler.open(log) as scheduler:
        await apply(log, a_node(), a_pod("web"))
        await scheduler.settled()

        assert scheduler.placements == {"default/web": "n1"}


async def test_log_is_held_by_one_scheduler_only(log: Path) -> None:
    async with Scheduler.open(log):
        with pytest.raises(LogLocked):
            async with Scheduler.open(log):
                pass


@pytest.mark.parametrize(
    ("config", "words"),
    [({"nonsense": 1}, "nonsense"), ("none.yaml", r"none\.yaml: the configuration cannot be read")],
)
def test_configuration_that_cannot_be_is_refused(config: Any, words: str) -> None:
    with pytest.raises(TidelogError, match=words):
        load_configuration(config, Registry())

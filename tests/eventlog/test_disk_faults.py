"""Full disks and failing fsyncs: nothing is acknowledged that is not durable, and the message says what to do."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE, until
from tidelog.api.errors import LogError, LogFull
from tidelog.eventlog import database
from tidelog.eventlog.log import Log, open_log
from tidelog.eventlog.records import Draft, Tick
from tidelog.eventlog.repair import repair
from tidelog.eventlog.room import RESERVE_BYTES
from tidelog.eventlog.sqlite import SqliteStore
from tidelog.eventlog.transfer import export_log, import_log
from tidelog.eventlog.verify import verify
from tidelog.testing.faulty_disk import FaultyDisk, sqlite_error


def tick(number: int) -> Draft:
    return Draft(body=Tick(), author="cluster", key=f"Pod/default/web-{number}")


SQL_STEPS = frozenset(["begin", "insert", "commit", "delete", "checkpoint", "vacuum"])


class FailAt:
    """Raises an error at the n-th step after `arm`, and remembers what was done after that."""

    def __init__(self) -> None:
        self.left = 0
        self.errors: tuple[Exception, ...] = ()
        self.failed_at = ""
        self.later: list[str] = []

    def arm(self, steps: int, *errors: Exception) -> None:
        """At that step raise the error; of two, the first for SQL and the second for files."""
        self.left, self.errors = steps, errors

    def __call__(self, step: str) -> None:
        if self.failed_at:
            self.later.append(step)
        if not self.errors:
            return
        self.left -= 1
        if self.left == 0:
            self.failed_at = step
            raise self.errors[0 if step.split()[1] in SQL_STEPS else -1]


ERRORS: list[Callable[[], Exception]] = [
    lambda: OSError(errno.EIO, "Input/output error"),
    lambda: OSError(errno.ENOSPC, "No space left on device"),
    lambda: sqlite_error(sqlite3.SQLITE_IOERR_FSYNC),
]
STEPS_OF_AN_APPEND = ["begin", "insert", "insert", "commit", "write", "sync"]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("step", range(1, 2 * len(STEPS_OF_AN_APPEND) + 1))
async def test_failed_step_stops_the_log_and_acknowledges_nothing(
    tmp_path: Path, step: int, error: Callable[[], Exception]
) -> None:
    disk = FailAt()
    log = await open_log(tmp_path / "c.db", disk=FaultyDisk(disk))
    await log.append([tick(0)])
    disk.arm(step, error())

    with pytest.raises(LogError, match="start again"):
        await log.append([tick(1), tick(2), tick(3)])

    with pytest.raises(LogError, match="nothing more is written or acknowledged"):
        await log.append([tick(4)])
    assert log.failure is not None
    assert log.head.seq == 1
    await log.close()
    assert set(disk.later) <= {"before other"}, "nothing is written or fsynced after a failure"
    expected = f"{'before' if step % 2 else 'after'} {STEPS_OF_AN_APPEND[(step - 1) // 2]}"
    assert disk.failed_at == expected
    async with open_log(tmp_path / "c.db") as again:
        kept = [record.key async for record in again.read()]
        assert kept in (["Pod/default/web-0"], [f"Pod/default/web-{n}" for n in range(4)])
        await again.append([tick(again.head.seq)])


@pytest.mark.parametrize("code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY])
@pytest.mark.parametrize("step", range(1, 9))
async def test_group_that_meets_the_end_of_the_disk_or_another_transaction_is_tried_again(
    tmp_path: Path, step: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.eventlog.log.WAIT_SECONDS", 0.0)
    disk = FailAt()
    log = await open_log(tmp_path / "c.db", disk=FaultyDisk(disk))
    await log.append([tick(0)])
    disk.arm(step, sqlite_error(code))

    answer = (await asyncio.gather(log.append([tick(1), tick(2), tick(3)]), return_exceptions=True))[0]

    # After a step that was done it is not known whether anything was written: then, and only then, nothing more is.
    if isinstance(answer, BaseException):
        assert disk.failed_at.startswith("after")
        assert "start again" in str(answer)
    else:
        assert log.waits is None
        await log.append([tick(4)])
    await log.close()
    assert disk.failed_at == f"{'before' if step % 2 else 'after'} {STEPS_OF_AN_APPEND[(step - 1) // 2]}"
    async with await open_log(tmp_path / "c.db") as again:
        kept = [record.key async for record in again.read()]
    whole = [f"Pod/default/web-{n}" for n in range(5)]
    assert kept == whole or (isinstance(answer, BaseException) and kept in (whole[:1], whole[:4]))


async def test_who_comes_after_a_group_that_waits_for_room_is_refused_and_the_group_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.eventlog.log.WAIT_SECONDS", 0.01)
    is_full = False

    def hook(step: str) -> None:
        if is_full and step == "before insert":
            raise sqlite_error(sqlite3.SQLITE_FULL)

    async with await open_log(tmp_path / "c.db", disk=FaultyDisk(hook)) as log:
        await log.append([tick(0)])
        is_full = True
        first = asyncio.ensure_future(log.append([tick(1)]))
        await until(lambda: log.waits is not None)
        with pytest.raises(LogFull):
            await log.append([tick(2)])
        assert not first.done()
        is_full = False
        assert [record.seq for record in await first] == [2]
        assert [record.seq for record in await log.append([tick(3)])] == [3]


@pytest.mark.parametrize("step", ["before checkpoint", "before insert", "before commit", "before delete"])
async def test_full_disk_at_a_snapshot_or_a_checkpoint_refuses_it_and_nothing_else(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.eventlog.sqlite.CHECKPOINT_BYTES", 1)
    is_full = False

    def hook(at: str) -> None:
        if is_full and at == step:
            raise sqlite_error(sqlite3.SQLITE_FULL)

    async with await open_log(tmp_path / "c.db", disk=FaultyDisk(hook)) as log:
        await log.append([tick(0)])
        is_full = True
        if step == "before checkpoint":
            await log.append([tick(1)])
            await log.put_snapshot("objects", 1, b"x" * 3 * 2**20)
        else:
            with pytest.raises(LogFull):
                await log.put_snapshot("objects", 1, b"x" * 3 * 2**20)
        is_full = False
        await log.append([tick(2)])
        await log.put_snapshot("objects", 1, b"y" * 3 * 2**20)
        found = await log.snapshot("objects")
        assert found is not None
        assert found.blob == b"y" * 3 * 2**20


async def test_all_who_wait_hear_of_the_failure(tmp_path: Path) -> None:
    disk = FailAt()
    log = await open_log(tmp_path / "c.db", disk=FaultyDisk(disk))
    tail = log.tail(1)
    disk.arm(4, sqlite_error(sqlite3.SQLITE_IOERR_WRITE))
    waiting = asyncio.ensure_future(anext(tail))
    results = await asyncio.gather(*(log.append([tick(n)]) for n in range(50)), return_exceptions=True)

    assert len(results) == 50
    assert all(isinstance(result, LogError) for result in results)
    with pytest.raises(LogError, match="writing failed"):
        await waiting
    await log.close()


async def test_failed_checkpoint_stops_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.eventlog.sqlite.CHECKPOINT_BYTES", 1)
    disk = FailAt()
    log = await open_log(tmp_path / "c.db", disk=FaultyDisk(disk))
    disk.arm(11, sqlite_error(sqlite3.SQLITE_IOERR_FSYNC))

    await log.append([tick(0)])
    with pytest.raises(LogError, match="start again"):
        await log.append([tick(1)])

    assert disk.failed_at == "before checkpoint"
    await log.close()


async def count_steps(work: Callable[[FaultyDisk], Awaitable[object]]) -> int:
    """How many steps some work takes when nothing fails."""
    steps: list[str] = []
    await work(FaultyDisk(steps.append))
    return len(steps)


async def open_and_close(path: Path, disk: FaultyDisk) -> None:
    async with open_log(path, disk=disk) as log:
        assert log.failure is None


async def crashed(path: Path) -> None:
    """A log with five records, as a kill leaves it."""
    path.parent.mkdir(exist_ok=True)
    live = path.with_name("live.db")
    async with open_log(live) as log:
        for n in range(5):
            await log.append([tick(n)])
        for suffix in ("", "-wal", ".head"):
            shutil.copy(f"{live}{suffix}", f"{path}{suffix}")


@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
async def test_failure_at_any_step_of_opening_is_one_error_and_harms_nothing(
    tmp_path: Path, existing: bool
) -> None:
    async def place(name: str) -> Path:
        path = tmp_path / name / "c.db"
        await crashed(path)
        if not existing:
            for suffix in ("", "-wal", ".head"):
                os.unlink(f"{path}{suffix}")
        return path

    reference = await place("reference")
    steps = await count_steps(lambda disk: open_and_close(reference, disk))

    for step in range(1, steps + 1):
        path = await place(str(step))
        fault = FailAt()
        fault.arm(step, ERRORS[2](), ERRORS[0]())
        with pytest.raises(LogError, match=r"c\.db"):
            await open_and_close(path, FaultyDisk(fault))
        async with open_log(path) as log:
            assert log.head.seq == (5 if existing else 0), fault.failed_at


async def test_repair_that_failed_at_any_step_can_be_run_again(tmp_path: Path) -> None:
    async def place(name: str) -> Path:
        path = tmp_path / name / "c.db"
        await crashed(path)
        os.unlink(f"{path}.head")
        return path

    reference = await place("reference")
    steps = await count_steps(lambda disk: repair(reference, accept_loss=True, disk=disk))

    for step in range(1, steps + 1):
        path = await place(str(step))
        fault = FailAt()
        fault.arm(step, ERRORS[2](), ERRORS[0]())
        with pytest.raises(LogError):
            await repair(path, accept_loss=True, disk=FaultyDisk(fault))
        await repair(path, accept_loss=True)
        async with open_log(path) as log:
            assert [record.key async for record in log.read()][:5] == [
                f"Pod/default/web-{n}" for n in range(5)
            ]
            assert log.head.seq == 6, fault.failed_at


async def test_copy_that_failed_at_any_step_leaves_nothing_or_all_of_itself(tmp_path: Path) -> None:
    """A repair finishes one that only is not in its place."""
    async with open_log(tmp_path / "c.db") as log:
        await log.append([tick(n) for n in range(5)])
        exported: list[bytes] = []
        await export_log(log, exported.append)
    lines = b"".join(exported).splitlines()
    steps = await count_steps(lambda disk: import_log(tmp_path / "reference.db", lines, disk=disk))
    left = 0

    for step in range(1, steps + 1):
        folder = tmp_path / str(step)
        folder.mkdir()
        fault = FailAt()
        fault.arm(step, ERRORS[2](), ERRORS[0]())
        with pytest.raises(LogError, match=r"c\.db"):
            await import_log(folder / "c.db", lines, disk=FaultyDisk(fault))
        left += bool(list(folder.iterdir()))
        if list(folder.iterdir()):
            await repair(folder / "c.db", accept_loss=True)
            async with open_log(folder / "c.db") as log:
                assert log.head.seq >= 5, fault.failed_at

    assert left < steps / 3


@pytest.mark.parametrize("step", range(1, 13))
async def test_failed_snapshot_stops_the_log_and_leaves_the_older_one(tmp_path: Path, step: int) -> None:
    fault = FailAt()
    async with open_log(tmp_path / "c.db", disk=FaultyDisk(fault)) as log:
        await log.append([tick(0), tick(1)])
        await log.put_snapshot("objects", 1, b"older")
        fault.arm(step, sqlite_error(sqlite3.SQLITE_IOERR_WRITE))
        with pytest.raises(LogError, match="start again"):
            await log.put_snapshot("objects", 2, b"newer")
        with pytest.raises(LogError, match="writing failed"):
            await log.append([tick(2)])
    async with open_log(tmp_path / "c.db") as log:
        found = await log.snapshot("objects", 1)
        assert found is not None
        assert found.blob == b"older"
        await log.put_snapshot("objects", 2, b"newer")
        newest = await log.snapshot("objects")
        assert newest is not None
        assert newest.blob == b"newer"


async def cancel_after(steps: int, work: Coroutine[Any, Any, object], log: Log) -> None:
    """Cancel this work when the disk has seen so many of its steps."""
    task = asyncio.create_task(work)
    for _ in range(steps):
        await log.snapshots()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("steps", range(6))
async def test_cancelled_snapshot_or_compaction_harms_nothing(tmp_path: Path, steps: int) -> None:
    async with open_log(tmp_path / "c.db") as log:
        await log.append([tick(n) for n in range(10)])
        await cancel_after(steps, log.put_snapshot("objects", 5, bytes(3_000_000)), log)
        await log.append([tick(10)])
        await log.put_snapshot("objects", 6, b"state")
        await cancel_after(steps, log.compact(), log)
        await log.append([tick(11)])

        assert [r.seq async for r in log.read()] == list(range(log.anchor.seq + 1, 13))
    async with open_log(tmp_path / "c.db") as log:
        await verify(log)


@pytest.mark.parametrize("function", ["read_anchor", "transaction"])
async def test_compaction_of_ones_own_is_not_taken_for_a_robbery_by_who_reads_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """The anchor is read before it and looked at after it; or it is read before the process itself knows of the new one."""
    done = getattr(database, function)
    reached, go_on = threading.Event(), threading.Event()

    def pausing(*args: Any) -> Any:
        found = done(*args)
        if not reached.is_set():
            reached.set()
            assert go_on.wait(PATIENCE)
        return found

    async with open_log(tmp_path / "c.db") as log:
        await log.append([tick(n) for n in range(10)])
        await log.put_snapshot("objects", 10, b"state")
        monkeypatch.setattr(database, function, pausing)
        first, second = log.store.snapshots(), log.store.compact(log.head)
        if function == "transaction":
            first, second = second, first
        begun = asyncio.create_task(first)
        assert await asyncio.to_thread(reached.wait, PATIENCE)
        await second
        go_on.set()
        await begun

        assert [info.seq for info in await log.snapshots()] == [10]


async def test_failure_behind_a_cancelled_snapshot_is_not_overlooked(tmp_path: Path) -> None:
    fault = FailAt()
    async with open_log(tmp_path / "c.db", disk=FaultyDisk(fault)) as log:
        await log.append([tick(0)])
        fault.arm(3, sqlite_error(sqlite3.SQLITE_IOERR_FSYNC))
        task = asyncio.create_task(log.put_snapshot("objects", 1, b"state"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

        with pytest.raises(LogError, match="writing failed"):
            await log.append([tick(1)])
        assert log.failure is not None


async def test_closing_waits_for_a_snapshot_under_way(tmp_path: Path) -> None:
    log = await open_log(tmp_path / "c.db")
    await log.append([tick(0)])
    snapshot = asyncio.create_task(log.put_snapshot("objects", 1, bytes(5_000_000)))
    await asyncio.sleep(0)

    await log.close()

    await snapshot
    async with open_log(tmp_path / "c.db") as log:
        assert await log.snapshot("objects") is not None


async def test_compaction_without_room_for_a_copy_still_compacts(tmp_path: Path) -> None:
    def no_room(step: str) -> None:
        if step == "before vacuum":
            raise sqlite_error(sqlite3.SQLITE_FULL)

    async with open_log(tmp_path / "c.db", disk=FaultyDisk(no_room)) as log:
        await log.append([tick(0), tick(1)])
        await log.put_snapshot("objects", 1, b"state")
        assert (await log.compact()).seq == 1
        await log.append([tick(2)])
        assert [record.seq async for record in log.read()] == [2, 3]


class SmallDisk(FaultyDisk):
    """A disk with so much room."""

    free = 10 * RESERVE_BYTES
    size = 100 * RESERVE_BYTES

    def room(self, path: str) -> tuple[int, int]:
        return self.free, self.size


async def test_full_disk_refuses_appends_until_there_is_room(tmp_path: Path) -> None:
    disk = SmallDisk(lambda step: None)
    called = []

    def decide(moment: object) -> list[Draft]:
        called.append(moment)
        return [tick(1)]

    async with open_log(tmp_path / "c.db", disk=disk) as log:
        await log.append([tick(0)])
        disk.free = RESERVE_BYTES - 1
        with pytest.raises(LogFull, match=r"31 MiB are free .* nothing was written; make room"):
            await log.append(decide)
        assert called == []
        assert log.failure is None

        disk.free = RESERVE_BYTES
        await log.append(decide)

        assert log.head.seq == 2


async def test_small_disk_keeps_a_smaller_reserve(tmp_path: Path) -> None:
    disk = SmallDisk(lambda step: None)
    disk.free = disk.size = 2**20
    async with open_log(tmp_path / "c.db", disk=disk) as log:
        await log.append([tick(0)])
        disk.free = 2**20 // 20 - 1
        with pytest.raises(LogFull, match="51 KiB are free"):
            await log.append([tick(1)])


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("before begin", sqlite_error(sqlite3.SQLITE_FULL)),
        ("before create", OSError(errno.ENOSPC, "No space left on device")),
    ],
)
async def test_log_that_cannot_be_opened_on_a_full_disk_says_what_to_do(
    tmp_path: Path, step: str, error: Exception
) -> None:
    def fail(at: str) -> None:
        if at == step:
            raise error

    if step == "before begin":
        async with open_log(tmp_path / "c.db") as log:
            await log.append([tick(0)])
    disk = SmallDisk(fail)
    disk.free = 4096

    with pytest.raises(LogFull, match="only 4 KiB are free on this disk, so nothing was written; make room"):
        await open_log(tmp_path / "c.db", disk=disk)

    async with open_log(tmp_path / "c.db") as log:
        await log.append([tick(1)])


async def test_snapshot_leaves_the_room_that_appends_keep_free(tmp_path: Path) -> None:
    disk = SmallDisk(lambda step: None)
    blob = b"x" * 2**20
    async with open_log(tmp_path / "c.db", disk=disk) as log:
        await log.append([tick(0)])
        disk.free = RESERVE_BYTES + len(blob) - 1
        with pytest.raises(LogFull):
            await log.put_snapshot("objects", 1, blob)

        disk.free = RESERVE_BYTES + len(blob)
        await log.put_snapshot("objects", 1, blob)
        assert await log.snapshot("objects") is not None


async def test_error_that_leaves_a_transaction_open_stops_the_log(tmp_path: Path) -> None:
    """SQLite takes back what it had no room for; if it has not, a second try would commit the first one's part, too."""

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        raise sqlite_error(sqlite3.SQLITE_FULL)

    store = await SqliteStore.open(tmp_path / "c.db")
    with pytest.raises(LogError):
        await store._write(fail)
    with pytest.raises(LogError, match="writing failed before"):
        await store.check()
    await store.close()

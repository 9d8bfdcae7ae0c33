"""Logs and places that cannot be opened say so in one line; what is only in the way of reading is gone around."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.api.errors import LogDamaged, LogError
from tidelog.eventlog import database, opening
from tidelog.eventlog.disk import Disk, prepare_writing
from tidelog.eventlog.head_file import HeadFile
from tidelog.eventlog.lock import WriterLock
from tidelog.eventlog.log import open_log
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import ChainBroken, Draft, Tick
from tidelog.eventlog.repair import repair
from tidelog.eventlog.sqlite import STEPS
from tidelog.eventlog.store import EMPTY, Head
from tidelog.testing.faulty_disk import FaultyDisk, sqlite_error


async def make(path: Path, count: int = 5, compact_to: int = 0) -> None:
    async with open_log(path) as log:
        await log.take_over("first")
        await log.append([Draft(body=Tick(), author="cluster", key="") for _ in range(count - 1)])
        if compact_to:
            await log.put_snapshot("objects", compact_to, b"the state")
            await log.compact()


@pytest.fixture
def empty() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    database.create(connection)
    return connection


class Refusing(Disk):
    """The first connections of these modes cannot be used: made, or first asked something."""

    def __init__(self, *modes: str, late: bool = False) -> None:
        self._modes, self._late = modes, late

    def connect(self, uri: str) -> sqlite3.Connection:
        if not any(uri.endswith(mode) for mode in self._modes):
            return super().connect(uri)
        if not self._late:
            raise sqlite_error(sqlite3.SQLITE_CANTOPEN)

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *args: object) -> sqlite3.Cursor:
                raise sqlite_error(sqlite3.SQLITE_CANTOPEN)

        return sqlite3.connect(":memory:", factory=Connection)


class Counting(Disk):
    """Knows what is open, and lets the connection of this number wait."""

    def __init__(self, waits: int) -> None:
        self._waits = waits
        self._connections: list[sqlite3.Connection] = []
        self._files: set[int] = set()
        self.reached = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.go_on = threading.Event()

    def connect(self, uri: str) -> sqlite3.Connection:
        self._connections.append(super().connect(uri))
        if len(self._connections) == self._waits:
            self._loop.call_soon_threadsafe(self.reached.set)
            self.go_on.wait()
        return self._connections[-1]

    def open(self, path: str, flags: int) -> int:
        self._files.add(fd := super().open(path, flags))
        return fd

    def close(self, fd: int) -> None:
        self._files.discard(fd)
        super().close(fd)

    def left_open(self) -> list[object]:
        return [*filter(_is_open, self._connections), *self._files]


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.total_changes  # noqa: B018
    except sqlite3.ProgrammingError:
        return False
    return True


@pytest.mark.parametrize(("open_it", "connection"), [(open_reader, 1), *((open_log, n) for n in (1, 2, 3))])
async def test_opening_that_is_cancelled_leaves_nothing_open(
    tmp_path: Path, open_it: Callable[..., Any], connection: int
) -> None:
    path = tmp_path / "c.db"
    await make(path)
    disk = Counting(connection)

    async def opened() -> None:
        await open_it(path, disk=disk)

    opening_ = asyncio.create_task(opened())
    await disk.reached.wait()
    opening_.cancel()
    disk.go_on.set()
    await asyncio.gather(opening_, return_exceptions=True)

    assert opening_.cancelled()
    assert disk.left_open() == []
    async with open_log(path) as log:  # Nor is its lock held.
        assert log.head.seq == 5


def test_place_without_a_write_ahead_log_is_refused(empty: sqlite3.Connection) -> None:
    with pytest.raises(LogError, match=r"cannot use a write-ahead log here .*use a local disk"):
        prepare_writing(empty)


def test_record_that_is_not_there_is_named(empty: sqlite3.Connection) -> None:
    with pytest.raises(ChainBroken, match="record 5 is missing"):
        database.point(empty, EMPTY, 5)
    with pytest.raises(ChainBroken, match="record 1 is missing"):
        list(database.walk(empty, EMPTY, 3))


def test_log_without_its_anchor_is_damaged(empty: sqlite3.Connection) -> None:
    empty.execute("DELETE FROM anchor")

    with pytest.raises(ChainBroken, match="its anchor is missing"):
        database.read_anchor(empty)


def test_anchor_of_an_empty_log_is_the_beginning_of_every_chain(empty: sqlite3.Connection) -> None:
    empty.execute("DELETE FROM anchor")
    empty.execute(
        "INSERT INTO anchor (seq, at, epoch, digest, checked) VALUES (?, ?, ?, ?, ?)",
        database.anchor_row(Head(digest=b"x" * 32)),
    )

    with pytest.raises(ChainBroken, match="its anchor is damaged"):
        database.read_anchor(empty)


@pytest.mark.unreplayed("the log is damaged")
async def test_head_file_that_names_another_anchor_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path, count=5, compact_to=5)
    head_file = HeadFile.open(f"{path}.head", Disk(), writable=True)
    head = head_file.read().head
    assert head is not None
    for _ in range(2):
        head_file.write(Head(head.seq, head.at, head.epoch, b"x" * 32))
    head_file.close()

    with pytest.raises(LogDamaged, match="record 5 is not the one that its head file names"):
        await open_reader(path)


async def test_epoch_of_a_log_is_never_older_than_its_anchors(tmp_path: Path) -> None:
    """A head file may be behind the anchor where two processes wrote. With its epoch, one would be given out twice."""
    path = tmp_path / "c.db"
    async with open_log(path) as log:
        before = log.head
        await log.take_over("first")
        await log.put_snapshot("objects", 1, b"the state")
        await log.compact()
    HeadFile.create(f"{path}.head", Disk(), before)

    async with open_log(path) as log:
        assert log.head.epoch == 1


@pytest.mark.unreplayed("the log is damaged")
async def test_head_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)
    os.remove(f"{path}.head")
    os.symlink("c.db.head", f"{path}.head")

    with pytest.raises(LogError, match=r"c\.db\.head: cannot be opened: Too many levels"):
        await open_reader(path)


@pytest.mark.parametrize("late", [False, True])
async def test_log_in_a_place_where_no_index_can_be_made_is_read_as_it_is(tmp_path: Path, late: bool) -> None:
    path = tmp_path / "c.db"
    await make(path)

    connection, live = opening.connect_reading(str(path), Refusing("mode=ro", late=late))

    assert (connection.execute("SELECT count(*) FROM records").fetchone(), live) == ((5,), False)
    connection.close()


async def test_so_is_one_with_a_write_ahead_log(tmp_path: Path) -> None:
    path, copy = tmp_path / "c.db", tmp_path / "copy.db"
    async with open_log(path) as log:
        await log.take_over("first")
        await log.append([Draft(body=Tick(), author="cluster", key="")])
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")

    connection, live = opening.connect_reading(str(copy), Refusing("mode=ro"))

    assert (connection.execute("SELECT count(*) FROM records").fetchone(), live) == ((2,), False)
    connection.close()


@pytest.mark.parametrize("way", ["reading", "repair"])
async def test_write_ahead_log_beside_a_database_that_was_emptied_stays(tmp_path: Path, way: str) -> None:
    """SQLite removes it. Whoever puts the database back needs it."""
    path, copy = tmp_path / "c.db", tmp_path / "copy.db"
    async with open_log(path) as log:
        await log.take_over("first")
        await log.append([Draft(body=Tick(), author="cluster", key="")])
        for suffix in ("", "-wal", ".head"):
            shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    content = copy.read_bytes()
    os.truncate(copy, 0)

    with pytest.raises(LogDamaged):
        await (open_reader(copy) if way == "reading" else repair(copy, accept_loss=False))

    copy.write_bytes(content)
    async with open_reader(copy) as reader:
        assert reader.head.seq == 2


def test_database_that_is_gone_by_the_time_it_is_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"c\.db: cannot be opened for reading"):
        opening.connect_reading(str(tmp_path / "c.db"), Disk())


async def test_log_that_cannot_be_read_in_any_way_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)

    with pytest.raises(LogError, match=r"c\.db: cannot be opened for reading: simulated error"):
        opening.connect_reading(str(path), Refusing("mode=ro", "mode=ro&immutable=1"))


async def test_log_that_can_be_read_and_not_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)

    for late in (False, True):
        with pytest.raises(LogError, match=r"c\.db: cannot be opened for writing: simulated error"):
            opening.open_writing(str(path), Refusing("mode=rw", late=late), create=False)


def test_bytes_that_were_not_all_written_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk()
    fd = disk.open(str(tmp_path / "file"), os.O_RDWR | os.O_CREAT)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: 1)

    with pytest.raises(OSError, match="only 1 of 4 bytes were written"):
        disk.write_at(fd, b"four", 0)
    disk.close(fd)


def test_lock_holds_although_its_holder_cannot_be_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, size: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "ftruncate", full)

    lock = WriterLock(str(tmp_path / "c.db"), "first")
    with pytest.raises(LogError):
        WriterLock(str(tmp_path / "c.db"), "second")
    lock.release()


def test_record_whose_place_in_the_chain_is_unreadable_is_named(empty: sqlite3.Connection) -> None:
    empty.execute("PRAGMA ignore_check_constraints = ON")
    columns = [row[1] for row in empty.execute("PRAGMA table_info(records)")]
    values = {"seq": 1, "at": 7, "digest": "no bytes"}
    row = [values.get(name, b"" if name == "body" else 0 if name == "cause" else "") for name in columns]
    empty.execute(f"INSERT INTO records VALUES ({', '.join('?' * len(row))})", row)

    with pytest.raises(ChainBroken, match="record 1 is unreadable"):
        database.point(empty, EMPTY, 1)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN])
def test_error_that_says_nothing_of_the_content_is_no_damage(code: int) -> None:
    found = database.damage("c.db", sqlite_error(code), 1, 5)

    assert not isinstance(found, LogDamaged)
    assert str(found).startswith("c.db: cannot be read: ")


@pytest.mark.parametrize(
    ("code", "refused"), [(sqlite3.SQLITE_FULL, False), (sqlite3.SQLITE_IOERR, True)], ids=["full", "broken"]
)
async def test_shrinking_may_lack_room_and_nothing_else(code: int, refused: bool, tmp_path: Path) -> None:
    """A log of an older version, which only a copy of everything makes smaller."""

    def hook(step: str) -> None:
        if step == "before vacuum":
            raise sqlite_error(code)

    path = await old_log(tmp_path)
    log = await open_log(path, disk=FaultyDisk(hook))
    if refused:
        with pytest.raises(LogError, match="start again"):
            await log.reclaim(whole=True)
    else:
        await log.reclaim(whole=True)  # Later records use the free pages.
        await log.append([Draft(body=Tick(), author="cluster")])
    await log.close()


async def test_log_of_an_older_version_is_written_anew_once_and_gives_back_page_by_page_from_then_on(
    tmp_path: Path,
) -> None:
    path = await old_log(tmp_path)
    before = path.stat().st_size

    async with await open_log(path) as log:
        await log.reclaim()
        assert path.stat().st_size == before
        await log.reclaim(whole=True)
        after = path.stat().st_size
        assert after < before // 2
        await log.put_snapshot("objects", log.head.seq, bytes(2**20))
        await log.compact()
        await log.put_snapshot("objects", log.head.seq, b"small")
        await log.reclaim()
        assert path.stat().st_size <= after + 8 * 4096


async def test_free_pages_are_given_back_many_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, steps = tmp_path / "c.db", 0
    give_back = database.give_back

    def counted(connection: sqlite3.Connection, pages: int) -> bool:
        nonlocal steps
        steps += 1
        return give_back(connection, pages)

    async with open_log(path) as log:
        await log.append([Draft(body=Tick(), author="cluster")])
        await log.put_snapshot("objects", 1, bytes(8 * 2**20))
        await log.append([Draft(body=Tick(), author="cluster")])
        await log.put_snapshot("objects", 2, b"small")
        await log.compact()
        monkeypatch.setattr(database, "give_back", counted)
        await log.reclaim()
        assert path.stat().st_size < 2**18

    assert steps <= 8 * 2**20 // 4096 // STEPS[0][1] + 3


async def test_where_the_disk_has_no_room_pages_are_given_back_a_few_at_a_time_within_the_write_ahead_log_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.db"
    give_back, checkpoint, drop = database.give_back, database.checkpoint, database.compact
    asked: list[int] = []
    calls: list[str] = []

    def full(connection: sqlite3.Connection, pages: int) -> bool:
        assert calls[-1] == "checkpoint", (
            "what was dropped is still in the write-ahead log, which would have to grow"
        )
        asked.append(pages)
        if pages > STEPS[-1][1]:
            raise sqlite_error(sqlite3.SQLITE_FULL)
        return give_back(connection, pages)

    def moved(connection: sqlite3.Connection) -> tuple[int, int]:
        calls.append("checkpoint")
        return checkpoint(connection)

    def dropped(connection: sqlite3.Connection, anchor: Head) -> None:
        calls.append("drop")
        drop(connection, anchor)

    monkeypatch.setattr(database, "checkpoint", moved)
    monkeypatch.setattr(database, "compact", dropped)

    async with open_log(path) as log:
        await log.append([Draft(body=Tick(), author="cluster", key="x" * 200)] * 2_000)
        await log.put_snapshot("objects", 2_000, b"small")
        before, _ = await log.footprint()
        monkeypatch.setattr(database, "give_back", full)
        await log.compact()
        await log.reclaim(whole=True)
        assert path.stat().st_size < before // 4
        await log.append([Draft(body=Tick(), author="cluster")])

    assert set(asked) == {pages for _, pages in STEPS}


async def old_log(folder: Path) -> Path:
    """A log as older versions made it, most of it free."""
    path = folder / "old.db"
    async with await open_log(path) as log:
        for _ in range(20):
            await log.append([Draft(body=Tick(), author="cluster", key="x" * 200)] * 200)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        connection.execute("VACUUM")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
    async with await open_log(path) as log:
        await log.put_snapshot("objects", log.head.seq - 10, b"state")
        await log.compact()
    return path


async def test_place_whose_head_file_names_nothing_has_no_log(tmp_path: Path) -> None:
    """What a crash leaves that interrupts the making of a log: nothing was acknowledged, so nothing is lost."""
    HeadFile.create(str(tmp_path / "c.db.head"), Disk())

    with pytest.raises(LogError, match="there is no such log") as error:
        await open_reader(tmp_path / "c.db")

    assert not isinstance(error.value, LogDamaged)


@pytest.mark.unreplayed("the log is damaged")
@pytest.mark.parametrize("times", [1, 1000])
async def test_damage_is_looked_at_again_while_the_head_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A writer that is quicker than the examination makes a good log look damaged, but not for ever."""
    path = tmp_path / "c.db"
    await make(path)
    looks = 0
    examine = database.examine
    writer = HeadFile.open(f"{path}.head", Disk(), writable=True)
    head = writer.read().head
    assert head is not None

    def moving(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks <= times:
            writer.write(head)
            raise ChainBroken(5, "record 5 is missing")
        return examine(*args)

    monkeypatch.setattr(database, "examine", moving)
    if times == 1:
        async with open_reader(path) as reader:
            assert (reader.head.seq, looks) == (5, 2)
    else:
        with pytest.raises(LogDamaged, match="record 5 is missing"):
            await open_reader(path)
        assert looks == opening.ATTEMPTS
    writer.close()


async def test_opening_makes_the_names_of_files_durable_that_a_killed_writer_may_have_left(
    tmp_path: Path,
) -> None:
    """Else a loss of power could take back the making of the log, and all that was acknowledged since."""
    steps: list[str] = []
    async with open_log(tmp_path / "c.db"):
        pass

    async with open_log(tmp_path / "c.db", disk=FaultyDisk(steps.append)):
        opened = list(steps)

    assert "after sync_folder" in opened

"""The product's own store on a simulated machine: `SqliteStore`, aiosqlite and the very libsqlite3 that runs, on files in a scratch folder.

    SqliteStore ──► aiosqlite: its worker, a job a time, on the simulated loop ──► libsqlite3 ──► its VFS ──► files in memory (tmpfs)
         └──► Disk: head file, names of files                                          └───┐ each write, sync, cut, removal
                                        kills, crash points, errors ◄── RealDisk ◄─────────┴──► power_loss.Machine: what loss of power leaves

- Faults are below SQLite (`tests.eventlog.sqlite_watch`): a write, a sync or a removal fails, or power is lost between any two of them.
- aiosqlite's code runs as it is, but for the thread: what is put into its queue is worked off a moment later, by its own worker, in the process
  that has put it there. So a job happens at one instant for the others; within it a process may be killed at every step.
- A killed process can do nothing any more: what SQLite still wants to write while its connections are closed is refused.
- Times of files are counted, and SQLite's random numbers follow from the seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
import random
import shutil
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import aiosqlite.core
import msgspec

from tests.eventlog import power_loss, sqlite_watch
from tests.eventlog.power_loss import Step
from tests.simulation.disk import SIZE, Faults
from tests.simulation.loop import CURRENT, Killed, Process
from tests.simulation.steps import Tamper
from tidelog.eventlog import database, repair, sqlite, transfer
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.lock import WriterLock
from tidelog.eventlog.records import Record, Row
from tidelog.eventlog.sqlite import SqliteReader, SqliteStore
from tidelog.eventlog.store import Head

IOERR = 10
IOERR_WRITE = 778
IOERR_FSYNC = 1034
FULL = 13

OnDurable = Callable[[Sequence[Row]], None]
OnOpened = Callable[[Head], None]


class _Open(NamedTuple):
    fd: int
    path: str
    process: Process | None


class RealDisk(Faults, Disk, sqlite_watch.Watcher):
    """A folder that fails as it is asked to. Its file descriptors are its own numbers: those of a dead process mean nothing any more."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        super().__init__(rng)
        self.folder = str(folder)
        self._machine = power_loss.Machine()
        self._open: dict[int, _Open] = {}
        self._numbers = itertools.count(1_000_000)
        self._connections: list[tuple[Process | None, sqlite3.Connection]] = []
        self._moments = itertools.count(1)
        self._changed: dict[int, int] = {}
        """When each inode was changed last: the number of the change."""
        self._beyond: set[str] = set()
        """Files of which more is seen than is on the disk or will be: a sync has failed."""
        self._is_closing_for_the_dead = False
        self.is_tampered = False
        """The files are not all where they should be: the model does not know them."""
        sqlite_watch.watch(self.folder, self)

    # --- SQLite ---------------------------------------------------------------------------------------------------------

    def connect(self, uri: str) -> sqlite3.Connection:
        self._alive()
        self._evict()
        if "vfs=" not in uri:
            uri += f"&vfs={sqlite_watch.NAME}"
        # Nobody whom it could wait for does anything meanwhile.
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0.0, cached_statements=64)
        if len(self._connections) > 50:
            self._prune()
        self._connections.append((CURRENT.get(), connection))
        return connection

    def before(self, what: str, path: str, end: int) -> int:
        if self._is_closing_for_the_dead:
            return IOERR
        try:
            self._step(what, before=True)
            if what == "write":
                self.refuse_write(end, lambda: os.path.getsize(path))
            elif what == "sync":
                self._sync_may_fail(path)
        except Killed:
            return IOERR
        except OSError as error:
            return FULL if self.full else IOERR_FSYNC if what == "sync" else IOERR_WRITE if error else IOERR
        return 0

    def created(self, path: str) -> None:
        self._note("create", path)

    def written(self, path: str, offset: int, data: bytes) -> int:
        self._note("write", path, offset, data)
        return self._after("write")

    def truncated(self, path: str, size: int) -> int:
        self._note("truncate", path, size)
        return self._after("truncate")

    def synced(self, path: str) -> int:
        self._note("sync", path)
        return self._after("sync")

    def removed(self, path: str, durably: bool) -> int:
        self._note("remove", path)
        if durably:
            self._note("sync_folder", path)
        return self._after("remove")

    def _after(self, what: str) -> int:
        try:
            self._step(what, before=False)
        except Killed:
            return IOERR
        return 0

    def _note(self, what: str, path: str, number: int = 0, data: bytes = b"", new_path: str = "") -> None:
        name, new_name = path.rpartition("/")[2], new_path.rpartition("/")[2]
        self._machine.run([Step(what, name, number, data, new_name)])
        if what in ("write", "truncate", "create"):
            with contextlib.suppress(FileNotFoundError):
                self._changed[os.stat(path).st_ino] = next(self._moments)

    # --- ours -----------------------------------------------------------------------------------------------------------

    def open(self, path: str, flags: int) -> int:
        self._alive()
        self._evict()
        is_new = flags & os.O_CREAT and not os.path.exists(path)
        if is_new:
            self._step("create", before=True)
        fd = super().open(path, flags)
        number = next(self._numbers)
        self._open[number] = _Open(fd, path, CURRENT.get())
        if is_new:
            self._note("create", path)
            self._step("create", before=False)
        if flags & os.O_TRUNC:
            self._note("truncate", path)
        return number

    def close(self, fd: int) -> None:
        opened = self._open.pop(fd, None)
        if opened is not None:
            super().close(opened.fd)

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        self._alive()
        return super().read_at(self._open[fd].fd, size, offset)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        self._step("write", before=True)
        opened = self._open[fd]
        self.refuse_write(offset + len(data), lambda: os.fstat(opened.fd).st_size)
        super().write_at(opened.fd, data, offset)
        self._note("write", opened.path, offset, bytes(data))
        self._step("write", before=False)

    def sync(self, fd: int) -> None:
        self._step("sync", before=True)
        path = self._open[fd].path
        self._sync_may_fail(path)
        self._note("sync", path)
        self._step("sync", before=False)

    def sync_folder(self, path: str) -> None:
        self._step("sync_folder", before=True)
        self._note("sync_folder", path)
        self._step("sync_folder", before=False)

    def rename(self, old: str, new: str) -> None:
        self._step("rename", before=True)
        super().rename(old, new)
        self._open = {
            number: each._replace(path=new) if each.path == old else each
            for number, each in self._open.items()
        }
        self._note("rename", old, new_path=new)
        self._step("rename", before=False)

    def remove(self, path: str) -> None:
        self._step("remove", before=True)
        if os.path.exists(path):
            super().remove(path)
            if not path.endswith("-shm"):  # It is in memory only.
                self._note("remove", path)
        self._step("remove", before=False)

    def hold(self, path: str, size: int) -> None:
        self._alive()
        if self.full:
            raise OSError(28, os.strerror(28))
        super().close(super().open(path, os.O_CREAT | os.O_RDWR))

    def stat(self, path: str) -> Any:
        self._alive()
        return self._seen(os.stat(path))

    def stat_open(self, fd: int) -> Any:
        self._alive()
        return self._seen(os.fstat(self._open[fd].fd))

    def _seen(self, found: os.stat_result) -> SimpleNamespace:
        return SimpleNamespace(
            st_dev=found.st_dev,
            st_ino=found.st_ino,
            st_size=found.st_size,
            st_nlink=found.st_nlink,
            st_mtime_ns=self._changed.get(found.st_ino, 0),
        )

    def room(self, path: str) -> tuple[int, int]:
        self._alive()
        return (0 if self.full else SIZE), SIZE

    # --- faults ---------------------------------------------------------------------------------------------------------

    def _sync_may_fail(self, path: str) -> None:
        """As Linux does after a failed fsync: what was not written is forgotten, and may be seen for a while all the same."""
        try:
            self.refuse_sync()
        except OSError:
            name = os.path.basename(path)
            self._machine.forget(name)
            self._beyond.add(name)
            raise

    def _evict(self) -> None:
        """Nobody has anything open: the system may have dropped what it had of a file in memory."""
        if self._beyond:
            self._prune()
        if self._beyond and not self._connections and not self._open and not self.is_tampered:
            content = self._machine.files()
            for name in sorted(self._beyond):
                if name in content and self._rng.random() < 0.5:
                    Path(self.folder, name).write_bytes(content[name])
            self._beyond.clear()

    def close_all_of(self, process: Process) -> None:
        """The process is gone. Not within one of its jobs: SQLite is at work then."""
        self._is_closing_for_the_dead = True
        try:
            for owner, connection in self._connections:
                if owner is process:
                    with contextlib.suppress(sqlite3.Error):
                        connection.close()
        finally:
            self._is_closing_for_the_dead = False
        self._connections = [each for each in self._connections if each[0] is not process]
        for number in [number for number, each in self._open.items() if each.process is process]:
            self.close(number)

    def damage(self, name: str, offset: int, data: bytes) -> None:
        """The disk says something else there from now on."""
        path = os.path.join(self.folder, name)
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(data)
        self._note("write", path, offset, data)
        self._note("sync", path)

    def image(self) -> dict[str, bytes]:
        """What would be left if power were lost now."""
        return self._machine.image(self._rng)

    def put_back(self, image: dict[str, bytes]) -> None:
        """Power is back: this is what is left. Nobody has anything open."""
        for name in {*self._machine.files(), *image}:
            path = Path(self.folder, name)
            path.unlink(missing_ok=True)
            if name in image:
                path.write_bytes(image[name])
        for path in Path(self.folder).glob("*-shm"):
            path.unlink()
        self._machine = power_loss.Machine(image)
        self._beyond.clear()

    def touch(self, path: Path) -> None:
        """Somebody else has changed it."""
        self._changed[os.stat(path).st_ino] = next(self._moments)

    def begin_anew(self) -> None:
        """Whatever stands there now is on the disk."""
        names = {*self._machine.files(), *(path.name for path in Path(self.folder).glob("cluster.db*"))}
        paths = [Path(self.folder, name) for name in sorted(names) if not name.endswith(("-shm", ".lock"))]
        self._machine = power_loss.Machine({p.name: p.read_bytes() for p in paths if p.is_file()})
        self._beyond.clear()

    def _prune(self) -> None:
        """Forget connections that were closed."""
        self._connections = [each for each in self._connections if _is_open(each[1])]

    def end(self) -> None:
        """Watch no more."""
        sqlite_watch.unwatch(self.folder)


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.total_changes  # noqa: B018
    except sqlite3.ProgrammingError:
        return False
    return True


class RealFiles:
    """The log of one machine, its connections and its lock."""

    def __init__(self, disk: RealDisk, delay: Callable[[], float]) -> None:
        """`delay`: how long the next trip to SQLite takes, in seconds."""
        self.disk = disk
        self.delay = delay
        self.path = os.path.join(disk.folder, "cluster.db")
        self.on_durable: OnDurable = lambda _: None
        """Told of all records from the first new one on, when they are committed or found by who opens the log to write."""
        self.on_opened: OnOpened = lambda _: None
        """Told where the log begins, by who opens it to write."""
        self.on_locked: Callable[[_Lock], None] = lambda _: None
        self.on_unlocked: Callable[[_Lock], None] = lambda _: None
        self._locks: list[_Lock] = []
        self.names = itertools.count(1)
        self._wrappers: list[tuple[Process | None, Any]] = []
        self._at_work = False
        self._dead: list[Process] = []
        self._image: dict[str, bytes] | None = None
        self._backup: dict[str, bytes] = {}
        self._aside: dict[str, Path] = {}
        """What was taken away: where it stood → where it is."""
        self._takes_away = False
        self._is_led_since = False
        self._tears = False
        self.is_torn = False
        """Somebody leads a database of which something was taken away: he has found every record, but other pages may be missing."""

    def exists(self) -> bool:
        """Whether there is a log."""
        return os.path.exists(self.path)

    async def open_store(self, what: str) -> RealStore:
        """For writing."""
        store = await RealStore.open(self.path, what=what, disk=self.disk)
        assert isinstance(store, RealStore)
        store.found(self)
        return store

    async def open_reader(self) -> SqliteReader:
        """To read from."""
        return await SqliteReader.open(self.path, disk=self.disk)

    # --- jobs -----------------------------------------------------------------------------------------------------------

    def work(self, function: Callable[[], None]) -> None:
        """One of the jobs of aiosqlite's threads."""
        self._at_work = True
        try:
            function()
        finally:
            self._at_work = False
            self._settle()

    def close_all_of(self, process: Process) -> None:
        """The process is gone: the system closes its files, once what it is doing is at its end."""
        self._dead.append(process)
        if not self._at_work:
            self._settle()

    def lose_power(self) -> None:
        """Nobody is alive any more."""
        self.put_back()
        self._image = self.disk.image()
        if not self._at_work:
            self._settle()

    def _settle(self) -> None:
        dead, self._dead = self._dead, []
        for process in dead:
            for owner, wrapper in self._wrappers:
                if owner is process:
                    wrapper._connection = None  # It has nothing to close, and nothing to say of it.
            self._wrappers = [each for each in self._wrappers if each[0] is not process]
            self.disk.close_all_of(process)
            for lock in self._locks:
                if lock.process is process:
                    lock.fall_free()
            self._locks = [lock for lock in self._locks if lock.process is not process]
        image, self._image = self._image, None
        if image is not None:
            self.disk.put_back(image)

    # --- tampering ------------------------------------------------------------------------------------------------------

    @property
    def is_tampered(self) -> bool:
        """Nobody has put back yet what was taken away."""
        return self.disk.is_tampered

    @property
    def is_gone(self) -> bool:
        """Something was taken away, and nobody leads what stands there instead. A head file whose content is another is written again with the next commit."""
        return self.is_tampered and self._takes_away and not self._is_led_since

    def tamper(self, step: Tamper) -> None:
        """Do it, while somebody leads."""
        paths = {name: Path(self.path + name) for name in step.files if os.path.exists(self.path + name)}
        if step.way == "copied":
            self._backup = {name: path.read_bytes() for name, path in paths.items()}
            return
        aside = Path(self.disk.folder, "aside")
        aside.mkdir(exist_ok=True)
        self.disk.is_tampered, self._is_led_since, self._aside = True, False, {}
        in_place = step.way in ("overwritten", "cut")
        self._takes_away = step.way not in ("linked", "replaced") and not (
            in_place and step.files == (".head",)
        )
        self._tears = self._takes_away and "" in step.files
        for name, path in paths.items():
            content = path.read_bytes()
            kept = aside / path.name
            kept.unlink(missing_ok=True)
            if step.way == "linked":
                os.link(path, kept)
                continue
            if in_place:
                kept.write_bytes(content)
                with path.open("r+b") as file:
                    file.truncate(int(step.place * len(content)) if step.way == "cut" else 0)
                    file.write(b"" if step.way == "cut" else self._backup.get(name, b""))
                self.disk.touch(path)
            else:
                path.rename(kept)
            if step.way == "replaced":
                path.write_bytes(content)
            if step.way == "restored" and name in self._backup:
                path.write_bytes(self._backup[name])
            if step.way != "replaced":  # Of which nothing is missing.
                self._aside[str(path)] = kept

    def put_back(self) -> None:
        """The operator puts back what was there, unless somebody leads what is there now."""
        if not self.is_tampered:
            return
        for path, kept in () if self._is_led_since else self._aside.items():
            os.replace(kept, path)
        self.is_torn = self._is_led_since and self._tears
        shutil.rmtree(Path(self.disk.folder, "aside"))
        self.disk.is_tampered = False
        self.disk.begin_anew()

    # --- the lock -------------------------------------------------------------------------------------------------------

    def take_lock_away(self, rng: random.Random) -> None:
        """Whoever holds it does not hold it any more: the file is another one, or the system has forgotten that it was locked."""
        for lock in self._locks:
            lock.get_lost(rng)

    @contextlib.contextmanager
    def installed(self, seed: int) -> Iterator[None]:
        """While the block runs, the product uses them."""
        sqlite_watch.seed(seed + 1)
        try:
            with (
                patch.object(aiosqlite.core, "Thread", _Thread),
                patch.object(aiosqlite.core, "SimpleQueue", partial(_Queue, self)),
                patch.object(sqlite, "WriterLock", partial(_Lock, self)),
                patch.object(repair, "WriterLock", partial(_Lock, self)),
                patch.object(transfer, "WriterLock", partial(_Lock, self)),
                patch.object(asyncio, "to_thread", partial(_in_turn, self)),
                patch.object(sqlite, "_Connection", partial(_connection, self, sqlite._Connection)),
            ):
                yield
        finally:
            for process in {owner for owner, _ in self.disk._connections}:
                self.disk.close_all_of(process)  # type: ignore[arg-type]
            for lock in self._locks:
                lock.fall_free()
            self.disk.end()
            sqlite_watch.seed(0)


class RealStore(SqliteStore):
    """Tells what has become durable."""

    _files: RealFiles | None = None

    def found(self, files: RealFiles) -> None:
        """It was opened."""
        self._files = files
        assert self._writer is not None
        connection = self._writer._conn
        first = self.anchor.seq + 1
        while rows := database.select(connection, first, self.head.seq):
            files.on_durable(rows)
            first = rows[-1][0] + 1
        files.on_opened(self.anchor)
        files._is_led_since = True

    def _commit(self, connection: sqlite3.Connection, records: Sequence[Record], head: Head) -> None:
        super()._commit(connection, records, head)
        assert self._files is not None
        self._files.on_durable([msgspec.structs.astuple(record) for record in records])


class _Lock(WriterLock):
    """The real lock; falls free when its process dies, and can be lost."""

    def __init__(self, files: RealFiles, path: str, what: str) -> None:
        self.process = CURRENT.get()
        self._files = files
        # All are of one process here: by its number nobody could tell his own name in the file from another's.
        super().__init__(path, f"{what} {next(files.names)}")
        files._locks.append(self)
        files.on_locked(self)

    def _let_go(self, text: bytes) -> None:
        if self.process is None or self.process.alive:
            super()._let_go(text)
            self._files.on_unlocked(self)

    def fall_free(self) -> None:
        """Its process is gone."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def get_lost(self, rng: random.Random) -> None:
        """Its holder has not noticed."""
        if self._fd >= 0:
            if rng.random() < 0.5:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            else:
                Path(self.path).unlink(missing_ok=True)


# --- aiosqlite without a thread -------------------------------------------------------------------------------------------


class _Thread:
    """In the place of the thread of a connection: its queue has its work done."""

    def __init__(self, target: Callable[[Any], None], args: tuple[_Queue]) -> None:
        args[0].worker = target

    def start(self) -> None:
        """It works when there is work."""

    def join(self) -> None:
        """What is still to be done is to end."""


class _Done(BaseException):
    """Ends the worker's loop after one job."""


class _Queue:
    """In the place of the queue of a connection's thread: a job is done a moment after it was put here, in the order of jobs."""

    worker: Callable[[Any], None]

    def __init__(self, files: RealFiles) -> None:
        self._files = files
        self._jobs: deque[Any] = deque()

    def put_nowait(self, job: Any) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # Somebody was given up.
        self._jobs.append(job)
        loop.call_later(self._files.delay(), self._work)

    def _work(self) -> None:
        self._taken = False
        with contextlib.suppress(_Done):
            self._files.work(lambda: self.worker(self))

    def get(self) -> Any:
        """For the worker: the next job, then its end."""
        if self._taken:
            raise _Done
        self._taken = True
        return self._jobs.popleft()

    _taken = False


async def _in_turn(files: RealFiles, function: Callable[..., Any], *args: Any) -> Any:
    """In the place of a thread for one function: it runs a moment later, in the process that asks for it."""
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def run() -> None:
        try:
            done.set_result(function(*args))
        except Exception as error:
            done.set_exception(error)
        except Killed:
            pass

    asyncio.get_running_loop().call_later(files.delay(), files.work, run)
    return await done


def _connection(files: RealFiles, kind: type[Any], *args: Any, **named: Any) -> Any:
    made = kind(*args, **named)
    files._wrappers.append((CURRENT.get(), made))
    return made

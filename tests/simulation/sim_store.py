"""A store on the simulated disk, behind the port of the real ones, with the guarantees and the habits of SQLite's write-ahead log.

    cluster.db     frames, one a transaction: length, digest (chained over the frame before), msgpack of what it holds
    cluster.db.head    the real head file (`tidelog.eventlog.head_file`)

- A transaction is written, synced, and then published: other connections see it from then on. What is published is in the memory of the
  machine (SQLite's `-shm`); when nobody has the file open, the next who opens it reads what is in the file, up to the first frame that is torn.
- One connection writes at a time. Whoever would write a record or an anchor that does not follow what he knows is refused: what is left between
  two writers when a lock was lost.
- Who opens it to write makes durable what was not, cuts off what is torn, and has the head written before anything else. What is wrong is
  found by the very code that examines a real log, on a database in memory.
- Every trip to the disk takes a moment, during which other tasks run, and which processes may not survive. A job goes on when the task that
  waits for it is cancelled, as one in SQLite's thread does; after an error nothing is written any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import msgspec

from tests.simulation.disk import SimDisk
from tests.simulation.loop import CURRENT, Process
from tidelog.api.errors import LogDamaged, LogError, LogFull
from tidelog.eventlog import database
from tidelog.eventlog.head_file import NO_FILE, HeadFile, HeadReading
from tidelog.eventlog.opening import EXAMINED_FOR_WRITING
from tidelog.eventlog.records import GENESIS, ChainBroken, Record, Row
from tidelog.eventlog.room import RESERVE_BYTES
from tidelog.eventlog.store import BETWEEN, EMPTY, ROWS_PER_READ, Head, Snapshot, SnapshotInfo, superfluous

BUSY_SECONDS = 5.0
"""So long a writer waits for another one, as the real one does."""
BUSY_POLL_SECONDS = 0.01
_LENGTH = 4
_DIGEST = 32

T = TypeVar("T")
OnDurable = Callable[[Sequence[Row]], None]
OnOpened = Callable[[Head], None]


class Frame(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One transaction."""

    rows: list[Row] = []
    snapshot: tuple[str, int, bytes, bytes, bytes] | None = None
    anchor: tuple[int, int, int, bytes] | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


class Place(NamedTuple):
    """Where a frame ends, and what the next one is chained to."""

    end: int = 0
    digest: bytes = GENESIS


class Shared:
    """What all who have the file open share in the machine's memory."""

    def __init__(self, published: Place) -> None:
        self.published = published
        self.writer: Process | None = None
        """Who is in a transaction."""
        self.open: list[Process | None] = []
        """A process is in it once for each of its connections."""


class SimFiles:
    """The logs of one machine: what outlives a process, and with the disk, the machine."""

    def __init__(self, disk: SimDisk, delay: Callable[[], float]) -> None:
        """`delay`: how long the next trip to the disk takes, in seconds."""
        self.disk = disk
        self.delay = delay
        self.on_durable: OnDurable = lambda _: None
        """Told of all records from the first new one on, when they are published or found by who opens the log to write."""
        self.on_opened: OnOpened = lambda _: None
        """Told where the log begins, by who opens it to write."""
        self._shared: dict[str, Shared] = {}

    path = "/simulated/cluster.db"

    def exists(self) -> bool:
        """Whether there is a log."""
        return self.disk.exists(self.path)

    async def open_reader(self) -> SimReader:
        """To read from."""
        return await SimReader.open(self, self.path)

    def take_lock_away(self, rng: random.Random) -> None:
        """Nothing to do: the lock is the machine's."""

    def installed(self, seed: int) -> contextlib.AbstractContextManager[None]:
        """Nothing to do."""
        return contextlib.nullcontext()

    async def pause(self) -> None:
        """A trip to the disk."""
        await asyncio.sleep(self.delay())

    def attach(self, path: str, file: _File) -> Shared:
        """Join those who have the file open; the first one looks what is in it."""
        shared = self._shared.get(path)
        if shared is None:
            shared = self._shared[path] = Shared(file.scan())
        shared.open.append(CURRENT.get())
        return shared

    def detach(self, path: str, process: Process | None) -> None:
        """A connection is closed."""
        shared = self._shared.get(path)
        if shared is not None and process in shared.open:
            shared.open.remove(process)
            if not shared.open:
                del self._shared[path]

    def close_all_of(self, process: Process) -> None:
        """The process is gone: the system closes its files."""
        for path, shared in list(self._shared.items()):
            while process in shared.open:
                self.detach(path, process)
            if shared.writer is process:
                shared.writer = None
        self.disk.close_all_of(process)

    def lose_power(self) -> None:
        """Nothing is in memory any more."""
        self._shared.clear()
        self.disk.lose_power()


class _File:
    """An open log file and what was read of it."""

    def __init__(self, files: SimFiles, path: str, flags: int) -> None:
        self.path = path
        self.files = files
        self.disk = files.disk
        self.fd = self.disk.open(path, flags)
        self.process = CURRENT.get()
        self.place = Place()
        """How far it was read."""
        self.rows: list[Row] = []
        self.ends: list[tuple[int, Place]] = []
        """The newest record of each frame with records, and where the frame ends."""
        self.anchor = EMPTY
        self.snapshots: dict[tuple[str, int], Snapshot] = {}
        try:
            self.shared = files.attach(path, self)
        except BaseException:
            self.disk.close(self.fd)
            raise

    def scan(self) -> Place:
        """Where the last whole frame ends."""
        place = Place()
        while (found := self._next(place, self.disk.size(self.fd))) is not None:
            place = found[0]
        return place

    def _next(self, place: Place, end: int) -> tuple[Place, bytes] | None:
        start = place.end
        if start + _LENGTH + _DIGEST > end:
            return None
        head = self.disk.read_at(self.fd, _LENGTH + _DIGEST, start)
        size = int.from_bytes(head[:_LENGTH], "big")
        start += _LENGTH + _DIGEST
        if not size or start + size > end:
            return None
        data = self.disk.read_at(self.fd, size, start)
        digest = sha256(place.digest + data).digest()
        return (Place(start + size, digest), data) if digest == head[_LENGTH:] else None

    def read(self) -> None:
        """Read what was published since."""
        published = self.shared.published
        while self.place.end < published.end:
            found = self._next(self.place, published.end)
            if found is None:
                # Somebody has read what was never synced and is gone now; SQLite starts a new log, too.
                raise LogDamaged(self.path, self.last + 1, None, "a published transaction is not in the file")
            self.take(_decode(found[1]), found[0])

    def take(self, frame: Frame, place: Place) -> None:
        """The transaction is part of what this connection sees."""
        self.place = place
        if frame.rows:
            self.rows += frame.rows
            self.ends.append((frame.rows[-1][0], place))
        if frame.snapshot is not None:
            name, seq, chain, blob, digest = frame.snapshot
            self.snapshots[name, seq] = Snapshot(
                name=name, seq=seq, chain=chain, pieces=(blob,), digest=digest
            )
            mine = sorted(seq for kind, seq in self.snapshots if kind == name)
            whole = sorted(seq for kind, seq in self.snapshots if kind == name.removesuffix(BETWEEN))
            for seq in superfluous(name, mine, whole):
                del self.snapshots[name, seq]
        if frame.anchor is not None:
            anchor = Head(*frame.anchor)
            self.rows = self.rows[anchor.seq - self.anchor.seq :]
            self.snapshots = {key: kept for key, kept in self.snapshots.items() if kept.seq >= anchor.seq}
            self.anchor = anchor

    @property
    def last(self) -> int:
        """The newest record's number."""
        return self.rows[-1][0] if self.rows else self.anchor.seq

    def since(self, seq: int) -> list[Row]:
        """The records after this one."""
        return self.rows[max(seq - self.anchor.seq, 0) :]

    def make_durable(self, known: Head) -> None:
        """Write again and sync what the head file does not name, and cut off what comes behind: it is torn, or nobody's.

        Writing again because a sync that failed may have left in memory what is not on the disk.
        """
        start = next((place.end for seq, place in self.ends if seq >= known.seq), 0)
        end = self.shared.published.end
        if end > start:
            self.disk.write_at(self.fd, self.disk.read_at(self.fd, end - start, start), start)
        if self.disk.size(self.fd) > end and self.shared.writer is None:
            self.disk.truncate(self.fd, end)
        self.disk.sync(self.fd)

    def close(self) -> None:
        """Closing twice is allowed."""
        if self.fd >= 0:
            self.disk.close(self.fd)
            self.files.detach(self.path, self.process)
            self.fd = -1


def _frame(frame: Frame, place: Place) -> tuple[bytes, Place]:
    data = _encode(frame)
    digest = sha256(place.digest + data).digest()
    whole = len(data).to_bytes(_LENGTH, "big") + digest + data
    return whole, Place(place.end + len(whole), digest)


def _examined(file: _File, reading: HeadReading, depth: int) -> tuple[Head, Head]:
    """What the examination of a real log says of these records. Costs about a millisecond, and 5 microseconds a record."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        database.create(connection, file.anchor)
        # Only what will be looked at: of a long log the end.
        known = file.anchor.seq if reading.head is None else reading.head.seq
        first = min(known, file.last - depth) - 1
        connection.execute("BEGIN")
        database.insert(connection, [Record(*row) for row in file.since(first - 1)])
        connection.execute("COMMIT")
        return database.examine(connection, reading, depth)
    except ChainBroken as error:
        last = None if reading.head is None or reading.doubtful else reading.head.seq
        raise database.damage(file.path, error, 1, last) from error
    finally:
        connection.close()


class _Reading:
    """What reader and writer have in common."""

    def __init__(self, files: SimFiles, file: _File, head_file: HeadFile, anchor: Head, head: Head) -> None:
        self.name = file.path
        self.anchor = anchor
        self.head = head
        self._files = files
        self._file = file
        self._head_file = head_file
        self._closed = False

    async def read(self, first: int, last: int) -> list[Row]:
        """As in `ReadStore`."""
        if self._closed:
            raise LogError(f"{self.name}: the log is closed")
        await self._files.pause()
        self._file.read()
        start = max(first - self._file.anchor.seq - 1, 0)
        stop = min(last - self._file.anchor.seq, start + ROWS_PER_READ)
        return self._file.rows[start : max(stop, start)]

    async def span(self, key: str, last: int) -> tuple[int, int] | None:
        """As in `ReadStore`."""
        await self._files.pause()
        self._file.read()
        found = [row[0] for row in self._file.rows if row[4] == key and row[0] <= last]
        return (found[0], found[-1]) if found else None

    async def get_snapshot(self, name: str, seq: int) -> Snapshot | None:
        """As in `ReadStore`."""
        await self._files.pause()
        self._file.read()
        return self._file.snapshots.get((name, seq))

    async def snapshots(self) -> list[SnapshotInfo]:
        """As in `ReadStore`."""
        self._file.read()
        return [
            SnapshotInfo(name=name, seq=seq, size=self._file.snapshots[name, seq].size)
            for name, seq in sorted(self._file.snapshots)
        ]

    async def footprint(self) -> tuple[int, int]:
        """As in `ReadStore`."""
        return self._files.disk.size(self._file.fd), 0

    async def check_storage(self) -> list[str]:
        """As in `ReadStore`."""
        return []

    def _let_go(self) -> None:
        self._closed = True
        self._file.close()
        self._head_file.close()


class SimReader(_Reading):
    """A log opened read-only, as `SqliteReader`."""

    @classmethod
    async def open(cls, files: SimFiles, path: str) -> SimReader:
        """Open an existing log. Raises `LogDamaged`, or `LogError` where there is none."""
        await files.pause()
        file, head_file = _open(files, path, os.O_RDONLY)
        try:
            file.read()
            anchor, head = _examined(file, head_file.read(), 0)
            return cls(files, file, head_file, anchor, head)
        except BaseException:
            head_file.close()
            file.close()
            raise

    def refresh(self) -> Head:
        """As in `ReadStore`."""
        found = self._head_file.read().head
        if found is not None and found.seq > self.head.seq:
            self.head = found
        return self.head

    async def reload(self) -> None:
        """As in `ReadStore`."""
        self.refresh()
        self._file.read()
        self.anchor = self._file.anchor

    async def close(self) -> None:
        """As in `ReadStore`."""
        self._let_go()


def _open(files: SimFiles, path: str, flags: int) -> tuple[_File, HeadFile]:
    if not files.disk.exists(path):
        raise LogError(f"{path}: there is no such log")
    writable = flags != os.O_RDONLY
    try:
        head_file = HeadFile.open(path + ".head", files.disk, writable=writable)
    except FileNotFoundError:
        raise LogDamaged(path, 1, None, NO_FILE.problem) from None
    try:
        return _File(files, path, flags), head_file
    except BaseException:
        head_file.close()
        raise


class SimStore(_Reading):
    """A log opened for writing, as `SqliteStore`; the lock is its caller's affair."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._writer = asyncio.Lock()
        """The writer's thread does one job at a time."""
        self._failed = False

    @classmethod
    async def open(cls, files: SimFiles, path: str) -> SimStore:
        """Open a log for writing, or make a new one. Raises `LogDamaged`, `LogFull`, `LogError`."""
        await files.pause()
        try:
            if not files.disk.exists(path):
                _create(files, path)
            file, head_file = _open(files, path, os.O_RDWR)
        except OSError as error:
            raise _cannot_open(files, path, error) from error
        try:
            file.read()
            reading = head_file.read()
            anchor, head = _examined(file, reading, EXAMINED_FOR_WRITING)
            await files.pause()
            files.disk.sync_folder(path)
            file.make_durable(reading.head or EMPTY)
            files.on_durable(file.rows)
            await _begin(file)
            try:
                # As `opening` does: the head file must name what is now known to be there.
                file.read()
                if file.anchor != anchor or file.last != head.seq:
                    raise LogError(f"{path}: another process has written to it while it was opened")
                files.on_opened(anchor)
                reading = head_file.read()
                if reading.head != head or reading.doubtful:
                    head_file.write(head)
            finally:
                _end(file)
            return cls(files, file, head_file, anchor, head)
        except BaseException as error:
            head_file.close()
            file.close()
            if isinstance(error, OSError):
                raise _cannot_open(files, path, error) from error
            raise

    def check_room(self) -> None:
        """As in `Store`."""
        free, _ = self._files.disk.room(self.name)
        if free < RESERVE_BYTES:
            raise LogFull(self.name, free)

    async def read(self, first: int, last: int) -> list[Row]:
        """As in `Store`."""
        rows = await super().read(first, last)
        if first <= last and (not rows or rows[0][0] != first):
            self._check_anchor()
        return rows

    async def snapshots(self) -> list[SnapshotInfo]:
        """As in `Store`."""
        found = await super().snapshots()
        self._check_anchor()
        return found

    async def get_snapshot(self, name: str, seq: int) -> Snapshot | None:
        """As in `Store`."""
        found = await super().get_snapshot(name, seq)
        if found is None:
            self._check_anchor()
        return found

    def refresh(self) -> Head:
        """As in `Store`."""
        return self.head

    async def reload(self) -> None:
        """As in `Store`."""

    async def reclaim(self, *, whole: bool = False) -> bool:
        """As in `Store`: nothing is freed here."""
        return False

    async def check(self) -> None:
        """As in `Store`: nobody takes these files away."""

    async def append(self, records: Sequence[Record], head: Head) -> None:
        """As in `Store`."""
        rows = [msgspec.structs.astuple(record) for record in records]
        await self._write(lambda: self._commit(Frame(rows=rows), head))
        self.head = head

    async def tidy(self) -> None:
        """As in `Store`: nothing to do."""

    async def put_snapshot(self, snapshot: Snapshot, *, urgent: bool = False) -> None:
        """As in `Store`."""
        kept = (snapshot.name, snapshot.seq, snapshot.chain, snapshot.blob, snapshot.digest)
        await self._write(lambda: self._commit(Frame(snapshot=kept), None))

    async def compact(self, anchor: Head) -> None:
        """As in `Store`. The file does not shrink."""
        fields = (anchor.seq, anchor.at, anchor.epoch, anchor.digest)
        await self._write(lambda: self._commit(Frame(anchor=fields), None))
        self.anchor = anchor

    async def close(self) -> None:
        """As in `Store`."""
        async with self._writer:
            self._let_go()

    # --- the job of the writer's thread -----------------------------------------------------------------------------------

    async def _write(self, job: Callable[[], Awaitable[None]]) -> None:
        work = asyncio.create_task(self._guarded(job))
        # Nobody may be left to look at its error.
        work.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await asyncio.shield(work)
        except OSError as error:
            raise LogError(
                f"{self.name}: writing failed ({error}): nothing more is written or acknowledged; "
                "make sure that the disk is well and has room, then start again"
            ) from error

    async def _guarded(self, job: Callable[[], Awaitable[None]]) -> None:
        async with self._writer:
            if self._closed:
                raise LogError(f"{self.name}: the log is closed")
            if self._failed:
                raise LogError(f"{self.name}: writing failed before; start again")
            try:
                await job()
            except BaseException:
                self._failed = True
                raise

    async def _commit(self, frame: Frame, head: Head | None) -> None:
        """One transaction, and the head if it is one of records."""
        file, shared = self._file, self._file.shared
        await _begin(file)
        try:
            file.read()
            self._check_alone(frame)
            data, place = _frame(frame, file.place)
            file.disk.write_at(file.fd, data, file.place.end)
            await self._files.pause()
            file.disk.sync(file.fd)
            shared.published = place
            file.take(frame, place)
            if frame.rows:
                self._files.on_durable(frame.rows)
        finally:
            _end(file)
        if head is not None:
            await self._files.pause()
            self._head_file.write(head)

    def _check_alone(self, frame: Frame) -> None:
        """As the real one: what another process has done is seen by the newest record and by the anchor."""
        file = self._file
        last = file.rows[-1][0] if file.rows else self.anchor.seq
        if frame.rows and frame.rows[0][0] != last + 1:
            raise LogError(f"{self.name}: another process has written to it")
        if frame.anchor is not None or frame.snapshot is not None:
            self._check_anchor()

    def _check_anchor(self) -> None:
        if self._file.anchor != self.anchor:
            raise LogError(f"{self.name}: another process has compacted it")


async def _begin(file: _File) -> None:
    """Be the one who is in a transaction."""
    await file.files.pause()
    waited = 0.0
    while file.shared.writer is not None:
        if waited > BUSY_SECONDS:
            raise LogError(f"{file.path}: writing failed (database is locked)")
        waited += BUSY_POLL_SECONDS
        await asyncio.sleep(BUSY_POLL_SECONDS)
    file.shared.writer = CURRENT.get()


def _end(file: _File) -> None:
    if file.shared.writer is CURRENT.get():
        file.shared.writer = None


def _create(files: SimFiles, path: str) -> None:
    """As `opening._create`: head file first, then the file, each durable with its folder."""
    disk = files.disk
    if disk.exists(path + ".head"):
        known = HeadFile.open(path + ".head", disk, writable=False).read().head
        if known is None or known.seq:
            raise LogDamaged(
                path, 1, known.seq if known else None, "the database is gone, its head file is not"
            )
    else:
        HeadFile.create(path + ".head", disk)
    new = path + ".new"
    disk.remove(new)
    fd = disk.open(new, os.O_RDWR | os.O_CREAT)
    disk.sync(fd)
    disk.close(fd)
    disk.rename(new, path)
    disk.sync_folder(path)


def _cannot_open(files: SimFiles, path: str, error: OSError) -> LogError:
    if files.disk.full:
        return LogFull(path, 0)
    return LogError(f"{path}: cannot be opened: {error.strerror or error}")

"""The log in one SQLite file: durable appends for one process, read-only access for any number of others.

A group commit is one transaction, fsynced by SQLite (`synchronous = FULL`), then the head file, fsynced; only then are its
callers answered. All of it is one job for the connection's thread: about 0.3 ms and two fsyncs, however many records.

The writing process has a second, read-only connection, so that reads need not queue behind commits. Only one connection
ever writes or checkpoints: SQLite before 3.51.3 can corrupt a WAL database otherwise.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import aiosqlite

from tidelog.api.errors import LogBusy, LogDamaged, LogError, LogFull
from tidelog.eventlog import database, opening
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.lock import WriterLock
from tidelog.eventlog.opening import Opened, log_path
from tidelog.eventlog.records import ChainBroken, Record, Row
from tidelog.eventlog.room import FILE_BYTES, Reserve, is_busy, is_full, kept_free
from tidelog.eventlog.store import (
    ROWS_PER_READ,
    Head,
    Snapshot,
    SnapshotInfo,
    SnapshotsUnreadable,
    parts_of,
)

SPARE_LOG_BYTES = 256 * 2**10
"""Room that there must be for the write-ahead log where records go to what is free in the file."""

STEPS = ((8, 256), (1, 16))
"""So many parts of snapshots and pages are removed or moved at once when room is given back: a few milliseconds, in which nothing is appended.
The second where the disk has no room for the write-ahead log of the first."""

CHECKPOINT_BYTES = 4 * 2**20
"""Amount appended between checkpoints: a small WAL is a small window for damage, a large one is fewer fsyncs."""

PINNED_BYTES = 64 * 2**20
"""It is told when the write-ahead log has become so large because somebody reads an old state …"""

PINNED_BYTES_MAX = 2**30
"""… and nothing more is written when it is as large as this, until he has ended."""

FRAME_BYTES = 4096 + 24

_log = logging.getLogger("tidelog.log")

P = ParamSpec("P")
R = TypeVar("R")


class _Connection(aiosqlite.Connection):
    """aiosqlite's connection, which runs one of our functions per trip to its thread instead of one SQL statement.

    A trip costs about 50 microseconds, and a group commit is six statements and a head file.
    """

    async def call(
        self, function: Callable[Concatenate[sqlite3.Connection, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """`function(connection, …)`, in the thread that owns the connection."""
        work = partial(function, self._conn, *args, **kwargs)
        return cast("R", await self._execute(work))  # type: ignore[no-untyped-call]


async def _open(
    function: Callable[P, Opened], *args: P.args, **kwargs: P.kwargs
) -> tuple[_Connection, Opened]:
    """Let `function` open a log in the thread of a new connection, which then owns what it opened."""
    opened: list[Opened] = []

    def connector() -> sqlite3.Connection:
        opened.append(function(*args, **kwargs))
        return opened[0].connection

    connection = _Connection(connector, iter_chunk_size=ROWS_PER_READ)
    try:
        await connection
    except BaseException:
        # aiosqlite has told its thread to end, and does not wait until it has: it would tell a loop that is closed.
        thread: Any = getattr(connection, "_thread", connection)
        thread.join()
        if opened:  # Cancelled while the thread opened it: nobody else knows of it.
            opened[0].close()
        raise
    return connection, opened[0]


class _Reading:
    """The part that both stores share: everything that only reads."""

    def __init__(self, path: str, reader: _Connection, opened: Opened) -> None:
        self.name = path
        self.anchor = opened.anchor
        self.head = opened.head
        self._head_file = opened.head_file
        self._reader: _Connection | None = reader

    async def _read(
        self, function: Callable[Concatenate[sqlite3.Connection, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        if self._reader is None:
            raise LogError(f"{self.name}: the log is closed")
        try:
            return await self._reader.call(function, *args, **kwargs)
        except (sqlite3.Error, ChainBroken) as error:
            raise database.damage(self.name, error, self.anchor.seq + 1, self.head.seq) from error

    async def read(self, first: int, last: int) -> list[Row]:
        """As in `Store`."""
        try:
            return await self._read(database.select, first, last)
        except LogDamaged as error:
            raise LogDamaged(self.name, first, min(last, self.head.seq), error.reason) from error

    async def span(self, key: str, last: int) -> tuple[int, int] | None:
        """As in `Store`: a look at every record, some 0.2 microseconds each."""
        return await self._read(database.span, key, last)

    async def get_snapshot(self, name: str, seq: int) -> Snapshot | None:
        """As in `Store`."""
        try:
            return await self._read(database.get_snapshot, name, seq)
        except LogDamaged:
            return None

    async def snapshots(self) -> list[SnapshotInfo]:
        """As in `Store`."""
        try:
            return await self._read(database.list_snapshots)
        except LogDamaged as error:
            raise SnapshotsUnreadable(self.name, error.reason) from error

    async def footprint(self) -> tuple[int, int]:
        """As in `ReadStore`."""
        return await self._read(database.footprint)

    async def check_storage(self) -> list[str]:
        """As in `Store`."""
        try:
            return await self._read(database.check_storage)
        except LogDamaged as error:
            return [error.reason]


class SqliteReader(_Reading):
    """A log opened read-only: needs no lock, and works while a writer runs, when none does, and in a read-only folder."""

    def __init__(self, path: str, reader: _Connection, opened: Opened, disk: Disk) -> None:
        super().__init__(path, reader, opened)
        self._live = opened.live
        self._disk = disk

    @classmethod
    async def open(cls, path: str | os.PathLike[str], *, disk: Disk | None = None) -> SqliteReader:
        """Open an existing log. Costs a few milliseconds, however long the log is."""
        disk = disk or Disk()
        path = log_path(path)
        reader, opened = await _open(opening.open_reading, path, disk)
        return cls(path, reader, opened, disk)

    def refresh(self) -> Head:
        """As in `Store`: one pread of a small file, about 5 microseconds."""
        found = self._head_file.read().head
        if found is not None and found.seq > self.head.seq:
            self.head = found
        return self.head

    async def read(self, first: int, last: int) -> list[Row]:
        """As in `Store`; a connection that cannot see what was written since it was opened is opened anew."""
        rows = await super().read(first, last)
        if not rows and first <= min(last, self.head.seq) and not self._live and self._reader is not None:
            reader, opened = await _open(opening.open_reading, self.name, self._disk)
            opened.head_file.close()
            before, self._reader, self._live = self._reader, reader, opened.live
            await before.close()
            rows = await super().read(first, last)
        return rows

    async def reload(self) -> None:
        """As in `Store`: a trip to the connection's thread."""
        self.refresh()
        self.anchor = await self._read(database.read_anchor)

    async def close(self) -> None:
        """As in `Store`."""
        self._head_file.close()
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()


class SqliteStore(_Reading):
    """A log opened for writing; holds the writer's lock until it is closed."""

    def __init__(
        self,
        path: str,
        reader: _Connection,
        writer: _Connection,
        opened: Opened,
        lock: WriterLock,
        disk: Disk,
    ) -> None:
        super().__init__(path, reader, opened)
        self.lock = lock
        self._disk = disk
        self._writer: _Connection | None = writer
        assert opened.identity is not None
        self._identity = opened.identity
        self._since_checkpoint = 0
        self._failed = False
        self._pinned = 0
        """Bytes of the write-ahead log, where somebody keeps them from being moved to the database."""
        self._spare = 0
        """So much is free in the file, after a compaction that could not give it back."""
        self._reserve = Reserve(path, disk)
        self._reserve.make()
        self._dropping_to: Head | None = None
        """The anchor of our own latest compaction, which may still be under way."""

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        what: str = "",
        disk: Disk | None = None,
    ) -> SqliteStore:
        """Open a log for writing, or make a new one; `what` tells others who holds it.

        Raises `LogLocked`, `LogDamaged`, or `LogError` for a file that is no log or of a newer format. Nothing is
        changed then.
        """
        disk = disk or Disk()
        path = log_path(path)
        opening.check_place(path, disk, create=create)
        lock = WriterLock(path, what)
        writer = reader = None
        try:
            writer, opened = await _open(opening.open_writing, path, disk, create=create)
            reader, seen = await _open(opening.open_reading, path, disk)
            seen.head_file.close()
            lock.opened()
            return cls(path, reader, writer, opened, lock, disk)
        except BaseException:
            if reader is not None:
                await reader.close()
            if writer is not None:
                opened.head_file.close()
                if opened.identity is not None:
                    opened.identity.close()
                await writer.close()
            if not any(os.path.exists(name) for name in (path, path + ".head")):  # noqa: ASYNC240
                lock.undo()
            lock.give_up()
            raise

    async def read(self, first: int, last: int) -> list[Row]:
        """As in `Store`. What is missing may have been dropped by a process that took the lock away: that is no damage."""
        rows = await super().read(first, last)
        if first <= last and (not rows or rows[0][0] != first):
            await self._check_own()
        return rows

    async def snapshots(self) -> list[SnapshotInfo]:
        """As in `Store`, and as in `read`."""
        found = await super().snapshots()
        await self._check_own()
        return found

    async def get_snapshot(self, name: str, seq: int) -> Snapshot | None:
        """As in `Store`, and as in `read`."""
        found = await super().get_snapshot(name, seq)
        if found is None:
            await self._check_own()
        return found

    async def _check_own(self) -> None:
        """Nobody else has compacted. A compaction of our own may be under way in the writer's thread, or have ended while the anchor was read."""
        before = self.anchor
        found = await self._read(database.read_anchor)
        if found not in (before, self._dropping_to):
            self._check_anchor(found)

    def refresh(self) -> Head:
        """As in `Store`: nobody else can move the head."""
        return self.head

    async def reload(self) -> None:
        """As in `Store`: nobody else compacts."""

    def check_room(self) -> None:
        """As in `Store`: one statvfs, and a stat of the lock file."""
        self.lock.check()
        self._check_room_for(0)
        if self._pinned >= PINNED_BYTES_MAX:
            raise LogBusy(
                self.name,
                f"somebody reads an old state of it, and its write-ahead log has grown to {self._pinned >> 20} MiB",
            )

    def _check_room_for(self, more: int) -> None:
        """Raise `LogFull` unless so many bytes fit beside what is kept free."""
        free, size = self._disk.room(self.name)
        # What is free in the file itself counts, but the write-ahead log has to grow first.
        spare = self._spare if free >= SPARE_LOG_BYTES else 0
        if free + spare < kept_free(size) + more:
            raise LogFull(self.name, free)

    async def check(self) -> None:
        """As in `Store`: six calls of `stat`."""
        self.lock.check()
        await self._write(lambda _: None)
        self.lock.beat()

    async def append(self, records: Sequence[Record], head: Head) -> None:
        """As in `Store`."""
        await self._write(self._commit, records, head, commit=True)
        self._since_checkpoint += sum([len(record.body) + len(record.key) + 100 for record in records])
        self.head = head

    def _commit(self, connection: sqlite3.Connection, records: Sequence[Record], head: Head) -> None:
        self._in_transaction(connection, self._insert, records)
        self._head_file.write(head)

    def _insert(self, connection: sqlite3.Connection, records: Sequence[Record]) -> None:
        """Add the records behind the one that they follow. Only a process that took the lock away can have put others there."""
        if records and database.last_seq(connection, self.anchor) != records[0].seq - 1:
            raise LogError(
                f"{self.name}: another process has written to it: nothing more is written or acknowledged; start again"
            )
        database.insert(connection, records)

    async def _write(self, function: Callable[..., R], *args: object, commit: bool = False) -> R:
        """Run `function(connection, *args)` in the writer's thread. After any error nothing is written to this log again: what a failed fsync
        lost cannot be told from what it kept, and asking the disk once more would say that all is well."""
        if self._writer is None:
            raise LogError(f"{self.name}: the log is closed")
        try:
            return await self._writer.call(
                self._guarded, lambda connection: function(connection, *args), commit
            )
        except ChainBroken as error:
            raise database.damage(self.name, error, self.anchor.seq + 1, self.head.seq) from error
        except (sqlite3.Error, OSError) as error:
            if is_busy(error):
                raise LogBusy(self.name, str(error)) from error
            if not self._failed:
                raise LogFull(self.name, self._disk.room(self.name)[0]) from error
            if database.is_damaged(error):
                # What is missing may be in no record's way, so that starting again would end here again.
                way_out = f"SQLite finds its file damaged; make it anew: tidelog log repair --accept-loss {self.name}"
            else:
                way_out = "make sure that the disk is well and has room, then start again"
            raise LogError(
                f"{self.name}: writing failed ({error}): nothing more is written or acknowledged; {way_out}"
            ) from error

    def _guarded(
        self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], R], commit: bool
    ) -> R:
        """The work, in the thread: there an error is seen even if the task that asked for it was cancelled."""
        if self._failed:
            raise LogError(f"{self.name}: writing failed before; start again")
        try:
            if commit:
                self._identity.check_before_commit()
                done = work(connection)
                self._identity.confirm()
                return done
            self._identity.check()
            done = work(connection)
            self._identity.left()
            return done
        except sqlite3.Error as error:
            # What SQLite could not write for want of room it has taken back: it is in no transaction, and no sync has failed. Nor
            # has anything been written if it did not get as far as a transaction.
            self._failed = not (is_full(error) or is_busy(error)) or connection.in_transaction
            if not self._failed:
                self._identity.left()
            raise
        except BaseException:
            self._failed = True
            raise

    async def tidy(self) -> None:
        """As in `Store`: a checkpoint each 4 MiB."""
        if self._since_checkpoint >= CHECKPOINT_BYTES or self._pinned >= PINNED_BYTES:
            self._since_checkpoint = 0
            # What was committed is in the write-ahead log, and waits there.
            with contextlib.suppress(LogFull, LogBusy):
                await self._write(self._checkpoint)

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        frames, moved = database.checkpoint(connection)
        self._identity.checkpointed(frames)
        before, self._pinned = self._pinned, (frames * FRAME_BYTES if moved < frames else 0)
        if before < PINNED_BYTES <= self._pinned:
            _log.warning(
                "a reader keeps the write-ahead log from being emptied",
                extra={"fields": {"log": self.name, "bytes": self._pinned}},
            )
        elif before >= PINNED_BYTES and not self._pinned:
            database.truncate_log(connection)
            self._identity.checkpointed(database.checkpoint(connection)[0])
            _log.info("the write-ahead log was emptied", extra={"fields": {"log": self.name}})
        self._reserve.make()

    async def put_snapshot(self, snapshot: Snapshot, *, urgent: bool = False) -> None:
        """As in `Store`: a transaction a MiB."""
        name, seq, size = snapshot.name, snapshot.seq, snapshot.size
        if urgent:
            # Twice: in the write-ahead log, and then in the database. Half of it written would take the room that a compaction needs.
            free, _ = self._disk.room(self.name)
            if free < 2 * size + FILE_BYTES // 2:
                raise LogFull(self.name, free)
        else:
            self._check_room_for(size)
        await self._write(self._in_transaction, database.drop_snapshot, name, seq)
        try:
            for number, data in enumerate(parts_of(snapshot.pieces, database.PART_BYTES)):
                await self._write(self._confirmed, database.put_part, name, seq, number, data)
            await self._write(self._confirmed, self._finish, snapshot)
        except LogFull:
            with contextlib.suppress(LogFull):
                await self._write(self._in_transaction, database.drop_snapshot, name, seq)
            raise
        self._since_checkpoint += size
        await self.tidy()
        while await self._write(self._in_transaction, database.sweep, STEPS[0][0]):
            await self.tidy()

    def _finish(self, connection: sqlite3.Connection, snapshot: Snapshot) -> None:
        """Make it visible, unless its record may be gone because another process has compacted."""
        self._check_anchor(database.read_anchor(connection))
        database.finish_snapshot(connection, snapshot)

    async def compact(self, anchor: Head) -> None:
        """As in `Store`."""
        self._dropping_to = anchor
        await self._write(self._compact, anchor)

    async def reclaim(self, *, whole: bool = False) -> bool:
        """As in `Store`: parts of snapshots that are gone, then free pages, then the write-ahead log."""
        for parts, pages in STEPS:
            with contextlib.suppress(LogFull):
                return await self._write(self._rewrite if whole else self._reclaim, parts, pages)
        return False  # Later records use what is free.

    def _reclaim(self, connection: sqlite3.Connection, parts: int, pages: int) -> bool:
        # What was dropped is in the write-ahead log: once moved, it is begun anew. On a full disk there is no other room.
        self._checkpoint(connection)
        more = self._in_transaction(connection, database.sweep, parts)
        if not more and database.is_incremental(connection):
            more = database.give_back(connection, pages)
        if more:
            self._checkpoint(connection)
        else:
            database.truncate_log(connection)
            self._checkpoint(connection)
        self._spare = database.free_bytes(connection)
        return more

    def _rewrite(self, connection: sqlite3.Connection, parts: int, pages: int) -> bool:
        if self._reclaim(connection, parts, pages):
            return True
        if database.free_bytes(connection):
            database.rewrite(connection)
            database.truncate_log(connection)
            self._checkpoint(connection)
            self._spare = 0
        return False

    def _compact(self, connection: sqlite3.Connection, anchor: Head) -> None:
        self._confirmed(connection, self._drop, anchor)
        self.anchor = anchor

    def _confirmed(
        self,
        connection: sqlite3.Connection,
        function: Callable[Concatenate[sqlite3.Connection, P], None],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """A transaction that changes something, found again in the files that it was written to."""
        self._in_transaction(connection, function, *args, **kwargs)
        self._identity.confirm()

    def _in_transaction(
        self,
        connection: sqlite3.Connection,
        function: Callable[Concatenate[sqlite3.Connection, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """All or nothing, and only with the lock, at which it looks within the transaction: as long as that lasts, nobody else opens the log to write."""

        def work() -> R:
            self.lock.check()
            return function(connection, *args, **kwargs)

        return database.transaction(connection, work)

    def _drop(self, connection: sqlite3.Connection, anchor: Head) -> None:
        """Compact, unless a process that took the lock away has: the anchor would go back to before records that are gone."""
        self._check_anchor(database.read_anchor(connection))
        database.compact(connection, anchor)

    def _check_anchor(self, found: Head) -> None:
        if found != self.anchor:
            raise LogError(f"{self.name}: another process has compacted it; start again")

    async def close(self) -> None:
        """As in `Store`. A clean close leaves one database file without WAL, which also a read-only folder can hold.

        The last connection to close checkpoints. After a failure that must not be the writer: it would fsync again. Nor if the files were
        taken away: it would remove the write-ahead log that stands there now, another's.
        """
        missing = await self._missing()
        reader, self._reader = self._reader, None
        writer, self._writer = self._writer, None
        try:
            for connection in [writer, reader] if self._failed else [reader, writer]:
                if connection is not None:
                    await connection.close()
        except sqlite3.Error as error:
            raise LogError(f"{self.name}: closing failed: {error}") from error
        finally:
            self._head_file.close()
            self._identity.close()
            # What opening took of it on a full disk has come free just now.
            self._reserve.make(beside=False)
            if self._failed:
                self.lock.abandon(self.head.seq, self.head.epoch)
            else:
                self.lock.release()
        if missing is not None:
            raise missing

    async def _missing(self) -> LogError | None:
        """Raised where the file was found only now to be taken away."""
        if self._writer is None or self._failed:
            return None
        try:
            await self._write(lambda _: None)
        except LogError as error:
            return error
        return None

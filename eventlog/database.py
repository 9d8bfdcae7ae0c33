"""The SQL of the log, as plain functions over an open SQLite connection. They run in whatever thread owns it.

    records    (seq, at, author, kind, key, cause, body, digest)      the log; seq is the row's own number
    anchor     (seq, at, epoch, digest, check)                        one row: what the first kept record is chained to
    snapshots  (name, seq, chain, digest, size, parts)                written when all its parts are there
    parts      (name, seq, part, data)

The statements are portable to PostgreSQL; only `create`, the format numbers and the pragmas are SQLite's own. There is no
index beside the primary keys: nothing in the file can disagree with the records.

SQLite releases the interpreter's lock around every step, and gets it back only when a busy main thread lets go of it, up
to 5 ms later. So rows are inserted many to a statement: a group of 1,000 costs about ten such waits instead of 1,000
(measured beside a busy main thread: 54 ms a group instead of 400 ms).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from tidelog.api.errors import LogDamaged, LogError
from tidelog.eventlog.head_file import HeadReading
from tidelog.eventlog.records import (
    FORMAT,
    GENESIS,
    ChainBroken,
    Record,
    Row,
    check_rows,
)
from tidelog.eventlog.room import is_full
from tidelog.eventlog.store import (
    BETWEEN,
    EMPTY,
    ROWS_PER_READ,
    Head,
    Progress,
    Snapshot,
    SnapshotInfo,
    advance,
    superfluous,
)

R = TypeVar("R")

APPLICATION_ID = 0x5449_4445  # "TIDE": what `file` and SQLite's own tools show
PART_BYTES = 2**20
"""A snapshot is written in parts of this size, so that appends need not wait for all of it."""

_TABLES = {
    "records": (
        "CREATE TABLE records (seq INTEGER PRIMARY KEY, at BIGINT NOT NULL, author TEXT NOT NULL, "
        "kind TEXT NOT NULL, key TEXT NOT NULL, cause BIGINT NOT NULL, body BLOB NOT NULL, digest BLOB NOT NULL)"
    ),
    "anchor": (
        "CREATE TABLE anchor (seq BIGINT NOT NULL, at BIGINT NOT NULL, epoch BIGINT NOT NULL, "
        "digest BLOB NOT NULL, checked BLOB NOT NULL)"
    ),
    "snapshots": (
        "CREATE TABLE snapshots (name TEXT NOT NULL, seq BIGINT NOT NULL, chain BLOB NOT NULL, "
        "digest BLOB NOT NULL, size BIGINT NOT NULL, parts BIGINT NOT NULL, PRIMARY KEY (name, seq))"
    ),
    "parts": (
        "CREATE TABLE parts (name TEXT NOT NULL, seq BIGINT NOT NULL, part BIGINT NOT NULL, "
        "data BLOB NOT NULL, PRIMARY KEY (name, seq, part))"
    ),
}
_SELECT = "SELECT seq, at, author, kind, key, cause, body, digest FROM records "
_ROW = "(?, ?, ?, ?, ?, ?, ?, ?)"
_COLUMNS = 8

NOT_DAMAGE = frozenset(
    [
        sqlite3.SQLITE_ABORT,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
    ]
)
"""By these SQLite says that it cannot look, not that something is wrong with what it sees."""

NOT_DAMAGE_IO = frozenset(
    [
        sqlite3.SQLITE_IOERR_ACCESS,
        sqlite3.SQLITE_IOERR_BLOCKED,
        sqlite3.SQLITE_IOERR_CHECKRESERVEDLOCK,
        sqlite3.SQLITE_IOERR_CONVPATH,
        sqlite3.SQLITE_IOERR_GETTEMPPATH,
        sqlite3.SQLITE_IOERR_LOCK,
        sqlite3.SQLITE_IOERR_NOMEM,
        sqlite3.SQLITE_IOERR_RDLOCK,
        sqlite3.SQLITE_IOERR_SHMLOCK,
        sqlite3.SQLITE_IOERR_SHMMAP,
        sqlite3.SQLITE_IOERR_SHMOPEN,
        sqlite3.SQLITE_IOERR_SHMSIZE,
        sqlite3.SQLITE_IOERR_UNLOCK,
    ]
)
"""Of the errors of input and output, those about locks, memory and its own index: the log's content was not looked at. A read that fails is damage."""


class NotALog(Exception):
    """The file is a database, but none of ours; the text is the reason."""


class NewerFormat(Exception):
    """The file is a log of a format that only a newer tidelog knows; the text says so."""


# --- opening --------------------------------------------------------------------------------------------------------


def create(connection: sqlite3.Connection, anchor: Head = EMPTY) -> None:
    """Make an empty log, all or nothing."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    for statement in _TABLES.values():
        connection.execute(statement)
    connection.execute("INSERT INTO anchor VALUES (?, ?, ?, ?, ?)", anchor_row(anchor))
    connection.execute("COMMIT")


def check_format(connection: sqlite3.Connection, head: HeadReading) -> None:
    """Raise `NotALog`, `NewerFormat`, or `ChainBroken` where the head file says that it was another."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise NotALog("it is a database of another application")
    if version > FORMAT and (head.head is None or head.format > FORMAT):
        raise NewerFormat(
            f"it has format {version} and this tidelog reads formats up to {FORMAT}: use a newer tidelog"
        )
    if version != FORMAT:
        raise ChainBroken(0, f"the format number is {version}")
    found = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall())
    if found != _TABLES:
        raise ChainBroken(0, "the definitions of its tables were changed")


def examine(
    connection: sqlite3.Connection, reading: HeadReading, depth: int, progress: Progress | None = None
) -> tuple[Head, Head]:
    """The anchor and the head of a log that is whole as far as this can tell; raises `ChainBroken` otherwise.

    The chain is checked over the last `depth` records and everything after the head file's record. Costs two
    microseconds a record. The whole chain is `verify`'s affair, and every read checks what it returns.
    """
    connection.execute("BEGIN")
    try:
        check_format(connection, reading)
        anchor = read_anchor(connection)
        if reading.head is None:
            raise ChainBroken(last_seq(connection, anchor) + 1, reading.problem)
        return anchor, _examine_end(connection, anchor, reading, reading.head, depth, progress)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _examine_end(
    connection: sqlite3.Connection,
    anchor: Head,
    reading: HeadReading,
    known: Head,
    depth: int,
    progress: Progress | None,
) -> Head:
    last = last_seq(connection, anchor)
    if last < known.seq:
        raise ChainBroken(
            last + 1, f"the log ends at record {last}, but its head file says that it went on to {known.seq}"
        )
    if reading.doubtful and last == known.seq:
        raise ChainBroken(
            last + 1, "half of its head file cannot be read, and it may have named newer records"
        )
    head = point(connection, anchor, max(anchor.seq, min(known.seq - 1, last - depth)))
    # Where the chain is entered in the middle, the head file knows the epoch, or the anchor, where that is newer; what
    # follows can only raise it.
    head = msgspec.structs.replace(head, epoch=max(known.epoch, anchor.epoch))
    begin = head.seq
    for records in walk(connection, head, last):
        if progress is not None:
            progress(head.seq - begin, last - begin)
        for record in records:
            head = advance(head, record)
            if record.seq == known.seq and record.digest != known.digest:
                raise ChainBroken(record.seq, f"record {record.seq} is not the one that its head file names")
    if known.seq == anchor.seq and known.digest != anchor.digest:
        raise ChainBroken(anchor.seq, f"record {anchor.seq} is not the one that its head file names")
    return head


def last_seq(connection: sqlite3.Connection, anchor: Head) -> int:
    """The newest record's seq."""
    row = connection.execute("SELECT seq FROM records ORDER BY seq DESC LIMIT 1").fetchone()
    return anchor.seq if row is None else int(row[0])


def point(connection: sqlite3.Connection, anchor: Head, seq: int) -> Head:
    """The place right after record `seq`, from which the chain can be followed; its epoch is not known."""
    if seq == anchor.seq:
        return anchor
    row = connection.execute("SELECT at, digest FROM records WHERE seq = ?", (seq,)).fetchone()
    if row is None:
        raise ChainBroken(seq, f"record {seq} is missing")
    at, digest = row
    if not isinstance(at, int) or not isinstance(digest, bytes):
        raise ChainBroken(seq, f"record {seq} is unreadable")
    return Head(seq=seq, at=at, digest=digest)


def walk(connection: sqlite3.Connection, start: Head, last: int) -> Iterator[list[Record]]:
    """All records after `start` up to `last`, checked, in batches. Raises `ChainBroken` for one that is not there."""
    while start.seq < last:
        records = check_rows(select(connection, start.seq + 1, last), start.seq, start.at, start.digest)
        if not records:
            raise ChainBroken(start.seq + 1, f"record {start.seq + 1} is missing")
        end = records[-1]
        start = Head(seq=end.seq, at=end.at, digest=end.digest)
        yield records


# --- records --------------------------------------------------------------------------------------------------------


def select(connection: sqlite3.Connection, first: int, last: int) -> list[Row]:
    """Rows in order, unchecked. The row behind the last one is not looked at: it may be damaged."""
    limit = max(min(last - first + 1, ROWS_PER_READ), 0)
    return connection.execute(
        _SELECT + "WHERE seq >= ? AND seq <= ? ORDER BY seq LIMIT ?", (first, last, limit)
    ).fetchall()


def span(connection: sqlite3.Connection, key: str, last: int) -> tuple[int, int] | None:
    """The oldest and the newest record about a key, up to `last`: there is no index, which would cost each append."""
    first, newest = connection.execute(
        "SELECT min(seq), max(seq) FROM records WHERE key = ? AND seq <= ?", (key, last)
    ).fetchone()
    return None if first is None else (first, newest)


def _insert_sizes(connection: sqlite3.Connection) -> list[int]:
    limit = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
    return [size for size in (512, 256, 128, 64, 32, 16, 8, 4, 2, 1) if size * _COLUMNS <= limit]


def insert(connection: sqlite3.Connection, records: Sequence[Record]) -> None:
    """Add the rows within the transaction under way, in statements of 512 rows, 256 rows, and so on down to one."""
    done = 0
    for size in _insert_sizes(connection):
        while len(records) - done >= size:
            values: list[object] = []
            for record in records[done : done + size]:
                values += msgspec.structs.astuple(record)
            connection.execute("INSERT INTO records VALUES " + ", ".join([_ROW] * size), values)
            done += size


def transaction(connection: sqlite3.Connection, work: Callable[[], R]) -> R:
    """Do `work`, all or nothing; durable on return."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = work()
        connection.execute("COMMIT")
    except BaseException:
        # After some errors SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return done


def checkpoint(connection: sqlite3.Connection) -> tuple[int, int]:
    """Move the WAL's content into the database, both fsynced. Readers may keep it from finishing, which is no error.

    Returns how many frames the WAL has, and how many of them were moved: it is begun anew when that are all.
    """
    _, frames, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(frames), int(moved)


def free_bytes(connection: sqlite3.Connection) -> int:
    """How much of the file is free: what is written next goes there."""
    (pages,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(size)


def footprint(connection: sqlite3.Connection) -> tuple[int, int]:
    """Bytes of the file, and of the copies that it takes to write it anew, where free pages cannot be given back one by one."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    whole = int(pages) * int(size)
    return whole, 0 if is_incremental(connection) else 2 * (whole - free_bytes(connection))


def is_incremental(connection: sqlite3.Connection) -> bool:
    """Whether free pages can be given back one by one; files made by older versions need a copy of everything."""
    (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    return int(mode) == 2


def give_back(connection: sqlite3.Connection, pages: int) -> bool:
    """Give so many free pages at most back to the file system, in one transaction; whether there are more."""
    # SQLite does a page at each step of the statement, and Python's `execute` takes one step of what has no columns.
    connection.executescript(f"PRAGMA incremental_vacuum({pages})")
    return free_bytes(connection) > 0


def rewrite(connection: sqlite3.Connection) -> None:
    """Write the file anew, without free pages; from then on they can be given back one by one. Needs room for all that stays, twice."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("VACUUM")


def truncate_log(connection: sqlite3.Connection) -> None:
    """Checkpoint, and cut the write-ahead log, unless somebody reads from it just now."""
    (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")


# --- the anchor -----------------------------------------------------------------------------------------------------


def anchor_row(anchor: Head) -> tuple[int, int, int, bytes, bytes]:
    """The row of its table, with the digest over it."""
    fields = (anchor.seq, anchor.at, anchor.epoch, anchor.digest)
    return (*fields, sha256(msgspec.msgpack.encode(fields)).digest())


def read_anchor(connection: sqlite3.Connection) -> Head:
    """The anchor, checked."""
    return checked_anchor(connection.execute("SELECT seq, at, epoch, digest, checked FROM anchor").fetchall())


def checked_anchor(rows: Sequence[Sequence[Any]]) -> Head:
    """The anchor in the rows of its table."""
    if len(rows) != 1:
        raise ChainBroken(0, "its anchor is missing")
    fields, check = tuple(rows[0][:4]), rows[0][4]
    if sha256(msgspec.msgpack.encode(fields)).digest() != check:
        raise ChainBroken(0, "its anchor is damaged")
    anchor = Head(*fields)
    if anchor.seq == 0 and anchor.digest != GENESIS:
        raise ChainBroken(0, "its anchor is damaged")
    return anchor


def compact(connection: sqlite3.Connection, anchor: Head) -> None:
    """Drop the records up to the new anchor, within the transaction under way."""
    connection.execute("DELETE FROM records WHERE seq <= ?", (anchor.seq,))
    connection.execute("DELETE FROM snapshots WHERE seq < ?", (anchor.seq,))
    connection.execute("DELETE FROM anchor")
    connection.execute("INSERT INTO anchor VALUES (?, ?, ?, ?, ?)", anchor_row(anchor))


# --- snapshots ------------------------------------------------------------------------------------------------------


def check_storage(connection: sqlite3.Connection) -> list[str]:
    """SQLite's complaints about the structure of the file, one line each; of what the indexes hold, too, by which rows are found to be removed."""
    rows = connection.execute("PRAGMA integrity_check(10)").fetchall()
    # A row may hold many lines, beginning with a heading between asterisks.
    found = [line for (text,) in rows for line in str(text).splitlines() if not line.startswith("***")]
    return [] if found == ["ok"] else found


def drop_snapshot(connection: sqlite3.Connection, name: str, seq: int) -> None:
    """Remove a snapshot, whole or half-written, within the transaction under way."""
    connection.execute("DELETE FROM snapshots WHERE name = ? AND seq = ?", (name, seq))
    connection.execute("DELETE FROM parts WHERE name = ? AND seq = ?", (name, seq))


def sweep(connection: sqlite3.Connection, parts: int) -> bool:
    """Remove at most so many parts of snapshots that are not there (any more), within the transaction under way; whether there are more that can be removed.

    A part whose name was damaged in the index alone is found there and nowhere else: it stays.
    """
    found = connection.execute(
        "SELECT name, seq, part FROM parts WHERE NOT EXISTS "
        "(SELECT 1 FROM snapshots WHERE snapshots.name = parts.name AND snapshots.seq = parts.seq) LIMIT ?",
        (parts + 1,),
    ).fetchall()
    before = connection.total_changes
    if found:
        delete = "DELETE FROM parts WHERE name = ? AND seq = ? AND part = ?"
        connection.executemany(delete, found[:parts])
    return len(found) > parts and connection.total_changes > before


def put_part(connection: sqlite3.Connection, name: str, seq: int, part: int, data: bytes) -> None:
    """Add a part of a snapshot, within the transaction under way."""
    connection.execute("INSERT INTO parts VALUES (?, ?, ?, ?)", (name, seq, part, data))


def finish_snapshot(connection: sqlite3.Connection, snapshot: Snapshot) -> None:
    """Make a snapshot whose parts are all there visible, and drop older ones, within the transaction under way."""
    size = snapshot.size
    connection.execute(
        "INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)",
        (snapshot.name, snapshot.seq, snapshot.chain, snapshot.digest, size, -(-size // PART_BYTES)),
    )
    name = snapshot.name
    for seq in superfluous(name, _seqs(connection, name), _seqs(connection, name.removesuffix(BETWEEN))):
        # Its parts are swept out later: there may be hundreds of MiB of them.
        connection.execute("DELETE FROM snapshots WHERE name = ? AND seq = ?", (name, seq))


def _seqs(connection: sqlite3.Connection, name: str) -> list[int]:
    rows = connection.execute("SELECT seq FROM snapshots WHERE name = ? ORDER BY seq", (name,)).fetchall()
    return [seq for (seq,) in rows]


def get_snapshot(connection: sqlite3.Connection, name: str, seq: int) -> Snapshot | None:
    """A snapshot, unchecked."""
    row = connection.execute(
        "SELECT chain, digest FROM snapshots WHERE name = ? AND seq = ?", (name, seq)
    ).fetchone()
    if row is None:
        return None
    parts = connection.execute(
        "SELECT data FROM parts WHERE name = ? AND seq = ? ORDER BY part", (name, seq)
    ).fetchall()
    blob = b"".join(data for (data,) in parts if isinstance(data, bytes))
    return Snapshot(name=name, seq=seq, chain=row[0], pieces=(blob,), digest=row[1])


def list_snapshots(connection: sqlite3.Connection) -> list[SnapshotInfo]:
    """All snapshots, by name and seq. Raises what SQLite raises for a table that it cannot read if a row is not what was written."""
    rows = connection.execute("SELECT name, seq, size FROM snapshots ORDER BY name, seq").fetchall()
    if not all(
        isinstance(name, str) and isinstance(seq, int) and isinstance(size, int) for name, seq, size in rows
    ):
        # SQLite keeps any type in any column, and every reader compares these.
        raise sqlite3.DatabaseError("a snapshot without a name, a record or a size")
    return [SnapshotInfo(name=name, seq=seq, size=size) for name, seq, size in rows]


# --- errors ---------------------------------------------------------------------------------------------------------


def cannot_look(error: Exception) -> bool:
    """Whether this error says nothing about the log's content."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF in NOT_DAMAGE or code in NOT_DAMAGE_IO)


def is_damaged(error: Exception) -> bool:
    """Whether this error says that something in the file is not as SQLite left it."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def damage(path: str, error: Exception, first: int, last: int | None) -> LogError:
    """Turn an error met while reading into one for the user; `first` and `last` say where it was met."""
    if isinstance(error, ChainBroken):
        return LogDamaged(path, max(error.seq, first), last, error.reason)
    if isinstance(error, NotALog):
        return LogDamaged(path, first, last, str(error))
    if is_full(error):
        return LogError(
            f"{path}: cannot be read, because the disk is full ({error}): make room; the log is not damaged by it"
        )
    if cannot_look(error):
        return LogError(f"{path}: cannot be read: {error}")
    return LogDamaged(path, first, last, f"SQLite: {error}")

"""Opening the files of a log: what is looked at, in which order, and what is refused.

    cluster.db          the database        cluster.db-wal, -shm   SQLite's own, present while it is open
    cluster.db.head     the head file       cluster.db.lock        the writer's lock
    cluster.db.sock     the writer's socket (`tidelog.eventlog.socket`)

A new log: head file first, then the database, each durable with its folder, so that a database with records never lacks
a head file unless somebody lost it. A damaged log is found through a read-only connection, before anything is written
to it; what is refused stays as it was.

Everything here is synchronous and runs in the thread that will own the connection.
"""

from __future__ import annotations

import os
import sqlite3
from functools import partial

import msgspec

from tidelog.api.errors import LogBusy, LogDamaged, LogError, LogFull
from tidelog.eventlog import database
from tidelog.eventlog.address import LogAddress, database_name, is_database
from tidelog.eventlog.disk import Disk, prepare_writing
from tidelog.eventlog.head_file import NO_FILE, HeadFile, HeadReading
from tidelog.eventlog.identity import Identity
from tidelog.eventlog.lock import read_holder
from tidelog.eventlog.records import ChainBroken
from tidelog.eventlog.room import Reserve, is_busy, is_full
from tidelog.eventlog.store import EMPTY, Head, Progress

EXAMINED_FOR_WRITING = 20_000
"""How many of the newest records are checked before a log is written to: more than a WAL ever holds, 50 ms of work."""

UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""The exceptions of Python for a damaged database; the second if SQLite's own error quotes bytes of it that are no text."""

_WAL_HEADER, _FRAME_HEADER = 32, 24
"""Bytes, in a write-ahead log of SQLite."""

_ALONE = "mode=ro&immutable=1"
"""The options by which SQLite takes a database as it stands, without a write-ahead log."""

ATTEMPTS = 20
"""A log that looks damaged is examined this often while another process writes to it."""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """An examined log and its open files."""

    connection: sqlite3.Connection
    head_file: HeadFile
    anchor: Head
    head: Head
    live: bool = True
    """Whether the connection sees what others write from now on."""
    identity: Identity | None = None
    """Where it is open for writing."""

    def close(self) -> None:
        """Let go of the files."""
        if self.identity is not None:
            self.identity.close()
        self.connection.close()
        self.head_file.close()


def log_path(path: str | os.PathLike[str]) -> str:
    """The real path of a log's file, symbolic links resolved: its companions are beside the file itself."""
    if is_database(path):
        raise LogError(
            f"{database_name(path)}: a log in a database, and this needs one in a file: make one with `tidelog log export` and `import`"
        )
    return os.path.realpath(path)


def name_of(address: LogAddress) -> str:
    """How messages call a log: the real path of a file, the address of a database."""
    return database_name(address) if is_database(address) else log_path(address)


def check_place(path: str, disk: Disk, *, create: bool) -> None:
    """Refuse a place where no log can be, before a lock file is made there."""
    if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path)):
        refuse_missing(path, disk)
    if not create and not os.path.exists(path):
        refuse_missing(path, disk)


def open_reading(path: str, disk: Disk, depth: int = 0, progress: Progress | None = None) -> Opened:
    """Open an existing log read-only, its newest `depth` records checked."""
    refuse_unfinished(path)
    if not os.path.isfile(path):
        refuse_missing(path, disk)
    head_file = _open_head(path, disk, writable=False)
    connection: sqlite3.Connection | None = None
    try:
        connection, live = connect_reading(path, disk)
        anchor, head = _examined(connection, path, head_file, depth, progress)
        _compare_with_note(path, head)
        assert head_file is not None, "the examination refuses a log without head file"
        return Opened(connection=connection, head_file=head_file, anchor=anchor, head=head, live=live)
    except BaseException:
        if connection is not None:
            connection.close()
        if head_file is not None:
            head_file.close()
        raise


def _compare_with_note(path: str, head: Head) -> None:
    """Refuse files that are older than what somebody acknowledged before he found them taken away."""
    left = read_holder(path)
    if left is not None and left.seq > head.seq:
        who = left.before or left
        why = f"{who} had acknowledged them when its files were taken away; these are older"
        raise LogDamaged(path, head.seq + 1, left.seq, why)


def open_writing(path: str, disk: Disk, *, create: bool) -> Opened:
    """Open a log for writing, or make a new one; the caller holds the writer's lock. On a full disk it takes what is reserved for that."""
    try:
        return _open_writing(path, disk, create)
    except LogFull:
        if not Reserve(path, disk).release():
            raise
        return _open_writing(path, disk, create)


def _open_writing(path: str, disk: Disk, create: bool) -> Opened:
    try:
        if not _size_of(path):
            _create(path, disk, create)
        _refuse_second_name(path, disk)
        examined = open_reading(path, disk, EXAMINED_FOR_WRITING)
        try:
            return _go_on_writing(path, disk, examined)
        finally:
            # Not before there is another connection: the last one to close would touch the WAL.
            examined.close()
    except OSError as error:
        if is_full(error):
            raise LogFull(path, disk.room(path)[0]) from error
        raise LogError(f"{path}: cannot be opened: {error.strerror or error}") from error


def _refuse_second_name(path: str, disk: Disk) -> None:
    """By each of its names a database would have a lock and a write-ahead log of its own."""
    links = disk.stat(path).st_nlink
    if links > 1:
        raise LogError(
            f"{path}: has {links} names (hard links), and by each of them somebody could write to it unseen: "
            "remove the others, or make a copy in its place"
        )


def _go_on_writing(path: str, disk: Disk, examined: Opened) -> Opened:
    connection = identity = None
    head_file = HeadFile.open(path + ".head", disk, writable=True)
    try:
        before = disk.stat(path)
        connection = connect_writing(path, disk)
        frames = _settle_log(connection, path, disk, head_file.read().head)
        head_file.sync()
        identity = Identity(path, disk, before, head_file.fd, frames)
        # Nor may the names of the files be durable, if it was killed while it made them.
        disk.sync_folder(path)
        database.transaction(connection, partial(_name_head, connection, path, head_file, examined))
        identity.check()
        return Opened(
            connection=connection,
            head_file=head_file,
            anchor=examined.anchor,
            head=examined.head,
            identity=identity,
        )
    except BaseException as error:
        head_file.close()
        if identity is not None:
            identity.close()
        if connection is not None:
            connection.close()
        if isinstance(error, ChainBroken):
            raise database.damage(path, error, 1, None) from error
        if isinstance(error, UNREADABLE):
            if is_full(error):
                raise LogFull(path, disk.room(path)[0]) from error
            if is_busy(error):
                raise LogBusy(path, str(error)) from error
            raise LogError(f"{path}: cannot be opened for writing: {error}") from error
        raise


def _settle_log(connection: sqlite3.Connection, path: str, disk: Disk, known: Head | None) -> int:
    """Fsync the WAL that a killed writer may have left unsynced, before the head file names what is in it; returns how many frames there are.

    What was committed behind `known`, which the head file names, is written once more, the same bytes, while nobody else writes: of what a failed fsync
    was to write the system believes that it is on the disk, and the next fsync says so (Linux). A loss of power would then put an older WAL beside a
    database to which the newer had been moved. Nobody was told of these commits; what somebody was told of is not touched.
    """
    if known is not None:
        database.transaction(connection, partial(_write_again, path + "-wal", disk, known.digest))
    return _checkpoint(connection)


def _write_again(path: str, disk: Disk, digest: bytes) -> None:
    # Of this file nobody's lock is lost when it is closed.
    file = disk.open(path, os.O_RDWR)
    try:
        content = disk.read_at(file, disk.stat_open(file).st_size, 0)
        begin = _behind(content, digest)
        if begin < len(content):
            disk.write_at(file, content[begin:], begin)
            disk.sync(file)
    finally:
        disk.close(file)


def _behind(content: bytes, digest: bytes) -> int:
    """Where in a WAL the commits come that follow the one in which a record of this digest was added; all do where it is in none."""
    size = _FRAME_HEADER + int.from_bytes(content[8:12], "big")
    ends = range(_WAL_HEADER + size, len(content) + 1, size)
    # Frames of an earlier round have other salts.
    valid = next(
        (end - size for end in ends if content[end - size + 8 : end - size + 16] != content[16:24]),
        ends[-1] if ends else 0,
    )
    found = content.find(digest, 0, valid)
    if found < 0:
        return 0
    frame = found - (found - _WAL_HEADER) % size
    while frame < valid and not any(
        content[frame + 4 : frame + 8]
    ):  # Only the last frame of a commit tells the database's size.
        frame += size
    return min(frame + size, valid)


def _checkpoint(connection: sqlite3.Connection) -> int:
    """A checkpoint, which syncs the WAL before it moves anything: the second may wait until there is room."""
    try:
        return database.checkpoint(connection)[0]
    except sqlite3.Error as error:
        if not is_full(error):
            raise
        return 0


def _name_head(connection: sqlite3.Connection, path: str, head_file: HeadFile, examined: Opened) -> None:
    """Have the head file name what was examined, within a transaction, so that nobody else writes now.

    Refused if that is not the newest any more: only a process that took the lock away can have written meanwhile, and an older
    head would take back what its callers have been told.
    """
    anchor = database.read_anchor(connection)
    if anchor != examined.anchor or database.last_seq(connection, anchor) != examined.head.seq:
        raise LogError(f"{path}: another process has written to it while it was opened: start again")
    reading = head_file.read()
    if reading.head != examined.head or reading.doubtful:
        # Once: this goes into the slot that is unreadable or older. Torn, it leaves one that the log is ahead of.
        head_file.write(examined.head)


def _create(path: str, disk: Disk, allowed: bool) -> None:
    """Make a new log, unless the head file says that there was one."""
    refuse_unfinished(path)
    if has_wal(path):
        # SQLite would apply it to whatever database stands beside it.
        raise LogDamaged(path, 1, None, "its write-ahead log is there, but not its database")
    if not allowed or os.path.exists(path + ".head"):
        known = read_head(path, disk).head
        if not allowed or known is None or known.seq:
            refuse_missing(path, disk)
    _refuse_new_in_place(path)
    if not os.path.exists(path + ".head"):
        HeadFile.create(path + ".head", disk)
    create_database(path, disk)


def _refuse_new_in_place(path: str) -> None:
    """Refuse to begin a log where there was one a moment ago, led by somebody who did not let go of it."""
    left = read_holder(path)
    if left is not None and left.before:
        raise LogError(
            f"{path}: is gone, and {left.before} had it open and did not let go of it: put its files back; "
            f"or remove {path}.lock to begin a new log"
        )


def create_database(path: str, disk: Disk, anchor: Head = EMPTY) -> None:
    """An empty database in the place of any other, durable, its owner's alone; a crash leaves the old one or the new."""
    new = path + ".new"
    for suffix in ("", "-journal", "-wal", "-shm"):
        disk.remove(new + suffix)
    disk.close(disk.open(new, os.O_RDWR | os.O_CREAT))
    try:
        connection = disk.connect(_uri(new, "mode=rw"))
        try:
            database.create(connection, anchor)
            prepare_writing(connection)
        finally:
            connection.close()
    except BaseException as error:
        for suffix in ("", "-journal", "-wal", "-shm"):
            disk.remove(new + suffix)
        if isinstance(error, sqlite3.Error):
            if is_full(error):
                raise LogFull(path, disk.room(path)[0]) from error
            raise LogError(f"{path}: cannot be created: {error}") from error
        raise
    disk.rename(new, path)
    disk.sync_folder(path)


def refuse_missing(path: str, disk: Disk) -> None:
    """Raise what is to be said of a log that has no database."""
    if os.path.isdir(path):
        raise LogError(f"{path}: is a directory, not a log")
    if not os.path.isdir(os.path.dirname(path)):
        raise LogError(f"{path}: there is no directory {os.path.dirname(path)}")
    if os.path.exists(path + ".head"):
        head = read_head(path, disk).head
        if head is None or head.seq:
            raise LogDamaged(
                path, 1, head.seq if head else None, "the database is gone, its head file is not"
            )
    raise LogError(f"{path}: there is no such log")


def refuse_unfinished(path: str) -> None:
    """Raise if a repair or an import was interrupted before the new log was in its place."""
    if os.path.exists(path + ".ready"):
        raise LogDamaged(path, 1, None, "a repair or an import of it was interrupted")


def read_head(path: str, disk: Disk) -> HeadReading:
    """The content of the head file."""
    head_file = _open_head(path, disk, writable=False)
    if head_file is None:
        return NO_FILE
    try:
        return head_file.read()
    finally:
        head_file.close()


def _uri(path: str, options: str) -> str:
    escaped = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{escaped}?{options}"


def _open_head(path: str, disk: Disk, *, writable: bool) -> HeadFile | None:
    try:
        return HeadFile.open(path + ".head", disk, writable=writable)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LogError(f"{path}.head: cannot be opened: {error.strerror}") from error


def connect_writing(path: str, disk: Disk) -> sqlite3.Connection:
    """A connection with the settings that durability rests on."""
    connection = disk.connect(_uri(path, "mode=rw"))
    try:
        prepare_writing(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def has_wal(path: str) -> bool:
    """Whether there is something in its write-ahead log."""
    return _size_of(path + "-wal") > 0


def _size_of(path: str) -> int:
    """How many bytes are in a file; none where no file can be seen (any more)."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def connect_reading(path: str, disk: Disk) -> tuple[sqlite3.Connection, bool]:
    """A read-only connection, and whether it sees what others write from now on.

    A WAL database needs its -shm file, which a reader in a read-only folder, or on a full disk, cannot create. If there is a WAL, exclusive
    mode without file locks keeps the WAL's index in memory instead; if there is none, the file can be read as it is.

    So is an empty file: beside one SQLite removes the WAL, whoever opens it, and with it what was acknowledged since the last checkpoint.
    """
    otherwise = ("mode=ro&vfs=unix-none", True) if has_wal(path) else (_ALONE, False)
    ways = [("mode=ro", False), otherwise] if _size_of(path) else [(_ALONE, False)]
    problem: Exception | None = None
    for options, exclusive in ways:
        try:
            connection = disk.connect(_uri(path, options))
        except sqlite3.Error as error:
            problem = error
            continue
        try:
            if exclusive:
                connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        except UNREADABLE as error:
            if _cannot_have_index(error):
                connection.close()
                problem = error
                continue
            # Whatever is wrong with the file, the examination meets it again and names it.
        return connection, options == "mode=ro"
    raise LogError(f"{path}: cannot be opened for reading: {problem}")


def connect_alone(path: str, disk: Disk) -> sqlite3.Connection:
    """A read-only connection to the database without its write-ahead log, while nobody writes."""
    return disk.connect(_uri(path, _ALONE))


def _cannot_have_index(error: Exception) -> bool:
    """Whether SQLite could not make, or grow, the file of its index."""
    code = getattr(error, "sqlite_errorcode", 0)
    is_about_it = code & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    return is_about_it or code == sqlite3.SQLITE_IOERR_SHMOPEN or is_full(error)


def _examined(
    connection: sqlite3.Connection,
    path: str,
    head_file: HeadFile | None,
    depth: int,
    progress: Progress | None,
) -> tuple[Head, Head]:
    """The anchor and head of an existing log, or the error that says what is wrong with it.

    A writer may move the head meanwhile; then what looked like damage is looked at again, a few times.
    """
    for _ in range(ATTEMPTS):
        reading = NO_FILE if head_file is None else head_file.read()
        known = 0 if reading.head is None else reading.head.seq
        try:
            return database.examine(connection, reading, depth, progress)
        except database.NewerFormat as error:
            raise LogError(f"{path}: {error}") from error
        except (database.NotALog, *UNREADABLE, ChainBroken) as error:
            foreign = isinstance(error, database.NotALog) or (
                getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB
            )
            if foreign and not known:
                raise LogError(f"{path}: is not a tidelog log: {error}") from error
            found = database.damage(path, error, 1, None if reading.doubtful or not known else known)
        if head_file is None or head_file.read() == reading:
            break
    raise found

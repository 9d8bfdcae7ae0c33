"""Everything that the log asks of the file system, as one small object, so that tests can make each step of it fail; every fsync is here.

A commit has two: SQLite's own of its write-ahead log (`prepare_writing`), and `Disk.sync` of the head file. `Disk` is the real one;
every method may raise `OSError` (or `sqlite3.Error` for `connect`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import sys

from tidelog.api.errors import LogError


def owner_only(path: str, flags: int) -> int:
    """For `open(…, opener=owner_only)`: a new file is its owner's alone, whatever the umask allows others."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class Disk:
    """The operating system's file system."""

    def connect(self, uri: str) -> sqlite3.Connection:
        """Open a database; transactions are begun and committed by hand. One thread after another may use it."""
        return sqlite3.connect(
            uri, uri=True, isolation_level=None, timeout=5.0, cached_statements=64, check_same_thread=False
        )

    def open(self, path: str, flags: int) -> int:
        """A file descriptor; new files are the owner's alone."""
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def close(self, fd: int) -> None:
        """Let go of the file."""
        os.close(fd)

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        """Read this many bytes from this place, fewer at the end of the file."""
        return os.pread(fd, size, offset)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """All of `data`, at this place."""
        written = os.pwrite(fd, data, offset)
        if written != len(data):
            raise OSError(f"only {written} of {len(data)} bytes were written")

    def sync(self, fd: int) -> None:
        """Wait until the file's content is on the disk."""
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(fd)

    def sync_folder(self, path: str) -> None:
        """Wait until creations, renames and removals in the folder that `path` is in are on the disk."""
        fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, old: str, new: str) -> None:
        """Atomically put `old` in the place of `new`."""
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def hold(self, path: str, size: int) -> None:
        """A new file that has blocks for so many bytes."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, size)
            else:
                os.pwrite(fd, os.urandom(size), 0)
        finally:
            os.close(fd)

    def stat(self, path: str) -> os.stat_result:
        """Status of the file that has this name now."""
        return os.stat(path)

    def stat_open(self, fd: int) -> os.stat_result:
        """Status of an open file, whatever its name is by now."""
        return os.fstat(fd)

    def room(self, path: str) -> tuple[int, int]:
        """How many bytes a user may still write to the disk that `path` is on, and how large it is."""
        stat = os.statvfs(os.path.dirname(path))
        return stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize


def prepare_writing(connection: sqlite3.Connection) -> None:
    """The settings that durability rests on; they belong to the connection, not to the file."""
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise LogError(f"SQLite cannot use a write-ahead log here (it offers {mode!r}): use a local disk")
    connection.execute("PRAGMA synchronous = FULL")
    # Where an fsync only reaches the disk's cache (macOS), ask for more; elsewhere these two do nothing.
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    # Some builds overwrite what is deleted with zeros, page by page: a compaction would write as much as it frees.
    connection.execute("PRAGMA secure_delete = FAST").fetchone()
    # SQLite swallows the errors of its automatic checkpoints, a failed fsync among them; ours are run by hand.
    connection.execute("PRAGMA wal_autocheckpoint = 0")

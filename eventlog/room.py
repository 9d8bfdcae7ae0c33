"""Room on the disk: how much is kept free for what must go on when it is full.

A full disk must not end a process, and must not forbid the way out, which is to stop, to start again, and to compact. Three things see to that:

- Groups and snapshots are refused while less than `kept_free` is there: an end in good order takes less.
- SQLite, where it meets the end of the disk all the same, takes the transaction back: nothing was written, and it is tried again.
- A small file beside the log (`Reserve`) holds blocks for opening it and for the steps of a compaction, which other programs cannot take. It is
  removed when a log cannot be opened otherwise, and made again when there is room.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3

from tidelog.eventlog.disk import Disk

RESERVE_BYTES = 32 * 2**20
"""With less room than this on the disk, appends are refused before anything is written: enough for any usual group, the
checkpoint behind it, and a clean stop."""

RESERVE_PART = 20
"""… or less than a twentieth of it, where the disk is small."""

FILE_BYTES = 512 * 2**10
"""The size of the reserved file: SQLite's index of 32 KiB, and the write-ahead log of a step of a compaction, several times."""

FULL_CODES = frozenset((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE))
"""SQLite's words for a full disk; the second where its index cannot grow."""


def kept_free(size: int) -> int:
    """So much is kept free of a disk of this size."""
    return min(RESERVE_BYTES, size // RESERVE_PART)


def is_full(error: BaseException) -> bool:
    """Whether this error is one of a full disk."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    code = getattr(error, "sqlite_errorcode", 0)
    return code in FULL_CODES or code & 0xFF == sqlite3.SQLITE_FULL


def is_busy(error: BaseException) -> bool:
    """Whether this error says that another program has the database in a transaction."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


class Reserve:
    """The file that holds blocks. Best effort: whoever cannot have it works without."""

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path + ".reserve"
        self._log = path
        self._disk = disk

    def make(self, *, beside: bool = True) -> None:
        """Have it, if there is room for it, `beside` what is kept free or within that."""
        if os.path.exists(self._path):
            return
        try:
            free, size = self._disk.room(self._log)
            free -= kept_free(size) if beside else 0
            if free >= FILE_BYTES or (free >= FILE_BYTES // 2 and not beside):
                self._disk.hold(self._path, min(FILE_BYTES, free))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def release(self) -> bool:
        """Give the blocks back; whether there were any."""
        if not os.path.exists(self._path):
            return False
        with contextlib.suppress(OSError):
            os.unlink(self._path)
            return True
        return False

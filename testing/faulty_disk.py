"""A disk that tests can watch and break: every step that changes something on it is announced before and after.

The hook may raise (the step fails, or fails after it was done), or copy the files as a crash at this very moment would leave
them. Used by the tests of the log and of whatever stands on it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Any

from tidelog.eventlog.disk import Disk

Hook = Callable[[str], None]
"""Called with `before sync`, `after sync` and so on; the steps are those of `Disk`, and of SQL begin, insert, commit,
checkpoint and other."""

_SQL_STEPS = {
    "BEGIN": "begin",
    "INSERT": "insert",
    "COMMIT": "commit",
    "DELETE": "delete",
    "VACUUM": "vacuum",
}


def sqlite_error(code: int) -> sqlite3.OperationalError:
    """The error that SQLite raises with this result code."""
    error = sqlite3.OperationalError(f"simulated error {code}")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "SIMULATED"
    return error


class FaultyDisk(Disk):
    """The real disk, with a hook around every step."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def connect(self, uri: str) -> sqlite3.Connection:
        hook = self._hook

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
                word = sql.partition(" ")[0]
                step = "checkpoint" if "wal_checkpoint" in sql else _SQL_STEPS.get(word)
                if step is None or sql == "BEGIN":
                    return super().execute(sql, *args)
                hook(f"before {step}")
                cursor = super().execute(sql, *args)
                hook(f"after {step}")
                return cursor

        return sqlite3.connect(
            uri, uri=True, isolation_level=None, timeout=5.0, cached_statements=64, factory=Connection
        )

    def open(self, path: str, flags: int) -> int:
        if not flags & os.O_CREAT:
            return super().open(path, flags)
        self._hook("before create")
        fd = super().open(path, flags)
        self._hook("after create")
        return fd

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        self._hook("before write")
        super().write_at(fd, data, offset)
        self._hook("after write")

    def sync(self, fd: int) -> None:
        self._hook("before sync")
        super().sync(fd)
        self._hook("after sync")

    def sync_folder(self, path: str) -> None:
        self._hook("before sync_folder")
        super().sync_folder(path)
        self._hook("after sync_folder")

    def rename(self, old: str, new: str) -> None:
        self._hook("before rename")
        super().rename(old, new)
        self._hook("after rename")

    def remove(self, path: str) -> None:
        self._hook("before remove")
        super().remove(path)
        self._hook("after remove")

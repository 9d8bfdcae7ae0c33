"""A log built aside, from records that are known to be good, and then put in its place at once: for repair and import.

    build      <log>.ready.new, <log>.ready.head
    commit     rename <log>.ready.new to <log>.ready: from here on it can only be finished
    install    old -wal, head and database become <log>.damaged-N…, then the new head and database take their names

While `<log>.ready` is there the log does not open, and `install` may be run again after a crash at any step of it. The old
write-ahead log is moved away first: SQLite would apply it to the new database.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from functools import partial

from tidelog.api.errors import LogError
from tidelog.eventlog import database, opening
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.head_file import HeadFile
from tidelog.eventlog.records import Record
from tidelog.eventlog.store import Head, Snapshot, advance, parts_of


class Rebuild:
    """The log under construction; used by one thread. Nothing is seen of it before `commit`."""

    def __init__(self, path: str, disk: Disk, anchor: Head) -> None:
        self.head = anchor
        self._path = path
        self._disk = disk
        self._new = path + ".ready.new"
        self._connection: sqlite3.Connection | None = None
        self._is_committed = False
        self._remove()
        try:
            opening.create_database(self._new, disk, anchor)
            self._connection = opening.connect_writing(self._new, disk)
        except BaseException:
            self._remove()
            raise

    def add(self, records: Sequence[Record]) -> None:
        """Append records that were checked against the chain."""
        assert self._connection is not None
        database.transaction(self._connection, partial(database.insert, self._connection, records))
        for record in records:
            self.head = advance(self.head, record)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add a snapshot that is sound."""
        assert self._connection is not None
        connection = self._connection

        def put() -> None:
            for number, data in enumerate(parts_of(snapshot.pieces, database.PART_BYTES)):
                database.put_part(connection, snapshot.name, snapshot.seq, number, data)
            database.finish_snapshot(connection, snapshot)

        database.transaction(connection, put)

    def commit(self) -> None:
        """Make it durable and complete; `install` is all that is left."""
        assert self._connection is not None
        self._connection.close()
        self._connection = None
        HeadFile.create(self._path + ".ready.head", self._disk, self.head)
        self._disk.rename(self._new, self._path + ".ready")
        self._is_committed = True
        self._disk.sync_folder(self._path)

    def close(self) -> None:
        """Throw away what was built, unless it was committed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if not self._is_committed:
            self._remove()

    def _remove(self) -> None:
        """Of an earlier one, too, that was killed while it made its database."""
        for suffix in ("", "-wal", "-shm"):
            self._disk.remove(self._new + suffix)
            self._disk.remove(f"{self._new}.new{suffix}")
        for suffix in ("", ".new") if not is_ready(self._path) else ():
            self._disk.remove(f"{self._path}.ready.head{suffix}")


def is_ready(path: str) -> bool:
    """Whether a rebuilt log waits to be put in its place."""
    return os.path.exists(path + ".ready")


def install(path: str, disk: Disk) -> str:
    """Put the rebuilt log in its place; returns the name under which the old database is kept, "" if there was none."""
    try:
        number = 1
        while os.path.exists(f"{path}.damaged-{number}"):
            number += 1
        backup = f"{path}.damaged-{number}"
        disk.remove(path + "-shm")
        for old, kept in (("-wal", "-wal"), (".head", "-head"), ("", "")):
            new_head_is_there = old == ".head" and not os.path.exists(path + ".ready.head")
            if os.path.exists(path + old) and not new_head_is_there:
                disk.rename(path + old, backup + kept)
                disk.sync_folder(path)
        if os.path.exists(path + ".ready.head"):
            disk.rename(path + ".ready.head", path + ".head")
        disk.rename(path + ".ready", path)
        disk.sync_folder(path)
    except OSError as error:
        raise LogError(f"{path}: the rebuilt log cannot be put in its place: {error}; try again") from error
    return backup if os.path.exists(backup) else ""

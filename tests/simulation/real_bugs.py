"""Deliberate bugs of the product's own store, which only stories on the real one can show. As in `mutations.py`."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.simulation.bug import Bug, Place, broken
from tidelog.eventlog import database, opening
from tidelog.eventlog.identity import Identity
from tidelog.eventlog.lock import WriterLock
from tidelog.eventlog.sqlite import SqliteStore


def _bug(*places: Place) -> Bug:
    return lambda: broken(*places)


def _nothing(right: Any) -> Any:
    return lambda *_, **__: None


def _lazy(right: Any) -> Any:
    """SQLite syncs the write-ahead log at checkpoints only."""

    def prepare(connection: Any) -> None:
        right(connection)
        connection.execute("PRAGMA synchronous = NORMAL")

    return prepare


def _head_first(right: Any) -> Any:
    """The head file names records before they are there."""

    def commit(self: SqliteStore, connection: Any, records: Any, head: Any) -> None:
        self._head_file.write(head)
        database.transaction(connection, partial(self._insert, connection, records))

    return commit


def _blind(right: Any) -> Any:
    """Records are added without a look at the one that they follow."""
    return lambda self, connection, records: database.insert(connection, records)


def _drop_blindly(right: Any) -> Any:
    """Who compacts does not look whether somebody else has compacted since."""
    return lambda self, connection, anchor: database.compact(connection, anchor)


def _anchor_behind(right: Any) -> Any:
    """A compaction forgets one record more than its anchor says."""

    def compact(connection: Any, anchor: Any) -> None:
        right(connection, anchor)
        connection.execute("DELETE FROM records WHERE seq <= ?", (anchor.seq + 1,))

    return compact


def _resurrect(right: Any) -> Any:
    """A compaction leaves snapshots from before its anchor."""

    def compact(connection: Any, anchor: Any) -> None:
        kept = connection.execute("SELECT * FROM snapshots WHERE seq < ?", (anchor.seq,)).fetchall()
        right(connection, anchor)
        connection.executemany("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", kept)

    return compact


BUGS: dict[str, Bug] = {
    "do not sync commits": _bug((opening, "prepare_writing", _lazy)),
    "name the head before its records": _bug((SqliteStore, "_commit", _head_first)),
    "lose the lock and write on": _bug(
        (WriterLock, "check", _nothing),
        (SqliteStore, "_insert", _blind),
        *((Identity, name, _nothing) for name in ("check", "check_before_commit", "confirm")),
    ),
    "drop without looking for another who has": _bug(
        (SqliteStore, "_drop", _drop_blindly),
        (SqliteStore, "_check_anchor", _nothing),
        (SqliteStore, "_check_own", lambda right: _never),
        *((Identity, name, _nothing) for name in ("check", "check_before_commit", "confirm")),
        (WriterLock, "check", _nothing),
    ),
    "drop one record too many": _bug((database, "compact", _anchor_behind)),
    "keep snapshots from before the anchor": _bug((database, "compact", _resurrect)),
}


async def _never(*_: Any) -> None:
    return None

"""The SQL of a log in a database: records, snapshots, and the lease that fences every change of them.

An append is one statement, and so one transaction and one trip:

    held    the lease, if it still has our term; locked so that it cannot be taken until this is committed (FOR KEY SHARE)
    moved   the head, if it is where we left it
    added   the records
            a wake-up for those who follow

Whatever its outcome, it can be told afterwards from the head alone: the digest of the last record names all that came before it.
Rows are in the order of `Row`. PostgreSQL's text cannot hold a zero byte, so that one is written as `\\0`, and a backslash twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import asyncpg

from tidelog.eventlog.database import PART_BYTES, checked_anchor
from tidelog.eventlog.postgres.schema import set_anchor
from tidelog.eventlog.records import Record, Row
from tidelog.eventlog.store import (
    BETWEEN,
    ROWS_PER_READ,
    Head,
    Snapshot,
    SnapshotInfo,
    parts_of,
    superfluous,
)

_APPEND = """
WITH held AS MATERIALIZED (SELECT term FROM lease WHERE term = $1 FOR KEY SHARE),
moved AS (
  UPDATE head SET seq = $2, at = $3, epoch = $4, digest = $5 FROM held
  WHERE head.seq = $6 AND head.digest = $7 RETURNING head.seq),
added AS (
  INSERT INTO records SELECT r.* FROM moved, unnest(
    $8::bigint[], $9::bigint[], $10::text[], $11::text[], $12::text[], $13::bigint[], $14::bytea[], $15::bytea[]) AS r
  RETURNING 1)
SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM added), (SELECT pg_notify($16, '') FROM moved)
"""
_HELD = "SELECT holder FROM lease WHERE term = $1 FOR KEY SHARE"
CONFIRM = (
    "UPDATE lease SET renewed = renewed + 1 WHERE term = $1 "
    "AND EXISTS (SELECT 1 FROM head WHERE head.seq = $2 AND head.digest = $3)"
)
ENDS = "SELECT h.seq, h.at, h.epoch, h.digest, a.seq, a.at, a.epoch, a.digest, a.checked FROM head h CROSS JOIN anchor a"
HEAD = "SELECT seq, at, epoch, digest FROM head"
SELECT = (
    "SELECT seq, at, author, kind, key, cause, body, digest FROM records WHERE seq >= $1 AND seq <= $2 ORDER BY seq LIMIT "
    + str(ROWS_PER_READ)
)
SPAN = "SELECT min(seq), max(seq) FROM records WHERE key = $1 AND seq <= $2"
SNAPSHOTS = 'SELECT name, seq, size FROM snapshots ORDER BY name COLLATE "C", seq'

_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
Connection: TypeAlias = asyncpg.Connection


class Superseded(Exception):
    """The lease is another's."""


class Moved(Exception):
    """The head, or the anchor, is not where we left it."""


def put_text(text: str) -> str:
    """As it is stored."""
    if "\\" in text or "\0" in text:
        return text.replace("\\", "\\\\").replace("\0", "\\0")
    return text


def got_text(text: str) -> str:
    """As it was."""
    return _ESCAPED.sub(lambda found: "\0" if found[1] == "0" else found[1], text) if "\\" in text else text


def row_of(found: Sequence[Any]) -> Row:
    """A row as the log knows it."""
    seq, at, author, kind, key, cause, body, digest = found
    return (seq, at, got_text(author), kind, got_text(key), cause, body, digest)


async def append(
    connection: Connection, term: int, before: Head, records: Sequence[Record], head: Head, channel: str
) -> None:
    """Add the records behind `before`, which must be the head, under the lease of this term."""
    held, added, _ = await connection.fetchrow(
        _APPEND, term, head.seq, head.at, head.epoch, head.digest, before.seq, before.digest,
        [record.seq for record in records], [record.at for record in records],
        [put_text(record.author) for record in records], [record.kind for record in records],
        [put_text(record.key) for record in records], [record.cause for record in records],
        [record.body for record in records], [record.digest for record in records], channel,
    )  # fmt: skip
    if not held:
        raise Superseded
    if added != len(records):
        raise Moved


async def confirm(connection: Connection, term: int, head: Head) -> None:
    """Commit something behind this head: it is then where this is, on the standbys, too. Raises `Moved` where the head is another, on a server
    that has replaced the one on which it was found, too."""
    if await connection.execute(CONFIRM, term, head.seq, head.digest) != "UPDATE 1":
        raise Moved


async def hold(connection: Connection, term: int) -> None:
    """Let nobody take the lease until the transaction under way ends."""
    if await connection.fetchrow(_HELD, term) is None:
        raise Superseded


def head_of(row: Sequence[Any]) -> Head:
    """The head in a row of its table."""
    return Head(row[0], row[1], row[2], row[3])


def anchor_of(row: Sequence[Any]) -> Head:
    """The anchor in a row of `ENDS`, checked."""
    return checked_anchor([row[4:9]])


async def compact(connection: Connection, term: int, before: Head, anchor: Head) -> None:
    """Drop the records up to the new anchor, if `before` is the old one."""
    async with connection.transaction():
        await hold(connection, term)
        row = await connection.fetchrow("SELECT seq, digest FROM anchor")
        if row is None or (row[0], row[1]) != (before.seq, before.digest):
            raise Moved
        await connection.execute("DELETE FROM records WHERE seq <= $1", anchor.seq)
        await connection.execute("DELETE FROM snapshots WHERE seq < $1", anchor.seq)
        await set_anchor(connection, anchor)


# --- snapshots ------------------------------------------------------------------------------------------------------


async def drop_snapshot(connection: Connection, term: int, name: str, seq: int) -> None:
    """Remove a snapshot, whole or half-written."""
    async with connection.transaction():
        await hold(connection, term)
        await connection.execute("DELETE FROM snapshots WHERE name = $1 AND seq = $2", name, seq)
        await connection.execute("DELETE FROM parts WHERE name = $1 AND seq = $2", name, seq)


async def put_part(connection: Connection, term: int, name: str, seq: int, part: int, data: bytes) -> None:
    """Add a part, or put it again."""
    async with connection.transaction():
        await hold(connection, term)
        await connection.execute(
            "INSERT INTO parts VALUES ($1, $2, $3, $4) ON CONFLICT (name, seq, part) DO UPDATE SET data = excluded.data",
            name, seq, part, data,
        )  # fmt: skip


async def finish_snapshot(connection: Connection, term: int, snapshot: Snapshot) -> None:
    """Make a snapshot whose parts are all there visible, and drop older ones."""
    name = snapshot.name
    async with connection.transaction():
        await hold(connection, term)
        await insert_snapshot(connection, snapshot)
        seqs, whole = await _seqs(connection, name), await _seqs(connection, name.removesuffix(BETWEEN))
        dropped = superfluous(name, seqs, whole)
        await connection.execute(
            "DELETE FROM snapshots WHERE name = $1 AND seq = ANY($2::bigint[])", name, dropped
        )


async def insert_snapshot(connection: Connection, snapshot: Snapshot) -> None:
    """Add its row, within the transaction under way; the same again changes nothing."""
    size = snapshot.size
    await connection.execute(
        "INSERT INTO snapshots VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (name, seq) DO NOTHING",
        snapshot.name, snapshot.seq, snapshot.chain, snapshot.digest, size, -(-size // PART_BYTES),
    )  # fmt: skip


async def _seqs(connection: Connection, name: str) -> list[int]:
    rows = await connection.fetch("SELECT seq FROM snapshots WHERE name = $1 ORDER BY seq", name)
    return [row[0] for row in rows]


async def sweep(connection: Connection, term: int) -> None:
    """Remove the parts of snapshots that are not there (any more). Only whoever writes snapshots may, between two of them."""
    async with connection.transaction():
        await hold(connection, term)
        await connection.execute(
            "DELETE FROM parts p WHERE NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.name = p.name AND s.seq = p.seq)"
        )


async def get_snapshot(connection: Connection, name: str, seq: int) -> Snapshot | None:
    """A snapshot, unchecked."""
    row = await connection.fetchrow(
        "SELECT chain, digest FROM snapshots WHERE name = $1 AND seq = $2", name, seq
    )
    if row is None:
        return None
    parts = await connection.fetch(
        "SELECT data FROM parts WHERE name = $1 AND seq = $2 ORDER BY part", name, seq
    )
    blob = b"".join(part[0] for part in parts)
    return Snapshot(name=name, seq=seq, chain=row[0], pieces=(blob,), digest=row[1])


async def list_snapshots(connection: Connection) -> list[SnapshotInfo]:
    """All snapshots, by name and seq."""
    return [
        SnapshotInfo(name=name, seq=seq, size=size) for name, seq, size in await connection.fetch(SNAPSHOTS)
    ]


# --- filling a new log ----------------------------------------------------------------------------------------------

COLUMNS = ("seq", "at", "author", "kind", "key", "cause", "body", "digest")


async def copy_records(connection: Connection, records: Sequence[Record], schema: str) -> None:
    """Add many rows, within the transaction under way."""
    rows = [
        (r.seq, r.at, put_text(r.author), r.kind, put_text(r.key), r.cause, r.body, r.digest) for r in records
    ]
    await connection.copy_records_to_table("records", records=rows, columns=COLUMNS, schema_name=schema)


async def copy_snapshot(connection: Connection, snapshot: Snapshot) -> None:
    """Add a whole snapshot, within the transaction under way."""
    for number, data in enumerate(parts_of(snapshot.pieces, PART_BYTES)):
        await connection.execute(
            "INSERT INTO parts VALUES ($1, $2, $3, $4)", snapshot.name, snapshot.seq, number, data
        )
    await insert_snapshot(connection, snapshot)

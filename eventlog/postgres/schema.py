"""The tables of a log in a database, and what its server promises.

    about      (version, log_id, made)                                  one row: which log this is, and who can read it
    head       (seq, at, epoch, digest)                                 one row: where the log ends; an append moves it or is none
    lease      (term, holder, serving, renewed, seconds, expires)       one row: who may append, by the database's clock
    records    (seq, at, author, kind, key, cause, body, digest)        the log
    anchor     (seq, at, epoch, digest, checked)                        one row: what the first kept record is chained to
    snapshots  (name, seq, chain, digest, size, parts)                  written when all its parts are there
    parts      (name, seq, part, data)
    followers  (name, holder, seq, seen)                                the standbys, once a second
    requests   (id, sent, message, taken, answer)                       facts on their way to whoever leads, and back

All are in one schema (`?schema=`, by default `tidelog`), so that a database may hold several logs. `tidelog log init` makes them; nothing else does
but `tidelog log import`, which makes a new log. A log of a newer version is refused.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import NamedTuple

import asyncpg

from tidelog.api.errors import LogError, UsageError
from tidelog.eventlog.address import LogAddress
from tidelog.eventlog.database import anchor_row
from tidelog.eventlog.postgres.address import DatabaseAddress, parse_address
from tidelog.eventlog.postgres.session import Session
from tidelog.eventlog.socket import FRAME_BYTES_MAX
from tidelog.eventlog.store import EMPTY, Head

VERSION = 1

TABLES = (
    (
        "CREATE TABLE about (one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL, log_id text NOT NULL, "
        "made timestamptz NOT NULL DEFAULT clock_timestamp())"
    ),
    (
        "CREATE TABLE head (one boolean PRIMARY KEY DEFAULT true CHECK (one), seq bigint NOT NULL, at bigint NOT NULL, "
        "epoch bigint NOT NULL, digest bytea NOT NULL) WITH (fillfactor = 10)"
    ),
    # The term is the key, so that only a change of it has to wait for an append (FOR KEY SHARE), and a renewal has not.
    (
        "CREATE TABLE lease (term bigint PRIMARY KEY, holder text NOT NULL, serving boolean NOT NULL, renewed bigint NOT NULL, "
        "seconds float8 NOT NULL, expires timestamptz NOT NULL) WITH (fillfactor = 10)"
    ),
    (
        "CREATE TABLE records (seq bigint PRIMARY KEY, at bigint NOT NULL, author text NOT NULL, kind text NOT NULL, "
        "key text NOT NULL, cause bigint NOT NULL, body bytea NOT NULL, digest bytea NOT NULL)"
    ),
    "CREATE TABLE anchor (seq bigint NOT NULL, at bigint NOT NULL, epoch bigint NOT NULL, digest bytea NOT NULL, checked bytea NOT NULL)",
    (
        "CREATE TABLE snapshots (name text NOT NULL, seq bigint NOT NULL, chain bytea NOT NULL, digest bytea NOT NULL, "
        "size bigint NOT NULL, parts bigint NOT NULL, PRIMARY KEY (name, seq))"
    ),
    (
        "CREATE TABLE parts (name text NOT NULL, seq bigint NOT NULL, part bigint NOT NULL, data bytea NOT NULL, "
        "PRIMARY KEY (name, seq, part))"
    ),
    (
        "CREATE TABLE followers (name text PRIMARY KEY, holder text NOT NULL, seq bigint NOT NULL, "
        "seen timestamptz NOT NULL DEFAULT clock_timestamp())"
    ),
    (
        f"CREATE TABLE requests (id text PRIMARY KEY, sent timestamptz NOT NULL DEFAULT clock_timestamp(), "
        f"message bytea NOT NULL CHECK (octet_length(message) <= {FRAME_BYTES_MAX + 4}), taken bigint, answer bytea)"
    ),
)

READ_BY = ("about", "head", "lease", "records", "anchor", "snapshots", "parts", "followers")
WRITTEN_BY_READERS = ("requests", "followers")
"""A reader may hand in facts, which the leader admits or refuses, and say that it follows."""


class DatabaseServer(NamedTuple):
    """Settings of the server that keeps a log."""

    version: str
    warnings: tuple[str, ...]
    """Promises that it does not make, a sentence each."""


class Initialized(NamedTuple):
    """The result of `initialize`."""

    name: str
    made: bool
    """False: there was one already."""
    log_id: str
    server: DatabaseServer


async def initialize(
    text: LogAddress, *, grant: tuple[str, ...] = (), grant_reading: tuple[str, ...] = ()
) -> Initialized:
    """Make the schema and an empty log, if there is none; and give these roles the rights that a leader or standby, or a reader, needs."""
    address = parse_address(text)
    session = Session(address, "tidelog log init")
    try:
        made = await session.persist(lambda connection: _initialize(connection, address), patience=0)
        log_id = await session.persist(lambda connection: check_version(connection, address), patience=0)
        for roles, statements in ((grant, _WRITER), (grant_reading, _READER)):
            for role in roles:
                await session.persist(partial(_grant, address, role, statements), patience=0)
        server = await session.persist(look_at_server, patience=0)
    finally:
        await session.close()
    return Initialized(address.name, made, log_id, server)


async def _initialize(connection: asyncpg.Connection, address: DatabaseAddress) -> bool:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext($1))", address.channel)
        if await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f'"{address.schema}".about'):
            return False
        if await connection.fetchval("SHOW server_encoding") != "UTF8":
            raise LogError(
                f"{address.name}: the database's encoding is not UTF8: createdb --encoding UTF8 --template template0"
            )
        # Not IF NOT EXISTS where it exists: that would ask for a right to make schemas.
        if not await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", address.schema):
            await connection.execute(f'CREATE SCHEMA "{address.schema}"')
        for statement in TABLES:
            await connection.execute(statement)
        await connection.execute(
            "INSERT INTO about (version, log_id) VALUES ($1, $2)", VERSION, uuid.uuid4().hex
        )
        await connection.execute("INSERT INTO lease VALUES (0, '', false, 0, 0, clock_timestamp())")
        await set_ends(connection, EMPTY, EMPTY)
    return True


async def set_ends(connection: asyncpg.Connection, anchor: Head, head: Head) -> None:
    """Write the two rows between which the records are, within the transaction under way."""
    await connection.execute("DELETE FROM head")
    await connection.execute(
        "INSERT INTO head (seq, at, epoch, digest) VALUES ($1, $2, $3, $4)",
        head.seq,
        head.at,
        head.epoch,
        head.digest,
    )
    await set_anchor(connection, anchor)


async def set_anchor(connection: asyncpg.Connection, anchor: Head) -> None:
    """Write the anchor, within the transaction under way."""
    await connection.execute("DELETE FROM anchor")
    await connection.execute("INSERT INTO anchor VALUES ($1, $2, $3, $4, $5)", *anchor_row(anchor))


_WRITER = (
    'GRANT USAGE ON SCHEMA "{schema}" TO {role}',
    'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO {role}',
)
_READER = (
    'GRANT USAGE ON SCHEMA "{schema}" TO {role}',
    "GRANT SELECT ON " + ", ".join(READ_BY) + " TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON " + ", ".join(WRITTEN_BY_READERS) + " TO {role}",
)


async def _grant(
    address: DatabaseAddress, role: str, statements: tuple[str, ...], connection: asyncpg.Connection
) -> None:
    if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role):
        raise UsageError(
            f"--grant {role}: {address.name}: the server has no such role: make it with `createuser`"
        )
    quoted = await connection.fetchval("SELECT quote_ident($1)", role)
    async with connection.transaction():
        for statement in statements:
            await connection.execute(statement.format(schema=address.schema, role=quoted))


async def check_version(connection: asyncpg.Connection, address: DatabaseAddress) -> str:
    """The log's id. Raises LogError for a log of a newer version, or where there is none."""
    row = await connection.fetchrow("SELECT version, log_id FROM about")
    if row is None:
        raise LogError(f"{address.name}: there is no log: its table `about` is empty; restore a backup")
    if row[0] != VERSION:
        raise LogError(
            f"{address.name}: it has version {row[0]} of the tables, and this tidelog knows {VERSION}: use a newer tidelog"
        )
    return str(row[1])


# --- the server's promises ------------------------------------------------------------------------------------------


async def look_at_server(connection: asyncpg.Connection) -> DatabaseServer:
    """The server's version, and what it does not promise."""
    shown = {
        name: await connection.fetchval("SELECT current_setting($1, true)", name) or ""
        for name in (
            "server_version",
            "fsync",
            "full_page_writes",
            "data_checksums",
            "synchronous_commit",
            "synchronous_standby_names",
        )
    }
    standbys = await connection.fetchval("SELECT count(*) FROM pg_stat_replication")
    return DatabaseServer(shown["server_version"], tuple(_missing(shown, int(standbys or 0))))


def _missing(shown: dict[str, str], standbys: int) -> list[str]:
    found = []
    if shown["fsync"] == "off":
        found.append(
            "fsync is off: a crash of its machine may lose or damage acknowledged records; set fsync = on"
        )
    if shown["full_page_writes"] == "off":
        found.append(
            "full_page_writes is off: a crash of its machine may damage the log, unless the file system writes pages whole"
        )
    if shown["data_checksums"] == "off":
        found.append(
            "it has no page checksums: damage is noticed when a record is read, not before (pg_checksums --enable)"
        )
    if standbys and not shown["synchronous_standby_names"]:
        found.append(
            "its standbys are asynchronous: a failover may lose acknowledged records, which is noticed, not prevented; "
            "set synchronous_standby_names"
        )
    if shown["synchronous_standby_names"] and shown["synchronous_commit"] in ("local", "off"):
        found.append(
            f"synchronous_commit is {shown['synchronous_commit']}: it does not wait for its standbys; tidelog's own sessions set it to on"
        )
    return found


async def prepare_writing(connection: asyncpg.Connection) -> None:
    """Ask for what an acknowledgement promises, whatever the server's default is."""
    if await connection.fetchval("SHOW synchronous_commit") not in ("on", "remote_apply"):
        await connection.execute("SET synchronous_commit = on")

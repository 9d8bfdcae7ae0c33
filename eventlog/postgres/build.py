"""A new log in a database, filled by an import: one transaction, of which nothing is seen before its end.

Used by a thread of its own, as `Rebuild` is, and so it has an event loop of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

import asyncpg

from tidelog.api.errors import LogError
from tidelog.eventlog.address import LogAddress
from tidelog.eventlog.postgres import statements
from tidelog.eventlog.postgres.address import parse_address
from tidelog.eventlog.postgres.lease import Lease
from tidelog.eventlog.postgres.schema import initialize, prepare_writing, set_ends
from tidelog.eventlog.postgres.session import LONG_SECONDS, ConnectionLost, Session, Work
from tidelog.eventlog.postgres.store import holder_name
from tidelog.eventlog.records import Record
from tidelog.eventlog.store import EMPTY, Head, Snapshot, advance

T = TypeVar("T")


class DatabaseBuild:
    """The log under construction. Makes the tables, if they are not there; refuses a log that has records."""

    def __init__(self, text: LogAddress, anchor: Head) -> None:
        self.head = anchor
        self._anchor = anchor
        self._address = parse_address(text)
        self._runner = asyncio.Runner()
        self._session = Session(self._address, "tidelog log import", prepare_writing)
        self._lease: Lease | None = None
        self._transaction: Any = None
        try:
            self._runner.run(self._begin(text))
        except BaseException:
            self.close()
            raise

    async def _begin(self, text: LogAddress) -> None:
        await initialize(text)
        self._lease = await Lease.take(self._session, self._address, holder_name("tidelog log import"))
        await self._session.call(self._open)

    async def _open(self, connection: asyncpg.Connection) -> None:
        assert self._lease is not None
        self._transaction = connection.transaction()
        await self._transaction.start()
        await statements.hold(connection, self._lease.term)
        row = await connection.fetchrow(statements.ENDS)
        if row is None or statements.head_of(row) != EMPTY:
            raise LogError(f"{self._address.name}: is there already; import makes a new log")

    def _do(self, work: Work[T]) -> T:
        async def within(connection: asyncpg.Connection) -> T:
            if not connection.is_in_transaction():
                raise ConnectionLost("the transaction ended")  # This is a new connection.
            return await work(connection)

        try:
            return self._runner.run(self._session.call(within, LONG_SECONDS))
        except ConnectionLost as error:
            raise LogError(
                f"{self._address.name}: the database was lost ({error}); nothing was imported"
            ) from error

    def add(self, records: Sequence[Record]) -> None:
        """Append records that were checked against the chain."""
        schema = self._address.schema
        self._do(lambda c: statements.copy_records(c, records, schema))
        for record in records:
            self.head = advance(self.head, record)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add a snapshot that is sound."""
        self._do(lambda c: statements.copy_snapshot(c, snapshot))

    def commit(self) -> None:
        """Make it durable and complete."""
        self._do(self._commit)

    async def _commit(self, connection: asyncpg.Connection) -> None:
        await set_ends(connection, self._anchor, self.head)
        await self._transaction.commit()

    def close(self) -> None:
        """Throw away what was built, unless it was committed: the server does, when the connection ends."""
        self._runner.run(self._close())
        self._runner.close()

    async def _close(self) -> None:
        await self._session.close()
        if self._lease is not None:
            await self._lease.release()

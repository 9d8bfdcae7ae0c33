"""The log in a PostgreSQL database, for the one process that holds its lease.

    append ──► one statement (`statements.append`) ──► committed ──► the witness ──► answered
                  │ the connection was lost: nobody knows
                  └──► again, on a new connection, until the head tells:
                         it is the group's own      it was committed, then or now: committed once more beside it, and answered
                         it is where we left it     it was not: the same group again
                         it is behind that          the server went back in time: LogDamaged, the end
                         the lease is another's     superseded, the end
                       and at the end of patience: the end, with nothing acknowledged

The end is fail-stop, as with a file: nothing is acknowledged of which nobody knows whether it is there.

Three sessions: appends, reading, the lease. So neither a snapshot nor a long read holds up a group, and none of them the renewal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import asyncpg

from tidelog.api.errors import LogBusy, LogError, LogFull, LogUnreachable
from tidelog.eventlog.address import LogAddress
from tidelog.eventlog.database import PART_BYTES
from tidelog.eventlog.postgres import statements
from tidelog.eventlog.postgres.address import DatabaseAddress, parse_address
from tidelog.eventlog.postgres.lease import Lease
from tidelog.eventlog.postgres.reading import DatabaseReading, ends_examined, ends_of, went_back
from tidelog.eventlog.postgres.schema import check_version, look_at_server, prepare_writing
from tidelog.eventlog.postgres.session import ANSWER_SECONDS, RETRY_SECONDS, ConnectionLost, Session, clock
from tidelog.eventlog.postgres.statements import Moved, Superseded
from tidelog.eventlog.postgres.witness import Witness
from tidelog.eventlog.records import Record
from tidelog.eventlog.store import Head, Snapshot, parts_of

_log = logging.getLogger("tidelog.log")

DAEMONS = ("tidelog run", "tidelog serve")
"""They are told on their first lines what the server does not promise."""
HEAD_AND_TERM = "SELECT h.seq, h.at, h.epoch, h.digest, l.term FROM head h CROSS JOIN lease l"

T = TypeVar("T")


def holder_name(what: str) -> str:
    """How this process is called while it holds the lease; no other one is called so."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return f"process {os.getpid()} on {socket.gethostname()} ({what or 'tidelog'}, since {since}, {uuid.uuid4().hex[:8]})"


class PostgresStore(DatabaseReading):
    """A log opened for writing; holds the lease until it is closed."""

    def __init__(
        self,
        address: DatabaseAddress,
        writer: Session,
        reader: Session,
        lease: Lease,
        witness: Witness,
        anchor: Head,
        head: Head,
    ) -> None:
        super().__init__(address, reader, witness, anchor, head)
        self.lease = lease
        self._writer = writer
        self._failure: LogError | None = None
        self._closed = False

    @classmethod
    async def open(cls, text: LogAddress, *, what: str = "") -> PostgresStore:
        """Take the lease of an existing log, and open it. Raises `LogLocked`, `LogUnreachable`, `LogDamaged`, or `LogError` where there is none."""
        address = parse_address(text)
        holder = holder_name(what)
        writer, reader = Session(address, what, prepare_writing), Session(address, what, prepare_writing)
        lease = witness = None
        try:
            log_id = await writer.persist(lambda c: check_version(c, address), patience=0)
            lease = await Lease.take(writer, address, holder)
            witness = Witness(log_id, address.name)
            anchor, head = await ends_examined(writer, address.name, witness)
            if what in DAEMONS:
                await _warn(writer)
            # The witness hears of this head with the first group that is acknowledged: what is only read may not be on the standbys yet.
            return cls(address, writer, reader, lease, witness, anchor, head)
        except BaseException:
            if witness is not None:
                witness.close()
            if lease is not None:
                await lease.release()
            await asyncio.gather(writer.close(), reader.close())
            raise

    def refresh(self) -> Head:
        """As in `Store`: nobody else can move the head."""
        return self.head

    async def reload(self) -> None:
        """As in `Store`: nobody else compacts."""

    def check_room(self) -> None:
        """As in `Store`: what the renewals have found."""
        self._check_writable()

    async def check(self) -> None:
        """As in `Store`: what the renewals have found."""
        self._check_writable()

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise LogError(str(self._failure)) from self._failure
        if self._closed:
            raise LogError(f"{self.name}: the log is closed")
        self.lease.check()

    async def append(self, records: Sequence[Record], head: Head) -> None:
        """As in `Store`."""
        self._check_writable()
        try:
            await self._append(records, head)
        except (LogFull, LogBusy):
            raise  # It was not begun.
        except LogError as error:
            self._failure = error
            raise
        except BaseException:
            self._failure = LogError(f"{self.name}: writing was interrupted; start again")
            raise
        self.head = head
        self.witness.saw(head)

    async def _append(self, records: Sequence[Record], head: Head) -> None:
        async def work(connection: asyncpg.Connection) -> None:
            await statements.append(
                connection, self.lease.term, self.head, records, head, self.address.channel
            )

        deadline: float | None = None
        while True:
            try:
                await self._writer.call(work, ANSWER_SECONDS)
                if not self._writer.unconfirmed:
                    return
                # A commit whose wait for the standbys was cancelled.
                await self._confirm(head)
                return
            except (Superseded, Moved):
                if await self._is_committed(head):
                    return
            except (ConnectionLost, LogUnreachable) as error:
                now = clock()
                if deadline is None:
                    deadline = now + self.address.patience_seconds
                    _log.warning(
                        "the database was lost while a group was written, asking what became of it",
                        extra={"fields": {"log": self.name, "error": str(error)}},
                    )
                if now >= deadline:
                    raise LogError(
                        f"{self.name}: the database server was lost ({error}), and for {self.address.patience_seconds:.0f} s could not be asked "
                        "what became of the last group: nothing more is written or acknowledged; see that it runs, and start again"
                    ) from error
                await asyncio.sleep(RETRY_SECONDS)

    async def _is_committed(self, head: Head) -> bool:
        """Whether the group is in the log, where the statement has found that it cannot add it; raises what else it means."""
        while True:
            rows = await self._writer.rows(HEAD_AND_TERM)
            found, term = statements.head_of(rows[0]), rows[0][4]
            if term != self.lease.term:
                raise await self.lease.lost(self._writer)
            if (found.seq, found.digest) != (head.seq, head.digest):
                break
            with contextlib.suppress(Moved):  # The server was replaced since, by one that does not have it.
                await self._confirm(head)
                return True
        if (found.seq, found.digest) == (self.head.seq, self.head.digest):
            return False
        if found.seq < self.head.seq or (found.seq == self.head.seq and found.digest != self.head.digest):
            raise went_back(self.name, found, self.head)
        raise LogError(
            f"{self.name}: somebody without its lease has written to its tables: nothing more is written or acknowledged; "
            f"check it with `tidelog log verify {self.name}`, and start again"
        )

    async def _confirm(self, head: Head) -> None:
        """Commit something after what was found in the head: standbys that have that have what was before it."""
        while True:
            self._writer.unconfirmed = False
            await self._change(statements.confirm, head)
            if not self._writer.unconfirmed:
                return

    async def _change(
        self, change: Callable[..., Awaitable[T]], *args: Any, session: Session | None = None
    ) -> T:
        """Change something under our lease, again where the connection was lost."""
        try:
            return await (session or self._writer).persist(
                lambda connection: change(connection, self.lease.term, *args)
            )
        except Superseded:
            raise await self.lease.lost(session or self._writer) from None

    async def tidy(self) -> None:
        """As in `Store`: the server does that."""

    async def put_snapshot(self, snapshot: Snapshot, *, urgent: bool = False) -> None:  # noqa: ARG002
        """As in `Store`: a transaction a MiB."""
        self._check_writable()
        name, seq = snapshot.name, snapshot.seq
        await self._beside(statements.drop_snapshot, name, seq)
        for number, data in enumerate(parts_of(snapshot.pieces, PART_BYTES)):
            await self._beside(statements.put_part, name, seq, number, data)
        await self._beside(statements.finish_snapshot, snapshot)
        await self._beside(statements.sweep)

    async def compact(self, anchor: Head) -> None:
        """As in `Store`."""
        self._check_writable()
        try:
            await self._beside(statements.compact, self.anchor, anchor)
        except Moved:
            # It may have been this very compaction, whose answer was lost.
            found, _ = ends_of(self.name, await self._session.rows(statements.ENDS))
            if found != anchor:
                raise LogError(f"{self.name}: somebody else has compacted it; start again") from None
        self.anchor = anchor

    async def _beside(self, change: Callable[..., Awaitable[T]], *args: Any) -> T:
        return await self._change(change, *args, session=self._session)

    async def reclaim(self, *, whole: bool = False) -> bool:  # noqa: ARG002
        """As in `Store`: the server's autovacuum does that; what is free is used by what comes."""
        return False

    async def close(self) -> None:
        """As in `Store`; lets go of the lease, so that who stands by takes over at once."""
        if self._closed:
            return
        self._closed = True
        await self.lease.release()
        self.witness.close()
        await asyncio.gather(self._writer.close(), self._session.close())


async def _warn(session: Session) -> None:
    for warning in (await session.persist(look_at_server, patience=0)).warnings:
        _log.warning("the database server", extra={"fields": {"warning": warning}})

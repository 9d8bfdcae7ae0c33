"""The part of a log in a database that only reads; as a whole, `PostgresReader`, it needs no lease, and works while another process leads.

One session reads. Where its connection is lost it is made again, and what is found then must reach as far as what was known before: a server that
is behind that was replaced by an older copy of itself. So must what is found at the beginning, by what this machine knows of the log
(`tidelog.eventlog.postgres.witness`).

Who follows is woken by NOTIFY, and looks. A look each half a second is the net below it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, TypeVar

import msgspec

from tidelog.api.errors import LogBusy, LogDamaged, LogError
from tidelog.eventlog.address import LogAddress
from tidelog.eventlog.postgres import statements
from tidelog.eventlog.postgres.address import DatabaseAddress, parse_address
from tidelog.eventlog.postgres.schema import check_version
from tidelog.eventlog.postgres.session import LONG_SECONDS, Session, Work
from tidelog.eventlog.postgres.witness import Witness
from tidelog.eventlog.records import ChainBroken, LossAccepted, Record, Row, check_rows, decode_body
from tidelog.eventlog.store import ROWS_PER_READ, Head, Snapshot, SnapshotInfo, advance

T = TypeVar("T")

LOOK_SECONDS = 0.5
"""So often a follower looks at the head, if nobody wakes it."""

PAUSE_SECONDS = 0.01
"""It looks at most so often: a busy leader wakes it a thousand times a second."""

EXAMINED = 1_000
"""So many of the newest records are checked when a log is opened."""

READ_PATIENCE = 15.0
"""So long a reader tries a lost server again."""


DIGEST = "SELECT digest FROM records WHERE seq = $1"
LOSSES = "SELECT body, seq, at, digest FROM records WHERE kind = 'LossAccepted' ORDER BY seq"
BEYOND = "SELECT count(*) FROM (SELECT 1 FROM records WHERE seq > $1 LIMIT 1) r"


class DatabaseReading:
    """Everything that only reads. `session` is its own."""

    def __init__(
        self, address: DatabaseAddress, session: Session, witness: Witness, anchor: Head, head: Head
    ) -> None:
        self.name = address.name
        self.address = address
        self.anchor = anchor
        self.head = head
        self.witness = witness
        self._session = session

    async def read(self, first: int, last: int) -> list[Row]:
        """As in `Store`."""
        return [statements.row_of(row) for row in await self._rows(statements.SELECT, first, last)]

    async def span(self, key: str, last: int) -> tuple[int, int] | None:
        """As in `Store`: a look at every record."""
        ((first, newest),) = await self._rows(statements.SPAN, statements.put_text(key), last)
        return None if first is None else (first, newest)

    async def get_snapshot(self, name: str, seq: int) -> Snapshot | None:
        """As in `Store`."""
        try:
            return await self._persist(lambda c: statements.get_snapshot(c, name, seq))
        except LogDamaged:
            return None

    async def snapshots(self) -> list[SnapshotInfo]:
        """As in `Store`."""
        return await self._persist(statements.list_snapshots)

    async def footprint(self) -> tuple[int, int]:
        """As in `ReadStore`: the tables with their indexes. The server gives room back by itself, or keeps it for what comes."""
        ((size,),) = await self._rows(
            "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class WHERE relkind = 'r' "
            "AND relnamespace = $1::regnamespace",
            f'"{self.address.schema}"',
        )
        return int(size), 0

    async def check_storage(self) -> list[str]:
        """As in `Store`: rows that no read sees, and what the server knows of damaged pages."""
        found = []
        ((before, after),) = await self._rows(
            "SELECT (SELECT count(*) FROM records r, anchor a WHERE r.seq <= a.seq), (SELECT count(*) FROM records r, head h WHERE r.seq > h.seq)"
        )
        if before or after:
            found.append(
                f"{before + after} rows of records lie outside the log: somebody else wrote to its tables"
            )
        ((failures,),) = await self._rows(
            "SELECT coalesce(max(checksum_failures), 0) FROM pg_stat_database WHERE datname = current_database()"
        )
        if failures:
            found.append(f"PostgreSQL has met {failures} damaged pages in this database")
        return found

    async def _persist(self, work: Work[T]) -> T:
        return await self._session.persist(
            work, LONG_SECONDS, min(READ_PATIENCE, self.address.patience_seconds)
        )

    async def _rows(self, sql: str, *args: object) -> list[Any]:
        patience = min(READ_PATIENCE, self.address.patience_seconds)
        return await self._session.rows(sql, *args, seconds=LONG_SECONDS, patience=patience)

    async def look(self) -> None:
        """Bring anchor and head up to date. Raises `LogDamaged` where the server has gone back."""
        rows = await self._rows(statements.ENDS)
        anchor, head = ends_of(self.name, rows)
        if head.seq < self.head.seq or (head.seq == self.head.seq and head.digest != self.head.digest):
            raise went_back(self.name, head, self.head)
        self.anchor, self.head = anchor, head


class PostgresReader(DatabaseReading):
    """A log opened read-only."""

    _follower: asyncio.Task[None] | None = None
    _failure: LogError | None = None

    @classmethod
    async def open(cls, text: LogAddress, *, what: str = "tidelog") -> PostgresReader:
        """Open an existing log. Costs a few milliseconds, however long the log is."""
        address = parse_address(text)
        session = Session(address, what)
        witness = None
        try:
            patience = min(READ_PATIENCE, address.patience_seconds)
            log_id = await session.persist(lambda c: check_version(c, address), patience=patience)
            witness = Witness(log_id, address.name)
            anchor, head = await ends_examined(session, address.name, witness, depth=0)
            return cls(address, session, witness, anchor, head)
        except BaseException:
            if witness is not None:
                witness.close()
            await session.close()
            raise

    def refresh(self) -> Head:
        """As in `Store`. The first call begins to follow: from then on the head is at most half a second old."""
        if self._failure is not None:
            raise self._failure
        if self._follower is None:
            self._follower = asyncio.create_task(self._follow(), name=f"follower of {self.name}")
        return self.head

    async def reload(self) -> None:
        """As in `Store`: a trip to the server."""
        await self.look()

    async def _follow(self) -> None:
        woken = asyncio.Event()
        woken.set()
        try:
            await self._session.listen(self.address.channel, lambda _: woken.set())
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await woken.wait()
                woken.clear()
                with contextlib.suppress(LogBusy):
                    await self.look()
                    self.witness.saw(self.head)
                await asyncio.sleep(PAUSE_SECONDS)
        except LogError as error:
            self._failure = error

    async def close(self) -> None:
        """As in `Store`."""
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
        self.witness.close()
        await self._session.close()


# --- where the log ends ---------------------------------------------------------------------------------------------


def ends_of(name: str, rows: list[Any]) -> tuple[Head, Head]:
    """The anchor and the head in the rows of `ENDS`."""
    if len(rows) != 1:
        raise LogDamaged(name, 1, None, "its head or its anchor is missing")
    try:
        return statements.anchor_of(rows[0]), statements.head_of(rows[0])
    except ChainBroken as error:
        raise LogDamaged(name, 1, None, error.reason) from error


def went_back(name: str, found: Head, known: Head) -> LogDamaged:
    """The server has less than it had acknowledged, or another history."""
    why = "this machine knows that it went on: the server was replaced by an older copy, a standby or a backup, or its tables were written to"
    if found.seq < known.seq:
        error = LogDamaged(name, found.seq + 1, known.seq, f"the log ends at record {found.seq}, but {why}")
    else:
        why = f"record {known.seq} is not the one that was acknowledged, and {why}"
        error = LogDamaged(name, known.seq, known.seq, why)
    error.went_back = True
    return error


async def ends_examined(
    session: Session, name: str, witness: Witness, *, depth: int = EXAMINED
) -> tuple[Head, Head]:
    """The anchor and the head, when the log reaches as far as this machine knows and its newest records are sound. Where what is wrong is that the
    server was replaced meanwhile, or another process leads by now or has compacted, it is looked at again."""
    found = ends_of(name, await session.rows(statements.ENDS))
    while True:
        try:
            await compare(session, name, witness, *found)
            if depth:
                await examine(session, name, *found, depth)
        except LogDamaged:
            seen, found = found, ends_of(name, await session.rows(statements.ENDS))
            if found == seen:
                raise
        else:
            return found


async def compare(session: Session, name: str, witness: Witness, anchor: Head, head: Head) -> None:
    """Raise `LogDamaged` where the log does not reach as far as this machine knows that it did, unless that loss was accepted."""
    known = witness.read()
    if known.seq <= anchor.seq:
        return
    if known.seq <= head.seq:
        rows = await session.rows(DIGEST, known.seq)
        if rows and rows[0][0] == known.digest:
            return
    # Rare enough for a look at every record: there is no index of kinds.
    for body, seq, at, digest in await session.rows(
        LOSSES,
        seconds=LONG_SECONDS,
    ):
        loss = decode_body(Record(seq, at, "repair", "LossAccepted", "", 0, body, digest))
        if (
            isinstance(loss, LossAccepted)
            and loss.first <= known.seq
            and (not loss.last or known.seq <= loss.last)
        ):
            return
    raise went_back(name, head, known)


async def examine(session: Session, name: str, anchor: Head, head: Head, depth: int = EXAMINED) -> None:
    """Check the chain over the newest records, and that the head is that of the last one. Raises `LogDamaged`."""
    place = max(anchor.seq, head.seq - depth)
    rows = [statements.row_of(row) for row in await session.rows(statements.SELECT, place, place)]
    start = anchor if place == anchor.seq else None
    if start is None:
        if not rows:
            raise LogDamaged(name, place, head.seq, f"record {place} is missing")
        start = Head(seq=place, at=rows[0][1], epoch=0, digest=rows[0][7])
    start = msgspec.structs.replace(start, epoch=anchor.epoch)
    while start.seq < head.seq:
        last = min(head.seq, start.seq + ROWS_PER_READ)
        found = [statements.row_of(row) for row in await session.rows(statements.SELECT, start.seq + 1, last)]
        try:
            records = check_rows(found, start.seq, start.at, start.digest)
        except ChainBroken as error:
            raise LogDamaged(name, error.seq, head.seq, error.reason) from error
        if not records:
            raise LogDamaged(name, start.seq + 1, head.seq, f"record {start.seq + 1} is missing")
        for record in records:
            start = advance(start, record)
    if (start.seq, start.digest) != (head.seq, head.digest) or start.epoch > head.epoch:
        raise LogDamaged(name, head.seq, head.seq, "the last record is not the one that its head names")
    (beyond,) = await session.rows(BEYOND, head.seq)
    if beyond[0]:
        raise LogDamaged(
            name, head.seq + 1, None, "there are records behind its head: somebody else wrote to its tables"
        )

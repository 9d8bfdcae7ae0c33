"""Reading a log: its records in order, checked against the chain, and the snapshots of states computed from it.

`LogReader` opens a log file that some other process may be writing; `tidelog.eventlog.log.Log`, which writes, is one too.
Nothing damaged is ever returned: each record's digest is checked when it is read, which costs about a microsecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from tidelog.api.errors import LogDamaged, LogError
from tidelog.eventlog.address import LogAddress, is_database, needs_postgres
from tidelog.eventlog.closing import Closing, opens
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.records import ChainBroken, Record, check_rows
from tidelog.eventlog.sqlite import SqliteReader
from tidelog.eventlog.store import Head, ReadStore, Snapshot, SnapshotInfo, SnapshotsUnreadable

POLL_SECONDS = 0.01
"""How often a reader in another process looks at the head file: a tail is about 5 ms behind, for 0.1 % of a core."""


@opens
async def open_reader(path: LogAddress, *, disk: Disk | None = None) -> LogReader:
    """Open an existing log read-only. Needs no lock, and costs a few milliseconds however long the log is."""
    if is_database(path):
        with needs_postgres():
            from tidelog.eventlog.postgres.reading import PostgresReader
        return LogReader(await PostgresReader.open(path))
    return LogReader(await SqliteReader.open(path, disk=disk))


class LogReader(Closing):
    """A log to read from: its records in order, checked, and its snapshots. Of a log that another process writes."""

    on_read: Callable[[int, int], object] | None = None
    """Told how many records of a pass have been read, and of how many, before each further batch."""

    def __init__(self, store: ReadStore) -> None:
        self._store = store
        self._closed = False

    @property
    def name(self) -> str:
        """The log's path, or what else it is called by."""
        return self._store.name

    @property
    def head(self) -> Head:
        """The newest durable record that is known of."""
        return self._store.head

    @property
    def anchor(self) -> Head:
        """The record before the first one kept."""
        return self._store.anchor

    def refresh(self) -> Head:
        """The head, after a look whether another process moved it."""
        self._check_open()
        return self._store.refresh()

    async def reload(self) -> None:
        """Bring the anchor, too, up to date with what other processes did."""
        self._check_open()
        await self._store.reload()

    # --- records ----------------------------------------------------------------------------------------------------

    async def read_batches(self, first: int = 0, last: int | None = None) -> AsyncIterator[list[Record]]:
        """The records from `first` (by default the oldest kept) to `last` (by default the newest), in lists."""
        await self.reload()
        last = self.head.seq if last is None else min(last, self.head.seq)
        first = first or self.anchor.seq + 1
        if first > last:
            return
        place = await self._place_before(first)
        while place.seq < last:
            records = await self._next(place, last)
            if self.on_read is not None:
                self.on_read(records[0].seq - first, last - first + 1)
            yield records
            place = _after(records[-1])

    async def read(self, first: int = 0, last: int | None = None) -> AsyncIterator[Record]:
        """As `read_batches`, one by one."""
        async for batch in self.read_batches(first, last):
            for record in batch:
                yield record

    async def record(self, seq: int) -> Record:
        """One record."""
        async for record in self.read(seq, seq):
            return record
        raise LogError(f"{self.name}: there is no record {seq}: the log ends at {self.head.seq}")

    async def span(self, key: str, last: int | None = None) -> tuple[Record, Record] | None:
        """The oldest and the newest record about an object, up to `last`. Costs a fraction of a microsecond a record of the log.

        Only these two are checked: whether a damaged record was about the object, too, is told by reading them all.
        """
        await self.reload()
        found = await self._store.span(key, self.head.seq if last is None else min(last, self.head.seq))
        return None if found is None else (await self.record(found[0]), await self.record(found[1]))

    async def tail_batches(self, first: int = 0) -> AsyncIterator[list[Record]]:
        """The records from `first` on, for ever: waits at the end of the log for what comes."""
        await self.reload()
        place = await self._place_before(first or self.anchor.seq + 1)
        while True:
            if self.refresh().seq > place.seq:
                records = await self._next(place, self.head.seq)
                yield records
                place = _after(records[-1])
            else:
                await self._wait_beyond(place.seq)

    async def tail(self, first: int = 0) -> AsyncIterator[Record]:
        """As `tail_batches`, one by one."""
        async for batch in self.tail_batches(first):
            for record in batch:
                yield record

    async def seq_at(self, at: int) -> int:
        """The seq of the newest record that is not younger than the time `at`; that of the anchor if there is none."""
        await self.reload()
        low, high = self.anchor.seq, self.head.seq
        while low < high:
            middle = (low + high + 1) // 2
            if (await self.record(middle)).at <= at:
                low = middle
            else:
                high = middle - 1
        return low

    async def _wait_beyond(self, seq: int) -> None:
        """Return when there may be records after `seq`."""
        if self.refresh().seq <= seq:
            await asyncio.sleep(POLL_SECONDS)

    def _check_open(self) -> None:
        if self._closed:
            raise LogError(f"{self.name}: the log is closed")

    async def _place_before(self, first: int) -> Head:
        """Where the chain is entered for reading from `first` on."""
        seq = first - 1
        for known in (self.anchor, self.head):
            if known.seq == seq:
                return known
        self._check_kept(first)
        if seq > self.head.seq:
            raise LogError(f"{self.name}: there is no record {first} yet: the log ends at {self.head.seq}")
        rows = await self._store.read(seq, seq)
        if not rows:
            await self.reload()
            self._check_kept(first)
            raise LogDamaged(self.name, seq, seq, f"record {seq} is missing")
        # Nothing of it need be checked: were its digest wrong, the record after it would not match.
        at: object = rows[0][1]
        return Head(seq=seq, at=at if isinstance(at, int) else 0, digest=rows[0][7])

    async def _next(self, place: Head, last: int) -> list[Record]:
        """At least one record after `place`, checked."""
        self._check_open()
        rows = await self._store.read(place.seq + 1, last)
        if not rows or rows[0][0] != place.seq + 1:
            await self.reload()
            self._check_kept(place.seq + 1)
        try:
            records = check_rows(rows, place.seq, place.at, place.digest)
        except ChainBroken as error:
            raise LogDamaged(self.name, error.seq, self.head.seq, error.reason) from error
        if not records:
            raise LogDamaged(self.name, place.seq + 1, self.head.seq, f"record {place.seq + 1} is missing")
        return records

    def _check_kept(self, seq: int) -> None:
        if seq <= self.anchor.seq:
            raise LogError(
                f"{self.name}: record {seq} was dropped by compaction; the log begins at {self.anchor.seq + 1}"
            )

    # --- snapshots --------------------------------------------------------------------------------------------------

    async def snapshot(self, name: str, at_most: int | None = None, *, between: str = "") -> Snapshot | None:
        """The newest sound snapshot of this name, or of that of those between, at or before record `at_most`. A damaged one is passed over."""
        try:
            stored = await self._store.snapshots()
        except SnapshotsUnreadable:
            return None
        limit = self.head.seq if at_most is None else at_most
        infos = [info for info in stored if info.name in (name, between) and info.seq <= limit]
        for info in sorted(infos, key=lambda info: info.seq, reverse=True):
            found = await self._store.get_snapshot(info.name, info.seq)
            if found is not None and found.is_sound and found.chain == await self._digest_of(info.seq):
                return found
        return None

    async def snapshots(self) -> list[SnapshotInfo]:
        """List the snapshots."""
        return await self._store.snapshots()

    async def stored_snapshot(self, info: SnapshotInfo) -> Snapshot | None:
        """One of them as it is stored, sound or not; None if it cannot be read."""
        return await self._store.get_snapshot(info.name, info.seq)

    async def footprint(self) -> tuple[int, int]:
        """How many bytes the log takes, and how many it would need beside them for becoming smaller."""
        return await self._store.footprint()

    async def check_storage(self) -> list[str]:
        """Return the storage's complaints about itself, beside those of the chain of records."""
        return await self._store.check_storage()

    async def _digest_of(self, seq: int) -> bytes | None:
        """The digest of a record, or None if it is not (or no longer) in the log."""
        for known in (self.anchor, self.head):
            if known.seq == seq:
                return known.digest
        if not self.anchor.seq < seq < self.head.seq:
            return None
        return (await self.record(seq)).digest

    async def close(self) -> None:
        """Let go of the log. Tails end with a `LogError`."""
        self._closed = True
        await self._store.close()


def _after(record: Record) -> Head:
    return Head(seq=record.seq, at=record.at, digest=record.digest)

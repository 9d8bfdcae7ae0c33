"""Going on with a damaged log in a database, or one that went back in time, at the price of what was lost.

As with a file: everything from the first record that is missing or does not match the chain on is dropped, and the loss is a `LossAccepted` record in
its place. The dropped rows are kept in a table beside the log, `damaged_1`, `damaged_2`, …, which needs the right to make tables: the owner's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import asyncpg
import msgspec

from tidelog.api.errors import LogDamaged, LogError
from tidelog.eventlog.address import LogAddress
from tidelog.eventlog.postgres import statements
from tidelog.eventlog.postgres.address import DatabaseAddress, parse_address
from tidelog.eventlog.postgres.lease import Lease
from tidelog.eventlog.postgres.reading import compare, ends_of
from tidelog.eventlog.postgres.schema import check_version, prepare_writing, set_ends
from tidelog.eventlog.postgres.session import LONG_SECONDS, Session
from tidelog.eventlog.postgres.store import holder_name
from tidelog.eventlog.postgres.witness import Witness
from tidelog.eventlog.records import GENESIS, ChainBroken, LossAccepted, check_rows
from tidelog.eventlog.repair import Repaired, comes_to_states, loss_record
from tidelog.eventlog.store import BETWEEN, EMPTY, ROWS_PER_READ, Head, Snapshot, advance

WHAT = "tidelog log repair"


async def repair_database(text: LogAddress, *, accept_loss: bool, clock: Callable[[], int]) -> Repaired:
    """Make a damaged log usable again. Without `accept_loss` it only looks, and raises `LogDamaged` if there is damage."""
    address = parse_address(text)
    session = Session(address, WHAT, prepare_writing)
    lease = witness = None
    try:
        log_id = await session.persist(lambda c: check_version(c, address), patience=0)
        lease = await Lease.take(session, address, holder_name(WHAT))
        witness = Witness(log_id, address.name)
        return await _Repair(address, session, lease, witness).run(accept_loss, clock)
    finally:
        if witness is not None:
            witness.close()
        if lease is not None:
            await lease.release()
        await session.close()


class _Repair:
    def __init__(self, address: DatabaseAddress, session: Session, lease: Lease, witness: Witness) -> None:
        self.address = address
        self.session = session
        self.lease = lease
        self.witness = witness

    async def run(self, accept_loss: bool, clock: Callable[[], int]) -> Repaired:
        anchor, begin, kept, head, found = await self._look()
        if found is None:
            self.witness.saw(kept)
            return Repaired(kept=kept.seq, lost_last=kept.seq, reason="")
        if not accept_loss:
            raise found
        known = self.witness.read()
        lost_last = max(kept.seq, head.seq, known.seq)
        epoch = max(kept.epoch, head.epoch, known.epoch)
        is_known = isinstance(found, LogDamaged) and found.last is not None
        begins = begin.seq if begin.seq > anchor.seq else 0
        first, last = kept.seq + 1, lost_last if is_known else 0
        if begins and lost_last == kept.seq:
            first, last = anchor.seq + 1, begins
        loss = LossAccepted(first=first, last=last, epoch=epoch, reason=_reason(found))
        record = loss_record(kept, loss, clock())
        new = advance(kept, record)
        backup = await self.session.call(lambda c: self._replace(c, begin, kept, record, new), LONG_SECONDS)
        self.witness.reset(new)
        return Repaired(
            kept=kept.seq,
            lost_last=lost_last if is_known else None,
            reason=_reason(found),
            backup=backup,
            begins=begins,
        )

    async def _look(self) -> tuple[Head, Head, Head, Head, LogError | None]:
        """The anchor, the record behind which the log is to begin, the last good one, the head as it is written, and what is wrong."""
        rows = await self.session.rows(statements.ENDS)
        found: LogError | None = None
        try:
            anchor, head = ends_of(self.address.name, rows)
        except LogDamaged as error:
            found, anchor = error, await self._anchor_of_records()
            head = statements.head_of(rows[0]) if len(rows) == 1 else EMPTY
        begin = anchor
        kept, broken = await self._walk(anchor)
        if broken is not None and anchor.seq:
            begin, kept = await self._beginning(anchor, kept)
        found = found or broken
        if found is None and (kept.seq, kept.digest) != (head.seq, head.digest):
            reason = f"the last record is {kept.seq}, and its head names {head.seq}"
            found = LogDamaged(
                self.address.name, min(kept.seq, head.seq) + 1, max(kept.seq, head.seq), reason
            )
            if kept.seq > head.seq:  # Rows behind the head were never acknowledged.
                kept = await self._place(anchor, head)
        if found is None:
            try:
                await compare(self.session, self.address.name, self.witness, anchor, head)
            except LogDamaged as error:
                found = error
                known = self.witness.read()
                if (
                    known.seq <= kept.seq
                ):  # Another history from there on, or earlier: all that is known is that this record is not it.
                    kept = await self._place(anchor, Head(seq=known.seq - 1))
        return anchor, begin, kept, head, found

    async def _beginning(self, anchor: Head, kept: Head) -> tuple[Head, Head]:
        """Where a compacted log is to begin, and the last good record behind that: where it did, unless what is good there comes to no state.

        As with a file: records before the oldest state are left by a compaction that was interrupted, or with `--to`.
        """
        stored = await self.session.persist(statements.list_snapshots)
        states: list[Snapshot] = []
        for info in stored:
            found = await self.session.persist(partial(statements.get_snapshot, name=info.name, seq=info.seq))
            if found is not None and found.is_sound and not info.name.endswith(BETWEEN):
                states.append(found)
        states.sort(key=lambda state: state.seq)
        for begin in (anchor, *(await self._places_of(states, anchor))):
            end = kept if begin is anchor else (await self._walk(begin))[0]
            if comes_to_states(states, begin.seq, end.seq):
                return begin, end
        return anchor, kept

    async def _places_of(self, states: Sequence[Snapshot], anchor: Head) -> list[Head]:
        """Of the states behind the anchor, with the time if the record says it."""
        found = []
        for state in states:
            if state.seq > anchor.seq:
                rows = await self.session.rows(
                    "SELECT at FROM records WHERE seq = $1 AND digest = $2", state.seq, state.chain
                )
                at = rows[0][0] if rows else 0
                found.append(Head(seq=state.seq, at=at, digest=state.chain))
        return found

    async def _place(self, anchor: Head, wanted: Head) -> Head:
        place, _ = await self._walk(anchor, wanted.seq)
        return place

    async def _walk(self, anchor: Head, last: int = 1 << 62) -> tuple[Head, LogDamaged | None]:
        """The last good record up to `last`, and why it is the last."""
        place, size = anchor, ROWS_PER_READ
        while place.seq < last:
            try:
                rows = await self.session.rows(
                    statements.SELECT, place.seq + 1, min(last, place.seq + size), seconds=LONG_SECONDS
                )
                if not rows:
                    (beyond,) = await self.session.rows("SELECT max(seq) FROM records")
                    if beyond[0] is not None and beyond[0] > place.seq and last == 1 << 62:
                        why = f"record {place.seq + 1} is missing"
                        return place, LogDamaged(self.address.name, place.seq + 1, beyond[0], why)
                    return place, None
                records = check_rows(
                    [statements.row_of(row) for row in rows], place.seq, place.at, place.digest
                )
            except (ChainBroken, LogDamaged) as error:
                if size > 1:
                    size = 1
                    continue
                reason = error.reason
                return place, LogDamaged(self.address.name, place.seq + 1, await self._last(), reason)
            for record in records:
                place = advance(place, record)
        return place, None

    async def _last(self) -> int | None:
        rows = await self.session.rows("SELECT seq FROM head")
        return rows[0][0] if rows else None

    async def _anchor_of_records(self) -> Head:
        """The anchor, as far as it can be known without its row."""
        (first,) = await self.session.rows("SELECT min(seq) FROM records")
        for name, seq, chain in await self.session.rows("SELECT name, seq, chain FROM snapshots"):
            if first[0] is not None and seq == first[0] - 1 and name:
                return Head(seq=seq, digest=chain)
        return EMPTY

    async def _replace(
        self, connection: asyncpg.Connection, anchor: Head, kept: Head, record: Any, new: Head
    ) -> str:
        async with connection.transaction():
            await statements.hold(connection, self.lease.term)
            backup = ""
            beyond = f"FROM records WHERE seq > {kept.seq} OR seq <= {anchor.seq}"
            if await connection.fetchval(f"SELECT 1 {beyond} LIMIT 1"):
                backup = await self._backup(connection, beyond)
            await connection.execute(f"DELETE {beyond}")
            await connection.execute("DELETE FROM snapshots WHERE seq > $1 OR seq < $2", kept.seq, anchor.seq)
            await statements.copy_records(connection, [record], self.address.schema)
            await set_ends(connection, msgspec.structs.replace(anchor, digest=anchor.digest or GENESIS), new)
            return backup

    async def _backup(self, connection: asyncpg.Connection, beyond: str) -> str:
        number = 1
        while await connection.fetchval(
            "SELECT to_regclass($1) IS NOT NULL", f'"{self.address.schema}".damaged_{number}'
        ):
            number += 1
        name = f"damaged_{number}"
        await connection.execute(f"CREATE TABLE {name} AS SELECT * {beyond}")
        return f"{self.address.schema}.{name}"


def _reason(found: LogError) -> str:
    return found.reason if isinstance(found, LogDamaged) else str(found)

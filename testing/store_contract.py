"""The test suite that every store passes. A new implementation subclasses it in its tests:

    class TestPostgresStore(StoreContract):
        async def open_store(self) -> Store: ...            # a new, empty one
        async def reopen(self, store: Store) -> Store: ...  # close it, open the same again

It needs pytest with pytest-asyncio to run, but imports neither. `ContractLog` is what the suite makes its records with.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from tidelog.eventlog.records import Record, Row, SchedulerStarted, Tick, chain_digest, encode_body
from tidelog.eventlog.store import (
    BETWEEN,
    EMPTY,
    ROWS_PER_READ,
    SNAPSHOTS_KEPT,
    Head,
    Snapshot,
    Store,
    advance,
)


def make_records(
    count: int, after: Head = EMPTY, *, author: str = "cluster", body: bytes = b""
) -> list[Record]:
    """Make this many ticks that continue the chain."""
    body = body or encode_body(Tick())
    records = []
    seq, at, digest = after.seq, after.at, after.digest
    for _ in range(count):
        seq, at = seq + 1, at + 1_000
        digest = chain_digest(digest, seq, at, author, "Tick", f"Pod/default/web-{seq}", 0, body)
        records.append(Record(seq, at, author, "Tick", f"Pod/default/web-{seq}", 0, body, digest))
    return records


def head_after(records: Sequence[Record], before: Head = EMPTY) -> Head:
    """The head once these are appended."""
    for record in records:
        before = advance(before, record)
    return before


def rows(records: Sequence[Record]) -> list[Row]:
    """As a store returns them."""
    return [msgspec.structs.astuple(record) for record in records]


async def append(store: Store, records: Sequence[Record]) -> None:
    """Append them as one group."""
    await store.append(records, head_after(records, store.head))


async def read_all(store: Store) -> list[Row]:
    """Everything that is kept."""
    found: list[Row] = []
    while part := await store.read(store.anchor.seq + len(found) + 1, store.head.seq):
        found += part
    return found


class StoreContract:
    """The rules for every store."""

    async def open_store(self) -> Store:
        """A new, empty store."""
        raise NotImplementedError

    async def reopen(self, store: Store) -> Store:
        """The same store, closed and opened again."""
        raise NotImplementedError

    async def test_new_store_is_empty(self) -> None:
        store = await self.open_store()

        assert (store.anchor, store.head) == (EMPTY, EMPTY)
        assert await store.read(1, 10) == []
        assert await store.snapshots() == []
        await store.close()

    async def test_appended_records_are_read_as_they_were(self) -> None:
        store = await self.open_store()
        records = make_records(10)

        await append(store, records[:3])
        await append(store, records[3:])

        assert await store.read(1, 10) == rows(records)
        assert await store.read(4, 5) == rows(records[3:5])
        assert await store.read(9, 99) == rows(records[8:])
        assert await store.read(11, 99) == []
        assert store.head == head_after(records)
        assert store.refresh() == store.head
        await store.close()

    async def test_records_and_head_survive_closing(self) -> None:
        store = await self.open_store()
        started = encode_body(SchedulerStarted(epoch=7, holder="x"))
        digest = chain_digest(EMPTY.digest, 1, 5, "scheduler", "SchedulerStarted", "", 0, started)
        records = [Record(1, 5, "scheduler", "SchedulerStarted", "", 0, started, digest)]
        records += make_records(3, head_after(records))
        await append(store, records)

        store = await self.reopen(store)

        assert store.head == head_after(records)
        assert store.head.epoch == 7
        assert await read_all(store) == rows(records)
        await store.close()

    async def test_any_text_number_and_size_comes_back_the_same(self) -> None:
        store = await self.open_store()
        odd = ["", "\x00", "a\x00b", "é😀\u202e", "'; DROP TABLE records; --", "x" * 10_000]
        records: list[Record] = []
        for number, text in enumerate(odd, 1):
            previous = records[-1].digest if records else EMPTY.digest
            at, body = 2**62 + number, bytes(range(256)) * number * 50
            digest = chain_digest(previous, number, at, text, "Tick", text, number - 1, body)
            records.append(Record(number, at, text, "Tick", text, number - 1, body, digest))

        await append(store, records)
        store = await self.reopen(store)

        assert await read_all(store) == rows(records)
        await store.close()

    async def test_one_read_returns_a_bounded_number_of_rows(self) -> None:
        store = await self.open_store()
        records = make_records(ROWS_PER_READ + 700)
        await append(store, records)

        first = await store.read(1, len(records))

        assert first == rows(records[:ROWS_PER_READ])
        assert await read_all(store) == rows(records)
        await store.close()

    async def test_newest_snapshots_of_each_name_stay_and_earlier_ones_spread_over_the_log(self) -> None:
        store = await self.open_store()
        records = make_records(3 * SNAPSHOTS_KEPT)
        await append(store, records)
        made = [Snapshot.make("a", r.seq, r.digest, b"a%d" % r.seq) for r in records]
        other = Snapshot.make("b", 1, records[0].digest, b"")

        await store.put_snapshot(other)
        for snapshot in made:
            await store.put_snapshot(snapshot)
        store = await self.reopen(store)

        kept = [info.seq for info in await store.snapshots() if info.name == "a"]
        gaps = [later - earlier for earlier, later in pairwise(kept)]
        assert len(kept) == SNAPSHOTS_KEPT
        assert kept[:1] + kept[-2:] == [1, len(records) - 1, len(records)]
        assert max(gaps) <= 8
        assert await store.get_snapshot("a", kept[5]) == made[kept[5] - 1]
        assert await store.get_snapshot("b", 1) == other
        missing = next(seq for seq in range(1, len(records)) if seq not in kept)
        assert await store.get_snapshot("a", missing) is None
        await store.close()

    async def test_span_of_a_key_is_its_oldest_and_newest_record(self) -> None:
        store = await self.open_store()
        records = make_records(20)
        for seq in (4, 9, 15):
            records[seq - 1] = replace(records[seq - 1], key="Pod/default/web")
        await append(store, records)

        assert await store.span("Pod/default/web", 20) == (4, 15)
        assert await store.span("Pod/default/web", 14) == (4, 9)
        assert await store.span("Pod/default/web", 3) is None
        assert await store.span("Pod/default/unknown", 20) is None
        await store.close()

    async def test_snapshots_that_hold_changes_all_stay(self) -> None:
        store = await self.open_store()
        records = make_records(3 * SNAPSHOTS_KEPT)
        await append(store, records)

        for record in records:
            await store.put_snapshot(Snapshot.make("a" + BETWEEN, record.seq, record.digest, b"changes"))

        assert [info.seq for info in await store.snapshots()] == [record.seq for record in records]
        await store.close()

    async def test_large_snapshot_comes_back_whole_and_can_be_replaced(self) -> None:
        store = await self.open_store()
        records = make_records(1)
        await append(store, records)
        large = Snapshot.make("a", 1, records[0].digest, bytes(range(256)) * 10_000)
        small = Snapshot.make("a", 1, records[0].digest, b"small")

        await store.put_snapshot(large)
        assert await store.get_snapshot("a", 1) == large
        await store.put_snapshot(replace(large, pieces=(large.blob[:7], large.blob[7:-1], large.blob[-1:])))
        found = await store.get_snapshot("a", 1)
        assert found is not None
        assert found.is_sound
        assert found.blob == large.blob
        await store.put_snapshot(small)
        assert await store.get_snapshot("a", 1) == small
        assert [(info.seq, info.size) for info in await store.snapshots()] == [(1, 5)]
        await store.close()

    async def test_compaction_keeps_the_anchor_and_what_comes_after_it(self) -> None:
        store = await self.open_store()
        records = make_records(10)
        await append(store, records)
        for seq in (4, 7):
            await store.put_snapshot(Snapshot.make("a", seq, records[seq - 1].digest, b"state"))

        anchor = head_after(records[:7])
        await store.compact(anchor)
        more = make_records(3, store.head)
        await append(store, more)
        store = await self.reopen(store)

        assert store.anchor == anchor
        assert store.head == head_after(more)
        assert await read_all(store) == rows(records[7:] + more)
        assert await store.read(1, 8) == rows(records[7:8])
        assert [info.seq for info in await store.snapshots()] == [7]
        await store.close()

    async def test_log_compacted_to_its_head_goes_on(self) -> None:
        store = await self.open_store()
        records = make_records(5)
        await append(store, records)

        await store.compact(head_after(records))
        store = await self.reopen(store)
        assert await read_all(store) == []
        more = make_records(2, store.head)
        await append(store, more)
        store = await self.reopen(store)

        assert (store.anchor.seq, store.head.seq) == (5, 7)
        assert await read_all(store) == rows(more)
        await store.close()

    async def test_housekeeping_changes_nothing(self) -> None:
        store = await self.open_store()
        records = make_records(3, body=bytes(3_000_000))
        for record in records:
            store.check_room()
            await append(store, [record])
            await store.tidy()

        assert await read_all(store) == rows(records)
        await store.close()

    async def test_closing_twice_is_allowed(self) -> None:
        store = await self.open_store()

        await store.close()
        await store.close()

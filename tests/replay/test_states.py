"""States that a log keeps without their objects are those that its records lead to: newest ones, damaged ones, those of older versions."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.worlds.histories import node, pod
from tidelog.api.errors import LogError
from tidelog.daemon.process.recovery import recovered_core, recovered_state
from tidelog.eventlog.log import Log, open_log
from tidelog.eventlog.memory import MemoryStore
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.store import BETWEEN, EMPTY, Snapshot, advance
from tidelog.eventlog.table_encoding import SORTED, encoded
from tidelog.eventlog.verify import verify
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.files import FirstState, write_log
from tidelog.replay.segments import verify_log
from tidelog.replay.states import State, beginnings, newest_state, whole_states
from tidelog.scheduler.state import SNAPSHOT, capture_state, encode_state

ROUNDS = 5


class Story:
    """A log of some rounds of pods, of which one goes in each; and the states after them, in all forms."""

    def __init__(self) -> None:
        driver = self.driver = Driver()
        driver.start()
        driver.put(*(node(f"n{i}").build() for i in (2, 0, 1)))
        self.store = MemoryStore()
        self.ends: list[int] = []
        """The last record of each round."""
        self.digests: list[str] = []
        self.states: list[bytes] = []
        self.with_objects: list[bytes] = []
        self.tables: list[bytes] = []
        self.sorted_tables: list[bytes] = []
        table = ObjectTable()
        for number in range(ROUNDS):
            pods = [pod(f"p{number}-{i}", "100m").build() for i in (3, 1, 2)]
            driver.put(*pods)
            driver.settle()
            driver.delete(pods[1])
            for record in driver.records[table.seq :]:
                table.apply(record)
            self.ends.append(driver.core.seq)
            self.digests.append(driver.core.digest())
            self.states.append(capture_state(driver.core).blob())
            self.with_objects.append(encode_state(driver.core))
            self.tables.append(table.encode())
            mark = table.mark()
            kinds = {kind: dict(sorted(entries.items())) for kind, entries in mark.kinds.items()}
            self.sorted_tables.append(encoded(mark._replace(kinds=kinds, format=SORTED)))

    async def log(self) -> Log:
        """The log, without a snapshot."""
        head = self.store.head
        for record in self.driver.records:
            head = advance(head, record)
        await self.store.append(self.driver.records, head)
        return Log(self.store, clock=lambda: self.driver.now)

    async def keep(self, name: str, round_: int, blob: bytes) -> None:
        """A snapshot of the end of this round."""
        seq = self.ends[round_]
        await self.store.put_snapshot(Snapshot.make(name, seq, self.driver.records[seq - 1].digest, blob))

    def damage(self, name: str, round_: int) -> None:
        """Another byte in a snapshot."""
        place = name, self.ends[round_]
        self.store._snapshots[place] = replace(self.store._snapshots[place], pieces=(b"x",))

    async def digest(self, log: Log, round_: int | None = None) -> str:
        """Of the newest state that was kept up to the end of this round."""
        state = await newest_state(log, Registry(), None if round_ is None else self.ends[round_])
        assert state is not None
        return state.core.digest()


def assert_shares_its_objects(state: State, table: bytes) -> None:
    """Its table is this one, and each object in it is the core's."""
    assert state.table is not None
    assert state.table.encode() == table
    assert all(state.table.get(key) is obj for key, obj in state.core.objects.items())


@pytest.fixture
def story() -> Story:
    return Story()


async def test_state_has_the_objects_of_its_own_record(story: Story) -> None:
    async with await story.log() as log:
        await story.keep(OBJECTS, 1, story.tables[1])
        await story.keep(SNAPSHOT, 1, story.states[1])
        for between in (2, 3):
            await story.keep(SNAPSHOT + BETWEEN, between, story.states[between])

        assert await newest_state(log, Registry(), story.ends[0]) is None
        assert [await story.digest(log, number) for number in (1, 2, 3, 4)] == [
            *story.digests[1:4],
            story.digests[3],
        ]
        assert (await recovered_core(log, Registry())).digest() == story.digests[4]


async def test_state_and_its_table_share_the_objects(story: Story) -> None:
    async with await story.log() as log:
        await story.keep(OBJECTS, 1, story.tables[1])
        await story.keep(SNAPSHOT + BETWEEN, 2, story.states[2])

        state = await newest_state(log, Registry())

        assert state is not None
        assert_shares_its_objects(state, story.tables[2])


async def test_table_comes_to_the_end_of_the_log_with_the_core_and_each_record_is_decoded_once(
    story: Story,
) -> None:
    async with await story.log() as log:
        await story.keep(OBJECTS, 1, story.tables[1])
        await story.keep(SNAPSHOT, 1, story.states[1])

        state = await recovered_state(log, Registry())

        assert_shares_its_objects(state, story.tables[-1])


async def test_damaged_snapshot_is_passed_over_whichever_it_is(story: Story) -> None:
    async with await story.log() as log:
        for whole in (0, 2):
            await story.keep(OBJECTS, whole, story.tables[whole])
            await story.keep(SNAPSHOT, whole, story.states[whole])
        await story.keep(SNAPSHOT + BETWEEN, 3, story.states[3])

        story.damage(OBJECTS, 2)
        assert await story.digest(log) == story.digests[3]
        story.damage(SNAPSHOT + BETWEEN, 3)
        assert await story.digest(log) == story.digests[2]
        story.damage(OBJECTS, 0)
        assert await story.digest(log) == story.digests[2]
        assert (await recovered_core(log, Registry())).digest() == story.digests[4]


async def test_compacted_log_of_an_older_version_still_opens(story: Story) -> None:
    """Its state had its objects in it, those of the table were sorted and a little behind, and what had changed was kept between."""
    async with await story.log() as log:
        await story.keep(SNAPSHOT, 1, story.with_objects[1])
        await story.keep(OBJECTS, 2, story.sorted_tables[2])
        version, rest, chunks = msgspec.msgpack.decode(story.with_objects[3])
        changes = msgspec.msgpack.encode((version, rest, chunks, story.ends[1], []))
        await story.keep(SNAPSHOT + BETWEEN, 3, changes)
        assert await beginnings(log, log.head.seq) == [story.ends[1]]
        await log.compact(story.ends[1])

        assert await whole_states(log) == [story.ends[1]]
        assert await story.digest(log) == story.digests[1]
        assert (await recovered_core(log, Registry())).digest() == story.digests[4]


async def test_state_of_an_older_version_stands_in_for_later_ones_whose_objects_are_damaged(
    story: Story,
) -> None:
    """The table that is left does not know the order of its objects, but that state has them in it, and every record since is there."""
    async with await story.log() as log:
        await story.keep(SNAPSHOT, 0, story.with_objects[0])
        await story.keep(OBJECTS, 0, story.sorted_tables[0])
        await log.compact(story.ends[0])
        await story.keep(OBJECTS, 2, story.tables[2])
        await story.keep(SNAPSHOT, 2, story.states[2])
        await story.keep(SNAPSHOT + BETWEEN, 3, story.states[3])
        assert await story.digest(log) == story.digests[3]

        story.damage(OBJECTS, 2)

        state = await recovered_state(log, Registry())
        assert state.core.digest() == story.digests[4]
        assert state.whole is None  # The next one that is kept is.
        del story.store._snapshots[SNAPSHOT, story.ends[0]]
        with pytest.raises(LogError, match="written by another version of tidelog"):
            await newest_state(log, Registry())
        await story.keep(SNAPSHOT, 0, story.with_objects[0])


async def test_state_whose_objects_are_damaged_is_passed_over_by_a_verification(
    story: Story, tmp_path: Path
) -> None:
    path, ends, records = tmp_path / "c.db", story.ends, story.driver.records
    head = EMPTY
    for record in records[: ends[0]]:
        head = advance(head, record)
    first = FirstState(head, story.with_objects[0], story.sorted_tables[0])
    await write_log(path, records[ends[0] :], first=first)
    async with await open_log(path) as log:
        await log.put_snapshot(OBJECTS, ends[2], story.tables[2])
        await log.put_snapshot(SNAPSHOT, ends[2], story.states[2])
        await log.put_snapshot(SNAPSHOT + BETWEEN, ends[3], story.states[3])
    assert (await verify_log(path, registry=Registry())).is_identical

    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE parts SET data = x'00' WHERE name = ? AND seq = ?", (OBJECTS, ends[2]))

    assert (await verify_log(path, registry=Registry())).is_identical
    assert (await verify_log(path, registry=Registry(), from_snapshot=True)).is_identical


async def test_states_of_older_versions_are_not_read_where_there_is_a_newer_one(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have their objects in them: a dozen of them can be a GiB, and whoever asks for a state loads the newest one."""
    async with await story.log() as log:
        for number in (0, 1, 2):
            await story.keep(SNAPSHOT, number, story.with_objects[number])
        await story.keep(OBJECTS, 3, story.tables[3])
        await story.keep(SNAPSHOT, 3, story.states[3])
        read: list[tuple[str, int]] = []
        get_snapshot = story.store.get_snapshot

        async def reading(name: str, seq: int) -> Snapshot | None:
            read.append((name, seq))
            return await get_snapshot(name, seq)

        monkeypatch.setattr(story.store, "get_snapshot", reading)

        state = await newest_state(log, Registry())

        assert state is not None
        assert state.whole == story.ends[3]
        assert read == [(SNAPSHOT, story.ends[3]), (OBJECTS, story.ends[3])]


async def test_objects_in_the_order_of_their_names_make_no_state(story: Story) -> None:
    async with await story.log() as log:
        await story.keep(OBJECTS, 1, story.sorted_tables[1])
        await story.keep(SNAPSHOT, 1, story.states[1])

        assert await story.digest(log) == story.digests[1]
        assert (await verify(log, rebuild=True)).problems == ()
        await log.compact(story.ends[1])
        with pytest.raises(LogError, match="written by another version of tidelog"):
            await newest_state(log, Registry())


async def test_objects_in_the_order_of_their_names_do_not_hide_older_ones_in_their_own(story: Story) -> None:
    async with await story.log() as log:
        await story.keep(OBJECTS, 1, story.tables[1])
        await story.keep(SNAPSHOT, 1, story.states[1])
        await story.keep(OBJECTS, 2, story.sorted_tables[2])
        await story.keep(SNAPSHOT + BETWEEN, 3, story.states[3])
        await log.compact(story.ends[1])

        assert await story.digest(log) == story.digests[3]


async def test_log_can_begin_where_a_state_is_with_its_objects(story: Story) -> None:
    async with await story.log() as log:
        for number in range(ROUNDS):
            await story.keep(SNAPSHOT, number, story.states[number])
        for number in (1, 3):
            await story.keep(OBJECTS, number, story.tables[number])

        assert await beginnings(log, story.ends[4]) == [story.ends[1], story.ends[3]]
        assert await beginnings(log, story.ends[3] - 1) == [story.ends[1]]
        assert await whole_states(log) == story.ends
        await log.compact(story.ends[2])
        assert await whole_states(log) == story.ends[3:]
        assert await story.digest(log) == story.digests[4]


@pytest.mark.unreplayed("the snapshots are made by hand")
async def test_state_that_only_records_say_that_are_gone_is_refused(story: Story) -> None:
    async with await story.log() as log:
        await story.keep(SNAPSHOT, 1, story.states[1])
        await story.keep(OBJECTS, 3, story.tables[3])
        await log.compact(story.ends[1])

        assert await whole_states(log) == []
        with pytest.raises(LogError, match="is gone: the log was compacted"):
            await newest_state(log, Registry(), story.ends[2])

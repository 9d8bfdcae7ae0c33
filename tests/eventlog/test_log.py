"""The log: order, groups, callables, epochs, tails, snapshots, compaction, failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tidelog.api.errors import InternalError, LogDamaged, LogError, LogFenced, LogFull
from tidelog.api.objects import ObjectMeta, Pod
from tidelog.api.writes import Write
from tidelog.eventlog import log as log_module
from tidelog.eventlog.log import AppendMoment, Log, memory_log, open_log
from tidelog.eventlog.memory import MemoryStore
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import (
    BODY_BYTES_MAX,
    AttemptAborted,
    ConfigurationLoaded,
    Draft,
    Evicted,
    ObjectPut,
    Outcome,
    Record,
    Scheduled,
    SchedulerStarted,
    Tick,
    Unschedulable,
    decode_body,
)
from tidelog.eventlog.store import Head, Snapshot


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


class WatchedStore(MemoryStore):
    """Counts groups, and waits or fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.full = False

    def check_room(self) -> None:
        if self.full:
            raise LogFull("memory", 0)

    async def append(self, records: Sequence[Record], head: Head) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.groups.append(len(records))
        await super().append(records, head)


def tick(name: object = "x", cause: int = 0) -> Draft:
    return Draft(body=Tick(), author="cluster", key=f"Pod/default/{name}", cause=cause)


def scheduled(epoch: int) -> Draft:
    body = Scheduled(attempt=1, observed=1, at=1, epoch=epoch, node="n1")
    return Draft(body=body, author="scheduler", key="Pod/default/x")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store() -> WatchedStore:
    return WatchedStore()


@pytest.fixture
async def log(store: WatchedStore, clock: Clock) -> AsyncIterator[Log]:
    async with Log(store, clock=clock) as log:
        yield log


@pytest.fixture(params=["memory", "file"])
async def any_log(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Log]:
    opened = await (
        memory_log(clock=clock) if request.param == "memory" else open_log(tmp_path / "c.db", clock=clock)
    )
    async with opened as log:
        yield log


async def keys(log: Log) -> list[str]:
    return [record.key.rpartition("/")[2] async for record in log.read()]


# --- appending --------------------------------------------------------------------------------------------------------


async def test_records_are_numbered_in_the_order_of_the_calls(any_log: Log) -> None:
    answers = await asyncio.gather(*(any_log.append([tick(n), tick(-n)]) for n in range(200)))

    assert [record.seq for answer in answers for record in answer] == list(range(1, 401))
    assert await keys(any_log) == [str(name) for n in range(200) for name in (n, -n)]
    assert any_log.head.seq == 400


async def test_appends_that_wait_for_a_commit_share_the_next_one(log: Log, store: WatchedStore) -> None:
    store.gate.clear()
    waiting = [asyncio.ensure_future(log.append([tick(n)])) for n in range(50)]
    await asyncio.sleep(0)
    store.gate.set()
    await asyncio.gather(*waiting)

    assert store.groups == [50]
    assert log.waiting == 0


async def test_nothing_is_answered_before_it_is_durable(log: Log, store: WatchedStore) -> None:
    store.gate.clear()
    waiting = asyncio.ensure_future(log.append([tick()]))
    for _ in range(10):
        await asyncio.sleep(0)

    assert not waiting.done()
    assert log.head.seq == 0
    store.gate.set()
    assert [record.seq for record in await waiting] == [1]


async def test_group_is_closed_when_it_is_large(
    log: Log, store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "GROUP_RECORDS", 10)

    await asyncio.gather(*(log.append([tick(), tick(), tick()]) for _ in range(8)))

    assert store.groups == [12, 12]
    monkeypatch.setattr(log_module, "GROUP_BYTES", 1)
    await asyncio.gather(log.append([tick()]), log.append([tick()]))
    assert store.groups == [12, 12, 1, 1]


async def test_more_callers_than_the_queue_takes_are_served_in_order(
    store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "QUEUE_LENGTH", 3)
    async with Log(store) as log:
        store.gate.clear()
        waiting = [asyncio.ensure_future(log.append([tick(n)])) for n in range(20)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert log.waiting <= 3

        store.gate.set()
        await asyncio.gather(*waiting)

        assert await keys(log) == [str(n) for n in range(20)]


async def test_appending_nothing_is_allowed(any_log: Log) -> None:
    assert await any_log.append([]) == []
    assert any_log.head.seq == 0


async def test_time_is_the_clocks_and_never_goes_back(any_log: Log, clock: Clock) -> None:
    times = []
    for clock.now in (5, 7, 3, 9):
        times += [record.at for record in await any_log.append([tick(), tick()])]

    assert times == [5, 5, 7, 7, 7, 7, 9, 9]


async def test_cancelled_call_that_still_waits_is_not_carried_out(log: Log, store: WatchedStore) -> None:
    store.gate.clear()
    first = asyncio.ensure_future(log.append([tick("first")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = asyncio.ensure_future(log.append([tick("second")]))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    store.gate.set()
    await first

    await log.append([tick("third")])

    assert await keys(log) == ["first", "third"]


async def test_call_cancelled_during_its_commit_harms_nobody(log: Log, store: WatchedStore) -> None:
    store.gate.clear()
    calls = [asyncio.ensure_future(log.append([tick(n)])) for n in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    calls[1].cancel()
    store.gate.set()

    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert isinstance(answers[1], asyncio.CancelledError)
    assert await keys(log) == ["0", "1", "2"]


BAD_DRAFTS: list[tuple[Draft, type[Exception], str]] = [
    (
        Draft(body=ConfigurationLoaded(configuration={"a": object()}), author="x"),
        LogError,
        "cannot be appended",
    ),
    (Draft(body=ConfigurationLoaded(configuration={"a": 2**70}), author="x"), LogError, "cannot be appended"),
    (Draft(body=Tick(), author="x", key="\ud800"), LogError, "cannot be appended"),
    (Draft(body=Tick(), author="\ud800"), LogError, "cannot be appended"),
    (
        Draft(body=ConfigurationLoaded(configuration={"a": bytes(BODY_BYTES_MAX)}), author="x"),
        LogError,
        "at most",
    ),
    (
        Draft(body=ObjectPut(object=Pod(metadata=ObjectMeta(name="a"))), author="x", key="Pod//b"),
        InternalError,
        "another's key",
    ),
    (tick(cause=99), InternalError, "cannot answer record 99"),
    (tick(cause=-1), InternalError, "cannot answer record -1"),
]


@pytest.mark.parametrize(("draft", "error", "said"), BAD_DRAFTS)
async def test_draft_that_cannot_be_kept_is_refused_alone(
    any_log: Log, draft: Draft, error: type[Exception], said: str
) -> None:
    good, bad, other = await asyncio.gather(
        any_log.append([tick("good")]),
        any_log.append([tick("before"), draft]),
        any_log.append([tick("other")]),
        return_exceptions=True,
    )

    assert isinstance(bad, error)
    assert said in str(bad)
    assert [r.seq for r in (*good, *other)] == [1, 2]  # type: ignore[misc]
    assert await keys(any_log) == ["good", "other"]


# --- callables ----------------------------------------------------------------------------------------------------------


async def test_callable_sees_everything_sequenced_before_it(any_log: Log, clock: Clock) -> None:
    seen: list[tuple[int, int, list[str]]] = []

    def decide(moment: AppendMoment) -> list[Draft]:
        since = [record.key.rpartition("/")[2] for record in moment.since(1)]
        seen.append((moment.seq, moment.at, since))
        return [tick(f"after-{moment.seq}", cause=moment.seq)]

    await any_log.append([tick("a")])
    await asyncio.gather(any_log.append([tick("b")]), any_log.append(decide), any_log.append(decide))

    assert seen == [(2, clock.now, ["b"]), (3, clock.now, ["b", "after-2"])]
    assert await keys(any_log) == ["a", "b", "after-2", "after-3"]


async def test_callable_that_raises_is_refused_alone(any_log: Log) -> None:
    def decide(moment: AppendMoment) -> list[Draft]:
        raise ValueError("the node is gone")

    results = await asyncio.gather(
        any_log.append([tick("a")]),
        any_log.append(decide),
        any_log.append([tick("b")]),
        return_exceptions=True,
    )

    assert [type(result) for result in results] == [list, ValueError, list]
    assert await keys(any_log) == ["a", "b"]


async def test_callable_may_decide_to_append_nothing(any_log: Log) -> None:
    assert await any_log.append(lambda moment: []) == []


async def test_callable_looks_back_further_than_memory(any_log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "RECENT", 10)
    for n in range(60):
        await any_log.append([tick(n)])
    assert len(any_log._recent) <= 20
    found: list[int] = []

    def decide(moment: AppendMoment) -> list[Draft]:
        found[:] = [record.seq for record in moment.since(5)]
        return []

    await asyncio.gather(
        *(any_log.append([tick(n)]) for n in range(30)),
        any_log.append(decide, since=5),
        any_log.append([tick()]),
    )

    assert found[:55] == list(range(6, 61))
    assert found == list(range(6, 6 + len(found)))
    with pytest.raises(InternalError, match="since=5"):
        await any_log.append(decide)


async def test_memory_is_kept_for_those_who_wait_and_freed_after(
    log: Log, store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "RECENT", 10)
    monkeypatch.setattr(log_module, "GROUP_RECORDS", 5)
    found: list[int] = []

    def decide(moment: AppendMoment) -> list[Draft]:
        found[:] = [record.seq for record in moment.since(0)]
        return []

    calls = [log.append([tick(n)]) for n in range(100)]
    await asyncio.gather(*calls, log.append(decide, since=0))

    assert found == list(range(1, 101))
    for n in range(30):
        await log.append([tick(n)])
    assert len(log._recent) <= 20


@pytest.mark.unreplayed("the records are made by hand: configurations of nothing")
async def test_large_records_do_not_stay_in_memory(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "RECENT_BYTES", 1_000)
    body = ConfigurationLoaded(configuration={"text": "x" * 300})
    seen: list[int] = []
    tail = log.tail(1)
    for _ in range(50):
        await log.append([Draft(body=body, author="x")])
        assert log._recent_bytes == sum(len(record.body) for record in log._recent) <= 2_400
        seen.append((await anext(tail)).seq)
    await log.append([Draft(body=ConfigurationLoaded(configuration={"text": "x" * 3_000}), author="x")])

    assert log._recent == []
    assert seen == list(range(1, 51))
    assert (await anext(tail)).seq == 51
    assert [record.seq async for record in log.read(40)] == list(range(40, 52))
    await tail.aclose()


# --- epochs -------------------------------------------------------------------------------------------------------------


@pytest.mark.unreplayed("the records are made by hand: outcomes of no attempt")
async def test_decision_of_an_older_epoch_is_refused(any_log: Log) -> None:
    first = await any_log.take_over("first")
    await any_log.append([scheduled(1)])

    await any_log.take_over("second")
    with pytest.raises(LogFenced, match="epoch 1 is over"):
        await any_log.append([tick("together"), scheduled(1)])
    await any_log.append([scheduled(2)])

    assert first.seq == 1
    assert any_log.epoch == 2
    assert await keys(any_log) == ["", "x", "", "x"]


async def test_take_over_sequenced_just_before_fences_in_the_same_group(any_log: Log) -> None:
    await any_log.take_over("first")

    results = await asyncio.gather(
        any_log.take_over("second"), any_log.append([scheduled(1)]), return_exceptions=True
    )

    assert isinstance(results[1], LogFenced)


async def test_epoch_is_never_given_twice_nor_in_advance(any_log: Log) -> None:
    await any_log.take_over("first")

    with pytest.raises(LogFenced):
        await any_log.append([Draft(body=SchedulerStarted(epoch=1, holder="x"), author="scheduler")])
    with pytest.raises(InternalError, match="has not begun"):
        await any_log.append([scheduled(2)])


@pytest.mark.unreplayed("no scheduler ran, so that the compacted log has no state to begin with")
async def test_epoch_is_known_after_reopening_and_compaction(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_log(path) as log:
        await log.take_over("first")
        await log.take_over("second")
        await log.append([tick()])
        await log.put_snapshot("objects", 3, b"state")
        await log.compact()
    async with open_log(path) as log:
        assert (log.anchor.epoch, log.epoch) == (2, 2)
        assert (await log.take_over("third")).seq == 4
    async with open_log(path) as log:
        assert log.epoch == 3


# --- reading and tails --------------------------------------------------------------------------------------------------


async def test_parts_of_the_log_are_read(any_log: Log) -> None:
    for n in range(1, 30):
        await any_log.append([tick(n)])

    assert [r.seq async for r in any_log.read(5, 8)] == [5, 6, 7, 8]
    assert [r.seq async for r in any_log.read(28)] == [28, 29]
    assert [r.seq async for r in any_log.read(28, 99)] == [28, 29]
    assert [r.seq async for r in any_log.read(30)] == []
    assert (await any_log.record(7)).key == "Pod/default/7"
    with pytest.raises(LogError, match="there is no record 30: the log ends at 29"):
        await any_log.record(30)


async def test_seq_is_found_by_time(any_log: Log, clock: Clock) -> None:
    for clock.now in (10, 20, 20, 30):
        await any_log.append([tick()])

    found = {at: await any_log.seq_at(at) for at in (5, 10, 15, 20, 25, 30, 99)}

    assert found == {5: 0, 10: 1, 15: 1, 20: 3, 25: 3, 30: 4, 99: 4}


async def test_tail_yields_the_past_and_then_each_record_at_once(any_log: Log) -> None:
    await any_log.append([tick(0), tick(1)])
    tail = any_log.tail(2)

    assert (await anext(tail)).seq == 2
    for n in range(3, 8):
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0)
        assert not waiting.done()
        await any_log.append([tick(n)])
        assert (await waiting).seq == n
    await tail.aclose()


async def test_tail_wakes_within_two_turns_of_the_loop(log: Log) -> None:
    tail = log.tail(1)
    waiting = asyncio.ensure_future(anext(tail))
    await asyncio.sleep(0)
    await log.append([tick()])
    turns = 0
    while not waiting.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns <= 2
    await tail.aclose()


async def test_tail_that_fell_behind_memory_misses_nothing(
    any_log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "RECENT", 5)
    seen: list[int] = []

    async def follow() -> None:
        async for record in any_log.tail():
            seen.append(record.seq)
            await asyncio.sleep(0)
            if record.seq == 100:
                return

    following = asyncio.create_task(follow())
    for n in range(50):
        await any_log.append([tick(n), tick(n)])
    await following

    assert seen == list(range(1, 101))


async def test_tail_shows_only_what_is_durable(log: Log, store: WatchedStore) -> None:
    tail = log.tail(1)
    waiting = asyncio.ensure_future(anext(tail))
    store.gate.clear()
    appending = asyncio.ensure_future(log.append([tick()]))
    for _ in range(10):
        await asyncio.sleep(0)

    assert not waiting.done()
    store.gate.set()
    await appending
    assert (await waiting).seq == 1
    await tail.aclose()


async def test_tail_ends_when_the_log_is_closed() -> None:
    log = await memory_log()
    tail = log.tail(1)
    waiting = asyncio.ensure_future(anext(tail))
    await asyncio.sleep(0)

    await log.close()

    with pytest.raises(LogError, match="closed"):
        await waiting


async def test_tail_cannot_begin_in_the_future(any_log: Log) -> None:
    with pytest.raises(LogError, match="there is no record 5 yet: the log ends at 0"):
        await anext(any_log.tail(5))


# --- snapshots and compaction -------------------------------------------------------------------------------------------


async def test_newest_sound_snapshot_is_found(any_log: Log) -> None:
    for n in range(1, 9):
        await any_log.append([tick(n)])
    for seq in (3, 6):
        await any_log.put_snapshot("scheduler", seq, b"%d" % seq)

    found = {at: await any_log.snapshot("scheduler", at) for at in (None, 8, 6, 5, 2)}

    assert {at: s and s.blob for at, s in found.items()} == {None: b"6", 8: b"6", 6: b"6", 5: b"3", 2: None}
    assert await any_log.snapshot("objects") is None


async def test_damaged_snapshot_is_passed_over(log: Log, store: WatchedStore) -> None:
    for n in range(5):
        await log.append([tick(n)])
    for seq in (2, 4):
        await log.put_snapshot("objects", seq, b"state")
    newest = store._snapshots["objects", 4]
    for change in ({"pieces": (b"stale",)}, {"chain": bytes(32)}):
        store._snapshots["objects", 4] = type(newest)(
            **{name: change.get(name, getattr(newest, name)) for name in newest.__struct_fields__}
        )
        found = await log.snapshot("objects")
        assert found is not None
        assert found.seq == 2


async def test_snapshot_of_a_record_that_is_not_there_is_refused(any_log: Log) -> None:
    with pytest.raises(InternalError, match="record 1, which is not in the log"):
        await any_log.put_snapshot("objects", 1, b"")


@pytest.mark.unreplayed("the snapshots are made by hand")
async def test_compaction_leaves_what_some_snapshot_still_needs(any_log: Log) -> None:
    for n in range(1, 11):
        await any_log.append([tick(n)])
    with pytest.raises(LogError, match="no snapshot to compact behind"):
        await any_log.compact()
    await any_log.put_snapshot("objects", 8, b"")
    await any_log.put_snapshot("scheduler", 5, b"")
    with pytest.raises(LogError, match=r"records after 5 are still needed: .* 'scheduler'"):
        await any_log.compact(6)

    anchor = await any_log.compact()

    assert anchor.seq == 5
    assert [r.seq for r in [r async for r in any_log.read()]] == [6, 7, 8, 9, 10]
    with pytest.raises(LogError, match="record 3 was dropped by compaction; the log begins at 6"):
        await any_log.record(3)
    assert (await any_log.compact()).seq == 5


async def test_compaction_drops_as_much_as_the_snapshots_allow(any_log: Log) -> None:
    for n in range(1, 11):
        await any_log.append([tick(n)])
    for seq in (2, 4, 6):
        await any_log.put_snapshot("objects", seq, b"")

    assert (await any_log.compact(3)).seq == 3
    assert [info.seq for info in await any_log.snapshots()] == [4, 6]
    assert (await any_log.compact()).seq == 6
    assert [info.seq for info in await any_log.snapshots()] == [6]


async def test_appends_do_not_wait_for_a_large_snapshot(tmp_path: Path) -> None:
    async with open_log(tmp_path / "c.db") as log:
        await log.append([tick()])
        snapshot = asyncio.create_task(log.put_snapshot("objects", 1, bytes(20_000_000)))
        await asyncio.sleep(0)

        for n in range(3):
            await log.append([tick(n)])

        assert not snapshot.done()
        await snapshot
        assert await log.snapshot("objects") is not None


async def test_appends_go_on_during_snapshots_and_compaction(tmp_path: Path) -> None:
    async with open_log(tmp_path / "c.db") as log:
        await log.append([tick()])
        results = await asyncio.gather(
            log.put_snapshot("objects", 1, bytes(5_000_000)),
            *(log.append([tick(n)]) for n in range(20)),
        )
        await asyncio.gather(log.compact(), log.append([tick()]))
        assert len(results) == 21
        assert log.head.seq == 22
    async with open_reader(tmp_path / "c.db") as reader:
        assert [record.seq async for record in reader.read()] == list(range(2, 23))


# --- failure --------------------------------------------------------------------------------------------------------------


async def test_failed_write_refuses_everything_from_then_on(log: Log, store: WatchedStore) -> None:
    await log.append([tick()])
    store.error = LogError("the disk is gone: replace it")
    calls = [log.append([tick(n)]) for n in range(3)]

    results = await asyncio.gather(*calls, return_exceptions=True)

    assert [str(result) for result in results] == ["the disk is gone: replace it"] * 3
    assert log.failure is store.error
    store.error = None
    for call in (log.append([tick()]), log.put_snapshot("objects", 1, b""), anext(log.tail(2))):
        with pytest.raises(LogError, match="the disk is gone"):
            await call
    assert await keys(log) == ["x"]


async def test_full_disk_is_no_failure(log: Log, store: WatchedStore) -> None:
    store.full = True
    with pytest.raises(LogFull):
        await log.append([tick()])
    store.full = False

    assert [record.seq for record in await log.append([tick()])] == [1]


async def test_unexpected_error_stops_the_log_and_is_not_swallowed(store: WatchedStore) -> None:
    log = Log(store)
    store.error = ZeroDivisionError("a bug")

    with pytest.raises(LogError, match="a bug"):
        await log.append([tick()])

    with pytest.raises(ZeroDivisionError):
        await log.close()


async def test_closing_finishes_what_was_asked_for(tmp_path: Path) -> None:
    log = await open_log(tmp_path / "c.db")
    calls = [asyncio.ensure_future(log.append([tick(n)])) for n in range(100)]
    await asyncio.sleep(0)
    await log.close()
    await log.close()

    assert [len(await call) for call in calls] == [1] * 100
    with pytest.raises(LogError, match="closed"):
        await log.append([tick()])
    async with open_reader(tmp_path / "c.db") as reader:
        assert reader.head.seq == 100


async def test_cancelled_sequencer_leaves_nobody_waiting(store: WatchedStore) -> None:
    log = Log(store)
    store.gate.clear()
    call = asyncio.ensure_future(log.append([tick()]))
    for _ in range(3):
        await asyncio.sleep(0)

    log._sequencer.cancel()

    with pytest.raises(LogError):
        await call
    await log.close()


@pytest.mark.unreplayed("the log is damaged")
async def test_changed_row_is_never_returned_as_a_record(log: Log, store: WatchedStore) -> None:
    for n in range(5):
        await log.append([tick(n)])
    row: Any = store._rows[2]
    store._rows[2] = (*row[:4], "Pod/default/changed", *row[5:])
    log._recent.clear()
    log._recent_first = 6

    with pytest.raises(LogDamaged, match="records 3 to 5 are missing or damaged"):
        await keys(log)
    with pytest.raises(LogDamaged):
        await log.record(3)
    assert (await log.record(5)).seq == 5


async def test_missing_row_is_damage(log: Log, store: WatchedStore) -> None:
    for n in range(5):
        await log.append([tick(n)])
    del store._rows[3:]
    log._recent.clear()
    log._recent_first = 6

    with pytest.raises(LogDamaged, match="records 4 to 5 are missing"):
        await keys(log)
    with pytest.raises(LogDamaged, match="record 4 is missing"):
        await log.record(5)


# --- decoding -------------------------------------------------------------------------------------------------------


async def test_two_readers_of_a_fact_share_its_object() -> None:
    async with await memory_log() as log:
        web = Pod(metadata=ObjectMeta(name="web", namespace="default"))
        (record,) = await log.append(
            [Draft(body=ObjectPut(object=web), author="cluster", key="Pod/default/web")]
        )

        first, second = log.body_of(record), log.body_of(record)

        assert second is first
        assert first == decode_body(record)


async def test_bodies_that_have_one_reader_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "BODIES", 3)
    async with await memory_log() as log:
        records = await log.append([Draft(body=Tick(), author="ticker")] * 5)
        first = [log.body_of(record) for record in records]

        assert len(log._bodies) == 3
        assert [log.body_of(record) for record in records] == first


@pytest.mark.unreplayed("the records are made by hand: outcomes of no attempt")
async def test_outcome_is_not_decoded_for_who_asks_beside_the_one_who_decided_it() -> None:
    async with await memory_log() as log:
        draft = scheduled(0)
        (record,) = await log.append([draft])

        first, second = log.body_of(record), log.body_of(record)

    assert first is draft.body
    assert second is not first
    assert second == first


@pytest.mark.unreplayed("the records are made by hand: outcomes of no attempt")
async def test_outcome_with_what_a_plugin_writes_is_decoded_for_everybody_else() -> None:
    notes = {"by": "p1"}
    write = Write(key="Node//n1", uid="", verb="patch", patch={"metadata": {"annotations": notes}})
    body = Unschedulable(attempt=1, observed=1, at=1, epoch=0, message="", writes=(write,))
    async with await memory_log() as log:
        (record,) = await log.append([Draft(body=body, author="scheduler", key="Pod/default/x")])
        notes["by"] = "p2"  # The plugin goes on with its dict.

        found = log.body_of(record)

    assert isinstance(found, Unschedulable)
    assert found.writes[0].patch == {"metadata": {"annotations": {"by": "p1"}}}


async def test_outcome_of_a_request_that_is_refused_is_nobodys_body() -> None:
    def decide(_moment: AppendMoment) -> Sequence[Draft]:
        return [scheduled(0), Draft(body=Tick(), author="ticker", cause=99)]

    async with await memory_log() as log:
        with pytest.raises(InternalError):
            await log.append(decide)
        (record,) = await log.append([tick()])

        assert log.body_of(record) == Tick()


async def test_who_asks_for_two_leaves_nothing_behind() -> None:
    async with await memory_log() as log:
        (record,) = await log.append([tick()])

        log.body_of(record, 2)

        assert not log._bodies


async def test_snapshot_of_another_history_is_not_used() -> None:
    """Its bytes are sound; but it was computed from a record that is not the one of this log."""
    store = MemoryStore()
    async with Log(store) as log:
        await log.append([tick(), tick(), tick()])
        await log.put_snapshot("objects", 1, b"ours")
        other = Snapshot.make("objects", 2, b"\x01" * 32, b"of a log that was cut, and grew anew")
        assert other.is_sound
        await store.put_snapshot(other)

        found = await log.snapshot("objects")

        assert found is not None
        assert (found.seq, found.blob) == (1, b"ours")


@pytest.mark.parametrize(
    "body",
    [
        Evicted(epoch=1, attempt=1, observed=1, at=0, preemptor="Pod/default/x", node="n"),
        AttemptAborted(epoch=1, attempt=1, observed=1, at=0, reason="gone"),
    ],
)
async def test_nothing_that_an_older_epoch_decided_is_appended(body: Outcome) -> None:
    async with await memory_log() as log:
        await log.take_over("first")
        await log.take_over("second")

        with pytest.raises(LogFenced, match="epoch 1 is over"):
            await log.append([Draft(body=body, author="scheduler", key="Pod/default/web")])
        assert log.head.seq == 2

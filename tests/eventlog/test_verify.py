"""Verifying a whole log, its snapshots included."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tidelog.api.errors import LogDamaged
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import ObjectMeta, Pod
from tidelog.eventlog.log import Log, memory_log, open_log
from tidelog.eventlog.memory import MemoryStore
from tidelog.eventlog.objects import SNAPSHOT, load_objects
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Draft, ObjectPut
from tidelog.eventlog.store import Head, Snapshot
from tidelog.eventlog.verify import verify


async def put_pods(log: Log, count: int) -> None:
    for n in range(count):
        pod = Pod(metadata=ObjectMeta(name=f"web-{log.head.seq}-{n}", namespace="default"))
        await log.append([Draft(body=ObjectPut(object=pod), author="cluster", key=object_key(pod))])


async def snapshot(log: Log) -> None:
    table = await load_objects(log)
    await log.put_snapshot(SNAPSHOT, table.seq, table.encode())


async def test_whole_log_is_checked_with_progress() -> None:
    steps: list[tuple[int, int]] = []
    async with await memory_log() as log:
        await log.take_over("x")
        await put_pods(log, 1500)

        found = await verify(log, lambda done, of: steps.append((done, of)))

        assert (found.first, found.last, found.records, found.problems) == (1, 1501, 1501, ())
        assert found.head == log.head
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)
        assert steps[-1] == (1501, 1501)


async def test_empty_log_verifies() -> None:
    async with await memory_log() as log:
        found = await verify(log, rebuild=True)

    assert (found.first, found.last, found.records) == (1, 0, 0)


@pytest.mark.unreplayed("the snapshots are made by hand")
async def test_snapshots_are_computed_again_and_compared() -> None:
    async with await memory_log() as log:
        await put_pods(log, 5)
        await snapshot(log)
        await put_pods(log, 5)
        await snapshot(log)
        await log.put_snapshot("scheduler", 3, b"something else")

        assert (await verify(log)).snapshots == 3
        found = await verify(log, rebuild=True)

        assert (found.snapshots, found.rebuilt, found.problems) == (3, 2, ())
        await log.compact(3)
        found = await verify(log, rebuild=True)
        assert (found.first, found.snapshots) == (4, 3)


async def test_compacted_log_is_rebuilt_from_the_snapshot_at_its_anchor() -> None:
    async with await memory_log() as log:
        await put_pods(log, 5)
        await snapshot(log)
        await log.compact()
        await put_pods(log, 5)
        await snapshot(log)

        found = await verify(log, rebuild=True)

        assert (found.first, found.last, found.rebuilt, found.problems) == (6, 10, 2, ())


async def test_wrong_snapshots_are_problems() -> None:
    store = MemoryStore()
    async with Log(store) as log:
        await put_pods(log, 5)
        table = await load_objects(log, 3)
        digests = {record.seq: record.digest async for record in log.read()}
        good = Snapshot.make(SNAPSHOT, 4, digests[4], table.encode())
        store._snapshots = {
            ("a", 1): Snapshot(name="a", seq=1, chain=digests[1], pieces=(b"x",), digest=bytes(32)),
            ("b", 2): Snapshot.make("b", 2, bytes(32), b"x"),
            (SNAPSHOT, 4): good,
            ("c", 9): Snapshot.make("c", 9, bytes(32), b"x"),
        }

        found = await verify(log, rebuild=True)

    assert found.problems == (
        "snapshot a at 1: its content was changed or is unreadable",
        "snapshot b at 2: it was made from another log",
        "snapshot objects at 4: computed from the records it is another",
        "snapshot c at 9: there is no such record",
    )
    assert found.snapshots == 0


@pytest.mark.unreplayed("the log is damaged")
async def test_changed_record_is_damage() -> None:
    store = MemoryStore()
    async with Log(store) as log:
        await put_pods(log, 5)
        row = store._rows[2]
        store._rows[2] = (*row[:6], row[6] + b"\x00", row[7])
        log._recent.clear()
        log._recent_first = 6

        with pytest.raises(LogDamaged, match="records 3 to 5"):
            await verify(log)


async def test_head_that_is_not_the_last_record_is_damage() -> None:
    store = MemoryStore()
    async with Log(store) as log:
        await put_pods(log, 5)
        store.head = Head(5, store.head.at, 9, store.head.digest)

        with pytest.raises(LogDamaged, match="not the one that its head file names"):
            await verify(log)


async def test_structure_of_the_file_is_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with open_log(path) as log:
        await put_pods(log, 5)
        await log.put_snapshot("objects", 5, b"x")
    raw = sqlite3.connect(path)
    ((page,),) = raw.execute(
        "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_parts_1'"
    ).fetchall()
    raw.close()
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = bytes(4096)
    path.write_bytes(content)

    async with open_reader(path) as reader:
        found = await verify(reader)

    assert found.records == 5
    assert found.storage != ()
    assert all("\n" not in line and "***" not in line for line in found.storage)

"""A table becomes bytes in steps, between which it goes on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import ObjectDeleted, ObjectPut, Record, encode_body
from tidelog.eventlog.store import HASHED_AT_ONCE, Snapshot, whole_result
from tidelog.eventlog.table_encoding import OBJECTS_PER_STEP, TableEncoding, encoded, sorting
from tidelog.testing import builders as b


def record(seq: int, name: str, body: ObjectPut | ObjectDeleted) -> Record:
    return Record(
        seq, seq, "test", type(body).__name__, f"Pod/default/{name}", 0, encode_body(body), bytes(32)
    )


def put(table: ObjectTable, *names: str) -> None:
    for name in names:
        table.apply(record(table.seq + 1, name, ObjectPut(object=b.pod(name).build())))


def of_pods(count: int) -> ObjectTable:
    table = ObjectTable()
    put(table, *(f"p{number}" for number in range(count)))
    return table


def test_bytes_are_those_of_the_mark_whatever_happens_between_steps() -> None:
    table = of_pods(3 * OBJECTS_PER_STEP)
    whole, mark = table.encode(), table.mark()
    encoding, steps = TableEncoding(mark), 0
    for _ in encoding.work():
        steps += 1
        table.apply(record(table.seq + 1, f"p{steps}", ObjectDeleted()))
        put(table, f"new-{steps}")

    assert steps == 2
    assert encoding.blob() == whole != table.encode()
    assert ObjectTable.decode(whole).encode() == whole


def test_changes_lead_from_one_mark_to_the_next() -> None:
    table = of_pods(2 * OBJECTS_PER_STEP)
    before, first = table.mark(), table.encode()
    put(table, *(f"q{number}" for number in range(2 * OBJECTS_PER_STEP)))
    table.apply(record(table.seq + 1, "p7", ObjectDeleted()))
    after = table.mark()
    encoding = TableEncoding(after, before)
    steps = sum(1 for _ in encoding.work())
    known = ObjectTable.from_snapshot(
        Snapshot.make("objects", before.seq, bytes(32), first),
        [Snapshot.make("objects-changes", after.seq, bytes(32), encoding.blob())],
    )

    assert steps == 1
    assert known is not None
    assert known.encode() == encoded(after) == table.encode()


def test_few_objects_are_one_step() -> None:
    assert sum(1 for _ in TableEncoding(of_pods(OBJECTS_PER_STEP).mark()).work()) == 0


def test_long_snapshot_is_hashed_in_steps_and_is_the_same() -> None:
    blob = bytes(3 * HASHED_AT_ONCE)
    work = Snapshot.making("objects", 7, bytes(32), blob)
    steps = 0
    try:
        while True:
            next(work)
            steps += 1
    except StopIteration as done:
        made = done.value

    assert steps == 2
    assert (
        made
        == Snapshot.make("objects", 7, bytes(32), blob)
        == whole_result(Snapshot.making("objects", 7, bytes(32), blob))
    )
    assert made.is_sound
    assert not replace(made, blob=blob[:-1] + b"x").is_sound


@pytest.mark.parametrize("count", [0, 1, 20, 999])
def test_keys_are_sorted_in_steps_as_at_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.eventlog.table_encoding.WORDS_PER_STEP", 16)
    words = [f"w{number * 7_919 % 1_009 % 500}" for number in range(count)]
    found: list[str] = []

    steps = sum(1 for _ in sorting(words, found))

    assert found == sorted(words)
    assert steps >= count // 16 - 1

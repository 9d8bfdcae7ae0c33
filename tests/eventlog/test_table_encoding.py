"""A table becomes bytes in steps, between which it goes on."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from tidelog.api.messagepack import array_head, bytes_head, in_pieces, map_head
from tidelog.api.steps import Steps, sorting
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import ObjectDeleted, ObjectPut, Record, encode_body
from tidelog.eventlog.store import HASHED_AT_ONCE, Snapshot, parts_of
from tidelog.eventlog.table_encoding import OBJECTS_PER_STEP, TableEncoding, encoded
from tidelog.testing import builders as b

T = TypeVar("T")


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
    pieces = (blob[:5], blob[5:HASHED_AT_ONCE], blob[HASHED_AT_ONCE:])
    work = Snapshot.making("objects", 7, bytes(32), pieces)
    steps = 0
    try:
        while True:
            next(work)
            steps += 1
    except StopIteration as done:
        made = done.value

    assert steps == 2
    assert made == replace(Snapshot.make("objects", 7, bytes(32), blob), pieces=pieces)
    assert made.is_sound
    assert made.blob == blob
    assert not replace(made, pieces=(blob[:-1], b"x")).is_sound


def test_content_is_cut_into_parts_of_one_size_wherever_its_pieces_end() -> None:
    pieces = (b"a", b"", b"bcdefgh", b"ij", b"klm")

    assert list(parts_of(pieces, 3)) == [b"abc", b"def", b"ghi", b"jkl", b"m"]
    assert list(parts_of(pieces[:2], 1)) == [b"a"]
    assert list(parts_of((), 3)) == []


@pytest.mark.parametrize("length", [0, 15, 16, 255, 256, 2**16 - 1, 2**16])
def test_heads_are_those_of_whole_values(length: int) -> None:
    assert array_head(length) + b"\xc0" * length == msgspec.msgpack.encode([None] * length)
    assert bytes_head(length) + bytes(length) == msgspec.msgpack.encode(bytes(length))
    entries = dict.fromkeys(map(str, range(length)))
    whole = msgspec.msgpack.encode(entries)
    assert whole == map_head(length) + b"".join(msgspec.msgpack.encode(key) + b"\xc0" for key in entries)


def counted(work: Steps[T]) -> tuple[T, int]:
    """The result, and between how many steps others had their turn."""
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, steps
        steps += 1


@pytest.mark.parametrize("count", [0, 1, 64, 65, 499, 500, 501, 1_200])
def test_large_lists_and_dicts_are_encoded_in_steps_and_are_the_same(count: int) -> None:
    rows = [[n, str(n), ("a", n)] for n in range(count)]
    value = {
        "rows": rows,
        "by": dict(zip(map(str, range(count)), rows, strict=True)),
        "": None,
        "more": {"rows": rows},
    }

    pieces, steps = counted(in_pieces(value))

    assert b"".join(pieces) == msgspec.msgpack.encode(value)
    assert steps == 3 * max(0, -(-count // 500) - 1)


def test_changes_say_what_is_particular_about_entries_behind_the_first_kind_that_has_such() -> None:
    """The bytes are those of one map, of which later entries are still added: logs have had them so."""
    table = of_pods(1)
    before = table.mark()
    node = b.node("n1").build()
    opaque = ObjectPut(object=b.pod("p1").build(), opaque="[1]")
    table.apply(record(table.seq + 1, "p1", opaque))
    put = ObjectPut(object=node, opaque="[1]")
    table.apply(Record(table.seq + 1, 1, "test", "ObjectPut", "Node//n1", 0, encode_body(put), bytes(32)))
    changes = msgspec.msgpack.decode(encoded(table.mark(), before))
    whole = msgspec.msgpack.decode(table.encode())

    assert list(changes[4]) == ["Pod", "/", "Node"]
    assert changes[4]["/"] == {"Pod/default/p1": [1, "[1]"], "Node//n1": [1, "[1]"]}
    assert list(whole[4]) == ["Pod", "Node", "/"]


@pytest.mark.parametrize("count", [0, 1, 20, 999])
def test_keys_are_sorted_in_steps_as_at_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.api.steps.WORDS_PER_STEP", 16)
    words = [f"w{number * 7_919 % 1_009 % 500}" for number in range(count)]
    found, steps = counted(sorting(words))

    assert found == sorted(words)
    assert steps >= count // 16 - 1

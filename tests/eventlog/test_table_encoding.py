"""A table becomes bytes in steps, between which it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tidelog.api.messagepack import array_head, bytes_head, in_pieces, map_head
from tidelog.api.steps import Steps, sorting, whole_result
from tidelog.eventlog.layer import Layer
from tidelog.eventlog.objects import ObjectEntry, ObjectTable
from tidelog.eventlog.records import ObjectDeleted, ObjectPut, Record, encode_body
from tidelog.eventlog.store import HASHED_AT_ONCE, Snapshot, parts_of
from tidelog.eventlog.table_encoding import OBJECTS_PER_STEP, SORTED, Mark, encoded, encoding
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
    whole, plain = table.encode(), of_pods(3 * OBJECTS_PER_STEP)

    def goes_on() -> None:
        for one in (table, plain):
            put(one, "p7")  # Before it goes, and when it has come again behind all others.
            one.apply(record(one.seq + 1, "p7", ObjectDeleted()))
            one.apply(record(one.seq + 1, f"p{one.seq}", ObjectDeleted()))
            put(one, "p7", f"new-{one.seq}", "p2")
        assert table.encode() == plain.encode()
        assert table.is_like(plain)

    with table.marked() as mark:
        pieces, steps = counted(encoding(mark), goes_on)
    _, folds = counted(table.folding(), goes_on)

    assert steps == 2
    assert folds == 1
    assert b"".join(pieces) == whole != table.encode()
    assert ObjectTable.decode(whole).encode() == whole
    goes_on()


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "delete", "mark", "end", "fold"]), st.integers(0, 5)), max_size=40
    )
)
def test_marked_tables_go_on_as_others_do_and_their_marks_stay(story: list[tuple[str, int]]) -> None:
    table, plain = of_pods(3), of_pods(3)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as all_marks:
        patch.setattr("tidelog.eventlog.objects.FOLDED_PER_STEP", 1)
        marks: list[tuple[ExitStack, Mark, bytes]] = []
        folding = iter(table.folding())
        for what, number in story:
            if what == "mark":
                stack = all_marks.enter_context(ExitStack())
                marks.append((stack, stack.enter_context(table.marked()), plain.encode()))
            elif what == "end" and marks:
                marks.pop(number % len(marks))[0].close()
            elif what == "fold" and next(folding, folding) is folding:
                folding = iter(table.folding())
            elif what == "put":
                put(table, f"p{number}")
                put(plain, f"p{number}")
            elif what == "delete":
                for one in (table, plain):
                    one.apply(record(one.seq + 1, f"p{number}", ObjectDeleted()))
            assert table.encode() == plain.encode()
            assert len(table) == len(plain)
            assert list(table.objects()) == list(plain.objects())
            assert [table.entry(f"Pod/default/p{n}") for n in range(6)] == [
                plain.entry(f"Pod/default/p{n}") for n in range(6)
            ]
            assert [encoded(mark) for _, mark, _ in marks] == [expected for _, _, expected in marks]
    whole_result(table.folding())
    assert not [kind for kind, entries in table._kinds.items() if isinstance(entries, Layer)]
    assert table.encode() == plain.encode()


class Counting(dict[str, ObjectEntry]):
    """Counts how many entries are looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[str]:
        self.looked_at += len(self)
        return super().__iter__()

    def keys(self) -> Any:
        self.looked_at += len(self)
        return super().keys()

    def values(self) -> Any:
        self.looked_at += len(self)
        return super().values()

    def items(self) -> Any:
        self.looked_at += len(self)
        return super().items()

    def copy(self) -> Any:
        self.looked_at += len(self)
        return super().copy()


def test_mark_and_its_end_cost_what_changes_and_not_what_there_is() -> None:
    table = of_pods(1_000)
    table._kinds["Pod"] = pods = Counting(table._kinds["Pod"])

    with table.marked():
        put(table, "new", "newer", "p8")
        for name in ("p9", "new"):
            table.apply(record(table.seq + 1, name, ObjectDeleted()))
    whole_result(table.folding())

    assert pods.looked_at == 0
    assert table._kinds["Pod"] is pods
    assert list(pods)[-2:] == ["Pod/default/p999", "Pod/default/newer"]


def test_objects_come_back_in_the_order_in_which_they_came() -> None:
    table = ObjectTable()
    put(table, "b", "a", "c")
    table.apply(record(table.seq + 1, "b", ObjectDeleted()))
    put(table, "b", "a")

    again = ObjectTable.decode(table.encode())

    assert list(again.objects()) == ["Pod/default/a", "Pod/default/c", "Pod/default/b"]
    assert again.is_in_order
    assert again.encode() == table.encode()


def test_table_of_a_version_that_did_not_know_the_order_is_read_and_brought_into_it() -> None:
    table = ObjectTable()
    put(table, "b", "a")
    mark = table.mark()
    pods = dict(sorted(mark.kinds["Pod"].items()))
    older = ObjectTable.decode(encoded(mark._replace(kinds={"Pod": pods}, format=SORTED)))

    assert not older.is_in_order
    assert older.is_like(table)
    assert ObjectTable.decode(older.encode()).is_in_order is False
    older.bring_into_order(table.objects())
    assert older.encode() == table.encode()


def test_tables_are_alike_whichever_kind_came_first_and_not_if_objects_of_one_kind_stand_otherwise() -> None:
    table = ObjectTable()
    node = ObjectPut(object=b.node("n").build())
    table.apply(Record(1, 1, "test", "ObjectPut", "Node//n", 0, encode_body(node), bytes(32)))
    put(table, "b", "a")

    assert ObjectTable.decode(table.encode()).is_like(table)
    mark = table.mark()
    pods = dict(reversed(mark.kinds["Pod"].items()))
    turned = ObjectTable.decode(encoded(mark._replace(kinds={**mark.kinds, "Pod": pods})))
    assert not turned.is_like(table)


def test_few_objects_are_one_step() -> None:
    assert counted(encoding(of_pods(OBJECTS_PER_STEP).mark()))[1] == 0


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


def counted(work: Steps[T], between: Callable[[], object] = lambda: None) -> tuple[T, int]:
    """The result, and between how many steps others had their turn; `between` is what they do."""
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value, steps
        steps += 1
        between()


@pytest.mark.parametrize("count", [0, 1, 64, 65, 499, 500, 501, 1_200])
def test_large_lists_and_dicts_are_encoded_in_steps_and_are_the_same(count: int) -> None:
    rows = [[n, str(n), ("a", n)] for n in range(count)]
    value = {
        "rows": list(rows),
        "by": dict(zip(map(str, range(count)), rows, strict=True)),
        "": None,
        "more": {"rows": rows},
    }
    whole = msgspec.msgpack.encode(value)

    pieces, steps = counted(in_pieces(value))

    assert b"".join(pieces) == whole
    assert steps == 3 * max(0, -(-count // 500) - 1)
    assert len(rows) <= 500, "they are dropped on the way"


@pytest.mark.parametrize("count", [0, 1, 20, 999])
def test_keys_are_sorted_in_steps_as_at_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.api.steps.WORDS_PER_STEP", 16)
    monkeypatch.setattr("tidelog.api.steps.VALUES_PER_STEP", 16)
    words = [f"w{number * 7_919 % 1_009 % 500}" for number in range(count)]
    found, steps = counted(sorting(words))

    assert found == sorted(words)
    assert steps >= count // 8 - 1

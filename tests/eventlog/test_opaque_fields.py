"""Fields that nothing here reads, beside the typed objects: kept, carried over, taken away, in snapshots too; and what is told of changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Condition, Object
from tidelog.eventlog.log import memory_log
from tidelog.eventlog.objects import ObjectEntry, ObjectTable
from tidelog.eventlog.records import (
    KIND_OF_BODY,
    NO_OPAQUE,
    Body,
    Draft,
    ObjectDeleted,
    ObjectPut,
    PlacementChosen,
    PodConditionSet,
    Record,
    decode_body,
    encode_body,
)
from tidelog.testing.builders import pod

REST = '{"spec":{"dnsPolicy":"Default"}}'
WEB = "Pod/default/web"


def record(seq: int, key: str, body: Body) -> Record:
    return Record(seq, seq, "test", KIND_OF_BODY[type(body)], key, 0, encode_body(body), bytes(32))


def applied(*steps: tuple[str, Body]) -> ObjectTable:
    table = ObjectTable()
    for seq, (key, body) in enumerate(steps, start=1):
        table.apply(record(seq, key, body))
    return table


def put(name: str = "web", opaque: str = "") -> tuple[str, Body]:
    obj: Object = pod(name).build()
    return object_key(obj), ObjectPut(object=obj, opaque=opaque)


def entry(table: ObjectTable, key: str = WEB) -> ObjectEntry:
    found = table.entry(key)
    assert found is not None
    return found


def test_record_without_such_fields_is_as_it_always_was() -> None:
    _, body = put()

    assert msgspec.msgpack.decode(encode_body(body)).keys() == {"object"}


def test_record_with_such_fields_is_read_back() -> None:
    key, body = put(opaque=REST)

    found = decode_body(record(1, key, body))

    assert isinstance(found, ObjectPut)
    assert found.opaque == REST


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (put(), REST),
        (put(opaque='{"a":1}'), '{"a":1}'),
        (put(opaque=NO_OPAQUE), ""),
        ((WEB, PodConditionSet(condition=Condition(type="A", status="True"))), REST),
    ],
    ids=["no word of them", "others", "none", "an outcome"],
)
def test_what_becomes_of_them(later: tuple[str, Body], expected: str) -> None:
    assert entry(applied(put(opaque=REST), later)).opaque == expected


def test_object_that_is_made_again_has_none_of_the_old_ones() -> None:
    table = applied(put(opaque=REST), (WEB, ObjectDeleted()), put())

    assert entry(table).opaque == ""


def test_snapshot_has_them_and_the_places() -> None:
    table = applied(put(opaque=REST), put("b"), *bound("web", "b"))

    again = ObjectTable.decode(table.encode())

    assert again.digest() == table.digest()
    assert entry(again) == entry(table)
    assert entry(again, "Pod/default/b").place == 2


def bound(*names: str) -> tuple[tuple[str, Body], ...]:
    """One record that binds a group."""
    facts = {"attempt": 1, "observed": 1, "at": 1, "epoch": 0}
    assignment = {f"Pod/default/{name}": "n1" for name in names}
    return (("PodGroup/default/g", PlacementChosen(**facts, placement="", assignment=assignment)),)


def test_each_change_of_a_record_is_told_in_its_place() -> None:
    table = ObjectTable()
    told: list[Any] = []
    table.on_change = lambda key, old, new, place: told.append((key, old is not None, new is not None, place))
    steps = [
        put("a"),
        put("b"),
        *bound("a", "b"),
        ("Pod/default/a", ObjectDeleted()),
        ("Pod/default/a", ObjectDeleted()),
    ]

    for seq, step in enumerate(steps, start=1):
        table.apply(record(seq, *step))

    a, b = "Pod/default/a", "Pod/default/b"
    assert told == [
        (a, False, True, 1),
        (b, False, True, 1),
        (a, True, True, 1),
        (b, True, True, 2),
        (a, True, False, 1),
    ]


async def test_body_is_decoded_once_for_all_readers() -> None:
    async with await memory_log() as log:
        log.readers = 3
        key, body = put()
        (written,) = await log.append([Draft(body=body, author="test", key=key)])

        found = [log.body_of(written) for _ in range(4)]

    assert found[0] is found[1] is found[2]
    assert found[3] is not found[0]

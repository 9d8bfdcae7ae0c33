"""Strict decoding: every mistake with its path, defaults where nothing could be read."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from tidelog.api.objects import Container, Int32
from tidelog.api.validation.field_errors import ErrorList
from tidelog.configuration.strict import decode, to_plain


class Inner(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    a_name: str
    size: int = 1


class Outer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    text: str = "x"
    number: float = 1.5
    flag: bool = False
    small: Int32 = 0
    choice: Literal["a", "b"] = "a"
    either: int | str = 0
    sizes: dict[str, int] = {}
    perhaps: Inner | None = None
    many: tuple[Inner, ...] = ()
    by_name: dict[str, int | None] = {}
    anything: Any = None


def read(value: Any) -> tuple[Any, list[str]]:
    errors = ErrorList()
    found = decode(Outer, value, "", errors)
    return found, [str(error) for error in errors]


def test_good_data_becomes_the_struct() -> None:
    found, errors = read(
        {
            "text": "y",
            "number": 2,
            "flag": True,
            "choice": "b",
            "either": "s",
            "perhaps": {"aName": "p"},
            "many": [{"aName": "m", "size": 2}],
            "byName": {"k": 3, "n": None},
            "anything": [1],
        }
    )

    assert errors == []
    assert found == Outer(
        text="y",
        number=2,
        flag=True,
        choice="b",
        either="s",
        perhaps=Inner(a_name="p"),
        many=(Inner(a_name="m", size=2),),
        by_name={"k": 3, "n": None},
        anything=[1],
    )


def test_null_is_absent() -> None:
    assert read(dict.fromkeys(["text", "number", "perhaps", "many", "byName", "choice"])) == (Outer(), [])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"txet": 1}, ['txet: Forbidden: unknown field, did you mean "text"?']),
        ({"zzz": 1}, ["zzz: Forbidden: unknown field"]),
        ({"text": 1}, ["text: Invalid value: 1: must be a string"]),
        ({"number": "1"}, ['number: Invalid value: "1": must be a number']),
        ({"flag": 1}, ["flag: Invalid value: 1: must be true or false"]),
        ({"either": 1.5}, ["either: Invalid value: 1.5: must be an integer or a string"]),
        ({"small": True}, ["small: Invalid value: true: must be an integer"]),
        ({"choice": "c"}, ['choice: Unsupported value: "c": supported values: "a", "b"']),
        ({"choice": []}, ['choice: Unsupported value: []: supported values: "a", "b"']),
        ({"perhaps": 1}, ["perhaps: Invalid value: 1: must be an object"]),
        ({"perhaps": {}}, ["perhaps.aName: Required value"]),
        ({"perhaps": {"aName": 1}}, ["perhaps.aName: Invalid value: 1: must be a string"]),
        ({"many": {}}, ["many: Invalid value: {}: must be a list"]),
        ({"byName": []}, ["byName: Invalid value: []: must be an object"]),
        ({"sizes": {"k": 1, "n": None}}, ["sizes.n: Invalid value: must be an integer"]),
        ({"byName": {"k": "v"}}, ['byName.k: Invalid value: "v": must be an integer']),
        (
            {"many": [{"aName": "x"}, {"aNaem": "x", "size": "2"}], "text": 3},
            [
                "text: Invalid value: 3: must be a string",
                'many[1].aNaem: Forbidden: unknown field, did you mean "aName"?',
                "many[1].aName: Required value",
                'many[1].size: Invalid value: "2": must be an integer',
            ],
        ),
    ],
)
def test_every_mistake_is_named_with_its_path(value: Any, expected: list[str]) -> None:
    assert read(value)[1] == expected


def test_number_outside_its_range_is_refused() -> None:
    (error,) = read({"small": 1 << 31})[1]

    assert error.startswith("small: Invalid value: 2147483648: must be an integer")


def test_what_could_be_read_is_kept_beside_a_mistake() -> None:
    found, errors = read({"text": 1, "number": 7})

    assert found == Outer(number=7)
    assert len(errors) == 1


def test_what_cannot_be_read_whole_is_left_at_its_default() -> None:
    found, _ = read({"many": [{"aName": "m"}, 1], "sizes": {"k": 1, "n": None}})

    assert found == Outer()


def test_plain_data_spells_defaults_out_except_in_api_objects() -> None:
    class Args(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
        first_size: int = 1
        inner: tuple[Inner, ...] = (Inner(a_name="i"),)
        container: Container = Container(name="c")
        table: dict[str, Inner] = {}

    assert to_plain(Args(table={"k": Inner(a_name="t")})) == {
        "firstSize": 1,
        "inner": [{"aName": "i", "size": 1}],
        "container": {"name": "c"},
        "table": {"k": {"aName": "t", "size": 1}},
    }

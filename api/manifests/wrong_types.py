"""Names every value in a decoded document that has the wrong type.

msgspec stops at the first wrong value. This walks the whole document beside the struct's description, only after msgspec
has refused it, and reports every place with its path and what is expected there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect

from tidelog.api.validation.field_errors import ErrorList

_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "a boolean",
    dict: "an object",
    list: "a list",
    type(None): "null",
}


@lru_cache(maxsize=64)
def _description(struct: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(struct)


def wrong_types(value: object, struct: type[msgspec.Struct], limit: int = 100) -> ErrorList:
    """At most `limit` errors, each with the path from the object's root."""
    errors = ErrorList()
    _check(value, _description(struct), "", errors, limit)
    return errors


def _check(value: object, expected: inspect.Type, path: str, errors: ErrorList, limit: int) -> None:
    if len(errors) >= limit:
        return
    if isinstance(expected, inspect.UnionType):
        _check_union(value, expected, path, errors, limit)
    elif isinstance(expected, inspect.StructType):
        _check_struct(value, expected, path, errors, limit)
    elif isinstance(expected, inspect.DictType):
        if _is(value, dict, expected, path, errors):
            assert isinstance(value, dict)
            for key, item in value.items():
                _check(item, expected.value_type, f"{path}[{key}]", errors, limit)
    elif isinstance(expected, inspect.VarTupleType):
        if _is(value, list, expected, path, errors):
            assert isinstance(value, list)
            for index, item in enumerate(value):
                _check(item, expected.item_type, f"{path}[{index}]", errors, limit)
    elif isinstance(expected, inspect.IntType):
        if _is(value, int, expected, path, errors):
            _check_range(value, expected, path, errors)
    else:
        wanted = _python_type(expected)
        if wanted is not None:
            _is(value, wanted, expected, path, errors)


def _check_union(
    value: object, expected: inspect.UnionType, path: str, errors: ErrorList, limit: int
) -> None:
    """The member of the value's own type decides; `X | None` is judged as X, because null means absent."""
    members = [member for member in expected.types if not isinstance(member, inspect.NoneType)]
    if value is None and len(members) < len(expected.types):
        return
    fitting = [member for member in members if _python_type(member) is type(value)]
    if fitting or len(members) == 1:
        _check(value, (fitting or members)[0], path, errors, limit)
    else:
        wanted = " or ".join(_named(member) for member in members)
        errors.invalid(path, value, f"must be {wanted}, not {_kind_of(value)}")


def _check_struct(
    value: object, expected: inspect.StructType, path: str, errors: ErrorList, limit: int
) -> None:
    if not _is(value, dict, expected, path, errors):
        return
    assert isinstance(value, dict)
    for field in expected.fields:
        where = f"{path}.{field.encode_name}" if path else field.encode_name
        if field.encode_name in value:
            _check(value[field.encode_name], field.type, where, errors, limit)
        elif field.required:
            errors.required(where)


def _check_range(value: Any, expected: inspect.IntType, path: str, errors: ErrorList) -> None:
    low, high = expected.ge, expected.le
    if low is not None and high is not None and not low <= value <= high:
        errors.invalid(path, value, f"must be between {low} and {high}, inclusive")


def _is(value: object, wanted: type, expected: inspect.Type, path: str, errors: ErrorList) -> bool:
    """Whether the value has the type; says so if not."""
    if type(value) is wanted:
        return True
    rule = f"must be {_named(expected)}, not {_kind_of(value)}"
    if wanted is str and isinstance(value, bool | int | float):
        rule += "; in YAML, put it in quotes"
        if isinstance(value, bool):
            rule += " (on, off, yes and no are booleans there)"
    errors.invalid(path, value, rule)
    return False


def _python_type(expected: inspect.Type) -> type | None:
    match expected:
        case inspect.StrType():
            return str
        case inspect.IntType():
            return int
        case inspect.FloatType():
            return float
        case inspect.BoolType():
            return bool
        case inspect.DictType() | inspect.StructType():
            return dict
        case inspect.VarTupleType():
            return list
        case _:
            return None


def _named(expected: inspect.Type) -> str:
    python_type = _python_type(expected)
    return "a value" if python_type is None else _NAMES[python_type]


def _kind_of(value: object) -> str:
    return _NAMES.get(type(value), type(value).__name__)

"""Functions of lists and optionals beyond the specification: cel-go's lists (version 3), sets and optionals, Kubernetes' lists."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Any

from tidelog.api.cel.declarations import Function, member, of
from tidelog.api.cel.errors import EvaluationError, no_overload
from tidelog.api.cel.standard import TIME_MIN, add, optional_value
from tidelog.api.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    Type,
    V,
    list_of,
    map_of,
    optional_of,
)
from tidelog.api.cel.values import (
    NONE,
    CelMap,
    Duration,
    Env,
    Optional,
    Timestamp,
    Uint,
    charge,
    compare,
    name_of_type,
    surely_equal,
)

_COMPARABLE = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
_ZERO: tuple[tuple[Type, Any], ...] = ((INT, 0), (UINT, Uint(0)), (DOUBLE, 0.0), (DURATION, Duration(0)))
_LIST, _OPTIONAL = list_of(A), optional_of(V)
_BUDGET: Env = [1 << 40]
"""For helpers whose work their caller has paid for."""
RANGE_MAX = 100_000
"""Arbitrary: `lists.range` makes no longer lists; the cost limit would refuse to walk through them."""


def _is_sorted(items: list[Any]) -> bool:
    return all(compare(a, b) <= 0 for a, b in pairwise(items))


def _sum_from(zero: Any) -> Callable[[list[Any]], Any]:
    def total(items: list[Any]) -> Any:
        result = zero
        for item in items:
            result = add(_BUDGET, result, item)
        return result

    return total


def _extreme(sign: int, name: str) -> Callable[[list[Any]], Any]:
    def extreme(items: list[Any]) -> Any:
        if not items:
            raise EvaluationError(f"{name} called on empty list")
        best = items[0]
        _comparable(best)
        for item in items[1:]:
            _comparable(item)
            try:
                best = item if compare(best, item) == sign else best
            except EvaluationError:
                continue
        return best

    return extreme


def _comparable(value: Any) -> None:
    if not isinstance(value, (bool, int, float, str, bytes, Uint, Duration, Timestamp)):
        raise no_overload("compare")


def _position(env: Env, items: Any, wanted: Any) -> int:
    return next((i for i, item in enumerate(items) if surely_equal(item, wanted, env)), -1)


def _last_position(env: Env, items: Any, wanted: Any) -> int:
    return next((i for i in range(len(items) - 1, -1, -1) if surely_equal(items[i], wanted, env)), -1)


def _includes(env: Env, items: Any, wanted: Any) -> bool:
    return any(surely_equal(item, wanted, env) for item in (items if type(items) is list else [items]))


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0 or start > end or len(items) < end:
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _flatten(env: Env, items: Any, depth: Any = 1) -> list[Any]:
    if type(items) is not list or type(depth) is not int:
        raise no_overload("flatten")
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[Any] = []
    for item in items:
        charge(env, 1)
        if type(item) is list and depth > 0:
            flat += _flatten(env, item, depth - 1)
        else:
            flat.append(item)
    return flat


def _sort(env: Env, items: Any) -> list[Any]:
    return _sort_by(env, items, items)


def _sort_by(env: Env, items: Any, keys: Any) -> list[Any]:
    if type(items) is not list or type(keys) is not list:
        raise no_overload("sort")
    charge(env, len(items) * 2 * (1 + len(items).bit_length()))
    if not items:
        return []
    _sortable(keys)
    order_of = cmp_to_key(compare)
    order = sorted(range(len(items)), key=lambda i: order_of(keys[i]))
    return [items[i] for i in order]


def _sortable(keys: list[Any]) -> None:
    if not isinstance(keys[0], (bool, int, float, str, bytes, Uint, Duration, Timestamp)):
        raise EvaluationError("list elements must be comparable")
    if len(keys) > 1 and len({name_of_type(key) for key in keys}) > 1:
        raise EvaluationError("list elements must have the same type")


def _range(count: int) -> list[int]:
    if not 0 <= count <= RANGE_MAX:
        raise EvaluationError(f"lists.range: size must be between 0 and {RANGE_MAX}, got {count}")
    return list(range(count))


def _distinct(env: Env, items: Any) -> list[Any]:
    unique: list[Any] = []
    for item in items:
        if not any(surely_equal(item, other, env) for other in unique):
            unique.append(item)
    return unique


def _holds(env: Env, items: Any, part: Any) -> bool:
    return all(any(surely_equal(one, item, env) for item in items) for one in part)


def _equivalent(env: Env, a: Any, b: Any) -> bool:
    return _holds(env, a, b) and _holds(env, b, a)


def _intersects(env: Env, a: Any, b: Any) -> bool:
    return any(surely_equal(one, other, env) for one in a for other in b)


def _not_zero(value: Any) -> Optional:
    if value is None or (type(value) in (bool, int, float, str, bytes, list) and not value):
        return NONE
    if (type(value) is Uint or type(value) is Duration) and value.value == 0:
        return NONE
    if type(value) is Timestamp and value.value == TIME_MIN:
        return NONE
    return NONE if type(value) is CelMap and not value.entries else Optional(value)


def _value(value: Any) -> Any:
    if value is NONE:
        raise EvaluationError("optional.none() dereference")
    return optional_value(value)


def _unwrapped(items: list[Any]) -> list[Any]:
    if not all(isinstance(item, Optional) for item in items):
        raise EvaluationError("value is not optional")
    return [item.value for item in items if item is not NONE]


def _each(result: Type | None, run: Any) -> tuple[Any, ...]:
    return tuple(member((list_of(t),), t if result is None else result, run) for t in _COMPARABLE)


FUNCTIONS: tuple[Function, ...] = (
    Function("isSorted", _each(BOOL, _is_sorted)),
    Function("sum", tuple(member((list_of(t),), t, _sum_from(zero)) for t, zero in _ZERO)),
    Function("max", _each(None, _extreme(-1, "max"))),
    Function("min", _each(None, _extreme(1, "min"))),
    Function("indexOf", (member((_LIST, A), INT, _position),), wants_env=True),
    Function("lastIndexOf", (member((_LIST, A), INT, _last_position),), wants_env=True),
    Function("includes", (member((DYN, DYN), BOOL, _includes),), wants_env=True),
    Function("slice", (member((_LIST, INT, INT), _LIST, _slice),)),
    Function(
        "flatten",
        (member((list_of(_LIST),), _LIST), member((list_of(DYN), INT), list_of(DYN))),
        _flatten,
        wants_env=True,
    ),
    Function("sort", tuple(member((list_of(t),), list_of(t)) for t in _COMPARABLE), _sort, wants_env=True),
    Function(
        "@sortByAssociatedKeys",
        tuple(member((_LIST, list_of(t)), _LIST) for t in _COMPARABLE),
        _sort_by,
        wants_env=True,
    ),
    Function("lists.range", (of((INT,), list_of(INT), _range, lambda count: max(0, min(count, RANGE_MAX))),)),
    Function("reverse", (member((_LIST,), _LIST, lambda items: items[::-1]),)),
    Function("distinct", (member((_LIST,), _LIST, _distinct),), wants_env=True),
    Function(
        "first", (member((_LIST,), optional_of(A), lambda items: Optional(items[0]) if items else NONE),)
    ),
    Function(
        "last", (member((_LIST,), optional_of(A), lambda items: Optional(items[-1]) if items else NONE),)
    ),
    Function("sets.contains", (of((_LIST, _LIST), BOOL, _holds),), wants_env=True),
    Function("sets.equivalent", (of((_LIST, _LIST), BOOL, _equivalent),), wants_env=True),
    Function("sets.intersects", (of((_LIST, _LIST), BOOL, _intersects),), wants_env=True),
    Function("optional.of", (of((V,), _OPTIONAL, Optional),)),
    Function("optional.ofNonZeroValue", (of((V,), _OPTIONAL, _not_zero),)),
    Function("optional.none", (of((), _OPTIONAL, lambda: NONE),)),
    Function("optional.unwrap", (of((list_of(_OPTIONAL),), list_of(V), _unwrapped),)),
    Function("unwrapOpt", (member((list_of(_OPTIONAL),), list_of(V), _unwrapped),)),
    Function("value", (member((_OPTIONAL,), V, _value),)),
    Function("hasValue", (member((_OPTIONAL,), BOOL, lambda value: value is not NONE),)),
    # The evaluator's own: they evaluate their second half only if the first is none.
    Function("or", (member((_OPTIONAL, _OPTIONAL), _OPTIONAL),)),
    Function("orValue", (member((_OPTIONAL, V), V),)),
    Function("@mapInsert", (of((map_of(A, V), map_of(A, V)), map_of(A, V)),)),
)

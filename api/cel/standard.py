"""The functions of the CEL specification: operators, sizes, conversions, strings."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from tidelog.api.cel.declarations import Function, Overload, member, of
from tidelog.api.cel.errors import EvaluationError, no_overload
from tidelog.api.cel.patterns import pattern_of
from tidelog.api.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    IP,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    Type,
    V,
    list_of,
    map_of,
    optional_of,
    type_of_type,
)
from tidelog.api.cel.values import (
    INT_MAX,
    INT_MIN,
    MISSING,
    UINT_MAX,
    CelMap,
    Duration,
    Env,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    charge,
    compare,
    int_of,
    name_of_type,
    surely_equal,
    uint_of,
)
from tidelog.api.times import format_time, parse_duration, parse_time

_LIST, _MAP = list_of(A), map_of(A, B)
_NUMBERS = (INT, UINT, DOUBLE)
_SECOND = 1_000_000_000
TIME_MIN = -62_135_596_800 * _SECOND
"""The zero of Go's times: the year 1."""
_TIME_MAX = 253_402_300_800 * _SECOND - 1


def add(env: Env, a: Any, b: Any) -> Any:
    """`+`: numbers, texts, bytes, lists, times."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return int_of(a + b)
        if kind is str or kind is bytes:
            charge(env, (len(a) + len(b)) // 10)
            return a + b
        if kind is list:
            charge(env, len(a) + len(b))
            return a + b
        if kind is float:
            return a + b
        if kind is Uint:
            return uint_of(a.value + b.value)
        if kind is Duration:
            return duration_of(a.value + b.value)
    if kind is Duration and type(b) is Timestamp:
        return timestamp_of(a.value + b.value)
    if kind is Timestamp and type(b) is Duration:
        return timestamp_of(a.value + b.value)
    raise no_overload("_+_")


def subtract(env: Env, a: Any, b: Any) -> Any:
    """`-` of two."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return int_of(a - b)
        if kind is float:
            return a - b
        if kind is Uint:
            return uint_of(a.value - b.value)
        if kind in (Duration, Timestamp):
            return duration_of(a.value - b.value)
    if kind is Timestamp and type(b) is Duration:
        return timestamp_of(a.value - b.value)
    raise no_overload("_-_")


def multiply(env: Env, a: Any, b: Any) -> Any:
    """`*`."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return int_of(a * b)
        if kind is float:
            return a * b
        if kind is Uint:
            return uint_of(a.value * b.value)
    raise no_overload("_*_")


def divide(env: Env, a: Any, b: Any) -> Any:
    """`/`: towards zero for integers."""
    kind = type(a)
    if kind is type(b):
        if kind is int:
            return int_of(_quotient(a, b))
        if kind is float:
            return _float_quotient(a, b)
        if kind is Uint:
            return Uint(_quotient(a.value, b.value))
    raise no_overload("_/_")


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise EvaluationError("division by zero")
    whole = abs(a) // abs(b)
    return whole if (a < 0) == (b < 0) else -whole


def _float_quotient(a: float, b: float) -> float:
    if b:
        return a / b
    if a == 0 or a != a:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def modulo(env: Env, a: Any, b: Any) -> Any:
    """`%`: with the sign of the first."""
    kind = type(a)
    if kind is type(b) and kind in (int, Uint):
        x, y = (a, b) if kind is int else (a.value, b.value)
        if y == 0:
            raise EvaluationError("modulus by zero")
        if x == INT_MIN and y == -1:
            raise EvaluationError("integer overflow")
        rest = abs(x) % abs(y)
        rest = -rest if x < 0 else rest
        return rest if kind is int else Uint(rest)
    raise no_overload("_%_")


def negate(env: Env, a: Any) -> Any:
    """`-` of one."""
    if type(a) is int:
        return int_of(-a)
    if type(a) is float:
        return -a
    if type(a) is Duration:
        return duration_of(-a.value)
    raise no_overload("-_")


def duration_of(nanos: int) -> Duration:
    """A result in nanoseconds."""
    if INT_MIN <= nanos <= INT_MAX:
        return Duration(nanos)
    raise EvaluationError("integer overflow")


def timestamp_of(nanos: int) -> Timestamp:
    """A result in nanoseconds since 1970, between the years 1 and 9999."""
    if TIME_MIN <= nanos <= _TIME_MAX:
        return Timestamp(nanos)
    raise EvaluationError("timestamp overflow")


def _not(env: Env, a: Any) -> bool:
    if type(a) is bool:
        return not a
    raise no_overload("!_")


def index_of_list(items: list[Any], index: Any) -> int:
    """The position that a number of any kind means. Raises if it is none."""
    kind = type(index)
    if kind is int:
        return index  # type: ignore[no-any-return]
    if kind is Uint and index.value <= INT_MAX:
        return index.value  # type: ignore[no-any-return]
    if kind is float and index.is_integer() and abs(index) < 2**53:
        return int(index)
    raise EvaluationError("unsupported index type")


def element(container: Any, key: Any) -> Any:
    """`container[key]`."""
    if type(container) is CelMap:
        found = container.find(key)
        if found is MISSING:
            raise EvaluationError("no such key")
        return found
    if type(container) is list:
        position = index_of_list(container, key)
        if 0 <= position < len(container):
            return container[position]
        raise EvaluationError("index out of bounds")
    raise EvaluationError("no such key")


def contains(env: Env, value: Any, container: Any) -> bool:
    """`in`."""
    if type(container) is list:
        return any(surely_equal(value, item, env) for item in container)
    if type(container) is CelMap:
        return container.has(value)
    raise no_overload("@in")


def _size(env: Env, value: Any) -> int:
    kind = type(value)
    if kind is str or kind is bytes or kind is list:
        return len(value)
    if kind is CelMap:
        return len(value.entries)
    raise no_overload("size")


def _less(env: Env, a: Any, b: Any) -> bool:
    return compare(a, b) < 0


def _at_most(env: Env, a: Any, b: Any) -> bool:
    return compare(a, b) <= 0


def _greater(env: Env, a: Any, b: Any) -> bool:
    return compare(a, b) > 0


def _at_least(env: Env, a: Any, b: Any) -> bool:
    return compare(a, b) >= 0


def _matches(env: Env, text: Any, pattern: Any) -> bool:
    if type(text) is not str or type(pattern) is not str:
        raise no_overload("matches")
    found = pattern_of(pattern)
    charge(env, found.cost(len(text)))
    return found.search(text) is not None


def _contains(text: Any, part: Any) -> bool:
    return _text(part) in _text(text)


def _starts_with(text: Any, part: Any) -> bool:
    return _text(text).startswith(_text(part))


def _ends_with(text: Any, part: Any) -> bool:
    return _text(text).endswith(_text(part))


def _text(value: Any) -> str:
    if type(value) is str:
        return value
    raise no_overload("string")


def _identity(value: Any) -> Any:
    return value


def _failed(value: Any, to: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from '{name_of_type(value)}' to '{to}'")


_INT_TEXT = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DOUBLE_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?", re.ASCII)
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


def _to_int(value: Any) -> int:
    kind = type(value)
    if kind is int:
        return value  # type: ignore[no-any-return]
    if kind is float:
        if not -(2.0**63) < value < 2.0**63:
            raise EvaluationError("integer overflow")
        return int(value)
    if kind is Uint:
        return int_of(value.value)
    if kind is Duration:
        return value.value  # type: ignore[no-any-return]
    if kind is Timestamp:
        return value.value // _SECOND  # type: ignore[no-any-return]
    if kind is str and _INT_TEXT.fullmatch(value) and INT_MIN <= int(value) <= INT_MAX:
        return int(value)
    raise _failed(value, "int")


def _to_uint(value: Any) -> Uint:
    kind = type(value)
    if kind is Uint:
        return value  # type: ignore[no-any-return]
    if kind is int:
        return uint_of(value)
    if kind is float:
        if not 0 <= value < 2.0**64:
            raise EvaluationError("unsigned integer overflow")
        return Uint(int(value))
    if kind is str and _INT_TEXT.fullmatch(value) and value[0] not in "+-" and int(value) <= UINT_MAX:
        return Uint(int(value))
    raise _failed(value, "uint")


def _to_double(value: Any) -> float:
    kind = type(value)
    if kind is float:
        return value  # type: ignore[no-any-return]
    if kind is int:
        return float(value)
    if kind is Uint:
        return float(value.value)
    if kind is str:
        return _double(value)
    raise _failed(value, "double")


def _double(text: str) -> float:
    if text.lstrip("+-").lower() in ("inf", "infinity") and text.count("+") + text.count("-") <= 1:
        return -math.inf if text[0] == "-" else math.inf
    if text.lower() == "nan":
        return math.nan
    if len(text) > 400 or not _DOUBLE_TEXT.fullmatch(text) or math.isinf(float(text)):
        raise _failed(text, "double")
    return float(text)


def _to_bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str and value in _TRUE + _FALSE:
        return value in _TRUE
    raise _failed(value, "bool")


def _to_bytes(value: Any) -> bytes:
    return value if type(value) is bytes else _text(value).encode("utf-8", "replace")


def to_string(value: Any) -> str:
    """`string(value)`."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is Uint:
        return str(value.value)
    if kind is float:
        return double_text(value)
    if kind is bytes:
        return _decoded(value)
    if kind is Duration:
        return f"{seconds_text(value.value)}s"
    if kind is Timestamp:
        return format_time(value.value)
    raise _failed(value, "string")


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def seconds_text(nanos: int) -> str:
    """As Go writes the seconds of a duration, which it keeps as a double."""
    whole, rest = divmod(abs(nanos), _SECOND)
    text = format(Decimal(repr(whole + rest / _SECOND)), "f").removesuffix(".0")
    return f"-{text}" if nanos < 0 else text


def double_text(value: float) -> str:
    """As Go's %g: the fewest digits that say the same number, with an exponent below 1e-4 and from 1e6."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value != value:
        return "NaN"
    for places in range(18):
        text = f"{value:.{places}e}"
        if float(text) == value:
            break
    exponent = int(text.partition("e")[2])
    if exponent < -4 or exponent >= 6:
        return text
    return f"{value:.{max(0, places - exponent)}f}"


def _to_duration(value: Any) -> Duration:
    if type(value) is Duration:
        return value
    try:
        return Duration(parse_duration(_text(value)))
    except ValueError:
        raise _failed(value, "duration") from None


def _to_timestamp(value: Any) -> Timestamp:
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return timestamp_of(value * _SECOND)
    try:
        return timestamp_of(parse_time(_text(value)))
    except ValueError:
        raise _failed(value, "timestamp") from None


def _type(value: Any) -> TypeValue:
    return TypeValue(name_of_type(value))


def _ordered(name: str, run: Any) -> Function:
    mixed = [of((a, b), BOOL) for a in _NUMBERS for b in _NUMBERS]
    same = [of((t, t), BOOL) for t in (BOOL, STRING, BYTES, TIMESTAMP, DURATION)]
    return Function(name, (*mixed, *same), run, wants_env=True)


def _same(name: str, run: Any, kinds: tuple[Type, ...], *more: Overload) -> Function:
    return Function(name, (*(of((t, t), t) for t in kinds), *more), run, wants_env=True)


def _conversion(name: str, result: Type, sources: tuple[Type, ...], run: Any) -> Function:
    return Function(name, tuple(of((t,), result, run) for t in sources))


_TIMES = (of((DURATION, TIMESTAMP), TIMESTAMP), of((TIMESTAMP, DURATION), TIMESTAMP))
_TIMES_APART = (of((TIMESTAMP, DURATION), TIMESTAMP), of((TIMESTAMP, TIMESTAMP), DURATION))
_EITHER_SIZE = tuple(make((t,), INT) for t in (BYTES, _LIST, _MAP, STRING) for make in (of, member))

CONVERSIONS = frozenset(
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"]
)
"""Applied to a constant they are folded when the expression compiles, so their errors are found then."""

FUNCTIONS: tuple[Function, ...] = (
    # Those without a `run` are the evaluator's own: they do not evaluate all of their arguments, or need no more than its help.
    Function("_?_:_", (of((BOOL, A, A), A),)),
    Function("_&&_", (of((BOOL, BOOL), BOOL),)),
    Function("_||_", (of((BOOL, BOOL), BOOL),)),
    Function("_==_", (of((A, A), BOOL),)),
    Function("_!=_", (of((A, A), BOOL),)),
    Function(
        "_[_]",
        (
            of((_LIST, INT), A),
            of((_MAP, A), B),
            of((optional_of(list_of(V)), INT), optional_of(V)),
            of((optional_of(map_of(A, V)), A), optional_of(V)),
        ),
    ),
    Function(
        "_[?_]",
        (
            of((list_of(V), INT), optional_of(V)),
            of((optional_of(list_of(V)), INT), optional_of(V)),
            of((map_of(A, V), A), optional_of(V)),
            of((optional_of(map_of(A, V)), A), optional_of(V)),
        ),
    ),
    Function("!_", (of((BOOL,), BOOL),), _not, wants_env=True),
    Function("-_", (of((DOUBLE,), DOUBLE), of((INT,), INT)), negate, wants_env=True),
    _same("_+_", add, (BYTES, DOUBLE, DURATION, INT, _LIST, STRING, UINT), *_TIMES),
    _same("_-_", subtract, (DOUBLE, DURATION, INT, UINT), *_TIMES_APART),
    _same("_*_", multiply, (DOUBLE, INT, UINT)),
    _same("_/_", divide, (DOUBLE, INT, UINT)),
    _same("_%_", modulo, (INT, UINT)),
    _ordered("_<_", _less),
    _ordered("_<=_", _at_most),
    _ordered("_>_", _greater),
    _ordered("_>=_", _at_least),
    Function("@in", (of((A, _LIST), BOOL), of((A, _MAP), BOOL)), contains, wants_env=True),
    Function("size", _EITHER_SIZE, _size, wants_env=True),
    Function(
        "matches",
        (of((STRING, STRING), BOOL), member((STRING, STRING), BOOL)),
        _matches,
        wants_env=True,
    ),
    Function("contains", (member((STRING, STRING), BOOL, _contains),), is_guarded=False),
    Function("startsWith", (member((STRING, STRING), BOOL, _starts_with),), is_guarded=False),
    Function("endsWith", (member((STRING, STRING), BOOL, _ends_with),), is_guarded=False),
    Function("type", (of((A,), type_of_type(A), _type),)),
    Function("dyn", (of((A,), DYN, _identity),)),
    _conversion("bool", BOOL, (BOOL, STRING), _to_bool),
    _conversion("bytes", BYTES, (BYTES, STRING), _to_bytes),
    _conversion("double", DOUBLE, (DOUBLE, INT, STRING, UINT), _to_double),
    _conversion("duration", DURATION, (DURATION, STRING), _to_duration),
    _conversion("int", INT, (INT, DOUBLE, DURATION, STRING, TIMESTAMP, UINT), _to_int),
    _conversion("timestamp", TIMESTAMP, (TIMESTAMP, INT, STRING), _to_timestamp),
    _conversion("uint", UINT, (UINT, DOUBLE, INT, STRING), _to_uint),
    Function(
        "string",
        (
            *(
                of((t,), STRING, to_string)
                for t in (STRING, BOOL, BYTES, DOUBLE, DURATION, INT, TIMESTAMP, UINT)
            ),
            of((IP,), STRING, lambda address: str(address.value)),
            of((CIDR,), STRING, lambda network: network.text),
        ),
    ),
)


def optional_value(value: Any) -> Any:
    """`value()`."""
    if isinstance(value, Optional):
        return value.value
    raise no_overload("value")

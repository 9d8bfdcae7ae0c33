"""CEL's values in Python's: bool, int, float, str, bytes, None and list as they are; the rest in the classes below.

Integers are 64 bits wide and never mix with bools or floats unless CEL says so. Numbers of different kinds compare by value.
Opaque values (Quantity, Semver, addresses) refuse to be compared with others: an error, not False.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from tidelog.api.cel import types
from tidelog.api.cel.errors import CostExceeded, EvaluationError, no_overload
from tidelog.api.cel.types import Type

INT_MAX = (1 << 63) - 1
INT_MIN = -(1 << 63)
UINT_MAX = (1 << 64) - 1

Env = list[Any]
"""The variables of one evaluation by number; the first is what may still be spent."""


def charge(env: Env, cost: int) -> None:
    """Pay for work that grows with the size of values."""
    env[0] -= cost
    if env[0] < 0:
        raise CostExceeded("operation cancelled: actual cost limit exceeded")


class Uint:
    """An unsigned integer of 64 bits."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Uint) and self.value == other.value

    def __hash__(self) -> int:
        return hash((Uint, self.value))

    def __repr__(self) -> str:
        return f"{self.value}u"


class Opaque:
    """A value of a named type around one of Python's; equal to others of its type by that, and comparable with nothing else."""

    __slots__ = ("value",)
    type: Type
    hashable = True
    """Whether Go can look it up in a set of constants; it panics otherwise."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def equals(self, other: Any) -> bool:
        """The same value; an error if the other is of another type."""
        if type(other) is not type(self):
            raise no_overload("_==_")
        return bool(self.value == other.value)


class QuantityValue(Opaque):
    """A Fraction, and the power of ten in which Go counts it; None if Go keeps it as a decimal of any length."""

    __slots__ = ("is_sum", "scale")
    type = types.QUANTITY
    value: Fraction

    def __init__(self, value: Fraction, scale: int | None, is_sum: bool = False) -> None:
        super().__init__(value)
        self.scale = scale
        self.is_sum = is_sum
        """`add` and `sub` make something that upstream does not recognise on the right of `==`: an error."""

    def equals(self, other: Any) -> bool:
        if isinstance(other, QuantityValue) and other.is_sum:
            raise no_overload("_==_")
        return super().equals(other)


class Duration(Opaque):
    """Nanoseconds."""

    __slots__ = ()
    type = types.DURATION

    def equals(self, other: Any) -> bool:
        return isinstance(other, Duration) and bool(self.value == other.value)


class Timestamp(Opaque):
    """Nanoseconds since 1970."""

    __slots__ = ()
    type = types.TIMESTAMP

    def equals(self, other: Any) -> bool:
        return isinstance(other, Timestamp) and bool(self.value == other.value)


class TypeValue:
    """The name of a type as a value: `type(1) == int`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Optional:
    """A value, or none."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


NONE = Optional(None)
"""The one optional without a value; `optional.of(null)` is another."""


def key_of(value: Any) -> Any:
    """Under which a map keeps a key: equal numbers are one key, whatever their kind, and a bool is no number."""
    kind = type(value)
    if kind is str or kind is int or kind is float:
        return value
    if kind is Uint:
        return value.value
    if kind is bool:
        return ("bool", value)
    if value is None:
        return ("null",)
    raise EvaluationError("unsupported key type")


class CelMap:
    """Keys in the order in which they were written, with their values."""

    __slots__ = ("default", "entries", "is_written")

    def __init__(
        self, entries: dict[Any, tuple[Any, Any]], default: CelMap | None = None, is_written: bool = True
    ) -> None:
        self.entries = entries
        """Answer of `key_of` → the key and its value."""
        self.default = default
        """Found instead of a missing key; `in` and macros do not see it."""
        self.is_written = is_written
        """The expression made it; otherwise it is of the device."""

    @classmethod
    def of_strings(cls, values: dict[str, Any], default: CelMap | None = None) -> CelMap:
        """A map from a dict whose keys are texts, in the order of the texts: the record has none of its own."""
        return cls({key: (key, values[key]) for key in sorted(values)}, default, is_written=False)

    def find(self, key: Any) -> Any:
        """The value, or MISSING."""
        self._check_hashable(key)
        try:
            found = self.entries.get(key_of(key))
        except EvaluationError:
            found = None
        if found is not None:
            return found[1]
        return MISSING if self.default is None else self.default

    def has(self, key: Any) -> bool:
        """As `in` sees it."""
        self._check_hashable(key)
        try:
            return key_of(key) in self.entries
        except EvaluationError:
            return False

    def _check_hashable(self, key: Any) -> None:
        if self.is_written and self.entries and not is_hashable(key):
            raise EvaluationError("hash of unhashable type")


def is_hashable(value: Any) -> bool:
    """Whether Go can look it up in its maps; cel-go panics, and so fails, where it cannot."""
    return type(value) is not bytes and not (isinstance(value, Opaque) and not value.hashable)


class _Missing:
    __slots__ = ()


MISSING = _Missing()
EMPTY_MAP = CelMap({})


def name_of_type(value: Any) -> str:
    """The name of `type(value)`."""
    if isinstance(value, Opaque):
        return str(value.type)
    if isinstance(value, (TypeValue, Optional)):
        return "type" if isinstance(value, TypeValue) else "optional_type"
    return _NAMES[type(value)]


_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    CelMap: "map",
}


def is_of(value: Any, wanted: Type) -> bool:
    """Whether the value is of the type, of lists and maps judged by their first element, as cel-go does."""
    if wanted.kind in ("dyn", "param"):
        return True
    if wanted.kind == "list":
        return isinstance(value, list) and (not value or is_of(value[0], wanted.params[0]))
    if wanted.kind == "map":
        if not isinstance(value, CelMap) or not value.entries:
            return isinstance(value, CelMap)
        key, first = next(iter(value.entries.values()))
        return is_of(key, wanted.params[0]) and is_of(first, wanted.params[1])
    python = _PYTHON.get(wanted.kind)
    if python is not None:
        return type(value) is python
    if wanted.kind == "opaque":
        return isinstance(value, Optional) and wanted.name == "optional_type"
    return isinstance(value, Opaque) and value.type == wanted


_PYTHON: dict[str, type] = {
    "bool": bool,
    "int": int,
    "uint": Uint,
    "double": float,
    "string": str,
    "bytes": bytes,
    "null": type(None),
    "type": TypeValue,
}


def equal(a: Any, b: Any, env: Env) -> bool:
    """CEL's `==`. Raises EvaluationError where the two have no equality."""
    kind = type(a)
    if kind is str or kind is bool or kind is bytes or a is None:
        return type(b) is kind and bool(a == b)
    if b is None:
        return False
    if kind is int or kind is float or kind is Uint:
        left, right = number(a), number(b)
        return right is not None and left == right
    if kind is list:
        return type(b) is list and _equal_lists(a, b, env)
    if kind is CelMap:
        return type(b) is CelMap and _equal_maps(a, b, env)
    if isinstance(a, Opaque):
        return a.equals(b)
    if isinstance(a, Optional):
        if not isinstance(b, Optional) or a is NONE or b is NONE:
            return a is b
        charge(env, 1)
        if isinstance(a.value, Opaque):
            return a.value.equals(b.value)
        return equal(a.value, b.value, env)
    return isinstance(a, TypeValue) and isinstance(b, TypeValue) and a.name == b.name


def _equal_lists(a: list[Any], b: list[Any], env: Env) -> bool:
    return len(a) == len(b) and all(_not_unequal(x, y, env) for x, y in zip(a, b, strict=True))


def _equal_maps(a: CelMap, b: CelMap, env: Env) -> bool:
    if len(a.entries) != len(b.entries):
        return False
    for key, (_, value) in a.entries.items():
        found = b.entries.get(key)
        if found is None or not _not_unequal(value, found[1], env):
            return False
    return True


def _not_unequal(a: Any, b: Any, env: Env) -> bool:
    """Inside of lists and maps only a plain False counts, as in cel-go: what cannot be compared is as good as equal."""
    charge(env, 1)
    try:
        return equal(a, b, env)
    except EvaluationError:
        return True


def surely_equal(a: Any, b: Any, env: Env) -> bool:
    """As `in` compares: what cannot be compared is not equal."""
    charge(env, 1)
    try:
        return equal(a, b, env)
    except EvaluationError:
        return False


def number(value: Any) -> int | float | None:
    """The value if it is a number of any kind, for comparing."""
    kind = type(value)
    if kind is int or kind is float:
        return value  # type: ignore[no-any-return]
    return value.value if kind is Uint else None


def compare(a: Any, b: Any) -> int:
    """-1, 0 or 1. Raises EvaluationError where the two have no order."""
    kind = type(a)
    if kind is str or kind is bool or kind is bytes:
        if type(b) is not kind:
            raise no_overload("compare")
        return int(a > b) - int(a < b)
    if kind is Duration or kind is Timestamp:
        if type(b) is not kind:
            raise no_overload("compare")
        return int(a.value > b.value) - int(a.value < b.value)
    left, right = number(a), number(b)
    if left is None or right is None:
        raise no_overload("compare")
    if left != left or right != right:
        raise EvaluationError("NaN values cannot be ordered")
    return (left > right) - (left < right)


def int_of(value: int) -> int:
    """A result of integer arithmetic."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def uint_of(value: int) -> Uint:
    """A result of unsigned arithmetic."""
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise EvaluationError("unsigned integer overflow")


def size_of(values: Iterable[Any]) -> int:
    """How much there is to walk through, in tenths of characters and whole elements."""
    total = 0
    for value in values:
        kind = type(value)
        if kind is str or kind is bytes:
            total += len(value) // 10
        elif kind is list:
            total += len(value)
        elif kind is CelMap:
            total += len(value.entries)
    return total


Closure = Callable[[Env], Any]
"""A part of an expression, ready to run. Raises EvaluationError or CostExceeded."""

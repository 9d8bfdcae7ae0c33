"""Static types of CEL, and when a value of one may stand where another is expected.

Types are trees of tuples. Inference is unification: functions are declared with type parameters, each use of a function gets
fresh ones, and `Bindings` remembers what they turned out to be. `dyn` fits everything and is settled when the expression runs.

A type is at most `SIZE_MAX` nodes large. Without the limit a chain of `cel.bind(b, {a: a}, …)` doubles it with every link.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.api.cel.errors import TooComplex

SIZE_MAX = 400


class Type(NamedTuple):
    """`kind` decides how it unifies; `name` tells opaque types, messages and parameters apart."""

    kind: str
    name: str = ""
    params: tuple[Type, ...] = ()
    size: int = 1

    def __str__(self) -> str:
        if self.kind in ("opaque", "struct", "param"):
            head = self.name
        else:
            head = _SPELLING.get(self.kind, self.kind)
        return f"{head}({', '.join(map(str, self.params))})" if self.params else head


_SPELLING = {
    "null": "null_type",
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
    "error": "!error!",
}

DYN = Type("dyn")
ERROR = Type("error")
BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
BYTES = Type("bytes")
NULL = Type("null")
DURATION = Type("duration")
TIMESTAMP = Type("timestamp")
QUANTITY = Type("struct", "kubernetes.Quantity")
SEMVER = Type("struct", "kubernetes.Semver")
URL = Type("struct", "kubernetes.URL")
IP = Type("struct", "net.IP")
CIDR = Type("struct", "net.CIDR")
FORMAT = Type("struct", "kubernetes.NamedFormat")
PATH_CHECK = Type("struct", "kubernetes.authorization.PathCheck")
GROUP_CHECK = Type("struct", "kubernetes.authorization.GroupCheck")
RESOURCE_CHECK = Type("struct", "kubernetes.authorization.ResourceCheck")
AUTHORIZER = Type("struct", "kubernetes.authorization.Authorizer")
DECISION = Type("struct", "kubernetes.authorization.Decision")
A, B, V = Type("param", "A"), Type("param", "B"), Type("param", "V")


def _made(kind: str, name: str, params: tuple[Type, ...]) -> Type:
    size = 1 + sum(param.size for param in params)
    if size > SIZE_MAX:
        raise TooComplex(f"a type has more than {SIZE_MAX} parts")
    return Type(kind, name, params, size)


def list_of(element: Type) -> Type:
    """A list with elements of one type."""
    return _made("list", "", (element,))


def map_of(key: Type, value: Type) -> Type:
    """A map with keys of one type and values of one type."""
    return _made("map", "", (key, value))


def optional_of(value: Type) -> Type:
    """Perhaps a value."""
    return _made("opaque", "optional_type", (value,))


def type_of_type(of: Type) -> Type:
    """The type of a type's name."""
    return _made("type", "", (of,))


def is_dyn(t: Type) -> bool:
    """Settled at run time."""
    return t.kind == "dyn"


def is_optional(t: Type) -> bool:
    """Made by `optional_of`."""
    return t.kind == "opaque" and t.name == "optional_type"


def unwrapped(t: Type) -> tuple[Type, bool]:
    """The type inside an optional, and whether it was one."""
    return (t.params[0], True) if is_optional(t) else (t, False)


def same_shape(a: Type, b: Type) -> bool:
    """Equal but for the names of type parameters."""
    if a.kind != b.kind or len(a.params) != len(b.params) or (a.kind != "param" and a.name != b.name):
        return False
    return all(same_shape(x, y) for x, y in zip(a.params, b.params, strict=True))


class Bindings:
    """The type that each type parameter stands for; an attempt that fails is undone."""

    def __init__(self) -> None:
        self._bound: dict[str, Type] = {}
        self._trail: list[tuple[str, Type | None]] = []
        self._fresh = 0

    def fresh(self) -> Type:
        """A parameter that nobody has used."""
        self._fresh += 1
        return Type("param", f"_var{self._fresh}")

    def fits(self, given: Type, wanted: Type) -> bool:
        """Whether a value of the first may stand where the second is expected; binds parameters if so."""
        return self.all_fit(((given, wanted),))

    def all_fit(self, pairs: Iterable[tuple[Type, Type]]) -> bool:
        """Whether all of these fit together; otherwise nothing is bound."""
        mark = len(self._trail)
        if all(self._fits(given, wanted) for given, wanted in pairs):
            return True
        while len(self._trail) > mark:
            name, before = self._trail.pop()
            if before is None:
                del self._bound[name]
            else:
                self._bound[name] = before
        return False

    def resolved(self, t: Type, to_dyn: bool = False) -> Type:
        """The type with what its parameters stand for; those that stand for nothing become `dyn` if `to_dyn`."""
        while t.kind == "param":
            found = self._bound.get(t.name)
            if found is None:
                return DYN if to_dyn else t
            t = found
        if not t.params:
            return t
        return _made(t.kind, t.name, tuple(self.resolved(param, to_dyn) for param in t.params))

    def _fits(self, a: Type, b: Type) -> bool:
        if b.kind == "param":
            valid, bound = self._substitutes(a, b)
            if valid or bound:
                return valid
        if a.kind == "param":
            return self._substitutes(b, a)[0]
        if a.kind in ("dyn", "error") or b.kind in ("dyn", "error"):
            return True
        if a.kind == "null":
            return _is_nullable(b)
        if b.kind == "null":
            return _is_nullable(a)
        if a.kind == "type":
            return b.kind == "type"
        if a.kind != b.kind or a.name != b.name or len(a.params) != len(b.params):
            return False
        return all(self._fits(x, y) for x, y in zip(a.params, b.params, strict=True))

    def _substitutes(self, t: Type, parameter: Type) -> tuple[bool, bool]:
        """Whether `t` may be what the parameter stands for, and whether that was known before."""
        if t == parameter:
            return True, True
        bound = self._bound.get(parameter.name)
        if bound is not None:
            if t == bound:
                return True, True
            if not self._fits(t, bound):
                return False, True
            general = t if is_less_specific(t, bound) else bound
            if self._is_free_of(parameter, general):
                self._bind(parameter, general)
            return True, True
        if not self._is_free_of(parameter, t):
            return False, False
        self._bind(parameter, t)
        return True, False

    def _bind(self, parameter: Type, t: Type) -> None:
        self._trail.append((parameter.name, self._bound.get(parameter.name)))
        self._bound[parameter.name] = t

    def _is_free_of(self, parameter: Type, within: Type) -> bool:
        if within == parameter:
            return False
        if within.kind == "param":
            bound = self._bound.get(within.name)
            return bound is None or self._is_free_of(parameter, bound)
        return all(self._is_free_of(parameter, param) for param in within.params)


def is_less_specific(a: Type, b: Type) -> bool:
    """The first is the second, or the second with `dyn` somewhere."""
    if a.kind in ("dyn", "param"):
        return True
    if b.kind in ("dyn", "param") or a.kind != b.kind:
        return False
    if a.kind == "type":
        return True
    if a.name != b.name or len(a.params) != len(b.params):
        return False
    return all(is_less_specific(x, y) for x, y in zip(a.params, b.params, strict=True))


def _is_nullable(t: Type) -> bool:
    return t.kind in ("null", "opaque", "struct", "duration", "timestamp")

"""Kubernetes' own functions: quantities, semantic versions, named formats; and those of authorisation, which no selector can call."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from tidelog.api.cel.declarations import Function, Overload, member, of
from tidelog.api.cel.errors import EvaluationError
from tidelog.api.cel.network_functions import url_of
from tidelog.api.cel.types import (
    AUTHORIZER,
    BOOL,
    DECISION,
    DOUBLE,
    FORMAT,
    GROUP_CHECK,
    INT,
    PATH_CHECK,
    QUANTITY,
    RESOURCE_CHECK,
    SEMVER,
    STRING,
    list_of,
    optional_of,
)
from tidelog.api.cel.values import INT_MAX, INT_MIN, NONE, Opaque, Optional, QuantityValue
from tidelog.api.quantity import SYNTAX_RULE, parse_exact

_IDENTIFIER = r"[0-9A-Za-z-]+"
_VERSION = re.compile(
    rf"([0-9]+)\.([0-9]+)\.([0-9]+)(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?(?:\+({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?",
    re.ASCII,
)
_UINT64_MAX = (1 << 64) - 1
_TEXT_MAX = 1024


class SemverValue(Opaque):
    """(major, minor, patch, parts of the prerelease); build metadata does not count."""

    __slots__ = ()
    type = SEMVER
    hashable = False
    value: tuple[int, int, int, tuple[int | str, ...]]


class FormatValue(Opaque):
    """A function that returns what is wrong with a text."""

    __slots__ = ()
    type = FORMAT
    hashable = False
    value: Callable[[str], list[str]]


_QUANTITY = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+|)", re.ASCII)
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@lru_cache(maxsize=4096)
def quantity_of(text: str) -> QuantityValue:
    """The exact value. Raises EvaluationError.

    Go keeps short numbers as 64 bits times a power of ten and others as decimals of any length; only the former can be asked
    for an integer, so that is kept beside the value. A suffix alone is 0, also as in Go.
    """
    found = _QUANTITY.fullmatch(text) if 0 < len(text) <= _TEXT_MAX else None
    if found is None:
        raise EvaluationError(SYNTAX_RULE)
    sign, whole, fraction, suffix = found[1], found[2].lstrip("0") or "0", found[3] or "", found[4]
    if suffix in _BINARY:
        fast = not fraction and 14 - len(whole) - _BINARY[suffix] * 3 // 10 >= 0
        exponent, factor = 0, 1 << _BINARY[suffix]
    else:
        exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:][:12])
        fast, factor = len(whole) + len(fraction) <= 18, 1
    scale = exponent - len(fraction)
    if fast and -9 <= scale <= 40:
        number = int(whole + fraction) * factor * (-1 if sign == "-" else 1)
        return QuantityValue(Fraction(number) * Fraction(10) ** scale, scale)
    rest = f"{sign}{whole}.{fraction or '0'}{suffix}"
    try:
        return QuantityValue(Fraction(*parse_exact(rest)), None)
    except ValueError as problem:
        raise EvaluationError(str(problem)) from None


def _plus(a: QuantityValue, b: QuantityValue, sign: int = 1) -> QuantityValue:
    if b.value == 0 or a.value == 0:
        return QuantityValue(a.value + sign * b.value, a.scale if b.value == 0 else b.scale, is_sum=True)
    total = a.value + sign * b.value
    scale = None if a.scale is None or b.scale is None else min(a.scale, b.scale)
    if scale is not None:
        fits = all(abs(value) * Fraction(10) ** -scale <= INT_MAX for value in (a.value, b.value, total))
        scale = scale if fits else None
    return QuantityValue(total, scale, is_sum=True)


def _minus(a: QuantityValue, b: QuantityValue) -> QuantityValue:
    return _plus(a, b, -1)


def _plus_int(a: QuantityValue, b: int) -> QuantityValue:
    return _plus(a, QuantityValue(Fraction(b), 0))


def _minus_int(a: QuantityValue, b: int) -> QuantityValue:
    # Go cannot negate the least of its integers, so upstream adds it.
    return _plus_int(a, b) if b == INT_MIN else _plus_int(a, -b)


def semver_of(text: str, normalize: bool = False) -> SemverValue:
    """A version as semver.org 2.0.0 defines it, strictly; normalised, `v1.2` is 1.2.0. Raises EvaluationError."""
    found = _VERSION.fullmatch(_normalized(text) if normalize else text) if len(text) <= _TEXT_MAX else None
    if found is None:
        raise EvaluationError("no semantic version")
    numbers = [_part(number) for number in found.groups()[:3]]
    before = tuple(
        _part(part) if part.isdigit() else part for part in (found[4].split(".") if found[4] else ())
    )
    return SemverValue((numbers[0], numbers[1], numbers[2], before))


def _part(digits: str) -> int:
    if (len(digits) > 1 and digits[0] == "0") or int(digits) > _UINT64_MAX:
        raise EvaluationError(
            f"a number of a version must not contain leading zeroes or be too large: {digits!r}"
        )
    return int(digits)


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            part = part.lstrip("0")
            parts[index] = part if part[:1] in set("0123456789") and part else "0" + part
    if len(parts) < 3:
        if any(sign in parts[-1] for sign in "+-"):
            raise EvaluationError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _semver_order(a: SemverValue, b: SemverValue) -> int:
    if a.value[:3] != b.value[:3]:
        return 1 if a.value[:3] > b.value[:3] else -1
    left, right = a.value[3], b.value[3]
    if not left or not right:
        return bool(right) - bool(left) if bool(left) != bool(right) else 0
    for x, y in zip(left, right, strict=False):
        if x != y:
            return _part_order(x, y)
    return (len(left) > len(right)) - (len(left) < len(right))


def _part_order(x: int | str, y: int | str) -> int:
    if isinstance(x, int) != isinstance(y, int):
        return -1 if isinstance(x, int) else 1
    return 1 if x > y else -1  # type: ignore[operator]


def _is(make: Callable[..., Any]) -> Callable[..., bool]:
    def check(*args: Any) -> bool:
        try:
            make(*args)
        except EvaluationError:
            return False
        return True

    return check


def _order(a: QuantityValue, b: QuantityValue) -> int:
    return (a.value > b.value) - (a.value < b.value)


def _is_integer(q: QuantityValue) -> bool:
    return q.scale is not None and q.scale >= 0 and INT_MIN <= q.value <= INT_MAX


def _as_integer(q: QuantityValue) -> int:
    if not _is_integer(q):
        raise EvaluationError("cannot convert value to integer")
    return int(q.value)


def _minor(index: int) -> Callable[[SemverValue], int]:
    def part(version: SemverValue) -> int:
        number: int = version.value[index]  # type: ignore[assignment]
        return number if number <= INT_MAX else number - (1 << 64)

    return part


_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_DNS_SUBDOMAIN = re.compile(
    r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*", re.ASCII
)
_DNS_1035 = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)


def _pattern(pattern: re.Pattern[str], most: int, prefix: bool = False) -> Callable[[str], list[str]]:
    def check(text: str) -> list[str]:
        if len(text) > most:
            return [f"must be no more than {most} characters"]
        if prefix and len(text) > 1 and text.endswith("-"):
            text = text[:-1] + "a"
        return [] if pattern.fullmatch(text) else [f"must match {pattern.pattern}"]

    return check


def _label_value(text: str) -> list[str]:
    return [] if not text else _pattern(_NAME, 63)(text)


def _qualified_name(text: str) -> list[str]:
    head, slash, name = text.rpartition("/")
    if "/" in head or (slash and _pattern(_DNS_SUBDOMAIN, 253)(head)):
        return ["prefix part must be a DNS subdomain"]
    return _pattern(_NAME, 63)(name)


def _as(holds: Callable[[str], object], otherwise: str) -> Callable[[str], list[str]]:
    return lambda text: [] if holds(text) else [otherwise]


_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.ASCII
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_CLOCK = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})", re.ASCII)


def _is_date(text: str) -> bool:
    year, month, day = map(int, text.split("-")) if _DATE.fullmatch(text) else (0, 0, 0)
    return 1 <= month <= 12 and 1 <= day <= _days(year, month)


def _days(year: int, month: int) -> int:
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 28 + is_leap if month == 2 else 30 + (month in (1, 3, 5, 7, 8, 10, 12))


def _is_datetime(text: str) -> bool:
    date, letter, rest = text.lower().partition("t")
    found = _CLOCK.fullmatch(rest.partition("t")[0])
    if not letter or not _is_date(date) or found is None:
        return False
    return found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


def _uri(text: str) -> list[str]:
    try:
        url_of(text)
    except EvaluationError as problem:
        return [str(problem)]
    return []


FORMATS: dict[str, Callable[[str], list[str]]] = {
    "dns1123Label": _pattern(_DNS_LABEL, 63),
    "dns1123Subdomain": _pattern(_DNS_SUBDOMAIN, 253),
    "dns1035Label": _pattern(_DNS_1035, 63),
    "qualifiedName": _qualified_name,
    "dns1123LabelPrefix": _pattern(_DNS_LABEL, 63, prefix=True),
    "dns1123SubdomainPrefix": _pattern(_DNS_SUBDOMAIN, 253, prefix=True),
    "dns1035LabelPrefix": _pattern(_DNS_1035, 63, prefix=True),
    "labelValue": _label_value,
    "uri": _uri,
    "byte": _as(_BASE64.fullmatch, "invalid base64"),
    "date": _as(_is_date, "invalid date"),
    "datetime": _as(_is_datetime, "invalid datetime"),
    "uuid": _pattern(re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}", re.ASCII), 36),
}


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(FormatValue(found))


def _validated(wanted: FormatValue, text: str) -> Optional:
    wrong = wanted.value(text)
    return Optional(wrong) if wrong else NONE


def _constant(name: str) -> Function:
    value = FormatValue(FORMATS[name])
    return Function(f"format.{name}", (of((), FORMAT, lambda: value),))


def _builder(name: str, *overloads: Overload) -> Function:
    return Function(name, overloads)


_QQ, _SS = (QUANTITY, QUANTITY), (SEMVER, SEMVER)

FUNCTIONS: tuple[Function, ...] = (
    Function("quantity", (of((STRING,), QUANTITY, quantity_of),)),
    Function("isQuantity", (of((STRING,), BOOL, _is(quantity_of)),)),
    Function("sign", (of((QUANTITY,), INT, lambda q: (q.value > 0) - (q.value < 0)),)),
    Function(
        "isGreaterThan",
        (
            member(_QQ, BOOL, lambda a, b: a.value > b.value),
            member(_SS, BOOL, lambda a, b: _semver_order(a, b) > 0),
        ),
    ),
    Function(
        "isLessThan",
        (
            member(_QQ, BOOL, lambda a, b: a.value < b.value),
            member(_SS, BOOL, lambda a, b: _semver_order(a, b) < 0),
        ),
    ),
    Function("compareTo", (member(_QQ, INT, _order), member(_SS, INT, _semver_order))),
    Function("asApproximateFloat", (member((QUANTITY,), DOUBLE, lambda q: _float(q.value)),)),
    Function("asInteger", (member((QUANTITY,), INT, _as_integer),)),
    Function("isInteger", (member((QUANTITY,), BOOL, _is_integer),)),
    Function(
        "add",
        (
            member(_QQ, QUANTITY, _plus),
            member((QUANTITY, INT), QUANTITY, _plus_int),
        ),
    ),
    Function(
        "sub",
        (
            member(_QQ, QUANTITY, _minus),
            member((QUANTITY, INT), QUANTITY, _minus_int),
        ),
    ),
    Function("semver", (of((STRING,), SEMVER, semver_of), of((STRING, BOOL), SEMVER, semver_of))),
    Function("isSemver", (of((STRING,), BOOL, _is(semver_of)), of((STRING, BOOL), BOOL, _is(semver_of)))),
    Function("major", (member((SEMVER,), INT, _minor(0)),)),
    Function("minor", (member((SEMVER,), INT, _minor(1)),)),
    Function("patch", (member((SEMVER,), INT, _minor(2)),)),
    Function("validate", (member((FORMAT, STRING), optional_of(list_of(STRING)), _validated),)),
    Function("format.named", (of((STRING,), optional_of(FORMAT), _named),)),
    *(_constant(name) for name in FORMATS),
    # Declared so that calls of them compile where they do upstream; nothing in a selector has these types.
    _builder("path", member((AUTHORIZER, STRING), PATH_CHECK)),
    _builder(
        "check",
        member((PATH_CHECK, STRING), DECISION),
        member((RESOURCE_CHECK, STRING), DECISION),
    ),
    _builder("group", member((AUTHORIZER, STRING), GROUP_CHECK)),
    _builder("serviceAccount", member((AUTHORIZER, STRING, STRING), AUTHORIZER)),
    _builder("resource", member((GROUP_CHECK, STRING), RESOURCE_CHECK)),
    _builder("subresource", member((RESOURCE_CHECK, STRING), RESOURCE_CHECK)),
    _builder("namespace", member((RESOURCE_CHECK, STRING), RESOURCE_CHECK)),
    _builder("name", member((RESOURCE_CHECK, STRING), RESOURCE_CHECK)),
    _builder("fieldSelector", member((RESOURCE_CHECK, STRING), RESOURCE_CHECK)),
    _builder("labelSelector", member((RESOURCE_CHECK, STRING), RESOURCE_CHECK)),
    _builder("allowed", member((DECISION,), BOOL)),
    _builder("reason", member((DECISION,), STRING)),
    _builder("errored", member((DECISION,), BOOL)),
    _builder("error", member((DECISION,), STRING)),
)


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf

"""Kubernetes quantities, read exactly: `1500m`, `1.5Gi`, `3e6`, `0.1`.

Everything becomes an integer number of units, rounded up (as kube-scheduler's Value and MilliValue do): CPU in
thousandths, everything else in ones. No floats anywhere: a quantity is a decimal integer times a power of ten or two,
at most 2⁶³-1 (larger ones count as that) and kept to nine decimal places (rounded away from zero), as in Kubernetes.
Reading is cached, because a cluster's manifests use few distinct texts; by type as well, because True is no quantity and 1 is.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache

from tidelog.api.objects import Quantity

_SYNTAX = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?", re.ASCII)
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {shift: suffix for suffix, shift in _BINARY.items()} | {0: ""}
MAX = (1 << 63) - 1
NANO = 1_000_000_000
_LENGTH_MAX = 256  # Arbitrary: longer than any number that can matter, short enough to be cheap.
SYNTAX_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@lru_cache(maxsize=8192)
def _parts(text: str) -> tuple[int, int, str]:
    """The exact value as numerator and (positive) denominator, and its suffix. Raises ValueError with the syntax rule."""
    found = _SYNTAX.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if found is None:
        raise ValueError(SYNTAX_RULE)
    sign, number, suffix = found.group(1), found.group(2), found.group(3) or ""
    whole, _, fraction = number.partition(".")
    digits = int((whole + fraction) or "0")
    exponent = -len(fraction)
    shift = _BINARY.get(suffix, 0)
    if not shift:
        exponent += _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    numerator, denominator = _bounded(digits << shift, exponent)
    return (-numerator if sign == "-" else numerator), denominator, suffix


def _bounded(digits: int, exponent: int) -> tuple[int, int]:
    """digits times ten to the exponent, at most MAX and in whole billionths, without computing absurd powers."""
    if digits == 0:
        return 0, 1
    if exponent > 20:
        return MAX, 1
    if exponent >= 0:
        return min(digits * 10**exponent, MAX), 1
    if exponent >= -9:
        denominator = 10**-exponent
        return (digits, denominator) if digits <= MAX * denominator else (MAX, 1)
    # -exponent is at most as large as it takes to drown any text that is read at all in the smallest unit.
    power = 10 ** (min(-exponent, 2 * _LENGTH_MAX) - 9)
    nanos = -(-digits // power)
    return (nanos, NANO) if nanos <= MAX * NANO else (MAX, 1)


def _text(quantity: Quantity) -> str:
    """YAML gives `cpu: 0.5` as a number; its shortest decimal text is what was written."""
    if isinstance(quantity, str):
        return quantity
    if isinstance(quantity, bool) or (isinstance(quantity, float) and not math.isfinite(quantity)):
        raise ValueError(SYNTAX_RULE)
    if isinstance(quantity, int) and abs(quantity) > MAX:
        return str(MAX) if quantity > 0 else str(-MAX)
    return repr(quantity).replace("e+", "e")


def _round_up(quantity: Quantity, scale: int) -> int:
    """In 1/scale units, rounded away from zero, as far as 64 bits go."""
    numerator, denominator, _ = _parts(_text(quantity))
    rounded = -(-abs(numerator) * scale // denominator)
    return max(-rounded, -MAX - 1) if numerator < 0 else min(rounded, MAX)


@lru_cache(maxsize=8192, typed=True)
def parse_units(quantity: Quantity) -> int:
    """The value in whole units, rounded up (`0.1` is 1). Raises ValueError with the syntax rule."""
    return _round_up(quantity, 1)


@lru_cache(maxsize=8192, typed=True)
def parse_milli(quantity: Quantity) -> int:
    """The value in thousandths, rounded up (`1.5m` is 2). Raises ValueError with the syntax rule."""
    return _round_up(quantity, 1000)


def parse_exact(quantity: Quantity) -> tuple[int, int]:
    """The exact value as a fraction (numerator, positive denominator), for comparisons."""
    return _parts(_text(quantity))[:2]


def parse_resource(name: str, quantity: Quantity) -> int:
    """CPU in millicores, everything else in units: the integers that all of the scheduler counts in."""
    return parse_milli(quantity) if name == "cpu" else parse_units(quantity)


def compare(left: Quantity, right: Quantity) -> int:
    """-1, 0 or 1, exactly."""
    a, b = parse_exact(left), parse_exact(right)
    x, y = a[0] * b[1], b[0] * a[1]
    return (x > y) - (x < y)


@lru_cache(maxsize=8192, typed=True)
def canonical(quantity: Quantity) -> str:
    """The one text of this value and notation, as the API server writes it: `0.5` is `500m`, `1024Mi` is `1Gi`.

    The mantissa is whole and the suffix as large as possible; binary stays binary and scientific stays scientific
    where that is exact. Raises ValueError with the syntax rule.
    """
    numerator, denominator, suffix = _parts(_text(quantity))
    sign, nanos = ("-", -numerator) if numerator < 0 else ("", numerator)
    whole, rest = divmod(nanos, denominator)
    if suffix in _BINARY and rest == 0 and whole >= 1024:
        return sign + format_binary(whole)
    mantissa, exponent = _decimal(nanos * NANO // denominator)
    if suffix[:1] in ("e", "E") and suffix not in _DECIMAL and suffix not in _BINARY:
        return f"{sign}{mantissa}" + (f"e{exponent}" if exponent else "")
    return f"{sign}{mantissa}{_DECIMAL_SUFFIX[exponent]}"


def format_binary(whole: int) -> str:
    """A number of bytes as people write it: `1536Mi`."""
    shift = 0
    while whole and shift < 60 and whole % 1024 == 0:
        whole //= 1024
        shift += 10
    return f"{whole}{_BINARY_SUFFIX[shift]}"


def _decimal(nanos: int) -> tuple[int, int]:
    """Mantissa and exponent, a multiple of three from -9 to 18, as large as it can be exactly."""
    if nanos == 0:
        return 0, 0
    exponent = -9
    while exponent < 18 and nanos % 1000 == 0:
        nanos //= 1000
        exponent += 3
    return nanos, exponent

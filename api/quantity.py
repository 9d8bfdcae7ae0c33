"""Kubernetes quantities, read exactly: `1500m`, `1.5Gi`, `3e6`, `0.1`.

Everything becomes an integer number of units, rounded up (as kube-scheduler's Value and MilliValue do): CPU in
thousandths, everything else in ones. No floats anywhere: a quantity is a decimal integer times a power of ten or two.
Parsing is cached, because a cluster's manifests use few distinct texts.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tidelog.api.objects import Quantity

_SYNTAX = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?", re.ASCII)
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
MAX = (1 << 63) - 1
SYNTAX_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@lru_cache(maxsize=65536)
def _ratio(text: str) -> tuple[int, int]:
    """The exact value as numerator and (positive) denominator."""
    found = _SYNTAX.fullmatch(text)
    if found is None:
        raise ValueError(SYNTAX_RULE)
    sign, number, suffix = found.group(1), found.group(2), found.group(3) or ""
    whole, _, fraction = number.partition(".")
    digits = int((whole + fraction) or "0")
    exponent = -len(fraction)
    shift = _BINARY.get(suffix, 0)
    if not shift:
        exponent += _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    if abs(exponent) > 64:
        raise ValueError("exponent out of range")
    numerator = digits << shift
    if sign == "-":
        numerator = -numerator
    return (numerator * 10**exponent, 1) if exponent >= 0 else (numerator, 10**-exponent)


def _round_up(quantity: Quantity, scale: int) -> int:
    numerator, denominator = _ratio(quantity if isinstance(quantity, str) else _text_of_number(quantity))
    value = -(-numerator * scale // denominator)
    return min(max(value, -MAX - 1), MAX)


def _text_of_number(number: float) -> str:
    """YAML gives `cpu: 0.5` as a number; its shortest decimal text is what was written."""
    if isinstance(number, bool) or number != number or number in (float("inf"), float("-inf")):
        raise ValueError(SYNTAX_RULE)
    return repr(number) if isinstance(number, int) else repr(number).replace("e+", "e")


@lru_cache(maxsize=65536)
def parse_units(quantity: Quantity) -> int:
    """The value in whole units, rounded up (`0.1` is 1). Raises ValueError with the syntax rule."""
    return _round_up(quantity, 1)


@lru_cache(maxsize=65536)
def parse_milli(quantity: Quantity) -> int:
    """The value in thousandths, rounded up (`1.5m` is 2). Raises ValueError with the syntax rule."""
    return _round_up(quantity, 1000)


def parse_exact(quantity: Quantity) -> tuple[int, int]:
    """The exact value as a reduced-enough fraction (numerator, denominator), for comparisons."""
    return _ratio(quantity if isinstance(quantity, str) else _text_of_number(quantity))


def parse_resource(name: str, quantity: Quantity) -> int:
    """CPU in millicores, everything else in units: the integers that all of the scheduler counts in."""
    return parse_milli(quantity) if name == "cpu" else parse_units(quantity)

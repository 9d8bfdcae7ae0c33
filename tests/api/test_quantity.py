"""Quantities against exact fractions, and against what the API server writes."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.api.quantity import (
    MAX,
    SYNTAX_RULE,
    canonical,
    compare,
    format_binary,
    parse_exact,
    parse_milli,
    parse_resource,
    parse_units,
)

SUFFIXES: dict[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
    "e0": Fraction(1),
    "e3": Fraction(1000),
    "E3": Fraction(1000),
    "e+2": Fraction(100),
    "e-2": Fraction(1, 100),
    "E-12": Fraction(1, 10**12),
}


def away_from_zero(value: Fraction) -> int:
    return -math.ceil(-value) if value < 0 else math.ceil(value)


def model(text: str, suffix: str) -> Fraction:
    """What Kubernetes holds of it: billionths, rounded away from zero, within 64 bits."""
    exact = Fraction(text if text[-1] != "." else text[:-1]) * SUFFIXES[suffix]
    held = Fraction(away_from_zero(exact * 10**9), 10**9)
    return min(max(held, Fraction(-MAX)), Fraction(MAX))


def clamped(value: int) -> int:
    return min(max(value, -MAX - 1), MAX)


NUMBERS = st.from_regex(r"[+-]?(0|[1-9][0-9]{0,20})(\.[0-9]{0,12})?|[+-]?\.[0-9]{1,12}", fullmatch=True)


@given(NUMBERS, st.sampled_from(sorted(SUFFIXES)))
@example("0.1", "")
@example("1.5", "m")
@example("-1.5", "m")
@example("9223372036854775807", "Ei")
@example("0.0000000001", "")
def test_every_notation_is_read_exactly_and_rounded_up(number: str, suffix: str) -> None:
    expected = model(number, suffix)

    assert Fraction(*parse_exact(number + suffix)) == expected
    assert parse_units(number + suffix) == clamped(away_from_zero(expected))
    assert parse_milli(number + suffix) == clamped(away_from_zero(expected * 1000))


@given(NUMBERS, st.sampled_from(sorted(SUFFIXES)))
def test_canonical_text_has_the_same_value_and_is_its_own_canonical_text(number: str, suffix: str) -> None:
    text = canonical(number + suffix)

    assert (
        parse_exact(text)[0] * parse_exact(number + suffix)[1]
        == parse_exact(number + suffix)[0] * parse_exact(text)[1]
    )
    assert canonical(text) == text


@given(NUMBERS, st.sampled_from(sorted(SUFFIXES)), NUMBERS, st.sampled_from(sorted(SUFFIXES)))
def test_comparison_is_exact(left: str, left_suffix: str, right: str, right_suffix: str) -> None:
    a, b = model(left, left_suffix), model(right, right_suffix)

    assert compare(left + left_suffix, right + right_suffix) == (a > b) - (a < b)


@given(st.floats(min_value=0, max_value=1e9, allow_nan=False))
def test_number_means_its_shortest_decimal_text(number: float) -> None:
    expected = Fraction(away_from_zero(Fraction(repr(number)) * 10**9), 10**9)

    assert Fraction(*parse_exact(number)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", "0"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.001", "1m"),
        ("100", "100"),
        ("1000", "1k"),
        ("2500", "2500"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("1500e0", "1500"),
        ("0.5e3", "500"),
        ("1024", "1024"),
        ("1024Ki", "1Mi"),
        ("1000Ki", "1000Ki"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("0.1Gi", "107374182400m"),
        ("0Gi", "0"),
        ("-1.5", "-1500m"),
        ("+2", "2"),
        (".5", "500m"),
        ("5.", "5"),
        ("1.0000000001", "1000000001n"),
        ("9223372036854775808", "9223372036854775807"),
        ("8Ei", "9223372036854775807"),
        ("1e400", "9223372036854775807"),
        (2, "2"),
        (0.25, "250m"),
        (1e22, "9223372036854775807"),
        (10**30, "9223372036854775807"),
        (-(10**30), "-9223372036854775807"),
    ],
)
def test_canonical_text_is_the_api_servers(text: str | float, expected: str) -> None:
    assert canonical(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 ",
        " 1",
        "1x",
        "1KI",
        "1K",
        "Ki",
        ".",
        "+",
        "1e",
        "1e1.5",
        "1_000",
        "0x10",
        "--1",
        "1Gi1",
        "١",
        "1\n",
        "9" * 257,
        True,
        float("nan"),
        float("inf"),
    ],
)
def test_other_text_is_refused_with_the_syntax_rule(text: str | float) -> None:
    with pytest.raises(ValueError, match="quantities must match the regular expression") as caught:
        parse_units(text)

    assert str(caught.value) == SYNTAX_RULE


def test_truth_is_no_quantity_though_it_equals_one() -> None:
    assert (parse_units(1), parse_milli(1), canonical(1)) == (1, 1000, "1")
    for read in (parse_units, parse_milli, canonical):
        with pytest.raises(ValueError, match="quantities must match"):
            read(True)


def test_cpu_counts_in_thousandths_and_everything_else_in_ones() -> None:
    assert parse_resource("cpu", "1.5m") == 2
    assert parse_resource("memory", "1.5m") == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (1023, "1023"), (1024, "1Ki"), (3 << 30, "3Gi"), (1 << 60, "1Ei"), (1 << 70, "1024Ei")],
)
def test_bytes_are_written_in_binary(value: int, expected: str) -> None:
    assert format_binary(value) == expected


def test_absurd_exponents_cost_nothing() -> None:
    assert parse_units("1e-999999999") == 1
    assert parse_units("1e999999999") == MAX
    assert parse_units("0e999999999") == 0

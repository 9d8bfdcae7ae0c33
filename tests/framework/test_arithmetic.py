"""Divisions and roundings as kube-scheduler does them."""

from __future__ import annotations

import pytest

from tidelog.framework.arithmetic import div_trunc, round_half_away, scaled_to_maximum


@pytest.mark.parametrize(
    ("numerator", "denominator", "expected"),
    [(7, 2, 3), (-7, 2, -3), (7, -2, -3), (-7, -2, 3), (-1, 2, 0), (0, -5, 0), (-1320, 70, -18)],
)
def test_division_truncates_towards_zero(numerator: int, denominator: int, expected: int) -> None:
    assert div_trunc(numerator, denominator) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, 1), (1.5, 2), (2.5, 3), (-0.5, -1), (-2.5, -3), (2.4999, 2), (0.49999999999999994, 0), (3.0, 3)],
)
def test_halves_are_rounded_away_from_zero(value: float, expected: int) -> None:
    assert round_half_away(value) == expected


def test_scores_are_stretched_to_the_largest() -> None:
    assert scaled_to_maximum([0, 1, 3]) == [0, 33, 100]
    assert scaled_to_maximum([0, 1, 3], reverse=True) == [100, 67, 0]


def test_without_any_score_nobody_is_worse_than_anybody_else() -> None:
    assert scaled_to_maximum([0, 0]) == [0, 0]
    assert scaled_to_maximum([0, 0], reverse=True) == [100, 100]
    assert scaled_to_maximum([]) == []

"""Integer arithmetic as kube-scheduler does it, where Python's differs.

Go divides integers towards zero and rounds halves away from zero; Python floors and rounds halves to even. The scores of the
default plugins must agree to the last unit, so every division or rounding that may see a negative or a half goes through here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def div_trunc(numerator: int, denominator: int) -> int:
    """`numerator / denominator`, truncated towards zero. For operands that cannot be negative plain `//` is the same."""
    quotient = abs(numerator) // abs(denominator)
    return quotient if (numerator < 0) == (denominator < 0) else -quotient


def round_half_away(value: float) -> int:
    """The nearest integer; halves go away from zero."""
    whole = math.trunc(value)
    if abs(value - whole) >= 0.5:
        return whole + (1 if value > 0 else -1)
    return whole


def scaled_to_maximum(scores: Sequence[int], *, reverse: bool = False) -> list[int]:
    """Scores that are not negative, stretched so that the largest becomes 100; reversed, so that it becomes 0.

    All zeros stay zeros, and reversed are all 100: nobody is worse than anybody else.
    """
    largest = max(scores, default=0)
    if largest == 0:
        return [100 if reverse else 0] * len(scores)
    if reverse:
        return [100 - 100 * score // largest for score in scores]
    return [100 * score // largest for score in scores]

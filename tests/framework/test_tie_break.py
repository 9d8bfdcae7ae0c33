"""The place where the search among equally good nodes begins: even for any rhythm of turns."""

from __future__ import annotations

from collections import Counter

import pytest

from tidelog.framework.tie_break import scan_start


@pytest.mark.parametrize("stride", [1, 2, 3, 7, 50])
def test_equal_nodes_get_equal_shares_whatever_the_rhythm(stride: int) -> None:
    """Also pods of which only every second attempt is one, and also when the zones alternate in the list."""
    count = 100

    shares = Counter(scan_start(turn, count) for turn in range(0, stride * 1000, stride))

    assert set(shares) == set(range(count))
    assert max(shares.values()) <= 15


def test_the_start_is_within_the_list_for_any_turn() -> None:
    assert [scan_start(turn, 1) for turn in (0, 1, 10**30)] == [0, 0, 0]
    assert all(0 <= scan_start(turn, 7) < 7 for turn in range(1000))

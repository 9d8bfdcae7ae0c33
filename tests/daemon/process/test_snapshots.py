"""How often what changed is kept: a trade of processor time and room against the time that a question about the past takes."""

from __future__ import annotations

import pytest

from tidelog.daemon.process.snapshots import changes_every

MOST = 30_000
"""Records to play back: the most work that a look at a past moment may be. An object to load is half as much."""


@pytest.mark.parametrize("objects", range(0, 50_001, 2_500))
def test_no_moment_is_more_work_away_than_so_many_records(objects: int) -> None:
    assert objects / 2 + changes_every(objects) <= MOST


@pytest.mark.parametrize(
    ("objects", "expected"),
    [(0, 10_000), (30_000, 10_000), (34_000, 8_000), (50_000, 5_000), (150_000, 15_000)],
)
def test_more_objects_leave_less_time_to_play_back_until_looking_for_changes_costs_too_much(
    objects: int, expected: int
) -> None:
    assert changes_every(objects) == expected

"""What is remembered of the latest rows tells all that has changed in a column."""

from __future__ import annotations

import random

from tidelog.framework.node_sets import places_in
from tidelog.scheduler.evaluation.latest_rows import ROWS, LatestRows


def test_what_has_changed_in_a_column_is_told_as_long_as_it_is_remembered() -> None:
    draw, latest = random.Random(1), LatestRows()
    for _ in range(3):
        latest.add_column()
    written: list[tuple[int, bytes]] = []
    for _ in range(3 * ROWS):
        written.append((draw.randrange(50), bytes(draw.choices(range(6), k=3))))
        latest.add(*written[-1])
        count, column = len(written) - draw.randint(1, ROWS - 100), draw.randrange(3)
        since = latest.since(max(count, 0), column)
        assert since is not None
        told = written[since.first :]

        assert since.first <= count or count < 0
        assert list(since.levels) == [row[column] for _, row in told]
        assert set(places_in(since.changed)) == {place for place, _ in told}
        with_level = [place for place, row in told if row[column] == 4]
        assert since.places_with(4, ROWS) == with_level
        assert since.places_with(4, 5) == with_level[:6]

    assert latest.since(len(written) - ROWS - 1, 0) is None


def test_nothing_is_told_of_rows_before_all_columns_became_other_ones() -> None:
    latest = LatestRows()
    latest.add_column()
    latest.add(7, b"\5")
    count = latest.count

    latest.forget()
    later = latest.count
    latest.add(8, b"\6")

    assert latest.since(count, 0) is None
    since = latest.since(later, 0)
    assert since is not None
    assert (set(places_in(since.changed)), since.places_with(5, 9), since.places_with(6, 9)) == (
        {8},
        [],
        [8],
    )

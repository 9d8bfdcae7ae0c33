"""Numbers side by side in one integer."""

from __future__ import annotations

import random

from tidelog.framework.lanes import WIDTH, Row, marked, octets, ones


def test_a_lane_is_set_without_touching_its_neighbours() -> None:
    draw = random.Random(3)
    numbers = [draw.randrange(1 << WIDTH) for _ in range(20)]
    row = Row(blank=5)
    for lane, number in reversed(list(enumerate(numbers))[1:]):
        row.put(lane, draw.randrange(1 << WIDTH))
        row.put(lane, number)

    found = [row.lanes >> WIDTH * lane & ((1 << WIDTH) - 1) for lane in range(20)]

    assert found == [5, *numbers[1:]]


def test_one_number_in_each_lane_is_a_product() -> None:
    lanes = ones(5) * 77

    assert octets(lanes, 5) == bytes([77] * 5)


def test_marks_are_found_in_order() -> None:
    marks = Row()
    marks.put(2, 1)
    marks.put(9, 1)

    assert list(marked(marks.lanes)) == [2, 9]

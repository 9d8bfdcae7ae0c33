"""Numbers side by side in one integer."""

from __future__ import annotations

import random

from tidelog.framework.lanes import TOP, marked, octets, ones, with_lane


def test_a_lane_is_set_without_touching_its_neighbours() -> None:
    draw = random.Random(3)
    numbers = [draw.randrange(2 * TOP) for _ in range(20)]
    lanes = 0
    for lane, number in enumerate(numbers):
        lanes = with_lane(with_lane(lanes, lane, draw.randrange(2 * TOP)), lane, number)

    found = [lanes >> 64 * lane & (2 * TOP - 1) for lane in range(20)]

    assert found == numbers


def test_one_number_in_each_lane_is_a_product() -> None:
    lanes = ones(5) * 77

    assert octets(lanes, 5) == bytes([77] * 5)


def test_marks_are_found_in_order() -> None:
    marks = with_lane(with_lane(0, 9, 1), 2, 1)

    assert list(marked(marks)) == [2, 9]

"""How often what changed is kept: a trade of processor time and room against the time that a question about the past takes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.objects import node
from tidelog.daemon.process.snapshots import Keeper, changes_every
from tidelog.eventlog.objects import ObjectTable
from tidelog.replay.driver import Driver
from tidelog.scheduler.state import capture_state

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


class Kept:
    """A log and the facts of its objects, as far as a keeper needs them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.objects = ObjectTable()

    async def put_snapshot(self, name: str, seq: int, blob: bytes) -> None:
        self.names.append(name)

    async def catch_up(self) -> None:
        """Nobody hands facts in."""


async def test_first_state_of_a_process_is_whole_and_those_behind_it_are_changes() -> None:
    driver, kept = Driver(), Kept()
    driver.start()
    anything: Any = kept
    keeper = Keeper(anything, anything, begin=driver.core.seq, every=1_000)

    async def durable(seq: int) -> None:
        """It is."""

    await keeper.keep(capture_state(driver.core), durable)
    assert kept.names == ["scheduler", "objects"]
    driver.put(node("n1"))
    await keeper.keep(capture_state(driver.core), durable)
    assert kept.names[2:] == ["scheduler-changes", "objects-changes"]

"""How often a state is kept: a trade of processor time and room against the time that a question about the past takes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worlds.objects import node
from tidelog.daemon.process.snapshots import Keeper, state_every
from tidelog.eventlog.objects import ObjectTable
from tidelog.replay.driver import Driver
from tidelog.scheduler.state import capture_state

MOST = 30_000
"""Records to play back: the most work that a look at a past moment may be. An object to load is half as much."""


@pytest.mark.parametrize("objects", range(0, 50_001, 2_500))
def test_no_moment_is_more_work_away_than_so_many_records(objects: int) -> None:
    assert objects / 2 + state_every(objects) <= MOST


@pytest.mark.parametrize(
    ("objects", "expected"),
    [(0, 10_000), (30_000, 10_000), (34_000, 8_000), (50_000, 5_000), (150_000, 15_000)],
)
def test_more_objects_leave_less_time_to_play_back_until_they_take_that_long_themselves(
    objects: int, expected: int
) -> None:
    assert state_every(objects) == expected


class Kept:
    """A log, as far as a keeper needs one."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def put_snapshot(self, name: str, seq: int, blob: bytes) -> None:
        self.names.append(name)


@pytest.mark.parametrize("whole", [None, 0])
async def test_state_is_whole_if_the_log_has_none_to_go_on_from_and_after_as_many_records_as_objects(
    whole: int | None,
) -> None:
    driver, kept, table = Driver(), Kept(), ObjectTable()
    driver.start()
    anything: Any = kept
    keeper = Keeper(anything, kept=driver.core.seq, every=4, whole=whole)

    async def keep() -> None:
        for record in driver.records[table.seq :]:
            table.apply(record)
        objects = [table.encode()] if keeper.is_whole_due(driver.core) else None
        await keeper.keep(capture_state(driver.core), objects)

    await keep()
    assert kept.names == (["objects", "scheduler"] if whole is None else ["scheduler-changes"])
    kept.names.clear()
    last = driver.core.seq if whole is None else whole
    driver.put(*(node(f"n{i}") for i in range(last + 3 - driver.core.seq)))
    await keep()
    assert kept.names == ["scheduler-changes"]
    driver.put(node("n3"))
    await keep()
    assert kept.names[1:] == ["objects", "scheduler"]

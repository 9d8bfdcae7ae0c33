"""The simulation is worth something: a daemon, or a disk, with a deliberate bug is found out."""

from __future__ import annotations

import pytest

from tests.simulation.machine_bugs import BUGS
from tests.simulation.simulate import simulate
from tests.simulation.story import make_story

SEEDS_MAX = 500
FIRST = {"write without looking for another writer": 6, "take for durable what is only in the cache": 25}
"""Where it was found last; the search begins there."""

pytestmark = pytest.mark.unreplayed("the simulation replays what it writes")


@pytest.mark.parametrize("name", BUGS)
def test_bug_between_scheduler_and_disk_is_found(name: str) -> None:
    first = FIRST.get(name, 0)
    seeds = [*range(first, SEEDS_MAX), *range(first)]

    with BUGS[name]():
        found = next((seed for seed in seeds if simulate(make_story(seed)).failure), None)

    assert found is not None

"""The simulation is worth something: a daemon, or a disk, with a deliberate bug is found out.

The store of the simulation is a simulated one, so that half of these bugs are put into that store: they show that the simulation would see a
store that breaks its promises. That the real one keeps them is for `tests/eventlog/test_power_loss.py`, with bugs of its own.
"""

from __future__ import annotations

import pytest

from tests.simulation.machine_bugs import BUGS
from tests.simulation.simulate import simulate
from tests.simulation.story import make_story

SEEDS_MAX = 500
CAUGHT: dict[str, tuple[int, str]] = {
    "skip the fsync": (0, "LogDamaged"),
    "write the head before the records": (0, "LogDamaged"),
    "write without looking for another writer": (6, "Violation: lost"),
    "take for durable what is only in the cache": (25, "Violation: lost"),
    "go on after a failed write": (0, "Violation: lost"),
    "consume before it is certain": (0, "Violation: replay"),
    "take over without reading the end": (1, "InternalError"),
    "overlook the newest record when sequencing": (0, "InternalError"),
    "lose a record on the way to the core": (0, "InternalError"),
    "drop records before the snapshots are kept": (4, "LogDamaged"),
    "do not write down what was dropped": (7, "Violation: dropped"),
    "keep the snapshots of a compaction in memory": (4, "LogDamaged"),
    "forget the epoch of what was dropped": (7, "Violation: dropped"),
    "compact without looking for another who has": (100, "LogDamaged"),
    "write after a compaction without looking for its records": (100, "Violation: lost"),
}
"""Bug → where it was found last, which is where the search begins, and how the failure begins: no other failure counts."""

pytestmark = pytest.mark.unreplayed("the simulation replays what it writes")


@pytest.mark.parametrize("name", BUGS)
def test_bug_between_scheduler_and_disk_is_found(name: str) -> None:
    first, by = CAUGHT[name]
    seeds = [*range(first, SEEDS_MAX), *range(first)]

    with BUGS[name]():
        found = next((seed for seed in seeds if simulate(make_story(seed)).failure.startswith(by)), None)

    assert found is not None
    assert simulate(make_story(found)).failure == ""

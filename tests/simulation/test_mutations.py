"""The simulation is worth something: each deliberate bug, of the scheduler and of what lies between it and the disk, is caught within five hundred seeds.

`CAUGHT` says which of the seeds from 0 on is the first that shows each bug, so that usually only that one is simulated, with the bug and without.
Where a change of scheduler or stories has moved it, all seeds are gone through. `SEARCH_MUTATIONS=1 pytest -s tests/simulation/test_mutations.py` goes
through all of them for all bugs, and prints the table anew.

Half of the bugs in `machine_bugs.py` are put into the simulated store: they show that the simulation would see a store that breaks its
promises. Those of `real_bugs.py` are put into the product's own, and stories on that one show them; those of `wide_bugs.py` only wide stories.
"""

from __future__ import annotations

import os

import pytest

from tests.eventlog import sqlite_watch
from tests.simulation import machine_bugs, mutations, real_bugs, wide_bugs
from tests.simulation.bug import broken
from tests.simulation.simulate import simulate
from tests.simulation.story import make_story

SEEDS_MAX = 500
SEEDS_WITHOUT = 60
"""In so many stories the broken code of each bug runs, or it is no bug of this code any more."""
SEARCH = bool(os.environ.get("SEARCH_MUTATIONS"))

BUGS = {**mutations.BUGS, **machine_bugs.BUGS, **real_bugs.BUGS, **wide_bugs.BUGS}
REAL = {**real_bugs.BUGS, **wide_bugs.BUGS}
CAUGHT: dict[str, tuple[int, str | tuple[str, ...]]] = {
    "forget Done": (0, "Violation: queue"),
    "lose the requeue after an abort": (1, "Violation: queue"),
    "drop in-flight events of nodes": (1, "Violation: liveness"),
    "a hint that sleeps": (61, "Violation: liveness"),
    "forget the nominations in snapshots": (12, "Violation: promise"),
    "ignore the commit check": (7, "InternalError"),
    "forget to assume": (11, "Violation: state"),
    "adopt what the outcome does not tell": (0, "Violation: state"),
    "keep the epoch of the first start": (0, "LogFenced"),
    "break ties by the order of hashes": (1, "Violation: replay"),
    "bind again after a restart": (0, "Violation: twice"),
    "count who terminates as gone": (4, "Violation: state"),
    "bind half a gang": (5, "Violation: gang"),
    "leave a group's level": (5, "Violation: gang"),
    "allow one more skew": (0, "Violation: constraint"),
    "fall back too early": (68, "Violation: fallback"),
    "evict past the budget": (4, "Violation: budget"),
    "forget what budgets were charged": (9, "Violation: budget"),
    "forget who was asked to go": (9, "Violation: budget"),
    "forget the tick": (5, "Violation: liveness"),
    "append what changes nothing": (0, "Violation: doubled"),
    "answer before the commit": (0, "Violation: lost"),
    "forget who is on a node that comes back": (32, "Violation: state"),
    "free room in silence": (248, "Violation: liveness"),
    "place a group in part that asks for a level": (65, "Violation: gang"),
    "evict more than is needed": (9, "Violation: overlooked"),
    "evict again while others go already": (9, "Violation: overlooked"),
    "answer with one record for all": (0, "Violation: lost"),
    "do what is good of a refused request": (1, "Violation: unasked"),
    "skip the fsync": (0, "LogDamaged"),
    "write the head before the records": (1, "LogDamaged"),
    "write without looking for another writer": (19, "Violation: lost"),
    "take for durable what is only in the cache": (82, "LogDamaged"),
    "go on after a failed write": (3, "Violation: lost"),
    "consume before it is certain": (17, "Violation: replay"),
    "take over without reading the end": (1, "InternalError"),
    "overlook the newest record when sequencing": (0, "AssertionError"),
    "lose a record on the way to the core": (0, "InternalError"),
    "drop records before the snapshots are kept": (49, "LogDamaged"),
    "do not write down what was dropped": (7, "Violation: dropped"),
    "keep the snapshots of a compaction in memory": (7, "LogDamaged"),
    "forget the epoch of what was dropped": (7, "Violation: dropped"),
    "compact without looking for another who has": (134, "LogDamaged"),
    "write after a compaction without looking for its records": (100, "Violation: lost"),
    "do not sync commits": (1, "LogDamaged"),
    "name the head before its records": (1, "LogDamaged"),
    "lose the lock and write on": (124, ("LogDamaged", "Violation: dropped", "Violation: stale")),
    "drop without looking for another who has": (37, "LogDamaged"),
    "drop one record too many": (14, "LogDamaged"),
    "keep snapshots from before the anchor": (7, "Violation: dropped"),
    "take any log for the one that was followed": (14, "InternalError"),
    "repair one record too few": (1, "Violation: lost"),
    "repair, and say nothing of the loss": (1, "Violation: lost"),
    "import without what the log begins with": (50, "LogDamaged"),
    "give nothing back of what was promised": (2, "Violation: claims"),
    "forget what was promised to those in flight": (2, "Violation: claims"),
    "bind before the volumes are there": (2, "Violation: claims"),
    "forget in snapshots who waits for his volumes": (2, "CannotRecover"),
    "bind before the devices are ready": (22, "Violation: claims"),
    "bind who was given devices before they are ready": (88, "Violation: claims"),
    "attach one volume too many": (10, "Violation: constraint"),
    "do not wake for more volumes": (30, "Violation: liveness"),
}
"""Bug → the first seed that shows it, and how the failure begins, in one of these ways: no other failure counts. An error that the product itself finds is as good as the judge's."""

pytestmark = pytest.mark.unreplayed("the simulation replays what it writes")


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_caught_within_five_hundred_seeds(name: str) -> None:
    if name in REAL and not sqlite_watch.AVAILABLE:
        pytest.skip("the SQLite in this Python cannot be reached from outside")
    first, by = CAUGHT[name]
    if SEARCH or not _simulated(name, first)[0].startswith(by):
        first = _search(name)

    assert _told(name, first) == ""


def _told(name: str, seed: int) -> str:
    """How the story of the seed fails, if at all, told as the bug wants it."""
    story = make_story(seed, wide=name in wide_bugs.BUGS)
    return simulate(story, real=name in REAL, small=False).failure


def _simulated(name: str, seed: int) -> tuple[str, int]:
    """How the story of the seed fails with the bug, and how often the broken code ran."""
    with BUGS[name]() as ran:
        failure = _told(name, seed)
    assert ran.times or not failure, f"{name}: seed {seed} fails without it: {failure}"
    return failure, ran.times


def _search(name: str) -> int:
    """The first seed that shows the bug, as it is to be shown."""
    by = CAUGHT[name][1]
    ran = 0
    for seed in range(SEEDS_MAX):
        failure, times = _simulated(name, seed)
        ran += times
        if failure.startswith(by):
            print(f'\n    "{name}": ({seed}, {by!r}),')
            return seed
        if failure:
            print(f"\n{name}: seed {seed} fails otherwise: {failure[:200]}")
        if seed == SEEDS_WITHOUT and not ran:
            pytest.fail(f"{name}: the broken code never ran: its patch has lost its place")
    pytest.fail(f"{name} is not caught in {SEEDS_MAX} seeds: story or judge have a hole")


def test_patch_that_is_never_executed_is_a_failure_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUGS, "forget Done", lambda: broken((Unused, "forget", lambda right: right)))
    monkeypatch.setitem(globals(), "SEEDS_WITHOUT", 1)

    with pytest.raises(pytest.fail.Exception, match="the broken code never ran"):
        _search("forget Done")


class Unused:
    """Nobody calls it."""

    def forget(self) -> None:
        """Nothing."""


def test_table_of_bugs_is_complete() -> None:
    assert list(CAUGHT) == list(BUGS)
    assert all(seed < SEEDS_MAX for seed, _ in CAUGHT.values())

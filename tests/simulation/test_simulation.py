"""Nothing lost, nothing doubled, nothing stale, nobody forgotten: whatever breaks, in hundreds of simulated stories. `make simulate` runs more.

Half of them on the product's own store (`real_store.py`), twenty and twenty in turn."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from tests.simulation.mutations import BUGS
from tests.simulation.simulate import (
    COMMAND,
    Result,
    is_real,
    main,
    shortest,
    shrink,
    simulate,
    simulate_seeds,
    story_of,
    told,
    told_failure,
)
from tests.simulation.steps import AnyStep, CrashAt, PowerLoss, Story
from tests.simulation.story import make_story
from tests.thorough import cases

pytestmark = pytest.mark.unreplayed("the simulation replays what it writes")
"""Each simulation replays its log itself."""

SEEDS = cases(120, "SIMULATED_SEEDS")
BATCH = 20
FAULTS = ("power losses", "kills", "thefts", "ends", "failed disk operations")
"""What has to happen in a batch of simulations, or they show little."""

ANSWERED = 0.7
"""So many of the requests are answered, or nothing is asked of the scheduler at all. (Refusals are no answers here; usually it is nine of ten.)"""

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_every_promise_is_kept_whatever_breaks(first: int) -> None:
    results = simulate_seeds(range(first, min(first + BATCH, SEEDS)))

    failures = [result for result in results if result.failure]
    assert not failures, _told(failures)
    happened = {name: sum(result.counts[name] for result in results) for name in FAULTS}
    assert all(happened.values()), happened
    asked, answered = (sum(result.counts[name] for result in results) for name in ("asked", "answered"))
    assert answered > asked * ANSWERED, (asked, answered)


def _told(failures: list[Result]) -> str:
    """How to see each again, and the shortest story of the first."""
    first = failures[0]
    story = shortest(story_of(first.seed), first.failure, real=is_real(first.seed))
    return "\n".join([*map(told_failure, failures), told(story)])


def test_simulation_follows_from_its_seed_alone() -> None:
    seeds = (1, 3, 25, 31)
    here, again = (_digests(seeds) for _ in "12")

    assert here == again == _digests_under_another_hash_seed(seeds)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1939, id="who could be helped by preemption only, and waits for the flush"),
        pytest.param(
            4396, id="a repair beside a standby reads a damaged page that is whole in the write-ahead log"
        ),
        pytest.param(6465, id="parts of a snapshot are in a damaged page, and cannot be removed"),
        pytest.param(3756, id="power is lost behind a sync that has failed"),
        pytest.param(11274, id="a damaged write-ahead log hides what was moved to the database"),
        pytest.param(11705, id="who was robbed of the lock ends after a repair"),
        pytest.param(303, id="who waits for devices that another gives back when his backoff has ended"),
        pytest.param(11189, id="a database that was cut is led, though pages of a snapshot are missing"),
    ],
)
def test_story_that_failed_once_is_told_to_its_end(seed: int) -> None:
    assert simulate(story_of(seed), real=is_real(seed)).failure == ""


def _digests(seeds: Sequence[int]) -> list[str]:
    return [simulate(story_of(seed), real=is_real(seed)).digest.hex() for seed in seeds]


def _digests_under_another_hash_seed(seeds: Sequence[int]) -> list[str]:
    command = [sys.executable, "-c", f"from {__name__} import _digests; print(*_digests({seeds!r}))"]
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_failing_story_is_shortened_to_the_steps_that_matter() -> None:
    story = next(
        s for s in map(make_story, range(50)) if any(isinstance(step, PowerLoss) for step in s.steps)
    )

    shorter = shrink(story, lambda s: any(isinstance(step, PowerLoss) for step in s.steps))

    assert [type(step) for step in shorter.steps] == [PowerLoss]
    assert "PowerLoss" in told(shorter)


def test_failure_is_told_with_its_command_and_a_short_story(capsys: pytest.CaptureFixture[str]) -> None:
    with BUGS["evict past the budget"]():
        code = main(["--seeds", "1", "--from", "4", "--jobs", "1"])

    told = capsys.readouterr().out
    assert code == 1
    assert "seed 4: Violation: budget: " in told
    assert f"{COMMAND} --seed 4 --shrink\n" in told
    steps = int(told.partition("the shortest story found that fails so has ")[2].split()[0])
    assert 1 < steps < len(make_story(4).steps) // 3
    assert f"\nseed 4, {steps} steps\n   1  Apply" in told


def test_story_that_gets_stuck_is_told_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stories: list[Story] = []

    def tell(story: Story, *, real: bool = False) -> Result:
        stories.append(story)
        return Result(seed=story.seed, failure="Stuck: still busy after 1000 callbacks")

    monkeypatch.setattr("tests.simulation.simulate.simulate", tell)
    code = main(["--seed", "4", "--shrink"])

    assert code == 1
    assert stories == [make_story(4)], "no shorter story is told"
    told = capsys.readouterr().out
    assert told.startswith("not shortened: ")
    assert f"\nseed 4, {len(make_story(4).steps)} steps\n" in told


def test_stories_are_full_of_everything() -> None:
    stories = [make_story(seed, wide=seed % 2 == 0) for seed in range(200)]

    happens = Counter(type(step) for story in stories for step in story.steps)
    assert {kind.__name__ for kind in get_args(AnyStep) if happens[kind] <= 20} == set()
    assert sum(isinstance(story.steps[0], CrashAt) for story in stories) > 2

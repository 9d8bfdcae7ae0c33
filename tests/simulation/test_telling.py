"""Stories keep their promises in the sandbox, too, where tasks take turns in another way than on the machine."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.story import make_story
from tests.simulation.telling import tell
from tests.thorough import cases

pytestmark = pytest.mark.unreplayed("the simulation replays what it writes")

SEEDS = range(cases(20))
JUDGED = ("Scheduled", "fallback", "PlacementChosen", "Waiting", "protected", "AttemptAborted", "rest")
"""What a judge has to have seen to have judged anything."""


def test_no_promise_is_broken_in_the_sandbox() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        counts += Counter(tell(make_story(seed)).counts)

    assert all(counts[what] for what in JUDGED), counts


def test_story_follows_from_its_seed() -> None:
    assert make_story(7) == make_story(7)
    assert tell(make_story(7)).records == tell(make_story(7)).records

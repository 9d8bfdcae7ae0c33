"""Stories come to the product's rare places: those whose seeds are in the corpus, or others, where a change has moved them."""

from __future__ import annotations

import pytest

from tests.eventlog import sqlite_watch
from tests.simulation.rare import PLACES, SEEDS, corpus, first_seed, places_of

pytestmark = [
    pytest.mark.unreplayed("the simulation replays what it writes"),
    pytest.mark.skipif(not sqlite_watch.AVAILABLE, reason="needs SQLite's own names in the interpreter"),
]


@pytest.mark.parametrize("name", PLACES)
def test_some_story_comes_to_each_rare_place(name: str) -> None:
    if name in places_of(corpus()[name]):
        return
    found = first_seed(name)
    assert found is not None, f"no story of {SEEDS} comes there any more"
    print(f"by seed {found} now: write that into corpus.toml")

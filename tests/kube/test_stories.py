"""Stories of a server that misbehaves end well, and each deliberate bug is noticed by some of them."""

from __future__ import annotations

import pytest

from tests.kube.bugs import BUGS
from tests.kube.stories import noticed, tell

pytestmark = pytest.mark.unreplayed("the simulation replays what it writes")


@pytest.mark.parametrize("seed", range(100, 112))
async def test_story_ends_well(seed: int) -> None:
    await tell(seed)


@pytest.mark.parametrize("bug", BUGS)
def test_bug_is_noticed(bug: str) -> None:
    with BUGS[bug]():
        assert noticed(range(60)) is not None

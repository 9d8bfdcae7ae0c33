"""Stories of a server that misbehaves end well, and each deliberate bug is noticed by some of them."""

from __future__ import annotations

import pytest

from tests.kube.bugs import BUGS
from tests.kube.stories import noticed, tell

pytestmark = pytest.mark.unreplayed("the simulation replays what it writes")

SEEDS_MAX = 60
NOTICED = {
    "a binding without uid": 0,
    "what was promised is not put over what the server says": 13,
    "a binding is settled by its answer only, which the log does not know": 0,
    "a binding is settled by any version of the pod": 0,
    "the outbox is forgotten in snapshots": 9,
    "an answer that was lost counts as a failure": 3,
    "an expired watch goes on as if nothing were missing": 11,
    "a list is not looked through for what is gone": 19,
    "versions that are known are appended again": 0,
    "nothing is looked at before a binding is sent": 4,
    "a failed write is forgotten and not undone": 4,
    "nobody looks whether the server was set back": 19,
    "an outcome is sent before it is durable": 0,
    "the promises of a pod that is gone are kept": 20,
}
"""Bug → the first of the seeds that shows it, so that usually only that story is told, with the bug and without. Where a change has moved
it, all of them are, one after the other; `python -m tests.kube.stories --bugs` prints the seeds anew."""


@pytest.mark.parametrize("seed", sorted({*NOTICED.values(), *range(100, 112)}))
async def test_story_ends_well(seed: int) -> None:
    await tell(seed)


@pytest.mark.parametrize("bug", BUGS)
def test_bug_is_noticed(bug: str) -> None:
    first = NOTICED[bug]
    with BUGS[bug]():
        if noticed(range(first, first + 1)) is not None:
            return
        found = noticed(range(SEEDS_MAX))

    assert found is not None
    assert noticed(range(found[0], found[0] + 1)) is None, "the story ends badly without the bug, too"


def test_table_of_bugs_is_complete() -> None:
    assert list(NOTICED) == list(BUGS)

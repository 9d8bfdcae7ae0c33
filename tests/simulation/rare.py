"""Rare places of the product, and the seeds of stories that come there: `corpus.toml`.

    python -m tests.simulation.rare [--seeds 500]       find the first seed for each place, and write the corpus anew

A place is a method of the product that is called, and what is special about the call. A story that comes there tries what happens once in a
thousand stories in every run of the tests.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import tomllib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.simulation.simulate import is_real, simulate
from tests.simulation.steps import Story
from tests.simulation.story import make_story, mended
from tests.simulation.widening import widened
from tidelog.daemon.process.runtime import Runtime
from tidelog.daemon.process.standby import Standby
from tidelog.scheduler.commit_check import Disturbance
from tidelog.scheduler.core import Core
from tidelog.scheduler.disturbances import Notes
from tidelog.scheduler.outcomes import Outcomes
from tidelog.scheduler.permits import Permits

CORPUS = Path(__file__).with_name("corpus.toml")
SEEDS = 500
"""So many are looked through for a place that its seed does not lead to any more."""

Special = Callable[..., bool]
"""Is given what was returned and the arguments; whether the place was reached."""


class Place(NamedTuple):
    """A method, and what is special about a call of it."""

    owner: Any
    method: str
    special: Special = lambda *_, **__: True


PLACES: dict[str, Place] = {
    "a loss ends a group's attempt": Place(Outcomes, "lost"),
    "a preemption is called off": Place(Outcomes, "_call_off"),
    "a group's attempt is called off": Place(Outcomes, "group_aborted"),
    "a group that waits for permits fails together": Place(
        Permits, "ending_with", lambda found, *_: len(found) > 1
    ),
    "a pod is to be evicted that waits for a permit": Place(
        Permits, "_can_end", lambda can, _, permit: not can and not permit.is_ending
    ),
    "a budget forbids at the commit what it allowed": Place(
        Core, "conflict", lambda found, *_: found is not None and "budget" in str(found.reason)
    ),
    "a promise that is off may help somebody in flight": Place(
        Notes, "append", lambda _, notes, note: isinstance(note, Disturbance) and bool(note.opens)
    ),
    "decisions wait for room on the disk": Place(Runtime, "_sleep"),
    "a standby has followed another log": Place(Standby, "_is_what_was_read", lambda same, *_: not same),
}


@contextlib.contextmanager
def watched() -> Iterator[set[str]]:
    """The places that are reached while the block runs."""
    reached: set[str] = set()
    with contextlib.ExitStack() as stack:
        for name, place in PLACES.items():
            stack.enter_context(patch.object(place.owner, place.method, _watching(name, place, reached)))
        yield reached


def _watching(name: str, place: Place, reached: set[str]) -> Callable[..., Any]:
    method = getattr(place.owner, place.method)

    def called(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        if inspect.iscoroutine(result):
            return awaited(result, *args, **kwargs)
        look(result, *args, **kwargs)
        return result

    async def awaited(coroutine: Coroutine[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        result = await coroutine
        look(result, *args, **kwargs)
        return result

    def look(result: Any, *args: Any, **kwargs: Any) -> None:
        if place.special(result, *args, **kwargs):
            reached.add(name)

    return called


def _story_of(seed: int) -> Story:
    """As it is told on its store, but without claims and tampering, which most of the places have nothing to do with: the seeds stay what they were."""
    story = make_story(seed)
    return mended(widened(story)) if is_real(seed) else story


def places_of(seed: int) -> set[str]:
    """The places to which the story of this seed comes."""
    with watched() as reached:
        result = simulate(_story_of(seed), real=is_real(seed))
    assert not result.failure, f"seed {seed}: {result.failure}"
    return reached


def corpus() -> dict[str, int]:
    """Place → seed."""
    return {name: int(seed) for name, seed in tomllib.loads(CORPUS.read_text(encoding="utf-8")).items()}


def first_seed(name: str) -> int | None:
    """The first seed whose story comes to the place; None if none does."""
    return next((seed for seed in range(SEEDS) if name in places_of(seed)), None)


def main() -> None:
    """Write the corpus anew."""
    parser = argparse.ArgumentParser(description="find the first seed for each rare place")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="so many are tried (default: %(default)s)")
    often = Counter[str]()
    found: dict[str, int] = {}
    for seed in range(parser.parse_args().seeds):
        for name in places_of(seed):
            found.setdefault(name, seed)
            often[name] += 1
    lines = [
        "# Rare place = the first seed whose story comes there, see rare.py.",
        *(f'"{name}" = {found[name]}' for name in PLACES if name in found),
    ]
    CORPUS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in PLACES:
        print(f"{often[name]:6} {name}")


if __name__ == "__main__":
    main()

"""Runs simulations of the whole daemon: one seed, or many on several processes. `make simulate SEEDS=20000` calls it.

    python -m tests.simulation.simulate --seeds 500 [--from 0] [--jobs 2]     how far it is, and what fails; at the end the figures, and
                                                                              the shortest story of the first failure
    python -m tests.simulation.simulate --seed 42 [--story] [--shrink]        one; its story; the shortest story that still fails
    … --store real                                                            all on the product's own store, none on the simulated one

By default the store is the simulated one for seeds 0 to 19, the real one for 20 to 39, and so on in turn.
A simulation follows from its seed alone, on every machine and under every hash seed: what failed once fails again.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from tests.eventlog import sqlite_watch
from tests.simulation.judge import Judge
from tests.simulation.loop import Stuck, quietly
from tests.simulation.machine import Machine
from tests.simulation.plugins import registry
from tests.simulation.small import small_constants
from tests.simulation.steps import AnyStep, Story
from tests.simulation.story import make_story

COMMAND = ".venv/bin/python -m tests.simulation.simulate"
CHUNK = 20
"""So many seeds a process runs before it reports."""
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where the files of the real store are."""
SHRINK_TRIES = 300
"""So many shorter stories are tried: about a minute."""
NOT_SHORTENED = "not shortened: each story that gets stuck takes long to tell"

_registry = registry()
_Protocol: Any = type(Protocol)
_is_instance = _Protocol.__instancecheck__
_known: dict[tuple[type, type], bool] = {}


def _is_known_instance(protocol: type, instance: object) -> bool:
    """Before Python 3.12 each question whether a plugin implements a protocol looks at all of it anew, and a story asks some five thousand. Nothing here
    gets methods of its own."""
    asked = protocol, type(instance)
    if asked not in _known:
        _known[asked] = _is_instance(protocol, instance)
    return _known[asked]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """How one simulation ended."""

    seed: int
    failure: str = ""
    """Empty: every promise held."""
    trace: str = ""
    digest: bytes = b""
    """Of the log's last record: the whole log in 32 bytes."""
    counts: dict[str, int] = {}
    """What happened how often."""
    kinds: Counter[str] = Counter()
    """The records by their kinds."""


def simulate(story: Story, *, real: bool = False, small: bool = True) -> Result:
    """Tell one story on a machine of its seed, on a simulated store or on the real one, there with `small` constants as the seed has it.

    Costs about half a second.
    """
    with _silence(), quietly(), patch.object(_Protocol, "__instancecheck__", _is_known_instance):
        if not real:
            return _simulate(story, None)
        folders = tempfile.TemporaryDirectory(prefix="tidelog-simulated-", dir=MEMORY)
        with folders as folder, small_constants(story.seed) if small else contextlib.nullcontext():
            return _simulate(story, Path(os.path.realpath(folder)))


def _simulate(story: Story, folder: Path | None) -> Result:
    machine = Machine(story, Judge(story.configuration), _registry, folder=folder)
    failure = trace = ""
    try:
        machine.run()
    except Exception as error:
        failure, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
    counts = {
        **machine.counts,
        "records": len(machine.records),
        "callbacks": machine.loop.turns,
        "disk operations": machine.disk.operations,
        "failed disk operations": machine.disk.faults,
        "simulated seconds": machine.loop.now // 1_000_000_000,
        "steps": len(story.steps),
    }
    digest = machine.records[-1].digest if machine.records else b""
    kinds = Counter(record.kind for record in machine.records)
    return Result(seed=story.seed, failure=failure, trace=trace, digest=digest, counts=counts, kinds=kinds)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """What the daemon logs about all its misfortunes is of no interest."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


# --- many -----------------------------------------------------------------------------------------------------------------


def is_real(seed: int, store: str = "") -> bool:
    """Whether the story of this seed is told on the real store."""
    return sqlite_watch.AVAILABLE and (store == "real" or (not store and seed // CHUNK % 2 == 1))


def story_of(seed: int, store: str = "") -> Story:
    """As it is told on its store."""
    return make_story(seed, wide=is_real(seed, store))


def simulate_seeds(seeds: Sequence[int], store: str = "") -> list[Result]:
    """One after the other."""
    return [simulate(story_of(seed, store), real=is_real(seed, store)) for seed in seeds]


def simulate_many(
    first: int, count: int, jobs: int, report: Callable[[Result], None], store: str = ""
) -> None:
    """On so many processes. `report` gets the results as they come."""
    tell = partial(simulate_seeds, store=store)
    chunks = [range(at, min(at + CHUNK, first + count)) for at in range(first, first + count, CHUNK)]
    if jobs == 1:
        for chunk in chunks:
            for result in tell(chunk):
                report(result)
        return
    with multiprocessing.get_context("fork").Pool(jobs, _be_quiet, maxtasksperchild=1) as pool:
        for results in pool.imap_unordered(tell, chunks):
            for result in results:
                report(result)


_quiet = contextlib.ExitStack()
"""Of a process that tells one chunk and is gone."""


def _be_quiet() -> None:
    """Collect no garbage until the end: what a chunk leaves is 200 MiB, and to look through it would take a tenth of the time."""
    _quiet.enter_context(quietly())


class _Progress:
    """Says how far it is, in one line on a terminal and each thousand seeds elsewhere, and what failed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.done = 0
        self.failures: list[Result] = []
        self._totals: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._began = time.monotonic()

    def __call__(self, result: Result) -> None:
        self.done += 1
        self._totals.update(result.counts)
        self._kinds.update(result.kinds)
        if result.failure:
            self.failures.append(result)
            self._clear()
            print(told_failure(result), flush=True)
        start, every, end = ("\r", 10, "") if sys.stderr.isatty() else ("", 1000, "\n")
        if self.done % every == 0:
            rate = self.done / (time.monotonic() - self._began)
            line = f"{self.done:,} of {self.count:,} seeds, {len(self.failures)} failed, {rate:.1f} a second"
            print(start + line, end=end, file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)

    def finish(self) -> None:
        """The figures."""
        self._clear()
        seconds = time.monotonic() - self._began
        print(
            f"{self.done:,} seeds in {seconds:,.0f} s, {len(self.failures)} failed {[r.seed for r in self.failures]}"
        )
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        used = sum(each.ru_utime + each.ru_stime for each in usage)
        print(f"    {self.done / used * 3600:,.0f} stories an hour of one processor")
        print(f"    {_figures(self._totals)}")
        print(f"    of the records {_figures(self._kinds)}")


def _figures(counts: Counter[str]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)


# --- one ------------------------------------------------------------------------------------------------------------------


def told_failure(result: Result) -> str:
    """What went wrong, and the command that shows it again, with a short story."""
    how = f"--story    ({NOT_SHORTENED})" if is_stuck(result.failure) else "--shrink"
    return f"seed {result.seed}: {result.failure[:500]}\n    {COMMAND} --seed {result.seed} {how}"


def is_stuck(failure: str) -> bool:
    """Whether it went on and on. Each story that fails likewise takes half a minute to tell, and hundreds would be told to find the shortest."""
    return failure.startswith(f"{Stuck.__name__}:")


def shortest(story: Story, failure: str, *, real: bool = False) -> Story:
    """The shortest story that can be found to fail likewise; one that is stuck as it is."""
    if is_stuck(failure):
        return story
    kind = _kind(failure)
    return shrink(story, lambda shorter: _kind(simulate(shorter, real=real).failure) == kind)


def shrink(story: Story, fails: Callable[[Story], bool], tries: int = SHRINK_TRIES) -> Story:
    """The same story with as few steps as can be found: without halves, quarters, … single steps of it, as long as it still fails."""
    left = iter(range(tries))
    size = len(story.steps) // 2
    while size:
        shorter = _without_parts(story, size, fails, left)
        if size == 1 and len(shorter.steps) == len(story.steps):
            break
        story = shorter
        size = max(min(size // 2, len(story.steps) // 2), 1)
    return story


def _without_parts(story: Story, size: int, fails: Callable[[Story], bool], left: Iterator[int]) -> Story:
    at = 0
    while at < len(story.steps) and next(left, None) is not None:
        shorter = replace(story, steps=story.steps[:at] + story.steps[at + size :])
        if fails(shorter):
            story = shorter
        else:
            at += size
    return story


def _kind(failure: str) -> str:
    """What kind of failure it is: shortening must not lead to another one."""
    return ":".join(failure.split(":")[:2])[:60]


def told(story: Story) -> str:
    """The story, a line a step."""
    lines = [f"seed {story.seed}, {len(story.steps)} steps"]
    for number, step in enumerate(story.steps, start=1):
        lines.append(f"{number:4}  {_line(step)}")
    return "\n".join(lines)


def _line(step: AnyStep) -> str:
    return f"{type(step).__name__:14}{msgspec.json.encode(msgspec.structs.asdict(step)).decode()}"


def _one(seed: int, store: str, *, tell: bool, shorten: bool) -> bool:
    story, real = story_of(seed, store), is_real(seed, store)
    result = simulate(story, real=real)
    if shorten and is_stuck(result.failure):
        print(NOT_SHORTENED)
    elif shorten and result.failure:
        story = shortest(story, result.failure, real=real)
        result = simulate(story, real=real)
        print(f"the shortest story found that fails so has {len(story.steps)} steps:")
    if tell or (result.failure and shorten):
        print(told(story))
    if result.failure:
        print(result.trace or result.failure)
    print(
        f"seed {seed}, {'real' if real else 'simulated'} store: {result.failure or 'every promise was kept'}"
    )
    print(f"    last digest {result.digest.hex()}, {result.counts}")
    return not result.failure


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if nothing failed."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, help="run this one only, and show the trace of what fails")
    parser.add_argument("--seeds", type=int, default=500, help="how many (default: %(default)s)")
    parser.add_argument(
        "--from", type=int, default=0, dest="first", help="the first of them (default: %(default)s)"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all processors)"
    )
    parser.add_argument("--story", action="store_true", help="with --seed: print the story")
    parser.add_argument(
        "--shrink", action="store_true", help="with --seed: find a short story that fails likewise"
    )
    parser.add_argument(
        "--store", choices=("real", "simulated"), default="", help="which store (default: in turn)"
    )
    args = parser.parse_args(arguments)
    if args.seed is not None:
        return 0 if _one(args.seed, args.store, tell=args.story, shorten=args.shrink) else 1
    progress = _Progress(args.seeds)
    simulate_many(args.first, args.seeds, args.jobs, progress, args.store)
    progress.finish()
    if progress.failures:
        _one(min(result.seed for result in progress.failures), args.store, tell=True, shorten=True)
    return 1 if progress.failures else 0


if __name__ == "__main__":
    sys.exit(main())

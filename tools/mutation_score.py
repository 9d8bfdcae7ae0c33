"""How many deliberate mistakes the tests notice: `python tools/mutation_score.py queue scheduler --sample 200 --seed 1`.

For each package a seeded sample is drawn from the mistakes that `tools/mutants.py` can make there. pytest collects the package's tests
once; a child process runs them all to see which lines each one runs and how long it takes. Then every mutant gets a child of its own,
which puts the mutated code into the functions that are already loaded and runs the tests that reach it until one fails: those first that
found the last mutants of that file, the others by how long they take. What is evaluated at import is mutated in a child without anything imported yet.

A mutant that no test notices has survived; it is printed. One that no test reaches has survived, too, and so has one that would need
more than `--budget` seconds of tests. One that takes far longer than its tests do otherwise is found by that.

`tools/mutation_equivalents.toml` names mutants that no test can notice, because nothing that is promised changes, each with its reason;
they do not count. Entries are found by their text, and one that fits nothing any more is reported.

It needs fork. Nothing is written but the report on stdout.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import resource
import signal
import sys
import time
import tomllib
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple
from unittest import mock

import coverage
import hypothesis
import pytest
from mutants import Mutant, mutants

ROOT = Path(__file__).resolve().parent.parent
EQUIVALENTS = Path(__file__).with_name("mutation_equivalents.toml")
TESTS = {
    "queue": ["tests/queue"],
    "scheduler": [
        "tests/scheduler",
        "tests/replay",
        "tests/conformance",
        "tests/kep",
        "tests/plugins/pod_topology_spread/test_fallback.py",
    ],
}
"""Where the tests of each package are; those of other packages that happen to run its code would only take longer."""

RECENT = 20
"""So many of the tests that found a file's mutants are tried first. Arbitrary."""

KILLED, SURVIVED, TIMEOUT, UNREACHED, EQUIVALENT = "killed", "survived", "timeout", "unreached", "equivalent"


class Reach(NamedTuple):
    """The result of one run of all tests."""

    tests: list[str]
    """All, by name."""
    seconds: list[float]
    lines: dict[str, dict[str, list[int]]]
    """File → line → positions in `tests`."""


class Result(NamedTuple):
    """The fate of a mutant."""

    verdict: str
    by: str = ""
    """The test that failed."""


# --- children ---------------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], Any], seconds: float) -> Any:
    """Return the result of the work in a forked process; None if it dies or takes more seconds of the processor."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _limit(seconds)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            answer: Any = {"answer": work()}
        except BaseException:
            answer = {"error": traceback.format_exc()}
        try:
            with open(writing, "w") as pipe:
                json.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    answer = json.loads(told) if told else {"answer": None}
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["answer"]


def _limit(seconds: float) -> None:
    """The kernel ends the process when it has used these seconds, has waited ten times as long, or fills the memory."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_REAL, 10 * seconds)


def run_pytest(arguments: Sequence[str], plugin: object) -> None:
    """pytest in this process, collecting these; what to do with the tests is up to the plugin."""
    hypothesis.settings.register_profile(
        "mutants",
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        database=None,
        derandomize=True,
    )
    hypothesis.settings.load_profile("mutants")
    import tests.other_seed

    # The process with another hash seed would run without the mistake, and so notice each.
    tests.other_seed.OtherSeed = tests.other_seed.SameSeed  # type: ignore[misc]
    pytest.main(["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments], plugins=[plugin])


def first_failing(session: pytest.Session, items: Sequence[pytest.Item]) -> str:
    """Run these until one fails; its name, or "" if none does."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return item.nodeid
    return ""


# --- one package --------------------------------------------------------------------------------------------------------


class Warm:
    """A pytest plugin that, instead of running the tests, forks from the interpreter that has collected them."""

    def __init__(
        self, chosen: Sequence[Mutant], budget: float, report: Callable[[int, Result], None]
    ) -> None:
        self._chosen, self._budget, self._report = chosen, budget, report
        self._recent: dict[str, list[str]] = defaultdict(list)
        self._live: dict[str, list[FunctionType]] = defaultdict(list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure once, then judge the mutants."""
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        self._find_functions()
        gc.freeze()
        measured = in_child(self._measure, 3600)
        assert measured is not None, "the tests do not run through without mutants"
        self._reach = Reach(*measured)
        for number, mutant in enumerate(self._chosen):
            if mutant.inside:
                self._report(number, self._judge(mutant))
        return True

    def pytest_internalerror(self, excrepr: object) -> None:
        """stdout is closed, so say it where it is seen."""
        print(excrepr, file=sys.stderr)

    def _find_functions(self) -> None:
        files = {str(ROOT / mutant.path): mutant.path for mutant in self._chosen}
        for found in gc.get_objects():
            if type(found) is FunctionType and (path := files.get(_real(found.__code__.co_filename))):
                self._live[path].append(found)

    def _measure(self) -> Reach:
        files = sorted({mutant.path for mutant in self._chosen})
        watch = coverage.Coverage(
            data_file=None, config_file=False, include=[str(ROOT / path) for path in files]
        )
        names, seconds = [], []
        watch.start()
        items = list(self._items.values())
        for item, following in zip(items, [*items[1:], None], strict=True):
            watch.switch_context(str(len(names)))
            start = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            # It would seem to notice every mistake.
            assert not self._session.testsfailed, f"{item.nodeid} fails without any"
            names.append(item.nodeid)
            seconds.append(time.process_time() - start)
        watch.stop()
        data = watch.get_data()
        lines: dict[str, dict[str, list[int]]] = {}
        for file in data.measured_files():
            path = Path(_real(file)).relative_to(ROOT).as_posix()
            lines[path] = {
                str(line): sorted(int(context) for context in contexts if context)
                for line, contexts in data.contexts_by_lineno(file).items()
            }
        return Reach(names, seconds, lines)

    def _judge(self, mutant: Mutant) -> Result:
        tests = self._tests_of(mutant)
        if not tests:
            return Result(UNREACHED)
        seconds = sum(self._reach.seconds[test] for test in tests)
        names = [self._reach.tests[test] for test in tests]
        found = in_child(lambda: self._try(mutant, names), 10 + 2 * seconds)
        if found is None:
            return Result(TIMEOUT)
        if found:
            recent = self._recent[mutant.path]
            recent[:] = [found, *(name for name in recent if name != found)][:RECENT]
        return Result(KILLED, found) if found else Result(SURVIVED)

    def _tests_of(self, mutant: Mutant) -> list[int]:
        """Positions of the tests that reach it, in the order in which they are run, as many as the budget allows."""
        lines = self._reach.lines.get(mutant.path, {})
        reaching = {test for line in mutant.lines for test in lines.get(str(line), ())}
        reaching = reaching or set(lines.get(str(mutant.first_line), ()))
        recent = self._recent[mutant.path]

        def order(test: int) -> tuple[int, float, int]:
            name = self._reach.tests[test]
            return (recent.index(name) if name in recent else RECENT, self._reach.seconds[test], test)

        found, seconds = [], 0.0
        for test in sorted(reaching, key=order):
            seconds += self._reach.seconds[test]
            if seconds > self._budget:
                break
            found.append(test)
        return found

    def _try(self, mutant: Mutant, names: Sequence[str]) -> str:
        self._install(mutant)
        return first_failing(self._session, [self._items[name] for name in names])

    def _install(self, mutant: Mutant) -> None:
        """Give every function of the file the code that it has in the mutated module."""
        live = self._live[mutant.path]
        mutated = {_place(code): code for code in _codes(mutant.code(live[0].__code__.co_filename))}
        changed = 0
        for function in live:
            code = mutated[_place(function.__code__)]
            if code != function.__code__:
                function.__code__ = code
                changed += 1
        assert changed, f"no function has the code of {mutant.describe()}"


def _real(filename: str) -> str:
    return os.path.realpath(filename)


def _place(code: CodeType) -> tuple[str, int, int]:
    """Which function it is of. Two lambdas may begin in one line."""
    column = 0
    if code.co_name == "<lambda>":
        column = min(start for *_, start, _end in code.co_positions() if start)
    return code.co_qualname, code.co_firstlineno, column


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def judge_cold(mutant: Mutant, tests: Sequence[str], seconds: float) -> Result:
    """A mutant of what is evaluated at import: everything is imported anew, and the tests of its own module run first."""

    class Cold:
        found = ""

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtestloop(self, session: pytest.Session) -> bool:
            own = f"/test_{Path(mutant.path).stem}.py"
            ordered = sorted(session.items, key=lambda item: own not in item.nodeid)
            self.found = first_failing(session, ordered) if ordered else "(collection)"
            return True

    def work() -> str:
        cold = Cold()
        with mock.patch.object(SourceFileLoader, "get_code", _mutating(mutant)):
            try:
                run_pytest(["-x", *tests], cold)
            except Exception as error:
                return f"(import: {error})"
        return cold.found

    found = in_child(work, seconds)
    if found is None:
        return Result(TIMEOUT)
    return Result(KILLED, found) if found else Result(SURVIVED)


def _mutating(mutant: Mutant) -> Callable[[SourceFileLoader, str], CodeType]:
    """A loader's `get_code` that has the mutant's for its module."""
    original: Any = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType:
        if _real(self.path) == str(ROOT / mutant.path):
            return mutant.code(self.path)
        code: CodeType = original(self, fullname)
        return code

    return get_code


# --- the report -----------------------------------------------------------------------------------------------------------


def equivalents() -> dict[tuple[str, str, str, str], str]:
    """The reason for each mutant that is listed as equivalent, by its key."""
    listed = tomllib.loads(EQUIVALENTS.read_text()) if EQUIVALENTS.exists() else {}
    return {
        (row["file"], row["function"], row["before"], row["after"]): row["reason"]
        for row in listed.get("equivalent", [])
    }


def all_mutants(package: str) -> list[Mutant]:
    """Of all modules of the package."""
    return [mutant for path in sorted((ROOT / package).glob("*.py")) for mutant in mutants(ROOT, path)]


def score(package: str, options: argparse.Namespace) -> bool:
    """Judge a sample of the package's mutants and print the report; whether the score is high enough."""
    known = equivalents()
    everything = [m for m in all_mutants(package) if options.only in m.path]
    keys = {mutant.key for mutant in everything}
    for key in known:
        if key[0].startswith(f"{package}/") and options.only in key[0] and key not in keys:
            print(f"stale: no mutant is like this one any more, which is listed as equivalent: {key}")
    countable = [mutant for mutant in everything if mutant.key not in known]
    chosen = random.Random(options.seed).sample(countable, min(options.sample, len(countable)))
    results: dict[int, Result] = {}

    def report(number: int, result: Result) -> None:
        results[number] = result
        if result.verdict not in (KILLED, TIMEOUT):
            print(f"{result.verdict}: {chosen[number].describe()}", flush=True)

    rows = in_child_session(chosen, options.budget, TESTS[package])
    for number, result in rows:
        report(number, result)
    for number, mutant in enumerate(chosen):
        if not mutant.inside:
            report(number, judge_cold(mutant, TESTS[package], options.budget * 10))
    return _summary(package, chosen, results, len(everything) - len(countable), options)


def in_child_session(
    chosen: Sequence[Mutant], budget: float, tests: Sequence[str]
) -> Iterable[tuple[int, Result]]:
    """Judge those inside functions, in a process of their own, so that this one stays without imports."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            with open(writing, "w") as pipe:

                def report(number: int, result: Result) -> None:
                    print(json.dumps([number, *result]), file=pipe, flush=True)

                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                run_pytest(tests, Warm(chosen, budget, report))
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        for line in pipe:
            number, verdict, by = json.loads(line)
            yield number, Result(verdict, by)
    os.waitpid(child, 0)


def _summary(
    package: str,
    chosen: Sequence[Mutant],
    results: dict[int, Result],
    excluded: int,
    options: argparse.Namespace,
) -> bool:
    by_file: dict[str, Counter[str]] = defaultdict(Counter)
    for number, mutant in enumerate(chosen):
        by_file[mutant.path][results[number].verdict] += 1
    print(f"\n{'file':40}{'killed':>8}{'timeout':>8}{'survived':>9}{'unreached':>10}")
    total: Counter[str] = Counter()
    for path, counts in sorted(by_file.items()):
        _row(path, counts)
        total.update(counts)
    _row(package, total)
    found = total[KILLED] + total[TIMEOUT]
    percent = 100 * found / max(1, len(chosen))
    print(
        f"{package}: {percent:.1f} % of {len(chosen)} mutants found (seed {options.seed}); "
        f"{excluded} more are listed as equivalent"
    )
    return percent >= options.at_least


def _row(name: str, counts: Counter[str]) -> None:
    print(f"{name:40}{counts[KILLED]:8}{counts[TIMEOUT]:8}{counts[SURVIVED]:9}{counts[UNREACHED]:10}")


def main() -> int:
    """0 when every package reaches the score."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", nargs="+", choices=sorted(TESTS))
    parser.add_argument("--sample", type=int, default=200, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="only files whose path has this in it")
    parser.add_argument("--budget", type=float, default=30, help="seconds of tests for each mutant")
    parser.add_argument("--at-least", type=float, default=85, help="percent to be found")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    enough = [score(package, options) for package in options.packages]
    return 0 if all(enough) else 1


if __name__ == "__main__":
    sys.exit(main())

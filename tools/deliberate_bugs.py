"""Which of the deliberate bugs in `tools/deliberate_bugs.toml` the tests notice: `make mutants`, or `python tools/deliberate_bugs.py --only NAME`.

`tools/mutation_score.py` makes small mistakes by the hundred; these are the ones that a good engineer makes and a review overlooks: an
answer before the commit, an order that a restart does not keep, a sync of a folder left out. Each entry says what is replaced in which file, which
tests are to notice, and `by` which of them, or which seed of the simulation, it was noticed last. That one is tried first, so that a run of all takes
minutes; the others only where it does not notice any more. All of it happens in copies of the tree. What notices a bug must pass without it. A bug
that nothing notices has survived; an entry that does not fit the code any more is reported, and is to be brought up to date.

Ends with 0 if all were noticed. `--note` writes into the table what noticed each.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_suffix(".toml")
CPU_SECONDS = 600
"""So much of a processor a run of tests may take …"""
SECONDS = 2400
"""… and so long: a machine that does other work is no reason. What takes more hangs, which is noticed, and told."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::\S+)?)", re.MULTILINE)


class Bug(NamedTuple):
    """An entry of the table."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    by: str
    """A test, or `seed 42` of the simulation; empty if it is not known yet."""


class Verdict(NamedTuple):
    """The end of a bug's trial."""

    word: str
    by: str = ""


def bugs() -> list[Bug]:
    """All entries."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return [
        Bug(e["name"], e["file"], e["old"], e["new"], tuple(e["tests"]), e.get("by", ""))
        for e in table["bug"]
    ]


def copied(tree: Path) -> Path:
    """The files that git knows, or would, so that what is changed there is seen by nobody else."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, target = ROOT / name, tree / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    (tree / ".pkg").mkdir(exist_ok=True)
    link = tree / ".pkg" / "tidelog"
    if not link.is_symlink():
        link.symlink_to("..")
    return tree


@contextmanager
def broken(tree: Path, bug: Bug) -> Iterator[None]:
    """The bug is in the tree while the block runs."""
    file = tree / bug.file
    right = file.read_text(encoding="utf-8")
    try:
        _write(file, right.replace(bug.old, bug.new))
        yield
    finally:
        _write(file, right)


def _write(file: Path, text: str) -> None:
    """And forget what was compiled of it, which Python knows by the second only."""
    file.write_text(text, encoding="utf-8")
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
        compiled.unlink()


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


def told(tree: Path, tests: Sequence[str]) -> Verdict:
    """`passed`, `failed` by which test, or `hung`: how these tests end there, or a seed of the simulation."""
    if tests[0].startswith("seed "):
        command = ["-m", "tests.simulation.simulate", "--seed", tests[0].removeprefix("seed ")]
    else:
        command = ["-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(
            [sys.executable, *command],
            check=False,
            cwd=tree,
            env=environment | {"PYTHONPATH": str(tree / ".pkg")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            preexec_fn=_limited,
        )
    except subprocess.TimeoutExpired:
        return Verdict("hung", tests[0])
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return Verdict("hung", tests[0])
    output = done.stdout.decode(errors="replace")
    if done.returncode == 0:
        return Verdict("passed")
    found = FAILED.search(output)
    if done.returncode in (1, 2) and (found or command[1] != "pytest"):
        return Verdict("failed", found[1] if found else tests[0])
    raise RuntimeError(f"{' '.join(command)}: {output[-2000:]}")


def tried(tree: Path, bug: Bug) -> Verdict:
    """Try the bug in this tree."""
    count = (tree / bug.file).read_text(encoding="utf-8").count(bug.old)
    if count != 1:
        return Verdict("DOES NOT FIT", f"{bug.file} has its text {count} times")
    for tests in ([bug.by], list(bug.tests)):
        if not tests[0] or not _is_there(tree, tests[0]):
            continue
        with broken(tree, bug):
            found = told(tree, tests)
        if found.word == "passed":
            continue
        if told(tree, [found.by]).word != "passed":
            return Verdict("FAILS WITHOUT IT", found.by)
        return Verdict("noticed" if found.word == "failed" else "noticed, hung", found.by)
    return Verdict("SURVIVED")


def _is_there(tree: Path, test: str) -> bool:
    return test.startswith("seed ") or (tree / test.partition("::")[0]).exists()


def note(found: dict[str, str]) -> None:
    """Write into the table by what each bug of these names was noticed."""
    lines: list[str] = []
    name = ""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("name = "):
            name = line[8:-1]
        if name not in found or not line.startswith("by = "):
            lines.append(line)
        if name in found and line.startswith("tests = "):
            lines.append(f'by = "{found[name]}"')
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Try them, print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="those whose name has this in it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="so many at once")
    parser.add_argument("--note", action="store_true", help="write into the table what noticed each")
    arguments = parser.parse_args()
    chosen = [bug for bug in bugs() if arguments.only in bug.name]
    with tempfile.TemporaryDirectory(prefix="tidelog-bugs-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(arguments.jobs):
            trees.put(copied(Path(folder, str(number), "tree")))

        def judged(bug: Bug) -> Verdict:
            tree = trees.get()
            try:
                found = tried(tree, bug)
            finally:
                trees.put(tree)
            print(f"{found.word:13} {bug.name}{': ' if found.by else ''}{found.by}", flush=True)
            return found

        with ThreadPoolExecutor(arguments.jobs) as pool:
            verdicts = list(pool.map(judged, chosen))
    noticed = {
        bug.name: found.by
        for bug, found in zip(chosen, verdicts, strict=True)
        if found.word.startswith("noticed")
    }
    if arguments.note:
        note(noticed)
    print(f"{len(noticed)} of {len(chosen)} noticed")
    return 0 if len(noticed) == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())

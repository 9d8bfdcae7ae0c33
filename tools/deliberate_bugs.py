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
from threading import Lock
from typing import IO, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_suffix(".toml")
CPU_SECONDS = 600
"""A run of tests that takes more of a processor hangs, …"""
IDLE_SECONDS = 90
"""… and so does one that takes nothing of it for so long. Which is noticed, and told."""
STARTED = re.compile(r"^(tests/\S+?\.py::.+?) ?(?:PASSED|FAILED|SKIPPED|XFAIL|$)", re.MULTILINE)
FAILED = re.compile(
    r"^(?:(?:FAILED|ERROR) (tests/.+?)(?: - .*)?|(tests/.+?) (?:FAILED|ERROR) +\[.*)$", re.MULTILINE
)
"""As it is told at the end, or when it has just happened: what is broken may keep the process from ending."""


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


def told(tree: Path, tests: Sequence[str]) -> Verdict:
    """`passed`, `failed` by which test, or `hung`: how these tests end there, or a seed of the simulation."""
    if tests[0].startswith("seed "):
        command = ["-m", "tests.simulation.simulate", "--seed", tests[0].removeprefix("seed ")]
    else:
        command = ["-m", "pytest", "-v", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as file:
        running = subprocess.Popen(
            [sys.executable, *command],
            cwd=tree,
            env=environment | {"PYTHONPATH": str(tree / ".pkg")},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        is_over = _ended(running, file)
        file.seek(0)
        output = file.read().decode(errors="replace")
    failed, started = FAILED.search(output), STARTED.findall(output)
    if failed:
        return Verdict("failed", failed[1] or failed[2])
    if not is_over:
        return Verdict("hung", started[-1] if started else tests[0])
    if running.returncode == 0:
        return Verdict("passed")
    if running.returncode < 0 or command[1] != "pytest":
        return Verdict("failed", started[-1] if started else tests[0])
    if running.returncode == pytest.ExitCode.USAGE_ERROR and "::" in tests[0]:
        return Verdict("passed")  # There is no such test any more.
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


def _ended(running: subprocess.Popen[bytes], output: IO[bytes]) -> bool:
    """Wait until it ends, or has told of a failure, which is enough; False if it hangs."""
    used, idle = -1.0, 0
    while idle < IDLE_SECONDS and used < CPU_SECONDS:
        try:
            running.wait(3)
            return True
        except subprocess.TimeoutExpired:
            now = _cpu_of(running.pid)
            used, idle = now, idle + 3 if now == used else 0
        if FAILED.search(os.pread(output.fileno(), 2**22, 0).decode(errors="replace")):
            break
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    return False


def _cpu_of(pid: int) -> float:
    """Seconds, with those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _is_there(tree: Path, test: str) -> bool:
    return test.startswith("seed ") or (tree / test.partition("::")[0]).exists()


def note(bug: Bug, by: str) -> None:
    """Write into the table what noticed the bug."""
    lines: list[str] = []
    name = ""
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line.startswith("name = "):
            name = line[8:-1]
        if name != bug.name or not line.startswith("by = "):
            lines.append(line)
        if name == bug.name and line.startswith("tests = "):
            lines.append(f'by = "{by}"')
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Try them, print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="those whose name has this in it")
    parser.add_argument("--new", action="store_true", help="those of which it is not known what notices them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="so many at once")
    parser.add_argument("--note", action="store_true", help="write into the table what noticed each")
    arguments = parser.parse_args()
    chosen = [bug for bug in bugs() if arguments.only in bug.name and not (arguments.new and bug.by)]
    with tempfile.TemporaryDirectory(prefix="tidelog-bugs-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        writing = Lock()
        for number in range(arguments.jobs):
            trees.put(copied(Path(folder, str(number), "tree")))

        def judged(bug: Bug) -> Verdict:
            tree = trees.get()
            try:
                found = tried(tree, bug)
            finally:
                trees.put(tree)
            with writing:
                print(f"{found.word:13} {bug.name}{': ' if found.by else ''}{found.by}", flush=True)
                if arguments.note and found.word.startswith("noticed"):
                    note(bug, found.by)
            return found

        with ThreadPoolExecutor(arguments.jobs) as pool:
            verdicts = list(pool.map(judged, chosen))
    noticed = sum(found.word.startswith("noticed") for found in verdicts)
    print(f"{noticed} of {len(chosen)} noticed")
    return 0 if noticed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())

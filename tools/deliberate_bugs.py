"""Which of the deliberate bugs in `tools/deliberate_bugs.toml` the tests notice: `make mutants`, or `python tools/deliberate_bugs.py --only NAME`.

`tools/mutation_score.py` makes small mistakes by the hundred; these are the ones that a good engineer makes and a review overlooks: an
answer before the commit, an order that a restart does not keep, a sync of a folder left out. Each entry says what is replaced in which file, and
which tests are to notice. All of it happens in a copy of the tree. A bug that no test notices has survived; an entry that does not fit the code any
more is reported, and is to be brought up to date.

Ends with 0 if all were noticed. Costs a run of the named tests without any bug, and one for each bug until a test fails.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path(__file__).with_suffix(".toml")
CPU_SECONDS = 240
"""So much of a processor the tests of one bug may take …"""
SECONDS = 2400
"""… and so long: a machine that does other work is no reason. More counts as noticed, and is told: what a bug leaves hanging is seen."""


WORDS = {"failed": "noticed", "hung": "noticed, hung", "passed": "SURVIVED"}


class Bug(NamedTuple):
    """An entry of the table."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def bugs() -> list[Bug]:
    """All entries."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return [Bug(e["name"], e["file"], e["old"], e["new"], tuple(e["tests"])) for e in table["bug"]]


def copied(folder: Path) -> Path:
    """The files that git knows, or would, so that what is changed there is seen by nobody else."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    tree = folder / "tree"
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


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


def verdict(tree: Path, tests: tuple[str, ...], *, limited: bool = True) -> str:
    """`passed`, `failed` or `hung`: how these tests end there."""
    environment = os.environ | {"PYTHONPATH": str(tree / ".pkg"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS if limited else None,
            preexec_fn=_limited if limited else None,
        )
    except subprocess.TimeoutExpired:
        return "hung"
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "hung"
    if done.returncode not in (0, 1):
        raise RuntimeError(
            f"{' '.join(command)}: {done.stdout.decode()[-2000:]}{done.stderr.decode()[-2000:]}"
        )
    return "failed" if done.returncode else "passed"


def main() -> int:
    """Try them, print a line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="those whose name has this in it")
    parser.add_argument("--trust", action="store_true", help="do not run the tests without bugs first")
    arguments = parser.parse_args()
    chosen = [bug for bug in bugs() if arguments.only in bug.name]
    survived = misfits = 0
    with tempfile.TemporaryDirectory(prefix="tidelog-bugs-") as folder:
        tree = copied(Path(folder))
        named = tuple(dict.fromkeys(t for bug in chosen for t in bug.tests))
        if not arguments.trust and verdict(tree, named, limited=False) != "passed":
            print("the tests fail without any bug")
            return 1
        for bug in chosen:
            file = tree / bug.file
            right = file.read_text(encoding="utf-8")
            if right.count(bug.old) != 1:
                misfits += 1
                print(
                    f"does not fit  {bug.name}: {bug.file} has its text {right.count(bug.old)} times",
                    flush=True,
                )
                continue
            file.write_text(right.replace(bug.old, bug.new), encoding="utf-8")
            try:
                found = verdict(tree, bug.tests)
            finally:
                file.write_text(right, encoding="utf-8")
            survived += found == "passed"
            print(f"{WORDS[found]:13} {bug.name}", flush=True)
    print(
        f"{len(chosen) - survived - misfits} of {len(chosen)} noticed, {survived} survived, {misfits} do not fit"
    )
    return 1 if survived or misfits else 0


if __name__ == "__main__":
    sys.exit(main())

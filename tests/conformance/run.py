"""Ask tidelog the recorded questions, and compare with what the real kube-scheduler answered.

    python tests/conformance/run.py FILE_OR_DIR... [--results OUT.jsonl] [--family NAME] [--max 5]

Reads `.jsonl` and `.jsonl.gz`. For each family of cases it prints `family: N passed, N failed`; `--results` writes what was
computed, one `{"id": ..., "expect": {...}}` a line. Exit status 1 when anything failed, 2 when there was nothing to ask.
How a family is asked and compared is in `families/`, one module each with `answer(case)` and `differences(case, answer)`.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

try:
    import tidelog.api.objects  # noqa: F401
except ImportError:
    # Started with a Python that does not have the package: go on with the project's own environment.
    venv = ROOT / ".venv" / "bin" / "python"
    if not venv.exists() or Path(sys.prefix) == venv.parent.parent:
        sys.exit("tidelog is not installed: run `make install` first")
    os.execv(venv, [str(venv), *sys.argv])

sys.path.insert(0, str(HERE))

FAMILIES = (
    "filter-score",
    "hints",
    "preemption",
    "queue",
    "queue_groups",
    "podgroup",
    "cel",
    "dra",
    "volumes",
    "volume-dra-hints",
)
Case = dict[str, Any]


def family_of(case: Case) -> str:
    """Named in the case, or told by its shape."""
    if "family" in case:
        return str(case["family"])
    if "steps" in case:
        return "queue_groups" if case["config"].get("generic_workload") else "queue"
    return "podgroup"


def files(paths: list[Path]) -> Iterator[Path]:
    """The case files among and below the paths, in a stable order."""
    for path in paths:
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*") if p.name.endswith((".jsonl", ".jsonl.gz")))
        elif path.exists():
            yield path
        else:
            sys.exit(f"run.py: {path}: no such file or directory")


def cases(path: Path) -> Iterator[Case]:
    """Each line of a plain or gzipped file; none of one that holds something else, as recordings that other tests read."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    case = json.loads(line)
                except ValueError as error:
                    sys.exit(f"run.py: {path}:{number}: not JSON: {error}")
                if (
                    not isinstance(case, dict)
                    or "id" not in case
                    or not case.keys() & {"expect", "steps", "family"}
                ):
                    print(f"run.py: {path}:{number}: is no case; the file is left out", file=sys.stderr)
                    return
                yield case


def differences(case: Case, family: str) -> tuple[dict[str, Any], list[str]]:
    """Our answer, and in what it differs from the recorded one. A crash of ours is a difference, a family unknown to us too."""
    name = f"families.{family.replace('-', '_')}"
    if importlib.util.find_spec(name) is None:
        return {}, [f"there is nothing that answers the family {family}"]
    module = importlib.import_module(name)
    try:
        answer = module.answer(case)
        return answer, module.differences(case, answer)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return {}, [f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"]


def main(argv: list[str] | None = None) -> int:
    """0 when every case passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE_OR_DIR")
    parser.add_argument("--results", type=Path, metavar="OUT.jsonl", help="write what was computed")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only this family (repeatable)")
    parser.add_argument("--max", type=int, default=5, help="how many failed cases a family shows (default 5)")
    options = parser.parse_args(argv)

    passed: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    results = options.results.open("w") if options.results else None
    try:
        for path in files(options.paths):
            for case in cases(path):
                family = family_of(case)
                if options.family and family not in options.family:
                    continue
                answer, found = differences(case, family)
                if results:
                    results.write(json.dumps({"id": case["id"], "expect": answer}) + "\n")
                if not found:
                    passed[family] += 1
                    continue
                failed[family] += 1
                if failed[family] <= options.max:
                    print(f"{family} {case['id']}")
                    for line in found[:10]:
                        print(f"    {line}")
    finally:
        if results:
            results.close()
    for family in dict.fromkeys((*FAMILIES, *failed)):
        if passed[family] or failed[family]:
            print(f"{family}: {passed[family]} passed, {failed[family]} failed")
    if not passed and not failed:
        print("no cases found", file=sys.stderr)
        return 2
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

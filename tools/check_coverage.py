"""Holds each package to its coverage by the tests: `python tools/check_coverage.py build/coverage.json`.

Reads what `pytest --cov --cov-report=json:…` wrote. coverage's own `fail_under` knows only one figure for everything, under which a
package without tests can hide behind the others. Each package is held to two: coverage's own, of statements and branches together,
and that of the branches alone, of each condition both ways. What runs in other processes only does not count.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

AT_LEAST = {
    "api": 95,
    "configuration": 97,
    "eventlog": 95,
    "framework": 97,
    "plugins": 96,
    "queue": 99,
    "scheduler": 96,
}
"""Percent of statements and branches."""
BRANCHES_AT_LEAST = {
    "api": 92,
    "configuration": 95,
    "eventlog": 92,
    "framework": 95,
    "plugins": 94,
    "queue": 98,
    "scheduler": 93,
}
"""Percent of the branches alone. What is below 95 has its tests in folders or processes that are not traced."""

COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def shares(report: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Percent that ran of statements and branches, and of the branches alone, for each package. One without files has 0."""
    totals: dict[str, Counter[str]] = {package: Counter() for package in AT_LEAST}
    for path, found in report["files"].items():
        if (package := Path(path).parts[0]) in totals:
            totals[package].update({key: value for key, value in found["summary"].items() if key in COUNTS})
    return {package: (_both(total), _branches(total)) for package, total in totals.items()}


def _both(total: Counter[str]) -> float:
    run = total["covered_lines"] + total["covered_branches"]
    return 100 * run / max(1, total["num_statements"] + total["num_branches"])


def _branches(total: Counter[str]) -> float:
    return 100 * total["covered_branches"] / max(1, total["num_branches"])


def main(path: str) -> int:
    """0 when every package reaches both figures."""
    missed = 0
    for package, (both, branches) in shares(json.loads(Path(path).read_text())).items():
        text = f"{package}: {both:.1f} % covered, {branches:.1f} % of the branches"
        if both >= AT_LEAST[package] and branches >= BRANCHES_AT_LEAST[package]:
            print(text)
        else:
            floors = f"{AT_LEAST[package]} % and {BRANCHES_AT_LEAST[package]} %"
            print(f"{text}: at least {floors} have to be covered", file=sys.stderr)
            missed += 1
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

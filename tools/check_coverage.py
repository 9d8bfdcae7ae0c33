"""Holds each package to its share of branches run by the tests: `python tools/check_coverage.py build/coverage.json`.

Reads what `pytest --cov --cov-report=json:…` wrote. coverage's own `fail_under` knows only one figure for everything, under which a
package without tests can hide behind the others. Counted are branches alone: of each condition both ways, where the share of lines
or the mixture that coverage calls "percent covered" would be higher. What runs in other processes only does not count.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

AT_LEAST = {"api": 95, "eventlog": 95, "plugins": 95, "queue": 99, "scheduler": 95}
"""Percent of the branches."""


def shares(report: dict[str, Any]) -> dict[str, float]:
    """Percent of its branches that ran, for each package. One without a figure has 0."""
    total, run = Counter[str](), Counter[str]()
    for path, found in report["files"].items():
        package = Path(path).parts[0]
        total[package] += found["summary"]["num_branches"]
        run[package] += found["summary"]["covered_branches"]
    return {package: 100 * run[package] / max(1, total[package]) for package in AT_LEAST}


def main(path: str) -> int:
    """0 when every package reaches its share."""
    missed = 0
    for package, share in shares(json.loads(Path(path).read_text())).items():
        is_enough = share >= AT_LEAST[package]
        missed += not is_enough
        note = "" if is_enough else f": at least {AT_LEAST[package]} % are wanted"
        print(f"{package}: {share:.1f} % of the branches{note}", file=sys.stdout if is_enough else sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

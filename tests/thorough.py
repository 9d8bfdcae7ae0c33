"""How many random cases a test tries: few in `make test`, so that it stays short, and five times as many in `make thorough`.

    STORIES = cases(40, "TIDELOG_QUEUE_HISTORIES")        40; 200 in `make thorough`; what the variable says if it is set

What a test promises does not depend on the number: a law that a few cases do not show is counted where it is looked for, and the test fails.
"""

from __future__ import annotations

import os

FACTOR = int(os.environ.get("TIDELOG_THOROUGH", "1"))


def cases(few: int, variable: str = "") -> int:
    """Return how many cases to try."""
    return int(os.environ.get(variable, few * FACTOR))

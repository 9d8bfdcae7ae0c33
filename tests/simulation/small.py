"""Constants of the product that are made small in some stories, so that what happens once in a million records happens often.

    with small_constants(seed):
        ...

Each may be changed without anything that is promised being another: bounds of caches, of groups, of steps, of what is kept. By lots of their own.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from tidelog.eventlog import database, identity, log, sqlite, store, table_encoding
from tidelog.scheduler import disturbances

CONSTANTS: tuple[tuple[Any, str, tuple[Any, ...]], ...] = (
    (sqlite, "CHECKPOINT_BYTES", (1, 4_000, 60_000)),
    (sqlite, "STEPS", (((1, 2), (1, 1)), ((2, 16), (1, 1)))),
    (database, "PART_BYTES", (200, 5_000)),
    (identity, "FRAMES_PER_READ", (1, 2)),
    (log, "RECENT", (8, 100)),
    (log, "RECENT_BYTES", (5_000,)),
    (log, "GROUP_RECORDS", (1, 3, 20)),
    (log, "BODIES", (4,)),
    (log, "ROWS_PER_READ", (7,)),
    (store, "SNAPSHOTS_KEPT", (4, 6)),
    (store, "BETWEEN_KEPT", (2, 4)),
    (table_encoding, "OBJECTS_PER_STEP", (2,)),
    (disturbances, "DROPPED_AT_ONCE", (2,)),
)
CHANCE = 0.4


@contextlib.contextmanager
def small_constants(seed: int) -> Iterator[list[str]]:
    """Some of them are small while the block runs; which."""
    dice = random.Random(f"small {seed}")
    chosen: list[str] = []
    with contextlib.ExitStack() as stack:
        for module, name, values in CONSTANTS:
            value = dice.choice(values)
            if dice.random() < CHANCE:
                stack.enter_context(patch.object(module, name, value))
                chosen.append(name)
        yield chosen

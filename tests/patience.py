"""How long a test waits for what has to happen: so long that no machine is too slow or too busy, and one that hangs still ends.

No test judges seconds: what is to be cheap is counted, or measured in a unit of the same run, and the seconds are for `benchmarks/`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

PATIENCE = 600.0
"""Seconds. Everything that a test waits for takes a few at most on an idle machine."""


async def until(condition: Callable[[], bool], pause: float = 0.005) -> None:
    """Let all tasks work until it holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(pause)


def wait_until(condition: Callable[[], bool], pause: float = 0.005, what: str = "it") -> None:
    """Return when it holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(pause)

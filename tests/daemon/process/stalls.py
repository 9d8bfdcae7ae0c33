"""Measures how long the event loop is held up by one callback: what everything else in the process has to wait for.

    with Stalls() as stalls:
        ...
    stalls.longest        Stall(cpu, wall, what), the callback that took the most of the processor

Processor time is what is judged, because these tests share a machine with others; what a thread beside the loop does is not
in it, and a thread that keeps the interpreter too long is seen in `wall`.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, NamedTuple, Self


class Stall(NamedTuple):
    """One callback of the event loop."""

    cpu: float
    """Seconds of the processor that the loop's thread used."""
    wall: float
    what: str


class Stalls:
    """Times every callback of every event loop in the process while it is entered. Costs about two microseconds each."""

    def __init__(self) -> None:
        self.longest = Stall(0, 0, "")
        self.longest_wall = Stall(0, 0, "")
        self.count = 0

    def __enter__(self) -> Self:
        self._run = run = asyncio.Handle._run

        def timed(handle: Any) -> None:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                run(handle)
            finally:
                found = Stall(time.thread_time() - cpu, time.perf_counter() - wall, "")
                self.count += 1
                if found.cpu > self.longest.cpu:
                    self.longest = found._replace(what=_named(handle))
                if found.wall > self.longest_wall.wall:
                    self.longest_wall = found._replace(what=_named(handle))

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign]


def _named(handle: Any) -> str:
    task = getattr(handle._callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine = task.get_coro()
        return f"{task.get_name()} {getattr(coroutine, '__qualname__', coroutine)}"
    return str(handle._callback)[:120]

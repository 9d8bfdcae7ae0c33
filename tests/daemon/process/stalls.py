"""Measures how long the event loop is held up by one callback: what everything else in the process has to wait for.

    with Stalls() as stalls:
        ...
    stalls.longest        Stall(cpu, wall, what), the callback that took the most of the processor
    stalls.pieces         … as a multiple of a known piece of work, done before and after

Judged are pieces, of processor time: a machine that is slow or shared is as slow with the known work as with ours. What a thread beside the
loop does is not in it; a thread that keeps the interpreter too long is seen in `wall`.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

_LIST = msgspec.msgpack.encode([""] * 500_000)
_WORDS = {f"k{number}": number for number in range(5_000)}
_TURNS = 5


def piece_of_work() -> float:
    """Do what takes five milliseconds on a fast machine, decoding and looking up; returns the seconds of the processor that it took here."""
    began = time.thread_time()
    msgspec.msgpack.decode(_LIST)
    sum(_WORDS[f"k{number}"] for number in range(5_000))
    sum(len(str(number)) for number in range(25_000))
    return time.thread_time() - began


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
        self._piece = 0.0

    @property
    def pieces(self) -> float:
        """How many pieces of work the longest callback was as long as."""
        return self.longest.cpu / self._piece

    def _calibrate(self) -> None:
        self._piece = max(self._piece, *(piece_of_work() for _ in range(_TURNS)))

    def __enter__(self) -> Self:
        self._calibrate()
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
        self._calibrate()


def _named(handle: Any) -> str:
    task = getattr(handle._callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine = task.get_coro()
        return f"{task.get_name()} {getattr(coroutine, '__qualname__', coroutine)}"
    return str(handle._callback)[:120]

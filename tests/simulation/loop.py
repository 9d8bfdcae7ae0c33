"""An event loop whose time is simulated and whose order is drawn from a seed, for several processes at once.

What runs on it is real asyncio: tasks, futures, task groups, timeouts. It differs from asyncio's own loops in three things:

- Time goes by only when nothing is left to do, and then at once to the next appointment.
- Which of the ready callbacks runs next is drawn from the seed. (asyncio promises the order in which they became ready. To see what happens in
  other orders than the one that no delay at all gives, they are shuffled, more or less by the seed.)
- Each callback belongs to a simulated `Process`: the one that was current where it was made. One that is paused does nothing until it is
  continued; one that was killed never does anything again: no `finally` runs, nothing is flushed.

A callback costs about two microseconds above what it does itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import heapq
import random
import sys
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from tidelog.api.times import NANOS

T = TypeVar("T")

TURNS_MAX = 1_500_000
"""A simulation of more callbacks than this goes round in circles. The longest that ended had half as many: hundreds of steps, and dozens of pods that nothing helps."""


class Killed(BaseException):
    """Ends what a process is doing in the middle of a callback. Nothing in the product catches and survives it."""


class Stuck(Exception):
    """Nothing is left to do, and what is waited for has not happened."""


class Process:
    """Whose callbacks run, and whether they do."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[_Handle] = []
        """What became ready while it was paused."""
        self.tasks: list[asyncio.Task[Any]] = []
        self.context = contextvars.copy_context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"Process({self.name})"


CURRENT: contextvars.ContextVar[Process | None] = contextvars.ContextVar("simulated process", default=None)
"""The process that is running; None for what is outside: the story, clients, the machine itself."""
OUTSIDE = Process("outside").context
"""What runs in it belongs to no process, whoever has asked for it."""
OUTSIDE.run(CURRENT.set, None)


class _Handle:
    """A callback. As asyncio's handles: it can be cancelled."""

    __slots__ = ("args", "at", "callback", "context", "process")

    def __init__(
        self,
        callback: Callable[..., object] | None,
        args: tuple[Any, ...],
        context: contextvars.Context | None,
        at: int = 0,
    ) -> None:
        if context is None:
            context = contextvars.copy_context()
        self.callback = callback
        self.args = args
        self.context = context
        self.process = context.get(CURRENT)
        self.at = at

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.at / NANOS


class SimLoop(asyncio.AbstractEventLoop):
    """Runs one simulation: `run`."""

    def __init__(self, rng: random.Random, disorder: float = 1.0) -> None:
        """`disorder`: how often it is not the callback that became ready first whose turn it is."""
        self.now = 0
        """Nanoseconds since the beginning."""
        self.turns = 0
        self.abort: BaseException | None = None
        """Ends the simulation, whoever is running, if somebody sets it."""
        self.complaints: list[dict[str, Any]] = []
        """What asyncio would have logged: exceptions that nobody looked at, and the like."""
        self._random = rng.random
        self._disorder = disorder
        self._ready: list[_Handle] = []
        self._timers: list[tuple[int, int, _Handle]] = []
        self._numbers = 0
        self._cleared = False

    # --- running --------------------------------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """What the coroutine comes to. Whatever else is going on is left as it is then: `clear_away` ends it."""
        with self._running():
            task = self.create_task(main)
            while not task.done():
                self._turn()
                if self.abort is not None:
                    task.cancel()
                    raise self.abort
            return task.result()

    @contextmanager
    def _running(self) -> Generator[None]:
        hooks = sys.get_asyncgen_hooks()
        asyncio._set_running_loop(self)
        sys.set_asyncgen_hooks(finalizer=self._close_generator)
        try:
            yield
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(None)

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        # As asyncio does with a generator that nobody refers to any more.
        if not self._cleared:
            self.create_task(generator.aclose())

    def _turn(self) -> None:
        ready = self._ready
        if not ready:
            self._let_time_go_by()
        count = len(ready)
        if count > 1 and self._random() < self._disorder:
            handle = ready.pop(int(self._random() * count))
        else:
            handle = ready.pop(0)
        callback = handle.callback
        if callback is None:
            return
        process = handle.process
        if process is not None:
            if not process.alive:
                return
            if process.paused:
                process.held.append(handle)
                return
        self.turns += 1
        if self.turns > TURNS_MAX:
            raise Stuck(f"still busy after {TURNS_MAX} callbacks")
        try:
            handle.context.run(callback, *handle.args)
        except Killed:
            pass
        except Exception as error:
            self.call_exception_handler({"message": f"in {callback!r}", "exception": error})

    def _let_time_go_by(self) -> None:
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        if not timers:
            raise Stuck("nothing is left to do, and nobody waits for a time")
        self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            handle = heapq.heappop(timers)[2]
            if handle.callback is not None:
                self._ready.append(handle)

    def go_on(self, process: Process) -> None:
        """Continue a process that was paused."""
        process.paused = False
        self._ready += process.held
        process.held = []

    def clear_away(self, processes: list[Process]) -> None:
        """Let go of what is still going on. Nobody can touch anything in doing so: the processes are dead.

        To be called, and the loop be given up, under `quietly`.
        """
        self._cleared = True
        for process in processes:
            process.alive = False
            process.held = []
            for task in process.tasks:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
            process.tasks = []
        self._ready.clear()
        self._timers.clear()

    # --- what asyncio asks of a loop --------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now / NANOS

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> _Handle:
        return self._call_at(self.now + max(round(delay * NANOS), 0), callback, args, context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> _Handle:
        return self._call_at(round(when * NANOS), callback, args, context)

    def _call_at(
        self,
        at: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> _Handle:
        handle = _Handle(callback, args, context, at)
        self._numbers += 1
        heapq.heappush(self._timers, (at, self._numbers, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name or "-", context=context)
        process = CURRENT.get() if context is None else context.get(CURRENT)
        if process is not None:
            tasks = process.tasks
            if len(tasks) > 64:
                # Those that are done are forgotten now and then; the others are kept, also when nobody else knows them any more.
                tasks[:] = [each for each in tasks if not each.done()]
            tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Killed):
            self.complaints.append(context)


def _say_nothing(unraisable: object) -> None:
    """What is closed by the garbage collector has failed, and nobody cares."""


@contextmanager
def quietly() -> Generator[None]:
    """While simulations are run and given up, the garbage collector rests, and what dies without having ended says nothing. Within another one it does nothing.

    A coroutine of a killed process is closed when nobody refers to it any more; what it then tries in its `finally` fails, because it is in no
    task, or is refused by the disk. Nor is there a loop: `gather` would have one made, and leave there for ever what it was given.
    """
    asyncio.set_event_loop(None)
    hook, was_enabled, thresholds = sys.unraisablehook, gc.isenabled(), gc.get_threshold()
    if hook is _say_nothing:
        yield
        return
    sys.unraisablehook = _say_nothing
    gc.disable()
    gc.freeze()  # What is there already need not be looked through.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # A coroutine that was never awaited.
            yield
            # A coroutine that is closed keeps what it refers to for once, and may make another one. What stayed would be frozen the next time,
            # or closed in the middle of somebody else's test.
            for _ in range(10):
                if not gc.collect():
                    break
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)  # A runtime that was killed has not put them back.
        sys.unraisablehook = hook
        if was_enabled:
            gc.enable()

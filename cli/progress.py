"""Progress of long work: one line on a terminal's stderr, from the third second on, with how much is done, how fast, and how long it will take.

    with Progress("verifying", "records") as progress:
        …; progress.update(done, total)

Nothing is shown in a pipe, and the line is gone when the work is done. A thread draws it, so that work which counts nothing shows at least its time.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from tidelog.eventlog.reader import LogReader

PATIENCE_SECONDS = 2.0
"""Shorter work needs no progress."""
REDRAW_SECONDS = 0.25


class Progress:
    """The line. Updating it costs two assignments."""

    def __init__(self, doing: str, unit: str = "") -> None:
        self._doing = doing
        self._unit = unit
        self._begun = time.monotonic()
        self._done = 0
        self._total = 0
        self._shown = False
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def update(self, done: int, total: int = 0) -> None:
        """So much is done, of so much if that is known."""
        if done < self._done:
            self._begun = time.monotonic()  # Another pass.
        self._done, self._total = done, total

    def then(self, doing: str, unit: str = "records") -> Callable[[int, int], None]:
        """As `update`, for the next part of the work, which is called otherwise."""

        def update(done: int, total: int = 0) -> None:
            self._doing, self._unit = doing, unit
            self.update(done, total)

        return update

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._draw, name="tidelog-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _draw(self) -> None:
        if self._ended.wait(PATIENCE_SECONDS):
            return
        while not self._ended.wait(REDRAW_SECONDS):
            self._shown = True
            print(f"\r\x1b[K{self.line()}", end="", file=sys.stderr, flush=True)

    def line(self) -> str:
        """`verifying: 1,000 of 4,000 records (25 %), 500/s, 6 s left`; what is not known is left out."""
        done, total, spent = self._done, self._total, time.monotonic() - self._begun
        if not done:
            return f"{self._doing}: {spent:.0f} s"
        rate = done / spent if spent > 0 else 0.0
        of = f" of {total:,}" if total else ""
        part = f" ({done * 100 // total} %)" if total else ""
        left = f", {_duration((total - done) / rate)} left" if total > done and rate else ""
        return f"{self._doing}: {done:,}{of} {self._unit}{part}, {rate:,.0f}/s{left}"

    @contextmanager
    def reading(self, log: LogReader) -> Iterator[None]:
        """Count what is read from this log meanwhile."""
        log.on_read = self.update
        try:
            yield
        finally:
            log.on_read = None


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"

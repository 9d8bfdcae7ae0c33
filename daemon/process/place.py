"""Where a log is kept, as whoever wants to lead it sees it: taken, followed, served.

`LogFiles` is the real one: a file, its lock, its socket. It is a port so that taking over can be tried on a simulated machine too
(`tests/simulation`), with locks that are lost and disks that fail.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tidelog.eventlog.handover import Handler, serve
from tidelog.eventlog.lock import end_holder, read_holder
from tidelog.eventlog.log import Log, open_log
from tidelog.eventlog.opening import log_path
from tidelog.eventlog.reader import LogReader, open_reader


class Place(Protocol):
    """A log that somebody may be writing."""

    def leader(self) -> str:
        """The process that writes it, for messages."""
        ...

    def heartbeat(self) -> object:
        """Something that changes about once a second while whoever leads it is well; None where nobody knows."""
        ...

    def end_leader(self) -> str:
        """End the process that leads it, on this machine; what was done, as a sentence. It falls free when that process is gone."""
        ...

    async def open_log(self, what: str, clock: Callable[[], int]) -> Log:
        """Open it for writing, or make a new one. Raises `LogLocked` while another process holds it."""
        ...

    async def open_reader(self) -> LogReader:
        """Open it to read from, whoever writes it."""
        ...

    async def serve(self, log: Log, handler: Handler) -> AbstractAsyncContextManager[object]:
        """Take the requests of other processes while the block runs."""
        ...


class LogFiles:
    """The log in the file at `path`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def leader(self) -> str:
        return str(read_holder(log_path(self.path)) or "unknown")

    def heartbeat(self) -> object:
        try:
            return os.stat(log_path(self.path) + ".lock").st_mtime_ns
        except OSError:
            return None

    def end_leader(self) -> str:
        return end_holder(log_path(self.path))

    async def open_log(self, what: str, clock: Callable[[], int]) -> Log:
        return await open_log(self.path, what=what, clock=clock)

    async def open_reader(self) -> LogReader:
        return await open_reader(self.path)

    async def serve(self, log: Log, handler: Handler) -> AbstractAsyncContextManager[object]:
        return await serve(log, handler)

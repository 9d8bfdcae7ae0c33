"""Where a log is kept, as whoever wants to lead it sees it: taken, followed, served.

There are two real ones: `LogFiles`, a file, its lock, its socket, and `LogDatabase`, a database with its lease. It is a port so that taking over can be tried on a simulated machine too
(`tests/simulation`), with locks that are lost and disks that fail.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from tidelog.eventlog.address import LogAddress, is_database, needs_postgres
from tidelog.eventlog.lock import end_holder, read_holder
from tidelog.eventlog.log import Log, open_log
from tidelog.eventlog.opening import log_path
from tidelog.eventlog.reader import LogReader, open_reader
from tidelog.eventlog.socket import Handler, serve

if TYPE_CHECKING:
    from tidelog.eventlog.postgres.watch import LeaseWatch


class Place(Protocol):
    """A log that somebody may be writing."""

    def leader(self) -> str:
        """The process that writes it, for messages."""

    def heartbeat(self) -> object:
        """Something that changes about once a second while whoever leads it is well; None where nobody knows."""

    def end_leader(self) -> str:
        """End the process that leads it, on this machine; what was done, as a sentence. It falls free when that process is gone."""

    async def open_log(self, what: str, clock: Callable[[], int]) -> Log:
        """Open it for writing, or make a new one. Raises `LogLocked` while another process holds it."""

    async def open_reader(self) -> LogReader:
        """Open it to read from, whoever writes it."""

    async def serve(self, log: Log, handler: Handler) -> AbstractAsyncContextManager[object]:
        """Take the requests of other processes while the block runs."""

    async def followed(self, seq: int) -> None:
        """A standby of this place has read so far. Called about once a second."""

    async def wait(self, seconds: float) -> None:
        """Return after so long, or earlier, as soon as it may have fallen free."""

    async def close(self) -> None:
        """Nobody waits for it any more."""


def place_of(address: LogAddress, what: str) -> Place:
    """The place of a log; `what` is the process that wants it."""
    if not is_database(address):
        return LogFiles(address)
    with needs_postgres():
        from tidelog.eventlog.postgres.watch import LeaseWatch
    return LogDatabase(address, LeaseWatch(address, what))


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

    async def followed(self, seq: int) -> None:
        """The leader of a file does not know of those who follow."""

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """There is nothing to let go of."""


class LogDatabase:
    """The log in the database at this address. The lease is looked at over one connection, so that a look costs little."""

    def __init__(self, address: LogAddress, watch: LeaseWatch) -> None:
        self._address = address
        self._watch = watch

    def leader(self) -> str:
        return self._watch.state.holder if self._watch.state is not None else "unknown"

    def heartbeat(self) -> object:
        return None if self._watch.state is None else self._watch.state.renewed

    def end_leader(self) -> str:
        return "nothing: it may be on another machine, and its lease ends by itself"

    async def open_log(self, what: str, clock: Callable[[], int]) -> Log:
        await self._watch.check_free()
        return await open_log(self._address, what=what, clock=clock)

    async def open_reader(self) -> LogReader:
        return await open_reader(self._address)

    async def serve(self, log: Log, handler: Handler) -> AbstractAsyncContextManager[object]:
        return await serve(log, handler)

    async def followed(self, seq: int) -> None:
        await self._watch.followed(seq)

    async def wait(self, seconds: float) -> None:
        await self._watch.wait(seconds)

    async def close(self) -> None:
        await self._watch.close()

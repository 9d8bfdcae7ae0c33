"""Inbox: the readers' findings on their way into the log, one queue for all kinds, so that the order of arrival is kept.

    readers ── put(drafts) ──► [queue] ──► one append for all that has come while the last one was being committed

A reader waits while the queue is full; the server will close its watch in time, and the cursor makes it whole again. On a full disk the same
drafts are tried again; any other failure of the log is the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.api.errors import LogFull
from tidelog.daemon.process.clock import Clock
from tidelog.eventlog.log import Log
from tidelog.eventlog.records import Draft
from tidelog.kube.cluster.waiting import pause

CHANGES_MAX = 10_000
GROUP = 4_096
"""So many records at most are one append: it is one piece of work for the log."""
FULL_SECONDS = 1.0


class Inbox:
    """Appends what is put, in order."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._drafts: list[Draft] = []
        self._come = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._put = 0
        """How many drafts have ever been put, …"""
        self._done = 0
        """… and how many of them are durable."""

    async def put(self, drafts: Sequence[Draft]) -> None:
        """Queue them; returns at once, unless the queue is full."""
        if not drafts:
            return
        self._drafts += drafts
        self._put += len(drafts)
        self._come.set()
        if len(self._drafts) >= CHANGES_MAX:
            self._room.clear()
            await self._room.wait()

    async def flushed(self) -> None:
        """Return when all that was put so far is durable."""
        if self._done >= self._put:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._put, future))
        await future

    async def run(self) -> None:
        """Append until cancelled; raises what the log raises."""
        while True:
            await self._come.wait()
            self._come.clear()
            while self._drafts:
                group, self._drafts = self._drafts[:GROUP], self._drafts[GROUP:]
                await self._append(group)
                self._done += len(group)
                if len(self._drafts) < CHANGES_MAX:
                    self._room.set()
                while self._waiting and self._waiting[0][0] <= self._done:
                    _, future = self._waiting.pop(0)
                    if not future.done():
                        future.set_result(None)

    async def _append(self, group: Sequence[Draft]) -> None:
        while True:
            try:
                await self._log.append(group)
                return
            except LogFull:
                await pause(self._clock, FULL_SECONDS)

"""Snapshots of a running scheduler's states, so that no moment of the log is far behind one.

Seldom a whole state, of the scheduler and of the objects that admission looks up: that costs a microsecond an object, and as many bytes as
there are objects. In between, and beside it, only what is another since the last one, which costs what changed. A state is loaded from
the newest whole one and the changes up to it; the records behind that are played back, which costs twenty times as much a record.

The first one of a process is whole, because there is nothing to compare with.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Sequence

from tidelog.api.errors import LogBusy, LogFull
from tidelog.daemon.intake.facts import FactService
from tidelog.daemon.process.logs import fields
from tidelog.eventlog.log import Log, in_steps
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.store import CHANGES
from tidelog.eventlog.table_encoding import Mark, TableEncoding
from tidelog.scheduler.core import Core
from tidelog.scheduler.state import SNAPSHOT as SCHEDULER
from tidelog.scheduler.state import Capture, Encoding

WAIT_SECONDS = 10.0
"""So often a snapshot is tried again for which there was no room."""

LARGE = 100_000
"""So many objects keep the collector busy for more than some 30 milliseconds."""

_log = logging.getLogger("tidelog.scheduler")


def changes_every(objects: int) -> int:
    """After how many records what changed is kept, where there are so many objects.

    As seldom as half a second allows, because it costs processor time and room: every 4,000 records it was five microseconds and a
    kilobyte for each pod that comes, every 10,000 it is half of that. The state at a moment takes 8 microseconds for each object to load and 17
    for each record to play back: 25,000 records, or the same in objects, are 0.4 seconds. Where there are so many objects that
    they take that long alone, looking for what changed costs so much that a tenth of their number has to come together.
    """
    return max(4_000, min(10_000, 25_000 - objects // 2), objects // 10)


class Keeper:
    """Knows what was kept, and writes what is to be kept next."""

    def __init__(self, log: Log, facts: FactService, begin: int, every: int) -> None:
        """`begin`: the record at which the process began. `every`: a whole state after so many records."""
        self._log = log
        self._facts = facts
        self._every = every
        self._kept = begin
        self._whole = begin
        self._capture: Capture | None = None
        self._mark: Mark | None = None

    def is_due(self, core: Core) -> bool:
        """Whether so much has happened that something should be kept.

        The cost is a small share of that of the records since the last time: looking for changes is some 50 nanoseconds an
        object, and the pending pods are always kept anew.
        """
        pending = len(core.queue)
        enough = max(changes_every(len(core.objects)), pending)
        return core.seq - self._kept >= min(enough, max(self._every, pending))

    async def keep(self, capture: Capture, durable: Callable[[int], Awaitable[None]]) -> None:
        """Put this state, and the objects, into the log. `durable` waits until a record is."""
        _spare_the_collector(len(capture.objects))
        earlier, self._kept = self._capture, capture.seq
        await durable(capture.seq)
        if earlier is not None:
            await self._put(SCHEDULER + CHANGES, capture.seq, await _encoded(capture.encoding(earlier)))
        whole = earlier is None or capture.seq - self._whole >= max(self._every, len(capture.objects))
        if whole:
            await self._put(SCHEDULER, capture.seq, await _encoded(capture.encoding()))
            self._whole = capture.seq
        capture.forget_rest()
        self._capture = capture
        await self._keep_objects(whole, durable)

    async def _keep_objects(self, whole: bool, durable: Callable[[int], Awaitable[None]]) -> None:
        await self._facts.catch_up()
        table = self._facts.objects
        # Before the first wait: the table goes on.
        mark, earlier = table.mark(), self._mark
        self._mark = mark
        _spare_the_collector(sum(map(len, mark.kinds.values())))
        await durable(mark.seq)
        if earlier is not None:
            await self._put(OBJECTS + CHANGES, mark.seq, await _encoded(TableEncoding(mark, earlier)))
        if whole:
            await self._put(OBJECTS, mark.seq, await _encoded(TableEncoding(mark)))

    async def _put(self, name: str, seq: int, pieces: Sequence[bytes]) -> None:
        while True:
            # Each of changes is the continuation of the one before: none may be left out.
            try:
                await self._log.put_snapshot(name, seq, pieces)
                break
            except (LogFull, LogBusy) as error:
                _log.warning("a snapshot waits to be written", extra=fields(name=name, error=str(error)))
                await asyncio.sleep(WAIT_SECONDS)
        _log.debug("kept a snapshot", extra=fields(name=name, seq=seq, bytes=sum(map(len, pieces))))


def _spare_the_collector(objects: int) -> None:
    """Let it take what is there for old: while a copy of a dict is young, each entry is looked at twice, a million of them for half a second."""
    if objects >= LARGE:
        gc.freeze()
        gc.unfreeze()


async def _encoded(encoding: Encoding | TableEncoding) -> list[bytes]:
    await in_steps(encoding.work())
    return encoding.pieces()

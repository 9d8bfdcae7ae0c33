"""Snapshots of a running scheduler's state, so that no moment of the log is far behind one.

Often what the objects do not say, which costs what is pending. Seldom the objects, and the state after the same record: that costs a microsecond
an object, and as many bytes as there are objects. A state in between is loaded with the objects of the last whole one, onto which the records since
are folded (`tidelog.replay.states`); the records behind it are played back, which costs three times as much a record. A log whose states are of an
older form begins with a whole one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tidelog.api.errors import LogBusy, LogFull
from tidelog.daemon.process.logs import fields
from tidelog.eventlog.log import Log, in_steps
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.store import BETWEEN
from tidelog.scheduler.core import Core
from tidelog.scheduler.state import SNAPSHOT as SCHEDULER
from tidelog.scheduler.state import Capture

WAIT_SECONDS = 10.0
"""So often a snapshot is tried again for which there was no room."""

_log = logging.getLogger("tidelog.scheduler")


def state_every(objects: int) -> int:
    """After how many records the state is kept, where there are so many objects.

    As seldom as half a second allows, because nothing is decided while it is captured. The state at a moment takes 8 microseconds for each object to
    load and 17 for each record to play back: 25,000 records, or the same in objects, are 0.4 seconds. Where there are so many objects that they take
    that long alone, a tenth of their number has to come together: the names of all nodes are in it.
    """
    return max(4_000, min(10_000, 25_000 - objects // 2), objects // 10)


class Keeper:
    """Knows what was kept, and writes what is to be kept next."""

    def __init__(self, log: Log, kept: int, every: int, whole: int | None) -> None:
        """`kept`: where the last state is. `every`: a whole state after so many records. `whole`: where the last one is, if there is one."""
        self._log = log
        self._every = every
        self._kept = kept
        self._whole = whole

    def is_due(self, core: Core) -> bool:
        """Whether so much has happened that something should be kept.

        The cost is a small share of that of the records since the last time: the pending pods are always kept anew.
        """
        pending = len(core.queue)
        enough = max(state_every(len(core.objects)), pending)
        return core.seq - self._kept >= min(enough, max(self._every, pending))

    def is_whole_due(self, core: Core) -> bool:
        """Whether what is kept next should be whole: since the last one there were as many records as there are objects."""
        return self._whole is None or core.seq - self._whole >= max(self._every, len(core.objects))

    async def keep(self, capture: Capture, objects: Sequence[bytes] | None) -> None:
        """Put this state into the log, whose records are durable so far; `objects`: with those after the same record, which makes it whole."""
        self._kept = capture.seq
        if objects is not None:
            # First: a whole state is never there without them.
            await self._put(OBJECTS, capture.seq, objects)
            self._whole = capture.seq
        await self._put(
            SCHEDULER + BETWEEN if objects is None else SCHEDULER,
            capture.seq,
            await in_steps(capture.encoding()),
        )

    async def _put(self, name: str, seq: int, pieces: Sequence[bytes]) -> None:
        while True:
            try:
                await self._log.put_snapshot(name, seq, pieces)
                break
            except (LogFull, LogBusy) as error:
                _log.warning("a snapshot waits to be written", extra=fields(name=name, error=str(error)))
                await asyncio.sleep(WAIT_SECONDS)
        _log.debug("kept a snapshot", extra=fields(name=name, seq=seq, bytes=sum(map(len, pieces))))

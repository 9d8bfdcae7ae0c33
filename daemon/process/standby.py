"""A process that waits for the log: it follows another scheduler's decisions, and goes on with them when the lock falls free.

    follow: read what is new, consume what is certain ──(every tenth of a second)──► try to take the lock
                                                                                         │ taken
                             the rest of the log, all of it certain now  ◄───────────────┘

It opens the log read-only and writes nothing. Its core is as far behind the log as nothing tells it that no attempt is still under way
(`tidelog.scheduler.recovery`): a snapshot of the other's, at which it looks now and then, does, if no outcome does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from tidelog.api.errors import LogBusy, LogDamaged, LogError, LogFull, LogLocked
from tidelog.daemon.process.clock import Clock
from tidelog.daemon.process.logs import fields
from tidelog.daemon.process.place import Place
from tidelog.daemon.process.recovery import begin_recovery, complete, take
from tidelog.eventlog.log import Log
from tidelog.eventlog.reader import LogReader
from tidelog.plugins.registry import Registry
from tidelog.replay.states import NAMES, State
from tidelog.scheduler.core import Core
from tidelog.scheduler.recovery import Recovery

POLL_SECONDS = 0.1
"""How often it looks whether the lock is free, and what is new."""

SILENT_SECONDS = 5.0
"""It is told when the leader has shown no sign of life for so long; it shows one a second."""

POLLS_PER_SNAPSHOT = 50
"""It looks for snapshots at every so-many-th poll."""

_log = logging.getLogger("tidelog.standby")


class Taken(NamedTuple):
    """The log, which is now ours to write, and a state whose core has consumed all of it."""

    log: Log
    state: State


class Standby:
    """Follows the log at `place`; `followed` is told of each core that it keeps."""

    def __init__(
        self,
        place: Place,
        registry: Registry,
        clock: Clock,
        *,
        what: str,
        followed: Callable[[Core], None] = lambda _: None,
        poll_seconds: float = POLL_SECONDS,
        end_silent_seconds: float | None = None,
        silent: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`silent` is told for how many seconds the leader has shown no sign of life; after `end_silent_seconds` it is killed."""
        self._place = place
        self._registry = registry
        self._clock = clock
        self._what = what
        self._followed = followed
        self._poll_seconds = poll_seconds
        self._recovery: Recovery | None = None
        self._end_silent_seconds = end_silent_seconds
        self._silent = silent
        self._beat: object = None
        self._beat_at = time.monotonic()
        self._told_of_silence = False
        self._kept_out: LogFull | LogBusy | None = None
        """Why it could not take over when it tried last."""
        self._digest = b""
        """Time of the last record that was read."""

    async def take_over(self) -> Taken:
        """Return when the lock was free and is ours."""
        _log.info("standing by", extra=fields(leader=self._place.leader()))
        log = await self._follow()
        try:
            return Taken(log, State(await self._complete(log)))
        except BaseException:
            await log.close()
            raise

    async def _follow(self) -> Log:
        """Read what another process writes, until the log is ours."""
        reader: LogReader | None = None
        log: Log | None = None
        polls = 0
        try:
            while (log := await self._try_to_open()) is None:
                try:
                    reader = reader or await self._begin()
                    await self._read(reader, look_for_snapshots=polls % POLLS_PER_SNAPSHOT == 0)
                except LogError as error:
                    if reader is None and isinstance(error, LogDamaged) and error.went_back:
                        raise  # It would be refused when it leads: better said before.
                    # The writer may have compacted it away under us, or be about to make the file: begin anew.
                    _log.debug("cannot follow, trying again", extra=fields(error=str(error)))
                    if reader is not None:
                        await reader.close()
                    reader = self._recovery = None
                polls += 1
                await self._place.followed(0 if self._recovery is None else self._recovery.read)
                self._look_after_leader()
                await self._place.wait(self._poll_seconds)
            if reader is not None:
                await reader.close()
            return log
        except BaseException:
            for opened in (reader, log):
                if opened is not None:
                    await opened.close()
            raise

    async def _try_to_open(self) -> Log | None:
        try:
            return await self._place.open_log(self._what, self._clock.now)
        except LogLocked:
            return None
        except (LogFull, LogBusy) as error:
            # The lock was free, and is again: nothing is lost by waiting.
            if type(error) is not type(self._kept_out):
                _log.warning("cannot take the log over yet", extra=fields(error=str(error)))
            self._kept_out = error
            return None

    def _look_after_leader(self) -> None:
        """A leader that is stopped, or hangs, keeps the lock for ever; only the end of its process sets it free."""
        beat, now = self._place.heartbeat(), time.monotonic()
        if beat is None or beat != self._beat:
            if self._told_of_silence:
                _log.info("the leader is well again")
            self._beat, self._beat_at, self._told_of_silence = beat, now, False
        silent = now - self._beat_at
        self._silent(silent)
        if silent >= SILENT_SECONDS and not self._told_of_silence:
            self._told_of_silence = True
            _log.warning(
                "the leader shows no sign of life",
                extra=fields(leader=self._place.leader(), seconds=round(silent)),
            )
        if self._end_silent_seconds is not None and silent >= self._end_silent_seconds:
            _log.warning(
                "ended a silent leader", extra=fields(seconds=round(silent), done=self._place.end_leader())
            )
            self._beat_at = now

    async def _begin(self) -> LogReader:
        reader = await self._place.open_reader()
        try:
            self._recovery = await begin_recovery(reader, self._registry)
        except BaseException:
            await reader.close()
            raise
        self._followed(self._recovery.core)
        return reader

    async def _read(self, log: LogReader, *, look_for_snapshots: bool = False) -> None:
        recovery = self._recovery
        assert recovery is not None
        if look_for_snapshots:
            for info in await log.snapshots():
                if info.name in NAMES:
                    recovery.nothing_in_flight_at(info.seq)
        async for batch in log.read_batches(recovery.read + 1):
            self._digest = batch[-1].digest
            await take(recovery, batch, log.name)
        await take(recovery, [], log.name)

    async def _complete(self, log: Log) -> Core:
        """The state at the end of the log."""
        recovery = self._recovery
        if recovery is None or not await self._is_what_was_read(log, recovery.read):
            self._recovery = recovery = await begin_recovery(log, self._registry)
            self._followed(recovery.core)
        await self._read(log)
        await complete(recovery, log.name)
        return recovery.core

    async def _is_what_was_read(self, log: Log, seq: int) -> bool:
        """Whether the log is the one that was followed, and goes on from there: a repaired one may have lost records, a compacted one dropped them."""
        if not log.anchor.seq <= seq <= log.head.seq:
            return False
        if not self._digest:  # All that is known is from a snapshot.
            return True
        found = log.anchor if seq == log.anchor.seq else await log.record(seq)
        return found.digest == self._digest

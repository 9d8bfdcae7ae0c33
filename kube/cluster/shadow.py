"""The shadow mode: what the cluster's own scheduler decides is judged as it shows in the log, half a second late.

It reads the log behind the readers, as `tidelog shadow report` does from the file, and comes to the same verdicts. They are counted, those that
somebody should look at are logged, and with `records` each is appended as a `ShadowVerdict`, which changes nothing and can be computed again.

The work is done in a thread, on a cluster of its own: at thousands of nodes a verdict takes longer than a watch may be kept waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tidelog.daemon.process.clock import Clock
from tidelog.daemon.process.logs import fields
from tidelog.eventlog.log import Log
from tidelog.eventlog.objects import load_objects
from tidelog.eventlog.records import Draft, Record
from tidelog.kube.cluster.inbox import Inbox
from tidelog.kube.cluster.waiting import pause
from tidelog.replay.shadow.follower import Follower, JudgedDecision
from tidelog.replay.shadow.report import FINE, as_record
from tidelog.scheduler.core import Core

AUTHOR = "shadow"
LOOK_SECONDS = 0.5

_log = logging.getLogger("tidelog.shadow")


class Shadow:
    """Judges until it is cancelled."""

    def __init__(self, core: Core, log: Log, inbox: Inbox, clock: Clock, *, records: bool = False) -> None:
        """`core` is asked for the configuration. `records`: append the verdicts."""
        self.counts: dict[str, int] = {}
        """Verdict → how many, of bindings, rejections and groups together."""
        self._core = core
        self._log = log
        self._inbox = inbox
        self._clock = clock
        self._records = records

    async def run(self) -> None:
        """Begin with what the log comes to, and follow it."""
        table = await load_objects(self._log, self._log.head.seq)
        seq = table.seq
        follower = Follower(self._core.registry)
        follower.begin(self._core.configuration, (entry.object for entry in table), table.attachment)
        while True:
            await pause(self._clock, LOOK_SECONDS)
            found: list[JudgedDecision] = []
            head = self._log.head.seq
            if head > seq:
                async for batch in self._log.read_batches(seq + 1, head):
                    found += await asyncio.to_thread(_judged, follower, batch)
                seq = head
            found += await asyncio.to_thread(_judged_by_now, follower, self._clock.now())
            await self._tell(found)

    async def _tell(self, found: Sequence[JudgedDecision]) -> None:
        for judged in found:
            self.counts[judged.verdict] = self.counts.get(judged.verdict, 0) + 1
            if judged.verdict not in FINE:
                _log.warning(
                    "decided otherwise",
                    extra=fields(
                        record=judged.seq,
                        what=judged.what,
                        name=judged.key,
                        node=judged.node,
                        verdict=judged.verdict,
                        why=judged.upstream.reason,
                    ),
                )
        if self._records:
            await self._inbox.put(
                [Draft(body=as_record(one), author=AUTHOR, key=one.key, cause=one.seq) for one in found]
            )


def _judged(follower: Follower, batch: Sequence[Record]) -> list[JudgedDecision]:
    return [one for record in batch for one in follower.take(record)]


def _judged_by_now(follower: Follower, now: int) -> list[JudgedDecision]:
    return list(follower.pass_time(now))

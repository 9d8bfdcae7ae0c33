"""Clients that hand pods to whoever writes a log, over its socket, and remember what was acknowledged.

They go on through everything that befalls the writer: where a connection breaks, or `give_up` is called because the writer cannot answer, another
is made, and what was asked for stays open: it may be in the log or not, as for any client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.patience import PATIENCE
from tidelog.api.errors import TidelogError
from tidelog.api.objects import Node
from tidelog.daemon.intake.messages import Apply, read_answer, write_request
from tidelog.eventlog.records import Record
from tidelog.eventlog.socket import HandoverClient, connect
from tidelog.testing import builders as b

CALLERS = 3
PAUSE_SECONDS = 0.01
"""Between two requests of a caller, so that there is not more to be verified at the end than a test has time for."""


def nodes(count: int = 5) -> list[Node]:
    """Nodes with room for everything."""
    return [
        b.node(f"n{i}").capacity(cpu="100k", memory="100Ti", pods="1000000").build() for i in range(count)
    ]


class Load:
    """`async with Load(log) as load:` while it lasts, pods are handed over."""

    def __init__(self, log: Path, *, first: int = 0, callers: int = CALLERS, pods: int = 1) -> None:
        """`first` keeps the names of several loads apart; each of the callers hands in so many pods at once."""
        self._log = log
        self._callers = callers
        self._pods = pods
        self._asked = first
        self._tasks: list[asyncio.Task[None]] = []
        self.acknowledged: dict[str, int] = {}
        """Key → seq of the record that is said to be durable."""
        self._acknowledgement = asyncio.Event()
        self.errors: Counter[str] = Counter()
        """What was answered instead, by the error's class."""

    async def __aenter__(self) -> Self:
        self._start()
        return self

    def _start(self) -> None:
        self._tasks = [asyncio.create_task(self._call()) for _ in range(self._callers)]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def give_up(self) -> None:
        """Wait for no answer any more, and connect anew to whoever holds the log now."""
        await self._stop()
        self._start()

    async def more(self, count: int = 10) -> None:
        """Return when so many more were acknowledged."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(PATIENCE):
            while len(self.acknowledged) < wanted:
                self._acknowledgement.clear()
                await self._acknowledgement.wait()

    async def _call(self) -> None:
        while True:
            # The writer is gone, or refuses: all that a client can do is to try again.
            with contextlib.suppress(OSError):
                try:
                    async with connect(self._log) as client:
                        while True:
                            await self._ask(client)
                            await asyncio.sleep(PAUSE_SECONDS)
                except TidelogError as error:
                    self.errors[type(error).__name__] += 1
            await asyncio.sleep(PAUSE_SECONDS)

    async def _ask(self, client: HandoverClient) -> None:
        """Pods under names that nobody asked for before."""
        first = self._asked + 1
        self._asked += self._pods
        pods = [b.pod(f"p{number}").request(cpu="10m").build() for number in range(first, first + self._pods)]
        answer = read_answer(await client.request(write_request(Apply(objects=tuple(pods)))))
        assert len(answer.results) == self._pods
        self.acknowledged |= {result.key: result.seq for result in answer.results}
        self._acknowledgement.set()


def check_nothing_lost(records: Sequence[Record], acknowledged: dict[str, int]) -> None:
    """Each acknowledged pod is where it was said to be, nothing is there twice, and nobody decided in an epoch that was over."""
    at = {record.seq: record for record in records}
    assert [record.seq for record in records] == list(range(records[0].seq, records[0].seq + len(records)))
    lost = [key for key, seq in acknowledged.items() if (at[seq].kind, at[seq].key) != ("ObjectPut", key)]
    assert lost == []
    for kind in ("ObjectPut", "Scheduled"):
        of_pods = [r.key for r in records if r.kind == kind and r.key.startswith("Pod/")]
        assert len(set(of_pods)) == len(of_pods), f"a pod is there twice: {kind}"

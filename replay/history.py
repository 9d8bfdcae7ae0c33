"""A log opened for questions about its past: its records, and the scheduler's state after any of them.

    async with await open_history(path) as history:
        async for record, outcome in history.outcomes(): …
        core = await history.core_at(1200)
        print(core.queue.contents())

The state after a record is computed from the nearest snapshot before it and the records since, their decisions believed. So it costs what
lies between: some 20 microseconds a record, and what it takes to load the snapshot.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from tidelog.api.errors import LogError, TidelogError
from tidelog.eventlog.reader import LogReader, open_reader
from tidelog.eventlog.records import ConfigurationLoaded, Outcome, Record, decode_body, decode_outcome
from tidelog.plugins.registry import Registry, load_entry_points
from tidelog.replay.playback import playback
from tidelog.scheduler.core import Core
from tidelog.scheduler.state import SNAPSHOT, load_state

LOOK_AHEAD = 5_000
"""So many records beyond a moment are looked through for the outcomes of attempts that were in flight then."""


def installed_plugins() -> Registry:
    """The plugins of this package, and those that other installed packages bring."""
    registry = Registry()
    load_entry_points(registry)
    return registry


async def open_history(path: str | os.PathLike[str], registry: Registry | None = None) -> History:
    """Open a log read-only; somebody else may be writing it. `registry`: the plugins that its configuration names."""
    return History(await open_reader(path), installed_plugins() if registry is None else registry)


class History:
    """The past of one log. Closing it closes the reader."""

    def __init__(self, log: LogReader, registry: Registry) -> None:
        self.log = log
        self.registry = registry

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.log.close()

    # --- records ----------------------------------------------------------------------------------------------------

    async def records(self, first: int = 0, last: int | None = None) -> list[Record]:
        """The records from `first` (by default the oldest kept) to `last` (by default the newest)."""
        found: list[Record] = []
        async for batch in self.log.read_batches(first, last):
            found += batch
        for record in found:
            if record.kind == "ConfigurationLoaded":
                check_plugins(record, self.registry)
        return found

    async def outcomes(
        self, first: int = 0, last: int | None = None
    ) -> AsyncIterator[tuple[Record, Outcome]]:
        """What was decided, in order."""
        async for record in self.log.read(first, last):
            body = decode_outcome(record)
            if body is not None:
                yield record, body

    # --- states -----------------------------------------------------------------------------------------------------

    async def snapshots(self) -> list[int]:
        """The records after which the log has a snapshot of the scheduler's state, in order."""
        return sorted(info.seq for info in await self.log.snapshots() if info.name == SNAPSHOT)

    async def core_from_snapshot(self, at_most: int | None = None) -> Core:
        """The newest state that a snapshot holds, at or before a record; that of an empty log if there is none."""
        limit = at_most
        while (found := await self.log.snapshot(SNAPSHOT, limit)) is not None:
            changes = [change.blob for change in await self.log.changes(found, at_most)]
            core = load_state(found.blob, self.registry, changes)
            if core is not None:
                return core
            limit = found.seq - 1
        if self.log.anchor.seq:
            raise LogError(
                f"{self.log.name}: the log was compacted to record {self.log.anchor.seq}, and no snapshot of the scheduler's state "
                f"is left at or before record {self.log.head.seq if at_most is None else at_most}"
            )
        return Core(self.registry)

    async def core_at(self, seq: int | None = None, *, in_flight: bool = True) -> Core:
        """The state after record `seq`, by default the newest.

        `in_flight`: with the attempts that were under way, as far as their outcomes are in the log. Without them the state is the one
        that a restart at this record would come to.
        """
        seq = self.log.head.seq if seq is None else seq
        core = await self.core_from_snapshot(seq)
        for _ in playback(
            await self.records(core.seq + 1, seq), core, await self.later(seq) if in_flight else ()
        ):
            pass
        return core

    async def later(self, seq: int) -> list[Record]:
        """The outcomes after `seq` of attempts that were popped before."""
        found: list[Record] = []
        async for batch in self.log.read_batches(seq + 1, min(seq + LOOK_AHEAD, self.log.head.seq)):
            for record in batch:
                body = decode_outcome(record)
                if body is None:
                    continue
                if body.observed >= seq:
                    return found
                found.append(record)
        return found

    async def span_of(self, key: str, last: int | None = None) -> tuple[Record, Record] | None:
        """The oldest and the newest record about an object, up to `last`."""
        return await self.log.span(key, last)


def check_plugins(record: Record, registry: Registry) -> None:
    """Raise TidelogError if the configuration of this record names plugins that are not installed."""
    body = decode_body(record)
    assert isinstance(body, ConfigurationLoaded)
    profiles: list[dict[str, Any]] = body.configuration.get("profiles", [])
    try:
        names = {
            str(e["name"]) for p in profiles for entries in p.get("points", {}).values() for e in entries
        }
    except (TypeError, KeyError, AttributeError):
        raise LogError(f"record {record.seq} holds a configuration of another shape") from None
    missing = sorted(name for name in names if registry.get(name) is None)
    if missing:
        raise TidelogError(
            f"record {record.seq} configures plugins that are not installed here: {', '.join(missing)}; "
            "install the packages that bring them"
        )

"""A log opened for questions about its past: its records, and the scheduler's state after any of them.

    async with open_history(path) as history:
        async for record, outcome in history.outcomes():
            print(record.seq, outcome)
        core = await history.core_at(1200)
        print(core.queue.contents())
        explanation = await history.why("web-1")

The state after a record is computed from the nearest snapshot before it and the records since, their decisions believed. So it costs what
lies between: some 20 microseconds a record, and what it takes to load the snapshot.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tidelog.api.errors import LogError, TidelogError
from tidelog.api.objects import Pod
from tidelog.api.times import format_time
from tidelog.configuration.configuration import SchedulerConfiguration, resolve_configuration
from tidelog.eventlog.closing import Closing, opens
from tidelog.eventlog.objects import load_objects
from tidelog.eventlog.reader import LogReader, open_reader
from tidelog.eventlog.records import (
    ConfigurationLoaded,
    ObjectPut,
    Outcome,
    Record,
    Scheduled,
    decode_body,
    decode_outcome,
)
from tidelog.plugins.registry import Registry, installed_plugins
from tidelog.replay.playback import Beginning, playback
from tidelog.replay.states import newest_state, whole_states
from tidelog.scheduler.core import Core

if TYPE_CHECKING:
    # Each question imports what it takes when it is asked.
    from tidelog.replay.comparison import Comparison
    from tidelog.replay.files import FirstState
    from tidelog.replay.verify import Progress, Report
    from tidelog.replay.what_if import Configure, Injection
    from tidelog.replay.why import Why, WhyNot

LOOK_AHEAD = 5_000
"""Number of records beyond a moment that are searched for outcomes of attempts in flight then."""


async def cut_off(log: LogReader, seq: int, last: int | None = None) -> list[Record]:
    """The outcomes after `seq`, up to `last`, of attempts that were popped before."""
    found: list[Record] = []
    async for batch in log.read_batches(seq + 1, last):
        for record in batch:
            body = decode_outcome(record)
            if body is None:
                continue
            if body.observed >= seq:
                return found
            found.append(record)
    return found


@opens
async def open_history(path: str | os.PathLike[str], registry: Registry | None = None) -> History:
    """Open a log read-only; somebody else may be writing it. `registry`: the plugins that its configuration names."""
    return History(await open_reader(path), installed_plugins() if registry is None else registry)


class History(Closing):
    """The past of one log. Closing it closes the reader."""

    def __init__(self, log: LogReader, registry: Registry) -> None:
        self.log = log
        self.registry = registry

    async def close(self) -> None:
        """Let go of the log."""
        await self.log.close()

    # --- records ----------------------------------------------------------------------------------------------------

    async def records(self, first: int = 0, last: int | None = None) -> AsyncIterator[Record]:
        """The records from `first` (by default the oldest kept) to `last` (by default the newest).

        Raises TidelogError at a configuration that names plugins which are not installed.
        """
        async for record in self.log.read(first, last):
            if record.kind == "ConfigurationLoaded":
                check_plugins(record, self.registry)
            yield record

    async def outcomes(
        self, first: int = 0, last: int | None = None
    ) -> AsyncIterator[tuple[Record, Outcome]]:
        """Yield the decisions in order."""
        async for record in self.log.read(first, last):
            body = decode_outcome(record)
            if body is not None:
                yield record, body

    # --- states -----------------------------------------------------------------------------------------------------

    async def snapshots(self) -> list[int]:
        """The records after which the log has a whole state of the scheduler, in order."""
        return await whole_states(self.log)

    async def first_state(self) -> int:
        """The record behind which the log can be explained and replayed; 0: all of it can be.

        That is where it begins, but for one that was cut elsewhere: by a compaction that was interrupted, or with `--to`.
        """
        anchor = self.log.anchor.seq
        return next(iter(await self.snapshots()), anchor) if anchor else 0

    async def core_from_snapshot(self, at_most: int | None = None) -> Core:
        """The newest state that a snapshot holds, at or before a record; that of an empty log if there is none."""
        state = await newest_state(self.log, self.registry, at_most)
        if state is not None:
            return state.core
        if self.log.anchor.seq:
            raise LogError(
                f"{self.log.name}: the log was compacted to record {self.log.anchor.seq}, and no snapshot of the scheduler's state "
                f"is left at or before record {self.log.head.seq if at_most is None else at_most}"
            )
        return Core(self.registry)

    async def beginning(self) -> Beginning | None:
        """Where decisions can be made again from, in a log whose first records were dropped: the oldest state that it has. None: from its first record."""
        anchor, seq = self.log.anchor, await self.first_state()
        if not seq:
            return None
        core = await self.core_at(seq, in_flight=False)
        digest = anchor.digest
        if seq > anchor.seq:
            digest = (await self.log.record(seq)).digest
        table = await load_objects(self.log, seq)
        table.bring_into_order(core.objects)
        return Beginning(core, table.encode(), digest)

    async def core_at(self, seq: int | None = None, *, in_flight: bool = True) -> Core:
        """The state after record `seq`, by default the newest.

        `in_flight`: with the attempts that were under way, as far as their outcomes are in the log. Without them the state is the one
        that a restart at this record would come to.
        """
        seq = self.log.head.seq if seq is None else seq
        core = await self.core_from_snapshot(seq)
        records = [record async for record in self.records(core.seq + 1, seq)]
        later = await self.later(seq) if in_flight else ()
        for _ in playback(records, core, later, progress=self.log.on_read):
            pass
        return core

    async def later(self, seq: int) -> list[Record]:
        """The outcomes after `seq` of attempts that were popped before."""
        return await cut_off(self.log, seq, min(seq + LOOK_AHEAD, self.log.head.seq))

    async def span_of(self, key: str, last: int | None = None) -> tuple[Record, Record] | None:
        """The oldest and the newest record about an object, up to `last`."""
        return await self.log.span(key, last)

    # --- questions --------------------------------------------------------------------------------------------------

    async def why(self, pod: Pod | str, *, seq: int | None = None, at: int | None = None) -> Why:
        """Explain why a pod is where it is, after record `seq` (by default the newest).

        The pod is given by `name` in the namespace default, `namespace/name`, or record key. `at` is the time to which the answer
        counts (until when the pod waits), in nanoseconds; by default that of the record. Raises TidelogError if the pod is not in the log.
        """
        from tidelog.replay.why import why

        past = await self.past_of(key := pod_key(pod), seq)
        found = why(
            past.records, past.core, key, later=past.later, seq=past.seq, at=at, progress=self.log.on_read
        )
        if found.status == "deleted":
            await self._tell_successor(found)
        return msgspec.structs.replace(found, note=past.noted(found.note))

    async def _tell_successor(self, found: Why) -> None:
        """Add to the story of a pod that was evicted and is gone: the next pod that came to its node, which need not be the one it made room for."""
        entries = found.story.entries
        evicted = next((entry for entry in reversed(entries) if entry.what == "evicted"), None)
        if evicted is None or not evicted.node:
            return
        from tidelog.replay.story import StoryEntry

        first = entries[-1].seq + 1
        async for record, body in self.outcomes(first, min(found.seq, first + LOOK_AHEAD)):
            if isinstance(body, Scheduled) and body.node == evicted.node:
                text = f"the next pod placed on {body.node} was {record.key.partition('/')[2]}"
                entries.append(
                    StoryEntry(seq=record.seq, at=record.at, what="succeeded", text=text, node=body.node)
                )
                return

    async def why_not(self, pod: Pod | str, node: str, *, seq: int | None = None) -> WhyNot:
        """Ask every plugin about the pod and one node, after record `seq` or, for a pod that was placed, when that was decided."""
        from tidelog.replay.why import why_not

        past = await self.past_of(key := pod_key(pod), seq)
        found = why_not(past.records, past.core, key, node, progress=self.log.on_read)
        return msgspec.structs.replace(found, note=past.noted(found.note))

    async def what_if(
        self,
        configuration: SchedulerConfiguration | Mapping[str, Any] | Configure | None = None,
        *,
        drop: Collection[str | int] = (),
        inject: Sequence[Injection] = (),
        progress: Progress | None = None,
        comparing: Progress | None = None,
    ) -> WhatIf:
        """Decide everything anew and compare with what was decided.

        Under another configuration: one, what would be in a file, or a function of each recorded one. `drop` leaves out facts, by record
        number or by object key; `inject` puts objects that were never there. Of a compacted log, what was decided before its first record stays.
        `comparing` is told how far the comparison is, once everything has been decided.
        """
        from tidelog.replay.comparison import compare
        from tidelog.replay.files import first_state
        from tidelog.replay.what_if import run_what_if

        beginning = await self.beginning()
        records = [
            record async for record in self.records(0 if beginning is None else beginning.core.seq + 1)
        ]
        configure = self._configure(configuration)
        first = None if beginning is None else first_state(beginning)
        made = run_what_if(
            records,
            self.registry,
            configure,
            drop=drop,
            inject=inject,
            progress=progress,
            beginning=beginning,
        )
        compared = compare(records, made, b"" if beginning is None else beginning.objects, comparing)
        return WhatIf(compared, made.driver.records, first)

    def _configure(self, given: SchedulerConfiguration | Mapping[str, Any] | Configure | None) -> Configure:
        if given is None:
            return lambda recorded: recorded
        if isinstance(given, Mapping):
            given = resolve_configuration(given, self.registry).configuration
        if isinstance(given, SchedulerConfiguration):
            fixed = given
            return lambda _recorded: fixed
        return given

    async def verify(self, *, progress: Progress | None = None) -> Report:
        """Recompute every decision and compare. `tidelog.replay.segments.verify_log` does it on several processors."""
        from tidelog.replay.verify import verify

        begin = await self.first_state()
        core = await self.core_from_snapshot(begin) if begin else None
        first = core.seq + 1 if core is not None else 0
        records = [record async for record in self.records(first)]
        return verify(records, self.registry, core=core, progress=progress)

    async def past_of(self, key: str, seq: int | None) -> PodPast:
        """The records since the pod is known. Reading starts at the nearest snapshot before it, and ends where its story does."""
        seq = self.log.head.seq if seq is None else seq
        span, begin = await self.span_of(key, seq), await self.first_state()
        core = await self.core_from_snapshot(seq if span is None else max(span[0].seq - 1, min(begin, seq)))
        # Before its first record that is kept: then there were others.
        pod = core.cluster.pod(key)
        dropped = await self._dropped(begin)
        if span is None and pod is None:
            upto = "" if seq == self.log.head.seq else f" up to record {seq}"
            raise TidelogError(
                f"pod {key.partition('/')[2]} is not in the log{upto}{dropped and '; '}{dropped}"
            )
        if span is None:
            last = core.seq if pod is not None and pod.spec.node_name else seq
        else:
            last = span[1].seq if _is_settled(span[1]) else seq
        records = [record async for record in self.records(core.seq + 1, last)]
        return PodPast(core, records, await self.later(last), seq, "" if pod is None else dropped)

    async def _dropped(self, begin: int) -> str:
        anchor = self.log.anchor
        if not begin:
            return ""
        at = anchor.at if begin == anchor.seq else (await self.log.record(begin)).at
        return f"what is told by records 1 to {begin}, until {format_time(at)}, was dropped by compaction"


class WhatIf(NamedTuple):
    """The comparison of a what-if with the recorded log, and its own log."""

    comparison: Comparison
    records: list[Record]
    first: FirstState | None = None
    """Where its log begins, if not with a first record."""


class PodPast(NamedTuple):
    """The past of a pod: the state before it came, the records since, and those just behind."""

    core: Core
    records: list[Record]
    later: list[Record]
    seq: int
    dropped: str = ""
    """Tell in a sentence the part of the story that a compaction has dropped."""

    def noted(self, note: str) -> str:
        """The note of an answer, with what is missing from that."""
        return "; ".join(filter(None, (note, self.dropped)))


def pod_key(pod: Pod | str) -> str:
    """The record key of a pod that is given by itself, by `name`, by `namespace/name`, or by its key."""
    if isinstance(pod, Pod):
        return f"Pod/{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
    return ("Pod/default/" if "/" not in pod else "Pod/" if pod.count("/") == 1 else "") + pod


def _is_settled(newest: Record) -> bool:
    """Nothing that comes after this record, the last about a pod, changes what there is to tell: it is placed, or gone."""
    if newest.kind == "ObjectPut":
        body = decode_body(newest)
        return (
            isinstance(body, ObjectPut) and isinstance(body.object, Pod) and bool(body.object.spec.node_name)
        )
    return newest.kind in ("Scheduled", "ObjectDeleted")


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

"""Writing records that exist already into a new log file: what a driver made, a redacted copy, the outcome of a what-if."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.api.errors import LogError
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.opening import log_path
from tidelog.eventlog.records import Record, chain_digest
from tidelog.eventlog.store import EMPTY, Head, Snapshot
from tidelog.eventlog.transfer import MakeBuilder, new_log
from tidelog.replay.playback import Beginning
from tidelog.scheduler.state import SNAPSHOT as SCHEDULER
from tidelog.scheduler.state import capture_state

RECORDS_PER_WRITE = 4_000


class FirstState(NamedTuple):
    """The states that a log begins with whose first records are not there."""

    anchor: Head
    scheduler: bytes
    objects: bytes

    def snapshots(self) -> Iterator[Snapshot]:
        """As the log keeps them."""
        for name, blob in ((OBJECTS, self.objects), (SCHEDULER, self.scheduler)):
            yield Snapshot.make(name, self.anchor.seq, self.anchor.digest, blob)


def first_state(beginning: Beginning) -> FirstState:
    """Encode the beginning of records, before somebody goes on from it."""
    core, objects, digest = beginning
    return FirstState(Head(core.seq, core.at, core.epoch, digest), capture_state(core).blob(), objects)


async def write_log(
    path: str | os.PathLike[str],
    records: Sequence[Record],
    snapshots: Mapping[int, tuple[str, bytes]] | None = None,
    *,
    first: FirstState | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Make a new log of these records, which must chain; `snapshots`: after which record → name and bytes. With `first` the records go on from there.

    Nothing is at `path` before everything is there. Raises LogError if there is a file already.
    """
    states = [] if first is None else [*first.snapshots()]
    begin = 0 if first is None else first.anchor.seq
    for seq, (name, blob) in sorted((snapshots or {}).items()):
        states.append(Snapshot.make(name, seq, records[seq - begin - 1].digest, blob))

    def fill(make: MakeBuilder) -> None:
        build = make(EMPTY if first is None else first.anchor)
        try:
            for start in range(0, len(records), RECORDS_PER_WRITE):
                if progress is not None:
                    progress(start, len(records))
                build.add(records[start : start + RECORDS_PER_WRITE])
            for state in states:
                build.add_snapshot(state)
            build.commit()
        finally:
            build.close()

    await asyncio.to_thread(new_log, log_path(path), Disk(), "writing a copy", fill)


def rechained(records: Sequence[Record]) -> list[Record]:
    """The same records with digests that chain, after some of them were changed."""
    found: list[Record] = []
    digest = EMPTY.digest
    for r in records:
        digest = chain_digest(digest, r.seq, r.at, r.author, r.kind, r.key, r.cause, r.body)
        found.append(Record(r.seq, r.at, r.author, r.kind, r.key, r.cause, r.body, digest))
    return found


def refuse_existing(path: str | os.PathLike[str]) -> None:
    """Raise LogError if there is something of this name."""
    if os.path.exists(path):
        raise LogError(f"{os.fspath(path)}: is there already; choose a name for a new log")

"""Writing records that exist already into a new log file: what a driver made, a redacted copy, the outcome of a what-if."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.api.errors import LogError
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.lock import WriterLock
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.opening import log_path
from tidelog.eventlog.rebuild import Rebuild, install
from tidelog.eventlog.records import Record, chain_digest
from tidelog.eventlog.sqlite import SqliteStore
from tidelog.eventlog.store import EMPTY, Head, Snapshot, advance
from tidelog.replay.playback import Beginning
from tidelog.scheduler.state import SNAPSHOT as SCHEDULER
from tidelog.scheduler.state import encode_state

RECORDS_PER_WRITE = 4_000


class FirstState(NamedTuple):
    """The states that a log begins with whose first records are not there."""

    anchor: Head
    scheduler: bytes
    objects: bytes

    def snapshots(self) -> Iterator[Snapshot]:
        """As the log keeps them."""
        for name, blob in ((SCHEDULER, self.scheduler), (OBJECTS, self.objects)):
            yield Snapshot.make(name, self.anchor.seq, self.anchor.digest, blob)


def first_state(beginning: Beginning) -> FirstState:
    """Encode the beginning of records, before somebody goes on from it."""
    core, objects, digest = beginning
    return FirstState(Head(core.seq, core.at, core.epoch, digest), encode_state(core), objects)


async def write_log(
    path: str | os.PathLike[str],
    records: Sequence[Record],
    snapshots: Mapping[int, tuple[str, bytes]] | None = None,
    *,
    first: FirstState | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Make a new log of these records, which must chain; `snapshots`: after which record → name and bytes. With `first` the records go on from there.

    Raises LogError if there is a file already.
    """
    refuse_existing(path)
    if first is not None:
        await asyncio.to_thread(_write_from, log_path(path), first, records, progress)
        return
    store = await SqliteStore.open(path, create=True, what="writing a copy")
    try:
        head = EMPTY
        for start in range(0, len(records), RECORDS_PER_WRITE):
            if progress is not None:
                progress(start, len(records))
            part = records[start : start + RECORDS_PER_WRITE]
            for record in part:
                head = advance(head, record)
            await store.append(part, head)
        for seq, (name, blob) in sorted((snapshots or {}).items()):
            await store.put_snapshot(Snapshot.make(name, seq, records[seq - 1].digest, blob))
    finally:
        await store.close()


def _write_from(
    path: str,
    first: FirstState,
    records: Sequence[Record],
    progress: Callable[[int, int], object] | None,
) -> None:
    """As a compaction leaves a log."""
    disk, lock = Disk(), WriterLock(path, "writing a copy")
    build = Rebuild(path, disk, first.anchor)
    try:
        for snapshot in first.snapshots():
            build.add_snapshot(snapshot)
        for start in range(0, len(records), RECORDS_PER_WRITE):
            if progress is not None:
                progress(start, len(records))
            build.add(records[start : start + RECORDS_PER_WRITE])
        build.commit()
        install(path, disk)
        lock.release()
    finally:
        build.close()
        lock.undo()


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

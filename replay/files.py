"""Writing records that exist already into a new log file: what a driver made, a redacted copy, the outcome of a what-if."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tidelog.api.errors import LogError
from tidelog.eventlog.records import Record, chain_digest
from tidelog.eventlog.sqlite import SqliteStore
from tidelog.eventlog.store import EMPTY, Snapshot, advance

RECORDS_PER_WRITE = 4_000


async def write_log(
    path: str | os.PathLike[str],
    records: Sequence[Record],
    snapshots: Mapping[int, tuple[str, bytes]] | None = None,
) -> None:
    """Make a new log of these records, which must chain; `snapshots`: after which record → name and bytes.

    Raises LogError if there is a file already.
    """
    refuse_existing(path)
    store = await SqliteStore.open(path, create=True, what="writing a copy")
    try:
        head = EMPTY
        for start in range(0, len(records), RECORDS_PER_WRITE):
            part = records[start : start + RECORDS_PER_WRITE]
            for record in part:
                head = advance(head, record)
            await store.append(part, head)
        for seq, (name, blob) in sorted((snapshots or {}).items()):
            await store.put_snapshot(Snapshot.make(name, seq, records[seq - 1].digest, blob))
    finally:
        await store.close()


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

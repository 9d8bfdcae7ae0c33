"""A log as JSON lines, and back: for backups, for other tools, and for looking at with `jq`.

    {"tidelog": "export", "format": 1, "anchor": {…}}         first line
    {"snapshot": "objects", "seq": …, "chain": …, …}          only of a compacted log, which cannot do without them
    {"seq": 1, "at": …, "kind": "ObjectPut", "key": …, "body": {…}, "digest": "…"}
    {"head": {…}}                                             last line: an export that was cut short is noticed

Bodies are readable JSON. They come back as the same bytes, so that the digests still match: where a body is not the same
after a round trip through JSON (which every body of ours is), it is written as base64 under `msgpack` instead.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, NoReturn, Protocol, TypeVar

import msgspec

from tidelog.api.errors import LogError, LogFull, printable_json
from tidelog.eventlog import opening
from tidelog.eventlog.address import LogAddress, is_database, needs_postgres
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.lock import WriterLock
from tidelog.eventlog.opening import log_path
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.rebuild import Rebuild, install
from tidelog.eventlog.records import FORMAT, ChainBroken, Record, Row, check_rows
from tidelog.eventlog.room import is_full
from tidelog.eventlog.store import Head, Progress, Snapshot

LINES_PER_WRITE = 1_000
"""Imported records are written in groups of this size."""


_Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""The range of integers that a database can hold."""


class _Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    seq: _Integer
    at: _Integer
    epoch: _Integer
    digest: str


class _First(msgspec.Struct, frozen=True, kw_only=True):
    tidelog: str
    format: int
    anchor: _Place


class _Snapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    snapshot: str
    seq: _Integer
    chain: str
    digest: str
    blob: bytes


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    seq: _Integer
    at: _Integer
    author: str
    kind: str
    key: str = ""
    cause: _Integer = 0
    body: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    msgpack: str = ""
    digest: str


class _Last(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    head: _Place


_json = msgspec.json.Encoder()
_PLAIN = re.compile(rb"[ -~]*+")


def body_json(body: bytes) -> bytes | None:
    """A body as JSON text, or None if it would not come back as the same bytes."""
    try:
        text = _json.encode(msgspec.msgpack.decode(body))
        same = _body_from_json(text) == body
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return None
    return text if same else None


def _body_from_json(text: bytes) -> bytes:
    return msgspec.msgpack.encode(msgspec.json.decode(text))


def record_json(record: Record) -> bytes:
    """A record as one line of JSON, without the line's end."""
    body = body_json(record.body)
    return _json.encode(
        _Line(
            seq=record.seq,
            at=record.at,
            author=record.author,
            kind=record.kind,
            key=record.key,
            cause=record.cause,
            body=msgspec.UNSET if body is None else msgspec.Raw(body),
            msgpack="" if body is not None else base64.b64encode(record.body).decode(),
            digest=record.digest.hex(),
        )
    )


def _printable(line: bytes) -> bytes:
    """Lines are shown on terminals, too, and names in a log may hold what these act on."""
    return line if _PLAIN.fullmatch(line) else printable_json(line.decode()).encode()


def _place(head: Head) -> _Place:
    return _Place(seq=head.seq, at=head.at, epoch=head.epoch, digest=head.digest.hex())


def _head(place: _Place) -> Head:
    return Head(place.seq, place.at, place.epoch, bytes.fromhex(place.digest))


async def export_log(
    log: LogReader, write: Callable[[bytes], object], progress: Progress | None = None
) -> int:
    """Write the whole log, as it is at the time of the call, line by line; returns the number of records.

    About 150,000 records a second. Every record is checked against the chain on the way.
    """
    await log.reload()
    head, anchor = log.head, log.anchor
    write(_json.encode(_First(tidelog="export", format=FORMAT, anchor=_place(anchor))) + b"\n")
    if anchor.seq:
        for info in await log.snapshots():
            found = await log.stored_snapshot(info)
            if found is not None and found.is_sound:
                write(_json.encode(_exported(found)) + b"\n")
    async for batch in log.read_batches(anchor.seq + 1, head.seq):
        write(b"".join([_printable(record_json(record)) + b"\n" for record in batch]))
        if progress is not None:
            progress(batch[-1].seq - anchor.seq, head.seq - anchor.seq)
    write(_json.encode(_Last(head=_place(head))) + b"\n")
    return head.seq - anchor.seq


def _exported(found: Snapshot) -> _Snapshot:
    return _Snapshot(
        snapshot=found.name,
        seq=found.seq,
        chain=found.chain.hex(),
        digest=found.digest.hex(),
        blob=found.blob,
    )


class LogBuilder(Protocol):
    """A new log under construction, of records that are known to be good; nothing is seen of it before `commit`."""

    head: Head

    def add(self, records: Sequence[Record]) -> None: ...

    def add_snapshot(self, snapshot: Snapshot) -> None: ...

    def commit(self) -> None: ...

    def close(self) -> None:
        """Throw away what was built, unless it was committed."""


MakeBuilder = Callable[[Head], LogBuilder]
T = TypeVar("T")


async def import_log(
    path: LogAddress,
    lines: Iterable[bytes],
    progress: Callable[[int], None] | None = None,
    *,
    disk: Disk | None = None,
) -> Head:
    """Make a new log of exported lines; returns its head. Refuses a broken chain, naming the line, and an existing log.

    Nothing is at `path` before everything is there. `progress` hears the number of records, in another thread.
    """
    if is_database(path):
        return await asyncio.to_thread(_import_into_database, path, lines, progress)
    return await asyncio.to_thread(
        new_log,
        log_path(path),
        disk or Disk(),
        "tidelog log import",
        lambda make: _taken(lines, make, progress),
    )


def _import_into_database(
    path: LogAddress, lines: Iterable[bytes], progress: Callable[[int], None] | None
) -> Head:
    with needs_postgres():
        from tidelog.eventlog.postgres.build import DatabaseBuild
    return _taken(lines, lambda anchor: DatabaseBuild(path, anchor), progress)


def _taken(lines: Iterable[bytes], make: MakeBuilder, progress: Callable[[int], None] | None) -> Head:
    work = _Import(make, progress)
    try:
        work.take(lines)
    finally:
        work.close()
    return work.head


def new_log(path: str, disk: Disk, what: str, fill: Callable[[MakeBuilder], T]) -> T:
    """Let `fill` build a log aside and commit it, and put it in its place; of one that fails nothing is left."""
    opening.check_place(path, disk, create=True)
    opening.refuse_unfinished(path)
    for name in (path, path + ".head"):
        if os.path.exists(name):
            raise LogError(f"{name}: is there already; choose a name for a new log")
    lock = WriterLock(path, what)
    try:
        found = fill(lambda anchor: Rebuild(path, disk, anchor))
        install(path, disk)
        lock.release()
        return found
    except LogFull as error:
        raise LogFull(path, error.free) from error
    except (OSError, sqlite3.Error) as error:
        if is_full(error):
            raise LogFull(path, disk.room(path)[0]) from error
        raise LogError(f"{path}: cannot be written: {error}") from error
    finally:
        lock.undo()


class _Import:
    """An import under way: what the next line may be depends on the ones before."""

    def __init__(self, make: MakeBuilder, progress: Callable[[int], None] | None) -> None:
        self._make = make
        self._progress = progress
        self._number = 0
        self._build: LogBuilder | None = None
        self._pending: list[Record] = []
        self.head = Head()
        self._done = False

    def take(self, lines: Iterable[bytes]) -> None:
        """Take all lines, and finish."""
        for line in lines:
            self._number += 1
            if not line.strip():
                continue
            if self._done:
                self._refuse("there is more after the last line of the export")
            try:
                self._take(line)
            except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
                self._refuse(f"is not a line of an export: {error}")
            except ChainBroken as error:
                self._refuse(error.reason)
        if self._build is None or not self._done:
            self._refuse("the export ends too early: its last line is missing")
        else:
            self._build.commit()

    def _refuse(self, reason: str) -> NoReturn:
        raise LogError(f"line {self._number}: {reason}; nothing was imported")

    def _take(self, line: bytes) -> None:
        if self._build is None:
            first = msgspec.json.decode(line, type=_First)
            if first.tidelog != "export" or first.format > FORMAT:
                self._refuse(f"an export of format {first.format}; this tidelog reads up to {FORMAT}")
            self.head = _head(first.anchor)
            self._build = self._make(self.head)
        elif line.startswith(b'{"snapshot"'):
            self._take_snapshot(msgspec.json.decode(line, type=_Snapshot))
        elif line.startswith(b'{"head"'):
            self._take_last(msgspec.json.decode(line, type=_Last))
        else:
            self._take_record(msgspec.json.decode(line, type=_Line))

    def _take_snapshot(self, line: _Snapshot) -> None:
        assert self._build is not None
        snapshot = Snapshot(
            name=line.snapshot,
            seq=line.seq,
            chain=bytes.fromhex(line.chain),
            digest=bytes.fromhex(line.digest),
            pieces=(line.blob,),
        )
        if not snapshot.is_sound:
            self._refuse("the snapshot was changed")
        self._build.add_snapshot(snapshot)

    def _take_record(self, line: _Line) -> None:
        if line.body is msgspec.UNSET:
            body = base64.b64decode(line.msgpack, validate=True)
        else:
            body = _body_from_json(bytes(line.body))
        row: Row = (
            line.seq,
            line.at,
            line.author,
            line.kind,
            line.key,
            line.cause,
            body,
            bytes.fromhex(line.digest),
        )
        records = check_rows([row], self.head.seq, self.head.at, self.head.digest)
        self.head = Head(line.seq, line.at, self.head.epoch, records[0].digest)
        self._pending += records
        if len(self._pending) >= LINES_PER_WRITE:
            self._flush()

    def _take_last(self, line: _Last) -> None:
        self._flush()
        assert self._build is not None
        if _place(self._build.head) != line.head:
            self._refuse(
                f"the log ends at record {self._build.head.seq}, and the export's head says otherwise"
            )
        self.head = self._build.head
        self._done = True

    def _flush(self) -> None:
        assert self._build is not None
        if self._pending:
            self._build.add(self._pending)
            self._pending = []
        if self._progress is not None:
            self._progress(self.head.seq)

    def close(self) -> None:
        """Let go of the files; without a last line nothing comes of it."""
        if self._build is not None:
            self._build.close()

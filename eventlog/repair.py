"""Going on with a damaged log, at the price of what was lost.

Everything from the first record that is missing or does not match the chain on is dropped, because what comes after it
cannot be trusted; the loss is recorded as a `LossAccepted` record in its place. The damaged files stay beside the log.

A compacted log may have its oldest state some records behind its beginning. Where damage comes between the two, no state could be computed from
what is before it, so that the log begins at that state instead, whose snapshot knows the chain, and goes on to the next damage.

Of a damaged write-ahead log SQLite takes the pages before the damage, and prefers them to those in the database, also where newer ones have been moved
there since. So the database is read without it, too, and what is good for longer is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from tidelog.api.errors import LogDamaged, LogError
from tidelog.eventlog import database, opening, rebuild
from tidelog.eventlog.address import LogAddress, is_database, needs_postgres
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.head_file import HeadReading
from tidelog.eventlog.lock import WriterLock, read_holder
from tidelog.eventlog.objects import SNAPSHOT as OBJECTS
from tidelog.eventlog.opening import log_path
from tidelog.eventlog.records import ChainBroken, LossAccepted, Record, chain_digest, check_rows, encode_body
from tidelog.eventlog.store import BETWEEN, EMPTY, ROWS_PER_READ, Head, Progress, Snapshot


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a repair."""

    kept: int
    """Seq of the last record that is left of the old log."""
    lost_last: int | None
    """Records `kept + 1` to this one were lost; equal to `kept` if none was, None where nobody knows how many."""
    reason: str
    """The damage; empty if there was none, and then nothing was changed."""
    backup: str = ""
    """Where the damaged database is kept."""
    begins: int = 0
    """Records up to this one are gone because the damage was before the first state that is left; 0: the log begins where it did."""


async def repair(
    path: LogAddress,
    *,
    accept_loss: bool,
    clock: Callable[[], int] = time.time_ns,
    disk: Disk | None = None,
    progress: Progress | None = None,
) -> Repaired:
    """Make a damaged log usable again. Without `accept_loss` it only looks, and raises `LogDamaged` if there is damage.

    Costs a pass over the log, or a few if it is damaged, and, for a file, the room for a second copy of it.
    """
    if is_database(path):
        with needs_postgres():
            from tidelog.eventlog.postgres.repair import repair_database
        return await repair_database(path, accept_loss=accept_loss, clock=clock)
    return await asyncio.to_thread(_repair, log_path(path), accept_loss, clock, disk or Disk(), progress)


def _repair(
    path: str, accept_loss: bool, clock: Callable[[], int], disk: Disk, progress: Progress | None
) -> Repaired:
    opening.check_place(path, disk, create=True)
    lock = WriterLock(path, "tidelog log repair")
    try:
        done = _repaired(path, accept_loss, clock, disk, progress)
    except OSError as error:
        raise LogError(f"{path}: cannot be repaired: {error}") from error
    else:
        lock.release()
        return done
    finally:
        lock.give_up()


def _repaired(
    path: str, accept_loss: bool, clock: Callable[[], int], disk: Disk, progress: Progress | None
) -> Repaired:
    if rebuild.is_ready(path):
        if not accept_loss:
            opening.refuse_unfinished(path)
        return _finish(path, disk)
    head, found = _look(path, disk, progress)
    if found is None:
        return Repaired(kept=head.seq, lost_last=head.seq, reason="")
    if not accept_loss:
        raise found
    return _build_anew(path, found, clock, disk, progress)


def _finish(path: str, disk: Disk) -> Repaired:
    """Put in its place what an interrupted repair or import had completed."""
    backup = rebuild.install(path, disk)
    head, _ = _look(path, disk)
    return Repaired(
        kept=head.seq,
        lost_last=head.seq,
        reason="an interrupted repair or import was finished",
        backup=backup,
    )


def _look(path: str, disk: Disk, progress: Progress | None = None) -> tuple[Head, LogError | None]:
    """Where the log ends, and what is wrong with it; every record is checked, and SQLite's own structure."""
    try:
        opened = opening.open_reading(path, disk, 1 << 62, progress)
    except LogDamaged as error:
        return EMPTY, error
    try:
        problems = database.check_storage(opened.connection)
    except sqlite3.Error as error:
        problems = [str(error)]
    finally:
        opened.close()
    if not problems:
        return opened.head, None
    what = f"{path}: every record is there, but SQLite finds its file damaged: {problems[0]}"
    return opened.head, LogError(
        f"{what}; make it anew, without loss: tidelog log repair --accept-loss {path}"
    )


def _build_anew(
    path: str, found: LogError, clock: Callable[[], int], disk: Disk, progress: Progress | None
) -> Repaired:
    """A new log of the good records, with a record of the loss if there is one, in the place of the damaged one."""
    reading = _with_note(path, opening.read_head(path, disk))
    with contextlib.ExitStack() as stack:
        connection = _connect(path, disk, stack) if os.path.exists(path) else None
        try:
            done = _build(path, connection, reading, found, clock, disk, progress)
        except sqlite3.Error as error:
            raise LogError(f"{path}: cannot be repaired: {error}") from error
    backup = rebuild.install(path, disk)
    return replace(done, backup=backup)


def _connect(path: str, disk: Disk, stack: contextlib.ExitStack) -> sqlite3.Connection:
    """The database, with its write-ahead log if that brings it further."""
    connection, _ = opening.connect_reading(path, disk)
    stack.callback(connection.close)
    if not opening.has_wal(path):
        return connection
    alone = opening.connect_alone(path, disk)
    stack.callback(alone.close)
    return max((connection, alone), key=_reach)


def _reach(connection: sqlite3.Connection) -> tuple[int, bool]:
    """The last record that is good, and whether there is a state to compute others from."""
    begin = _beginning(connection, _anchor(connection))
    end = _end(connection, begin)
    return end, not begin.seq or any(begin.seq <= state.seq <= end for state in _states(connection))


def _with_note(path: str, reading: HeadReading) -> HeadReading:
    """The head file's head, or one acknowledged beyond it before the files were taken away."""
    left = read_holder(path)
    if left is None or reading.head is None or left.seq <= reading.head.seq:
        return reading
    return HeadReading(Head(seq=left.seq, epoch=max(left.epoch, reading.head.epoch)))


def _reason(found: LogError) -> str:
    return found.reason if isinstance(found, LogDamaged) else str(found)


def _build(
    path: str,
    connection: sqlite3.Connection | None,
    reading: HeadReading,
    found: LogError,
    clock: Callable[[], int],
    disk: Disk,
    progress: Progress | None,
) -> Repaired:
    """Build the new log."""
    anchor = EMPTY if connection is None else _anchor(connection)
    begin = anchor if connection is None else _beginning(connection, anchor)
    build = rebuild.Rebuild(path, disk, begin)
    try:
        whole = connection is not None and _copy(connection, build, reading, progress)
        kept, known = build.head, reading.head or EMPTY
        first, last = kept.seq + 1, kept.seq if whole else None
        if not whole and known.seq > kept.seq and not reading.doubtful:
            last = known.seq
        lost_last, begins = last, begin.seq if begin.seq > anchor.seq else 0
        if whole and begins:
            first, last = anchor.seq + 1, begins
        if not whole or begins:
            epoch = max(known.epoch, kept.epoch)
            loss = LossAccepted(first=first, last=last or 0, epoch=epoch, reason=_reason(found))
            build.add([loss_record(kept, loss, clock())])
        build.commit()
        return Repaired(kept=kept.seq, lost_last=lost_last, reason=_reason(found), begins=begins)
    finally:
        build.close()


def _copy(
    connection: sqlite3.Connection,
    build: rebuild.Rebuild,
    reading: HeadReading,
    progress: Progress | None,
) -> bool:
    """Take over all that is good; returns whether that is everything that was acknowledged, for certain."""
    anchor, known = build.head, reading.head
    whole = known is not None and known.seq == anchor.seq and not reading.doubtful
    for records in _good_records(connection, anchor):
        if progress is not None:
            progress(build.head.seq - anchor.seq, max((known or EMPTY).seq - anchor.seq, 0))
        build.add(records)
        if known is not None and records[0].seq <= known.seq <= records[-1].seq:
            whole = records[known.seq - records[0].seq].digest == known.digest
    for snapshot in _good_snapshots(connection):
        if anchor.seq <= snapshot.seq <= build.head.seq:
            build.add_snapshot(snapshot)
    return whole and not (reading.doubtful and known is not None and build.head.seq == known.seq)


def loss_record(kept: Head, loss: LossAccepted, now: int) -> Record:
    """The record that stands where others were lost."""
    body = encode_body(loss)
    seq, at = kept.seq + 1, max(now, kept.at)
    digest = chain_digest(kept.digest, seq, at, "repair", "LossAccepted", "", 0, body)
    return Record(seq, at, "repair", "LossAccepted", "", 0, body, digest)


def _anchor(connection: sqlite3.Connection) -> Head:
    """The anchor, or what can be known of it without the row that is damaged."""
    try:
        return database.read_anchor(connection)
    except (sqlite3.Error, ChainBroken):
        pass
    try:
        first = connection.execute("SELECT seq FROM records ORDER BY seq LIMIT 1").fetchone()
    except sqlite3.Error:
        return EMPTY
    for snapshot in _good_snapshots(connection):
        if first is not None and first[0] == snapshot.seq + 1:
            return Head(seq=snapshot.seq, digest=snapshot.chain)
    return EMPTY


def _beginning(connection: sqlite3.Connection, anchor: Head) -> Head:
    """Where the new log is to begin: at the old one's anchor, unless that was compacted and what is good behind it comes to no state."""
    if not anchor.seq:
        return anchor
    states = sorted(_states(connection), key=lambda found: found.seq)
    for begin in (anchor, *(_place_of(connection, state) for state in states if state.seq > anchor.seq)):
        if comes_to_states(states, begin.seq, _end(connection, begin)):
            return begin
    return anchor


def _states(connection: sqlite3.Connection) -> Iterator[Snapshot]:
    """The whole ones."""
    return (found for found in _good_snapshots(connection) if not found.name.endswith(BETWEEN))


def comes_to_states(states: Sequence[Snapshot], begin: int, end: int) -> bool:
    """Whether a log that begins behind the first of these records, and is good up to the other, has a state of each kind: the objects, and behind
    them, which they are needed for, each other."""
    there = [state for state in states if begin <= state.seq <= end]
    first = min((state.seq for state in there if state.name == OBJECTS), default=begin)
    return {state.name for state in states} == {s.name for s in there if s.seq >= first}


def _place_of(connection: sqlite3.Connection, state: Snapshot) -> Head:
    """The place of a state in the chain, with its time if the record says it. Its epoch is that of the loss, or of a later start."""
    at = 0
    with contextlib.suppress(sqlite3.Error, ChainBroken):
        at = next(
            (row[1] for row in database.select(connection, state.seq, state.seq) if row[7] == state.chain), 0
        )
    return Head(seq=state.seq, at=at, digest=state.chain)


def _end(connection: sqlite3.Connection, begin: Head) -> int:
    """The last record that is good."""
    return max((records[-1].seq for records in _good_records(connection, begin)), default=begin.seq)


def _good_records(connection: sqlite3.Connection, place: Head) -> Iterator[list[Record]]:
    """The records after `place` up to the first one that is damaged or missing."""
    for size in (ROWS_PER_READ, 1):
        # Where a whole batch cannot be read, its records are tried one by one.
        try:
            while rows := database.select(connection, place.seq + 1, place.seq + size):
                records = check_rows(rows, place.seq, place.at, place.digest)
                place = Head(seq=records[-1].seq, at=records[-1].at, digest=records[-1].digest)
                yield records
            return
        except (sqlite3.Error, ChainBroken):
            continue


def _good_snapshots(connection: sqlite3.Connection) -> Iterator[Snapshot]:
    try:
        found = database.list_snapshots(connection)
    except (sqlite3.Error, msgspec.MsgspecError):
        return
    for info in found:
        try:
            snapshot = database.get_snapshot(connection, info.name, info.seq)
            if snapshot is not None and snapshot.is_sound:
                yield snapshot
        except (sqlite3.Error, TypeError, ValueError):
            continue

"""The store: a small port between the log and whatever keeps its records.

There are two implementations, SQLite (`tidelog.eventlog.sqlite`) and memory (`tidelog.eventlog.memory`); PostgreSQL is to
be the third. `tidelog.testing.store_contract` is the test suite that each of them passes.

A store knows nothing of drafts, epochs or callers: it keeps rows, and promises durability. The log knows nothing of
files. Rows that come out of a store are unchecked; the log checks the chain before anyone sees a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Protocol

import msgspec

from tidelog.api.errors import LogError, WithReason
from tidelog.api.messagepack import array_head, bytes_head
from tidelog.api.steps import Steps, whole_result
from tidelog.eventlog.records import GENESIS, LossAccepted, Record, Row, SchedulerStarted, decode_body

ROWS_PER_READ = 1_000
"""A read returns at most so many rows; gut feeling: a millisecond of work, half a megabyte."""

SNAPSHOTS_KEPT = 12
"""Snapshots kept of each name: the newest, one to fall back on should that be damaged, and earlier ones spread over the log, so that no moment of it
is far behind a snapshot."""


BETWEEN = "-changes"
"""Suffix of the names of snapshots that lie between two whole ones, and need those. It says what was in them once: the changes since the one before."""


BETWEEN_KEPT = 32
"""Of these, behind each whole snapshot: so that there are never more than some hundreds, however long the log is."""


def superfluous(name: str, seqs: Sequence[int], whole: Sequence[int] = ()) -> list[int]:
    """Which of these snapshots, in order, are too many: those that leave the smallest gaps; never the first or the newest two.

    Of those between, the first ones behind each `whole` snapshot stay, as many as are kept; behind the newest all do. A later moment is reached
    by playing back records.
    """
    if name.endswith(BETWEEN):
        return _superfluous_between(seqs, whole)
    kept, dropped = list(seqs), []
    while len(kept) > SNAPSHOTS_KEPT:
        place = min(range(1, len(kept) - 2), key=lambda i: (kept[i + 1] - kept[i - 1], i))
        dropped.append(kept.pop(place))
    return dropped


def _superfluous_between(seqs: Sequence[int], whole: Sequence[int]) -> list[int]:
    dropped: list[int] = []
    for begin, end in pairwise(whole):
        between = [seq for seq in seqs if begin < seq <= end]
        dropped += between[BETWEEN_KEPT:]
    return dropped


HASHED_AT_ONCE = 2**21
"""Bytes of a snapshot, of which a processor hashes one to two GiB a second, or a third of that without instructions for it."""

Progress = Callable[[int, int], object]
"""Called now and then with how much is done, and of how much."""


class Head(msgspec.Struct, frozen=True, gc=False):
    """Where a log ends (or, as its anchor, where it begins): enough to append the next record."""

    seq: int = 0
    at: int = 0
    epoch: int = 0
    """The newest `SchedulerStarted` up to here."""
    digest: bytes = GENESIS


EMPTY = Head()


EPOCH_KINDS = frozenset(("SchedulerStarted", "LossAccepted"))
"""The records that can raise the epoch."""


def advance(head: Head, record: Record) -> Head:
    """The head after this record."""
    epoch = head.epoch
    if record.kind in EPOCH_KINDS:
        body = decode_body(record)
        assert isinstance(body, SchedulerStarted | LossAccepted)
        epoch = max(epoch, body.epoch)
    return Head(record.seq, record.at, epoch, record.digest)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A state that was computed from the log up to `seq`, so that nobody need compute it again. Only ever a cache."""

    name: str
    """The owner of the state: `objects`, `scheduler`, …"""
    seq: int
    chain: bytes
    """Digest of record `seq`: a snapshot of another log, or of one that was cut and grew anew, is not used."""
    pieces: Sequence[bytes]
    """Its content. Where one piece ends means nothing: they are as they came, because there may be hundreds of MiB of them."""
    digest: bytes

    @classmethod
    def make(cls, name: str, seq: int, chain: bytes, blob: bytes) -> Snapshot:
        """A snapshot with its digest."""
        return whole_result(cls.making(name, seq, chain, (blob,)))

    @classmethod
    def making(cls, name: str, seq: int, chain: bytes, pieces: Sequence[bytes]) -> Steps[Snapshot]:
        """The same in steps of some milliseconds, between which others may work; small content takes one."""
        digest = yield from _digest(name, seq, chain, pieces)
        return cls(name=name, seq=seq, chain=chain, pieces=pieces, digest=digest)

    @property
    def blob(self) -> bytes:
        """Its content as one piece."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    @property
    def size(self) -> int:
        """Bytes of its content."""
        return sum(map(len, self.pieces))

    @property
    def is_sound(self) -> bool:
        """Whether it is still what was put."""
        return self.digest == whole_result(_digest(self.name, self.seq, self.chain, self.pieces))


def parts_of(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same content in parts of this size, made one after the other; only the last may be smaller."""
    part = bytearray()
    for piece in pieces:
        view = memoryview(piece)
        while view:
            room = size - len(part)
            part += view[:room]
            view = view[room:]
            if len(part) == size:
                yield bytes(part)
                part.clear()
    if part:
        yield bytes(part)


def _digest(name: str, seq: int, chain: bytes, pieces: Sequence[bytes]) -> Steps[bytes]:
    """SHA-256 over the msgpack array of the three and the content, without a copy of it."""
    head = b"".join(map(msgspec.msgpack.encode, (name, seq, chain)))
    found = sha256(array_head(4) + head + bytes_head(sum(map(len, pieces))))
    done = 0
    for piece in pieces:
        view = memoryview(piece)
        while view:
            if done >= HASHED_AT_ONCE:
                yield
                done = 0
            some, view = view[: HASHED_AT_ONCE - done], view[HASHED_AT_ONCE - done :]
            found.update(some)
            done += len(some)
    return found.digest()


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A snapshot without its content."""

    name: str
    seq: int
    size: int


class SnapshotsUnreadable(WithReason, LogError):
    """The list of snapshots is damaged. No record is: every state can still be computed from those."""

    def __str__(self) -> str:
        return f"{self.path}: its snapshots cannot be read ({self.reason}): tidelog log repair makes the file anew"


class ReadStore(Protocol):
    """The port for reading a log. Each implementation opens logs in its own way, and refuses damaged ones then.

    Every error is a `TidelogError`.
    """

    @property
    def name(self) -> str:
        """How messages call this log: its path, for example."""

    @property
    def anchor(self) -> Head:
        """The record before the first one kept: `EMPTY` until the log is compacted."""

    @property
    def head(self) -> Head:
        """The newest durable record that is known of."""

    def refresh(self) -> Head:
        """The head, after a look whether another process moved it. May be called 100 times a second."""

    async def reload(self) -> None:
        """Bring anchor and head up to date, where another process may have compacted the log."""

    async def read(self, first: int, last: int) -> list[Row]:
        """Rows from `first` to at most `last`, in order, at most `ROWS_PER_READ`; fewer than asked for is no error."""

    async def span(self, key: str, last: int) -> tuple[int, int] | None:
        """Seqs of the oldest and the newest record about this key up to `last`; None if there is none. Unchecked, like rows."""

    async def get_snapshot(self, name: str, seq: int) -> Snapshot | None:
        """Return that snapshot, unchecked, or None if it is missing or unreadable."""

    async def snapshots(self) -> list[SnapshotInfo]:
        """All snapshots, by name and seq."""

    async def footprint(self) -> tuple[int, int]:
        """How many bytes it takes, and how many it would need beside them for becoming smaller at once: 0 where that goes piece by piece."""

    async def check_storage(self) -> list[str]:
        """Return the storage's complaints about itself, one sentence each; may take as long as reading everything."""

    async def close(self) -> None:
        """Let go of everything. Closing twice is allowed."""


class Store(ReadStore, Protocol):
    """The port for writing a log. One task appends; beside it others may read, and one may put a snapshot or compact."""

    def check_room(self) -> None:
        """Raises `LogFull` or `LogBusy` when the next group could not be kept now, another `LogError` when none ever can. Cheap; called
        before each group."""

    async def check(self) -> None:
        """Raise `LogError` where what was opened is not what is there any more. Called once a second or so, beside the groups."""

    async def append(self, records: Sequence[Record], head: Head) -> None:
        """Keep these records, all or none, durable on return; `head` is the new head.

        After an error it is unknown whether they were kept: the caller must not append again to this store.
        """

    async def tidy(self) -> None:
        """Housekeeping that may take milliseconds (a checkpoint); called when the group's callers have their answer."""

    async def put_snapshot(self, snapshot: Snapshot, *, urgent: bool = False) -> None:
        """Keep it, durably. The `superfluous` ones of its name go. Appends go on meanwhile.

        Raises `LogFull` if there is no room; an `urgent` one, without which no room can be made, may use what appends must leave free.
        """

    async def compact(self, anchor: Head) -> None:
        """Drop the records up to and including `anchor.seq`, and the snapshots before it, in one transaction."""

    async def reclaim(self, *, whole: bool = False) -> bool:
        """Give room that was freed back to the system, a piece at a time, of some milliseconds; whether there is more to do.

        With `whole` all at once, also where only a copy of everything does it. Where it is not given back, later records use it.
        """

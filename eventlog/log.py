"""The log: what everything else in the process reads from and appends to.

    callers ── append() ──▶ queue ──▶ sequencer ──▶ store.append() ──▶ durable ──▶ answers, tails
                                      one task; per group: number, check, chain, commit, two fsyncs

Appends that arrive while a group is being committed form the next group, in the order of the calls. An append is answered
when its records are durable, and all of its records are in the log or none. Up to its answer nobody knows whether a record
is in the log; after an error the log takes nothing more (fail-stop), except for errors that come before anything was
written: `LogFull`, `LogFenced`, a draft that cannot be encoded, and whatever the caller's own callable raised.

`append` takes drafts, or a callable that is called at the moment of sequencing, sees what was sequenced before it, and
returns the drafts. What it decides is therefore decided on the newest state, with no record in between: the commit check of
DESIGN rule 4, and admission, are such callables. It must be quick and pure: everything else waits for it.

A callable that may take longer than a millisecond returns an iterator instead of a list. It is followed a slice at a time; between two
slices the event loop goes round, but nothing else is sequenced, so that it still decides on the newest state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from typing import TypeVar

from tidelog.api.dicts import drop_oldest
from tidelog.api.errors import InternalError, LogBusy, LogClockWrong, LogError, LogFenced, LogFull
from tidelog.api.kinds.registry import object_key
from tidelog.api.steps import Steps
from tidelog.api.times import NANOS, format_time
from tidelog.eventlog.address import LogAddress, is_database, needs_postgres
from tidelog.eventlog.closing import opens
from tidelog.eventlog.disk import Disk
from tidelog.eventlog.memory import MemoryStore
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.records import (
    BODY_BYTES_MAX,
    KIND_OF_BODY,
    Body,
    Draft,
    ObjectPut,
    Outcome,
    Record,
    SchedulerStarted,
    chain_digest,
    decode_body,
    encode_body,
)
from tidelog.eventlog.sqlite import SqliteStore
from tidelog.eventlog.store import BETWEEN, ROWS_PER_READ, Head, Snapshot, Store, advance

GROUP_RECORDS = 4_096
"""A group is closed when it has so many records; arbitrary, about 10 ms of work."""

GROUP_BYTES = 8 * 2**20
"""… or so many bytes, so that it fits into memory and into the room kept free on the disk."""

SLICE_NANOS = 1_000_000
"""An iterator of drafts is followed this long before the event loop goes round."""

DRAFTS_PER_LOOK = 4
"""After so many drafts it is looked whether that is over, because looking costs half a microsecond, …"""

DRAFTS_BYTES = 16 * 2**10
"""… or after so many bytes: large objects take long."""

QUEUE_LENGTH = 10_000
"""Number of appends that may wait to be sequenced; further callers wait for room."""

RECENT = 16_384
"""At least this many of the newest records stay in memory, for tails and for callables that look back …"""

RECENT_BYTES = 64 * 2**20
"""… as far as their bodies are not larger than this; up to twice as much of either at times."""

DROPPED_AT_LEAST = 20
"""A step of a compaction for which there is no room is tried with fewer records, as long as it has so many."""

LATEST = 7_258_118_400 * NANOS
"""The year 2200: later times, and what is added to them, would not fit everywhere."""

LEAP_MAX = 5 * 365 * 86_400 * NANOS
"""A log that nobody has written to for longer is less likely than a clock that is wrong."""

WAIT_SECONDS = 1.0
"""So often a group that met the end of the disk, or another's transaction, is tried again."""

BODIES = 8_192
"""Number of decoded bodies kept for their second reader; arbitrary, a few MiB."""

_log = logging.getLogger("tidelog.log")

T = TypeVar("T")
Clock = Callable[[], int]
OnCommit = Callable[[Sequence[Record], int], None]


class AppendMoment:
    """The log at the moment when a callable's drafts are numbered. Valid only during the call."""

    __slots__ = ("_log", "_older", "_sequenced", "at", "epoch", "seq")

    def __init__(self, log: Log, head: Head, at: int, older: list[Record], sequenced: list[Record]) -> None:
        self.seq = head.seq
        """The newest record that is sequenced: the first draft gets the next number."""
        self.at = at
        """The time that the drafts will get."""
        self.epoch = head.epoch
        self._log = log
        self._older = older
        self._sequenced = sequenced

    def since(self, seq: int) -> list[Record]:
        """The records after `seq`, oldest first. Going back far needs `append(…, since=seq)`."""
        return self._log._since(seq, self._older) + [r for r in self._sequenced if r.seq > seq]


Drafts = Generator[Draft | None, None, None]
"""Drafts as they are made; None is no draft, only a place to rest. Closed when a draft is refused."""

Decide = Callable[[AppendMoment], Iterable[Draft] | Drafts]


class _Request:
    """One call of `append`."""

    __slots__ = ("done", "older", "what")

    def __init__(self, what: Sequence[Draft] | Decide) -> None:
        self.what = what
        self.done: asyncio.Future[list[Record]] = asyncio.get_running_loop().create_future()
        self.older: list[Record] = []

    def refuse(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


@opens
async def open_log(
    path: LogAddress,
    *,
    create: bool = True,
    what: str = "",
    clock: Clock = time.time_ns,
    disk: Disk | None = None,
) -> Log:
    """Open a log for writing, or make a new file; `what` tells others who holds it. One in a database must be there (`tidelog log init`).

    Raises `LogLocked`, `LogDamaged`, or `LogError` for a file that is no log or of a newer format; then nothing was changed.
    """
    if is_database(path):
        return Log(await database_store(path, what), clock=clock)
    return Log(await SqliteStore.open(path, create=create, what=what, disk=disk), clock=clock)


async def database_store(address: LogAddress, what: str) -> Store:
    """Open a log in a database for writing."""
    with needs_postgres():
        from tidelog.eventlog.postgres.store import PostgresStore
    return await PostgresStore.open(address, what=what)


async def memory_log(*, clock: Clock = time.time_ns) -> Log:
    """A new log that lives as long as this object. It starts no thread."""
    return Log(MemoryStore("memory"), clock=clock)


class Log(LogReader):
    """A log to append to. There is one per log file, in one process, on one event loop."""

    _store: Store

    def __init__(self, store: Store, *, clock: Clock = time.time_ns) -> None:
        super().__init__(store)
        self._clock = clock
        self.on_commit: OnCommit | None = None
        """Told of each group that has become durable, and of the nanoseconds that took. For metrics; must be quick."""
        self._failure: LogError | None = None
        self.waits: LogFull | LogBusy | None = None
        """Why nothing can be written now; that is tried again until it can."""
        self._closing = False
        self._room = asyncio.Semaphore(QUEUE_LENGTH)
        self._queue: deque[_Request] = deque()
        self._work = asyncio.Event()
        self._moved = asyncio.Event()
        self._housekeeping = asyncio.Lock()
        # Durable records without a gap up to the head; `_wanted` holds how far back each waiting request looks.
        self._recent: list[Record] = []
        self._recent_first = store.head.seq + 1
        self._recent_bytes = 0
        self._wanted: dict[_Request, int] = {}
        self._bodies: dict[int, tuple[Body, int]] = {}
        """By seq: bodies that some readers have had, and so many others are about to ask for."""
        self.readers = 2
        """So many ask for the body of each fact."""
        self._sequencer = asyncio.create_task(self._run(), name=f"sequencer of {store.name}")

    @property
    def store(self) -> Store:
        """The store of the records."""
        return self._store

    @property
    def epoch(self) -> int:
        """The epoch of the newest scheduler that took this log."""
        return self.head.epoch

    @property
    def failure(self) -> LogError | None:
        """Why nothing more can be appended, once that is so."""
        return self._failure

    @property
    def waiting(self) -> int:
        """How many appends wait to be sequenced."""
        return len(self._queue)

    def body_of(self, record: Record, times: int = 1) -> Body:
        """The body of one of this log's records, decoded once for all `readers` who ask soon after one another; one may ask for several.

        Facts are read twice, for the scheduler and for admission. They share the objects, so that there is one copy. An outcome was
        consumed by who decided it, and is not decoded at all for those who ask soon.
        """
        body, left = self._bodies.pop(record.seq, (None, self.readers))
        if body is None:
            body = decode_body(record)
            if isinstance(body, Outcome):
                return body
        self._share(record.seq, body, left - times)
        return body

    def _share(self, seq: int, body: Body, readers: int) -> None:
        """Keep the body for so many who have not asked for it."""
        if readers > 0:
            self._bodies[seq] = body, readers
            if len(self._bodies) > BODIES:
                drop_oldest(self._bodies, 1 + BODIES // 8)

    # --- appending --------------------------------------------------------------------------------------------------

    async def append(self, what: Sequence[Draft] | Decide, *, since: int | None = None) -> list[Record]:
        """Append these drafts, or what the callable returns, as one; answered when durable.

        A callable that looks back with `Moment.since` says in `since` how far. What is no longer in memory is then read
        before the call is queued. A call that was cancelled may still be carried out.
        """
        async with self._room:
            self._check_writable()
            request = _Request(what)
            if since is None:
                return await self._queued(request)
            self._wanted[request] = since
            try:
                if since + 1 < self._recent_first:
                    async for batch in self.read_batches(since + 1, self._recent_first - 1):
                        request.older += batch
                    self._check_writable()
                return await self._queued(request)
            finally:
                del self._wanted[request]

    async def _queued(self, request: _Request) -> list[Record]:
        self._queue.append(request)
        self._work.set()
        return await request.done

    async def take_over(self, holder: str) -> Record:
        """Record that a scheduler takes this log: its epoch is one more than that of the one before."""

        def start(moment: AppendMoment) -> list[Draft]:
            body = SchedulerStarted(epoch=moment.epoch + 1, holder=holder)
            return [Draft(body=body, author="scheduler")]

        return (await self.append(start))[0]

    async def put_snapshot(
        self, name: str, seq: int, content: bytes | Sequence[bytes], *, urgent: bool = False
    ) -> None:
        """Keep a state that was computed from the durable records up to `seq`, in one piece or several. Appends go on meanwhile.

        Raises `LogFull` if there is no room for it; an `urgent` one may use what is kept free for such needs.
        """
        chain = await self._digest_of(seq)
        if chain is None:
            raise InternalError(f"a snapshot at record {seq}, which is not in the log")
        async with self._housekeeping:
            self._check_writable()
            pieces = (content,) if isinstance(content, bytes) else content
            snapshot = await in_steps(Snapshot.making(name, seq, chain, pieces))
            await self._write(self._store.put_snapshot(snapshot, urgent=urgent))

    async def compact(self, seq: int | None = None) -> Head:
        """Drop the records up to `seq`, by default as many as the snapshots allow; returns the new anchor.

        A record may go when every kind of snapshot has one at or behind it: states are then computed from there, and
        from nowhere else, so that an export beforehand is not a bad idea. What is dropped is checked once more.
        """
        stored = await self._store.snapshots()
        newest = {info.name: info.seq for info in stored if not info.name.endswith(BETWEEN)}
        if not newest:
            raise LogError(f"{self.name}: there is no snapshot to compact behind")
        name = min(newest, key=lambda name: newest[name])
        if seq is None:
            seq = newest[name]
        if seq > newest[name]:
            raise LogError(
                f"{self.name}: records after {newest[name]} are still needed: "
                f"that is where the newest snapshot of {name!r} is"
            )
        # In steps, each of which leaves a log that is whole: appends go on between them, and a full disk has room for one.
        anchor = self.anchor
        async for batch in self.read_batches(anchor.seq + 1, seq):
            anchor = await self._drop(anchor, batch)
        return self.anchor

    async def _drop(self, anchor: Head, batch: Sequence[Record]) -> Head:
        """Drop these records, of which the anchor is the one before; where there is hardly any room, fewer at once."""
        last = anchor
        for record in batch:
            last = advance(last, record)
        try:
            async with self._housekeeping:
                self._check_writable()
                await self._write(self._store.compact(last))
                await self._write(self._store.reclaim())
        except LogFull:
            if len(batch) < DROPPED_AT_LEAST:
                raise
            half = len(batch) // 2
            await self._drop(await self._drop(anchor, batch[:half]), batch[half:])
        return last

    async def reclaim(self, *, whole: bool = False) -> None:
        """Give the room that a compaction has freed back to the system, in steps between which appends go on; with `whole` all of it, also
        where that takes a copy of everything."""
        more = True
        while more:
            async with self._housekeeping:
                self._check_writable()
                more = await self._write(self._store.reclaim(whole=whole))

    async def check(self) -> None:
        """Raise `LogError`, and take nothing more, where the log's files are not those that were opened any more."""
        self._check_writable()
        await self._write(self._store.check())

    async def close(self) -> None:
        """Finish what was asked for, and let go of the log. Tails end with a `LogError`."""
        self._closing = True
        self._work.set()
        await asyncio.wait([self._sequencer])
        async with self._housekeeping:
            await super().close()
        self._moved.set()
        if not self._sequencer.cancelled() and (error := self._sequencer.exception()) is not None:
            raise error

    async def _write(self, work: Awaitable[T]) -> T:
        """Let the store write; an error is the end of all writing, but not that the caller is cancelled."""
        try:
            return await work
        except (LogFull, LogBusy):
            raise  # Nothing was written; it may be tried again.
        except Exception as error:
            self._stop(error if isinstance(error, LogError) else LogError(f"{self.name}: {error!r}"))
            raise

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise LogError(str(self._failure)) from self._failure
        if self._closing:
            raise LogError(f"{self.name}: the log is closed")

    # --- sequencing -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """The sequencer: takes what is queued, a group at a time, until the log is closed or writing failed."""
        try:
            while not (self._closing and not self._queue):
                await self._work.wait()
                self._work.clear()
                while self._queue:
                    await self._commit_group()
        except BaseException as error:
            self._stop(error if isinstance(error, LogError) else LogError(f"{self.name}: {error!r}"))
            if not isinstance(error, LogError):
                raise

    async def _commit_group(self) -> None:
        """Sequence what is queued, commit it, and answer."""
        try:
            self._store.check_room()
        except LogFull as error:
            self._refuse_waiting(error)
            return
        except LogBusy as error:
            if self._closing:
                raise
            self._wait_for(error)
            await asyncio.sleep(WAIT_SECONDS)
            await self._store.tidy()
            return
        group = _Group(self, self._clock)
        try:
            while self._queue and len(group.records) < GROUP_RECORDS and group.size < GROUP_BYTES:
                await group.add(self._queue.popleft())
            if group.records:
                began = time.perf_counter_ns()
                await self._kept(group)
                took = time.perf_counter_ns() - began
                self._remember(group.records)
                if self.on_commit is not None:
                    self.on_commit(group.records, took)
            group.answer()
            await self._store.tidy()
        except BaseException as error:
            group.refuse(str(error))
            raise

    async def _kept(self, group: _Group) -> None:
        """Commit the group. If the disk turns out to be full, or the database another's, it waits: its callers' callables have been called,
        and cannot be asked to take back what they told others. Who comes after it is refused while there is no room."""
        while True:
            try:
                await self._store.append(group.records, group.head)
            except (LogFull, LogBusy) as error:
                if self._closing:
                    raise
                self._wait_for(error)
                if isinstance(error, LogFull):
                    self._refuse_waiting(error)
                await asyncio.sleep(WAIT_SECONDS)
            else:
                if self.waits is not None:
                    _log.info("groups are written again")
                self.waits = None
                return

    def _wait_for(self, error: LogFull | LogBusy) -> None:
        if self.waits is None:
            _log.warning("a group waits to be written", extra={"fields": {"error": str(error)}})
        self.waits = error

    def _refuse_waiting(self, error: LogFull) -> None:
        self.waits = error
        while self._queue:
            self._queue.popleft().refuse(error)

    def _remember(self, records: list[Record]) -> None:
        """Make durable records visible to tails, and forget those that are old and that nobody waits for."""
        self._recent += records
        self._recent_bytes += sum([len(record.body) for record in records])
        if len(self._recent) > 2 * RECENT or self._recent_bytes > 2 * RECENT_BYTES:
            self._forget()
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _forget(self) -> None:
        """Drop the oldest records from memory, down to what is to stay and what somebody waits for."""
        end = keep_from = self._recent_first + len(self._recent)
        if self._recent_bytes <= RECENT_BYTES:
            keep_from = end - RECENT
        else:
            size = 0
            for record in reversed(self._recent[-RECENT:]):
                size += len(record.body)
                if size > RECENT_BYTES:
                    break
                keep_from = record.seq
        keep_from = max(min([keep_from, *(since + 1 for since in self._wanted.values())]), self._recent_first)
        dropped = self._recent[: keep_from - self._recent_first]
        del self._recent[: len(dropped)]
        self._recent_first = keep_from
        self._recent_bytes -= sum([len(record.body) for record in dropped])

    def _stop(self, failure: LogError) -> None:
        """Fail-stop: refuse what is queued and all that will come."""
        self._failure = self._failure or failure
        while self._queue:
            self._queue.popleft().refuse(LogError(str(failure)))
        self._moved.set()

    def _since(self, seq: int, older: list[Record]) -> list[Record]:
        """Durable records after `seq`; `older` are those before the ones in memory."""
        if seq + 1 >= self._recent_first:
            return self._recent[seq + 1 - self._recent_first :]
        found = [record for record in older if seq < record.seq < self._recent_first]
        if len(found) != self._recent_first - 1 - seq:
            raise InternalError(f"the records since {seq} were asked for without append(…, since={seq})")
        return found + self._recent

    # --- reading what is in memory ----------------------------------------------------------------------------------

    async def _place_before(self, first: int) -> Head:
        self._check_kept(first)
        index = first - 1 - self._recent_first
        if 0 <= index < len(self._recent) and not self._closed:
            record = self._recent[index]
            return Head(seq=record.seq, at=record.at, digest=record.digest)
        return await super()._place_before(first)

    async def _next(self, place: Head, last: int) -> list[Record]:
        start = place.seq + 1 - self._recent_first
        if start >= 0 and not self._closed:
            found = self._recent[start : start + min(last - place.seq, ROWS_PER_READ)]
            if found:
                return found
        return await super()._next(place, last)

    async def _wait_beyond(self, seq: int) -> None:
        self._check_open()
        if self.head.seq <= seq:
            if self._failure is not None:
                raise LogError(str(self._failure)) from self._failure
            await self._moved.wait()


class _Group:
    """A group commit: requests, and the records that they became."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self.records: list[Record] = []
        self.head = log.head
        self.size = 0
        self._log = log
        self._clock = clock
        self._answers: list[tuple[_Request, list[Record]]] = []

    async def add(self, request: _Request) -> None:
        """Number, time and chain the request's drafts. A request that goes wrong is refused alone."""
        if request.done.done():
            return
        try:
            records, head = await self._sequence(request)
        except Exception as error:
            request.refuse(error)
            return
        self._answers.append((request, records))
        self.records += records
        self.head = head

    async def _sequence(self, request: _Request) -> tuple[list[Record], Head]:
        chain = _Chain(self.head, time_after(self.head, self._clock(), self._log.name))
        drafts = self._drafts(request, chain.at)
        if isinstance(drafts, Generator):
            with contextlib.closing(drafts):
                await self._follow(drafts, chain)
        else:
            for draft in drafts:
                chain.add(draft)
        self.size += chain.size
        for seq, body in chain.outcomes:
            self._log._share(seq, body, self._log.readers - 1)
        return chain.records, chain.head

    def _drafts(self, request: _Request, at: int) -> Iterable[Draft] | Drafts:
        what = request.what
        if callable(what):
            return what(AppendMoment(self._log, self.head, at, request.older, self.records))
        return what

    async def _follow(self, drafts: Drafts, chain: _Chain) -> None:
        """Add the drafts as they are made. By the log's own clock, so that on one that stands still no slice ends."""
        end, large = self._clock() + SLICE_NANOS, DRAFTS_BYTES
        for number, draft in enumerate(drafts):
            if draft is not None:
                chain.add(draft)
            if number % DRAFTS_PER_LOOK and chain.size < large:
                continue
            large = chain.size + DRAFTS_BYTES
            if self._clock() >= end:
                await asyncio.sleep(0)
                end = self._clock() + SLICE_NANOS

    def answer(self) -> None:
        """Tell the callers that their records are durable."""
        for request, records in self._answers:
            if not request.done.done():
                request.done.set_result(records)

    def refuse(self, why: str) -> None:
        """Tell the callers that their records may or may not be in the log."""
        for request, _ in self._answers:
            request.refuse(LogError(why))


def time_after(head: Head, now: int, name: str) -> int:
    """The time of what follows this record. Raises LogError for a clock that cannot be right: times of a log never go back, so that one
    wrong second would stay for ever."""
    if now > LATEST or (head.seq and now - head.at > LEAP_MAX):
        shown = format_time(now) if now <= LATEST else "a year after 2200"
        since = (
            f", {(now - head.at) // (365 * 86_400 * NANOS)} years after its newest record" if head.seq else ""
        )
        raise LogClockWrong(name, f"it is {shown}{since}")
    return max(now, head.at)


class _Chain:
    """Drafts that become records, one after the other."""

    __slots__ = ("_digest", "_epoch", "_seq", "_start", "at", "outcomes", "records", "size")

    def __init__(self, start: Head, at: int) -> None:
        self.at = at
        self.records: list[Record] = []
        self.outcomes: list[tuple[int, Body]] = []
        """Bodies that need not be decoded by who asks for them; others may be changed by who gave them."""
        self.size = 0
        """Bytes of the bodies."""
        self._start = start
        self._seq, self._epoch, self._digest = start.seq, start.epoch, start.digest

    @property
    def head(self) -> Head:
        """The place behind the last record."""
        return Head(self._seq, self.at, self._epoch, self._digest) if self.records else self._start

    def add(self, draft: Draft) -> None:
        """Number and chain one more."""
        seq, at = self._seq + 1, self.at
        epoch = _fenced(draft, self._epoch)
        kind, body = _encoded(draft, seq)
        try:
            digest = chain_digest(self._digest, seq, at, draft.author, kind, draft.key, draft.cause, body)
        except (TypeError, ValueError, OverflowError) as error:
            raise LogError(f"{draft.key!a}: {kind} cannot be appended: {error}") from error
        self.records.append(Record(seq, at, draft.author, kind, draft.key, draft.cause, body, digest))
        if isinstance(draft.body, Outcome) and not getattr(draft.body, "writes", ()):
            # A write's patch belongs to the plugin that gave it, and may be another one by then.
            self.outcomes.append((seq, draft.body))
        self.size += len(body)
        self._seq, self._epoch, self._digest = seq, epoch, digest


def _fenced(draft: Draft, epoch: int) -> int:
    """The epoch after this draft; raises `LogFenced` for what comes from an older one."""
    body = draft.body
    if isinstance(body, Outcome):
        if body.epoch < epoch:
            raise LogFenced(body.epoch, epoch)
        if body.epoch > epoch:
            raise InternalError(f"an outcome of epoch {body.epoch}, which has not begun: it is {epoch}")
    elif isinstance(body, SchedulerStarted):
        if body.epoch <= epoch:
            raise LogFenced(body.epoch, epoch)
        return body.epoch
    return epoch


async def in_steps(work: Steps[T]) -> T:
    """The result of the work, between whose steps others have their turn."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found
        await asyncio.sleep(0)


def _encoded(draft: Draft, seq: int) -> tuple[str, bytes]:
    """Kind and bytes of the draft's body, once it is sure that they can be read back."""
    body = draft.body
    if isinstance(body, ObjectPut) and draft.key != object_key(body.object):
        raise InternalError(f"{draft.key!a}: an object is put under another's key")
    if not 0 <= draft.cause < seq:
        raise InternalError(f"{draft.key!a}: record {seq} cannot answer record {draft.cause}")
    kind = KIND_OF_BODY[type(body)]
    try:
        data = encode_body(body)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LogError(f"{draft.key!a}: {kind} cannot be appended: {error}") from error
    if len(data) > BODY_BYTES_MAX:
        raise LogError(
            f"{draft.key!a}: {kind} has {len(data)} bytes; at most {BODY_BYTES_MAX} can be appended"
        )
    return kind, data

"""A PostgreSQL server as another process of a simulated machine: paused, cut off, killed, restarted, promoted, its clock hours away.

It knows the statements of `tidelog.eventlog.postgres` by their text, and does each at once when it arrives: what is simulated is what lies around
that, the way there and back, the commit, and the standbys. `connect` stands in for `asyncpg.connect`.

    request ──(delay, may be lost)──► done and committed ──(sync: when its standby has it)──► answer ──(delay, may be lost)──► client

A statement that has arrived is done, also when nobody waits for its answer any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import asyncpg
import msgspec

from tests.simulation.loop import CURRENT, Process, SimLoop
from tidelog.eventlog.database import anchor_row
from tidelog.eventlog.postgres import lease, reading, session, statements, store, witness
from tidelog.eventlog.store import EMPTY, Head

Answer = list[tuple[Any, ...]]
_NOBODY = contextvars.Context()


class Rows(msgspec.Struct, frozen=True):
    """Everything that is committed."""

    head: Head = EMPTY
    records: tuple[tuple[Any, ...], ...] = ()
    term: int = 0
    holder: str = ""
    seconds: float = 0.0
    expires: float = 0.0
    renewed: int = 0


class SimDatabase:
    """One database and its standby."""

    def __init__(self, loop: SimLoop, rng: random.Random, *, synchronous: bool, delay: float) -> None:
        self.rows = Rows()
        self.standby = Rows()
        """What a promotion makes of it."""
        self.told = 0
        """The newest record in any answer that has arrived: its client may not have looked at it yet."""
        self.unfenced: list[int] = []
        """Heads that were committed by writers that did not have the lease."""
        self.timeline = 1
        """One more with each promotion: what an earlier primary sent arrives no more."""
        self.up = True
        self.offset = rng.uniform(-10_000, 10_000)
        """Of its clock, in seconds: expiry is by this one alone."""
        self.cut: dict[str, str] = {}
        """Process → which way its bytes do not go: "there", "back", "both"."""
        self.paused = False
        self.synchronous = synchronous
        self.lag = 0.0
        """Seconds until its standby has a commit."""
        self.connections: list[SimConnection] = []
        self._loop = loop
        self._rng = rng
        self._delay = delay
        self._held: list[Callable[[], None]] = []

    def now(self) -> float:
        return self._loop.time() + self.offset

    # --- what befalls it --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """It is gone, until `start`; what was committed stays."""
        self.up = False
        self._held.clear()
        self.paused = False
        for connection in list(self.connections):
            connection.lose()

    def start(self) -> None:
        self.up = True

    def pause(self) -> None:
        self.paused = True

    def go_on(self) -> None:
        self.paused = False
        held, self._held = self._held, []
        for work in held:
            work()

    def promote(self) -> bool:
        """Its standby takes its place, with another clock; whether records were lost."""
        self.kill()
        lost = self.rows.head.seq > self.standby.head.seq
        self.rows = self.standby
        self.timeline += 1
        self.offset += self._rng.uniform(-10_000, 10_000)
        self.start()
        return lost

    # --- its work -----------------------------------------------------------------------------------------------------------

    def send(self, connection: SimConnection, sql: str, args: tuple[Any, ...]) -> asyncio.Future[Answer]:
        done: asyncio.Future[Answer] = self._loop.create_future()
        if self.cut.get(connection.owner) not in ("there", "both"):
            self._later(lambda: self._arrive(connection, sql, args, done))
        return done

    def _later(self, work: Callable[[], None], more: float = 0.0) -> None:
        delay = self._rng.expovariate(1 / self._delay) + more
        self._loop.call_later(delay, work, context=_NOBODY.copy())

    def _arrive(
        self, connection: SimConnection, sql: str, args: tuple[Any, ...], done: asyncio.Future[Answer]
    ) -> None:
        if not self.up:
            return
        if self.paused:
            self._held.append(lambda: self._arrive(connection, sql, args, done))
            return
        before = self.rows
        answer = self._do(sql, args)
        wait = 0.0
        if self.rows is not before:
            wait = self._commit()
        tells = "INSERT INTO records" in sql or sql in (statements.ENDS, store.HEAD_AND_TERM)
        last = self.rows.head.seq if tells else 0
        self._later(lambda: self._answer(connection, answer, done, last), wait)

    def _commit(self) -> float:
        """Send it to the standby; how long its answer waits for that."""
        rows, lag, timeline = self.rows, self._rng.uniform(0, self.lag), self.timeline

        def have() -> None:
            if timeline == self.timeline and rows.renewed > self.standby.renewed:
                self.standby = rows

        if lag:
            self._loop.call_later(lag, have, context=_NOBODY.copy())
        else:
            have()
        return lag if self.synchronous else 0.0

    def _answer(
        self, connection: SimConnection, answer: Answer, done: asyncio.Future[Answer], last: int
    ) -> None:
        if self.cut.get(connection.owner) in ("back", "both"):
            return
        if not done.done() and not connection.is_closed():
            done.set_result(answer)
            self.told = max(self.told, last)

    def _do(self, sql: str, args: tuple[Any, ...]) -> Answer:
        rows, now = self.rows, self.now()
        is_free = rows.expires <= now or rows.expires > now + rows.seconds
        if "INSERT INTO records" in sql:
            return self._append(sql, args)
        match sql:
            case "SELECT version, log_id FROM about":
                return [(1, "simulated")]
            case "SHOW synchronous_commit":
                return [("on",)]
            case lease._TAKE:
                if not (is_free or rows.holder == args[0]):
                    return []
                self._set(term=rows.term + 1, holder=args[0], seconds=args[1], expires=now + args[1])
                return [(self.rows.term,)]
            case lease._RENEW:
                if rows.term != args[0]:
                    return []
                self._set(expires=now + args[1])
                return [(rows.term, 0)]
            case lease._RELEASE:
                if rows.term == args[0]:
                    self._set(expires=now)
                return [("",)]
            case lease._LOOK:
                return [(rows.term, rows.holder, True, rows.renewed, not is_free, rows.expires - now)]
            case statements.ENDS:
                head = rows.head
                return [(head.seq, head.at, head.epoch, head.digest, *anchor_row(EMPTY))]
            case statements.SELECT:
                return [row for row in rows.records if args[0] <= row[0] <= args[1]]
            case statements.CONFIRM:
                if (rows.term, rows.head.seq, rows.head.digest) != args:
                    return []
                self._set()
                return [(rows.term,)]
            case store.HEAD_AND_TERM:
                return [(*msgspec.structs.astuple(rows.head), rows.term)]
            case reading.DIGEST:
                return [(row[7],) for row in rows.records if row[0] == args[0]]
            case reading.LOSSES:
                return []
            case reading.BEYOND:
                return [(0,)]
            case _ if sql.startswith("SET "):
                return []
            case _:
                raise AssertionError(f"a statement that the simulated database does not know: {sql}")

    def _set(self, **changed: Any) -> None:
        self.rows = msgspec.structs.replace(self.rows, renewed=self.rows.renewed + 1, **changed)

    def _append(self, sql: str, args: tuple[Any, ...]) -> Answer:
        """By what the statement asks for: a mistake in it is a mistake here."""
        rows = self.rows
        if "WHERE term = $1" in sql and rows.term != args[0]:
            return [(0, 0, None)]
        if "head.seq = $6" in sql and (rows.head.seq, rows.head.digest) != (args[5], args[6]):
            return [(1, 0, None)]
        if rows.term != args[0]:
            self.unfenced.append(args[1])
        added = tuple(zip(*args[7:15], strict=True))
        self._set(head=Head(*args[1:5]), records=rows.records + added)
        return [(1, len(added), "")]


class SimConnection:
    """As much of `asyncpg.Connection` as is used."""

    def __init__(self, database: SimDatabase, owner: str) -> None:
        self.owner = owner
        self._database = database
        self._waiting: asyncio.Future[Answer] | None = None
        self._closed = False
        database.connections.append(self)

    async def fetch(self, sql: str, *args: Any) -> Answer:
        if self._closed:
            raise asyncpg.InterfaceError("connection is closed")
        self._waiting = self._database.send(self, sql, args)
        try:
            return await self._waiting
        finally:
            self._waiting = None

    async def fetchrow(self, sql: str, *args: Any) -> tuple[Any, ...] | None:
        rows = await self.fetch(sql, *args)
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *args: Any) -> Any:
        row = await self.fetchrow(sql, *args)
        return row[0] if row else None

    async def execute(self, sql: str, *args: Any) -> str:
        return f"UPDATE {len(await self.fetch(sql, *args))}"

    def add_log_listener(self, listener: object) -> None:
        pass

    async def add_listener(self, channel: str, listener: object) -> None:
        pass

    def is_closed(self) -> bool:
        return self._closed

    def lose(self) -> None:
        """The server is gone; the client hears of it, unless its way is cut."""
        if self._database.cut.get(self.owner) in ("back", "both"):
            self._database.connections.remove(self)
            return
        self.terminate()

    def terminate(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self in self._database.connections:
            self._database.connections.remove(self)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(asyncpg.ConnectionDoesNotExistError("connection was closed"))

    async def close(self) -> None:
        self.terminate()


class SimWitness:
    """The witness on the machine of a process: it outlives that."""

    known: dict[str, Head] = {}  # noqa: RUF012

    def __init__(self, log_id: str, name: str) -> None:
        process = CURRENT.get()
        self._machine = "" if process is None else machine_of(process)

    def read(self) -> Head:
        return self.known.get(self._machine, EMPTY)

    def saw(self, head: Head) -> None:
        if self._machine and head.seq > self.read().seq:
            self.known[self._machine] = head

    def close(self) -> None:
        pass


def machine_of(process: Process) -> str:
    """Of `b-3`, the third process on machine b, it is `b`."""
    return process.name.partition("-")[0]


@contextmanager
def instead_of_a_server(database: SimDatabase) -> Iterator[None]:
    """Whoever connects is connected to this database."""

    async def connect(dsn: str, **_: Any) -> SimConnection:
        process = CURRENT.get()
        owner = "" if process is None else machine_of(process)
        await asyncio.sleep(database._delay)
        if owner in database.cut or database.paused:
            await asyncio.sleep(session.CONNECT_SECONDS)
            raise TimeoutError
        if not database.up:
            raise ConnectionRefusedError("nobody listens")
        return SimConnection(database, owner)

    SimWitness.known = {}
    numbers = itertools.count(1)
    with (
        patch.object(store, "holder_name", lambda what: f"process {what}, lease {next(numbers)}"),
        patch.object(session, "connect", connect),
        patch.object(store, "Witness", SimWitness),
        patch.object(reading, "Witness", SimWitness),
    ):
        assert witness.Witness is not SimWitness
        yield


def records_of(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """As they are read."""
    return [statements.row_of(row) for row in rows]

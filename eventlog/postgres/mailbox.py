"""Handing facts to the leader through the database: from any machine that reaches it, with nothing more to listen on or to protect.

    tidelog apply ──INSERT INTO requests──► NOTIFY ──► the leader takes it (UPDATE … SET taken = its term), answers in the row ──► NOTIFY

A request is taken once: by the leader whose term stands in it. One that was taken and not answered when that leader was superseded is not done
again by the next one, because nobody knows whether it was done; who sent it is told so. One that nobody took waits for the next leader.

The messages are those of the socket (`tidelog.eventlog.socket`), with the same limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable
from typing import Any

from tidelog.api.errors import InternalError, LogBusy, LogError
from tidelog.eventlog.address import LogAddress
from tidelog.eventlog.closing import Closing
from tidelog.eventlog.postgres.address import DatabaseAddress, parse_address
from tidelog.eventlog.postgres.lease import look_at_lease
from tidelog.eventlog.postgres.session import Session, clock
from tidelog.eventlog.postgres.store import PostgresStore
from tidelog.eventlog.socket import (
    SECONDS_AT_CLOSE,
    Handler,
    NoWriter,
    frame,
    framed_answer,
    message_in,
    read_framed_answer,
)
from tidelog.eventlog.store import Store

LOOK_SECONDS = 0.5
"""So often it is looked for what no wake-up told of."""

TAKEN_AT_ONCE = 32

KEPT_SECONDS = 3_600
"""An answer that nobody came back for is removed after this."""

_TAKE = """
UPDATE requests SET taken = $1 WHERE id IN (
  SELECT id FROM requests WHERE taken IS NULL ORDER BY sent LIMIT $2 FOR UPDATE SKIP LOCKED)
AND EXISTS (SELECT 1 FROM lease WHERE term = $1) RETURNING id, message
"""
_ANSWER = """
WITH done AS (UPDATE requests SET answer = $2 WHERE id = $1 RETURNING id) SELECT pg_notify($3, id) FROM done
"""
_SEND = """
WITH sent AS (INSERT INTO requests (id, message) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING RETURNING id)
SELECT pg_notify($3, '') FROM sent
"""
_ASK = "SELECT r.answer, r.taken, l.term FROM requests r CROSS JOIN lease l WHERE r.id = $1"
_SWEEP = "DELETE FROM requests WHERE sent < clock_timestamp() - make_interval(secs => $1)"

_LOG = logging.getLogger(__name__)


def _requests(address: DatabaseAddress) -> str:
    return f"{address.channel}_requests"


def _answers(address: DatabaseAddress) -> str:
    return f"{address.channel}_answers"


class _Woken:
    """A wake-up, or a look after a while."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._event.set()

    def wake(self, _: str = "") -> None:
        self._event.set()

    async def wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await self._event.wait()
        self._event.clear()


class MailboxServer(Closing):
    """Answers the requests for one log until it is closed."""

    def __init__(self, address: DatabaseAddress, term: int, handler: Handler) -> None:
        self._address = address
        self._term = term
        self._handler = handler
        self._session = Session(address, "tidelog requests")
        self._woken = _Woken()
        self._under_way: set[asyncio.Task[None]] = set()
        self._loop = asyncio.create_task(self._run(), name=f"requests of {address.name}")

    @classmethod
    async def open(cls, store: Store, handler: Handler) -> MailboxServer:
        """Take the requests for the log of this store."""
        if not isinstance(store, PostgresStore):
            raise InternalError(f"{store.name} is not a log in a database")
        server = cls(store.address, store.lease.term, handler)
        await store.lease.announce()
        return server

    async def _run(self) -> None:
        await self._session.listen(_requests(self._address), self._woken.wake)
        swept = 0.0
        while True:
            await self._woken.wait()
            with contextlib.suppress(LogBusy):
                if clock() > swept + KEPT_SECONDS / 10:
                    await self._session.rows(_SWEEP, float(KEPT_SECONDS))
                    swept = clock()
                # A request that was taken by a statement whose answer was lost is not taken again: its sender waits in vain, and is told.
                for name, message in await self._session.rows(_TAKE, self._term, TAKEN_AT_ONCE):
                    task = asyncio.create_task(self._answer(name, message))
                    self._under_way.add(task)
                    task.add_done_callback(self._under_way.discard)
                    self._woken.wake()  # There may be more.

    async def _answer(self, name: str, message: bytes) -> None:
        answer = await framed_answer(self._handler, message_in(message))
        try:
            await self._session.rows(_ANSWER, name, answer, _answers(self._address))
        except LogError as error:
            _LOG.warning("a request could not be answered", extra={"fields": {"error": str(error)}})

    async def close(self) -> None:
        """Take no more requests, and answer those under way."""
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        if self._under_way:
            _, late = await asyncio.wait(list(self._under_way), timeout=SECONDS_AT_CLOSE)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._session.close()


class MailboxClient(Closing):
    """The way to whoever leads a log in a database."""

    def __init__(self, address: DatabaseAddress, session: Session) -> None:
        self._address = address
        self._session = session
        self._woken: dict[str, Callable[[str], None]] = {}

    @classmethod
    async def open(cls, text: LogAddress) -> MailboxClient:
        """Raises `NoWriter` if nobody takes requests."""
        address = parse_address(text)
        session = Session(address, "tidelog requests")
        try:
            state = await session.persist(look_at_lease, patience=0)
            if not (state.is_held and state.serving):
                raise NoWriter(
                    address.name, "nobody leads it" if not state.is_held else f"{state.holder} takes none"
                )
            client = cls(address, session)
            await session.listen(_answers(address), client._heard)
            return client
        except BaseException:
            await session.close()
            raise

    def _heard(self, name: str) -> None:
        for known, wake in self._woken.items():
            if name in (known, ""):
                wake(name)

    async def request(self, message: object) -> Any:
        """The answer to this message; raises what the handler raised, or `NoWriter` when the leader went away: then nobody
        knows whether the request was carried out. Given up, it is taken back, if nobody has begun with it."""
        name, woken = uuid.uuid4().hex, _Woken()
        self._woken[name] = woken.wake
        try:
            await self._session.rows(_SEND, name, frame(message), _requests(self._address))
            while True:
                await woken.wait()
                rows = await self._session.rows(_ASK, name)
                if not rows:
                    raise NoWriter(self._address.name, "the request is gone")
                answer, taken, term = rows[0]
                if answer is not None:
                    return read_framed_answer(self._address.name, answer)
                if taken is not None and taken != term:
                    raise NoWriter(self._address.name, "it was superseded before it answered")
        finally:
            del self._woken[name]
            with contextlib.suppress(LogError):
                await self._session.rows("DELETE FROM requests WHERE id = $1", name, patience=0)

    async def close(self) -> None:
        """Let go of the connection."""
        await self._session.close()

"""Looking at the lease of a log in a database, for who waits for it: ten times a second, and at once when its holder lets go of it, over one connection.

It also says, once a second, that it follows, and how far: `tidelog log status` names it. That need not be durable.
"""

from __future__ import annotations

import asyncio
import contextlib

import asyncpg

from tidelog.api.errors import LogBusy, LogForbidden, LogLocked
from tidelog.eventlog.address import LogAddress
from tidelog.eventlog.postgres.address import parse_address
from tidelog.eventlog.postgres.lease import FREE, LeaseState, look_at_lease
from tidelog.eventlog.postgres.session import ConnectionLost, Session, clock, not_durable
from tidelog.eventlog.postgres.store import holder_name

FOLLOWED_SECONDS = 1.0

FORGOTTEN_SECONDS = 600
"""A follower that has not been seen for so long is forgotten."""

_FOLLOW = """
INSERT INTO followers (name, holder, seq, seen) VALUES ($1, $1, $2, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, seen = excluded.seen
"""


class LeaseWatch:
    """The lease as it was when it was last looked at."""

    def __init__(self, text: LogAddress, what: str) -> None:
        self.address = parse_address(text)
        self.state: LeaseState | None = None
        self._name = holder_name(what)
        self._session = Session(self.address, f"{what} (standby)", not_durable)
        self._followed_at = -FOLLOWED_SECONDS
        self._freed = asyncio.Event()

    async def check_free(self) -> None:
        """Raise `LogLocked` while another process has the lease, and `LogForbidden` where this user may not take it, which is better said before
        than when the leader is gone."""
        self._freed.clear()
        await self._session.listen(self.address.channel, self._heard, patience=0)
        if self.state is None and not await self._session.persist(_may_take, patience=0):
            raise LogForbidden(self.address.name, "it may not take the lease")
        self.state = await self._session.persist(look_at_lease, patience=0)
        if self.state.is_held:
            raise LogLocked(self.address.name, self.state.holder)

    async def wait(self, seconds: float) -> None:
        """Return after so long, or as soon as the lease was let go of since it was looked at."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._freed.wait()

    def _heard(self, message: str) -> None:
        if message == FREE:
            self._freed.set()

    async def followed(self, seq: int) -> None:
        """Say that this process follows, and how far it is; once a second at most."""
        now = clock()
        if now - self._followed_at < FOLLOWED_SECONDS:
            return
        self._followed_at = now

        async def work(connection: asyncpg.Connection) -> None:
            await connection.execute(_FOLLOW, self._name, seq)
            await connection.execute(
                "DELETE FROM followers WHERE seen < clock_timestamp() - make_interval(secs => $1)",
                float(FORGOTTEN_SECONDS),
            )

        with contextlib.suppress(ConnectionLost, LogBusy):  # It is said again.
            await self._session.call(work)

    async def close(self) -> None:
        """Follow no more."""

        async def work(connection: asyncpg.Connection) -> None:
            await connection.execute("DELETE FROM followers WHERE name = $1", self._name)

        if self._followed_at >= 0:
            with contextlib.suppress(ConnectionLost, LogBusy):
                await self._session.call(work, 1.0)
        await self._session.close()


async def _may_take(connection: asyncpg.Connection) -> bool:
    return bool(await connection.fetchval("SELECT has_table_privilege('lease', 'UPDATE')"))

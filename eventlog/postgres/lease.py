"""The lease: who may append to a log in a database, for how long, by the database's clock.

One row. Taking it makes its *term* one more, and every change of the log holds the row with its own term while it commits
(`tidelog.eventlog.postgres.statements`): so who was superseded cannot commit, however late, wherever its clock is. The term is not the log's epoch,
which counts schedulers and is in the records: `tidelog apply` takes the lease, too.

It is renewed four times in its length, on a connection of its own, so that a large group does not hold that up. A renewal need not be durable: a
server that forgets one lets others take the lease earlier, which is safe. Letting go of it makes it expire at once, and wakes who stands by.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import asyncpg
import msgspec

from tidelog.api.errors import LogBusy, LogError, LogLocked
from tidelog.eventlog.postgres.address import DatabaseAddress
from tidelog.eventlog.postgres.session import ConnectionLost, Session, clock, not_durable

RENEWALS = 4
"""So often in its length it is renewed."""

RELEASE_SECONDS = 2.0
"""So long an ending process tries to let go of it; else it lapses."""

FREE = "free"
"""The message to those who stand by, when the lease is let go of."""

_TAKE = """
UPDATE lease SET term = term + 1, holder = $1, serving = false, renewed = renewed + 1, seconds = $2,
  expires = clock_timestamp() + make_interval(secs => $2)
WHERE expires <= clock_timestamp() OR expires > clock_timestamp() + make_interval(secs => seconds) OR holder = $1 RETURNING term
"""
# One that ends later than its length from now was given by another clock: of a server that this one has replaced.
_LOOK = """
SELECT term, holder, serving, renewed,
  expires > clock_timestamp() AND expires <= clock_timestamp() + make_interval(secs => seconds),
  extract(epoch FROM expires - clock_timestamp())::float8 FROM lease
"""
_RENEW = """
UPDATE lease SET renewed = renewed + 1, expires = clock_timestamp() + make_interval(secs => $2) WHERE term = $1
RETURNING term, (SELECT count(*) FROM followers WHERE seen > clock_timestamp() - interval '10 seconds')
"""
_RELEASE = """
WITH let AS (UPDATE lease SET expires = clock_timestamp(), serving = false, renewed = renewed + 1 WHERE term = $1 RETURNING term)
SELECT pg_notify($2, $3) FROM let
"""

_log = logging.getLogger("tidelog.log")


class LeaseState(msgspec.Struct, frozen=True, kw_only=True):
    """The lease as it is in the database."""

    term: int
    holder: str
    serving: bool
    """Whether its holder takes requests of other processes."""
    renewed: int
    """Changes whenever it is renewed."""
    is_held: bool
    seconds_left: float


async def look_at_lease(connection: asyncpg.Connection) -> LeaseState:
    """The lease as it is."""
    row = await connection.fetchrow(_LOOK)
    if row is None:
        raise LogError("its table `lease` is empty; restore a backup")
    return LeaseState(
        term=row[0],
        holder=row[1],
        serving=row[2],
        renewed=row[3],
        is_held=row[4],
        seconds_left=max(0.0, row[5]),
    )


def superseded(name: str, holder: str) -> LogError:
    """Another process has the lease."""
    return LogError(
        f"{name}: {holder or 'another process'} took it over, because this one did not renew its lease in time: "
        "nothing more is written or acknowledged; start again, to stand by"
    )


class Lease:
    """The lease, from `take` to `release`."""

    def __init__(self, address: DatabaseAddress, holder: str, term: int) -> None:
        self.term = term
        self.failure: LogError | None = None
        """Why it is not ours any more, or cannot be renewed."""
        self.renewed_at = clock()
        self.followers = 0
        """Standbys that have said in the last ten seconds that they follow."""
        self._address = address
        self._session = Session(address, f"{holder} (lease)", not_durable)
        self._renewals = asyncio.create_task(self._renew(), name=f"lease of {address.name}")

    @classmethod
    async def take(cls, session: Session, address: DatabaseAddress, holder: str) -> Lease:
        """Take it, durably; raises `LogLocked` while another process has it."""

        async def work(connection: asyncpg.Connection) -> int | None:
            found: int | None = await connection.fetchval(_TAKE, holder, address.lease_seconds)
            return found

        term = await session.persist(work, patience=0)
        if term is None:
            state = await session.persist(look_at_lease, patience=0)
            raise LogLocked(address.name, state.holder or "another process")
        return cls(address, holder, term)

    @property
    def age(self) -> float:
        """Seconds since it was last renewed."""
        return clock() - self.renewed_at

    def check(self) -> None:
        """Raise why it is not ours any more."""
        if self.failure is not None:
            raise LogError(str(self.failure)) from self.failure

    async def lost(self, session: Session) -> LogError:
        """Tell who has it now."""
        try:
            holder = (await session.persist(look_at_lease, patience=1.0)).holder
        except LogError:
            holder = ""
        self.failure = self.failure or superseded(self._address.name, holder)
        return self.failure

    async def announce(self) -> None:
        """Let others know that requests are taken."""

        async def work(connection: asyncpg.Connection) -> None:
            await connection.execute("UPDATE lease SET serving = true WHERE term = $1", self.term)

        await self._session.persist(work, self._address.lease_seconds)

    async def _renew(self) -> None:
        while self.failure is None:
            await asyncio.sleep(self._address.lease_seconds / RENEWALS)
            await self._renew_once()

    async def _renew_once(self) -> None:
        async def work(connection: asyncpg.Connection) -> Any:
            return await connection.fetchrow(_RENEW, self.term, self._address.lease_seconds)

        try:
            row = await self._session.call(work, self._address.lease_seconds)
            if row is None:
                await self.lost(self._session)
                return
            self.renewed_at, self.followers = clock(), row[1]
        except (ConnectionLost, LogBusy) as error:
            _log.debug("the lease could not be renewed", extra={"fields": {"error": str(error)}})
            if self.age > max(self._address.patience_seconds, self._address.lease_seconds):
                self.failure = LogError(
                    f"{self._address.name}: the database server could not be used for {self.age:.0f} s ({error}): nothing more is "
                    "written or acknowledged; see that it runs, and start again"
                )
        except LogError as error:
            self.failure = error

    async def release(self) -> None:
        """Let the next one have it at once. Where the server does not answer it lapses."""
        self._renewals.cancel()
        await asyncio.gather(self._renewals, return_exceptions=True)

        async def work(connection: asyncpg.Connection) -> None:
            await connection.execute("SET synchronous_commit = on")
            await connection.fetch(_RELEASE, self.term, self._address.channel, FREE)

        try:
            await self._session.persist(work, RELEASE_SECONDS, patience=0)
        except LogError as error:
            _log.debug("the lease is left to lapse", extra={"fields": {"error": str(error)}})
        await self._session.close()

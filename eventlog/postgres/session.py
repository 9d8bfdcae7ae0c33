"""A session: one connection to the server, made again when it was lost, with one piece of work at a time.

Errors are told apart here, once: a server that is gone or going (`ConnectionLost`, inside; `LogUnreachable`, for others), which is worth another
try; a full disk; a log that is not there; a right that is missing; everything else.

Work that is given to `persist` may be done twice, and must allow it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from tidelog.api.errors import LogDamaged, LogError, LogForbidden, LogFull, LogUnreachable
from tidelog.eventlog import password
from tidelog.eventlog.postgres.address import DatabaseAddress

CONNECT_SECONDS = 5.0
"""A server that has not let a connection in after this is not there."""

ANSWER_SECONDS = 10.0
"""A connection on which nothing has come for so long, while something should, is given up, and made again."""

LONG_SECONDS = 600.0
"""So long a statement may take that looks at, or writes, much."""

RETRY_SECONDS = 0.2

_log = logging.getLogger("tidelog.log")

# Said where a login is refused (`password.unused_file`); it would be a second line of another form.
warnings.filterwarnings("ignore", message="password file .* has group or world access")

T = TypeVar("T")
Work = Callable[[asyncpg.Connection], Awaitable[T]]

connect = asyncpg.connect
"""A simulation has another."""

GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,  # It was made a standby, or this is one.
    asyncpg.TargetServerAttributeNotMatched,
    asyncpg.InternalClientError,  # The server has said that it ends, and the connection has not ended yet.
    OSError,
    TimeoutError,
)
"""The server, or the way to it, is gone or not there yet."""

FULL = (asyncpg.DiskFullError,)

NO_LOG = (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError, asyncpg.UndefinedColumnError)

_MAY_USE = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = $1"

DAMAGE = (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError)


def clock() -> float:
    """Seconds by the event loop's clock, which in a simulation is not the machine's."""
    return asyncio.get_running_loop().time()


async def not_durable(connection: asyncpg.Connection) -> None:
    """Prepare a connection for what may be forgotten: its commits do not wait for the disk."""
    await connection.execute("SET synchronous_commit = off")


class ConnectionLost(Exception):
    """The connection ended; nobody knows whether the work under way was done."""


class Session:
    """One connection. `prepare` is done on each new one."""

    def __init__(self, address: DatabaseAddress, what: str, prepare: Work[None] | None = None) -> None:
        self.address = address
        self.lost = 0
        """How often the connection was lost."""
        self.unconfirmed = False
        """The server has said that it did not wait for its standbys; set back by whoever makes up for it."""
        self._what = what
        self._prepare = prepare
        self._connection: asyncpg.Connection | None = None
        self._turn = asyncio.Lock()
        self._closed = False
        self._listening: dict[str, Callable[[str], None]] = {}

    async def call(self, work: Work[T], seconds: float = ANSWER_SECONDS) -> T:
        """Do the work, once. Raises `ConnectionLost` if its end is unknown, `LogUnreachable` if it was not begun."""
        async with self._turn:
            connection = await self._connected()
            try:
                return await self._limited(connection, work, seconds)
            except (*GONE, asyncpg.InterfaceError) as error:
                self._drop()
                if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
                    raise LogUnreachable(self.address.name, str(error)) from error
                raise ConnectionLost(str(error) or type(error).__name__) from error
            except NO_LOG as error:
                raise await self._hidden(connection) or translated(self.address, error) from error
            except asyncpg.PostgresError as error:
                raise translated(self.address, error) from error

    async def _hidden(self, connection: asyncpg.Connection) -> LogForbidden | None:
        """PostgreSQL looks for tables in no schema that a user may not use, and says that there are none."""
        with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            if await connection.fetchval(_MAY_USE, self.address.schema) is False:
                return LogForbidden(self.address.name, f"permission denied for schema {self.address.schema}")
        return None

    async def persist(
        self, work: Work[T], seconds: float = ANSWER_SECONDS, patience: float | None = None
    ) -> T:
        """Do the work, again where the connection was lost, until patience ends: then raise `LogUnreachable`."""
        patience = self.address.patience_seconds if patience is None else patience
        deadline = clock() + patience
        warned = False
        while True:
            try:
                return await self.call(work, seconds)
            except (ConnectionLost, LogUnreachable) as error:
                if clock() >= deadline or self._closed:
                    if isinstance(error, LogUnreachable):
                        raise
                    raise LogUnreachable(self.address.name, str(error)) from error
                if not warned:
                    _log.warning(
                        "the database is lost, trying again",
                        extra={"fields": {"log": self.address.name, "error": str(error)}},
                    )
                    warned = True
            await asyncio.sleep(RETRY_SECONDS)

    async def rows(
        self, sql: str, *args: object, seconds: float = ANSWER_SECONDS, patience: float | None = None
    ) -> list[tuple[Any, ...]]:
        """The rows that a statement returns; asked again where the connection was lost."""

        async def work(connection: asyncpg.Connection) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in await connection.fetch(sql, *args)]

        return await self.persist(work, seconds, patience)

    async def listen(self, channel: str, heard: Callable[[str], None], patience: float | None = None) -> None:
        """Call `heard` with each message of the channel. On a new connection, too; what came in between is lost: look."""
        self._listening[channel] = heard

        async def begin(connection: asyncpg.Connection) -> None:
            if channel not in getattr(connection, "_listeners", {}):
                await self._listen_on(connection, channel, heard)

        await self.persist(begin, patience=patience)

    async def close(self) -> None:
        """Closing twice is allowed."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            try:
                async with asyncio.timeout(1.0):
                    await connection.close()
            except Exception:
                connection.terminate()

    # --- the connection ---------------------------------------------------------------------------------------------

    async def _connected(self) -> asyncpg.Connection:
        if self._closed:
            raise LogError(f"{self.address.name}: the log is closed")
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        try:
            connection = await self._connect()
        except GONE as error:
            raise LogUnreachable(self.address.name, _reason(error)) from error
        except asyncpg.InterfaceError as error:
            raise LogError(f"{self.address.name}: {error}") from error
        except asyncpg.PostgresError as error:
            raise translated(self.address, error) from error
        except ValueError as error:
            raise LogError(f"{self.address.name}: is no address of a database: {error}") from error
        self._connection = connection
        return connection

    async def _connect(self) -> asyncpg.Connection:
        connection: asyncpg.Connection = await connect(
            self.address.dsn,
            password=password.kept(),
            timeout=CONNECT_SECONDS,
            server_settings={
                "search_path": self.address.schema,
                "application_name": self._what[:60] or "tidelog",
                "jit": "off",  # It costs more than any statement here.
            },
        )
        try:
            connection.add_log_listener(self._told)
            if self._prepare is not None:
                await self._limited(connection, self._prepare, CONNECT_SECONDS)
            for channel, heard in self._listening.items():
                await self._listen_on(connection, channel, heard)
                heard("")
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _listen_on(
        self, connection: asyncpg.Connection, channel: str, heard: Callable[[str], None]
    ) -> None:
        def notified(_: object, __: int, ___: str, payload: object) -> None:
            heard(str(payload))

        await connection.add_listener(channel, notified)

    def _told(self, _: object, message: Any) -> None:
        """PostgreSQL answers a commit whose wait for the standbys was cancelled as if all was well, with a warning."""
        if "synchronous replication" in str(message):
            self.unconfirmed = True

    async def _limited(self, connection: asyncpg.Connection, work: Work[T], seconds: float) -> T:
        """Not `asyncio.timeout`: asyncpg would ask the server to cancel, which answers as if the commit were done."""
        end = asyncio.get_running_loop().call_later(seconds, connection.terminate)
        try:
            return await work(connection)
        finally:
            end.cancel()

    def _drop(self) -> None:
        self.lost += 1
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.terminate()


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer in {CONNECT_SECONDS:.0f} s"
    return str(error) or type(error).__name__


def translated(address: DatabaseAddress, error: asyncpg.PostgresError) -> LogError:
    """The server's error as one for the user."""
    name = address.name
    if isinstance(error, FULL):
        return LogFull(name, 0)
    if isinstance(error, DAMAGE):
        return LogDamaged(name, 1, None, f"PostgreSQL: {error}")
    if isinstance(error, NO_LOG):
        return LogError(f"{name}: there is no log: make it with `tidelog log init {name}`")
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return LogError(f"{name}: {error}: make the database with `createdb`, then `tidelog log init {name}`")
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return LogError(
            f"{name}: the server does not let this user in ({error}): passwords come from PGPASSFILE (~/.pgpass) or PGPASSWORD"
            + password.unused_file()
        )
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return LogForbidden(name, str(error))
    return LogError(f"{name}: PostgreSQL: {error}")

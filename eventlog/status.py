"""The status of a log, as `tidelog log status` shows it: who leads, who stands by, and how far each is.

Of a log in a file only its leader is known: the process that holds the lock, as the system says. A database also knows the lease and the followers,
by its own clock.
"""

from __future__ import annotations

import msgspec

from tidelog.eventlog.address import LogAddress, is_database, needs_postgres
from tidelog.eventlog.lock import is_held, read_holder
from tidelog.eventlog.opening import log_path
from tidelog.eventlog.reader import open_reader


class LeaseStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The lease of a log in a database."""

    term: int
    """How often it was taken."""
    seconds_left: float
    """Before it lapses, if it is not renewed; 0: it is free."""


class FollowerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A standby."""

    holder: str
    seq: int
    behind: int
    """Records between it and the head."""
    seen_seconds_ago: float


class LogStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The state of a log as a whole."""

    log: str
    first: int
    last: int
    epoch: int
    leader: str
    """Empty: nobody leads."""
    takes_facts: bool
    """Whether the leader takes the facts of others; a short command does not."""
    lease: LeaseStatus | None = None
    followers: tuple[FollowerStatus, ...] | None = None
    """None: a file does not know them."""
    server: str = ""
    warnings: tuple[str, ...] = ()
    """Promises that the server does not make."""


async def log_status(address: LogAddress) -> LogStatus:
    """The state of the log at this address."""
    async with open_reader(address) as reader:
        await reader.reload()
        status = LogStatus(
            log=reader.name,
            first=reader.anchor.seq + 1,
            last=reader.head.seq,
            epoch=reader.head.epoch,
            leader="",
            takes_facts=False,
        )
    if is_database(address):
        with needs_postgres():
            from tidelog.eventlog.postgres.followers import database_status
        return await database_status(address, status)
    path = log_path(address)
    holder = read_holder(path)
    if holder is None or not is_held(path):
        return status
    return msgspec.structs.replace(status, leader=str(holder), takes_facts=bool(holder.socket))

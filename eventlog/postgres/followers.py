"""The standbys of a log in a database, its lease, and its server, for `tidelog log status` and for metrics."""

from __future__ import annotations

import asyncpg
import msgspec

from tidelog.eventlog.address import LogAddress
from tidelog.eventlog.postgres.address import parse_address
from tidelog.eventlog.postgres.lease import look_at_lease
from tidelog.eventlog.postgres.schema import look_at_server
from tidelog.eventlog.postgres.session import Session
from tidelog.eventlog.status import FollowerStatus, LeaseStatus, LogStatus

SEEN_SECONDS = 10.0
"""A standby that has not been seen for longer does not follow any more."""

_FOLLOWERS = """
SELECT f.holder, f.seq, greatest(h.seq - f.seq, 0), extract(epoch FROM clock_timestamp() - f.seen)::float8
FROM followers f CROSS JOIN head h WHERE f.seen > clock_timestamp() - make_interval(secs => $1) ORDER BY f.holder
"""


async def followers_of(connection: asyncpg.Connection) -> tuple[FollowerStatus, ...]:
    """The standbys that were seen lately."""
    return tuple(
        FollowerStatus(holder=holder, seq=seq, behind=behind, seen_seconds_ago=round(max(0.0, seen), 1))
        for holder, seq, behind, seen in await connection.fetch(_FOLLOWERS, SEEN_SECONDS)
    )


async def database_status(address: LogAddress, status: LogStatus) -> LogStatus:
    """Add to the status what the database knows."""
    parsed = parse_address(address)
    session = Session(parsed, "tidelog log status")
    try:
        lease = await session.persist(look_at_lease, patience=0)
        followers = await session.persist(followers_of, patience=0)
        server = await session.persist(look_at_server, patience=0)
    finally:
        await session.close()
    return msgspec.structs.replace(
        status,
        leader=lease.holder if lease.is_held else "",
        takes_facts=lease.is_held and lease.serving,
        lease=LeaseStatus(
            term=lease.term, seconds_left=round(lease.seconds_left, 1) if lease.is_held else 0.0
        ),
        followers=followers,
        server=f"PostgreSQL {server.version}",
        warnings=server.warnings,
    )

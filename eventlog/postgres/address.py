"""The address of a log in a database: what is PostgreSQL's own of it, and what is ours.

    postgresql://USER@HOST[:PORT][,HOST…]/DATABASE?schema=NAME&lease=2s&patience=60s&…

`schema` (by default `tidelog`) lets one database hold several logs, `lease` is how long a leader that is gone keeps others out, `patience`
how long a lost server is tried again. Everything else is PostgreSQL's: `sslmode`, `sslrootcert`, `target_session_attrs`, …

There is no password in it: an address stands in process lists, shell histories and messages. The server's client library finds
it in `PGPASSFILE` (`~/.pgpass`) or `PGPASSWORD`.
"""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from tidelog.api.errors import UsageError
from tidelog.eventlog.address import LogAddress, database_name

SCHEMA = "tidelog"
LEASE_SECONDS = 2.0
"""So long a leader that does not renew its lease keeps it; a standby takes over within three seconds of its end."""

PATIENCE_SECONDS = 60.0
"""So long a server that was lost is tried again before this process ends: longer than a restart or a failover takes."""

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_SECONDS = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m)")
_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0}
_SECRET = ("password", "sslpassword", "passfile_content")


class DatabaseAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address, taken apart."""

    name: str
    """As messages call the log."""
    dsn: str
    """For the client library: without what is ours."""
    schema: str
    lease_seconds: float
    patience_seconds: float

    @property
    def channel(self) -> str:
        """The channel on which the log's moves are announced."""
        return f"tidelog_{self.schema}"


def parse_address(address: LogAddress) -> DatabaseAddress:
    """Take an address apart. Raises UsageError, which never repeats a password."""
    text = os.fspath(address)
    try:
        parts = urlsplit(text)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        has_password = parts.password is not None
    except ValueError as error:
        raise UsageError(f"--log postgresql://…: is no address of a database: {error}") from None
    if has_password or any(name in _SECRET for name, _ in given):
        raise UsageError(
            "--log postgresql://…: a password does not belong in an address, which process lists show: "
            "put it into ~/.pgpass (PGPASSFILE) or PGPASSWORD"
        )
    name = database_name(text)
    if len(parts.path) < 2 or "/" in parts.path[1:]:
        raise UsageError(f"--log {name}: names no database: postgresql://USER@HOST/DATABASE")
    if parts.fragment:
        raise UsageError(f"--log {name}: #{parts.fragment}: an address of a database has no such part")
    ours = {key: value for key, value in given if key in ("schema", "lease", "patience")}
    schema = ours.get("schema", SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise UsageError(
            f"--log {name}: schema={schema!a}: must be at most 40 small letters, digits and _, not begin with a digit or pg_"
        )
    lease = _seconds(name, "lease", ours.get("lease"), LEASE_SECONDS, least=0.5)
    patience = _seconds(name, "patience", ours.get("patience"), PATIENCE_SECONDS, least=0.0)
    theirs = [(key, value) for key, value in given if key not in ours]
    if not any(key == "target_session_attrs" for key, _ in theirs):
        theirs.append(("target_session_attrs", "read-write"))
    dsn = f"postgresql://{parts.netloc}{parts.path}?{urlencode(theirs, quote_via=quote)}"
    return DatabaseAddress(
        name=name if schema == SCHEMA else f"{name}?schema={schema}",
        dsn=dsn,
        schema=schema,
        lease_seconds=lease,
        patience_seconds=patience,
    )


def _seconds(name: str, key: str, text: str | None, default: float, *, least: float) -> float:
    if text is None:
        return default
    found = _SECONDS.fullmatch(text)
    seconds = float(found[1]) * _UNIT[found[2]] if found else -1.0
    if not least <= seconds <= 3600:
        raise UsageError(f"--log {name}: {key}={text!a}: must be a duration from {least:g}s to 60m, as 2s")
    return seconds

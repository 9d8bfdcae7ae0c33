"""`tidelog log init`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tidelog.cli.commands.options import add_log, add_output

DESCRIPTION = """\
Make an empty log. In a PostgreSQL database it makes the schema (`?schema=`, by default tidelog) with its tables, gives the roles that are named the
rights that they need, and says what the server's settings promise and what they do not. A log that is there already stays as it is."""
EXAMPLES = """\
  tidelog log init postgresql://owner@db.example/cluster
  tidelog log init postgresql://owner@db.example/cluster --grant scheduler --grant-reading analyst
  tidelog log init 'postgresql://owner@db.example/shared?schema=prod'
  tidelog log init cluster.db
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_log(parser)
    parser.add_argument(
        "--grant",
        action="append",
        default=[],
        metavar="ROLE",
        help="let this role lead, stand by and compact (repeatable; PostgreSQL only)",
    )
    parser.add_argument(
        "--grant-reading",
        action="append",
        default=[],
        metavar="ROLE",
        help="let this role read, and hand in facts (repeatable; PostgreSQL only)",
    )
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Make it, and say so."""
    import sys

    from tidelog.api.errors import UsageError
    from tidelog.api.text import formatted, safe
    from tidelog.cli.commands.options import log_path
    from tidelog.eventlog.address import is_database

    log = log_path(args)
    if not is_database(log):
        if args.grant or args.grant_reading:
            raise UsageError("--grant: for a log in PostgreSQL; who may use a file is told by its mode")
        found: dict[str, Any] = {"log": str(log), "made": _file(Path(log)), "warnings": []}
    else:
        found = _database(str(log), tuple(args.grant), tuple(args.grant_reading))
    if args.output != "table":
        print(formatted(found, args.output))
        return 0
    done = "an empty log was made" if found["made"] else "there is a log already; it stays as it is"
    print(f"{found['log']}: {done}")
    for warning in found["warnings"]:
        print(f"tidelog: warning: the server: {safe(warning)}", file=sys.stderr)
    return 0


def _file(path: Path) -> bool:
    import asyncio

    from tidelog.eventlog.log import open_log

    async def make() -> None:
        async with open_log(path, what="tidelog log init"):
            pass

    is_new = not path.exists()
    asyncio.run(make())
    return is_new


def _database(log: str, grant: tuple[str, ...], grant_reading: tuple[str, ...]) -> dict[str, Any]:
    import asyncio

    from tidelog.eventlog.address import needs_postgres

    with needs_postgres():
        from tidelog.eventlog.postgres.schema import initialize

    done = asyncio.run(initialize(log, grant=grant, grant_reading=grant_reading))
    return {
        "log": done.name,
        "id": done.log_id,
        "server": done.server.version,
        "made": done.made,
        "warnings": list(done.server.warnings),
    }

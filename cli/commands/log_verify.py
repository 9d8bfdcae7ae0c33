"""`tidelog log verify`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidelog.api.errors import LogDamaged
from tidelog.cli.commands.options import add_log, add_output, log_path, print_found
from tidelog.eventlog.address import LogAddress, is_database

if TYPE_CHECKING:
    from tidelog.eventlog.verify import Verified

DESCRIPTION = """\
Check that the log is whole: every record against the chain of digests, the end against the head file, the snapshots
against their digests. Nothing is changed, and a daemon may go on writing. A damaged log exits with 4 and names the
records that are missing or changed."""
EXAMPLES = """\
  tidelog log verify
  tidelog log verify cluster.db --rebuild
  tidelog log verify -o json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_log(parser)
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="also compute the objects from the records and compare the snapshots with them",
    )
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Check, and print what was found."""
    import asyncio

    from tidelog.api.text import formatted, safe

    try:
        found = asyncio.run(_verify(args))
    except LogDamaged as error:
        if args.output != "table":
            print(formatted(_damage(error), args.output))
        raise
    print_found(args, _as_data(found), [sentence(found)])
    for warning in _warnings(found, log_path(args)):
        print(f"tidelog: warning: {safe(warning)}", file=sys.stderr)
    return LogDamaged.exit_code if found.problems or found.storage else 0


async def _verify(args: argparse.Namespace) -> Verified:
    from tidelog.cli.progress import Progress
    from tidelog.eventlog.reader import open_reader
    from tidelog.eventlog.verify import verify

    with Progress("verifying", "records") as progress:
        async with open_reader(log_path(args)) as log:
            return await verify(log, progress.update, rebuild=args.rebuild)


def sentence(found: Verified) -> str:
    """The findings in one line."""
    parts = [f"{found.records} records, chain ok, head ok"]
    if found.snapshots:
        rebuilt = f" ({found.rebuilt} computed again)" if found.rebuilt else ""
        parts.append(f"{found.snapshots} snapshot{'s' if found.snapshots > 1 else ''} ok{rebuilt}")
    if found.first > 1:
        parts.append(f"records 1 to {found.first - 1} were compacted")
    return ", ".join(parts)


def _warnings(found: Verified, path: LogAddress) -> Iterator[str]:
    for problem in found.problems:
        yield f"{problem}; it is only a cache, and is not used"
    if found.storage:
        yield (
            f"every record is there, but {'PostgreSQL finds its tables' if is_database(path) else 'SQLite finds its file'} damaged "
            f"({found.storage[0]}); make it anew, without loss: tidelog log repair --accept-loss {os.fspath(path)}"
        )


def _as_data(found: Verified) -> dict[str, Any]:
    return {
        "records": found.records,
        "first": found.first,
        "last": found.last,
        "chain": "ok",
        "head": "ok",
        "digest": found.head.digest.hex(),
        "snapshots": found.snapshots,
        "rebuilt": found.rebuilt,
        "problems": [*found.problems, *found.storage],
    }


def _damage(error: LogDamaged) -> dict[str, Any]:
    return {"damaged": {"first": error.first, "last": error.last, "reason": error.reason}}

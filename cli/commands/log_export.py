"""`tidelog log export`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import BinaryIO

from tidelog.api.errors import TidelogError
from tidelog.cli.commands.options import add_log, log_path

DESCRIPTION = """\
Print the whole log as JSON lines, every record with its digest: for backups, for other tools, for looking at with jq. What a
record says of its object or decision, such as the node, is below .body; .key is the object's Kind/namespace/name.
`tidelog log import` makes the same log of it. A daemon may go on writing; what it writes meanwhile is not in it."""
EXAMPLES = """\
  tidelog log export cluster.db --to cluster.jsonl
  tidelog log export | jq -r 'select(.kind == "Scheduled") | [.key, .body.node] | @tsv'
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_log(parser)
    parser.add_argument("--to", metavar="FILE", help="write to this new file instead of stdout")


def run(args: argparse.Namespace) -> int:
    """Write all lines."""
    import asyncio

    from tidelog.eventlog.disk import owner_only

    if args.to is None:
        asyncio.run(_export(args, sys.stdout.buffer))
        sys.stdout.buffer.flush()
        return 0
    try:
        # What is there already is somebody's backup.
        with open(args.to, "xb", opener=owner_only) as file:
            try:
                records = asyncio.run(_export(args, file))
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                os.unlink(args.to)
                raise
    except FileExistsError:
        raise TidelogError(f"{args.to}: is there already; export to another name") from None
    except OSError as error:
        raise TidelogError(f"cannot write {args.to}: {error.strerror or error}") from error
    print(f"{records} records exported to {args.to}")
    return 0


async def _export(args: argparse.Namespace, file: BinaryIO) -> int:
    from tidelog.cli.progress import Progress
    from tidelog.eventlog.reader import open_reader
    from tidelog.eventlog.transfer import export_log

    with Progress("exporting", "records") as progress:
        async with open_reader(log_path(args)) as log:
            return await export_log(log, file.write, progress.update)

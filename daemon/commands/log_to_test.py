"""`tidelog log to-test`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from tidelog.daemon.commands.options import log_path

DESCRIPTION = """\
Write a pytest file that holds a log, or its beginning up to a record, and asserts that its decisions are made again exactly so.
Redact a log first if it is not yours to publish."""
EXAMPLES = """\
  tidelog log to-test cluster.db > test_cluster.py
  tidelog log to-test cluster.db --to 120 --name spread_over_zones > test_spread_over_zones.py
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", nargs="?", metavar="LOG", help="the log (default: that of --log)")
    parser.add_argument("--to", type=int, metavar="SEQ", help="only up to this record")
    parser.add_argument("--name", metavar="NAME", help="of the test (default: that of the file)")


def run(args: argparse.Namespace) -> int:
    """Read, print."""
    import asyncio

    from tidelog.api.errors import LogError, UsageError
    from tidelog.eventlog.records import Record
    from tidelog.replay.history import open_history
    from tidelog.replay.to_test import to_test

    path = Path(args.file) if args.file else log_path(args)
    name = args.name or re.sub(r"\W+", "_", path.stem).strip("_").lower() or "log"
    if not name.isidentifier():
        raise UsageError(f"--name {name}: must be a word that Python takes as part of a name")

    async def read() -> list[Record]:
        async with await open_history(path) as history:
            head = history.log.head.seq
            if args.to is not None and not 1 <= args.to <= head:
                raise LogError(f"{path}: there is no record {args.to}: the log ends at {head}")
            return await history.records(1, args.to)

    print(to_test(asyncio.run(read()), name, path.name), end="")
    return 0

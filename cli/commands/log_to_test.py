"""`tidelog log to-test`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from tidelog.cli.commands.options import log_path, named_log

DESCRIPTION = """\
Write a pytest file that holds a log, or a slice of it, and asserts that its decisions are made again exactly so. A slice that does not
begin with the first record holds the scheduler's state before it.
Redact a log first if it is not yours to publish."""
EXAMPLES = """\
  tidelog log to-test cluster.db > test_cluster.py
  tidelog log to-test cluster.db --to 120 --name spread_over_zones > test_spread_over_zones.py
  tidelog log to-test cluster.db --from 90000 --to 90400 > test_tuesday.py
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", nargs="?", metavar="LOG", help="the log (default: that of --log)")
    parser.add_argument(
        "--from",
        dest="first",
        type=int,
        metavar="SEQ",
        help="only from this record on, or from a few before it if attempts were in flight there",
    )
    parser.add_argument("--to", type=int, metavar="SEQ", help="only up to this record")
    parser.add_argument("--name", metavar="NAME", help="of the test (default: that of the file)")


def run(args: argparse.Namespace) -> int:
    """Read, print."""
    import asyncio

    from tidelog.api.errors import LogError, UsageError
    from tidelog.cli.progress import Progress
    from tidelog.replay.history import open_history
    from tidelog.replay.to_test import slice_of, to_test

    path = named_log(args.file) if args.file else log_path(args)
    name = args.name or re.sub(r"\W+", "_", Path(path).stem).strip("_").lower() or "log"
    if not name.isidentifier():
        raise UsageError(f"--name {name}: must be a word that Python takes as part of a name")

    async def read() -> str:
        async with open_history(path) as history:
            head, oldest = history.log.head.seq, await history.first_state() + 1
            for seq in (args.first, args.to):
                if seq is not None and not oldest <= seq <= head:
                    raise LogError(f"{path}: there is no record {seq}: the log has {oldest} to {head}")
            if args.first and args.to and args.first > args.to:
                raise UsageError(f"--from {args.first} --to {args.to}: there is nothing in between")
            with Progress("reading the log", "records") as progress, progress.reading(history.log):
                core, records = await slice_of(history, args.first, args.to)
                return to_test(records, name, Path(path).name, core)

    print(asyncio.run(read()), end="")
    return 0

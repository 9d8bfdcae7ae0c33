"""`tidelog log tail`."""

from __future__ import annotations

import argparse

from tidelog.api.errors import UsageError
from tidelog.cli.commands.options import add_output, log_path

DESCRIPTION = """\
Print the last records of the log, one line each; with -f go on with those that come, until it is interrupted. With
-o json each line is one record in full."""
EXAMPLES = """\
  tidelog log tail
  tidelog log tail -n 100 -f
  tidelog log tail --from 1 -o json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "-n", "--lines", type=int, default=10, metavar="N", help="so many records (default: %(default)s)"
    )
    parser.add_argument("--from", type=int, dest="first", metavar="SEQ", help="begin with this record")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with the records that come")
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Print them."""
    import asyncio

    for option, value, least in (("--lines", args.lines, 0), ("--from", args.first, 1)):
        if value is not None and value < least:
            raise UsageError(f"{option} {value}: must not be below {least}")
    asyncio.run(_tail(args))
    return 0


async def _tail(args: argparse.Namespace) -> None:
    import sys

    from tidelog.cli.text.records import HEADING, rendered
    from tidelog.eventlog.reader import open_reader

    async with open_reader(log_path(args)) as log:
        kept = log.anchor.seq + 1
        first = args.first if args.first is not None else max(kept, log.head.seq + 1 - args.lines)
        if args.output == "table":
            print(HEADING)
        batches = log.tail_batches(first) if args.follow else log.read_batches(first)
        async for batch in batches:
            print("\n".join(rendered(record, args.output) for record in batch))
            sys.stdout.flush()

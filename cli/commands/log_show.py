"""`tidelog log show`."""

from __future__ import annotations

import argparse
import re

from tidelog.api.errors import LogError, UsageError
from tidelog.cli.commands.options import add_output, log_path

DESCRIPTION = (
    "Print records in full: who wrote what, when, in answer to which record, and its digest in the chain."
)
EXAMPLES = """\
  tidelog log show 7
  tidelog log show 7 12 20-25
  tidelog log show 7 -o json
"""
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("records", nargs="+", metavar="SEQ|FIRST-LAST", help="numbers of records")
    add_output(parser, "table", "json", "yaml", default="yaml")


def run(args: argparse.Namespace) -> int:
    """Print them."""
    import asyncio

    asyncio.run(_show(args, [_range(text) for text in args.records]))
    return 0


def _range(text: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(text)
    first = int(found[1]) if found else 0
    last = int(found[2] or first) if found else 0
    if not 1 <= first <= last:
        raise UsageError(f"{text}: must be the number of a record, or two as in 20-25; the first record is 1")
    return first, last


async def _show(args: argparse.Namespace, ranges: list[tuple[int, int]]) -> None:
    from tidelog.cli.text.records import HEADING, rendered
    from tidelog.eventlog.reader import open_reader

    async with open_reader(log_path(args)) as log:
        for _, last in ranges:
            # Before anything is printed: half an answer would look like a whole one.
            if last > log.head.seq:
                raise LogError(f"{log.name}: there is no record {last}: the log ends at {log.head.seq}")
        if args.output == "table":
            print(HEADING)
        for first, last in ranges:
            async for record in log.read(first, last):
                print(rendered(record, args.output))

"""`tidelog log import`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from tidelog.api.errors import TidelogError
from tidelog.cli.commands.options import add_output, log_path, print_found
from tidelog.eventlog.address import LogAddress

DESCRIPTION = """\
Make a new log of what `tidelog log export` printed: the same records with the same digests. The chain is checked on the
way, and an export that was changed or cut short is refused; then there is no new log."""
EXAMPLES = """\
  tidelog log import cluster.jsonl --log copy.db
  zcat cluster.jsonl.gz | tidelog log import - --log copy.db
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("lines", metavar="FILE|-", help="exported JSON lines; - for stdin")
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Make the log."""
    path = log_path(args)
    if args.lines == "-":
        records = _import(path, sys.stdin.buffer)
    else:
        try:
            with open(args.lines, "rb") as file:
                records = _import(path, file)
        except OSError as error:
            raise TidelogError(f"cannot read {args.lines}: {error.strerror or error}") from error
    found = {"records": records, "log": str(path)}
    print_found(args, found, [f"{records} records imported into {path}, chain ok"])
    return 0


def _import(path: LogAddress, lines: Iterable[bytes]) -> int:
    import asyncio

    from tidelog.cli.progress import Progress
    from tidelog.eventlog.transfer import import_log

    with Progress("importing", "records") as progress:
        return asyncio.run(import_log(path, lines, progress.update)).seq

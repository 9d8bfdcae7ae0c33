"""`tidelog log compact`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidelog.api.errors import UsageError
from tidelog.cli.commands.options import add_log, add_output, log_path

DESCRIPTION = """\
Make the log smaller: keep the objects and the scheduler's state in snapshots, and drop the records before them. The
chain goes on from there, so that what is left can still be verified. What was dropped cannot be asked for any more;
`tidelog log export` keeps a copy. No daemon may be running on the log."""
EXAMPLES = """\
  tidelog log compact
  tidelog log compact cluster.db --to 50000
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_log(parser)
    parser.add_argument(
        "--to", type=int, metavar="SEQ", help="drop the records up to this one (default: as many as can be)"
    )
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Compact, and say what was dropped."""
    import asyncio

    from tidelog.api.text import formatted

    if args.to is not None and args.to < 1:
        raise UsageError(f"--to {args.to}: the first record is 1")
    path = log_path(args)
    first, last, before, after = asyncio.run(_compact(path, args.to))
    if args.output != "table":
        data = {"dropped": last - first + 1, "first": last + 1, "bytes_before": before, "bytes_after": after}
        print(formatted(data, args.output))
    elif last < first:
        print(f"nothing to drop: the log begins at record {first}")
    else:
        print(
            f"records {first} to {last} dropped, the log begins at record {last + 1}: "
            f"{before:,} bytes before, {after:,} after"
        )
    return 0


async def _compact(path: Path, to: int | None) -> tuple[int, int, int, int]:
    """First and last record dropped, size of the file before and after."""
    from tidelog.daemon.process.compaction import compact
    from tidelog.eventlog.log import open_log
    from tidelog.plugins.registry import installed_plugins

    before = _size(path)
    async with open_log(path, create=False, what="tidelog log compact") as log:
        first = log.anchor.seq + 1
        last = await compact(log, installed_plugins(), to)
    return first, last, before, _size(path)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0

"""`tidelog log compact`."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.api.errors import UsageError
from tidelog.cli.commands.options import add_log, add_output, log_path
from tidelog.eventlog.address import LogAddress, is_database

if TYPE_CHECKING:
    from tidelog.cli.progress import Progress
    from tidelog.daemon.process.compaction import CompactionPlan
    from tidelog.daemon.process.retention import Retention

DESCRIPTION = """\
Make the log smaller: drop old records, and keep the state behind them. The chain goes on from there, so what is left can still be
verified, explained and replayed. What was dropped cannot be asked for any more; `tidelog log export` keeps a copy. Without --keep and
--to everything goes. No daemon may be running on the log: `tidelog run --keep` drops old records while it runs."""
EXAMPLES = """\
  tidelog log compact --keep 30d
  tidelog log compact --keep 100000 --dry-run
  tidelog log compact cluster.db --to 50000
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_log(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--to", type=int, metavar="SEQ", help="drop the records up to this one (default: all)")
    what.add_argument(
        "--keep",
        metavar="N|DURATION",
        help="keep so many records (100000), or those of so long (30d, 12h)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only say what would be dropped, and what room it takes"
    )
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Compact, and say what was dropped."""
    import asyncio

    from tidelog.api.text import formatted
    from tidelog.cli.progress import Progress
    from tidelog.cli.terminal import notice
    from tidelog.daemon.process.retention import read_retention

    if args.to is not None and args.to < 1:
        raise UsageError(f"--to {args.to}: the first record is 1")
    keep = None if args.keep is None else read_retention(args.keep)
    path = log_path(args)

    def begin(plan: CompactionPlan) -> None:
        if plan.last >= plan.first and args.output == "table":
            free = (
                ""
                if plan.in_database
                else f", which has {shutil.disk_usage(os.path.dirname(path) or '.').free:,} free"
            )
            notice(f"{path}: {plan}{free}")

    with Progress("compacting", "records") as progress:
        plan = asyncio.run(_compact(path, args.to, keep, begin, progress, dry_run=args.dry_run))
    first, last, before, after = plan.first, plan.last, plan.size, _size(path)
    if args.output != "table":
        data: dict[str, object] = {"dropped": last - first + 1, "first": last + 1, "bytes_before": before}
        more = {"room_needed": plan.room, "dry_run": True} if args.dry_run else {"bytes_after": after}
        print(formatted(data | more, args.output))
    elif last < first:
        print(f"nothing to drop: the log begins at record {first}")
    elif args.dry_run:
        print(
            f"records {first} to {last} would be dropped, the log would begin at record {last + 1}: nothing was changed"
        )
    else:
        print(
            f"records {first} to {last} dropped, the log begins at record {last + 1}: "
            f"{before:,} bytes before, {after:,} after"
        )
    return 0


async def _compact(
    path: LogAddress,
    to: int | None,
    keep: Retention | None,
    begin: Callable[[CompactionPlan], None],
    progress: Progress,
    *,
    dry_run: bool,
) -> CompactionPlan:
    import time

    import msgspec

    from tidelog.daemon.process.compaction import compact, planned
    from tidelog.eventlog.log import open_log
    from tidelog.eventlog.reader import open_reader
    from tidelog.plugins.registry import installed_plugins

    if dry_run:
        async with open_reader(path) as reader:
            plan = await planned(reader, to, keep, time.time_ns())
            begin(plan)
            return plan
    async with open_log(path, create=False, what="tidelog log compact") as log:
        plan = await planned(log, to, keep, time.time_ns())
        begin(plan)
        if plan.last >= plan.first:
            with progress.reading(log):
                # On a full disk fewer may go.
                return msgspec.structs.replace(plan, last=await compact(log, installed_plugins(), plan.last))
        return plan


def _size(path: LogAddress) -> int:
    if not is_database(path):
        return os.path.getsize(path) if os.path.exists(path) else 0
    import asyncio

    from tidelog.eventlog.reader import open_reader

    async def look() -> int:
        async with open_reader(path) as reader:
            return (await reader.footprint())[0]

    return asyncio.run(look())

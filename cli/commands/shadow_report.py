"""`tidelog shadow report`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidelog.api.errors import LogError
from tidelog.cli.commands.options import add_output, log_path, named_log
from tidelog.eventlog.address import LogAddress

if TYPE_CHECKING:
    from tidelog.replay.shadow.report import ShadowReport

DESCRIPTION = """\
Judge the decisions of a cluster's own scheduler by our rules, from a log of that cluster alone: would the pod have gone to the same node, or to
an equally good one? Would it have been rejected for the same reasons? Each decision is judged in the state that it was made in, as kube-scheduler
does (`compat: upstream`), and beside it in the default mode. Nothing is written."""
EXAMPLES = """\
  tidelog shadow report cluster.db
  tidelog shadow report cluster.db --all -o json > verdicts.json
  tidelog shadow report cluster.db --from 120000
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("file", nargs="?", metavar="LOG", help="the log (default: that of --log)")
    parser.add_argument(
        "--from", dest="first", type=int, metavar="SEQ", help="only decisions from this record on"
    )
    parser.add_argument("--to", type=int, metavar="SEQ", help="only decisions up to this record")
    parser.add_argument(
        "--all", action="store_true", help="list every decision, not only those to be looked at"
    )
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Read, judge, print. The exit code is 0 whatever the verdicts are: that was the question."""
    import asyncio

    import msgspec

    from tidelog.api.text import formatted
    from tidelog.cli.text.shadow import report_lines

    report = asyncio.run(_report(named_log(args.file) if args.file else log_path(args), args))
    if args.output == "table":
        print("\n".join(report_lines(report)))
    else:
        print(formatted(msgspec.to_builtins(report), args.output), end="")
    return 0


async def _report(path: LogAddress, args: argparse.Namespace) -> ShadowReport:
    from tidelog.cli.progress import Progress
    from tidelog.eventlog.objects import load_objects
    from tidelog.replay.history import open_history
    from tidelog.replay.shadow.follower import Follower
    from tidelog.replay.shadow.report import Summary

    async with await open_history(path) as history:
        oldest, head = history.log.anchor.seq + 1, history.log.head.seq
        first = oldest if args.first is None else args.first
        last = head if args.to is None else args.to
        for seq in (first, last):
            if head and not oldest <= seq <= head:
                raise LogError(f"{path}: there is no record {seq}: the log has {oldest} to {head}")
        follower, summary = Follower(history.registry), Summary(everything=args.all)
        if first > 1:
            core = await history.core_at(first - 1, in_flight=False)
            table = await load_objects(history.log, first - 1)
            follower.begin(core.configuration, core.objects.values(), table.attachment)
        cluster = server = ""
        with Progress("judging", "records") as progress, progress.reading(history.log):
            async for record in history.records(first, last):
                for judged in follower.take(record):
                    summary.add(judged)
        for judged in follower.finish():
            summary.add(judged)
        if not follower.world.configurations:
            raise LogError(
                f"{path}: it holds no configuration, so nobody knows which profiles to judge by: load one into it (`tidelog run --config`)"
            )
        if follower.attachment is not None:
            cluster, server = follower.attachment.cluster, follower.attachment.server
        return summary.report(records=max(last - first + 1, 0), cluster=cluster, server=server)

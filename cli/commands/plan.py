"""`tidelog plan`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidelog.cli.commands.options import DEFAULT_NAMESPACE, add_namespace, add_output, add_strict, log_path

if TYPE_CHECKING:
    from tidelog.replay.plan import Plan

DESCRIPTION = """\
Say where these pods would go now, in this order: on which node and among how many equally good ones, who would be preempted for them, and what
would stay pending and why. Groups, nodes and whatever else the manifests hold count as well. Nothing is written, and no daemon is asked."""
EXAMPLES = """\
  tidelog plan -f pod.yaml
  tidelog plan -f gang.yaml -o json
  tidelog plan -f nodes.yaml -f pods.yaml --at '2026-03-01 14:03'
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from tidelog.cli.asking import add_at

    parser.add_argument(
        "-f", "--filename", action="append", required=True, metavar="FILE|DIR|-",
        help="a manifest, a directory of manifests, or - for stdin; may be given several times",
    )  # fmt: skip
    parser.add_argument("-R", "--recursive", action="store_true", help="look into directories of directories")
    add_namespace(parser)
    add_strict(parser)
    add_at(parser)
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    import asyncio

    from tidelog.api.text import formatted
    from tidelog.cli.terminal import notice
    from tidelog.cli.text.plan import plan_lines

    found = asyncio.run(_planned(args))
    for warning in found.warnings:
        notice(f"warning: {warning}")
    print("\n".join(plan_lines(found)) if args.output == "table" else formatted(found, args.output))
    return 0


async def _planned(args: argparse.Namespace) -> Plan:
    from tidelog.cli.asking import moment_of
    from tidelog.cli.manifest_files import read_manifests
    from tidelog.cli.moments import parse_at
    from tidelog.cli.progress import Progress
    from tidelog.eventlog.objects import load_objects
    from tidelog.replay.history import open_history
    from tidelog.replay.plan import plan

    namespace = args.namespace or DEFAULT_NAMESPACE
    manifests = read_manifests(
        args.filename, namespace=namespace, recursive=args.recursive, strict=args.strict
    )
    async with await open_history(log_path(args)) as history:
        with Progress("reading the log", "records") as progress, progress.reading(history.log):
            moment = await moment_of(history, parse_at(args.at))
            core = await history.core_at(moment.seq, in_flight=False)
            table = await load_objects(history.log, moment.seq)
        with Progress("planning"):
            return plan(core, table, [manifest.object for manifest in manifests], moment.at)

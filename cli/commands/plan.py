"""`tidelog plan`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidelog.cli.commands.options import (
    add_manifests,
    add_namespace,
    add_output,
    add_strict,
    print_found,
)

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

    add_manifests(parser)
    add_namespace(parser)
    add_strict(parser)
    add_at(parser)
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    import asyncio

    from tidelog.cli.terminal import notice
    from tidelog.cli.text.plan import plan_lines

    found = asyncio.run(_planned(args))
    for warning in found.warnings:
        notice(f"warning: {warning}")
    print_found(args, found, plan_lines(found))
    return 0


async def _planned(args: argparse.Namespace) -> Plan:
    from tidelog.cli.asking import asked
    from tidelog.cli.manifest_files import manifests_of
    from tidelog.cli.progress import Progress
    from tidelog.eventlog.objects import load_objects
    from tidelog.replay.plan import plan

    manifests = manifests_of(args)
    async with asked(args) as (history, moment):
        core = await history.core_at(moment.seq, in_flight=False)
        table = await load_objects(history.log, moment.seq)
    with Progress("planning"):
        return plan(core, table, [manifest.object for manifest in manifests], moment.at)

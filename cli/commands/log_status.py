"""`tidelog log status`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidelog.cli.commands.options import add_log, add_output, log_path, print_found

if TYPE_CHECKING:
    from tidelog.eventlog.status import LogStatus

DESCRIPTION = """\
Say who leads a log, in which epoch, until when by its lease, who stands by and how far behind each of them is. Leases and standbys are known of a log
in PostgreSQL; of one in a file, which process holds its lock."""
EXAMPLES = """\
  tidelog log status postgresql://tidelog@db.example/cluster
  tidelog log status cluster.db -o json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_log(parser)
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Ask, and print."""
    import asyncio

    from tidelog.api.text import safe
    from tidelog.eventlog.status import log_status

    status = asyncio.run(log_status(log_path(args)))
    print_found(args, status, map(safe, status_lines(status)))
    return 0


def status_lines(status: LogStatus) -> Iterator[str]:
    """The status as text."""
    kept = f"records {status.first} to {status.last}" if status.last >= status.first else "no records"
    yield f"log        {status.log}: {kept}, epoch {status.epoch}"
    facts = "" if status.takes_facts else ", takes no facts of others"
    yield f"leader     {status.leader}{facts}" if status.leader else "leader     none"
    if status.lease is not None:
        left = f"{status.lease.seconds_left:g} s left" if status.leader else "free"
        yield f"lease      term {status.lease.term}, {left}"
    for follower in status.followers or ():
        yield f"standby    {follower.holder}: at record {follower.seq}, {follower.behind} behind, seen {follower.seen_seconds_ago:g} s ago"
    if status.followers == ():
        yield "standby    none"
    if status.server:
        yield f"server     {status.server}"
    for warning in status.warnings:
        yield f"           {warning}"

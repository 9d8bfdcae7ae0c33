"""`tidelog queue`."""

from __future__ import annotations

import argparse

from tidelog.cli.commands.options import add_output, print_found

DESCRIPTION = """\
Show every pending pod and where it is: to be tried now, backing off, waiting for an event that helps, gated, or being tried;
who rejected it, and when time alone will change something."""
EXAMPLES = """\
  tidelog queue
  tidelog queue -n shop
  tidelog queue --at 2026-03-01T14:03:00Z -o json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from tidelog.cli.asking import add_at

    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help="only the pods of this namespace")
    add_at(parser)
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Play the log back to the moment, print the queue."""
    import asyncio

    from tidelog.cli.asking import state_at
    from tidelog.cli.moments import NOW, tell_end
    from tidelog.cli.text.queue import queue_lines
    from tidelog.replay.waits import queue_of

    core, moment = asyncio.run(state_at(args))
    rows = [row for row in queue_of(core) if not args.namespace or row.key.startswith(f"{args.namespace}/")]
    if args.at is None and args.output == "table":
        tell_end(NOW, moment.at)
    found = {"seq": moment.seq, "at": moment.at, "pods": rows}
    print_found(args, found, queue_lines(rows, core, moment.at))
    return 0

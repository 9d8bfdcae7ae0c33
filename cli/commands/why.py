"""`tidelog why`."""

from __future__ import annotations

import argparse

from tidelog.cli.commands.options import add_namespace, add_output, log_path

DESCRIPTION = """\
Explain a pod: what it waits for and what would help, or why its node was chosen; then everything that happened to it, each
attempt with its reasons, what woke it, nominations and preemptions. Computed from the log alone, for any moment of it."""
EXAMPLES = """\
  tidelog why web-1
  tidelog why -n shop web-1 --nodes
  tidelog why web-1 --at 2026-03-01T14:03:00Z
  tidelog why web-1 -o json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from tidelog.cli.asking import add_at

    parser.add_argument("pod", metavar="POD", help="the pod's name, or NAMESPACE/NAME")
    add_namespace(parser)
    add_at(parser)
    parser.add_argument(
        "--nodes", action="store_true", help="for a pending pod: every plugin's reason, node by node"
    )
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Play the log back, listen, print."""
    import asyncio

    from tidelog.api.text import formatted
    from tidelog.cli.asking import moment_of, pod_key
    from tidelog.cli.moments import parse_at
    from tidelog.cli.progress import Progress
    from tidelog.cli.text.why import why_lines
    from tidelog.replay.history import open_history
    from tidelog.replay.why import Why

    async def ask() -> Why:
        key, at = pod_key(args.pod, args.namespace), parse_at(args.at)
        async with open_history(log_path(args)) as history:
            with Progress("reading the log", "records") as progress, progress.reading(history.log):
                moment = await moment_of(history, at)
                return await history.why(key, seq=moment.seq, at=moment.at)

    found = asyncio.run(ask())
    if args.output == "table":
        print("\n".join(why_lines(found, nodes=args.nodes)))
    else:
        print(formatted(found, args.output))
    return 0

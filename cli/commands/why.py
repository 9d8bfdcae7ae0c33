"""`tidelog why`."""

from __future__ import annotations

import argparse

from tidelog.cli.commands.options import add_namespace, add_output, print_found

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

    from tidelog.cli.asking import asked, pod_key
    from tidelog.cli.text.why import why_lines
    from tidelog.replay.why import Why

    async def ask() -> Why:
        key = pod_key(args.pod, args.namespace)
        async with asked(args) as (history, moment):
            return await history.why(key, seq=moment.seq, at=moment.at)

    found = asyncio.run(ask())
    print_found(args, found, why_lines(found, nodes=args.nodes))
    return 0

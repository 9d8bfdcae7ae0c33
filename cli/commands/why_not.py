"""`tidelog why-not`."""

from __future__ import annotations

import argparse

from tidelog.cli.commands.options import add_namespace, add_output, print_found

DESCRIPTION = """\
Ask every plugin about a pod and one node, each by itself, so that also the second and the third reason show. For a pod that
was placed the question is put in the state in which that was decided, and a feasible node is scored beside the winner."""
EXAMPLES = """\
  tidelog why-not web-1 node-7
  tidelog why-not -n shop web-1 node-7 --at 1200
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from tidelog.cli.asking import add_at

    parser.add_argument("pod", metavar="POD", help="the pod's name, or NAMESPACE/NAME")
    parser.add_argument("node", metavar="NODE", help="the node's name")
    add_namespace(parser)
    add_at(parser)
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Play the log back to the moment, ask, print."""
    import asyncio

    from tidelog.cli.asking import asked, pod_key
    from tidelog.cli.text.why import why_not_lines
    from tidelog.replay.why import WhyNot

    async def ask() -> WhyNot:
        key = pod_key(args.pod, args.namespace)
        async with asked(args) as (history, moment):
            return await history.why_not(key, args.node.removeprefix("node/"), seq=moment.seq)

    found = asyncio.run(ask())
    print_found(args, found, why_not_lines(found))
    return 0

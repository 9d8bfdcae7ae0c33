"""`tidelog describe`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidelog.api.errors import TidelogError, UsageError
from tidelog.cli.commands.options import add_namespace, add_output, log_path

if TYPE_CHECKING:
    from tidelog.cli.moments import At

DESCRIPTION = """\
Show a pod as kubectl does: what it asks for, its conditions, and its events with the full text of each failed attempt. What
waits and what would help is told by `tidelog why`. Or a node: its taints, its pods, and what they have taken of each resource."""
EXAMPLES = """\
  tidelog describe pod web-1
  tidelog describe pod web-1 --at 1200
  tidelog describe node n1 --at 'yesterday 14:03'
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from tidelog.cli.asking import add_at

    parser.add_argument("object", nargs="+", metavar="pod|node NAME | KIND/NAME", help="the pod or node")
    add_namespace(parser)
    add_at(parser)
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Play the log back to the moment, print the pod and its events."""
    import asyncio

    from tidelog.api.manifests.manifests import to_builtins
    from tidelog.api.objects import Pod
    from tidelog.api.text import formatted
    from tidelog.cli.asking import moment_of, pod_key
    from tidelog.cli.moments import parse_at
    from tidelog.cli.object_names import named_objects
    from tidelog.cli.progress import Progress
    from tidelog.cli.text.describe import describe_lines, events_of
    from tidelog.replay.history import open_history
    from tidelog.replay.why import Why, why

    words = args.object
    (kind, name), *more = named_objects([words[0].replace("pod ", "pod/"), *words[1:]])
    if more or name is None or kind.name not in ("Pod", "Node"):
        raise UsageError("name one pod or node: `tidelog describe pod web-1`, `tidelog describe node n1`")
    at = parse_at(args.at)
    if kind.name == "Node":
        return _describe_node(args, name, at)
    key = pod_key(name, args.namespace)

    async def read() -> tuple[Pod | None, Why, str]:
        async with open_history(log_path(args)) as history:
            with Progress("reading the log", "records") as progress, progress.reading(history.log):
                moment = await moment_of(history, at)
                past = await history.past_of(key, moment.seq)
                found = why(past.records, past.core, key, later=past.later, seq=moment.seq, at=moment.at)
                return past.core.cluster.pod(key), found, past.dropped

    pod, found, dropped = asyncio.run(read())
    if pod is None:
        raise TidelogError(f"pod {found.pod} was deleted; `tidelog why` still tells its story")
    events = events_of(found)
    if args.output == "table":
        print("\n".join(describe_lines(pod, found, events)))
        if dropped:
            print(f"  {dropped}")
    else:
        print(formatted({"pod": to_builtins(pod), "events": events, "dropped": dropped}, args.output))
    return 0


def _describe_node(args: argparse.Namespace, name: str, at: At) -> int:
    import asyncio

    from tidelog.api.kinds.columns import View
    from tidelog.api.manifests.manifests import to_builtins
    from tidelog.api.objects import Node, Pod
    from tidelog.api.text import formatted
    from tidelog.cli.moments import objects_at
    from tidelog.cli.text.describe_node import node_lines

    table, now = asyncio.run(objects_at(log_path(args), at))
    node = table.cluster.get("Node", "", name)
    if not isinstance(node, Node):
        raise TidelogError(f"there is no node {name} in the log at that moment")
    pods = [entry.object for entry in table.of_kind("Pod") if isinstance(entry.object, Pod)]
    here = View(now, pods).pods_on.get(name, [])
    if args.output == "table":
        print("\n".join(node_lines(node, here, now)))
    else:
        print(formatted({"node": to_builtins(node), "pods": [to_builtins(pod) for pod in here]}, args.output))
    return 0

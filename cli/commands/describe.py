"""`tidelog describe`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidelog.api.errors import TidelogError, UsageError
from tidelog.cli.commands.options import add_namespace, add_output, log_path

if TYPE_CHECKING:
    from tidelog.cli.moments import At

Described = tuple[list[str], dict[str, Any]]
"""An object in lines, and as data."""
DESCRIPTION = """\
Show pods as kubectl does: what they ask for, their volumes and claims of devices and how far these are, their conditions, what they wait for and what would help, and their events with the full text of each
failed attempt; the whole story is told by `tidelog why`. Or nodes: their taints, their pods, and what these have taken of each resource."""
EXAMPLES = """\
  tidelog describe pod web-1
  tidelog describe pods web-1 web-2 --at 1200
  tidelog describe node n1 --at 'yesterday 14:03'
  tidelog describe nodes
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from tidelog.cli.asking import add_at

    parser.add_argument(
        "objects",
        nargs="+",
        metavar="pod|node NAME… | KIND/NAME…",
        help="the pods or nodes; `nodes` alone: all of them",
    )
    add_namespace(parser)
    add_at(parser)
    add_output(parser, "table", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Describe one after the other."""
    import asyncio

    from tidelog.api.kinds.registry import find_kind
    from tidelog.api.text import formatted
    from tidelog.cli.moments import parse_at, settled
    from tidelog.cli.object_names import EVENTS, named_objects

    words = args.objects
    if words[0].lower().partition("/")[0] in EVENTS:
        raise UsageError("events are listed: `tidelog get events --for pod/web-1`")
    if len(words) == 1 and "/" not in words[0] and find_kind(words[0].partition(",")[0]) is None:
        raise UsageError(f"{words[0]!r} is no kind of object: `tidelog describe pod {words[0]}`")
    wanted = named_objects([words[0].replace("pod ", "pod/"), *words[1:]])
    if any(kind.name not in ("Pod", "Node") or (kind.name == "Pod" and not name) for kind, name in wanted):
        raise UsageError("name pods or nodes: `tidelog describe pod web-1`, `tidelog describe nodes`")
    at = asyncio.run(settled(log_path(args), parse_at(args.at)))
    found: list[Described] = []
    names = [name for kind, name in wanted if kind.name == "Node"]
    nodes = _nodes(args, [name for name in names if name], at, every=None in names) if names else iter(())
    missing: list[TidelogError] = []
    for kind, name in wanted:
        try:
            if kind.name == "Node":
                found += nodes if name is None else [next(nodes)]
            elif name:
                found.append(_pod(args, name, at))
        except TidelogError as error:
            # The others are there all the same.
            if len(wanted) == 1 or kind.name == "Node":
                raise
            missing.append(error)
    if args.output == "table" and found:
        print("\n\n".join("\n".join(lines) for lines, _ in found))
    elif found:
        data = [each for _, each in found]
        print(formatted(data if len(wanted) > 1 or wanted[0][1] is None else data[0], args.output))
    if missing:
        raise TidelogError("; ".join(map(str, missing)))
    return 0


def _pod(args: argparse.Namespace, name: str, at: At) -> Described:
    """Play the log back to the moment: the pod and its events."""
    import asyncio

    from tidelog.api.manifests.manifests import to_builtins
    from tidelog.api.objects import Object, Pod
    from tidelog.cli.asking import asked, pod_key
    from tidelog.cli.text.describe import describe_lines, events_of
    from tidelog.replay.why import Why, why

    key = pod_key(name, args.namespace)

    async def read() -> tuple[Pod | None, Why, str, Mapping[str, Object]]:
        async with asked(args, at) as (history, moment):
            past = await history.past_of(key, moment.seq)
            found = why(
                past.records,
                past.core,
                key,
                later=past.later,
                seq=moment.seq,
                at=moment.at,
                progress=history.log.on_read,
            )
            return past.core.cluster.pod(key), found, past.dropped, past.core.objects

    pod, found, dropped, objects = asyncio.run(read())
    if pod is None:
        raise TidelogError(f"pod {found.pod} was deleted; `tidelog why` still tells its story")
    events = events_of(found)
    lines = [*describe_lines(pod, found, events, objects), *([f"  {dropped}"] if dropped else [])]
    return lines, {"pod": to_builtins(pod), "events": events, "dropped": dropped}


def _nodes(args: argparse.Namespace, names: Sequence[str], at: At, *, every: bool) -> Iterator[Described]:
    """These nodes, or with `every` all of them, and the pods on each."""
    import asyncio

    from tidelog.api.kinds.columns import View
    from tidelog.api.manifests.manifests import to_builtins
    from tidelog.api.objects import Node, Pod
    from tidelog.cli.moments import objects_at
    from tidelog.cli.text.describe_node import node_lines

    table, now = asyncio.run(objects_at(log_path(args), at))
    if every:
        names = sorted(entry.object.metadata.name for entry in table.of_kind("Node"))
    pods = [entry.object for entry in table.of_kind("Pod") if isinstance(entry.object, Pod)]
    on = View(now, pods).pods_on
    if every and not names:
        raise TidelogError("there are no nodes in the log at that moment")
    for name in names:
        node = table.cluster.get("Node", "", name)
        if not isinstance(node, Node):
            raise TidelogError(f"there is no node {name} in the log at that moment")
        here = on.get(name, [])
        nominated = [p for p in pods if p.status.nominated_node_name == name and not p.spec.node_name]
        data = {"node": to_builtins(node), "pods": [to_builtins(pod) for pod in here]}
        if nominated:
            data["nominated"] = [to_builtins(pod) for pod in nominated]
        yield list(node_lines(node, here, now, nominated)), data

"""Tell what the scheduler has in memory, and whether the log says the same: what kube-scheduler does at SIGUSR2.

    cached node     node=n1 pods=3 cpu=2500m …        a line for each node of the cache
    queued pod      pod=default/web-1 place=backoff   a line for each pod of the queue
    comparison      missed=… redundant=…              the cache and the queue beside the objects, read anew from the log

The pictures are taken at one moment between two steps; the log is then read up to that moment, beside the work.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from tidelog.api.objects import Node, Pod
from tidelog.api.pod_status import is_terminal
from tidelog.daemon.process.logs import fields
from tidelog.eventlog.objects import ObjectTable, load_objects
from tidelog.eventlog.reader import LogReader
from tidelog.replay.waits import queue_of
from tidelog.scheduler.core import Core

LINES_PER_TURN = 50
"""The event loop gets its turn after so many lines."""
NAMED_MAX = 20
"""Of more differences than this the rest is counted."""

_log = logging.getLogger("tidelog.inspection")


class CachedNode(NamedTuple):
    """A node of the cache."""

    name: str
    pods: int
    requested: dict[str, int]


class Picture(NamedTuple):
    """The scheduler's memory after one record."""

    seq: int
    nodes: tuple[CachedNode, ...]
    placed: dict[str, str]
    """Pod → the node that it takes room on."""
    assumed: frozenset[str]
    """Those of them that are not bound in the log yet."""
    queue: dict[str, str]
    """Pod → the place where it waits."""
    profiles: frozenset[str]


def picture_of(core: Core) -> Picture:
    """The picture of the moment. Costs some microseconds a pod."""
    cache = core.cluster.cache
    nodes = list(cache.nodes())
    pods = [(node.name, pod) for node in nodes for pod in node.pods.values()]
    return Picture(
        seq=core.seq,
        nodes=tuple(CachedNode(node.name, len(node.pods), dict(node.requested)) for node in nodes),
        placed={pod.key: name for name, pod in pods},
        assumed=frozenset(pod.key for _, pod in pods if cache.is_assumed(pod.uid)),
        queue={row.key: row.waits.place for row in queue_of(core)},
        profiles=frozenset(core.frameworks),
    )


class Differences(NamedTuple):
    """Everything that the log has and memory lacks, and the other way round."""

    missed: tuple[str, ...]
    redundant: tuple[str, ...]


def compare(picture: Picture, table: ObjectTable) -> Differences:
    """The picture beside the objects of the same moment."""
    nodes = {e.object.metadata.name for e in table.of_kind("Node") if isinstance(e.object, Node)}
    pods = [e.object for e in table.of_kind("Pod") if isinstance(e.object, Pod) and not is_terminal(e.object)]
    bound = {_name(pod): pod.spec.node_name for pod in pods if pod.spec.node_name in nodes}
    pending = {
        _name(pod) for pod in pods if not pod.spec.node_name and pod.spec.scheduler_name in picture.profiles
    }
    cached = {node.name for node in picture.nodes}
    known = {name: node for name, node in picture.placed.items() if name not in picture.assumed}
    missed = [f"node {name}" for name in sorted(nodes - cached)]
    missed += [
        f"pod {name} on {node}" for name, node in sorted(bound.items()) if picture.placed.get(name) != node
    ]
    missed += [f"pending pod {name}" for name in sorted(pending - picture.queue.keys() - picture.assumed)]
    redundant = [f"node {name}" for name in sorted(cached - nodes)]
    redundant += [f"pod {name} on {node}" for name, node in sorted(known.items()) if bound.get(name) != node]
    redundant += [f"pending pod {name}" for name in sorted(picture.queue.keys() - pending - picture.assumed)]
    return Differences(tuple(missed), tuple(redundant))


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


async def inspect(core: Core, log: LogReader) -> Differences:
    """Tell the picture on the log lines, compare it with the log, and tell that."""
    picture = picture_of(core)
    lines = 0
    for node in picture.nodes:
        requested = ",".join(f"{name}={amount}" for name, amount in sorted(node.requested.items()))
        _log.info("cached node", extra=fields(node=node.name, pods=node.pods, requested=requested))
        lines += 1
        if lines % LINES_PER_TURN == 0:
            await asyncio.sleep(0)
    for pod, place in picture.queue.items():
        _log.info("queued pod", extra=fields(pod=pod, place=place))
        lines += 1
        if lines % LINES_PER_TURN == 0:
            await asyncio.sleep(0)
    found = compare(picture, await load_objects(log, picture.seq))
    summary = fields(
        seq=picture.seq, nodes=len(picture.nodes), pods=len(picture.placed), assumed=len(picture.assumed), queued=len(picture.queue),
        missed=_told(found.missed), redundant=_told(found.redundant),
    )  # fmt: skip
    if any(found):
        _log.error("memory and log differ", extra=summary)
    else:
        _log.info("memory is as the log says", extra=summary)
    return found


def _told(names: tuple[str, ...]) -> list[str]:
    more = [f"and {len(names) - NAMED_MAX} more"] if len(names) > NAMED_MAX else []
    return [*names[:NAMED_MAX], *more]

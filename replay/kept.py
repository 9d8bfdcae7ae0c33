"""Room that is kept on nodes for nominated pods: filters count these as if they were there, so what is free may be out of reach."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.framework.node_info import NodeInfo
from tidelog.replay.examine import Examination

NAMED_MAX = 5
"""More nodes than this are only said to exist."""


def kept_room(seen: Examination, node: str = "") -> str:
    """Say which nodes (or whether this one) would do for the pod but for nominated pods, and name these; empty if none would."""
    said = list(_kept(seen, node))
    more = " …" if len(said) > NAMED_MAX else ""
    return f"{'; '.join(said[:NAMED_MAX])}{more}" if said else ""


def _kept(seen: Examination, name: str) -> Iterator[str]:
    # The pod is refused, or sent elsewhere, before any node is looked at: then it is not a matter of room.
    framework, pod = seen.framework, seen.pod
    for node in () if seen.rejected else seen.nodes:
        nominated = framework.nominated.pods_on(node.name)
        if not nominated or (name and node.name != name) or not _would_do(seen, node):
            continue
        others = [other for other in nominated if other.priority >= pod.priority and other.uid != pod.uid]
        names = ", ".join(f"{o.pod.metadata.namespace}/{o.pod.metadata.name}" for o in others)
        yield f"{node.name} has room for it, but this is kept for {names}, nominated to {node.name}"


def _would_do(seen: Examination, node: NodeInfo) -> bool:
    """Whether the node is feasible without its nominated pods, and not with them."""
    if not seen.by_node[node.name] or any(node.name not in names for names in seen.narrowed.values()):
        return False
    filters = seen.framework.active_filters(seen.state)
    return seen.framework.run_filters_alone(seen.state, seen.pod, node, filters) is None

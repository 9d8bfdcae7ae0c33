"""The statuses of many nodes in groups: what a pod that fits nowhere is told, without a step for every node.

A mapping from node to status like any other. Who only wants to know how many nodes have which status, or which nodes removing pods may
help, is answered from the groups; the mapping itself is made when somebody looks into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tidelog.framework.interface import Code, Status
from tidelog.framework.node_sets import Bits, NodeSets, bits_of

Group = tuple[Status, int]
"""A status, and how many nodes have it."""


class NodeStatuses(Mapping[str, Status]):
    """Each status with the set of the nodes that have it. Holds as long as nodes neither come nor go."""

    def __init__(self, groups: Sequence[tuple[Status, Bits]], nodes: NodeSets) -> None:
        self._groups = groups
        self._nodes = nodes
        self._size = sum(bits.bit_count() for _, bits in groups)
        self._made: dict[str, Status] | None = None

    def groups(self) -> Iterable[Group]:
        """Each status with its number of nodes."""
        return ((status, bits.bit_count()) for status, bits in self._groups)

    def resolvable(self) -> Bits:
        """The nodes where removing pods may help, by their places in the list of the snapshot."""
        found = 0
        for status, bits in self._groups:
            if status.code is Code.UNSCHEDULABLE:
                found |= bits
        return self._nodes.listed(found)

    def _all(self) -> dict[str, Status]:
        if self._made is None:
            status_of: dict[str, Status] = {}
            for status, bits in self._groups:
                status_of.update((node.name, status) for node in self._nodes.in_order(bits))
            everywhere = 0
            for _, bits in self._groups:
                everywhere |= bits
            self._made = {node.name: status_of[node.name] for node in self._nodes.in_order(everywhere)}
        return self._made

    def __getitem__(self, name: str) -> Status:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return self._size


def grouped(statuses: Mapping[str, Status]) -> Iterable[Group]:
    """Each status with its number of nodes; a status may come more than once."""
    if isinstance(statuses, NodeStatuses):
        return statuses.groups()
    return ((status, 1) for status in statuses.values())


def resolvable(statuses: Mapping[str, Status], place_of: Callable[[str], int], nodes: int) -> Bits:
    """Those of so many nodes where removing pods may help, by their places in the list of the snapshot."""
    if isinstance(statuses, NodeStatuses):
        return statuses.resolvable()
    places = [place_of(name) for name, status in statuses.items() if status.code is Code.UNSCHEDULABLE]
    return bits_of(places, nodes) if places else 0


def any_resolvable(statuses: Mapping[str, Status]) -> bool:
    """Whether there is such a node."""
    return any(status.code is Code.UNSCHEDULABLE for status, _ in grouped(statuses))

"""The statuses of many nodes in groups: what a pod that fits nowhere is told, without a step for every node.

A mapping from node to status like any other. Who only wants to know how many nodes have which status, or which nodes removing pods may
help, is answered from the groups; the mapping itself is made when somebody looks into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tidelog.framework.interface import Code, Status

Group = tuple[Status, int]
"""A status, and how many nodes have it."""


class NodeStatuses(Mapping[str, Status]):
    """`groups` holds each status with its number of nodes and a function that gives their names, in the order of the nodes."""

    def __init__(
        self, groups: Sequence[tuple[Status, int, Callable[[], list[str]]]], order: Callable[[], list[str]]
    ) -> None:
        """`order` gives all their names, in the order of the nodes."""
        self._groups = groups
        self._order = order
        self._size = sum(count for _, count, _ in groups)
        self._made: dict[str, Status] | None = None

    def groups(self) -> Iterable[Group]:
        """Each status with its number of nodes."""
        return ((status, count) for status, count, _ in self._groups)

    def resolvable(self) -> list[str]:
        """The nodes where removing pods may help, in order."""
        found = [names for status, _, names in self._groups if status.code is Code.UNSCHEDULABLE]
        if len(found) == 1:
            return found[0]()
        if not found:
            return []
        return [name for name, status in self.items() if status.code is Code.UNSCHEDULABLE]

    def _all(self) -> dict[str, Status]:
        if self._made is None:
            status_of = {name: status for status, _, names in self._groups for name in names()}
            self._made = {name: status_of[name] for name in self._order()}
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


def resolvable(statuses: Mapping[str, Status]) -> list[str]:
    """The nodes where removing pods may help, in the order of the mapping."""
    if isinstance(statuses, NodeStatuses):
        return statuses.resolvable()
    return [name for name, status in statuses.items() if status.code is Code.UNSCHEDULABLE]


def any_resolvable(statuses: Mapping[str, Status]) -> bool:
    """Whether there is such a node."""
    return any(status.code is Code.UNSCHEDULABLE for status, _ in grouped(statuses))

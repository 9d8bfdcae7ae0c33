"""Lines that the page draws over time: how full each zone is, and how many evictions each disruption budget allows.

A change of a pod's or a node's row costs a sum over the resources of its zone; a record that changes neither costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.api.well_known import ZONE
from tidelog.page.rows import BudgetRow, NodeRow, PodRow, Row

LINES_MAX = 200
"""So many lines of a kind are kept; a label with more values is no zone."""


class Point(NamedTuple):
    """From this record on, this value."""

    seq: int
    value: int


class _Room:
    """Resources of a node or a zone, and their use."""

    def __init__(self) -> None:
        self.has: dict[str, int] = {}
        self.used: dict[str, int] = {}

    def add(self, other: _Room, sign: int) -> None:
        _add(self.has, other.has, sign)
        _add(self.used, other.used, sign)

    def percent(self) -> int:
        """Return how full its fullest resource is."""
        return max(
            (100 * self.used.get(name, 0) // amount for name, amount in self.has.items() if amount), default=0
        )


class Lines:
    """The lines of a log, growing."""

    def __init__(self) -> None:
        self.zones: dict[str, list[Point]] = {}
        """Zone → per cent of its fullest resource."""
        self.budgets: dict[str, list[Point]] = {}
        """Budget → evictions that it allows."""
        self._nodes: dict[str, _Room] = {}
        self._zone_of: dict[str, str] = {}
        self._rooms: dict[str, _Room] = {}
        self._touched: dict[str, None] = {}

    def changed(self, key: str, before: Row | None, after: Row | None, seq: int) -> None:
        """Note that a row is another one since this record."""
        if isinstance(before, PodRow) or isinstance(after, PodRow):
            self._use(before, -1)
            self._use(after, 1)
        elif isinstance(before, NodeRow) or isinstance(after, NodeRow):
            self._replace(key.removeprefix("Node//"), after if isinstance(after, NodeRow) else None)
        elif isinstance(after, BudgetRow):
            _extend(self.budgets, key.partition("/")[2], Point(seq, after.allowed))

    def close(self, seq: int) -> None:
        """Note what came of it after the record."""
        for zone in self._touched:
            _extend(self.zones, zone, Point(seq, self._rooms[zone].percent()))
        self._touched.clear()

    def _use(self, row: Row | None, sign: int) -> None:
        if not isinstance(row, PodRow) or not row.node or row.where in ("finished", "permit", "answers"):
            return
        for room in (self._node(row.node), self._zone(row.node)):
            _add(room.used, row.requests, sign)
            _add(room.used, {"pods": 1}, sign)

    def _replace(self, name: str, row: NodeRow | None) -> None:
        room = self._node(name)
        self._zone(name).add(room, -1)
        room.has = {} if row is None else dict(row.allocatable)
        self._zone_of[name] = "" if row is None else row.labels.get(ZONE, "")
        self._zone(name).add(room, 1)

    def _node(self, name: str) -> _Room:
        return self._nodes.setdefault(name, _Room())

    def _zone(self, node: str) -> _Room:
        zone = self._zone_of.get(node, "")
        if zone:
            self._touched[zone] = None
        return self._rooms.setdefault(zone, _Room())


def binned(lines: Mapping[str, list[Point]], first: int, size: int) -> dict[str, list[Point]]:
    """Keep one point of each run of `size` records, the highest."""
    found: dict[str, list[Point]] = {}
    for name, points in sorted(lines.items()):
        kept: list[Point] = []
        for point in points:
            if kept and (kept[-1].seq - first) // size == (point.seq - first) // size:
                kept[-1] = max(kept[-1], point, key=lambda one: one.value)
            else:
                kept.append(point)
        found[name] = kept
    return found


def _add(sums: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    for name, amount in amounts.items():
        sums[name] = sums.get(name, 0) + sign * amount


def _extend(lines: dict[str, list[Point]], name: str, point: Point) -> None:
    points = lines.get(name)
    if points is None:
        if len(lines) < LINES_MAX:
            lines[name] = [point]
    elif points[-1].value != point.value:
        points.append(point)

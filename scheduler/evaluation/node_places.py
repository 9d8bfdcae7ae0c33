"""The places of nodes, which are the bits of sets: a node keeps its place as long as it is in its zone, so that who comes or goes moves nobody else.

Nodes are examined going round the zones, so one that goes changes the turns of all that came to its zone later. Here it leaves a gap, and who comes
gets a place after all others. What stays true is that the nodes of one zone have their places in the order in which they are examined there: it
suffices to find the first node of a set, zone by zone.

Places are given anew, in the order of examination, when there are more gaps than nodes, and when what the detours by the zones have cost comes to what it costs to
begin anew: then there were that many attempts for each node. Until the next node comes or goes nothing has to be converted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from tidelog.framework.node_info import NodeInfo
from tidelog.framework.node_order import Zone, zone_of
from tidelog.framework.node_sets import Bits, bits_of, first_from, first_place, picked
from tidelog.framework.snapshot import Snapshot

GAPS_SPARE = 64
"""So many gaps are there in any case before places are given anew."""
DETOURS_PER_NODE = 16
"""So many steps by a zone for each node, of a microsecond or more, are some five times what giving new places costs."""

_arrival = attrgetter("arrival")


class _Zone:
    __slots__ = ("bits", "places")

    def __init__(self) -> None:
        self.places: list[int] = []
        """Ascending, which is the order of examination."""
        self.bits: Bits = 0


class NodePlaces:
    """Of the nodes of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.nodes: list[NodeInfo | None] = []
        """Place → node; None where one has gone."""
        self.all: Bits = 0
        self._place_of: dict[str, int] = {}
        self._zones: dict[Zone, _Zone] = {}
        """In the order in which they are gone round."""
        self._in_order = True
        """Places are those in the list of the snapshot."""
        self.is_worn = False
        """It would be cheaper to lay them out."""
        self._detours = 0
        """Steps by zones since places were given anew."""
        self._turns: list[tuple[int, int, list[int]]] = []
        """Position in the list of the snapshot → from there on up to the next one: the turn that begins there, and the numbers of the zones that have nodes left."""

    # --- keeping up ---------------------------------------------------------------------------------------------------

    def lay_out(self) -> None:
        """Give all nodes places in the order of examination."""
        snapshot = self._snapshot
        self.nodes = list(snapshot.nodes)
        self.all = (1 << len(self.nodes)) - 1
        self._place_of = dict(zip(snapshot.names, range(len(self.nodes)), strict=True))
        self._zones = {zone: _Zone() for zone in snapshot.zones}
        zones = list(self._zones.values())
        self._turns = list(_turns(list(map(len, snapshot.zones.values()))))
        ends = [*(first for first, _, _ in self._turns[1:]), len(self.nodes)]
        for (first, _, numbers), end in zip(self._turns, ends, strict=True):
            for place, number in enumerate(numbers, first):
                zones[number].places += range(place, end, len(numbers))
        for zone in zones:
            zone.bits = bits_of(zone.places, len(self.nodes))
        self._in_order = True
        self.is_worn = False
        self._detours = 0

    def follow(self, names: Iterable[str]) -> list[int]:
        """These nodes have changed, come or gone: return their places, those left included."""
        snapshot, nodes, place_of = self._snapshot, self.nodes, self._place_of
        found: list[int] = []
        came: list[NodeInfo] = []
        for name in names:
            node, place = snapshot.get(name), place_of.get(name)
            if place is not None:
                old = nodes[place]
                if node is old:
                    found.append(place)
                    continue
                assert old is not None, f"{name} has a place"
                if node is not None and node.arrival == old.arrival:
                    nodes[place] = node
                    found.append(place)
                    continue
                found.append(self._leave(old))
            if node is not None:
                came.append(node)
        if came:
            # In this order, because in its zone each of them is examined after those that are there.
            found += [self._enter(node) for node in sorted(came, key=_arrival)]
        if not self._in_order and not self._turns:
            self._zones = {zone: self._zones[zone] for zone in snapshot.zones}
            self.is_worn = len(nodes) > 2 * snapshot.node_count + GAPS_SPARE
        return found

    def _enter(self, node: NodeInfo) -> int:
        place = len(self.nodes)
        self.nodes.append(node)
        self._place_of[node.name] = place
        zone = self._zones.setdefault(zone_of(node.node), _Zone())
        zone.places.append(place)
        zone.bits |= 1 << place
        self.all |= 1 << place
        self._in_order = False
        self._turns = []
        return place

    def _leave(self, node: NodeInfo) -> int:
        place = self._place_of.pop(node.name)
        self.nodes[place] = None
        zone = self._zones[zone_of(node.node)]
        del zone.places[bisect_left(zone.places, place)]
        zone.bits ^= 1 << place
        self.all ^= 1 << place
        self._in_order = False
        self._turns = []
        return place

    # --- reading ------------------------------------------------------------------------------------------------------

    def of(self, name: str) -> int:
        """The place of a node."""
        return self._place_of[name]

    def names(self) -> list[str]:
        """All that have places."""
        return list(self._place_of)

    def of_those_there(self, names: Iterable[str]) -> list[int]:
        """The places of these nodes, as far as they are there."""
        place_of = self._place_of
        return [place_of[name] for name in names if name in place_of]

    def occupied(self) -> Iterator[tuple[int, NodeInfo]]:
        """Each place with its node."""
        return ((place, node) for place, node in enumerate(self.nodes) if node is not None)

    def in_order(self, nodes: Bits) -> list[NodeInfo]:
        """These nodes, in the order of examination."""
        found: list[NodeInfo] = picked(self.nodes, nodes)  # type: ignore[arg-type] # A set of nodes has no gaps.
        if not self._in_order:
            self._detour(len(found))
            place_of = self._snapshot.place_of
            found.sort(key=lambda node: place_of(node.name))
        return found

    def listed(self, nodes: Bits) -> Bits:
        """The set of these nodes by their places in the list of the snapshot."""
        if self._in_order:
            return nodes
        found = picked(self.nodes, nodes)
        self._detour(len(found))
        place_of, count = self._snapshot.place_of, self._snapshot.node_count
        return bits_of([place_of(node.name) for node in found], count) if found else 0  # type: ignore[union-attr]

    def first(self, nodes: Bits, start: int) -> int:
        """The first of these nodes at or after a position in the list of the snapshot, going round. There must be one."""
        if self._in_order:
            return first_from(nodes, start)
        self._detour(len(self._zones))
        turn, passed = self._turn_at(start)
        found, least = -1, (2, 0, 0)
        for number, zone in enumerate(self._zones.values()):
            own = nodes & zone.bits
            if not own:
                continue
            places = zone.places
            begin = turn + (number in passed)
            later = own >> places[begin] if begin < len(places) else 0
            place = places[begin] + first_place(later) if later else first_place(own)
            key = (0 if later else 1, bisect_left(places, place), number)
            if key < least:
                found, least = place, key
        return found

    def _detour(self, steps: int) -> None:
        self._detours += steps
        if self._detours > DETOURS_PER_NODE * len(self._place_of):
            self.is_worn = True

    def _turn_at(self, position: int) -> tuple[int, Sequence[int]]:
        """The turn round the zones to which a position in the list belongs, and the numbers of the zones that are over in it by then."""
        if not self._turns:
            self._turns = list(_turns([len(zone.places) for zone in self._zones.values()]))
        at = bisect_right(self._turns, position, key=lambda one: one[0]) - 1
        first, turn, zones = self._turns[at]
        turns, over = divmod(position - first, len(zones))
        return turn + turns, zones[:over]


def _turns(sizes: Sequence[int]) -> Iterator[tuple[int, int, list[int]]]:
    """As `NodePlaces._turns`, of zones of these sizes."""
    position = turn = 0
    for size in sorted(set(sizes)):
        zones = [number for number, own in enumerate(sizes) if own > turn]
        yield position, turn, zones
        position += (size - turn) * len(zones)
        turn = size

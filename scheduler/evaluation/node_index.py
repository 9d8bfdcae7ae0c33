"""The nodes of a snapshot as sets that an integer holds, for the fast evaluation.

A set of nodes is an `int` whose bit i stands for the node at place i of `snapshot.nodes`: union, intersection, size and "the first
one at or after" are one machine-level pass over a few hundred bytes, whatever Python costs per step.

Nodes that no resource, taint or image tells apart are one *state*: what a plugin says of one of them holds for all. In a cluster of
replicas there are a few dozen states for thousands of nodes; in the worst case each node is a state of its own.

A changed node costs about two microseconds; nodes that come, go or move cost a new index, two microseconds a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from tidelog.api.resources import CPU, MEMORY
from tidelog.framework.node_info import NodeInfo
from tidelog.framework.snapshot import Snapshot

T = TypeVar("T")

Bits = int
"""A set of places."""

GRID = 128
"""Nodes are about equally full if so many steps of cpu and memory do not tell them apart; arbitrary within a factor of two."""

EMPTY_STATES_MAX = 1_000
"""So many states are kept although no node is in them: the next node is likely to come into one of them, and its verdicts are known."""


def first_place(bits: Bits) -> int:
    """The smallest place in a set that is not empty."""
    return (bits & -bits).bit_length() - 1


def first_from(bits: Bits, start: int) -> int:
    """The first place of the set at or after `start`, going round. The set must not be empty."""
    later = bits >> start
    return start + first_place(later) if later else first_place(bits)


def places_in(bits: Bits) -> Iterator[int]:
    """The places of a small set, in order."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def picked(items: Sequence[T], bits: Bits) -> list[T]:
    """The items at the places of the set, in order."""
    return [item for item, bit in zip(items, reversed(f"{bits:b}"), strict=False) if bit == "1"]


class NodeState:
    """Nodes that are alike in everything but name, labels and who is on them."""

    __slots__ = ("bits", "cell", "use")

    def __init__(self, cell: Cell, node: NodeInfo) -> None:
        self.cell = cell
        self.use = (
            node.requested.get(CPU, 0),
            node.requested.get(MEMORY, 0),
            node.non_zero_cpu,
            node.non_zero_memory,
            _balance(cell, node),
        )
        """Of cpu and memory: what is requested, and what counts as requested where NodeResourcesFit scores; then how well they are balanced."""
        self.bits: Bits = 0
        """Its nodes, as of now; often none."""


class Cell:
    """States of equal nodes that are about equally full. The bounds hold for all states that it has ever had."""

    __slots__ = (
        "bits",
        "cpu",
        "cpu_high",
        "cpu_low",
        "is_full",
        "memory",
        "memory_high",
        "memory_low",
        "scored_cpu_low",
        "scored_memory_low",
        "states",
        "static",
    )

    def __init__(self, static: int, node: NodeInfo, is_full: bool) -> None:
        self.static = static
        """The number of what the nodes' own objects contribute."""
        self.is_full = is_full
        """They take no pods any more."""
        self.cpu, self.memory = node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0)
        self.states: dict[NodeState, None] = {}
        """Those that nodes are in."""
        self.bits: Bits = 0
        self.cpu_low = self.cpu_high = node.requested.get(CPU, 0)
        self.memory_low = self.memory_high = node.requested.get(MEMORY, 0)
        self.scored_cpu_low, self.scored_memory_low = node.non_zero_cpu, node.non_zero_memory

    def widen(self, node: NodeInfo) -> None:
        """The bounds hold for this node as well."""
        cpu, memory = node.requested.get(CPU, 0), node.requested.get(MEMORY, 0)
        self.cpu_low, self.cpu_high = min(self.cpu_low, cpu), max(self.cpu_high, cpu)
        self.memory_low, self.memory_high = min(self.memory_low, memory), max(self.memory_high, memory)
        self.scored_cpu_low = min(self.scored_cpu_low, node.non_zero_cpu)
        self.scored_memory_low = min(self.scored_memory_low, node.non_zero_memory)


def _balance(cell: Cell, node: NodeInfo) -> int:
    """In the arithmetic of NodeResourcesBalancedAllocation; -1 where a node has not both."""
    if not cell.cpu or not cell.memory:
        return -1
    of_cpu = min(1.0, node.requested.get(CPU, 0) / cell.cpu)
    of_memory = min(1.0, node.requested.get(MEMORY, 0) / cell.memory)
    return int((1 - abs((of_cpu - of_memory) / 2)) * 100)


class Topology:
    """The domains of one topology key."""

    __slots__ = ("bits", "everywhere", "value_at")

    def __init__(self, key: str, nodes: list[NodeInfo]) -> None:
        self.value_at: list[str | None] = [node.labels.get(key) for node in nodes]
        """Place → the node's value."""
        places: dict[str, list[int]] = {}
        absent: list[int] = []
        for place, value in enumerate(self.value_at):
            if value is None:
                absent.append(place)
            elif value in places:
                places[value].append(place)
            else:
                places[value] = [place]
        size = len(nodes)
        self.bits: dict[str, Bits] = {value: bits_of(found, size) for value, found in places.items()}
        """Value → its nodes."""
        self.everywhere: Bits = ((1 << size) - 1) ^ bits_of(absent, size)
        """The nodes that have the key."""


def bits_of(places: list[int], size: int) -> Bits:
    """The set of these places below `size`."""
    if len(places) == 1:
        return 1 << places[0]
    table = bytearray((size + 7) // 8)
    for place in places:
        table[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(table, "little")


class NodeIndex:
    """Follows one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.epoch = 0
        """Grows when nodes come, go, move or change their objects: places, labels and domains are other ones then."""
        self.all: Bits = 0
        self.state_at: list[NodeState] = []
        """Place → state."""
        self.states: dict[tuple[object, ...], NodeState] = {}
        """By key: all that nodes are in, and some that nodes were in."""
        self._states_max = EMPTY_STATES_MAX
        self.drops = 0
        """How often states without nodes were dropped. Nodes like those that were in one are in another one from then on."""
        self.cells: dict[tuple[object, ...], Cell] = {}
        """All that nodes are in, and some that nodes were in."""
        self._topologies: dict[str, Topology] = {}
        self._static: list[int] = []
        """Place → number of what the node's own object contributes to its state."""
        self._static_numbers: dict[tuple[object, ...], int] = {}
        self._object_generation = -1
        self._generation = -1

    def refresh(self) -> None:
        """Be as the snapshot is."""
        snapshot = self.snapshot
        if snapshot.generation == self._generation:
            return
        changed = None
        if snapshot.object_generation == self._object_generation:
            changed = snapshot.changed_since(self._generation)
        if changed is None:
            self._rebuild()
        else:
            for name in changed:
                self._follow(snapshot.place_of(name))
        self._generation = snapshot.generation

    def topology(self, key: str) -> Topology:
        """The domains of this key. The first question costs a step a node; the answer holds for this epoch."""
        found = self._topologies.get(key)
        if found is None:
            found = self._topologies[key] = Topology(key, self.snapshot.nodes)
        return found

    def sample(self, state: NodeState) -> NodeInfo:
        """One of the nodes in this state, of which there must be one."""
        return self.snapshot.nodes[first_place(state.bits)]

    def _rebuild(self) -> None:
        self.epoch += 1
        nodes = self.snapshot.nodes
        self.all = (1 << len(nodes)) - 1
        self._topologies = {}
        self._static_numbers = {}
        self._static = [self._static_number(node) for node in nodes]
        self.states = {}
        self.cells = {}
        self.state_at = []
        places: dict[NodeState, list[int]] = {}
        for place, node in enumerate(nodes):
            state = self._state(place, node)
            self.state_at.append(state)
            places.setdefault(state, []).append(place)
        for state, found in places.items():
            state.bits = bits_of(found, len(nodes))
            state.cell.states[state] = None
            state.cell.bits |= state.bits
        self._states_max = 2 * len(self.states) + EMPTY_STATES_MAX
        self._object_generation = self.snapshot.object_generation

    def _follow(self, place: int) -> None:
        old, new = self.state_at[place], self._state(place, self.snapshot.nodes[place])
        if old is new:
            return
        bit = 1 << place
        old.bits ^= bit
        if not old.bits:
            del old.cell.states[old]
        if not new.bits:
            new.cell.states[new] = None
        new.bits |= bit
        if old.cell is not new.cell:
            old.cell.bits ^= bit
            new.cell.bits |= bit
        self.state_at[place] = new
        if len(self.states) > self._states_max:
            self._drop_empty_states()

    def _drop_empty_states(self) -> None:
        self.drops += 1
        self.states = {key: state for key, state in self.states.items() if state.bits}
        cells = dict.fromkeys(state.cell for state in self.states.values())
        self.cells = {key: cell for key, cell in self.cells.items() if cell in cells}
        self._states_max = 2 * len(self.states) + EMPTY_STATES_MAX

    def _state(self, place: int, node: NodeInfo) -> NodeState:
        ports = node.used_ports
        key = (
            self._static[place],
            len(node.pods),
            node.non_zero_cpu,
            node.non_zero_memory,
            *node.requested.items(),
            tuple((port, tuple(holders.items())) for port, holders in ports.items()) if ports else None,
        )
        state = self.states.get(key)
        if state is None:
            state = self.states[key] = NodeState(self._cell(place, node), node)
        return state

    def _cell(self, place: int, node: NodeInfo) -> Cell:
        static, is_full = self._static[place], len(node.pods) >= node.allowed_pods
        requested, allocatable = node.requested, node.allocatable
        key = (
            static,
            is_full,
            requested.get(CPU, 0) * GRID // (allocatable.get(CPU, 0) or 1),
            requested.get(MEMORY, 0) * GRID // (allocatable.get(MEMORY, 0) or 1),
        )
        cell = self.cells.get(key)
        if cell is None:
            cell = self.cells[key] = Cell(static, node, is_full)
        else:
            cell.widen(node)
        return cell

    def _static_number(self, node: NodeInfo) -> int:
        spec = node.node.spec
        key = (spec.taints, spec.unschedulable, *node.allocatable.items(), None, *node.images.items())
        return self._static_numbers.setdefault(key, len(self._static_numbers))

"""The nodes of a snapshot as sets, for the fast evaluation; several profiles share one index.

Nodes that no resource, taint or host port tells apart are one *state*: what a plugin that looks at no more says of one of them holds for
all. In a cluster of replicas there are a few dozen states for thousands of nodes; in the worst case each node is a state of its own.

A changed node costs about two microseconds, its own object included: it moves to another state, and in the topologies that somebody
asked for to another domain. So does one that comes, goes or changes its zone, and a step of C for each node beside. Only when places are
given anew (`node_places`) the index is made anew, too, at two microseconds a node.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence

from tidelog.api.objects import Node
from tidelog.api.resources import CPU, MEMORY
from tidelog.api.selectors import Labels
from tidelog.framework.node_info import NodeInfo
from tidelog.framework.node_sets import Bits, Topology, bits_of, first_place
from tidelog.framework.offers import NodeSize, NodeUse
from tidelog.framework.snapshot import Snapshot
from tidelog.scheduler.evaluation.node_places import NodePlaces

GRID = 48
"""Nodes are about equally full if so many steps of cpu and memory do not tell them apart; arbitrary within a factor of two."""

WIDENINGS = 8
"""In so many steps what is known of the least and the most that such nodes use grows at most; arbitrary within a factor of two."""

EMPTY_STATES_MAX = 1_000
"""So many states are kept although no node is in them: the next node is likely to come into one of them, and its verdicts are known."""

CHANGES_SPARE = 10_000
"""Twice as many changes as there are nodes are remembered, and so many more: who comes later looks at all nodes."""

MOVES_MAX = 1_000
"""So many moves of nodes are remembered: who comes later counts all nodes."""

TRAITS_SPARE = 1_000
"""So many sets of traits that no node has any more are remembered at most before the index is made anew."""


class NodeState:
    """Nodes that are alike in everything but name, labels, images and who is on them."""

    __slots__ = ("bits", "cell", "pods", "use")

    def __init__(self, cell: Cell, pods: int, use: NodeUse) -> None:
        self.cell = cell
        self.pods = pods
        self.use = use
        self.bits: Bits = 0
        """Its nodes, as of now; often none."""


class Cell:
    """States of nodes with equal traits that are about equally full."""

    __slots__ = ("bits", "high", "is_full", "joined", "low", "size", "states", "traits")

    def __init__(self, traits: int, size: NodeSize, use: NodeUse, is_full: bool) -> None:
        self.traits = traits
        """Their number."""
        self.size = size
        self.is_full = is_full
        """They take no pods any more."""
        self.states: dict[NodeState, None] = {}
        """Those that nodes are in."""
        self.joined = 0
        """How often nodes came into a state of it in which none was."""
        self.bits: Bits = 0
        self.low = self.high = use
        """All states that it has ever had use at least and at most so much."""

    def widen(self, use: NodeUse) -> bool:
        """These hold for such a node as well; whether they did not. Then they are in whole steps, so that not every other node widens them again."""
        low, high = self.low, self.high
        if (
            low.cpu <= use.cpu <= high.cpu
            and low.memory <= use.memory <= high.memory
            and low.scored_cpu <= use.scored_cpu <= high.scored_cpu
            and low.scored_memory <= use.scored_memory <= high.scored_memory
        ):
            return False
        cpu, memory = [amount // (GRID * WIDENINGS) or 1 for amount in self.size]
        steps = cpu, memory, cpu, memory
        self.low = NodeUse(
            *[a if a <= b else b - b % step for a, b, step in zip(low, use, steps, strict=True)]
        )
        self.high = NodeUse(
            *[a if a >= b else b + -b % step for a, b, step in zip(high, use, steps, strict=True)]
        )
        return True


_NO_TRAITS = _NO_PODS = -1


def _nowhere() -> NodeState:
    """The state of places that no node has: full, so that nobody asks about it."""
    use = NodeUse(0, 0, 0, 0)
    return NodeState(Cell(_NO_TRAITS, NodeSize(0, 0), use, is_full=True), _NO_PODS, use)


def _use(node: NodeInfo) -> NodeUse:
    requested = node.requested
    return NodeUse(requested.get(CPU, 0), requested.get(MEMORY, 0), node.non_zero_cpu, node.non_zero_memory)


class NodeIndex:
    """Follows one snapshot. Implements `tidelog.framework.node_sets.NodeSets`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.places = NodePlaces(snapshot)
        self.all: Bits = 0
        self.size = 0
        """One more than the highest place."""
        self.epoch = 0
        """Grows when places are given anew."""
        self.moved = 0
        """`objects_changed` when nodes came, went, or got other places."""
        self.nowhere = _nowhere()
        """The state of places that no node has."""
        self.objects_changed = 0
        """Grows when a node's own object changes, and when a node comes or goes."""
        self._moves: list[tuple[int, int, Labels | None]] = []
        """`objects_changed`, place, and the labels there before: of nodes that came, went or got other labels or traits, in that order."""
        self._moves_from = 0
        """Those later than this `objects_changed` are remembered."""
        self.relabelled: dict[str, int] = {}
        """Topology key that somebody asked for → `objects_changed` when a node got another value of it."""
        self.revised = 0
        """`objects_changed` when a node's labels or taints changed."""
        self.by_traits: dict[int, Bits] = {}
        """Number of traits → the nodes with them, as far as there are any."""
        self.traits_changed = 0
        """Grows when a node gets other traits."""
        self.state_at: list[NodeState] = []
        """Place → state."""
        self.states: dict[tuple[object, ...], NodeState] = {}
        """By key: all that nodes are in, and some that nodes were in."""
        self._states_max = EMPTY_STATES_MAX
        self.drops = 0
        """How often states without nodes were dropped. Nodes like those that were in one are in another one from then on."""
        self.cells: dict[tuple[object, ...], Cell] = {}
        """All that nodes are in, and some that nodes were in."""
        self.changed_cells: list[Cell] = []
        """Those that are new or wider than they were, in that order; begun anew with each epoch and drop."""
        self._by_pods: dict[int, Bits] = {}
        """How many pods → the nodes with so many."""
        self._pod_counts: list[int] = []
        """The keys of that, ascending."""
        self._topologies: dict[str, Topology] = {}
        self._objects: list[Node | None] = []
        self._traits: list[int] = []
        """Place → number of the node's traits."""
        self._traits_numbers: dict[tuple[object, ...], int] = {}
        self._sizes: list[NodeSize] = []
        """By the number of the traits."""
        self._generation = -1
        self._source_generation = -1
        """The snapshot's, when this was last as it is."""
        self._building: dict[NodeState, list[int]] | None = None
        """While all nodes are looked at: the places of those that have been, by their states."""
        self.changes = 0
        """How many changes of nodes there have been."""
        self._changes: list[int] = []
        """Places of nodes that changed latest, in that order."""

    def refresh(self) -> None:
        """Be as the snapshot is. Raises Paused when the turn of the attempt is over; the next one goes on."""
        snapshot = self.snapshot
        if snapshot.generation == self._generation and self._building is None:
            return
        while (changed := self._changed()) is None:
            self._build()
        places = self.places.follow(changed)
        if self.all is not self.places.all:
            self._grow(len(self.places.nodes) - self.size)
        for place in places:
            self._follow(place)
        self._changes += places
        self.changes += len(places)
        if len(self._changes) > 2 * self.size + CHANGES_SPARE:
            self._changes = []
        self._generation = snapshot.generation
        self._source_generation = snapshot.source_generation

    def _may_begin_anew(self) -> bool:
        """Never while an attempt tries things: it knows nodes by their places, and by sets of these."""
        return self.snapshot.source_generation != self._source_generation

    def _changed(self) -> Sequence[str] | None:
        """The nodes that have changed; None if it is better to look at all, or time to begin anew."""
        if self._building is not None:
            return None
        is_worn = self.places.is_worn or len(self._traits_numbers) > len(self._traits) + TRAITS_SPARE
        if is_worn and self._may_begin_anew():
            return None
        if self._generation == self.snapshot.generation:
            return ()
        changed = self.snapshot.changed_since(self._generation)
        if changed is not None and len(changed) <= len(self.state_at):
            return changed
        return None if self._may_begin_anew() else self.places.names()

    def _grow(self, more: int) -> None:
        """Nodes have come or gone, and there are more places than before, all in the state of those without a node."""
        bits = ((1 << more) - 1) << self.size
        self.nowhere.bits |= bits
        self.nowhere.cell.bits |= bits
        self.nowhere.cell.states[self.nowhere] = None
        self.state_at += [self.nowhere] * more
        self._objects += [None] * more
        self._traits += [_NO_TRAITS] * more
        for topology in self._topologies.values():
            topology.value_at += [None] * more
        self.all, self.size = self.places.all, self.size + more

    # --- as plugins see it --------------------------------------------------------------------------------------------

    def occupied(self) -> Iterable[tuple[int, NodeInfo]]:
        """Each place with its node."""
        return self.places.occupied()

    def place_of(self, name: str) -> int:
        """The place of a node that is there."""
        return self.places.of(name)

    def in_order(self, nodes: Bits) -> list[NodeInfo]:
        """These nodes, in the order in which they are examined."""
        return self.places.in_order(nodes)

    def listed(self, nodes: Bits) -> Bits:
        """The set of these nodes by their places in `snapshot.nodes`."""
        return self.places.listed(nodes)

    # --- looking ------------------------------------------------------------------------------------------------------

    def changed_since(self, changes: int) -> Sequence[int]:
        """The places of the nodes that changed after there had been so many changes; one may be there twice."""
        first = len(self._changes) - self.changes + changes
        return self._changes[first:] if first >= 0 else range(len(self.state_at))

    def changes_after(self, changes: int, most: int) -> Sequence[int] | None:
        """The first ones of these, so many at most; None if they are not remembered."""
        first = len(self._changes) - self.changes + changes
        return self._changes[first : first + most] if first >= 0 else None

    def moves_since(self, objects_changed: int) -> Mapping[int, Labels | None] | None:
        """Place → the labels there before, None where no node was, of nodes that came, went, or got other labels or taints since; None if it is too long ago to be known."""
        if objects_changed < self._moves_from:
            return None
        found: dict[int, Labels | None] = {}
        for at, place, before in reversed(self._moves):
            if at <= objects_changed:
                break
            found[place] = before
        return found

    def node_or_none(self, place: int) -> NodeInfo | None:
        """The node at a place, if there is one."""
        return self.places.nodes[place]

    def topology(self, key: str) -> Topology:
        """The domains of this key. The first question costs a step a node; the index follows it from then on."""
        found = self._topologies.get(key)
        if found is None:
            found = self._topologies[key] = Topology(key, self.places.nodes)
        return found

    def sample(self, state: NodeState) -> NodeInfo:
        """One of the nodes in this state, of which there must be one."""
        return self.node_in(state.bits)

    def node_in(self, nodes: Bits) -> NodeInfo:
        """One of these nodes, of which there must be one."""
        return self.node_at(first_place(nodes))

    def node_at(self, place: int) -> NodeInfo:
        """The node at a place that some node has."""
        found = self.places.nodes[place]
        assert found is not None
        return found

    def fewest(self, nodes: Bits) -> Bits:
        """Those of these nodes that have the fewest pods."""
        by_pods, counts = self._by_pods, self._pod_counts
        # Mostly some of them are among those that have the fewest of all; then it need not be known whether there are several.
        found = nodes & by_pods[counts[0]]
        if found or not nodes & (nodes - 1):
            return found or nodes
        for count in counts[1:]:
            found = nodes & by_pods[count]
            if found:
                break
        return found

    def bits_of_names(self, names: Iterable[str]) -> Bits:
        """The nodes of these names, as far as they are there."""
        places = self.places.of_those_there(names)
        return bits_of(places, self.size) if places else 0

    def _build(self) -> None:
        """Begin anew, or go on with that: what changes meanwhile is followed afterwards."""
        effort = self.snapshot.effort
        if self._building is None:
            effort.spend(0)
            self._begin()
            # For each node that is laid out, a quarter of a microsecond.
            effort.charge(self.size // 8)
        building = self._building
        assert building is not None
        nodes, traits = self.places.nodes, self._traits
        for place in range(len(traits), len(nodes)):
            node = nodes[place]
            assert node is not None, "just laid out"
            self._objects[place] = node.node
            traits.append(self._traits_number(node))
            state = self.state_at[place] = self._state(place, node)
            places = building.get(state)
            if places is None:
                building[state] = [place]
            else:
                places.append(place)
            if place & 1:
                # Two nodes take as long as a step.
                effort.spend(1)
        self._end(building)

    def _begin(self) -> None:
        self.epoch += 1
        self.objects_changed += 1
        self.moved = self._moves_from = self.objects_changed
        self._moves = []
        self.places.lay_out()
        self.all, self.size = self.places.all, len(self.places.nodes)
        self.nowhere = _nowhere()
        self._topologies = {}
        self.relabelled = {}
        self._traits_numbers, self._sizes = {}, []
        self._objects = [None] * self.size
        self._traits = []
        self.states = {}
        self.cells = {}
        self.changed_cells = []
        self.state_at = [self.nowhere] * self.size
        self._building = {}
        self._generation = self.snapshot.generation

    def _end(self, building: Mapping[NodeState, Sequence[int]]) -> None:
        by_traits: dict[int, list[NodeState]] = {}
        by_pods: dict[int, list[NodeState]] = {}
        for state, places in building.items():
            state.bits = bits_of(places, self.size)
            state.cell.states[state] = None
            state.cell.bits |= state.bits
            by_traits.setdefault(state.cell.traits, []).append(state)
            by_pods.setdefault(state.pods, []).append(state)

        def together(states: Sequence[NodeState]) -> Bits:
            if len(states) == 1:
                return states[0].bits
            return bits_of([place for state in states for place in building[state]], self.size)

        self.by_traits = {number: together(states) for number, states in by_traits.items()}
        self.traits_changed += 1
        self._by_pods = {count: together(states) for count, states in by_pods.items()}
        self._pod_counts = sorted(self._by_pods)
        self._states_max = 2 * len(self.states) + EMPTY_STATES_MAX
        self._building = None

    def _follow(self, place: int) -> None:
        node = self.places.nodes[place]
        if node is None or node.node is not self._objects[place]:
            self._follow_object(place, node)
        old, new = self.state_at[place], self.nowhere if node is None else self._state(place, node)
        if old is new:
            return
        bit = 1 << place
        old.bits ^= bit
        if not old.bits:
            del old.cell.states[old]
        came = not new.bits
        if came:
            new.cell.states[new] = None
            new.cell.joined += 1
        new.bits |= bit
        if old.pods != new.pods:
            self._recount(bit, old.pods, new.pods)
        if old.cell is not new.cell:
            old.cell.bits ^= bit
            new.cell.bits |= bit
        self.state_at[place] = new
        # Only a state in which no node was may be a new one, or have made a cell wider.
        if came and (
            len(self.states) > self._states_max or len(self.changed_cells) > CHANGES_SPARE + len(self.states)
        ):
            self._drop_empty_states()

    def _recount(self, bit: Bits, old: int, new: int) -> None:
        by_pods = self._by_pods
        if old != _NO_PODS:
            left = by_pods[old] ^ bit
            if left:
                by_pods[old] = left
            else:
                del by_pods[old]
                self._pod_counts.remove(old)
        if new != _NO_PODS:
            known = by_pods.get(new)
            if known is None:
                insort(self._pod_counts, new)
                known = 0
            by_pods[new] = known | bit

    def _follow_object(self, place: int, node: NodeInfo | None) -> None:
        before, now = self._objects[place], None if node is None else node.node
        self._objects[place] = now
        self.objects_changed += 1
        number = _NO_TRAITS if node is None else self._traits_number(node)
        labels = None if now is None else now.metadata.labels
        if before is None or now is None:
            self.moved = self.objects_changed
        relabelled = before is None or before.metadata.labels != labels
        if relabelled:
            for key, topology in self._topologies.items():
                if topology.move(place, None if labels is None else labels.get(key)):
                    self.relabelled[key] = self.objects_changed
        if relabelled or number != self._traits[place]:
            self.revised = self.objects_changed
            self._note_move(place, before)
        if number != self._traits[place]:
            self._move_traits(1 << place, self._traits[place], number)
            self._traits[place] = number

    def _note_move(self, place: int, before: Node | None) -> None:
        if len(self._moves) >= MOVES_MAX:
            self._moves_from = self._moves[-1][0]
            self._moves = []
        labels = None if before is None else before.metadata.labels
        self._moves.append((self.objects_changed, place, labels))

    def _move_traits(self, bit: Bits, old: int, new: int) -> None:
        self.traits_changed += 1
        if old != _NO_TRAITS:
            left = self.by_traits[old] ^ bit
            if left:
                self.by_traits[old] = left
            else:
                del self.by_traits[old]
        if new != _NO_TRAITS:
            self.by_traits[new] = self.by_traits.get(new, 0) | bit

    def _drop_empty_states(self) -> None:
        self.drops += 1
        self.states = {key: state for key, state in self.states.items() if state.bits}
        cells = dict.fromkeys(state.cell for state in self.states.values())
        self.cells = {key: cell for key, cell in self.cells.items() if cell in cells}
        self.changed_cells = list(cells)
        self._states_max = 2 * len(self.states) + EMPTY_STATES_MAX

    def _state(self, place: int, node: NodeInfo) -> NodeState:
        ports = node.used_ports
        key = (
            self._traits[place],
            len(node.pods),
            node.non_zero_cpu,
            node.non_zero_memory,
            *node.requested.items(),
            tuple((port, tuple(holders.items())) for port, holders in ports.items()) if ports else None,
        )
        state = self.states.get(key)
        if state is None:
            use = _use(node)
            state = self.states[key] = NodeState(self._cell(place, node, use), len(node.pods), use)
        return state

    def _cell(self, place: int, node: NodeInfo, use: NodeUse) -> Cell:
        traits, is_full = self._traits[place], len(node.pods) >= node.allowed_pods
        size = self._sizes[traits]
        key = (traits, is_full, use.cpu * GRID // (size.cpu or 1), use.memory * GRID // (size.memory or 1))
        cell = self.cells.get(key)
        if cell is None:
            cell = self.cells[key] = Cell(traits, size, use, is_full)
            self.changed_cells.append(cell)
        elif cell.widen(use):
            self.changed_cells.append(cell)
        return cell

    def _traits_number(self, node: NodeInfo) -> int:
        spec = node.node.spec
        key = (spec.taints, spec.unschedulable, *node.allocatable.items())
        number = self._traits_numbers.get(key)
        if number is None:
            number = self._traits_numbers[key] = len(self._traits_numbers)
            self._sizes.append(NodeSize(node.allocatable.get(CPU, 0), node.allocatable.get(MEMORY, 0)))
        return number

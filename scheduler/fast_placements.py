"""Which placements are alike for a group: of those that are, one has to be tried.

    placement ─► the states its nodes are in, and how many are in each ─► its kind
    group ─► the specs of its members in order, and how many must fit ─► its signature
                                                   (signature, kind) ─► what became of such a group in such a placement

Where no plugin counts domains for any member, a trial depends on nothing but the states of the placement's nodes (`fast_index`) and, if
members choose nodes by labels, on which nodes they choose. Which of several equally good nodes a member gets depends on their order too;
as long as those are in one state it makes no difference which, so the trial is *watched*, and what it came to is only remembered if no
choice was between nodes in different states.

What is remembered holds until nodes come, go or change their objects: a placement in which something changes is of another kind then, and
of the same again when it is undone. A group costs a look at the placements whose nodes changed since the last one, one trial for each new
kind, and a step for each placement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.plugins.interface import Placement
from tidelog.plugins.node_info import PodInfo
from tidelog.scheduler.fast_index import Bits, NodeIndex, NodeState

if TYPE_CHECKING:
    from tidelog.scheduler.fast import FastEvaluation

T = TypeVar("T")

OUTCOMES_MAX = 4_096
"""So many outcomes are remembered before all are forgotten; arbitrary, some hundred bytes each."""
LAYOUTS_MAX = 8
"""So many lists of placements are followed: one for each topology that groups ask for. One costs some fifty bytes a node."""

Kind = frozenset[tuple[object, int]]
"""(state, and of which sets the nodes are) with the number of such nodes."""


class Watch:
    """Looks on while a placement is tried."""

    __slots__ = ("_apart", "depends_on_order")

    def __init__(self, apart: Sequence[Bits]) -> None:
        self._apart = apart
        self.depends_on_order = False
        """Some choice was between nodes that are not alike."""

    def chosen(self, winners: Bits, state: NodeState) -> None:
        """One of these nodes was taken, which is in this state."""
        if winners & ~state.bits or any((both := winners & bits) and both != winners for bits in self._apart):
            self.depends_on_order = True


class _Layout:
    """One list of placements, and their kinds, which follow the index."""

    def __init__(self, index: NodeIndex, placements: Sequence[Placement], apart: tuple[Bits, ...]) -> None:
        self.placements = placements
        self.apart = apart
        """The sets of nodes that members tell apart by labels."""
        self._index = index
        self._generation = index.snapshot.generation
        get, place_of = index.snapshot.get, index.snapshot.place_of
        self._places = [[place_of(name) for name in p.nodes if get(name) is not None] for p in placements]
        self._marks = [[_marks(apart, place) for place in places] for places in self._places] if apart else []
        self._kinds: list[Kind | None] = [None] * len(placements)
        self._holding: dict[str, list[int]] = {}
        """Node → the numbers of the placements that it is in."""
        for number, placement in enumerate(placements):
            for name in placement.nodes:
                self._holding.setdefault(name, []).append(number)

    def is_of(self, placements: Sequence[Placement], apart: tuple[Bits, ...]) -> bool:
        return self.apart == apart and self.placements == placements

    def holding(self, names: Iterable[str]) -> set[int]:
        """The numbers of the placements that one of these nodes is in; only for asking."""
        return {number for name in names for number in self._holding.get(name, ())}

    def follow(self) -> None:
        """Forget the kinds of placements in which something changed."""
        changed = self._index.snapshot.changed_since(self._generation)
        if changed is None:
            self._kinds = [None] * len(self._kinds)
        else:
            for name in changed:
                for number in self._holding.get(name, ()):
                    self._kinds[number] = None
        self._generation = self._index.snapshot.generation

    def kind(self, number: int) -> Kind:
        """Of a placement on which nothing is being tried."""
        kind = self._kinds[number]
        if kind is None:
            self._index.refresh()
            states: Iterable[object] = map(self._index.state_at.__getitem__, self._places[number])
            if self._marks:
                states = zip(states, self._marks[number], strict=True)
            kind = self._kinds[number] = frozenset(Counter(states).items())
        return kind


def _marks(apart: Sequence[Bits], place: int) -> tuple[int, ...]:
    return tuple(bits >> place & 1 for bits in apart)


class Outlook:
    """One group's view of its placements, in one attempt. Placements go by their number in the list."""

    def __init__(
        self,
        owner: PlacementMemory,
        layout: _Layout,
        signature: int,
        excluded: set[int],
    ) -> None:
        self._owner = owner
        self._layout = layout
        self._signature = signature
        self._excluded = excluded
        """Placements of which more matters than their nodes' states."""

    def known(self, number: int) -> Any:
        """What was learnt of a placement that is like this one for a group like this; None if nothing was."""
        if number in self._excluded:
            return None
        return self._owner.outcomes.get((self._signature, self._layout.kind(number)))

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """While a placement is tried."""
        watch = self._owner.fast.watch = Watch(self._layout.apart)
        try:
            yield watch
        finally:
            self._owner.fast.watch = None

    def learn(self, number: int, watch: Watch, outcome: T) -> T | None:
        """This became of the group in this placement; the trial is undone. None if it says nothing of others."""
        if number in self._excluded or watch.depends_on_order:
            return None
        outcomes = self._owner.outcomes
        if len(outcomes) >= OUTCOMES_MAX:
            outcomes.clear()
        outcomes[self._signature, self._layout.kind(number)] = outcome
        return outcome


class PlacementMemory:
    """Of one framework: what became of groups in placements. A cache: nothing depends on what is in it."""

    def __init__(self, fast: FastEvaluation, index: NodeIndex) -> None:
        self.fast = fast
        self._index = index
        self._epoch = -1
        self._layouts: list[_Layout] = []
        """The latest used last."""
        self._specs: dict[bytes, int] = {}
        self._signatures: dict[tuple[object, ...], int] = {}
        self.outcomes: dict[tuple[int, Kind], Any] = {}

    def outlook(
        self, members: Sequence[PodInfo], placements: Sequence[Placement], more: tuple[object, ...]
    ) -> Outlook | None:
        """For a group of these members; `more` is what else a trial depends on. None: every placement must be tried.

        Plugins that reserve, take note of placements or score them are the caller's affair.
        """
        apart = self.fast.told_apart(members)
        if apart is None:
            return None
        self._keep_up()
        layout = self._layout(placements, apart)
        excluded = layout.holding(self.fast.nominated_nodes())
        everywhere = len(self._index.snapshot.nodes)
        excluded.update(i for i, p in enumerate(placements) if len(p.nodes) == everywhere or p.allocations)
        return Outlook(self, layout, self._signature(members, more), excluded)

    def _keep_up(self) -> None:
        """States and places are other ones in another epoch."""
        if self._epoch != self._index.epoch or len(self._specs) + len(self._signatures) > OUTCOMES_MAX:
            self._epoch = self._index.epoch
            self._layouts.clear()
            self._specs.clear()
            self._signatures.clear()
            self.outcomes.clear()

    def _layout(self, placements: Sequence[Placement], apart: tuple[Bits, ...]) -> _Layout:
        layouts = self._layouts
        for layout in reversed(layouts):
            if layout.is_of(placements, apart):
                layouts.remove(layout)
                break
        else:
            layout = _Layout(self._index, placements, apart)
        if len(layouts) >= LAYOUTS_MAX:
            del layouts[0]
        layouts.append(layout)
        layout.follow()
        return layout

    def _signature(self, members: Sequence[PodInfo], more: tuple[object, ...]) -> int:
        specs, signatures = self._specs, self._signatures
        numbers = [specs.setdefault(self.fast.spec_key(pod.pod), len(specs)) for pod in members]
        runs = tuple((number, sum(1 for _ in run)) for number, run in groupby(numbers))
        return signatures.setdefault((runs, more), len(signatures))

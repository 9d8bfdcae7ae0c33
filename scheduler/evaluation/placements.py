"""Which placements are alike for a group: of those that are, one has to be tried.

    placement ─► the states its nodes are in, and how many are in each ─► its kind
    group ─► the specs of its members in order, and how many must fit ─► its signature
                                                   (signature, kind) ─► what became of such a group in such a placement

Where no plugin counts domains for any member, a trial depends on nothing but the states of the placement's nodes (`node_index`) and, if
members choose nodes by labels, on which nodes they choose: on how many nodes are of each *class*. Only where nodes of several classes
are equally good for a member, it depends on their order too. So a trial is *watched*, and such choices become forks in what is remembered:

    (signature, kind) ─► Fork: classes A and B ─┬─ A ─► Outcome
                                                └─ B ─► Fork: A and C ─┬─ A ─► Outcome
                                                                       └─ C ─► (not met yet)

Which way a placement goes at a fork follows from where its nodes of these classes are: a few operations on sets for each member.

What is remembered holds until nodes come, go or change their objects: a placement in which something changes is of another kind then, and
of the same again when it is undone. A group costs a look at the placements whose nodes changed since the last one, one trial for each
way that was not met yet, and a step for each placement, or one for each placement and member if there are forks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidelog.framework.interface import Placement
from tidelog.framework.node_info import PodInfo
from tidelog.framework.node_sets import Bits, bits_of, first_place
from tidelog.scheduler.evaluation.node_index import NodeIndex, NodeState

if TYPE_CHECKING:
    from tidelog.scheduler.evaluation.fast import FastEvaluation

T = TypeVar("T")

CLASSES_MAX = 100_000
"""At most so many classes of nodes are remembered in all, at a hundred bytes each; the least recently used goes first. Arbitrary."""
SPECS_MAX = 4_096
"""So many different specs and signatures are told apart before all is forgotten."""
LAYOUTS_MAX = 8
"""So many lists of placements are followed: one for each topology that groups ask for. One costs some three hundred bytes a node."""

Class = tuple[NodeState, tuple[int, ...]]
"""A state, and of which sets that labels make such a node is."""
Kind = frozenset[tuple[Class, int]]
"""Each class with the number of its nodes."""


class Choice(NamedTuple):
    """A node was taken of several that were equally good."""

    among: tuple[Class, ...]
    taken: Class
    becomes: Class
    """The class of that node with the member on it."""
    number: int
    """Of the try: which member it was."""


class Fork(NamedTuple):
    """The choice that comes next."""

    among: tuple[Class, ...]
    number: int
    """Of the try at which it comes."""
    ways: dict[Class, tuple[Class, Any]]
    """Class of the node that is taken → its class then, and what comes after: a fork, or the outcome."""


class Watch:
    """Looks on while a placement is tried."""

    def __init__(self, index: NodeIndex, apart: Sequence[Bits]) -> None:
        self._index = index
        self._apart = apart
        self.tries = 0
        """How many pods have been tried."""
        self._choices: list[tuple[tuple[Class, ...], Class, int, int]] = []
        self._becomes: list[Class] = []
        self.is_blind = False
        """Something was chosen that it was not shown."""

    def chosen(self, winners: Bits, place: int) -> None:
        """One of these nodes was taken. The index must be as the snapshot is, without the pod."""
        self._look_back()
        among: list[Class] = []
        left = winners
        while left:
            first = first_place(left)
            found = class_at(self._index, self._apart, first)
            among.append(found)
            left &= ~members_of(found, self._apart)
        taken = among[0] if len(among) == 1 else class_at(self._index, self._apart, place)
        self._choices.append((tuple(among), taken, place, self.tries - 1))

    def _look_back(self) -> None:
        """By the next choice, the index knows what the last one made of its node."""
        if len(self._becomes) < len(self._choices):
            place = self._choices[-1][2]
            self._becomes.append(class_at(self._index, self._apart, place))

    def choices(self) -> list[Choice]:
        """All up to the last fork; what comes after it is the same whatever node is taken."""
        forks = [number for number, (among, *_) in enumerate(self._choices) if len(among) > 1]
        if not forks:
            return []
        last = forks[-1]
        ends = [*self._becomes, *(taken for _, taken, *_ in self._choices[len(self._becomes) :])]
        return [
            Choice(among, taken, becomes, number)
            for (among, taken, _, number), becomes in zip(self._choices[: last + 1], ends, strict=False)
        ]


def class_at(index: NodeIndex, apart: Sequence[Bits], place: int) -> Class:
    """Of the node at this place."""
    return index.state_at[place], tuple(bits >> place & 1 for bits in apart) if apart else ()


def members_of(found: Class, apart: Sequence[Bits]) -> Bits:
    """All nodes of a class."""
    state, marks = found
    bits = state.bits
    for own, mark in zip(apart, marks, strict=True):
        bits = bits & own if mark else bits & ~own
    return bits


class _Layout:
    """One list of placements, and their kinds, which follow the index."""

    def __init__(self, index: NodeIndex, placements: Sequence[Placement], apart: tuple[Bits, ...]) -> None:
        self.placements = placements
        self.apart = apart
        """The sets of nodes that members tell apart by labels."""
        everywhere = index.snapshot.node_count
        self.excluded = {i for i, p in enumerate(placements) if len(p.nodes) == everywhere or p.allocations}
        """The numbers of those that are everything, or have devices with them."""
        self._index = index
        self._generation = index.snapshot.generation
        self._places = [index.places.of_those_there(p.nodes) for p in placements]
        self._bits = [bits_of(places, index.size) for places in self._places]
        self._marks = [[tuple(b >> place & 1 for b in apart) for place in places] for places in self._places]
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

    def forget_kinds(self) -> None:
        """There are other states now."""
        self._kinds = [None] * len(self._kinds)

    def kind(self, number: int) -> Kind:
        """Of a placement while nothing is being tried. The index must be up to date."""
        kind = self._kinds[number]
        if kind is None:
            states = map(self._index.state_at.__getitem__, self._places[number])
            classes = Counter(zip(states, self._marks[number], strict=True))
            kind = self._kinds[number] = frozenset(classes.items())
        return kind

    def members(self, number: int, found: Class) -> Bits:
        """The placement's nodes of this class."""
        return members_of(found, self.apart) & self._bits[number]

    def first(self, nodes: Bits, start: int) -> int:
        """The place of the first of these nodes at or after a start."""
        return self._index.places.first(nodes, start)


class Outlook:
    """One group's view of its placements, in one attempt. Placements go by their number in the list."""

    def __init__(
        self,
        owner: PlacementMemory,
        layout: _Layout,
        signature: int,
        excluded: set[int],
        start_of: Callable[[int], int],
    ) -> None:
        self._owner = owner
        self._layout = layout
        self._signature = signature
        self._excluded = excluded
        """Placements of which more matters than their nodes' states."""
        self._start_of = start_of
        """Number of a try → where the scan for one of several equally good nodes begins."""

    def known(self, number: int) -> Any:
        """Return what was learnt of a placement like this one for a group like this; None if nothing was."""
        if number in self._excluded:
            return None
        found = self._owner.recall((self._signature, self._layout.kind(number)))
        return self._outcome(number, found) if isinstance(found, Fork) else found

    def _outcome(self, number: int, found: Any) -> Any:
        """Return the end of the way that this placement goes."""
        layout = self._layout
        members: dict[Class, Bits] = {}

        def of(one: Class) -> Bits:
            bits = members.get(one)
            if bits is None:
                bits = members[one] = layout.members(number, one)
            return bits

        while isinstance(found, Fork):
            everyone = 0
            for one in found.among:
                everyone |= of(one)
            bit = 1 << self._layout.first(everyone, self._start_of(found.number))
            taken = next(one for one in found.among if members[one] & bit)
            way = found.ways.get(taken)
            if way is None:
                return None
            becomes, found = way
            members[taken] ^= bit
            members[becomes] = of(becomes) | bit
        return found

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """While a placement is tried."""
        watch = self._owner.watch(self._layout.apart)
        try:
            yield watch
        finally:
            self._owner.fast.watch = None

    def learn(self, number: int, watch: Watch, outcome: T) -> T | None:
        """This became of the group in this placement; the trial is undone. None if it says nothing of others."""
        # In any case, so that `known` finds the index as the trial has left it.
        are_same = self._owner.follow_states()
        if number in self._excluded or watch.is_blind or not are_same:
            return None
        self._owner.remember((self._signature, self._layout.kind(number)), watch.choices(), outcome)
        return outcome


class PlacementMemory:
    """Of one framework: what became of groups in placements. A cache: nothing depends on what is in it."""

    def __init__(self, fast: FastEvaluation, index: NodeIndex) -> None:
        self.fast = fast
        self._index = index
        self._epoch = (-1, -1)
        self._states = (-1, -1, -1)
        """The epoch, how many objects of nodes had changed, and how often states had been dropped, when it was last made sure that what is remembered speaks of those there are."""
        self._layouts: list[_Layout] = []
        """The latest used last."""
        self._specs: dict[tuple[bytes, ...], int] = {}
        self._signatures: dict[tuple[object, ...], int] = {}
        self._outcomes: dict[tuple[int, Kind], Any] = {}
        """A fork, or the outcome; the latest used last."""
        self._sizes: dict[tuple[int, Kind], int] = {}
        """How many classes each kind there has, and the forks that came after its first one."""
        self._classes = 0
        """The sum of these."""

    def outlook(
        self, members: Sequence[PodInfo], placements: Sequence[Placement], turn: int, more: tuple[object, ...]
    ) -> Outlook | None:
        """For a group of these members; `turn` is its attempt's, `more` what else a trial depends on. None: every placement must be tried.

        Plugins that reserve, take note of placements or score them are the caller's affair.
        """
        apart = self.fast.told_apart(members)
        if apart is None:
            return None
        self._keep_up()
        layout = self._layout(placements, apart)
        excluded = layout.excluded | layout.holding(self.fast.nominated_nodes())
        return Outlook(
            self, layout, self._signature(members, more), excluded, self.fast.starts(members, turn)
        )

    def watch(self, apart: Sequence[Bits]) -> Watch:
        """Show every choice to this listener from now on."""
        self.fast.watch = found = Watch(self._index, apart)
        return found

    def recall(self, key: tuple[int, Kind]) -> Any:
        found = self._outcomes.pop(key, None)
        if found is not None:
            self._outcomes[key] = found
        return found

    def remember(self, key: tuple[int, Kind], choices: Sequence[Choice], outcome: object) -> None:
        """The outcome, at the end of these choices."""
        outcomes = self._outcomes
        more = 0 if key in outcomes else len(key[1])
        if not choices:
            outcomes[key] = outcome
        else:
            fork = outcomes.setdefault(key, Fork(choices[0].among, choices[0].number, {}))
            for one, then in pairwise(choices):
                if one.taken not in fork.ways:
                    more += len(then.among)
                _, fork = fork.ways.setdefault(one.taken, (one.becomes, Fork(then.among, then.number, {})))
            fork.ways[choices[-1].taken] = (choices[-1].becomes, outcome)
        self._sizes[key] = self._sizes.get(key, 0) + more
        self._classes += more
        while self._classes > CLASSES_MAX:
            oldest = next(iter(outcomes))
            del outcomes[oldest]
            self._classes -= self._sizes.pop(oldest)

    def follow_states(self) -> bool:
        """Bring the index up to date: it may still know the latest trial. False if there are other states now: all outcomes are forgotten."""
        self._index.refresh()
        states = (self._index.epoch, self._index.objects_changed, self._index.drops)
        if states == self._states:
            return True
        self._states = states
        for layout in self._layouts:
            layout.forget_kinds()
        self._forget_outcomes()
        return False

    def _forget_outcomes(self) -> None:
        self._outcomes.clear()
        self._sizes.clear()
        self._classes = 0

    def _keep_up(self) -> None:
        """States and places are other ones in another epoch."""
        self.follow_states()
        now = (self._index.epoch, self._index.objects_changed)
        if self._epoch != now or len(self._specs) + len(self._signatures) > SPECS_MAX:
            self._epoch = now
            self._layouts.clear()
            self._specs.clear()
            self._signatures.clear()
            self._forget_outcomes()

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
        numbers = [specs.setdefault(self.fast.spec_key(pod), len(specs)) for pod in members]
        runs = tuple((number, sum(1 for _ in run)) for number, run in groupby(numbers))
        return signatures.setdefault((runs, more), len(signatures))

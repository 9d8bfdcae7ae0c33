"""The search for nodes on which a preemptor would fit if others went.

    nodes where it may help, going round from the search's start ──► known: as sets ────────────────► enough? ──► the best
                                                                 └─► unknown, before that: asked ──┘

Nodes are tried in order until enough would do; while there are only such that break budgets, all are. What is remembered of nodes
(`memory`) is counted as sets, so that only nodes in between are asked of which nothing is known, and the same ones as if each were asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from tidelog.api.kinds.registry import object_key
from tidelog.framework.interface import Status
from tidelog.framework.node_info import NodeInfo
from tidelog.framework.node_sets import Bits, first_from, first_place, nth_place, places_in, turned
from tidelog.plugins.default_preemption.candidates import Candidate, Pattern, Rank, Twin, rank, ranked
from tidelog.plugins.default_preemption.dry_run import Blocker, DryRun
from tidelog.plugins.default_preemption.memory import Recollection


class Search:
    """One preemptor's search in one attempt, and its result."""

    def __init__(
        self,
        nodes: Sequence[NodeInfo],
        memory: Recollection,
        run: DryRun,
        among: Bits,
        start: int,
        wanted: int,
        at: int,
    ) -> None:
        """Try these nodes, from the place `start` on, until so many are found as are `wanted`."""
        self._nodes = nodes
        self._memory = memory
        self._run = run
        self._start = start
        self._wanted = wanted
        self._at = at
        self._asked: dict[int, Candidate | Status] = {}
        """Place → a result on which later attempts must not rely."""
        self._keeping: Bits = 0
        """Nodes that would do; those in `_violating` break budgets."""
        self._violating: Bits = 0
        self._failed: Bits = 0
        self._search(among)

    # --- the result -------------------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many nodes would do."""
        return self._keeping.bit_count() + self._violating.bit_count()

    @cached_property
    def candidates(self) -> Sequence[Candidate | Twin]:
        """Those without violations first, each in the order of the search."""
        found = []
        for place in (*self._in_order(self._keeping), *self._in_order(self._violating)):
            one = self._found_at(place)
            assert not isinstance(one, Status), "a node that would do has victims"
            found.append(one)
        return found

    def best_first(self) -> Iterator[Candidate | Twin]:
        """The candidates, the best first; mostly that one is taken, and the others cost nothing."""
        if not self.count:
            return
        first = self._best()
        yield first
        yield from (one for one in ranked(self.candidates, self._at) if one.node != first.node)

    @cached_property
    def statuses(self) -> Mapping[str, Status]:
        """Node → why preemption there does not help, for those that were tried in vain."""
        found = {}
        for place in self._in_order(self._failed):
            status = self._found_at(place)
            assert isinstance(status, Status), "a node that would not do has a status"
            found[self._nodes[place].name] = status
        return found

    def failures(self) -> Mapping[Status, int]:
        """Each status of those with the number of its nodes."""
        counts = Counter(self._asked[place] for place in places_in(self._failed) if place in self._asked)
        found = {status: count for status, count in counts.items() if isinstance(status, Status)}
        for key, bits in self._memory.answers.sets.items():
            both = bits & self._failed
            if both and isinstance(key, Status):
                found[key] = found.get(key, 0) + both.bit_count()
        return found

    @property
    def blockers(self) -> Mapping[str, Sequence[Blocker]]:
        """Node → the protected pods that stand in the way, for those that are out for that reason only."""
        return self._run.blockers

    def budgets(self) -> list[str]:
        """Keys of the disruption budgets that stand in the way on some node."""
        return [object_key(blocker.budget) for found in self.blockers.values() for blocker in found]

    # --- searching --------------------------------------------------------------------------------------------------------

    def _search(self, among: Bits) -> None:
        while True:
            keeping, violating, failed = self._of_those(among)
            unknown = among ^ (keeping | violating | failed)
            # At best all of these would do: as far as it would have to go then, it has to go in any case.
            tried = self._until_enough(keeping | unknown, violating)
            unknown &= tried
            if not unknown:
                break
            self._ask(unknown)
        self._failed = failed & tried
        if not self._wanted:
            return
        self._keeping = keeping & tried
        self._violating = violating & tried
        if self._violating.bit_count() > self._wanted:
            last = nth_place(turned(self._violating, self._start, self._size), self._wanted - 1)
            self._violating &= self._as_far_as(last)

    def _of_those(self, among: Bits) -> tuple[Bits, Bits, Bits]:
        """Those of these nodes of which it is known that they would do; that break budgets; that would not do."""
        answers = self._memory.answers
        keeping = answers.candidates() & among
        violating, failed = 0, answers.known & among ^ keeping
        for place, found in self._asked.items():
            bit = 1 << place
            if isinstance(found, Status):
                failed |= bit
            elif found.violations:
                violating |= bit
            else:
                keeping |= bit
        return keeping, violating, failed

    def _ask(self, nodes: Bits) -> None:
        try:
            self._asked.update(self._memory.ask(self._in_order(nodes), self._run))
        finally:
            self._memory.answers.settle(self._size)

    def _until_enough(self, keeping: Bits, violating: Bits) -> Bits:
        """The nodes up to the one with which there are enough, at least one among them that breaks nothing."""
        everything = (1 << self._size) - 1
        if not (self._wanted and keeping) or (keeping | violating).bit_count() < self._wanted:
            return everything
        last = nth_place(turned(keeping | violating, self._start, self._size), self._wanted - 1)
        if violating:
            last = max(last, first_place(turned(keeping, self._start, self._size)))
        return self._as_far_as(last)

    # --- places -----------------------------------------------------------------------------------------------------------

    @property
    def _size(self) -> int:
        return len(self._nodes)

    def _as_far_as(self, last: int) -> Bits:
        """The nodes from the start on to the one that is so many places further, going round."""
        found = ((1 << (last + 1)) - 1) << self._start
        return (found | found >> self._size) & ((1 << self._size) - 1)

    def _in_order(self, nodes: Bits) -> Iterator[int]:
        """Their places in the order of the search."""
        start = self._start
        for place in places_in(nodes >> start):
            yield start + place
        yield from places_in(nodes & ((1 << start) - 1))

    def _found_at(self, place: int) -> Candidate | Twin | Status:
        found = self._asked.get(place)
        return self._memory.found_at(place) if found is None else found

    # --- the best -----------------------------------------------------------------------------------------------------------

    def _best(self) -> Candidate | Twin:
        """The first of the candidates that hurt least."""
        size, start, at = self._size, self._start, self._at
        best: tuple[Rank, int] | None = None
        chosen = -1

        def consider(place: int, worst: Rank) -> None:
            nonlocal best, chosen
            this = (worst, (place - start) % size)
            if best is None or this < best:
                best, chosen = this, place

        eligible = self._keeping | self._violating
        for place, found in self._asked.items():
            if isinstance(found, Candidate) and eligible >> place & 1:
                consider(place, rank(found, at))
        answers = self._memory.answers
        remembered = self._keeping & answers.known
        worths = sorted(key for key in answers.sets if not isinstance(key, Status))
        for worth in worths:
            bits = answers.sets[worth] & remembered
            if not bits:
                continue
            late = bits & ~answers.started
            if late:
                consider(first_from(late, start), (*worth, -at))
            for place in places_in(bits & answers.started):
                known = answers[place]
                assert not isinstance(known, Status | Pattern), "a pattern holds for victims without a start"
                consider(place, rank(known, at))
            break
        found_best = self._found_at(chosen)
        assert not isinstance(found_best, Status), "a node that would do has victims"
        return found_best

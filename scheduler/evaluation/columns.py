"""Columns: one plugin's answers about one node after the other, kept until something changes: for plugins that tell nodes of one state apart.

A column is asked about the nodes that are left when its turn comes, and answers with sets. What it does not know yet it asks the plugin
for; a node that changed is asked about again. So it costs a question for each node that changed, where it is still in question.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from tidelog.framework.effort import Paused
from tidelog.framework.node_info import NodeInfo
from tidelog.framework.node_sets import Bits, bits_of, places_in
from tidelog.scheduler.evaluation.asking import Asked
from tidelog.scheduler.evaluation.node_index import NodeIndex

A = TypeVar("A", bound=Hashable)


class AnswerColumn(Generic[A]):
    """The answers of one plugin for one shape. `ask` may raise NotFast; then nothing is kept."""

    __slots__ = ("_answers", "_ask", "_asked", "_index", "_outlives", "known", "sets")

    def __init__(
        self, asked: Asked | None, index: NodeIndex, ask: Callable[[NodeInfo], A], *, outlives: bool = True
    ) -> None:
        """`outlives`: somebody keeps it beyond the turn, so that the next one goes on from what is known."""
        self._asked = asked
        self._outlives = outlives
        self._index = index
        self._ask = ask
        self.known: Bits = 0
        self._answers: dict[int, A] = {}
        """Place → answer."""
        self.sets: dict[A, Bits] = {}
        """Answer → the nodes that got it."""

    @property
    def asked(self) -> Asked:
        """The plugin."""
        assert self._asked is not None
        return self._asked

    def forget(self, places: Iterable[int]) -> None:
        """The nodes at these places have changed."""
        for place in places:
            bit = 1 << place
            if self.known & bit:
                answer = self._answers.pop(place)
                self.known ^= bit
                left = self.sets[answer] ^ bit
                if left:
                    self.sets[answer] = left
                else:
                    del self.sets[answer]

    def ask_from_now_on(self, ask: Callable[[NodeInfo], A]) -> None:
        """In another attempt the question is the same, and the asker another one."""
        self._ask = ask

    def learn(self, among: Bits) -> None:
        """Make sure that all these are known."""
        missing = among & ~self.known
        if not missing:
            return
        ask, node_at, effort = self._ask, self._index.node_at, self._index.snapshot.effort
        outlives = self._outlives
        found: dict[A, list[int]] = {}
        try:
            for place in places_in(missing):
                found.setdefault(ask(node_at(place)), []).append(place)
                if outlives:
                    effort.spend(1)
        except Paused:
            self._keep(found)
            raise
        self._keep(found)

    def _keep(self, found: Mapping[A, Sequence[int]]) -> None:
        size = self._index.size
        for answer, places in found.items():
            for place in places:
                self._answers[place] = answer
            bits = bits_of(places, size)
            self.sets[answer] = self.sets.get(answer, 0) | bits
            self.known |= bits

    def groups(self, among: Bits) -> list[tuple[A, Bits]]:
        """Each answer with those of these nodes that got it."""
        self.learn(among)
        return [(answer, both) for answer, bits in self.sets.items() if (both := bits & among)]

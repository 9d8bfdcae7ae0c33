"""The table of one shape by states of nodes: a state is evaluated once, by asking the plugins themselves, and a node that changed moves with its bit.

It is quick for a shape that is asked again and again, and tells why a node is rejected. Where hundreds of shapes are asked in turn,
so that each finds hundreds of nodes changed, the board is quicker (`board`).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from tidelog.framework.interface import Code, Status
from tidelog.framework.node_info import NodeInfo
from tidelog.framework.node_sets import Bits, Groups, bits_of
from tidelog.scheduler.evaluation.asking import Asked, Evaluation, Way
from tidelog.scheduler.evaluation.kinds import NoBounds, TraitKinds
from tidelog.scheduler.evaluation.node_index import NodeIndex, NodeState
from tidelog.scheduler.evaluation.partitions import Partition

MANY = 8
"""Of so many changed nodes those that fare alike are put together; arbitrary within a factor of two."""
MEMO_SPARE = 1_000
"""So many verdicts on states that no node is in any more are remembered."""


_NO_NODE = Status(Code.UNSCHEDULABLE)
"""Of places that no node has; no filter says so, and nobody asks."""

_Verdict = tuple[int, ...] | Status
"""Of the nodes in a state: their sum of plain scores and the raw scores to be normalised, or what the first filter says that they do not pass."""


class StateTable:
    """Knows of every node whether it passes the filters that go by states, or why not, and its sum of plain scores."""

    def __init__(self, index: NodeIndex, evaluation: Evaluation, kinds: TraitKinds | None) -> None:
        """`kinds`: what is known of nodes by their traits, if the plugins offer that."""
        self._index = index
        self._evaluation = evaluation
        self._memo: dict[NodeState, _Verdict] = {index.nowhere: _NO_NODE}
        self._kinds = kinds
        self._once: dict[str, Status | None] = {}
        """Answers of filters that look at nothing but the pod."""
        self._state_at = list(index.state_at)
        self.fit: Bits = 0
        """Nodes that pass the filters that go by states."""
        self._levels: dict[int, Bits] = {}
        """Sum of plain scores → its nodes."""
        self._order: list[int] = []
        """The keys of `_levels`, ascending."""
        self.partitions = [Partition(asked) for asked in evaluation.raw_scorers]
        self._rejected: dict[Status, Bits] = {}
        """Answers of filters that go by states → of which nodes."""
        for found in index.states.values():
            if found.bits:
                self._put(self._verdict(found), found.bits)
        if index.nowhere.bits:
            self._put(_NO_NODE, index.nowhere.bits)

    def rejections(self, name: str, among: Bits) -> list[tuple[Status, Bits]]:
        """The rejections of these nodes by the filter of this name."""
        return [
            (status, both)
            for status, bits in self._rejected.items()
            if status.plugin == name and (both := bits & among)
        ]

    # --- keeping up ---------------------------------------------------------------------------------------------------

    def follow(self, places: Sequence[int]) -> None:
        """The nodes at these places have changed."""
        if len(self._state_at) < self._index.size:
            self._know_new_places()
        if len(places) < MANY:
            for place in places:
                self._follow(place)
        else:
            self._follow_many(places)

    def _know_new_places(self) -> None:
        index, known = self._index, len(self._state_at)
        self._state_at += [index.nowhere] * (index.size - known)
        self._put(_NO_NODE, (1 << index.size) - (1 << known))

    def _follow(self, place: int) -> None:
        old, new = self._state_at[place], self._index.state_at[place]
        if old is new:
            return
        before = self._memo[old]
        after = self._verdict(new)
        self._state_at[place] = new
        if before == after:
            return
        self._change(before, after, 1 << place)

    def _follow_many(self, places: Sequence[int]) -> None:
        """As `_follow` of each, with one operation on sets for all nodes that fare alike."""
        before, after = self._state_at, self._index.state_at
        memo, verdict = self._memo, self._verdict
        gone: dict[_Verdict, list[int]] = {}
        come: dict[_Verdict, list[int]] = {}
        for place in places:
            old, new = before[place], after[place]
            if old is new:
                continue
            was = memo[old]
            found = memo.get(new)
            now = verdict(new) if found is None else found
            if was != now:
                gone.setdefault(was, []).append(place)
                come.setdefault(now, []).append(place)
        # Not before all are judged: that may be interrupted.
        for place in places:
            before[place] = after[place]
        size = len(before)
        for one, those in gone.items():
            self._take(one, bits_of(those, size))
        for one, those in come.items():
            self._put(one, bits_of(those, size))

    def _change(self, before: _Verdict, after: _Verdict, bits: Bits) -> None:
        """As `_take` and `_put`, where only what is different costs an operation on sets: mostly that is the level alone."""
        if isinstance(before, Status) or isinstance(after, Status):
            self._take(before, bits)
            self._put(after, bits)
            return
        if before[0] != after[0]:
            self._leave_level(before[0], bits)
            self._join_level(after[0], bits)
        for number, partition in enumerate(self.partitions, 1):
            if before[number] != after[number]:
                partition.remove(before[number], bits)
                partition.add(after[number], bits)

    def _put(self, verdict: _Verdict, bits: Bits) -> None:
        if isinstance(verdict, Status):
            self._rejected[verdict] = self._rejected.get(verdict, 0) | bits
            return
        self.fit |= bits
        self._join_level(verdict[0], bits)
        for number, partition in enumerate(self.partitions, 1):
            partition.add(verdict[number], bits)

    def _take(self, verdict: _Verdict, bits: Bits) -> None:
        if isinstance(verdict, Status):
            left = self._rejected[verdict] ^ bits
            if left:
                self._rejected[verdict] = left
            else:
                del self._rejected[verdict]
            return
        self.fit ^= bits
        self._leave_level(verdict[0], bits)
        for number, partition in enumerate(self.partitions, 1):
            partition.remove(verdict[number], bits)

    def _join_level(self, level: int, bits: Bits) -> None:
        known = self._levels.get(level)
        if known is None:
            insort(self._order, level)
            known = 0
        self._levels[level] = known | bits

    def _leave_level(self, level: int, bits: Bits) -> None:
        left = self._levels[level] ^ bits
        if left:
            self._levels[level] = left
        else:
            del self._levels[level]
            del self._order[bisect_left(self._order, level)]

    # --- asking the plugins -------------------------------------------------------------------------------------------

    def _verdict(self, state: NodeState) -> _Verdict:
        memo = self._memo
        try:
            return memo[state]
        except KeyError:
            pass
        verdict = memo[state] = self._judge(state)
        if len(memo) > 3 * len(self._index.states) + MEMO_SPARE:
            self._forget_old_states()
        return verdict

    def _judge(self, state: NodeState) -> _Verdict:
        if self._kinds is not None:
            try:
                known = self._kinds.verdict(state, self._index.sample)
            except NoBounds:
                self._kinds = None
            else:
                if known is not None:
                    return known
        return self._ask(self._index.sample(state))

    def _forget_old_states(self) -> None:
        used = dict.fromkeys((self._index.nowhere, *self._state_at, *self._index.states.values()))
        self._memo = {state: verdict for state, verdict in self._memo.items() if state in used}

    def _ask(self, node: NodeInfo) -> _Verdict:
        evaluation = self._evaluation
        state, pod = evaluation.state, evaluation.pod
        for asked in evaluation.filters:
            status = self._ask_filter(asked, node)
            if status is not None:
                return status
        level = 0
        for asked in evaluation.scorers:
            level += asked.weight * asked.raw_score(state, pod, node)
        return (level, *[asked.raw_score(state, pod, node) for asked in evaluation.raw_scorers])

    def _ask_filter(self, asked: Asked, node: NodeInfo) -> Status | None:
        evaluation = self._evaluation
        if asked.way is Way.STATE:
            return asked.verdict(evaluation.state, evaluation.pod, node)
        once = self._once
        if asked.name not in once:
            once[asked.name] = asked.verdict(evaluation.state, evaluation.pod, node)
        return once[asked.name]

    # --- choosing -----------------------------------------------------------------------------------------------------

    def best(self, groups: Groups) -> tuple[int, Bits]:
        """The best total and its nodes. Groups and levels are gone through best first, as far as they can still win."""
        levels, order = self._levels, self._order
        best, winners = -1, 0
        for score, bits in sorted(groups, reverse=True):
            for level in reversed(order):
                total = score + level
                if total < best:
                    break
                both = bits & levels[level]
                if both:
                    winners = winners | both if total == best else both
                    best = total
                    break
            if score + order[-1] < best:
                break
        return best, winners

"""A shape: pods that no plugin can tell apart, and what is known of every node for them.

Per shape there is a table: which nodes pass the filters, and, for the scores that depend on a node's state alone, the set of nodes
for each sum (`levels`). It is brought up to date by looking at the nodes that changed since the shape's last use, and a state of nodes
is evaluated once, by asking the plugins themselves. Scores that are normalised over the feasible nodes, or depend on labels and domains,
are *partitions*: sets of nodes with an equal score. The best nodes are found among the intersections of these sets, best first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tidelog.framework.interface import CycleState, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import Bits, Groups, bits_of, first_from
from tidelog.framework.offers import Domains
from tidelog.scheduler.evaluation.asking import Asked, Evaluation, NotFast, Way
from tidelog.scheduler.evaluation.columns import AnswerColumn
from tidelog.scheduler.evaluation.kinds import NoBounds, TraitKinds, is_searchable
from tidelog.scheduler.evaluation.node_index import NodeIndex, NodeState

MANY = 8
"""Of so many changed nodes those that fare alike are put together; arbitrary within a factor of two."""
MEMO_SPARE = 1_000
"""So many verdicts on states that no node is in any more are remembered."""


class Found(NamedTuple):
    """The best place for a pod of the shape."""

    place: int
    feasible: int
    tied: int
    score: int


class Counted:
    """A plugin that counts domains, for one shape; counted anew when labels by which it counts have changed."""

    def __init__(
        self, index: NodeIndex, name: str, weight: int, first: Domains, count: Callable[[], Domains | None]
    ) -> None:
        self.name = name
        self.weight = weight
        self._index = index
        self._count = count
        self.now = first
        self._made_at = index.objects_changed

    def follow(self, places: Sequence[int]) -> None:
        """The nodes at these places have changed. The index must be as the snapshot is."""
        has_new_objects = self._index.objects_changed != self._made_at
        if (has_new_objects and self._renew()) or not (has_new_objects or self.now.reads_pods):
            return
        follow, nodes = self.now.follow, self._index.snapshot.nodes
        for place in places:
            follow(place, nodes[place])

    def _renew(self) -> bool:
        """Count again, if nodes were relabelled so that it matters; whether that was so."""
        index = self._index
        since, domains = self._made_at, self.now
        self._made_at = index.objects_changed
        relabelled = index.relabelled
        if not (domains.reads_nodes and index.revised > since) and not any(
            relabelled.get(key, 0) > since for key in domains.reads_labels
        ):
            return False
        now = self._count()
        assert now is not None, f"{self.name} had something to say about such pods"
        self.now = now
        return True


class Partition:
    """Nodes by a raw score that depends on their state, and how the plugin normalises such scores."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.sets: dict[int, Bits] = {}
        self._alone: dict[int, int] = {}
        """Raw score → what it is normalised to where no node has another one."""

    def normalized(self, state: CycleState, pod: PodInfo, feasible: Bits) -> Groups:
        """The feasible nodes by normalised score."""
        sets = self.sets
        if len(sets) > 1:
            groups = self.groups(feasible)
            if len(groups) > 1:
                return normalized(self.asked, state, pod, groups)
            ((raw, _),) = groups
        else:
            (raw,) = sets
        known = self._alone.get(raw)
        if known is None:
            ((known, _),) = normalized(self.asked, state, pod, [(raw, feasible)])
            self._alone[raw] = known
        return [(known, feasible)]

    def add(self, raw: int, bits: Bits) -> None:
        self.sets[raw] = self.sets.get(raw, 0) | bits

    def remove(self, raw: int, bits: Bits) -> None:
        left = self.sets[raw] ^ bits
        if left:
            self.sets[raw] = left
        else:
            del self.sets[raw]

    def groups(self, feasible: Bits) -> Groups:
        """Those of the feasible nodes with each raw score."""
        return [(raw, both) for raw, bits in self.sets.items() if (both := bits & feasible)]


def normalized(asked: Asked, state: CycleState, pod: PodInfo, groups: Groups) -> Groups:
    """Once for each distinct raw score: how many nodes have it does not matter to a plugin that declares what its score depends on."""
    if not asked.normalizes:
        return groups
    raws = asked.normalized(state, pod, (), [raw for raw, _ in groups])
    return [(score, bits) for score, (_, bits) in zip(raws, groups, strict=True)]


_Verdict = tuple[int, ...] | Status
"""Of the nodes in a state: their sum of plain scores and the raw scores to be normalised, or what the first filter says that they do not pass."""


class Shape:
    """The table of one shape."""

    def __init__(self, index: NodeIndex, evaluation: Evaluation, domains: Sequence[Counted]) -> None:
        self._index = index
        self._evaluation = evaluation
        self._domains = domains
        self._generation = index.snapshot.generation
        self._changes = index.changes
        """Those of the index that are followed."""
        self._object_generation = index.snapshot.object_generation
        self._memo: dict[NodeState, _Verdict] = {}
        self.kinds = TraitKinds(evaluation) if is_searchable(evaluation) else None
        """Knowledge of nodes by their traits, if the plugins offer that."""
        self._once: dict[str, Status | None] = {}
        """Answers of filters that look at nothing but the pod."""
        self._state_at = list(index.state_at)
        self._fit: Bits = 0
        """Nodes that pass the filters that go by states."""
        self._levels: dict[int, Bits] = {}
        """Sum of plain scores → its nodes."""
        self._order: list[int] = []
        """The keys of `_levels`, ascending."""
        self._partitions = [Partition(asked) for asked in evaluation.raw_scorers]
        self._rejected: dict[Status, Bits] = {}
        """Answers of filters that go by states → of which nodes."""
        state, pod = evaluation.state, evaluation.pod
        self.filters: list[AnswerColumn[Status | None]] = [
            AnswerColumn(asked, index, _verdict_of(asked, state, pod)) for asked in evaluation.node_filters
        ]
        self.scorers: list[AnswerColumn[int]] = [
            AnswerColumn(asked, index, _score_of(asked, state, pod)) for asked in evaluation.node_scorers
        ]
        columns: list[AnswerColumn[Status | None] | AnswerColumn[int]] = [*self.filters, *self.scorers]
        self._by_node = [c for c in columns if c.asked.way is Way.NODE]
        self._by_object = [c for c in columns if c.asked.way is Way.OBJECT]
        self.beside: AnswerColumn[bool] | None = None
        """Whether a pod of the shape may go beside those that are nominated to a node; kept while the nominations are the same."""
        self.winners: Bits = 0
        """The equally good nodes of the latest choice."""
        for found in index.states.values():
            if found.bits:
                self._put(self._verdict(found), found.bits)

    # --- keeping up ---------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look at the nodes that changed since the last use. The index must be as the snapshot is."""
        snapshot = self._index.snapshot
        if snapshot.generation == self._generation:
            return
        places = self._index.changed_since(self._changes)
        self._changes = self._index.changes
        if len(places) < MANY:
            for place in places:
                self._follow(place)
        else:
            self._follow_many(places)
        for counted in self._domains:
            counted.follow(places)
        for column in self._by_node:
            column.forget(places)
        if self.beside is not None:
            self.beside.forget(places)
        if snapshot.object_generation != self._object_generation:
            self._follow_objects()
        self._generation = snapshot.generation

    def _follow_objects(self) -> None:
        snapshot = self._index.snapshot
        changed = snapshot.objects_changed_since(self._object_generation)
        if changed is None:
            raise NotFast("too many changes")
        places = [snapshot.place_of(name) for name in changed]
        for column in self._by_object:
            column.forget(places)
        self._object_generation = snapshot.object_generation

    def _follow(self, place: int) -> None:
        old, new = self._state_at[place], self._index.state_at[place]
        if old is new:
            return
        self._state_at[place] = new
        before = self._memo[old]
        after = self._verdict(new)
        if before == after:
            return
        bit = 1 << place
        self._take(before, bit)
        self._put(after, bit)

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
            before[place] = new
            found = memo.get(new)
            now = verdict(new) if found is None else found
            if was != now:
                gone.setdefault(was, []).append(place)
                come.setdefault(now, []).append(place)
        size = len(before)
        for one, those in gone.items():
            self._take(one, bits_of(those, size))
        for one, those in come.items():
            self._put(one, bits_of(those, size))

    def _put(self, verdict: _Verdict, bits: Bits) -> None:
        if isinstance(verdict, Status):
            self._rejected[verdict] = self._rejected.get(verdict, 0) | bits
            return
        level = verdict[0]
        self._fit |= bits
        known = self._levels.get(level)
        if known is None:
            insort(self._order, level)
            known = 0
        self._levels[level] = known | bits
        for number, partition in enumerate(self._partitions, 1):
            partition.add(verdict[number], bits)

    def _take(self, verdict: _Verdict, bits: Bits) -> None:
        if isinstance(verdict, Status):
            left = self._rejected[verdict] ^ bits
            if left:
                self._rejected[verdict] = left
            else:
                del self._rejected[verdict]
            return
        level = verdict[0]
        self._fit ^= bits
        left = self._levels[level] ^ bits
        if left:
            self._levels[level] = left
        else:
            del self._levels[level]
            del self._order[bisect_left(self._order, level)]
        for number, partition in enumerate(self._partitions, 1):
            partition.remove(verdict[number], bits)

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
        if self.kinds is not None:
            try:
                known = self.kinds.verdict(state, self._index.sample)
            except NoBounds:
                self.kinds = None
            else:
                if known is not None:
                    return known
        return self._ask(self._index.sample(state))

    def _forget_old_states(self) -> None:
        used = dict.fromkeys((*self._state_at, *self._index.states.values()))
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

    def feasible(self, among: Bits) -> Bits:
        """Those of these nodes that pass all filters that are not asked anew in each attempt."""
        found = self._fit & among
        for counted in self._domains:
            allowed = counted.now.allowed()
            if allowed is not None:
                found &= allowed
        for column in self.filters:
            if not found:
                break
            column.learn(found)
            found &= column.sets.get(None, 0)
        return found

    def rejections(self, name: str, among: Bits) -> Sequence[tuple[Status, Bits]]:
        """Return the rejections by the filter of this name of those of these nodes that pass all earlier ones."""
        for column in self.filters:
            if column.asked.name == name:
                return [(status, bits) for status, bits in column.groups(among) if status is not None]
        for counted in self._domains:
            if counted.name == name:
                return counted.now.rejections(among)
        return [
            (status, both)
            for status, bits in self._rejected.items()
            if status.plugin == name and (both := bits & among)
        ]

    def apart(self) -> tuple[Bits, ...]:
        """The sets of nodes that the pods tell apart though they may be in one state. Nodes are asked about their own objects only."""
        everything = self._index.all
        found: dict[Bits, None] = {}
        columns: list[AnswerColumn[Status | None] | AnswerColumn[int]] = [*self.filters, *self.scorers]
        for column in columns:
            column.learn(everything)
            found.update(dict.fromkeys(column.sets.values()))
        return tuple(bits for bits in found if bits != everything)

    def choose(
        self, feasible: Bits, start: int, also: Sequence[tuple[int, Groups]] = (), *, fewest: bool
    ) -> Found:
        """The best of these nodes, of which there must be one; among equals the first at or after `start`, `fewest`: of those with the fewest pods.

        `also` are normalised scores of plugins that were asked in this attempt, with their weights.
        """
        count = feasible.bit_count()
        if count == 1:
            self.winners = feasible
            return Found(feasible.bit_length() - 1, 1, 1, 0)
        groups = combined(feasible, (*self._scores(feasible), *also))
        best, tied = self._best(groups)
        self.winners = self._index.fewest(tied) if fewest else tied
        return Found(first_from(self.winners, start), count, tied.bit_count(), best)

    def _scores(self, feasible: Bits) -> Iterable[tuple[int, Groups]]:
        evaluation = self._evaluation
        state, pod = evaluation.state, evaluation.pod
        for partition in self._partitions:
            yield partition.asked.weight, partition.normalized(state, pod, feasible)
        for column in self.scorers:
            yield column.asked.weight, normalized(column.asked, state, pod, column.groups(feasible))
        for counted in self._domains:
            scores = counted.now.scores(feasible)
            if scores is not None:
                yield counted.weight, scores

    def _best(self, groups: Groups) -> tuple[int, Bits]:
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


def combined(feasible: Bits, scores: Iterable[tuple[int, Groups]]) -> Groups:
    """The nodes by the sum of these weighted scores; a sum may come more than once."""
    groups: Groups = [(0, feasible)]
    for weight, own in scores:
        if len(own) == 1:
            more = weight * own[0][0]
            groups = [(score + more, bits) for score, bits in groups]
        else:
            groups = [
                (score + weight * more, both)
                for score, bits in groups
                for more, nodes in own
                if (both := bits & nodes)
            ]
    return groups


def _verdict_of(asked: Asked, state: CycleState, pod: PodInfo) -> Callable[[NodeInfo], Status | None]:
    return lambda node: asked.verdict(state, pod, node)


def _score_of(asked: Asked, state: CycleState, pod: PodInfo) -> Callable[[NodeInfo], int]:
    return lambda node: asked.raw_score(state, pod, node)

"""A shape: pods that no plugin can tell apart, and what is known of every node for them.

Per shape there is a table: which nodes pass the filters, and, for the scores that depend on a node's state alone, the set of nodes
for each sum (`levels`). It is brought up to date by looking at the nodes that changed since the shape's last use, and a state of nodes
is evaluated once, by asking the plugins themselves. Scores that are normalised over the feasible nodes, or depend on labels and domains,
are *partitions*: sets of nodes with an equal score. The best nodes are found among the intersections of these sets, best first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, cast

from tidelog.framework.interface import CycleState, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.scheduler.evaluation.node_index import Bits, NodeIndex, NodeState, bits_of, first_from

MEMO_SPARE = 1_000
"""So many verdicts on states that no node is in any more are remembered."""

Groups = list[tuple[int, Bits]]
"""(score, nodes with it)."""


class NotFast(Exception):
    """The plain evaluation has to answer: for this shape, at least as the cluster is now."""


class Found(NamedTuple):
    """The best place for a pod of the shape."""

    place: int
    feasible: int
    tied: int
    score: int


class Domains(Protocol):
    """What a plugin says that counts pods in topology domains, for one shape."""

    @property
    def skips_filter(self) -> bool:
        """As PreFilter would say for the cluster as it is now."""
        ...

    @property
    def has_no_say(self) -> bool:
        """It lets all nodes pass, and scores none, as the cluster is now."""
        ...

    def follow(self, place: int, node: NodeInfo) -> None:
        """The pods on the node at this place have changed."""
        ...

    def allowed(self, index: NodeIndex) -> Bits | None:
        """The nodes that its filter lets pass; None for all."""
        ...

    def scores(self, feasible: Bits) -> Groups | None:
        """Normalised scores of the feasible nodes, None where it skips or all have 0."""
        ...


class Partition:
    """Nodes by a raw score that depends on the node's own object, and how the plugin normalises such scores."""

    def __init__(self, plugin: Any, weight: int) -> None:
        self.weight = weight
        self.sets: dict[int, Bits] = {}
        self._normalize: Callable[..., list[int]] | None = getattr(plugin, "normalize_scores", None)

    def add(self, raw: int, bits: Bits) -> None:
        self.sets[raw] = self.sets.get(raw, 0) | bits

    def remove(self, raw: int, bits: Bits) -> None:
        left = self.sets[raw] ^ bits
        if left:
            self.sets[raw] = left
        else:
            del self.sets[raw]

    def scores(self, state: CycleState, pod: PodInfo, feasible: Bits) -> Groups:
        """Normalised over the raw scores that feasible nodes have: how many have each does not matter to any default plugin."""
        sets = self.sets
        if len(sets) == 1:
            raws, found = list(sets), [feasible]
        else:
            pairs = [(raw, both) for raw, bits in sets.items() if (both := bits & feasible)]
            raws, found = [raw for raw, _ in pairs], [both for _, both in pairs]
        if self._normalize is not None:
            raws = self._normalize(state, pod, (), raws)
        return list(zip(raws, found, strict=True))


_Verdict = tuple[int, int] | Status
"""Of the nodes in a state: their sum of plain scores and the taints' raw score, or what the first filter says that they do not pass."""


class Evaluation(NamedTuple):
    """How the plugins that look at one node alone are asked for the pods of a shape."""

    state: CycleState
    pod: PodInfo
    filters: Sequence[Any]
    scorers: Sequence[tuple[Any, int]]
    """(plugin, weight) of those whose scores count as they are."""
    tainted: tuple[Any, int] | None
    """TaintToleration and its weight: its scores are normalised."""
    labelled: Any
    """NodeAffinity, if it filters."""
    after_labels: frozenset[str]
    """The names of the filters that come after it."""
    preferring: tuple[Any, int] | None
    """NodeAffinity and its weight, if it scores."""


class Shape:
    """The table of one shape. `domains` are the plugins with something to say about it, with their weights."""

    def __init__(
        self, index: NodeIndex, evaluation: Evaluation, domains: Sequence[tuple[Domains, int]]
    ) -> None:
        self._index = index
        self._evaluation = evaluation
        self._domains = domains
        self._generation = index.snapshot.generation
        self._memo: dict[NodeState, _Verdict] = {}
        self._state_at = list(index.state_at)
        self._fit: Bits = 0
        """Nodes that pass everything but the filters that look at labels or domains."""
        self._levels: dict[int, Bits] = {}
        """Sum of plain scores → its nodes."""
        self._order: list[int] = []
        """The keys of `_levels`, ascending."""
        self._partitions: list[Partition] = []
        self._taints: Partition | None = None
        self._rejected: dict[Status, Bits] = {}
        """What such filters say → of which nodes."""
        self._labelled: Bits | None = None
        """Nodes that NodeAffinity lets pass; None for all."""
        self._unlabelled: dict[Status, Bits] = {}
        """What NodeAffinity says → of which nodes."""
        self.apart: tuple[Bits, ...] = ()
        """The sets of nodes that the pods tell apart by labels. They hold as long as the table."""
        self.winners: Bits = 0
        """The equally good nodes of the latest choice."""
        self._fill()

    # --- keeping up ---------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look at the nodes that changed since the last use. The index must be as the snapshot is."""
        snapshot = self._index.snapshot
        if snapshot.generation == self._generation:
            return
        changed = snapshot.changed_since(self._generation)
        if changed is None:
            raise NotFast("too many changes")
        for name in changed:
            place = snapshot.place_of(name)
            self._follow(place)
            if self._domains:
                node = snapshot.nodes[place]
                for domain, _ in self._domains:
                    domain.follow(place, node)
        self._generation = snapshot.generation

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

    def _fill(self) -> None:
        evaluation = self._evaluation
        if evaluation.tainted is not None:
            self._taints = Partition(*evaluation.tainted)
            self._partitions.append(self._taints)
        for state in self._index.states.values():
            if state.bits:
                self._put(self._verdict(state), state.bits)
        if evaluation.labelled is not None:
            self._fill_labels(evaluation.labelled)
        if evaluation.preferring is not None:
            self._fill_preferences(*evaluation.preferring)

    def _fill_labels(self, plugin: Any) -> None:
        places: dict[Status | None, list[int]] = {None: []}
        evaluation, nodes = self._evaluation, self._index.snapshot.nodes
        for place, node in enumerate(nodes):
            status = plugin.filter(evaluation.state, evaluation.pod, node)
            places.setdefault(status, []).append(place)
        self._labelled = bits_of(places.pop(None), len(nodes))
        self._tell_apart(self._labelled)
        self._unlabelled = {
            status.by(plugin.name): bits_of(found, len(nodes))
            for status, found in places.items()
            if status is not None
        }
        for bits in self._unlabelled.values():
            self._tell_apart(bits)

    def _fill_preferences(self, plugin: Any, weight: int) -> None:
        places: dict[int, list[int]] = {}
        evaluation, nodes = self._evaluation, self._index.snapshot.nodes
        for place, node in enumerate(nodes):
            raw = plugin.score(evaluation.state, evaluation.pod, node)
            places.setdefault(raw, []).append(place)
        partition = Partition(plugin, weight)
        for raw, found in places.items():
            partition.add(raw, bits_of(found, len(nodes)))
            self._tell_apart(partition.sets[raw])
        self._partitions.append(partition)

    def _tell_apart(self, bits: Bits) -> None:
        if bits and bits != self._index.all:
            self.apart = (*self.apart, bits)

    def _put(self, verdict: _Verdict, bits: Bits) -> None:
        if isinstance(verdict, Status):
            self._rejected[verdict] = self._rejected.get(verdict, 0) | bits
            return
        level, raw = verdict
        self._fit |= bits
        known = self._levels.get(level)
        if known is None:
            insort(self._order, level)
            known = 0
        self._levels[level] = known | bits
        if self._taints is not None:
            self._taints.add(raw, bits)

    def _take(self, verdict: _Verdict, bits: Bits) -> None:
        if isinstance(verdict, Status):
            left = self._rejected[verdict] ^ bits
            if left:
                self._rejected[verdict] = left
            else:
                del self._rejected[verdict]
            return
        level, raw = verdict
        self._fit ^= bits
        left = self._levels[level] ^ bits
        if left:
            self._levels[level] = left
        else:
            del self._levels[level]
            del self._order[bisect_left(self._order, level)]
        if self._taints is not None:
            self._taints.remove(raw, bits)

    # --- asking the plugins -------------------------------------------------------------------------------------------

    def _verdict(self, state: NodeState) -> _Verdict:
        memo = self._memo
        try:
            return memo[state]
        except KeyError:
            pass
        verdict = memo[state] = self._ask(self._index.sample(state))
        if len(memo) > 3 * len(self._index.states) + MEMO_SPARE:
            self._forget_old_states()
        return verdict

    def _forget_old_states(self) -> None:
        used = dict.fromkeys((*self._state_at, *self._index.states.values()))
        self._memo = {state: verdict for state, verdict in self._memo.items() if state in used}

    def _ask(self, node: NodeInfo) -> _Verdict:
        evaluation = self._evaluation
        state, pod = evaluation.state, evaluation.pod
        for plugin in evaluation.filters:
            status = plugin.filter(state, pod, node)
            if status is not None:
                if not status.is_rejected:
                    raise NotFast("a filter failed")
                return cast("Status", status.by(plugin.name))
        level = 0
        for plugin, weight in evaluation.scorers:
            level += weight * plugin.score(state, pod, node)
        tainted = evaluation.tainted
        return level, 0 if tainted is None else tainted[0].score(state, pod, node)

    # --- choosing -----------------------------------------------------------------------------------------------------

    def feasible(self) -> Bits:
        """The nodes that pass all filters."""
        found = self._fit if self._labelled is None else self._fit & self._labelled
        for domain, _ in self._domains:
            allowed = domain.allowed(self._index)
            if allowed is not None:
                found &= allowed
        return found

    def rejections(self, among: Bits) -> list[tuple[Status, Bits]]:
        """What the first filter that they do not pass says of these nodes. Not to be asked while a filter counts domains."""
        found = []
        passing, later = self._labelled, self._evaluation.after_labels
        for status, bits in self._rejected.items():
            if passing is not None and status.plugin in later:
                bits &= passing
            if bits & among:
                found.append((status, bits & among))
        for status, bits in self._unlabelled.items():
            for earlier, own in self._rejected.items():
                if earlier.plugin not in later:
                    bits &= ~own
            if bits & among:
                found.append((status, bits & among))
        return found

    def choose(self, feasible: Bits, start: int) -> Found:
        """The best of these nodes, of which there must be one; among equals the first at or after `start`."""
        count = feasible.bit_count()
        if count == 1:
            self.winners = feasible
            return Found(feasible.bit_length() - 1, 1, 1, 0)
        groups: Groups = [(0, feasible)]
        for weight, scores in self._scores(feasible):
            if len(scores) == 1:
                more = weight * scores[0][0]
                groups = [(score + more, bits) for score, bits in groups]
            else:
                groups = [
                    (score + weight * more, both)
                    for score, bits in groups
                    for more, own in scores
                    if (both := bits & own)
                ]
        best, tied = self._best(groups)
        self.winners = tied
        return Found(first_from(tied, start), count, tied.bit_count(), best)

    def _scores(self, feasible: Bits) -> Iterable[tuple[int, Groups]]:
        evaluation = self._evaluation
        for partition in self._partitions:
            yield partition.weight, partition.scores(evaluation.state, evaluation.pod, feasible)
        for domain, weight in self._domains:
            scores = domain.scores(feasible)
            if scores is not None:
                yield weight, scores

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

"""InterPodAffinity for one shape, kept up to date: what the pods of each node contribute to each topology pair.

A node whose pods changed contributes anew; the difference goes to the pairs, and from there to the sets of nodes that are near, too near
or unwanted, and of those with each weight. A question costs a few operations on sets for each topology key that somebody names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tidelog.api.selectors import Labels
from tidelog.framework.interface import CycleState, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import Bits, Groups, NodeSets, bits_of
from tidelog.plugins.domain_counts import PairCounts, TopologyPair
from tidelog.plugins.inter_pod_affinity.counts import (
    FILTER_STATE,
    NOT_NEAR,
    TOO_NEAR,
    UNWANTED,
    AffinityCounts,
    FoundPairs,
    Incoming,
)

_Weighed = Mapping[TopologyPair, int]
_NOTHING: _Weighed = {}
PLUGIN = "InterPodAffinity"
Normalize = Callable[[list[int]], list[int]]


class _Pairs:
    """Counts per topology pair, and per key the nodes of the pairs that have one."""

    def __init__(self, index: NodeSets, keys: dict[str, None]) -> None:
        """`keys` learns each topology key that ever had a pair with a count."""
        self._index = index
        self._keys = keys
        self._counts: dict[TopologyPair, int] = {}
        self.at: dict[int, FoundPairs] = {}
        """Place → what its pods contribute; nodes whose pods contribute nothing are left out."""
        self.sets: dict[str, Bits] = {}
        """Key → nodes of its pairs with a count. Keys without any are left out."""
        self._moving: Bits = 0
        """Places that are in no set for the time being."""

    def begin_moves(self, places: Bits) -> None:
        """Take these places out of all sets, until `end_moves`."""
        self._moving = places
        self.sets = {key: left for key, bits in self.sets.items() if (left := bits & ~places)}

    def end_moves(self, places: Iterable[int]) -> None:
        """Put them where they belong."""
        self._moving = 0
        for key in self._keys:
            values = self._index.topology(key).value_at
            found = self.sets.get(key, 0)
            for place in places:
                value = values[place]
                if value is not None and (key, value) in self._counts:
                    found |= 1 << place
            if found:
                self.sets[key] = found

    def set(self, place: int, new: FoundPairs) -> None:
        """The node at this place contributes this from now on."""
        old = self.at.get(place)
        if old == new or not (old or new):
            return
        if new:
            self.at[place] = new
        else:
            del self.at[place]
        for pair, count in new.items():
            self._add(pair, count)
        if old:
            for pair, count in old.items():
                self._add(pair, -count)

    def _add(self, pair: TopologyPair, by: int) -> None:
        counts = self._counts
        old = counts.get(pair, 0)
        new = old + by
        if new:
            counts[pair] = new
        else:
            counts.pop(pair, None)
        if bool(old) != bool(new):
            key, value = pair
            self._keys[key] = None
            bits = self.sets.get(key, 0) ^ (self._index.topology(key).bits.get(value, 0) & ~self._moving)
            if bits:
                self.sets[key] = bits
            else:
                self.sets.pop(key, None)

    def as_counts(self) -> PairCounts:
        """For a state that can be changed."""
        return PairCounts(dict(self._counts))

    def anywhere(self) -> Bits:
        """The nodes of any pair with a count."""
        found = 0
        for bits in self.sets.values():
            found |= bits
        return found


class _Weights:
    """Weights per topology pair, and per key the nodes with each weight other than 0."""

    def __init__(self, index: NodeSets, keys: dict[str, None]) -> None:
        """`keys` learns each topology key that ever had a pair with a weight, or with weights that add up to 0."""
        self._index = index
        self._keys = keys
        self._pairs: dict[TopologyPair, int] = {}
        self.at: dict[int, _Weighed] = {}
        """Place → what its pods contribute; nodes whose pods contribute nothing, not even a sum of 0, are left out."""
        self.sets: dict[str, dict[int, Bits]] = {}
        self._is_settled = False
        """The sets are as the pairs are. While all nodes are counted for the first time, only the pairs are kept."""
        self._moving: Bits = 0
        """Places that are in no set for the time being."""

    def begin_moves(self, places: Bits) -> None:
        """Take these places out of all sets, until `end_moves`."""
        self._moving = places
        self.sets = {
            key: {weight: left for weight, bits in sets.items() if (left := bits & ~places)}
            for key, sets in self.sets.items()
        }

    def end_moves(self, places: Iterable[int]) -> None:
        """Put them where they belong."""
        self._moving = 0
        for key in self._keys:
            values, sets = self._index.topology(key).value_at, self.sets.setdefault(key, {})
            for place in places:
                value = values[place]
                weight = 0 if value is None else self._pairs.get((key, value), 0)
                if weight:
                    sets[weight] = sets.get(weight, 0) | 1 << place
        self.sets = {key: sets for key, sets in self.sets.items() if sets}

    def settle(self) -> None:
        """All nodes have been counted."""
        self._is_settled = True
        for (key, value), weight in self._pairs.items():
            sets = self.sets.setdefault(key, {})
            sets[weight] = sets.get(weight, 0) | self._index.topology(key).bits[value]

    def __bool__(self) -> bool:
        """Whether any term contributes: else there is nothing to score."""
        return bool(self.at)

    def set(self, place: int, new: _Weighed) -> None:
        """The node at this place contributes this from now on."""
        old = self.at.get(place, _NOTHING)
        if old == new:
            return
        if new:
            self.at[place] = new
        else:
            del self.at[place]
        for pair, weight in new.items():
            self._keys[pair[0]] = None
            self._add(pair, weight - old.get(pair, 0))
        for pair, weight in old.items():
            if pair not in new:
                self._add(pair, -weight)

    def _add(self, pair: TopologyPair, by: int) -> None:
        if not by:
            return
        old = self._pairs.get(pair, 0)
        new = self._pairs[pair] = old + by
        if not new:
            del self._pairs[pair]
        if not self._is_settled:
            return
        key, value = pair
        bits = self._index.topology(key).bits.get(value, 0) & ~self._moving
        if not bits:
            return
        sets = self.sets.setdefault(key, {})
        if old:
            left = sets[old] ^ bits
            if left:
                sets[old] = left
            else:
                del sets[old]
        if new:
            sets[new] = sets.get(new, 0) | bits
        elif not sets:
            del self.sets[key]


class AffinityDomains:
    """Implements `tidelog.framework.offers.Domains`."""

    reads_nodes = False

    def __init__(
        self,
        incoming: Incoming,
        index: NodeSets,
        normalize: Normalize,
        *,
        hard_weight: int,
        ignores_preferred_of_others: bool,
    ) -> None:
        terms = incoming.pod.terms
        self._incoming = incoming
        self._index = index
        self._normalize = normalize
        self._hard_weight = hard_weight
        self._keys = {term.topology_key: None for term in (*terms.affinity, *terms.anti_affinity)}
        self._near, self._too_near = _Pairs(index, self._keys), _Pairs(index, self._keys)
        self._unwanted, self._weights = _Pairs(index, self._keys), _Weights(index, self._keys)
        self._is_near_asked, self._is_far_asked = bool(terms.affinity), bool(terms.anti_affinity)
        self._asks = self._is_near_asked or self._is_far_asked
        self._prefers = prefers = bool(terms.preferred_affinity or terms.preferred_anti_affinity)
        self._scores = self._prefers or not ignores_preferred_of_others
        self._looks_at_all = self._asks or prefers
        self._meets_itself = incoming.selects_with_all(terms.affinity, incoming.pod)
        snapshot = index.snapshot
        # Sets of nodes do not depend on the order in which they are filled.
        nodes = snapshot.nodes if self._asks or self._prefers else snapshot.nodes_with_affinity_pods()
        for node in nodes:
            self.follow(index.place_of(node.name), node)
        incoming.forget_weighed()
        self._weights.settle()

    @property
    def skips_filter(self) -> bool:
        return not self._asks and not self._unwanted.sets

    @property
    def has_no_say(self) -> bool:
        return self.skips_filter and not self._weights

    @property
    def reads_pods(self) -> bool:
        if self._looks_at_all or self._unwanted.at or self._weights.at:
            return True
        for _ in self._index.snapshot.nodes_with_affinity_pods():
            return True  # Pods with terms may select this one, or drop out of what was counted.
        return False

    @property
    def reads_labels(self) -> Sequence[str]:
        return tuple(self._keys)

    def follow_moves(self, moves: Mapping[int, Labels | None]) -> bool:
        all_counted = (self._near, self._too_near, self._unwanted, self._weights)
        places = bits_of(list(moves), self._index.size) if moves else 0
        for counted in all_counted:
            counted.begin_moves(places)
        for place in moves:
            node = self._index.node_or_none(place)
            if node is not None:
                self.follow(place, node)
            else:
                self._near.set(place, {})
                self._too_near.set(place, {})
                self._unwanted.set(place, {})
                self._weights.set(place, _NOTHING)
        for counted in all_counted:
            counted.end_moves(moves)
        return True

    def follow(self, place: int, node: NodeInfo) -> None:
        if not (
            self._looks_at_all
            or node.affinity_pods
            or place in self._unwanted.at
            or place in self._weights.at
        ):
            return
        incoming, labels = self._incoming, node.labels
        if node.required_anti_affinity_pods or place in self._unwanted.at:
            existing: FoundPairs = {}
            incoming.add_existing(existing, node.required_anti_affinity_pods.values(), labels)
            self._unwanted.set(place, existing)
        if self._is_near_asked:
            near: FoundPairs = {}
            incoming.add_affinity(near, node.pods.values(), labels)
            self._near.set(place, near)
        if self._is_far_asked:
            too_near: FoundPairs = {}
            incoming.add_anti_affinity(too_near, node.pods.values(), labels)
            self._too_near.set(place, too_near)
        if self._scores:
            others = node.pods if self._prefers else node.affinity_pods
            self._weights.set(place, self._weighed(others, labels) if others else _NOTHING)

    def _weighed(self, others: Mapping[str, PodInfo], labels: Labels) -> _Weighed:
        sums = self._incoming.weigh_all(others.values(), self._hard_weight)
        return {(key, labels[key]): weight for key, weight in sums.items() if key in labels}

    def allowed(self) -> Bits | None:
        if self.skips_filter:
            return None
        return self._near_enough() & ~(self._too_near.anywhere() | self._unwanted.anywhere())

    def _near_enough(self) -> Bits:
        """The nodes that meet the pod's own affinity."""
        index, affinity = self._index, self._incoming.pod.terms.affinity
        found = index.all
        if not affinity:
            return found
        near = self._near.sets
        if not near and self._meets_itself:
            # Nobody anywhere meets the terms, and this pod does: it starts, wherever the keys are.
            for term in affinity:
                found &= index.topology(term.topology_key).everywhere
            return found
        for term in affinity:
            found &= near.get(term.topology_key, 0)
        return found

    def rejections(self, among: Bits) -> Sequence[tuple[Status, Bits]]:
        if self.skips_filter:
            return ()
        near = self._near_enough()
        too_near = self._too_near.anywhere()
        found = (
            (NOT_NEAR, among & ~near),
            (TOO_NEAR, among & near & too_near),
            (UNWANTED, among & near & ~too_near & self._unwanted.anywhere()),
        )
        return [(status.by(PLUGIN), bits) for status, bits in found if bits]

    def fill(self, state: CycleState) -> None:
        if not self.skips_filter:
            counts = (pairs.as_counts() for pairs in (self._unwanted, self._near, self._too_near))
            state.write(FILTER_STATE, AffinityCounts(self._incoming, self._meets_itself, *counts))

    def scores(self, feasible: Bits) -> Groups | None:
        if not self._weights:
            return None
        groups: Groups = [(0, feasible)]
        for sets in self._weights.sets.values():
            split: Groups = []
            for raw, bits in groups:
                rest = bits
                for weight, own in sets.items():
                    both = bits & own
                    if both:
                        split.append((raw + weight, both))
                        rest ^= both
                if rest:
                    split.append((raw, rest))
            groups = split
        scores = self._normalize([raw for raw, _ in groups])
        return [(score, bits) for score, (_, bits) in zip(scores, groups, strict=True)]

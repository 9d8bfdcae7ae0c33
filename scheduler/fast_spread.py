"""PodTopologySpread for one shape, kept up to date: counts per domain, and the domains with each count as one set of nodes.

A node whose pods changed costs counting that node's pods anew. The filter is the union of the sets whose counts the skew allows, the
score one step for each combination of counts: both depend on how many different counts there are, not on how many nodes or domains.
The rules themselves are those of `pod_topology_spread_filter` and `pod_topology_spread_score`, which the tests hold this to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tidelog.plugins.arithmetic import round_half_away
from tidelog.plugins.node_info import NodeInfo, PodInfo
from tidelog.plugins.pod_topology_spread_constraints import HOSTNAME, Constraint, has_all_keys
from tidelog.scheduler.fast_index import Bits, NodeIndex, Topology
from tidelog.scheduler.fast_shape import Groups, NotFast


class _Counted:
    """One constraint's matching pods, per domain, and the nodes of all domains with the same count."""

    def __init__(
        self, pod: PodInfo, constraint: Constraint, among: Sequence[Constraint], index: NodeIndex
    ) -> None:
        """`among`: a node counts only if it has the keys of all these. A constraint on the pods of each node alone needs none."""
        self.constraint = constraint
        self.topology: Topology = index.topology(constraint.topology_key)
        self.itself = int(constraint.matches(pod.labels))
        self._pod = pod
        self._values = self.topology.value_at
        self._here: list[int] = []
        """Place → matching pods on a node that counts; -1 on one that does not."""
        counts: dict[str, int] = {}
        for node, value in zip(index.snapshot.nodes, self._values, strict=True):
            here = -1
            if (
                value is not None
                and has_all_keys(node.labels, among)
                and constraint.admits(pod.pod, node.node)
            ):
                here = constraint.count_pods(node.pods.values(), pod.namespace)
                counts[value] = counts.get(value, 0) + here
            self._here.append(here)
        self.frequency: dict[int, int] = {}
        """Count → how many of the domains that count have it."""
        for count in counts.values():
            self.frequency[count] = self.frequency.get(count, 0) + 1
        self.domains = len(counts)
        self.sets: dict[int, Bits] = {}
        """Count → the nodes of the domains with it; domains that do not count have 0."""
        self._counts = counts
        for value, bits in self.topology.bits.items():
            count = counts.get(value, 0)
            self.sets[count] = self.sets.get(count, 0) | bits

    def follow(self, place: int, node: NodeInfo) -> None:
        before = self._here[place]
        if before < 0:
            return
        here = self.constraint.count_pods(node.pods.values(), self._pod.namespace)
        if here == before:
            return
        self._here[place] = here
        value = self._values[place]
        assert value is not None
        old = self._counts[value]
        new = self._counts[value] = old + here - before
        _move(self.frequency, old, new)
        bits = self.topology.bits[value]
        left = self.sets[old] ^ bits
        if left:
            self.sets[old] = left
        else:
            del self.sets[old]
        self.sets[new] = self.sets.get(new, 0) | bits

    def allowed(self) -> Bits:
        """The nodes whose domain may take one pod of the shape more."""
        constraint = self.constraint
        enough = self.domains >= constraint.min_domains
        minimum = min(self.frequency, default=0) if enough else 0
        most = constraint.max_skew + minimum - self.itself
        found = 0
        for count, bits in self.sets.items():
            if count <= most:
                found |= bits
        return found

    def present(self, scored: Bits) -> int:
        """How many domains the scored nodes are in."""
        topology = self.topology
        if not topology.everywhere & ~scored:
            return len(topology.bits)
        return sum(1 for bits in topology.bits.values() if bits & scored)


def _move(frequency: dict[int, int], old: int, new: int) -> None:
    if frequency[old] == 1:
        del frequency[old]
    else:
        frequency[old] -= 1
    frequency[new] = frequency.get(new, 0) + 1


class Spread:
    """Implements `fast_shape.Domains`."""

    def __init__(
        self,
        pod: PodInfo,
        hard: Sequence[Constraint],
        soft: Sequence[Constraint],
        needs_all_keys: bool,
        index: NodeIndex,
    ) -> None:
        self.skips_filter = not hard
        self._hard = [_Counted(pod, constraint, hard, index) for constraint in hard]
        among = tuple(soft) if needs_all_keys else ()
        self._soft = [
            _Counted(pod, _for_score(constraint), () if constraint.topology_key == HOSTNAME else among, index)
            for constraint in soft
        ]
        self._needs_all_keys = needs_all_keys
        if not needs_all_keys and any("" in counted.topology.bits for counted in self._soft):
            raise NotFast("nodes without a key share a domain with those whose value is empty")

    @property
    def has_no_say(self) -> bool:
        return not self._hard and not self._soft

    def follow(self, place: int, node: NodeInfo) -> None:
        for counted in self._hard:
            counted.follow(place, node)
        for counted in self._soft:
            counted.follow(place, node)

    def allowed(self, index: NodeIndex) -> Bits | None:
        if not self._hard:
            return None
        found = index.all
        for counted in self._hard:
            found &= counted.allowed()
        return found

    def scores(self, feasible: Bits) -> Groups | None:
        if not self._soft:
            return None
        scored = feasible
        if self._needs_all_keys:
            for counted in self._soft:
                scored &= counted.topology.everywhere
        groups = self._raw_groups(scored)
        raws = [round_half_away(raw) for raw, _ in groups]
        lowest, highest = min(raws, default=0), max(raws, default=0)
        found: Groups = [
            (100 * (highest + lowest - raw) // highest if highest else 100, bits)
            for raw, (_, bits) in zip(raws, groups, strict=True)
        ]
        ignored = feasible ^ scored
        if ignored:
            found.append((0, ignored))
        return found

    def _raw_groups(self, scored: Bits) -> list[tuple[float, Bits]]:
        """Constraint by constraint in their order, because the sum of floats depends on it."""
        if not scored:
            return []
        groups: list[tuple[float, Bits]] = [(0.0, scored)]
        for counted in self._soft:
            constraint, everywhere = counted.constraint, counted.topology.everywhere
            if constraint.topology_key == HOSTNAME:
                size = scored.bit_count()
            else:
                size = counted.present(scored)
                if not self._needs_all_keys and scored & ~everywhere:
                    size += 1  # A node without the key is in the domain of the empty value.
            weight, more = math.log(size + 2), constraint.max_skew - 1
            split: list[tuple[float, Bits]] = []
            for raw, bits in groups:
                outside = bits & ~everywhere
                if outside:
                    split.append((raw, outside))
                for count, own in counted.sets.items():
                    both = bits & own
                    if both:
                        split.append((raw + (count * weight + more), both))
            groups = split
        return groups


def _for_score(constraint: Constraint) -> Constraint:
    """For a host name every node's pods count, whatever its taints and labels."""
    if constraint.topology_key != HOSTNAME:
        return constraint
    return constraint._replace(honors_affinity=False, honors_taints=False)

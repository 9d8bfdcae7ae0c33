"""PodTopologySpread for one shape, kept up to date: counts per domain, and the domains with each count as one set of nodes.

A node whose pods changed costs counting that node's pods anew. The filter is the union of the sets whose counts the skew allows, the
score one step for each combination of counts: both depend on how many different counts there are, not on how many nodes or domains.
The rules themselves are those of `filter.py` and `score.py`, which the tests hold this to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidelog.api.selectors import Labels
from tidelog.api.well_known import HOSTNAME
from tidelog.framework.arithmetic import round_half_away
from tidelog.framework.interface import CycleState, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import Bits, Groups, NodeSets, SizeMemo, Topology, bits_of, picked
from tidelog.framework.offers import NotCountable
from tidelog.plugins.domain_counts import DomainCounts
from tidelog.plugins.pod_topology_spread.constraints import Constraint, countable
from tidelog.plugins.pod_topology_spread.fallback import PLUGIN
from tidelog.plugins.pod_topology_spread.filter import FILTER_STATE, NO_DOMAIN, TOO_MANY, SpreadCounts
from tidelog.plugins.pod_topology_spread.score import normalized_score, weight_of

GROUPS_MAX = 4_000
"""So many groups of nodes that constraints tell apart are intersected with each other's; beyond that each node is looked at alone."""


class _Nodes:
    """State shared by the constraints of one pod while they count. Not kept: it grows with the pods of the cluster."""

    def __init__(self, pod: PodInfo, index: NodeSets) -> None:
        self.index = index
        self._pod = pod
        self._admitted: dict[tuple[bool, bool], Bits] = {}
        self._zeros: dict[Bits, list[int]] = {}
        self.peers: dict[tuple[tuple[str, str], ...], tuple[Labels, list[int]]] = {}
        """Labels, as pairs → these, and a place for each pod that has them and may count. Of pods there are many, of labels few."""
        peers = self.peers
        for place, node in index.occupied():
            if node.pods:
                for labels in countable(node.pods.values(), pod.namespace):
                    key = tuple(labels.items())
                    known = peers.get(key)
                    if known is None:
                        known = peers[key] = (labels, [])
                    known[1].append(place)

    def admitted(self, constraint: Constraint) -> Bits:
        """The nodes that count as far as the constraint's policies are concerned."""
        if not any(constraint.policies):
            return self.index.all
        known = self._admitted.get(constraint.policies)
        if known is None:
            pod = self._pod.pod
            places = [place for place, node in self.index.occupied() if constraint.admits(pod, node.node)]
            known = self._admitted[constraint.policies] = bits_of(places, self.index.size)
        return known

    def zeros(self, counting: Bits) -> list[int]:
        """Place → 0 for a node that counts, -1 for another. Not to be changed: most constraints share it."""
        known = self._zeros.get(counting)
        if known is None:
            size = self.index.size
            known = [0 if bit == "1" else -1 for bit in reversed(f"{counting:0{size}b}")]
            self._zeros[counting] = known
        return known

    def with_keys(self, keys: Iterable[str]) -> Bits:
        """The nodes that have all these keys."""
        found = self.index.all
        for key in keys:
            found &= self.index.topology(key).everywhere
        return found


class _Counted:
    """One constraint's matching pods, per domain, and the nodes of all domains with the same count."""

    def __init__(self, pod: PodInfo, constraint: Constraint, keys: Sequence[str], nodes: _Nodes) -> None:
        """`keys`: a node counts only if it has these."""
        self.constraint = constraint
        self._pod = pod.pod
        self._keys = keys
        self.topology: Topology = nodes.index.topology(constraint.topology_key)
        self.itself = int(constraint.matches(pod.labels))
        self._values = self.topology.value_at
        counting = nodes.with_keys(keys) & self.topology.everywhere & nodes.admitted(constraint)
        self._counting: Bits = counting
        self._here = nodes.zeros(counting).copy()
        """Place → matching pods on a node that counts; -1 on one that does not."""
        counts = {value: 0 for value, bits in self.topology.bits.items() if bits & counting}
        here, values = self._here, self._values
        for labels, places in nodes.peers.values():
            if constraint.count((labels,)):
                for place in places:
                    if here[place] >= 0:
                        here[place] += 1
                        counts[values[place]] += 1  # type: ignore[index] # A node that counts has the key.
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

    def follow_moves(self, moves: Mapping[int, Labels | None], nodes: NodeSets) -> None:
        """As `FollowsMoves`. Pods that may count at these places are to be told afterwards, also if there are as many as before."""
        key, bits_now, here = self.constraint.topology_key, self.topology.bits, self._here
        here += [-1] * (nodes.size - len(here))
        before: dict[str, Bits] = {}
        counts: dict[str, int] = {}
        """Domain that some node leaves or comes to → its nodes and its count until now, and without the pods on these nodes."""
        moving = 0
        for place, labels in moves.items():
            bit = 1 << place
            moving |= bit
            for value, own in ((None if labels is None else labels.get(key), bit), (self._values[place], 0)):
                if value is not None:
                    before[value] = before.get(value, 0) | own
        for value, own in before.items():
            counts[value] = self._drop(value, own | bits_now.get(value, 0) & ~moving)
        for place, labels in moves.items():
            if here[place] > 0:
                assert labels is not None, "pods count where a node is"
                counts[labels[key]] -= here[place]
            counts_here = self._counts_at(place, nodes)
            here[place] = 0 if counts_here else -1
            if counts_here != bool(self._counting >> place & 1):
                self._counting ^= 1 << place
        for value, count in counts.items():
            self._put(value, count, bits_now.get(value, 0))
        self.domains = len(self._counts)

    def _drop(self, value: str, nodes: Bits) -> int:
        """Forget a domain of these nodes; returns its count."""
        count = self._counts.pop(value, None)
        if count is not None:
            self.frequency[count] -= 1
            if not self.frequency[count]:
                del self.frequency[count]
        if nodes:
            left = self.sets[count or 0] ^ nodes
            if left:
                self.sets[count or 0] = left
            else:
                del self.sets[count or 0]
        return count or 0

    def _put(self, value: str, count: int, nodes: Bits) -> None:
        """Know a domain of these nodes."""
        if nodes & self._counting:
            self._counts[value] = count
            self.frequency[count] = self.frequency.get(count, 0) + 1
        if nodes:
            self.sets[count] = self.sets.get(count, 0) | nodes

    def _counts_at(self, place: int, nodes: NodeSets) -> bool:
        node = nodes.node_or_none(place)
        return (
            node is not None
            and self._values[place] is not None
            and all(key in node.labels for key in self._keys)
            and (not any(self.constraint.policies) or self.constraint.admits(self._pod, node.node))
        )

    def follow(self, place: int, labels: list[Labels]) -> None:
        """Set what may count at this place from now on."""
        before = self._here[place]
        if before < 0:
            return
        here = self.constraint.count(labels)
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

    def as_dict(self) -> dict[str, int]:
        """Domain → matching pods, of the domains that count."""
        return dict(self._counts)

    def present(self, scored: Bits) -> int:
        """How many domains the scored nodes are in."""
        topology = self.topology
        if not topology.everywhere & ~scored:
            return len(topology.bits)
        return sum(1 for bits in topology.bits.values() if bits & scored)

    def per_domain(self, weight: float, more: int) -> dict[str | None, float]:
        """Domain → what it adds to the score of its nodes."""
        counts = self._counts
        return {value: counts.get(value, 0) * weight + more for value in self.topology.bits}


def _move(frequency: dict[int, int], old: int, new: int) -> None:
    if frequency[old] == 1:
        del frequency[old]
    else:
        frequency[old] -= 1
    frequency[new] = frequency.get(new, 0) + 1


class SpreadDomains:
    """Implements `tidelog.framework.offers.Domains`."""

    reads_pods = True

    def __init__(
        self,
        pod: PodInfo,
        hard: Sequence[Constraint],
        soft: Sequence[Constraint],
        needs_all_keys: bool,
        index: NodeSets,
        *,
        upstream: bool,
    ) -> None:
        """Raises NotCountable."""
        self.skips_filter = not hard
        self.reads_labels = tuple(dict.fromkeys(one.topology_key for one in (*hard, *soft)))
        spec = pod.pod.spec
        chooses = bool(spec.node_selector) or (
            spec.affinity is not None and spec.affinity.node_affinity is not None
        )
        self.reads_nodes = any(
            one.honors_taints or (one.honors_affinity and chooses) for one in (*hard, *soft)
        )
        self._pod = pod
        self._index = index
        self._upstream = upstream
        self._hard: list[_Counted] = []
        self._soft: list[_Counted] = []
        self._needs_all_keys = needs_all_keys
        self._namespace = pod.namespace
        self._size = SizeMemo()
        """Of the nodes that are scored."""
        nodes = _Nodes(pod, index)
        keys = [one.topology_key for one in hard]
        self._hard = [_Counted(pod, constraint, keys, nodes) for constraint in hard]
        keys = [one.topology_key for one in soft] if needs_all_keys else []
        self._soft = [
            # Of a host name's pods those of each node count alone, whatever other keys it has.
            _Counted(pod, _for_score(one), () if one.topology_key == HOSTNAME else keys, nodes)
            for one in soft
        ]
        if self._has_shared_domain():
            raise NotCountable("nodes without a key share a domain with those whose value is empty")

    def _has_shared_domain(self) -> bool:
        return not self._needs_all_keys and any("" in counted.topology.bits for counted in self._soft)

    def follow_moves(self, moves: Mapping[int, Labels | None]) -> bool:
        if self._has_shared_domain():
            return False
        for counted in (*self._hard, *self._soft):
            counted.follow_moves(moves, self._index)
        for place in moves:
            node = self._index.node_or_none(place)
            if node is not None:
                self.follow(place, node)
        return True

    has_no_say = False

    def follow(self, place: int, node: NodeInfo) -> None:
        labels = countable(node.pods.values(), self._namespace)
        for counted in self._hard:
            counted.follow(place, labels)
        for counted in self._soft:
            counted.follow(place, labels)

    def allowed(self) -> Bits | None:
        if not self._hard:
            return None
        found = self._index.all
        for counted in self._hard:
            found &= counted.allowed()
        return found

    def rejections(self, among: Bits) -> Sequence[tuple[Status, Bits]]:
        found: dict[Status, Bits] = {}
        for counted in self._hard:
            everywhere, allowed = counted.topology.everywhere, counted.allowed()
            for status, bits in ((NO_DOMAIN, among & ~everywhere), (TOO_MANY, among & everywhere & ~allowed)):
                if bits:
                    found[status] = found.get(status, 0) | bits
            among &= allowed
        return [(status.by(PLUGIN), bits) for status, bits in found.items()]

    def fill(self, state: CycleState) -> None:
        if self._hard:
            rules = tuple((counted.constraint, counted.itself) for counted in self._hard)
            counts = tuple(DomainCounts(counted.as_dict()) for counted in self._hard)
            state.write(FILTER_STATE, SpreadCounts(self._pod, rules, counts, self._upstream))

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
        found: dict[int, Bits] = {}
        for raw, (_, bits) in zip(raws, groups, strict=True):
            score = normalized_score(raw, lowest, highest)
            found[score] = found.get(score, 0) | bits
        ignored = feasible ^ scored
        if ignored:
            found[0] = found.get(0, 0) | ignored
        return list(found.items())

    def _raw_groups(self, scored: Bits) -> list[tuple[float, Bits]]:
        """Constraint by constraint in their order, because the sum of floats depends on it."""
        if not scored:
            return []
        groups: list[tuple[float, Bits]] = [(0.0, scored)]
        weights = [self._weight(counted, scored) for counted in self._soft]
        for counted, (weight, more) in zip(self._soft, weights, strict=True):
            if len(groups) * len(counted.sets) > GROUPS_MAX:
                return self._raw_nodes(scored, weights)
            everywhere = counted.topology.everywhere
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

    def _weight(self, counted: _Counted, scored: Bits) -> tuple[float, int]:
        """Return the score that each counted pod adds to a node, and the score that the constraint adds anyway."""
        constraint = counted.constraint
        if constraint.topology_key == HOSTNAME:
            size = self._size.of(scored)
        else:
            size = counted.present(scored)
            if not self._needs_all_keys and scored & ~counted.topology.everywhere:
                size += 1  # A node without the key is in the domain of the empty value.
        return weight_of(size), constraint.max_skew - 1

    def _raw_nodes(self, scored: Bits, weights: Iterable[tuple[float, int]]) -> list[tuple[float, Bits]]:
        """As `_raw_groups` where hardly two nodes are alike: node by node, a tenth of a microsecond for each constraint."""
        size = len(self._soft[0].topology.value_at)
        places = picked(range(size), scored)
        totals = [0.0] * len(places)
        for counted, (weight, more) in zip(self._soft, weights, strict=True):
            values = counted.topology.value_at
            added: dict[str | None, float] = counted.per_domain(weight, more)
            added[None] = 0.0
            totals = [total + added[values[place]] for total, place in zip(totals, places, strict=True)]
        alike: dict[float, list[int]] = {}
        for total, place in zip(totals, places, strict=True):
            alike.setdefault(total, []).append(place)
        return [(total, bits_of(found, size)) for total, found in alike.items()]


def _for_score(constraint: Constraint) -> Constraint:
    """For a host name every node's pods count, whatever its taints and labels."""
    if constraint.topology_key != HOSTNAME:
        return constraint
    return constraint._replace(honors_affinity=False, honors_taints=False)

"""Counting for hard spread constraints: how many matching pods each domain holds, and whether one more would be too many.

A node counts only if it has the topology keys of *all* hard constraints, and for each constraint only if that constraint's
policies admit it. Its domain then exists, pods or not; the smallest domain is what the others are compared with.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.framework.interface import Status, unresolvable, unschedulable
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.domain_counts import DomainCounts
from tidelog.plugins.pod_topology_spread.constraints import Constraint, Constraints, countable

REASON = "node(s) didn't match pod topology spread constraints"
FILTER_STATE = "PodTopologySpread.filter"
"""Where the cycle state keeps the counts."""
REASON_MISSING_LABEL = f"{REASON} (missing required label)"

TOO_MANY = unschedulable(REASON)
NO_DOMAIN = unresolvable(REASON_MISSING_LABEL)


class SpreadCounts:
    """The counts for one incoming pod. Filter costs one step a constraint, a clone the number of changed domains."""

    __slots__ = ("_pod", "_rules", "_upstream", "counts")

    def __init__(
        self,
        pod: PodInfo,
        rules: tuple[tuple[Constraint, int], ...],
        counts: tuple[DomainCounts, ...],
        upstream: bool,
    ) -> None:
        self._pod = pod
        self._rules = rules
        """Each constraint, and 1 if the pod itself matches its selector, else 0."""
        self._upstream = upstream
        self.counts = counts
        """One for each constraint."""

    @property
    def constraints(self) -> Constraints:
        """Names of the counts, in the order of `counts`: for explanations."""
        return tuple(constraint for constraint, _ in self._rules)

    @classmethod
    def of(
        cls, pod: PodInfo, constraints: Constraints, nodes: Iterable[NodeInfo], upstream: bool
    ) -> SpreadCounts:
        """Count the nodes, at the cost of their pods."""
        tables = count_domains(pod, constraints, nodes)
        rules = tuple((constraint, int(constraint.matches(pod.labels))) for constraint in constraints)
        return cls(pod, rules, tuple(map(DomainCounts, tables)), upstream)

    def update(self, changed: PodInfo, node: NodeInfo, by: int) -> None:
        """A pod came to the node (1) or left it (-1).

        It counts as it does in `count_domains`. kube-scheduler's hooks differ from its own counting in two ways, which
        are reproduced in upstream mode: terminating pods, and all pods for an empty selector, count here.
        """
        if changed.namespace != self._pod.namespace or (changed.terminating and not self._upstream):
            return
        labels = node.labels
        if any(constraint.topology_key not in labels for constraint, _ in self._rules):
            return
        for (constraint, _), counts in zip(self._rules, self.counts, strict=True):
            if constraint.counts_nobody and not self._upstream:
                continue
            if constraint.matches(changed.labels) and constraint.admits(self._pod.pod, node.node):
                counts.add(labels[constraint.topology_key], by)

    def verdict(self, node: NodeInfo) -> Status | None:
        """Whether the pod may go to this node. The first constraint that says no decides the reason.

        A domain that does not count, because the policies rule all of its nodes out, has 0 pods: other plugins reject it.
        """
        labels = node.labels
        for (constraint, itself), counts in zip(self._rules, self.counts, strict=True):
            domain = labels.get(constraint.topology_key)
            if domain is None:
                return NO_DOMAIN
            # KEP-3022: as long as domains are missing, there is an empty one somewhere.
            minimum = counts.minimum if len(counts) >= constraint.min_domains else 0
            if counts.get(domain) + itself - minimum > constraint.max_skew:
                return TOO_MANY
        return None

    def clone(self) -> SpreadCounts:
        """Independent of this one."""
        copies = tuple(counts.clone() for counts in self.counts)
        return SpreadCounts(self._pod, self._rules, copies, self._upstream)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpreadCounts) and self.counts == other.counts

    __hash__ = None  # type: ignore[assignment]


def count_domains(pod: PodInfo, constraints: Constraints, nodes: Iterable[NodeInfo]) -> list[dict[str, int]]:
    """For each constraint: domain → matching pods on the nodes that count."""
    tables: list[dict[str, int]] = [{} for _ in constraints]
    keys = {constraint.topology_key for constraint in constraints}
    alike: dict[tuple[bool, bool], list[tuple[Constraint, dict[str, int]]]] = {}
    for constraint, table in zip(constraints, tables, strict=True):
        alike.setdefault(constraint.policies, []).append((constraint, table))
    for node in nodes:
        labels = node.labels
        if not labels.keys() >= keys:
            continue
        peers = countable(node.pods.values(), pod.namespace)
        for counted in alike.values():
            if not counted[0][0].admits(pod.pod, node.node):
                continue
            for constraint, table in counted:
                domain = labels[constraint.topology_key]
                table[domain] = table.get(domain, 0) + (constraint.count(peers) if peers else 0)
    return tables

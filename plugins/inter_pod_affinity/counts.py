"""The counts of InterPodAffinity: the pod under way and the terms that are about it, and the three counters of `plugin.py`'s docstring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tidelog.api.selectors import Labels
from tidelog.framework.affinity_terms import FEW, NO_LABELS, AffinityTerm, PodTerms, Terms, all_select
from tidelog.framework.interface import Listers, Status, unresolvable, unschedulable
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.domain_counts import PairCounts, TopologyPair

REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

NOT_NEAR = unresolvable(REASON_AFFINITY)
TOO_NEAR = unschedulable(REASON_ANTI_AFFINITY)
UNWANTED = unschedulable(REASON_EXISTING_ANTI_AFFINITY)

FILTER_STATE = "InterPodAffinity.filter"
"""Where the cycle state keeps the counters."""

FoundPairs = dict[TopologyPair, int]
Weights = tuple[tuple[str, int], ...]
"""Topology keys with the weight to add to the value that the node has for them."""

TALLIES_MAX = 1024
"""Of so many sets of labels it is remembered what a long list of terms says of them."""
WEIGHED_MAX = 256
"""The weights of so many pods are remembered: when a node changes, all its pods are weighed again, and all but one as before. It serves a node or two that change again and again. Arbitrary."""


class Incoming:
    """The pod under way, and which terms are about it or about others. Lives for one attempt, or as long as its shape is evaluated incrementally."""

    __slots__ = (
        "_listers",
        "_namespace_labels",
        "_pulls",
        "_selected_by",
        "_tallies",
        "_weighed",
        "_weights_of",
        "pod",
    )

    def __init__(self, pod: PodInfo, listers: Listers) -> None:
        self.pod = pod
        self._listers = listers
        self._namespace_labels: dict[str, Labels | None] = {}
        # What was worked out once: replicas have equal terms. Looked up only, never iterated over.
        self._selected_by: dict[AffinityTerm, bool] = {}
        self._weights_of: dict[PodTerms, Weights] = {}
        self._tallies: dict[tuple[object, ...], Weights] = {}
        self._pulls: dict[tuple[object, ...], Weights] = {}
        self._weighed: dict[PodInfo, Weights] = {}

    def selects(self, term: AffinityTerm, other: PodInfo) -> bool:
        """Whether a term of the incoming pod is about the other pod. A namespace that does not exist is not selected."""
        return term.selects(other.namespace, other.labels, self._labels_of_namespace)

    def selects_with_all(self, terms: Terms, other: PodInfo) -> bool:
        """Whether all of them are about it."""
        return all_select(terms, other.namespace, other.labels, self._labels_of_namespace)

    def is_selected_by(self, term: AffinityTerm) -> bool:
        """Whether a term of another pod is about the incoming one, whose namespace may be unknown: it has no labels then."""
        known = self._selected_by.get(term)
        if known is None:
            known = term.selects(self.pod.namespace, self.pod.labels, self._labels_or_none)
            self._selected_by[term] = known
        return known

    def tally(self, terms: Terms, other: PodInfo) -> Iterable[tuple[str, int]]:
        """Topology key and weight (1 for required ones) of those of the incoming pod's terms that are about the other pod.

        For long lists: where many terms may be, it is worked out once for all pods with the same labels, and each key comes once
        with the sum.
        """
        asked = (id(terms), other.namespace, *other.labels.items())
        known = self._tallies.get(asked)
        if known is None:
            about = terms.about(other.labels)
            sums: Counter[str] = Counter()
            for term in about:
                if self.selects(term, other):
                    sums[term.topology_key] += term.weight or 1
            known = tuple(sums.items())
            if len(self._tallies) < TALLIES_MAX:
                self._tallies[asked] = known
        return known

    def meets_all(self, terms: Terms, other: PodInfo) -> bool:
        """As `selects_with_all`, for long lists, of which mostly the first term says no."""
        return self.selects(terms[0], other) and sum(n for _, n in self.tally(terms, other)) == len(terms)

    def weigh_all(self, others: Iterable[PodInfo], hard_weight: int) -> dict[str, int]:
        """Sum up what all terms between this pod and these others say, by topology key."""
        sums: dict[str, int] = {}
        known = self._weighed
        for other in others:
            weights = known.get(other)
            if weights is None:
                weights = self._weigh(other, hard_weight)
            for key, weight in weights:
                sums[key] = sums.get(key, 0) + weight
        return sums

    def _weigh(self, other: PodInfo, hard_weight: int) -> Weights:
        """Weigh one other pod, and remember it. A topology key may come twice."""
        own = self.pod.terms
        found = self._pull(other) if own.preferred_affinity or own.preferred_anti_affinity else ()
        if other.has_affinity:
            found += self.weights_of(other.terms, hard_weight)
        if len(self._weighed) >= WEIGHED_MAX:
            self._weighed.clear()
        self._weighed[other] = found
        return found

    def forget_weighed(self) -> None:
        """Let go of the pods that were weighed."""
        self._weighed.clear()

    def _pull(self, other: PodInfo) -> Weights:
        """Weigh another pod by the incoming pod's preferred terms, each topology key once; the same for all pods with the same labels."""
        asked = (other.namespace, *other.labels.items())
        known = self._pulls.get(asked)
        if known is None:
            sums: Counter[str] = Counter()
            own = self.pod.terms
            for terms, sign in ((own.preferred_affinity, 1), (own.preferred_anti_affinity, -1)):
                for term in terms.about(other.labels):
                    if self.selects(term, other):
                        sums[term.topology_key] += sign * term.weight
            known = tuple(sums.items())
            if len(self._pulls) < TALLIES_MAX:
                self._pulls[asked] = known
        return known

    def weights_of(self, terms: PodTerms, hard_weight: int) -> Weights:
        """Return the weights that another pod with these terms adds to the score of its topology pairs."""
        known = self._weights_of.get(terms)
        if known is None:
            labels = self.pod.labels
            weighted = [(t, hard_weight) for t in terms.affinity.about(labels) if hard_weight]
            weighted += [(t, t.weight) for t in terms.preferred_affinity.about(labels)]
            weighted += [(t, -t.weight) for t in terms.preferred_anti_affinity.about(labels)]
            known = tuple((t.topology_key, weight) for t, weight in weighted if self.is_selected_by(t))
            self._weights_of[terms] = known
        return known

    # What pods on a node with these labels add to each of the three counters.

    def add_existing(self, into: FoundPairs, pods: Iterable[PodInfo], labels: Labels) -> None:
        """By their required anti-affinity against the incoming pod."""
        own, known = self.pod.labels, self._selected_by
        for pod in pods:
            for term in pod.terms.anti_affinity.about(own):
                selected = known[term] if term in known else self.is_selected_by(term)
                if selected and (value := labels.get(term.topology_key)) is not None:
                    _count(into, (term.topology_key, value), 1)

    def add_affinity(self, into: FoundPairs, pods: Iterable[PodInfo], labels: Labels) -> None:
        """By meeting all of the incoming pod's required affinity terms."""
        terms = self.pod.terms.affinity
        if terms and (pairs := _pairs(terms, labels)):
            meets = self.selects_with_all if len(terms) <= FEW else self.meets_all
            count = 0
            for pod in pods:
                if meets(terms, pod):
                    count += 1
            if count:
                for pair in pairs:
                    _count(into, pair, count)

    def add_anti_affinity(self, into: FoundPairs, pods: Iterable[PodInfo], labels: Labels) -> None:
        """By meeting one of its required anti-affinity terms."""
        terms = self.pod.terms.anti_affinity
        if not terms:
            return
        if len(terms) > FEW:
            for pod in pods:
                for key, count in self.tally(terms, pod):
                    if key in labels:
                        _count(into, (key, labels[key]), count)
            return
        for pod in pods:
            for term in terms:
                value = labels.get(term.topology_key)
                if value is not None and self.selects(term, pod):
                    _count(into, (term.topology_key, value), 1)

    def _labels_of_namespace(self, name: str) -> Labels | None:
        labels = self._namespace_labels
        if name not in labels:
            found = self._listers.namespace(name)
            labels[name] = None if found is None else found.metadata.labels
        return labels[name]

    def _labels_or_none(self, name: str) -> Labels:
        return self._labels_of_namespace(name) or NO_LABELS


class AffinityCounts:
    """The three counters of the module's docstring, for one incoming pod."""

    __slots__ = ("_incoming", "affinity", "anti_affinity", "existing", "meets_itself")

    def __init__(
        self,
        incoming: Incoming,
        meets_itself: bool,
        existing: PairCounts,
        affinity: PairCounts,
        anti_affinity: PairCounts,
    ) -> None:
        self._incoming = incoming
        self.meets_itself = meets_itself
        """The pod meets all of its own required affinity terms, so it may be the first of its kind."""
        self.existing = existing
        self.affinity = affinity
        self.anti_affinity = anti_affinity

    @classmethod
    def of(
        cls, incoming: Incoming, nodes: Iterable[NodeInfo], repelling: Iterable[NodeInfo]
    ) -> AffinityCounts:
        """Count the nodes; `repelling` are those of them with a pod that has required anti-affinity."""
        terms = incoming.pod.terms
        existing: FoundPairs = {}
        affinity: FoundPairs = {}
        anti_affinity: FoundPairs = {}
        for node in repelling:
            incoming.add_existing(existing, node.required_anti_affinity_pods.values(), node.labels)
        if terms.affinity or terms.anti_affinity:
            for node in nodes:
                incoming.add_affinity(affinity, node.pods.values(), node.labels)
                incoming.add_anti_affinity(anti_affinity, node.pods.values(), node.labels)
        return cls(
            incoming,
            incoming.selects_with_all(terms.affinity, incoming.pod),
            PairCounts(existing),
            PairCounts(affinity),
            PairCounts(anti_affinity),
        )

    def update(self, changed: PodInfo, labels: Labels, by: int) -> None:
        """A pod came to (1) or left (-1) a node with these labels."""
        incoming = self._incoming
        for counts, add in (
            (self.existing, incoming.add_existing),
            (self.affinity, incoming.add_affinity),
            (self.anti_affinity, incoming.add_anti_affinity),
        ):
            found: FoundPairs = {}
            add(found, (changed,), labels)
            for pair, count in found.items():
                counts.add(pair, by * count)

    def verdict(self, labels: Labels) -> Status | None:
        """Whether the pod may go to a node with these labels."""
        terms = self._incoming.pod.terms
        if terms.affinity and not self._is_near(terms.affinity, labels):
            return NOT_NEAR
        if self.anti_affinity and any(
            self.anti_affinity.get(pair) > 0 for pair in _pairs(terms.anti_affinity, labels)
        ):
            return TOO_NEAR
        for key in self.existing.keys:
            value = labels.get(key)
            if value is not None and self.existing.get((key, value)) > 0:
                return UNWANTED
        return None

    def _is_near(self, terms: Terms, labels: Labels) -> bool:
        """The node has every key, and every pair a pod; or nobody anywhere meets the terms, and this pod starts."""
        pairs = _pairs(terms, labels)
        if len(pairs) < len(terms):
            return False
        if all(self.affinity.get(pair) > 0 for pair in pairs):
            return True
        return not self.affinity and self.meets_itself

    def clone(self) -> AffinityCounts:
        """Independent of this one."""
        return AffinityCounts(
            self._incoming,
            self.meets_itself,
            self.existing.clone(),
            self.affinity.clone(),
            self.anti_affinity.clone(),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffinityCounts):
            return False
        return (self.existing, self.affinity, self.anti_affinity, self.meets_itself) == (
            other.existing,
            other.affinity,
            other.anti_affinity,
            other.meets_itself,
        )

    __hash__ = None  # type: ignore[assignment]


def _pairs(terms: Iterable[AffinityTerm], labels: Labels) -> list[TopologyPair]:
    """The topology pair of each term whose key the node has."""
    return [(t.topology_key, labels[t.topology_key]) for t in terms if t.topology_key in labels]


def _count(into: FoundPairs, pair: TopologyPair, by: int) -> None:
    into[pair] = into.get(pair, 0) + by

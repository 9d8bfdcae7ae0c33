"""InterPodAffinity: pods that must, or would rather, run near certain other pods, or away from them.

"Near" is a topology domain: all nodes with the same value of the term's topology key. PreFilter counts three things per
topology pair (key, value), and the hooks keep them exact while pods come and go in a dry run:

    existing       pods there whose required anti-affinity is against the incoming pod
    affinity       pods there that meet *all* required affinity terms of the incoming pod, once per term
    anti_affinity  pods there that meet a required anti-affinity term of the incoming pod, once per term

Terminating pods count: they are there until they are gone (in PodTopologySpread they do not count).

Costs. PreFilter looks at the pods with required anti-affinity, which the snapshot keeps apart, and, only if the incoming pod
has required terms itself, at every pod. PreScore looks at the pods with any affinity, or at every pod if the incoming pod has
preferred terms. Terms of replicas are one object, so each is matched against the incoming pod once; of a pod with many terms only
those are looked at that require a label which the other one has, and where these are still many, once for all pods with the same
labels. Filter, Score and the hooks cost the number of terms; a clone
of the state costs the number of pairs changed.

What Filter says of a node depends on its own topology domains, and on whether anybody anywhere meets the pod's affinity terms,
because the first of its kind may go where it likes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.selectors import Labels
from tidelog.framework.affinity_terms import FEW, NO_LABELS, AffinityTerm, PodTerms, Terms, all_select
from tidelog.framework.events import EventRegistration
from tidelog.framework.interface import (
    SKIP,
    Code,
    CycleState,
    Depends,
    FilterPlugin,
    Listers,
    NormalizeScore,
    Plugin,
    PluginArgs,
    PodHooks,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
    Status,
    unresolvable,
    unschedulable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.plugins.domain_counts import PairCounts, TopologyPair
from tidelog.plugins.inter_pod_affinity.hints import InterPodAffinityHints

REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

_NOT_NEAR = unresolvable(REASON_AFFINITY)
_TOO_NEAR = unschedulable(REASON_ANTI_AFFINITY)
_UNWANTED = unschedulable(REASON_EXISTING_ANTI_AFFINITY)

_FILTER_STATE = "InterPodAffinity.filter"
_SCORE_STATE = "InterPodAffinity.score"

PairCounter = Counter[TopologyPair]
Weights = tuple[tuple[str, int], ...]
"""Topology keys with the weight to add to the value that the node has for them."""
_WeightTable = dict[str, dict[str, int]]
"""Topology key → value → sum of weights."""


class InterPodAffinityArgs(PluginArgs, frozen=True, kw_only=True):
    hard_pod_affinity_weight: int = 1
    """What a required affinity term of a pod on a node adds to the score of an incoming pod that it selects; 0..100."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Leave pods without preferred terms of their own unscored."""


class InterPodAffinity(Plugin):
    """Filters and scores nodes by the pods in their topology domains."""

    name = "InterPodAffinity"
    Args = InterPodAffinityArgs
    filter_depends = Depends.NODE | Depends.DOMAINS
    score_depends = Depends.NODE | Depends.DOMAINS

    @classmethod
    def validate_args(cls, args: Any, path: str, gates: FeatureGates) -> list[FieldError]:
        weight = args.hard_pod_affinity_weight
        if 0 <= weight <= 100:
            return []
        where = f"{path}.hardPodAffinityWeight"
        return [FieldError(path=where, kind="Invalid", value=weight, rule="not in valid range [0-100]")]

    # --- filtering ------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        """Counts the cluster. Skips when neither the pod nor anybody else asks for anything."""
        terms = pod.terms
        if terms.errors:
            return PreFilterResult(status=unresolvable(f"parsing pod: {_told(terms.errors)}"))
        repelling = self.handle.snapshot.nodes_with_required_anti_affinity_pods()
        counts = AffinityCounts.of(Incoming(pod, self.handle.listers), nodes, repelling)
        if not terms.affinity and not terms.anti_affinity and not counts.existing:
            return PreFilterResult(status=SKIP)
        state.write(_FILTER_STATE, counts)
        return PreFilterResult()

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        _update(state, added, node, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        _update(state, removed, node, -1)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """One reason a node, in the order: own affinity, own anti-affinity, the others' anti-affinity."""
        counts: AffinityCounts | None = state.read(_FILTER_STATE)
        return None if counts is None else counts.verdict(node.labels)

    # --- scoring --------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        """Adds up the weights of all terms between the pod and others. Skips when there are none."""
        if pod.terms.errors:
            return Status(Code.ERROR, (f"failed to parse pod: {_told(pod.terms.errors)}",))
        prefers = bool(pod.terms.preferred_affinity or pod.terms.preferred_anti_affinity)
        if self.args.ignore_preferred_terms_of_existing_pods and not prefers:
            return SKIP
        incoming = Incoming(pod, self.handle.listers)
        snapshot = self.handle.snapshot
        table: _WeightTable = {}
        for node in snapshot.nodes if prefers else snapshot.nodes_with_affinity_pods():
            others = node.pods if prefers else node.affinity_pods
            self.weigh(incoming, others.values(), node.labels, table)
        if not table:
            return SKIP
        state.write(_SCORE_STATE, table)
        return None

    def weigh(
        self, incoming: Incoming, others: Iterable[PodInfo], labels: Labels, table: _WeightTable
    ) -> None:
        """Add what the pods of one node contribute."""
        own = incoming.pod.terms
        attracted, repelled = own.preferred_affinity, own.preferred_anti_affinity
        for other in others:
            if attracted:
                incoming.weigh(attracted, other, 1, labels, table)
            if repelled:
                incoming.weigh(repelled, other, -1, labels, table)
            if other.has_affinity:
                for key, weight in incoming.weights_of(other.terms, self.args.hard_pod_affinity_weight):
                    _add_weight(table, labels, key, weight)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """The weights of the node's topology pairs; may be negative."""
        table: _WeightTable = state.read(_SCORE_STATE)
        labels = node.labels
        return sum(weights.get(labels[key], 0) for key, weights in table.items() if key in labels)

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]:
        """The worst becomes 0, the best 100; all 0 when they are equal."""
        lowest, highest = min(scores, default=0), max(scores, default=0)
        span = highest - lowest
        if not span:
            return [0] * len(scores)
        return [int(100 * ((score - lowest) / span)) for score in scores]

    # --- hints ----------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[EventRegistration]:
        return InterPodAffinityHints(self.handle).registrations()


def _told(errors: Iterable[Exception]) -> str:
    return ", ".join(map(str, errors))


def _update(state: CycleState, changed: PodInfo, node: NodeInfo, by: int) -> None:
    counts: AffinityCounts | None = state.read(_FILTER_STATE)
    if counts is not None:
        counts.update(changed, node.labels, by)


def _add_weight(table: _WeightTable, labels: Labels, key: str, weight: int) -> None:
    value = labels.get(key)
    if value is not None:
        weights = table.setdefault(key, {})
        weights[value] = weights.get(value, 0) + weight


TALLIES_MAX = 1024
"""Of so many sets of labels it is remembered what a long list of terms says of them."""


class Incoming:
    """The pod under way, and which terms are about it or about others. Lives for one attempt, or as long as its shape is evaluated incrementally."""

    __slots__ = ("_listers", "_namespace_labels", "_selected_by", "_tallies", "_weights_of", "pod")

    def __init__(self, pod: PodInfo, listers: Listers) -> None:
        self.pod = pod
        self._listers = listers
        self._namespace_labels: dict[str, Labels | None] = {}
        # What was worked out once: replicas have equal terms. Looked up only, never iterated over.
        self._selected_by: dict[AffinityTerm, bool] = {}
        self._weights_of: dict[PodTerms, Weights] = {}
        self._tallies: dict[tuple[object, ...], Weights] = {}

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
        about = terms.about(other.labels)
        if len(about) <= FEW:
            return [(term.topology_key, term.weight or 1) for term in about if self.selects(term, other)]
        asked = (id(terms), other.namespace, *other.labels.items())
        known = self._tallies.get(asked)
        if known is None:
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

    def weigh(self, terms: Terms, other: PodInfo, sign: int, labels: Labels, table: _WeightTable) -> None:
        """Add what the incoming pod's preferred terms say of another one, on a node with these labels."""
        if len(terms) > FEW:
            for key, weight in self.tally(terms, other):
                _add_weight(table, labels, key, sign * weight)
            return
        for term in terms:
            if self.selects(term, other):
                _add_weight(table, labels, term.topology_key, sign * term.weight)

    def weights_of(self, terms: PodTerms, hard_weight: int) -> Weights:
        """What another pod with these terms adds to the score of its topology pairs."""
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

    def add_existing(self, into: PairCounter, pods: Iterable[PodInfo], labels: Labels) -> None:
        """By their required anti-affinity against the incoming pod."""
        own, known = self.pod.labels, self._selected_by
        for pod in pods:
            for term in pod.terms.anti_affinity.about(own):
                selected = known[term] if term in known else self.is_selected_by(term)
                if selected and (value := labels.get(term.topology_key)) is not None:
                    into[term.topology_key, value] += 1

    def add_affinity(self, into: PairCounter, pods: Iterable[PodInfo], labels: Labels) -> None:
        """By meeting all of the incoming pod's required affinity terms."""
        terms = self.pod.terms.affinity
        if terms and (pairs := _pairs(terms, labels)):
            meets = self.selects_with_all if len(terms) <= FEW else self.meets_all
            count = sum(1 for pod in pods if meets(terms, pod))
            if count:
                for pair in pairs:
                    into[pair] += count

    def add_anti_affinity(self, into: PairCounter, pods: Iterable[PodInfo], labels: Labels) -> None:
        """By meeting one of its required anti-affinity terms."""
        terms = self.pod.terms.anti_affinity
        if not terms:
            return
        if len(terms) > FEW:
            for pod in pods:
                for key, count in self.tally(terms, pod):
                    if key in labels:
                        into[key, labels[key]] += count
            return
        for pod in pods:
            for term in terms:
                value = labels.get(term.topology_key)
                if value is not None and self.selects(term, pod):
                    into[term.topology_key, value] += 1

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
        existing, affinity, anti_affinity = PairCounter(), PairCounter(), PairCounter()
        for node in repelling:
            incoming.add_existing(existing, node.required_anti_affinity_pods.values(), node.labels)
        if terms.affinity or terms.anti_affinity:
            for node in nodes:
                incoming.add_affinity(affinity, node.pods.values(), node.labels)
                incoming.add_anti_affinity(anti_affinity, node.pods.values(), node.labels)
        return cls(
            incoming,
            incoming.selects_with_all(terms.affinity, incoming.pod),
            PairCounts(dict(existing)),
            PairCounts(dict(affinity)),
            PairCounts(dict(anti_affinity)),
        )

    def update(self, changed: PodInfo, labels: Labels, by: int) -> None:
        """A pod came to (1) or left (-1) a node with these labels."""
        incoming = self._incoming
        for counts, add in (
            (self.existing, incoming.add_existing),
            (self.affinity, incoming.add_affinity),
            (self.anti_affinity, incoming.add_anti_affinity),
        ):
            found = PairCounter()
            add(found, (changed,), labels)
            for pair, count in found.items():
                counts.add(pair, by * count)

    def verdict(self, labels: Labels) -> Status | None:
        """Whether the pod may go to a node with these labels."""
        terms = self._incoming.pod.terms
        if terms.affinity and not self._is_near(terms.affinity, labels):
            return _NOT_NEAR
        if self.anti_affinity and any(
            self.anti_affinity.get(pair) > 0 for pair in _pairs(terms.anti_affinity, labels)
        ):
            return _TOO_NEAR
        for key in self.existing.keys:
            value = labels.get(key)
            if value is not None and self.existing.get((key, value)) > 0:
                return _UNWANTED
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


_pre_filter: type[PreFilterPlugin] = InterPodAffinity
_hooks: type[PodHooks] = InterPodAffinity
_filter: type[FilterPlugin] = InterPodAffinity
_pre_score: type[PreScorePlugin] = InterPodAffinity
_score: type[ScorePlugin] = InterPodAffinity
_normalize: type[NormalizeScore] = InterPodAffinity

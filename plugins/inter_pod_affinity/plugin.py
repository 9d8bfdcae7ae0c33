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

from collections.abc import Iterable, Sequence
from typing import Any

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.framework.events import EventRegistration
from tidelog.framework.interface import (
    SKIP,
    Code,
    CycleState,
    Depends,
    FilterPlugin,
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
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import NodeSets
from tidelog.framework.offers import CountsDomains, NotCountable, PodParts, SignsPods
from tidelog.plugins.inter_pod_affinity.counts import FILTER_STATE, AffinityCounts, Incoming
from tidelog.plugins.inter_pod_affinity.domains import AffinityDomains
from tidelog.plugins.inter_pod_affinity.hints import InterPodAffinityHints

_SCORE_STATE = "InterPodAffinity.score"

_WeightTable = dict[str, dict[str, int]]
"""Topology key → value → sum of weights."""


class InterPodAffinityArgs(PluginArgs, frozen=True, kw_only=True):
    hard_pod_affinity_weight: int = 1
    """The weight that a required affinity term of a pod on a node adds to the score of an incoming pod that it selects; 0..100."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Leave pods without preferred terms of their own unscored."""


class InterPodAffinity(Plugin):
    """Filters and scores nodes by the pods in their topology domains."""

    name = "InterPodAffinity"
    Args = InterPodAffinityArgs
    filter_depends = Depends.NODE | Depends.DOMAINS
    score_depends = Depends.NODE | Depends.DOMAINS
    signed_parts = PodParts.SPEC | PodParts.LABELS

    @classmethod
    def validate_args(cls, args: Any, path: str, gates: FeatureGates) -> list[FieldError]:
        weight = args.hard_pod_affinity_weight
        if 0 <= weight <= 100:
            return []
        where = f"{path}.hardPodAffinityWeight"
        return [FieldError(path=where, kind="Invalid", value=weight, rule="not in valid range [0-100]")]

    # --- what it offers -------------------------------------------------------------------------------------------

    def sign_pod(self, pod: PodInfo) -> object:
        """Its own terms, and of its labels those that some term asks for."""
        affinity = pod.pod.spec.affinity
        if affinity is None:
            return (pod.namespace, self.handle.snapshot.label_keys.read_of(pod.labels), ())
        own = (affinity.pod_affinity, affinity.pod_anti_affinity)
        asked = {key for terms in pod.terms[:4] for term in terms for key in term.label_keys}
        labels = self.handle.snapshot.label_keys.read_of(pod.labels, asked)
        return (pod.namespace, labels, own)

    def domains(self, state: CycleState, pod: PodInfo, nodes: NodeSets) -> AffinityDomains:
        if pod.terms.errors:
            raise NotCountable("a term does not parse")
        return AffinityDomains(
            Incoming(pod, self.handle.listers),
            nodes,
            _normalized,
            hard_weight=self.args.hard_pod_affinity_weight,
            ignores_preferred_of_others=self.args.ignore_preferred_terms_of_existing_pods,
        )

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
        state.write(FILTER_STATE, counts)
        return PreFilterResult()

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        _update(state, added, node, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        _update(state, removed, node, -1)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """One reason a node, in the order: own affinity, own anti-affinity, the others' anti-affinity."""
        counts: AffinityCounts | None = state.read(FILTER_STATE)
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
            sums = incoming.weigh_all(others.values(), self.args.hard_pod_affinity_weight)
            for key, weight in sums.items():
                value = node.labels.get(key)
                if value is not None:
                    weights = table.setdefault(key, {})
                    weights[value] = weights.get(value, 0) + weight
        if not table:
            return SKIP
        state.write(_SCORE_STATE, table)
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """The weights of the node's topology pairs; may be negative."""
        table: _WeightTable = state.read(_SCORE_STATE)
        labels = node.labels
        return sum(weights.get(labels[key], 0) for key, weights in table.items() if key in labels)

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]:
        return _normalized(scores)

    # --- hints ----------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[EventRegistration]:
        return InterPodAffinityHints(self.handle).registrations()


def _normalized(scores: list[int]) -> list[int]:
    """The worst becomes 0, the best 100; all 0 when they are equal."""
    lowest, highest = min(scores, default=0), max(scores, default=0)
    span = highest - lowest
    if not span:
        return [0] * len(scores)
    return [int(100 * ((score - lowest) / span)) for score in scores]


def _told(errors: Iterable[Exception]) -> str:
    return ", ".join(map(str, errors))


def _update(state: CycleState, changed: PodInfo, node: NodeInfo, by: int) -> None:
    counts: AffinityCounts | None = state.read(FILTER_STATE)
    if counts is not None:
        counts.update(changed, node.labels, by)


_pre_filter: type[PreFilterPlugin] = InterPodAffinity
_hooks: type[PodHooks] = InterPodAffinity
_filter: type[FilterPlugin] = InterPodAffinity
_pre_score: type[PreScorePlugin] = InterPodAffinity
_score: type[ScorePlugin] = InterPodAffinity
_normalize: type[NormalizeScore] = InterPodAffinity
_signs: type[SignsPods] = InterPodAffinity
_counts: type[CountsDomains] = InterPodAffinity

"""NodeAffinity: where the pod's `nodeSelector` and node affinity let it run, and where it would rather run.

The profile may add an affinity of its own for all its pods (`addedAffinity`); both must be met. A term that does not parse
matches nothing, and the other terms still may.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.objects import Node, NodeSelector, NodeSelectorTerm, PodSpec, PreferredSchedulingTerm
from tidelog.api.objects import NodeAffinity as Affinity
from tidelog.api.selectors import (
    NodeMatcher,
    SelectorError,
    node_selector_error,
    node_selector_matcher,
    node_term_matcher,
)
from tidelog.framework.arithmetic import scaled_to_maximum
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import (
    SKIP,
    Code,
    CycleState,
    Depends,
    FilterPlugin,
    Handle,
    NormalizeScore,
    Plugin,
    PluginArgs,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
    Status,
    unresolvable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.offers import PodParts, SignsPods

REASON_POD = "node(s) didn't match Pod's node affinity/selector"
REASON_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
REASON_CONFLICT = "pod affinity terms conflict"

_FILTER_STATE = "NodeAffinity.required"
_SCORE_STATE = "NodeAffinity.preferred"
_NAME_FIELD = "metadata.name"

WeightedMatcher = tuple[int, NodeMatcher]
_FEW = 4
"""So many terms are evaluated as quickly as looked up."""


class NodeAffinityArgs(PluginArgs, frozen=True, kw_only=True):
    added_affinity: Affinity | None = None
    """For every pod of the profile, in addition to what the pod says."""


class NodeAffinity(Plugin):
    """Rejects nodes that the pod's selector, its required affinity or the profile's rules out; scores preferred terms."""

    name = "NodeAffinity"
    Args = NodeAffinityArgs
    filter_depends = Depends.LABELS
    score_depends = Depends.LABELS
    signed_parts = PodParts.SPEC

    def __init__(self, args: NodeAffinityArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        added = args.added_affinity
        required = added.required if added else None
        self._added = node_selector_matcher(required) if required else None
        self._added_preferred = _counting(added.preferred) if added else ()

    @classmethod
    def validate_args(cls, args: Any, path: str, gates: FeatureGates) -> list[FieldError]:
        """Every requirement must parse: one that does not would silently match nothing."""
        added = args.added_affinity
        return [] if added is None else list(_broken_requirements(added, f"{path}.addedAffinity"))

    def sign_pod(self, pod: PodInfo) -> object:
        return (pod.pod.spec.node_selector, pod.pod.spec.affinity and pod.pod.spec.affinity.node_affinity)

    # --- filtering ------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        """Narrows the nodes when every term of the required affinity pins `metadata.name`."""
        spec = pod.pod.spec
        required = _required(spec)
        if required is None and not spec.node_selector and self._added is None:
            return PreFilterResult(status=SKIP)
        state.write(_FILTER_STATE, _own_matcher(spec))
        names = None if required is None else _pinned_names(required)
        if names is not None and not names:
            return PreFilterResult(status=unresolvable(REASON_CONFLICT))
        return PreFilterResult(nodes=names)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        if self._added is not None and not self._added(node.node):
            return unresolvable(REASON_ENFORCED)
        matches: NodeMatcher = state.read(_FILTER_STATE) or _own_matcher(pod.pod.spec)
        return None if matches(node.node) else unresolvable(REASON_POD)

    # --- scoring --------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        if not _affinity(pod.pod.spec).preferred and not self._added_preferred:
            return SKIP
        try:
            state.write(_SCORE_STATE, self._preferred(pod))
        except SelectorError as error:
            return Status(Code.ERROR, (str(error),))
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """The sum of the weights of the preferred terms that the node matches."""
        terms: _Preferred | None = state.read(_SCORE_STATE)
        if terms is None:
            terms = self._preferred(pod)
        return terms.score(node)

    def _preferred(self, pod: PodInfo) -> _Preferred:
        return _Preferred((*self._added_preferred, *_counting(_affinity(pod.pod.spec).preferred)))

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]:
        return scaled_to_maximum(scores)

    # --- hints ----------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[EventRegistration]:
        nodes = ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL)
        return [EventRegistration(nodes, self._node_changed)]

    def _node_changed(self, waiting: WaitingPod, old: Node | None, new: Node) -> Hint:
        """Only from no match to match. Raises SelectorError when that cannot be told."""
        if self._added is not None and not self._added(new):
            return Hint.SKIP
        spec = waiting.pod.spec
        if not _strictly_matches(spec, new):
            return Hint.SKIP
        return Hint.SKIP if old is not None and self._matched_before(spec, old) else Hint.QUEUE

    def _matched_before(self, spec: PodSpec, old: Node) -> bool:
        """kube-scheduler looks at the pod's own part only, and so misses labels that satisfy `addedAffinity` (gap G4)."""
        if self._added is not None and not self.handle.upstream and not self._added(old):
            return False
        return _strictly_matches(spec, old)


_NO_AFFINITY = Affinity()


def _affinity(spec: PodSpec) -> Affinity:
    return (spec.affinity and spec.affinity.node_affinity) or _NO_AFFINITY


def _required(spec: PodSpec) -> NodeSelector | None:
    return _affinity(spec).required


def _own_matcher(spec: PodSpec) -> NodeMatcher:
    """nodeSelector and required affinity, looked up once per attempt instead of once per node."""
    wanted = tuple(spec.node_selector.items())
    required = _required(spec)
    terms = None if required is None else node_selector_matcher(required)

    def matches(node: Node) -> bool:
        labels = node.metadata.labels
        return all(labels.get(key) == value for key, value in wanted) and (terms is None or terms(node))

    return matches


def _strictly_matches(spec: PodSpec, node: Node) -> bool:
    """Like the filter, but a term that does not parse and could have made the difference is an error."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    required = _required(spec)
    if required is None or node_selector_matcher(required)(node):
        return True
    error = node_selector_error(required)
    if error is not None:
        raise error
    return False


def _pinned_names(required: NodeSelector) -> frozenset[str] | None:
    """The only nodes that can match, if every term pins the name; terms are ORed, requirements inside one ANDed."""
    names: set[str] = set()
    for term in required.node_selector_terms:
        pins = [frozenset(r.values) for r in term.match_fields if r.key == _NAME_FIELD and r.operator == "In"]
        if not pins:
            return None
        names |= frozenset.intersection(*pins)
    return frozenset(names) if required.node_selector_terms else None


def _counting(terms: Sequence[PreferredSchedulingTerm]) -> tuple[PreferredSchedulingTerm, ...]:
    """Those that can add to a score."""
    return tuple(
        term
        for term in terms
        if term.weight and (term.preference.match_expressions or term.preference.match_fields)
    )


class _Preferred:
    """Preferred terms. Of many it is remembered what nodes get that agree in all labels that the terms ask for."""

    __slots__ = ("_keys", "_known", "_terms")

    def __init__(self, terms: Sequence[PreferredSchedulingTerm]) -> None:
        """Raises SelectorError."""
        self._terms: tuple[WeightedMatcher, ...] = tuple(
            (term.weight, node_term_matcher(term.preference)) for term in terms
        )
        self._keys: frozenset[str] | None = None
        if len(terms) > _FEW and not any(term.preference.match_fields for term in terms):
            asked = (one.key for term in terms for one in term.preference.match_expressions)
            self._keys = frozenset(asked)
        self._known: dict[tuple[tuple[str, str], ...], int] = {}

    def score(self, node: NodeInfo) -> int:
        """The sum of the weights of the terms that the node matches."""
        keys = self._keys
        if keys is None:
            return self._sum(node)
        there = tuple([pair for pair in node.labels.items() if pair[0] in keys])
        known = self._known.get(there)
        if known is None:
            known = self._known[there] = self._sum(node)
        return known

    def _sum(self, node: NodeInfo) -> int:
        return sum(weight for weight, matches in self._terms if matches(node.node))


def _broken_requirements(affinity: Affinity, path: str) -> Iterator[FieldError]:
    required = f"{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    preferred = f"{path}.preferredDuringSchedulingIgnoredDuringExecution"
    terms = affinity.required.node_selector_terms if affinity.required else ()
    if affinity.required is not None and not terms:
        yield FieldError(path=required, kind="Required", rule="must have at least one node selector term")
    for i, term in enumerate(terms):
        yield from _broken_in_term(term, f"{required}[{i}]")
    for i, weighted in enumerate(affinity.preferred):
        yield from _broken_in_term(weighted.preference, f"{preferred}[{i}].preference")


def _broken_in_term(term: NodeSelectorTerm, path: str) -> Iterator[FieldError]:
    alone = [
        *(
            (f"{path}.matchExpressions[{i}]", NodeSelectorTerm(match_expressions=(r,)), r)
            for i, r in enumerate(term.match_expressions)
        ),
        *(
            (f"{path}.matchFields[{i}]", NodeSelectorTerm(match_fields=(r,)), r)
            for i, r in enumerate(term.match_fields)
        ),
    ]
    for where, single, requirement in alone:
        try:
            node_term_matcher(single)
        except SelectorError as error:
            yield FieldError(path=where, kind="Invalid", value=requirement, rule=str(error))


_pre_filter: type[PreFilterPlugin] = NodeAffinity
_filter: type[FilterPlugin] = NodeAffinity
_pre_score: type[PreScorePlugin] = NodeAffinity
_score: type[ScorePlugin] = NodeAffinity
_normalize: type[NormalizeScore] = NodeAffinity
_signs: type[SignsPods] = NodeAffinity

"""PodTopologySpread: spread the pods that a selector matches evenly over topology domains.

Hard constraints (`DoNotSchedule`) filter, see `filter.py`; soft ones (`ScheduleAnyway`) score, see
`score.py`. With `minDomains` (KEP-3022) a hard constraint holds back pods until there are enough domains.
A pod without constraints of its own gets the defaults of the configuration. With `fallbackCriteria` (KEP-3990) a hard constraint
counts as a soft one while they hold: see `fallback.py`.

Costs. PreFilter and PreScore look at the pods of every node, once for each constraint; both are skipped for pods to which no
constraint applies. Filter, Score and the hooks cost one step a constraint, except that Score for a host name counts the node's
own pods.

What Filter says of a node depends on all domains of a constraint, not only on the node's own, because they share the minimum;
a score depends, through the number of domains, on which nodes are feasible. For a pod that can fall back (`sign_attempt`) both depend,
beyond what Filter and Score are told, on the pod's status, the attempt's time and the queue's memory of the pod: through the decision
that the attempt has made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.objects import TopologySpreadConstraint
from tidelog.api.selectors import SelectorError
from tidelog.api.times import parse_duration
from tidelog.api.validation import names
from tidelog.api.validation.placement import FALLBACK_CRITERIA
from tidelog.framework.events import EventRegistration, WaitingPod
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
    PodHooks,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
    Status,
    WaitsForTime,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.node_sets import NodeSets
from tidelog.framework.offers import CountsDomains, PodParts, SignsAttempts, SignsPods
from tidelog.framework.told import Fallback, ToldByPlugin
from tidelog.plugins.pod_topology_spread.constraints import (
    DECISION,
    HARD,
    SOFT,
    SYSTEM_DEFAULTS,
    Decision,
    SpreadRules,
)
from tidelog.plugins.pod_topology_spread.domains import SpreadDomains
from tidelog.plugins.pod_topology_spread.fallback import PLUGIN, Standing
from tidelog.plugins.pod_topology_spread.filter import FILTER_STATE, SpreadCounts
from tidelog.plugins.pod_topology_spread.hints import PodTopologySpreadHints
from tidelog.plugins.pod_topology_spread.score import SpreadScores

_SCORE_STATE = "PodTopologySpread.score"


class PodTopologySpreadArgs(PluginArgs, frozen=True, kw_only=True):
    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    """For pods without constraints of their own; their selectors come from the pod's Services and controller."""
    defaulting_type: Literal["System", "List"] = "System"
    """System: spread softly over host names (3) and zones (5). List: `defaultConstraints`, none if it is empty."""
    node_provisioning_timeout: str | None = None
    """KEP-3990: NodeProvisioningFailed also holds when the autoscaler has said nothing for so long, as `5m`. None: it does not."""


class PodTopologySpread(Plugin):
    """Filters and scores nodes by how evenly the matching pods would be spread."""

    name = PLUGIN
    Args = PodTopologySpreadArgs
    filter_depends = Depends.NODE | Depends.DOMAINS
    score_depends = Depends.NODE | Depends.DOMAINS
    signed_parts = PodParts.SPEC | PodParts.LABELS

    def __init__(self, args: PodTopologySpreadArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        system = args.defaulting_type == "System"
        defaults = SYSTEM_DEFAULTS if system else args.default_constraints
        timeout = args.node_provisioning_timeout
        self._rules = SpreadRules(
            defaults,
            handle,
            system=system,
            provisioning_timeout=None if timeout is None else parse_duration(timeout),
        )

    @classmethod
    def validate_args(cls, args: Any, path: str, gates: FeatureGates) -> list[FieldError]:
        where = f"{path}.defaultConstraints"
        constraints: tuple[TopologySpreadConstraint, ...] = args.default_constraints
        errors = _timeout_errors(args.node_provisioning_timeout, f"{path}.nodeProvisioningTimeout", gates)
        if constraints and args.defaulting_type == "System":
            rule = "can only be set if defaultingType is List"
            errors.append(FieldError(path=where, kind="Forbidden", rule=rule))
        for i, constraint in enumerate(constraints):
            errors.extend(_broken_rules(constraint, f"{where}[{i}]"))
            errors.extend(_broken_criteria(constraint, f"{where}[{i}].fallbackCriteria", gates))
            pair = (constraint.topology_key, constraint.when_unsatisfiable)
            if any(pair == (c.topology_key, c.when_unsatisfiable) for c in constraints[:i]):
                shown = "{" + ", ".join(pair) + "}"
                rule = "the pair of topologyKey and whenUnsatisfiable must be unique"
                errors.append(FieldError(path=f"{where}[{i}]", kind="Duplicate", value=shown, rule=rule))
        return errors

    def _decide(self, state: CycleState, pod: PodInfo) -> Decision:
        """The decision of this attempt, made by whoever asks first."""
        decision: Decision | None = state.read(DECISION)
        if decision is None:
            decision = self._rules.decide(pod.pod, Standing.of(pod.pod, state.at, state.waiting))
            state.write(DECISION, decision)
            if decision.lines:
                state.told = ToldByPlugin(PLUGIN, decision.lines, tuple(_told_fallback(decision)))
        return decision

    # --- what it offers -------------------------------------------------------------------------------------------

    def sign_pod(self, pod: PodInfo) -> object:
        return self._rules.signature(pod.pod)

    def sign_attempt(self, state: CycleState, pod: PodInfo) -> object | None:
        """Which constraints have fallen back. None for a pod of which none can."""
        if not self._rules.can_fall_back(pod.pod):
            return None
        return [fallen.constraint for fallen in self._decide(state, pod).fallback]

    def domains(self, state: CycleState, pod: PodInfo, nodes: NodeSets) -> SpreadDomains | None:
        decision = self._decide(state, pod)
        if not decision.hard and not decision.soft:
            return None
        hard = self._rules.compiled(decision.hard, decision, pod.pod)
        soft = self._rules.compiled(decision.soft, decision, pod.pod)
        return SpreadDomains(pod, hard, soft, decision.needs_all_keys, nodes, upstream=self.handle.upstream)

    # --- filtering ------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> PreFilterResult:
        """Counts the domains. Skips when no hard constraint applies."""
        decision = self._decide(state, pod)
        if not decision.hard:
            return PreFilterResult(status=SKIP)
        try:
            constraints = self._rules.compiled(decision.hard, decision, pod.pod)
        except SelectorError as error:
            return PreFilterResult(status=Status(Code.ERROR, (str(error),)))
        state.write(FILTER_STATE, SpreadCounts.of(pod, constraints, nodes, self.handle.upstream))
        return PreFilterResult()

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        _update(state, added, node, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        _update(state, removed, node, -1)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """The pods in the node's domain, this one included, may not exceed the smallest domain by more than maxSkew."""
        counts: SpreadCounts | None = state.read(FILTER_STATE)
        return None if counts is None else counts.verdict(node)

    # --- scoring --------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        """Counts the domains of the feasible nodes. Skips when no soft constraint applies."""
        decision = self._decide(state, pod)
        if not decision.soft:
            return SKIP
        try:
            constraints = self._rules.compiled(decision.soft, decision, pod.pod)
        except SelectorError as error:
            return Status(Code.ERROR, (str(error),))
        everywhere = self.handle.snapshot.nodes
        state.write(_SCORE_STATE, SpreadScores(pod, constraints, nodes, everywhere, decision.needs_all_keys))
        return None

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """How crowded the node's domains are: less is better."""
        scores: SpreadScores = state.read(_SCORE_STATE)
        return scores.raw(node)

    def normalize_scores(
        self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo], scores: list[int]
    ) -> list[int]:
        prepared: SpreadScores = state.read(_SCORE_STATE)
        return prepared.normalized(nodes, scores)

    # --- hints ----------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[EventRegistration]:
        return PodTopologySpreadHints(self._rules, self.handle.upstream).registrations()

    def time_due(self, waiting: WaitingPod) -> int | None:
        """When the provisioning timeout will let a constraint of this pod fall back."""
        return self._rules.fallback.time_due(self._rules.numbered_hard(waiting.pod), waiting)

    def fallback_lines(self, waiting: WaitingPod, at: int) -> tuple[str, ...]:
        """For explanations: what an attempt at this moment would say of each constraint that can fall back."""
        return self._rules.judged_at(waiting, at).lines


def _told_fallback(decision: Decision) -> Iterator[Fallback]:
    for fallen in decision.fallback:
        yield Fallback(
            constraint=fallen.constraint,
            topology_key=fallen.topology_key,
            criteria=fallen.criteria,
            reason=fallen.reason,
            rejected_before=fallen.rejected_before,
            is_default=decision.kin is not None,
        )


def _update(state: CycleState, changed: PodInfo, node: NodeInfo, by: int) -> None:
    counts: SpreadCounts | None = state.read(FILTER_STATE)
    if counts is not None:
        counts.update(changed, node, by)


def _broken_rules(constraint: TopologySpreadConstraint, path: str) -> Iterator[FieldError]:
    """The rules for one default constraint, with Kubernetes' wording where it has one."""
    if constraint.max_skew <= 0:
        rule = "not in valid range (0, inf)"
        yield FieldError(path=f"{path}.maxSkew", kind="Invalid", value=constraint.max_skew, rule=rule)
    key, when = constraint.topology_key, constraint.when_unsatisfiable
    if not key:
        yield FieldError(path=f"{path}.topologyKey", kind="Required", rule="can not be empty")
    else:
        for rule in names.label_key(key):
            yield FieldError(path=f"{path}.topologyKey", kind="Invalid", value=key, rule=rule)
    if not when:
        yield FieldError(path=f"{path}.whenUnsatisfiable", kind="Required", rule="can not be empty")
    elif when not in (HARD, SOFT):
        rule = f"supported values: {HARD}, {SOFT}"
        yield FieldError(path=f"{path}.whenUnsatisfiable", kind="NotSupported", value=when, rule=rule)
    if constraint.label_selector is not None:
        rule = "the selector of a default constraint comes from each pod's Services and controller"
        yield FieldError(path=f"{path}.labelSelector", kind="Forbidden", rule=rule)
    yield from _broken_options(constraint, path)


def _broken_options(constraint: TopologySpreadConstraint, path: str) -> Iterator[FieldError]:
    """Refuse what pods are refused for at admission: kube-scheduler lets it pass in its configuration; here it is refused as well."""
    minimum = constraint.min_domains
    if minimum is not None:
        where = f"{path}.minDomains"
        if minimum <= 0:
            yield FieldError(path=where, kind="Invalid", value=minimum, rule="must be greater than 0")
        if constraint.when_unsatisfiable == SOFT:
            rule = f"can only use minDomains if whenUnsatisfiable={HARD}, not {SOFT}"
            yield FieldError(path=where, kind="Invalid", value=minimum, rule=rule)
    policies = {
        "nodeAffinityPolicy": constraint.node_affinity_policy,
        "nodeTaintsPolicy": constraint.node_taints_policy,
    }
    for name, policy in policies.items():
        if policy not in (None, "Honor", "Ignore"):
            rule = "supported values: Honor, Ignore"
            yield FieldError(path=f"{path}.{name}", kind="NotSupported", value=policy, rule=rule)
    if constraint.match_label_keys:
        rule = "a default constraint has no selector to narrow"
        yield FieldError(path=f"{path}.matchLabelKeys", kind="Forbidden", rule=rule)


def _timeout_errors(timeout: str | None, path: str, gates: FeatureGates) -> list[FieldError]:
    if timeout is None:
        return []
    errors = []
    if not gates.pod_topology_spread_fallback_mode:
        errors.append(FieldError(path=path, kind="Forbidden", rule=_GATE_OFF))
    try:
        if parse_duration(timeout) <= 0:
            rule = "must be greater than 0"
            errors.append(FieldError(path=path, kind="Invalid", value=timeout, rule=rule))
    except ValueError as error:
        errors.append(FieldError(path=path, kind="Invalid", value=timeout, rule=str(error)))
    return errors


def _broken_criteria(
    constraint: TopologySpreadConstraint, path: str, gates: FeatureGates
) -> Iterator[FieldError]:
    """The rules that hold for pods' criteria as well."""
    criteria = constraint.fallback_criteria
    if not criteria:
        return
    if not gates.pod_topology_spread_fallback_mode:
        yield FieldError(path=path, kind="Forbidden", rule=_GATE_OFF)
    if constraint.when_unsatisfiable != HARD:
        rule = (
            f"can only use fallbackCriteria if whenUnsatisfiable={HARD}, not {constraint.when_unsatisfiable}"
        )
        yield FieldError(path=path, kind="Invalid", value=list(criteria), rule=rule)
    for i, criterion in enumerate(criteria):
        if criterion not in FALLBACK_CRITERIA:
            rule = f"supported values: {', '.join(FALLBACK_CRITERIA)}"
            yield FieldError(path=f"{path}[{i}]", kind="NotSupported", value=criterion, rule=rule)
        elif criterion in criteria[:i]:
            rule = "each criterion can be named once"
            yield FieldError(path=f"{path}[{i}]", kind="Duplicate", value=criterion, rule=rule)


_GATE_OFF = "may not be set while the feature gate PodTopologySpreadFallbackMode is off"

_pre_filter: type[PreFilterPlugin] = PodTopologySpread
_hooks: type[PodHooks] = PodTopologySpread
_filter: type[FilterPlugin] = PodTopologySpread
_pre_score: type[PreScorePlugin] = PodTopologySpread
_score: type[ScorePlugin] = PodTopologySpread
_normalize: type[NormalizeScore] = PodTopologySpread
_waits: type[WaitsForTime] = PodTopologySpread
_signs: type[SignsPods] = PodTopologySpread
_signs_attempts: type[SignsAttempts] = PodTopologySpread
_counts: type[CountsDomains] = PodTopologySpread

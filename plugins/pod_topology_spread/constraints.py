"""The spread constraints that apply to a pod, compiled, and which pods and nodes they count.

A pod's own constraints apply, or, if it has none, the defaults of the configuration, which spread the pods that belong together
with it: those of its Services and of its controller.

`SpreadRules.decide` settles, once per attempt, which constraints are hard (they filter) and which are soft (they score). Every
extension point and hook of the attempt goes by that one decision, which is kept in the cycle state. Hard constraints whose
fallback criteria hold are among the soft ones (`tidelog.plugins.pod_topology_spread.fallback`). Who asks without a `Standing`, as the
hints do, gets the constraints as they are written.

Compiling costs a few microseconds a constraint; the matchers themselves are shared by all pods with equal selectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from tidelog.api.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    Pod,
    TopologySpreadConstraint,
)
from tidelog.api.selectors import Labels, Matcher, is_empty, label_matcher, pod_matches_node, selector_key
from tidelog.api.taints import untolerated
from tidelog.api.well_known import HOSTNAME, ZONE
from tidelog.framework.events import WaitingPod
from tidelog.framework.interface import Handle
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.pod_topology_spread.fallback import FallbackRules, FallenBack, Numbered, Standing

HARD = "DoNotSchedule"
SOFT = "ScheduleAnyway"
HONOR = "Honor"

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable=SOFT, max_skew=3),
    TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable=SOFT, max_skew=5),
)


class Decision(NamedTuple):
    """Which constraints filter and which score in this attempt, in the order of the spec."""

    hard: tuple[TopologySpreadConstraint, ...]
    soft: tuple[TopologySpreadConstraint, ...]
    kin: tuple[LabelSelector, ...] | None
    """For default constraints: the selectors that all pods to count must match. None: each constraint has its own."""
    needs_all_keys: bool
    """Score only nodes that have the keys of all soft constraints. The system's defaults do without."""
    fallback: tuple[FallenBack, ...] = ()
    """Which of the soft constraints are hard ones that have fallen back. The index is that in `defaultConstraints` if `kin` is set."""
    lines: tuple[str, ...] = ()
    """The standing of each constraint that can fall back."""


DECISION = "PodTopologySpread.decision"
"""Where the cycle state keeps the attempt's decision."""


class Constraint(NamedTuple):
    """One constraint, compiled for one pod."""

    topology_key: str
    max_skew: int
    min_domains: int
    honors_affinity: bool
    honors_taints: bool
    matches: Matcher
    counts_nobody: bool
    """The selector is `{}`: it matches the pod itself, but no pod is counted for it."""
    selector: object
    """Equal for equal selectors."""

    def admits(self, pod: Pod, node: Node) -> bool:
        """Whether the constraint's inclusion policies let the node count. It must have the topology keys, too."""
        if self.honors_affinity and not pod_matches_node(pod.spec, node):
            return False
        return not self.honors_taints or untolerated(node.spec.taints, pod.spec.tolerations) is None

    @property
    def policies(self) -> tuple[bool, bool]:
        """Constraints of one pod that agree in these admit the same nodes."""
        return self.honors_affinity, self.honors_taints

    def count_pods(self, pods: Iterable[PodInfo], namespace: str) -> int:
        """How many of the pods are to be spread. A pod that is being deleted is not."""
        if self.counts_nobody:
            return 0
        matches = self.matches
        return sum(
            1 for pod in pods if pod.namespace == namespace and not pod.terminating and matches(pod.labels)
        )

    def count(self, labels: Iterable[Labels]) -> int:
        """As `count_pods`, where `countable` has answered for the pods."""
        return 0 if self.counts_nobody else sum(map(self.matches, labels))


Constraints = tuple[Constraint, ...]


def countable(pods: Iterable[PodInfo], namespace: str) -> list[Labels]:
    """The labels of those of the pods that a constraint of a pod of this namespace counts if it selects them."""
    return [pod.labels for pod in pods if pod.namespace == namespace and not pod.terminating]


def has_all_keys(labels: Mapping[str, str], constraints: Iterable[Constraint]) -> bool:
    """Whether a node with these labels is in a domain of every constraint."""
    return all(constraint.topology_key in labels for constraint in constraints)


class SpreadRules:
    """The constraints that apply to each pod, in one profile."""

    def __init__(
        self,
        defaults: Sequence[TopologySpreadConstraint],
        handle: Handle,
        *,
        system: bool,
        provisioning_timeout: int | None = None,
    ) -> None:
        self._defaults = tuple(defaults)
        self._handle = handle
        self._system = system
        self._uses_min_domains = handle.features.min_domains_in_pod_topology_spread
        self.fallback = FallbackRules(
            enabled=handle.features.pod_topology_spread_fallback_mode,
            timeout=provisioning_timeout,
            only_if_rejected=handle.fallback_only_if_rejected_by_spread,
        )

    def decide(self, pod: Pod, standing: Standing | None = None) -> Decision:
        """The hard and the soft constraints of this pod; no constraints at all for one without kin and its own.

        `standing` is what fallback is judged by; None: nothing falls back.
        """
        own = pod.spec.topology_spread_constraints
        if own:
            return self._settled(Decision(_those(own, HARD), _those(own, SOFT), None, True), own, standing)
        kin = self._kin(pod)
        if not kin:
            return _NONE
        defaults = self._defaults
        hard, soft = _those(defaults, HARD), _those(defaults, SOFT)
        return self._settled(Decision(hard, soft, kin, not self._system), defaults, standing)

    def judged_at(self, waiting: WaitingPod, at: int) -> Decision:
        """Return the constraints that an attempt at this moment would go by."""
        return self.decide(waiting.pod, Standing.of(waiting.pod, at, waiting))

    def can_fall_back(self, pod: Pod) -> bool:
        """Whether what is decided may differ from attempt to attempt though the pod's spec is the same."""
        return self.fallback.enabled and any(c.fallback_criteria for _, c in self.numbered_hard(pod))

    def signature(self, pod: Pod) -> object:
        """All that is read of the pod to count and judge, its status and the attempt's circumstances aside; None: nothing applies to it."""
        own = pod.spec.topology_spread_constraints
        kin = () if own else self._kin(pod)
        if not own and not kin:
            return None
        keys = {key for one in own for key in one.match_label_keys}
        for selector in (*(one.label_selector for one in own), *kin):
            if selector is not None:
                keys.update(selector.match_labels)
                keys.update(requirement.key for requirement in selector.match_expressions)
        labels = sorted((key, value) for key, value in pod.metadata.labels.items() if key in keys)
        spec = pod.spec
        chooses = (spec.node_selector, spec.affinity and spec.affinity.node_affinity, spec.tolerations)
        return (pod.metadata.namespace, own, kin, labels, *chooses)

    def numbered_hard(self, pod: Pod) -> Numbered:
        """The hard constraints as they are written, with their indices."""
        own = pod.spec.topology_spread_constraints
        written = own or (self._defaults if self._kin(pod) else ())
        return _numbered_hard(written)

    def _kin(self, pod: Pod) -> tuple[LabelSelector, ...]:
        """For the defaults: by what the pods that belong together with this one are selected."""
        if not self._defaults:
            return ()
        selectors = self._handle.listers.owner_selectors(pod)
        return tuple(selector for selector in selectors if not is_empty(selector))

    def _settled(
        self,
        written: Decision,
        constraints: tuple[TopologySpreadConstraint, ...],
        standing: Standing | None,
    ) -> Decision:
        """The decision as it is written, with those moved to the soft ones that have fallen back, in the order of the spec."""
        if standing is None or not self.fallback.enabled:
            return written
        hard = _numbered_hard(constraints)
        if not any(constraint.fallback_criteria for _, constraint in hard):
            return written
        fallen = self.fallback.fallen(hard, standing)
        moved = {one.constraint for one in fallen}
        return written._replace(
            hard=tuple(constraint for i, constraint in hard if i not in moved),
            soft=tuple(c for i, c in enumerate(constraints) if i in moved or c.when_unsatisfiable == SOFT),
            fallback=fallen,
            lines=self.fallback.lines(
                hard, standing, "topologySpread" if written.kin is None else "defaultConstraints"
            ),
        )

    def compiled(
        self, constraints: Iterable[TopologySpreadConstraint], decision: Decision, pod: Pod
    ) -> Constraints:
        """These constraints of the decision. Raises SelectorError for a selector that does not parse."""
        return tuple(self._compiled(constraint, decision.kin, pod) for constraint in constraints)

    def _compiled(
        self, constraint: TopologySpreadConstraint, kin: tuple[LabelSelector, ...] | None, pod: Pod
    ) -> Constraint:
        counts_nobody = False
        key: object
        if kin is None:
            selector = _with_label_keys(constraint, pod.metadata.labels)
            matches = label_matcher(selector)
            counts_nobody = selector is not None and is_empty(selector)
            key = None if selector is None else selector_key(selector)
        else:
            matches = _matches_all(kin)
            key = tuple(map(selector_key, kin))
        min_domains = constraint.min_domains if self._uses_min_domains else None
        return Constraint(
            topology_key=constraint.topology_key,
            max_skew=constraint.max_skew,
            min_domains=1 if min_domains is None else min_domains,
            honors_affinity=(constraint.node_affinity_policy or HONOR) == HONOR,
            honors_taints=constraint.node_taints_policy == HONOR,
            matches=matches,
            counts_nobody=counts_nobody,
            selector=key,
        )


_NONE = Decision((), (), None, True)


def _those(
    constraints: Iterable[TopologySpreadConstraint], when: str
) -> tuple[TopologySpreadConstraint, ...]:
    return tuple(constraint for constraint in constraints if constraint.when_unsatisfiable == when)


def _numbered_hard(constraints: Iterable[TopologySpreadConstraint]) -> Numbered:
    return [(i, c) for i, c in enumerate(constraints) if c.when_unsatisfiable == HARD]


def _matches_all(selectors: Iterable[LabelSelector]) -> Matcher:
    matchers = tuple(map(label_matcher, selectors))
    return matchers[0] if len(matchers) == 1 else lambda labels: all(match(labels) for match in matchers)


def _with_label_keys(constraint: TopologySpreadConstraint, labels: Labels) -> LabelSelector | None:
    """The selector, narrowed to the pod's own value of each of `matchLabelKeys` that it has. Null stays null."""
    selector = constraint.label_selector
    if selector is None or not constraint.match_label_keys:
        return selector
    more = tuple(
        LabelSelectorRequirement(key=key, operator="In", values=(labels[key],))
        for key in constraint.match_label_keys
        if key in labels
    )
    return replace(selector, match_expressions=selector.match_expressions + more) if more else selector

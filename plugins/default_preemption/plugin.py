"""DefaultPreemption: make room for a pod by asking pods of lower priority to go, keeping the promises made to them.

    no node fits ──► may the pod preempt? ──► try it out on the nodes where it may help ──► choose ──► ask for the evictions ──► plan

What is here decides and asks; nothing is done by it. The plan goes into the log with the attempt's outcome, as one transaction, and
counts from the moment of the decision. Until all victims have been told, the preemptor is gated (PreEnqueue); later their ends wake it
through the hints of the plugin that really rejected it.

Everything that kube-scheduler leaves to chance is fixed: where the search begins follows from the attempt's number, equals are taken in
the order of that search, pods that are equally important in the order of their names.

With the gate DisruptionPolicyInPriorityClass (KEP-4664) no disruption budget of a pod is broken for a preemptor below the pod's threshold;
a preemption that failed for that reason is tried again when one of these budgets changes. See docs/preemption.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelog.api.errors import FieldError
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Pod
from tidelog.api.pod_status import is_preempted
from tidelog.api.tie_number import tie_of
from tidelog.api.validation.field_errors import NOT_NEGATIVE, ErrorList, in_range
from tidelog.framework.behaviours import GUARDED_STARTING_PODS, TIES_FOLLOW_PODS
from tidelog.framework.disruption_budgets import Allowances, is_protected, nobody
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Resource
from tidelog.framework.interface import (
    Code,
    CycleState,
    Handle,
    Plugin,
    PluginArgs,
    PostFilterPlugin,
    PostFilterResult,
    PreEnqueuePlugin,
    Status,
    unresolvable,
    unschedulable,
)
from tidelog.framework.node_info import PodInfo
from tidelog.framework.node_sets import nth_place
from tidelog.framework.node_statuses import any_resolvable, resolvable
from tidelog.framework.preemption_plan import (
    PlannedEviction,
    PreemptionOutcome,
    PreemptionPlan,
    PreemptionPort,
    RefusedEviction,
)
from tidelog.framework.reasons import nodes_message
from tidelog.framework.tie_break import scan_start
from tidelog.plugins.default_preemption.candidates import Candidate, Twin
from tidelog.plugins.default_preemption.dry_run import Blocker, DryRun
from tidelog.plugins.default_preemption.hints import budget_changed, pod_changed, pod_deleted, skip
from tidelog.plugins.default_preemption.memory import Memory
from tidelog.plugins.default_preemption.search import Search

PREFIX = "preemption: "
NEVER = "not eligible due to preemptionPolicy=Never."
TERMINATING = "not eligible due to a terminating pod on the nominated node."
NOT_HELPFUL = "Preemption is not helpful for scheduling"
WAITING = "waiting for the preemption for this pod to be finished"


class DefaultPreemptionArgs(PluginArgs, frozen=True, kw_only=True):
    """How many candidate nodes a search looks for: the larger of the two, and never more than there are."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class DefaultPreemption(Plugin):
    """Gates a pod for which a preemption is being carried out, and makes room for one that fits nowhere."""

    name = "DefaultPreemption"
    gates_newcomers = False
    tries_resolvable_only = True
    Args = DefaultPreemptionArgs

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._memory = Memory()
        self._guards_start = (
            self.guarded and handle.guard_starting_pods and handle.behaves(GUARDED_STARTING_PODS)
        )
        self._hopeless: tuple[int, PostFilterResult] = (-1, PostFilterResult())
        """The last number of nodes, and the answer where none of so many is worth a try: the same for every pod."""

    @classmethod
    def validate_args(cls, args: Any, path: str, gates: FeatureGates) -> list[FieldError]:
        """With both at zero no candidate would ever be looked at."""
        percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
        errors = ErrorList()
        if not 0 <= percentage <= 100:
            errors.invalid(f"{path}.minCandidateNodesPercentage", percentage, in_range(0, 100))
        if absolute < 0:
            errors.invalid(f"{path}.minCandidateNodesAbsolute", absolute, NOT_NEGATIVE)
        if percentage == 0 and absolute == 0:
            rule = "must not be zero together with minCandidateNodesAbsolute"
            errors.invalid(f"{path}.minCandidateNodesPercentage", percentage, rule)
        return errors

    @property
    def guarded(self) -> bool:
        """Whether the pods' thresholds count (KEP-4664)."""
        return self.handle.features.disruption_policy_in_priority_class

    def events_to_register(self) -> Sequence[EventRegistration]:
        """The end of a pod lets a gated preemptor be looked at again; the rest is for pods that a budget has kept from preempting."""
        ended = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
        if not self.guarded:
            return [EventRegistration(ended, skip)]
        budget = ClusterEvent(Resource.POD_DISRUPTION_BUDGET, Action.UPDATE | Action.DELETE)
        changed = Action.UPDATE_POD_LABEL | Action.UPDATE_POD_CONDITION | Action.UPDATE_POD_TERMINATING
        return [
            EventRegistration(ended, pod_deleted),
            EventRegistration(budget, budget_changed),
            EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, changed), pod_changed),
        ]

    def pre_enqueue(self, pod: Pod) -> Status | None:
        """One preemption at a time: the next attempt waits until all victims of the last one have been told."""
        port = self.handle.preemption
        return unresolvable(WAITING) if port is not None and port.is_deciding(pod) else None

    # --- PostFilter -----------------------------------------------------------------------------------------------------

    def post_filter(
        self, state: CycleState, pod: PodInfo, statuses: Mapping[str, Status]
    ) -> PostFilterResult:
        """Find the preemption that hurts least, and have its evictions granted."""
        port = self.handle.preemption
        assert port is not None, "DefaultPreemption needs the framework's preemption port"
        status = self.eligibility(port, pod, statuses)
        if status is not None:
            return PostFilterResult(status, outcome=PreemptionOutcome.NOT_ELIGIBLE)
        if not any_resolvable(statuses):
            return self._nothing_to_try()
        allowances = self.allowances(port, state, pod)
        search = self.search(port, allowances, state, pod, statuses)
        if not search.count:
            return self._nothing_helps(allowances, pod, search)
        plan, refusals = self._evict(port, allowances, search, pod)
        if plan is None:
            text = "; ".join(refused.message for refused in refusals)
            refused_by = [refused.refusal.budget for refused in refusals if refused.refusal.budget]
            blocked_by = _unique([*refused_by, *search.budgets()])
            return PostFilterResult(
                unschedulable(PREFIX + text),
                "",
                refusals=refusals,
                blocked_by=blocked_by,
                outcome=PreemptionOutcome.REFUSED,
            )
        text = (
            f"found a potential placement for pod on node {plan.node}, preempting {len(plan.victims)} victims"
        )
        status = Status(Code.SUCCESS, (PREFIX + text,))
        return PostFilterResult(status, plan.node, plan, refusals, outcome=PreemptionOutcome.NOMINATED)

    def allowances(self, port: PreemptionPort, state: CycleState, pod: PodInfo) -> Allowances:
        """Return the budgets' allowances for this preemptor, before anything is charged."""
        # A promise cannot be kept with kube-scheduler's way of matching and charging, which knows of no promise.
        best_effort = self.handle.upstream and not self.guarded
        guards_start = (lambda victim: is_protected(victim, pod.priority)) if self._guards_start else nobody
        return Allowances(
            self.handle.listers, port, state.at, upstream=best_effort, guards_start=guards_start
        )

    def eligibility(
        self, port: PreemptionPort, pod: PodInfo, statuses: Mapping[str, Status]
    ) -> Status | None:
        """Why the pod may not preempt; None if it may."""
        if pod.pod.spec.preemption_policy == "Never":
            return unschedulable(PREFIX + NEVER)
        nominated = pod.pod.status.nominated_node_name
        if not nominated:
            return None
        status = statuses.get(nominated)
        node = self.handle.snapshot.get(nominated)
        if node is None or status is None or status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return None  # The promised node is of no use any more.
        for other in node.pods.values():
            if other.priority < pod.priority and (is_preempted(other.pod) or port.is_evicted(other.uid)):
                return unschedulable(PREFIX + TERMINATING)
        return None

    def search(
        self,
        port: PreemptionPort,
        allowances: Allowances,
        state: CycleState,
        pod: PodInfo,
        statuses: Mapping[str, Status],
    ) -> Search:
        """Try nodes until enough candidates are found. While there are only such that break budgets, all nodes are tried."""
        snapshot = port.snapshot
        among = resolvable(statuses, snapshot.place_of, len(snapshot.nodes))
        count = among.bit_count()
        turn = tie_of(pod.pod) if self.handle.behaves(TIES_FOLLOW_PODS) else state.turn
        start = nth_place(among, scan_start(turn, count)) if among else 0
        run = DryRun(port, allowances, state, pod, guarded=self.guarded)
        memory = self._memory.recollection(port, allowances, state, pod)
        return Search(snapshot.nodes, memory, run, among, start, self._candidates_wanted(count), state.at)

    def _candidates_wanted(self, nodes: int) -> int:
        args: DefaultPreemptionArgs = self.args
        share = nodes * args.min_candidate_nodes_percentage // 100
        return min(nodes, max(share, args.min_candidate_nodes_absolute))

    # --- the evictions --------------------------------------------------------------------------------------------------

    def _evict(
        self,
        port: PreemptionPort,
        allowances: Allowances,
        search: Search,
        pod: PodInfo,
    ) -> tuple[PreemptionPlan | None, tuple[RefusedEviction, ...]]:
        """The first of the candidates whose protected victims are all granted; what was refused on the way."""
        refusals: list[RefusedEviction] = []
        for number, candidate in enumerate(search.best_first(), 1):
            going = [victim for victim in candidate.victims if not allowances.is_going(victim)]
            protected = [victim for victim in going if victim.uid in candidate.protected]
            costs = [tuple(map(object_key, allowances.costs(victim))) for victim in protected]
            refusal = port.evictions.evict(protected, allowances) if protected else None
            if refusal is not None:
                then = (
                    f"trying next candidate {number + 1} of {search.count}"
                    if number < search.count
                    else "no candidate is left"
                )
                refusals.append(
                    RefusedEviction(
                        candidate.node, refusal, f"{_refused(refusal.pod, refusal.budget)}; {then}"
                    )
                )
                continue
            evictions = [
                PlannedEviction(victim, "evict", True, budgets)
                for victim, budgets in zip(protected, costs, strict=True)
            ]
            evictions.extend(
                self._evict_unprotected(port, allowances, candidate.node, victim, refusals)
                for victim in going
                if victim.uid not in candidate.protected
            )
            return self._plan(port, candidate, evictions, pod, search.count), tuple(refusals)
        return None, tuple(refusals)

    def _evict_unprotected(
        self,
        port: PreemptionPort,
        allowances: Allowances,
        node: str,
        victim: PodInfo,
        refusals: list[RefusedEviction],
    ) -> PlannedEviction:
        """Evicted if its budgets allow that, else deleted; deleted in any case while KEP-4664 is off."""
        budgets = tuple(map(object_key, allowances.costs(victim)))
        if self.guarded:
            refusal = port.evictions.evict([victim], allowances)
            if refusal is None:
                return PlannedEviction(victim, "evict", False, budgets)
            text = f"{_refused(victim, refusal.budget)}; deleting it"
            refusals.append(RefusedEviction(node, refusal, text))
        if self.handle.upstream and not self.guarded:
            return PlannedEviction(victim, "delete", False, ())
        return PlannedEviction(victim, "delete", False, allowances.charge(victim))

    def _plan(
        self,
        port: PreemptionPort,
        candidate: Candidate | Twin,
        evictions: Sequence[PlannedEviction],
        pod: PodInfo,
        candidates: int,
    ) -> PreemptionPlan:
        """Nominations to the node of pods of lower priority are void; kube-scheduler leaves them if nobody is left to evict."""
        cleared: list[PodInfo] = []
        if evictions or not self.handle.upstream:
            cleared = [other for other in port.nominated(candidate.node) if other.priority < pod.priority]
        return PreemptionPlan(
            candidate.node,
            candidate.victims,
            tuple(evictions),
            tuple(cleared),
            candidate.violations,
            candidate.spared,
            candidates,
        )

    # --- failure --------------------------------------------------------------------------------------------------------

    def _nothing_to_try(self) -> PostFilterResult:
        """On no node would it help that pods go."""
        nodes = len(self.handle.snapshot.nodes)
        if self._hopeless[0] != nodes:
            text = nodes_message(nodes, {NOT_HELPFUL: nodes} if nodes else {})
            status = unschedulable(PREFIX + text)
            self._hopeless = (nodes, PostFilterResult(status, "", outcome=PreemptionOutcome.NO_CANDIDATE))
        return self._hopeless[1]

    def _nothing_helps(self, allowances: Allowances, pod: PodInfo, search: Search) -> PostFilterResult:
        """No candidate: an error if a plugin failed, else every node's reason, and which budgets were in the way."""
        failures = search.failures()
        if not all(status.is_rejected for status in failures):
            return PostFilterResult(next(s for s in search.statuses.values() if not s.is_rejected))
        counts: Counter[str] = Counter()
        for status, times in failures.items():
            for reason in status.reasons:
                counts[reason] += times
        nodes = len(self.handle.snapshot.nodes)
        untried = nodes - sum(failures.values())
        if untried:
            counts[NOT_HELPFUL] += untried
        text = nodes_message(nodes, counts)
        blocked_by = _unique(search.budgets())
        if blocked_by:
            text = f"{text} {_what_blocks(allowances, pod, search.blockers)}"
        in_the_way = _unique(status.plugin for status in failures if status.plugin)
        outcome = PreemptionOutcome.BLOCKED if blocked_by else PreemptionOutcome.NO_CANDIDATE
        return PostFilterResult(
            unschedulable(PREFIX + text), "", blocked_by=blocked_by, in_the_way=in_the_way, outcome=outcome
        )


_post_filter: type[PostFilterPlugin] = DefaultPreemption
_pre_enqueue: type[PreEnqueuePlugin] = DefaultPreemption


def _refused(pod: PodInfo, budget: str) -> str:
    by = f" by PDB {_short(budget)}" if budget else ""
    return f"eviction of {pod.key} refused{by} (429)"


def _short(budget: str) -> str:
    """`namespace/name` of a record key."""
    return budget.partition("/")[2]


def _unique(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(words)))


def _what_blocks(allowances: Allowances, pod: PodInfo, blockers: Mapping[str, Sequence[Blocker]]) -> str:
    """Which budget protects how many pods, and what it would take; one clause for each budget, by name."""
    by_budget: dict[str, list[tuple[str, Blocker]]] = {}
    for node, found in blockers.items():
        for blocker in found:
            by_budget.setdefault(object_key(blocker.budget), []).append((node, blocker))
    clauses = []
    for key, standing in sorted(by_budget.items()):
        pods, nodes = len({blocker.pod.uid for _, blocker in standing}), len({node for node, _ in standing})
        allowed = max(allowances.left(standing[0][1].budget), 0)
        # Below the highest threshold some of these pods would still be protected.
        needed = max(_threshold(blocker.pod) for _, blocker in standing)
        clauses.append(
            f"{_counted(pods, 'pod')} on {_counted(nodes, 'node')} protected by PDB {_short(key)} "
            f"(allowed {allowed}, needs priority >= {needed}, preemptor has {pod.priority})"
        )
    return f"preemption blocked: {'; '.join(clauses)}"


def _threshold(pod: PodInfo) -> int:
    threshold = pod.pod.spec.allow_disruption_by_priority_greater_than_or_equal
    assert threshold is not None, f"{pod.key} is protected without a threshold"
    return threshold


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

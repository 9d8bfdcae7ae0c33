"""The framework of one profile: its plugins in order, and how each extension point treats their answers.

A pod's cycle (`tidelog.scheduler.pod_cycle`) only strings these steps together:

    run_pre_filter → find_feasible → (nobody: run_post_filter)
                                   → score_nodes → select → run_reserve → run_permit → run_pre_bind → run_bind → run_post_bind

`schedule_pod` is the part up to the choice of a node. What is here is the plain evaluation: every plugin on every node, which
costs plugins × nodes calls. The fast path must give the same answers, and is tested against this.

A plugin that raises does not stop the scheduler: it becomes a status of code ERROR with the plugin's name, and fails the attempt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeGuard, TypeVar

from tidelog.api.tie_number import tie_of
from tidelog.api.times import NANOS
from tidelog.api.writes import Write
from tidelog.framework.behaviours import (
    ANSWERS_ARE_AWAITED,
    NOMINATED_REJECTORS,
    PLANS_NEED_DEVICES,
    TIES_FOLLOW_PODS,
)
from tidelog.framework.diagnosis import NO_NODES, Diagnosis, FitError, did_not_satisfy
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import (
    Answer,
    Awaited,
    BindPlugin,
    Code,
    CycleState,
    Depends,
    FilterPlugin,
    GroupInfo,
    LaterPlugins,
    NormalizeScore,
    PermitPlugin,
    PermitResult,
    Placement,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    PlacementStatePlugin,
    Plugin,
    PodHooks,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
    Status,
    WritesBeforeBinding,
    unresolvable,
)
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.nominations import FixedNominations, NominatedPods
from tidelog.framework.offers import ConcernsPods, SumsUp
from tidelog.framework.results import (
    ANY_DEVICE,
    NOTHING_READ,
    Feasible,
    NodeScores,
    PermitOutcome,
    PluginScores,
    PreFilterOutcome,
    PromisedWrites,
    ScheduleResult,
)
from tidelog.framework.steps import StepObserver, observe_steps, step
from tidelog.framework.tie_break import winner

MAX_NODE_SCORE = 100
MAX_PERMIT_NANOSECONDS = 15 * 60 * NANOS
"""A longer wait in Permit is cut to this."""

T = TypeVar("T")
P = TypeVar("P", ReservePlugin, PermitPlugin, WritesBeforeBinding, PreBindPlugin)

_UNRESOLVABLE = Code.UNSCHEDULABLE_AND_UNRESOLVABLE


class Observer(Protocol):
    """Told of every answer of a plugin, for counting. Called for each node at Filter: it must be quick."""

    def begin(self) -> None:
        """Count what the next plugin takes from now on."""

    def plugin_ran(self, point: str, plugin: str, status: Status | None) -> None: ...


class QuickEvaluation(Protocol):
    """Finds the node that the plain evaluation would find, without asking every plugin about every node."""

    placements: Any
    """Remembers which placements are alike for a group; the group cycle of `tidelog.scheduler` asks it."""

    def choose(
        self,
        state: CycleState,
        pod: PodInfo,
        turn: int,
        candidates: Sequence[NodeInfo] | None = None,
        nominated_node: str = "",
    ) -> tuple[str, Any] | FitError | None:
        """Return the node's name and how good it is (feasible, score), or why there is none; None where the plain evaluation has to answer."""


class _Named(Protocol):
    name: ClassVar[str]


_NOBODY: frozenset[str] = frozenset()


class Framework:
    """The plugins of one profile. `points` names the plugins of each extension point in order, as the configuration does.

    `weights` holds the factor of each scoring plugin; who is not named has 1.
    """

    def __init__(
        self,
        name: str,
        points: Mapping[str, Sequence[Plugin]],
        handle: FrameworkHandle,
        *,
        weights: Mapping[str, int] | None = None,
        placement_weights: Mapping[str, int] | None = None,
        nominated: NominatedPods | None = None,
        fast: Callable[[Framework], QuickEvaluation] | None = None,
    ) -> None:
        """`fast` makes an evaluation that finds the same nodes with less work (`tidelog.scheduler.evaluation`), where it can."""
        self.name = name
        self.handle = handle
        self.snapshot = handle.snapshot
        """Of the attempt under way."""
        self.ties_follow_pods = handle.behaves(TIES_FOLLOW_PODS)
        """Of equally good nodes one with the fewest pods is taken."""
        self.plans_need_devices = handle.behaves(PLANS_NEED_DEVICES)
        self.awaits_without_writes = handle.behaves(ANSWERS_ARE_AWAITED)
        """A pod for which nothing is left to be written waits all the same for answers to what was written before."""
        self.names_nominated_rejectors = handle.upstream and handle.behaves(NOMINATED_REJECTORS)
        """Plugins that rejected the nominated node are named beside those that left out the other nodes."""
        self.nominated: NominatedPods = FixedNominations() if nominated is None else nominated
        handle.nominated = self.nominated
        self.observer: Observer | None = None
        self.has_observed_steps = False
        self.weights = dict(weights or {})
        self.placement_weights = dict(placement_weights or {})
        """The factors of the plugins that score placements."""

        def at(point: str) -> Any:
            return tuple(points.get(point, ()))

        self.pre_enqueue: tuple[PreEnqueuePlugin, ...] = at("preEnqueue")
        self.pre_filter: tuple[PreFilterPlugin, ...] = at("preFilter")
        self.filter: tuple[FilterPlugin, ...] = at("filter")
        self.post_filter: tuple[PostFilterPlugin, ...] = at("postFilter")
        self.pre_score: tuple[PreScorePlugin, ...] = at("preScore")
        self.score: tuple[ScorePlugin, ...] = at("score")
        self.reserve: tuple[ReservePlugin, ...] = at("reserve")
        self.permit: tuple[PermitPlugin, ...] = at("permit")
        self.pre_bind: tuple[PreBindPlugin, ...] = at("preBind")
        self.bind: tuple[BindPlugin, ...] = at("bind")
        self.post_bind: tuple[PostBindPlugin, ...] = at("postBind")
        self.placement_generate: tuple[PlacementGeneratePlugin, ...] = at("placementGenerate")
        self.placement_state: tuple[PlacementStatePlugin, ...] = at("placementState")
        self.placement_score: tuple[PlacementScorePlugin, ...] = at("placementScore")
        self._hooks: tuple[tuple[str, PodHooks], ...] = tuple(
            (plugin.name, plugin) for plugin in points.get("preFilter", ()) if isinstance(plugin, PodHooks)
        )
        self._writers: tuple[WritesBeforeBinding, ...] = tuple(
            plugin for plugin in self.pre_bind if isinstance(plugin, WritesBeforeBinding)
        )
        self.summing: tuple[SumsUp, ...] = tuple(p for p in self.filter if isinstance(p, SumsUp))
        """The filters that say how much a pod needs."""
        self.choosy: tuple[ConcernsPods, ...] = tuple(p for p in self.reserve if isinstance(p, ConcernsPods))
        """The Reserve plugins that have nothing to do with most pods."""
        self._choosy_at_first: tuple[Any, ...] = tuple(
            p for p in self.pre_filter if isinstance(p, ConcernsPods)
        )
        """The same of PreFilter plugins, which skip such a pod."""
        self._later: dict[frozenset[str], LaterPlugins] = {}
        """Names of plugins that have nothing to do with a pod → who takes part after the choice of its node."""
        self._all_later = self.later_for(frozenset())
        self._looked_at: dict[frozenset[str], Depends] = {}
        """Names of skipped filters → what the others look at."""
        self._static: dict[frozenset[str], tuple[Sequence[FilterPlugin], bool]] = {}
        """The same → those of the others that look at the node's object only."""
        self.fast = fast(self) if fast is not None else None
        """The fast evaluation, if there is one."""

    def observe_steps(self, observer: StepObserver) -> None:
        """Tell the observer of every step from now on; what a step takes beside those within it is its own."""
        self.has_observed_steps = True
        observe_steps(self, observer)

    # --- one pod, up to the choice of a node --------------------------------------------------------------------------

    @step("Filter")
    def schedule_pod(
        self,
        state: CycleState,
        pod: PodInfo,
        *,
        turn: int,
        nominated_node: str = "",
        candidates: Sequence[NodeInfo] | None = None,
    ) -> ScheduleResult | FitError | Status:
        """Choose a node. Without one the answer is a FitError, or a status: NO_NODES, or an error.

        `turn` breaks ties (see `select`); `candidates` are the nodes of a placement, None for all.
        """
        if not self.snapshot.node_count:
            return NO_NODES
        if self.ties_follow_pods:
            turn = tie_of(pod.pod)
        if self.fast is not None:
            quick = self.fast.choose(state, pod, turn, candidates, nominated_node)
            if isinstance(quick, FitError):
                return quick
            if quick is not None:
                name, best = quick
                return ScheduleResult(name, best.feasible, None, best.score)
        found = self.find_feasible(state, pod, nominated_node=nominated_node, candidates=candidates)
        if not isinstance(found, Feasible):
            return found
        if len(found.nodes) == 1:
            return ScheduleResult(found.nodes[0].name, 1)
        scores = self.score_nodes(state, pod, found.nodes)
        if isinstance(scores, Status):
            return scores
        chosen, _ = self.select(scores, turn)
        return ScheduleResult(chosen.name, len(found.nodes), scores, max(scores.totals))

    def turn_of(self, pod: PodInfo, attempt: int) -> int:
        """The number by which ties are broken for the pod: its own, or that of its attempt."""
        return tie_of(pod.pod) if self.ties_follow_pods else attempt

    def find_feasible(
        self,
        state: CycleState,
        pod: PodInfo,
        *,
        nominated_node: str = "",
        candidates: Sequence[NodeInfo] | None = None,
    ) -> Feasible | FitError | Status:
        """PreFilter, then Filter on every node that is left. A status is an error.

        The node that the pod is nominated to is tried first, and alone: if it passes, it is the only feasible one.
        """
        nodes = self.snapshot.nodes if candidates is None else candidates
        silent = self._silent_for(pod)
        state.later = self.later_for(silent)
        outcome = self.run_pre_filter(state, pod, silent)
        rejection = outcome.status
        diagnosis = Diagnosis(outcome.narrowers)
        if rejection is not None:
            if not rejection.is_rejected:
                return rejection
            diagnosis.absent = rejection
            diagnosis.pre_filter_message = rejection.message
            diagnosis.blame(rejection)
            return FitError(len(nodes), diagnosis)
        if outcome.nodes is not None:
            names = outcome.nodes
            allowed = (
                self.snapshot.in_order(names) if candidates is None else [n for n in nodes if n.name in names]
            )
            diagnosis.leave_out(outcome.narrowers)
        else:
            allowed = list(nodes)
        if nominated_node:
            only = [node for node in allowed if node.name == nominated_node]
            passed = self._passing(state, pod, only, diagnosis)
            if isinstance(passed, Status) or passed:
                return (
                    passed if isinstance(passed, Status) else Feasible(passed, diagnosis, is_nominated=True)
                )
            if self.names_nominated_rejectors and outcome.nodes is not None:
                diagnosis.leave_out(sorted(diagnosis.rejecting))
        passed = self._passing(state, pod, allowed, diagnosis)
        if isinstance(passed, Status):
            return passed
        return Feasible(passed, diagnosis) if passed else FitError(len(nodes), diagnosis)

    def _passing(
        self, state: CycleState, pod: PodInfo, nodes: Iterable[NodeInfo], diagnosis: Diagnosis
    ) -> list[NodeInfo] | Status:
        """The nodes that pass all filters; the others' statuses go to the diagnosis. A status is an error."""
        filters = self.active_filters(state)
        passed: list[NodeInfo] = []
        for node in nodes:
            status = self.run_filters(state, pod, node, filters)
            if status is None:
                passed.append(node)
            elif status.is_rejected:
                diagnosis.reject_node(node.name, status)
            else:
                return status
        return passed

    def select(self, scores: NodeScores, turn: int) -> tuple[NodeInfo, list[NodeInfo]]:
        """The best node, and all that are equally good (`tidelog.framework.tie_break`). `turn`: of the pod, or in older logs of the attempt."""
        best = max(scores.totals)
        tied = [node for node, total in zip(scores.nodes, scores.totals, strict=True) if total == best]
        snapshot = self.snapshot
        chosen = winner(tied, snapshot.place_of, turn, snapshot.node_count, fewest=self.ties_follow_pods)
        return chosen, tied

    # --- filtering ----------------------------------------------------------------------------------------------------

    @step("PreFilter")
    def run_pre_filter(
        self, state: CycleState, pod: PodInfo, silent: frozenset[str] = _NOBODY
    ) -> PreFilterOutcome:
        """Every PreFilter plugin over all nodes of the snapshot, placements or not. Fills `state.skip_filter`. `silent`: those that have nothing to do with the pod.

        An unresolvable rejection ends it at once. After a resolvable one the others still prepare their state, which
        preemption needs; the last such rejection counts.
        """
        nodes: frozenset[str] | None = None
        rejection: Status | None = None
        narrowers: set[str] = set()
        skipped: set[str] = set()
        state.skip_filter = skipped
        everything = self.snapshot.nodes
        for plugin in self.pre_filter:
            name = plugin.name
            if name in silent:
                skipped.add(name)
                continue
            try:
                result = _checked(plugin.pre_filter(state, pod, everything), PreFilterResult)
            except Exception as error:
                result = PreFilterResult(status=_crashed("PreFilter", name, error))
            status = result.status
            self._observe("PreFilter", name, status)
            if status is not None and status.code is Code.SKIP:
                skipped.add(name)
            elif not _failing(status):
                if result.nodes is None:
                    continue
                narrowers.add(name)
                nodes = result.nodes if nodes is None else nodes & result.nodes
                if not nodes:
                    return PreFilterOutcome(nodes, _empty_intersection(narrowers), tuple(sorted(narrowers)))
            elif status.code is Code.UNSCHEDULABLE:
                rejection = status.by(name)
            elif status.code is _UNRESOLVABLE:
                return PreFilterOutcome(None, status.by(name), ())
            else:
                return PreFilterOutcome(None, _failed("PreFilter", name, status), ())
        return PreFilterOutcome(nodes, rejection, tuple(sorted(narrowers)))

    def _silent_for(self, pod: PodInfo) -> frozenset[str]:
        """The names of the plugins that say that they have nothing to do with the pod; none where somebody wants to hear of each."""
        if self.observer is not None:
            return _NOBODY
        return frozenset([plugin.name for plugin in self._choosy_at_first if not concerns(plugin, pod)])

    def active_filters(self, state: CycleState) -> Sequence[FilterPlugin]:
        """The filters that have something to say about the pod."""
        skipped = state.skip_filter
        return [plugin for plugin in self.filter if plugin.name not in skipped] if skipped else self.filter

    def looked_at(self, state: CycleState) -> Depends:
        """Return the parts of the cluster that the active filters look at."""
        skipped = frozenset(state.skip_filter)
        found = self._looked_at.get(skipped)
        if found is None:
            found = Depends.POD
            for plugin in self.active_filters(state):
                found |= getattr(plugin, "filter_depends", Depends.CLUSTER)
            self._looked_at[skipped] = found
        return found

    def static_filters(self, state: CycleState) -> tuple[Sequence[FilterPlugin], bool]:
        """Those of the filters that have something to say about the pod that look at nothing but the node's object; and whether at no more than its traits."""
        skipped = frozenset(state.skip_filter)
        found = self._static.get(skipped)
        if found is None:
            declared = [
                (p, getattr(p, "filter_depends", Depends.CLUSTER)) for p in self.active_filters(state)
            ]
            static = [(plugin, depends) for plugin, depends in declared if not depends & ~Depends.NODE]
            by_traits = not any(depends & ~Depends.TRAITS for _, depends in static)
            found = self._static[skipped] = tuple(plugin for plugin, _ in static), by_traits
        return found

    def run_filters(
        self,
        state: CycleState,
        pod: PodInfo,
        node: NodeInfo,
        filters: Sequence[FilterPlugin] | None = None,
    ) -> Status | None:
        """The first filter's rejection of the node, or an error; None if it is feasible.

        When pods that matter at least as much are nominated to the node, the filters must pass with them there, and
        without them.
        """
        if filters is None:
            filters = self.active_filters(state)
        nominated = self.nominated.pods_on(node.name)
        if nominated:
            added = [
                other
                for other in nominated
                if other.priority >= pod.priority and other.uid != pod.uid and other.uid not in node.pods
            ]
            if added:
                status = self._run_filters_with(added, state, pod, node, filters)
                if status is not None:
                    return status
        return self._run_filters_once(state, pod, node, filters)

    def run_filters_alone(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, filters: Sequence[FilterPlugin]
    ) -> Status | None:
        """As `run_filters` of these, without regard to nominated pods."""
        return self._run_filters_once(state, pod, node, filters)

    def _run_filters_with(
        self,
        added: Iterable[PodInfo],
        state: CycleState,
        pod: PodInfo,
        node: NodeInfo,
        filters: Sequence[FilterPlugin],
    ) -> Status | None:
        state, node = state.clone(), node.clone()
        for other in added:
            status = self.add_pod(state, pod, other, node)
            if status is not None:
                return status
        return self._run_filters_once(state, pod, node, filters)

    def _run_filters_once(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, filters: Sequence[FilterPlugin]
    ) -> Status | None:
        observer = self.observer
        for plugin in filters:
            try:
                status = _status(plugin.filter(state, pod, node))
            except Exception as error:
                status = _crashed("Filter", plugin.name, error)
            if observer is not None:
                observer.plugin_ran("Filter", plugin.name, status)
            if status is not None and status.code is not Code.SUCCESS:
                return _rejection_or_error("Filter", plugin.name, status)
        return None

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        """Put a pod on a clone of a node, and tell the PreFilter plugins. A status is an error."""
        node.add_pod(added)
        for name, plugin in self._hooks:
            if name in state.skip_filter:
                continue
            status = _answered("PreFilter AddPod", name, plugin.add_pod, state, pod, added, node)
            if _failing(status):
                return _failed("PreFilter AddPod", name, status)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        """Take a pod off a clone of a node, and tell the PreFilter plugins. A status is an error."""
        node.remove_pod(removed)
        for name, plugin in self._hooks:
            if name in state.skip_filter:
                continue
            status = _answered("PreFilter RemovePod", name, plugin.remove_pod, state, pod, removed, node)
            if _failing(status):
                return _failed("PreFilter RemovePod", name, status)
        return None

    @step("PostFilter")
    def run_post_filter(
        self, state: CycleState, pod: PodInfo, statuses: Mapping[str, Status]
    ) -> PostFilterResult:
        """Try to make room. Success, an unresolvable rejection or an error ends it; after others the next plugin is asked.

        The status has the reasons of all that were asked and, unless it is a success, a plugin.
        """
        merged: PostFilterResult | None = None
        reasons: list[str] = []
        first = ""
        for plugin in self.post_filter:
            try:
                result = _checked(plugin.post_filter(state, pod, statuses), PostFilterResult)
            except Exception as error:
                result = PostFilterResult(_crashed("PostFilter", plugin.name, error))
            status = result.status
            if result.blocked_by:
                result = result._replace(blocking=(plugin.name,))
            self._observe("PostFilter", plugin.name, status)
            if not _failing(status):
                return result if merged is None else result._replace(writes=merged.writes + result.writes)
            if status.code is _UNRESOLVABLE:
                return result._replace(status=status.by(plugin.name), plan=None)
            if not status.is_rejected:
                return PostFilterResult(_failed("PostFilter", plugin.name, status))
            merged = result if merged is None else _merged(merged, result)
            reasons.extend(status.reasons)
            first = first if first or not status.reasons else plugin.name
        first = first or next((plugin.name for plugin in self.post_filter), "")
        status = Status(Code.UNSCHEDULABLE, tuple(reasons), first)
        return (merged or PostFilterResult())._replace(status=status, plan=None)

    # --- scoring ------------------------------------------------------------------------------------------------------

    @step("Score")
    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> NodeScores | Status:
        """PreScore, Score, NormalizeScore, weights. A status is an error: no plugin can reject a pod here."""
        failure = self.run_pre_score(state, pod, nodes)
        if failure is not None:
            return failure
        plugins: dict[str, PluginScores] = {}
        totals = [0] * len(nodes)
        for plugin in self.score:
            if plugin.name in state.skip_score:
                continue
            scores = self._run_score(plugin, state, pod, nodes)
            if isinstance(scores, Status):
                return scores
            plugins[plugin.name] = scores
            weight = scores.weight
            totals = [total + weight * score for total, score in zip(totals, scores.normalized, strict=True)]
        return NodeScores(nodes, plugins, totals)

    @step("PreScore")
    def run_pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        """Fills `state.skip_score`. Any status is an error."""
        skipped: set[str] = set()
        state.skip_score = skipped
        for plugin in self.pre_score:
            status = self._asked("PreScore", plugin, plugin.pre_score, state, pod, nodes)
            if status is not None and status.code is Code.SKIP:
                skipped.add(plugin.name)
            elif _failing(status):
                return _failed("PreScore", plugin.name, status)
        return None

    def _run_score(
        self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]
    ) -> PluginScores | Status:
        try:
            raw = [plugin.score(state, pod, node) for node in nodes]
            normalized = raw
            if isinstance(plugin, NormalizeScore):
                normalized = _checked(plugin.normalize_scores(state, pod, nodes, list(raw)), list)
        except Exception as error:
            return _crashed("Score", plugin.name, error)
        self._observe("Score", plugin.name, None)
        if len(normalized) != len(nodes):
            return _error("Score", plugin.name, f"returned {len(normalized)} scores for {len(nodes)} nodes")
        for score in normalized:
            if type(score) is not int or not 0 <= score <= MAX_NODE_SCORE:
                what = f"returned the score {score!r}, which is not an integer in 0..{MAX_NODE_SCORE}"
                return _error("Score", plugin.name, _ADDRESS.sub("0x…", what))
        return PluginScores(self.weights.get(plugin.name, 1), raw, normalized)

    # --- after the choice ---------------------------------------------------------------------------------------------

    def later_for(self, silent: frozenset[str]) -> LaterPlugins:
        """Those that take part after the choice of a node, without these, which have nothing to do with the pod."""
        found = self._later.get(silent)
        if found is None:
            reserve, permit = _without(silent, self.reserve), _without(silent, self.permit)
            writers, pre_bind = _without(silent, self._writers), _without(silent, self.pre_bind)
            is_empty = not (reserve or permit or pre_bind)
            found = LaterPlugins(reserve, permit, writers, pre_bind, is_empty)
            self._later[silent] = found
        return found

    def binds_at_once(self, state: CycleState) -> bool:
        """Whether nobody has anything to do with the pod between the choice of its node and Bind, and nobody wants to hear of that either."""
        later = state.later
        return later is not None and later.is_empty and not self.has_observed_steps

    def may_write(self, state: CycleState) -> bool:
        """Whether some plugin may have to write something before the pod can be bound."""
        return bool((state.later or self._all_later).writers)

    @step("Reserve")
    def run_reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Set aside what the pod needs. A failure has undone everything; it is a rejection or an error."""
        for plugin in (state.later or self._all_later).reserve:
            status = self._asked("Reserve", plugin, plugin.reserve, state, pod, node)
            if _failing(status):
                self.run_unreserve(state, pod, node)
                return _rejection_or_error("Reserve", plugin.name, status)
        return None

    @step("Unreserve")
    def run_unreserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """All Reserve plugins in reverse order, those that did not get to reserve included.

        Every one is asked, even after one that raised; the status tells of the first that did.
        """
        failure: Status | None = None
        for plugin in reversed((state.later or self._all_later).reserve):
            try:
                plugin.unreserve(state, pod, node)
            except Exception as error:
                failure = failure or _crashed("Unreserve", plugin.name, error)
        return failure

    @step("Permit")
    def run_permit(self, state: CycleState, pod: PodInfo, node: str) -> PermitOutcome:
        """Allowed, rejected, an error, or WAIT for the plugins named in `waits`. All are asked even if one says WAIT."""
        waits: list[tuple[str, int]] = []
        for plugin in (state.later or self._all_later).permit:
            try:
                result = _checked(plugin.permit(state, pod, node), PermitResult)
            except Exception as error:
                result = PermitResult(_crashed("Permit", plugin.name, error))
            status = result.status
            self._observe("Permit", plugin.name, status)
            if not _failing(status):
                continue
            if status.code is Code.WAIT:
                wanted = int(result.timeout_seconds * NANOS)
                waits.append((plugin.name, min(wanted, MAX_PERMIT_NANOSECONDS)))
            elif status.is_rejected:
                return PermitOutcome(status.by(plugin.name))
            else:
                return PermitOutcome(_failed("Permit", plugin.name, status))
        return PermitOutcome(Status(Code.WAIT), tuple(waits)) if waits else PermitOutcome(None)

    @step("PreBind")
    def run_pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Any status is an error: what goes wrong here is not a rejection by a plugin."""
        for plugin in (state.later or self._all_later).pre_bind:
            status = self._asked("PreBind", plugin, plugin.pre_bind, state, pod, node)
            if _failing(status):
                return _failed("PreBind", plugin.name, status)
        return None

    def run_writes(self, state: CycleState, pod: PodInfo, node: str) -> tuple[PromisedWrites, ...] | Status:
        """Return the writes that each plugin needs before the pod can be bound there; none where it only awaits answers. Asked between Permit and PreBind; a
        status is an error."""
        found: tuple[PromisedWrites, ...] = ()
        for plugin in (state.later or self._all_later).writers:
            try:
                writes = plugin.writes(state, pod, node)
                if writes or self._still_awaits(plugin, pod, node):
                    timeout = int(plugin.answer_timeout_seconds * NANOS)
                    found = (*found, PromisedWrites(plugin.name, tuple(writes), timeout))
            except Exception as error:
                return _crashed("PreBind", plugin.name, error)
        return found

    def _still_awaits(self, plugin: WritesBeforeBinding, pod: PodInfo, node: str) -> bool:
        """An earlier attempt has written everything, and was not answered in time."""
        return self.awaits_without_writes and bool(plugin.answer(pod, self.snapshot.get(node), ()).awaited)

    def read_for(self, state: CycleState, pod: PodInfo, node: str) -> frozenset[str]:
        """Keys of the objects beside pods and nodes by which the node was chosen."""
        found = NOTHING_READ
        for plugin in (state.later or self._all_later).writers:
            found = found.union(plugin.reads(state, pod, node))
        return found

    def read_for_room(self, state: CycleState) -> frozenset[str]:
        """As `read_for`, of an attempt that has others evicted: which devices the pod will get then is known to a dry run only."""
        return ANY_DEVICE if self.plans_need_devices and self.may_write(state) else NOTHING_READ

    def answers(
        self, pod: PodInfo, node: NodeInfo | None, writes: Sequence[Write]
    ) -> tuple[tuple[Awaited, ...], Status | None]:
        """Return the answers still awaited before the pod can be bound, and whether something has failed."""
        awaited: list[Awaited] = []
        for plugin in self._writers:
            try:
                found = _checked(plugin.answer(pod, node, writes), Answer)
            except Exception as error:
                return (), _crashed("PreBind", plugin.name, error)
            if found.failure is not None:
                return (), _error("PreBind", plugin.name, found.failure.message)
            awaited += found.awaited
        return tuple(awaited), None

    def too_late(self, plugins: Sequence[str]) -> Status:
        """The answers have not come in time; the first of these plugins that wrote says so."""
        for plugin in self._writers:
            if plugin.name in plugins:
                return _error("PreBind", plugin.name, plugin.too_late)
        return _error("PreBind", plugins[0] if plugins else "", "context deadline exceeded")

    @step("Bind")
    def run_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """The first plugin that does not skip binds. Any status is an error, also that all skipped."""
        for plugin in self.bind:
            status = self._asked("Bind", plugin, plugin.bind, state, pod, node)
            if status is not None and status.code is Code.SKIP:
                continue
            return _failed("Bind", plugin.name, status) if _failing(status) else None
        return _error("Bind", "", "no plugin binds the pod")

    @step("PostBind")
    def run_post_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Tell everybody. The binding stands whatever happens; the status tells of the first plugin that raised."""
        failure: Status | None = None
        for plugin in self.post_bind:
            try:
                plugin.post_bind(state, pod, node)
            except Exception as error:
                failure = failure or _crashed("PostBind", plugin.name, error)
        return failure

    # --- placements -----------------------------------------------------------------------------------------------------

    def run_generate(
        self,
        plugin: PlacementGeneratePlugin,
        state: CycleState,
        group: GroupInfo,
        parents: Sequence[Placement],
    ) -> tuple[Sequence[Placement], Status | None]:
        """The placements inside the parents; the status is a rejection of the group, or an error."""
        try:
            placements, status = plugin.generate(state, group, parents)
        except Exception as error:
            return (), _crashed("PlacementGenerate", plugin.name, error)
        self._observe("PlacementGenerate", plugin.name, status)
        return placements, _rejection_or_error("PlacementGenerate", plugin.name, status)

    def run_assume(
        self, plugin: PlacementStatePlugin, state: CycleState, group: GroupInfo, placement: Placement
    ) -> Status | None:
        """Let the plugin take the placement for taken; a rejection is of the placement."""
        status = self._asked("PlacementAssume", plugin, plugin.assume, state, group, placement)
        return _rejection_or_error("PlacementAssume", plugin.name, status)

    def run_revert(
        self, plugin: PlacementStatePlugin, state: CycleState, group: GroupInfo, placement: Placement
    ) -> Status | None:
        """Undo that. Any status is an error."""
        status = self._asked("PlacementRevert", plugin, plugin.revert, state, group, placement)
        return _failed("PlacementRevert", plugin.name, status) if _failing(status) else None

    def run_score_placement(
        self,
        plugin: PlacementScorePlugin,
        state: CycleState,
        group: GroupInfo,
        placement: Placement,
        assignment: Mapping[str, str],
    ) -> float | Status:
        """The raw score; a status is an error."""
        try:
            score = plugin.score_placement(state, group, placement, assignment)
        except Exception as error:
            return _crashed("PlacementScore", plugin.name, error)
        self._observe("PlacementScore", plugin.name, None)
        if type(score) in (float, int) and math.isfinite(score):
            return float(score)
        what = _ADDRESS.sub("0x…", f"returned {score!r} instead of a finite number")
        return _error("PlacementScore", plugin.name, what)

    def _asked(
        self, point: str, plugin: _Named, answer: Callable[..., Status | None], *args: object
    ) -> Status | None:
        """The plugin's answer, of which the observer is told."""
        status = _answered(point, plugin.name, answer, *args)
        if self.observer is not None:
            self.observer.plugin_ran(point, plugin.name, status)
        return status

    def _observe(self, point: str, plugin: str, status: Status | None) -> None:
        if self.observer is not None:
            self.observer.plugin_ran(point, plugin, status)


def concerns(plugin: ConcernsPods, pod: PodInfo) -> bool:
    """Whether the plugin has anything to do with the pod. If it fails to say, it is asked like the others, and may say what is wrong."""
    try:
        return plugin.concerns(pod)
    except Exception:
        return True


def _merged(a: PostFilterResult, b: PostFilterResult) -> PostFilterResult:
    """Merge the results of two plugins, neither of which could help."""
    return PostFilterResult(
        nominated_node=a.nominated_node if b.nominated_node is None else b.nominated_node,
        refusals=a.refusals + b.refusals,
        blocked_by=a.blocked_by + b.blocked_by,
        blocking=a.blocking + b.blocking,
        in_the_way=a.in_the_way + b.in_the_way,
        writes=a.writes + b.writes,
        outcome=a.outcome or b.outcome,
    )


# --- statuses -----------------------------------------------------------------------------------------------------------

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


def _failing(status: Status | None) -> TypeGuard[Status]:
    """Any answer other than success, of which there are two spellings."""
    return status is not None and status.code is not Code.SUCCESS


def _checked(answer: T, kind: type[T]) -> T:
    """The answer, if it is what the extension point returns: nothing that a plugin returns may stop the scheduler."""
    if not isinstance(answer, kind):
        raise TypeError(f"the answer {answer!r} must be a {kind.__name__}")
    return answer


def _status(answer: Status | None) -> Status | None:
    """As `_checked`, where None is an answer too, and by far the most frequent one."""
    if answer is not None and not isinstance(answer, Status):
        raise TypeError(f"the answer {answer!r} must be a Status or None")
    return answer


def _answered(point: str, plugin: str, answer: Callable[..., Status | None], *args: object) -> Status | None:
    """The plugin's answer; that it raised is an error."""
    try:
        status = _status(answer(*args))
    except Exception as error:
        status = _crashed(point, plugin, error)
    return status


def _failed(point: str, plugin: str, status: Status) -> Status:
    """The error that a status means at a point where it is not an answer."""
    if status.code is Code.ERROR:
        return status.by(plugin)
    return _error(
        point, plugin, f"{status.code.value}: {status.message}" if status.reasons else status.code.value
    )


def _error(point: str, plugin: str, what: str) -> Status:
    return Status(Code.ERROR, (f'running {point} plugin "{plugin}": {what}',), plugin)


def _rejection_or_error(point: str, plugin: str, status: Status | None) -> Status | None:
    if not _failing(status):
        return None
    return status.by(plugin) if status.is_rejected else _failed(point, plugin, status)


def _crashed(point: str, plugin: str, error: Exception) -> Status:
    """The status of a plugin that raised. Memory addresses are blanked: outcomes must be the same in a replay."""
    return _error(point, plugin, _ADDRESS.sub("0x…", f"{type(error).__name__}: {error}"))


def _empty_intersection(narrowers: Iterable[str]) -> Status:
    """No node is in all sets. No single plugin is to blame; the narrowers are."""
    names = sorted(narrowers)
    if len(names) == 1:
        return unresolvable(f"node(s) didn't satisfy plugin {names[0]}")
    return unresolvable(f"{did_not_satisfy(names)} simultaneously")


def _without(names: frozenset[str], plugins: Sequence[P]) -> tuple[P, ...]:
    return tuple(plugin for plugin in plugins if plugin.name not in names)

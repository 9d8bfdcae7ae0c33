"""One group's way through an attempt: which part of the cluster takes it, and which member goes where (KEP-5732).

    PreFilter ─► generate ─► for each placement: sums ─► assume ─► members one by one ─► revert ─► full, sufficient or infeasible
                                                                                             │
    PlacementChosen + one outcome a member ◄── Permit, Bind ◄── assume again ◄── best score ◄┘
    Unschedulable for the whole group      ◄───────────────────────── nobody feasible ◄──────┘

A placement is *full* if it takes every member, *sufficient* if it takes as many as the group needs: a gang's `minCount`, any one of
another group. Full ones win over sufficient ones, a lower rank over a higher one, then the score, then the name. Whoever is placed
before its fellows counts for the quorum.

Trying happens in the snapshot only, and every trial is undone in reverse before the next. `compat: upstream` differs as kube-scheduler
does: no sums, no ranks, a placement is feasible or not, and whoever does not fit never spoils it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.eventlog.records import (
    AttemptError,
    Body,
    PlacementChosen,
    Rejection,
    Unschedulable,
)
from tidelog.framework.behaviours import GENERATORS_AFTER_PRE_FILTER, QUORUMS_LAST
from tidelog.framework.diagnosis import FitError
from tidelog.framework.events import WaitingPod
from tidelog.framework.framework import Framework, concerns
from tidelog.framework.interface import Code, CycleState, NormalizePlacementScores, Placement, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.placements import FUTURE_PODS, NO_PLACEMENTS, future_pod, whole
from tidelog.scheduler.decision import Relies
from tidelog.scheduler.evaluation.placements import Outlook
from tidelog.scheduler.fallback import lines_of_members
from tidelog.scheduler.groups.aggregate import AggregateCheck
from tidelog.scheduler.groups.binding import GroupBinding
from tidelog.scheduler.groups.group import Group
from tidelog.scheduler.groups.messages import infeasible_message, placement_lines, progress
from tidelog.scheduler.groups.trial import (
    Foreseen,
    GroupFailure,
    TrialEvaluation,
    TrialOutcome,
    TrialStep,
)
from tidelog.scheduler.pod_cycle import Stamp


class GroupOptions(NamedTuple):
    """The configuration's options for groups."""

    partial_always: bool = False
    """A group without a minCount need not be placed whole although it asks for a level."""
    feasible_max: int = 0
    """So many full placements are enough; 0 looks at all."""
    pre_filters: bool = True
    """PreFilter runs before the placements are generated."""
    quorum_lasts: bool = True
    """Those who were placed before must keep their places until the record is written, if the quorum is not met without them."""

    @classmethod
    def of(cls, configuration: SchedulerConfiguration) -> GroupOptions:
        """Return the options of this configuration."""
        return cls(
            configuration.partial_placement == "always",
            configuration.max_feasible_placements,
            configuration.behaves(GENERATORS_AFTER_PRE_FILTER),
            configuration.behaves(QUORUMS_LAST),
        )


class GroupResult(NamedTuple):
    """The result of a group's attempt."""

    outcomes: tuple[tuple[str, Body], ...]
    """(key of the record, body); the group's own first."""
    relies: tuple[Relies, ...]
    states: Mapping[str, CycleState] = {}
    """Of the members that wait, by uid."""
    evaluations: tuple[TrialEvaluation, ...] = ()
    placements: tuple[Placement, ...] = ()
    scores: Mapping[str, Mapping[str, float]] = {}
    """Placement → scoring plugin → normalised score, of those that competed, if there were several."""


def run_group_cycle(
    framework: Framework,
    group: Group,
    stamp: Stamp,
    *,
    waiting: Mapping[str, WaitingPod] | None = None,
    options: GroupOptions = GroupOptions(),  # noqa: B008
) -> GroupResult:
    """Try to place the group. `waiting`: what the queue remembers of the members, by uid."""
    return _Cycle(framework, group, stamp, waiting or {}, options).run()


def group_error(group: Group, stamp: Stamp, message: str, plugin: str = "") -> GroupResult:
    """Something is wrong with the group, or with a plugin."""
    body = AttemptError(**stamp._asdict(), message=message, plugin=plugin, members=_keys(group))
    return GroupResult(((group.key, body),), _relies(group))


class _Cycle:
    def __init__(
        self,
        framework: Framework,
        group: Group,
        stamp: Stamp,
        waiting: Mapping[str, WaitingPod],
        options: GroupOptions,
    ) -> None:
        self.framework = framework
        self.group = group
        self.stamp = stamp
        self.waiting = waiting
        self.options = options
        self.upstream = framework.handle.upstream
        self.state = CycleState(stamp.at, None, stamp.attempt)
        self.pre_filters = options.pre_filters and bool(framework.placement_generate)
        self.pre_filtered = False
        """`state` is what PreFilter makes of the first member."""
        self.generators: list[str] = []
        """Those that made something of what they were given."""
        self.scores: dict[str, dict[str, float]] = {}
        self.check: AggregateCheck | None = None
        """Made when it is first needed."""
        self.needs_all = (
            not group.rule.is_gang
            and bool(group.constraints)
            and not options.partial_always
            and not self.upstream
        )
        """A member that does not fit spoils the placement."""

    def run(self) -> GroupResult:
        try:
            return self._run()
        except GroupFailure as failure:
            return group_error(self.group, self.stamp, failure.status.message, failure.status.plugin)

    def _run(self) -> GroupResult:
        placements, rejection = self._generate()
        if rejection is not None:
            return self._infeasible(rejection.message, (rejection.plugin,) if rejection.plugin else ())
        evaluations = self._evaluate_all(placements)
        competing = self._competing(evaluations)
        if not competing:
            message = infeasible_message(self.group, evaluations, self._unlabeled(), upstream=self.upstream)
            return self._infeasible(message, (), evaluations)
        chosen = self._select(competing)
        if not chosen.fit_count:
            return self._infeasible("pod group is unschedulable", (), evaluations)
        if isinstance(chosen, Foreseen):
            evaluations[evaluations.index(chosen)] = chosen = self._try_foreseen(chosen)
        return self._place(chosen, evaluations, placements)

    # --- placements -------------------------------------------------------------------------------------------------

    def _pre_filter(self) -> None:
        """KEP-5732: "Placement generation is executed after PreFilter", here of the first member. Whom PreFilter rejects, the trials tell."""
        first = self.group.members[0]
        self.state = CycleState(self.stamp.at, self.waiting.get(first.uid), self.stamp.attempt)
        self.pre_filtered = True
        status = self.framework.run_pre_filter(self.state, first).status
        if status is not None and not status.is_rejected:
            raise GroupFailure(status)

    def _generate(self) -> tuple[Sequence[Placement], Status | None]:
        """All generators in order, each fed with what the one before made; the rejection that left nothing.

        What PreFilter fails with comes before what they say. Where none of them reads its state, and they leave one placement, its trial runs PreFilter.
        """
        framework = self.framework
        readers = (*framework.placement_generate, *framework.placement_state, *framework.placement_score)
        if self.pre_filters and any(getattr(plugin, "reads_first_member", True) for plugin in readers):
            self._pre_filter()
        placements: Sequence[Placement] = [whole(framework.snapshot.names)]
        status: Status | None = None
        for plugin in framework.placement_generate:
            made, status = framework.run_generate(plugin, self.state, self.group, placements)
            if status is not None or not made:
                status = status or Status(Code.UNSCHEDULABLE, (NO_PLACEMENTS,), plugin.name)
                break
            if list(made) != list(placements):
                self.generators.append(plugin.name)
            placements = made
        if self.pre_filters and not self.pre_filtered and (status is not None or len(placements) > 1):
            self._pre_filter()
        if status is None:
            return sorted(placements, key=lambda p: (p.rank, p.name)), None
        if not status.is_rejected:
            raise GroupFailure(status)
        return (), status

    def _unlabeled(self) -> int:
        """How many nodes are in no domain, because they have no label of some level that must be kept."""
        levels = [constraint.level for constraint in self.group.constraints if not constraint.preferred]
        return sum(
            any(level not in node.labels for level in levels) for node in self.framework.snapshot.nodes
        )

    def _evaluate_all(self, placements: Sequence[Placement]) -> list[TrialEvaluation]:
        """Rank by rank, until some rank has a placement for all, or `feasible_max` of them."""
        # A single placement is tried as fast as it is summed up.
        sums_up = not self.upstream and len(placements) > 1
        outlook = self._outlook(placements)
        evaluations: list[TrialEvaluation] = []
        full = 0
        for number, placement in enumerate(placements):
            if full and placement.rank != evaluations[-1].placement.rank:
                break
            if self.options.feasible_max and full >= self.options.feasible_max:
                break
            evaluation = (
                self._foresee(outlook, number, placement, sums_up)
                if outlook is not None
                else self._look_at(placement, sums_up)
            )
            evaluations.append(evaluation)
            full += evaluation.is_full
        return evaluations

    def _look_at(self, placement: Placement, sums_up: bool) -> TrialEvaluation:
        return (self._at_a_glance(placement) if sums_up else None) or self._simulate(placement)

    def _at_a_glance(self, placement: Placement) -> TrialEvaluation | None:
        if self.check is None:
            self.check = self._aggregate_check()
        nodes = map(self.framework.snapshot.get, placement.nodes)
        shortage = self.check.shortage(node for node in nodes if node is not None)
        if shortage is None:
            return None
        return TrialEvaluation(placement, message=shortage.reason, blamed=shortage.plugins)

    def _aggregate_check(self) -> AggregateCheck:
        group = self.group
        required = len(group.members) if self.needs_all else max(1, group.quorum - len(group.placed))
        return AggregateCheck(
            self.framework,
            group.members,
            min(required, len(group.members)),
            self.state,
            pre_filtered=self.pre_filtered,
        )

    # --- placements that are alike ------------------------------------------------------------------------------------

    def _outlook(self, placements: Sequence[Placement]) -> Outlook | None:
        """Return what is known of placements like these; None where each has to be tried."""
        framework, group = self.framework, self.group
        if framework.fast is None or len(placements) == 1:
            return None
        if any(self._concerns(plugin) for plugin in (*framework.reserve, *framework.placement_state)):
            return None
        if not all(getattr(plugin, "scores_by_sums", False) for plugin in framework.placement_score):
            return None
        more = (group.quorum, group.rule.is_gang, len(group.placed), group.desired_count, self.needs_all)
        outlook: Outlook | None = framework.fast.placements.outlook(
            group.members, placements, self.stamp.attempt, more
        )
        return outlook

    def _concerns(self, plugin: Any) -> bool:
        """Whether the plugin has anything to do with a member."""
        if plugin not in self.framework.choosy:
            return True
        return any(concerns(plugin, pod) for pod in self.group.members)

    def _foresee(self, outlook: Outlook, number: int, placement: Placement, sums_up: bool) -> TrialEvaluation:
        """As it was where one was tried that is alike, or else tried, and remembered."""
        outcome: TrialOutcome | None = outlook.known(number)
        if outcome is not None:
            foreseen = Foreseen(placement, outcome, self.group.members)
            if foreseen.message and outcome.failed_at >= 0:
                foreseen.message = progress(self.group, foreseen, upstream=self.upstream)
            return foreseen
        with outlook.watching() as watch:
            evaluation = self._look_at(placement, sums_up)
        evaluation.outcome = outlook.learn(number, watch, TrialOutcome(evaluation))
        return evaluation

    def _try_foreseen(self, foreseen: Foreseen) -> TrialEvaluation:
        """Which member goes where is not known of a placement that was not tried."""
        evaluation = self._simulate(foreseen.placement)
        assert evaluation.fit_count == foreseen.fit_count, (
            f"{foreseen.placement.name} is not like what it was taken for"
        )
        evaluation.score = foreseen.score
        return evaluation

    # --- trying one ---------------------------------------------------------------------------------------------------

    def _simulate(self, placement: Placement) -> TrialEvaluation:
        """Try the members here. Leaves no trace."""
        evaluation = TrialEvaluation(placement)
        assumed = self._assume(placement)
        if isinstance(assumed, Status):
            evaluation.message = assumed.message
            evaluation.blamed = (assumed.plugin,)
            return evaluation
        try:
            self._try_members(evaluation)
        finally:
            self._forget(evaluation)
            self._revert(placement, assumed)
        return evaluation

    def _assume(self, placement: Placement) -> int | Status:
        """Let the state plugins prepare for the placement; how many did. A rejection is of the placement."""
        plugins = self.framework.placement_state
        for count, plugin in enumerate(plugins):
            status = self.framework.run_assume(plugin, self.state, self.group, placement)
            if status is not None:
                self._revert(placement, count)
                if not status.is_rejected:
                    raise GroupFailure(status)
                return status
        return len(plugins)

    def _revert(self, placement: Placement, count: int) -> None:
        """Undo the first `count` state plugins, the last first; all of them, even if one fails."""
        failure: Status | None = None
        for plugin in reversed(self.framework.placement_state[:count]):
            status = self.framework.run_revert(plugin, self.state, self.group, placement)
            failure = failure or status
        if failure is not None:
            raise GroupFailure(failure)

    def _try_members(self, evaluation: TrialEvaluation) -> None:
        group, nodes = self.group, self._candidates(evaluation.placement)
        evaluation.message = self._progress(evaluation, 0)
        if evaluation.message:
            return
        for number, pod in enumerate(group.members, 1):
            evaluation.add(self._try(pod, nodes))
            evaluation.message = self._progress(evaluation, number)
            if evaluation.message:
                return
        enough = evaluation.fit_count if not self.upstream else 1
        evaluation.is_feasible = len(group.placed) + evaluation.fit_count >= group.quorum and enough > 0
        evaluation.is_full = evaluation.is_feasible and evaluation.fit_count == len(group.members)
        if evaluation.is_full:
            evaluation.future = self._count_future(evaluation, nodes)
        elif not evaluation.is_feasible:
            evaluation.message = progress(group, evaluation, upstream=self.upstream)

    def _candidates(self, placement: Placement) -> list[NodeInfo] | None:
        """The placement's nodes in the snapshot's order, so that ties between nodes are broken as for a single pod; None for all."""
        snapshot = self.framework.snapshot
        if len(placement.nodes) == snapshot.node_count:
            return None
        return snapshot.in_order(placement.nodes)

    def _progress(self, evaluation: TrialEvaluation, tried: int) -> str:
        """Why the placement has failed for good with this many members tried; empty if it has not."""
        group = self.group
        left = len(group.members) - tried
        there = len(group.placed) + evaluation.fit_count
        if there + left < group.quorum or (self.needs_all and evaluation.fit_count < tried):
            return progress(group, evaluation, upstream=self.upstream)
        return ""

    def _try(self, pod: PodInfo, nodes: list[NodeInfo] | None) -> TrialStep:
        """One member, with those before it on their nodes."""
        framework = self.framework
        state = CycleState(self.stamp.at, self.waiting.get(pod.uid), self.stamp.attempt)
        found = framework.schedule_pod(state, pod, turn=self.stamp.attempt, candidates=nodes)
        if isinstance(found, Status):
            if not found.is_rejected:
                raise GroupFailure(found)
            return TrialStep(pod, state, "", reason=found.message)
        if isinstance(found, FitError):
            return TrialStep(pod, state, "", error=found)
        status = framework.run_reserve(state, pod, found.node)
        if status is not None:
            if not status.is_rejected:
                raise GroupFailure(status)
            return TrialStep(pod, state, "", error=FitError.of_node(found.node, status))
        framework.snapshot.assume(pod, found.node)
        step = TrialStep(pod, state, found.node, result=found)
        step.show_writes(framework)
        return step

    def _forget(self, evaluation: TrialEvaluation) -> None:
        """Take everybody off the snapshot again, the last first."""
        for step in reversed(evaluation.steps):
            if step.node:
                step.hide_writes(self.framework)
                self.framework.snapshot.forget(step.pod, step.node)
                self.framework.run_unreserve(step.state, step.pod, step.node)

    def _count_future(self, evaluation: TrialEvaluation, nodes: list[NodeInfo] | None) -> int:
        """How many of the pods that the group still expects would fit beside those that there are."""
        group = self.group
        missing = group.desired_count - len(group.placed) - len(group.members)
        extra: list[TrialStep] = []
        try:
            for number in range(max(0, missing)):
                step = self._try(future_pod(group.members[-1], number), nodes)
                if not step.node:
                    break
                extra.append(step)
        finally:
            self._forget(TrialEvaluation(evaluation.placement, steps=extra))
        return len(extra)

    # --- choosing -----------------------------------------------------------------------------------------------------

    def _competing(self, evaluations: Sequence[TrialEvaluation]) -> list[TrialEvaluation]:
        """Return the placements that may be chosen: the full ones of the lowest rank, or without any the sufficient ones."""
        if self.upstream:
            return [evaluation for evaluation in evaluations if evaluation.is_feasible]
        found = [e for e in evaluations if e.is_full] or [e for e in evaluations if e.is_feasible]
        lowest = min((e.placement.rank for e in found), default=0)
        return [e for e in found if e.placement.rank == lowest]

    def _select(self, competing: Sequence[TrialEvaluation]) -> TrialEvaluation:
        """The highest sum of weighted scores; of equals the first by name. One alone is not scored."""
        if len(competing) == 1:
            return competing[0]
        self.state.write(FUTURE_PODS, {e.placement.name: e.future for e in competing})
        totals = [0.0] * len(competing)
        by_plugin: list[dict[str, float]] = [{} for _ in competing]
        for plugin in self.framework.placement_score:
            name, scores = plugin.name, self._score(plugin, competing)
            weight = self.framework.placement_weights.get(name, 1)
            totals = [total + weight * score for total, score in zip(totals, scores, strict=True)]
            for found, score in zip(by_plugin, scores, strict=True):
                found[name] = score
        if self.framework.placement_score:
            names = (evaluation.placement.name for evaluation in competing)
            self.scores = dict(zip(names, by_plugin, strict=True))
        for evaluation, total in zip(competing, totals, strict=True):
            evaluation.score = total
        return min(competing, key=lambda e: (-e.score, e.placement.name))

    def _score(self, plugin: Any, competing: Sequence[TrialEvaluation]) -> list[float]:
        name, scores = plugin.name, []
        for evaluation in competing:
            # The knowledge about one that is alike holds for it too.
            known = None if evaluation.outcome is None else evaluation.outcome.scores.get(name)
            scores.append(self._raw_score(plugin, evaluation) if known is None else known)
        return (
            plugin.normalize_placement_scores(scores)
            if isinstance(plugin, NormalizePlacementScores)
            else scores
        )

    def _raw_score(self, plugin: Any, evaluation: TrialEvaluation) -> float:
        """One plugin's, of one placement, for which it is not known yet."""
        tried = self._try_foreseen(evaluation) if isinstance(evaluation, Foreseen) else evaluation
        score = self.framework.run_score_placement(
            plugin, self.state, self.group, tried.placement, tried.assignment
        )
        if isinstance(score, Status):
            raise GroupFailure(score)
        if evaluation.outcome is not None:
            evaluation.outcome.scores[plugin.name] = score
        return score

    # --- going through with it ------------------------------------------------------------------------------------------

    def _place(
        self, chosen: TrialEvaluation, evaluations: Sequence[TrialEvaluation], placements: Sequence[Placement]
    ) -> GroupResult:
        """The rest of each member's cycle, with the node and the state of the simulation."""
        bound = GroupBinding(self.framework, self.group, self.stamp, chosen, needs_all=self.needs_all)
        assumed = self._assume(chosen.placement)
        if isinstance(assumed, Status):
            raise GroupFailure(assumed)
        try:
            bound.run()
        finally:
            bound.forget()
            self._revert(chosen.placement, assumed)
        if not bound.is_enough:
            bound.unreserve()
            chosen.message = progress(self.group, bound.as_evaluation(), upstream=self.upstream)
            chosen.is_feasible = chosen.is_full = False
            message = infeasible_message(self.group, evaluations, self._unlabeled(), upstream=self.upstream)
            return self._infeasible(message, (), [*evaluations, bound.as_evaluation()])
        bound.post_bind()
        outcomes = ((self.group.key, self._chosen(chosen, evaluations, bound)), *bound.outcomes())
        return GroupResult(
            outcomes,
            (
                *bound.relies(),
                *self._counted(bound),
                *_group_relies(self.group),
                *self._device_relies(chosen.placement),
            ),
            bound.states(),
            tuple(evaluations),
            tuple(placements),
            self.scores,
        )

    def _counted(self, bound: GroupBinding) -> Iterator[Relies]:
        """The members that were placed before, if the quorum is not met without them."""
        if len(bound.placed) < self.group.quorum:
            for pod, _ in self.group.placed:
                yield Relies(f"Pod/{pod.key}", pod.uid, counts_place=self.options.quorum_lasts)

    def _device_relies(self, placement: Placement) -> Iterator[Relies]:
        """The claims must want what they wanted, and the slices must have the devices that they had."""
        pools: set[tuple[str, str]] = set()
        for claim, allocation in placement.allocations:
            yield Relies(claim, "")
            pools.update((result.driver, result.pool) for result in allocation.devices.results)
        for found in self.framework.handle.listers.resource_slices() if pools else ():
            if (found.spec.driver, found.spec.pool.name) in pools:
                yield Relies(f"ResourceSlice//{found.metadata.name}", "")

    def _chosen(
        self, chosen: TrialEvaluation, evaluations: Sequence[TrialEvaluation], bound: GroupBinding
    ) -> PlacementChosen:
        return PlacementChosen(
            **self.stamp._asdict(),
            placement=chosen.placement.name,
            nodes=chosen.placement.nodes if chosen.placement.name else (),
            assignment={f"Pod/{step.pod.key}": step.node for step in bound.placed},
            waiting=tuple(f"Pod/{step.pod.key}" for step in bound.placed if bound.must_wait),
            score=chosen.score,
            scores=self.scores,
            candidates=sum(e.is_feasible for e in evaluations),
            evaluated=len(evaluations),
            explanation=tuple(placement_lines([e for e in evaluations if e is not chosen])),
            claims={
                claim: allocation
                for claim, allocation in chosen.placement.allocations
                if claim not in bound.written
            },
        )

    def _infeasible(
        self, message: str, plugins: tuple[str, ...], evaluations: Sequence[TrialEvaluation] = ()
    ) -> GroupResult:
        """The whole group is rejected, by everybody who had something against some member in some placement."""
        blamed = {*plugins, *self.generators}
        pending: set[str] = set()
        counts: Counter[tuple[str, str]] = Counter()
        for evaluation in evaluations:
            blamed.update(evaluation.rejecting)
            pending.update(evaluation.pending)
            first = evaluation.first_failure
            if first is not None and first.error is not None:
                found = first.error.diagnosis.rejections(first.error.node_count)
                counts.update({(r.plugin, r.reason): r.nodes for r in found})
        body = Unschedulable(
            **self.stamp._asdict(),
            message=message,
            plugins=tuple(sorted(blamed)),
            pending=tuple(sorted(pending)),
            rejections=tuple(
                Rejection(plugin=plugin, reason=reason, nodes=nodes)
                for (plugin, reason), nodes in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
            ),
            nodes=self.framework.snapshot.node_count,
            explanation=(
                *placement_lines(evaluations),
                *lines_of_members((step.pod.key, step.state) for e in evaluations for step in e.steps),
            ),
            members=_keys(self.group),
        )
        return GroupResult(
            ((self.group.key, body),), _relies(self.group), evaluations=tuple(evaluations), scores=self.scores
        )


def _keys(group: Group) -> tuple[str, ...]:
    return tuple(f"Pod/{pod.key}" for pod in group.members)


def _relies(group: Group) -> tuple[Relies, ...]:
    """A rejection stands as long as the pods and the group are what they were."""
    pods = (Relies(f"Pod/{pod.key}", pod.uid, found_none=True) for pod in group.members)
    return (*pods, *_group_relies(group))


def _group_relies(group: Group) -> Iterator[Relies]:
    yield Relies(group.rule.object_key, "")

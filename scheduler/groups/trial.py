"""Tries a group in one placement: each member in turn, and what that makes of the placement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidelog.api.objects import Object
from tidelog.framework.diagnosis import FitError
from tidelog.framework.framework import Framework
from tidelog.framework.interface import CycleState, Placement, Status
from tidelog.framework.node_info import PodInfo
from tidelog.framework.results import ScheduleResult
from tidelog.scheduler.node_facts import touch_nodes


class TrialStep:
    """One member's try. It has a node, an error, or, where nobody is to blame, a reason."""

    __slots__ = ("_before", "error", "node", "pod", "reason", "result", "state")

    def __init__(
        self,
        pod: PodInfo,
        state: CycleState,
        node: str,
        *,
        result: ScheduleResult | None = None,
        error: FitError | None = None,
        reason: str = "",
    ) -> None:
        self.pod = pod
        self.state = state
        self.node = node
        self.result = result
        self.error = error
        self.reason = reason
        self._before: list[tuple[str, Object | None]] = []

    def show_writes(self, framework: Framework) -> None:
        """Let those after it see the objects as they will be written for it."""
        if not framework.may_write(self.state):
            return
        promised = framework.run_writes(self.state, self.pod, self.node)
        if promised and not isinstance(promised, Status):
            writes = [write for each in promised for write in each.writes]
            self._before = framework.handle.listers.promise(writes)
            _touch(framework, self._before)

    def hide_writes(self, framework: Framework) -> None:
        """Undo that; in the opposite order."""
        if self._before:
            _touch(framework, self._before)
            framework.handle.listers.restore(self._before)
            self._before = []

    @property
    def message(self) -> str:
        """Why it has no node."""
        return self.reason if self.error is None else self.error.message


def _touch(framework: Framework, before: Iterable[tuple[str, Object | None]]) -> None:
    snapshot = framework.snapshot
    touch_nodes(before, snapshot, framework.handle.listers, snapshot.touch)


class TrialEvaluation:
    """One placement, tried."""

    __slots__ = (
        "blamed",
        "fit_count",
        "future",
        "is_feasible",
        "is_full",
        "message",
        "outcome",
        "placement",
        "score",
        "steps",
    )

    def __init__(
        self,
        placement: Placement,
        *,
        steps: Iterable[TrialStep] = (),
        message: str = "",
        blamed: Sequence[str] = (),
    ) -> None:
        self.placement = placement
        self.steps: list[TrialStep] = []
        """The members that were tried, in order."""
        self.fit_count = 0
        """How many members found a node."""
        self.message = message
        """Why it is infeasible."""
        self.blamed: Sequence[str] = blamed
        """The plugin that turned the placement down before any member was tried."""
        self.is_feasible = False
        self.is_full = False
        self.future = 0
        """How many pods that do not exist yet would fit as well."""
        self.score = 0.0
        self.outcome: TrialOutcome | None = None
        """Results remembered of placements that are alike, if there are any."""
        for step in steps:
            self.add(step)

    def add(self, step: TrialStep) -> None:
        """One member more was tried."""
        self.steps.append(step)
        self.fit_count += bool(step.node)

    @property
    def tried(self) -> int:
        """How many members were tried."""
        return len(self.steps)

    @property
    def assignment(self) -> dict[str, str]:
        """Pod key → node."""
        return {step.pod.key: step.node for step in self.steps if step.node}

    @property
    def first_failure(self) -> TrialStep | None:
        """The first member that found no node."""
        return next((step for step in self.steps if not step.node), None)

    @property
    def rejecting(self) -> Sequence[str]:
        """Everybody who rejected the placement or some member in it."""
        found = dict.fromkeys(self.blamed)
        for step in self.steps:
            if step.error is not None:
                found.update(dict.fromkeys(step.error.unschedulable_plugins))
        return list(found)

    @property
    def pending(self) -> Sequence[str]:
        """Those of them that wait for something to finish."""
        errors = [step.error for step in self.steps if step.error is not None]
        return list(dict.fromkeys(plugin for error in errors for plugin in error.pending_plugins))


class TrialOutcome:
    """The result of a trial, as far as it is the same in every placement that is alike (`evaluation/placements`), and for every group like this one:
    that is, without names.
    """

    __slots__ = (
        "failed_at",
        "failure",
        "fit_count",
        "future",
        "is_feasible",
        "is_full",
        "message",
        "pending",
        "reason",
        "rejecting",
        "scores",
        "tried",
    )

    def __init__(self, evaluation: TrialEvaluation) -> None:
        self.fit_count, self.tried, self.future = evaluation.fit_count, evaluation.tried, evaluation.future
        self.is_feasible, self.is_full = evaluation.is_feasible, evaluation.is_full
        self.message = evaluation.message
        self.rejecting, self.pending = tuple(evaluation.rejecting), tuple(evaluation.pending)
        first = evaluation.first_failure
        self.failed_at = -1 if first is None else evaluation.steps.index(first)
        """Which member was the first that found no node; -1: none."""
        self.failure = None if first is None else first.error
        self.reason = "" if first is None else first.reason
        self.scores: dict[str, float] = {}
        """Raw scores of such placements."""


class Foreseen(TrialEvaluation):
    """One placement that need not be tried, because one like it was. It has no steps."""

    __slots__ = ("_known", "_members")

    def __init__(self, placement: Placement, outcome: TrialOutcome, members: Sequence[PodInfo]) -> None:
        super().__init__(placement, message=outcome.message)
        self.outcome = self._known = outcome
        self._members = members
        self.fit_count, self.future = outcome.fit_count, outcome.future
        self.is_feasible, self.is_full = outcome.is_feasible, outcome.is_full

    @property
    def tried(self) -> int:
        return self._known.tried

    @property
    def first_failure(self) -> TrialStep | None:
        outcome = self._known
        if outcome.failed_at < 0:
            return None
        pod = self._members[outcome.failed_at]
        return TrialStep(pod, CycleState(), "", error=outcome.failure, reason=outcome.reason)

    @property
    def rejecting(self) -> Sequence[str]:
        return self._known.rejecting

    @property
    def pending(self) -> Sequence[str]:
        return self._known.pending


class GroupFailure(Exception):
    """A plugin failed: the group's attempt is over."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status

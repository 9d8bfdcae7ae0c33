"""What became of a group in one placement: each member in turn, and what that makes of the placement."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tidelog.plugins.interface import CycleState, Placement, Status
from tidelog.plugins.node_info import PodInfo
from tidelog.scheduler.diagnosis import FitError
from tidelog.scheduler.framework import ScheduleResult


class Step:
    """One member's try. It has a node, an error, or, where nobody is to blame, a reason."""

    __slots__ = ("error", "node", "pod", "reason", "result", "state")

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

    @property
    def message(self) -> str:
        """Why it has no node."""
        return self.reason if self.error is None else self.error.message


class Evaluation:
    """One placement, tried."""

    __slots__ = ("blamed", "future", "is_feasible", "is_full", "message", "placement", "score", "steps")

    def __init__(
        self,
        placement: Placement,
        *,
        steps: list[Step] | None = None,
        message: str = "",
        blamed: Sequence[str] = (),
    ) -> None:
        self.placement = placement
        self.steps: list[Step] = steps or []
        """The members that were tried, in order."""
        self.message = message
        """Why it is infeasible."""
        self.blamed: Sequence[str] = blamed
        """Who turned the placement down before any member was tried."""
        self.is_feasible = False
        self.is_full = False
        self.future = 0
        """How many pods that do not exist yet would fit as well."""
        self.score = 0.0

    @property
    def fitting(self) -> list[Step]:
        """The members that found a node."""
        return [step for step in self.steps if step.node]

    @property
    def fit_count(self) -> int:
        """How many members found a node."""
        return sum(bool(step.node) for step in self.steps)

    @property
    def assignment(self) -> dict[str, str]:
        """Pod key → node."""
        return {step.pod.key: step.node for step in self.steps if step.node}

    @property
    def first_failure(self) -> Step | None:
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


class GroupFailure(Exception):
    """A plugin failed: the group's attempt is over."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


def future_pod(like: PodInfo, number: int) -> PodInfo:
    """A pod that may come: a copy of one that is there, told apart by a name that no pod can have."""
    mark = f"+{number + 1}"
    meta = replace(like.pod.metadata, name=like.name + mark, uid=like.uid + mark)
    return PodInfo(replace(like.pod, metadata=meta))

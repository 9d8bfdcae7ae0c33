"""The chosen placement of a group is gone through with: each member from Reserve to PostBind, with the node and the state of its trial.

Nobody is bound unless enough of the group comes through, and while a Permit plugin lets one member wait, all wait.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.eventlog.records import Body, Unschedulable, Waiting
from tidelog.framework.diagnosis import FitError
from tidelog.framework.framework import Framework
from tidelog.framework.interface import Code, CycleState, Status
from tidelog.framework.results import NOTHING_READ, PromisedWrites
from tidelog.scheduler.decision import Relies
from tidelog.scheduler.fallback import explained
from tidelog.scheduler.groups.group import Group
from tidelog.scheduler.groups.trial import GroupFailure, TrialEvaluation, TrialStep
from tidelog.scheduler.permits import BARRIER
from tidelog.scheduler.pod_cycle import Stamp, rejection, reserved, scheduled


class GroupBinding:
    """The members of the chosen placement, from Reserve to PostBind."""

    def __init__(
        self, framework: Framework, group: Group, stamp: Stamp, chosen: TrialEvaluation, *, needs_all: bool
    ) -> None:
        self.framework = framework
        self.group = group
        self.stamp = stamp
        self.chosen = chosen
        self.needs_all = needs_all
        self.steps: list[TrialStep] = []
        self.waits: dict[str, tuple[tuple[str, int], ...]] = {}
        """Uid → (plugin, nanoseconds) that it waits for."""
        self.promised: dict[str, tuple[PromisedWrites, ...]] = {}
        """Uid → what has to be written before it can be bound."""

    @property
    def placed(self) -> list[TrialStep]:
        return [step for step in self.steps if step.node]

    @property
    def is_enough(self) -> bool:
        """Nothing that was found in the simulation was lost that the group needs."""
        group, placed = self.group, len(self.placed)
        if self.needs_all:
            return placed == len(group.members)
        return placed > 0 and len(group.placed) + placed >= group.quorum

    def as_evaluation(self) -> TrialEvaluation:
        return TrialEvaluation(self.chosen.placement, steps=self.steps)

    def run(self) -> None:
        for step in self.chosen.steps:
            self.steps.append(self._go_on(step) if step.node else step)

    def _go_on(self, step: TrialStep) -> TrialStep:
        framework, pod, node = self.framework, step.pod, step.node
        status = self._reserve_and_bind(step)
        if status is None:
            framework.snapshot.assume(pod, node)
            step.show_writes(framework)
            return step
        if not status.is_rejected:
            self.unreserve()
            raise GroupFailure(status)
        return TrialStep(pod, step.state, "", error=FitError.of_node(node, status))

    def _reserve_and_bind(self, step: TrialStep) -> Status | None:
        framework, state, pod, node = self.framework, step.state, step.pod, step.node
        if framework.binds_at_once(state):
            return framework.run_bind(state, pod, node)
        status = framework.run_reserve(state, pod, node)
        if status is not None:
            return status
        permit = framework.run_permit(state, pod, node)
        status = permit.status
        if status is not None and status.code is Code.WAIT:
            self.waits[pod.uid] = permit.waits
            return None
        if status is None:
            status = self._write_or_bind(step)
        if status is not None:
            framework.run_unreserve(state, pod, node)
        return status

    def _write_or_bind(self, step: TrialStep) -> Status | None:
        framework = self.framework
        promised = framework.run_writes(step.state, step.pod, step.node)
        if isinstance(promised, Status):
            return promised
        if promised:
            self.promised[step.pod.uid] = promised
            return None
        failure = framework.run_pre_bind(step.state, step.pod, step.node)
        return failure or framework.run_bind(step.state, step.pod, step.node)

    @property
    def written(self) -> frozenset[str]:
        """Keys of the objects that are written before members are bound."""
        return frozenset(w.key for all_of in self.promised.values() for each in all_of for w in each.writes)

    @property
    def must_wait(self) -> bool:
        """Somebody has to be waited for before any member is bound."""
        return bool(self.waits or self.promised)

    def forget(self) -> None:
        for step in reversed(self.placed):
            step.hide_writes(self.framework)
            self.framework.snapshot.forget(step.pod, step.node)

    def unreserve(self) -> None:
        for step in reversed(self.placed):
            self.framework.run_unreserve(step.state, step.pod, step.node)

    def post_bind(self) -> None:
        if not self.must_wait:
            for step in self.placed:
                self.framework.run_post_bind(step.state, step.pod, step.node)

    def states(self) -> dict[str, CycleState]:
        return {step.pod.uid: step.state for step in self.placed} if self.must_wait else {}

    def relies(self) -> list[Relies]:
        return [
            Relies(
                f"Pod/{s.pod.key}",
                s.pod.uid,
                s.node,
                self.framework.looked_at(s.state),
                reads=self._reads(s),
            )
            for s in self.steps
        ]

    def _reads(self, step: TrialStep) -> frozenset[str]:
        if not step.node or not self.framework.may_write(step.state):
            return NOTHING_READ
        reads = self.framework.read_for(step.state, step.pod, step.node)
        written = (w.key for each in self.promised.get(step.pod.uid, ()) for w in each.writes)
        return reads.union(written)

    def outcomes(self) -> Iterator[tuple[str, Body]]:
        """One for each member. While any of them waits all do: what is bound is bound together."""
        permits = [wait for waits in self.waits.values() for _, wait in waits]
        answers = [each.timeout for promised in self.promised.values() for each in promised]
        # Nothing is written while somebody may still forbid it.
        deadline = min(permits or answers, default=0)
        must_wait = self.must_wait
        for step in self.steps:
            key = f"Pod/{step.pod.key}"
            if not step.node:
                body: Body = self._left_over(step)
            elif not self.waits and step.pod.uid in self.promised:
                assert step.result is not None
                body = reserved(self.stamp, step.result, self.promised[step.pod.uid], self.group.key)
            elif must_wait:
                waits = self.waits.get(step.pod.uid, ())
                body = Waiting(
                    **self.stamp._asdict(),
                    node=step.node,
                    plugins=tuple(plugin for plugin, _ in waits) or (BARRIER,),
                    deadline=self.stamp.at + deadline,
                    group=self.group.key,
                )
            else:
                assert step.result is not None
                body = scheduled(self.stamp, step.result, self.group.key)
            yield from explained(((key, body),), key, step.state.told)

    def _left_over(self, step: TrialStep) -> Unschedulable:
        error = step.error
        if error is None:
            return Unschedulable(**self.stamp._asdict(), message=step.reason, group=self.group.key)
        return rejection(self.stamp, error, self.group.key)

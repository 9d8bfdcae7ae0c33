"""Preemption tried out on one node: who would have to go, without anybody having gone.

    possible victims ──► all taken away ──► does the pod fit now?  no ──► the node is out
                                               │ yes
                         put back one by one, the most important first, as long as the pod still fits ──► who is left, goes

Everything happens on clones of the node and of the attempt's state, through the `PreemptionPort`.

KEP-4664 (`guarded`): a victim is *protected* if it names a threshold and the preemptor's priority is below. Protected victims may be
taken only as far as their disruption budgets allow, all of one node together; then they are the first to be put back. With nobody
protected this is kube-scheduler's algorithm, victim for victim.

Costs one run of the filters, and one more for each possible victim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import PodDisruptionBudget
from tidelog.framework.disruption_budgets import Allowances, is_protected
from tidelog.framework.interface import Code, CycleState, Status, unresolvable, unschedulable
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.preemption_plan import PreemptionPort
from tidelog.plugins.default_preemption.candidates import Candidate, importance, possible_victims

NO_VICTIMS = "No preemption victims found for incoming pod"
PROTECTED = (
    "preemption would violate PodDisruptionBudget protected by allowDisruptionByPriorityGreaterThanOrEqual"
)


class Blocker(NamedTuple):
    """A pod that may not be taken, and the disruption budget that forbids it."""

    pod: PodInfo
    budget: PodDisruptionBudget


class _Failed(Exception):
    """A plugin failed while pods were moved or filters asked; ends the dry run on this node."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class DryRun:
    """One preemptor in one attempt."""

    def __init__(
        self, port: PreemptionPort, allowances: Allowances, state: CycleState, pod: PodInfo, *, guarded: bool
    ) -> None:
        self._port = port
        self._allowances = allowances
        self._state = state
        self._pod = pod
        self._guarded = guarded
        self.blockers: dict[str, Sequence[Blocker]] = {}
        """Node → why it is out, for the nodes that are out because of protected pods only."""

    def is_protected(self, victim: PodInfo) -> bool:
        """Whether the victim's disruption budgets must be kept for this preemptor."""
        return self._guarded and is_protected(victim, self._pod.priority)

    def on(self, node: NodeInfo) -> Candidate | Status:
        """Return the victims on this node, or why it is out."""
        try:
            return self._try(node)
        except _Failed as failure:
            return failure.status

    def _try(self, node: NodeInfo) -> Candidate | Status:
        lower = possible_victims(node, self._pod, self._state.at)
        if not lower:
            return unresolvable(NO_VICTIMS)
        protected = [pod for pod in lower if self.is_protected(pod)]
        shielded = self._shielded(protected)
        possible = [pod for pod in lower if pod.uid not in shielded]
        if not possible:
            return self._out(node, shielded.values())
        trial = _Trial(self._port, self._state, self._pod, node)
        trial.take(possible)
        status = trial.verdict()
        if status is not None:
            if shielded and status.is_rejected:
                trial.take([blocker.pod for blocker in shielded.values()])
                if trial.verdict() is None:
                    return self._out(node, shielded.values())
            return status
        guarded = [pod for pod in protected if pod.uid not in shielded]
        kept, overdrawn = self._keep_budgets(trial, guarded)
        if overdrawn:
            return self._out(node, overdrawn)
        return self._spare(trial, node, possible, {pod.uid for pod in guarded}, kept)

    def _shielded(self, protected: Iterable[PodInfo]) -> dict[str, Blocker]:
        """The protected pods that may not be taken whoever else is, by uid."""
        found = {}
        for pod in protected:
            budget = self._allowances.forbidding(pod)
            if budget is not None:
                found[pod.uid] = Blocker(pod, budget)
        return found

    def _keep_budgets(
        self, trial: _Trial, protected: Sequence[PodInfo]
    ) -> tuple[list[PodInfo], list[Blocker]]:
        """Put protected pods back until the budgets can pay for those that are left.

        Returns who is back, and what stands in the way if that was not enough.
        """
        used: dict[str, int] = {}
        costs = {pod.uid: self._allowances.costs(pod) for pod in protected}
        for charged in (budget for budgets in costs.values() for budget in budgets):
            key = object_key(charged)
            used[key] = used.get(key, 0) + 1

        def overdrawn(pod: PodInfo) -> PodDisruptionBudget | None:
            return next(
                (b for b in costs[pod.uid] if used[object_key(b)] > max(self._allowances.left(b), 0)), None
            )

        kept = []
        for pod in protected:
            if overdrawn(pod) is not None and trial.spares(pod):
                kept.append(pod)
                for budget in costs[pod.uid]:
                    used[object_key(budget)] -= 1
        blockers = []
        for pod in protected:
            forbidding = None if pod in kept else overdrawn(pod)
            if forbidding is not None:
                blockers.append(Blocker(pod, forbidding))
        return kept, blockers

    def _spare(
        self,
        trial: _Trial,
        node: NodeInfo,
        possible: Sequence[PodInfo],
        protected: set[str],
        kept: list[PodInfo],
    ) -> Candidate | Status:
        """Put back who can stay: first those whose end would break a budget."""
        remaining = [pod for pod in possible if pod not in kept]
        violating = self._allowances.violating(
            remaining, [pod.uid for pod in remaining if pod.uid in protected]
        )
        ordered = [pod for pod in remaining if pod.uid in violating]
        ordered += [pod for pod in remaining if pod.uid not in violating]
        gone = {pod.uid for pod in ordered if not trial.spares(pod)}
        # Stable: among equals those that break a budget stay in front, as in kube-scheduler.
        victims = tuple(
            sorted(
                (pod for pod in ordered if pod.uid in gone), key=lambda pod: importance(pod, self._state.at)
            )
        )
        if not victims:
            return Status(Code.ERROR, (f"preemption on node {node.name} would have no victims",))
        return Candidate(
            node.name,
            victims,
            len(gone & violating),
            frozenset(gone & protected),
            tuple(pod for pod in possible if pod.uid not in gone),
        )

    def _out(self, node: NodeInfo, blockers: Iterable[Blocker]) -> Status:
        self.blockers[node.name] = list(blockers)
        return unschedulable(PROTECTED)


class _Trial:
    """A clone of a node that pods are taken from and put back on."""

    def __init__(self, port: PreemptionPort, state: CycleState, pod: PodInfo, node: NodeInfo) -> None:
        self._port = port
        self._state = state.clone()
        self._pod = pod
        self._node = node.clone()
        self._passed = False
        """The preemptor has been found to fit."""

    def take(self, pods: Iterable[PodInfo]) -> None:
        """These pods are gone."""
        for pod in pods:
            _check(self._port.remove_pod(self._state, self._pod, pod, self._node))

    def spares(self, pod: PodInfo) -> bool:
        """Put the pod back; if the preemptor does not fit beside it, take it away again."""
        _check(self._port.add_pod(self._state, self._pod, pod, self._node))
        if self.verdict() is None:
            return True
        self.take([pod])
        return False

    def verdict(self) -> Status | None:
        """Does the preemptor fit as things are?"""
        status = self._port.run_filters(self._state, self._pod, self._node, again=self._passed)
        if status is not None and not status.is_rejected:
            raise _Failed(status)
        self._passed = self._passed or status is None
        return status


def _check(status: Status | None) -> None:
    if status is not None:
        raise _Failed(status)

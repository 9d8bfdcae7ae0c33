"""A decision: what one attempt wants appended to the log, and what it relied on.

The attempt's number, the seq that the core had consumed when it was made and its time are the same in every outcome of
it, and by them a replay finds the place of the pop again.
"""

from __future__ import annotations

import msgspec

from tidelog.eventlog.records import Body, Draft
from tidelog.framework.interface import Depends
from tidelog.framework.preemption_plan import PreemptionOutcome, PreemptionPlan
from tidelog.scheduler.aborts import Conflict

AUTHOR = "scheduler"


class Relies(msgspec.Struct, frozen=True, gc=False):
    """The facts that a decision stands on. A change of it between the decision and its commit aborts the attempt."""

    pod_key: str
    """`Pod/namespace/name`; the pod must still be pending, the same, and wanted."""
    pod_uid: str
    node: str = ""
    """The node that was chosen: it must still be there, and nobody else may have taken room on it."""
    on: Depends = Depends.POD
    """Further parts of the cluster that the filters looked at."""
    victims: frozenset[str] = frozenset()
    """Keys of the pods that have to go first: each must still be there, and be the same."""
    budgets: frozenset[str] = frozenset()
    """Namespaces of victims that are protected: no disruption budget there may forbid more than it did."""
    reads: frozenset[str] = frozenset()
    """Keys of other objects by which the node was chosen, or that the decision writes: each must be as it was."""
    counts_place: bool = False
    """The pod is not tried: it has a place, and the decision stands on its keeping that."""
    found_none: bool = False
    """No node would do. Room may have been promised to a preemptor that is not coming, or a budget been charged for it."""


def relies_on_plan(
    pod_key: str, pod_uid: str, plan: PreemptionPlan, on: Depends, reads: frozenset[str] = frozenset()
) -> Relies:
    """Return the facts that the decision to make room for a pod stands on."""
    return Relies(
        pod_key,
        pod_uid,
        plan.node,
        on,
        frozenset(f"Pod/{victim.key}" for victim in plan.victims),
        frozenset(eviction.pod.namespace for eviction in plan.evictions if eviction.protected),
        reads,
    )


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The result of an attempt. All its outcomes are one transaction: all are in the log, or none."""

    attempt: int
    observed: int
    at: int
    epoch: int
    outcomes: tuple[tuple[str, Body], ...]
    """(key of the record, body), in the order in which they are appended. The first is the attempt's own."""
    relies: tuple[Relies, ...]
    """One for each pod that the attempt was about."""
    preemption: PreemptionOutcome | None = None
    """The result of making room for the pod; None if that was not tried."""
    conflict: Conflict | None = None
    """Why it is aborted, in a decision that takes the place of another one."""

    @property
    def key(self) -> str:
        """Key of the pod or group that was tried."""
        return self.outcomes[0][0]

    def drafts(self) -> list[Draft]:
        """As the log takes them."""
        return [Draft(body=body, author=AUTHOR, key=key) for key, body in self.outcomes]

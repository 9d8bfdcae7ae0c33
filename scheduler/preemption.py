"""Preemption between its decision and the end of its victims: what is under way, what it means for the next attempt, and its records.

    decided (adopted) ──► in the log: preemptor nominated, victims told ──► each victim gone
          │                        all of it in one transaction
          └──► aborted at the commit: as if it had never been decided

`Evictions` is a part of the core's state and a function of the log: it is built from the same outcome bodies when a log is recovered. A
victim is remembered from the decision until it is gone. As long as its eviction is younger than `EXPIRY` it is charged to its budgets, if
their status does not say so itself; a pod is asked to go only once, and while not all victims of a decision have been told, its
preemptor is gated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Pod
from tidelog.api.times import NANOS
from tidelog.eventlog.records import Body, Evicted, EvictionRefused, Nominated
from tidelog.framework.disruption_budgets import Allowances, EvictionsFromBudgets
from tidelog.framework.framework import Framework
from tidelog.framework.interface import CycleState, Depends, Status
from tidelog.framework.node_info import NodeInfo, PodInfo
from tidelog.framework.preemption_plan import EvictionPort, PreemptionPlan, Refusal, RefusedEviction
from tidelog.framework.snapshot import Snapshot
from tidelog.queue.entity import pod_uid

EXPIRY = 120 * NANOS
"""An eviction whose pod is still there after this is not coming any more, and charges its budgets no longer. As the disruption controller has it."""


class PendingEviction(msgspec.Struct, frozen=True, gc=False):
    """A pod that was asked to go and is still there."""

    uid: str
    key: str
    """`Pod/namespace/name`."""
    preemptor: str
    """Key of the pod that it has to make room for."""
    attempt: int
    """The attempt that decided it, and when that was."""
    at: int
    budgets: tuple[str, ...] = ()


class LiveEvictions:
    """Answers as an API server's eviction endpoint would, as far as the log tells. Implements `EvictionPort`.

    It knows the budgets before the log does: one that refused allows nothing until it changes. And it cannot charge several budgets at once.
    """

    def __init__(self) -> None:
        self.refusing: dict[str, None] = {}
        """Keys of budgets that have refused and have not changed since."""

    def evict(self, pods: Sequence[PodInfo], allowances: Allowances) -> Refusal | None:
        """All or none of them."""
        for pod in pods:
            budgets = [object_key(budget) for budget in allowances.selecting(pod)]
            if len(budgets) > 1:
                return Refusal(pod, budgets[0])
            if budgets and budgets[0] in self.refusing:
                return Refusal(pod, budgets[0])
        return allowances.spend(pods)


class Evictions:
    """Every eviction of ours that has not ended, and the preemptors of those that have not even been told."""

    def __init__(self) -> None:
        self.port: EvictionPort = EvictionsFromBudgets()
        self.live = False
        """An API server carries them out, and charges the budgets itself."""
        self._pending: dict[str, PendingEviction] = {}
        """By the victim's uid, in the order of the decisions."""
        self._by_budget: dict[str, dict[str, PendingEviction]] = {}
        """Budget → the evictions charged to it, by uid."""
        self._untold: dict[str, str] = {}
        """Uid of a victim whose eviction is decided and not in the log → uid of the preemptor."""
        self._deciding: dict[str, int] = {}
        """Uid of a preemptor → how many such victims it has. Not its key: another pod may have taken that meanwhile."""

    # --- reading ----------------------------------------------------------------------------------------------------

    def is_evicted(self, uid: str) -> bool:
        """The pod was asked to go, and has not gone."""
        return uid in self._pending

    def is_deciding(self, uid: str) -> bool:
        """Not all victims of the last preemption for the pod of this uid have been told."""
        return uid in self._deciding

    def charged(self, budget: str, at: int) -> Sequence[str]:
        """Names of the pods whose eviction is charged to the budget at this time."""
        return [
            eviction.key.rpartition("/")[2]
            for eviction in self._by_budget.get(budget, {}).values()
            if at - eviction.at < EXPIRY
        ]

    def get(self, uid: str) -> PendingEviction | None:
        """The eviction of the pod of this uid."""
        return self._pending.get(uid)

    def is_told(self, uid: str) -> bool:
        """The pod's eviction is in the log."""
        return uid in self._pending and uid not in self._untold

    def __len__(self) -> int:
        """How many victims have not gone yet."""
        return len(self._pending)

    # --- what happens to them -----------------------------------------------------------------------------------------

    def decide(self, eviction: PendingEviction, preemptor_uid: str) -> None:
        """An eviction has been decided; from now on it counts."""
        self._remember(eviction)
        self._untold[eviction.uid] = preemptor_uid
        self._deciding[preemptor_uid] = self._deciding.get(preemptor_uid, 0) + 1

    def _remember(self, eviction: PendingEviction) -> None:
        self._pending[eviction.uid] = eviction
        for budget in eviction.budgets:
            self._by_budget.setdefault(budget, {})[eviction.uid] = eviction

    def told(self, uid: str) -> str:
        """The eviction is in the log. Returns the preemptor's key if that was the last of its victims, else an empty string."""
        eviction = self._pending.get(uid)
        return "" if eviction is None else self._settle(eviction)

    def end(self, uid: str) -> str:
        """The victim is gone, or its eviction is called off. Returns as `told`."""
        eviction = self._pending.pop(uid, None)
        if eviction is None:
            return ""
        for budget in eviction.budgets:
            charged = self._by_budget[budget]
            del charged[uid]
            if not charged:
                del self._by_budget[budget]
        return self._settle(eviction)

    def _settle(self, eviction: PendingEviction) -> str:
        preemptor = self._untold.pop(eviction.uid, None)
        if preemptor is None:
            return ""
        self._deciding[preemptor] -= 1
        if self._deciding[preemptor]:
            return ""
        del self._deciding[preemptor]
        return eviction.preemptor

    # --- a live cluster ---------------------------------------------------------------------------------------------------

    def attached(self, *, live: bool) -> None:
        """An API server grants evictions from now on, or the log's own budgets do again."""
        self.live = live
        if live and not isinstance(self.port, LiveEvictions):
            self.port = LiveEvictions()
        elif not live and isinstance(self.port, LiveEvictions):
            self.port = EvictionsFromBudgets()

    def refused_by(self, budget: str) -> None:
        """The server's budget of this key allows less than the log's: nothing, until it changes."""
        if isinstance(self.port, LiveEvictions):
            self.port.refusing[budget] = None

    def heard_of(self, key: str) -> None:
        """The object of this key has changed or is gone."""
        if isinstance(self.port, LiveEvictions):
            self.port.refusing.pop(key, None)

    def dump_refusals(self) -> list[str]:
        """The budgets that have refused."""
        return list(self.port.refusing) if isinstance(self.port, LiveEvictions) else []

    def load_refusals(self, dumped: Iterable[str]) -> None:
        """Take over what `dump_refusals` told."""
        for budget in dumped:
            self.refused_by(budget)

    # --- the state as a value -----------------------------------------------------------------------------------------

    def dump(self) -> list[dict[str, Any]]:
        """Return the pending evictions as builtins. Between attempts everybody has been told."""
        return [msgspec.to_builtins(eviction) for eviction in self._pending.values()]

    def load(self, dumped: Iterable[dict[str, Any]]) -> None:
        """Take over what `dump` told."""
        self.__init__()  # type: ignore[misc]
        for row in dumped:
            self._remember(msgspec.convert(row, PendingEviction))


class Preemption:
    """The port of one profile's preempting plugin: implements `PreemptionPort`."""

    def __init__(self, framework: Framework, evictions: Evictions) -> None:
        self._framework = framework
        self._evictions = evictions

    @property
    def evictions(self) -> EvictionPort:
        return self._evictions.port

    def run_filters(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, *, again: bool = False
    ) -> Status | None:
        filters = self._framework.active_filters(state)
        if again:
            filters = [f for f in filters if getattr(f, "filter_depends", Depends.CLUSTER) & ~Depends.NODE]
        return self._framework.run_filters(state, pod, node, filters)

    def looked_at(self, state: CycleState) -> Depends:
        return self._framework.looked_at(state)

    def tells_equal_nodes_apart(self, state: CycleState) -> bool:
        return bool(self._framework.looked_at(state) & ~Depends.STATE)

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        return self._framework.add_pod(state, pod, added, node)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        return self._framework.remove_pod(state, pod, removed, node)

    @property
    def snapshot(self) -> Snapshot:
        return self._framework.snapshot

    def nominated(self, node: str) -> Sequence[PodInfo]:
        return self._framework.nominated.pods_on(node)

    def nominations(self) -> Mapping[str, Sequence[PodInfo]]:
        nominated = self._framework.nominated
        return {node: nominated.pods_on(node) for node in nominated.nodes()}

    def is_evicted(self, uid: str) -> bool:
        return self._evictions.is_evicted(uid)

    def is_deciding(self, pod: Pod) -> bool:
        return self._evictions.is_deciding(pod_uid(pod))

    def charged(self, budget: str, at: int) -> Sequence[str]:
        return self._evictions.charged(budget, at)


# --- outcomes -----------------------------------------------------------------------------------------------------------


def refusal_outcomes(
    refusals: Iterable[RefusedEviction], key: str, stamp: Mapping[str, Any]
) -> list[tuple[str, Body]]:
    """The records of evictions that were asked for in vain for the pod of this key."""
    return [
        (
            _key(refused.refusal.pod),
            EvictionRefused(
                **stamp,
                preemptor=key,
                node=refused.node,
                budget=refused.refusal.budget,
                message=refused.message,
            ),
        )
        for refused in refusals
    ]


def plan_outcomes(
    plan: PreemptionPlan, key: str, scheduler: str, stamp: Mapping[str, Any]
) -> list[tuple[str, Body]]:
    """The records of a preemption for the pod of this key: its nomination, and one for every victim that has to be told."""
    nominated = Nominated(
        **stamp,
        node=plan.node,
        victims=tuple(map(_key, plan.victims)),
        cleared=tuple(map(_key, plan.cleared)),
        spared=tuple(map(_key, plan.spared)),
        violations=plan.violations,
        candidates=plan.candidates,
    )
    evicted = [
        (
            _key(eviction.pod),
            Evicted(
                **stamp,
                preemptor=key,
                node=plan.node,
                method="evict" if eviction.method == "evict" else "delete",
                protected=eviction.protected,
                budgets=eviction.budgets,
                message=f"{scheduler}: preempting to accommodate a higher priority pod",
            ),
        )
        for eviction in plan.evictions
    ]
    return [(key, nominated), *evicted]


def _key(pod: PodInfo) -> str:
    return f"Pod/{pod.key}"

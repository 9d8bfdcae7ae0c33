"""Hints for a pod that PodTopologySpread rejected: a domain that lost matching pods, or a minimum that rose.

The hints look at the hard constraints of the waiting pod only. In three cases kube-scheduler's are too narrow, and are repaired
outside `compat: upstream` (docs/differences.md): a node that moves into or out of the pod's node selector changes which domains
count; labels of the waiting pod that are among `matchLabelKeys` change which pods count; and a pod does not count any more from
the moment in which its deletion begins.

With fallback (KEP-3990) the pod is woken by whatever lets one of its constraints fall back: a change of its conditions or its
nomination, also the one that the failing attempt makes itself, or a tick after `nodeProvisioningTimeout`. What other events do is judged by the
constraints as they are written, and by those that had not fallen back in the last attempt: which nodes count depends on which of them are in force.

A Service or controller that comes or changes may change the default constraints of a pod; as in kube-scheduler there is no
event for that, and the pod waits for another one.
"""

from __future__ import annotations

from tidelog.api.objects import Node, Pod
from tidelog.api.pod_status import has_place
from tidelog.framework.events import (
    TIME,
    Action,
    ClusterEvent,
    EventRegistration,
    Hint,
    Resource,
    Tick,
    WaitingPod,
)
from tidelog.plugins.pod_topology_spread.constraints import Constraint, Constraints, SpreadRules, has_all_keys


class PodTopologySpreadHints:
    """The hints of one profile's plugin. Constraints that do not parse raise SelectorError, which means Queue."""

    def __init__(self, rules: SpreadRules, upstream: bool) -> None:
        self._rules = rules
        self._upstream = upstream

    def registrations(self) -> list[EventRegistration]:
        """The events, as kube-scheduler has them, and ours."""
        assigned = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        if not self._upstream:
            assigned |= Action.UPDATE_POD_TERMINATING
        target = Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION
        nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        return [
            EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, assigned), self.assigned_pod_changed),
            EventRegistration(ClusterEvent(Resource.TARGET_POD, target), self.target_pod_changed),
            EventRegistration(ClusterEvent(Resource.NODE, nodes), self.node_changed),
            *self._fallback_registrations(),
        ]

    def _fallback_registrations(self) -> list[EventRegistration]:
        fallback = self._rules.fallback
        if not fallback.enabled:
            return []
        status = Action.UPDATE_POD_CONDITION | Action.UPDATE_POD_NOMINATED_NODE
        if self._upstream:
            # kube-scheduler has no finer event for them than "something changed".
            status = Action.UPDATE
        found = [EventRegistration(ClusterEvent(Resource.TARGET_POD, status), self.standing_changed)]
        if fallback.needs_time:
            found.append(EventRegistration(TIME, self.time_passed))
        return found

    def standing_changed(self, waiting: WaitingPod, old: Pod, new: Pod) -> Hint:
        """The waiting pod's conditions or nomination changed."""
        return self._rules.fallback.pod_changed(self._rules.numbered_hard(new), waiting, old, new)

    def time_passed(self, waiting: WaitingPod, old: None, new: Tick) -> Hint:
        """The log's clock ticked."""
        return self._rules.fallback.time_passed(self._rules.numbered_hard(waiting.pod), waiting, new)

    def _hard(self, pod: Pod) -> Constraints:
        """The hard constraints as they are written."""
        decision = self._rules.decide(pod)
        return self._rules.compiled(decision.hard, decision, pod)

    def _in_force(self, waiting: WaitingPod) -> Constraints:
        """Those of them that have not fallen back."""
        decision = self._rules.judged_at(waiting, waiting.attempted_at)
        return self._rules.compiled(decision.hard, decision, waiting.pod)

    def assigned_pod_changed(self, waiting: WaitingPod, old: Pod | None, new: Pod | None) -> Hint:
        """Another pod came, changed its labels, began to go, or went."""
        namespace = waiting.pod.metadata.namespace
        for other in (old, new):
            if other is not None and not (has_place(other) and other.metadata.namespace == namespace):
                return Hint.SKIP
        constraints = self._hard(waiting.pod)
        if old is not None and new is not None and not self._upstream:
            old, new = _if_staying(old), _if_staying(new)
        return Hint.QUEUE if any(_matches_otherwise(c, old, new) for c in constraints) else Hint.SKIP

    def target_pod_changed(self, waiting: WaitingPod, old: Pod, new: Pod) -> Hint:
        """The waiting pod itself got other labels or tolerations."""
        constraints = self._hard(waiting.pod)
        helps = any(_matches_otherwise(constraint, old, new) for constraint in constraints)
        if not helps and old.spec.tolerations != new.spec.tolerations:
            helps = any(constraint.honors_taints for constraint in constraints)
        if not helps and not self._upstream:
            helps = [c.selector for c in self._hard(old)] != [c.selector for c in constraints]
        return Hint.QUEUE if helps else Hint.SKIP

    def node_changed(self, waiting: WaitingPod, old: Node | None, new: Node | None) -> Hint:
        """A node came or went, or its labels or taints changed."""
        pod = waiting.pod
        helps = self._node_helps(self._hard(pod), pod, old, new)
        if not helps and self._rules.can_fall_back(pod):
            in_force = self._in_force(waiting)
            # Without any constraint in force there is nothing that a node could change.
            helps = bool(in_force) and self._node_helps(in_force, pod, old, new)
        return Hint.QUEUE if helps else Hint.SKIP

    def _node_helps(self, constraints: Constraints, pod: Pod, old: Node | None, new: Node | None) -> bool:
        counted = old is not None and has_all_keys(old.metadata.labels, constraints)
        counts = new is not None and has_all_keys(new.metadata.labels, constraints)
        if not counted and not counts:
            return False
        if old is None or new is None or counted != counts:
            return True
        helps = old.spec.taints != new.spec.taints or any(
            old.metadata.labels[c.topology_key] != new.metadata.labels[c.topology_key] for c in constraints
        )
        if not helps and not self._upstream:
            helps = any(c.admits(pod, old) != c.admits(pod, new) for c in constraints)
        return helps


def _if_staying(pod: Pod) -> Pod | None:
    """A terminating pod counts like one that is gone. (Its actual deletion is told all the same: if it was only nominated
    to a node, nobody heard of the beginning.)"""
    return None if pod.metadata.deletion_timestamp else pod


def _matches_otherwise(constraint: Constraint, old: Pod | None, new: Pod | None) -> bool:
    """Whether the pod matches the selector in one of its versions only."""
    before = old is not None and constraint.matches(old.metadata.labels)
    after = new is not None and constraint.matches(new.metadata.labels)
    return before != after

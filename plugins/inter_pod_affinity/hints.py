"""Hints for a pod that InterPodAffinity rejected.

A hint sees the waiting pod and the object that changed, not the cluster. Outside `compat: upstream` it also asks the listers
for the labels of namespaces, the very source that the filter uses: without them a term with a `namespaceSelector` could only
be answered "perhaps" for every pod of the cluster. As the listers are a fold of the log, so are the hints.

kube-scheduler never wakes some pods it should (docs/differences.md): those kept out by the anti-affinity of others when a node
comes, terms with a `namespaceSelector`, a pod with affinity to itself when its last peer goes, changed namespaces, and nodes
that are deleted with their pods still on them. The default mode does. What keeps it from being narrower is that a hint cannot
know the topology keys of the terms that other pods have against the waiting one.
"""

from __future__ import annotations

from tidelog.api.objects import Namespace, Node, Pod
from tidelog.api.pod_status import has_place
from tidelog.api.selectors import Labels
from tidelog.framework.affinity_terms import (
    NO_LABELS,
    AffinityTerm,
    NamespaceLabels,
    Terms,
    all_select,
    required_affinity,
    required_anti_affinity,
)
from tidelog.framework.events import Action, ClusterEvent, EventRegistration, Hint, Resource, WaitingPod
from tidelog.framework.interface import Handle


class InterPodAffinityHints:
    """The hints of one profile's plugin. Terms that do not parse raise SelectorError, which means Queue."""

    def __init__(self, handle: Handle) -> None:
        self._listers = handle.listers
        self._upstream = handle.upstream
        self._labels_of: NamespaceLabels = self._no_labels if handle.upstream else self._namespace_labels

    def registrations(self) -> list[EventRegistration]:
        """The events, as kube-scheduler has them, and ours."""
        assigned = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        found = [
            EventRegistration(ClusterEvent(Resource.ASSIGNED_POD, assigned), self.assigned_pod_changed),
            EventRegistration(ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)),
            EventRegistration(
                ClusterEvent(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL), self.node_changed
            ),
        ]
        if not self._upstream:
            found.append(EventRegistration(ClusterEvent(Resource.NODE, Action.DELETE)))
            found.append(
                EventRegistration(ClusterEvent(Resource.NAMESPACE, Action.ALL), self.namespace_changed)
            )
        return found

    def _no_labels(self, name: str) -> Labels:
        """kube-scheduler's hints do not look namespaces up: only selectors that labels are not needed for match."""
        return NO_LABELS

    def _namespace_labels(self, name: str) -> Labels | None:
        found = self._listers.namespace(name)
        return None if found is None else found.metadata.labels

    # --- pods -----------------------------------------------------------------------------------------------------

    def assigned_pod_changed(self, waiting: WaitingPod, old: Pod | None, new: Pod | None) -> Hint:
        """Another pod came, changed its labels, or went."""
        if any(other is not None and not has_place(other) for other in (old, new)):
            return Hint.SKIP
        pod = waiting.pod
        affinity, anti_affinity = required_affinity(pod), required_anti_affinity(pod)
        met, meets = self._all_select(affinity, old), self._all_select(affinity, new)
        helps = (meets and not met) or self._repels_less(anti_affinity, old, new)
        if not helps and old is not None and new is None:
            helps = any(self._selects_waiting(term, pod) for term in required_anti_affinity(old))
        if not helps and not self._upstream and met and not meets:
            # Perhaps the last of its kind: then a pod that meets its own terms may start anew elsewhere.
            helps = self._all_select(affinity, pod)
        return Hint.QUEUE if helps else Hint.SKIP

    def _repels_less(self, terms: Terms, old: Pod | None, new: Pod | None) -> bool:
        """Whether an anti-affinity term that met the old version does not meet the new one."""
        if old is None:
            return False
        if self._upstream:
            # It counts only a pod that meets no term at all any more.
            return any(self._selects(t, old) for t in terms) and not any(self._selects(t, new) for t in terms)
        return any(self._selects(term, old) and not self._selects(term, new) for term in terms)

    def _selects(self, term: AffinityTerm, other: Pod | None) -> bool:
        if other is None:
            return False
        return term.selects(other.metadata.namespace, other.metadata.labels, self._labels_of)

    def _all_select(self, terms: Terms, other: Pod | None) -> bool:
        if other is None:
            return False
        return all_select(terms, other.metadata.namespace, other.metadata.labels, self._labels_of)

    def _selects_waiting(self, term: AffinityTerm, pod: Pod) -> bool:
        """A term of another pod; as in the filter, an unknown namespace has no labels."""
        return term.selects(
            pod.metadata.namespace, pod.metadata.labels, lambda name: self._labels_of(name) or NO_LABELS
        )

    # --- nodes ----------------------------------------------------------------------------------------------------

    def node_changed(self, waiting: WaitingPod, old: Node | None, new: Node) -> Hint:
        """A node came or changed its labels."""
        before = NO_LABELS if old is None else old.metadata.labels
        after = new.metadata.labels
        affinity = required_affinity(waiting.pod)
        if any(_moved_in(term.topology_key, before, after) for term in affinity):
            return Hint.QUEUE
        anti_affinity = required_anti_affinity(waiting.pod)
        if old is None:
            # A node that no term of its own keeps the pod from may be out of reach of everybody else's.
            helps = bool(anti_affinity) or (not affinity and not self._upstream)
        else:
            helps = any(_moved_out(term.topology_key, before, after) for term in anti_affinity)
            # The node, or a pod on it that is against the waiting one, may have left a domain we do not know of.
            helps = helps or (not self._upstream and any(_moved_out(key, before, after) for key in before))
        return Hint.QUEUE if helps else Hint.SKIP

    # --- namespaces -----------------------------------------------------------------------------------------------

    def namespace_changed(self, waiting: WaitingPod, old: Namespace | None, new: Namespace | None) -> Hint:
        """A namespace came, changed its labels, or went: terms may select other pods now."""
        before = None if old is None else old.metadata.labels
        after = None if new is None else new.metadata.labels
        changed = old if new is None else new
        if changed is None:
            return Hint.SKIP
        name, pod = changed.metadata.name, waiting.pod
        if name == pod.metadata.namespace and (before or NO_LABELS) != (after or NO_LABELS):
            # Terms of others may not be about the waiting pod any more.
            return Hint.QUEUE
        affinity, anti_affinity = required_affinity(pod), required_anti_affinity(pod)
        was = [term.selects_namespace(name, lambda _name: before) for term in affinity]
        now = [term.selects_namespace(name, lambda _name: after) for term in affinity]
        helps = all(now) and not all(was)
        if all(was) and not all(now):
            helps = self._all_select(affinity, pod)
        helps = helps or any(
            term.selects_namespace(name, lambda _name: before)
            and not term.selects_namespace(name, lambda _name: after)
            for term in anti_affinity
        )
        return Hint.QUEUE if helps else Hint.SKIP


def _moved_in(key: str, before: Labels, after: Labels) -> bool:
    """It has a domain of this key now, and another than before."""
    return key in after and before.get(key) != after[key]


def _moved_out(key: str, before: Labels, after: Labels) -> bool:
    """It had a domain of this key, and has left it."""
    return key in before and after.get(key) != before[key]

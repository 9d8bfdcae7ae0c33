"""Pod (anti-)affinity terms, compiled: which pods a term selects.

A term selects pods by their labels and their namespace. Its namespaces are those listed and those whose labels the
`namespaceSelector` matches; if it has neither, the namespace of the pod that has the term.

Terms with equal text are one object: the replicas of a deployment share theirs, so whether a term selects a given pod need be
worked out once for all of them. Compiling costs three microseconds a term, half of one if it is known already, and is kept with
the pod (`PodInfo.terms`).

A pod may have dozens of terms, and a cluster thousands of such pods. Most terms require a label, so of a long list only those are
looked at that require one which the pod in question has (`Terms.about`): half a microsecond for the list instead of for each term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Self

from tidelog.api.objects import LabelSelector, Pod, PodAffinityTerm, WeightedPodAffinityTerm
from tidelog.api.selectors import Labels, SelectorError, is_empty, label_matcher, selector_key

NamespaceLabels = Callable[[str], Labels | None]
"""The labels of the namespace of this name; None if it is not known."""

NO_LABELS: Mapping[str, str] = {}

Label = tuple[str, str]

FEW = 4
"""So many terms are looked at one by one; arbitrary within a factor of two."""


class AffinityTerm:
    """One compiled term. Compare by identity."""

    __slots__ = (
        "_matches",
        "_namespace_matches",
        "every_namespace",
        "label_keys",
        "labels",
        "namespaces",
        "topology_key",
        "weight",
    )

    def __init__(self, term: PodAffinityTerm, weight: int, owner_namespace: str) -> None:
        selector = term.namespace_selector
        own = not term.namespaces and selector is None
        self.topology_key = term.topology_key
        self.weight = weight
        """0 for a required term."""
        self.namespaces = _only(owner_namespace) if own else frozenset(term.namespaces)
        self.every_namespace = selector is not None and is_empty(selector)
        """Also those that are not known."""
        self.labels: tuple[Label, ...] = _required_labels(term.label_selector)
        """Labels that every selected pod has, and whatever else the selector asks for."""
        self.label_keys: tuple[str, ...] = _label_keys(term.label_selector)
        """The keys of a pod's labels that it looks at."""
        labels_tell_all = term.label_selector is not None and not term.label_selector.match_expressions
        self._matches = None if labels_tell_all else label_matcher(term.label_selector)
        self._namespace_matches = None if selector is None else label_matcher(selector)

    def selects_namespace(self, namespace: str, labels_of: NamespaceLabels) -> bool:
        """Whether the term is about pods of this namespace."""
        if self.every_namespace or namespace in self.namespaces:
            return True
        if self._namespace_matches is None:
            return False
        labels = labels_of(namespace)
        return labels is not None and self._namespace_matches(labels)

    def selects(self, namespace: str, labels: Labels, labels_of: NamespaceLabels) -> bool:
        """Whether the term is about a pod of this namespace with these labels."""
        for key, value in self.labels:
            if labels.get(key) != value:
                return False
        if self._matches is not None and not self._matches(labels):
            return False
        return namespace in self.namespaces or self.selects_namespace(namespace, labels_of)


@lru_cache(maxsize=1024)
def _only(namespace: str) -> frozenset[str]:
    return frozenset((namespace,))


def _required_labels(selector: LabelSelector | None) -> tuple[Label, ...]:
    if selector is None:
        return ()
    labels = tuple(selector.match_labels.items())
    if selector.match_expressions:
        only = [r for r in selector.match_expressions if r.operator == "In" and len(r.values) == 1]
        labels += tuple((r.key, r.values[0]) for r in only)
    return labels


def _label_keys(selector: LabelSelector | None) -> tuple[str, ...]:
    if selector is None:
        return ()
    return (*selector.match_labels, *(r.key for r in selector.match_expressions))


class Terms(tuple[AffinityTerm, ...]):  # noqa: SLOT001 - a tuple cannot have slots of its own
    """A list of terms of a pod, in their order."""

    _by_label: dict[Label, tuple[int, ...]] | None = None
    """Label → places of terms that require it: each term that requires any is under one of them. None: all are looked at."""
    _others: tuple[int, ...] = ()
    """Places of the terms that require no label …"""
    _other_terms: tuple[AffinityTerm, ...] = ()
    """… and these terms."""

    def indexed(self) -> Self:
        """Itself; a long list looks up from now on what it is asked. Costs half a microsecond a term."""
        if len(self) > FEW:
            self._index()
        return self

    def _index(self) -> None:
        # Tuples, because thousands of lists would give the garbage collector work.
        by_label: dict[Label, tuple[int, ...]] = {}
        others = []
        for place, term in enumerate(self):
            labels = term.labels
            if not labels:
                others.append(place)
                continue
            # All terms may ask for `team=a`, and each for an app of its own: then it is better found by the app.
            label = labels[0] if len(labels) == 1 else min(labels, key=lambda one: len(by_label.get(one, ())))
            by_label[label] = (*by_label.get(label, ()), place)
        self._by_label = by_label
        self._others = tuple(others)
        self._other_terms = tuple([self[place] for place in others])

    def about(self, labels: Labels) -> Sequence[AffinityTerm]:
        """Those that may select a pod with these labels, at least all that do, in their order.

        Costs a step for each label, but never more than one for each term.
        """
        by_label = self._by_label
        if by_label is None or len(labels) > len(self):
            return self
        found = [place for label in labels.items() if label in by_label for place in by_label[label]]
        if not found:
            return self._other_terms
        return [self[place] for place in sorted((*found, *self._others))]


NONE = Terms()


class PodTerms(NamedTuple):
    """All terms of a pod. A list with a term that does not parse counts as empty, and is told in `errors`."""

    affinity: Terms = NONE
    anti_affinity: Terms = NONE
    preferred_affinity: Terms = NONE
    preferred_anti_affinity: Terms = NONE
    errors: tuple[SelectorError, ...] = ()


NO_TERMS = PodTerms()


def all_select(terms: Terms, namespace: str, labels: Labels, labels_of: NamespaceLabels) -> bool:
    """Whether each term selects the pod; an empty list selects none, because it asks for no pod."""
    for term in terms:
        if not term.selects(namespace, labels, labels_of):
            return False
    return bool(terms)


# --- compiling ----------------------------------------------------------------------------------------------------------

_cache: dict[tuple[object, ...], AffinityTerm] = {}
_CACHE_MAX = 8192


def required_affinity(pod: Pod) -> Terms:
    """The required affinity terms. Raises SelectorError."""
    affinity = pod.spec.affinity
    found = affinity.pod_affinity if affinity else None
    return _required(found.required, pod) if found else NONE


def required_anti_affinity(pod: Pod) -> Terms:
    """The required anti-affinity terms. Raises SelectorError."""
    affinity = pod.spec.affinity
    found = affinity.pod_anti_affinity if affinity else None
    return _required(found.required, pod) if found else NONE


def compile_terms(pod: Pod) -> PodTerms:
    """All terms of the pod."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    errors: list[SelectorError] = []

    def parsed(compiled: Callable[[], Terms]) -> Terms:
        try:
            return compiled().indexed()
        except SelectorError as error:
            errors.append(error)
            return NONE

    attract, repel = affinity.pod_affinity, affinity.pod_anti_affinity
    return PodTerms(
        parsed(lambda: required_affinity(pod)),
        parsed(lambda: required_anti_affinity(pod)),
        parsed(lambda: _preferred(attract.preferred, pod)) if attract else NONE,
        parsed(lambda: _preferred(repel.preferred, pod)) if repel else NONE,
        tuple(errors),
    )


def _required(terms: Iterable[PodAffinityTerm], pod: Pod) -> Terms:
    return Terms(_compiled(term, 0, pod.metadata.namespace) for term in terms)


def _preferred(terms: Iterable[WeightedPodAffinityTerm], pod: Pod) -> Terms:
    return Terms(_compiled(t.pod_affinity_term, t.weight, pod.metadata.namespace) for t in terms)


def _compiled(term: PodAffinityTerm, weight: int, namespace: str) -> AffinityTerm:
    key = (
        namespace,
        weight,
        term.topology_key,
        term.namespaces,
        *map(_key, (term.label_selector, term.namespace_selector)),
    )
    found = _cache.get(key)
    if found is None:
        if len(_cache) >= _CACHE_MAX:
            _cache.clear()
        found = _cache[key] = AffinityTerm(term, weight, namespace)
    return found


def _key(selector: LabelSelector | None) -> object:
    return None if selector is None else selector_key(selector)

"""Pod (anti-)affinity terms, compiled: which pods a term selects.

A term selects pods by their labels and their namespace. Its namespaces are those listed and those whose labels the
`namespaceSelector` matches; if it has neither, the namespace of the pod that has the term.

Terms with equal text are one object: the replicas of a deployment share theirs, so whether a term selects a given pod need be
worked out once for all of them. Compiling costs a few microseconds a term, and is kept with the pod (`PodInfo.terms`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tidelog.api.objects import LabelSelector, Pod, PodAffinityTerm, WeightedPodAffinityTerm
from tidelog.api.selectors import Labels, SelectorError, is_empty, label_matcher, selector_key

NamespaceLabels = Callable[[str], Labels | None]
"""The labels of the namespace of this name; None if it is not known."""

NO_LABELS: Mapping[str, str] = {}


class AffinityTerm:
    """One compiled term. Compare by identity."""

    __slots__ = (
        "_namespace_matches",
        "every_namespace",
        "matches_labels",
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
        self.namespaces = frozenset((owner_namespace,) if own else term.namespaces)
        self.every_namespace = selector is not None and is_empty(selector)
        """Also those that are not known."""
        self.matches_labels = label_matcher(term.label_selector)
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
        return self.matches_labels(labels) and self.selects_namespace(namespace, labels_of)


Terms = tuple[AffinityTerm, ...]


class PodTerms(NamedTuple):
    """All terms of a pod. A list with a term that does not parse counts as empty, and is told in `errors`."""

    affinity: Terms = ()
    anti_affinity: Terms = ()
    preferred_affinity: Terms = ()
    preferred_anti_affinity: Terms = ()
    errors: tuple[SelectorError, ...] = ()


NO_TERMS = PodTerms()


def all_select(terms: Terms, namespace: str, labels: Labels, labels_of: NamespaceLabels) -> bool:
    """Whether each term selects the pod; an empty list selects none, because it asks for no pod."""
    return bool(terms) and all(term.selects(namespace, labels, labels_of) for term in terms)


# --- compiling ----------------------------------------------------------------------------------------------------------

_cache: dict[tuple[object, ...], AffinityTerm] = {}
_CACHE_MAX = 8192


def required_affinity(pod: Pod) -> Terms:
    """The required affinity terms. Raises SelectorError."""
    affinity = pod.spec.affinity
    found = affinity.pod_affinity if affinity else None
    return _required(found.required, pod) if found else ()


def required_anti_affinity(pod: Pod) -> Terms:
    """The required anti-affinity terms. Raises SelectorError."""
    affinity = pod.spec.affinity
    found = affinity.pod_anti_affinity if affinity else None
    return _required(found.required, pod) if found else ()


def compile_terms(pod: Pod) -> PodTerms:
    """All terms of the pod."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    errors: list[SelectorError] = []

    def parsed(compiled: Callable[[], Terms]) -> Terms:
        try:
            return compiled()
        except SelectorError as error:
            errors.append(error)
            return ()

    attract, repel = affinity.pod_affinity, affinity.pod_anti_affinity
    return PodTerms(
        parsed(lambda: required_affinity(pod)),
        parsed(lambda: required_anti_affinity(pod)),
        parsed(lambda: _preferred(attract.preferred, pod)) if attract else (),
        parsed(lambda: _preferred(repel.preferred, pod)) if repel else (),
        tuple(errors),
    )


def _required(terms: Iterable[PodAffinityTerm], pod: Pod) -> Terms:
    return tuple(_compiled(term, 0, pod.metadata.namespace) for term in terms)


def _preferred(terms: Iterable[WeightedPodAffinityTerm], pod: Pod) -> Terms:
    return tuple(_compiled(t.pod_affinity_term, t.weight, pod.metadata.namespace) for t in terms)


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

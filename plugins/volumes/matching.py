"""Which of the volumes that are there a claim would get on a node.

The volumes that will do anywhere are found once for a pod, smallest first; which of them a node reaches, for each node. Volumes whose node
affinity asks for labels with given values are looked up by these, so that a node costs the volumes that it may reach, not all there are. Volumes
of a single host are not even looked at before that node is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from heapq import merge
from typing import NamedTuple

from tidelog.api.objects import NodeSelector
from tidelog.api.selectors import Matcher, label_matcher, volume_affinity_matcher
from tidelog.api.storage import PersistentVolume, PersistentVolumeClaim
from tidelog.api.volumes import FILESYSTEM, class_of, is_for, size
from tidelog.api.well_known import HOSTNAME
from tidelog.framework.effort import Effort
from tidelog.framework.storage import Storage

Labels = Mapping[str, str]
_STEPS_OF_VOLUME = 1
_STEPS_OF_LOCAL_VOLUME = 5
"""So much of an attempt's turn is a look at whether a node reaches a volume, and at whether one of its own will do. Measured, roughly."""


def reaches(selector: NodeSelector | None) -> Matcher:
    """Which nodes, by their labels, reach a volume of this affinity."""
    return _everywhere if selector is None else volume_affinity_matcher(selector)


def _everywhere(_labels: Labels) -> bool:
    return True


def affinity_of(volume: PersistentVolume) -> NodeSelector | None:
    """As the volume has it, not translated."""
    return None if volume.spec.node_affinity is None else volume.spec.node_affinity.required


def requested(claim: PersistentVolumeClaim) -> Fraction:
    """How much the claim asks for."""
    return Fraction(*size(claim.spec.resources.requests))


def volumes_for(claim: PersistentVolumeClaim, storage: Storage) -> list[PersistentVolume]:
    """All volumes of the claim's class that it could get: those that are promised to it, and those that nobody has."""
    name, meta = class_of(claim), claim.metadata
    promised = (
        v
        for v in storage.volumes_promised_to(meta.namespace, meta.name)
        if class_of(v) == name and is_for(v, claim)
    )
    return [*promised, *storage.free_volumes_of_class(name)]


class _Candidate(NamedTuple):
    rank: tuple[Fraction, str]
    volume: PersistentVolume
    reaches: Matcher


class Candidates:
    """The volumes that would do for one claim, wherever they can be reached."""

    def __init__(
        self,
        claim: PersistentVolumeClaim,
        volumes: Iterable[PersistentVolume],
        local: Callable[[str, str], Sequence[PersistentVolume]],
        effort: Effort,
    ) -> None:
        """`volumes` are those of the claim's class, by name; but `local` tells of those of a class and host, as of now. `effort`: of the attempt. Raises
        SelectorError."""
        self.claim = claim
        self._local = local
        self._effort = effort
        self._selects = _everywhere if claim.spec.selector is None else label_matcher(claim.spec.selector)
        fitting = [volume for volume in volumes if _will_do(volume, claim)]
        self._promised = [volume for volume in fitting if is_for(volume, claim)]
        """Those that name this claim: the first decides, and no other will do then."""
        self._anywhere: list[_Candidate] = []
        self._by_label: dict[str, dict[str, list[_Candidate]]] = {}
        self._index(volume for volume in fitting if volume.spec.claim_ref is None)

    def _available(self, volumes: Iterable[PersistentVolume]) -> list[_Candidate]:
        """Those that nobody has, as the claim wants them: the smallest first, and among equals the first by name."""
        wanted, name = set(self.claim.spec.access_modes), class_of(self.claim)
        found = [
            _Candidate(
                (Fraction(*size(volume.spec.capacity)), volume.metadata.name),
                volume,
                reaches(affinity_of(volume)),
            )
            for volume in volumes
            if volume.status.phase == "Available"
            and class_of(volume) == name
            and wanted <= set(volume.spec.access_modes)
            and self._selects(volume.metadata.labels)
        ]
        return sorted(found, key=_rank)

    def _index(self, volumes: Iterable[PersistentVolume]) -> None:
        for candidate in self._available(volumes):
            selector = affinity_of(candidate.volume)
            labels = None if selector is None else _labels_asked_for(selector)
            if labels is None:
                self._anywhere.append(candidate)
                continue
            for key, value in labels:
                self._by_label.setdefault(key, {}).setdefault(value, []).append(candidate)

    def on(self, labels: Labels, taken: set[str]) -> PersistentVolume | None:
        """The one that the claim gets on a node with these labels; `taken` are those that other claims of the pod get."""
        for promised in self._promised:
            if promised.metadata.name not in taken:
                return promised if reaches(affinity_of(promised))(labels) else None
        for candidate in self._near(labels):
            self._effort.charge(_STEPS_OF_VOLUME)
            if candidate.volume.metadata.name not in taken and candidate.reaches(labels):
                return candidate.volume
        return None

    def _near(self, labels: Labels) -> Iterator[_Candidate]:
        """Those that the node may reach, best first."""
        lists = [
            found
            for key, by_value in self._by_label.items()
            if (value := labels.get(key)) is not None and (found := by_value.get(value))
        ]
        if self._anywhere:
            lists.append(self._anywhere)
        if (host := labels.get(HOSTNAME)) is not None:
            local = self._local(class_of(self.claim), host)
            if local:
                self._effort.charge(_STEPS_OF_LOCAL_VOLUME * len(local))
                lists.append(self._available(v for v in local if _will_do(v, self.claim)))
        if len(lists) < 2:
            return iter(lists[0] if lists else ())
        return merge(*lists, key=_rank)


def _rank(candidate: _Candidate) -> tuple[Fraction, str]:
    return candidate.rank


def _will_do(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Check what is asked of every volume, also of one that is promised to the claim."""
    spec, wanted = volume.spec, claim.spec
    return (
        not volume.metadata.deletion_timestamp
        and (spec.claim_ref is None or is_for(volume, claim))
        and Fraction(*size(spec.capacity)) >= requested(claim)
        and (spec.volume_mode or FILESYSTEM) == (wanted.volume_mode or FILESYSTEM)
        and (spec.volume_attributes_class_name or "") == (wanted.volume_attributes_class_name or "")
    )


def _labels_asked_for(selector: NodeSelector) -> list[tuple[str, str]] | None:
    """Labels of which a node must have one to be reached; None if that cannot be told so simply."""
    found: dict[tuple[str, str], None] = {}
    for term in selector.node_selector_terms:
        asked = next((r for r in term.match_expressions if r.operator == "In" and r.values), None)
        if asked is None:
            if term.match_expressions or term.match_fields:
                return None
            continue
        found.update(dict.fromkeys((asked.key, value) for value in asked.values))
    return list(found)

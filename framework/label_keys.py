"""Which labels of pods anybody's terms ask for: the others do not tell pods apart.

A set that only grows while a cluster runs, because to forget would cost a look at every pod; where it grows too large, all labels count.
Each new key may mean that pods which were alike are not, so who keeps tables about kinds of pods starts over when `generation` grows:
`KEYS_MAX` times, and for the keys of the term that brings too many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tidelog.framework.node_info import PodInfo

KEYS_MAX = 256
"""More keys than this are as good as all; arbitrary."""
TERMS_MAX = 8_192
"""So many terms are known by sight."""


class LabelKeys:
    """Of the terms of all pods that are or were placed."""

    def __init__(self) -> None:
        self.generation = 0
        """Grows with each new key."""
        self._keys: dict[str, None] | None = {}
        """None: too many."""
        self._seen: dict[object, None] = {}

    def note(self, pod: PodInfo) -> None:
        """The pod's terms count from now on. To be told of pods that have some."""
        if self._keys is None:
            return
        seen = self._seen
        affinity, anti_affinity, preferred, preferred_not, _ = pod.terms
        for terms in (affinity, anti_affinity, preferred, preferred_not):
            for term in terms:
                if term not in seen:
                    seen[term] = None
                    self._add(term.label_keys)
        if len(seen) > TERMS_MAX:
            seen.clear()

    def _add(self, keys: Iterable[str]) -> None:
        known = self._keys
        if known is None:
            return
        for key in keys:
            if key not in known:
                known[key] = None
                self.generation += 1
        if len(known) > KEYS_MAX:
            self._keys = None

    def read_of(self, labels: Mapping[str, str], own: Collection[str] = ()) -> list[tuple[str, str]]:
        """Those of the labels that somebody asks for, or the pod itself does, by key."""
        keys = self._keys
        if keys is None:
            return sorted(labels.items())
        if not keys and not own:
            return []
        return sorted([(key, value) for key, value in labels.items() if key in keys or key in own])

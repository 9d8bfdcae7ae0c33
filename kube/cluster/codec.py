"""From the bytes of an object to what the log stores of it: read, projected, its annotations folded in.

Nothing that is to be taken out ever leaves this module. Live objects are not judged: what is wrong with an annotation is remembered in
`said`, for a warning; the object is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tidelog.api.cluster import Cluster
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.kind import Kind
from tidelog.api.objects import Object, ObjectMeta
from tidelog.api.overrides import fold
from tidelog.api.projection import Projection
from tidelog.api.wire import Meta, read_object

Said = Callable[[Object, tuple[str, ...]], None]


def unheard(obj: Object, texts: tuple[str, ...]) -> None:
    """Nobody is told."""


class Codec:
    """Reads the objects of one session."""

    def __init__(
        self,
        projection: Projection,
        cluster: Callable[[], Cluster],
        gates: Callable[[], FeatureGates],
        said: Said = unheard,
    ) -> None:
        """`said` is told what is wrong with an object's annotations, each time that a version of it is read."""
        self.projection = projection
        self._cluster = cluster
        self._gates = gates
        self._said = said

    def key(self, kind: Kind, head: Meta | ObjectMeta) -> str:
        """The record key of the object of this metadata."""
        namespace, name = self.projection.place(head.namespace if kind.namespaced else "", head.name)
        return f"{kind.name}/{namespace if kind.namespaced else ''}/{name}"

    def read(self, kind: Kind, raw: msgspec.Raw | bytes, known: Object | None) -> Object:
        """Return the object as it is stored. `known`: the stored object of the same uid. Raises Unreadable."""
        return self.stored(read_object(kind.name, raw), known)

    def stored(self, obj: Object, known: Object | None) -> Object:
        """Return what is stored of the object. `known`: as for `read`."""
        found, said = fold(self.projection.of(obj), known, self._cluster(), self._gates())
        if said:
            self._said(found, said)
        return found

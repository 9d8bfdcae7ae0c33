"""Events and leases: kept in memory beside the log, bounded, with revisions of their own.

Clusters keep their events in an etcd of their own for the same reason: there are many, nothing depends on them, and they may be lost. Revisions
go on from the time of the start, so that nobody who comes back after a restart takes a new one for an old one; what was before is expired.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.kube.serve.items import Item
from tidelog.kube.serve.shelf import Shelf
from tidelog.kube.serve.view import Expired, Listed

OBJECTS_MAX = {"Event": 10_000, "Lease": 10_000}
"""When there are more of a kind, the one goes that was changed the longest time ago."""


class MemoryView:
    """All events and leases."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.revision = clock()
        self.shelves = {kind: Shelf(kind) for kind in OBJECTS_MAX}
        self._by_age: dict[str, dict[tuple[str, str], None]] = {kind: {} for kind in OBJECTS_MAX}
        for shelf in self.shelves.values():
            shelf.since = self.revision
        self.oldest = self.revision

    async def caught_up(self) -> None:
        """It always has."""

    def listed(self, kind: str) -> Listed:
        """The objects of a kind now."""
        return Listed(self.revision, self.shelves[kind].items())

    async def listed_at(self, kind: str, at: int) -> Listed:
        """Only now can be asked for."""
        if at != self.revision:
            raise Expired(at, self.revision)
        return self.listed(kind)

    def put(self, kind: str, manifest: dict[str, Any]) -> Item:
        """Put an object, complete but for its resourceVersion."""
        self.revision += 1
        meta = manifest["metadata"]
        meta["resourceVersion"] = str(self.revision)
        shelf = self.shelves[kind]
        item = Item(kind, meta.get("namespace", ""), meta["name"], self.revision, None, "", manifest)
        by_age = self._by_age[kind]
        by_age.pop(item.sort_key, None)
        by_age[item.sort_key] = None
        shelf.change(self.revision, shelf.get(*item.sort_key), item)
        if len(shelf) > OBJECTS_MAX[kind]:
            self.delete(kind, *next(iter(by_age)))
        return item

    def delete(self, kind: str, namespace: str, name: str) -> Item | None:
        """Take an object away."""
        shelf = self.shelves[kind]
        old = shelf.get(namespace, name)
        if old is not None:
            self.revision += 1
            self._by_age[kind].pop((namespace, name), None)
            shelf.change(self.revision, old, None)
        return old

    def cut_all(self) -> None:
        """Nobody is told anything any more."""
        for shelf in self.shelves.values():
            shelf.cut_all()

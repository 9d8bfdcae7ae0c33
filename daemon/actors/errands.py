"""The errands of actors, kept until they are due. Pure: the caller says what happened and what time it is.

    book = ErrandBook([NodeAgent(), …])
    book.configured(configuration)                    the one in force, if there is one already
    book.begin(objects, seq, at)                      once, on the state to start from
    book.consume(record, body, objects)               for each record after that
    while book.next_at() <= now: for entry in book.take_due(now): book.run(entry, objects, now)   → drafts to append

Errands that are due at the same time come in the order in which they were taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidelog.api.objects import Object
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.daemon.actors.protocol import Actor, Configured, Errand, Objects
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import Body, ConfigurationLoaded, Draft, Record


class DueErrand(NamedTuple):
    """An errand in the book."""

    at: int
    number: int
    actor: Actor
    errand: Errand


class ErrandBook:
    """The errands of all actors, and when each is due."""

    def __init__(self, actors: Sequence[Actor]) -> None:
        self.actors = tuple(actors)
        self._heap: list[DueErrand] = []
        """Also entries whose place was taken: they are passed over."""
        self._current: dict[tuple[str, str, str], int] = {}
        """(actor, what, key) → number of the entry that counts."""
        self._numbers = 0

    def configured(self, configuration: SchedulerConfiguration) -> None:
        """Tell the actors that want to know it which configuration is in force."""
        for actor in self.actors:
            if isinstance(actor, Configured):
                actor.configured(configuration)

    def begin(self, objects: Objects, seq: int, at: int) -> None:
        """Forget all errands, and let the actors look at the cluster as it is."""
        self._heap.clear()
        self._current.clear()
        for actor in self.actors:
            self._take(actor, actor.begin(objects, seq, at))

    def consume(self, record: Record, body: Body, objects: Objects) -> None:
        """Tell the actors of a record."""
        if isinstance(body, ConfigurationLoaded):
            self.configured(msgspec.convert(body.configuration, SchedulerConfiguration))
        for actor in self.actors:
            self._take(actor, actor.react(record, body, objects))

    def next_at(self) -> int | None:
        """When the next errand is due."""
        self._drop_replaced()
        return self._heap[0].at if self._heap else None

    def take_due(self, now: int) -> list[DueErrand]:
        """Take out everything that is due."""
        due = []
        while (at := self.next_at()) is not None and at <= now:
            entry = heapq.heappop(self._heap)
            del self._current[_name_of(entry)]
            due.append(entry)
        return due

    def run(self, entry: DueErrand, objects: Objects, at: int) -> list[Draft]:
        """Do it: the drafts to append, signed and with their cause. On the newest objects there are."""
        deeds = entry.actor.run(entry.errand, objects, at)
        self._take(entry.actor, deeds.errands)
        return [
            replace(draft, author=entry.actor.name, cause=draft.cause or entry.errand.cause)
            for draft in deeds.drafts
        ]

    def _take(self, actor: Actor, errands: Sequence[Errand]) -> None:
        for errand in errands:
            self._numbers += 1
            entry = DueErrand(errand.at, self._numbers, actor, errand)
            self._current[_name_of(entry)] = entry.number
            heapq.heappush(self._heap, entry)

    def _drop_replaced(self) -> None:
        heap = self._heap
        while heap and self._current.get(_name_of(heap[0])) != heap[0].number:
            heapq.heappop(heap)


def _name_of(entry: DueErrand) -> tuple[str, str, str]:
    return entry.actor.name, entry.errand.what, entry.errand.key


class KeyedObjects:
    """`Objects` on a mapping from record keys, such as the core's."""

    def __init__(self, objects: Mapping[str, Object]) -> None:
        self._objects = objects

    def get(self, key: str) -> Object | None:
        return self._objects.get(key)

    def opaque(self, key: str) -> str:  # A scheduler does not keep them.
        return ""

    def of_kind(self, kind: str) -> list[Object]:
        prefix = f"{kind}/"
        return [obj for _, obj in sorted(i for i in self._objects.items() if i[0].startswith(prefix))]


class TabledObjects:
    """`Objects` on the log's table of objects."""

    def __init__(self, table: ObjectTable) -> None:
        self._table = table

    def get(self, key: str) -> Object | None:
        return self._table.get(key)

    def opaque(self, key: str) -> str:
        found = self._table.entry(key)
        return "" if found is None else found.opaque

    def of_kind(self, kind: str) -> list[Object]:
        return [entry.object for entry in self._table.of_kind(kind)]

"""The unschedulable pool: who was rejected and waits for an event, and who is gated; whoever has been here for five minutes is flushed.

The pool is filed by rejector. An event is first matched against the plugins' registrations, which names rejectors; only
what is filed under those is looked at. So an event costs what it concerns: one that concerns no one costs a dictionary
look-up for each interested plugin, whatever the size of the pool.

Events go through the pool in the order of parking: who entered the pool first is judged first. An entity whose gate was
tried in vain has entered it anew.

Entities that wait for time are also filed by when a tick may help them, so that no tick is recorded before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.api.times import NANOS
from tidelog.queue.entity import AnyEntity, Rejector
from tidelog.queue.heap import Heap

FLUSH_AFTER = 300 * NANOS
"""The longest stay of a rejected entity, unless the configuration says another: a hint may be missing."""


class UnschedulablePool:
    """Entities by rejector, and by how long they have been here."""

    __slots__ = (
        "_by_rejector",
        "_leftovers",
        "_max_stay",
        "_quiet_until",
        "_time_due",
        "_timed",
        "entities",
        "parkings",
    )

    def __init__(
        self, max_stay: int, time_due: Callable[[AnyEntity], int | None] = lambda _entity: None
    ) -> None:
        """`time_due`: from when on a tick may help the entity, None if none can."""
        self._max_stay = max_stay
        self._time_due = time_due
        self._timed: Heap[AnyEntity] = Heap()
        self.entities: dict[AnyEntity, None] = {}
        """In the order of parking."""
        self._by_rejector: dict[Rejector, dict[AnyEntity, None]] = {}
        """Empty entries are removed: what is here has someone in it."""
        self._leftovers: Heap[AnyEntity] = Heap()
        self._quiet_until = 0
        """Nobody will have been here for too long before; asked at each record."""
        self.parkings = 0
        """How many times something entered the pool."""

    def __len__(self) -> int:
        return len(self.entities)

    def park(self, entity: AnyEntity) -> None:
        """The entity waits here from now on, behind all others."""
        self.parkings += 1
        entity.parked = self.parkings
        self.file(entity)

    def park_again(self, entity: AnyEntity) -> None:
        """As if it had left and come back: it is behind all others. It must be for the same rejectors, which is not looked at again."""
        self.parkings += 1
        entity.parked = self.parkings
        del self.entities[entity]
        self.entities[entity] = None
        for rejector in entity.filed_under:
            filed = self._by_rejector[rejector]
            del filed[entity]
            filed[entity] = None
        self._file_by_stay(entity)
        self.file_by_time(entity)

    def file(self, entity: AnyEntity) -> None:
        """Enter it under the place it already has (`parked`)."""
        self.entities[entity] = None
        entity.filed_under = entity.filing()
        assert entity.filed_under, (
            f"{entity.key} would wait for nobody: only rejected and gated ones come here"
        )
        for rejector in entity.filed_under:
            self._by_rejector.setdefault(rejector, {})[entity] = None
        self._file_by_stay(entity)
        self.file_by_time(entity)

    def _file_by_stay(self, entity: AnyEntity) -> None:
        self._leftovers.push(entity, (max(entity.timestamp, entity.flushed_at), entity.parked))
        self._quiet_until = min(self._quiet_until, self.due_at(entity))

    def file_by_time(self, entity: AnyEntity) -> None:
        """Something about it has changed that may change for which time it waits."""
        due = self._time_due(entity)
        if due is None:
            self._timed.discard(entity)
        else:
            self._timed.push(entity, (due, entity.parked))

    def remove(self, entity: AnyEntity) -> None:
        """It leaves the pool."""
        del self.entities[entity]
        for rejector in entity.filed_under:
            filed = self._by_rejector[rejector]
            del filed[entity]
            if not filed:
                del self._by_rejector[rejector]
        entity.filed_under = ()
        self._leftovers.discard(entity)
        self._timed.discard(entity)

    def concerned(self, rejectors: Iterable[Rejector]) -> list[AnyEntity]:
        """Return the entities filed under any of these plugins, in the order of parking."""
        index = self._by_rejector
        found = [index[rejector] for rejector in rejectors if rejector in index]
        if len(found) <= 1:
            # A list of its own, because judging moves entities out of the pool.
            return list(found[0]) if found else []
        merged: dict[AnyEntity, None] = {}
        for filed in found:
            merged.update(filed)
        return sorted(merged, key=_parked)

    def all(self) -> list[AnyEntity]:
        """Everyone, in the order of parking."""
        return list(self.entities)

    def leftovers(self, now: int) -> list[AnyEntity]:
        """Return the entities that are here for too long, in the order in which they became so. They stay in the pool."""
        found: list[AnyEntity] = []
        if now < self._quiet_until:
            return found
        while (entity := self._leftovers.first()) is not None and self.due_at(entity) <= now:
            self._leftovers.discard(entity)
            found.append(entity)
        self._quiet_until = now if entity is None else self.due_at(entity)
        return found

    def next_time_due(self) -> int | None:
        """From when on a tick may help somebody here; None while nobody waits for time."""
        entity = self._timed.first()
        return None if entity is None else self._timed.order_of(entity)[0]

    def next_leftover_at(self) -> int | None:
        """When the next entity will have been here for too long."""
        entity = self._leftovers.first()
        return None if entity is None else self.due_at(entity)

    def due_at(self, entity: AnyEntity) -> int:
        """When it will have been here for too long: strictly more than the longest stay after it failed or was last flushed."""
        return max(entity.timestamp, entity.flushed_at) + self._max_stay + 1


def _parked(entity: AnyEntity) -> int:
    return entity.parked

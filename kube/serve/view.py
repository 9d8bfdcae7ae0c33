"""The log as clients see it: what is durable, now, at any earlier revision, and every change since.

    the log ──tail──► the table of objects ──each change──► the shelf of its kind ──► watchers

`LogView` follows the log by itself, behind nobody: what it shows is on the disk. Reading now costs nothing; what is older than the changes in
memory is computed from the log, from the nearest snapshot on, a few at a time. What was compacted is gone: `Expired`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from tidelog.api.errors import LogError
from tidelog.api.kinds.registry import KINDS
from tidelog.eventlog.log import Log
from tidelog.eventlog.objects import ObjectEntry, ObjectTable, load_objects
from tidelog.eventlog.records import Body, Record
from tidelog.kube.serve.items import Item, item_of
from tidelog.kube.serve.revisions import end_of, revision, spot_of
from tidelog.kube.serve.shelf import Change, Shelf

RECORDS_PER_TURN = 50
"""So many are consumed before the event loop goes round."""
PASTS_MAX = 8
"""So many lists of the past are kept for those who page through them."""
AT_ONCE = 2
"""So many readings of the past at a time."""


class Expired(Exception):
    """The revision was compacted."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(revision, oldest)
        self.revision = revision
        self.oldest = oldest
        """The oldest that can be asked for."""


class Listed(NamedTuple):
    """Objects of a kind at a revision, by namespace and name."""

    revision: int
    items: Sequence[Item]

    def find(self, namespace: str, name: str) -> Item | None:
        """The object of this name."""
        place = bisect_left(self.items, (namespace, name), key=lambda item: item.sort_key)
        found = self.items[place] if place < len(self.items) else None
        return found if found is not None and found.sort_key == (namespace, name) else None


class LogView:
    """Everything in the log, by kind."""

    def __init__(self, log: Log, table: ObjectTable) -> None:
        self.log = log
        self.shelves: dict[str, Shelf] = {kind.name: Shelf(kind.name) for kind in KINDS}
        self.on_record: Callable[[Record, Body], None] | None = None
        """Told of each record that has been consumed."""
        self._table = table
        self._moved = asyncio.Event()
        self.is_ended = False
        """It does not keep up any more."""
        self._pasts: OrderedDict[tuple[str, int], Listed] = OrderedDict()
        self._reading = asyncio.Semaphore(AT_ONCE)
        for shelf in self.shelves.values():
            shelf.since = end_of(table.seq)
            for entry in table.of_kind(shelf.kind):
                meta = entry.object.metadata
                shelf.load(item_of(f"{shelf.kind}/{meta.namespace}/{meta.name}", entry))
        table.on_change = self._changed

    @classmethod
    async def of(cls, log: Log) -> LogView:
        """A view of the log as it is. Costs what reading the objects costs."""
        return cls(log, await load_objects(log))

    @property
    def revision(self) -> int:
        """Everything up to this one is shown."""
        return end_of(self._table.seq)

    @property
    def oldest(self) -> int:
        """The oldest revision at which a list can be asked for."""
        return end_of(self.log.anchor.seq)

    async def follow(self) -> None:
        """Keep up with the log until it is closed or fails; raises LogError then. Cuts all watchers off."""
        try:
            async for batch in self.log.tail_batches(self._table.seq + 1):
                for count, record in enumerate(batch, start=1):
                    body = self.log.body_of(record)
                    self._table.apply(record, body)
                    if self.on_record is not None:
                        self.on_record(record, body)
                    if count % RECORDS_PER_TURN == 0:
                        self._ring()
                        await asyncio.sleep(0)
                self._ring()
        finally:
            self.is_ended = True
            for shelf in self.shelves.values():
                shelf.cut_all()
            self._ring()

    def _ring(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _changed(self, key: str, _old: ObjectEntry | None, new: ObjectEntry | None, place: int) -> None:
        kind, namespace, name = key.split("/")
        shelf = self.shelves[kind]
        before = shelf.get(namespace, name)
        after = None if new is None else item_of(key, new)
        shelf.change(revision(self._table.seq, place), before, after)

    async def caught_up(self) -> None:
        """Return when everything is shown that was durable when this was called."""
        wanted = self.log.head.seq
        while self._table.seq < wanted:
            if self.is_ended or self.log.failure is not None:
                raise LogError(str(self.log.failure or f"{self.log.name} is not served any more"))
            await self._moved.wait()

    def known(self, item: Item) -> Item:
        """This version of the object as it is on its shelf, so that its JSON is made once for everybody; itself if it is not there (yet)."""
        found = self.shelves[item.kind].get(*item.sort_key)
        return found if found is not None and found.revision == item.revision else item

    # --- the past -------------------------------------------------------------------------------------------------------

    def listed(self, kind: str) -> Listed:
        """The objects of a kind now."""
        return Listed(self.revision, self.shelves[kind].items())

    async def listed_at(self, kind: str, at: int) -> Listed:
        """The objects of a kind as they were at a revision, which is not in the future. Raises Expired."""
        if at >= self.shelves[kind].since and at == self.revision:
            return self.listed(kind)
        past = self._pasts.get((kind, at))
        if past is not None:
            self._pasts.move_to_end((kind, at))
            return past
        known: dict[tuple[str, str], Item] = {}
        async with self._reading:
            async for _ in self._changes_between(kind, _start_of(at), at, known):
                pass
        listed = Listed(at, [known[key] for key in sorted(known)])
        self.keep(kind, listed)
        return listed

    def keep(self, kind: str, listed: Listed) -> None:
        """Somebody will ask for more of it."""
        self._pasts[kind, listed.revision] = listed
        self._pasts.move_to_end((kind, listed.revision))
        while len(self._pasts) > PASTS_MAX:
            self._pasts.popitem(last=False)

    async def changes_after(self, kind: str, after: int) -> AsyncIterator[Change]:
        """Return the changes of objects of a kind after a revision, until now. Raises Expired."""
        async with self._reading:
            async for change in self._changes_between(kind, after, self.revision, {}):
                yield change

    def _check_kept(self, at: int, seq: int) -> None:
        if seq < self.log.anchor.seq:
            raise Expired(at, self.oldest)

    async def _load(self, at: int, seq: int) -> ObjectTable:
        try:
            return await load_objects(self.log, seq)
        except LogError:
            # It may have been compacted just now.
            self._check_kept(at, seq)
            raise

    async def _changes_between(
        self, kind: str, after: int, to: int, known: dict[tuple[str, str], Item]
    ) -> AsyncIterator[Change]:
        """`known` is what there is in the end."""
        start = spot_of(_start_of(after)).seq
        self._check_kept(after, start)
        table = await self._load(after, start)
        known |= {item.sort_key: item for item in _items_of(table, kind)}
        found: list[Change] = []

        def changed(key: str, _old: ObjectEntry | None, new: ObjectEntry | None, place: int) -> None:
            at = revision(table.seq, place)
            if key.partition("/")[0] != kind or at > to:
                return
            _, namespace, name = key.split("/")
            before = known.pop((namespace, name), None)
            item = None if new is None else item_of(key, new)
            if item is not None:
                known[namespace, name] = item
            if at > after:
                found.append(Change(at, before, item))

        table.on_change = changed
        last = spot_of(to).seq
        try:
            async for batch in self.log.read_batches(start + 1, last):
                for count, record in enumerate(batch, start=1):
                    table.apply(record)
                    for change in found:
                        yield change
                    found.clear()
                    if count % RECORDS_PER_TURN == 0:
                        await asyncio.sleep(0)
        except LogError:
            self._check_kept(after, start)
            raise


def _items_of(table: ObjectTable, kind: str) -> list[Item]:
    found = []
    for entry in table.of_kind(kind):
        meta = entry.object.metadata
        found.append(item_of(f"{kind}/{meta.namespace}/{meta.name}", entry))
    return found


def _start_of(at: int) -> int:
    """The nearest end of a record at or before a revision."""
    seq, _ = spot_of(at)
    return at if at == end_of(seq) else end_of(seq - 1) if seq else 0

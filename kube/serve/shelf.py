"""The objects of one kind as they are now, their latest changes, and everybody who watches them.

A change is put once and handed to those watchers whom it can concern: a watcher that asks for one node's pods is found by the node's name. What
they are sent is made once and shared: the bytes of an event are kept with the change, by the form in which they were wanted.

    ADDED     the object begins to match what the watcher asks for
    MODIFIED  it still does
    DELETED   it does no more, or is gone: its last state that matched, with the revision of the change

A watcher keeps what it has not sent yet, up to a limit: then it is cut off, and nobody waits for it. It comes again from the last revision it has
seen and misses nothing.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal

from tidelog.kube.serve.items import Item

EventType = Literal["ADDED", "MODIFIED", "DELETED"]
Form = Callable[[EventType, Item, int], bytes]
"""Makes the line of an event: of what type, the object, and the revision that it is to have."""

KEPT = 8_192
"""So many of a kind's latest changes can be watched from without reading the log; arbitrary."""
UNSENT_BYTES_MAX = 16 << 20
"""So much may wait for a watcher."""
INDEXED = ("spec.nodeName", "metadata.name")
"""Watchers that ask for one value of such a field are found by it."""


class Change:
    """The effect of one record on one object."""

    __slots__ = ("_lines", "new", "old", "revision")

    def __init__(self, revision: int, old: Item | None, new: Item | None) -> None:
        self.revision = revision
        self.old = old
        self.new = new
        self._lines: dict[tuple[EventType, object], bytes] | None = None

    def line(self, watcher: Watcher) -> bytes | None:
        """Return the event for the watcher; None if this is nothing to it."""
        matches = watcher.matches
        old, new = self.old, self.new
        is_seen = new is not None and (matches is None or matches(new))
        was_seen = old is not None and (matches is None or matches(old))
        if is_seen:
            assert new is not None
            return self._line("MODIFIED" if was_seen else "ADDED", new, watcher)
        if was_seen:
            assert old is not None
            return self._line("DELETED", old, watcher)
        return None

    def _line(self, type: EventType, item: Item, watcher: Watcher) -> bytes:
        if self._lines is None:
            self._lines = {}
        key = (type, watcher.form_key)
        found = self._lines.get(key)
        if found is None:
            found = self._lines[key] = watcher.form(type, item, self.revision)
        return found

    def forget_lines(self) -> None:
        """Nobody is expected to want them again soon."""
        self._lines = None


class Watcher:
    """One watch: what it asks for, and what it has not been sent yet."""

    __slots__ = (
        "_unsent",
        "_wake",
        "form",
        "form_key",
        "index",
        "is_cut",
        "matches",
        "on_cut",
        "unsent_bytes",
    )

    def __init__(
        self,
        matches: Callable[[Item], bool] | None,
        form: Form,
        form_key: object,
        index: tuple[str, str] | None = None,
    ) -> None:
        """`form_key`: watchers with the same one are sent the same bytes. `index`: a field, and the one value that it must have."""
        self.matches = matches
        self.form = form
        self.form_key = form_key
        self.index = index
        self.is_cut = False
        self.on_cut: Callable[[], None] | None = None
        self.unsent_bytes = 0
        self._unsent: list[bytes] = []
        self._wake = asyncio.Event()

    def put(self, line: bytes) -> None:
        """To be sent."""
        if self.is_cut:
            return
        self._unsent.append(line)
        self.unsent_bytes += len(line)
        if self.unsent_bytes > UNSENT_BYTES_MAX:
            self.cut()
        else:
            self._wake.set()

    def cut(self) -> None:
        """Send nothing any more."""
        self.is_cut = True
        self._unsent.clear()
        self._wake.set()
        if self.on_cut is not None:
            self.on_cut()

    def take(self) -> bytes:
        """All that is to be sent; empty if there is nothing."""
        unsent, self._unsent = self._unsent, []
        self.unsent_bytes = 0
        self._wake.clear()
        return unsent[0] if len(unsent) == 1 else b"".join(unsent)

    async def wait(self, seconds: float) -> None:
        """Return when there is something, or after this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass


class Shelf:
    """All objects of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.since = 0
        """Changes up to this revision are not in memory any more."""
        self._items: dict[tuple[str, str], Item] = {}
        self._ordered: list[Item] | None = []
        self._changes: deque[Change] = deque()
        self._watchers: dict[Watcher, None] = {}
        self._indexed: dict[tuple[str, str], dict[Watcher, None]] = {}
        self._index_counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._items)

    def get(self, namespace: str, name: str) -> Item | None:
        """The object."""
        return self._items.get((namespace, name))

    def items(self) -> list[Item]:
        """All of them, by namespace and name; a list of the caller's own."""
        if self._ordered is None:
            self._ordered = [self._items[key] for key in sorted(self._items)]
        return self._ordered.copy()

    @property
    def watchers(self) -> int:
        """How many there are."""
        return len(self._watchers) + sum(map(len, self._indexed.values()))

    def load(self, item: Item) -> None:
        """Put an object that has been there before anybody watched."""
        self._items[item.sort_key] = item
        self._ordered = None

    def change(self, revision: int, old: Item | None, new: Item | None) -> None:
        """Put a change, and tell of it."""
        if new is not None:
            known = self._items.get(new.sort_key)
            self._items[new.sort_key] = new
            if self._ordered is not None:
                if known is None:
                    self._ordered = None
                else:
                    self._replace(known, new)
        elif old is not None:
            self._items.pop(old.sort_key, None)
            self._ordered = None
        change = Change(revision, old, new)
        self._changes.append(change)
        if len(self._changes) > KEPT:
            self.since = self._changes.popleft().revision
        if self._watchers:
            for watcher in self._watchers:
                if (line := change.line(watcher)) is not None:
                    watcher.put(line)
        if self._indexed:
            for watcher in self._asking(old, new):
                if (line := change.line(watcher)) is not None:
                    watcher.put(line)
        change.forget_lines()

    def _replace(self, known: Item, new: Item) -> None:
        assert self._ordered is not None
        place = bisect_left(self._ordered, new.sort_key, key=lambda item: item.sort_key)
        if place < len(self._ordered) and self._ordered[place] is known:
            self._ordered[place] = new
        else:
            self._ordered = None

    def _asking(self, old: Item | None, new: Item | None) -> Iterator[Watcher]:
        """The indexed watchers that the change can concern, each once."""
        found: dict[Watcher, None] = {}
        for field in self._index_counts:
            for item in (old, new):
                if item is not None and (asking := self._indexed.get((field, item.field(field)))):
                    found |= asking
        return iter(found)

    def add(self, watcher: Watcher) -> None:
        """Tell it of changes from now on."""
        if watcher.index is None:
            self._watchers[watcher] = None
            return
        self._indexed.setdefault(watcher.index, {})[watcher] = None
        field = watcher.index[0]
        self._index_counts[field] = self._index_counts.get(field, 0) + 1

    def discard(self, watcher: Watcher) -> None:
        """Tell it nothing any more."""
        self._watchers.pop(watcher, None)
        if watcher.index is None or self._indexed.get(watcher.index, {}).pop(watcher, watcher) is not None:
            return
        if not self._indexed[watcher.index]:
            del self._indexed[watcher.index]
        field = watcher.index[0]
        self._index_counts[field] -= 1
        if not self._index_counts[field]:
            del self._index_counts[field]

    def replay(self, watcher: Watcher, after: int) -> None:
        """Give it the changes in memory after this revision, which is not before `since`."""
        assert after >= self.since
        for change in self._changes:
            if change.revision > after and (line := change.line(watcher)) is not None:
                watcher.put(line)

    def cut_all(self) -> None:
        """Nobody is told anything any more."""
        for watcher in [*self._watchers, *(w for found in self._indexed.values() for w in found)]:
            watcher.cut()

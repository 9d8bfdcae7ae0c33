"""The bytes of an `ObjectTable` for its snapshots, made a few hundred objects at a time, while the table goes on.

    mark = table.mark()                                    which objects there are: they are immutable
    encoding = TableEncoding(mark)                         all of them, or …
    encoding = TableEncoding(mark, since=earlier)          … those that are others than at an earlier mark
    for _ in encoding.work(): …                            in steps; few objects are one step
    blob = encoding.blob()

An object costs a microsecond; to find what changed, and to bring keys into order, 50 and 600 nanoseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tidelog.api.dict_changes import finding_changes
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import KINDS
from tidelog.eventlog.attachment import Attachment

if TYPE_CHECKING:
    from tidelog.eventlog.objects import ObjectEntry

FORMAT = 2
"""Version of a snapshot's bytes."""

ATTACHMENT = ""
"""Where a snapshot of an attached log has its attachment, among the objects by kind: others stay as they were, byte for byte."""

PROMISES = "promises"
"""Likewise, what is outstanding."""

BESIDE = "/"
"""Where it has what is known of entries beside seq and object, in the same way."""

OBJECTS_PER_STEP = 500
"""Arbitrary; half a millisecond of encoding."""

WORDS_PER_STEP = 20_000
"""So many are sorted at once, more or less; ten milliseconds."""

_encode = msgspec.msgpack.Encoder().encode


class Mark(NamedTuple):
    """A table as it was."""

    seq: int
    kinds: dict[str, dict[str, ObjectEntry]]
    at: int
    settings: tuple[FeatureGates, int]
    attachment: Attachment | None
    promises: dict[str, Any] | None


class TableEncoding:
    """A table on its way to bytes; equal tables give equal bytes."""

    def __init__(self, mark: Mark, since: Mark | None = None) -> None:
        self._mark = mark
        self._since = since
        self._objects: dict[str, Any] = {}
        self._gone: list[str] = []

    def work(self) -> Iterator[None]:
        """Encode; yields between steps."""
        is_first = True
        beside: dict[str, Any] = {}
        """The rest of what there is to say of some entries."""
        for kind in KINDS:
            entries = self._mark.kinds.get(kind.name)
            if not entries and not (self._since and self._since.kinds.get(kind.name)):
                continue
            chunks: list[bytes] = []
            put: Mapping[str, ObjectEntry] = entries or {}
            if self._since is not None:
                before, put = self._since.kinds.get(kind.name, {}), {}
                gone: list[str] = []
                yield from finding_changes(before, entries or {}, gone, put)
                self._gone += [key for key in gone if key not in put]
            keys: list[str] = []
            yield from sorting(put, keys)
            more: list[str] = []
            for start in range(0, len(keys), OBJECTS_PER_STEP):
                if not is_first and len(keys) > OBJECTS_PER_STEP:
                    yield
                is_first = False
                step = keys[start : start + OBJECTS_PER_STEP]
                # Without what most entries lack.
                chunks += [_encode((put[key].seq, put[key].object)) for key in step]
                more += [key for key in step if put[key].place != 1 or put[key].opaque]
            if chunks:
                self._objects[kind.name] = msgspec.Raw(_array_head(len(keys)) + b"".join(chunks))
            beside.update((key, (put[key].place, put[key].opaque)) for key in more)
            if self._since is not None and beside:
                self._objects[BESIDE] = beside
        if beside:
            self._objects[BESIDE] = beside

    def blob(self) -> bytes:
        """The bytes, once the work is done."""
        mark, objects = self._mark, self._objects
        if mark.attachment is not None:
            objects[ATTACHMENT] = mark.attachment
        if mark.promises is not None:
            objects[PROMISES] = mark.promises
        whole = (FORMAT, mark.seq, mark.at, mark.settings, objects)
        return _encode(whole if self._since is None else (*whole, self._since.seq, sorted(self._gone)))


def encoded(mark: Mark, since: Mark | None = None) -> bytes:
    """The bytes, all at once."""
    encoding = TableEncoding(mark, since)
    for _ in encoding.work():
        pass
    return encoding.blob()


def sorting(words: Iterable[str], found: list[str]) -> Iterator[None]:
    """Add the words to `found`, in order; yields between steps."""
    some = list(words)
    if len(some) > WORDS_PER_STEP:
        # What is between two of these is sorted by itself.
        ends = sorted(some[:: WORDS_PER_STEP // 8])[8::8]
        parts: list[list[str]] = [[] for _ in range(len(ends) + 1)]
        for start in range(0, len(some), WORDS_PER_STEP):
            yield
            for word in some[start : start + WORDS_PER_STEP]:
                parts[bisect_right(ends, word)].append(word)
        for part in parts:
            yield
            found += sorted(part)
    else:
        found += sorted(some)


def _array_head(length: int) -> bytes:
    """As MessagePack begins an array of so many elements."""
    if length < 16:
        return bytes([0x90 | length])
    return b"\xdc" + length.to_bytes(2, "big") if length < 2**16 else b"\xdd" + length.to_bytes(4, "big")

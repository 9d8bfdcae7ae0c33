"""The bytes of an `ObjectTable` for its snapshots, made a few hundred objects at a time, while the table goes on.

    mark = table.mark()                                    which objects there are: they are immutable
    encoding = TableEncoding(mark)                         all of them, or …
    encoding = TableEncoding(mark, since=earlier)          … those that are others than at an earlier mark
    for _ in encoding.work(): …                            in steps; few objects are one step
    blob = encoding.blob()

An object costs a microsecond; to find what changed, and to bring keys into order, is a step for each kind: 50 and 400 nanoseconds an object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tidelog.api.dict_changes import dict_changes
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
        for kind in KINDS:
            entries = self._mark.kinds.get(kind.name)
            if not entries and not (self._since and self._since.kinds.get(kind.name)):
                continue
            chunks: list[bytes] = []
            put = self._changed(kind.name, entries or {})
            keys = sorted(put)
            for start in range(0, len(keys), OBJECTS_PER_STEP):
                if not is_first and len(keys) > OBJECTS_PER_STEP:
                    yield
                is_first = False
                # Without what most entries lack.
                chunks += [
                    _encode((put[key].seq, put[key].object)) for key in keys[start : start + OBJECTS_PER_STEP]
                ]
            if chunks:
                self._objects[kind.name] = msgspec.Raw(_array_head(len(keys)) + b"".join(chunks))
            if self._since is not None:
                self._add_beside(put)
        if self._since is None:
            for kind in KINDS:
                self._add_beside(self._mark.kinds.get(kind.name, {}))

    def _changed(self, kind: str, entries: dict[str, ObjectEntry]) -> Mapping[str, ObjectEntry]:
        if self._since is None:
            return entries
        removed, put = dict_changes(self._since.kinds.get(kind, {}), entries)
        self._gone += [key for key in removed if key not in put]
        return put

    def _add_beside(self, entries: Mapping[str, ObjectEntry]) -> None:
        """Add what else there is to say of some of them."""
        more = [key for key, entry in entries.items() if entry.place != 1 or entry.opaque]
        for key in sorted(more):
            self._objects.setdefault(BESIDE, {})[key] = (entries[key].place, entries[key].opaque)

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


def _array_head(length: int) -> bytes:
    """As MessagePack begins an array of so many elements."""
    if length < 16:
        return bytes([0x90 | length])
    return b"\xdc" + length.to_bytes(2, "big") if length < 2**16 else b"\xdd" + length.to_bytes(4, "big")

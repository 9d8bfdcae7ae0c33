"""The bytes of an `ObjectTable` for its snapshots, made a few hundred objects at a time, while the table goes on.

    mark = table.mark()                                    which objects there are: they are immutable
    encoding = TableEncoding(mark)                         all of them, or …
    encoding = TableEncoding(mark, since=earlier)          … those that are others than at an earlier mark
    for _ in encoding.work(): …                            in steps; few objects are one step
    blob = encoding.blob()

An object costs a microsecond; to find what changed, and to bring keys into order, 50 and 600 nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tidelog.api.dict_changes import finding_changes
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import KINDS
from tidelog.api.messagepack import array_head, map_head
from tidelog.api.steps import Steps, sorting, whole_result
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
        self._objects: dict[str, list[bytes]] = {}
        """By kind, encoded, in pieces."""
        self._gone: list[str] = []

    def work(self) -> Steps[None]:
        """Encode; yields between steps."""
        is_first = True
        gone: list[str] = []
        beside: list[bytes] = []
        """The rest of what there is to say of some entries."""
        count = 0
        for kind in KINDS:
            entries = self._mark.kinds.get(kind.name)
            if not entries and not (self._since and self._since.kinds.get(kind.name)):
                continue
            chunks: list[bytes] = []
            put: Mapping[str, ObjectEntry] = entries or {}
            if self._since is not None:
                before, put = self._since.kinds.get(kind.name, {}), {}
                removed: list[str] = []
                yield from finding_changes(before, entries or {}, removed, put)
                gone += [key for key in removed if key not in put]
            keys = yield from sorting(put)
            for start in range(0, len(keys), OBJECTS_PER_STEP):
                if not is_first and len(keys) > OBJECTS_PER_STEP:
                    yield
                is_first = False
                step = keys[start : start + OBJECTS_PER_STEP]
                # Without what most entries lack. What an array begins with is the whole one's affair.
                some = _encode([(put[key].seq, put[key].object) for key in step])
                chunks.append(some[len(array_head(len(step))) :])
                more = {
                    key: (put[key].place, put[key].opaque)
                    for key in step
                    if put[key].place != 1 or put[key].opaque
                }
                if more:
                    beside.append(_encode(more)[len(map_head(len(more))) :])
                    count += len(more)
            if chunks:
                self._objects[kind.name] = [array_head(len(keys)), *chunks]
            if beside and self._since is not None:
                self._objects[BESIDE] = beside
        if beside:
            beside.insert(0, map_head(count))
            self._objects[BESIDE] = beside
        self._gone = yield from sorting(gone)

    def pieces(self) -> list[bytes]:
        """The bytes, once the work is done. They are never put together here: of a large table they are hundreds of MiB."""
        mark, objects = self._mark, dict(self._objects)
        if mark.attachment is not None:
            objects[ATTACHMENT] = [_encode(mark.attachment)]
        if mark.promises is not None:
            objects[PROMISES] = [_encode(mark.promises)]
        begin = (FORMAT, mark.seq, mark.at, mark.settings)
        end = () if self._since is None else (self._since.seq, self._gone)
        found = [array_head(len(begin) + 1 + len(end)), *map(_encode, begin), map_head(len(objects))]
        for name, content in objects.items():
            found += (_encode(name), *content)
        return [*found, *map(_encode, end)]

    def blob(self) -> bytes:
        """The same as one piece."""
        return b"".join(self.pieces())


def encoded(mark: Mark, since: Mark | None = None) -> bytes:
    """The bytes, all at once."""
    encoding = TableEncoding(mark, since)
    whole_result(encoding.work())
    return encoding.blob()

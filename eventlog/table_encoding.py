"""The bytes of an `ObjectTable` for its snapshots, made a few hundred objects at a time, while the table goes on.

    with table.marked() as mark:                           which objects there are: they are immutable
        pieces = whole_result(encoding(mark))              in steps; few objects are one step

An object costs a microsecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import KINDS
from tidelog.api.messagepack import array_head, map_head
from tidelog.api.steps import Steps, whole_result
from tidelog.eventlog.attachment import Attachment

if TYPE_CHECKING:
    from tidelog.eventlog.objects import ObjectEntry

FORMAT = 3
"""Version of a snapshot's bytes: the objects of a kind stand in the order in which they came."""

SORTED = 2
"""The version before, in which they stand in the order of their names."""

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
    kinds: Mapping[str, Mapping[str, ObjectEntry]]
    at: int
    settings: tuple[FeatureGates, int]
    attachment: Attachment | None
    promises: dict[str, Any] | None
    format: int = FORMAT


def encoding(mark: Mark) -> Steps[list[bytes]]:
    """The bytes, in pieces, that are never put together here: of a large table they are hundreds of MiB. Equal tables give equal bytes."""
    objects: dict[str, list[bytes]] = {}
    beside: list[bytes] = []
    """The rest of what there is to say of some entries."""
    count = 0
    done = 0
    for kind in KINDS:
        entries = mark.kinds.get(kind.name)
        if not entries:
            continue
        objects[kind.name] = chunks = [array_head(len(entries))]
        items = iter(entries.items())
        while step := list(islice(items, OBJECTS_PER_STEP)):
            if done >= OBJECTS_PER_STEP:
                yield
                done = 0
            done += len(step)
            # Without what most entries lack. What an array begins with is the whole one's affair.
            some = _encode([(entry.seq, entry.object) for _, entry in step])
            chunks.append(some[len(array_head(len(step))) :])
            more = {
                key: (entry.place, entry.opaque) for key, entry in step if entry.place != 1 or entry.opaque
            }
            if more:
                beside.append(_encode(more)[len(map_head(len(more))) :])
                count += len(more)
    if beside:
        objects[BESIDE] = [map_head(count), *beside]
    if mark.attachment is not None:
        objects[ATTACHMENT] = [_encode(mark.attachment)]
    if mark.promises is not None:
        objects[PROMISES] = [_encode(mark.promises)]
    begin = (mark.format, mark.seq, mark.at, mark.settings)
    found = [array_head(len(begin) + 1), *map(_encode, begin), map_head(len(objects))]
    for name, content in objects.items():
        found += (_encode(name), *content)
    return found


def encoded(mark: Mark) -> bytes:
    """The bytes, all at once."""
    return b"".join(whole_result(encoding(mark)))

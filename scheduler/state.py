"""The core's state as bytes, for snapshots from which a scheduler comes back without reading the whole log.

    capture = capture_state(core)                  at a moment with nothing in flight; costs what is pending, not what there is;
                                                   or in steps, between which nothing may happen to the core: capturing(core)
    pieces = whole_result(capture.encoding())      in steps, too; the core may go on meanwhile
    core = load_state(blob, registry, objects)

The objects are not in it. They are those of the log's table after the same record, in its order (`tidelog.eventlog.objects`), which has snapshots
of its own; so a state costs what is pending, however many objects there are. Where there is no such table, as in the text of a test, a state
has its objects in it: `encode_state(core)`. So had all those of older versions.

What was loaded is equal to what was captured: the same digest, and the same decisions from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

import msgspec

from tidelog.api.errors import LogError
from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.messagepack import array_head, in_pieces
from tidelog.api.objects import Object
from tidelog.api.steps import Steps, whole_result
from tidelog.plugins.registry import Registry
from tidelog.scheduler.core import Core

SNAPSHOT = "scheduler"
"""The name of these snapshots in a log. Those between two snapshots of the objects have a suffix."""

VERSION = 2
"""Of the bytes. A snapshot of another version is passed over: it is only a cache."""

WITH_OBJECTS = 1
"""The version whose bytes have the objects in them."""

OBJECTS_PER_CHUNK = 200
"""Arbitrary: in pieces they were written, once, a step at a time."""


class _Counters(msgspec.Struct, frozen=True):
    """The part of a state that is checked first; the rest finds out for itself what it cannot be made of."""

    seq: int
    at: int
    epoch: int
    attempts: int
    last_tick_at: int


_encode = msgspec.msgpack.Encoder().encode
_decode_chunk = msgspec.msgpack.Decoder(list[tuple[str, msgspec.Raw]]).decode


class Capture:
    """A state as it was, beside its objects. It can be encoded once: what has been encoded is dropped."""

    def __init__(self, seq: int, rest: dict[str, Any]) -> None:
        self.seq = seq
        """The record up to which the core had consumed the log."""
        self._rest = rest

    def encoding(self) -> Steps[list[bytes]]:
        """Its bytes, in pieces: of a large state they are never put together."""
        rest = yield from in_pieces(self._rest)
        return [array_head(2), _encode(VERSION), *rest]

    def blob(self) -> bytes:
        """The same as one piece, all at once."""
        return b"".join(whole_result(self.encoding()))


def capture_state(core: Core) -> Capture:
    """Remember the state as it is; nothing may be in flight."""
    return whole_result(capturing(core))


def capturing(core: Core) -> Steps[Capture]:
    """The same in steps, between which nothing may happen to the core."""
    return Capture(core.seq, (yield from core.dumping()))


def encode_state(core: Core) -> bytes:
    """The state with its objects, all at once."""
    items = iter(core.objects.items())
    chunks = []
    while chunk := list(islice(items, OBJECTS_PER_CHUNK)):
        chunks.append(_encode(chunk))
    return _encode((WITH_OBJECTS, core.dump_without_objects(), chunks))


def has_objects(blob: bytes) -> bool:
    """Whether this is a state with its objects in it."""
    return blob.startswith(array_head(3) + _encode(WITH_OBJECTS))


def needs_objects(blob: bytes) -> bool:
    """Whether this is a state whose objects are somewhere else."""
    return blob.startswith(array_head(2) + _encode(VERSION))


def load_state(blob: bytes, registry: Registry, objects: Mapping[str, Object] | None = None) -> Core | None:
    """The core of these bytes; None if another version of tidelog wrote them.

    `objects`: those of the table after the same record, for a state that needs them.
    """
    try:
        version, rest, *more = msgspec.msgpack.decode(blob)
        if version == WITH_OBJECTS and len(more) == 1:  # With more it is only what had changed.
            found = dict(_objects_in(more[0]))
        elif version == VERSION:
            assert objects is not None, "its objects are missing"
            found = {**objects, **{key: _object(key, plain) for key, plain in rest.get("apart", ())}}
        else:
            return None
        msgspec.convert(rest, _Counters)
        return Core.load(registry, rest, found)
    except (
        msgspec.MsgspecError,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        AssertionError,
    ) as error:
        # Bytes that are not a state of ours, or one that contradicts itself.
        raise LogError(
            f"a snapshot of the scheduler's state cannot be read: {type(error).__name__}: {error}"
        ) from error


def _objects_in(chunks: Sequence[bytes]) -> Iterator[tuple[str, Object]]:
    for chunk in chunks:
        for key, raw in _decode_chunk(chunk):
            yield key, _decoder(key.partition("/")[0]).decode(raw)


@cache
def _decoder(kind: str) -> msgspec.msgpack.Decoder[Object]:
    return msgspec.msgpack.Decoder(KIND_BY_NAME[kind].type)


def _object(key: str, plain: Any) -> Object:
    return msgspec.convert(plain, KIND_BY_NAME[key.partition("/")[0]].type)

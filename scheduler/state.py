"""The core's state as bytes, for snapshots from which a scheduler comes back without reading the whole log.

    capture = capture_state(core)        at a moment with nothing in flight; costs what is pending, not what there is
    for _ in capture.work(): …           the objects, a few hundred at a time; the core may go on meanwhile
    blob = capture.blob()
    core = load_state(blob, registry)

Objects are immutable, so that a capture only has to remember which there are. What was loaded is equal to what was captured: the same
digest, and the same decisions from there on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tidelog.api.errors import LogError
from tidelog.api.objects import KINDS, Object
from tidelog.plugins.registry import Registry
from tidelog.scheduler.core import Core

SNAPSHOT = "scheduler"
"""The name of these snapshots in a log."""

VERSION = 1
"""Of the bytes. A snapshot of another version is passed over: it is only a cache."""

OBJECTS_PER_STEP = 200
"""Arbitrary; about a millisecond of encoding."""

_encode = msgspec.msgpack.Encoder().encode
_DECODE = {kind.name: msgspec.msgpack.Decoder(kind.type).decode for kind in KINDS}


class Capture:
    """A state that is being encoded."""

    def __init__(self, seq: int, rest: dict[str, Any], objects: list[tuple[str, Object]]) -> None:
        self.seq = seq
        """The record up to which the core had consumed the log."""
        self._rest = rest
        self._objects = objects
        self._chunks: list[bytes] = []

    def work(self) -> Iterator[None]:
        """Encode, a step at a time."""
        for start in range(0, len(self._objects), OBJECTS_PER_STEP):
            self._chunks.append(_encode(self._objects[start : start + OBJECTS_PER_STEP]))
            yield

    def blob(self) -> bytes:
        """The bytes, once the work is done; to be asked for once, because nothing is kept beside them."""
        chunks, self._chunks, self._objects = self._chunks, [], []
        return _encode((VERSION, self._rest, chunks))


def capture_state(core: Core) -> Capture:
    """Remember the state as it is; nothing may be in flight."""
    return Capture(core.seq, core.dump_without_objects(), list(core.objects.items()))


def encode_state(core: Core) -> bytes:
    """The state as bytes, all at once."""
    capture = capture_state(core)
    for _ in capture.work():
        pass
    return capture.blob()


def load_state(blob: bytes, registry: Registry) -> Core | None:
    """The core of these bytes; None if another version of tidelog wrote them."""
    try:
        version, rest, chunks = msgspec.msgpack.decode(blob)
        if version != VERSION:
            return None
        objects: dict[str, Object] = {}
        for chunk in chunks:
            for key, raw in msgspec.msgpack.decode(chunk, type=list[tuple[str, msgspec.Raw]]):
                objects[key] = _DECODE[key.partition("/")[0]](raw)
        return Core.load(registry, rest, objects)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise LogError(
            f"a snapshot of the scheduler's state cannot be read: {type(error).__name__}: {error}"
        ) from error

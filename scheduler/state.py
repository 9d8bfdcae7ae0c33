"""The core's state as bytes, for snapshots from which a scheduler comes back without reading the whole log.

    capture = capture_state(core)                  at a moment with nothing in flight; costs what is pending, not what there is;
                                                   or in steps, between which nothing may happen to the core: capturing(core)
    encoding = capture.encoding()                  all of it, or …
    encoding = capture.encoding(since=earlier)     … only the objects that are others than at an earlier capture
    for _ in encoding.work(): …                    the objects, a few hundred at a time; the core may go on meanwhile
    blob = encoding.blob()                         … or encoding.pieces(), which put together are the same
    core = load_state(blob, registry, changes)     `changes`: the blobs of what changed since, each since the one before

Objects are immutable, so that a capture only has to remember which there are. What was loaded is equal to what was captured: the same
digest, and the same decisions from there on. Encoding costs a microsecond an object, loading three to four.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from typing import Any

import msgspec

from tidelog.api.dict_changes import finding_changes
from tidelog.api.errors import LogError
from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.messagepack import array_head, bytes_head, in_pieces
from tidelog.api.objects import Object
from tidelog.api.steps import Steps, whole_result
from tidelog.plugins.registry import Registry
from tidelog.scheduler.core import Core

SNAPSHOT = "scheduler"
"""The name of these snapshots in a log."""

VERSION = 1
"""Of the bytes. A snapshot of another version is passed over: it is only a cache."""

OBJECTS_PER_STEP = 200
"""Arbitrary; a fraction of a millisecond of encoding."""


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
    """A state as it was."""

    def __init__(self, seq: int, rest: dict[str, Any], objects: dict[str, Object]) -> None:
        self.seq = seq
        """The record up to which the core had consumed the log."""
        self.rest = rest
        """The state beside the objects."""
        self.objects = objects

        self._encoded: list[bytes] = []

    def encoding_rest(self) -> Steps[list[bytes]]:
        """The rest as bytes, in pieces, for all encodings of this capture."""
        if not self._encoded:
            self._encoded = yield from in_pieces(self.rest)
        return self._encoded

    def forget_rest(self) -> None:
        """It will only be compared with from now on."""
        self.rest, self._encoded = {}, []

    def encoding(self, since: Capture | None = None) -> Encoding:
        """The work of making bytes of it, or of what is another than `since`."""
        return Encoding(self, since)


class Encoding:
    """A state on its way to bytes."""

    def __init__(self, capture: Capture, since: Capture | None) -> None:
        self._capture = capture
        self._since = since
        self._removed: list[str] = []
        self._rest: list[bytes] = []
        self._chunks: list[bytes] = []

    def work(self) -> Steps[None]:
        """Encode, a step at a time."""
        objects = self._capture.objects
        self._rest = yield from self._capture.encoding_rest()
        if self._since is not None:
            put: dict[str, Object] = {}
            yield from finding_changes(self._since.objects, objects, self._removed, put)
            objects = put
            yield
        items = iter(objects.items())
        while chunk := list(islice(items, OBJECTS_PER_STEP)):
            self._chunks.append(_encode(chunk))
            yield

    def pieces(self) -> list[bytes]:
        """The bytes, once the work is done. They are never put together here: of a large state they are hundreds of MiB."""
        more = () if self._since is None else (self._since.seq, self._removed)
        found = [array_head(3 + len(more)), _encode(VERSION), *self._rest, array_head(len(self._chunks))]
        for chunk in self._chunks:
            found += (bytes_head(len(chunk)), chunk)
        return [*found, *map(_encode, more)]

    def blob(self) -> bytes:
        """The same as one piece."""
        return b"".join(self.pieces())


def capture_state(core: Core) -> Capture:
    """Remember the state as it is; nothing may be in flight."""
    return whole_result(capturing(core))


def capturing(core: Core) -> Steps[Capture]:
    """The same in steps, between which nothing may happen to the core."""
    rest = yield from core.dumping()
    return Capture(core.seq, rest, dict(core.objects))


def encode_state(core: Core, since: Capture | None = None) -> bytes:
    """The state as bytes, all at once."""
    found = capture_state(core).encoding(since)
    whole_result(found.work())
    return found.blob()


def load_state(blob: bytes, registry: Registry, changes: Sequence[bytes] = ()) -> Core | None:
    """The core of these bytes; None if another version of tidelog wrote them.

    `changes` are taken as far as each follows the one before; an object that is in several of them is decoded once.
    """
    try:
        version, rest, chunks = msgspec.msgpack.decode(blob)
        if version != VERSION:
            return None
        raws: dict[str, msgspec.Raw] = {}
        _add(raws, chunks)
        for later in changes:
            version, newer, chunks, *link = msgspec.msgpack.decode(later)
            if version != VERSION or link[0] != rest["seq"]:
                break
            for key in link[1]:
                del raws[key]
            _add(raws, chunks)
            rest = newer
        msgspec.convert(rest, _Counters)
        return Core.load(registry, rest, {key: _decoder(key.partition("/")[0])(raws[key]) for key in raws})
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


@cache
def _decoder(kind: str) -> Callable[[msgspec.Raw], Object]:
    return msgspec.msgpack.Decoder(KIND_BY_NAME[kind].type).decode


def _add(raws: dict[str, msgspec.Raw], chunks: Sequence[bytes]) -> None:
    for chunk in chunks:
        raws.update(_decode_chunk(chunk))

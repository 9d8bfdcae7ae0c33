"""MessagePack of what is too large to be encoded as one piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidelog.api.steps import Steps

VALUES_PER_STEP = 500
"""Arbitrary; half a millisecond of encoding."""

FIELDS_MAX = 64
"""A dict with more entries is no record of several parts, of which each may be large; it is encoded as so many values."""

_encode = msgspec.msgpack.Encoder().encode


def array_head(length: int) -> bytes:
    """As it begins an array of so many elements."""
    if length < 16:
        return bytes([0x90 | length])
    return b"\xdc" + length.to_bytes(2, "big") if length < 2**16 else b"\xdd" + length.to_bytes(4, "big")


def map_head(length: int) -> bytes:
    """As it begins a map of so many entries."""
    if length < 16:
        return bytes([0x80 | length])
    return b"\xde" + length.to_bytes(2, "big") if length < 2**16 else b"\xdf" + length.to_bytes(4, "big")


def bytes_head(length: int) -> bytes:
    """As it begins so many bytes."""
    for code, width in ((b"\xc4", 1), (b"\xc5", 2)):
        if length < 1 << 8 * width:
            return code + length.to_bytes(width, "big")
    return b"\xc6" + length.to_bytes(4, "big")


def in_pieces(value: Any) -> Steps[list[bytes]]:
    """The bytes of a value of plain dicts and lists, in pieces: large ones of these are encoded a step at a time.

    They are empty afterwards: to drop a million rows takes a tenth of a second, if it is done in one go.
    """
    if type(value) is dict and len(value) <= FIELDS_MAX:
        found = [map_head(len(value))]
        for name, part in value.items():
            pieces = yield from in_pieces(part)
            found += (_encode(name), *pieces)
        return found
    if type(value) is dict:
        items = list(value.items())
        value.clear()
        return (yield from _in_steps(items, map_head, dict))
    if type(value) is list and len(value) > VALUES_PER_STEP:
        return (yield from _in_steps(value, array_head, list))
    return [_encode(value)]


def _in_steps(
    values: list[Any], head: Callable[[int], bytes], made: Callable[[Sequence[Any]], Any]
) -> Steps[list[bytes]]:
    found = [head(len(values))]
    for start in range(0, len(values), VALUES_PER_STEP):
        if start:
            yield
        some = values[start : start + VALUES_PER_STEP]
        values[start : start + VALUES_PER_STEP] = [None] * len(some)
        found.append(_encode(made(some))[len(head(len(some))) :])
    values.clear()
    return found

"""Contents as one number: the sum of a number for each thing that is there.

Unlike a count of changes it is the same again when a change is undone, as the trials of groups are: what was found out about the same contents holds
again. Two contents of one number are as likely as two equal hashes of 64 bits.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

MASK = (1 << 64) - 1
"""Sums are taken modulo the number after it."""
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def number_of(thing: object) -> int:
    """The number of one thing; equal things have equal ones."""
    return int.from_bytes(blake2b(_encode(thing), digest_size=8).digest(), "big")

"""A rejection's message taken apart, so that two can be compared as multisets of reasons with numbers.

    0/5 nodes are available: 1 Insufficient memory, 5 Insufficient cpu. preemption: 0/5 nodes are available: 5 No preemption victims found …
    └──────────────────────── reasons ───────────────────────────────┘             └──────────────────── preemption ─────────────────────

Reasons stand in the alphabetical order of their texts *with* their numbers, so the order says nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

_HEAD = re.compile(r"^0/(\d+) nodes are available:\s*")
_NEXT = re.compile(r", (?=\d+ )")
_REASON = re.compile(r"(\d+) (.*)", re.DOTALL)
_FOUND = re.compile(r"found a potential placement for pod on node (\S+), preempting (\d+) victims")
_PREEMPTION = "preemption: "


class Reasons(NamedTuple):
    """One sentence about nodes."""

    nodes: int
    """-1: it is another sentence, which stands in `counts` as it is."""
    counts: tuple[tuple[str, int], ...]
    """(reason, nodes), sorted."""


class RejectionMessage(NamedTuple):
    """The whole message."""

    reasons: Reasons
    preemption: Reasons | None
    """None: nothing is said of preemption."""
    placement: str = ""
    """The node on which preemption makes room."""
    victims: int = 0


def parsed(message: str) -> RejectionMessage:
    """Take a message apart. Never fails: what is of another shape is one reason."""
    filtered, found, preemption = message.partition(f" {_PREEMPTION}")
    if not found and message.startswith(_PREEMPTION):
        filtered, preemption, found = "", message.removeprefix(_PREEMPTION), _PREEMPTION
    placement = _FOUND.search(preemption)
    if placement is not None:
        return RejectionMessage(_reasons(filtered), None, placement[1], int(placement[2]))
    return RejectionMessage(_reasons(filtered), _reasons(preemption) if found else None)


def _reasons(text: str) -> Reasons:
    text = text.strip().removesuffix(".")
    head = _HEAD.match(text)
    if head is None:
        return Reasons(-1, ((text, 1),) if text else ())
    counts: Counter[str] = Counter()
    for part in _NEXT.split(text[head.end() :]):
        counted = _REASON.fullmatch(part)
        if counted is not None:
            counts[counted[2]] += int(counted[1])
        elif part:
            counts[part] += 1
    return Reasons(int(head[1]), tuple(sorted(counts.items())))

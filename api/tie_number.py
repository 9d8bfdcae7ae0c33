"""A number of each pod's own, by which one of several equally good nodes is chosen for it (`framework/tie_break.py`, docs/decisions/0010).

It follows from namespace and name, so it is the same in every attempt, every replay, and every log in which the pod comes. A copy of a log
without names keeps the number as an annotation: ten bits tell little of a name, and are enough to spread pods over thousands of nodes.
"""

from __future__ import annotations

from zlib import crc32

from tidelog.api.objects import Pod

TIE = "scheduling.tidelog.dev/tie"
STARTS = 1024
"""So many numbers there are."""
MARK = "+"
"""In the name of a pod that is still to come, which is a copy of one that is there. No pod can have such a name."""
_APART = 97
"""How far such copies are apart; it has no factor in common with `STARTS`."""


def tie_of(pod: Pod) -> int:
    """The pod's number, 0 to `STARTS` - 1."""
    meta = pod.metadata
    if not meta.annotations and MARK not in meta.name:
        return crc32(f"{meta.namespace}/{meta.name}".encode()) % STARTS  # As `tie_of_name`; nearly all pods.
    name, mark, number = meta.name.partition(MARK)
    given = meta.annotations.get(TIE) if meta.annotations else None
    found = tie_of_name(meta.namespace, name) if given is None else _read(given, meta.namespace, name)
    return (found + _APART * int(number)) % STARTS if mark else found


def tie_of_name(namespace: str, name: str) -> int:
    """As `tie_of`, of a pod that is not told another number."""
    return crc32(f"{namespace}/{name}".encode()) % STARTS


def _read(given: str, namespace: str, name: str) -> int:
    """The number that an annotation tells; a text that is none is not ours to refuse."""
    if len(given) <= 4 and given.isascii() and given.isdecimal():
        return int(given) % STARTS
    return tie_of_name(namespace, name)

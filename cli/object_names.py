"""How people name objects on a command line: `pod web-1`, `pods/web-1`, `po,svc`, `all`."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.api.errors import UsageError
from tidelog.api.kinds.kind import Kind
from tidelog.api.kinds.registry import KINDS, kind_named

ALL = "all"
EVENTS = frozenset(["events", "event", "ev"])
"""They are no objects of the log, but made of its outcomes."""


def named_objects(words: Sequence[str]) -> list[tuple[Kind, str | None]]:
    """Kinds with names; None for a name stands for all objects of the kind.

    Either every word is `KIND/NAME`, or the first one is a kind, or several with commas between, and the others are names.
    """
    if not words:
        return []
    slashed = ["/" in word for word in words]
    if all(slashed):
        return [_pair(word) for word in words]
    if any(slashed):
        raise UsageError(
            f"{' '.join(words)}: name the kind once in front of the names, or in each of them as KIND/NAME"
        )
    kinds = _kinds(words[0])
    names = words[1:]
    _check(names)
    return [(kind, name) for kind in kinds for name in (names or (None,))]


def _pair(word: str) -> tuple[Kind, str]:
    kind, _, name = word.partition("/")
    _check([name])
    return kind_named(kind), name


def _kinds(text: str) -> list[Kind]:
    if text == ALL:
        return list(KINDS)
    names = [name for name in text.split(",") if name]
    if EVENTS.intersection(names):
        raise UsageError("events are made of the log's outcomes, and stand alone: `tidelog get events`")
    kinds = list(dict.fromkeys(map(kind_named, names)))
    if not kinds:
        raise UsageError(f"{text!r} names no kind")
    return kinds


def _check(names: Sequence[str]) -> None:
    for name in names:
        if not name or "/" in name:
            raise UsageError(f"{name!r} is no name of an object")


def key_of(kind: Kind, namespace: str, name: str) -> str:
    """The key of the object of this name; the namespace counts only where the kind has namespaces."""
    return f"{kind.name}/{namespace if kind.namespaced else ''}/{name}"

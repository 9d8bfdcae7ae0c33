"""Name what a changed object gained, lost, and has with another value, field by field.

Fields and items of lists are named as in `tidelog.api.removals`. What a cluster writes about an object's identity is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from tidelog.api.manifests.manifests import to_builtins
from tidelog.api.objects import Object
from tidelog.api.removals import field_path, is_identity, item_name


class FieldChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One field that is not what it was."""

    path: str
    old: str = ""
    """Empty: it is added."""
    new: str = ""
    """Empty: it is taken away."""


def differences(old: Object | None, new: Object) -> list[FieldChange]:
    """The fields that differ, those of the new object in its order, then those that it lost."""
    before = {} if old is None else dict(_leaves(to_builtins(old), ""))
    after = dict(_leaves(to_builtins(new), ""))
    return [
        FieldChange(path=path, old=before.get(path, ""), new=after.get(path, ""))
        for path in dict.fromkeys((*after, *before))
        if before.get(path) != after.get(path)
    ]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Path → value of everything that has no parts."""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            if not is_identity(path, name):
                yield from _leaves(part, field_path(path, name))
    elif isinstance(value, list) and value:
        names = [item_name(item) for item in value]
        counts = Counter(names)
        for index, (name, part) in enumerate(zip(names, value, strict=True)):
            # Two of the same name are told apart by their places.
            yield from _leaves(part, f"{path}[{name if counts[name] == 1 else index}]")
    elif path:
        yield path, msgspec.json.encode(value).decode() if not isinstance(value, str) or not value else value

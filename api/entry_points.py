"""Load the entry points that installed packages offer us."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tidelog.api.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def offered(group: str) -> Iterator[tuple[str, str, Any]]:
    """Each entry's name, the package it comes from, and what it names. Imports those packages.

    Raises PluginError for the first that cannot be imported: a scheduler that silently lacks something would decide differently.
    """
    from importlib.metadata import entry_points  # Takes 10 ms, and most processes ask for nothing.

    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        origin = _origin(entry)
        try:
            found = entry.load()
        except Exception as error:
            raise PluginError(
                f"{entry.name} of {origin}", f"cannot be imported: {type(error).__name__}: {error}"
            ) from error
        yield entry.name, origin, found


def _origin(entry: EntryPoint) -> str:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
    return f"{package} ({entry.value})"

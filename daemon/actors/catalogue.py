"""Which actors there are, and the file that says which of them play: `tidelog run --actors FILE`.

    nodeAgent:                 # each by its name, with its settings; an empty one takes the defaults
      startSeconds: 2
      speed: 10

An actor that the file does not name does not play. Everything that is wrong in the file is told at once, with its path.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tidelog.api.errors import InvalidObjects, TidelogError
from tidelog.api.fields import ErrorList
from tidelog.daemon.actors.protocol import Actor
from tidelog.plugins import strict

ACTORS: Mapping[str, tuple[str, str]] = {
    "clusterAutoscaler": ("tidelog.daemon.actors.cluster_autoscaler", "ClusterAutoscaler"),
    "disruptionController": ("tidelog.daemon.actors.disruption_controller", "DisruptionController"),
    "nodeAgent": ("tidelog.daemon.actors.node_agent", "NodeAgent"),
}
"""Name in the file → module and class. A class has `Settings`, a struct with `errors(path)`, and is made with one."""

Cast = Callable[[], Sequence[Actor]]
"""Makes the actors, anew each time."""


def read_actors(path: Path | None) -> Cast:
    """Who plays according to the file; nobody without one. Raises TidelogError or InvalidObjects."""
    if path is None:
        return tuple
    try:
        text = path.read_bytes()
    except OSError as error:
        raise TidelogError(f"{path}: the actors cannot be read: {error.strerror or error}") from error
    errors = ErrorList()
    return cast_of(strict.parse_document(text, str(path), errors), str(path), errors)


def cast_of(data: Any, source: str = "actors", errors: ErrorList | None = None) -> Cast:
    """As `read_actors`, from plain data."""
    errors = ErrorList() if errors is None else errors
    chosen: list[Callable[[], Actor]] = []
    if not isinstance(data, Mapping):
        errors.invalid("document", data, "must be an object with the names of actors")
        raise InvalidObjects(source, errors)
    for name, given in data.items():
        if name not in ACTORS:
            errors.not_supported(str(name), name, tuple(ACTORS))
            continue
        module, attribute = ACTORS[name]
        kind = getattr(importlib.import_module(module), attribute)
        settings = strict.decode(kind.Settings, {} if given is None else given, str(name), errors)
        errors.extend(settings.errors(str(name)))
        chosen.append(_maker(kind, settings))
    if errors:
        raise InvalidObjects(source, errors)
    return lambda: tuple(make() for make in chosen)


def _maker(kind: Any, settings: Any) -> Callable[[], Actor]:
    return lambda: cast("Actor", kind(settings))

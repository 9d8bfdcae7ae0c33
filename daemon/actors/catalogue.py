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
from typing import Any, NamedTuple

from tidelog.api.errors import InvalidObjects, TidelogError
from tidelog.api.validation.field_errors import ErrorList
from tidelog.configuration import strict
from tidelog.daemon.actors.protocol import Actor
from tidelog.plugins.registry import Registry


class Role(NamedTuple):
    """Where an actor's class is. It has `Settings`, a struct with `errors(path)`, and is made with one."""

    module: str
    name: str
    simulates: bool = False
    """It tries what the scheduler would do, and so is given the scheduler's plugins too."""


ACTORS: Mapping[str, Role] = {
    "nodeAgent": Role("tidelog.daemon.actors.node_agent", "NodeAgent"),
    "clusterAutoscaler": Role("tidelog.daemon.actors.cluster_autoscaler", "ClusterAutoscaler", True),
    "disruptionController": Role("tidelog.daemon.actors.disruption_controller", "DisruptionController"),
    "volumeController": Role("tidelog.daemon.actors.volume_controller", "VolumeController"),
    "attachController": Role("tidelog.daemon.actors.attach_controller", "AttachController"),
    "workloadController": Role("tidelog.daemon.actors.workload_controller", "WorkloadController"),
    "claimController": Role("tidelog.daemon.actors.claim_controller", "ClaimController"),
    "deviceDriver": Role("tidelog.daemon.actors.device_driver", "DeviceDriver"),
}
"""By their names in the file."""

Cast = Callable[[Registry], Sequence[Actor]]
"""Makes the actors, anew each time, for a scheduler with these plugins."""


def nobody(_registry: Registry) -> Sequence[Actor]:
    """No actors."""
    return ()


def read_actors(path: Path | None) -> Cast:
    """Make the actors that the file names; none without a file. Raises TidelogError or InvalidObjects."""
    if path is None:
        return nobody
    try:
        with path.open("rb") as file:
            text = file.read(strict.TEXT_BYTES_MAX + 1)
    except OSError as error:
        raise TidelogError(f"{path}: the actors cannot be read: {error.strerror or error}") from error
    return cast_of(strict.parse_document(text, str(path)), str(path))


def cast_of(data: Any, source: str = "actors") -> Cast:
    """As `read_actors`, from plain data."""
    errors = ErrorList()
    chosen: list[Cast] = []
    if not isinstance(data, Mapping):
        errors.invalid("document", data, "must be an object with the names of actors")
        raise InvalidObjects(source, errors)
    for name, given in data.items():
        role = ACTORS.get(name)
        if role is None:
            errors.not_supported(strict.child("", str(name)), name, tuple(ACTORS))
            continue
        kind = getattr(importlib.import_module(role.module), role.name)
        settings = strict.decode(kind.Settings, {} if given is None else given, name, errors)
        if settings is not None:
            errors.extend(settings.errors(name))
            chosen.append(_maker(kind, settings, role))
    if errors:
        raise InvalidObjects(source, errors)
    return lambda registry: tuple(actor for make in chosen for actor in make(registry))


def _maker(kind: Any, settings: Any, role: Role) -> Cast:
    if role.simulates:
        return lambda registry: (kind(settings, registry),)
    return lambda _registry: (kind(settings),)

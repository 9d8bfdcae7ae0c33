"""Family `volume-dra-hints`: what the plugins for volumes and devices say of one event. Asked as the family `hints` is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
from families import hints

from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import KINDS
from tidelog.api.objects import DeviceClass, Object, Pod, ResourceClaim
from tidelog.framework.events import ACTION_BY_NAME, ClusterEvent, Resource, matches
from tidelog.framework.listers import Listers
from tidelog.plugins.registry import Registry

Case = dict[str, Any]
Answer = dict[str, Any]

_REGISTRY = Registry()
_RESOURCES = {resource.rpartition("/")[2]: resource for resource in Resource}
"""The cases name them without their groups."""
_TYPES: dict[str, type[Object]] = {kind.name: kind.type for kind in KINDS}


def answer(case: Case) -> Answer:
    """Ask the plugin of the case."""
    resource = _RESOURCES[case["event"]["resource"]]
    event = ClusterEvent(resource, ACTION_BY_NAME[case["event"]["action"]])
    old, new = (_object(case[key], resource) for key in ("old", "new"))
    plugin = _plugin(case)
    registered = [r for r in plugin.events_to_register() or () if matches(r.event, event)]
    found: Answer = {"registered": bool(registered), "error": False}
    if registered:
        waiting = SimpleNamespace(
            pod=msgspec.convert(with_uid(case["pod"]), Pod),
            attempted_at=0,
            first_rejected_at={plugin.name: 0},
        )
        hints.ask(found, registered, waiting, old, new)
    if old is not None and new is not None and isinstance(new, Pod):
        found["derived"] = sorted(hints.name_of(event) for event in hints.derived(resource, old, new))
    return found


def _object(data: Any, resource: Resource) -> Any:
    name = resource.rpartition("/")[2]
    return None if data is None else msgspec.convert(with_uid(data), _TYPES.get(name, Pod))


def with_uid(obj: dict[str, Any]) -> dict[str, Any]:
    """The cases leave out the uids that follow from the names."""
    meta = dict(obj["metadata"])
    own = meta["name"] if "namespace" not in meta else f"{meta['namespace']}/{meta['name']}"
    meta.setdefault("uid", own)
    return {**obj, "metadata": meta}


def _plugin(case: Case) -> Any:
    listers = Listers()
    for key, kind in (("resourceClaims", ResourceClaim), ("deviceClasses", DeviceClass)):
        for obj in case.get(key) or ():
            listers.put(msgspec.convert(with_uid(obj), kind))
    handle = SimpleNamespace(
        snapshot=None,
        listers=listers,
        features=FeatureGates(),
        upstream=True,
        behaves=lambda _number: True,
        fallback_only_if_rejected_by_spread=False,
    )
    plugin = _REGISTRY.get(case["plugin"])
    assert plugin is not None, f"there is no plugin {case['plugin']}"
    return plugin(None if plugin.Args is None else plugin.Args(), handle)


def differences(case: Case, found: Answer) -> list[str]:
    """As of the family `hints`; what a case does not say is false there."""
    wanted = {"error": False} | case["expect"]
    return hints.differences({"expect": wanted}, found)

"""Family `hints`: what a plugin's QueueingHint says of one event, and which events a change of an object is.

Asked in `compat: upstream`, so that the hint gaps that we repair by default are there.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from tidelog.api.features import FeatureGates
from tidelog.api.objects import Namespace, Node, Pod
from tidelog.framework.devices import Devices
from tidelog.framework.events import ACTION_BY_NAME, ClusterEvent, EventRegistration, Hint, Resource, matches
from tidelog.framework.object_events import node_events, pod_events
from tidelog.plugins.registry import Registry

Case = dict[str, Any]
Answer = dict[str, Any]

_REGISTRY = Registry()


def answer(case: Case) -> Answer:
    """Ask the plugin of the case."""
    resource = Resource(case["event"]["resource"])
    event = ClusterEvent(resource, ACTION_BY_NAME[case["event"]["action"]])
    old, new = (_object(case[key], resource) for key in ("old", "new"))
    plugin = _plugin(case)
    registered = [r for r in plugin.events_to_register() or () if matches(r.event, event)]
    found: Answer = {"registered": bool(registered), "error": False}
    if registered:
        waiting = SimpleNamespace(
            pod=msgspec.convert(case["pod"], Pod), attempted_at=0, first_rejected_at={plugin.name: 0}
        )
        ask(found, registered, waiting, old, new)
    if old is not None and new is not None:
        found["derived"] = sorted(name_of(each) for each in derived(resource, old, new))
    return found


def _object(data: Any, resource: Resource) -> Any:
    return None if data is None else msgspec.convert(data, Node if resource is Resource.NODE else Pod)


def _plugin(case: Case) -> Any:
    """With default arguments. A hint may look at namespaces, and never at the snapshot."""
    namespaces = {n["metadata"]["name"]: msgspec.convert(n, Namespace) for n in case.get("namespaces", ())}
    listers = SimpleNamespace(namespace=namespaces.get, owner_selectors=lambda pod: (), devices=Devices())
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


def ask(found: Answer, registered: list[EventRegistration], waiting: Any, old: Any, new: Any) -> None:
    """The best of the hints; one that fails counts as Queue."""
    hints = set()
    for registration in registered:
        if registration.hint is None:
            found["defaultFn"] = True
            hints.add(Hint.QUEUE)
            continue
        try:
            hints.add(registration.hint(waiting, old, new))
        except Exception:
            found["error"] = True
            hints.add(Hint.QUEUE)
    found["hint"] = (Hint.QUEUE if Hint.QUEUE in hints else Hint.SKIP).value


def derived(resource: Resource, old: Any, new: Any) -> list[ClusterEvent]:
    if resource is Resource.NODE:
        return node_events(old, new)
    return pod_events(old, new, target=resource is Resource.TARGET_POD, upstream=True)


def name_of(event: ClusterEvent) -> str:
    return f"{event.resource}/{event.label.removeprefix(event.resource)}"


def differences(case: Case, found: Answer) -> list[str]:
    """What is compared: registered, error, the hint if registered, and the set of derived events."""
    wanted = case["expect"]
    keys = ["registered", "error", *(["hint"] if wanted["registered"] else [])]
    differing = [
        f"{key}: expected {wanted.get(key)}, found {found.get(key)}"
        for key in keys
        if wanted.get(key) != found.get(key)
    ]
    if "derived" in wanted and set(wanted["derived"]) != set(found.get("derived", ())):
        differing.append(f"derived: expected {wanted['derived']}, found {found.get('derived')}")
    return differing

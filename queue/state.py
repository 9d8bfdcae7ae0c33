"""The queue's state as plain builtins, and back (the core's snapshots; DESIGN §3).

Two queues that were given the same calls dump equal states, and a loaded queue goes on exactly as the dumped one would.
What can be computed again is not dumped: heaps and indexes. Pending pods are only named, because the cluster
cache has their newest versions; a pod that was deleted while in flight, and the objects of kept events, are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tidelog.api import objects
from tidelog.api.errors import InternalError
from tidelog.api.objects import Pod
from tidelog.plugins.events import Action, ClusterEvent, Resource, Tick
from tidelog.queue.entity import AnyEntity, Entity, QueuedGroup, QueuedPod, Where
from tidelog.queue.groups import Groups
from tidelog.queue.in_flight import Attempt, InFlight, InFlightEvent
from tidelog.queue.nominator import Nominator
from tidelog.queue.order import Order
from tidelog.queue.places import Places

_NOT_DUMPED = ("pod", "members", "popped", "filed_under", "hints")
_POD_FIELDS = tuple(f for f in msgspec.structs.fields(QueuedPod) if f.name not in _NOT_DUMPED)
_GROUP_FIELDS = tuple(f for f in msgspec.structs.fields(QueuedGroup) if f.name not in _NOT_DUMPED)


def dump(
    pods: Mapping[str, QueuedPod],
    groups: Groups,
    in_flight: InFlight,
    places: Places,
    order: Order,
    nominator: Nominator,
    scheduling_cycle: int,
) -> dict[str, Any]:
    """Everything, in an order that depends on the state only."""
    attempts, events = in_flight.state()
    gone = [attempt.pod for attempt, _ in attempts if pods.get(attempt.pod.key) is not attempt.pod]
    return {
        "scheduling_cycle": scheduling_cycle,
        "timestamps": order.issued,
        "parkings": places.pool.parkings,
        "pods": [_dump_fields(pods[key], _POD_FIELDS) for key in sorted(pods)],
        "gone": [{**_dump_fields(pod, _POD_FIELDS), "pod": dump_object(pod.pod)} for pod in gone],
        "attempts": [[a.pod.uid, a.number, a.seq, a.at, start] for a, start in attempts],
        "events": [_dump_event(event) for event in events],
        "groups": [_dump_group(groups.queued[key], pods, in_flight) for key in sorted(groups.queued)],
        "groups_in_flight": [_dump_group(group, pods, in_flight) for group in groups.in_flight.values()],
        "pending": {key: list(members) for key, members in sorted(groups.pending.items())},
        "incomplete": {key: list(members) for key, members in sorted(groups.incomplete.items())},
        "rules": groups.rules.dump(),
        "nominations": [[pod.key, node, dump_object(pod.pod)] for pod, node in nominator.nominations()],
    }


def load(
    state: Mapping[str, Any],
    pod_of: Callable[[str], Pod],
    groups: Groups,
    in_flight: InFlight,
    places: Places,
    order: Order,
    nominator: Nominator,
) -> tuple[dict[str, QueuedPod], int]:
    """Fill a new queue's parts; the pending pods by key, and the number of pops."""
    pods = {p["key"]: QueuedPod(pod=pod_of(p["key"]), **_load_fields(p)) for p in state["pods"]}
    gone = [QueuedPod(pod=load_object(p["pod"]), **_load_fields(p, "pod")) for p in state["gone"]]
    by_uid = {pod.uid: pod for pod in (*pods.values(), *gone)}
    in_flight.restore(
        [Attempt(by_uid[uid], number, seq, at, start) for uid, number, seq, at, start in state["attempts"]],
        [_load_event(event) for event in state["events"]],
    )
    hints = groups.wait_for_hints
    groups.queued = {g["key"]: _load_group(g, pods, by_uid, hints) for g in state["groups"]}
    groups.in_flight = {g["key"]: _load_group(g, pods, by_uid, hints) for g in state["groups_in_flight"]}
    groups.pending = {key: {k: pods[k] for k in keys} for key, keys in state["pending"].items()}
    groups.incomplete = {key: {k: pods[k] for k in keys} for key, keys in state["incomplete"].items()}
    groups.rules.restore(state["rules"], groups.queued, [pod.group for pod in pods.values() if pod.group])
    nominator.restore([(load_object(pod), node) for _, node, pod in state["nominations"]])
    order.issued = state["timestamps"]
    places.pool.parkings = state["parkings"]
    entities: list[AnyEntity] = [pod for pod in pods.values() if not pod.group]
    entities.extend(groups.queued.values())
    for entity in sorted(entities, key=lambda entity: entity.parked):
        places.restore(entity)
    return pods, state["scheduling_cycle"]


def dump_object(value: Any) -> Any:
    """An API object or a tick as `[type, builtins]`."""
    if value is None:
        return None
    name = type(value).__name__
    if isinstance(value, Tick):
        return [name, value.at]
    if getattr(objects, name, None) is not type(value):
        raise InternalError(f"an event about a {name} cannot be put into a snapshot")
    return [name, msgspec.to_builtins(value)]


def load_object(dumped: Any) -> Any:
    """The reverse of `dump_object`."""
    if dumped is None:
        return None
    name, value = dumped
    return Tick(value) if name == "Tick" else msgspec.convert(value, getattr(objects, name))


def _dump_fields(entity: Entity, fields: tuple[msgspec.structs.FieldInfo, ...]) -> dict[str, Any]:
    """Those that differ from their defaults."""
    found: dict[str, Any] = {}
    for field in fields:
        value = getattr(entity, field.name)
        if not value and field.name not in ("timestamp", "expiry"):
            continue
        if isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, Where):
            value = value.value
        elif isinstance(value, dict):
            value = dict(sorted(value.items()))
        if value != field.default:
            found[field.name] = value
    return found


def _load_fields(dumped: Mapping[str, Any], *without: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in dumped.items()
        if name not in without
    }
    fields["where"] = Where(fields.get("where", Where.GONE))
    if "first_rejected_at" in fields:
        fields["first_rejected_at"] = dict(fields["first_rejected_at"])
    return fields


def _dump_group(group: QueuedGroup, pods: Mapping[str, QueuedPod], in_flight: InFlight) -> dict[str, Any]:
    def still_counts(member: QueuedPod) -> bool:
        attempt = in_flight.get(member.uid)
        return pods.get(member.key) is member or (attempt is not None and attempt.pod is member)

    return {
        **_dump_fields(group, _GROUP_FIELDS),
        "members": list(group.members),
        "popped": [member.uid for member in group.popped if still_counts(member)],
    }


def _load_group(
    dumped: Mapping[str, Any], pods: Mapping[str, QueuedPod], by_uid: Mapping[str, QueuedPod], hints: bool
) -> QueuedGroup:
    return QueuedGroup(
        **_load_fields(dumped, "members", "popped"),
        members={key: pods[key] for key in dumped["members"]},
        popped=tuple(by_uid[uid] for uid in dumped["popped"]),
        hints=hints,
    )


def _dump_event(happened: InFlightEvent) -> list[Any]:
    resource, action, label = happened.event
    return [
        happened.seq,
        resource.value,
        int(action),
        label,
        dump_object(happened.old),
        dump_object(happened.new),
    ]


def _load_event(dumped: list[Any]) -> InFlightEvent:
    seq, resource, action, label, old, new = dumped
    event = ClusterEvent(Resource(resource), Action(action), label)
    return InFlightEvent(seq, event, load_object(old), load_object(new))

"""The queue's state as plain builtins, and back (the core's snapshots; DESIGN §3).

Two queues that were given the same calls dump equal states, and a loaded queue goes on exactly as the dumped one would.
Not dumped is what can be computed again: heaps, indexes, sort keys. Pending pods are only named, because the cluster cache
has their newest versions; a pod that was deleted while in flight, and the objects of kept events, are copied.

Entities are tables, `{"fields": [...], "rows": [[...], ...]}`: compact, and yet readable by a version with other fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import attrgetter, or_
from typing import Any

import msgspec

from tidelog.api.errors import InternalError
from tidelog.api.kinds.registry import KIND_BY_NAME, KIND_OF_TYPE
from tidelog.api.objects import Pod
from tidelog.api.steps import Steps, sorting, whole_result
from tidelog.framework.events import ACTION_BY_NAME, Action, ClusterEvent, Resource, Tick
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod, Where
from tidelog.queue.groups import Groups
from tidelog.queue.in_flight import Attempt, InFlight, InFlightEvent
from tidelog.queue.nominator import Nominator
from tidelog.queue.order import Order
from tidelog.queue.places import Places

_ENTITY_FIELDS = (
    "key",
    "where",
    "timestamp",
    "sequence",
    "attempts",
    "unschedulable_count",
    "consecutive_errors",
    "unschedulable_plugins",
    "pending_plugins",
    "gating_plugin",
    "gating_reasons",
    "expiry",
    "flushed_at",
    "was_flushed",
    "entered_active_at",
    "parked",
)
_POD_FIELDS = (
    *_ENTITY_FIELDS,
    "uid",
    "profile",
    "group",
    "attempted_at",
    "first_rejected_at",
    "blocked_by",
    "fallback_node",
    "fallback_constraints",
)
_GROUP_FIELDS = (*_ENTITY_FIELDS, "disturbed")
_TUPLE_FIELDS = ("unschedulable_plugins", "pending_plugins", "gating_reasons")
_FIRST_REJECTED_AT = _POD_FIELDS.index("first_rejected_at")

_NAME_OF_ACTION = {action: name for name, action in ACTION_BY_NAME.items()}

ROWS_PER_STEP = 2_000
"""Arbitrary; a millisecond or two."""

Table = dict[str, Any]


def dumping(
    pods: Mapping[str, QueuedPod],
    groups: Groups,
    in_flight: InFlight,
    places: Places,
    order: Order,
    nominator: Nominator,
    scheduling_cycle: int,
) -> Steps[dict[str, Any]]:
    """Everything, in an order that depends on the state only. It must not change between two steps."""
    attempts, events = in_flight.state()
    gone = [attempt.pod for attempt, _ in attempts if pods.get(attempt.pod.key) is not attempt.pod]
    queued = [groups.queued[key] for key in sorted(groups.queued)]
    flying = list(groups.in_flight.values())
    keys = yield from sorting(pods)
    pending = yield from _table((pods[key] for key in keys), _POD_FIELDS)
    return {
        "scheduling_cycle": scheduling_cycle,
        "timestamps": order.issued,
        "parkings": places.pool.parkings,
        "pods": pending,
        "gone": whole_result(_table(gone, _POD_FIELDS)),
        "gone_objects": [dump_object(pod.pod) for pod in gone],
        "attempts": [[a.pod.uid, a.number, a.seq, a.at, start] for a, start in attempts],
        "events": [_dump_event(event) for event in events],
        "groups": whole_result(_table(queued, _GROUP_FIELDS)),
        "members": [list(group.members) for group in queued],
        "groups_in_flight": whole_result(_table(flying, _GROUP_FIELDS)),
        "popped": [_popped(group, pods, in_flight) for group in flying],
        "pending": {key: list(members) for key, members in sorted(groups.pending.items())},
        "incomplete": {key: list(members) for key, members in sorted(groups.incomplete.items())},
        "rules": groups.rules.dump(),
        "nominations": [[node, dump_object(pod.pod)] for pod, node in nominator.nominations()],
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
    pods = {row["key"]: QueuedPod(pod=pod_of(row["key"]), **row) for row in _rows(state["pods"])}
    gone = [
        QueuedPod(pod=load_object(pod), **row)
        for row, pod in zip(_rows(state["gone"]), state["gone_objects"], strict=True)
    ]
    by_uid = {pod.uid: pod for pod in (*pods.values(), *gone)}
    in_flight.restore(
        [Attempt(by_uid[uid], number, seq, at, start) for uid, number, seq, at, start in state["attempts"]],
        [_load_event(position, event) for position, event in enumerate(state["events"])],
    )
    nominator.restore([(load_object(pod), node) for node, pod in state["nominations"]])
    order.issued = state["timestamps"]
    places.pool.parkings = state["parkings"]
    _load_groups(state, groups, pods, by_uid)
    for pod in pods.values():
        pod.order = order.of(pod, pod.pod)
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
    if type(value) not in KIND_OF_TYPE:
        raise InternalError(f"an event about a {name} cannot be put into a snapshot")
    return [name, msgspec.json.decode(msgspec.json.encode(value))]


def load_object(dumped: Any) -> Any:
    """The reverse of `dump_object`."""
    if dumped is None:
        return None
    name, value = dumped
    return Tick(value) if name == "Tick" else msgspec.convert(value, KIND_BY_NAME[name].type)


def _table(entities: Iterable[AnyEntity], fields: tuple[str, ...]) -> Steps[Table]:
    """Half a microsecond each."""
    read = attrgetter(*fields)
    rows = []
    for number, entity in enumerate(entities, 1):
        if not number % ROWS_PER_STEP:
            yield
        row = list(read(entity))
        if isinstance(entity, QueuedPod):
            # The only one of the values that changes.
            known = entity.first_rejected_at
            row[_FIRST_REJECTED_AT] = dict(sorted(known.items())) if len(known) > 1 else known.copy()
        rows.append(row)
    return {"fields": list(fields), "rows": rows}


def _rows(table: Table) -> list[dict[str, Any]]:
    """Each row as the arguments that make its entity."""
    rows = [dict(zip(table["fields"], row, strict=True)) for row in table["rows"]]
    for row in rows:
        row["where"] = Where(row["where"])
        for field in _TUPLE_FIELDS:
            row[field] = tuple(row[field])
        if "first_rejected_at" in row:
            row["first_rejected_at"] = dict(row["first_rejected_at"])
            row["blocked_by"] = tuple(row["blocked_by"])
            row["fallback_constraints"] = tuple(row["fallback_constraints"])
    return rows


def _popped(group: QueuedGroup, pods: Mapping[str, QueuedPod], in_flight: InFlight) -> list[str]:
    """The members popped with the group that are not placed or gone."""

    def counts(member: QueuedPod) -> bool:
        attempt = in_flight.get(member.uid)
        return pods.get(member.key) is member or (attempt is not None and attempt.pod is member)

    return [member.uid for member in group.popped if counts(member)]


def _load_groups(
    state: Mapping[str, Any], groups: Groups, pods: Mapping[str, QueuedPod], by_uid: Mapping[str, QueuedPod]
) -> None:
    for row, members in zip(_rows(state["groups"]), state["members"], strict=True):
        found = {key: pods[key] for key in members}
        groups.queued[row["key"]] = QueuedGroup(members=found, hints=groups.wait_for_hints, **row)
    for row, popped in zip(_rows(state["groups_in_flight"]), state["popped"], strict=True):
        flying = tuple(by_uid[uid] for uid in popped)
        groups.in_flight[row["key"]] = QueuedGroup(popped=flying, hints=groups.wait_for_hints, **row)
    groups.pending = {key: {k: pods[k] for k in keys} for key, keys in state["pending"].items()}
    groups.incomplete = {key: {k: pods[k] for k in keys} for key, keys in state["incomplete"].items()}
    groups.rules.restore(state["rules"], groups.queued, [pod.group for pod in pods.values() if pod.group])
    groups.sort()


def _dump_event(happened: InFlightEvent) -> list[Any]:
    resource, action, label = happened.event
    return [
        happened.seq,
        resource.value,
        _action_names(action),
        label,
        dump_object(happened.old),
        dump_object(happened.new),
    ]


def _action_names(action: Action) -> list[str]:
    """By name, because `All` has to stay all in a version that knows more actions."""
    if action in _NAME_OF_ACTION:
        return [_NAME_OF_ACTION[action]]
    return [name for single, name in _NAME_OF_ACTION.items() if single in action and single.bit_count() == 1]


def _load_event(position: int, dumped: list[Any]) -> InFlightEvent:
    seq, resource, actions, label, old, new = dumped
    action = reduce(or_, map(ACTION_BY_NAME.__getitem__, actions), Action(0))
    event = ClusterEvent(Resource(resource), action, label)
    return InFlightEvent(position, seq, event, load_object(old), load_object(new))

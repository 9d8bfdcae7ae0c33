"""From a change of an object to cluster events: what `apply` does with each put and delete, as plain functions.

An update becomes one event per kind of change, in a fixed order, so that a plugin registered for label updates is not woken
by a heartbeat. `node_events` and `pod_events` say which; `effects` adds everything else that a change means: what the queue
does with the pod itself, which pods an event is for, and whether it is raised before or after the cache has changed.

    put / delete ──► effects(old, new) ──► for each Effect:  cache step, queue step, then its events in order
                                                             (a node's deletion: events, then the cache step)

Outside `compat: upstream` some changes raise events that kube-scheduler does not have: see `docs/differences.md`.
Everything here is a comparison of two objects, at most a pass over the pod's containers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from tidelog.api.kinds.registry import kind_of
from tidelog.api.objects import (
    DeviceTaintRule,
    Node,
    Object,
    Pod,
    Quantity,
    ResourceSlice,
    pod_condition,
)
from tidelog.api.pod_status import is_terminal
from tidelog.api.quantity import parse_exact
from tidelog.api.resources import Requests, occupied_requests
from tidelog.framework.events import Action, ClusterEvent, Resource

# --- which events an update is ------------------------------------------------------------------------------------------


def node_events(old: Node, new: Node) -> list[ClusterEvent]:
    """One event per kind of change; none if nothing changed that scheduling looks at (a heartbeat, a cordon)."""
    return [ClusterEvent(Resource.NODE, action) for action in _node_actions(old, new)]


def _node_actions(old: Node, new: Node) -> Iterator[Action]:
    if old.spec.unschedulable and not new.spec.unschedulable:
        # Only opening a node can help anybody.
        yield Action.UPDATE_NODE_TAINT
    if not same_quantities(old.status.allocatable, new.status.allocatable):
        yield Action.UPDATE_NODE_ALLOCATABLE
    if old.metadata.labels != new.metadata.labels:
        yield Action.UPDATE_NODE_LABEL
    if old.spec.taints != new.spec.taints:
        yield Action.UPDATE_NODE_TAINT
    if _condition_status(old) != _condition_status(new):
        yield Action.UPDATE_NODE_CONDITION
    if old.metadata.annotations != new.metadata.annotations:
        yield Action.UPDATE_NODE_ANNOTATION
    if old.spec.pod_preemption_policy != new.spec.pod_preemption_policy:
        yield Action.UPDATE_NODE_PREEMPTION_POLICY
    if old.status.declared_features != new.status.declared_features:
        yield Action.UPDATE_NODE_DECLARED_FEATURE


def same_quantities(old: Mapping[str, Quantity], new: Mapping[str, Quantity]) -> bool:
    """Whether both name the same resources in the same amounts, however they are written (`1` is `1000m`)."""
    if old == new:
        return True
    return old.keys() == new.keys() and all(_equal(old[name], new[name]) for name in old)


def _equal(a: Quantity, b: Quantity) -> bool:
    (a_above, a_below), (b_above, b_below) = parse_exact(a), parse_exact(b)
    return a_above * b_below == b_above * a_below


def _condition_status(node: Node) -> dict[str, str]:
    """Heartbeats, reasons and messages change all the time and mean nothing to scheduling."""
    return {condition.type: condition.status for condition in node.status.conditions}


def pod_events(old: Pod, new: Pod, *, target: bool, upstream: bool = False) -> list[ClusterEvent]:
    """One event per kind of change, the general `Update` if there is no special kind for it; never none.

    `target`: the event is for the waiting pod itself rather than for the others. Outside upstream mode changes of
    conditions and of the nomination are raised as well, after the others: KEP-3990's fallback lives on them, and the
    general `Update` does not come when labels changed in the same moment. So is the beginning of a pod's deletion, at
    which topology spread stops counting it.
    """
    if new.spec.node_name:
        resource = Resource.ASSIGNED_POD
    else:
        resource = Resource.TARGET_POD if target else Resource.UNSCHEDULED_POD
    actions = list(_pod_actions(old, new)) or [Action.UPDATE]
    if not upstream:
        actions.extend(_our_pod_actions(old, new))
    return [ClusterEvent(resource, action) for action in actions]


def _pod_actions(old: Pod, new: Pod) -> Iterator[Action]:
    if old.metadata.labels != new.metadata.labels:
        yield Action.UPDATE_POD_LABEL
    if not _same_resource_fields(old, new):
        before, after = occupied_requests(old), occupied_requests(new)
        if _shrank(before, after):
            yield Action.UPDATE_POD_SCALE_DOWN
        if _shrank(after, before):
            yield Action.UPDATE_POD_SCALE_UP
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        yield Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
    if len(old.spec.tolerations) != len(new.spec.tolerations):
        yield Action.UPDATE_POD_TOLERATION
    if _claim_fields(old) != _claim_fields(new):
        yield Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM


def _our_pod_actions(old: Pod, new: Pod) -> Iterator[Action]:
    if _pod_conditions(old) != _pod_conditions(new):
        yield Action.UPDATE_POD_CONDITION
    if old.status.nominated_node_name != new.status.nominated_node_name:
        yield Action.UPDATE_POD_NOMINATED_NODE
    if new.metadata.deletion_timestamp and not old.metadata.deletion_timestamp:
        yield Action.UPDATE_POD_TERMINATING


def _shrank(before: Requests, after: Requests) -> bool:
    """Whether some resource is requested less than before, or no more."""
    return any(name not in after or after[name] < value for name, value in before.items())


def _same_resource_fields(old: Pod, new: Pod) -> bool:
    """Whether everything is the same that the effective request is computed from: to look before computing."""
    spec, status = new.spec, new.status
    before, was = old.spec, old.status
    return (
        # What only its status tells apart is most of what changes.
        spec is before
        or (spec.containers, spec.init_containers, spec.resources, spec.overhead)
        == (before.containers, before.init_containers, before.resources, before.overhead)
    ) and (
        status.container_statuses == was.container_statuses
        and status.init_container_statuses == was.init_container_statuses
        and pod_condition(new, "PodResizePending") == pod_condition(old, "PodResizePending")
    )


def _claim_fields(pod: Pod) -> tuple[object, ...]:
    return (pod.status.resource_claim_statuses, pod.status.extended_resource_claim_status)


def _pod_conditions(pod: Pod) -> dict[str, tuple[str, str]]:
    return {condition.type: (condition.status, condition.reason) for condition in pod.status.conditions}


# --- what a change does -------------------------------------------------------------------------------------------------


class QueueStep(Enum):
    """The queue's step for the pod that changed."""

    NOTHING = "nothing"
    ADD = "add"
    UPDATE = "update"
    """With `pod_events(old, new, target=True)`, for the pod itself only."""
    HEAR = "hear"
    """As `UPDATE`, but its place is decided: it is heard only if nothing comes of that. (kube-scheduler forgets it.)"""
    DELETE = "delete"


class Raised(msgspec.Struct, frozen=True, gc=False):
    """An event that moves waiting pods, with the objects that the hints see."""

    event: ClusterEvent
    old: Object | None
    new: Object | None
    priority_max: int | None = None
    """Only pods of at most this priority are moved by it; None: all."""


class Effect(msgspec.Struct, frozen=True, gc=False):
    """The effects of one change: the cache and the queue take their step, then the events are raised in order."""

    old: Object | None
    new: Object | None
    queue: QueueStep = QueueStep.NOTHING
    raised: tuple[Raised, ...] = ()
    forgets: bool = False
    """The pod was assumed: reject it if it waits for a permit, else forget it in the cache."""
    events_first: bool = False
    """The events are raised while the cache still holds the object (hints of a node's deletion)."""


class Rules(NamedTuple):
    """Facts besides the objects that the effects of a change depend on."""

    schedulers: Container[str]
    """The names of our profiles: the pods of other schedulers are not ours to queue."""
    gangs: bool = False
    """Unscheduled pods coming up is an event: a gang may wait for them."""
    upstream: bool = False


def effects(old: Object | None, new: Object | None, rules: Rules, assumed: Pod | None = None) -> list[Effect]:
    """Everything that putting `new` over `old` does; None for what did not or does not exist.

    `assumed` is the cache's version of the pod if it is assumed, that is, with its node. An object that was deleted and
    made again between two versions (its uid changed) is a deletion and an addition. No change has no effect.
    """
    if old == new:
        return []
    if old is not None and new is not None and _is_another(old, new):
        return [*effects(old, None, rules, assumed), *effects(None, new, rules)]
    if isinstance(old, Pod) or isinstance(new, Pod):
        return _pod_effects(old, new, rules, assumed)
    if isinstance(old, Node) or isinstance(new, Node):
        return [_node_effect(old, new)]
    return [_other_effect(old, new, rules)]


def _is_another(old: Object, new: Object) -> bool:
    return old.metadata.uid != new.metadata.uid and bool(old.metadata.uid and new.metadata.uid)


def _pod_effects(old: Object | None, new: Object | None, rules: Rules, assumed: Pod | None) -> list[Effect]:
    before = old if isinstance(old, Pod) and not is_terminal(old) else None
    after = new if isinstance(new, Pod) and not is_terminal(new) else None
    if before is None:
        return [] if after is None else _pod_added(after, rules)
    if after is None:
        return _pod_deleted(before, rules, assumed)
    if before.spec.node_name and not after.spec.node_name:
        # Not something that a cluster does, but a file can say it: the place is given up, the pod is pending again.
        return [*_pod_deleted(before, rules, assumed), *_pod_added(after, rules)]
    return _pod_updated(before, after, rules, assumed)


def is_leaving(pod: Pod) -> bool:
    """The pod is being deleted. Without a node it is never given one: as kube-scheduler's skipPodSchedule."""
    return bool(pod.metadata.deletion_timestamp)


def _is_ours(pod: Pod, rules: Rules) -> bool:
    return pod.spec.scheduler_name in rules.schedulers


_ASSIGNED_ADD = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
_ASSIGNED_DELETE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
_UNSCHEDULED_ADD = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD)


def _pod_added(pod: Pod, rules: Rules) -> list[Effect]:
    if pod.spec.node_name:
        return [Effect(None, pod, raised=(Raised(_ASSIGNED_ADD, None, pod),))]
    if not _is_ours(pod, rules) or is_leaving(pod):
        return []
    raised = (Raised(_UNSCHEDULED_ADD, None, pod),) if rules.gangs else ()
    return [Effect(None, pod, QueueStep.ADD, raised)]


def _pod_updated(old: Pod, new: Pod, rules: Rules, assumed: Pod | None) -> list[Effect]:
    if old.spec.node_name:
        events = pod_events(old, new, target=False, upstream=rules.upstream)
        return [Effect(old, new, raised=tuple(Raised(event, old, new) for event in events))]
    if new.spec.node_name:
        return [binding_effect(old, new, rules, assumed)]
    if not _is_ours(new, rules):
        return []
    if is_leaving(new):
        # It wants no node any more: not in the queue, and not where it was assumed or nominated.
        return [] if is_leaving(old) else _pending_pod_gone(old, new, assumed)
    if assumed is not None:
        return [Effect(old, new, QueueStep.HEAR)]
    promised = old.status.nominated_node_name
    gave_up = promised and (
        promised != new.status.nominated_node_name
        # As another pod it may take less of its place, or keep others less away. (kube-scheduler tells nobody.)
        or (not rules.upstream and (old.metadata.labels, old.spec) != (new.metadata.labels, new.spec))
    )
    return [Effect(old, new, QueueStep.UPDATE, (_nomination_gone(old),) if gave_up else ())]


def binding_effect(old: Pod, new: Pod, rules: Rules, assumed: Pod | None = None) -> Effect:
    """Return the effects of a pending pod having its node now. An `assumed` pod that is bound where it was assumed may be left out."""
    added = Raised(_ASSIGNED_ADD, None, new)
    if not _is_ours(old, rules):
        return Effect(old, new, raised=(added,))
    freed = () if rules.upstream else _places_given_up(old, new, assumed)
    return Effect(old, new, QueueStep.DELETE, (added, *freed))


def _pod_deleted(pod: Pod, rules: Rules, assumed: Pod | None) -> list[Effect]:
    if pod.spec.node_name:
        return [Effect(pod, None, raised=(Raised(_ASSIGNED_DELETE, pod, None),))]
    return _pending_pod_gone(pod, None, assumed) if _is_ours(pod, rules) else []


def _pending_pod_gone(old: Pod, new: Pod | None, assumed: Pod | None) -> list[Effect]:
    """It leaves the queue, and whatever was set aside for it is free again."""
    if assumed is not None:
        raised = (Raised(_ASSIGNED_DELETE, assumed, None),)
        return [Effect(old, new, QueueStep.DELETE, raised, forgets=True)]
    nominated = bool(old.status.nominated_node_name)
    return [Effect(old, new, QueueStep.DELETE, (_nomination_gone(old),) if nominated else ())]


def _places_given_up(old: Pod, new: Pod, assumed: Pod | None) -> list[Raised]:
    """Return the event for the room set aside for a pod elsewhere than where it is bound now. (kube-scheduler tells nobody.)"""
    node, found = new.spec.node_name, []
    if assumed is not None and assumed.spec.node_name != node:
        found.append(Raised(_ASSIGNED_DELETE, assumed, None))
    if old.status.nominated_node_name not in ("", node):
        found.append(_nomination_gone(old))
    return found


def _nomination_gone(pod: Pod) -> Raised:
    """A nominated pod takes its place from pods of at most its own priority only, so nobody else gained anything."""
    return Raised(_ASSIGNED_DELETE, pod, None, pod.spec.priority or 0)


def _node_effect(old: Object | None, new: Object | None) -> Effect:
    if isinstance(old, Node) and isinstance(new, Node):
        return Effect(old, new, raised=tuple(Raised(event, old, new) for event in node_events(old, new)))
    event = ClusterEvent(Resource.NODE, Action.DELETE if new is None else Action.ADD)
    return Effect(old, new, raised=(Raised(event, old, new),), events_first=new is None)


def _other_effect(old: Object | None, new: Object | None, rules: Rules) -> Effect:
    """Add, Update or Delete of a kind whose declaration says that it has events."""
    obj = new if old is None else old
    assert obj is not None
    if isinstance(obj, DeviceTaintRule):
        # As kube-scheduler tells it: the slices look different now.
        changed = Raised(
            ClusterEvent(Resource.RESOURCE_SLICE, Action.UPDATE), ResourceSlice(), ResourceSlice()
        )
        return Effect(old, new, raised=(changed,))
    kind = kind_of(obj)
    if not kind.events or (kind.events == "ours" and rules.upstream):
        return Effect(old, new)
    action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE
    return Effect(old, new, raised=(Raised(ClusterEvent(Resource(kind.qualified_name), action), old, new),))

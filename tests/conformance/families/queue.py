"""Queue traces: one operation after the other on one queue, and its whole state after each.

The rules are in the format's own description; here a trace's pods, plugins and hint rules are made into real ones, the
operations into calls, and the queue's state into the trace's shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tidelog.api.objects import (
    Container,
    Node,
    ObjectMeta,
    Pod,
    PodSchedulingGate,
    PodSchedulingGroup,
    PodSpec,
    ResourceRequirements,
    Toleration,
)
from tidelog.framework.events import (
    ACTION_BY_NAME,
    Action,
    ClusterEvent,
    EventRegistration,
    Hint,
    Resource,
    WaitingPod,
)
from tidelog.framework.interface import Status, unschedulable
from tidelog.framework.object_events import pod_events
from tidelog.plugins.priority_sort import PrioritySort
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod, Where
from tidelog.queue.group_rules import QueuedGroupInfo
from tidelog.queue.in_flight import Attempt
from tidelog.queue.scheduling_queue import QueueConfig, QueueRejection, SchedulingQueue

Json = dict[str, Any]
MS = 1_000_000
PROFILE = "default-scheduler"
NAMESPACE = "default"
RESOURCES = {resource.value: resource for resource in Resource}
ACTION_NAMES = {action: name for name, action in ACTION_BY_NAME.items()}


# --- the trace's objects ----------------------------------------------------------------------------------------------


def pod_of(described: Json) -> Pod:
    """A pod, or an event's object that is one; what is not described has its default."""
    return Pod(
        metadata=ObjectMeta(
            name=described["name"],
            namespace=NAMESPACE,
            uid=described.get("uid", ""),
            labels=described.get("labels") or {},
            annotations={"note": described["note"]} if described.get("note") else {},
        ),
        spec=PodSpec(
            scheduler_name=PROFILE,
            priority=described.get("priority", 0),
            containers=(
                Container(
                    name="c", resources=ResourceRequirements(requests={"cpu": f"{described.get('cpu', 0)}m"})
                ),
            ),
            tolerations=tuple(Toleration(key=f"t{i}") for i in range(described.get("tolerations") or 0)),
            scheduling_gates=tuple(
                PodSchedulingGate(name=g) for g in described.get("scheduling_gates") or ()
            ),
            scheduling_group=PodSchedulingGroup(pod_group_name=described["group"])
            if described.get("group")
            else None,
        ),
    )


def object_of(described: Json | None, resource: Resource) -> Any:
    """An event's object; of the kinds that are not pods only name and labels count, so a node does for all."""
    if described is None:
        return None
    if resource.value.endswith("Pod") or "uid" in described:
        return pod_of(described)
    return Node(metadata=ObjectMeta(name=described["name"], labels=described.get("labels") or {}))


def group_of(pod: Pod) -> str:
    """Groups go by their name: a trace has one namespace."""
    return pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group else ""


def event_of(resource: str, actions: list[str]) -> ClusterEvent:
    """An event or registration."""
    action = Action(0)
    for name in actions:
        action |= ACTION_BY_NAME[name]
    return ClusterEvent(RESOURCES[resource], action)


# --- the trace's plugins ----------------------------------------------------------------------------------------------


class BadHint(Exception):
    """What a failing hint raises."""


def hint_of(rule: Json) -> Callable[[WaitingPod, Any, Any], Hint]:
    """The hint that a rule describes."""
    kind, key, value = rule["kind"], rule.get("key", ""), rule.get("value")

    def ask(waiting: WaitingPod, old: Any, new: Any) -> bool:
        labels = (new if new is not None else old).metadata.labels if (new or old) is not None else {}
        if kind in ("queue", "skip"):
            return bool(kind == "queue")
        if kind == "error" or (kind == "label_or_error" and key not in labels):
            raise BadHint(kind)
        if kind in ("label", "label_or_error"):
            return bool(labels.get(key) == value)
        if kind == "match_pod_label":
            return key in labels and labels[key] == waiting.pod.metadata.labels.get(key)
        if kind == "changed":
            before = old.metadata.labels.get(key) if old is not None else None
            after = new.metadata.labels.get(key) if new is not None else None
            return bool(before != after)
        if kind == "same_pod":
            return new is not None and bool(new.metadata.uid == waiting.pod.metadata.uid)
        assert kind == "same_group", kind
        group = group_of(new) if isinstance(new, Pod) else ""
        return bool(group) and group == group_of(waiting.pod)

    return lambda waiting, old, new: Hint.QUEUE if ask(waiting, old, new) else Hint.SKIP


class TracePlugin:
    """Registers what the trace says."""

    def __init__(self, described: Json, world: World) -> None:
        self.world = world
        self.described = described
        self.name: str = described["name"]
        self._registrations = [
            EventRegistration(event_of(e["resource"], e["actions"]), hint_of(e["hint"]))
            for e in described["events"]
        ]

    def events_to_register(self) -> list[EventRegistration]:
        return self._registrations


class GatingPlugin(TracePlugin):
    """Gates pods as well; which values are open is the trace's world, and nobody is told when that changes."""

    def pre_enqueue(self, pod: Pod) -> Status | None:
        kind = self.described["gate"]["kind"]
        if kind == "label":
            value = pod.metadata.labels.get(self.described["gate"]["label"])
            closed = value is not None and (self.name, value) not in self.world.open_gates
        elif kind == "scheduling_gates":
            closed = bool(pod.spec.scheduling_gates)
        else:
            assert kind == "gang", kind
            closed = bool(group_of(pod)) and self.world.is_gang_short(group_of(pod))
        return unschedulable("gated") if closed else None


class World:
    """What is outside the queue: the newest version of every pod, bound members, groups, open gates."""

    def __init__(self) -> None:
        self.store: dict[str, Pod] = {}
        self.open_gates: set[tuple[str, str]] = set()
        self.min_count: dict[str, int] = {}
        self.bound: dict[str, set[str]] = {}

    def is_gang_short(self, group: str) -> bool:
        known = sum(group_of(pod) == group for pod in self.store.values())
        return known + len(self.bound.get(group, ())) < self.min_count.get(group, 0)


# --- the trace's operations -------------------------------------------------------------------------------------------


class Trace:
    """One queue, driven step by step."""

    def __init__(self, case: Json) -> None:
        config = case["config"]
        self.world = World()
        self.plugins = [
            TracePlugin(p, self.world) if not p.get("gate") else GatingPlugin(p, self.world)
            for p in case["plugins"]
        ]
        self.queue = SchedulingQueue(
            {PROFILE: self.plugins},
            PrioritySort(None, None),
            QueueConfig(
                initial_backoff=config["initial_backoff_ms"] * MS,
                max_backoff=config["max_backoff_ms"] * MS,
                max_in_unschedulable=config["max_in_unschedulable_ms"] * MS,
                pop_from_backoff=config["pop_from_backoffq"],
                upstream=True,
            ),
            group_of=group_of,
        )
        self.popped: Json = {}
        self.seq = 0
        self.now = 0

    def step(self, step: Json) -> Json:
        """Do it; the state afterwards."""
        self.seq += 1
        self.now = step["t_ms"] * MS
        self.popped = {}
        getattr(self, f"_{step['op']}")(step)
        return {**self.popped, **state(self.queue)}

    def _add(self, step: Json) -> None:
        pod = pod_of(step["pod"])
        self.world.store[pod.metadata.name] = pod
        self.queue.add(pod, self.now)

    def _update(self, step: Json) -> None:
        pod = pod_of(step["pod"])
        old = self.world.store.get(pod.metadata.name, pod)
        self.world.store[pod.metadata.name] = pod
        changes = pod_events(old, pod, target=True, upstream=True)
        self.queue.update(pod, changes, self.seq, self.now)

    def _delete(self, step: Json) -> None:
        pod = self.world.store.get(step["name"])
        if pod is None:
            return
        if step.get("bound") and group_of(pod):
            self.world.bound.setdefault(group_of(pod), set()).add(pod.metadata.uid)
        self.queue.delete(pod, self.now)
        del self.world.store[step["name"]]

    def _pop(self, step: Json) -> None:
        entity = self.queue.pop(self.seq, self.now)
        if entity is None:
            self.popped = {"would_block": True}
        elif isinstance(entity, QueuedGroup):
            self.popped = {"popped": f"group:{entity.key}", "popped_pods": [pod.uid for pod in entity.popped]}
        else:
            self.popped = {"popped": entity.uid}

    def _fail(self, step: Json) -> None:
        self.queue.fail(step["uid"], step.get("unschedulable") or (), step.get("pending") or (), now=self.now)

    def _done(self, step: Json) -> None:
        self.queue.done(step["uid"])

    def _event(self, step: Json) -> None:
        event = event_of(step["resource"], step["actions"])
        old, new = (object_of(step.get(which), event.resource) for which in ("old", "new"))
        wanted = step.get("precheck")
        precheck = wanted and (lambda pod: wanted.items() <= pod.metadata.labels.items())
        self.queue.on_event(event, old, new, self.seq, self.now, precheck=precheck)

    def _activate(self, step: Json) -> None:
        pods = [self.world.store[name] for name in step["names"] if name in self.world.store]
        self.queue.activate(pods, self.seq, self.now)

    def _flush_backoff(self, step: Json) -> None:
        self.queue.flush_backoff(self.now)

    def _flush_unschedulable(self, step: Json) -> None:
        self.queue.flush_unschedulable(self.seq, self.now)

    def _open_gate(self, step: Json) -> None:
        self.world.open_gates.add((step["plugin"], step["value"]))

    def _close_gate(self, step: Json) -> None:
        self.world.open_gates.discard((step["plugin"], step["value"]))

    def _add_group(self, step: Json) -> None:
        group = step["group"]
        self.world.min_count[group["name"]] = group.get("min_count", 0)
        self.queue.add_group(QueuedGroupInfo(key=group["name"], priority=group.get("priority", 0)), self.now)

    def _delete_group(self, step: Json) -> None:
        self.world.min_count.pop(step["group_name"], None)
        self.queue.delete_group(step["group_name"])

    def _group_result(self, step: Json) -> None:
        failed = {
            pod["uid"]: QueueRejection(tuple(pod.get("unschedulable") or ()), tuple(pod.get("pending") or ()))
            for pod in step["pods"]
            if pod["result"] == "failed"
        }
        self.queue.finish_group(step["group_name"], step["status"], failed, now=self.now)


# --- the queue's state in the trace's shape -----------------------------------------------------------------------------


def state(queue: SchedulingQueue) -> Json:
    """Everything a trace shows after a step."""
    contents = queue.contents()
    timeline = queue.in_flight.timeline()
    entities = [
        *contents.active,
        *contents.backoff_rejected,
        *contents.backoff_errors,
        *contents.unschedulable,
    ]
    groups = {e.key: group_state(e) for e in entities if isinstance(e, QueuedGroup)}
    found: Json = {
        "active": [shown(e) for e in contents.active],
        "backoff": [
            {"uid": shown(e), "expiry_ms": e.expiry // MS, "queue": name}
            for name, backing_off in (
                ("unschedulable", contents.backoff_rejected),
                ("error", contents.backoff_errors),
            )
            for e in backing_off
        ],
        "unschedulable": sorted(shown(e) for e in contents.unschedulable),
        "gated": sorted(shown(e) for e in contents.unschedulable if e.is_gated),
        "in_flight": [attempt.pod.uid for attempt in contents.in_flight],
        "in_flight_events": sum(not isinstance(moment, Attempt) for moment in timeline),
        "event_list": [
            f"pod:{moment.pod.uid}" if isinstance(moment, Attempt) else f"event:{event_name(moment.event)}"
            for moment in timeline
        ],
        "scheduling_cycle": queue.scheduling_cycle,
        "pods": {pod.uid: pod_state(queue, pod) for pod in all_pods(queue, entities)},
    }
    if groups:
        found["groups"] = groups
    if contents.pending_members:
        found["pending_members"] = sorted(pod.uid for pod in contents.pending_members)
    if contents.incomplete_members:
        found["incomplete_members"] = sorted(pod.uid for pod in contents.incomplete_members)
    return found


def all_pods(queue: SchedulingQueue, entities: list[AnyEntity]) -> list[QueuedPod]:
    """Queued, in flight, pending and incomplete."""
    contents = queue.contents()
    queued = [pod for e in entities for pod in (e.members.values() if isinstance(e, QueuedGroup) else (e,))]
    flying = [attempt.pod for attempt in contents.in_flight]
    return [*queued, *flying, *contents.pending_members, *contents.incomplete_members]


def shown(entity: AnyEntity) -> str:
    return f"group:{entity.key}" if isinstance(entity, QueuedGroup) else entity.uid


def event_name(event: ClusterEvent) -> str:
    return event.custom_label or f"{event.resource}/{ACTION_NAMES[event.action]}"


def common_state(entity: AnyEntity) -> Json:
    return {
        "timestamp_ms": entity.timestamp // MS,
        "attempts": entity.attempts,
        "unschedulable_count": entity.unschedulable_count,
        "consecutive_errors": entity.consecutive_errors,
    }


def pod_state(queue: SchedulingQueue, pod: QueuedPod) -> Json:
    optional = {
        "unschedulable_plugins": sorted(pod.unschedulable_plugins),
        "pending_plugins": sorted(pod.pending_plugins),
        "gating_plugin": pod.gating_plugin,
    }
    where = Where.IN_FLIGHT if pod.where is Where.IN_FLIGHT else queue.whereabouts(pod)
    return {"where": str(where), **common_state(pod), **{k: v for k, v in optional.items() if v}}


def group_state(group: QueuedGroup) -> Json:
    found = {
        "where": str(group.where),
        "members": [pod.uid for pod in group.ordered_members()],
        **common_state(group),
    }
    return {**found, "gating_plugin": group.gating_plugin} if group.gating_plugin else found


# --- what the runner asks for -----------------------------------------------------------------------------------------


def answer(case: Json) -> Json:
    """The state after each step."""
    trace = Trace(case)
    return {"steps": [trace.step(step) for step in case["steps"]]}


def differences(case: Json, answer: Json) -> list[str]:
    """The first step whose state is not the recorded one, and in what. What follows from it is not told."""
    for number, (step, got) in enumerate(zip(case["steps"], answer["steps"], strict=True)):
        wanted = step["expect"]
        found = [
            f"step {number} ({step['op']} at {step['t_ms']} ms): {key}: "
            f"want {msgspec.json.encode(wanted.get(key)).decode()} got {msgspec.json.encode(got.get(key)).decode()}"
            for key in sorted(wanted.keys() | got.keys())
            if wanted.get(key) != got.get(key)
        ]
        if found:
            return found
    return []

"""Toy plugins, and a queue that is driven with few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidelog.api.objects import Node, Pod
from tidelog.api.times import NANOS
from tidelog.framework.events import (
    Action,
    ClusterEvent,
    EventRegistration,
    Hint,
    HintFn,
    Resource,
    WaitingPod,
)
from tidelog.framework.interface import Status, unschedulable
from tidelog.plugins.priority_sort import PrioritySort
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod
from tidelog.queue.scheduling_queue import QueueConfig, QueueRejection, SchedulingQueue
from tidelog.testing import builders as build

NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD)
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL)
POD_ADD = ClusterEvent(Resource.ASSIGNED_POD, Action.ADD)
POD_DELETE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
TARGET_LABEL = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_LABEL)
TARGET_CONDITION = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_CONDITION)


def yes(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    return Hint.QUEUE


def no(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    return Hint.SKIP


def broken(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    raise ValueError("a bug in a hint")


def for_me(waiting: WaitingPod, old: Any, new: Any) -> Hint:
    """Queue if the object is called like the pod."""
    return Hint.QUEUE if new.metadata.name == waiting.pod.metadata.name else Hint.SKIP


class Toy:
    """A plugin that registers what it is told to."""

    def __init__(self, name: str, *registrations: EventRegistration) -> None:
        self.name = name
        self.registrations: Sequence[EventRegistration] | None = registrations

    def events_to_register(self) -> Sequence[EventRegistration] | None:
        return self.registrations


class Gate(Toy):
    """Holds back the pods that have its name as a scheduling gate, as long as it is closed."""

    closed = True

    def pre_enqueue(self, pod: Pod) -> Status | None:
        held = any(gate.name == self.name for gate in pod.spec.scheduling_gates)
        return unschedulable(f"{self.name} is closed") if self.closed and held else None


def on(event: ClusterEvent, hint: HintFn | None = yes) -> EventRegistration:
    return EventRegistration(event, hint)


def toy(name: str, event: ClusterEvent, hint: HintFn | None = yes) -> Toy:
    return Toy(name, on(event, hint))


def group_of(pod: Pod) -> str:
    group = pod.spec.scheduling_group
    return f"{pod.metadata.namespace}/{group.pod_group_name}" if group else ""


class Bench:
    """A queue with a clock that stands still until it is moved, and a log that grows with every call."""

    def __init__(self, *plugins: Any, observer: Any = None, **config: Any) -> None:
        self.plugins = plugins
        self.config = QueueConfig(**config)
        self.observer = observer
        self.queue = self.new_queue()
        self.now = 100 * NANOS
        self.seq = 0

    def new_queue(self) -> SchedulingQueue:
        return SchedulingQueue(
            {"": self.plugins},  # type: ignore[dict-item]
            PrioritySort(None, None),  # type: ignore[arg-type]
            self.config,
            group_of=group_of,
            observer=self.observer,
        )

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * NANOS)

    def advance(self, seconds: float) -> None:
        """Time passes, and what it brings about by itself happens."""
        self.wait(seconds)
        self.queue.advance(self.seq, self.now)

    def add(self, *pods: build.PodBuilder | str) -> None:
        for pod in pods:
            self.queue.add((build.pod(pod) if isinstance(pod, str) else pod).build(), self.now)

    def pop(self) -> AnyEntity | None:
        self.seq += 1
        return self.queue.pop(self.seq, self.now)

    def popped(self) -> str:
        entity = self.pop()
        return "" if entity is None else entity.key.removeprefix("default/")

    def pop_all(self) -> list[str]:
        """Until there is nothing left to try."""
        return list(iter(self.popped, ""))

    def reject(self, pod: str, *plugins: str, pending: Iterable[str] = ()) -> None:
        """Its attempt fails."""
        self.queue.fail(uid(pod), plugins, pending, now=self.now)

    def add_and_reject(self, pod: build.PodBuilder | str, *plugins: str, pending: Iterable[str] = ()) -> None:
        """A pod that was tried in vain, and whose backoff is over."""
        self.add(pod)
        name = pod if isinstance(pod, str) else pod.build().metadata.name
        assert self.popped() == name
        self.reject(name, *plugins, pending=pending)
        self.wait(60)

    def event(self, event: ClusterEvent, old: Any = None, new: Any = None, **options: Any) -> None:
        self.seq += 1
        self.queue.on_event(event, old, new, self.seq, self.now, **options)

    def node_added(self, name: str = "n1") -> None:
        self.event(NODE_ADD, None, node(name))

    def update(self, pod: build.PodBuilder, *changes: ClusterEvent) -> None:
        self.seq += 1
        self.queue.update(pod.build(), changes, self.seq, self.now)

    def tick(self) -> None:
        self.seq += 1
        self.queue.tick(self.seq, self.now)

    def finish_group(self, key: str, status: Any, failed: Mapping[str, QueueRejection]) -> None:
        self.queue.finish_group(key, status, failed, now=self.now)

    def where(self, pod: str) -> str:
        found = self.queue.get(f"default/{pod}")
        return "nowhere" if found is None else str(self.queue.whereabouts(found))

    def get(self, pod: str) -> QueuedPod:
        found = self.queue.get(f"default/{pod}")
        assert found is not None
        return found

    def group(self, key: str) -> QueuedGroup:
        found = self.queue.get_group(key)
        assert found is not None
        return found

    def reload(self) -> None:
        """Go on with a queue that was loaded from the dump of this one."""
        pods = {pod.key: pod.pod for pod in all_pods(self.queue)}
        dumped = self.queue.dump_state()
        self.queue = self.new_queue()
        self.queue.load_state(dumped, pods.__getitem__)
        assert self.queue.dump_state() == dumped


def uid(pod: str) -> str:
    """Pods without a uid go by their name."""
    return f"default/{pod}"


def node(name: str, **labels: str) -> Node:
    return build.node(name).label(labels).build()


def members_of(entity: AnyEntity) -> list[QueuedPod]:
    return list(entity.members.values()) if isinstance(entity, QueuedGroup) else [entity]


def all_pods(queue: SchedulingQueue) -> list[QueuedPod]:
    """Every pod that the queue knows, each as often as it is somewhere."""
    contents = queue.contents()
    queues = (contents.active, contents.backoff_rejected, contents.backoff_errors, contents.unschedulable)
    queued = [pod for entities in queues for entity in entities for pod in members_of(entity)]
    flying = [attempt.pod for attempt in contents.in_flight]
    return [*queued, *flying, *contents.pending_members, *contents.incomplete_members]


class Listener:
    """An observer that remembers what it heard."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str, str, str]] = []
        self.entries: list[tuple[str, str, str]] = []

    def hint_answered(self, waiting: QueuedPod, plugin: str, event: ClusterEvent, answer: str) -> None:
        self.answers.append((waiting.pod.metadata.name, plugin, event.label, answer))

    def entered(self, entity: AnyEntity, event: ClusterEvent) -> None:
        self.entries.append((entity.key, str(entity.where), event.label))

"""The cluster as the log tells it: every object, and with each change of one everything that follows from it.

A change of an object is worked through in one place and in one order (`tidelog.framework.object_events.effects` says what it means): first the
cache, then the pod's own place in the queue, then the events that may wake other pods. A node's deletion raises its event first, while the
node is still there to be looked at.

While attempts are in flight, every change that could hurt a decision that did not see it is noted (`tidelog.scheduler.commit_check`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, assert_never

from msgspec.structs import replace

from tidelog.api.errors import InternalError
from tidelog.api.objects import Node, Object, Pod
from tidelog.api.pod_status import is_terminal
from tidelog.api.well_known import REGION, ZONE
from tidelog.api.writes import Write
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.framework.behaviours import BOUND_AS_THEY_ARE, LEAVING_HURTS_LATER, PROMISES_STAY
from tidelog.framework.events import ClusterEvent
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import PodInfo
from tidelog.framework.object_events import (
    Effect,
    QueueStep,
    Raised,
    Rules,
    binding_effect,
    effects,
    is_leaving,
    pod_events,
)
from tidelog.framework.snapshot import Snapshot
from tidelog.queue.entity import pod_uid
from tidelog.queue.scheduling_queue import empty_queue
from tidelog.scheduler.cache import AssumedAs, Cache, CacheLayout
from tidelog.scheduler.commit_check import disturbance, released
from tidelog.scheduler.disturbances import Notes
from tidelog.scheduler.flights import Flights
from tidelog.scheduler.groups.group import GroupSettings, GroupTable, group_name
from tidelog.scheduler.node_facts import nodes_told_of, touch_nodes


class EventObserver(Protocol):
    """Hears how long the queue works on an event. It must not change anything."""

    def begin(self) -> None:
        """The queue is about to be given an event."""

    def end_event(self, event: ClusterEvent) -> None:
        """It has handled this one."""


def wants_node(pod: Pod) -> bool:
    """Whether the pod belongs into the queue: without a node, not ended, and not being deleted."""
    return not pod.spec.node_name and not is_terminal(pod) and not is_leaving(pod)


def is_confirmed(old: Pod, new: Pod) -> bool:
    """Whether an API server shows a pod on its node as it was promised. It copies where the node is into the pod's labels as it binds it:
    everybody who was placed since has counted on the pod, and nobody on these labels."""
    if not old.spec.node_name or old.spec != new.spec or old.metadata.uid != new.metadata.uid:
        return False
    before, after = old.metadata.labels, new.metadata.labels
    return before != after and all(
        before.get(key) == after.get(key) for key in {**before, **after} if key not in (ZONE, REGION)
    )


class Cluster:
    """Objects, cache, listers, and the queue that is kept in step with them."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        """Every object by its key, in the order of creation."""
        self.cache = Cache()
        self.snapshot = Snapshot()
        self.listers = Listers()
        self.groups = GroupTable()
        self.listers.gangs = self.groups.gang_of
        self.listers.levels = self.groups.levels_of
        self.queue = empty_queue()
        """Of the configuration in force; without one no pod enters it."""
        self.observer: EventObserver | None = None
        self.rules = Rules(schedulers=())
        self.seq = 0
        """The record that is being consumed, or the last one that was."""
        self.at = 0
        self.notes = Notes()
        """Changes since the oldest attempt in flight."""
        self.flights = Flights(self.notes)
        self.apart: dict[str, None] = {}
        """Keys of objects that may be others here than in the table that is folded from the same records: that leaves a status as somebody has put
        it when an abbreviated rejection says that it is what it was."""
        self.unread: dict[str, str] = {}
        """Key of a bound pod, or of a node, whose newest version could not be read → the node that is closed until it can."""
        self._info: PodInfo | None = None
        """Of the last pod that was asked for."""
        self._promises_stay = self._leaving_hurts_later = self._bound_as_they_are = True

    def configure(self, configuration: SchedulerConfiguration) -> None:
        """Have changes mean what they mean under this configuration."""
        schedulers = tuple(profile.scheduler_name for profile in configuration.profiles)
        upstream = configuration.upstream
        self.rules = Rules(schedulers=schedulers, gangs=upstream, upstream=upstream)
        self.groups.settings = GroupSettings(
            gates=configuration.feature_gates, desired_count_wait=configuration.desired_count_wait
        )
        self._promises_stay = configuration.behaves(PROMISES_STAY)
        self._leaving_hurts_later = configuration.behaves(LEAVING_HURTS_LATER)
        self._bound_as_they_are = configuration.behaves(BOUND_AS_THEY_ARE)

    def pod(self, key: str) -> Pod | None:
        """The pod of this record key."""
        found = self.objects.get(key)
        return found if isinstance(found, Pod) else None

    def tried_pod(self, key: str) -> Pod:
        """The pod of an outcome. It is there: an outcome for a pod that was gone would have been aborted."""
        pod = self.pod(key)
        if pod is None:
            raise InternalError(f"record {self.seq} is an outcome for {key}, which does not exist")
        return pod

    def info_of(self, pod: Pod) -> PodInfo:
        """The pod as plugins read it; deciding about it and placing it need the same."""
        info = self._info
        if info is None or info.pod is not pod:
            info = self._info = PodInfo(pod)
        return info

    def pending_pods(self) -> Iterator[Pod]:
        """Every pod that has no node and wants one, in the order of creation."""
        for obj in self.objects.values():
            if isinstance(obj, Pod) and wants_node(obj):
                yield obj

    def bind(self, key: str, old: Pod, new: Pod) -> None:
        """The pod has its node. Where it was assumed there, nothing on the node changes, and it need not be found out what else does."""
        uid = pod_uid(old)
        if not self.cache.is_assumed(uid) or self.cache.node_of(uid) != new.spec.node_name:
            self.change(key, new)
            return
        before = self._as_assumed(uid, old)
        if before is not None and self._bound_as_they_are:
            self.change(key, new)
            self._tell_of_change(before, new)
            return
        assert not old.spec.node_name, f"{key} is assumed and bound"
        self.objects[key] = new
        groups = self.groups.change(old, new)
        self.update_groups(groups)
        effect = binding_effect(old, new, self.rules)
        self.cache.confirm(uid, before)
        self._update_queue(effect)
        self._raise(effect.raised)
        self._drop_groups(groups)

    def _as_assumed(self, uid: str, now: Pod) -> AssumedAs | None:
        """The part of the pod that has changed while it waited, as others still see it; None if none has."""
        known = self.cache.pod(uid)
        return None if known is None else AssumedAs.of(known.pod, now)

    def _tell_of_change(self, before: AssumedAs, new: Pod) -> None:
        """Others were kept away by what the pod was. (kube-scheduler tells nobody.)"""
        if not self.rules.upstream:
            old = before.on(new)
            old = replace(old, spec=replace(old.spec, node_name=new.spec.node_name))
            self._raise(Raised(event, old, new) for event in pod_events(old, new, target=False))

    def keep_promise(self, key: str, new: Object | None) -> None:
        """Do what the earliest attempt in flight has promised of the object. Plugins go on seeing what later attempts have promised of it besides."""
        old, shown = self.objects.get(key), self.listers.get(key)
        if new is old:
            return
        self.change(key, new, expected=True)
        if self._promises_stay and shown not in (old, new):
            self.listers.restore([(key, shown)])
            self._touch_all([(key, new)])

    def change(self, key: str, new: Object | None, *, expected: bool = False) -> None:
        """The object has a new version, or is gone. `expected`: every attempt in flight was made with this change in mind."""
        old = self.objects.get(key)
        if new is None:
            self.objects.pop(key, None)
            self.apart.pop(key, None)
        else:
            self.objects[key] = new
        if self.notes.wanted and not expected:
            note = disturbance(self.seq, old, new)
            if note is not None:
                self.notes.append(note)
        groups = self.groups.change(old, new)
        self.update_groups(groups)
        assumed = self._assumed(old)
        for effect in effects(old, new, self.rules, assumed):
            if effect.events_first:
                self._raise(effect.raised)
            self._update_cache(effect)
            self._update_queue(effect)
            if not effect.events_first:
                self._raise(effect.raised)
        if assumed is not None:
            self._note_leaving(key, assumed)
        self._drop_groups(groups)

    def _note_leaving(self, key: str, assumed: Pod) -> None:
        """Attempts after a pod that was assumed count on it. Its own outcome will be aborted, but the pod is gone before that."""
        node = assumed.spec.node_name
        if self.cache.node_of(pod_uid(assumed)) != node:
            after = self.flights.attempt_of(pod_uid(assumed)) if self._leaving_hurts_later else 0
            self.notes.append(released(self.seq, key, node, after))

    def mark_unread(self, key: str) -> None:
        """There is a version of the object that nobody here can read. How much room is on its node is not known, so nobody else is placed there."""
        obj = self.objects.get(key)
        if isinstance(obj, Pod):
            name = obj.spec.node_name or self.cache.node_of(pod_uid(obj)) or ""
        else:
            name = obj.metadata.name if isinstance(obj, Node) else ""
        if name:
            was_closed = self._is_closed(name)
            self.unread[key] = name
            if not was_closed:
                self._open_or_close(name, closed=True)

    def mark_read(self, key: str) -> None:
        """The object's newest version is known again, or it is gone."""
        name = self.unread.pop(key, None)
        if name is not None and not self._is_closed(name):
            self._open_or_close(name, closed=False)

    def _is_closed(self, name: str) -> bool:
        return name in self.unread.values()

    def _open_or_close(self, name: str, *, closed: bool) -> None:
        """For decisions the node is cordoned; its object stays as it is."""
        node = self.objects.get(f"Node//{name}")
        if not isinstance(node, Node):
            return
        shut = _cordoned(node)
        old, new = (node, shut) if closed else (shut, node)
        note = disturbance(self.seq, old, new)
        if note is not None:
            self.notes.append(note)
        for effect in effects(old, new, self.rules):
            self.cache.put_node(new)
            self._raise(effect.raised)

    def promise(self, writes: Iterable[Write]) -> None:
        """Show plugins the objects as these writes will leave them."""
        self._touch_all(self.listers.promise(writes))

    def give_back(self, key: str) -> None:
        """Show plugins the object as it is."""
        shown = self.listers.get(key)
        self.listers.restore([(key, self.objects.get(key))])
        self._touch_all([(key, shown)])

    def _touch_all(self, before: Iterable[tuple[str, Object | None]]) -> None:
        touch_nodes(before, self.snapshot, self.listers, self.cache.touch)

    def restate(self, key: str, new: Object) -> None:
        """Only the status that we give it ourselves is another one: nobody waits for that."""
        self.objects[key] = new

    def update_groups(self, names: Iterable[str]) -> None:
        """Tell the queue what these groups are now. Those that are gone go when their pods have."""
        for name in names:
            info = self.groups.info(name)
            if info is not None:
                self.queue.add_group(info, self.at)

    def _drop_groups(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.groups:
                self.queue.delete_group(name)

    def restore(
        self,
        objects: dict[str, Object],
        layout: CacheLayout,
        unread: Mapping[str, str] | None = None,
        apart: Iterable[str] = (),
    ) -> None:
        """Fill a new cluster with these objects. The queue comes later."""
        self.objects = objects
        self.apart = dict.fromkeys(apart)
        self.unread = dict(unread or {})
        for obj in objects.values():
            if not isinstance(obj, Pod) or group_name(obj):
                self.groups.change(None, obj)
            if not isinstance(obj, Pod | Node):
                self.listers.put(obj)

        def node(name: str) -> Node:
            found = objects[f"Node//{name}"]
            assert isinstance(found, Node)
            return _cordoned(found) if self._is_closed(name) else found

        self.cache.restore(layout, node, (obj for obj in objects.values() if isinstance(obj, Pod)))

    def release(self, uid: str, key: str) -> None:
        """The placement of a pod is off. If it was assumed, its room is free again, which may help others."""
        if not self.cache.is_assumed(uid):
            return
        pod = self.pod(key)
        assumed = self._assumed(pod)
        node = self.cache.node_of(uid)
        self.cache.forget(uid)
        if node is not None:
            self.notes.append(released(self.seq, key, node))
        if assumed is not None:
            for effect in effects(assumed, None, self.rules):
                self._raise(effect.raised)

    def _assumed(self, obj: Object | None) -> Pod | None:
        """The pod as it is on the node where it is assumed."""
        if not isinstance(obj, Pod) or not self.cache.is_assumed(pod_uid(obj)):
            return None
        node = self.cache.node_of(pod_uid(obj))
        assert node is not None
        before = self._as_assumed(pod_uid(obj), obj) if self._bound_as_they_are else None
        obj = obj if before is None else before.on(obj)
        return replace(obj, spec=replace(obj.spec, node_name=node))

    def _update_cache(self, effect: Effect) -> None:
        old, new = effect.old, effect.new
        if isinstance(new, Pod):
            if new.spec.node_name:
                self.cache.put_pod(PodInfo(new))
            elif effect.forgets:
                self.cache.remove_pod(pod_uid(new))
        elif isinstance(old, Pod):
            self.cache.remove_pod(pod_uid(old))
        elif isinstance(new, Node):
            closed = self.unread and self._is_closed(new.metadata.name)
            self.cache.put_node(_cordoned(new) if closed else new)
        elif isinstance(old, Node):
            self.cache.remove_node(old.metadata.name)
        elif new is not None:
            self._touch_nodes(old)
            self.listers.put(new)
            self._touch_nodes(new)
        elif old is not None:
            self._touch_nodes(old)
            self.listers.delete(old)

    def _touch_nodes(self, obj: Object | None) -> None:
        """Have answers about the nodes that the object tells of looked at again."""
        if obj is not None:
            for name in nodes_told_of(obj, self.snapshot, self.listers):
                self.cache.touch(name)

    def _update_queue(self, effect: Effect) -> None:
        queue, old, new = self.queue, effect.old, effect.new
        if effect.queue is QueueStep.NOTHING:
            return
        if effect.queue is QueueStep.ADD:
            assert isinstance(new, Pod)
            queue.add(new, self.at)
        elif effect.queue is QueueStep.UPDATE:
            assert isinstance(old, Pod)
            assert isinstance(new, Pod)
            changes = pod_events(old, new, target=True, upstream=self.rules.upstream)
            queue.update(new, changes, self.seq, self.at)
        elif effect.queue is QueueStep.HEAR:
            assert isinstance(old, Pod)
            assert isinstance(new, Pod)
            queue.hear(new, () if self.rules.upstream else pod_events(old, new, target=True), self.seq)
        elif effect.queue is QueueStep.DELETE:
            assert isinstance(old, Pod)
            queue.delete(old, self.at)
        else:
            assert_never(effect.queue)

    def _raise(self, events: Iterable[Raised]) -> None:
        for raised in events:
            precheck = None if raised.priority_max is None else _at_most(raised.priority_max)
            if self.observer is not None:
                self.observer.begin()
            self.queue.on_event(raised.event, raised.old, raised.new, self.seq, self.at, precheck=precheck)
            if self.observer is not None:
                self.observer.end_event(raised.event)


def _cordoned(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, unschedulable=True))


def _at_most(priority: int) -> Callable[[Pod], bool]:
    return lambda pod: (pod.spec.priority or 0) <= priority

"""The cluster as a log tells it, at any moment of the last few seconds: it goes back and forth, record by record.

    past ──► [position] ──► undone ──► coming
             the state        records that were applied before, and those that were never applied yet

A decision shows after it was made, and was made on a state that the log never had: on an older one, or on one with pods assumed whose
bindings show later. So the states around it have to be tried. Going back undoes the last change of an object, which is as cheap as the
change was; an assumed pod is put into the snapshot only.

The frameworks of several modes look at the same cluster. Nothing is queued and nothing decided here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from tidelog.api.kinds.registry import object_key
from tidelog.api.objects import Node, Object, Pod, PodGroup
from tidelog.api.pod_status import is_terminal, with_pod_condition
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.eventlog.records import (
    Body,
    ConfigurationLoaded,
    ObjectDeleted,
    ObjectPut,
    PodConditionSet,
    Record,
)
from tidelog.framework.framework import Framework
from tidelog.framework.interface import Plugin
from tidelog.framework.node_info import PodInfo
from tidelog.plugins.registry import Registry
from tidelog.queue.entity import pod_uid
from tidelog.queue.scheduling_queue import empty_queue
from tidelog.scheduler.assembly import Assembly
from tidelog.scheduler.cluster import Cluster, wants_node
from tidelog.scheduler.preemption import Evictions
from tidelog.scheduler.unsupported import UnsupportedNeeds

BACK_RECORDS = 2_000
BACK_TIME = 10 * NANOS
"""No decision is looked for on a state that is older."""
AHEAD_TIME = NANOS // 2
"""A pod can be assumed so long before its binding shows."""
EARLY_TIME = NANOS // 10
"""So much earlier than the log another scheduler may have seen an object of another kind: its watches are others."""


MODES = ("upstream", "default")


class WorldEntry(NamedTuple):
    """A record with its decoded body."""

    record: Record
    body: Body


class ShadowStep(NamedTuple):
    """A record that was applied, and how to undo it."""

    entry: WorldEntry
    old: Object | None
    new: Object | None
    matters: bool
    """Decisions about pods may be others before it than after it."""

    @property
    def is_object(self) -> bool:
        return self.old is not None or self.new is not None

    @property
    def binds(self) -> Pod | None:
        """The pod that is bound by this record."""
        old, new = self.old, self.new
        if not isinstance(old, Pod) or not isinstance(new, Pod) or old.metadata.uid != new.metadata.uid:
            return None
        return new if new.spec.node_name and not old.spec.node_name else None


class Nominations:
    """Which pods are nominated where, as their status says. Implements `NominatedPods`."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, PodInfo]] = {}
        self.hidden: frozenset[str] = frozenset()
        """Uids of pods that are assumed, and so not waiting any more."""

    def pods_on(self, node: str) -> Sequence[PodInfo]:
        found = self._pods.get(node)
        if not found:
            return ()
        return [found[uid] for uid in sorted(found) if uid not in self.hidden]

    def nodes(self) -> Sequence[str]:
        return list(self._pods)

    def change(self, old: Object | None, new: Object | None) -> None:
        """A pod has another version."""
        if isinstance(old, Pod) and old.status.nominated_node_name:
            self._pods.get(old.status.nominated_node_name, {}).pop(pod_uid(old), None)
        if isinstance(new, Pod) and new.status.nominated_node_name and wants_node(new):
            self._pods.setdefault(new.status.nominated_node_name, {})[pod_uid(new)] = PodInfo(new)


class ShadowWorld:
    """The state at one position of the log, and the frameworks of each mode."""

    def __init__(self, registry: Registry) -> None:
        self.cluster = Cluster()
        self.nominations = Nominations()
        self.configurations: dict[str, SchedulerConfiguration] = {}
        """By mode; empty until the log has one."""
        self.frameworks: dict[str, Mapping[str, Framework]] = {}
        """Mode → profile → framework."""
        self.gates: dict[str, UnsupportedNeeds] = {}
        """Profile → what says that a pod needs what no plugin looks after."""
        self.images = ImageHistory()
        self._registry = registry
        self._past: deque[ShadowStep] = deque()
        self._undone: list[tuple[ShadowStep, bool]] = []
        """Records behind the position, the next one last, and whether their changes are undone."""
        self._early: list[tuple[str, Object | None, Object | None]] = []
        """Changes of objects that show later, made already: key, before, after."""
        self._assumed: list[tuple[PodInfo, str]] = []
        self.coming: deque[WorldEntry] = deque()
        """Records of the time after."""

    def begin(self, configuration: SchedulerConfiguration | None, objects: Iterable[Object]) -> None:
        """The state before the first record that is taken."""
        for obj in objects:
            self._change(object_key(obj), None, obj)
        if configuration is not None:
            self._configure(configuration)

    # --- where we are -------------------------------------------------------------------------------------------------

    @property
    def at(self) -> int:
        """The time of the last record before the position."""
        return self._past[-1].entry.record.at if self._past else 0

    @property
    def seq(self) -> int:
        """The last record before the position."""
        return self._past[-1].entry.record.seq if self._past else 0

    def get(self, key: str) -> Object | None:
        return self.cluster.objects.get(key)

    def pod(self, key: str, uid: str) -> Pod | None:
        """The pod of this key and uid, as it is at the position."""
        found = self.cluster.pod(key)
        return found if found is not None and pod_uid(found) == uid else None

    def recent(self, since: int) -> Iterator[ShadowStep]:
        """The records before the position, down to a time, latest first."""
        for step in reversed(self._past):
            if step.entry.record.at < since:
                return
            yield step

    # --- going on and back --------------------------------------------------------------------------------------------

    def advance(self) -> ShadowStep:
        """Apply the next of the coming records."""
        assert not self._undone, "the way back was not gone again"
        entry = self.coming.popleft()
        step = self._step(entry)
        self._do(step)
        self._past.append(step)
        while len(self._past) > BACK_RECORDS + 1:
            self._past.popleft()
        return step

    def back(self) -> ShadowStep | None:
        """Undo the last record; None if it is not known any more what was before it. With early facts only pods go back."""
        if len(self._past) <= 1:
            return None
        step = self._past.pop()
        undone = step.is_object and not (self._early and not step.entry.record.key.startswith("Pod/"))
        self._undone.append((step, undone))
        if undone:
            self._change(step.entry.record.key, step.new, step.old)
        return step

    def forth(self) -> None:
        """Go to where `back` was first called."""
        while self._undone:
            step, undone = self._undone.pop()
            if undone:
                self._do(step)
            self._past.append(step)

    def early_facts(self, at: int) -> list[WorldEntry]:
        """Records that show up to `EARLY_TIME` after a decision on other connections than the pods'."""
        found = []
        for entry in self.coming:
            if entry.record.at > at + EARLY_TIME:
                break
            if isinstance(entry.body, ObjectPut | ObjectDeleted) and not entry.record.key.startswith("Pod/"):
                found.append(entry)
        return found

    def bring_forward(self, entry: WorldEntry) -> bool:
        """Let the fact count already, until `give_back`; false if nobody would notice. Only where `back` was not called."""
        assert not self._undone
        step = self._step(entry)
        if not step.matters:
            return False
        self._do(step)
        self._early.append((entry.record.key, step.old, step.new))
        return True

    def give_back(self) -> None:
        """Take back all that was brought forward, the last first."""
        while self._early:
            key, old, new = self._early.pop()
            self._change(key, new, old)

    def _do(self, step: ShadowStep) -> None:
        if step.is_object:
            self._change(step.entry.record.key, step.old, step.new)

    def _step(self, entry: WorldEntry) -> ShadowStep:
        record, body = entry
        old = self.cluster.objects.get(record.key) if record.key else None
        new = old
        if isinstance(body, ObjectPut):
            new = body.object
        elif isinstance(body, ObjectDeleted):
            new = None
        elif isinstance(body, PodConditionSet) and isinstance(old, Pod):
            new = with_pod_condition(old, body.condition, record.at)
        elif isinstance(body, ConfigurationLoaded):
            self._configure(msgspec.convert(body.configuration, SchedulerConfiguration))
        if new is old:
            return ShadowStep(entry, None, None, matters=False)
        return ShadowStep(entry, old, new, _matters(old, new))

    def _change(self, key: str, old: Object | None, new: Object | None) -> None:
        self.nominations.change(old, new)
        self.cluster.change(key, new)
        if isinstance(old, Node) or isinstance(new, Node):
            self.images.change(old, new)

    def _configure(self, configuration: SchedulerConfiguration) -> None:
        """Both modes look at the same cluster; no pod enters its queue."""
        for mode in MODES:
            partial = "always" if mode == "upstream" else configuration.partial_placement
            wanted = msgspec.structs.replace(configuration, compat=mode, partial_placement=partial)
            self.configurations[mode] = wanted
            assembly = Assembly(self._registry, self.cluster, Evictions(), fast=False)
            assembly.configure(wanted)
            self.cluster.queue = empty_queue()
            self.cluster.rules = self.cluster.rules._replace(schedulers=())
            for framework in assembly.frameworks.values():
                framework.nominated = self.nominations
            self.frameworks[mode] = assembly.frameworks
        for name, framework in self.frameworks["upstream"].items():
            self.gates[name] = UnsupportedNeeds(
                p for p in (*framework.pre_filter, *framework.filter) if isinstance(p, Plugin)
            )

    # --- assuming -----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring the snapshot to the position. Nobody is assumed any more."""
        self.release()
        self.cluster.snapshot.refresh(self.cluster.cache)

    def assume(self, pod: PodInfo, node: str) -> bool:
        """Put a pod on a node of the snapshot; false if there is no such node."""
        snapshot = self.cluster.snapshot
        if snapshot.get(node) is None:
            return False
        snapshot.assume(pod, node)
        self._assumed.append((pod, node))
        self.nominations.hidden |= {pod.uid}
        return True

    def release(self) -> None:
        """Take all assumed pods off again."""
        while self._assumed:
            self.cluster.snapshot.forget(*self._assumed.pop())
        self.nominations.hidden = frozenset()

    def following_bindings(self, besides: frozenset[str]) -> list[tuple[PodInfo, str]]:
        """Yield the pods bound within `AHEAD_TIME` after the position, in order, with the pod as it is before. Without these uids."""
        found: dict[str, tuple[PodInfo, str]] = {}
        pending: dict[str, Pod] = {}
        for entry in self._following():
            body = entry.body
            if not isinstance(body, ObjectPut) or not isinstance(body.object, Pod):
                continue
            new, uid = body.object, pod_uid(body.object)
            if uid in besides or uid in found:
                continue
            before = self.pod(entry.record.key, uid) or pending.get(uid)
            if not new.spec.node_name:
                pending[uid] = new
            elif before is not None and wants_node(before) and not is_terminal(new):
                found[uid] = (PodInfo(before), new.spec.node_name)
        return list(found.values())

    def _following(self) -> Iterator[WorldEntry]:
        until = self.at + AHEAD_TIME
        for step, _ in reversed(self._undone):
            if step.entry.record.at > until:
                return
            yield step.entry
        for entry in self.coming:
            if entry.record.at > until:
                return
            yield entry


class ImageHistory:
    """Between which bounds the size of each image, and the number of nodes that have it, have been so far.

    kube-scheduler counts one size of an image for all nodes, that of the node that it first saw with it, and copies how many nodes have an
    image into its view of a node only when that node changes: both may be older than the state.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, int] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._counts: dict[str, tuple[int, int]] = {}

    def change(self, old: Object | None, new: Object | None) -> None:
        """A node has another version."""
        before, after = _images(old), _images(new)
        for name in before:
            self._nodes[name] -= 1
            self._note(name)
        for name, size in after.items():
            self._nodes[name] = self._nodes.get(name, 0) + 1
            low, high = self._sizes.get(name, (size, size))
            self._sizes[name] = (min(low, size), max(high, size))
        for name in {**before, **after}:
            self._note(name)

    def _note(self, name: str) -> None:
        count = self._nodes[name]
        low, high = self._counts.get(name, (count, count))
        self._counts[name] = (min(low, count), max(high, count))

    def sizes(self, name: str) -> tuple[int, int]:
        """The smallest and the largest size of the image of this normalised name."""
        return self._sizes.get(name, (0, 0))

    def counts(self, name: str) -> tuple[int, int]:
        """On how few and on how many nodes it has been."""
        return self._counts.get(name, (0, 0))


def _images(node: Object | None) -> dict[str, int]:
    if not isinstance(node, Node):
        return {}
    return {name: image.size_bytes for image in node.status.images for name in image.names}


def _matters(old: Object | None, new: Object | None) -> bool:
    """Whether the change may change a decision about a pod. What a kubelet tells of a running pod mostly does not."""
    if isinstance(old, Pod) and isinstance(new, Pod):
        return _of_pod(old) != _of_pod(new)
    if isinstance(old, Node) and isinstance(new, Node):
        return _of_node(old) != _of_node(new)
    if isinstance(old, PodGroup) and isinstance(new, PodGroup):
        return old.spec != new.spec
    return old != new


def _of_pod(pod: Pod) -> tuple[object, ...]:
    meta, status = pod.metadata, pod.status
    return (
        meta.uid,
        meta.labels,
        bool(meta.deletion_timestamp),
        is_terminal(pod),
        pod.spec,
        status.nominated_node_name,
        status.start_time,
        status.container_statuses if pod.spec.node_name else (),
    )


def _of_node(node: Node) -> tuple[object, ...]:
    return (node.metadata.labels, node.spec, node.status.allocatable, node.status.images)

"""The current objects of the cluster: a pure fold over the log.

`ObjectTable` is what `get` prints and what admission looks things up in: every object as the last record about it left it,
outcomes included, as the API server would show it (a scheduled pod has its node and its PodScheduled condition). It is a
cache, never a source: the same records always give the same table, and the table at any seq can be computed again.

A record costs one to five microseconds. A snapshot of the table lets `load_objects` begin near the seq asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import TypeVar, assert_never

import msgspec
from msgspec.structs import replace

from tidelog.api import object_table
from tidelog.api.errors import LogDamaged, LogError
from tidelog.api.objects import (
    KIND_BY_NAME,
    KINDS,
    AllocationResult,
    ClaimConsumer,
    Condition,
    Object,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    ResourceClaim,
)
from tidelog.api.times import NANOS, format_time
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.records import (
    AttemptAborted,
    AttemptError,
    ConfigurationLoaded,
    Evicted,
    EvictionRefused,
    LossAccepted,
    Nominated,
    ObjectDeleted,
    ObjectPut,
    PlacementChosen,
    PodConditionSet,
    Record,
    Scheduled,
    SchedulerStarted,
    Tick,
    Unschedulable,
    Waiting,
    decode_body,
)

SNAPSHOT = "objects"
"""The name of this table's snapshots."""

GRACE_SECONDS = 30
"""What Kubernetes gives a pod that says nothing about its termination."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object and the seq of the record that made it what it is (Kubernetes' resourceVersion)."""

    seq: int
    object: Object


Conditions = tuple[Condition, ...]


class ObjectTable:
    """All objects after record `seq`."""

    def __init__(self) -> None:
        self.seq = 0
        self.at = 0
        self.cluster = object_table.ObjectTable()
        """The same objects as admission looks them up, together with those that exist in every cluster."""
        self._kinds: dict[str, dict[str, Entry]] = {kind.name: {} for kind in KINDS}

    # --- looking ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def entry(self, key: str) -> Entry | None:
        """The object of this `Kind/namespace/name`, with its seq."""
        return self._kinds.get(key.partition("/")[0], {}).get(key)

    def get(self, key: str) -> Object | None:
        """The object of this `Kind/namespace/name`."""
        entry = self.entry(key)
        return None if entry is None else entry.object

    def of_kind(self, kind: str) -> list[Entry]:
        """All objects of a kind, ordered by namespace and name."""
        entries = self._kinds[kind]
        return [entries[key] for key in sorted(entries)]

    # --- the fold ---------------------------------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Take the next record into account."""
        assert record.seq == self.seq + 1, f"record {record.seq} after {self.seq}"
        self.seq, self.at = record.seq, record.at
        body = decode_body(record)
        match body:
            case ObjectPut():
                self._put(record.key, body.object)
            case ObjectDeleted():
                self._remove(record.key)
            case PodConditionSet():
                self._change_pod(record.key, lambda pod: _with_condition(pod, body.condition, record.at))
            case Scheduled():
                self._scheduled(record, body)
            case Unschedulable():
                self._unschedulable(record, body)
            case AttemptError():
                condition = _not_scheduled("SchedulerError", body.message)
                self._change_pod(record.key, lambda pod: _with_condition(pod, condition, record.at))
            case Nominated():
                self._change_pod(record.key, lambda pod: _nominated(pod, body.node))
            case Evicted():
                self._evicted(record, body)
            case (
                Tick()
                | ConfigurationLoaded()
                | SchedulerStarted()
                | LossAccepted()
                | Waiting()
                | AttemptAborted()
                | EvictionRefused()
                | PlacementChosen()
            ):
                pass  # They say nothing about objects.
            case _:
                assert_never(body)

    def _put(self, key: str, obj: Object) -> None:
        self._kinds[key.partition("/")[0]][key] = Entry(self.seq, obj)
        self.cluster.put(obj)

    def _remove(self, key: str) -> None:
        kind, _, place = key.partition("/")
        namespace, _, name = place.partition("/")
        if self._kinds[kind].pop(key, None) is not None:
            self.cluster.delete(kind, namespace, name)

    def _change(self, key: str, type: type[T], change: Callable[[T], T]) -> None:
        """Put what `change` makes of the object, if it is there; an outcome may come after its object's end."""
        found = self.get(key)
        if isinstance(found, type):
            changed = change(found)
            if changed is not found:
                self._put(key, changed)

    def _change_pod(self, key: str, change: Callable[[Pod], Pod]) -> None:
        self._change(key, Pod, change)

    def _scheduled(self, record: Record, body: Scheduled) -> None:
        def bound(pod: Pod) -> Pod:
            pod = replace(pod, spec=replace(pod.spec, node_name=body.node))
            condition = Condition(type="PodScheduled", status="True")
            return _with_condition(_nominated(pod, ""), condition, record.at)

        self._change_pod(record.key, bound)
        pod = self.get(record.key)
        for claim, result in body.claims.items():
            if isinstance(pod, Pod):
                self._change(claim, ResourceClaim, partial(_allocated, result=result, pod=pod))
        if body.group:
            condition = Condition(type="PodGroupInitiallyScheduled", status="True", reason="Scheduled")
            self._change(body.group, PodGroup, lambda group: _group_with(group, condition, record.at))

    def _unschedulable(self, record: Record, body: Unschedulable) -> None:
        if record.key.startswith("PodGroup/"):
            condition = Condition(
                type="PodGroupInitiallyScheduled",
                status="False",
                reason="Unschedulable",
                message=body.message,
            )
            self._change(record.key, PodGroup, lambda group: _group_with(group, condition, record.at))
        elif not body.same_as:
            condition = _not_scheduled("Unschedulable", body.message)
            self._change_pod(record.key, lambda pod: _with_condition(pod, condition, record.at))

    def _evicted(self, record: Record, body: Evicted) -> None:
        condition = Condition(
            type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message=body.message
        )

        def leaving(pod: Pod) -> Pod:
            pod = _with_condition(pod, condition, record.at)
            if pod.metadata.deletion_timestamp:
                return pod
            grace = pod.spec.termination_grace_period_seconds
            grace = GRACE_SECONDS if grace is None else grace
            due = format_time(record.at + grace * NANOS)
            metadata = replace(pod.metadata, deletion_timestamp=due, deletion_grace_period_seconds=grace)
            return replace(pod, metadata=metadata)

        self._change_pod(record.key, leaving)
        name = record.key.rpartition("/")[2]
        for budget in body.budgets:
            self._change(budget, PodDisruptionBudget, lambda found: _charged(found, name, record.at))

    # --- snapshots --------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """All of it as bytes; equal tables give equal bytes."""
        objects = {kind: self.of_kind(kind) for kind, entries in self._kinds.items() if entries}
        return msgspec.msgpack.encode((1, self.seq, self.at, objects))

    @classmethod
    def decode(cls, blob: bytes) -> ObjectTable:
        """The table of which these are the bytes."""
        _, seq, at, objects = msgspec.msgpack.decode(blob, type=tuple[int, int, int, dict[str, msgspec.Raw]])
        table = cls()
        table.seq, table.at = seq, at
        for name, raw in objects.items():
            kind = KIND_BY_NAME[name]
            entries = msgspec.msgpack.decode(raw, type=list[tuple[int, kind.type]])  # type: ignore[name-defined]
            for number, obj in entries:
                namespace = obj.metadata.namespace if kind.namespaced else ""
                key = f"{name}/{namespace}/{obj.metadata.name}"
                table._kinds[name][key] = Entry(number, obj)
                table.cluster.put(obj)
        return table

    def digest(self) -> str:
        """A fingerprint: equal for equal tables, whatever way they were computed."""
        return sha256(self.encode()).hexdigest()


T = TypeVar("T", bound=Object)


def _not_scheduled(reason: str, message: str) -> Condition:
    return Condition(type="PodScheduled", status="False", reason=reason, message=message)


def _merged(conditions: Conditions, new: Condition, at: int) -> Conditions:
    """With `new` in the place of the condition of its type. Its transition time moves only when its status does."""
    old = next((c for c in conditions if c.type == new.type), None)
    if not new.last_transition_time:
        same = old is not None and old.status == new.status and old.last_transition_time
        new = replace(new, last_transition_time=same or format_time(at))
    if old is None:
        return (*conditions, new)
    return conditions if old == new else tuple(new if c is old else c for c in conditions)


def _with_condition(pod: Pod, condition: Condition, at: int) -> Pod:
    conditions = _merged(pod.status.conditions, condition, at)
    if conditions is pod.status.conditions:
        return pod
    return replace(pod, status=replace(pod.status, conditions=conditions))


def _group_with(group: PodGroup, condition: Condition, at: int) -> PodGroup:
    """True is final: a group that was placed once does not become unplaced."""
    if any(c.type == condition.type and c.status == "True" for c in group.status.conditions):
        return group
    conditions = _merged(group.status.conditions, condition, at)
    if conditions is group.status.conditions:
        return group
    return replace(group, status=replace(group.status, conditions=conditions))


def _nominated(pod: Pod, node: str) -> Pod:
    if pod.status.nominated_node_name == node:
        return pod
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


def _allocated(claim: ResourceClaim, result: AllocationResult, pod: Pod) -> ResourceClaim:
    consumer = ClaimConsumer(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
    users = claim.status.reserved_for
    users = users if consumer in users else (*users, consumer)
    return replace(claim, status=replace(claim.status, allocation=result, reserved_for=users))


def _charged(budget: PodDisruptionBudget, pod: str, at: int) -> PodDisruptionBudget:
    """As the eviction endpoint does it: one disruption less is allowed, and the pod's name says who took it."""
    status = budget.status
    if pod in status.disrupted_pods:
        return budget
    status = replace(
        status,
        disruptions_allowed=max(status.disruptions_allowed - 1, 0),
        disrupted_pods={**status.disrupted_pods, pod: format_time(at)},
    )
    return replace(budget, status=status)


# --- loading --------------------------------------------------------------------------------------------------------


async def load_objects(log: LogReader, seq: int | None = None) -> ObjectTable:
    """The table after record `seq` (by default the newest): the nearest snapshot before it, and the records since."""
    if seq is not None and seq < log.anchor.seq:
        raise LogError(
            f"{log.name}: the state at record {seq} is gone: the log was compacted to {log.anchor.seq}"
        )
    snapshot = await log.snapshot(SNAPSHOT, seq)
    table = ObjectTable() if snapshot is None else ObjectTable.decode(snapshot.blob)
    if table.seq < log.anchor.seq:
        raise LogDamaged(
            log.name, 1, log.anchor.seq, "they were compacted, and no sound snapshot of the objects is left"
        )
    async for batch in log.read_batches(table.seq + 1, seq):
        for record in batch:
            table.apply(record)
    return table

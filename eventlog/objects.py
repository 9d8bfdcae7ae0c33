"""The current objects of the cluster: a pure fold over the log.

`ObjectTable` is what `get` prints and what admission looks things up in: every object as the last record about it left it,
outcomes included, as the API server would show it (a scheduled pod has its node and its PodScheduled condition). It is a
cache, never a source: the same records always give the same table, and the table at any seq can be computed again.

A record costs one to five microseconds. A snapshot of the table lets `load_objects` begin near the seq asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import TypeVar, assert_never

import msgspec
from msgspec.structs import replace

from tidelog.api import object_table
from tidelog.api.errors import LogDamaged, LogError
from tidelog.api.features import FeatureGates, recorded_gates
from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.objects import (
    AllocationResult,
    ClaimConsumer,
    Object,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    ResourceClaim,
)
from tidelog.api.pod_status import (
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    allocated,
    bound_to,
    charged,
    nominated_to,
    preempted,
    rejected,
    with_group_condition,
    with_pod_condition,
)
from tidelog.api.steps import Steps
from tidelog.api.writes import Write, written
from tidelog.eventlog.attachment import Attachment, attached
from tidelog.eventlog.layer import Layer
from tidelog.eventlog.promises import Promises
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.records import (
    NO_OPAQUE,
    AttemptAborted,
    AttemptError,
    Body,
    ClusterAttached,
    ConfigurationLoaded,
    Cursor,
    Evicted,
    EvictionRefused,
    KindGap,
    KindSynced,
    LeadershipChanged,
    LossAccepted,
    Nominated,
    ObjectDeleted,
    ObjectPut,
    ObjectUnread,
    PlacementChosen,
    PodConditionSet,
    Record,
    Reserved,
    Scheduled,
    SchedulerStarted,
    ShadowVerdict,
    Tick,
    Unschedulable,
    Waiting,
    WriteFailed,
    decode_body,
)
from tidelog.eventlog.store import Snapshot
from tidelog.eventlog.table_encoding import ATTACHMENT, BESIDE, FORMAT, PROMISES, SORTED, Mark, encoded

FOLDED_PER_STEP = 1_000
"""So many changes are put in place at once; some two milliseconds, with what they replace."""

SNAPSHOT = "objects"
"""The name of this table's snapshots."""


class ObjectEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object and the seq of the record that made it what it is (Kubernetes' resourceVersion)."""

    seq: int
    object: Object
    place: int = 1
    """Which of the record's changes it was: a record can bind a whole group."""
    opaque: str = ""
    """JSON of the fields that nothing here reads, as they were put; empty if there are none."""


OnChange = Callable[[str, "ObjectEntry | None", "ObjectEntry | None", int], None]
"""Told of a change: the object's key, its entry before and afterwards, and which of the record's changes it is."""


_decode_snapshot = msgspec.msgpack.Decoder(
    tuple[int, int, int, tuple[FeatureGates, int], dict[str, msgspec.Raw]]
).decode


class ObjectTable:
    """All objects after record `seq`."""

    def __init__(self) -> None:
        self.seq = 0
        self.at = 0
        self.cluster = object_table.ObjectTable()
        """The same objects as admission looks them up, together with those that exist in every cluster."""
        self.gates = FeatureGates()
        """The feature gates of the last configuration that a scheduler recorded."""
        self.attachment: Attachment | None = None
        """The cluster whose objects these are, if they are a live one's."""
        self.promises = Promises()
        """Decisions that such a cluster does not show yet."""
        self.on_change: OnChange | None = None
        """Told of each change when it has been made. Not told of what a snapshot brings."""
        self.is_in_order = True
        """Whether the objects of each kind stand in the order in which they came. Snapshots of older versions do not know it."""
        self._changes = 0
        """How many changes the record in hand has made."""
        self._kinds: Kinds = defaultdict(dict)
        self._marks = 0
        """How many marks are in use: what changes meanwhile stands in layers."""

    # --- looking ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def entry(self, key: str) -> ObjectEntry | None:
        """The object of this `Kind/namespace/name`, with its seq."""
        return self._kinds.get(key.partition("/")[0], {}).get(key)

    def get(self, key: str) -> Object | None:
        """The object of this `Kind/namespace/name`."""
        entry = self.entry(key)
        return None if entry is None else entry.object

    def __iter__(self) -> Iterator[ObjectEntry]:
        """All objects, in an order that depends on the records alone."""
        for entries in self._kinds.values():
            yield from entries.values()

    def objects(self) -> dict[str, Object]:
        """All objects by their keys: those of a kind in the order in which they came."""
        return {key: entry.object for entries in self._kinds.values() for key, entry in entries.items()}

    def of_kind(self, kind: str) -> list[ObjectEntry]:
        """All objects of a kind, ordered by namespace and name."""
        entries = self._kinds.get(kind, {})
        return [entries[key] for key in sorted(entries)]

    # --- the fold ---------------------------------------------------------------------------------------------------

    def apply(self, record: Record, body: Body | None = None) -> None:
        """Take the next record into account. `body` is its decoded body, where the caller has it."""
        assert record.seq == self.seq + 1, f"record {record.seq} after {self.seq}"
        self.seq, self.at = record.seq, record.at
        self._changes = 0
        body = decode_body(record) if body is None else body
        if self.attachment is not None or isinstance(body, ClusterAttached):
            self.attachment = attached(self.attachment, record.key, body)
        if self.promises.keeping:
            self.promises.note(record, body, self.get)
        match body:
            case ObjectPut():
                self._put(record.key, self.promises.seen(record.key, body.object), body.opaque)
            case Scheduled():
                self._scheduled(record, body)
            case ObjectDeleted():
                self._remove(record.key)
            case PodConditionSet():
                self._change_pod(record.key, lambda pod: with_pod_condition(pod, body.condition, record.at))
            case Unschedulable():
                for write in body.writes:
                    self._write(write)
                self._unschedulable(record, body)
            case AttemptError():
                self._failed(record, body, SCHEDULER_ERROR)
            case PlacementChosen():
                self._placed(record, body)
            case Nominated():
                for other in body.cleared:
                    self._change_pod(other, lambda pod: nominated_to(pod, ""))
                self._change_pod(record.key, lambda pod: nominated_to(pod, body.node))
            case Evicted():
                self._evicted(record, body)
            case Reserved():
                for write in body.writes:
                    self._write(write)
            case ConfigurationLoaded():
                # What admission needs of it, so that whoever appends without a scheduler admits as the last one would.
                self.gates = recorded_gates(body.configuration.get("featureGates"))
                self.cluster.constraints_max = body.configuration.get("maxTopologyConstraints", 1)
            case ClusterAttached():
                for key, obj in self.promises.attach(body):
                    self._put(key, obj)
            case WriteFailed():
                self._write_failed(record, body)
            case (
                Tick()
                | SchedulerStarted()
                | LossAccepted()
                | KindSynced()
                | KindGap()
                | Cursor()
                | ObjectUnread()
                | LeadershipChanged()
                | ShadowVerdict()
                | Waiting()
                | AttemptAborted()
                | EvictionRefused()
            ):
                pass  # They say nothing about objects.
            case _:
                assert_never(body)

    def _put(self, key: str, obj: Object, opaque: str = "") -> None:
        entries = self._kinds[key.partition("/")[0]]
        self._replace(entries, key, entries.get(key), obj, opaque)

    def _replace(
        self,
        entries: MutableMapping[str, ObjectEntry],
        key: str,
        old: ObjectEntry | None,
        obj: Object,
        opaque: str = "",
    ) -> None:
        if not opaque:
            opaque = "" if old is None else old.opaque
        elif opaque == NO_OPAQUE:
            opaque = ""
        self._changes += 1
        entry = entries[key] = ObjectEntry(self.seq, obj, self._changes, opaque)
        self.cluster.put(obj)
        if self.on_change is not None:
            self.on_change(key, old, entry, self._changes)

    def _remove(self, key: str) -> None:
        kind, _, place = key.partition("/")
        namespace, _, name = place.partition("/")
        old = self._kinds.get(kind, {}).pop(key, None)
        if old is not None:
            self._changes += 1
            self.cluster.delete(kind, namespace, name)
            if self.on_change is not None:
                self.on_change(key, old, None, self._changes)

    def _change(self, key: str, type: type[T], change: Callable[[T], T]) -> None:
        """Put what `change` makes of the object, if it is there; an outcome may come after its object's end."""
        entries = self._kinds.get(key.partition("/")[0], _NOTHING)
        old = entries.get(key)
        if old is not None and isinstance(old.object, type):
            changed = change(old.object)
            if changed is not old.object:
                self._replace(entries, key, old, changed)

    def _change_pod(self, key: str, change: Callable[[Pod], Pod]) -> None:
        self._change(key, Pod, change)

    def _write(self, write: Write) -> None:
        """Do a write for a pod: the record that says so does it; answers are records of their own."""
        found = self.get(write.key)
        changed = written(found, write)
        if changed is None:
            self._remove(write.key)
        elif changed is not found:
            self._put(write.key, changed)

    def _scheduled(self, record: Record, body: Scheduled) -> None:
        pods = self._kinds.get("Pod", _NOTHING)
        old = pods.get(record.key)
        pod = None if old is None else old.object
        # A member of a group is bound already, by the group's record; an outcome may come after its pod's end.
        if isinstance(pod, Pod) and pod.spec.node_name != body.node:
            pod = bound_to(pod, body.node, record.at)
            self._replace(pods, record.key, old, pod)
        for claim, result in body.claims.items():
            if isinstance(pod, Pod):
                self._change(claim, ResourceClaim, partial(_allocated, result=result, pod=pod))

    def _placed(self, record: Record, body: PlacementChosen) -> None:
        """One record binds the whole group, so that no state of the table has a part of it bound."""
        for claim, result in body.claims.items():
            self._change(claim, ResourceClaim, partial(allocated, result=result, group=record.key))
        waiting = frozenset(body.waiting)
        for key, node in body.assignment.items():
            if key not in waiting:
                self._change_pod(key, partial(bound_to, node=node, at=record.at))
        self._state_of_group(record, "True", "Scheduled", "")

    def _unschedulable(self, record: Record, body: Unschedulable) -> None:
        if not body.same_as:
            self._failed(record, body, UNSCHEDULABLE)

    def _failed(self, record: Record, body: Unschedulable | AttemptError, reason: str) -> None:
        """The pod of the record's key, or the group with all its members."""
        for key in body.members or (record.key,):
            self._change_pod(key, lambda pod: rejected(pod, body.message, record.at, reason=reason))
        self._state_of_group(record, "False", reason, body.message)

    def _state_of_group(self, record: Record, status: str, reason: str, message: str) -> None:
        self._change(
            record.key,
            PodGroup,
            lambda group: with_group_condition(group, status, reason, message, record.at),
        )

    def _evicted(self, record: Record, body: Evicted) -> None:
        """The victim is told to go; one that waits, and so has no node, only loses its place, which costs no budget."""
        victim = self.get(record.key)
        if not isinstance(victim, Pod) or not victim.spec.node_name:
            self._change_pod(
                record.key, lambda pod: rejected(pod, body.message, record.at, reason=SCHEDULER_ERROR)
            )
            return
        self._change_pod(record.key, lambda pod: preempted(pod, body.message, record.at))
        name = victim.metadata.name
        for budget in () if self.promises.keeping else body.budgets:
            self._change(budget, PodDisruptionBudget, lambda found: charged(found, name, record.at))

    def _write_failed(self, record: Record, body: WriteFailed) -> None:
        broken = self.promises.broken(record, body, self.get)
        if broken is not None:
            if broken.is_gone:
                self._remove(record.key)
            else:
                self._put(record.key, broken.object)
            if broken.cleared:
                self._change_pod(broken.cleared, lambda pod: nominated_to(pod, ""))

    # --- snapshots --------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """All of it as bytes; equal tables give equal bytes."""
        return encoded(self.mark())

    @contextmanager
    def marked(self) -> Iterator[Mark]:
        """The table as it is now, to be encoded while it goes on. Costs nothing; what has changed meanwhile is to be folded afterwards."""
        mark = self.mark()
        self._marks += 1
        self._kinds = defaultdict(dict, {kind: Layer(entries) for kind, entries in self._kinds.items()})
        try:
            yield mark
        finally:
            self._marks -= 1

    def folding(self) -> Steps[None]:
        """Put in place what has changed beside marks, which is dearer to look at, in steps; as long as nobody marks it again."""
        for kind in list(self._kinds):
            while not self._marks and isinstance(entries := self._kinds[kind], Layer):
                folded = entries.fold(FOLDED_PER_STEP)
                if folded is not None:
                    self._kinds[kind] = folded
                yield

    def mark(self) -> Mark:
        """The table as it is, until it changes."""
        return Mark(
            self.seq,
            {kind: entries for kind, entries in self._kinds.items() if entries},
            self.at,
            (self.gates, self.cluster.constraints_max),
            self.attachment,
            self.promises.dump() if self.promises.log_id else None,
            FORMAT if self.is_in_order else SORTED,
        )

    def is_like(self, other: ObjectTable) -> bool:
        """Whether both hold the same; in whatever order, where one of them does not know it."""
        mark, its = self.mark(), other.mark()
        if mark._replace(format=its.format) != its:
            return False
        # Which of two kinds came first means nothing, and a snapshot does not say it.
        both = self.is_in_order and other.is_in_order
        return not both or all(list(mark.kinds[kind]) == list(its.kinds[kind]) for kind in its.kinds)

    def bring_into_order(self, keys: Iterable[str]) -> None:
        """Have the objects stand as their keys do here, which are all there are, where the table does not know their order."""
        if self.is_in_order:
            return
        kinds: Kinds = defaultdict(dict)
        for key in keys:
            kind = key.partition("/")[0]
            kinds[kind][key] = self._kinds[kind].pop(key)
        assert not len(self), "keys are missing"
        self._kinds, self.is_in_order = kinds, True

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot | None) -> ObjectTable | None:
        """The table that this snapshot holds; None if it holds none, or one that another version of tidelog wrote."""
        try:
            return None if snapshot is None else cls.decode(snapshot.blob)
        except (msgspec.MsgspecError, KeyError):
            return None

    @classmethod
    def decode(cls, blob: bytes) -> ObjectTable:
        """The table of which these are the bytes."""
        version, seq, at, settings, objects = _decode_snapshot(blob)
        if version not in (FORMAT, SORTED):
            raise msgspec.ValidationError(f"a table of format {version}")
        table = cls()
        table.is_in_order = version == FORMAT
        table._load(seq, at, settings, objects)
        return table

    def _load(
        self, seq: int, at: int, settings: tuple[FeatureGates, int], objects: dict[str, msgspec.Raw]
    ) -> None:
        self.seq, self.at = seq, at
        self.gates, self.cluster.constraints_max = settings
        beside: dict[str, tuple[int, str]] = {}
        for name, raw in objects.items():
            if name == BESIDE:
                beside = msgspec.msgpack.decode(raw, type=dict[str, tuple[int, str]])
                continue
            if name == ATTACHMENT:
                self.attachment = msgspec.msgpack.decode(raw, type=Attachment)
                continue
            if name == PROMISES:
                self.promises.load(msgspec.msgpack.decode(raw))
                continue
            kind = KIND_BY_NAME[name]
            entries = msgspec.msgpack.decode(raw, type=list[tuple[int, kind.type]])  # type: ignore[name-defined]
            for number, obj in entries:
                namespace = obj.metadata.namespace if kind.namespaced else ""
                key = f"{name}/{namespace}/{obj.metadata.name}"
                self._kinds[name][key] = ObjectEntry(number, obj)
                self.cluster.put(obj)
        for key, (place, opaque) in beside.items():
            known = self._kinds[key.partition("/")[0]]
            known[key] = replace(known[key], place=place, opaque=opaque)

    def digest(self) -> str:
        """A fingerprint: equal for equal tables, whatever way they were computed."""
        return sha256(self.encode()).hexdigest()


T = TypeVar("T", bound=Object)

Kinds = dict[str, MutableMapping[str, ObjectEntry]]
"""Objects by kind, and by key."""

_NOTHING: dict[str, ObjectEntry] = {}


def _allocated(claim: ResourceClaim, result: AllocationResult, pod: Pod) -> ResourceClaim:
    consumer = ClaimConsumer(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
    users = claim.status.reserved_for
    users = users if consumer in users else (*users, consumer)
    return replace(claim, status=replace(claim.status, allocation=result, reserved_for=users))


# --- loading --------------------------------------------------------------------------------------------------------


async def load_objects(log: LogReader, seq: int | None = None, *, in_order: bool = False) -> ObjectTable:
    """The table after record `seq` (by default the newest): the nearest snapshot before it that can be used, and the records since.

    `in_order`: a snapshot that does not know the order of the objects is of no use.
    """
    if seq is not None and seq < log.anchor.seq:
        raise LogError(
            f"{log.name}: the state at record {seq} is gone: the log was compacted to {log.anchor.seq}"
        )
    table, limit, other = None, seq, False
    while table is None and (found := await log.snapshot(SNAPSHOT, limit)) is not None:
        table, limit = ObjectTable.from_snapshot(found), found.seq - 1
        if table is None or (in_order and not table.is_in_order):
            table, other = None, True
    if table is None:
        table = ObjectTable()
    if table.seq < log.anchor.seq:
        later = [info.seq for info in await log.snapshots() if info.name == SNAPSHOT and info.seq > table.seq]
        if seq is not None and later and seq < max(later):
            raise LogError(
                f"{log.name}: the state at record {seq} is gone: the log was compacted to {log.anchor.seq}, and its oldest state is that of record {min(later)}"
            )
        if other:
            raise another_version(log.name, log.anchor.seq)
        raise LogDamaged(
            log.name, 1, log.anchor.seq, "they were compacted, and no usable snapshot of the objects is left"
        )
    async for batch in log.read_batches(table.seq + 1, seq):
        for record in batch:
            table.apply(record)
    return table


def another_version(name: str, anchor: int) -> LogError:
    """The error of a compacted log whose state is whole, and cannot be read."""
    return LogError(
        f"{name}: the log was compacted to record {anchor}, and the state that is kept of it was written by another version of tidelog: use that one"
    )

"""A pod's story: everything the log knows about it, from its creation on, in the order in which it happened.

The story is listened to while the log is played back, so that it also tells what no record says: which event woke the pod, which plugin's
hint said so, which events were judged and found of no help. Attempts that came to the same answer as the one before are folded into one
entry with a count, together with what woke them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from tidelog.api.objects import Pod
from tidelog.api.times import format_duration
from tidelog.api.volumes import SELECTED_NODE
from tidelog.api.writes import Write
from tidelog.eventlog.records import (
    OUTCOME_KINDS,
    AttemptAborted,
    AttemptError,
    Body,
    ConfigurationLoaded,
    Evicted,
    EvictionRefused,
    Fallback,
    Nominated,
    ObjectDeleted,
    ObjectPut,
    ObjectUnread,
    PlacementChosen,
    PodConditionSet,
    Record,
    Reserved,
    Scheduled,
    Unschedulable,
    Waiting,
    WriteFailed,
    decode_body,
)
from tidelog.framework.events import ClusterEvent
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod, Where
from tidelog.replay.foreign import rejection_shown
from tidelog.replay.playback import playback
from tidelog.replay.preempting import deciding_rule
from tidelog.replay.words import event_name, short
from tidelog.scheduler.core import Core
from tidelog.scheduler.groups.group import group_record_key
from tidelog.scheduler.recorded import RecordedAttempt

JUDGED_KEPT = 20
"""Number of the last events judged for the pod that are kept."""


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """One reason of one plugin in an attempt, and on how many nodes."""

    plugin: str
    reason: str
    nodes: int


class StoryEntry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing that happened; for attempts with the same answer, one thing that happened several times."""

    seq: int
    at: int
    what: str
    """`created`, `attempt`, `woken`, `nominated`, …"""
    text: str
    attempt: int = 0
    """Its number in the log, if it is an attempt."""
    number: int = 0
    """Its number among the attempts of this pod, from 1 on."""
    count: int = 1
    last_seq: int = 0
    last_at: int = 0
    nodes: int = 0
    """How many nodes there were."""
    node: str = ""
    rejections: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()
    """Explanations beyond the outcome's message: fallback, placements, budgets."""
    woken_by: dict[str, int] = {}
    """Event that woke it between the folded attempts → how often."""


class JudgedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a plugin's hint was asked about."""

    seq: int
    event: str
    object: str
    """The object of the record."""
    plugin: str
    answer: str
    """`Queue`, `QueueSkip` or `Error`."""


class PodStory(msgspec.Struct, kw_only=True):
    """All of it."""

    entries: list[StoryEntry]
    judged: list[JudgedEvent]
    slept_through: int
    """How many events were judged and found of no help."""


def story(records: Sequence[Record], core: Core, key: str) -> PodStory:
    """The story of the pod of this record key. `core` has consumed everything before `records`, and ends behind them.

    Costs as much as recovering the state: some 20 microseconds a record.
    """
    teller = Teller(core, key)
    for step in playback(records, core):
        teller.hear(step)
    return teller.told()


class Teller:
    """Listens to a playback. `hear` is to be called with each of its steps."""

    def __init__(self, core: Core, key: str, *, listens: bool = True, is_new: bool = False) -> None:
        """`listens=False`: somebody else hears the queue, and hands on what is about this pod. `is_new`: it was not there before."""
        self.core = core
        self.key = key
        self._listens = listens
        self.name = key.partition("/")[2]
        self.entries: list[StoryEntry] = []
        self.judged: deque[JudgedEvent] = deque(maxlen=JUDGED_KEPT)
        self.slept_through = 0
        self._pod = None if is_new else core.cluster.pod(key)
        self._group = group_record_key(self._pod) if self._pod is not None else ""
        self._record: Record | None = None
        self._rejection: Unschedulable | None = None
        """The content of the last rejection, to which repetitions refer …"""
        self._attempts = 0
        """… and how many attempts there had been of the pod, before all this."""
        self._numbers: dict[int, int] = {}
        self._rule = ""
        """By which rule the preemption under way was chosen."""
        self._folding: StoryEntry | None = None
        """The last attempt, while nothing but wake-ups has happened since."""
        if self._pod is not None:
            self._rejection = core.last_rejection(key) or core.last_rejection(self._group)
            waiting = core.queue.get(self.name)
            self._attempts = 0 if waiting is None else waiting.attempts
        self._heard: list[tuple[QueuedPod, str, ClusterEvent, str]] = []
        self._entered: list[tuple[Where, ClusterEvent, str]] = []
        self._listen()

    def told(self) -> PodStory:
        """Return the story so far."""
        return PodStory(entries=self.entries, judged=list(self.judged), slept_through=self.slept_through)

    # --- what the queue tells (QueueObserver) ---------------------------------------------------------------------------

    def hint_answered(self, waiting: QueuedPod, plugin: str, event: ClusterEvent, answer: str) -> None:
        """A hint was asked about some pod."""
        if waiting.key == self.name:
            self._heard.append((waiting, plugin, event, answer))

    def entered(self, entity: AnyEntity, event: ClusterEvent) -> None:
        """Some entity moved."""
        if isinstance(entity, QueuedGroup):
            if self.name not in entity.members:
                return
        elif entity.key != self.name:
            return
        gate = f"{entity.gating_plugin}: {', '.join(entity.gating_reasons)}" if entity.is_gated else ""
        self._entered.append((entity.where, event, gate))

    def _listen(self) -> None:
        """A new configuration brings a new queue."""
        if self._listens:
            self.core.queue.observe(self)

    # --- steps ------------------------------------------------------------------------------------------------------------

    def hear(self, step: RecordedAttempt | Record) -> None:
        """The next step of the playback has been made, or, for a pop, is about to be."""
        if isinstance(step, RecordedAttempt):
            self._rule = deciding_rule(self.core, step, self.key)
            return
        self._record = step
        if step.kind == "ConfigurationLoaded":
            self._listen()
            self._configured(step)
        elif self._concerns(step):
            self._about(step, decode_body(step))
        self._tell_moves(step)

    def _concerns(self, record: Record) -> bool:
        """About the pod, its group, or something that may have been done for it."""
        if record.key == self.key or (self._group and record.key == self._group):
            return True
        return record.kind in ("Nominated", "Evicted", "EvictionRefused", "PlacementChosen")

    def _configured(self, record: Record) -> None:
        if self._pod is not None and not self._pod.spec.node_name:
            body = decode_body(record)
            assert isinstance(body, ConfigurationLoaded)
            source = f" from {body.source}" if body.source else ""
            text = f"a configuration was loaded{source}: all pending pods are retried"
            self._add(record, "configured", text)

    def _add(self, record: Record, what: str, text: str, **more: Any) -> StoryEntry:
        entry = StoryEntry(
            seq=record.seq,
            at=record.at,
            what=what,
            text=text,
            number=self._number(more.get("attempt", 0)),
            **more,
        )
        self.entries.append(entry)
        if what != "woken":
            self._folding = entry if what == "attempt" else None
        return entry

    def _add_place(
        self, record: Record, body: Scheduled | Waiting | Reserved, what: str, text: str, *notes: str
    ) -> None:
        told = (*notes, *map(_fallback, body.fallback))
        self._add(record, what, text, attempt=body.attempt, node=body.node, notes=told)

    def _number(self, attempt: int) -> int:
        """The number of an attempt among those of the pod; one that came to several entries has one number."""
        if not attempt:
            return 0
        if attempt not in self._numbers:
            self._numbers[attempt] = self._attempts + len(self._numbers) + 1
        return self._numbers[attempt]

    # --- what woke it -----------------------------------------------------------------------------------------------------

    def _tell_moves(self, record: Record) -> None:
        said = [(p, e, a) for _, p, e, a in self._heard]
        for _, plugin, event, answer in self._heard:
            about = short(record.key) if record.kind not in OUTCOME_KINDS or record.key != self.key else ""
            self.judged.append(
                JudgedEvent(
                    seq=record.seq, event=event_name(event), object=about, plugin=plugin, answer=answer
                )
            )
            self.slept_through += answer == "QueueSkip"
        for where, event, gate in self._entered:
            self._move(record, where, event, gate, said)
        self._heard.clear()
        self._entered.clear()

    def _move(
        self,
        record: Record,
        where: Where,
        event: ClusterEvent,
        gate: str,
        said: Sequence[tuple[str, ClusterEvent, str]],
    ) -> None:
        label = event.custom_label or event.label
        if gate:
            if not self.entries or self.entries[-1].text != f"kept out of the queue by {gate}":
                self._add(record, "gated", f"kept out of the queue by {gate}")
            return
        if where is Where.UNSCHEDULABLE or label in (
            "UnscheduledPodAdd",
            "BackoffComplete",
            "PopFromBackoffQ",
        ):
            return
        place = "the active queue" if where is Where.ACTIVE else "backoff"
        if label == "ScheduleAttemptFailure":
            helpful = [f"{event_name(e)} ({p})" for p, e, a in said if a != "QueueSkip"]
            if helpful:
                text = f"what happened during the attempt may help: {', '.join(dict.fromkeys(helpful))}; into {place}"
                self._add(record, "woken", text, woken_by=dict(Counter(helpful)))
            return
        if label == "AttemptAborted":
            return
        plugins = [p for p, e, a in said if e == event and a != "QueueSkip"]
        by = f"{', '.join(dict.fromkeys(plugins))} says that may help" if plugins else "no hint was asked"
        cause = (
            "it waited too long"
            if label == "UnschedulableTimeout"
            else f"{event_name(event)} {short(record.key)}".strip()
        )
        text = f"{cause}: {by}; into {place}"
        name = f"{event_name(event)}" + (f" ({plugins[0]})" if plugins else "")
        self._add(record, "woken", text, woken_by={name: 1})

    # --- records about it ---------------------------------------------------------------------------------------------------

    def _about(self, record: Record, body: Body) -> None:
        match body:
            case ObjectPut():
                self._put(record, body.object)
            case ObjectDeleted():
                if record.key == self.key:
                    self._pod = None
                    self._add(record, "deleted", f"deleted (by {record.author})")
            case PodConditionSet():
                said = body.condition
                reason = f" ({said.reason})" if said.reason else ""
                self._add(record, "condition", f"{record.author} set {said.type}={said.status}{reason}")
            case Scheduled():
                group = f", with its group {short(body.group)}" if body.group else ""
                chosen = f": score {body.score} among {body.feasible} nodes" if body.feasible > 1 else ""
                self._add_place(record, body, "scheduled", f"placed on {body.node}{chosen}{group}")
            case Unschedulable():
                self._rejected(record, body)
            case Waiting():
                wait = format_duration(body.deadline - record.at)
                text = (
                    f"resources reserved on {body.node}; waits for {', '.join(body.plugins)}, at most {wait}"
                )
                self._add_place(record, body, "waiting", text)
            case Reserved():
                wait = format_duration(body.deadline - record.at)
                chosen = f": score {body.score} among {body.feasible} nodes" if body.feasible > 1 else ""
                text = f"its place is {body.node}{chosen}; bound when {_wanted(body)}, at most {wait}"
                self._add_place(record, body, "reserved", text, *map(_written, body.writes))
            case AttemptAborted():
                because = f" (record {body.conflict})" if body.conflict else ""
                at = f" on {body.node}" if body.node else ""
                text = f"called off{at}: {body.reason}{because}; retried at once"
                self._add(record, "aborted", text, attempt=body.attempt)
            case AttemptError():
                by = f"{body.plugin}: " if body.plugin else ""
                self._add(record, "error", f"failed: {by}{body.message}", attempt=body.attempt)
            case Nominated() | Evicted() | EvictionRefused() | PlacementChosen():
                self._preemption(record, body)
            case ObjectUnread() if record.key == self.key:
                text = f"a version that this tidelog cannot read ({body.resource_version}): {body.error}"
                self._add(record, "unread", text)
            case WriteFailed():
                code = f" ({body.code})" if body.code else ""
                why = body.reason or body.message
                self._add(record, "refused", f"the API server did not take the {body.effect}{code}: {why}")
            case _:
                pass

    def _put(self, record: Record, new: object) -> None:
        if record.key != self.key:
            return
        assert isinstance(new, Pod)
        old, self._pod = self._pod, new
        self._group = group_record_key(new)
        if old is None:
            priority = f", priority {new.spec.priority}" if new.spec.priority else ""
            on = f", on node {new.spec.node_name}" if new.spec.node_name else ""
            of = f", of {short(self._group)}" if self._group else ""
            self._add(record, "created", f"created{priority}{of}{on}")
            return
        message = (
            rejection_shown(old, new)
            if self.core.promises.log_id and not self.core.promises.keeping
            else None
        )
        if message is not None:
            nominated = new.status.nominated_node_name
            room = (
                f"; room is made on {nominated}" if nominated and not old.status.nominated_node_name else ""
            )
            self._add(record, "rejected", f"rejected by {new.spec.scheduler_name}: {message}{room}")
        changed = ", ".join(_changes(old, new))
        if changed:
            self._add(record, "updated", f"{record.author} changed {changed}")

    def _rejected(self, record: Record, body: Unschedulable) -> None:
        content = body
        if body.same_as and self._rejection is not None:
            content = self._rejection
        elif not body.same_as:
            self._rejection = body
        rejections = tuple(
            Rejected(plugin=r.plugin, reason=r.reason, nodes=r.nodes) for r in content.rejections
        )
        last = self._folding
        who = "its group was " if record.key != self.key else ""
        text = f"{who}rejected: {content.message}" if content.message else f"{who}rejected, as before"
        notes = [*content.explanation, *map(_fallback, content.fallback)]
        if content.blocked_by:
            notes.append(
                f"disruption budgets that kept it from preempting: {', '.join(map(short, content.blocked_by))}"
            )
        if last is not None and (last.text, last.rejections) == (text, rejections):
            self._fold(last, record, body.attempt)
            return
        self._add(
            record,
            "attempt",
            text,
            attempt=body.attempt,
            nodes=content.nodes,
            rejections=rejections,
            notes=tuple(notes),
        )

    def _fold(self, last: StoryEntry, record: Record, attempt: int) -> None:
        """The same answer once more: what woke the pod in between goes into the attempt's entry."""
        woken = Counter(last.woken_by)
        while self.entries[-1] is not last:
            woken.update(self.entries.pop().woken_by)
        last.woken_by = dict(woken)
        last.count += 1
        self._number(attempt)
        last.last_seq, last.last_at = record.seq, record.at

    def _preemption(
        self, record: Record, body: Nominated | Evicted | EvictionRefused | PlacementChosen
    ) -> None:
        if isinstance(body, PlacementChosen):
            self._placement(record, body)
        elif isinstance(body, Nominated):
            self._nomination(record, body)
        elif record.key == self.key:
            self._add(
                record,
                "evicted",
                f"{_eviction(body)}, to make room for {short(body.preemptor)}: {body.message}",
                node=body.node if isinstance(body, Evicted) else "",
            )
        elif body.preemptor in (self.key, self.name):
            done = "evicts" if isinstance(body, Evicted) else "may not evict"
            self._add(record, "preemption", f"{done} {short(record.key)} from {body.node}", node=body.node)

    def _placement(self, record: Record, body: PlacementChosen) -> None:
        node = body.assignment.get(self.key, "")
        if not node and not (self._group and record.key == self._group):
            return
        where = f"; it goes to {node}" if node else "; there is no room for it there"
        part = body.placement or "the whole cluster"
        text = f"its group was given {part}, one of {body.candidates} that could take it{where}"
        self._add(record, "placement", text, attempt=body.attempt, node=node, notes=body.explanation)

    def _nomination(self, record: Record, body: Nominated) -> None:
        if self.key in body.cleared:
            self._add(record, "nominated", f"lost its nomination to {body.node} to {short(record.key)}")
        if record.key != self.key:
            return
        if not body.node:
            self._add(record, "nominated", "its nomination was taken back")
            return
        victims = f", for which {', '.join(map(short, body.victims))} must go" if body.victims else ""
        broken = f", {body.violations} of them against a disruption budget" if body.violations else ""
        among = f" ({body.candidates} nodes were possible)" if body.candidates > 1 else ""
        text = f"nominated to {body.node}{victims}{broken}{among}"
        self._add(record, "nominated", text, node=body.node, notes=tuple(self._why_these(body)))

    def _why_these(self, body: Nominated) -> Iterator[str]:
        """Tell why these pods have to go and not others."""
        for key in body.victims:
            victim = self.core.cluster.pod(key)
            if victim is not None:
                yield f"{short(key)} has priority {victim.spec.priority or 0}"
        if self._rule:
            yield self._rule
        if body.spared:
            yield f"of lower priority and on the node, but can stay: {', '.join(map(short, body.spared))}"


def _eviction(body: Evicted | EvictionRefused) -> str:
    """Describe the eviction."""
    if isinstance(body, EvictionRefused):
        return f"its eviction from {body.node} was refused because of {short(body.budget) or 'a budget'}"
    return f"{'preempted' if body.method == 'delete' else 'evicted'} from {body.node}"


def _fallback(fallback: Fallback) -> str:
    """One spread constraint that was only preferred."""
    why = f" ({fallback.reason})" if fallback.reason else ""
    return f"spread over {fallback.topology_key} was only preferred, by {', '.join(fallback.criteria)}{why}"


def _changes(old: Pod, new: Pod) -> Iterator[str]:
    """Which parts of the pod an update changed, in words."""
    if new.metadata.deletion_timestamp and not old.metadata.deletion_timestamp:
        yield f"its fate: it is to be gone by {new.metadata.deletion_timestamp}"
    if old.spec.node_name != new.spec.node_name:
        yield f"its node to {new.spec.node_name or 'none'}"
    if old.status.phase != new.status.phase:
        yield f"its phase to {new.status.phase}"
    for part, before, after in (("metadata", old.metadata, new.metadata), ("spec", old.spec, new.spec)):
        ignored = {"node_name", "deletion_timestamp", "deletion_grace_period_seconds", "resource_version"}
        for field in cast("Any", before).__struct_fields__:
            if field not in ignored and getattr(before, field) != getattr(after, field):
                yield f"{part}.{_camel(field)}"


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _wanted(body: Reserved) -> str:
    count = len(body.writes)
    return f"{'the write' if count == 1 else f'the {count} writes'} for {', '.join(body.plugins)} {'is' if count == 1 else 'are'} answered"


def _written_to_claim(write: Write) -> str:
    """Which devices the claim gets, and for whom."""
    status, claim = write.patch.get("status", {}), short(write.key)
    if "allocation" in status and status["allocation"] is None:
        return f"gives the devices of {claim} back: nobody uses them, and no node that would do reaches them"
    devices = (status.get("allocation") or {}).get("devices", {}).get("results", ())
    named = [f"{one['driver']}/{one['pool']}/{one['device']}" for one in devices]
    users = ", ".join(f"{one['resource']} {one['name']}" for one in status.get("reservedFor") or ())
    if named:
        return f"gives {', '.join(named)} to {claim}" + (f", for {users}" if users else "")
    if users:
        return f"reserves {claim} for {users}"
    if "finalizers" in write.patch.get("metadata", {}):
        return f"keeps {claim} from being deleted while it has devices"
    return f"changes {', '.join(write.patch)} of {claim}"


def _written(write: Write) -> str:
    if write.verb != "patch":
        return f"{write.verb}s {short(write.key)}"
    ref = write.patch.get("spec", {}).get("claimRef")
    if ref:
        return f"binds {short(write.key)} to claim {ref.get('namespace', '')}/{ref.get('name', '')}"
    chosen = write.patch.get("metadata", {}).get("annotations", {}).get(SELECTED_NODE)
    if chosen:
        return f"selects node {chosen} for {short(write.key)}"
    if write.key.startswith("ResourceClaim/"):
        return _written_to_claim(write)
    return f"changes {', '.join(write.patch)} of {short(write.key)}"

"""A log as the page scrubs through it: chunks, each a state and what every record after it changed.

    chunk   first record, the rows of everything before it, then a step a record
    step    the record in a line, and the new rows of what it changed; None for what is gone

The page shows any moment from the chunk that holds it: the state, and the steps up to the record. A chunk ends when its steps weigh as much
as the next state would, so states never double what the steps cost, however large the cluster is. Beside the chunks stand what must be known
of the whole log at once: how long the queues were (`Backlog`), and which pod was where from when to when (`Span`).

A fold follows a log that grows: it consumes a record as soon as that is certain (`tidelog.scheduler.recovery`). A record costs what recovery
costs, and some ten microseconds for each row that it changes.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tidelog.api.errors import LogError
from tidelog.cli.text.records import in_a_few_words
from tidelog.eventlog.records import (
    AttemptAborted,
    Body,
    Evicted,
    Nominated,
    Outcome,
    PlacementChosen,
    Record,
    Scheduled,
    Unschedulable,
    decode_body,
)
from tidelog.framework.events import ClusterEvent
from tidelog.page.lines import Lines, binned
from tidelog.page.rows import PodRow, Row, in_ms, row_of
from tidelog.page.stories import Stories
from tidelog.queue.entity import AnyEntity, QueuedGroup, QueuedPod, Where
from tidelog.replay.words import event_name
from tidelog.scheduler.core import Core
from tidelog.scheduler.recorded import RecordedAttempt
from tidelog.scheduler.recovery import Recovery

CHUNK_BYTES_MIN = 200_000
"""Steps of a chunk weigh at least so much; arbitrary, a few milliseconds of a browser's."""

SHOWN = ("Pod", "Node", "PodDisruptionBudget", "PodGroup")
"""Kinds that have rows."""

WAITING_PLACES = ("active", "backoff", "unschedulable", "gated", "in flight", "permit", "answers")
"""The places that are counted over time."""

PROMISED = ("permit", "answers")
"""Places of pods that have a node, and are not on it yet."""

EXACT_MARKS = ("preempted", "fell back", "group placed")
EXACT_MAX = 20_000
"""Of these marks the page knows the very records, up to so many."""

_encode = msgspec.json.Encoder(order="deterministic").encode


class Wake(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The effect of a record on a pod that waited."""

    pod: str
    event: str
    into: str
    plugins: tuple[str, ...] = ()
    """The plugins whose hints said that it may help; none: no hint was asked."""


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record, and the state after it."""

    seq: int
    at: float
    kind: str
    key: str = ""
    author: str = ""
    cause: int = 0
    text: str = ""
    mark: str = ""
    """`bound`, `preempted`, `fell back`, `aborted`, `group placed` or `rejected`."""
    node: str = ""
    by: str = ""
    """The preemptor of a pod that has to go."""
    rows: dict[str, Row | None] = {}
    woken: tuple[Wake, ...] = ()


class Span(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A pod on a node, from when to when."""

    pod: str
    node: str
    first: int
    since: float
    last: int = 0
    """The record that ended it; 0: it is there still."""
    until: float = 0
    preempted_by: str = ""


class ChunkInfo(NamedTuple):
    """Where a chunk stands."""

    first: int
    last: int
    begins: float
    ends: float


class _Chunk(msgspec.Struct):
    """A chunk's steps, as they were encoded."""

    steps: list[msgspec.Raw]


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


class Backlog:
    """How many pods were in which place after each record, and the marks."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.at: list[float] = []
        self.counts: dict[str, list[int]] = {place: [] for place in WAITING_PLACES}
        self.marks: list[tuple[int, str]] = []
        self.lines = Lines()

    def add(self, seq: int, at: float, now: dict[str, int]) -> None:
        """Note the state after a record."""
        self.seqs.append(seq)
        self.at.append(at)
        for place, counts in self.counts.items():
            counts.append(now.get(place, 0))
        self.lines.close(seq)

    def binned(self, bins: int) -> dict[str, Any]:
        """Sum up in so many equal runs of records: of each the last moment, the largest count of a place, and the number of marks."""
        size = max(-(-len(self.seqs) // bins), 1)
        starts = range(0, len(self.seqs), size)
        marks: dict[str, dict[int, int]] = {}
        first = self.seqs[0] if self.seqs else 0
        for seq, mark in self.marks:
            counts = marks.setdefault(mark, {})
            place = (seq - first) // size
            counts[place] = counts.get(place, 0) + 1
        return {
            "seqs": [self.seqs[min(start + size, len(self.seqs)) - 1] for start in starts],
            "at": [self.at[min(start + size, len(self.at)) - 1] for start in starts],
            "places": {
                place: [max(counts[start : start + size]) for start in starts]
                for place, counts in self.counts.items()
            },
            "marks": {mark: sorted(counts.items()) for mark, counts in sorted(marks.items())},
            "exact": {
                rare: [seq for seq, mark in self.marks if mark == rare][:EXACT_MAX] for rare in EXACT_MARKS
            },
            "zones": binned(self.lines.zones, first, size),
            "budgets": binned(self.lines.budgets, first, size),
        }


class _Listener:
    """Hears from the queue which entities moved and why."""

    def __init__(self, stories: Stories | None) -> None:
        self.stories = stories
        self.answers: list[tuple[str, str, ClusterEvent, str]] = []
        self.moves: list[tuple[AnyEntity, Where, ClusterEvent]] = []

    def hint_answered(self, waiting: QueuedPod, plugin: str, event: ClusterEvent, answer: str) -> None:
        if answer != "QueueSkip":
            self.answers.append((waiting.key, plugin, event, answer))
        if self.stories is not None:
            self.stories.hint_answered(waiting, plugin, event, answer)

    def entered(self, entity: AnyEntity, event: ClusterEvent) -> None:
        self.moves.append((entity, entity.where, event))
        if self.stories is not None:
            self.stories.entered(entity, event)


class Fold:
    """Chunks of a log, growing. `core` has consumed everything before the first record that will be added."""

    def __init__(self, core: Core, stories: Stories | None = None) -> None:
        """`stories` are told as well, on the same way through the log."""
        self.core = core
        self.stories = stories
        self.infos: list[ChunkInfo] = []
        self.spans: list[Span] = []
        self.backlog = Backlog()
        self.seq = core.seq
        """The last record that has a step."""
        self.rows: dict[str, Row] = {}
        """The state after it."""
        self._packed: list[bytes] = []
        self._frame = b"{}"
        self._steps: list[bytes] = []
        self._weight = 0
        self._first = core.seq + 1
        self._begins = in_ms(core.at)
        self._on_node: dict[str, Span] = {}
        self._preempted_by: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._touched: dict[str, None] = {}
        self._listener = _Listener(stories)
        self._recovery = Recovery(core, self._made)
        self._listen()
        for key in core.objects:
            if key.partition("/")[0] in SHOWN:
                self._change(key, core.seq, in_ms(core.at))
        self._frame = _encode(self.rows)

    @property
    def read(self) -> int:
        """The last record that was added, certain or not."""
        return self._recovery.read

    # --- growing ------------------------------------------------------------------------------------------------------

    def add(self, records: Iterable[Record]) -> Iterator[int]:
        """Take the next records; yields the number of each that is certain, when it has its step."""
        self._recovery.add(records)
        yield from self._stepped(self._recovery.advance())

    def finish(self) -> Iterator[int]:
        """Take what is left: the log has no writer, so nothing in flight at its end will come to anything."""
        yield from self._stepped(self._recovery.finish())

    def _stepped(self, records: Iterator[tuple[Record, Body]]) -> Iterator[int]:
        for record, body in records:
            self._step(record, body)
            yield record.seq

    def _made(self, made: RecordedAttempt) -> None:
        for key, body in made.bodies():
            self._touch(key, body)
        if self.stories is not None:
            self.stories.made(made)

    def _listen(self) -> None:
        self.core.queue.observe(self._listener)

    def _step(self, record: Record, body: Body) -> None:
        at = in_ms(record.at)
        if record.kind == "ConfigurationLoaded":
            self._listen()
            self._touched.update(dict.fromkeys(key for key in self.rows if key.startswith("Pod/")))
        else:
            self._touch(record.key, body)
        if self.stories is not None:
            self.stories.hear(record, body)
        woken = tuple(self._heard())
        rows: dict[str, Row | None] = {}
        for key in self._touched:
            before = self.rows.get(key)
            after = self._change(key, record.seq, at)
            if after != before:
                rows[key] = after
        self._touched.clear()
        mark = _mark(body)
        if mark:
            self.backlog.marks.append((record.seq, mark))
        step = replace(
            line_of(record, body),
            mark=mark,
            node=getattr(body, "node", ""),
            by=body.preemptor.partition("/")[2] if isinstance(body, Evicted) else "",
            rows=rows,
            woken=woken,
        )
        self._keep(step)

    def _touch(self, key: str, body: Body | Outcome) -> None:
        """Note whose rows may be others now."""
        keys = [
            key,
            *getattr(body, "members", ()),
            *getattr(body, "cleared", ()),
            *getattr(body, "victims", ()),
        ]
        keys += [*getattr(body, "assignment", ()), *getattr(body, "budgets", ())]
        if isinstance(body, Evicted):
            self._preempted_by[key] = body.preemptor.partition("/")[2]
        self._touched.update(dict.fromkeys(k for k in keys if k.partition("/")[0] in SHOWN))
        group = key.partition("/")[2] if key.startswith("PodGroup/") else ""
        queued = self.core.queue.get_group(group) if group else None
        if queued is not None:
            self._touched.update(dict.fromkeys(f"Pod/{name}" for name in _members(queued)))

    def _heard(self) -> Iterator[Wake]:
        """Tell what moved, and note whose rows are others by that."""
        listener = self._listener
        for entity, where, event in listener.moves:
            names = _members(entity) if isinstance(entity, QueuedGroup) else (entity.key,)
            self._touched.update(dict.fromkeys(f"Pod/{name}" for name in names))
            if where not in (Where.ACTIVE, Where.BACKOFF) or event.custom_label in _NOT_WOKEN:
                continue
            for name in names:
                plugins = [p for key, p, e, _ in listener.answers if key == name and e == event]
                yield Wake(
                    pod=name,
                    event=event.custom_label or event_name(event),
                    into=where.value,
                    plugins=tuple(dict.fromkeys(plugins)),
                )
        listener.moves.clear()
        listener.answers.clear()

    def _change(self, key: str, seq: int, at: float) -> Row | None:
        """Bring the row up to date, and what is counted over time with it."""
        before, after = self.rows.get(key), row_of(self.core, key)
        if after is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = after
        if isinstance(before, PodRow):
            self._counts[before.where] -= 1
        if isinstance(after, PodRow):
            self._counts[after.where] = self._counts.get(after.where, 0) + 1
        if isinstance(before, PodRow) or isinstance(after, PodRow):
            node = after.node if isinstance(after, PodRow) and after.where not in PROMISED else ""
            self._move(key, node, seq, at)
        if after != before:
            self.backlog.lines.changed(key, before, after, seq)
        return after

    def _move(self, key: str, node: str, seq: int, at: float) -> None:
        name, span = key.partition("/")[2], self._on_node.get(key)
        if span is not None and span.node != node:
            span.last, span.until = seq, at
            span.preempted_by = self._preempted_by.pop(key, "")
            del self._on_node[key]
        if node and key not in self._on_node:
            found = self._on_node[key] = Span(pod=name, node=node, first=seq, since=at)
            self.spans.append(found)

    # --- chunks -------------------------------------------------------------------------------------------------------

    def _keep(self, step: Step) -> None:
        data = _encode(step)
        self._steps.append(data)
        self._weight += len(data)
        self.seq = step.seq
        self.backlog.add(step.seq, step.at, self._counts)
        if self._weight > max(CHUNK_BYTES_MIN, len(self._frame)):
            self.infos.append(ChunkInfo(self._first, step.seq, self._begins, step.at))
            self._packed.append(gzip.compress(self._open_chunk(), 6, mtime=0))
            self._frame = _encode(self.rows)
            self._steps, self._weight = [], 0
            self._first, self._begins = step.seq + 1, step.at

    def _open_chunk(self) -> bytes:
        """Return the chunk that is not full yet, as JSON."""
        head = f'{{"first":{self._first},"frame":'.encode()
        return b"".join((head, self._frame, b',"steps":[', b",".join(self._steps), b"]}"))

    def chunks(self) -> list[ChunkInfo]:
        """Return where the chunks stand, the open one included."""
        open_chunk = ChunkInfo(self._first, self.seq, self._begins, in_ms(self.core.at))
        return [*self.infos, *([open_chunk] if self._steps or not self.infos else [])]

    def chunk(self, number: int) -> bytes:
        """Return a chunk as JSON, gzipped. Costs a compression for the open one only."""
        if number < len(self._packed):
            return self._packed[number]
        return gzip.compress(self._open_chunk(), 1, mtime=0)

    def steps(self, number: int, after: int) -> bytes:
        """Return a chunk's steps after a record as JSON, without the state: what somebody lacks who has the chunk as far as there."""
        first, steps = self._first, self._steps
        if number < len(self._packed):
            first = self.infos[number].first
            steps = [bytes(step) for step in _decode_chunk(gzip.decompress(self._packed[number])).steps]
        return b'{"steps":[' + b",".join(steps[max(after + 1 - first, 0) :]) + b"]}"


_NOT_WOKEN = (
    "UnscheduledPodAdd",
    "BackoffComplete",
    "PopFromBackoffQ",
    "ScheduleAttemptFailure",
    "AttemptAborted",
)
"""Labels of moves that no event of the cluster caused."""


def line_of(record: Record, body: Body | None = None) -> Step:
    """Return the record in a line, without what it changed."""
    body = body or _decoded(record)
    return Step(
        seq=record.seq,
        at=in_ms(record.at),
        kind=record.kind,
        key=record.key,
        author=record.author,
        cause=record.cause,
        text="(of a newer tidelog)" if body is None else in_a_few_words(body, record.at),
    )


def _members(group: QueuedGroup) -> Sequence[str]:
    return [*group.members, *(pod.key for pod in group.popped)]


def _decoded(record: Record) -> Body | None:
    try:
        return decode_body(record)
    except LogError:
        return None


def _mark(body: Body | None) -> str:
    match body:
        case Scheduled(group=group):
            return "fell back" if body.fallback else ("" if group else "bound")
        case PlacementChosen():
            return "group placed"
        case Evicted():
            return "preempted"
        case Nominated(fallback=fallback) if fallback:
            return "fell back"
        case AttemptAborted():
            return "aborted"
        case Unschedulable(same_as=0):
            return "rejected"
        case _:
            return ""

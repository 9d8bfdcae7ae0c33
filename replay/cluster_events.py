"""Events of a whole log, as `kubectl get events` lists them: one for each reason and message of an object, with a count. Made of the outcomes.

The words are in `tidelog.kube.events`. Costs a microsecond or two a record.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidelog.eventlog.records import (
    OUTCOME_KINDS,
    AttemptError,
    Body,
    Evicted,
    EvictionRefused,
    Nominated,
    Record,
    Reserved,
    Scheduled,
    Unschedulable,
    Waiting,
    decode_body,
)
from tidelog.kube.events import (
    Saying,
    eviction_refused,
    nominated,
    preempted,
    rejected,
    reserved,
    scheduled,
    waiting,
)


class ToldEvent(msgspec.Struct, kw_only=True):
    """The same thing said of an object, once or several times."""

    type: str
    reason: str
    object: str
    """Key of the object that it is about."""
    message: str
    count: int
    seq: int
    """The last record that says so."""
    at: int
    """When it was said first."""
    last_at: int


class EventTable:
    """The events of the records that it was given, in order."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Saying], ToldEvent] = {}
        self._last: dict[str, str] = {}
        """Object → its last rejection, which a repetition leaves out."""
        self.unknown: dict[int, list[ToldEvent]] = {}
        """Record → events whose message it has, which is older than the records that were given."""

    def add(self, record: Record) -> None:
        """Take what the record says."""
        if record.kind not in OUTCOME_KINDS:
            return
        body = decode_body(record)
        if isinstance(body, Unschedulable) and body.same_as:
            self._again(record, body)
            return
        for key, saying in _sayings(record.key, body):
            if isinstance(body, Unschedulable | AttemptError):
                self._last[key] = saying.note
            self._count(key, saying, record)

    def _again(self, record: Record, body: Unschedulable) -> None:
        message = self._last.get(record.key)
        event = self._count(record.key, rejected(message or ""), record)
        if message is None and event.count == 1:
            self.unknown.setdefault(body.same_as, []).append(event)

    def _count(self, key: str, saying: Saying, record: Record) -> ToldEvent:
        found = self._found.get((key, saying))
        if found is None:
            found = self._found[key, saying] = ToldEvent(
                type=saying.type, reason=saying.reason, object=key, message=saying.note,
                count=0, seq=0, at=record.at, last_at=0,
            )  # fmt: skip
        found.count += 1
        found.seq, found.last_at = record.seq, record.at
        return found

    def events(self) -> list[ToldEvent]:
        """All of them, the one that was said last at the end."""
        return sorted(self._found.values(), key=lambda event: event.seq)


def _sayings(key: str, body: Body) -> Iterator[tuple[str, Saying]]:
    match body:
        case Scheduled():
            _, namespace, name = key.split("/")
            yield key, scheduled(namespace, name, body.node)
        case Unschedulable() | AttemptError():
            for member in body.members or (key,):
                yield member, rejected(body.message)
        case Waiting():
            yield key, waiting(body.node, body.plugins)
        case Reserved():
            yield key, reserved(body.node, len(body.writes))
        case Nominated() if body.node:
            yield key, nominated(body.node, [victim.partition("/")[2] for victim in body.victims])
        case Evicted():
            yield key, preempted(body.preemptor.partition("/")[2], body.node)
        case EvictionRefused():
            preemptor, why = body.preemptor.partition("/")[2], body.message or body.budget
            yield key, eviction_refused(preemptor, body.node, why)
        case _:
            return

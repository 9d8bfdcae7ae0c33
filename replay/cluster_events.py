"""Events of a whole log, as `kubectl get events` lists them: one for each reason and message of an object, with a count. Made of the outcomes.

The words are those of `tidelog describe`: a scheduler that decides says `Scheduled`, `FailedScheduling`, `Preempted`; what else an outcome tells has
words of ours. Costs a microsecond or two a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

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

NORMAL, WARNING = "Normal", "Warning"


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


class _Said(NamedTuple):
    object: str
    type: str
    reason: str
    message: str


class EventTable:
    """The events of the records that it was given, in order."""

    def __init__(self) -> None:
        self._found: dict[_Said, ToldEvent] = {}
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
        for said in _said(record.key, body):
            if said.reason == "FailedScheduling":
                self._last[said.object] = said.message
            self._count(said, record)

    def _again(self, record: Record, body: Unschedulable) -> None:
        message = self._last.get(record.key)
        event = self._count(_Said(record.key, WARNING, "FailedScheduling", message or ""), record)
        if message is None and event.count == 1:
            self.unknown.setdefault(body.same_as, []).append(event)

    def _count(self, said: _Said, record: Record) -> ToldEvent:
        found = self._found.get(said)
        if found is None:
            found = self._found[said] = ToldEvent(
                type=said.type, reason=said.reason, object=said.object, message=said.message,
                count=0, seq=0, at=record.at, last_at=0,
            )  # fmt: skip
        found.count += 1
        found.seq, found.last_at = record.seq, record.at
        return found

    def events(self) -> list[ToldEvent]:
        """All of them, the one that was said last at the end."""
        return sorted(self._found.values(), key=lambda event: event.seq)


def _said(key: str, body: Body) -> Iterator[_Said]:
    name = key.partition("/")[2]
    match body:
        case Scheduled():
            yield _Said(key, NORMAL, "Scheduled", f"Successfully assigned {name} to {body.node}")
        case Unschedulable():
            for member in body.members or (key,):
                yield _Said(member, WARNING, "FailedScheduling", body.message)
        case AttemptError():
            for member in body.members or (key,):
                yield _Said(member, WARNING, "FailedScheduling", body.message)
        case Waiting():
            yield _Said(key, NORMAL, "WaitingOnPermit", f"on {body.node}, for {', '.join(body.plugins)}")
        case Reserved():
            yield _Said(key, NORMAL, "WaitingForAnswers", f"on {body.node}, for {len(body.writes)} writes")
        case Nominated() if body.node:
            victims = ", ".join(victim.partition("/")[2] for victim in body.victims)
            yield _Said(
                key, NORMAL, "Nominated", f"to {body.node}" + (f", in place of {victims}" if victims else "")
            )
        case Evicted():
            by = body.preemptor.partition("/")[2]
            yield _Said(key, NORMAL, "Preempted", f"Preempted by pod {by} on node {body.node}")
        case EvictionRefused():
            why = body.message or body.budget
            yield _Said(
                key,
                WARNING,
                "EvictionRefused",
                f"on {body.node}, for {body.preemptor.partition('/')[2]}: {why}",
            )
        case _:
            return

"""A copy of a log without names: to be shared, and yet the same story.

Every name (of objects, namespaces, labels and their values, taints, images, containers, gates, …) is replaced by a number, the same name by
the same number everywhere, and in such a way that names sort as they did. Annotations, descriptions and messages are dropped. What is kept is
what Kubernetes itself has coined, its resources and all amounts, times, and the configuration, except for the place it was read from and the extended resources that it names; also the
CEL expressions of device selectors, and the names of drivers and attributes that these speak of; and, where ties between equal nodes follow
the pods' names, ten bits of a hash of each pod's.

The outcomes are not translated but decided anew, attempt by attempt, from the redacted facts: so no text of theirs can give anything away, and
the copy verifies. Each must be the recorded one under the new names; where one is not, nothing is written, because a decision then depended
on a name in a way that renaming does not keep. Of a compacted log the copy begins with the state that is left, renamed too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidelog.api.errors import TidelogError
from tidelog.api.objects import Condition, Object, Pod
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import (
    OUTCOME_KINDS,
    Draft,
    Fact,
    LossAccepted,
    ObjectPut,
    Outcome,
    Record,
    Unschedulable,
    decode_body,
    decode_outcome,
)
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.files import FirstState
from tidelog.replay.playback import Beginning
from tidelog.replay.redact_beginning import collect_names, renamed_beginning
from tidelog.replay.redact_names import NumberedNames
from tidelog.replay.verify import PROGRESS_EVERY, Progress
from tidelog.scheduler.recorded import RecordedAttempts, following


class Redacted(msgspec.Struct, frozen=True, kw_only=True):
    """The copy."""

    records: list[Record]
    names: int
    """How many names were replaced."""
    first: FirstState | None = None
    """Where the records begin, if not with a log's first."""


def redact(
    records: Sequence[Record],
    registry: Registry,
    progress: Progress | None = None,
    *,
    beginning: Beginning | None = None,
) -> Redacted:
    """A copy of these records without names. They are a log's from its first; `beginning` is where they begin if those before are gone.

    Raises TidelogError if a decision of the copy is another one, which it also is if the log itself does not verify.
    """
    names = NumberedNames()
    if beginning is not None:
        collect_names(beginning, names)
    for number, record in enumerate(records):
        if progress is not None and number % PROGRESS_EVERY == 0:
            progress(number, len(records))
        if record.kind not in OUTCOME_KINDS:
            with following(record):
                names.key(record.key)
                names.body(record)
    names.settle()
    retelling = _Retelling(records, registry, names, beginning)
    return Redacted(records=retelling.run(progress), names=len(names), first=retelling.first)


class _Retelling:
    """The redacted facts, and the decisions made anew in the same places."""

    def __init__(
        self,
        records: Sequence[Record],
        registry: Registry,
        names: NumberedNames,
        beginning: Beginning | None,
    ) -> None:
        self.records = records
        self.names = names
        self.first: FirstState | None = None
        self.rejections: dict[int, Unschedulable] = {}
        """Rejections that only the beginning tells, by the number of their record …"""
        self.told_again: dict[int, int] = {}
        """… and the record of the copy that tells them again."""
        if beginning is None:
            self.driver = Driver(registry)
            self.recorded = ObjectTable()
        else:
            core, self.first = renamed_beginning(beginning, names, registry)
            self.driver = Driver(core=core, digest=self.first.anchor.digest)
            self.recorded = ObjectTable.decode(beginning.objects)
            self.rejections = beginning.core.last_rejections()
        self.ahead = RecordedAttempts(records)
        lost = {record.seq for record in records if record.kind == LossAccepted.__name__}
        self.cut = {
            made.attempt: len(made.outcomes) for made in self.ahead if made.outcomes[-1][0].seq + 1 in lost
        }
        """Attempts of which a repair left so many outcomes, or perhaps all."""

    def run(self, progress: Progress | None) -> list[Record]:
        for number, record in enumerate(self.records):
            with following(record):
                self._retell(record)
            if progress is not None and number % PROGRESS_EVERY == 0:
                progress(number, len(self.records))
        return self.driver.records

    def _retell(self, record: Record) -> None:
        driver = self.driver
        for made in self.ahead.due(driver.core.seq):
            driver.now = made.at
            if driver.attempt() is None:
                raise self._another(record)
        driver.now = record.at
        if record.kind in OUTCOME_KINDS:
            if driver.core.seq < record.seq:
                if not driver.submitted:
                    raise self._another(record)
                driver.commit(1, self.cut.get(driver.submitted[0].attempt))
            self._check(record)
        else:
            draft = Draft(
                body=self._fact(record),
                author=record.author,
                key=self.names.key(record.key),
                cause=record.cause,
            )
            driver.append(draft)
        self.recorded.apply(record)

    def _fact(self, record: Record) -> Any:
        body = decode_body(record)
        assert isinstance(body, Fact)
        plain = self.names.body(record)
        if isinstance(body, ObjectPut):
            type_: Any = type(body.object)
            renamed = msgspec.convert(plain["object"], type_)
            return ObjectPut(object=self._with_conditions(record.key, body.object, renamed))
        return msgspec.convert(plain, type(body))

    def _with_conditions(self, key: str, put: Object, renamed: Object) -> Object:
        """Conditions that the put only carries along keep the text that they have in this copy."""
        before, current = self.recorded.get(key), self.driver.core.objects.get(self.names.key(key))
        if not isinstance(put, Pod) or not isinstance(before, Pod) or not isinstance(current, Pod):
            return renamed
        assert isinstance(renamed, Pod)
        old = {c.type: c for c in before.status.conditions}
        here = {c.type: c for c in current.status.conditions}
        conditions: list[Condition] = []
        for said, new in zip(put.status.conditions, renamed.status.conditions, strict=True):
            kept = here.get(said.type) if old.get(said.type) == said else None
            conditions.append(new if kept is None else kept)
        return msgspec.structs.replace(
            renamed, status=msgspec.structs.replace(renamed.status, conditions=tuple(conditions))
        )

    def _check(self, record: Record) -> None:
        """The decision is the recorded one under other names."""
        records, place = self.driver.records, record.seq - self.driver.base
        made = records[place - 1] if place <= len(records) else None
        outcome = self._in_copy(record)
        if (
            made is None
            or outcome is None
            or made.kind != record.kind
            or made.key != self.names.key(record.key)
        ):
            raise self._another(record)
        decided = decode_outcome(made)
        assert decided is not None
        if _gist(outcome, self.names.name, self.names.key) != _gist(decided, str, str):
            raise self._another(record)

    def _in_copy(self, record: Record) -> Outcome | None:
        """The recorded outcome as the copy tells it, which writes out a rejection that is before its first record."""
        outcome = decode_outcome(record)
        if not isinstance(outcome, Unschedulable) or outcome.same_as not in self.rejections:
            return outcome
        again = self.told_again.get(outcome.same_as)
        if again is not None:
            return msgspec.structs.replace(outcome, same_as=again)
        self.told_again[outcome.same_as] = record.seq
        return msgspec.structs.replace(
            self.rejections[outcome.same_as],
            attempt=outcome.attempt,
            observed=outcome.observed,
            at=outcome.at,
            epoch=outcome.epoch,
        )

    def _another(self, record: Record) -> TidelogError:
        return TidelogError(
            f"record {record.seq}, {record.kind} of {record.key}, is another decision when names are replaced: either the log does not verify "
            "(`tidelog replay verify` tells), or a plugin decides by names; nothing was written"
        )


def _gist(outcome: Outcome, name: Callable[[str], str], key: Callable[[str], str]) -> tuple[object, ...]:
    """The decision without texts."""
    fields = (
        "attempt",
        "observed",
        "at",
        "score",
        "feasible",
        "nodes",
        "plugins",
        "pending",
        "same_as",
        "conflict",
        "method",
    )
    plain = tuple(
        getattr(outcome, field, None)
        for field in fields
        if field != "nodes" or not isinstance(getattr(outcome, field, 0), tuple)
    )
    node = getattr(outcome, "node", None)
    victims = tuple(map(key, getattr(outcome, "victims", ())))
    return (*plain, None if node is None else name(node), victims)

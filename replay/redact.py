"""A copy of a log without names: to be shared, and yet the same story.

Every name (of objects, namespaces, labels and their values, taints, images, containers, gates, …) is replaced by a number, the same name by
the same number everywhere, and in such a way that names sort as they did. Annotations, descriptions and messages are dropped. What is kept is
what Kubernetes itself has coined, its resources and all amounts, times, and the configuration, except for the place it was read from and the extended resources that it names; also the
CEL expressions of device selectors, and the names of drivers and attributes that these speak of; and, where ties between equal nodes follow
the pods' names, ten bits of a hash of each pod's.

The outcomes are not translated but decided anew, attempt by attempt, from the redacted facts: so no text of theirs can give anything away, and
the copy verifies. Each must be the recorded one under the new names; where one is not, nothing is written, because a decision then depended
on a name in a way that renaming does not keep.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from tidelog.api.errors import TidelogError
from tidelog.api.objects import Condition, Object, Pod
from tidelog.api.renaming import KEPT_WORDS, NAMING_ANNOTATIONS, Renaming
from tidelog.api.ties import TIE, tie_of_name
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import (
    OUTCOME_KINDS,
    Draft,
    Fact,
    ObjectPut,
    Outcome,
    Record,
    decode_body,
    decode_outcome,
)
from tidelog.framework.behaviours import TIES_FOLLOW_PODS
from tidelog.plugins.registry import Registry
from tidelog.replay.driver import Driver
from tidelog.replay.verify import Progress
from tidelog.scheduler.recorded import RecordedAttempts, following

_NAMING_RESOURCES = frozenset(("ignoredResourceGroups", "ignoredResources", "resources"))
"""Settings of plugins."""
_NUMBER = re.compile(r"-?[0-9]+")


class Redacted(msgspec.Struct, frozen=True, kw_only=True):
    """The copy."""

    records: list[Record]
    names: int
    """How many names were replaced."""


def redact(records: Sequence[Record], registry: Registry, progress: Progress | None = None) -> Redacted:
    """A copy of these records, which are a log's from its first, without names.

    Raises TidelogError if a decision of the copy is another one, which it also is if the log itself does not verify.
    """
    names = _Names()
    for record in records:
        if record.kind not in OUTCOME_KINDS:
            with following(record):
                names.key(record.key)
                names.body(record)
    names.settle()
    return Redacted(records=_Retelling(records, registry, names).run(progress), names=len(names))


class _Names(Renaming):
    """Name → number. Until it is settled it only collects."""

    drops = True

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._settled = False
        self._keeps_ties = False
        """Decisions follow from pods' names by their numbers (`tidelog.api.ties`), so the copy has to tell these."""

    def __len__(self) -> int:
        return len(self._found)

    def settle(self) -> None:
        """All names are known: number them in their order."""
        width = len(str(len(self._found)))
        self._found = {name: f"x{number:0{width}}" for number, name in enumerate(sorted(self._found))}
        self._settled = True

    def name(self, text: str) -> str:
        """The new name. A text of several names with slashes between is taken apart."""
        if text in KEPT_WORDS or _NUMBER.fullmatch(text):
            return text
        if "/" in text:
            return "/".join(map(self.name, text.split("/")))
        if self._settled:
            return self._found[text]
        self._found[text] = ""
        return text

    def configuration(self, value: Any) -> Any:
        """Plugins' settings name resources, which have other names here."""
        if isinstance(value, dict):
            return {
                key: self._resources(part) if key in _NAMING_RESOURCES else self.configuration(part)
                for key, part in value.items()
            }
        return [self.configuration(part) for part in value] if isinstance(value, list | tuple) else value

    def _resources(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                k: self._resources(part) if k in ("name", "resources") else part for k, part in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._resources(part) for part in value]
        # A group is the part before the slash.
        is_group = isinstance(value, str) and "." in value and "/" not in value
        return (
            self.resource(f"{value}/")[:-1]
            if is_group
            else self.resource(value)
            if isinstance(value, str)
            else value
        )

    def annotation(self, key: str, text: str) -> str:
        return self.name(text) if key in NAMING_ANNOTATIONS else text

    def body(self, record: Record) -> Any:
        """The body of a fact as plain data."""
        kind, _, rest = record.key.partition("/")
        body = msgspec.msgpack.decode(record.body)
        if record.kind == "ConfigurationLoaded":
            self._keeps_ties |= TIES_FOLLOW_PODS in body["configuration"].get("behaviours", ())
        found = self.value(body, kind)
        if self._keeps_ties and kind == "Pod" and "object" in found:
            annotations = found["object"]["metadata"].setdefault("annotations", {})
            annotations.setdefault(TIE, str(tie_of_name(*rest.split("/"))))
        return found

    def key(self, key: str) -> str:
        """A record's key: `Kind/namespace/name`."""
        kind, slash, rest = key.partition("/")
        return f"{kind}/{self.name(rest)}" if slash else key


class _Retelling:
    """The redacted facts, and the decisions made anew in the same places."""

    def __init__(self, records: Sequence[Record], registry: Registry, names: _Names) -> None:
        self.records = records
        self.names = names
        self.driver = Driver(registry)
        self.recorded = ObjectTable()
        self.ahead = RecordedAttempts(records)

    def run(self, progress: Progress | None) -> list[Record]:
        for number, record in enumerate(self.records):
            with following(record):
                self._retell(record)
            if progress is not None and number % 1_000 == 0:
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
                driver.commit(1)
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
        records = self.driver.records
        made = records[record.seq - 1] if record.seq <= len(records) else None
        outcome = decode_outcome(record)
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

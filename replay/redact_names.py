"""The names of a log, each replaced by a number, the same name by the same number everywhere, so that names sort as they did.

First all names are collected, by walking everything that holds any; then they are settled, and the same walk replaces them.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from tidelog.api.renaming import KEPT_WORDS, NAMING_ANNOTATIONS, Renaming
from tidelog.api.tie_number import TIE, tie_of_name
from tidelog.eventlog.records import Record
from tidelog.framework.behaviours import TIES_FOLLOW_PODS

_NAMING_RESOURCES = frozenset(("ignoredResourceGroups", "ignoredResources", "resources"))
"""Settings of plugins."""
_NUMBER = re.compile(r"-?[0-9]+")


class NumberedNames(Renaming):
    """Name → number. Until it is settled it only collects."""

    drops = True

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._settled = False
        self._keeps_ties = False
        """Decisions follow from pods' names by their numbers (`tidelog.api.tie_number`), so the copy has to tell these."""

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
            self.follow(body["configuration"])
        found = self.value(body, kind)
        if kind == "Pod" and "object" in found:
            self._add_tie(found["object"], rest)
        return found

    def follow(self, configuration: dict[str, Any]) -> None:
        """From here on decisions are made under this configuration."""
        self._keeps_ties |= TIES_FOLLOW_PODS in configuration.get("behaviours", ())

    def object(self, plain: dict[str, Any], kind: str, place: str) -> dict[str, Any]:
        """An object as plain data; `place` is its namespace and name, as they were."""
        found: dict[str, Any] = self.value(plain, kind)
        if kind == "Pod":
            self._add_tie(found, place)
        return found

    def _add_tie(self, pod: dict[str, Any], place: str) -> None:
        if self._keeps_ties:
            annotations = pod["metadata"].setdefault("annotations", {})
            annotations.setdefault(TIE, str(tie_of_name(*place.split("/"))))

    def key(self, key: str) -> str:
        """A record's key: `Kind/namespace/name`."""
        kind, slash, rest = key.partition("/")
        return f"{kind}/{self.name(rest)}" if slash else key

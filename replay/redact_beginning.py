"""The state before the first record of a compacted log, without names: its copy begins there.

The objects are renamed as in the records. Of the scheduler's state each part is named here, and a part that this module does not know is refused, so
that nothing is given away by one that is new. Texts are dropped: why a pod was rejected last is told again by its next rejection, which the copy then
writes out where the log only said that it was as before (`Unschedulable.same_as`).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from tidelog.api.errors import InternalError
from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.objects import Object
from tidelog.eventlog.objects import ObjectTable
from tidelog.plugins.registry import Registry
from tidelog.replay.files import FirstState, first_state
from tidelog.replay.playback import Beginning
from tidelog.replay.redact_names import NumberedNames
from tidelog.scheduler.core import Core


def collect_names(beginning: Beginning, names: NumberedNames) -> None:
    """Let `names` find those of the state."""
    _renamed(beginning, names)


def renamed_beginning(
    beginning: Beginning, names: NumberedNames, registry: Registry
) -> tuple[Core, FirstState]:
    """The state under the new names: as a core, and as a new log begins with it."""
    rest, objects, table = _renamed(beginning, names)
    core = Core.load(registry, rest, objects)
    # The digest of what is gone tells nothing here, and a hash of names would tell something: the copy's chain begins with its own state.
    first = first_state(Beginning(core, ObjectTable.decode(table).encode(), b""))
    digest = sha256(first.scheduler).digest()
    return core, first._replace(anchor=msgspec.structs.replace(first.anchor, digest=digest))


def _renamed(beginning: Beginning, names: NumberedNames) -> tuple[dict[str, Any], dict[str, Object], bytes]:
    state = StateRenaming(names)
    # First: the configuration in it says what has to be told of pods.
    rest = state.rest(beginning.core.dump_without_objects())
    objects = dict(state.object(key, obj) for key, obj in beginning.core.objects.items())
    return rest, objects, state.table(beginning.objects)


class StateRenaming:
    """Walks a state as its snapshot has it."""

    def __init__(self, names: NumberedNames) -> None:
        self._names = names

    # --- objects ------------------------------------------------------------------------------------------------------

    def object(self, key: str, obj: Object) -> tuple[str, Object]:
        """An object under its new key."""
        kind, _, place = key.partition("/")
        plain = msgspec.msgpack.decode(msgspec.msgpack.encode(obj))
        return self._names.key(key), msgspec.convert(self._names.object(plain, kind, place), type(obj))

    def table(self, blob: bytes) -> bytes:
        """The bytes of an `ObjectTable`."""
        version, seq, at, settings, kinds = msgspec.msgpack.decode(blob)
        return msgspec.msgpack.encode(
            (version, seq, at, settings, {kind: self._part(kind, part) for kind, part in kinds.items()})
        )

    def _part(self, kind: str, part: Any) -> Any:
        if kind == "/":
            return {self._names.key(key): (place, "") for key, (place, _opaque) in part.items()}
        if kind == "":
            return self._attachment(part)
        if kind == "promises":
            return self._promises(part)
        namespaced = KIND_BY_NAME[kind].namespaced
        return [(seq, self._names.object(plain, kind, _place(plain, namespaced))) for seq, plain in part]

    def _dumped(self, dumped: Any) -> Any:
        """An object as the queue keeps it; of an event, it may be none, or a tick."""
        if dumped is None or dumped[0] == "Tick":
            return dumped
        kind, plain = dumped
        return [kind, self._names.object(plain, kind, _place(plain, KIND_BY_NAME[kind].namespaced))]

    def _attachment(self, plain: dict[str, Any]) -> dict[str, Any]:
        # The rules by which objects were redacted are not told; the place for them is.
        found: dict[str, Any] = self._names.value({**plain, "unread": {}})
        return {**found, "redaction": {}, "unread": self._keys(plain.get("unread", {}))}

    # --- the scheduler's state ----------------------------------------------------------------------------------------

    def rest(self, rest: dict[str, Any]) -> dict[str, Any]:
        """The state beside the objects."""
        if rest["configuration"] is not None:
            self._names.follow(rest["configuration"])
        return self._each(rest, {
            **dict.fromkeys(("seq", "at", "epoch", "attempts", "last_tick_at"), _as_is),
            "configuration": self._names.configuration,
            "cache": self._cache,
            "queue": self._queue,
            "permits": lambda permits: [self._permit(permit) for permit in permits],
            "evictions": lambda rows: [self._eviction(row) for row in rows],
            "rejected": lambda _: [],
            "promises": self._promises,
            "unread": self._keys,
            "apart": lambda rows: [self.object(key, obj) for key, obj in rows],
        })  # fmt: skip

    def _each(self, parts: dict[str, Any], rules: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
        unknown = sorted(parts.keys() - rules.keys())
        if unknown:
            raise InternalError(
                f"a state has parts of which it is not known whether they hold names: {', '.join(unknown)}"
            )
        return {part: rules[part](value) for part, value in parts.items()}

    def _name(self, text: str) -> str:
        """A record key, a uid, a namespace and name, or the key of something below a group."""
        return self._names.key(text) if text.partition("/")[0] in KIND_BY_NAME else self._names.name(text)

    def _all(self, texts: Any) -> list[str]:
        return [self._name(text) for text in texts]

    def _keys(self, found: dict[str, Any]) -> dict[str, Any]:
        return {self._name(key): value for key, value in found.items()}

    def _cache(self, cache: dict[str, Any]) -> dict[str, Any]:
        # A zone's name is the value of a label; which nodes are in it is what counts, and they say it themselves.
        name = self._names.name
        return self._each(cache, {
            "zones": lambda zones: [(name(region), name(zone), self._all(nodes)) for region, zone, nodes in zones],
            "assumed": lambda assumed: {self._name(uid): name(node) for uid, node in assumed.items()},
            "changed": lambda changed: {self._name(uid): self._assumed_as(was) for uid, was in changed.items()},
        })  # fmt: skip

    def _assumed_as(self, was: dict[str, Any]) -> dict[str, Any]:
        pod = self._names.value({"metadata": {"labels": was["labels"]}, "spec": was["spec"]}, "Pod")
        return {"labels": pod["metadata"]["labels"], "spec": pod["spec"]}

    def _queue(self, queue: dict[str, Any] | None) -> dict[str, Any] | None:
        if queue is None:
            return None
        return self._each(queue, {
            **dict.fromkeys(("scheduling_cycle", "timestamps", "parkings"), _as_is),
            **dict.fromkeys(("pods", "gone", "groups", "groups_in_flight"), self._entities),
            "gone_objects": lambda dumped: [self._dumped(pod) for pod in dumped],
            "attempts": lambda rows: [[self._name(uid), *place] for uid, *place in rows],
            "events": lambda rows: [[*event, self._dumped(old), self._dumped(new)] for *event, old, new in rows],
            "popped": lambda groups: [self._all(uids) for uids in groups],
            "members": lambda members: [self._all(keys) for keys in members],
            "pending": lambda groups: {self._name(key): self._all(keys) for key, keys in groups.items()},
            "incomplete": lambda groups: {self._name(key): self._all(keys) for key, keys in groups.items()},
            "rules": self._rules,
            "nominations": lambda rows: [[self._name(node), self._dumped(pod)] for node, pod in rows],
        })  # fmt: skip

    def _rules(self, rules: dict[str, Any]) -> dict[str, Any]:
        return self._each(rules, {
            "infos": lambda infos: [{**info, "key": self._name(info["key"])} for info in infos],
            "seen_at": self._keys,
            "waits": lambda waits: [[until, self._name(key)] for until, key in waits],
        })  # fmt: skip

    def _entities(self, table: dict[str, Any]) -> dict[str, Any]:
        rules = [self._entity_rules[field] for field in table["fields"]]
        rows = [[rule(value) for rule, value in zip(rules, row, strict=True)] for row in table["rows"]]
        return {**table, "rows": rows}

    @property
    def _entity_rules(self) -> dict[str, Callable[[Any], Any]]:
        return {
            **dict.fromkeys((
                "where", "timestamp", "sequence", "attempts", "unschedulable_count", "consecutive_errors", "unschedulable_plugins",
                "pending_plugins", "gating_plugin", "expiry", "flushed_at", "was_flushed", "entered_active_at", "parked", "profile",
                "attempted_at", "first_rejected_at", "fallback_constraints", "disturbed",
            ), _as_is),
            **dict.fromkeys(("key", "uid", "group", "fallback_node"), self._name),
            "blocked_by": self._all,
            "gating_reasons": lambda _: [],
        }  # fmt: skip

    def _permit(self, permit: dict[str, Any]) -> dict[str, Any]:
        return self._each(permit, {
            **dict.fromkeys(("deadline", "plugins", "is_ending", "is_reserved", "score", "feasible", "judged_at"), _as_is),
            **dict.fromkeys(("key", "uid", "node", "group"), self._name),
            "fallback": lambda rows: [self._fallback(row) for row in rows],
            "writes": lambda writes: [self._write(write) for write in writes],
            "awaited": lambda rows: [(self._name(key), "") for key, _ in rows],
            "failure": lambda status: status and {**status, "reasons": []},
        })  # fmt: skip

    def _fallback(self, row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "topologyKey": self._names.label_key(row["topologyKey"]), "reason": ""}

    def _write(self, write: Any) -> Any:
        kind = write["key"].partition("/")[0]
        return {
            **write,
            "key": self._name(write["key"]),
            "uid": self._name(write.get("uid", "")),
            "patch": self._names.value(write.get("patch", {}), kind),
        }

    def _eviction(self, row: dict[str, Any]) -> dict[str, Any]:
        return self._each(row, {
            **dict.fromkeys(("attempt", "at"), _as_is),
            **dict.fromkeys(("uid", "key", "preemptor"), self._name),
            "budgets": self._all,
        })  # fmt: skip

    # --- a live cluster's ---------------------------------------------------------------------------------------------

    def _promises(self, promises: dict[str, Any]) -> dict[str, Any]:
        plain = msgspec.msgpack.decode(msgspec.msgpack.encode(promises))
        return self._each(plain, {
            "keeping": _as_is,
            "log_id": self._name,
            "refusals": self._keys,
            "promises": lambda rows: [self._promise(*row) for row in rows],
            "budgets": self._all,
        })  # fmt: skip

    def _promise(self, key: str, base: dict[str, Any], effects: list[dict[str, Any]]) -> list[Any]:
        kind, _, place = key.partition("/")
        return [
            self._name(key),
            self._names.object(base, kind, place),
            [self._effect(effect) for effect in effects],
        ]

    def _effect(self, effect: dict[str, Any]) -> dict[str, Any]:
        return self._each(effect, {
            **dict.fromkeys(("name", "seq", "at", "status", "reason", "attempt", "method", "protected"), _as_is),
            **dict.fromkeys(("node", "preemptor"), self._name),
            "message": lambda _: "",
            "write": lambda write: write and self._write(write),
            "pods": self._all,
        })  # fmt: skip


def _as_is(value: Any) -> Any:
    return value


def _place(plain: dict[str, Any], namespaced: bool) -> str:
    meta = plain["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}" if namespaced else f"/{meta['name']}"

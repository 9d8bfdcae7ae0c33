"""Promises: changes that our outcomes want and a live cluster does not show yet. They are the overlay over its objects, and the outbox of what is still to be sent.

    outcome in the log ──► promised ──► a version of the object shows it      kept
                              │    └──► ObjectDeleted, or a newer promise     void
                              └───────► WriteFailed                           broken: the object is again as the server has it

In a log that a scheduler attached to a cluster (`ClusterAttached`, mode schedule) an outcome is a wish, and the API server's answer is in the
next version of the object. Until then each incoming version is shown with the promised part over it: a pod stays bound to the node that it
was promised, so that nobody is placed on its room, and it is not decided again. What was really said last is kept beside (`base`).

It is a pure fold over the records, kept by the core and by the object table, which must agree, and in the snapshots of both. The writer of
`kube/cluster` sends what is outstanding; nothing is remembered of what was sent, because every write may be sent again. Kinds of promises are
a table: how one shows over an object, and how a version tells that it was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.objects import Object, Pod, PodGroup, pod_condition
from tidelog.api.pod_status import (
    GROUP_SCHEDULED,
    POD_SCHEDULED,
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    bound_to,
    is_terminal,
    nominated_to,
    preempted,
    rejected,
    with_group_condition,
)
from tidelog.api.times import format_time
from tidelog.api.writes import Write, combined, merged, written
from tidelog.eventlog.records import (
    AttemptError,
    Body,
    ClusterAttached,
    Evicted,
    Nominated,
    ObjectDeleted,
    PlacementChosen,
    Record,
    Reserved,
    Scheduled,
    Unschedulable,
    WriteFailed,
)

Lookup = Callable[[str], Object | None]


class PromisedEffect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One thing that an outcome wants of the API server."""

    name: str
    """A key of `EFFECTS`, and the `effect` of a WriteFailed."""
    seq: int
    """Of the outcome."""
    at: int
    node: str = ""
    """Where the pod is bound or nominated; empty takes a nomination back. Where its preemptor is to go."""
    status: str = ""
    reason: str = ""
    message: str = ""
    attempt: int = 0
    preemptor: str = ""
    """Record key of the pod for which this one is asked to go."""
    method: str = ""
    protected: bool = False
    write: Write | None = None
    """The change of the object that a plugin wants."""
    pods: tuple[str, ...] = ()
    """Record keys of pods that must not be bound before it is seen."""


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The promises outstanding for one object."""

    key: str
    uid: str
    base: Object
    """The last version that the server told of."""
    effects: dict[str, PromisedEffect]
    """By name; at most one of each."""


class EffectKind(NamedTuple):
    """How promises of one name show."""

    apply: Callable[[Any, PromisedEffect], Any]
    """The object as if it were kept."""
    is_kept: Callable[[Any, PromisedEffect], bool]
    """Whether this version of the object ends the promise: it shows it, or it can never come true any more."""
    voids: tuple[str, ...] = ()
    """Older promises about the object that this one replaces."""


def _ends_binding(pod: Pod, _: PromisedEffect) -> bool:
    # A pod without a node that is being deleted is never bound: the server refuses.
    return bool(pod.spec.node_name or pod.metadata.deletion_timestamp) or is_terminal(pod)


def _shows_status(pod: Pod, effect: PromisedEffect) -> bool:
    found = pod_condition(pod, POD_SCHEDULED)
    if pod.spec.node_name:
        return True
    return found is not None and (found.status, found.reason, found.message) == (
        "False",
        effect.reason,
        effect.message,
    )


def _shows_group(group: PodGroup, effect: PromisedEffect) -> bool:
    for found in group.status.conditions:
        if found.type == GROUP_SCHEDULED:
            wanted = (effect.status, effect.reason, effect.message)
            return found.status == "True" or (found.status, found.reason, found.message) == wanted
    return False


def _written(obj: Object, effect: PromisedEffect) -> Object:
    """An object that is to go stays until the server says that it is gone, and is on its way by then."""
    write = effect.write
    assert write is not None
    if write.verb == "delete":
        patched = written(obj, replace(write, verb="patch")) or obj
        stamp = patched.metadata.deletion_timestamp or format_time(effect.at)
        return replace(patched, metadata=replace(patched.metadata, deletion_timestamp=stamp))
    found = obj if write.verb == "create" else written(obj, write)
    return obj if found is None else found


def _shows_write(obj: Object, effect: PromisedEffect) -> bool:
    # What is being deleted need not be changed any more.
    if obj.metadata.deletion_timestamp:
        return True
    assert effect.write is not None
    return effect.write.verb == "patch" and _written(obj, effect) == obj


EFFECTS: dict[str, EffectKind] = {
    "status": EffectKind(
        lambda pod, effect: rejected(pod, effect.message, effect.at, reason=effect.reason), _shows_status
    ),
    "nominate": EffectKind(
        lambda pod, effect: nominated_to(pod, effect.node),
        lambda pod, effect: bool(pod.spec.node_name) or pod.status.nominated_node_name == effect.node,
    ),
    "evict": EffectKind(
        lambda pod, effect: preempted(pod, effect.message, effect.at),
        lambda pod, _: bool(pod.metadata.deletion_timestamp) or is_terminal(pod),
    ),
    "bind": EffectKind(
        lambda pod, effect: bound_to(pod, effect.node, effect.at),
        _ends_binding,
        ("status", "nominate"),
    ),
    "group": EffectKind(
        lambda group, effect: with_group_condition(
            group, effect.status, effect.reason, effect.message, effect.at
        ),
        _shows_group,
    ),
    "write": EffectKind(
        _written,
        _shows_write,
    ),
}
"""In the order in which they are applied: a pod is bound last."""


class Broken(NamedTuple):
    """A promise that is not kept."""

    effect: PromisedEffect
    object: Object
    """The object with what is still promised of it."""
    refusals: int
    """How often the server has refused to bind the pod, this time included."""
    is_gone: bool = False
    """The object was to be created, and is not there."""
    cleared: str = ""
    """Key of the pod for which room was to be made, and is not: its nomination is taken back."""


class Promises:
    """All that is outstanding, by the object's uid, in the order of the outcomes. Without a cluster there is nothing, and nothing costs."""

    def __init__(self) -> None:
        self.keeping = False
        """A scheduler is attached to a live cluster: outcomes are promises."""
        self.log_id = ""
        self.binds = 0
        """How many bindings are outstanding."""
        self._writes = 0
        """How many objects are to be written, beside pods that are to be bound and their status."""
        self._by_uid: dict[str, Promise] = {}
        self._creating: dict[str, str] = {}
        """Key of an object that is to be created → the uid that it has until the server gives it one."""
        self._refusals: dict[str, int] = {}
        """Uid of a pending pod → how many of its bindings the server has refused."""
        self._fresh: dict[str, None] | None = None
        """Uids about which something was promised since they were last taken; None: all, and nobody has asked yet. Not part of the state."""

    def __len__(self) -> int:
        """How many objects something is outstanding for."""
        return len(self._by_uid)

    def __iter__(self) -> Iterator[Promise]:
        return iter(self._by_uid.values())

    def get(self, uid: str) -> Promise | None:
        """Return the promises outstanding for the object of this uid."""
        return self._by_uid.get(uid)

    def base_of(self, obj: Object) -> Object:
        """The object as the server last told of it."""
        promise = self._by_uid.get(_uid(obj)) if self._by_uid else None
        return obj if promise is None else promise.base

    def take_fresh(self) -> list[str]:
        """Uids about which something was promised since this was last asked."""
        fresh, self._fresh = self._fresh, {}
        return list(self._by_uid if fresh is None else fresh)

    def _tell(self, uid: str) -> None:
        if self._fresh is not None:
            self._fresh[uid] = None

    # --- the fold -----------------------------------------------------------------------------------------------------

    def attach(self, body: ClusterAttached) -> list[tuple[str, Object]]:
        """A session begins. One that does not schedule sends nothing: the objects, by key, that are again as the server has them."""
        self.log_id = body.log_id
        self.keeping = body.mode == "schedule"
        if self.keeping:
            self._fresh = None
            return []
        back = [(promise.key, promise.base) for promise in self._by_uid.values()]
        self._by_uid.clear()
        self._creating.clear()
        self._refusals.clear()
        self.binds = self._writes = 0
        return back

    def note(self, record: Record, body: Body, get: Lookup) -> None:
        """An outcome is in the log, and has not been applied to the objects yet. To be called only while `keeping`."""
        seq, at = record.seq, record.at
        match body:
            case Scheduled():
                effect = PromisedEffect(name="bind", seq=seq, at=at, node=body.node, attempt=body.attempt)
                self._promise(record.key, effect, get)
            case PlacementChosen():
                waiting = frozenset(body.waiting)
                for key, node in body.assignment.items():
                    if key not in waiting:
                        effect = PromisedEffect(name="bind", seq=seq, at=at, node=node, attempt=body.attempt)
                        self._promise(key, effect, get)
                self._promise_group(record, "True", "Scheduled", "", get)
            case Unschedulable() if not body.same_as:
                self._promise_writes(record, body.writes, (), body.attempt, get)
                self._promise_rejection(record, body, UNSCHEDULABLE, get)
            case AttemptError():
                self._promise_rejection(record, body, SCHEDULER_ERROR, get)
            case Nominated():
                for key in body.cleared:
                    self._promise(key, PromisedEffect(name="nominate", seq=seq, at=at), get)
                self._promise(
                    record.key, PromisedEffect(name="nominate", seq=seq, at=at, node=body.node), get
                )
            case Evicted():
                self._promise_eviction(record, body, get)
            case Reserved():
                self._promise_writes(record, body.writes, (record.key,), body.attempt, get)
            case ObjectDeleted():
                self._forget(record.key, body.uid, get)
            case _:
                pass

    def _promise_rejection(
        self, record: Record, body: Unschedulable | AttemptError, reason: str, get: Lookup
    ) -> None:
        for key in body.members or (record.key,):
            effect = PromisedEffect(
                name="status",
                seq=record.seq,
                at=record.at,
                status="False",
                reason=reason,
                message=body.message,
            )
            self._promise(key, effect, get)
        self._promise_group(record, "False", reason, body.message, get)

    def _promise_group(self, record: Record, status: str, reason: str, message: str, get: Lookup) -> None:
        group = get(record.key)
        if isinstance(group, PodGroup):
            effect = PromisedEffect(
                name="group", seq=record.seq, at=record.at, status=status, reason=reason, message=message
            )
            if not _shows_group(group, effect):
                self._promise(record.key, effect, get)

    def _promise_eviction(self, record: Record, body: Evicted, get: Lookup) -> None:
        pod = get(record.key)
        if not isinstance(pod, Pod):
            return
        if not pod.spec.node_name:
            # It only loses its reservation, which the server knows nothing of.
            effect = PromisedEffect(
                name="status",
                seq=record.seq,
                at=record.at,
                status="False",
                reason=SCHEDULER_ERROR,
                message=body.message,
            )
            self._promise(record.key, effect, get)
            return
        if pod.metadata.deletion_timestamp:
            return
        effect = PromisedEffect(
            name="evict",
            seq=record.seq,
            at=record.at,
            node=body.node,
            message=body.message,
            attempt=body.attempt,
            preemptor=body.preemptor,
            method=body.method,
            protected=body.protected,
        )
        self._promise(record.key, effect, get)

    def _promise_writes(
        self, record: Record, writes: Iterable[Write], pods: tuple[str, ...], attempt: int, get: Lookup
    ) -> None:
        for write in writes:
            effect = PromisedEffect(
                name="write", seq=record.seq, at=record.at, attempt=attempt, write=write, pods=pods
            )
            self._promise_write(write, effect, get)

    def _promise_write(self, write: Write, effect: PromisedEffect, get: Lookup) -> None:
        """A later write of the same object takes the place of an earlier one, and contains it."""
        known = self._by_uid.get(self._creating.get(write.key, ""))
        obj = get(write.key)
        if known is None and obj is not None:
            known = self._by_uid.get(_uid(obj))
        earlier = None if known is None else known.effects.get("write")
        if earlier is not None and earlier.write is not None:
            pods = (*earlier.pods, *(pod for pod in effect.pods if pod not in earlier.pods))
            effect = replace(effect, write=_both(earlier.write, write), pods=pods)
        if known is not None and write.key in self._creating:
            self._create(effect, known)
        elif obj is None and write.verb == "create":
            self._create(effect, None)
        elif write.verb != "create":
            self._promise(write.key, effect, get)

    def _create(self, effect: PromisedEffect, known: Promise | None) -> None:
        """The object is not there yet: what is known of it is what is to be created."""
        write = effect.write
        assert write is not None
        if write.verb == "delete":
            if known is not None:
                self._store(replace(known, effects={}), known)
            self._creating.pop(write.key, None)
            return
        made = written(None, write)
        assert made is not None
        uid = _uid(made) if known is None else known.uid
        self._store(Promise(key=write.key, uid=uid, base=made, effects={"write": effect}), known)
        self._creating[write.key] = uid
        self._tell(uid)

    def _promise(self, key: str, effect: PromisedEffect, get: Lookup) -> None:
        obj = get(key)
        if obj is None or not (effect.name == "write" or isinstance(obj, Pod | PodGroup)):
            return
        uid = _uid(obj)
        known = self._by_uid.get(uid)
        base: Object = obj if known is None else known.base
        effects = {} if known is None else dict(known.effects)
        for name in EFFECTS[effect.name].voids:
            effects.pop(name, None)
        if effect.name in effects or not EFFECTS[effect.name].is_kept(base, effect):
            # What replaces an older promise may be just what the server shows, but that one may be on its way.
            effects[effect.name] = effect
        elif not effects:
            return
        self._store(Promise(key=key, uid=uid, base=base, effects=effects), known)
        self._tell(uid)

    def _store(self, promise: Promise, known: Promise | None) -> None:
        before = {} if known is None else known.effects
        self.binds += ("bind" in promise.effects) - ("bind" in before)
        self._writes += ("write" in promise.effects) - ("write" in before)
        if promise.effects:
            self._by_uid[promise.uid] = promise
        else:
            self._by_uid.pop(promise.uid, None)

    def _forget(self, key: str, uid: str, get: Lookup) -> None:
        if not uid:
            found = get(key)
            uid = "" if found is None else _uid(found)
        known = self._by_uid.get(uid)
        if known is not None:
            self._store(replace(known, effects={}), known)
        self._refusals.pop(uid, None)

    def seen(self, key: str, obj: Object) -> Object:
        """The server has this version: what it shows is settled, what it does not is put over it."""
        if not self._by_uid and not self._refusals:
            return obj
        uid = _uid(obj)
        if isinstance(obj, Pod) and obj.spec.node_name:
            self._refusals.pop(uid, None)
        known = self._by_uid.get(uid)
        if known is None and key in self._creating:
            known = self._created(key, obj)
        if known is None:
            return obj
        effects = {
            name: effect for name, effect in known.effects.items() if not EFFECTS[name].is_kept(obj, effect)
        }
        self._store(Promise(key=key, uid=uid, base=obj, effects=effects), known)
        return overlaid(obj, effects)

    def _created(self, key: str, obj: Object) -> Promise:
        """The server has made the object, and given it a uid. Its status has a URL of its own, and is still to be written."""
        promise = self._by_uid.pop(self._creating.pop(key))
        effect = promise.effects["write"]
        assert effect.write is not None
        rest = {name: value for name, value in effect.write.patch.items() if name == "status"}
        left = replace(effect, write=Write(key=key, uid=obj.metadata.uid, patch=rest))
        self._tell(_uid(obj))
        return Promise(key=key, uid=_uid(obj), base=obj, effects={"write": left})

    def awaits_writes(self, pod: str) -> bool:
        """Whether something is outstanding that must be seen before this pod, by its record key, is bound."""
        return self._writes > 0 and any(
            pod in effect.pods
            for promise in self._by_uid.values()
            for effect in promise.effects.values()
            if effect.pods
        )

    def broken(self, record: Record, body: WriteFailed, get: Lookup) -> Broken | None:
        """Take back the effect that the outcome `cause` wanted: it is not coming. None if that is not outstanding any more."""
        known = self._by_uid.get(body.uid)
        effect = None if known is None else known.effects.get(_promised(body.effect))
        if known is None or effect is None or effect.seq != record.cause:
            return None
        effects = {name: e for name, e in known.effects.items() if e is not effect}
        self._store(replace(known, effects=effects), known)
        is_gone = self._creating.get(known.key) == known.uid
        if is_gone:
            del self._creating[known.key]
        refusals = 0
        if effect.name == "bind" and body.sent:
            refusals = self._refusals.get(body.uid, 0) + 1
            self._refusals[body.uid] = refusals
        return Broken(
            effect,
            overlaid(known.base, effects),
            refusals,
            is_gone,
            self._clear_nomination(record, effect, get),
        )

    def _clear_nomination(self, record: Record, effect: PromisedEffect, get: Lookup) -> str:
        preemptor = get(effect.preemptor) if effect.name == "evict" else None
        if not isinstance(preemptor, Pod) or preemptor.spec.node_name:
            return ""
        if not effect.node or preemptor.status.nominated_node_name != effect.node:
            return ""
        self._promise(effect.preemptor, PromisedEffect(name="nominate", seq=record.seq, at=record.at), get)
        return effect.preemptor

    # --- the state as a value -----------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """All of it; immutable values in it are as they are."""
        return {
            "keeping": self.keeping,
            "log_id": self.log_id,
            "refusals": dict(self._refusals),
            "promises": [
                [promise.key, promise.base, list(promise.effects.values())]
                for promise in self._by_uid.values()
            ],
        }

    def load(self, dumped: Mapping[str, Any]) -> None:
        """Take over what `dump` told, with objects as builtins."""
        self.keeping, self.log_id = dumped["keeping"], dumped["log_id"]
        self._refusals = dict(dumped["refusals"])
        self._by_uid = {}
        self._creating = {}
        self.binds = self._writes = 0
        for key, base, effects in dumped["promises"]:
            obj = msgspec.convert(base, KIND_BY_NAME[key.partition("/")[0]].type)
            found = msgspec.convert(effects, list[PromisedEffect])
            promise = Promise(
                key=key, uid=_uid(obj), base=obj, effects={effect.name: effect for effect in found}
            )
            self._store(promise, None)
            write = None if "write" not in promise.effects else promise.effects["write"].write
            if write is not None and write.verb == "create":
                self._creating[key] = promise.uid
        self._fresh = None


def _both(first: Write, second: Write) -> Write:
    """Both writes of one object as one: a patch of what is to be created is part of it, and what is deleted is patched before."""
    if first.verb == "create" and second.verb == "patch":
        return replace(first, patch=merged(first.patch, second.patch))
    if second.verb == "delete":
        return replace(second, uid=second.uid or first.uid, patch=first.patch)
    return combined(first, second)


def overlaid(obj: Object, effects: Mapping[str, PromisedEffect]) -> Object:
    """The object as if these promises were kept."""
    for name in _in_order(effects):
        obj = EFFECTS[name].apply(obj, effects[name])
    return obj


def _in_order(effects: Iterable[str]) -> list[str]:
    return [name for name in EFFECTS if name in effects]


def _promised(effect: str) -> str:
    """A delete is what becomes of an eviction that the server refused, or of one that is not tried."""
    return "evict" if effect == "delete" else effect


def _uid(obj: Object) -> str:
    meta = obj.metadata
    return meta.uid or f"{meta.namespace}/{meta.name}"

"""Sends what is promised to the API server: bindings, conditions, nominations, evictions, until the log shows that they came about.

    promise durable ─► waits ─► one request per object under way ─► answered ─► seen in a version of the object: settled by the log
                         │                                             └─► `WriteFailed`: it did not come about
                         └─ the ground is gone (send-time check): `WriteFailed`, sent: false

Nothing is remembered of what was sent but in memory: after a restart everything outstanding is sent again, which does no harm. An answer
that did not come is asked for by reading the pod. Only the leader writes, and only what is durable.

Rules: by priority, then by age; at most `concurrency` under way, fewer when the server is overloaded. Nothing follows a binding but what a
newer fact brings. Of a preemption the nomination is sent first, then the protected victims one by one, then the others. The bindings of a
group are checked together before the first is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import TypeVar

import msgspec

from tidelog.api.errors import printable
from tidelog.api.kinds.kind import Kind
from tidelog.api.kinds.registry import KIND_BY_NAME, KIND_OF_TYPE
from tidelog.api.objects import Node, Object, Pod, PodGroup
from tidelog.api.times import NANOS
from tidelog.api.wire import ApiStatus, Unreadable, read_meta
from tidelog.daemon.process.clock import Bell, Clock
from tidelog.daemon.process.logs import fields
from tidelog.eventlog.promises import EFFECTS, Promise, PromisedEffect
from tidelog.eventlog.records import Draft, Watched, WriteFailed
from tidelog.framework.disruption_budgets import selects
from tidelog.framework.node_info import PodInfo
from tidelog.kube.cluster import requests
from tidelog.kube.cluster.channel import Again, Channel
from tidelog.kube.cluster.codec import Codec
from tidelog.kube.cluster.events import Events
from tidelog.kube.cluster.grounds import Grounds
from tidelog.kube.cluster.inbox import Inbox
from tidelog.kube.cluster.lease import Leadership
from tidelog.kube.cluster.port import Answer, ClusterError, ClusterPort, NoAnswer
from tidelog.kube.cluster.view import AUTHOR, KindView
from tidelog.kube.cluster.waiting import Backoff, pause
from tidelog.scheduler.core import Core

READ_BACK_SECONDS = 30.0
"""After this time, an effect that was answered well and is not seen is read."""
UNSEEN_MAX = 3
"""So often what was answered well and is not seen is sent."""
SWEEP_SECONDS = 5.0
MESSAGE_MAX = 256

_log = logging.getLogger("tidelog.cluster")
ObjectT = TypeVar("ObjectT", bound=Object)


class WriterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How writes are sent."""

    concurrency: int = 32
    strict_binding: bool = False
    preemption: str = "evict"
    """Or `delete`: as kube-scheduler does it, without asking budgets."""
    annotate_explanation: bool = False
    """A rejected pod's explanation goes into an annotation."""


class WriterCounts(msgspec.Struct):
    """For metrics."""

    failed: dict[tuple[str, int, bool], int] = {}
    """(effect, code, final) → WriteFailed records."""
    confirmed: int = 0
    confirm_seconds: float = 0.0
    late: int = 0
    """Pods that were seen bound where their node was closed, or gone, by then."""


class _Failed(Exception):
    """The effect is not coming."""

    def __init__(
        self, status: ApiStatus, *, final: bool = True, by: str = "", budget: str = "", sent: bool = True
    ) -> None:
        super().__init__(status.message)
        self.status = status
        self.final = final
        self.by = by
        self.budget = budget
        self.sent = sent


async def _unexplained(_: int) -> str:
    return ""


class Writer:
    """Sends what `core.promises` holds. `run` never ends by itself."""

    def __init__(
        self,
        port: ClusterPort,
        core: Core,
        durable: Callable[[], int],
        inbox: Inbox,
        clock: Clock,
        changed: Bell,
        leadership: Leadership,
        *,
        codec: Codec,
        views: Mapping[str, KindView],
        kinds: Mapping[str, Watched],
        events: Events,
        settings: WriterSettings | None = None,
        random: Random | None = None,
        ready: Callable[[], bool] = lambda: True,
        explain: Callable[[int], Awaitable[str]] = _unexplained,
    ) -> None:
        """`explain`: what the outcome of this seq says beyond its message. `durable`: the log's head. `views`: of each kind, what goes through it when it is read back. `ready`: every kind is synced."""
        self.counts = WriterCounts()
        self.settings = settings or WriterSettings()
        self.channel = Channel(port, clock, leadership, self.settings.concurrency)
        self.grounds = Grounds(core)
        self._core = core
        self._durable = durable
        self._inbox = inbox
        self._clock = clock
        self._changed = changed
        self._leadership = leadership
        self._codec = codec
        self._views = views
        self._kinds = kinds
        self._events = events
        self._random = random or Random()
        self._ready = ready
        self._explain = explain
        self._waiting: list[tuple[int, int, str]] = []
        """(−priority, seq, uid): who is to be sent next. Some are there twice, or for nothing."""
        self._queued: set[str] = set()
        self._later: dict[str, None] = {}
        """Uids whose newest promise was not durable when it was looked at, or whose turn had not come."""
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._sent: dict[str, dict[str, tuple[int, int]]] = {}
        """Uid → effect → (seq that the server has answered well, when). Forgotten with the promise."""
        self._nodes: dict[str, str] = {}
        """Uids of pods whose binding was answered well → their node."""
        self._deleting: set[str] = set()
        """Uids of victims whose eviction the server has refused, and which are deleted."""
        self._unknown: set[str] = set()
        """Uids of pods of which a binding was sent, and nobody knows whether it is still on its way."""
        self._unseen: dict[str, int] = {}
        """Uid → how often its object was read back without what was answered well."""
        self._backoffs: dict[str, Backoff] = {}

    @property
    def room(self) -> int:
        """How many more requests could be under way beside those that are, and that wait."""
        return 0 if self._waiting else self.channel.width() - len(self._under_way)

    # --- its tasks ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._sweep())
                while True:
                    self._pump(group)
                    await self._changed.wait(self.channel.rests_until or None)
        finally:
            for task in self._under_way.values():
                task.cancel()

    async def drained(self) -> None:
        """Return when nothing is under way."""
        while self._under_way:
            await self._changed.wait(self._clock.now() + NANOS // 10)

    def _pump(self, group: asyncio.TaskGroup) -> None:
        promises = self._core.promises
        later, self._later = self._later, {}
        for uid in (*promises.take_fresh(), *later):
            self._look(uid)
        limit = self.channel.width()
        if not self._ready():
            return
        while self._waiting and len(self._under_way) < limit and self._leadership.may_write():
            _, _, uid = heapq.heappop(self._waiting)
            self._queued.discard(uid)
            if uid in self._under_way:
                continue
            promise = promises.get(uid)
            if promise is None:
                self._forget(uid)
                continue
            effects = self._next(promise)
            if not effects:
                if self._unsent(promise):
                    self._later[uid] = None  # Its turn comes when something else is settled.
                continue
            task = group.create_task(self._work(promise, effects))
            self._under_way[uid] = task

    def _look(self, uid: str) -> None:
        """Something was promised about the object, or its turn may have come."""
        promise = self._core.promises.get(uid)
        if promise is None:
            self._forget(uid)
            return
        if uid in self._queued or uid in self._under_way:
            return
        effects = self._unsent(promise)
        if not effects:
            return
        if min(effect.seq for effect in effects) > self._durable():
            self._later[uid] = None
            return
        pod = promise.base
        priority = (pod.spec.priority or 0) if isinstance(pod, Pod) else 0
        heapq.heappush(self._waiting, (-priority, min(effect.seq for effect in effects), uid))
        self._queued.add(uid)

    def _unsent(self, promise: Promise) -> list[PromisedEffect]:
        sent = self._sent.get(promise.uid, {})
        return [e for e in promise.effects.values() if sent.get(e.name, (0, 0))[0] != e.seq]

    def _next(self, promise: Promise) -> list[PromisedEffect]:
        """Return the part that is sent now, in one request; nothing if its turn has not come."""
        durable = self._durable()
        effects = {effect.name: effect for effect in self._unsent(promise) if effect.seq <= durable}
        if "bind" in effects and self._core.promises.awaits_writes(promise.key):
            # kubelet would find its claims without what they are to have.
            self._later[promise.uid] = None
            return [effects["write"]] if "write" in effects else []
        if "bind" in effects:
            return [effects["bind"]]
        told = [effects[name] for name in ("status", "nominate") if name in effects]
        if told:
            return told
        if "evict" in effects and "bind" not in promise.effects:
            if self._may_evict(effects["evict"]):
                return [effects["evict"]]
            self._later[promise.uid] = None
            return []
        if "group" in effects:
            group = effects["group"]
            if group.status != "True" or self._is_placed(promise):
                return [group]
            self._later[promise.uid] = None
            return []
        return [effects["write"]] if "write" in effects else []

    def _may_evict(self, effect: PromisedEffect) -> bool:
        """The nomination first, then the protected one by one, then the others."""
        preemptor = self._core.cluster.pod(effect.preemptor)
        known = None if preemptor is None else self._core.promises.get(preemptor.metadata.uid)
        if known is not None and any(e.name == "nominate" and e.node for e in self._unsent(known)):
            return False
        for other in self._core.promises:
            evict = other.effects.get("evict")
            if evict is None or evict.attempt != effect.attempt or evict is effect or not evict.protected:
                continue
            if other.uid in self._under_way or (not effect.protected and evict in self._unsent(other)):
                return False
        return True

    def _is_placed(self, promise: Promise) -> bool:
        """Whether so many members of the group are seen bound as it needs."""
        group = promise.base
        assert isinstance(group, PodGroup)
        name = promise.key.partition("/")[2]
        policy = group.spec.scheduling_policy or group.spec.policy
        needed = policy.gang.min_count if policy is not None and policy.gang is not None else 1
        seen = 0
        for obj in self._core.objects.values():
            if isinstance(obj, Pod) and obj.spec.scheduling_group is not None:
                meta = obj.metadata
                if (
                    f"{meta.namespace}/{obj.spec.scheduling_group.pod_group_name}" == name
                    and obj.spec.node_name
                ):
                    known = self._core.promises.get(meta.uid)
                    seen += known is None or "bind" not in known.effects
        return seen >= needed

    async def _sweep(self) -> None:
        """Forget what is settled, and look for what should have been seen long ago."""
        while True:
            await pause(self._clock, SWEEP_SECONDS)
            for uid, sent in list(self._sent.items()):
                promise = self._core.promises.get(uid)
                if promise is None:
                    self._forget(uid)
                    continue
                oldest = min((at for _, at in sent.values()), default=self._clock.now())
                is_overdue = self._clock.now() - oldest > READ_BACK_SECONDS * NANOS
                if is_overdue and uid not in self._under_way and self._leadership.may_write():
                    with contextlib.suppress(ClusterError, Again):
                        await self._look_for(promise)

    async def _look_for(self, promise: Promise) -> None:
        """Read an object that should have shown by now what the server has answered well: what it does not show is sent again, and in the end
        given up, with the reason in the log. Raises ClusterError, Again."""
        uid, now = promise.uid, self._clock.now()
        self._sent[uid] = {name: (seq, now) for name, (seq, _) in self._sent[uid].items()}
        found = await self._read_back(promise.base)
        left = self._core.promises.get(uid)
        if found is None and left is not None and _creates(left):
            self._sent[uid].pop("write", None)
            self._look(uid)
            self._changed.ring()
            return
        if found is None or found.metadata.uid != promise.base.metadata.uid or left is None:
            return  # It is settled, or the watch will tell that it is gone.
        sent = self._sent.get(uid, {})
        unseen = [
            effect
            for effect in left.effects.values()
            if sent.get(effect.name, (0, 0))[0] == effect.seq
            and not EFFECTS[effect.name].is_kept(found, effect)
        ]
        if not unseen or uid in self._under_way:
            return
        self._unseen[uid] = self._unseen.get(uid, 0) + 1
        if self._unseen[uid] < UNSEEN_MAX:
            for effect in unseen:
                del sent[effect.name]
            self._look(uid)
            self._changed.ring()
            return
        del self._unseen[uid]
        why = f"answered well {UNSEEN_MAX} times, and no version of the object shows it"
        await self._fail(left, unseen, _Failed(ApiStatus(reason="NotSeen", message=why)))

    def _forget(self, uid: str) -> None:
        sent, name = self._sent.pop(uid, None), self._nodes.pop(uid, None)
        if sent is not None and name is not None and "bind" in sent:
            self.counts.confirmed += 1
            self.counts.confirm_seconds += (self._clock.now() - sent["bind"][1]) / NANOS
            node = self._core.objects.get(f"Node//{name}")
            self.counts.late += not isinstance(node, Node) or node.spec.unschedulable
        self._deleting.discard(uid)
        self._unknown.discard(uid)
        self._unseen.pop(uid, None)
        self._backoffs.pop(uid, None)
        self.grounds.release(uid)

    # --- one request ----------------------------------------------------------------------------------------------------

    async def _work(self, promise: Promise, effects: list[PromisedEffect]) -> None:
        uid = promise.uid
        wait: float | None = None
        try:
            await self._send(promise, effects)
            for effect in effects:
                self._done(uid, effect)
            self._backoffs.pop(uid, None)
        except _Failed as failed:
            await self._fail(promise, effects, failed)
        except Again as again:
            wait = self._backoff(uid).next() if again.seconds is None else again.seconds
        except ClusterError as error:
            _log.warning("a write could not be sent", extra=fields(key=promise.key, error=str(error)))
            wait = self._backoff(uid).next()
        if wait is not None:
            await pause(self._clock, wait)
        del self._under_way[uid]
        self._look(uid)
        self._changed.ring()

    def _done(self, uid: str, effect: PromisedEffect) -> None:
        """Nothing more is to be sent of it."""
        self._sent.setdefault(uid, {})[effect.name] = (effect.seq, self._clock.now())

    def _backoff(self, uid: str) -> Backoff:
        return self._backoffs.setdefault(uid, Backoff(0.1, 10.0, self._random, full_jitter=True))

    async def _send(self, promise: Promise, effects: list[PromisedEffect]) -> None:
        first = effects[0]
        if first.name == "bind":
            await self._bind(promise, first)
        elif first.name == "evict":
            await self._evict(promise, first)
        elif first.name == "group":
            await self._patch_group(promise, first)
        elif first.name == "write":
            await self._patch_object(promise, first)
        else:
            await self._patch_status(promise, effects)

    # --- binding ----------------------------------------------------------------------------------------------------------

    async def _bind(self, promise: Promise, effect: PromisedEffect) -> None:
        pod = promise.base
        assert isinstance(pod, Pod)
        if promise.uid not in self._unknown:
            why = self.grounds.gone(promise.uid, effect.node)
            if why:
                raise _unsent(why)
        log_id = self._core.promises.log_id
        request = requests.binding(pod, effect, log_id, strict=self.settings.strict_binding)
        try:
            answer = await self.channel.ask(request, "pods/binding")
        except NoAnswer:
            await self._resolve(pod, effect, None)
            return
        if answer.ok:
            self.grounds.release(promise.uid)
            self._nodes[promise.uid] = effect.node
            self._events.scheduled(pod, effect.node)
            return
        status = answer.told()
        if answer.status == 409:
            await self._resolve(pod, effect, status)
        elif answer.status >= 500:
            await self._resolve(pod, effect, None)
        else:
            raise _Failed(status)

    async def _resolve(self, pod: Pod, effect: PromisedEffect, status: ApiStatus | None) -> None:
        """Find out about a binding that was refused, or whose answer did not come. Raises Again, _Failed."""
        found = await self._read_back(pod)
        if found is None:
            raise _Failed(status or ApiStatus(code=404, reason="NotFound", message="the pod is gone"))
        if found.metadata.uid != pod.metadata.uid:
            raise _Failed(
                status or ApiStatus(code=409, reason="Conflict", message="the pod was created anew")
            )
        node = found.spec.node_name
        if node == effect.node:
            self.grounds.release(pod.metadata.uid)
            self._nodes[pod.metadata.uid] = node
            self._events.scheduled(pod, node)
            return
        if node:
            raise _Failed(
                ApiStatus(
                    code=409, reason="Conflict", message=f"the pod was bound to {node} by another scheduler"
                ),
                by=node,
            )
        if status is not None:
            raise _Failed(status)
        self._unknown.add(pod.metadata.uid)
        raise Again

    async def _read_back(self, obj: ObjectT) -> ObjectT | None:
        """The object as it is now, which the log is told, too; None if it is gone. Raises Again if nobody knows."""
        kind = KIND_OF_TYPE[type(obj)]
        watched = self._kinds.get(kind.name)
        if watched is None:
            return None
        request = requests.reading(watched.path, obj, namespaced=kind.namespaced)
        answer = await self.channel.ask(request, kind.plural, until=False)
        if answer.status == 404:
            return None
        if not answer.ok:
            raise Again
        found = await self._observe(kind, answer.body)
        assert isinstance(found, type(obj))
        return found

    async def _observe(self, kind: Kind, body: bytes) -> Object:
        """A version of an object that came as an answer. The watch brings it, too, sooner or later; it is dropped then."""
        view = self._views[kind.name]
        try:
            head = read_meta(body)
            known = view.get(self._codec.key(kind, head), head.uid)
            found = self._codec.read(kind, body, known)
        except Unreadable as error:
            raise Again from error
        if known is not None:
            await self._inbox.put(view.put(found))
        return found

    # --- conditions, nominations, groups ----------------------------------------------------------------------------------

    async def _patch_status(self, promise: Promise, effects: list[PromisedEffect]) -> None:
        named = {effect.name: effect for effect in effects}
        pod = self._core.objects.get(promise.key)
        if not isinstance(pod, Pod) or pod.metadata.uid != promise.uid or pod.spec.node_name:
            return  # What is promised is void, as the next look will tell.
        status = named.get("status")
        explanation = None
        if status is not None and self.settings.annotate_explanation:
            explanation = await self._explain(status.seq)
        answer = await self.channel.ask(
            requests.status_patch(pod, status, named.get("nominate"), explanation), "pods/status"
        )
        if answer.ok:
            await self._observe(KIND_BY_NAME["Pod"], answer.body)
            if status is not None:
                self._events.rejected(pod, status.message)
            return
        self._refused_patch(answer)

    async def _patch_group(self, promise: Promise, effect: PromisedEffect) -> None:
        group, watched = promise.base, self._kinds.get("PodGroup")
        assert isinstance(group, PodGroup)
        if watched is None:
            raise _Failed(
                ApiStatus(code=404, reason="NotFound", message="the server does not serve pod groups")
            )
        answer = await self.channel.ask(requests.group_patch(watched.path, group, effect), "podgroups/status")
        if not answer.ok:
            self._refused_patch(answer)

    async def _patch_object(self, promise: Promise, effect: PromisedEffect) -> None:
        """A write that somebody came before is off: its pod is tried again with the object as it is."""
        kind = KIND_BY_NAME[promise.key.partition("/")[0]]
        watched = self._kinds.get(kind.name)
        if watched is None:
            raise _Failed(
                ApiStatus(code=404, reason="NotFound", message=f"the server does not serve {kind.plural}")
            )
        assert effect.write is not None
        for request in requests.object_patches(
            watched.path, promise.base, effect.write, namespaced=kind.namespaced
        ):
            answer = await self.channel.ask(request, kind.plural)
            if request.method == "POST" and answer.status == 409:
                continue  # It was created when it was sent before; the watch will show it.
            if request.method == "DELETE" and answer.status == 404:
                continue
            if answer.status == 409:
                raise _Failed(answer.told())
            if not answer.ok:
                self._refused_patch(answer)

    def _refused_patch(self, answer: Answer) -> None:
        if answer.status == 409 or answer.status >= 500:
            raise Again
        raise _Failed(answer.told())

    # --- evictions --------------------------------------------------------------------------------------------------------

    async def _evict(self, promise: Promise, effect: PromisedEffect) -> None:
        pod = promise.base
        assert isinstance(pod, Pod)
        unprotected = not effect.protected
        if unprotected and (
            promise.uid in self._deleting
            or effect.method == "delete"
            or self.settings.preemption == "delete"
            or len(self._budgets(pod)) > 1
        ):
            await self._delete(pod, effect)
            return
        answer = await self.channel.ask(requests.eviction(pod), "pods/eviction")
        if answer.ok or answer.status == 404:
            self._tell_victim(pod, effect)
            return
        status, budgets = answer.told(), self._budgets(pod)
        refused = answer.status == 429 or (answer.status == 500 and len(budgets) > 1)
        if refused and unprotected:
            self._deleting.add(promise.uid)
            raise Again(0.0)
        if refused:
            raise _Failed(status, budget=budgets[0] if budgets else "")
        if answer.status == 409:
            # Another pod of that name: this one is gone, as the watch will tell.
            return
        if answer.status >= 500:
            raise Again
        raise _Failed(status)

    async def _delete(self, pod: Pod, effect: PromisedEffect) -> None:
        answer = await self.channel.ask(requests.disruption_target(pod, effect), "pods/status")
        if not answer.ok and answer.status not in (404, 422):
            self._refused_patch(answer)
        answer = await self.channel.ask(requests.deletion(pod), "pods")
        if answer.ok or answer.status in (404, 409):
            self._tell_victim(pod, effect)
        else:
            self._refused_patch(answer)

    def _tell_victim(self, pod: Pod, effect: PromisedEffect) -> None:
        self._events.preempted(pod, self._core.cluster.pod(effect.preemptor), effect.node)

    def _budgets(self, pod: Pod) -> list[str]:
        """Keys of the budgets that are about the pod."""
        info = PodInfo(pod)
        return [
            f"PodDisruptionBudget/{budget.metadata.namespace}/{budget.metadata.name}"
            for budget in self._core.cluster.listers.budgets(pod.metadata.namespace)
            if selects(budget, info)
        ]

    # --- failures ---------------------------------------------------------------------------------------------------------

    async def _fail(self, promise: Promise, effects: list[PromisedEffect], failed: _Failed) -> None:
        """Say that these effects are not coming, and with them what hangs together."""
        drafts = [_draft(promise, effect, failed) for effect in effects]
        for effect in effects:
            self._done(promise.uid, effect)
        first = effects[0]
        if first.name == "bind":
            drafts += self._others_of_group(promise.uid, first)
            self.grounds.release(promise.uid)
        elif first.name == "evict":
            drafts += self._rest_of_plan(promise.uid, first)
        elif first.name == "write":
            drafts += self._bindings_of(first.pods)
        for draft in drafts:
            body = draft.body
            assert isinstance(body, WriteFailed)
            key = (body.effect, body.code, body.final)
            self.counts.failed[key] = self.counts.failed.get(key, 0) + 1
        _log.info(
            "not taken by the API server" if failed.sent else "called off before it was sent",
            extra=fields(
                key=promise.key, effect=first.name, code=failed.status.code, why=failed.status.message
            ),
        )
        await self._inbox.put(drafts)
        await self._inbox.flushed()

    def _others_of_group(self, uid: str, effect: PromisedEffect) -> list[Draft]:
        """Members placed by the same attempt whose bindings are not sent: without this one they are not."""
        return self._withdrawn(
            uid,
            "bind",
            lambda other: other.attempt == effect.attempt,
            "another member of its group was refused",
        )

    def _bindings_of(self, pods: Sequence[str]) -> list[Draft]:
        """Pods that were to be bound once this was written."""
        drafts = []
        why = "what it needs could not be written"
        for other in self._core.promises:
            effect = other.effects.get("bind")
            if other.key in pods and effect is not None and effect in self._unsent(other):
                # As if it had been refused itself, so that the pod backs off.
                drafts.append(_draft(other, effect, _Failed(ApiStatus(message=why), final=False)))
                self._done(other.uid, effect)
                self.grounds.release(other.uid)
        return drafts

    def _rest_of_plan(self, uid: str, effect: PromisedEffect) -> list[Draft]:
        """Victims of the same plan that nobody has asked to go yet."""
        return self._withdrawn(
            uid, "evict", lambda other: other.attempt == effect.attempt, "the preemption was called off"
        )

    def _withdrawn(
        self, uid: str, name: str, belongs: Callable[[PromisedEffect], bool], why: str
    ) -> list[Draft]:
        drafts = []
        for other in self._core.promises:
            effect = other.effects.get(name)
            if other.uid == uid or effect is None or not belongs(effect) or other.uid in self._under_way:
                continue
            if effect in self._unsent(other):
                drafts.append(_draft(other, effect, _unsent(why)))
                self._done(other.uid, effect)
                self.grounds.release(other.uid)
        return drafts


def _creates(promise: Promise) -> bool:
    effect = promise.effects.get("write")
    return effect is not None and effect.write is not None and effect.write.verb == "create"


def _unsent(why: str) -> _Failed:
    return _Failed(ApiStatus(message=why), final=False, sent=False)


def _draft(promise: Promise, effect: PromisedEffect, failed: _Failed) -> Draft:
    status = failed.status
    body = WriteFailed(
        effect=effect.name,  # type: ignore[arg-type]
        uid=promise.uid,
        code=status.code,
        reason=status.reason,
        message=printable(status.message, MESSAGE_MAX),
        causes=tuple(cause.reason for cause in status.details.causes if cause.reason),
        budget=failed.budget,
        final=failed.final,
        by=failed.by,
        sent=failed.sent,
    )
    return Draft(body=body, author=AUTHOR, key=promise.key, cause=effect.seq)

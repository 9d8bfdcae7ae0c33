"""A log attached to a live cluster: who reads, who writes, and whether anything may be decided.

    record    readers ─► inbox ─► log
    shadow    the same; what the cluster's own scheduler decides is judged on it
    schedule  the same, and: log ─► promises ─► writer ─► API server, while the Lease is ours

Deciding waits for every kind to be synced, for the Lease, and for the API server: not more than so many bindings are decided ahead of it,
because what is decided early is decided on what is not so any more, and a pod of high priority would wait behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from random import Random
from typing import Any, Literal
from uuid import uuid4

import msgspec

from tidelog.api.errors import LogError, UsageError
from tidelog.api.features import FeatureGates
from tidelog.api.kinds.registry import KIND_BY_NAME
from tidelog.api.objects import Object
from tidelog.api.projection import Projection
from tidelog.api.times import NANOS
from tidelog.configuration.cluster import LeaseOptions
from tidelog.daemon.metrics.cluster import ClusterStatistics
from tidelog.daemon.process.clock import Clock
from tidelog.daemon.process.logs import fields
from tidelog.daemon.process.runtime import DecisionGate, Runtime
from tidelog.eventlog.promises import EFFECTS
from tidelog.eventlog.records import (
    ClusterAttached,
    Cursor,
    Draft,
    Redaction,
    Unschedulable,
    Watched,
    decode_body,
)
from tidelog.kube.cluster import rights
from tidelog.kube.cluster.codec import Codec
from tidelog.kube.cluster.events import Events
from tidelog.kube.cluster.inbox import Inbox
from tidelog.kube.cluster.kinds import ServerVersion, checked, discover, wanted_kinds
from tidelog.kube.cluster.lease import Leadership, Lease, held_by_another
from tidelog.kube.cluster.port import ClusterError, ClusterPort, NoAnswer, NotSent, Request
from tidelog.kube.cluster.reader import CHECK_SECONDS, KindReader, ServerTraits
from tidelog.kube.cluster.shadow import Shadow
from tidelog.kube.cluster.throttle import throttled
from tidelog.kube.cluster.view import AUTHOR, KindView
from tidelog.kube.cluster.waiting import Backoff, pause
from tidelog.kube.cluster.writer import Writer, WriterCounts, WriterSettings
from tidelog.kube.events import Saying, cut
from tidelog.scheduler.core import Core
from tidelog.scheduler.decision import Decision

CURSOR_SECONDS = 60.0
TROUBLES_TOLD = 3
DEFAULT_SCHEDULER = "default-scheduler"
LAG_SECONDS = 90.0
"""A kind of which nothing was heard for so long is not up to date."""
Mode = Literal["record", "shadow", "schedule"]
MODES: tuple[Mode, ...] = ("record", "shadow", "schedule")

_log = logging.getLogger("tidelog.cluster")


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options about the cluster, from the command line and the configuration."""

    mode: Mode = "record"
    kinds: tuple[str, ...] = ()
    """Empty: all that decisions depend on."""
    lease: LeaseOptions | None = LeaseOptions()
    """None: nobody else schedules here, whatever happens."""
    unsettled: int = 128
    """So many bindings may be decided and not seen."""
    writer: WriterSettings = WriterSettings()
    events: bool = True
    scheduled_events: bool = True
    shadow_records: bool = False
    """In shadow mode: append each verdict to the log."""
    reattach: bool = False
    replace_kube_scheduler: bool = False
    qps: float = 0.0
    """Requests a second of each of two clients, for objects and for events; 0: no limit."""
    burst: int = 1
    resync_check: float = CHECK_SECONDS
    """So often it is asked whether the server was set back."""


class _ObjectsOfCore:
    """Implements what folding annotations asks of `tidelog.api.object_table.Cluster`, on what the core has consumed."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def constraints_max(self) -> int:
        configuration = self._core.configuration
        return 1 if configuration is None else configuration.max_topology_constraints

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        return self._core.objects.get(f"{kind}/{namespace}/{name}")

    def of_kind(self, kind: str, namespace: str = "") -> Iterable[Object]:
        return (
            obj
            for key, obj in self._core.objects.items()
            if key.startswith(f"{kind}/") and namespace in ("", obj.metadata.namespace)
        )

    def member(self, namespace: str, group: str) -> None:  # noqa: ARG002
        return None


class LiveCluster(DecisionGate):
    """One session with an API server, for a runtime that leads its log: `async with cluster.attached(): …`."""

    def __init__(
        self,
        runtime: Runtime,
        port: ClusterPort,
        settings: ClusterSettings,
        projection: Projection,
        *,
        identity: str,
        clock: Clock,
        steady: Callable[[], int] = time.monotonic_ns,
        random: Random | None = None,
    ) -> None:
        if settings.mode == "schedule" and projection.level != "standard":
            raise UsageError("--mode schedule needs the pods' own names: pseudonyms are for recording")
        self.settings = settings
        self.runtime = runtime
        self.identity = identity
        self.readers: dict[str, KindReader] = {}
        self.inbox = Inbox(runtime.log, clock)
        self.leadership: Leadership = Leadership()
        self.writer: Writer | None = None
        self.events: Events | None = None
        self.shadow: Shadow | None = None
        self.failure: BaseException | None = None
        self._bare = port
        self._port = throttled(port, settings.qps, settings.burst, clock)
        self._clock = clock
        self._steady = steady
        self._random = random or Random()
        self._codec = Codec(projection, lambda: _ObjectsOfCore(runtime.core), self._gates, self._said)
        self._warned: dict[str, None] = {}
        """Uids of objects of which it was told that an annotation is wrong."""
        self._may_post = True
        """Events, as far as the server has said."""
        self._led = False
        """The Lease is ours, and all pods were listed since."""
        self._tasks: list[asyncio.Task[None]] = []
        runtime.gate = self

    # --- whether anything is decided --------------------------------------------------------------------------------------

    def may_decide(self) -> bool:
        return (
            self.settings.mode == "schedule"
            and self._led
            and self.synced
            and self.runtime.core.promises.binds + self.runtime.uncommitted < self.settings.unsettled
            and len(self.runtime.core.promises) < 8 * self.settings.unsettled
            and (self.writer is None or not self.writer.channel.forbidden)
        )

    def decided(self, decision: Decision) -> None:
        if self.writer is not None:
            self.writer.grounds.decided(decision)

    # --- what it tells ----------------------------------------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        """The log agrees with the server, in every kind."""
        # Asked before each decision.
        for reader in self.readers.values():
            if not reader.synced:
                return False
        return bool(self.readers)

    def troubles(self) -> list[str]:
        """Why this process is not ready; a standby is."""
        found = [] if self.readers else ["the cluster has not been read yet"]
        now = self._clock.now()
        for name, reader in self.readers.items():
            if not reader.synced:
                found.append(f"{name} is not synced" + (f": {reader.trouble}" if reader.trouble else ""))
            elif reader.trouble:
                found.append(f"{name} cannot be read: {reader.trouble}")
            elif now - reader.heard_at > LAG_SECONDS * NANOS:
                found.append(f"nothing was heard of {name} for {(now - reader.heard_at) // NANOS} s")
        if self.writer is not None and self.writer.channel.forbidden:
            found.insert(0, f"the API server allows no writes: {self.writer.channel.forbidden}")
        return (
            found
            if len(found) <= TROUBLES_TOLD
            else [*found[:TROUBLES_TOLD], f"and {len(found) - TROUBLES_TOLD} more"]
        )

    def statistics(self) -> ClusterStatistics:
        """For metrics."""
        now, readers, writer, events = self._clock.now(), self.readers, self.writer, self.events
        unsettled = dict.fromkeys(EFFECTS, 0)
        oldest = now
        for promise in self.runtime.core.promises:
            for effect in promise.effects.values():
                unsettled[effect.name] += 1
                oldest = min(oldest, effect.at)
        counts = WriterCounts() if writer is None else writer.counts
        requests = {} if writer is None else writer.channel.requests
        seconds_of = {} if writer is None else writer.channel.seconds
        schedules = self.settings.mode == "schedule"
        return ClusterStatistics(
            watch_events={(name,): r.counts.events for name, r in readers.items()},
            watch_suppressed={(name,): r.view.suppressed for name, r in readers.items()},
            watch_restarts={(name,): r.counts.restarts for name, r in readers.items()},
            watch_relists={
                (n, why): many for n, r in readers.items() for why, many in r.counts.relists.items()
            },
            watch_lag={(name,): (now - r.heard_at) / NANOS for name, r in readers.items()},
            objects_unread={(name,): r.counts.unread for name, r in readers.items()},
            api_requests={(v, r, str(code)): many for (v, r, code), many in requests.items()},
            api_seconds={key: seconds for key, (_, seconds) in seconds_of.items()},
            writes_failed={
                (e, str(code), str(f).lower()): many for (e, code, f), many in counts.failed.items()
            },
            confirm_seconds={(): counts.confirm_seconds} if schedules else {},
            confirmed={(): counts.confirmed} if schedules else {},
            unsettled={(name,): many for name, many in unsettled.items()} if schedules else {},
            oldest_unsettled={(): (now - oldest) / NANOS} if schedules else {},
            leader={(): float(self.leadership.may_write())} if schedules else {},
            events_posted={(): events.posted} if events is not None else {},
            events_dropped={(): events.dropped} if events is not None else {},
            late_bindings={(): counts.late} if schedules else {},
            shadow={(name,): n for name, n in sorted(self.shadow.counts.items())} if self.shadow else {},
        )

    # --- the session ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def attached(self) -> AsyncIterator[None]:
        """While the block runs, the log follows the cluster. Raises ClusterError if it cannot even begin."""
        watched = await self._begin()
        try:
            await self._start(watched)
            yield
        finally:
            await self._end()

    async def _begin(self) -> dict[str, Watched]:
        """Learn what this cluster is, say so in the log, and make the readers."""
        runtime, port = self.runtime, self._port
        await runtime.facts.catch_up()
        known = runtime.facts.objects.attachment
        uid, version, watched = await self._met()
        if known is not None and known.cluster != uid and not self.settings.reattach:
            raise UsageError(
                f"this log is of the cluster {known.cluster}, and {port.name} is {uid}; "
                "use another log, or --reattach to take the one for the other"
            )
        await self._check_place()
        await self._check_rights()
        projection = self._codec.projection
        redaction = Redaction(level=projection.level, digest=projection.digest)
        body = ClusterAttached(
            cluster=uid,
            mode=self.settings.mode,
            log_id=known.log_id if known is not None else uuid4().hex[:12],
            server=version,
            identity=self.identity,
            kinds=watched,
            redaction=redaction,
        )
        as_before = known is not None and known.cluster == uid and known.redaction == redaction
        positions = dict(known.positions) if known is not None and as_before else {}
        unread = known.unread if known is not None and as_before else {}
        await runtime.log.append([Draft(body=body, author=AUTHOR)])
        table = runtime.facts.objects
        traits = ServerTraits()
        for name, where in watched.items():
            view = KindView(
                (table.promises.base_of(entry.object) for entry in table.of_kind(name)),
                {key: v for key, v in unread.items() if key.startswith(f"{name}/")},
            )
            self.readers[name] = KindReader(
                KIND_BY_NAME[name],
                where,
                port,
                self.inbox,
                self._clock,
                self._codec,
                view,
                # Who schedules begins with what is so now: a watch's backlog may take a while.
                position="" if self.settings.mode == "schedule" else positions.get(name, ""),
                random=self._random,
                server=traits,
                changed=runtime.changed.ring,
                consumed=self._consumed,
                check_seconds=self.settings.resync_check,
            )
        return dict(watched)

    async def _check_place(self) -> None:
        """Raises UsageError if a kube-scheduler is at work on the pods that this one is to schedule."""
        settings, configuration = self.settings, self.runtime.core.configuration
        if settings.mode != "schedule" or settings.replace_kube_scheduler or configuration is None:
            return
        if all(profile.scheduler_name != DEFAULT_SCHEDULER for profile in configuration.profiles):
            return
        holder = await held_by_another(self._port, "kube-system", "kube-scheduler", self._clock)
        if holder:
            raise UsageError(
                f"kube-scheduler ({holder}) schedules the pods of {DEFAULT_SCHEDULER} here: give the profile another schedulerName, "
                "or stop kube-scheduler, or say --replace-kube-scheduler"
            )

    async def _check_rights(self) -> None:
        """Raises UsageError if this user cannot do what a scheduler does."""
        settings = self.settings
        if settings.mode != "schedule":
            return
        needed = rights.NEEDED
        if settings.lease is not None:
            needed += rights.lease_rights(settings.lease.namespace, settings.lease.name)
        backoff = Backoff(0.8, 30.0, self._random)
        while lacking := await self._missing(needed):
            # An API server that has just started knows no roles yet.
            if backoff.failures >= 5:
                told = ", ".join(map(str, lacking))
                raise UsageError(
                    f"{self._port.name} does not let this user {told}: apply deploy/kubernetes/scheduler, or run with --mode record"
                )
            await pause(self._clock, backoff.next())
        if settings.events and await self._missing((rights.EVENTS,)):
            self._may_post = False
            _log.warning("events are not allowed, and are left out", extra=fields(right=str(rights.EVENTS)))

    async def _missing(self, needed: tuple[rights.Right, ...]) -> list[rights.Right]:
        """Those of these rights that this user does not have, asked until there is an answer."""
        backoff = Backoff(0.8, 30.0, self._random)
        while True:
            try:
                return await rights.missing(self._port, needed)
            except (NotSent, NoAnswer) as error:
                _log.warning("the cluster cannot be reached", extra=fields(error=str(error)))
                await pause(self._clock, backoff.next())

    async def _met(self) -> tuple[str, str, dict[str, Watched]]:
        """(uid, version, kinds) of the cluster, asked until there is an answer."""
        backoff = Backoff(0.8, 30.0, self._random)
        while True:
            try:
                version = await self._read("/version")
                system = await self._read("/api/v1/namespaces/kube-system")
                watched = await discover(self._port, wanted_kinds(self.settings.kinds))
            except (NotSent, NoAnswer) as error:
                _log.warning("the cluster cannot be reached", extra=fields(error=str(error)))
                await pause(self._clock, backoff.next())
                continue
            except _Starting as error:
                if backoff.failures >= 5:
                    raise ClusterError(str(error)) from error
                _log.warning("the cluster does not let us in yet", extra=fields(error=str(error)))
                await self._port.renew()
                await pause(self._clock, backoff.next())
                continue
            uid = msgspec.json.decode(system, type=_Named).metadata.uid
            return uid, msgspec.json.decode(version, type=ServerVersion).git_version, dict(watched)

    async def _read(self, path: str) -> bytes:
        answer = await self._port.send(Request(method="GET", path=path))
        try:
            checked(self._port, answer.status, answer.told().message, f"GET {path}")
        except ClusterError as error:
            # An API server that has just started knows no roles yet.
            raise (
                _Starting(str(error)) if answer.status in (401, 403) or answer.status >= 500 else error
            ) from error
        return answer.body

    async def _start(self, watched: dict[str, Watched]) -> None:
        self._spawn("inbox", self.inbox.run())
        # A pod's threshold is its class's as of the first sync.
        classes = self.readers.get("PriorityClass")
        if classes is not None:
            self._spawn("PriorityClass", classes.run())
            while not classes.synced and self.failure is None:
                await self.runtime.changed.wait(self._clock.now() + NANOS)
        for name, reader in self.readers.items():
            if reader is not classes:
                self._spawn(name, reader.run())
        self._spawn("cursor", self._keep_cursor())
        if self.settings.mode == "shadow":
            self.shadow = Shadow(
                self.runtime.core,
                self.runtime.log,
                self.inbox,
                self._clock,
                records=self.settings.shadow_records,
            )
            self._spawn("shadow", self.shadow.run())
        if self.settings.mode == "schedule":
            self._start_writing(watched)

    def _start_writing(self, watched: dict[str, Watched]) -> None:
        runtime, settings = self.runtime, self.settings
        if settings.lease is not None:
            lease = Lease(
                self._bare,
                settings.lease,
                self.identity,
                self._clock,
                self._steady,
                self.inbox,
                self._random,
                runtime.changed.ring,
            )
            self.leadership = lease
            self._spawn("lease", lease.run())
        self.events = Events(
            throttled(self._bare, settings.qps, settings.burst, self._clock),
            self._clock,
            self.identity,
            enabled=settings.events and self._may_post,
            scheduled=settings.scheduled_events,
            room=lambda: 0 if self.writer is None else self.writer.room,
        )
        self._spawn("events", self.events.run())
        self.writer = Writer(
            self._port,
            runtime.core,
            lambda: runtime.log.head.seq,
            self.inbox,
            self._clock,
            runtime.changed,
            self.leadership,
            codec=self._codec,
            views={name: reader.view for name, reader in self.readers.items()},
            kinds=watched,
            events=self.events,
            settings=settings.writer,
            random=self._random,
            ready=lambda: self._led and self.synced,
            explain=self._explained,
        )
        self._spawn("writer", self.writer.run())
        self._spawn("leadership", self._follow_leadership())

    async def _follow_leadership(self) -> None:
        """List the pods before leading: all that another leader has bound are facts then."""
        first = True
        while True:
            if self.leadership.leading and not self._led:
                pods = self.readers["Pod"]
                if not first:
                    pods.list_again()
                while not (self.synced and self.leadership.leading) and self.leadership.leading:
                    await self.runtime.changed.wait(self._clock.now() + NANOS)
                self._led = self.leadership.leading
                first = False
                self.runtime.changed.ring()
            elif not self.leadership.leading:
                self._led, first = False, False
            await self.runtime.changed.wait(self._clock.now() + NANOS)

    async def _keep_cursor(self) -> None:
        while True:
            await pause(self._clock, CURSOR_SECONDS)
            found = self.runtime.facts.objects.attachment
            known = {} if found is None else found.positions
            moved = {
                name: reader.position
                for name, reader in self.readers.items()
                if reader.synced and reader.position and reader.position != known.get(name)
            }
            if moved:
                await self.inbox.put([Draft(body=Cursor(positions=moved), author=AUTHOR)])
                await self.inbox.flushed()
                await self.runtime.facts.catch_up()

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"cluster {name}")
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and self.failure is None:
            self.failure = error
            self.runtime.changed.ring()

    async def ended(self) -> None:
        """Wait for a failure of one of the tasks, and raise it."""
        while self.failure is None:
            await self.runtime.changed.wait()
        raise self.failure

    async def _end(self) -> None:
        """Send nothing new, let what is under way come to its end, give the Lease back."""
        writer = next((t for t in self._tasks if t.get_name() == "cluster writer"), None)
        self._led = False
        if self.writer is not None and writer is not None and self.failure is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    await self.writer.drained()
        if isinstance(self.leadership, Lease):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    await self.leadership.release()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _consumed(self) -> None:
        """Return when the core has consumed all that is durable now."""
        seq = self.runtime.log.head.seq
        while self.runtime.core.seq < seq:
            await self.runtime.changed.wait()

    async def _explained(self, seq: int) -> str:
        """The outcome's lines beyond its message; nothing if a compaction has dropped it."""
        try:
            body = decode_body(await self.runtime.log.record(seq))
        except LogError:
            return ""
        return "\n".join(body.explanation) if isinstance(body, Unschedulable) else ""

    # --- small things -----------------------------------------------------------------------------------------------------

    def _gates(self) -> FeatureGates:
        return self.runtime.facts.gates

    def _said(self, obj: Object, texts: Sequence[str]) -> None:
        """Something is wrong with an object's annotations: it is told once."""
        uid = obj.metadata.uid
        if uid in self._warned:
            return
        self._warned[uid] = None
        _log.warning("annotations are ignored", extra=fields(name=obj.metadata.name, why="; ".join(texts)))
        if self.events is not None and self.leadership.leading:
            self.events.say(obj, Saying("Warning", "InvalidAnnotation", "Reading", cut("; ".join(texts))))


class _Starting(ClusterError):
    """The server does not let us in, or not yet."""


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()

"""The shell around the core: asyncio tasks that carry records from the log to it, and its decisions back.

    the log ──tail──► consume ──► Core.apply ◄──────────────┐
                                     │                      │ at the moment of sequencing: consume what came before,
                            schedule │ Core.attempt         │ check (DESIGN rule 4), draft, consume the drafts
                                     ▼                      │
                               decisions ──► commit ──► Log.append(check)
                                                            ▲
                       tick, act ───────────────────────────┘

- *consume* applies durable records as they come; *schedule* decides as long as there is something to decide, and never waits for the disk;
  *commit* hands all decisions that were made meanwhile to the log, as one append.
- The check of a decision runs when the log sequences it: every record before it is consumed then, also those that are not durable yet. So
  the check sees what a replay sees. Should such records never become durable, the log takes nothing more and this process ends: the core
  may be ahead of the disk, but nobody is told anything by it.
- *tick* appends a `Tick` when the core is owed one, *act* does the errands of actors, *keep* puts snapshots of the state into the log,
  *retain* drops records that are older than what is to be kept.

Everything runs on one thread, in slices of about a millisecond. `Runtime` runs on any `Clock`; on a virtual one its tasks take turns in
the same way each time, so that a log is reproduced to the byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from tidelog.api.errors import InvalidObjects, LogBusy, LogFull
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import SchedulerConfiguration
from tidelog.daemon.actors.errands import DueErrand, ErrandBook, KeyedObjects, TabledObjects
from tidelog.daemon.actors.protocol import Actor
from tidelog.daemon.intake.facts import FactService
from tidelog.daemon.process.clock import Bell, Clock
from tidelog.daemon.process.logs import fields
from tidelog.daemon.process.retention import Retention, retain
from tidelog.daemon.process.snapshots import Keeper
from tidelog.eventlog.log import AppendMoment, Log, in_steps
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.records import (
    KIND_OF_BODY,
    Body,
    ConfigurationLoaded,
    Draft,
    Record,
    Tick,
    decode_body,
)
from tidelog.eventlog.table_encoding import encoding
from tidelog.framework.effort import Paused
from tidelog.scheduler.core import Core
from tidelog.scheduler.decision import AUTHOR, Decision
from tidelog.scheduler.state import capturing

T = TypeVar("T")

PAUSES_PER_GROWTH = 16
"""After so many turns of an attempt each of the next ones has as many steps more as the first."""

SWITCH_SECONDS = 0.0005
"""How long a thread keeps the interpreter while others wait. The log's own threads would starve beside an event loop that always has work."""

_log = logging.getLogger("tidelog.scheduler")


GARBAGE_THRESHOLDS = (12_500, 0, 4_000)
"""How often the collector looks for cycles. What the scheduler keeps for long are many objects without any; at Python's own thresholds
looking at them again and again takes a sixth of the time. Every second time it looks at what has come since the time before the last one:
25,000 objects at most, 20 milliseconds."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """All arbitrary within a factor of two or so."""

    uncommitted: int = 512
    """Limit on decisions that wait to be committed; beyond it nothing is decided until the disk has caught up."""
    slice_nanos: int = 1_000_000
    """How long one task works before the others get their turn."""
    slice_steps: int = 64
    """… or so many records or attempts."""
    attempt_steps: int = 5_000
    """An attempt lets others work after so many steps of a search: some 10 to 20 ms …"""
    attempt_growth: int = 4
    """… and up to so many times as many, the longer it goes on: what each turn begins with anew may take most of one …"""
    attempt_pauses: int = 500
    """… but no more often than this, so that it ends however much changes meanwhile."""
    consumed_at_check: int = 1_000
    """With more records than this still to be consumed, decisions are not checked but wait for another turn …"""
    bytes_at_check: int = 2**20
    """… or with more in them, unless it is one record."""
    snapshot_every: int = 20_000
    """A whole snapshot after so many records, or as many as there are objects, which makes its cost a constant share. 0: none at all."""
    full_seconds: float = 1.0
    """A full disk is tried again after this."""
    decides: bool = True
    """False: somebody else schedules; records are consumed and actors play all the same."""
    keep: Retention | None = None
    """Older records are dropped while the scheduler runs; None: never."""
    retain_every: int = 1_000
    """It is looked whether any may go when so many have come."""


class Watcher:
    """Is told what happens, for metrics. This one does not care."""

    def configured(self, core: Core) -> None:
        """A configuration came into force, the queue and the frameworks are new; also once at the start."""

    def consuming(self) -> None:
        """A record is about to be consumed."""

    def attempted(self, core: Core, decision: Decision, nanos: int) -> None:
        """A decision was made, in this time."""

    def committed(self, decisions: Sequence[Decision]) -> None:
        """These are in the log; where the check said no, an abort in place of the decision."""

    def consumed(self, record: Record, body: Body) -> None:
        """A record has been consumed."""


class DecisionGate:
    """Has a say in whether anything is decided, beside the runtime itself: a live cluster does. This one lets everything through."""

    def may_decide(self) -> bool:
        """Whether an attempt may be made now; ring the runtime's bell when the answer changes."""
        return True

    def decided(self, decision: Decision) -> None:
        """A decision has passed the commit check and is about to be in the log."""


class Closed(DecisionGate):
    """Somebody else schedules."""

    def may_decide(self) -> bool:
        return False


class Stopped(Exception):
    """The runtime is not running (any more)."""


class Runtime:
    """A scheduler at work on a log that this process writes: `async with Runtime(log, core, facts, clock) as runtime:`.

    `core` has consumed the whole log. Entering takes the log for a new epoch and puts the configuration in force; leaving finishes what
    is in flight. Whatever goes wrong meanwhile ends it: `wait` raises it, and so does leaving.
    """

    def __init__(
        self,
        log: Log,
        core: Core,
        facts: FactService,
        clock: Clock,
        *,
        configuration: SchedulerConfiguration,
        source: str = "",
        holder: str = "tidelog",
        actors: Sequence[Actor] = (),
        limits: Limits | None = None,
        watcher: Watcher | None = None,
        kept: int | None = None,
        whole: int | None = None,
    ) -> None:
        """`kept`: the newest record at which the log has a state, by default where `core` is; `whole`: at which it has one with objects, as in
        `tidelog.replay.states`."""
        self.log = log
        self.core = core
        self.facts = facts
        self.clock = clock
        self.limits = limits or Limits()
        self.changed = Bell(clock)
        """Rung whenever anything has happened."""
        self.full: LogFull | None = None
        """The disk has no room; decisions wait."""
        self.gate = DecisionGate() if self.limits.decides else Closed()
        """To be set, if at all, before the runtime is entered."""
        self._configuration = configuration
        self._source = source
        self._holder = holder
        self._watcher = watcher or Watcher()
        self._errands = ErrandBook(actors)
        self._decisions: list[Decision] = []
        """Made and not handed to the log."""
        self._committing = 0
        """Handed to the log and not durable."""
        self._appending = 0
        """Ticks, errands and configurations on their way into the log."""
        self._sleeping = 0
        self._resting = False
        """There was nothing to decide when it was last tried."""
        self._holding = False
        """Nothing may be decided now: a snapshot is to be taken of a state with nothing in flight."""
        self._stop: int | None = None
        """The core is not to go beyond this record now: its state there is to be captured."""
        self._pauses = 0
        """How often the attempt that is next has been interrupted."""
        self._draining = False
        """A decision was aborted: nothing is decided until all that was made beside it is through. Each abort takes the ground from those who saw
        its pod in its place; decided at once, two pods could go on aborting each other for ever."""
        self._stopping = False
        self._keeper = Keeper(log, core.seq if kept is None else kept, self.limits.snapshot_every, whole)
        self._has_begun = False
        self._begun = core.seq
        """Up to here the core and the table for admission had consumed the log when the tasks began."""
        self._now = core.at
        self._main: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: BaseException | None = None

    # --- from outside -------------------------------------------------------------------------------------------------

    async def begin(self) -> Self:
        """Take the log for a new epoch, and put the configuration in force, as soon as there is room on the disk. Entering does it otherwise."""
        if not self._has_begun:
            await self._take_the_log()
            self._has_begun = True
        return self

    async def __aenter__(self) -> Self:
        await self.begin()
        self._main = asyncio.create_task(self._run(), name="tidelog runtime")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
        if self._failure is not None and error is None:
            raise self._failure

    @property
    def failure(self) -> BaseException | None:
        """The error that ended it."""
        return self._failure

    @property
    def uncommitted(self) -> int:
        """Decisions that were made and are not durable."""
        return len(self._decisions) + self._committing

    @property
    def behind(self) -> int:
        """Durable records that have not been consumed."""
        return max(0, self.log.head.seq - self.core.seq)

    @property
    def is_settled(self) -> bool:
        """Everything in the log is consumed, everything decided is durable, and until time goes by there is nothing to do."""
        now = self.clock.now()
        attempt_at = self.core.next_attempt_at(now) if self.gate.may_decide() else None
        due = (attempt_at, self.core.next_tick_at(), self._errands.next_at())
        return (
            (self._resting or not self.gate.may_decide())
            and not (self.uncommitted or self._appending or self.log.waiting or self.core.in_flight)
            and self.core.seq == self.log.head.seq <= self.facts.objects.seq
            and not any(at is not None and at <= now for at in due)
        )

    @property
    def is_sleeping(self) -> bool:
        """Some task waits for time, to try again what went wrong."""
        return self._sleeping > 0

    async def settled(self) -> None:
        """Return when it is. Raises what ended the runtime."""
        while True:
            if self._failure is not None or self._main is None or self._main.done():
                raise self._failure or Stopped("the runtime was stopped")
            if self.is_settled:
                return
            await self.changed.wait(self.clock.now() + NANOS)

    async def wait(self) -> None:
        """Return when it was stopped; raises what ended it otherwise."""
        await self.ended()
        if self._failure is not None:
            raise self._failure

    async def configure(self, configuration: SchedulerConfiguration, source: str = "") -> None:
        """Put another configuration in force; returns when it is."""
        self.core.check(configuration)
        (record,) = await self._append([_loaded(configuration, source)])
        await self._consumed(record.seq)

    async def stop(self, seconds: float = 1.0) -> None:
        """Decide nothing any more, finish what is in flight, as far as that takes no longer than this, and end."""
        self._stopping = True
        self.changed.ring()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._failure is None and (self.uncommitted or self._appending):
                    await self.changed.wait()
        self.abandon()
        await self.ended()

    def abandon(self) -> None:
        """End without finishing anything, as if the process were killed."""
        self._stopping = True
        if self._main is not None and not self._tasks:
            self._main.cancel()  # It has not begun; it would otherwise begin after this, and nobody would end it.
        for task in self._tasks:
            task.cancel()

    async def ended(self) -> None:
        """Return when no task is left."""
        if self._main is not None:
            await asyncio.wait([self._main])

    # --- the beginning --------------------------------------------------------------------------------------------------

    async def _take_the_log(self) -> None:
        core = self.core
        # The machine's clock may have been set back since the log was written; time must not stand still until it has caught up.
        self.clock.not_before(core.at)
        started = await self._patiently(lambda: self.log.take_over(self._holder))
        self._apply(started, decode_body(started))
        if core.configuration != self._configuration:
            # The same one again would wake every waiting pod for nothing.
            core.check(self._configuration)
            loaded = [_loaded(self._configuration, self._source)]
            for record in await self._patiently(lambda: self.log.append(loaded)):
                self._apply(record, decode_body(record))
        else:
            self._configured()
        assert core.seq == self.log.head.seq, "nobody else appends before the runtime runs"
        self._begun = min(core.seq, self.facts.objects.seq)
        self._errands.configured(self._configuration)
        self._errands.begin(KeyedObjects(core.objects), core.seq, self._time())

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the work, as soon as there is room for it."""
        while True:
            try:
                return await work()
            except LogFull as error:
                _log.error("the disk is full: the log is not taken yet", extra=fields(error=str(error)))
                await self._sleep(self.limits.full_seconds)

    async def _run(self) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(min(interval, SWITCH_SECONDS))
        thresholds = gc.get_threshold()
        young, middle, old = GARBAGE_THRESHOLDS
        gc.set_threshold(max(young, thresholds[0]), middle, max(old, thresholds[2]))
        try:
            async with asyncio.TaskGroup() as group:
                for work in (
                    self._consume,
                    self._schedule,
                    self._commit,
                    self._tick,
                    self._act,
                    self._keep,
                    self._retain,
                ):
                    self._tasks.append(group.create_task(work(), name=work.__name__.strip("_")))
        except BaseExceptionGroup as errors:
            # One failed, the others were cancelled; which of two was first does not matter to anybody.
            self._failure = errors.exceptions[0]
        finally:
            sys.setswitchinterval(interval)
            gc.set_threshold(*thresholds)
            self.changed.ring()

    def _time(self) -> int:
        """Now, for the core: no earlier than what it was told before."""
        self._now = max(self._now, self.clock.now(), self.core.at)
        return self._now

    # --- consuming ------------------------------------------------------------------------------------------------------

    async def _consume(self) -> None:
        # Not from where the core is now: a check may have consumed beyond the durable end by the time this begins.
        async for batch in self.log.tail_batches(self._begun + 1):
            turn = _Turn(self)
            for record in batch:
                if not self._may_consume(record.seq):
                    self.changed.ring()  # The core stands where it was to.
                    while not self._may_consume(record.seq):
                        await self.changed.wait()
                # The check of a decision may have gone further, and so may a request.
                for_core, for_table = record.seq > self.core.seq, record.seq > self.facts.objects.seq
                if for_core or for_table:
                    body = self.log.body_of(record, for_core + for_table)
                    if for_core:
                        self._apply(record, body)
                    self.facts.follow(record, body)
                    if turn.is_over() if for_core else turn.is_late():
                        await turn.end()
            await turn.end()

    def _may_consume(self, seq: int) -> bool:
        return self._stop is None or seq <= self._stop

    def _apply(self, record: Record, body: Body) -> None:
        self._watcher.consuming()
        self.core.apply(record, body)
        self._resting = False
        if isinstance(body, ConfigurationLoaded):
            self._configured()
        self._watcher.consumed(record, body)
        if self._errands.actors:
            self._errands.consume(record, body, KeyedObjects(self.core.objects))

    def _configured(self) -> None:
        assert self.core.configuration is not None
        self.facts.gates = self.core.configuration.feature_gates
        self._watcher.configured(self.core)

    async def _consumed(self, seq: int) -> None:
        while self.core.seq < seq:
            await self.changed.wait()

    # --- deciding -------------------------------------------------------------------------------------------------------

    async def _schedule(self) -> None:
        while not self._stopping:
            turn = _Turn(self)
            while self._may_decide() and self._decide():
                if turn.is_over() or self._pauses:
                    break
            else:
                # While nothing may be decided, a deadline that has passed would wake this at once, again and again.
                may_rest = self._resting and self._may_decide()
                until = self.core.next_attempt_at(self._time()) if may_rest else None
                self.changed.ring()
                await self.changed.wait(until)
                continue
            await turn.end()

    def _may_decide(self) -> bool:
        self._draining = self._draining and self.core.in_flight > 0
        return (
            not (self._stopping or self._holding or self._draining)
            and self.log.failure is None
            and self.uncommitted < self.limits.uncommitted
            and self.gate.may_decide()
        )

    def _steps(self) -> int | None:
        """How many steps the next turn of an attempt has; None: it goes on to its end."""
        limits, pauses = self.limits, self._pauses
        if pauses >= limits.attempt_pauses:
            return None
        return limits.attempt_steps * min(limits.attempt_growth, 1 + pauses // PAUSES_PER_GROWTH)

    def _decide(self) -> bool:
        began, now = self.clock.lap(), self._time()
        try:
            decision = self.core.attempt(now, self._steps())
        except Paused:
            self._pauses += 1
            self._resting = False
            return True
        self._pauses = 0
        if decision is None:
            self._resting = True
            return False
        self._decisions.append(decision)
        self._watcher.attempted(self.core, decision, self.clock.lap() - began)
        return True

    # --- committing -----------------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        while True:
            while not self._decisions:
                await self.changed.wait()
            batch, self._decisions = self._decisions, []
            self._committing = len(batch)
            committed = await self._commit_batch(batch)
            self._committing = 0
            self._watcher.committed(committed)
            self.changed.ring()

    async def _commit_batch(self, batch: Sequence[Decision]) -> Sequence[Decision]:
        """Append the decisions; returns what is in the log."""
        check = _Check(self, batch)
        while not check.done:
            while self.behind > self.limits.consumed_at_check:
                await self.changed.wait()
            try:
                await self.log.append(check, since=self.core.seq)
            except LogFull as error:
                if self.full is None:
                    _log.error("the disk is full: decisions wait", extra=fields(error=str(error)))
                self.full = error
                self.changed.ring()
                await self._sleep(self.limits.full_seconds)
        if self.full is not None:
            _log.info("the disk has room again")
            self.full = None
        return check.committed

    async def _sleep(self, seconds: float) -> None:
        until = self.clock.now() + round(seconds * NANOS)
        self._sleeping += 1
        try:
            while self.clock.now() < until:
                await self.changed.wait(until)
        finally:
            self._sleeping -= 1

    async def _append(
        self, what: Sequence[Draft] | Callable[[AppendMoment], Sequence[Draft]]
    ) -> list[Record]:
        return await self._counted(self.log.append(what))

    async def _counted(self, work: Awaitable[list[Record]]) -> list[Record]:
        """Wait for an append, which keeps the runtime from being settled."""
        self._appending += 1
        try:
            return await work
        finally:
            self._appending -= 1
            self.changed.ring()

    # --- time -----------------------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            due = self.core.next_tick_at()
            if due is not None and due <= self.core.last_tick_at:
                # A tick that changed nothing must not be followed by another at once, whatever the reason is.
                due = self.core.last_tick_at + NANOS
            if due is None or due > self._time():
                await self.changed.wait(due)
                continue
            try:
                records = await self._append([Draft(body=Tick(), author="ticker")])
            except LogFull:
                await self._sleep(self.limits.full_seconds)
                continue
            await self._consumed(records[-1].seq)

    # --- actors ---------------------------------------------------------------------------------------------------------

    async def _act(self) -> None:
        while True:
            due = self._errands.next_at()
            if due is None or due > self._time():
                await self.changed.wait(due)
                continue
            entries = self._errands.take_due(self._time())
            # Each sees what the ones before it did, and yet all are one trip to the disk.
            await asyncio.gather(*map(self._run_counted, entries))

    async def _run_counted(self, entry: DueErrand) -> list[Record]:
        # In a coroutine of its own, which may be cancelled before it begins without leaving another one that was never awaited.
        return await self._counted(self._run_errand(entry))

    async def _run_errand(self, entry: DueErrand) -> list[Record]:
        def act(table: ObjectTable, moment: AppendMoment) -> list[Draft]:
            return self._errands.run(entry, TabledObjects(table), moment.at)

        while True:
            try:
                return await self.facts.act(act)
            except InvalidObjects as error:
                # An actor made of somebody's template what may not enter; others go on.
                _log.error("what an actor made is refused", extra=fields(error=str(error)))
                return []
            except LogFull:
                await self._sleep(self.limits.full_seconds)

    # --- snapshots ------------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while self.limits.snapshot_every:
            if not self._keeper.is_due(self.core):
                await self.changed.wait()
                continue
            await self.keep_snapshot(whole=self._keeper.is_whole_due(self.core))

    async def _retain(self) -> None:
        while (keep := self.limits.keep) is not None:
            seen = self.log.head.seq
            try:
                dropped = await retain(self.log, keep, self._time())
            except (LogFull, LogBusy) as error:
                _log.warning("old records cannot be dropped yet", extra=fields(error=str(error)))
                dropped = 0
            if dropped:
                _log.info(
                    "dropped old records", extra=fields(records=dropped, begins=self.log.anchor.seq + 1)
                )
            while self.log.head.seq - seen < self.limits.retain_every:
                await self.changed.wait()

    async def keep_snapshot(self, *, whole: bool = True) -> int:
        """Put the state into the log, for the next start, `whole`: with its objects; returns its seq. Decisions pause until nothing is in flight."""
        mark, objects = None, None
        with contextlib.ExitStack() as marks:
            self._holding = True
            try:
                while self.core.in_flight:
                    await self.changed.wait()
                if whole:
                    mark = marks.enter_context((await self._caught_up()).marked())
                self._stop = self.core.seq if mark is None else mark.seq
                while self.core.seq < self._stop:
                    await self.changed.wait()
                capture = await in_steps(capturing(self.core))
            finally:
                self._holding, self._stop = False, None
                self._resting = False
                self.changed.ring()
            if mark is not None:
                assert mark.seq == capture.seq
                objects = await in_steps(encoding(mark))
        # Also what a snapshot has left that came to nothing.
        await in_steps(self.facts.objects.folding())
        await self._durable(capture.seq)
        await self._keeper.keep(capture, objects)
        return capture.seq

    async def _caught_up(self) -> ObjectTable:
        """The objects as they are after a record that the core has not gone beyond; nothing may be in flight."""
        table = self.facts.objects
        while table.seq < self.core.seq:
            await self._durable(self.core.seq)
            await self.facts.catch_up()
        return table

    async def _durable(self, seq: int) -> None:
        """Return when the record is: what was consumed may be ahead of the disk."""
        while self.log.head.seq < seq:
            await self.changed.wait()


class _Turn:
    """One task's slice of the event loop."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._begin()

    def _begin(self) -> None:
        self._steps = 0
        self._end = self._runtime.clock.lap() + self._runtime.limits.slice_nanos

    def is_over(self) -> bool:
        """Whether it is time to let others work; to be asked after each step."""
        self._steps += 1
        return self._steps >= self._runtime.limits.slice_steps or self.is_late()

    def is_late(self) -> bool:
        """As `is_over`, after a step so small that only its time counts."""
        return self._runtime.clock.lap() >= self._end

    async def end(self) -> None:
        """Let others work, and begin anew."""
        self._runtime.changed.ring()
        await asyncio.sleep(0)
        self._begin()


class _Check:
    """The commit check: called by the log when it sequences a batch of decisions."""

    def __init__(self, runtime: Runtime, batch: Sequence[Decision]) -> None:
        self.done = False
        self.committed: list[Decision] = []
        """The decisions as they are appended: an abort in place of each that must not be."""
        self._runtime = runtime
        self._batch = batch

    def _is_too_much(self, unseen: Sequence[Record]) -> bool:
        limits = self._runtime.limits
        if len(unseen) > limits.consumed_at_check:
            return True
        return len(unseen) > 1 and sum(len(record.body) for record in unseen) > limits.bytes_at_check

    def __call__(self, moment: AppendMoment) -> Sequence[Draft]:
        runtime, core = self._runtime, self._runtime.core
        unseen = moment.since(core.seq)
        if self._is_too_much(unseen):
            return ()
        for record in unseen:
            runtime._apply(record, runtime.log.body_of(record))
        drafts: list[Draft] = []
        for decision in self._batch:
            found = core.conflict(decision)
            if found is not None:
                decision = core.aborted(decision, found)
                runtime._draining = True
            else:
                runtime.gate.decided(decision)
            self.committed.append(decision)
            for key, body in decision.outcomes:
                drafts.append(Draft(body=body, author=AUTHOR, key=key))
                # Consumed as the record that it will be, so that the next decision is checked on what this one leaves.
                kind = KIND_OF_BODY[type(body)]
                runtime._apply(Record(core.seq + 1, moment.at, AUTHOR, kind, key, 0, b"", b""), body)
        assert core.seq == moment.seq + len(drafts)
        self.done = True
        runtime.changed.ring()
        return drafts


def _loaded(configuration: SchedulerConfiguration, source: str) -> Draft:
    body = ConfigurationLoaded(configuration=msgspec.to_builtins(configuration), source=source)
    return Draft(body=body, author=AUTHOR)

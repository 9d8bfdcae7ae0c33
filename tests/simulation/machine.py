"""A simulated machine on which the daemon runs: processes with the real writer logic, their lock, their sockets, and what happens to them.

    story ──► Machine.tell ──► clients ──(the real protocol)──► leader   Candidate ► Runtime ► Core      ┐
                   │                                            standby  Candidate ► Standby ► Recovery  ├─► SimFiles ─► SimDisk
                   └──► faults: kill, pause, power loss, a stolen lock, a failing or full disk ──────────┘        │ durable
                                                                                                                  ▼
                                                                                          judge ◄── every record, in order

Only what the operating system does is simulated: processes, time, files, locks, bytes on their way between processes. From a seed everything
follows; nothing here reads a clock, a file or a socket, or starts a thread.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tests.simulation.disk import CrashPoint, SimDisk
from tests.simulation.judge import Judge, Violation
from tests.simulation.liveness import FLUSH_SECONDS, LOOKS, REST_SECONDS, Follower, asleep, stuck
from tests.simulation.loop import CURRENT, OUTSIDE, Killed, Process, SimLoop
from tests.simulation.mending import Mending
from tests.simulation.programs import Compaction, Daemon, Held, MendingTool, Program
from tests.simulation.real_store import RealDisk, RealFiles
from tests.simulation.sim_store import SimFiles
from tests.simulation.steps import (
    Advance,
    AnyStep,
    ClockJump,
    Compact,
    Configure,
    CrashAt,
    DiskFull,
    FailSync,
    FailWrites,
    Kill,
    Manifest,
    Pause,
    PowerLoss,
    Reimport,
    Repair,
    Request,
    Restart,
    Role,
    StealLock,
    Stop,
    Story,
    Tamper,
)
from tests.simulation.telling import asked_about, facts_of
from tidelog.api.errors import InternalError, LogDamaged, LogError, TidelogError
from tidelog.api.objects import Object
from tidelog.api.times import NANOS
from tidelog.configuration.configuration import resolve_configuration
from tidelog.daemon.actors.catalogue import cast_of
from tidelog.daemon.intake import messages as fact_messages
from tidelog.daemon.intake.messages import Answer, read_answer, write_request
from tidelog.daemon.process.recovery import recovered_core
from tidelog.daemon.process.runtime import Limits
from tidelog.eventlog.objects import ObjectTable
from tidelog.eventlog.reader import LogReader
from tidelog.eventlog.records import Record, Row
from tidelog.eventlog.socket import HandoverClient
from tidelog.eventlog.store import Head
from tidelog.eventlog.verify import verify as verify_chain
from tidelog.plugins.registry import Registry
from tidelog.replay.history import History
from tidelog.replay.verify import verify
from tidelog.scheduler.core import Core
from tidelog.testing.virtual_time import START

T = TypeVar("T")

PATIENCE_SECONDS = 300.0
"""So long a client tries; then it gives up."""
ANSWER_SECONDS = 60.0
"""So long it waits for one answer."""
SETTLE_SECONDS = 10.0
"""So long the story waits for the scheduler to come to rest, before it goes on all the same."""
END_SECONDS = 200.0
"""… and at its end, when nothing is broken any more. Longer than any fault of a story."""
STOP_SECONDS = 10.0
"""A process that is told to stop has ended after this."""
RESTART_SECONDS = 2.0
"""A process that ended with an error is started again after this."""
SEARCH_EVERY = 8
"""At so many-th rest everybody is tried anew, which costs as much as some dozen rests."""
TRIES = 30
"""So often a repair or an import is tried again that something has cut short: longer than any fault of a story."""
TAMPERED_SECONDS = 5.0
"""So long after the files were put back somebody may end with an error that they caused."""
LOOK_SECONDS = 0.002
"""How often it is looked whether the scheduler is at rest."""


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from one simulation to the next and is no step of its story; drawn from the seed."""

    standby: bool
    poll_seconds: float
    disorder: float
    disk_seconds: float
    """How long a trip to the disk takes at most."""
    limits: Limits
    stops: bool
    """At the end the leader is told to stop, and the standby takes over."""

    @classmethod
    def of(cls, seed: int) -> Habits:
        """Those of this seed."""
        dice = random.Random(f"habits {seed}")
        return cls(
            standby=dice.random() < 0.6,
            poll_seconds=dice.choice([0.5, 2.0, 5.0]),
            disorder=dice.choice([0.0, 0.1, 1.0]),
            disk_seconds=dice.choice([0.0, 0.001, 0.02]),
            limits=Limits(
                uncommitted=dice.choice([1, 4, 512]),
                slice_steps=dice.choice([1, 4, 64]),
                consumed_at_check=dice.choice([5, 1000]),
                snapshot_every=dice.choice([0, 30, 100]),
            ),
            stops=dice.random() < 0.3,
        )


class Machine:
    """Tells one story: `run`. Raises the first violation of anything."""

    def __init__(
        self,
        story: Story,
        judge: Judge,
        registry: Registry,
        habits: Habits | None = None,
        folder: Path | None = None,
    ) -> None:
        """With a folder, the product's own store is on it; else a simulated one."""
        self.story = story
        self.judge = judge
        self.registry = registry
        self.habits = habits or Habits.of(story.seed)
        self.rng = random.Random(f"machine {story.seed}")
        self.loop = SimLoop(self.rng, self.habits.disorder)
        self.files = self._files(folder)
        self.disk: SimDisk | RealDisk = self.files.disk
        self.disk.on_crash = self._crash
        self.files.on_durable = self._durable
        self.files.on_opened = self._opened
        self.lock: Held | None = None
        self.records: list[Record] = []
        """Durable, in order."""
        self._follower = Follower(registry)
        """Behind `records`."""
        self.configuration = resolve_configuration(story.configuration, registry).configuration
        self.cast = cast_of(story.actors)
        self.daemons: dict[str, Daemon] = {}
        """By name; the newest process of each."""
        self.is_mending = False
        """Nobody may start the daemons, or a compaction: the log is being repaired, or imported, or an old one stands there."""
        self.tools: list[Program] = []
        """Runs of `tidelog log …`; all there ever were."""
        self.processes: list[Process] = []
        """All there ever were."""
        self.counts = {"starts": 0, "ends": 0, "power losses": 0, "kills": 0, "thefts": 0, "compactions": 0, "compactions refused": 0, "asked": 0, "answered": 0, "refused": 0, "given up": 0, "rests": 0, "repairs": 0, "imports": 0, "records lost to damage": 0, "standbys of a mended log": 0, "logs that begin later": 0, "tamperings": 0}  # fmt: skip
        self._jumps = 0
        """By how much its clock was set forward, in nanoseconds."""
        self._tampered = (0, -(10**18))
        """How many records there were when the files were tampered with last, and when that was put right."""
        self._stolen = 0
        self._robbed: list[Program] = []
        """Who lost the lock without being asked."""
        self._asking: list[asyncio.Task[None]] = []
        self._objects = ObjectTable()
        """What clients read; behind `records`."""

    def _files(self, folder: Path | None) -> SimFiles | RealFiles:
        if folder is None:
            return SimFiles(SimDisk(self.rng), self._disk_delay)
        files = RealFiles(RealDisk(self.rng, folder), self._disk_delay)
        files.on_locked = self._locked
        files.on_unlocked = self._unlocked
        return files

    def _locked(self, lock: Any) -> None:
        lock.program = next(p for p in self._alive if p.process is lock.process)
        self.lock = lock

    def _unlocked(self, lock: Any) -> None:
        if self.lock is lock:
            self.lock = None

    # --- what processes see of the machine -----------------------------------------------------------------------------

    def wall(self) -> int:
        """What its clock shows."""
        return START + self.loop.now + self._jumps

    def steady(self) -> int:
        """What its steady clock shows."""
        return self.loop.now

    @property
    def faults(self) -> int:
        """How much has gone wrong that may end a process with an error."""
        return self.disk.faults + self._stolen

    def has_robbed_leader(self) -> bool:
        """Whether somebody still believes to hold the lock: until he notices, one of the two who write may find that the other has."""
        return any(program.process.alive for program in self._robbed)

    def _disk_delay(self) -> float:
        return self.rng.random() * self.habits.disk_seconds

    def _durable(self, rows: Sequence[Row]) -> None:
        for row in rows:
            seq = row[0]
            if seq <= len(self.records):
                if self.records[seq - 1].digest != row[7]:
                    self._broken(
                        Violation("lost", f"record {seq} was durable, and another one is in its place")
                    )
                continue
            record = Record(*row)
            self.records.append(record)
            self.judged(self.judge.consume, record)

    def _opened(self, anchor: Head) -> None:
        """Whoever was robbed while he opened it saw it as it was then."""
        if all(program.process is not CURRENT.get() for program in self._robbed):
            self.judged(self.judge.opened, anchor)

    def judged(self, judge: Callable[[T], None], what: T) -> None:
        """Have this judged; a violation ends the simulation, not whose work it is found in."""
        try:
            judge(what)
        except AssertionError as error:
            self._broken(error)

    def _broken(self, error: BaseException) -> None:
        """The simulation ends with this, whoever is running."""
        if self.loop.abort is None:
            self.loop.abort = error

    # --- processes ------------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start the process of this name, unless it runs."""
        old = self.daemons.get(name)
        if self.is_mending or (old is not None and old.process.alive):
            return
        process = Process(name)
        self.processes.append(process)
        self.counts["starts"] += 1
        self.daemons[name] = daemon = process.context.run(Daemon, self, process)
        self._launch(daemon)

    def _launch(self, program: Program) -> None:
        program.working = self.loop.create_task(program.work(), context=program.process.context.copy())
        program.working.add_done_callback(lambda task: self._ended(program, task), context=OUTSIDE.copy())

    def kill(self, program: Program) -> None:
        """The process is gone at this instant."""
        program.process.alive = False
        program.process.held.clear()
        self.files.close_all_of(program.process)
        if program.server is not None:
            program.server.hang_up()

    def _kill(self, program: Program, back_after: float | None) -> None:
        """… and comes back, if it is a daemon."""
        self.counts["kills"] += 1
        self.kill(program)
        if back_after is not None and isinstance(program, Daemon):
            self._later(back_after, lambda: self.start(program.process.name))

    def _ended(self, program: Program, task: asyncio.Task[None]) -> None:
        """The process came to its own end."""
        self.kill(program)
        error = task.exception()
        if isinstance(error, Killed):
            return
        if error is None:
            if not program.may_end:
                self._broken(
                    Violation("end", f"process {program.process.name} ended, and nobody had told it to")
                )
            return
        self.counts["ends"] += 1
        excused = self.faults > program.faults_before or self.disk.full or program.is_beside_robbed
        excused = excused or program.is_left_behind
        is_damage = isinstance(error, LogDamaged) and not self._is_tampered
        if not isinstance(error, LogError) or is_damage or not (excused or self._is_tampered):
            self._broken(error)
            return
        if isinstance(program, Daemon):
            self._later(RESTART_SECONDS, lambda: self.start(program.process.name))

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.loop.call_later(seconds, call, context=OUTSIDE.copy())

    @property
    def leader(self) -> Program | None:
        """Who holds the lock."""
        held = self.lock
        return held.program if held is not None and held.program.process.alive else None

    @property
    def _alive(self) -> list[Program]:
        return [p for p in (*self.daemons.values(), *self.tools) if p.process.alive]

    def _of(self, role: Role) -> Program | None:
        leader = self.leader
        if role == "leader":
            return leader
        return next((d for d in self.daemons.values() if d.process.alive and d is not leader), None)

    # --- the story ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Tell it to its end, and check everything."""
        try:
            with self.files.installed(self.story.seed):
                self.loop.run(self._tell())
        finally:
            self.loop.clear_away(self.processes)
        if self.loop.complaints:
            raise Violation("asyncio", f"{self.loop.complaints[0]}")

    async def _tell(self) -> None:
        self.start("one")
        if self.habits.standby:
            self.start("two")
        for step in self.story.steps:
            await self._mend_torn()
            await self._do(step)
        await self._end()

    async def _do(self, step: AnyStep) -> None:
        match step:
            case Configure():
                self._configure(step.configuration)
                if step.settle:
                    await self._settle()
            case Request():
                task = asyncio.create_task(self._ask(step))
                self._asking = [each for each in self._asking if not each.done()] + [task]
                if step.settle:
                    await asyncio.wait([task], timeout=ANSWER_SECONDS)
                    await self._settle()
            case Advance():
                await asyncio.sleep(step.seconds)
            case ClockJump():
                self._jumps += round(step.seconds * NANOS)
            case Kill():
                program = self._of(step.process)
                if program is not None:
                    self._kill(program, step.back_after)
            case PowerLoss():
                self._lose_power(step.back_after)
            case Stop():
                await self._stop_all()
            case Restart():
                self._start_all()
            case Compact():
                await self._compact(step)
            case Pause():
                self._pause(self._of(step.process), step.seconds)
            case StealLock():
                if self._has_successor:
                    self._rob(step.seconds)
            case Repair() | Reimport():
                await self._mend(step)
            case Tamper():
                self._tamper(step)
            case DiskFull():
                self.disk.full = True
                self._later(step.seconds, lambda: setattr(self.disk, "full", False))
            case FailWrites():
                self.disk.writes_to_fail += step.count
            case FailSync():
                self.disk.syncs_to_fail += 1
            case CrashAt():
                self.disk.crash_points.append(
                    CrashPoint(step.operation, step.nth, step.before, step.back_after, step.kills)
                )
            case _:
                raise AssertionError(f"nobody knows how to do {step}")

    def _configure(self, configuration: Mapping[str, Any]) -> None:
        self.configuration = resolve_configuration(configuration, self.registry).configuration
        for daemon in self.daemons.values():
            if daemon.process.alive:
                daemon.process.context.run(daemon.reload)

    def _pause(self, program: Program | None, seconds: float) -> None:
        if program is not None and not program.process.paused:
            program.process.paused = True
            self._later(seconds, lambda: self.loop.go_on(program.process))

    @property
    def _has_successor(self) -> bool:
        """Somebody stands by, and knows that he does not lead: of two who were both robbed and have nothing to write, nobody would notice. And the files
        are there: with them and the lock file taken away nobody could know that there was a log."""
        knows = self._of("standby") is not None and not self.has_robbed_leader()
        return knows and not (isinstance(self.files, RealFiles) and self.files.is_tampered)

    def _rob(self, seconds: float) -> None:
        """Whoever holds the lock is paused, and has lost it."""
        self._stolen += 1
        self.counts["thefts"] += 1
        leader = self.leader
        if leader is not None:
            self._robbed.append(leader)
            self._pause(leader, seconds)
        self.lock = None
        self.files.take_lock_away(self.rng)

    async def _compact(self, step: Compact) -> None:
        if self.is_mending or not self.files.exists():
            return
        if step.robs_for and self._has_successor:
            self._rob(step.robs_for)
        process = Process("compaction")
        self.processes.append(process)
        compaction = Compaction(self, process, step.keep)
        self.tools.append(compaction)
        self._launch(compaction)
        if step.settle:
            await asyncio.wait([compaction.working], timeout=STOP_SECONDS)

    def _tamper(self, step: Tamper) -> None:
        files, leader = self.files, self.leader
        leads = leader is not None and leader.runtime is not None and leader not in self._robbed
        if not isinstance(files, RealFiles) or not leads or self.is_mending or files.is_tampered:
            return
        files.tamper(step)
        if step.way == "copied":
            return
        assert leader is not None
        leader.is_left_behind |= step.way == "replaced"
        self.counts["tamperings"] += 1
        self._tampered = (len(self.records), self._tampered[1])
        is_bare = step.way == "cut" and "" in step.files and self.judge.dropped > 0
        if step.is_whole_backup or is_bare:
            # A log that stands there as it was is led by whoever knows of no other: nobody but the leader knows. And whoever opens a compacted one without
            # its states takes the write-ahead log into it before he finds out.
            self.is_mending = True
            for program in self._alive:
                if program is not leader:
                    self._kill(program, None)
        self._later(step.seconds, lambda: self._put_back(step))

    def _put_back(self, step: Tamper | None = None) -> None:
        """… by the operator, who ends everybody first, unless it is as if nothing had happened."""
        files = self.files
        if not isinstance(files, RealFiles) or not files.is_tampered:
            return
        if step is None or step.way not in ("moved", "linked", "replaced"):
            for program in self._alive:
                self._kill(program, None)
        files.put_back()
        self._is_put_back()
        self._start_all()

    def _is_put_back(self) -> None:
        self._tampered = (self._tampered[0], self.loop.now)
        self.is_mending = False

    @property
    def _is_tampered(self) -> bool:
        """Somebody may have looked at files that were not what they should be."""
        files = self.files
        recent = self.loop.now - self._tampered[1] < round(TAMPERED_SECONDS * NANOS)
        return isinstance(files, RealFiles) and (files.is_tampered or files.is_torn or recent)

    async def _mend_torn(self) -> None:
        """The operator has what somebody led of a torn database looked at, and made anew if it is damaged."""
        if isinstance(self.files, RealFiles) and self.files.is_torn:
            await self._mend(None)

    async def _mend(self, step: Repair | Reimport | None) -> None:
        """With nobody but a standby that sleeps; again, until it is done. Without a step it is damaged already, if at all."""
        self._put_back()
        if not isinstance(self.files, RealFiles) or not self.files.exists() or not self.records:
            return
        standby = self._of("standby") if step is not None and step.follows else None
        if standby is not None and standby.process.paused:
            standby = None  # It would wake too early.
        self.is_mending = True
        for program in self._alive:
            if program is not standby:
                self._kill(program, None)
        if standby is not None:
            standby.process.paused = True
        await asyncio.sleep(LOOK_SECONDS)
        mending = Mending(self.files, step, self.records, follows=standby is not None)
        for _ in range(TRIES):
            process = Process("mending")
            self.processes.append(process)
            tool = MendingTool(self, process, mending)
            self.tools.append(tool)
            self._launch(tool)
            await asyncio.wait([tool.working], timeout=STOP_SECONDS)
            if mending.is_done:
                break
            await asyncio.sleep(RESTART_SECONDS)
        else:
            raise Violation("lost", f"the log could not be mended in {TRIES} tries")
        self._mended(mending.kept(), mending.begins)
        self.counts["imports" if isinstance(step, Reimport) else "repairs"] += 1
        self.is_mending = self.files.is_torn = False
        if standby is not None:
            self.counts["standbys of a mended log"] += standby.process.alive
            self.loop.go_on(standby.process)
        self._start_all()

    def _mended(self, kept: int, begins: int) -> None:
        """What came after this record is lost, and everybody has been told. The log may begin later, behind another one."""
        if kept < len(self.records):
            self.counts["records lost to damage"] += len(self.records) - kept
            del self.records[kept:]
            self._follower = Follower(self.registry)
            self._objects = ObjectTable()
            self.judge.accept_loss(self.records)
        if begins:
            self.counts["logs that begin later"] += 1
            self.judge.begins(begins)

    async def _stop_all(self) -> None:
        daemons = [daemon for daemon in self.daemons.values() if daemon.process.alive]
        for daemon in daemons:
            daemon.process.context.run(daemon.stop)
        if daemons:
            await asyncio.wait([daemon.working for daemon in daemons], timeout=STOP_SECONDS)

    def _start_all(self) -> None:
        for name in list(self.daemons):
            self.start(name)

    def _lose_power(self, back_after: float) -> None:
        self.counts["power losses"] += 1
        for program in self._alive:
            self.kill(program)
        self.lock = None
        if isinstance(self.files, RealFiles) and self.files.is_tampered:
            self._is_put_back()  # By whoever brings the power back.
        self.files.lose_power()
        self._later(back_after, self._start_all)

    def _crash(self, point: CrashPoint) -> None:
        if not point.kills:
            self._lose_power(point.back_after)
            return
        current = CURRENT.get()
        for program in self._alive:
            if program.process is current:
                self._kill(program, point.back_after)

    # --- the end --------------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """All faults stop, everything restarts, and the log is looked at once more."""
        self._put_back()
        self.disk.heal()
        for program in self._alive:
            if program.process.paused:
                self.loop.go_on(program.process)
        await self._mend_torn()
        # Who was told to stop while he was paused does so now, and comes back.
        stopping = [d.working for d in self.daemons.values() if d.process.alive and d.may_end]
        if stopping:
            await asyncio.wait(stopping, timeout=STOP_SECONDS)
        self._start_all()
        if self._asking:
            await asyncio.wait(self._asking, timeout=PATIENCE_SECONDS + ANSWER_SECONDS)
        await self._at_rest()
        if self.habits.stops:
            await self._hand_over()
        core = await self._nobody_is_stuck()
        await self._check_log(core)

    async def _at_rest(self) -> Core:
        if not await self._settle(END_SECONDS):
            raise Violation(
                "liveness", f"the scheduler does not come to rest within {END_SECONDS} s after the last fault"
            )
        assert self.leader is not None
        assert self.leader.runtime is not None
        return self.leader.runtime.core

    async def _nobody_is_stuck(self) -> Core:
        """Nothing happens any more but time: whoever can be placed then has to be."""
        found: dict[str, bool] = {}
        for look, seconds in enumerate((*[REST_SECONDS] * LOOKS, FLUSH_SECONDS)):
            if look == LOOKS and not all(found.values()):
                break
            await asyncio.sleep(seconds)
            core = await self._at_rest()
            if self._is_simple() or self.judge.is_upstream:
                return core
            now = max(self.wall(), core.at)
            again = stuck(self.records, self._follower, now, self.judge)
            found = {key: preempts for key, preempts in again.items() if look == 0 or key in found}
            if not found:
                return core
        raise Violation("liveness", f"could be placed and are not: {list(found)}")

    def _is_simple(self) -> bool:
        """Everybody has a place."""
        return not any(pod.is_pending for pod in self.judge.cluster.pods.values())

    async def _hand_over(self) -> None:
        """The leader is told to stop; the standby, or a new process, goes on."""
        leader = self.leader
        assert isinstance(leader, Daemon)
        leader.process.context.run(leader.stop)
        await asyncio.sleep(STOP_SECONDS)
        if leader.process.alive:
            raise Violation("end", f"the leader was told to stop {STOP_SECONDS} s ago")
        self._start_all()
        await self._at_rest()

    async def _check_log(self, core: Core) -> None:
        """Read it back from the disk, while nobody writes. With what was compacted away the records are one log from the first on."""
        for process in self.processes:
            process.paused = True
        if core.configuration != self.configuration:
            raise Violation("configuration", "another one is in force than the newest")
        digest = core.digest()
        async with History(LogReader(await self.files.open_reader()), self.registry) as history:
            gone = history.log.anchor.seq
            left = [record async for record in history.records()]
            records = self.records[:gone] + left
            self.judge.finished(records)
            self._check_replay(records, None, digest)
            # Who took over a moment ago has just shown the other.
            if not self.habits.stops:
                self._check_recovered(self._follower.follow(records), digest)
            if gone:
                await self._check_compacted(history, left, digest)
        await asyncio.sleep(LOOK_SECONDS)  # Readings that were not finished are closed.

    async def _check_compacted(self, history: History, left: list[Record], digest: str) -> None:
        """What is left is a whole log by itself."""
        log = history.log
        self.judge.opened(log.anchor)
        found = await verify_chain(log, rebuild=True)
        if found.problems:
            raise Violation("dropped", f"of the compacted log: {found.problems}")
        core = await history.core_from_snapshot((await history.snapshots())[0])
        self._check_replay(left[core.seq - log.anchor.seq :], core, digest)
        self._check_recovered(await recovered_core(log, self.registry), digest)

    def _check_replay(self, records: Sequence[Record], core: Core | None, digest: str) -> None:
        report = verify(records, self.registry, core=core)
        if report.first_difference is not None:
            raise Violation("replay", f"{report.first_difference}")
        if report.digest != digest:
            raise Violation("recovery", "the state that was computed again is another one")

    def _check_recovered(self, core: Core, digest: str) -> None:
        if core.digest() != digest:
            raise Violation("recovery", "the state that was recovered is another one")

    async def _settle(self, seconds: float = SETTLE_SECONDS) -> bool:
        """Wait until the leader has nothing to do until time goes by; whether it came to that."""
        until = self.loop.now + round(seconds * NANOS)
        look = LOOK_SECONDS
        while self.loop.now < until:
            await asyncio.sleep(look)
            look = min(look * 1.5, 0.2)
            leader = self.leader
            if leader is None or leader.process.paused or leader.runtime is None:
                continue
            # Whose log has failed may have written what nobody is told of, and is about to end.
            if leader.runtime.is_settled and leader.runtime.log.failure is None:
                self._judge_rest(leader.runtime.core)
                return True
        return False

    def _judge_rest(self, core: Core) -> None:
        """Unless somebody else may be writing just now."""
        writing = [d for d in self.daemons.values() if d.process.alive and d.runtime is not None]
        if len(writing) == 1 and all(task.done() for task in self._asking):
            self.counts["rests"] += 1
            self.judge.at_rest(core)
            if self.counts["rests"] % SEARCH_EVERY == 0 and not (
                self.judge.cluster.reserved() or self.judge.is_upstream
            ):
                self._search(core)

    def _search(self, core: Core) -> None:
        """Nobody has missed what he waits for. Not asked while somebody waits for a permit: his binding will wake who goes by him."""
        found = asleep(self.records, self._follower, max(self.wall(), core.at), core)
        if found:
            raise Violation("liveness", f"wait for an event, and could be placed: {found}")

    # --- clients --------------------------------------------------------------------------------------------------------

    async def _ask(self, step: Request) -> None:
        """Ask until there is an answer, however often the leader dies over it: what is asked can be asked twice."""
        until = self.loop.now + round(PATIENCE_SECONDS * NANOS)
        self.counts["asked"] += 1
        while self.loop.now < until:
            message = self._message(step)
            if message is None:
                return
            leader = self.leader
            server = None if leader is None else leader.server
            if leader is None or server is None or not server.listening:
                await asyncio.sleep(0.5)
                continue
            try:
                await self._converse(server.connect(leader.process), message, step)
                return
            except InternalError as error:
                self._broken(error)
            except (LogError, TimeoutError):
                self.judge.unanswered(asked_about(step))
                await asyncio.sleep(1.0)  # Full, failed, or gone: perhaps it was done, perhaps not.
            except TidelogError:
                self.counts["refused"] += 1
                return
        self.counts["given up"] += 1

    async def _converse(self, client: HandoverClient, message: object, step: Request) -> None:
        async with client, asyncio.timeout(ANSWER_SECONDS):
            answer = read_answer(await client.request(message))
        self.counts["answered"] += 1
        self._judge_whereabouts(answer)
        self.judged(lambda answer: self.judge.acknowledged(answer, asked_about(step)), answer)

    def _judge_whereabouts(self, answer: Answer) -> None:
        """While the files are taken away by whose names it would be looked for, nothing is acknowledged, unless by who leads what stands there instead."""
        newest = max((result.seq for result in answer.results), default=0)
        if isinstance(self.files, RealFiles) and self.files.is_gone and newest > self._tampered[0]:
            self._broken(
                Violation("lost", f"record {newest} was acknowledged, and is in no file that is there")
            )

    def _message(self, step: Request) -> object | None:
        """What goes over the wire; None where there is nothing to ask for."""
        if isinstance(step, Manifest):
            return {
                "version": fact_messages.VERSION,
                "facts": {"verb": "apply", "manifests": step.data},
            }
        facts = facts_of(step, self._read)  # type: ignore[arg-type]
        return None if facts is None else write_request(facts)

    def _read(self, key: str) -> Object | None:
        """As `tidelog get` sees it."""
        for record in self.records[self._objects.seq :]:
            self._objects.apply(record)
        return self._objects.get(key)

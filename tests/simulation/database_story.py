"""Stories of a log in a database: three machines that want to lead it, a server that breaks, and the judge of what was acknowledged.

The store, the lease, the sessions and the log are the product's; server, network, clocks and processes are simulated (`database.py`). A story is made
of its seed alone. `python -m tests.simulation.database_story --seeds 2000` tells many; `make simulate-database`.

The judge: nobody commits anything without the lease; each acknowledged record is in the log once, where it was said to be; the chain holds; no record is there twice; nobody is told of a loss
where there was none; where an asynchronous standby was promoted and records were lost, everybody who knew of them is refused, and nobody of
those gets anything acknowledged; and when all is well again, somebody leads.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import sys
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tests.simulation.database import (
    SimDatabase,
    SimWitness,
    instead_of_a_server,
    machine_of,
    records_of,
)
from tests.simulation.loop import Process, SimLoop, Stuck, quietly
from tidelog.api.errors import LogDamaged, LogError, LogLocked
from tidelog.eventlog.log import Log
from tidelog.eventlog.postgres.reading import PostgresReader
from tidelog.eventlog.postgres.store import PostgresStore
from tidelog.eventlog.records import GENESIS, ChainBroken, Draft, Record, Tick, check_rows
from tidelog.eventlog.store import Head

URL = "postgresql://tidelog@simulated/log?patience=20s"
MACHINES = ("a", "b", "c")
CALLERS = 2
YEAR_2026 = 1_767_225_600 * 10**9


class Violation(Exception):
    """A promise was broken."""


class DatabaseStory:
    """One story, told by `tell`."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.loop = SimLoop(rng, rng.choice((0.0, 0.3, 1.0)))
        self.database = SimDatabase(
            self.loop, rng, synchronous=rng.random() < 0.5, delay=rng.choice((0.001, 0.01, 0.1))
        )
        self.database.lag = rng.choice((0.0, 0.05, 1.0, 5.0))
        self.steps = rng.randint(5, 25)
        self.clocks = {name: rng.randint(-5 * 3600, 5 * 3600) * 10**9 for name in MACHINES}
        self.processes: dict[str, Process] = {}
        self.dead: list[Process] = []
        self.born = 0
        self.acknowledged: dict[str, Record] = {}
        self.refused: set[str] = set()
        """Machines that were told of a loss."""
        self.had_lost = False
        self.knew: dict[str, Head] = {}
        """What each machine knew when records were lost, of those that knew of lost ones."""
        self.old: set[bytes] = set()
        """Digests of the records of the server that was replaced: an answer about one may still be on its client's way to it."""
        self.kept = 0
        """Records behind which they were lost."""
        self.asked = 0
        self.all_is_well = False
        self.told: list[str] = []

    def run(self) -> str:
        """How it fails; empty if it does not."""
        try:
            with instead_of_a_server(self.database):
                self.loop.run(self._story())
            return ""
        except (Violation, Stuck, AssertionError) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            self.loop.clear_away([*self.dead, *self.processes.values()])

    def say(self, what: str) -> None:
        self.told.append(f"{self.loop.time():8.3f}  {what}")

    # --- processes ----------------------------------------------------------------------------------------------------------

    def begin(self, machine: str) -> None:
        """A new process on this machine."""
        self.born += 1
        process = Process(f"{machine}-{self.born}")
        self.processes[machine] = process
        process.context.run(self.loop.create_task, self._candidate(process))

    async def _candidate(self, process: Process) -> None:
        while True:
            try:
                store = await PostgresStore.open(URL, what=process.name)
            except LogDamaged as error:
                self._damaged(process, error)
                return
            except LogError as error:
                await asyncio.sleep(0.1)
                if isinstance(error, LogLocked) and self.all_is_well and not await self._follow(process):
                    return
                continue
            self.say(f"{process.name} leads from record {store.head.seq}, term {store.lease.term}")
            try:
                await self._lead(process, store)
            except LogDamaged as error:
                self._damaged(process, error)
                return
            except LogError as error:
                self.say(f"{process.name} ends: {error}")
            await asyncio.sleep(self.rng.uniform(0, 1))

    async def _follow(self, process: Process) -> bool:
        """Open it to read, as a standby does; whether it may go on. Only in the end, since it costs as much as all the rest."""
        try:
            await (await PostgresReader.open(URL)).close()
        except LogDamaged as error:
            self._damaged(process, error)
            return False
        except LogError as error:
            self.say(f"{process.name} cannot follow: {error}")
        return True

    async def _lead(self, process: Process, store: PostgresStore) -> None:
        offset = YEAR_2026 + self.clocks[machine_of(process)]
        log = Log(store, clock=lambda: self.loop.now + offset)
        callers = [asyncio.create_task(self._call(process, log)) for _ in range(CALLERS)]
        try:
            until = self.loop.time() + self.rng.expovariate(1 / 20)
            while self.loop.time() < until:
                await asyncio.sleep(1.0)
                await log.check()
        finally:
            for caller in callers:
                caller.cancel()
            await asyncio.gather(*callers, return_exceptions=True)
            with contextlib.suppress(LogError):
                await log.close()
            if isinstance(log.failure, LogDamaged):
                raise log.failure

    async def _call(self, process: Process, log: Log) -> None:
        while True:
            self.asked += 1
            key = f"Pod/default/{self.asked}"
            (record,) = await log.append([Draft(body=Tick(), author="cluster", key=key)])
            self._acknowledge(process, key, record)
            await asyncio.sleep(self.rng.expovariate(10))

    # --- the judge ------------------------------------------------------------------------------------------------------------

    def _acknowledge(self, process: Process, key: str, record: Record) -> None:
        if record.digest not in self.old and machine_of(process) in self._to_be_refused():
            why = f"{process.name} goes on at {record.seq} after records from {self.kept + 1} on were lost"
            self.loop.abort = Violation(f"unnoticed: {why}")
        self.acknowledged[key] = record

    def _to_be_refused(self) -> set[str]:
        """Machines that know of a record that is not in the log: a group whose answer was lost is sent again, and is there then as before."""
        if not self.knew:
            return set()
        found = {row[0]: row[7] for row in self.database.rows.records[self.kept :]}
        return {machine for machine, head in self.knew.items() if found.get(head.seq) != head.digest}

    def _damaged(self, process: Process, error: LogDamaged) -> None:
        self.say(f"{process.name} is refused: {error}")
        if not self.had_lost:
            self.loop.abort = Violation(f"false alarm: nothing was lost, and {process.name} is told: {error}")
            return
        self.refused.add(machine_of(process))

    def judge(self) -> None:
        """At the end."""
        if self.database.unfenced:
            raise Violation(
                f"fence: a writer without the lease has committed record {self.database.unfenced[0]}"
            )
        rows = self.database.rows
        found = records_of(rows.records)
        try:
            records = []
            place = (0, 0, GENESIS)
            for start in range(0, len(found), 500):
                part = check_rows(found[start : start + 500], *place)  # type: ignore[arg-type]
                records += part
                place = (part[-1].seq, part[-1].at, part[-1].digest)
        except ChainBroken as error:
            raise Violation(f"chain: {error}") from error
        keys = [record.key for record in records]
        if len(set(keys)) != len(keys):
            raise Violation("doubled: a record is in the log twice")
        by_seq = {record.seq: record for record in records}
        for key, record in self.acknowledged.items():
            may_be_lost = self.had_lost and not self.database.synchronous
            if may_be_lost and record.seq > self.kept and record.digest in self.old:
                continue
            if by_seq.get(record.seq) != record:
                raise Violation(f"lost: {key} was acknowledged as record {record.seq}, and is not there")

    # --- what happens ---------------------------------------------------------------------------------------------------------

    async def _story(self) -> None:
        for machine in MACHINES:
            self.begin(machine)
        for _ in range(self.steps):
            await asyncio.sleep(self.rng.expovariate(0.5))
            name, step = self.rng.choice(self._possible())
            self.say(name)
            await step()
            if self.had_lost:
                break
        await self._heal()
        if self.had_lost:
            await self._until(lambda: self._to_be_refused() <= self.refused, "unnoticed")
        else:
            wanted = len(self.acknowledged) + 5
            await self._until(lambda: len(self.acknowledged) >= wanted, "liveness")
        self.judge()

    async def _until(self, condition: Callable[[], bool], promise: str) -> None:
        end = self.loop.time() + 300
        while not condition():
            if self.loop.time() > end:
                raise Violation(f"{promise}: after five minutes without trouble")
            await asyncio.sleep(0.2)

    def _possible(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        machine = self.rng.choice(MACHINES)
        found: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            (f"kill {machine}", lambda: self._kill(machine)),
            (f"pause {machine}", lambda: self._pause(machine)),
            (f"cut {machine}", lambda: self._cut(machine)),
            ("kill the server", self._kill_server),
            ("pause the server", self._pause_server),
            ("promote the standby", self._promote),
            ("break all connections, and promote the standby", self._break_and_promote),
        ]
        return found

    async def _kill(self, machine: str) -> None:
        process = self.processes[machine]
        process.alive = False
        self.dead.append(process)
        for connection in list(self.database.connections):
            if connection.owner == machine:
                connection.terminate()
        await asyncio.sleep(self.rng.expovariate(1))
        self.begin(machine)

    async def _pause(self, machine: str) -> None:
        process = self.processes[machine]
        process.paused = True
        await asyncio.sleep(self.rng.expovariate(0.3))
        if process.alive:
            self.loop.go_on(process)

    async def _cut(self, machine: str) -> None:
        self.database.cut[machine] = self.rng.choice(("there", "back", "both"))
        await asyncio.sleep(self.rng.expovariate(0.2))
        del self.database.cut[machine]
        if self.rng.random() < 0.5:
            for connection in list(self.database.connections):
                if connection.owner == machine:
                    connection.terminate()

    async def _kill_server(self) -> None:
        self.database.kill()
        await asyncio.sleep(self.rng.expovariate(0.5))
        self.database.start()

    async def _pause_server(self) -> None:
        self.database.pause()
        await asyncio.sleep(self.rng.expovariate(0.3))
        self.database.go_on()

    async def _break_and_promote(self) -> None:
        """Whoever waits for an answer connects anew, and finds what its standby does not have yet."""
        for connection in list(self.database.connections):
            connection.terminate()
        await asyncio.sleep(self.rng.expovariate(2))
        await self._promote()

    async def _promote(self) -> None:
        known = dict(SimWitness.known)
        standby = self.database.standby.head.seq
        acknowledged = max((record.seq for record in self.acknowledged.values()), default=0)
        self.old = {row[7] for row in self.database.rows.records}
        self.database.promote()
        # What nobody was told of is nobody's loss. An answer that has arrived tells, also before its client looks at it; one of a synchronous
        # server tells of what is on its standby, or was only read.
        told, self.database.told = self.database.told, min(self.database.told, standby)
        if not self.database.synchronous:
            acknowledged = max(acknowledged, told)
        if max([acknowledged, *(head.seq for head in known.values())]) > standby:
            self.had_lost, self.kept = True, standby
            self.knew = {machine: head for machine, head in known.items() if head.seq > standby}
            self.say(f"records from {standby + 1} on are lost")
            if self.database.synchronous and acknowledged > standby:
                raise Violation(
                    f"lost: {acknowledged} was acknowledged, and its synchronous standby has {standby}"
                )

    async def _heal(self) -> None:
        self.say("all is well")
        self.all_is_well = True
        self.database.cut.clear()
        self.database.go_on()
        self.database.start()
        for process in self.processes.values():
            if process.alive:
                self.loop.go_on(process)


class Told(NamedTuple):
    """A story that was told."""

    failure: str
    """How it fails; empty if it does not."""
    events: tuple[str, ...]
    had_lost: bool
    leases: int


def tell(seed: int) -> Told:
    """Tell the story of this seed."""
    with quietly():
        story = DatabaseStory(seed)
        failure = story.run()
        told = Told(failure, tuple(story.told), story.had_lost, story.database.rows.term)
        del story
        return told


def main() -> int:
    """Tell stories; 1 at the first that fails."""
    parser = argparse.ArgumentParser(description="Stories of a log in a database, on a simulated server.")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--story", action="store_true", help="print what happens")
    args = parser.parse_args()
    logging.disable()
    lost = leases = 0
    for seed in range(args.first, args.first + args.seeds):
        told = tell(seed)
        if args.story or told.failure:
            print("\n".join(told.events))
        if told.failure:
            print(f"seed {seed}: {told.failure}")
            return 1
        lost += told.had_lost
        leases += told.leases
    print(
        f"{args.seeds} stories, {leases} leases taken, {lost} promotions with loss, each noticed; 0 violations"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Servers and leaders that are killed, stopped and replaced under load, real processes all of them: nothing acknowledged is lost or doubled.

Each round something happens to the server or to the leader, at a random moment, while callers hand in pods; then more pods are acknowledged before the
next one begins. A few rounds by default; `POSTGRES_ROUNDS=50` for more, `POSTGRES_SEED` for other moments (`make postgres-torture`);
`POSTGRES_FACTS=20000` hands in so many pods before a synchronous standby is promoted, and once more after it.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.daemons import Daemon, tidelog
from tests.acceptance.load import Load, check_nothing_lost, nodes
from tests.patience import PATIENCE, until
from tests.postgres.conftest import Logs, Replays, written
from tests.postgres.server import PostgresServer
from tidelog.api.errors import LogDamaged
from tidelog.cli.submit import submit
from tidelog.daemon.intake.messages import Apply
from tidelog.eventlog.postgres.schema import initialize
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import SchedulerStarted, decode_body
from tidelog.eventlog.status import LogStatus, log_status

ROUNDS = int(os.environ.get("POSTGRES_ROUNDS", "4"))
SEED = int(os.environ.get("POSTGRES_SEED", "0"))
FACTS = int(os.environ.get("POSTGRES_FACTS", "0"))


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that this test may end."""
    server = PostgresServer()
    server.start()
    yield server
    server.destroy()


class Fleet:
    """Daemons on one log, as on machines of their own: who ends is started again."""

    def __init__(self, url: str, count: int, folder: Path) -> None:
        self.url = url
        self.ended: Counter[int] = Counter()
        self._folder = folder
        self._running: list[Daemon] = []
        self._ended: list[Daemon] = []
        for number in range(count):
            self._start(number)

    def _start(self, number: int) -> None:
        os.environ["XDG_STATE_HOME"] = str(self._folder / f"machine-{number}")
        try:
            started = Daemon(self.url, "--snapshot-every", 200, listen="off")
        finally:
            os.environ["XDG_STATE_HOME"] = str(self._folder)
        self._running[number : number + 1] = [started]

    def tend(self) -> bool:
        """Start again who ended."""
        for number, running in enumerate(self._running):
            if running.process.poll() is not None:
                self.ended[running.end()] += 1
                self._start(number)
        return False

    def leave(self, daemon: Daemon) -> None:
        """It has ended, and is not started again."""
        self._running.remove(daemon)
        self.ended[daemon.end()] += 1

    async def leader(self) -> Daemon:
        """The one that leads, as soon as one does."""
        async with asyncio.timeout(PATIENCE):
            while True:
                self.tend()
                found: LogStatus | None = None
                try:
                    found = await log_status(self.url + "&patience=0s")
                except Exception:
                    await asyncio.sleep(0.1)
                    continue
                for running in self._running:
                    if found.takes_facts and found.leader.startswith(f"process {running.process.pid} on "):
                        return running
                await asyncio.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        for running in self._running:
            running.signal(number)

    def stop(self) -> None:
        for running in self._running:
            if running.process.poll() is None:
                running.process.send_signal(signal.SIGCONT)
                running.process.kill()
            running.end()
        self._ended = list(self._running)
        self._running.clear()

    @property
    def said(self) -> str:
        return "\n".join(line for running in [*self._ended, *self._running] for line in running.lines)


async def _begin(url: str) -> None:
    await initialize(url)
    await submit(url, Apply(objects=tuple(nodes())), verb="apply")


@pytest.fixture
async def fleet(own_server: PostgresServer, tmp_path: Path) -> AsyncIterator[Fleet]:
    url = own_server.url() + "?schema=rounds"
    await _begin(url)
    made = Fleet(url, 2, tmp_path)
    yield made
    made.stop()


async def _trouble(what: str, server: PostgresServer, fleet: Fleet, random_: random.Random) -> None:
    if what == "kill server":
        server.kill()
        await asyncio.sleep(random_.uniform(0, 0.5))
        await asyncio.to_thread(server.start)
        return
    if what == "pause server":
        server.pause()
        await asyncio.sleep(random_.uniform(0.2, 1.5))
        server.go_on()
        return
    leader = await fleet.leader()
    await asyncio.sleep(random_.uniform(0, 0.3))
    if what == "kill leader":
        leader.process.kill()
    elif what == "stop leader":
        leader.process.send_signal(signal.SIGTERM)
    elif what == "pause leader":
        # Longer than its lease: it is taken over, goes on, and must not be able to write.
        leader.process.send_signal(signal.SIGSTOP)
        term = await _term(fleet.url)
        await _until(fleet.url, lambda status: status.lease is not None and status.lease.term != term)
        leader.process.send_signal(signal.SIGCONT)
        code = await asyncio.to_thread(leader.process.wait, PATIENCE)
        assert code == 1, "it was superseded, and goes on"
    elif what == "kill both":
        leader.process.kill()
        server.kill()
        await asyncio.to_thread(server.start)


async def _until(url: str, condition: Callable[[LogStatus], object]) -> LogStatus:
    """The log's status, once it is so."""
    async with asyncio.timeout(PATIENCE):
        while True:
            status = await log_status(url)
            if condition(status):
                return status
            await asyncio.sleep(0.02)


async def _term(url: str) -> int:
    lease = (await log_status(url)).lease
    assert lease is not None
    return lease.term


TROUBLES = ("kill server", "kill leader", "pause leader", "stop leader", "kill both", "pause server")


async def test_nothing_acknowledged_is_lost_or_doubled(
    own_server: PostgresServer, fleet: Fleet, replays: Replays
) -> None:
    random_ = random.Random(SEED)
    done: Counter[str] = Counter()
    async with Load(fleet.url) as load:  # type: ignore[arg-type]
        await load.more()
        for number in range(ROUNDS):
            what = TROUBLES[number % len(TROUBLES)] if number < len(TROUBLES) else random_.choice(TROUBLES)
            await asyncio.sleep(random_.uniform(0, 0.3))
            await _trouble(what, own_server, fleet, random_)
            done[what] += 1
            fleet.tend()
            # Who waits for the answer of one that is gone would wait for the next one's patience.
            await load.give_up()
            wanted = len(load.acknowledged) + 10
            await until(lambda wanted=wanted: fleet.tend() or len(load.acknowledged) >= wanted, 0.05)  # type: ignore[misc]
        errors = dict(load.errors)
    acknowledged = dict(load.acknowledged)
    fleet.stop()

    async with open_reader(fleet.url) as reader:
        records = [record async for record in reader.read()]
    check_nothing_lost(records, acknowledged)
    epochs = [record for record in records if record.kind == "SchedulerStarted"]
    print(f"{sum(done.values())} rounds {dict(done)}, {len(acknowledged)} acknowledged, {len(records)} records, "
          f"{len(epochs)} leaders, 0 lost, 0 doubled; errors told to callers: {errors}; daemons ended: {dict(fleet.ended)}")  # fmt: skip
    assert tidelog("log", "verify", "--log", fleet.url).stdout.startswith(f"{len(records)} records, chain ok")
    assert "identical" in tidelog("replay", "verify", "--log", fleet.url).stdout
    replays.check([await written(fleet.url)])


# --- promotion ------------------------------------------------------------------------------------------------------------


PROMOTIONS = max(1, ROUNDS // 8)


async def _promoted(primary: PostgresServer, standby: PostgresServer) -> None:
    """The primary's machine is gone, and its standby takes its place."""
    primary.kill()
    await asyncio.to_thread(standby.promote)


def _both(primary: PostgresServer, standby: PostgresServer, patience: str = "60s") -> str:
    """An address with both."""
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    return f"postgresql://tidelog@{hosts}/postgres?schema=promoted&patience={patience}"


async def test_promotion_of_a_synchronous_standby_loses_nothing(tmp_path: Path, replays: Replays) -> None:
    acknowledged = 0
    for _ in range(PROMOTIONS):
        primary = PostgresServer({"synchronous_standby_names": "*"})
        standby = fleet = None
        try:
            primary.settings.pop("synchronous_standby_names")
            primary.start()
            standby = PostgresServer(of=primary)
            standby.start()
            primary.stop()
            primary.settings["synchronous_standby_names"] = "*"
            primary.start()
            url = _both(primary, standby)
            await _begin(url)
            fleet = Fleet(url, 2, tmp_path)
            many = {"callers": 16, "pods": 25} if FACTS else {}
            async with Load(url, **many) as load:  # type: ignore[arg-type]
                await load.more(max(30, FACTS))
                await _promoted(primary, standby)
                await load.give_up()
                await load.more(max(20, FACTS))
            fleet.stop()
            async with open_reader(url) as reader:
                records = [record async for record in reader.read()]
            check_nothing_lost(records, load.acknowledged)
            if FACTS:
                assert "identical" in tidelog("replay", "verify", "--log", url).stdout
            else:
                replays.check([await written(url)])
            acknowledged += len(load.acknowledged)
        finally:
            if fleet is not None:
                fleet.stop()
            for server in (primary, standby):
                if server is not None:
                    server.destroy()
    print(f"{PROMOTIONS} promotions of a synchronous standby, {acknowledged} acknowledged, 0 lost, 0 doubled")


async def test_promotion_with_loss_is_noticed_in_every_round(tmp_path: Path) -> None:
    noticed = 0
    for number in range(PROMOTIONS):
        os.environ["XDG_STATE_HOME"] = str(tmp_path / str(number))
        primary = PostgresServer()
        standby = None
        try:
            primary.start()
            standby = PostgresServer(of=primary)
            standby.start()
            url = _both(primary, standby)
            await _begin(url)
            fleet = Fleet(url, 1, tmp_path / str(number))
            try:
                async with Load(url) as load:  # type: ignore[arg-type]
                    await load.more(20)
                    standby.stop()  # It falls behind: what is acknowledged from now on is not there.
                    await load.more(20)
                    primary.kill()
                    await asyncio.to_thread(standby.start)
                    await asyncio.to_thread(standby.promote)
                    leader = fleet._running[0]
                    code = await asyncio.to_thread(leader.process.wait, PATIENCE)
            finally:
                fleet.stop()

            assert code == LogDamaged.exit_code
            assert "are missing or damaged" in fleet.said
            for _ in range(2):  # And by whoever opens it on this machine.
                os.environ["XDG_STATE_HOME"] = str(tmp_path / str(number) / "machine-0")
                refused = tidelog("run", "--log", url, "--listen", "off", ok=False)
                assert refused.returncode == LogDamaged.exit_code
                assert "tidelog log repair --accept-loss" in refused.stderr
            repaired = tidelog("log", "repair", "--accept-loss", "--log", url).stdout
            assert "are lost" in repaired
            assert tidelog("log", "verify", "--log", url).returncode == 0
        finally:
            for server in (primary, standby):
                if server is not None:
                    server.destroy()
        noticed += 1
    print(f"{noticed} promotions with loss, each noticed by the leader and by whoever opens the log")


# --- take-over, timed for the documents and judged by nobody ----------------------------------------------------------------


async def test_standby_takes_over_and_is_named(logs: Logs, tmp_path: Path) -> None:
    url = await logs.new()
    await submit(url, Apply(objects=tuple(nodes())), verb="apply")
    fleet = Fleet(url, 2, tmp_path)
    try:
        first = await fleet.leader()
        await _until(url, lambda status: [each.behind for each in status.followers or ()] == [0])

        first.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        pid = first.process.pid
        await _until(url, lambda s: s.takes_facts and not s.leader.startswith(f"process {pid} on"))
        print(f"clean take-over in {time.monotonic() - began:.2f} s")
        assert first.process.wait(60) == 0
        assert (await log_status(url)).epoch == 2
    finally:
        fleet.stop()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_log_of_three_leaders_in_turn_is_one_log(
    how: signal.Signals, logs: Logs, tmp_path: Path
) -> None:
    url = await logs.new()
    await submit(url, Apply(objects=tuple(nodes())), verb="apply")
    fleet = Fleet(url, 3, tmp_path)
    led: list[int] = []
    try:
        async with Load(url) as load:  # type: ignore[arg-type]
            while True:
                leader = await fleet.leader()
                led.append(leader.process.pid)
                await load.more(20)
                if len(led) == 3:
                    break
                leader.process.send_signal(how)
                await asyncio.to_thread(leader.process.wait, PATIENCE)
                fleet.leave(leader)
                await load.give_up()
    finally:
        fleet.stop()

    async with open_reader(url) as reader:
        records = [record async for record in reader.read()]
    check_nothing_lost(records, load.acknowledged)
    started = [body for record in records if isinstance(body := decode_body(record), SchedulerStarted)]
    assert [body.epoch for body in started] == [1, 2, 3]
    assert len(set(led)) == 3
    assert tidelog("log", "verify", "--log", url).stdout.startswith(f"{len(records)} records, chain ok")
    assert "identical" in tidelog("replay", "verify", "--log", url).stdout
    there, back = tmp_path / "export.jsonl", tmp_path / "back.db"
    there.write_text(tidelog("log", "export", "--log", url).stdout)
    tidelog("log", "import", there, "--log", back)
    assert tidelog("log", "export", "--log", back).stdout == there.read_text()


async def test_request_that_nobody_took_waits_for_the_next_leader(logs: Logs) -> None:
    from tidelog.eventlog.log import open_log
    from tidelog.eventlog.socket import connect, serve

    url = await logs.new()
    heard: list[bytes] = []

    async def handler(message: object) -> object:
        heard.append(bytes(message))  # type: ignore[call-overload]
        return {"done": True}

    first = await open_log(url)
    server = await serve(first, handler)
    client = await connect(url)
    server._loop.cancel()  # type: ignore[attr-defined]  # It takes nothing any more.
    asked = asyncio.create_task(client.request({"what": 1}))
    await asyncio.sleep(0.1)
    await server.close()
    await first.close()
    async with open_log(url) as second, serve(second, handler):
        answer = await asked
    await client.close()

    assert answer == {"done": True}
    assert len(heard) == 1

"""The daemon killed, stopped, robbed of its lock and refused its writes, under load: real processes, real files, random moments.

However it ends: what a client was told is in the log, once, where it was said to be; no decision of an older epoch follows one of a newer; and
the log replays (conftest.py). A few rounds by default; `TORTURE_ROUNDS=200` for more, `TORTURE_SEED` for other moments.
With `-rP` pytest shows the figures.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import statistics
import time
import urllib.error
from pathlib import Path

import pytest

from tests.acceptance.daemons import Daemon, daemon, tidelog
from tests.acceptance.load import Load, check_nothing_lost, nodes
from tests.patience import PATIENCE
from tidelog.api.manifests.manifests import dump_yaml
from tidelog.daemon.intake.messages import Apply, read_answer, write_request
from tidelog.eventlog.reader import open_reader
from tidelog.eventlog.records import Record, SchedulerStarted, decode_body
from tidelog.eventlog.socket import connect
from tidelog.testing import builders as b

ROUNDS = int(os.environ.get("TORTURE_ROUNDS", "4"))
RECORDS = int(os.environ.get("TORTURE_RECORDS", "2000"))
SEED = int(os.environ.get("TORTURE_SEED", "0"))
ROUNDS_PER_LOG = 20
LOGS = range(SEED, SEED + max(1, ROUNDS // ROUNDS_PER_LOG))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with some nodes."""
    path, manifest = tmp_path / "cluster.db", tmp_path / "nodes.yaml"
    manifest.write_text(dump_yaml(nodes()))
    tidelog("apply", "--log", path, "-f", manifest)
    return path


async def wait_for(running: Daemon, message: str) -> None:
    """Let the clients work meanwhile."""
    await asyncio.to_thread(running.wait_for, message)


async def either(running: Daemon, message: str, other: str) -> None:
    """Return when it has said the message; fails if it has said the other."""
    assert await asyncio.to_thread(running.wait_for_one_of, (message, other)) == message


async def all_records(log: Path) -> list[Record]:
    async with open_reader(log) as reader:
        return [record async for record in reader.read()]


async def check(log: Path, load: Load) -> list[Record]:
    """A last daemon places what is left; then nothing is missing and nothing is there twice."""
    asked = len(load.acknowledged)
    with daemon(log, "--snapshot-every", 200) as last:
        async with asyncio.timeout(PATIENCE):
            while placed(await all_records(log)) < asked:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert last.stop() == 0
    records = await all_records(log)
    check_nothing_lost(records, load.acknowledged)
    assert placed(records) >= asked
    return records


def placed(records: list[Record]) -> int:
    return len({record.key for record in records if record.kind == "Scheduled"})


def health(running: Daemon, page: str) -> str:
    """What the page says, whether it is good or bad news."""
    try:
        return running.get(page)
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


# --- killed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", LOGS)
async def test_kills_at_random_moments_lose_nothing(seed: int, log: Path) -> None:
    rng = random.Random(seed)
    seconds: list[float] = []
    async with Load(log) as load:
        for _ in range(min(ROUNDS, ROUNDS_PER_LOG)):
            began = time.monotonic()
            running = Daemon(log, "--snapshot-every", rng.choice((50, 200)))
            try:
                if rng.random() < 0.25:
                    # Before it is ready: while it opens, recovers, or takes the log.
                    await asyncio.sleep(rng.uniform(0.2, 0.8))
                else:
                    await wait_for(running, "scheduling")
                    seconds.append(time.monotonic() - began)
                    await asyncio.sleep(rng.uniform(0.0, 0.5))
            finally:
                await asyncio.to_thread(running.kill)

    records = await check(log, load)
    print(
        f"seed {seed}: {len(seconds)} restarts to ready, median {statistics.median(seconds):.2f} s, "
        f"longest {max(seconds):.2f} s; {len(load.acknowledged)} acknowledged, {len(records)} records"
    )


async def test_restart_after_a_kill_takes_up_all_that_was_decided(log: Path) -> None:
    """How long it takes is told: `TORTURE_RECORDS=100000` for a log of that size."""
    with daemon(log) as running:
        await hand_over(log, RECORDS // 2)
        await asyncio.to_thread(
            running.until, "scheduler_schedule_attempts_total", RECORDS // 2, result="scheduled"
        )
        running.kill()
    began = time.monotonic()
    with daemon(log) as again:
        seconds, busy = time.monotonic() - began, again.cpu_seconds()
        records = int(again.value("tidelog_log_head_seq"))
        assert again.stop() == 0

    assert placed(await all_records(log)) == RECORDS // 2
    print(
        f"from its start to its work, at {records} records: {seconds:.2f} s, {busy:.2f} s of them processor time"
    )


async def hand_over(log: Path, count: int) -> None:
    """So many pods, in requests of many."""
    pods = [b.pod(f"w{n}").request(cpu="10m").build() for n in range(count)]
    async with connect(log) as client:
        for start in range(0, count, 500):
            read_answer(await client.request(write_request(Apply(objects=pods[start : start + 500]))))


# --- stopped, and robbed of the lock ----------------------------------------------------------------------------------


async def test_stopped_leader_keeps_the_log_and_goes_on(log: Path) -> None:
    """There is no lease: what holds the lock is alive, however long it is stopped."""
    with daemon(log) as leader, daemon(log, ready="standing by") as standby:
        async with Load(log) as load:
            await load.more()
            leader.signal(signal.SIGSTOP)
            await asyncio.sleep(0.5)
            meanwhile = health(standby, "/statusz")
            leader.signal(signal.SIGCONT)
            await load.more()
        leader.stop()
        await wait_for(standby, "scheduling")
        standby.stop()

    assert "Phase: standby" in meanwhile
    records = await check(log, load)
    assert [r.kind for r in records].count("SchedulerStarted") == 3


def rob(log: Path, rng: random.Random) -> None:
    """The lock file is removed, or another one is put in its place."""
    lock = log.with_name(log.name + ".lock")
    if rng.random() < 0.5:
        lock.unlink()
    else:
        other = lock.with_name("other")
        other.write_bytes(b"")
        other.rename(lock)


@pytest.mark.parametrize("seed", LOGS)
async def test_leader_that_was_robbed_of_its_lock_while_stopped_writes_nothing_more(
    seed: int, log: Path
) -> None:
    rng = random.Random(seed)
    taken = kept = 0
    leader = Daemon(log)
    try:
        async with Load(log) as load:
            await wait_for(leader, "scheduling")
            for _ in range(min(ROUNDS, ROUNDS_PER_LOG)):
                await load.more(rng.randrange(1, 20))
                await asyncio.sleep(rng.uniform(0.0, 0.05))
                leader.signal(signal.SIGSTOP)
                rob(log, rng)
                successor = Daemon(log, "--snapshot-every", 50)
                try:
                    await either(successor, "scheduling", "the log cannot be opened yet")
                except AssertionError:
                    # The leader was stopped within a transaction: SQLite's own lock keeps everybody else out, for as long as it takes.
                    assert "database is locked" in "".join(successor.lines), successor.lines
                    await asyncio.to_thread(successor.kill)
                    leader.signal(signal.SIGCONT)
                    await asyncio.to_thread(leader.kill)
                    leader = Daemon(log)
                    await wait_for(leader, "scheduling")
                    kept += 1
                    continue
                await load.give_up()
                await load.more(rng.randrange(1, 20))
                before = health(successor, "/readyz")
                leader.signal(signal.SIGCONT)
                assert await asyncio.to_thread(leader.end) == 1, leader.lines
                assert before == "ok"
                await connected(log)
                leader = successor
                taken += 1
        await asyncio.to_thread(leader.stop)
    finally:
        leader.process.kill()

    records = await check(log, load)
    check_epochs(records)
    print(
        f"seed {seed}: taken over {taken} times, kept out {kept} times, {len(load.acknowledged)} acknowledged"
    )


async def connected(log: Path) -> None:
    """New clients find the successor, whatever its predecessor removed at its end."""
    async with connect(log):
        pass


async def test_idle_leader_that_was_robbed_says_that_it_is_not_ready(log: Path) -> None:
    with daemon(log) as leader:
        before = health(leader, "/readyz")
        rob(log, random.Random(SEED))
        after = health(leader, "/readyz")
        leader.stop()

    assert before == "ok"
    assert "was removed or replaced" in after


def check_epochs(records: list[Record]) -> None:
    """No outcome of a stale epoch after a newer one began."""
    epoch = 0
    for record in records:
        body = decode_body(record)
        if isinstance(body, SchedulerStarted):
            assert body.epoch > epoch
            epoch = body.epoch
        assert getattr(body, "epoch", epoch) == epoch, record


# --- refused its writes -----------------------------------------------------------------------------------------------


async def test_writes_that_the_system_refuses_end_the_daemon_and_acknowledge_nothing(log: Path) -> None:
    """A limit on the size of files makes write(2) fail as a broken or read-only disk does: on any machine, for anybody."""
    with daemon(log) as running:
        async with Load(log) as load:
            await load.more()
            size = log.with_name(log.name + "-wal").stat().st_size
            resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (size, size))
            code = await asyncio.to_thread(running.end)
        told = [line for line in running.lines if "writing failed" in line]

    assert code == 1
    assert told != []
    assert load.errors != {}
    await check(log, load)

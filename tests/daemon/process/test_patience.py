"""A leader that is stopped, a database that is another's for a while, a clock that leaps: said, and waited for."""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.acceptance.daemons import daemon, pods, tidelog
from tests.patience import until
from tidelog.api.errors import LogClockWrong
from tidelog.api.manifests.manifests import dump_yaml
from tidelog.api.times import NANOS
from tidelog.daemon.process.clock import LEAP_MAX, SystemClock
from tidelog.eventlog.log import LATEST, memory_log, open_log
from tidelog.eventlog.records import Draft, Tick
from tidelog.testing import builders as b

YEAR = 365 * 86_400 * NANOS


def tick() -> Draft:
    return Draft(body=Tick(), author="cluster")


# --- a silent leader --------------------------------------------------------------------------------------------------


def test_silent_leader_is_told_of_and_ended_where_that_was_asked_for(tmp_path: Path) -> None:
    log, manifest = tmp_path / "c.db", tmp_path / "pod.yaml"
    manifest.write_text(dump_yaml([b.pod("web").build()]))
    with daemon(log) as leader, daemon(log, "--end-silent-leader", "5s", ready="standing by") as standby:
        tidelog("apply", "--log", log, "-f", manifest)
        leader.signal(signal.SIGSTOP)

        standby.wait_for("the leader shows no sign of life")
        ended = standby.wait_for("ended a silent leader")
        standby.wait_for("scheduling")

        assert f"killed process {leader.process.pid}" in ended["done"]
        assert leader.end() == -signal.SIGKILL
        assert list(pods(log)) == ["web"]
        assert standby.stop() == 0


# --- another's transaction --------------------------------------------------------------------------------------------


async def test_leader_waits_for_another_programs_transaction_and_goes_on(tmp_path: Path) -> None:
    async with open_log(tmp_path / "c.db") as log:
        await log.append([tick()])
        other = sqlite3.connect(tmp_path / "c.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(log.append([tick()]))

        await until(lambda: log.waits is not None)

        assert "another program holds a transaction on it (database is locked)" in str(log.waits)
        assert not waiting.done()
        other.execute("ROLLBACK")
        other.close()
        assert [record.seq for record in await waiting] == [2]
        assert log.failure is None


def test_daemon_and_standby_wait_for_another_programs_transaction(tmp_path: Path) -> None:
    log = tmp_path / "c.db"
    with daemon(log) as leader, daemon(log, ready="standing by") as standby:
        other = sqlite3.connect(log, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        leader.kill()
        standby.wait_for("cannot take the log over yet")
        other.execute("ROLLBACK")
        other.close()
        standby.wait_for("scheduling")
        assert standby.stop() == 0


# --- a reader that does not let go -------------------------------------------------------------------------------------


async def test_reader_that_pins_the_write_ahead_log_is_told_of_and_bounded_and_the_log_cut_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidelog.eventlog.sqlite.CHECKPOINT_BYTES", 2**14)
    monkeypatch.setattr("tidelog.eventlog.sqlite.PINNED_BYTES", 2**17)
    monkeypatch.setattr("tidelog.eventlog.sqlite.PINNED_BYTES_MAX", 2**18)
    monkeypatch.setattr("tidelog.eventlog.log.WAIT_SECONDS", 0.01)
    path = tmp_path / "c.db"
    async with open_log(path) as log:
        await log.append([tick()])
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM records").fetchone()

        async def write() -> None:
            for _ in range(400):
                await log.append([tick()] * 20)

        writing = asyncio.ensure_future(write())
        await until(lambda: log.waits is not None)
        assert "somebody reads an old state of it" in str(log.waits)
        assert "a reader keeps the write-ahead log from being emptied" in caplog.text
        assert path.with_name("c.db-wal").stat().st_size < 2**19
        reader.close()
        await writing
        assert log.waits is None
        assert path.with_name("c.db-wal").stat().st_size < 2**17


# --- clocks -----------------------------------------------------------------------------------------------------------


def test_clock_follows_small_leaps_and_refuses_large_ones_until_they_are_over() -> None:
    wall, steady = 1_000 * YEAR // 20, 0
    clock = SystemClock(lambda: wall, lambda: steady)
    begin = clock.now()

    wall += LEAP_MAX
    assert clock.now() == begin + LEAP_MAX
    wall += 10 * YEAR
    steady += NANOS
    assert clock.now() == begin + LEAP_MAX + NANOS
    assert clock.refused > 9 * YEAR
    steady += NANOS
    assert clock.now() == begin + LEAP_MAX + 2 * NANOS
    wall -= 10 * YEAR
    steady += NANOS
    assert clock.now() == begin + LEAP_MAX + 3 * NANOS
    assert clock.refused == 0


async def test_log_refuses_a_time_that_cannot_be_right_and_takes_the_next_one() -> None:
    now = 1_795_000_000 * NANOS
    async with await memory_log(clock=lambda: now) as log:
        await log.append([tick()])
        for leap in (10 * YEAR, 250 * YEAR):
            now += leap
            with pytest.raises(LogClockWrong, match=r"so nothing was written: set the clock") as refused:
                await log.append([tick()])
            assert "years after its newest record" in str(refused.value)
            now -= leap
        now += YEAR
        assert [record.at for record in await log.append([tick()])] == [now]


async def test_new_log_begins_at_any_time_that_fits() -> None:
    for now, fits in ((0, True), (LATEST, True), (LATEST + 1, False), (2**63 - 1, False)):
        async with await memory_log(clock=lambda now=now: now) as log:  # type: ignore[misc]
            if fits:
                await log.append([tick()])
            else:
                with pytest.raises(LogClockWrong, match="a year after 2200"):
                    await log.append([tick()])
    assert dt.datetime.fromtimestamp(LATEST / NANOS, dt.UTC).year == 2200

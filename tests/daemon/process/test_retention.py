"""How much of a log is kept, by a daemon that drops the rest while it runs, and by `tidelog log compact --keep`."""

from __future__ import annotations

import pytest

from tidelog.api.errors import UsageError
from tidelog.api.times import NANOS
from tidelog.daemon.process.retention import Retention, end_of_dropped, read_retention, retain
from tidelog.eventlog.log import Log, memory_log
from tidelog.eventlog.records import Draft, Tick
from tidelog.scheduler.state import SNAPSHOT

pytestmark = pytest.mark.unreplayed("the snapshots are made by hand")
DAY = 86_400 * NANOS


@pytest.mark.parametrize(
    ("text", "retention"),
    [
        ("1", Retention(records=1)),
        ("100000", Retention(records=100_000)),
        ("45s", Retention(nanos=45 * NANOS)),
        ("90m", Retention(nanos=90 * 60 * NANOS)),
        ("12h", Retention(nanos=12 * 3600 * NANOS)),
        ("30d", Retention(nanos=30 * DAY)),
        ("8w", Retention(nanos=56 * DAY)),
    ],
)
def test_retention_is_a_number_of_records_or_a_duration(text: str, retention: Retention) -> None:
    assert read_retention(text) == retention


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5d", "d", "30 d", "30D", "30y", "1e3", "٣", "9" * 20])
def test_everything_else_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"--keep .*: must be a number of records \(100000\), or how long \(45m, 12h, 30d, 8w\)",
    ):
        read_retention(text)


async def log_with_states(*seqs: int, days: int = 40, without_objects: int = 0) -> Log:
    """A record a day; states of the scheduler at these, with their objects but at one of them."""
    now = 0

    def clock() -> int:
        return now

    log = await memory_log(clock=clock)
    for day in range(1, days + 1):
        now = day * DAY
        await log.append([Draft(body=Tick(), author="cluster")])
        if day in seqs:
            await log.put_snapshot(SNAPSHOT, day, b"state")
            if day != without_objects:
                await log.put_snapshot("objects", day, b"objects")
    return log


@pytest.mark.parametrize(
    ("keep", "end"),
    [
        (Retention(records=5), 30),
        (Retention(records=10), 30),
        (Retention(records=11), 20),
        (Retention(records=30), 10),
        (Retention(records=31), 0),
        (Retention(records=1_000), 0),
        (Retention(nanos=5 * DAY), 30),
        (Retention(nanos=10 * DAY), 30),
        (Retention(nanos=11 * DAY), 20),
        (Retention(nanos=1_000 * DAY), 0),
    ],
)
async def test_log_begins_at_the_newest_state_before_what_is_kept(keep: Retention, end: int) -> None:
    async with await log_with_states(10, 20, 30) as log:
        assert await end_of_dropped(log, keep, 40 * DAY) == end


async def test_state_without_its_objects_is_no_beginning() -> None:
    async with await log_with_states(10, 20, 30, without_objects=30) as log:
        await log.put_snapshot("objects", 25, b"objects")
        await log.put_snapshot("objects", 35, b"objects")

        assert await retain(log, Retention(records=1), 40 * DAY) == 20
        assert (log.anchor.seq, await retain(log, Retention(records=1), 40 * DAY)) == (20, 0)
        await log.put_snapshot("objects", 30, b"objects")
        assert await retain(log, Retention(records=1), 40 * DAY) == 10

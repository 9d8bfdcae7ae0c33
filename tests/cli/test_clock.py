"""Times as people say them."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.api.errors import UsageError
from tidelog.api.times import format_time, parse_time
from tidelog.cli.clock import moment_named, zone_notice
from tidelog.cli.moments import At, dated, parse_at
from tidelog.eventlog.reader import open_reader
from tidelog.replay.driver import Driver
from tidelog.replay.files import write_log

NOW = parse_time("2026-11-19T09:00:00Z")


@pytest.fixture(autouse=True, params=["UTC", "Europe/Berlin", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield str(request.param)
    monkeypatch.undo()
    time.tzset()


HOURS = {"UTC": "Z", "Europe/Berlin": "+01:00", "America/St_Johns": "-03:30"}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("04:30", "2026-11-19T04:30:00"),
        ("4:30:15.5", "2026-11-19T04:30:15.5"),
        ("22:50", "2026-11-18T22:50:00"),
        ("yesterday 14:03", "2026-11-18T14:03:00"),
        ("today 22:50", "2026-11-19T22:50:00"),
        ("2026-11-18T22:54:26", "2026-11-18T22:54:26"),
        ("2026-11-18 22:54", "2026-11-18T22:54:00"),
        ("2026-11-18", "2026-11-18T00:00:00"),
    ],
)
def test_time_without_a_zone_is_in_that_of_the_machine(said: str, meant: str, zone: str) -> None:
    expected = parse_time(meant + HOURS[zone])

    assert format_time(moment_named(said, NOW)) == format_time(expected)
    assert zone_notice(said, expected).startswith(f"--at {said} is {format_time(expected)}")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("5m", "2026-11-19T08:55:00Z"),
        ("5m ago", "2026-11-19T08:55:00Z"),
        ("1h30m", "2026-11-19T07:30:00Z"),
        ("2d", "2026-11-17T09:00:00Z"),
        ("1d12h", "2026-11-17T21:00:00Z"),
        ("2026-03-01T14:03:00Z", "2026-03-01T14:03:00Z"),
        ("2026-03-01T14:03:00+02:00", "2026-03-01T12:03:00Z"),
    ],
)
def test_moment_that_needs_no_zone_is_the_same_everywhere(said: str, meant: str) -> None:
    assert format_time(moment_named(said, NOW)) == meant


def test_full_time_needs_no_notice() -> None:
    assert zone_notice("2026-03-01T14:03:00Z", parse_time("2026-03-01T14:03:00Z")) == ""


@pytest.mark.parametrize(
    "said", ["", "soon", "25:00", "12:61", "tomorrow 10:00", "2026-02-30", "-5m", "5", "99999999d", "1h 30m"]
)
def test_anything_else_is_refused_with_examples(said: str) -> None:
    with pytest.raises(UsageError, match="yesterday 14:03"):
        moment_named(said, NOW)


def test_number_is_a_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_at("48211", NOW) == At(seq=48211)
    assert capsys.readouterr().err == ""


def test_moment_that_was_understood_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_at("5m", NOW) == At(time=parse_time("2026-11-19T08:55:00Z"))
    assert capsys.readouterr().err.startswith("tidelog: --at 5m is 2026-11-19T08:55:00Z")


@pytest.mark.parametrize(
    ("now", "meant"),
    [("2023-11-14T23:00:00Z", "2023-11-14T22:20:00Z"), ("2026-11-19T09:00:00Z", "2023-11-13T22:20:00Z")],
)
def test_time_of_day_is_read_on_the_last_day_of_a_log_that_ended_long_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: str, meant: str
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    driver = Driver(now=parse_time("2023-11-14T22:10:00Z"))
    driver.start()
    asyncio.run(write_log(tmp_path / "x.db", driver.records))

    async def read() -> At:
        async with open_reader(tmp_path / "x.db") as log:
            return await dated(log, parse_at("22:20", parse_time(now)), parse_time(now))

    assert asyncio.run(read()) == At(time=parse_time(meant))

"""Times and durations as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.times import (
    DURATION_RULE,
    TIME_RULE,
    format_duration,
    format_time,
    parse_duration,
    parse_time,
)

FIRST, LAST = parse_time("0001-01-01T00:00:00Z"), parse_time("9999-12-31T23:59:59.999999999Z")


@given(st.integers(min_value=FIRST, max_value=LAST))
def test_every_moment_is_written_and_read_exactly(at: int) -> None:
    assert parse_time(format_time(at)) == at


@given(st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2100, 1, 1)))  # noqa: DTZ001
def test_moment_is_the_calendars(moment: datetime) -> None:
    expected = round((moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 10**6)

    assert parse_time(moment.isoformat() + "Z") == expected * 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T00:00:00.1234567899Z", 123_456_789),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T23:59:59-00:01", 59_000_000_000),
        ("2024-02-29T12:00:00Z", 1_709_208_000_000_000_000),
    ],
)
def test_time_is_read(text: str, expected: int) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2024-01-01",
        "2024-01-01 00:00:00Z",
        "2024-01-01T00:00:00",
        "2024-01-01t00:00:00z",
        "2024-13-01T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:60:00Z",
        "2024-01-01T00:00:60Z",
        "2024-01-01T00:00:00+24:00",
        "2024-01-01T00:00:00.Z",
        "0000-01-01T00:00:00Z",
        "٢٠٢٤-01-01T00:00:00Z",
    ],
)
def test_other_text_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339") as caught:
        parse_time(text)

    assert str(caught.value) == TIME_RULE


@pytest.mark.parametrize(
    ("value", "nanos", "written"),
    [
        ("0", 0, "0s"),
        ("5m0s", 300_000_000_000, "5m0s"),
        ("300s", 300_000_000_000, "5m0s"),
        ("1h", 3_600_000_000_000, "1h0m0s"),
        ("1h30m", 5_400_000_000_000, "1h30m0s"),
        ("1.5h", 5_400_000_000_000, "1h30m0s"),
        ("300ms", 300_000_000, "300ms"),
        ("1.5ms", 1_500_000, "1.5ms"),
        ("1us", 1_000, "1µs"),
        ("2µs", 2_000, "2µs"),
        ("999ns", 999, "999ns"),
        ("-1.5s", -1_500_000_000, "-1.5s"),
        ("+2s", 2_000_000_000, "2s"),
        (".5s", 500_000_000, "500ms"),
        ("1m0.5s", 60_500_000_000, "1m0.5s"),
        (30, 30_000_000_000, "30s"),
        (0.1, 100_000_000, "100ms"),
    ],
)
def test_duration_is_read_and_written_as_go_does(value: str | float, nanos: int, written: str) -> None:
    assert parse_duration(value) == nanos
    assert format_duration(nanos) == written


@pytest.mark.parametrize(
    "value",
    [
        "",
        "-",
        "5",
        "m",
        "1x",
        "1 s",
        "1s ",
        ".s",
        "1d",
        "300000000h",
        "9" * 400 + "s",
        True,
        float("nan"),
        float("inf"),
    ],
)
def test_other_values_are_no_duration(value: str | float) -> None:
    with pytest.raises(ValueError, match="must be a duration") as caught:
        parse_duration(value)

    assert str(caught.value) == DURATION_RULE


@given(st.integers(min_value=-(1 << 62), max_value=1 << 62))
def test_every_duration_is_written_and_read_exactly(nanos: int) -> None:
    assert parse_duration(format_duration(nanos)) == nanos
